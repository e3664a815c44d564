//! What administrators are told of a webhook's health. These tests record attempts by the ledger directly.

use domain::{Notice, OutcomeClass};
use end_to_end::system::{Service, TestSystem};
use ledger::Attempted;
use serde_json::{Value, json};

use crate::health::{
    late::{NOON, Records},
    once,
};
use OutcomeClass::{Status as Failure, Success};

/// The webhook's notices of its health, oldest first.
async fn told(records: &Records) -> Vec<Value> {
    let answer = records.api.get(&format!("/api/v1/webhooks/{}/notices/", records.webhook)).await;
    let mut notices = answer.json()["data"].as_array().unwrap().clone();
    notices.retain(|notice| notice["type"] != "webhook.created");
    notices.reverse();
    notices
}

fn types(notices: &[Value]) -> Vec<&str> {
    notices.iter().map(|notice| notice["type"].as_str().unwrap()).collect()
}

async fn record(records: &Records, attempts: &[Attempted]) {
    records.ledger.attempts_record(attempts).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_success_after_which_a_failure_is_known_ends_no_failing_period() {
    let system = TestSystem::prepared(once()).await;
    let records = Records::of(&system).await;
    record(&records, &[records.attempt(Success, 1).await]).await;
    // Of one batch: both drops are of one period.
    let batch =
        [records.attempt(Failure, 15).await, records.attempt(Failure, 5).await, records.attempt(Success, 10).await];
    record(&records, &batch).await;
    let notices = told(&records).await;
    assert_eq!(types(&notices), ["webhook.dropping"]);
    let webhook = records.api.webhook(&records.webhook.to_string()).await;
    assert_eq!(webhook["failure_count"], 1);
    assert_eq!(webhook["failing_since"], notices[0]["details"]["failing_since"]);
    // Recorded late: it sets the count to zero, and the webhook fails all the same.
    record(&records, &[records.attempt(Success, 12).await]).await;
    let webhook = records.api.webhook(&records.webhook.to_string()).await;
    assert_eq!((&webhook["failure_count"], &webhook["failing_since"]), (&json!(0), &Value::Null));
    record(&records, &[records.attempt(Failure, 16).await]).await;
    assert_eq!(types(&told(&records).await), ["webhook.dropping"], "it was told");

    record(&records, &[records.attempt(Success, 20).await]).await;
    let notices = told(&records).await;
    assert_eq!(types(&notices), ["webhook.dropping", "webhook.recovered"]);
    assert_eq!(notices[1]["details"]["dropped"], 3);
    assert_eq!(system.count("SELECT count(*) FROM attempts").await, 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_before_a_success_of_the_same_batch_is_told_with_the_recovery() {
    let system = TestSystem::prepared(once()).await;
    let records = Records::of(&system).await;
    record(&records, &[records.attempt(Success, 1).await]).await;
    record(&records, &[records.attempt(Success, 10).await, records.attempt(Failure, 5).await]).await;
    let notices = told(&records).await;
    assert_eq!(types(&notices), ["webhook.recovered"]);
    assert_eq!(notices[0]["details"]["dropped"], 1);
    assert!(notices[0]["details"]["recover"].is_object(), "{}", notices[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_drop_is_told_with_how_to_recover_it_in_whatever_order_it_is_recorded() {
    let system = TestSystem::prepared(once()).await;
    let records = Records::of(&system).await;
    record(&records, &[records.attempt(Success, 20).await]).await;
    record(&records, &[records.attempt(Failure, 15).await]).await;
    record(&records, &[records.attempt(Success, 18).await]).await;
    let notices = told(&records).await;
    assert_eq!(types(&notices), ["webhook.dropping", "webhook.recovered"]);
    assert!(notices[1]["details"]["recover"].is_object(), "{}", notices[1]);

    let of_first_batch = records.of_another_webhook().await;
    let batch = [of_first_batch.attempt(Failure, 15).await, of_first_batch.attempt(Success, 18).await];
    record(&of_first_batch, &batch).await;
    let late_batch = records.of_another_webhook().await;
    record(&late_batch, &[late_batch.attempt(Success, 20).await]).await;
    record(&late_batch, &[late_batch.attempt(Failure, 15).await, late_batch.attempt(Success, 18).await]).await;
    for records in [of_first_batch, late_batch] {
        record(&records, &[records.attempt(Success, 21).await]).await;
        let notices = told(&records).await;
        assert_eq!(types(&notices), ["webhook.recovered"]);
        assert_eq!(notices[0]["details"]["dropped"], 1);
        assert!(notices[0]["details"]["recover"].is_object(), "{}", notices[0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_success_moves_the_begin_of_the_failing_period_behind_it() {
    let system = TestSystem::prepared(once()).await;
    let records = Records::of(&system).await;
    record(&records, &[records.attempt(Failure, 1).await, records.attempt(Failure, 15).await]).await;
    record(&records, &[records.attempt(Success, 12).await]).await;
    let begin = "SELECT count(*) FROM webhook_health WHERE failing_since = last_failure_at";
    assert_eq!(system.count(begin).await, 1, "it fails since the failure that is known to be younger");
    assert_eq!(types(&told(&records).await), ["webhook.dropping"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_success_begins_no_failing_period() {
    let system = TestSystem::prepared(once()).await;
    let first = Records::of(&system).await;
    for (late, failing_since) in [
        (vec![(Success, 12)], None),
        (vec![(Failure, 10), (Success, 11)], None),
        (vec![(Success, 12), (Failure, 30)], Some(30)),
        (vec![(Success, 8), (Failure, 9)], Some(9)),
    ] {
        for is_one_batch in [false, true] {
            let records = first.of_another_webhook().await;
            record(&records, &[records.attempt(Failure, 15).await]).await;
            record(&records, &[records.attempt(Success, 20).await]).await;
            let mut batch = Vec::new();
            for (class, second) in &late {
                batch.push(records.attempt(*class, *second).await);
            }
            for part in batch.chunks(if is_one_batch { batch.len() } else { 1 }) {
                record(&records, part).await;
            }
            let since = format!(
                "SELECT coalesce(extract(epoch FROM failing_since - '{NOON}')::bigint, -1) FROM webhook_health \
                 WHERE webhook_id = '{}'",
                records.webhook
            );
            assert_eq!(system.count(&since).await, failing_since.unwrap_or(-1), "{late:?} {is_one_batch}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_that_is_recorded_after_a_younger_success_begins_a_failing_period() {
    let system = TestSystem::prepared(once()).await;
    let records = Records::of(&system).await;
    record(&records, &[records.attempt(Success, 10).await]).await;
    let late = records.attempt(Failure, 5).await;
    record(&records, std::slice::from_ref(&late)).await;
    let notices = told(&records).await;
    assert_eq!(types(&notices), ["webhook.dropping"]);
    assert_eq!(notices[0]["details"]["delivery_id"], json!(late.id));
    let webhook = records.api.webhook(&records.webhook.to_string()).await;
    assert_eq!(webhook["failure_count"], 1);

    // How to recover it comes with the next success.
    record(&records, &[records.attempt(Success, 20).await]).await;
    let notices = told(&records).await;
    assert_eq!(types(&notices), ["webhook.dropping", "webhook.recovered"]);
    assert!(notices[1]["details"]["recover"].is_object(), "{}", notices[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notices_of_one_millisecond_are_published_in_the_order_in_which_they_came() {
    let system = TestSystem::prepared(once()).await;
    // Ids of one millisecond are in no order. These are in reverse, and one of an earlier millisecond is added last.
    let add = |first: &str, count: u8| {
        format!(
            "INSERT INTO notices (id, webhook_id, tenant_id, webhook_name, notice_type, details, created_at) \
             SELECT ('{first}-7' || to_hex(256 * (15 - i)) || '-8000-000000000000')::uuid, gen_random_uuid(), \
                    gen_random_uuid(), i::text, 'webhook.paused', '{{}}', now() - (16 - i) * interval '1 microsecond' \
             FROM generate_series(1, {count}) AS i"
        )
    };
    system.sql(&add("01a20f40-daa2", 9)).await;
    system.sql(&format!("{} OFFSET 9", add("01a20f40-daa1", 10))).await;
    let leased = system.ledger_as("notices", 1).notices_lease(100).await.unwrap();
    let order: Vec<_> = leased.iter().map(|Notice { webhook_name, .. }| webhook_name.as_str()).collect();
    assert_eq!(order, ["10", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notices_of_a_newer_version_are_left_to_it_and_end_no_page() {
    let system = TestSystem::prepared(once()).await;
    let records = Records::of(&system).await;
    let add = async |notice_type: &str| {
        system
            .sql(&format!(
                "INSERT INTO notices (webhook_id, tenant_id, webhook_name, notice_type, details) \
                 SELECT id, tenant_id, name, '{notice_type}', '{{}}' FROM webhooks"
            ))
            .await;
    };
    add("webhook.paused").await;
    add("webhook.of_tomorrow").await;
    add("webhook.activated").await;
    let path = format!("/api/v1/webhooks/{}/notices/?limit=1", records.webhook);
    let page = records.api.get(&path).await.json();
    let cursor = page["next_cursor"].as_str().expect("there are more");
    let next = records.api.get(&format!("{path}&cursor={cursor}")).await.json();
    assert_eq!(
        (&page["data"][0]["type"], &next["data"][0]["type"]),
        (&json!("webhook.activated"), &json!("webhook.paused"))
    );
    system.stop(Service::Api).await;
    // The API's outbox relay may have leased the others.
    system.sql("UPDATE notices SET leased_until = now()").await;
    let leased = records.ledger.notices_lease(100).await.unwrap();
    assert_eq!(leased.len(), 3, "{leased:?}");
    let left = "SELECT count(*) FROM notices WHERE leased_until <= now()";
    assert_eq!(system.count(left).await, 1, "a newer version need not wait for it");
}
