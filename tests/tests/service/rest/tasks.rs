//! Work that a request asks for and that is done afterwards, in steps: deletion and activation.

use std::{net::SocketAddr, time::Duration};

use end_to_end::{
    api::Api,
    history,
    receiver::{Receiver, always},
    system::{Options, Service, System, TestSystem, metric},
    wait::{SOON, eventually, until},
};
use serde_json::Value;
use uuid::Uuid;

/// More deliveries than one step cancels (1,000).
const WAITING: usize = 2_500;

/// A webhook with deliveries that wait, a fifth of them retries, and some that have ended. Ten jobs are held.
async fn waiting(system: &System, api: &Api, tenant: Uuid) -> String {
    let webhook = api.create("https://localhost/", &["quote.closed"]).await.id;
    let state = "CASE i % 5 WHEN 0 THEN 'retrying' ELSE 'pending' END";
    history::made(system, tenant, &webhook, WAITING, state).await;
    history::made(system, tenant, &webhook, 7, "CASE i % 2 WHEN 0 THEN 'dropped' ELSE 'succeeded' END").await;
    let held = "INSERT INTO held_jobs SELECT webhook_id, id FROM deliveries WHERE state = 'retrying' LIMIT 10";
    system.sql(held).await;
    webhook
}

/// Every entry of the log, page by page.
async fn whole_log(api: &Api, webhook: &str, query: &str) -> Vec<Value> {
    let (mut entries, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = api.log(webhook, &format!("limit=200&{query}{cursor}")).await;
        entries.extend(page["data"].as_array().expect("a page has entries").iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return entries,
        }
    }
}

async fn tasks(system: &System) -> i64 {
    system.count("SELECT (SELECT count(*) FROM webhook_tasks) + (SELECT count(*) FROM held_webhooks)").await
}

