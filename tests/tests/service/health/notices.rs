//! What administrators are told of a webhook's health. These tests record attempts by the ledger directly.

use domain::{Notice, OutcomeClass};
use end_to_end::system::{Service, System};
use ledger::Attempted;
use serde_json::{Value, json};

use crate::health::{late::Records, once};
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
async fn a_drop_after_a_success_of_the_same_batch_is_told_by_its_own_name_and_after_the_success() {
    System::prepared(once(), async |system| {
        let records = Records::of(&system).await;
        record(&records, &[records.attempt(Success, 1).await]).await;
        let mut drops = [records.attempt(Failure, 5).await, records.attempt(Failure, 5).await];
        // The drop of the period before has the smaller id, and so has the first one of both.
        drops.sort_by_key(|drop| drop.id);
        let [before, mut after] = drops;
        after.answer.started_at += time::Duration::seconds(10);
        let success = records.attempt(Success, 10).await;
        record(&records, &[after.clone(), before.clone(), success]).await;

        let rows = "SELECT notice_type, created_at::text FROM notices WHERE notice_type ~ 'dropping|recovered' \
                    ORDER BY created_at, notice_type";
        let rows = system.sql(rows).await;
        let rows: Vec<(String, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert_eq!(
            rows.iter().map(|row| row.0.as_str()).collect::<Vec<_>>(),
            ["webhook.recovered", "webhook.dropping"]
        );
        assert!(rows[0].1 < rows[1].1, "{rows:?}");
        let notices = told(&records).await;
        let of = |wanted: &str| notices.iter().find(|one| one["type"] == wanted).unwrap();
        assert_eq!(of("webhook.recovered")["details"]["dropped"], 1);
        assert_eq!(of("webhook.dropping")["details"]["delivery_id"], json!(after.id));
        assert_eq!(system.count("SELECT count(*) FROM attempts").await, 4);
        // The period goes on, and its end is told, too.
        record(&records, &[records.attempt(Success, 20).await]).await;
        let notices = told(&records).await;
        let last = notices.iter().rfind(|one| one["type"] == "webhook.recovered").unwrap();
        assert_eq!((&last["details"]["dropped"], notices.len()), (&json!(1), 3));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_recorded_after_a_younger_success_is_told_without_a_failing_period() {
    System::prepared(once(), async |system| {
        let records = Records::of(&system).await;
        record(&records, &[records.attempt(Success, 10).await]).await;
        let late = records.attempt(Failure, 5).await;
        record(&records, std::slice::from_ref(&late)).await;
        let notices = told(&records).await;
        assert_eq!(types(&notices), ["webhook.dropping"]);
        let details = &notices[0]["details"];
        assert_eq!((&details["delivery_id"], &details["failing_since"]), (&json!(late.id), &Value::Null));
        let summary = notices[0]["summary"].as_str().unwrap();
        assert!(!summary.contains("since its last success"), "a younger attempt has succeeded: {summary}");
        let webhook = records.api.webhook(&records.webhook.to_string()).await;
        assert_eq!((&webhook["failure_count"], &webhook["failing_since"]), (&json!(0), &Value::Null));

        // How to recover it comes with the next success.
        record(&records, &[records.attempt(Success, 20).await]).await;
        let notices = told(&records).await;
        assert_eq!(types(&notices), ["webhook.dropping", "webhook.recovered"]);
        assert!(notices[1]["details"]["recover"].is_object(), "{}", notices[1]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notices_of_one_millisecond_are_published_in_the_order_in_which_they_came() {
    System::prepared(once(), async |system| {
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
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notices_of_a_newer_version_are_left_to_it_and_end_no_page() {
    System::prepared(once(), async |system| {
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
    })
    .await;
}
