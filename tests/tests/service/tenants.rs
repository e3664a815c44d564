//! A tenant leaves: `webhookctl tenant stop` and `tenant erase`.
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use domain::{EventType, Job, TenantId};
use end_to_end::{
    api::Api,
    commands::{self, Ran},
    events::Event,
    history,
    receiver::{Behaviour, Receiver, Reply, always, behaviour},
    system::{Options, Service, System, TestSystem, metric},
    wait::{SOON, eventually, until},
};
use ledger::{Actor, Erased, Ledger, SETTLE_TIME};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const NIL: &str = "00000000-0000-0000-0000-000000000000";

fn command(system: &System, arguments: &[&str]) -> Command {
    commands::command("webhookctl", &system.variables, &[&["tenant"], arguments].concat())
}

/// Runs `webhookctl tenant`. Returns the exit code, standard output and standard error.
async fn tenant(system: &System, arguments: &[&str]) -> (i32, String, String) {
    let Ran { code, out, err } = commands::run(command(system, arguments)).await;
    (code, out, err)
}

/// A tenant with a webhook that succeeds, one that fails, and one row more in each table that keeps such for it.
struct Settled {
    tenant: Uuid,
    api: Api,
    receivers: [Receiver; 2],
    webhooks: [String; 2],
}

impl Settled {
    async fn new(system: &System) -> Self {
        let tenant = Uuid::new_v4();
        let api = system.admin(tenant).await;
        let subscribe = async |behaviour: Behaviour| {
            let receiver = Receiver::start(&system.ca, behaviour);
            let webhook = api.create(&receiver.url("/"), &["quote.closed"]).await.id;
            (receiver, webhook)
        };
        let ((well, succeeds), (ill, fails)) = (subscribe(always(200)).await, subscribe(always(500)).await);
        let settled = Self { tenant, api, receivers: [well, ill], webhooks: [succeeds, fails] };
        settled.publish(system).await;
        let recorded = format!(
            "SELECT count(*) FROM deliveries WHERE state IN ('succeeded', 'retrying') AND webhook_id IN ('{}', '{}')",
            settled.webhooks[0], settled.webhooks[1]
        );
        let is_recorded = async || (system.count(&recorded).await == 2).then_some(());
        eventually("both attempts are recorded", SOON, is_recorded).await;
        settled.fill(system).await;
        settled
    }

    async fn publish(&self, system: &System) {
        system.upstream.publish(&[Event::now(EventType::QuoteClosed, self.tenant)]).await;
    }

    /// Adds to the tables that a short life leaves empty.
    async fn fill(&self, system: &System) {
        let webhook = &self.webhooks[1];
        let delivery = format!("(SELECT id FROM deliveries WHERE webhook_id = '{webhook}')");
        for (into, values) in [
            ("held_jobs", format!("'{webhook}', {delivery}")),
            ("promised_jobs", format!("{delivery}, now() + interval '1 hour'")),
            ("suspect_jobs", format!("{delivery}, 1, now()")),
            ("requeued_jobs", format!("{delivery}, 2, now()")),
            ("held_webhooks", format!("'{webhook}', 1, now(), now() + interval '1 hour'")),
            ("cancellations", format!("'{webhook}', '{NIL}', now() + interval '1 hour'")),
            (
                "recoveries (id, webhook_id, since, cursor, finished_at)",
                format!("gen_random_uuid(), '{webhook}', now(), '{NIL}', now()"),
            ),
        ] {
            system.sql(&format!("INSERT INTO {into} VALUES ({values})")).await;
        }
        assert_eq!(self.api.post("/api/v1/keys/", &serde_json::json!({"name": "n"})).await.status, 201);
    }

