//! Work that a request asks for and that is done afterwards, in steps: deletion and activation.

use std::time::Duration;

use end_to_end::{
    api::Api,
    history,
    receiver::{Receiver, always},
    system::{Options, Service, Subscriber, System, TestSystem, metric, until_metric},
    wait::{SOON, eventually, until},
};
use uuid::Uuid;

use crate::rest::end_waiting_sessions;

/// More deliveries than one step cancels (1,000).
const WAITING: usize = 2_500;

/// A webhook with deliveries that wait, a fifth of them retries, and some that have ended. Ten jobs are held.
async fn waiting(system: &System) -> (Api, String) {
    let state = "CASE i % 5 WHEN 0 THEN 'retrying' ELSE 'pending' END";
    let (tenant, api, webhook) = history::webhook(system, WAITING, state).await;
    history::made(system, tenant, &webhook, 7, "CASE i % 2 WHEN 0 THEN 'dropped' ELSE 'succeeded' END").await;
    let held = "INSERT INTO held_jobs SELECT webhook_id, id FROM deliveries WHERE state = 'retrying' LIMIT 10";
    system.sql(held).await;
    (api, webhook)
}

/// Locks a webhook's first pending delivery in this order, so that the step that comes to it waits.
pub(crate) async fn hold_pending(system: &System, webhook: &str, order: &str) -> tokio_postgres::Client {
    let one = format!(
        "BEGIN; SELECT FROM deliveries WHERE id = (SELECT id FROM deliveries WHERE webhook_id = '{webhook}' \
         AND state = 'pending' ORDER BY id {order} LIMIT 1) FOR UPDATE"
    );
    system.database_session(&one).await
}

