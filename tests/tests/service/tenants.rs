//! A tenant leaves: `webhookctl tenant stop` and `tenant erase`.
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    process::Stdio,
    time::Duration,
};

use domain::{EventType, Job, TenantId};
use end_to_end::{
    api::Api,
    commands::{self, Ran},
    events::Event,
    history,
    receiver::{Behaviour, Receiver, Reply, always, behaviour},
    system::{Options, Service, System, metric},
    wait::{SOON, eventually},
};
use ledger::{Actor, Erased, Ledger, SETTLING};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::Command,
    time::Instant,
};
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
            ("webhook_tasks", format!("'{webhook}', '{NIL}', now() + interval '1 hour'")),
            (
                "recoveries (id, webhook_id, since, reached, finished_at)",
                format!("gen_random_uuid(), '{webhook}', now(), '{NIL}', now()"),
            ),
        ] {
            system.sql(&format!("INSERT INTO {into} VALUES ({values})")).await;
        }
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

/// What the tables keep of a tenant that is settled, apart from `erased_deliveries`.
fn is_full(rows: &BTreeMap<String, i64>) -> bool {
    rows.iter().all(|(column, count)| column.starts_with("erased_deliveries") || *count > 0)
}

async fn skipped(dispatcher: SocketAddr, reason: &str) -> f64 {
    metric(dispatcher, &format!("webhooks_jobs_skipped_total{{reason=\"{reason}\"}}")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_that_leaves_is_stopped_and_erased_and_others_keep_what_they_have() {
    let options = Options { schedule: "1h,2h,3h,4h,5h,6h", ..Options::default() };
    System::prepared(options, async |system| {
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
        let (left, rest) = erases(&system, &leaves, (&deliveries, &events), dispatcher).await;
        assert!(rest.is_empty() && left == 2, "{left} remembered; {rest:?}");
        assert_eq!(stays.rows(&system, &others_deliveries, &others_events).await, before);

        // The job comes, and is skipped. It is neither tried nor parked.
        let mut jobs = Vec::new();
        while let Some(message) = system.upstream.take(&retry).await {
            jobs.push(message.delivery.data);
        }
        let theirs =
            jobs.iter().find(|job| deliveries.iter().any(|id| String::from_utf8_lossy(job).contains(id.as_str())));
        let (queue, exchange) = (system.names.main(), system.names.exchange());
        system.upstream.publish_to(&exchange, &queue, theirs.unwrap()).await;
        let is_skipped = async || (skipped(dispatcher, "erased").await >= 2.0).then_some(());
        eventually("the job is skipped", SOON, is_skipped).await;
        assert_eq!(skipped(dispatcher, "unknown_delivery").await, 0.0);
        assert_eq!(system.upstream.ready(&system.names.dead()).await, 0);
        assert_eq!(leaves.receivers.each_ref().map(|receiver| receiver.received().len()), [1, 1]);

        let (code, out, err) = tenant(&system, &["erase", &id, "--yes"]).await;
        assert!(code == 0 && out.contains("erased: nothing"), "it can be run again: {out}{err}");
        stays.publish(&system).await;
        stays.receivers[0].wait_for(2, SOON).await;
    })
    .await;
}

/// Stops the tenant. Nothing waits any more, and a new event makes no delivery.
async fn stops(system: &System, leaves: &Settled, ingest: SocketAddr) {
    let id = leaves.tenant.to_string();
    let (code, out, err) = tenant(system, &["stop", &id, "--yes"]).await;
    assert!((code, err.as_str()) == (0, "") && out.contains("2 webhook(s) are deleted"), "{out}{err}");
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
    eventually("nobody wants the event", SOON, || async { (metric(ingest, unwanted).await >= 1.0).then_some(()) })
        .await;
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
            format!("INSERT INTO webhook_tasks VALUES ('{webhook}', '{NIL}', now() + interval '1 hour')"),
            format!("DELETE FROM webhook_tasks WHERE webhook_id = '{webhook}'"),
            "still wait",
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
    let ledger = system.ledger_as("settled", 1);
    let settles_in = async || ledger.tenant_condition(leaves.tenant.into()).await.unwrap().settles_in;
    assert!(settles_in().await > Duration::from_secs(10), "an ingest may still store what it began before");
    settled(system, leaves.tenant).await;
    assert_eq!(settles_in().await, Duration::ZERO);
}

/// Erases the stopped tenant, with an interruption. Returns how many ids are remembered, and what else is left.
async fn erases(
    system: &System,
    leaves: &Settled,
    (deliveries, events): (&[String], &[String]),
    dispatcher: SocketAddr,
) -> (i64, BTreeMap<String, i64>) {
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
    rows.retain(|column, _| !column.starts_with("held_jobs") && !column.starts_with("webhook_tasks"));
    assert!(is_full(&rows), "the cancellation has taken the held job and its own task, nothing else: {rows:?}");

    // Somebody else began, and was interrupted between two deliveries of one event. A job of the other comes then.
    let ledger = system.ledger_as("interrupted", 1);
    let mut begun = ledger.erasure_begin(TenantId::from(leaves.tenant)).await.unwrap();
    let step = ledger.erasure_step(&mut begun).await.unwrap();
    assert!(matches!(step, Erased::Rows(rows) if rows.contains(&("deliveries", 1)) && rows.contains(&("events", 1))));
    let other = format!("SELECT id::text FROM deliveries WHERE id::text = ANY ('{{{}}}')", deliveries.join(","));
    let delivery = system.sql(&other).await[0].get::<_, String>(0).parse().unwrap();
    let (queue, exchange) = (system.names.main(), system.names.exchange());
    system.upstream.publish_to(&exchange, &queue, &Job { delivery, attempt: 1 }.to_bytes()).await;
    let is_skipped = async || (skipped(dispatcher, "erased").await == 1.0).then_some(());
    eventually("the job is skipped", SOON, is_skipped).await;

    let (code, out, err) = tenant(system, &["erase", &id, "--yes"]).await;
    assert!(
        (code, err.as_str()) == (0, "") && out.contains("1 deliveries") && out.contains("2 webhooks"),
        "{out}{err}"
    );
    let mut rows = leaves.rows(system, deliveries, events).await;
    let remembered = rows.remove("erased_deliveries.delivery_id").unwrap();
    rows.retain(|_, count| *count > 0);
    (remembered, rows)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_table_is_erased_or_keeps_nothing_of_a_tenant() {
    System::shared(async |system| {
        let tables = "SELECT relname::text FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition \
                      AND relnamespace = 'public'::regnamespace";
        let present: BTreeSet<String> = system.sql(tables).await.iter().map(|row| row.get(0)).collect();
        let erased: BTreeSet<String> = ledger::erased_tables().map(str::to_owned).collect();
        assert_eq!(present, erased, "a table is missing in ledger/src/admin/erasure.rs, or one is gone");
    })
    .await;
}

/// As if all webhooks were deleted so long ago that no ingest stores a delivery to them any more.
async fn settled(system: &System, tenant: Uuid) {
    deleted_ago(system, tenant, SETTLING).await;
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
    assert!(ledger.webhook_delete(&actor, webhook.parse().unwrap()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_whose_delivery_is_erased_meanwhile_leaves_nothing() {
    System::prepared(Options { timeout: "15s", ..Options::default() }, async |system| {
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
        eventually("the attempt is under way", SOON, || async { (receiver.arrived() == 1).then_some(()) }).await;
        let ledger = system.ledger_as("eraser", 1);
        deleted(&ledger, tenant, &webhook).await;
        settled(&system, tenant).await;
        let mut erasure = ledger.erasure_begin(tenant.into()).await.unwrap();
        while ledger.erasure_step(&mut erasure).await.unwrap() != Erased::All {}
        gate.cancel();
        let is_skipped = async || (skipped(dispatcher, "erased").await == 1.0).then_some(());
        eventually("its job is skipped", SOON, is_skipped).await;
        assert_eq!(system.upstream.ready(&system.names.dead()).await, 0);
        for table in ["deliveries", "attempts", "events", "webhooks", "webhook_health", "webhook_stats"] {
            assert_eq!(system.count(&format!("SELECT count(*) FROM {table}")).await, 0, "{table}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_are_bounded_take_only_what_is_theirs_and_end_when_a_webhook_is_registered() {
    System::prepared(Options::default(), async |system| {
        system.start(Service::Api).await;
        let (tenant, other) = (Uuid::new_v4(), Uuid::new_v4());
        let api = system.admin(tenant).await;
        let webhook = api.create("https://localhost/", &["quote.closed"]).await.id;
        let kept = system.admin(other).await.create("https://localhost/", &["quote.closed"]).await.id;
        history::made(&system, tenant, &webhook, 2_500, "'succeeded'").await;
        history::made(&system, other, &kept, 10, "'succeeded'").await;
        // Another tenant may be told of an event of the same id.
        let same =
            format!("SELECT occurred_at, id, '{other}', event_type, body FROM events WHERE tenant_id = '{tenant}'");
        system.sql(&format!("INSERT INTO events (occurred_at, id, tenant_id, event_type, body) {same}")).await;
        let old = "UPDATE deliveries SET attempts = 1, created_at = now() - interval '4 days'";
        system.sql(old).await;
        let ledger = system.ledger_as("eraser", 1);
        let mut erasure = ledger.erasure_begin(tenant.into()).await.unwrap();
        assert_eq!(ledger.erasure_step(&mut erasure).await.unwrap(), Erased::Registered);
        deleted(&ledger, tenant, &webhook).await;
        settled(&system, tenant).await;

        let Erased::Rows(first) = ledger.erasure_step(&mut erasure).await.unwrap() else { panic!("there is more") };
        assert!(first.iter().all(|(_, rows)| *rows <= 1_000), "{first:?}");
        let again = api.create("https://localhost/", &["quote.closed"]).await.id;
        assert_eq!(ledger.erasure_step(&mut erasure).await.unwrap(), Erased::Registered);
        deleted(&ledger, tenant, &again).await;
        let mut gone = BTreeMap::from_iter(first);
        loop {
            match ledger.erasure_step(&mut erasure).await.unwrap() {
                Erased::Rows(rows) => {
                    assert!(rows.iter().all(|(_, rows)| *rows <= 5_000), "{rows:?}");
                    rows.into_iter().for_each(|(table, rows)| *gone.entry(table).or_default() += rows);
                }
                Erased::Unpublished => tokio::task::yield_now().await,
                other => break assert_eq!(other, Erased::All),
            }
        }
        assert_eq!((gone["deliveries"], gone["events"], gone["webhooks"]), (2_500, 2_500, 1));
        let count = async |what: &str| system.count(&format!("SELECT count(*) FROM {what}")).await;
        assert_eq!((count("deliveries").await, count("events").await, count("webhooks").await), (10, 2_510, 2));

        // An ingest had read the other as live, and stores this after its deletion. A later erasure finds it by the row.
        history::made(&system, tenant, &again, 1, "'pending'").await;
        settled(&system, tenant).await;
        let mut erasure = ledger.erasure_begin(tenant.into()).await.unwrap();
        while ledger.erasure_step(&mut erasure).await.unwrap() != Erased::All {}
        assert_eq!((count("deliveries").await, count("events").await, count("webhooks").await), (10, 2_510, 1));
        assert_eq!(count("erased_deliveries").await, 1, "the broker has no job of what succeeded at once, days ago");
    })
    .await;
}

/// Waits until every notice of the tenant is published.
async fn all_are_told(system: &System, tenant: Uuid) {
    let unpublished = format!("SELECT count(*) FROM notices WHERE leased_until IS NOT NULL AND tenant_id = '{tenant}'");
    let are_told = async || (system.count(&unpublished).await == 0).then_some(());
    eventually("the notices are published", SOON, are_told).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_row_of_a_webhook_that_was_deleted_right_before_an_erasure_stays_until_it_has_settled() {
    System::shared(async |system| {
        let tenant = Uuid::new_v4();
        let ledger = system.ledger_as("eraser", 1);
        let webhook = system.admin(tenant).await.create("https://localhost/", &["quote.closed"]).await.id;
        history::made(&system, tenant, &webhook, 3, "'succeeded'").await;
        deleted(&ledger, tenant, &webhook).await;
        all_are_told(&system, tenant).await;
        for (deliveries, rows) in [(3, 1), (0, 0)] {
            let left = format!("SELECT count(*) FROM deliveries WHERE webhook_id = '{webhook}'");
            assert_eq!(system.count(&left).await, deliveries);
            let mut erasure = ledger.erasure_begin(tenant.into()).await.unwrap();
            while ledger.erasure_step(&mut erasure).await.unwrap() != Erased::All {}
            let left = format!("SELECT count(*) FROM webhooks WHERE tenant_id = '{tenant}'");
            assert_eq!(system.count(&left).await, rows);
            settled(&system, tenant).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_is_registered_and_deleted_during_an_erasure_is_told_about_before_it_goes() {
    System::prepared(Options::default(), async |system| {
        system.start(Service::Api).await;
        let tenant = Uuid::new_v4();
        let api = system.admin(tenant).await;
        let ledger = system.ledger_as("eraser", 1);
        let webhook = api.create("https://localhost/", &["quote.closed"]).await.id;
        history::made(&system, tenant, &webhook, 3, "'succeeded'").await;
        deleted(&ledger, tenant, &webhook).await;
        settled(&system, tenant).await;
        all_are_told(&system, tenant).await;
        let notices = system.names.notices();
        let mut erasure = ledger.erasure_begin(tenant.into()).await.unwrap();
        assert!(matches!(ledger.erasure_step(&mut erasure).await.unwrap(), Erased::Rows(_)));
        let other = api.create("https://localhost/", &["quote.closed"]).await.id;
        all_are_told(&system, tenant).await;
        while system.upstream.take(&notices).await.is_some() {}
        system.stop(Service::Api).await;
        deleted(&ledger, tenant, &other).await;
        let mut last = ledger.erasure_step(&mut erasure).await.unwrap();
        while matches!(last, Erased::Rows(_)) {
            last = ledger.erasure_step(&mut erasure).await.unwrap();
        }
        assert_eq!(last, Erased::Unpublished);
        assert_eq!(ledger.erasure_step(&mut erasure).await.unwrap(), Erased::Unpublished, "it stays there");
        assert_eq!(system.count("SELECT count(*) FROM notices").await, 1);

        system.start(Service::Api).await;
        all_are_told(&system, tenant).await;
        let told = eventually("the notice is published", SOON, || system.upstream.take(&notices)).await;
        let told = String::from_utf8_lossy(&told.delivery.data).into_owned();
        assert!(told.contains("webhook.deleted") && told.contains(&other), "{told}");
        // However long the rest takes: what belongs to the other one may be where the erasure has been.
        settled(&system, tenant).await;
        while ledger.erasure_step(&mut erasure).await.unwrap() != Erased::All {}
        let rest = "SELECT id::text FROM webhooks";
        assert_eq!(system.sql(rest).await.iter().map(|row| row.get(0)).collect::<Vec<String>>(), [other]);
        assert_eq!(system.count("SELECT count(*) FROM notices").await, 0);
        let mut erasure = ledger.erasure_begin(tenant.into()).await.unwrap();
        while ledger.erasure_step(&mut erasure).await.unwrap() != Erased::All {}
        assert_eq!(system.count("SELECT count(*) FROM webhooks").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erasure_leaves_a_notice_that_nobody_publishes_and_says_so() {
    System::prepared(Options::default(), async |system| {
        system.start(Service::Api).await;
        let tenant_id = Uuid::new_v4();
        let (id, ledger) = (tenant_id.to_string(), system.ledger_as("administrator", 1));
        let webhook = system.admin(tenant_id).await.create("https://localhost/", &["quote.closed"]).await.id;
        history::made(&system, tenant_id, &webhook, 1, "'succeeded'").await;
        deleted(&ledger, tenant_id, &webhook).await;
        all_are_told(&system, tenant_id).await;
        let is_cancelled =
            async || (ledger.tenant_condition(tenant_id.into()).await.unwrap().cancelling == 0).then_some(());
        eventually("nothing waits", SOON, is_cancelled).await;
        system.stop(Service::Api).await;
        settled(&system, tenant_id).await;
        // As if a webhook came and went right then.
        let add = format!(
            "INSERT INTO notices (webhook_id, tenant_id, webhook_name, notice_type, details) \
             VALUES (gen_random_uuid(), '{id}', 'other', 'webhook.deleted', '{{}}')"
        );
        system
            .sql(&format!(
                "CREATE FUNCTION adds() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {add}; RETURN NULL; END $$"
            ))
            .await;
        system.sql("CREATE TRIGGER adds AFTER DELETE ON deliveries FOR EACH ROW EXECUTE FUNCTION adds()").await;
        let (code, out, err) = tenant(&system, &["erase", &id, "--yes"]).await;
        assert!(
            code == 1 && out.contains("1 deliveries") && err.contains("not published yet: run it again"),
            "{out}{err}"
        );
        assert_eq!(system.count("SELECT count(*) FROM notices").await, 1);
        system.start(Service::Api).await;
        all_are_told(&system, tenant_id).await;
        let (code, _, err) = tenant(&system, &["erase", &id, "--yes"]).await;
        assert_eq!((code, err.as_str()), (0, ""));
        assert_eq!(system.count("SELECT count(*) FROM notices").await, 0);
    })
    .await;
}

/// A webhook with deliveries that wait, deleted where no api-service cancels them.
async fn waits(system: &System, tenant: Uuid) {
    system.start(Service::Api).await;
    let webhook = system.admin(tenant).await.create("https://localhost/", &["quote.closed"]).await.id;
    history::made(system, tenant, &webhook, 3, "'pending'").await;
    system.stop(Service::Api).await;
    deleted(&system.ledger_as("administrator", 1), tenant, &webhook).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_of_a_tenant_whose_webhooks_are_deleted_cancels_what_waits_only_when_it_is_asked_to() {
    System::prepared(Options::default(), async |system| {
        let tenant_id = Uuid::new_v4();
        waits(&system, tenant_id).await;
        let id = tenant_id.to_string();
        let waiting = async || system.count("SELECT count(*) FROM deliveries WHERE state = 'pending'").await;
        let (code, out, err) = tenant(&system, &["stop", &id, "--dry-run"]).await;
        assert!((code, err.as_str()) == (0, "") && out.contains("waiting deliveries of 1 webhook(s)"), "{out}{err}");
        let (code, out, err) = tenant(&system, &["stop", &id]).await;
        assert!(code == 1 && err.contains("--yes") && out.contains("waiting deliveries of 1 webhook(s)"), "{out}{err}");
        assert_eq!((waiting().await, system.count("SELECT count(*) FROM webhook_tasks").await), (3, 1));
        let (code, out, err) = tenant(&system, &["stop", &id, "--yes"]).await;
        assert!((code, err.as_str()) == (0, "") && out.contains("1 had been before"), "{out}{err}");
        assert_eq!(waiting().await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_whose_steps_go_on_failing_says_so_and_ends() {
    System::prepared(Options::default(), async |system| {
        let tenant_id = Uuid::new_v4();
        waits(&system, tenant_id).await;
        // The second trigger has a failed step due again at once.
        for (name, table, body) in [
            ("fails", "deliveries", "RAISE 'the disk is broken'"),
            ("is_due", "webhook_tasks", "NEW.leased_until := now(); RETURN NEW"),
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
        assert!(
            err.contains("run the command again to cancel the rest") && err.contains("the disk is broken"),
            "{err}"
        );
        system.sql("DROP TRIGGER fails ON deliveries").await;
        let (code, _, err) = tenant(&system, &["stop", &tenant_id.to_string(), "--yes"]).await;
        assert_eq!((code, err.as_str()), (0, ""));
    })
    .await;
}

/// Runs an erasure of a tenant whose webhooks were deleted so long ago that it waits for three seconds. Something happens
/// while it waits. Returns how it ended, and how long after the deletions' new time.
async fn erases_after_a_wait(
    system: &System,
    tenant: Uuid,
    meanwhile: impl Future<Output = ()>,
) -> (i32, String, Duration) {
    deleted_ago(system, tenant, SETTLING - Duration::from_secs(3)).await;
    let began = Instant::now();
    let mut command = command(system, &["erase", &tenant.to_string(), "--yes"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let run = async {
        let mut said = String::new();
        while !said.contains("waiting for") && out.read_line(&mut said).await.unwrap() > 0 {}
        meanwhile.await;
        out.read_to_string(&mut said).await.unwrap();
        let output = child.wait_with_output().await.unwrap();
        said.push_str(&String::from_utf8(output.stderr).unwrap());
        (output.status.code().unwrap_or(-1), said)
    };
    let (code, said) = tokio::time::timeout(SOON, run).await.expect("it ends");
    (code, said, began.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erasure_waits_until_no_ingest_stores_any_more_and_then_looks_again() {
    System::prepared(Options::default(), async |system| {
        system.start(Service::Api).await;
        let tenant_id = Uuid::new_v4();
        let (api, ledger) = (system.admin(tenant_id).await, system.ledger_as("administrator", 1));
        let create = async || api.create("https://localhost/", &["quote.closed"]).await.id;
        let is_stopped = async || {
            let condition = ledger.tenant_condition(tenant_id.into()).await.unwrap();
            (condition.cancelling == 0 && condition.unpublished == 0).then_some(())
        };
        let webhook = create().await;
        history::made(&system, tenant_id, &webhook, 2, "'succeeded'").await;
        deleted(&ledger, tenant_id, &webhook).await;
        eventually("it is stopped", SOON, is_stopped).await;

        let mut other = String::new();
        let (code, said, _) = erases_after_a_wait(&system, tenant_id, async { other = create().await }).await;
        assert!(code == 1 && said.contains("1 webhook(s) that are not deleted"), "{said}");
        assert!(!said.contains("\nerased:"), "nothing was begun: {said}");
        deleted(&ledger, tenant_id, &other).await;
        eventually("it is stopped", SOON, is_stopped).await;

        // An ingest had read the webhook as live.
        let late = history::made(&system, tenant_id, &webhook, 1, "'pending'");
        let (code, said, took) = erases_after_a_wait(&system, tenant_id, late).await;
        assert!(code == 0 && said.contains("waiting for"), "{said}");
        assert!(said.contains("3 deliveries") && said.contains("2 webhooks"), "{said}");
        assert!(took > Duration::from_millis(2_500), "it does not wait: {took:?}");
    })
    .await;
}
