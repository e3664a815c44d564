//! Commands of operators across tenants: `webhookctl recover` and `webhookctl top`.

use std::process::Stdio;

use domain::EventType;
use end_to_end::{
    commands::{self, Ran},
    events::Event,
    history,
    receiver::{Receiver, Reply, always, behaviour},
    system::{Options, Service, System, TestSystem},
    wait::{SOON, eventually},
};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};
use uuid::Uuid;

fn command(system: &System, arguments: &[&str]) -> Command {
    commands::command("webhookctl", &system.variables, arguments)
}

/// Runs `webhookctl`. Returns the exit code, standard output and standard error.
async fn webhookctl(system: &System, arguments: &[&str]) -> (i32, String, String) {
    let Ran { code, out, err } = commands::webhookctl(&system.variables, arguments).await;
    (code, out, err)
}

fn ago(time: Duration) -> String {
    (OffsetDateTime::now_utc() - time).format(&Rfc3339).unwrap()
}

/// A tenant with a webhook at `path` of the receiver, and dropped deliveries whose last attempts had this outcome. Returns
/// the tenant and the webhook.
async fn with_dropped(system: &System, url: &str, count: usize, outcome: &str) -> (Uuid, String) {
    let tenant = Uuid::new_v4();
    let webhook = system.admin(tenant).await.create(url, &["quote.closed"]).await.id;
    history::dropped(system, tenant, &webhook, count).await;
    let columns = "delivery_id, attempt, url, started_at, duration_us, outcome, response_body";
    system
        .sql(&format!(
            "INSERT INTO attempts ({columns}) SELECT id, n, '{url}', created_at, 1, CASE n WHEN 7 THEN '{outcome}' \
             ELSE 'protocol' END, '' FROM deliveries, generate_series(6, 7) AS n WHERE webhook_id = '{webhook}'"
        ))
        .await;
    (tenant, webhook)
}

