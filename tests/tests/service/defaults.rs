//! Settings that the database has by default, for every session that does not set them itself.

use end_to_end::{
    system::{Options, Service, System, TestSystem},
    wait::SOON,
};
use serde_json::json;
use uuid::Uuid;

async fn set_default(system: &System, setting: &str) {
    let set = format!("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET {setting}', current_database()); END $$");
    system.sql(&set).await;
}

/// Under another isolation than `read committed`, the second of two changes of a row fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_meets_another_one_is_made_whatever_isolation_is_the_default() {
    let system = TestSystem::prepared(Options::default()).await;
    set_default(&system, "default_transaction_isolation = serializable").await;
    system.start(Service::Api).await;
    let api = system.admin(Uuid::new_v4()).await;
    let webhook = api.create("https://localhost/", &["quote.closed"]).await;
    let first = format!("BEGIN; UPDATE webhooks SET name = 'first' WHERE id = '{}'", webhook.id);
    let other = system.database_session(&first).await;
    let path = format!("/api/v1/webhooks/{}/", webhook.id);
    let second = json!({"events": ["quote.accepted"]});
    let (changed, ()) = tokio::join!(api.patch(&path, &second), async {
        system.wait_for_locked_out(1).await;
        other.batch_execute("COMMIT").await.unwrap();
    });
    assert_eq!(changed.status, 200, "{}", changed.text);
    let made = api.webhook(&webhook.id).await;
    assert_eq!((&made["name"], &made["events"]), (&json!("first"), &json!(["quote.accepted"])));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_the_server_ended_because_it_was_idle_fails_no_call() {
    let system = TestSystem::prepared(Options::default()).await;
    set_default(&system, "idle_session_timeout = 200").await;
    let ledger = system.ledger_as("idle", 1);
    let sessions = "SELECT count(*) FROM pg_stat_activity \
                    WHERE datname = current_database() AND application_name = 'idle'";
    for _ in 0..3 {
        assert!(ledger.webhooks_all(Uuid::new_v4().into()).await.unwrap().is_empty());
        system.until_count(sessions, 0, SOON).await;
    }
}