async fn tasks(system: &System) -> i64 {
    system.count("SELECT (SELECT count(*) FROM cancellations) + (SELECT count(*) FROM held_webhooks)").await
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
    let (api, webhook) = waiting(&system).await;
    let hold = hold_pending(&system, &webhook, "ASC").await;
    assert_eq!(api.delete(&format!("/api/v1/webhooks/{webhook}/")).await.status, 204);
    system.wait_for_locked_out(1).await;

    let list = format!("/api/v1/webhooks/{webhook}/deliveries/");
    let log = api.whole(&list, "limit=200").await;
    assert_eq!(log.len(), WAITING + 7);
    for entry in &log {
        assert!(entry["next_attempt_at"].is_null(), "{entry}");
        assert!(!["pending", "retrying"].contains(&entry["state"].as_str().unwrap()), "{entry}");
    }
    for (state, count) in [("cancelled", WAITING), ("pending", 0), ("retrying", 0), ("dropped", 3), ("succeeded", 4)] {
        let found = api.whole(&list, &format!("limit=200&state={state}")).await;
        assert_eq!(found.len(), count, "{state}");
        assert!(found.iter().all(|entry| entry["state"] == state));
    }
    let id = log[0]["id"].as_str().unwrap();
    assert_eq!(api.delivery(&webhook, id).await["state"], log[0]["state"]);
    assert_eq!(tasks(&system).await, 1, "no step was taken");
    drop(hold);
    all_cancelled(&system).await;
    assert_eq!(api.whole(&list, "limit=200&state=cancelled").await.len(), WAITING);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancellation_goes_on_when_its_process_ends_in_the_middle() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let (api, webhook) = waiting(&system).await;
    let hold = hold_pending(&system, &webhook, "DESC").await;
    assert_eq!(api.delete(&format!("/api/v1/webhooks/{webhook}/")).await.status, 204);
    system.wait_for_locked_out(1).await;
    let cancelled = "SELECT count(*) FROM deliveries WHERE state = 'cancelled'";
    let before = system.count(cancelled).await;
    assert!(before >= 1_000 && before < i64::try_from(WAITING).unwrap(), "{before} of {WAITING}");
    end_waiting_sessions(&system).await;
    system.stop(Service::Api).await;
    assert_eq!((system.count(cancelled).await, tasks(&system).await), (before, 1));
    drop(hold);
    // As if the lease of the failed step had ended.
    system.sql("UPDATE cancellations SET leased_until = now()").await;
    let again = system.start(Service::Api).await;
    all_cancelled(&system).await;
    let done = metric(again, r#"webhooks_task_deliveries_total{task="cancel"}"#).await;
    assert_eq!(done, f64::from(i32::try_from(WAITING).unwrap() - i32::try_from(before).unwrap()));
    until_metric(again, r#"webhooks_tasks{task="cancel"}"#, 0.0, SOON).await;
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

/// A paused webhook whose jobs are held. Its activation publishes them at a set pace.
struct Paused<'s> {
    system: &'s System,
    api: Api,
    receiver: Receiver,
    webhook: String,
}

impl<'s> Paused<'s> {
    async fn with(system: &'s System, held_jobs: usize) -> Self {
        let Subscriber { tenant, api, receiver, webhook, .. } = system.subscriber(always(200)).await;
        api.set_active(&webhook, false).await;
        history::made(system, tenant, &webhook, held_jobs, "'pending'").await;
        let hold = "INSERT INTO held_jobs SELECT webhook_id, id FROM deliveries";
        system.sql(&format!("{hold} WHERE webhook_id = '{webhook}'")).await;
        Self { system, api, receiver, webhook }
    }

    async fn set_active(&self, is_active: bool) {
        self.api.set_active(&self.webhook, is_active).await;
    }

    /// The number of the webhook's rows in a table.
    async fn rows(&self, of: &str) -> i64 {
        self.system.count(&format!("SELECT count(*) FROM {of} AND webhook_id = '{}'", self.webhook)).await
    }

    async fn task_ends(&self) {
        until("the activation ends", SOON, || async { self.rows("held_webhooks WHERE true").await == 0 }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activation_publishes_at_the_pace_that_is_set_until_a_pause_or_a_deletion() {
    let options = Options::with([("API__RECOVER_PER_SECOND", "20")]);
    let system = TestSystem::serving(options, [Service::Api, Service::Dispatcher]).await;
    tokio::join!(sends_at_its_pace(&system), is_paused_in_the_middle(&system), is_deleted_in_the_middle(&system));
}

async fn sends_at_its_pace(system: &System) {
    let paused = Paused::with(system, 80).await;
    paused.set_active(true).await;
    let received = paused.receiver.wait_for(80, SOON).await;
    assert_eq!(paused.receiver.received_once().len(), 80);
    let took = received[79].at - received[0].at;
    assert!(took >= time::Duration::seconds(2), "three seconds, at twenty a second after the first second's: {took}");
    paused.task_ends().await;
    assert_eq!(paused.rows("held_jobs WHERE true").await, 0);
    let promised = "deliveries WHERE id IN (SELECT delivery_id FROM promised_jobs)";
    until("the outbox is empty", SOON, || async { paused.rows(promised).await == 0 }).await;
}

/// Another activation sends the rest.
async fn is_paused_in_the_middle(system: &System) {
    let paused = Paused::with(system, 60).await;
    paused.set_active(true).await;
    paused.receiver.wait_for(10, SOON).await;
    paused.set_active(false).await;
    paused.task_ends().await;
    assert!(paused.rows("held_jobs WHERE true").await >= 20, "most of the rest is held");
    paused.set_active(true).await;
    paused.receiver.wait_for(60, SOON).await;
    assert_eq!(paused.receiver.received_once().len(), 60);
}

/// The rest is cancelled.
async fn is_deleted_in_the_middle(system: &System) {
    let paused = Paused::with(system, 60).await;
    paused.set_active(true).await;
    paused.receiver.wait_for(10, SOON).await;
    assert_eq!(paused.api.delete(&format!("/api/v1/webhooks/{}/", paused.webhook)).await.status, 204);
    until("nothing waits", SOON, || async {
        paused.rows("deliveries WHERE state IN ('pending', 'retrying')").await == 0
    })
    .await;
    until("the deletion ends", SOON, || async { paused.rows("cancellations WHERE true").await == 0 }).await;
    assert_eq!(paused.rows("held_jobs WHERE true").await, 0);
    let sent = paused.receiver.received_once().len();
    let succeeded = paused.rows("deliveries WHERE state = 'succeeded'").await;
    let cancelled = paused.rows("deliveries WHERE state = 'cancelled'").await;
    assert_eq!(succeeded + cancelled, 60);
    assert!(cancelled >= 20 && i64::try_from(sent).unwrap() >= succeeded, "{sent} sent, {succeeded}, {cancelled}");
}

/// A process took held jobs and vanished before it committed. The server rolls its work back much later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_activation_outlives_a_step_that_is_taken_back() {
    let system = TestSystem::serving(Options::default(), [Service::Dispatcher]).await;
    let ops = system.start(Service::Api).await;
    let paused = Paused::with(&system, 30).await;
    let some = "SELECT delivery_id FROM held_jobs ORDER BY 1 DESC LIMIT 20";
    let vanished =
        system.database_session(&format!("BEGIN; DELETE FROM held_jobs WHERE delivery_id IN ({some})")).await;
    paused.set_active(true).await;
    paused.receiver.wait_for(10, SOON).await;
    until("further steps were taken", SOON, || async {
        let steps = r#"webhooks_task_steps_total{task="wake"}"#;
        metric(ops, steps).await >= 3.0
    })
    .await;
    assert_eq!(tasks(&system).await, 1, "it is not over");
    drop(vanished);
    paused.receiver.wait_for(30, SOON).await;
    assert_eq!(paused.receiver.received_once().len(), 30);
    paused.task_ends().await;
    until_metric(ops, r#"webhooks_task_deliveries_total{task="wake"}"#, 30.0, SOON).await;
}

/// A cancellation and a recovery, each with a delivery.
async fn due_steps(system: &System) {
    let state = "CASE i WHEN 1 THEN 'pending' ELSE 'dropped' END";
    let webhook = history::webhook_row(system, Uuid::new_v4(), 2, state).await;
    system.sql(&format!("INSERT INTO cancellations (webhook_id) VALUES ('{webhook}')")).await;
    let recovery = format!("gen_random_uuid(), '{webhook}', now() - interval '1 hour', '{}'", Uuid::nil());
    system.sql(&format!("INSERT INTO recoveries (id, webhook_id, since, cursor) VALUES ({recovery})")).await;
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

/// A step that waits in vain for a lock does not keep its lease, which lasts for 30 s, and does not wait to be due again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_gives_up_a_lock_is_due_again_within_seconds() {
    let system = TestSystem::prepared(Options::default()).await;
    due_steps(&system).await;
    let ledger = system.ledger_as("steps", 1);
    let _deliveries = system.database_session("BEGIN; SELECT FROM deliveries FOR UPDATE").await;
    let keep = Duration::from_secs(30 * 86_400);
    assert!(ledger.cancellation_step(None, Duration::ZERO).await.is_err());
    assert!(ledger.recovery_step(10, Duration::ZERO, keep, &mut None).await.is_err());
    for table in ["cancellations", "recoveries"] {
        let due = format!("SELECT extract(epoch FROM leased_until - now())::bigint FROM {table}");
        let due = system.count(&due).await;
        assert!((1..=5).contains(&due), "{table}: in {due} s");
        system.sql(&format!("UPDATE {table} SET leased_until = now()")).await;
        assert!(fails_while_its_row_is_locked(&system, table).await, "{table}: it waits for the row");
        let leased = format!("SELECT count(*) FROM {table} WHERE leased_until > now() + interval '10 seconds'");
        assert_eq!(system.count(&leased).await, 1, "{table}: the lease stays, as the row was locked");
    }
}