async fn all_cancelled(system: &System) {
    until("all that waited is cancelled", SOON, || async { tasks(system).await == 0 }).await;
    let left = "SELECT count(*) FROM deliveries WHERE state IN ('pending', 'retrying')";
    assert_eq!(system.count(left).await, 0);
    assert_eq!(system.count("SELECT count(*) FROM held_jobs").await, 0);
    let cancelled = "SELECT count(*) FROM deliveries WHERE state = 'cancelled' AND next_attempt_at IS NULL";
    assert_eq!(system.count(cancelled).await, i64::try_from(WAITING).expect("it fits"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deliveries_of_a_deleted_webhook_count_as_cancelled_before_the_first_step_and_until_the_last() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let (tenant, api) = system.tenant().await;
    let webhook = waiting(&system, &api, tenant).await;
    // A session locks the oldest pending delivery, so that the first step waits.
    let oldest = format!(
        "BEGIN; SELECT FROM deliveries WHERE id = (SELECT id FROM deliveries WHERE webhook_id = '{webhook}' \
         AND state = 'pending' ORDER BY id LIMIT 1) FOR UPDATE"
    );
    let hold = system.database_session(&oldest).await;
    assert_eq!(api.delete(&format!("/api/v1/webhooks/{webhook}/")).await.status, 204);
    system.wait_for_locked_out(1).await;

    let log = whole_log(&api, &webhook, "").await;
    assert_eq!(log.len(), WAITING + 7);
    for entry in &log {
        assert!(entry["next_attempt_at"].is_null(), "{entry}");
        assert!(!["pending", "retrying"].contains(&entry["state"].as_str().unwrap()), "{entry}");
    }
    for (state, count) in [("cancelled", WAITING), ("pending", 0), ("retrying", 0), ("dropped", 3), ("succeeded", 4)] {
        let found = whole_log(&api, &webhook, &format!("state={state}")).await;
        assert_eq!(found.len(), count, "{state}");
        assert!(found.iter().all(|entry| entry["state"] == state));
    }
    let id = log[0]["id"].as_str().unwrap();
    assert_eq!(api.delivery(&webhook, id).await["state"], log[0]["state"]);
    assert_eq!(tasks(&system).await, 1, "no step was taken");
    drop(hold);
    all_cancelled(&system).await;
    assert_eq!(whole_log(&api, &webhook, "state=cancelled").await.len(), WAITING);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancellation_goes_on_when_its_process_ends_in_the_middle() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let (tenant, api) = system.tenant().await;
    let webhook = waiting(&system, &api, tenant).await;
    // A session locks the newest pending delivery, so that a later step waits.
    let newest = format!(
        "BEGIN; SELECT FROM deliveries WHERE id = (SELECT id FROM deliveries WHERE webhook_id = '{webhook}' \
         AND state = 'pending' ORDER BY id DESC LIMIT 1) FOR UPDATE"
    );
    let hold = system.database_session(&newest).await;
    assert_eq!(api.delete(&format!("/api/v1/webhooks/{webhook}/")).await.status, 204);
    system.wait_for_locked_out(1).await;
    let cancelled = "SELECT count(*) FROM deliveries WHERE state = 'cancelled'";
    let before = system.count(cancelled).await;
    assert!(before >= 1_000 && before < i64::try_from(WAITING).unwrap(), "{before} of {WAITING}");
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid) \
               WHERE NOT granted AND datname = current_database()";
    system.sql(cut).await;
    system.stop(Service::Api).await;
    assert_eq!((system.count(cancelled).await, tasks(&system).await), (before, 1));
    drop(hold);
    // As if the lease of the failed step had ended.
    system.sql("UPDATE webhook_tasks SET leased_until = now()").await;
    let again = system.start(Service::Api).await;
    all_cancelled(&system).await;
    let done = metric(again, r#"webhooks_task_deliveries_total{task="cancel"}"#).await;
    assert_eq!(done, f64::from(i32::try_from(WAITING).unwrap() - i32::try_from(before).unwrap()));
    until("the metric says that nothing is under way", SOON, || async {
        metric(again, r#"webhooks_tasks{task="cancel"}"#).await == 0.0
    })
    .await;
}

/// A delivery whose job the outbox relay publishes late becomes due at that time: lost-job detection must not take the
/// job for lost. A retry that is due later stays so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_the_outbox_that_is_taken_over_late_is_due_then() {
    let system = TestSystem::prepared(Options::default()).await;
    let (tenant, webhook) = (Uuid::new_v4(), Uuid::new_v4().to_string());
    history::made(&system, tenant, &webhook, 3, "CASE i WHEN 1 THEN 'pending' ELSE 'retrying' END").await;
    system
            .sql(
                "UPDATE deliveries SET next_attempt_at = now() + CASE WHEN id = (SELECT id FROM deliveries ORDER BY id LIMIT 1) \
             THEN interval '1 hour' ELSE interval '-1 hour' END WHERE state = 'retrying'",
            )
            .await;
    system.sql("INSERT INTO promised_jobs SELECT id, now() - interval '1 minute' FROM deliveries").await;
    let leased = system.ledger_as("relay", 1).outbox_lease(10).await.unwrap();
    assert_eq!(leased.jobs().len(), 3);
    let due = "SELECT count(*) FROM deliveries WHERE next_attempt_at BETWEEN now() - interval '1 minute' AND now()";
    assert_eq!(system.count(due).await, 2);
    let later = "SELECT count(*) FROM deliveries WHERE next_attempt_at > now() + interval '50 minutes'";
    assert_eq!(system.count(later).await, 1);
}

/// A resend locks its delivery, and then the delivery's entry in the outbox.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_of_the_outbox_waits_for_a_delivery_without_a_lock_of_its_entry() {
    let system = TestSystem::prepared(Options::default()).await;
    history::made(&system, Uuid::new_v4(), &Uuid::new_v4().to_string(), 1, "'pending'").await;
    system.sql("INSERT INTO promised_jobs SELECT id, now() - interval '1 minute' FROM deliveries").await;
    let resend = system.database_session("BEGIN; SELECT FROM deliveries FOR UPDATE").await;
    let ledger = system.ledger_as("relay", 1);
    let promise = async {
        system.wait_for_locked_out(1).await;
        resend.batch_execute("UPDATE promised_jobs SET leased_until = now(); COMMIT").await
    };
    let (leased, promised) = tokio::join!(ledger.outbox_lease(10), promise);
    promised.expect("no deadlock");
    assert_eq!(leased.expect("no deadlock").jobs().len(), 1);
}

/// A paused webhook with `count` deliveries whose jobs are held.
async fn held(system: &System, api: &Api, tenant: Uuid, receiver: &Receiver, count: usize) -> String {
    let webhook = api.create(&receiver.url("/"), &["quote.closed"]).await.id;
    api.set_active(&webhook, false).await;
    history::made(system, tenant, &webhook, count, "'pending'").await;
    system.sql("INSERT INTO held_jobs SELECT webhook_id, id FROM deliveries").await;
    webhook
}

fn paced(per_second: u16) -> Options {
    Options::with([("API__RECOVER_PER_SECOND", &per_second.to_string())])
}

/// A system with a paused webhook whose jobs are held. Its activation publishes them at a set pace.
struct Paused {
    system: TestSystem,
    /// The API's operations address.
    ops: SocketAddr,
    api: Api,
    receiver: Receiver,
    webhook: String,
}

impl Paused {
    async fn with(held_jobs: usize, per_second: u16) -> Self {
        let system = TestSystem::serving(paced(per_second), [Service::Dispatcher]).await;
        let ops = system.start(Service::Api).await;
        let (tenant, api) = system.tenant().await;
        let receiver = Receiver::start(&system.ca, always(200));
        let webhook = held(&system, &api, tenant, &receiver, held_jobs).await;
        Self { system, ops, api, receiver, webhook }
    }

    async fn set_active(&self, is_active: bool) {
        self.api.set_active(&self.webhook, is_active).await;
    }

    async fn tasks_end(&self) {
        until("the tasks end", SOON, || async { tasks(&self.system).await == 0 }).await;
    }

    async fn held_jobs(&self) -> i64 {
        self.system.count("SELECT count(*) FROM held_jobs").await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activation_publishes_what_was_held_at_the_pace_that_is_set() {
    let paused = Paused::with(100, 40).await;
    paused.set_active(true).await;
    let Paused { system, ops, receiver, .. } = &paused;
    receiver.wait_for(100, SOON).await;
    assert_eq!(receiver.received_once().len(), 100);
    let (first, last) = (receiver.received()[0].at, receiver.received()[99].at);
    assert!(last - first >= time::Duration::milliseconds(1_900), "about forty a second: {}", last - first);
    paused.tasks_end().await;
    assert_eq!(metric(*ops, r#"webhooks_task_deliveries_total{task="wake"}"#).await, 100.0);
    assert_eq!(paused.held_jobs().await, 0);
    assert_eq!(system.count("SELECT count(*) FROM promised_jobs").await, 0);
}

/// A process took held jobs and vanished before it committed. The server rolls its work back much later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activation_outlives_a_step_that_is_taken_back() {
    let paused = Paused::with(30, 1_000).await;
    let Paused { system, ops, receiver, .. } = &paused;
    let vanished = system
            .database_session(
                "BEGIN; DELETE FROM held_jobs WHERE delivery_id IN (SELECT delivery_id FROM held_jobs ORDER BY 1 DESC LIMIT 20)",
            )
            .await;
    paused.set_active(true).await;
    receiver.wait_for(10, SOON).await;
    until("further steps were taken", SOON, || async {
        let steps = r#"webhooks_task_steps_total{task="wake"}"#;
        metric(*ops, steps).await >= 3.0
    })
    .await;
    assert_eq!(tasks(system).await, 1, "it is not over");
    drop(vanished);
    receiver.wait_for(30, SOON).await;
    assert_eq!(receiver.received_once().len(), 30);
    paused.tasks_end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_in_the_middle_of_an_activation_keeps_the_rest_and_another_activation_sends_it() {
    let paused = Paused::with(60, 20).await;
    paused.set_active(true).await;
    paused.receiver.wait_for(10, SOON).await;
    paused.set_active(false).await;
    paused.tasks_end().await;
    assert!(paused.held_jobs().await >= 20, "most of the rest is held");
    paused.set_active(true).await;
    paused.receiver.wait_for(60, SOON).await;
    assert_eq!(paused.receiver.received_once().len(), 60);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_in_the_middle_of_an_activation_cancels_the_rest() {
    let paused = Paused::with(60, 20).await;
    paused.set_active(true).await;
    let Paused { system, api, receiver, webhook, .. } = &paused;
    receiver.wait_for(10, SOON).await;
    assert_eq!(api.delete(&format!("/api/v1/webhooks/{webhook}/")).await.status, 204);
    paused.tasks_end().await;
    assert_eq!(paused.held_jobs().await, 0);
    until("nothing waits", SOON, || async {
        let waiting = "SELECT count(*) FROM deliveries WHERE state IN ('pending', 'retrying')";
        system.count(waiting).await == 0
    })
    .await;
    let sent = receiver.received_once().len();
    let succeeded = system.count("SELECT count(*) FROM deliveries WHERE state = 'succeeded'").await;
    let cancelled = system.count("SELECT count(*) FROM deliveries WHERE state = 'cancelled'").await;
    assert_eq!(succeeded + cancelled, 60);
    assert!(cancelled >= 20 && i64::try_from(sent).unwrap() >= succeeded, "{sent} sent, {succeeded}, {cancelled}");
}

/// A cancellation and a recovery, each with a delivery.
async fn due_steps(system: &System) {
    let (tenant, webhook) = (Uuid::new_v4(), Uuid::new_v4());
    history::made(system, tenant, &webhook.to_string(), 2, "CASE i WHEN 1 THEN 'pending' ELSE 'dropped' END").await;
    let columns = "id, tenant_id, name, url, events, secret_key_id, secret_sealed";
    let values = format!("'{webhook}', '{tenant}', 'A test', '', '{{}}', '', ''");
    system.sql(&format!("INSERT INTO webhooks ({columns}) VALUES ({values})")).await;
    system.sql(&format!("INSERT INTO webhook_tasks (webhook_id) VALUES ('{webhook}')")).await;
    let recovery = format!("gen_random_uuid(), '{webhook}', now() - interval '1 hour', '{}'", Uuid::nil());
    system.sql(&format!("INSERT INTO recoveries (id, webhook_id, since, reached) VALUES ({recovery})")).await;
}

/// A step that waits in vain for a lock does not keep its lease, which lasts for 30 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_gives_up_a_lock_is_due_again_within_seconds() {
    let system = TestSystem::prepared(Options::default()).await;
    due_steps(&system).await;
    let ledger = system.ledger_as("steps", 1);
    let hold = system.database_session("BEGIN; SELECT FROM deliveries FOR UPDATE").await;
    let keep = Duration::from_secs(30 * 86_400);
    assert!(ledger.cancellation_step(None, Duration::ZERO).await.is_err());
    assert!(ledger.recovery_step(10, Duration::ZERO, keep, &mut None).await.is_err());
    drop(hold);
    for table in ["webhook_tasks", "recoveries"] {
        let due = format!("SELECT extract(epoch FROM leased_until - now())::bigint FROM {table}");
        let due = system.count(&due).await;
        assert!((1..=5).contains(&due), "{table}: in {due} s");
    }
}

/// Has a step of `table` fail over a lock, and somebody else lock its row before it is made due again. Returns whether the
/// step failed, without waiting for that row.
async fn fails_while_its_row_is_locked(system: &System, table: &str) -> bool {
    // The update that leases a step passes this gate. The next one, which makes it due again, waits.
    let gate = format!(
        "CREATE FUNCTION gate_of_{table}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
           IF EXISTS (SELECT FROM {table} WHERE leased_until > now()) THEN PERFORM pg_advisory_xact_lock(1); END IF; \
           RETURN NULL; END $$; \
         CREATE TRIGGER gate BEFORE UPDATE ON {table} EXECUTE FUNCTION gate_of_{table}(); \
         SELECT pg_advisory_lock(1)"
    );
    let (gate, ledger) = (system.database_session(&gate).await, system.ledger_as("steps", 1));
    let step = async {
        match table {
            "recoveries" => ledger.recovery_step(10, Duration::ZERO, Duration::from_secs(30 * 86_400), &mut None).await,
            _ => ledger.cancellation_step(None, Duration::ZERO).await,
        }
    };
    let lock = async {
        let at_the_gate = "SELECT count(*) FROM pg_stat_activity \
             WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = 'advisory'";
        let has_failed = async || (system.count(at_the_gate).await == 1).then_some(());
        eventually("the step has failed", SOON, has_failed).await;
        let row = system.database_session(&format!("BEGIN; SELECT FROM {table} FOR UPDATE")).await;
        gate.batch_execute("SELECT pg_advisory_unlock(1)").await.expect("the gate opens");
        row
    };
    // A statement waits for 20 s.
    let both = async { tokio::join!(step, lock) };
    tokio::time::timeout(Duration::from_secs(10), both).await.is_ok_and(|(step, _row)| step.is_err())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_gives_up_a_lock_does_not_wait_to_be_due_again() {
    let system = TestSystem::prepared(Options::default()).await;
    due_steps(&system).await;
    let _deliveries = system.database_session("BEGIN; SELECT FROM deliveries FOR UPDATE").await;
    for table in ["webhook_tasks", "recoveries"] {
        assert!(fails_while_its_row_is_locked(&system, table).await, "{table}: it waits for the row");
        let leased = format!("SELECT count(*) FROM {table} WHERE leased_until > now() + interval '10 seconds'");
        assert_eq!(system.count(&leased).await, 1, "{table}: the lease stays, as the row was locked");
    }
}