    /// How many rows of each table are the tenant's, by every column that says so.
    async fn rows(&self, system: &System, deliveries: &[String], events: &[String]) -> BTreeMap<String, i64> {
        let columns = "SELECT c.relname::text, a.attname::text FROM pg_class AS c \
             JOIN pg_attribute AS a ON a.attrelid = c.oid AND NOT a.attisdropped \
             WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relnamespace = 'public'::regnamespace \
               AND (a.attname IN ('tenant_id', 'webhook_id', 'delivery_id', 'event_id') \
                    OR a.attname = 'id' AND c.relname IN ('webhooks', 'deliveries', 'events'))";
        let mut counts = Vec::new();
        for row in system.sql(columns).await {
            let (table, column): (String, String) = (row.get(0), row.get(1));
            let theirs = match (table.as_str(), column.as_str()) {
                (_, "tenant_id") => vec![self.tenant.to_string()],
                ("webhooks", _) | (_, "webhook_id") => self.webhooks.to_vec(),
                ("events", _) | (_, "event_id") => events.to_vec(),
                _ => deliveries.to_vec(),
            };
            let theirs = theirs.join(",");
            counts.push(format!(
                "SELECT '{table}.{column}', count(*) FROM {table} WHERE {column}::text = ANY ('{{{theirs}}}')"
            ));
        }
        let rows = system.sql(&counts.join(" UNION ALL ")).await;
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// The ids of its deliveries, and of their events.
    async fn ids(&self, system: &System) -> (Vec<String>, Vec<String>) {
        let [one, other] = &self.webhooks;
        let ids = format!("SELECT id::text, event_id::text FROM deliveries WHERE webhook_id IN ('{one}', '{other}')");
        system.sql(&ids).await.iter().map(|row| (row.get::<_, String>(0), row.get::<_, String>(1))).unzip()
    }
}

fn is_full(rows: &BTreeMap<String, i64>) -> bool {
    rows.values().all(|count| *count > 0)
}

async fn skipped(dispatcher: SocketAddr, reason: &str) -> f64 {
    metric(dispatcher, &format!("webhooks_jobs_skipped_total{{reason=\"{reason}\"}}")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_that_leaves_is_stopped_and_erased_and_others_keep_what_they_have() {
    let options = Options { schedule: "1h,2h,3h,4h,5h,6h", ..Options::default() };
    let system = TestSystem::prepared(options).await;
    system.start(Service::Api).await;
    let ingest = system.start(Service::Ingest).await;
    let dispatcher = system.start(Service::Dispatcher).await;
    let (leaves, stays) = (Settled::new(&system).await, Settled::new(&system).await);
    let id = leaves.tenant.to_string();
    let (deliveries, events) = leaves.ids(&system).await;
    let (others_deliveries, others_events) = stays.ids(&system).await;
    let before = stays.rows(&system, &others_deliveries, &others_events).await;
    let full = leaves.rows(&system, &deliveries, &events).await;
    assert!(is_full(&full) && is_full(&before), "a table has no row that would have to go: {full:?}");
    // The job of the retry, which the broker holds for an hour.
    let retry = system.retry_queues().remove(0);
    system.upstream.wait_ready(&retry, 2, SOON).await;

    // Nothing is done by mistake.
    let (code, out, err) = tenant(&system, &["erase", &id, "--yes"]).await;
    assert!(code == 1 && out.is_empty() && err.contains(&format!("webhookctl tenant stop {id}")), "{out}{err}");
    let (code, out, err) = tenant(&system, &["stop", &id]).await;
    assert!(code == 1 && err.contains("--yes") && leaves.webhooks.iter().all(|webhook| out.contains(webhook)));
    let (code, out, err) = tenant(&system, &["stop", &id, "--dry-run"]).await;
    assert!((code, err.as_str()) == (0, "") && out.contains("2 webhook(s)"), "{out}{err}");
    assert_eq!(leaves.rows(&system, &deliveries, &events).await, full);
    let (code, _, err) = tenant(&system, &["stop", &Uuid::new_v4().to_string(), "--yes"]).await;
    assert!(code == 1 && err.contains("knows no webhook"), "{err}");

    stops(&system, &leaves, ingest).await;
    let rest = erases(&system, &leaves, (&deliveries, &events), dispatcher).await;
    assert!(rest.is_empty(), "{rest:?}");
    assert_eq!(stays.rows(&system, &others_deliveries, &others_events).await, before);
    assert_eq!(system.upstream.ready(&system.names.dead()).await, 0);

    // The job comes too late, as after an early erasure. It is parked, and not tried.
    let mut jobs = Vec::new();
    while let Some(message) = system.upstream.take(&retry).await {
        jobs.push(message.delivery.data);
    }
    let theirs = jobs.iter().find(|job| deliveries.iter().any(|id| String::from_utf8_lossy(job).contains(id.as_str())));
    let (queue, exchange) = (system.names.main(), system.names.exchange());
    system.upstream.publish_to(&exchange, &queue, theirs.unwrap()).await;
    system.upstream.wait_ready(&system.names.dead(), 1, SOON).await;
    assert_eq!(skipped(dispatcher, "unknown_delivery").await, 1.0);
    assert_eq!(leaves.receivers.each_ref().map(|receiver| receiver.received().len()), [1, 1]);

    let (code, out, err) = tenant(&system, &["erase", &id, "--yes"]).await;
    assert!(code == 0 && out.contains("erased: nothing"), "it can be run again: {out}{err}");
    stays.publish(&system).await;
    stays.receivers[0].wait_for(2, SOON).await;
}

/// Stops the tenant. Nothing waits any more, and a new event makes no delivery.
async fn stops(system: &System, leaves: &Settled, ingest: SocketAddr) {
    let id = leaves.tenant.to_string();
    let (code, out, err) = tenant(system, &["stop", &id, "--yes"]).await;
    let words = ["2 webhook(s) are deleted", "1 key(s) are revoked"];
    assert!((code, err.as_str()) == (0, "") && words.iter().all(|words| out.contains(words)), "{out}{err}");
    let revoked = "notice_type = 'key.revoked' AND details->>'user' = 'operator'";
    assert_eq!(system.count(&format!("SELECT count(*) FROM notices WHERE tenant_id = '{id}' AND {revoked}")).await, 1);
    let [one, other] = &leaves.webhooks;
    let theirs = format!("webhook_id IN ('{one}', '{other}')");
    let count = async |what: &str| system.count(&format!("SELECT count(*) FROM {what} AND {theirs}")).await;
    assert_eq!(count("deliveries WHERE state IN ('pending', 'retrying')").await, 0);
    assert_eq!(count("deliveries WHERE state = 'cancelled'").await, 1);
    assert_eq!(count("history WHERE action = 'deleted' AND user_id = 'operator'").await, 2);
    assert_eq!(count("notices WHERE notice_type = 'webhook.deleted' AND details->>'user' = 'operator'").await, 2);
    let log = leaves.api.log(one, "").await;
    assert_eq!(log["data"].as_array().unwrap().len(), 1, "the log stays readable");
    let deliveries = count("deliveries WHERE true").await;
    leaves.publish(system).await;
    let unwanted = r#"webhooks_ingest_events_total{outcome="unwanted"}"#;
    until("nobody wants the event", SOON, || async { metric(ingest, unwanted).await >= 1.0 }).await;
    assert_eq!(count("deliveries WHERE true").await, deliveries);
    let (code, out, err) = tenant(system, &["stop", &id]).await;
    assert!(code == 0 && out.contains("0 webhook(s) are deleted, 2 had been before"), "{out}{err}");
}

/// Erasing is refused while something of the tenant is under way.
async fn refuses(system: &System, leaves: &Settled) {
    let id = leaves.tenant.to_string();
    let [webhook, _] = &leaves.webhooks;
    for (begin, end, words) in [
        (
            format!("INSERT INTO cancellations VALUES ('{webhook}', '{NIL}', now() + interval '1 hour')"),
            format!("DELETE FROM cancellations WHERE webhook_id = '{webhook}'"),
            "still wait",
        ),
        (
            format!(
                "INSERT INTO api_keys (id, tenant_id, name, key_sha256, created_by) \
                 VALUES ('{webhook}', '{id}', 'n', sha256('n'), 'u')"
            ),
            format!("DELETE FROM api_keys WHERE tenant_id = '{id}'"),
            "and 1 key(s)",
        ),
        (
            format!("UPDATE notices SET leased_until = now() + interval '1 hour' WHERE tenant_id = '{id}'"),
            "UPDATE notices SET leased_until = NULL".into(),
            "are not published yet",
        ),
    ] {
        system.sql(&begin).await;
        let (code, out, err) = tenant(system, &["erase", &id, "--yes"]).await;
        assert!(code == 1 && out.is_empty() && err.contains(words), "{out}{err}");
        system.sql(&end).await;
    }
    // The schedule ends after six hours.
    let hours = |hours: u64| Duration::from_secs(hours * 3_600);
    let minute = Duration::from_secs(60);
    let brake = "INSERT INTO brakes (holder, reason) VALUES ('operator', 'a test')";
    for (ago, sql, now, words) in [
        (minute, "SELECT 1", false, "run it again in 6h 59m"),
        (hours(7) - minute, "SELECT 1", false, "run it again in 1m"),
        (hours(7), brake, false, "dispatchers are braked"),
        (SETTLE_TIME - Duration::from_secs(20), brake, true, "an event-ingest may still store"),
    ] {
        deleted_ago(system, leaves.tenant, ago).await;
        system.sql(sql).await;
        let arguments = ["erase", &id, "--yes", "--now"];
        let (code, out, err) = tenant(system, &arguments[..if now { 4 } else { 3 }]).await;
        assert!(code == 1 && out.is_empty() && err.contains(words), "{words}: {out}{err}");
        system.sql("DELETE FROM brakes").await;
    }
    // A brake and jobs that the broker still holds are accepted.
    settled(system, leaves.tenant).await;
    system.sql(brake).await;
    let (code, out, err) = tenant(system, &["erase", &id, "--dry-run", "--now"]).await;
    assert!((code, err.as_str()) == (0, "") && out.contains("are to be erased"), "{out}{err}");
    system.sql("DELETE FROM brakes").await;
    deleted_ago(system, leaves.tenant, hours(7)).await;
}

/// Erases the stopped tenant, with an interruption. Returns what is left.
async fn erases(
    system: &System,
    leaves: &Settled,
    (deliveries, events): (&[String], &[String]),
    dispatcher: SocketAddr,
) -> BTreeMap<String, i64> {
    let id = leaves.tenant.to_string();
    let unpublished = format!("SELECT count(*) FROM notices WHERE tenant_id = '{id}' AND leased_until IS NOT NULL");
    let are_told = async || (system.count(&unpublished).await == 0).then_some(());
    eventually("the notices are published", SOON, are_told).await;
    refuses(system, leaves).await;
    let (code, out, err) = tenant(system, &["erase", &id, "--dry-run"]).await;
    assert!((code, err.as_str()) == (0, "") && out.contains("2 webhook(s) and 2 deliveries"), "{out}{err}");
    let (code, _, err) = tenant(system, &["erase", &id]).await;
    assert!(code == 1 && err.contains("--yes"), "{err}");
    let mut rows = leaves.rows(system, deliveries, events).await;
    rows.retain(|column, _| ["held_jobs", "cancellations", "api_keys"].iter().all(|gone| !column.starts_with(gone)));
    assert!(is_full(&rows), "the stop has taken the held job, its own task and the key, nothing else: {rows:?}");

    // Somebody else began, and was interrupted between two deliveries of one event. A job of the other comes then.
    let ledger = system.ledger_as("interrupted", 1);
    let mut begun = ledger.erasure_begin(TenantId::from(leaves.tenant)).await.unwrap();
    let step = ledger.erasure_step(&mut begun).await.unwrap();
    assert!(matches!(step, Erased::Rows(rows) if rows.contains(&("deliveries", 1)) && rows.contains(&("events", 1))));
    let other = format!("SELECT id::text FROM deliveries WHERE id::text = ANY ('{{{}}}')", deliveries.join(","));
    let delivery = system.sql(&other).await[0].get::<_, String>(0).parse().unwrap();
    let (queue, exchange) = (system.names.main(), system.names.exchange());
    system.upstream.publish_to(&exchange, &queue, &Job { delivery, attempt: 1 }.to_bytes()).await;
    let is_skipped = async || (skipped(dispatcher, "stale").await == 1.0).then_some(());
    eventually("the job is skipped", SOON, is_skipped).await;

    let (code, out, err) = tenant(system, &["erase", &id, "--yes"]).await;
    assert!(
        (code, err.as_str()) == (0, "") && out.contains("1 deliveries") && out.contains("2 webhooks"),
        "{out}{err}"
    );
    let mut rows = leaves.rows(system, deliveries, events).await;
    rows.retain(|_, count| *count > 0);
    rows
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_table_is_erased_or_keeps_nothing_of_a_tenant() {
    let system = TestSystem::shared().await;
    let tables = "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition \
                      AND relnamespace = 'public'::regnamespace";
    let present: BTreeSet<String> = system.sql(tables).await.iter().map(|row| row.get(0)).collect();
    let erased: BTreeSet<String> = ledger::erased_tables().map(str::to_owned).collect();
    assert_eq!(present, erased, "a table is missing in ledger/src/tenant/erasure.rs, or one is gone");
}

/// As if all webhooks were deleted so long ago that no ingest stores a delivery to them any more.
async fn settled(system: &System, tenant: Uuid) {
    deleted_ago(system, tenant, SETTLE_TIME).await;
}

async fn deleted_ago(system: &System, tenant: Uuid, ago: Duration) {
    let ago = ago.as_secs_f64();
    let sql = format!(
        "UPDATE webhooks SET deleted_at = now() - {ago} * interval '1 second' \
         WHERE deleted_at IS NOT NULL AND tenant_id = '{tenant}'"
    );
    system.sql(&sql).await;
}

/// Deletes a webhook as an administrator does.
async fn deleted(ledger: &Ledger, tenant: Uuid, webhook: &str) {
    let actor = Actor { tenant: tenant.into(), user: "somebody".to_owned() };
    assert!(ledger.webhook_delete(&actor, webhook.parse().unwrap(), |_| Ok::<_, ()>(())).await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_whose_delivery_is_erased_meanwhile_leaves_its_job_and_nothing_else() {
    let system = TestSystem::prepared(Options { timeout: "15s", ..Options::default() }).await;
    let gate = CancellationToken::new();
    let opened = gate.clone();
    system.start(Service::Api).await;
    system.start(Service::Ingest).await;
    let dispatcher = system.start(Service::Dispatcher).await;
    let tenant = Uuid::new_v4();
    let slow = behaviour(move |_, _| Reply::status(500).once(&opened));
    let receiver = Receiver::start(&system.ca, slow);
    let webhook = system.admin(tenant).await.create(&receiver.url("/"), &["quote.closed"]).await.id;
    system.upstream.publish(&[Event::now(EventType::QuoteClosed, tenant)]).await;
    until("the attempt is under way", SOON, || async { receiver.arrived() == 1 }).await;
    let ledger = system.ledger_as("eraser", 1);
    deleted(&ledger, tenant, &webhook).await;
    settled(&system, tenant).await;
    let mut erasure = ledger.erasure_begin(tenant.into()).await.unwrap();
    while ledger.erasure_step(&mut erasure).await.unwrap() != Erased::All {}
    gate.cancel();
    system.upstream.wait_ready(&system.names.dead(), 1, SOON).await;
    assert_eq!(skipped(dispatcher, "unknown_delivery").await, 1.0);
    for table in ["deliveries", "attempts", "events", "webhooks", "webhook_health", "webhook_stats"] {
        assert_eq!(system.count(&format!("SELECT count(*) FROM {table}")).await, 0, "{table}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_are_bounded_take_only_what_is_theirs_and_end_when_a_webhook_is_registered() {
    let system = TestSystem::prepared(Options::default()).await;
    system.start(Service::Api).await;
    let (tenant, other) = (Uuid::new_v4(), Uuid::new_v4());
    let api = system.admin(tenant).await;
    let webhook = api.create("https://localhost/", &["quote.closed"]).await.id;
    let kept = system.admin(other).await.create("https://localhost/", &["quote.closed"]).await.id;
    history::made(&system, tenant, &webhook, 2_500, "'succeeded'").await;
    history::made(&system, other, &kept, 10, "'succeeded'").await;
    // Another tenant may be told of an event of the same id.
    let same = format!("SELECT occurred_at, id, '{other}', event_type, body FROM events WHERE tenant_id = '{tenant}'");
    system.sql(&format!("INSERT INTO events (occurred_at, id, tenant_id, event_type, body) {same}")).await;
    let ledger = system.ledger_as("eraser", 1);
    let mut erasure = ledger.erasure_begin(tenant.into()).await.unwrap();
    assert_eq!(ledger.erasure_step(&mut erasure).await.unwrap(), Erased::Registered);
    deleted(&ledger, tenant, &webhook).await;
    settled(&system, tenant).await;
    assert_eq!(ledger.erasure_step(&mut erasure).await.unwrap(), Erased::Registered, "it was deleted too late");

    let mut erasure = ledger.erasure_begin(tenant.into()).await.unwrap();
    let Erased::Rows(first) = ledger.erasure_step(&mut erasure).await.unwrap() else { panic!("there is more") };
    assert!(first.iter().all(|(_, rows)| *rows <= 1_000), "{first:?}");
    let again = api.create("https://localhost/", &["quote.closed"]).await.id;
    assert_eq!(ledger.erasure_step(&mut erasure).await.unwrap(), Erased::Registered);
    deleted(&ledger, tenant, &again).await;
    assert_eq!(ledger.erasure_step(&mut erasure).await.unwrap(), Erased::Registered, "it was deleted too late");
    // An ingest had read it as live, and stores this after its deletion.
    history::made(&system, tenant, &again, 1, "'pending'").await;
    let mut late = ledger.erasure_begin(tenant.into()).await.unwrap();
    assert_eq!(ledger.erasure_step(&mut late).await.unwrap(), Erased::Registered, "an ingest may store more");
    settled(&system, tenant).await;
    let (mut erasure, mut gone) =
        (ledger.erasure_begin(tenant.into()).await.unwrap(), BTreeMap::<_, usize>::from_iter(first));
    loop {
        match ledger.erasure_step(&mut erasure).await.unwrap() {
            Erased::Rows(rows) => {
                assert!(rows.iter().all(|(_, rows)| *rows <= 5_000), "{rows:?}");
                rows.into_iter().for_each(|(table, rows)| *gone.entry(table).or_default() += rows);
            }
            other => break assert_eq!(other, Erased::All),
        }
    }
    assert_eq!((gone["deliveries"], gone["events"], gone["webhooks"]), (2_501, 2_501, 2));
    let count = async |what: &str| system.count(&format!("SELECT count(*) FROM {what}")).await;
    assert_eq!((count("deliveries").await, count("events").await, count("webhooks").await), (10, 2_510, 1));
}

/// A webhook with deliveries that wait, deleted where no api-service cancels them.
async fn waits(system: &System, tenant: Uuid) {
    let webhook = history::webhook_row(system, tenant, 3, "'pending'").await;
    deleted(&system.ledger_as("administrator", 1), tenant, &webhook.to_string()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_of_a_tenant_whose_webhooks_are_deleted_cancels_what_waits_only_when_it_is_asked_to() {
    let system = TestSystem::prepared(Options::default()).await;
    let tenant_id = Uuid::new_v4();
    waits(&system, tenant_id).await;
    let id = tenant_id.to_string();
    let waiting = async || system.count("SELECT count(*) FROM deliveries WHERE state = 'pending'").await;
    let (code, out, err) = tenant(&system, &["stop", &id, "--dry-run"]).await;
    assert!((code, err.as_str()) == (0, "") && out.contains("waiting deliveries of 1 webhook(s)"), "{out}{err}");
    let (code, out, err) = tenant(&system, &["stop", &id]).await;
    assert!(code == 1 && err.contains("--yes") && out.contains("waiting deliveries of 1 webhook(s)"), "{out}{err}");
    assert_eq!((waiting().await, system.count("SELECT count(*) FROM cancellations").await), (3, 1));
    let (code, out, err) = tenant(&system, &["stop", &id, "--yes"]).await;
    assert!((code, err.as_str()) == (0, "") && out.contains("1 had been before"), "{out}{err}");
    assert_eq!(waiting().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_whose_steps_go_on_failing_says_so_and_ends() {
    let system = TestSystem::prepared(Options::default()).await;
    let tenant_id = Uuid::new_v4();
    waits(&system, tenant_id).await;
    // The second trigger has a failed step due again at once.
    for (name, table, body) in [
        ("fails", "deliveries", "RAISE 'the disk is broken'"),
        ("is_due", "cancellations", "NEW.leased_until := now(); RETURN NEW"),
    ] {
        system
            .sql(&format!("CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}; END $$"))
            .await;
        system
            .sql(&format!("CREATE TRIGGER {name} BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()"))
            .await;
    }
    let (code, out, err) = tenant(&system, &["stop", &tenant_id.to_string(), "--yes"]).await;
    assert!(code == 1 && out.contains("cancelled so far: 0 deliveries, and"), "{out}{err}");
    assert!(err.contains("run the command again to cancel the rest") && err.contains("the disk is broken"), "{err}");
    system.sql("DROP TRIGGER fails ON deliveries").await;
    let (code, _, err) = tenant(&system, &["stop", &tenant_id.to_string(), "--yes"]).await;
    assert_eq!((code, err.as_str()), (0, ""));
}