async fn in_state(system: &System, webhook: &str, state: &str) -> i64 {
    let count = format!("SELECT count(*) FROM deliveries WHERE webhook_id = '{webhook}' AND state = '{state}'");
    system.count(&count).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_deliveries_of_all_tenants_are_counted_and_recovered_by_outcome() {
    let system = TestSystem::running(Options::default()).await;
    let receiver = Receiver::start(&system.ca, always(200));
    let (one, by_dns) = with_dropped(&system, &receiver.url("/dns"), 9, "dns").await;
    let newest = format!("SELECT id FROM deliveries WHERE webhook_id = '{by_dns}' ORDER BY id DESC LIMIT 3");
    let other = "UPDATE attempts SET outcome = 'status' WHERE attempt = 7 AND delivery_id IN";
    system.sql(&format!("{other} ({newest})")).await;
    // More than a step looks at together.
    let (other_tenant, by_status) = with_dropped(&system, &receiver.url("/status"), 600, "status").await;
    let (gone, deleted) = with_dropped(&system, &receiver.url("/deleted"), 6, "dns").await;
    let path = format!("/api/v1/webhooks/{deleted}/");
    assert_eq!(system.admin(gone).await.delete(&path).await.status, 204);
    let (_, cancelling) = with_dropped(&system, &receiver.url("/cancelling"), 6, "dns").await;
    let task = "INSERT INTO cancellations (webhook_id, leased_until)";
    system.sql(&format!("{task} VALUES ('{cancelling}', now() + interval '1 hour')")).await;
    let (from, to) = (ago(Duration::hours(1)), ago(Duration::ZERO));
    let all = ["recover", "--from", &from, "--to", &to];

    let (code, said, error) = webhookctl(&system, &all).await;
    assert_eq!(code, 1, "{error}");
    assert!(said.contains("609 deliveries of 2 webhook(s) of 2 tenant(s) are to be sent again"), "{said}");
    assert!(said.contains(&format!("tenant {one}: 9 deliveries of 1 webhook(s)")), "{said}");
    assert!(error.contains("nothing was changed: run the command again with --yes"), "{error}");
    let by_outcome = [&all[..], &["--outcome", "connect,dns"]].concat();
    let (code, said, _) = webhookctl(&system, &[&by_outcome[..], &["--dry-run"]].concat()).await;
    assert!(code == 0 && said.contains("\n6 deliveries of 1 webhook(s) of 1 tenant(s)"), "{said}");
    let (code, _, error) =
        webhookctl(&system, &["recover", "--from", &to, "--to", &from, "--tenant", &one.to_string()]).await;
    assert!(code == 2 && error.contains("--from: is not before --to"), "{error}");
    assert_eq!(system.count("SELECT count(*) FROM recoveries").await, 0);

    let (code, said, error) = webhookctl(&system, &[&by_outcome[..], &["--yes"]].concat()).await;
    assert!(code == 0 && said.contains("recoveries begun: 1."), "{said}{error}");
    all_have_ended(&system, 1).await;
    let received = receiver.wait_for(6, SOON).await;
    assert!(received.iter().all(|one| one.path == "/dns"));
    eventually("all are recorded", SOON, || async {
        (in_state(&system, &by_dns, "succeeded").await == 6).then_some(())
    })
    .await;
    assert_eq!(in_state(&system, &by_dns, "dropped").await, 3, "their last attempts had another outcome");
    assert_eq!(in_state(&system, &by_status, "dropped").await, 600);
    let history = system.admin(one).await.get(&format!("/api/v1/webhooks/{by_dns}/history/")).await.json();
    let entry = &history["data"][0];
    assert_eq!((&entry["action"], &entry["user"]), (&json!("recovered"), &json!("operator")), "{history}");
    assert_eq!(entry["details"]["outcomes"], json!(["connect", "dns"]), "{history}");
    let (code, said, _) = webhookctl(&system, &by_outcome).await;
    assert!(code == 0 && said.starts_with("0 deliveries"), "{said}");
    of_a_tenant_and_a_time(&system, other_tenant, &by_status).await;
    all_have_ended(&system, 2).await;
    let received = receiver.wait_for(8, SOON).await;
    assert_eq!(received.iter().filter(|one| one.path == "/status").count(), 2);
    assert_eq!(in_state(&system, &by_status, "dropped").await, 598);
    assert_eq!(in_state(&system, &deleted, "dropped").await, 6);
    assert_eq!(in_state(&system, &cancelling, "dropped").await, 6);
}

/// Recovers the second and the third of a webhook's newest deliveries.
async fn of_a_tenant_and_a_time(system: &System, tenant: Uuid, webhook: &str) {
    let ids = format!("SELECT id::text FROM deliveries WHERE webhook_id = '{webhook}' ORDER BY id DESC LIMIT 3");
    let fired: Vec<String> = system
        .sql(&ids)
        .await
        .iter()
        .map(|row| row.get::<_, &str>(0).parse::<domain::DeliveryId>().unwrap().occurred_at())
        .map(|at| at.format(&Rfc3339).unwrap())
        .collect();
    let tenant = tenant.to_string();
    let some = ["recover", "--from", &fired[2], "--to", &fired[0], "--tenant", &tenant, "--yes"];
    let (code, said, error) = webhookctl(system, &some).await;
    assert!(code == 0 && said.contains("recoveries begun: 1."), "{said}{error}");
}

async fn all_have_ended(system: &System, recoveries: i64) {
    system.until_count("SELECT count(*) FROM recoveries WHERE finished_at IS NOT NULL", recoveries, SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_with_a_running_recovery_is_named_and_skipped() {
    let system = TestSystem::running(Options::default()).await;
    let receiver = Receiver::start(&system.ca, always(200));
    let (tenant, recovering) = with_dropped(&system, &receiver.url("/recovering"), 4, "dns").await;
    with_dropped(&system, &receiver.url("/free"), 6, "dns").await;
    // As if its next step were not due yet.
    let running = "INSERT INTO recoveries (id, webhook_id, since, cursor, leased_until)";
    let row = format!("gen_random_uuid(), '{recovering}', now(), gen_random_uuid(), 'infinity'");
    system.sql(&format!("{running} VALUES ({row})")).await;
    let (from, to) = (ago(Duration::hours(1)), ago(Duration::ZERO));
    let all = ["recover", "--from", &from, "--to", &to];
    let skipped = format!("skipped: webhook {recovering} of tenant {tenant}, of which a recovery is running");
    let (code, said, _) = webhookctl(&system, &[&all[..], &["--dry-run"]].concat()).await;
    assert!(code == 0 && said.contains("10 deliveries of 2 webhook(s)") && said.contains(&skipped), "{said}");
    let (code, said, error) = webhookctl(&system, &[&all[..], &["--yes"]].concat()).await;
    assert!(said.contains(&skipped) && said.contains("recoveries begun: 1."), "{said}");
    assert!(code == 1 && error.contains("1 webhook(s) were skipped"), "{error}");
    all_have_ended(&system, 1).await;
    assert!(receiver.wait_for(6, SOON).await.iter().all(|one| one.path == "/free"));
    assert_eq!(in_state(&system, &recovering, "dropped").await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_that_the_database_refuses_for_a_while_goes_on() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    with_dropped(&system, "https://localhost/", 6, "dns").await;
    let lock = system.database_session("BEGIN; LOCK TABLE unsuccessful_deliveries IN ACCESS EXCLUSIVE MODE").await;
    let url = format!("{}?options=-c%20lock_timeout%3D200", system.database_url);
    let (from, to) = (ago(Duration::hours(1)), ago(Duration::ZERO));
    let mut counting = command(&system, &["recover", "--from", &from, "--to", &to, "--dry-run"]);
    counting.env("WEBHOOKS__DATABASE__URL", url).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut counting = counting.spawn().unwrap();
    let mut errors = BufReader::new(counting.stderr.take().unwrap()).lines();
    let error = tokio::time::timeout(SOON, errors.next_line()).await.unwrap().unwrap().unwrap_or_default();
    assert!(error.contains("counting is tried again"), "{error}");
    drop(lock);
    let output = tokio::time::timeout(SOON, counting.wait_with_output()).await.unwrap().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains("6 deliveries of 1 webhook(s)"), "{said}");
}

/// Webhooks of different kinds, and one whose only attempt was made six minutes ago.
struct Webhooks {
    slow: (Uuid, String),
    failing: String,
    held: (Uuid, String),
    _receivers: [Receiver; 3],
}

impl Webhooks {
    async fn new(system: &System) -> Self {
        let late = behaviour(|_, _| Reply::ok().after(std::time::Duration::from_millis(1_200)));
        let receivers = [late, always(503), always(200)].map(|behaviour| Receiver::start(&system.ca, behaviour));
        let mut webhooks = Vec::new();
        for receiver in &receivers {
            let tenant = Uuid::new_v4();
            let webhook = system.admin(tenant).await.create(&receiver.url("/"), &["quote.closed"]).await.id;
            system.upstream.publish(&[Event::now(EventType::QuoteClosed, tenant)]).await;
            receiver.wait_for(1, SOON).await;
            webhooks.push((tenant, webhook));
        }
        let [slow, (_, failing), (_, well)] = <[_; 3]>::try_from(webhooks).unwrap();
        let is_recorded = async || (in_state(system, &well, "succeeded").await == 1).then_some(());
        eventually("it is recorded", SOON, is_recorded).await;
        let held = with_dropped(system, "https://localhost/", 3, "dns").await;
        let of_both = format!("SELECT id FROM deliveries WHERE webhook_id IN ('{well}', '{}')", held.1);
        let earlier = "UPDATE attempts SET started_at = now() - interval '6 minutes' WHERE delivery_id IN";
        system.sql(&format!("{earlier} ({of_both})")).await;
        system.sql(&format!("UPDATE webhooks SET is_active = false WHERE id = '{}'", held.1)).await;
        let hold =
            "INSERT INTO held_jobs (webhook_id, delivery_id, reason) SELECT webhook_id, id, 'paused' FROM deliveries";
        system.sql(&format!("{hold} WHERE webhook_id = '{}'", held.1)).await;
        Self { slow, failing, held, _receivers: receivers }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_webhooks_that_hold_places_are_slow_fail_and_are_held_are_shown() {
    let system = TestSystem::running(Options::default()).await;
    let webhooks = Webhooks::new(&system).await;
    let Webhooks { slow: (slow_tenant, slow_webhook), failing: failing_webhook, held: (held_tenant, held), .. } =
        &webhooks;
    let seen: Value = eventually("all is recorded", SOON, || async {
        let (code, said, error) = webhookctl(&system, &["top", "--json"]).await;
        assert_eq!(code, 0, "{error}");
        let seen: Value = serde_json::from_str(&said).unwrap();
        let is_whole = seen["slow"][0]["attempts"] == 1 && seen["failing"][0]["failed"].as_i64() >= Some(2);
        is_whole.then_some(seen)
    })
    .await;
    let ids = |part: &str| {
        let all = seen[part].as_array().unwrap().iter();
        all.map(|one| one["webhook_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids("places"), [slow_webhook.as_str(), failing_webhook], "{seen}");
    assert_eq!(ids("slow"), [slow_webhook.as_str()], "{seen}");
    assert_eq!(seen["slow"][0]["tenant_id"], slow_tenant.to_string());
    let places = seen["slow"][0]["places"].as_f64().unwrap();
    assert!((1.2 / 300.0..5.0 / 300.0).contains(&places), "{places}");
    assert_eq!(ids("failing"), [failing_webhook.as_str()], "{seen}");
    assert!(seen["failing"][0]["failure"].as_str().unwrap().contains("503"), "{seen}");
    assert_eq!((ids("held"), &seen["held"][0]["paused"]), (vec![held.clone()], &json!(3)), "{seen}");
    assert_eq!(seen["held"][0]["tenant_id"], held_tenant.to_string());
    assert_eq!(seen["ready"]["slow"], 0);

    // Three new ones, and three past ones.
    assert_eq!((&seen["deliveries"], &seen["events_since"]), (&json!(6), &Value::Null), "{seen}");

    let (code, screen, _) = webhookctl(&system, &["top", "--limit", "1"]).await;
    assert_eq!(code, 0);
    let lines: Vec<_> = screen.lines().filter(|line| line.contains(slow_webhook.as_str())).collect();
    assert_eq!(lines.len(), 2, "{screen}");
    assert!(screen.contains("held jobs") && screen.contains(&format!("paused  {held}")), "{screen}");
}
