//! Test deliveries are in the log, and count nowhere else.

use domain::OutcomeClass::{Status as Failure, Success};
use end_to_end::{
    api::Api,
    receiver::always,
    system::{Subscriber, TestSystem},
    wait::{SOON, eventually, until},
};
use ledger::Attempted;
use serde_json::{Value, json};

use crate::health::{Health, health, late::Records, once, publish};

/// Sends a test, and waits for its first attempt. Returns the delivery.
async fn tested(api: &Api, webhook: &str, state: &str) -> Value {
    let test = api.ask(&format!("/api/v1/webhooks/{webhook}/test/")).await;
    assert_eq!(test.status, 202, "{}", test.text);
    let id = test.json()["id"].as_str().unwrap().to_owned();
    let delivery = eventually("the test is recorded", SOON, || async {
        let delivery = api.delivery(webhook, &id).await;
        (delivery["state"] == state).then_some(delivery)
    })
    .await;
    assert_eq!((&delivery["is_test"], delivery["attempt_log"].as_array().unwrap().len()), (&json!(true), 1));
    delivery
}

/// The members of a webhook that show its health, and its statistics.
async fn shown(api: &Api, webhook: &str) -> Value {
    let shown = api.webhook(webhook).await;
    let health = ["last_success_at", "failure_count", "failing_since", "last_failure"].map(|name| shown[name].clone());
    let stats = api.get(&format!("/api/v1/webhooks/{webhook}/stats/")).await.json();
    json!({"health": health, "stats": stats["total"]})
}

async fn notices(api: &Api, webhook: &str) -> Vec<Value> {
    let notices = api.get(&format!("/api/v1/webhooks/{webhook}/notices/")).await.json();
    notices["data"].as_array().unwrap().iter().map(|notice| notice["type"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_changes_neither_the_health_nor_the_statistics_of_its_webhook_and_causes_no_notice() {
    let system = TestSystem::running(once()).await;
    let Subscriber { tenant, api, receiver, webhook, .. } = system.subscriber(always(200)).await;
    let untried = shown(&api, &webhook).await;
    tested(&api, &webhook, "succeeded").await;
    assert_eq!(shown(&api, &webhook).await, untried, "a webhook that only a test has reached");
    assert_eq!(health(&api, &webhook).await, Health { failures: 0, succeeded_at: None });

    receiver.behave(always(500));
    publish(&system, tenant, 1).await;
    until("the failure counts", SOON, || async { health(&api, &webhook).await.failures == 1 }).await;
    // As if administrators had been notified that it fails: its end would notify them too.
    system.sql(&format!("UPDATE webhook_health SET failing_notices = 1 WHERE webhook_id = '{webhook}'")).await;
    let failing = shown(&api, &webhook).await;
    tested(&api, &webhook, "retrying").await;
    receiver.behave(always(200));
    tested(&api, &webhook, "succeeded").await;
    assert_eq!(shown(&api, &webhook).await, failing, "a webhook that fails, and whose tests fail and succeed");
    assert_eq!(notices(&api, &webhook).await, ["webhook.created"]);

    publish(&system, tenant, 1).await;
    until("a success counts", SOON, || async { health(&api, &webhook).await.failures == 0 }).await;
    assert_eq!(shown(&api, &webhook).await["stats"]["attempts"], 2);
    assert_eq!(notices(&api, &webhook).await, ["webhook.recovered", "webhook.created"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_batch_with_tests_only_the_other_attempts_count() {
    let system = TestSystem::prepared(once()).await;
    let records = Records::of(&system).await;
    let webhook = records.webhook.to_string();
    let record = async |attempts: &[Attempted]| {
        let recorded = records.ledger.attempts_record(attempts).await.unwrap();
        assert_eq!(recorded.len(), attempts.len());
    };
    let (failure, dropped_test) = (records.attempt(Failure, 5).await, records.attempt(Failure, 6).await);
    let test = records.attempt(Success, 10).await;
    for id in [dropped_test.id, test.id] {
        system.sql(&format!("UPDATE deliveries SET is_test = true WHERE id = '{id}'")).await;
    }
    record(&[test.clone(), dropped_test.clone(), failure.clone()]).await;
    assert_eq!(health(&records.api, &webhook).await, Health { failures: 1, succeeded_at: None });
    for column in ["attempts", "dropped"] {
        let counted = format!("SELECT coalesce(sum({column}), 0)::bigint FROM webhook_stats");
        assert_eq!(system.count(&counted).await, 1, "{column}");
    }
    // The notice names the first dropped delivery: a test is none of these.
    assert_eq!(system.count("SELECT dropped::bigint FROM webhook_health").await, 1);
    let first = format!("SELECT count(*) FROM webhook_health WHERE first_dropped = '{}'", failure.id);
    assert_eq!(system.count(&first).await, 1);
    assert_eq!(system.count("SELECT count(*) FROM attempts").await, 3, "each of them is logged");

    // A batch of nothing else leaves the row as it is.
    let row = "SELECT to_jsonb(h)::text FROM webhook_health AS h";
    let before: String = system.sql(row).await[0].get(0);
    let only = records.attempt(Success, 20).await;
    system.sql(&format!("UPDATE deliveries SET is_test = true WHERE id = '{}'", only.id)).await;
    record(&[only]).await;
    assert_eq!(system.sql(row).await[0].get::<_, String>(0), before);
}
