//! What administrators are told of a webhook's health. These tests record attempts by the ledger directly.

use domain::{Notice, OutcomeClass};
use end_to_end::system::{Options, Service, System, TestSystem};
use serde_json::json;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::health::late::Records;
use OutcomeClass::{Status as Failure, Success};

/// The newest notice of a webhook's health: its type, and since which second after the event it fails, or how many
/// deliveries were dropped until a recovery.
async fn newest(records: &Records) -> String {
    let answer = records.api.get(&format!("/api/v1/webhooks/{}/notices/", records.webhook)).await.json();
    let notices = answer["data"].as_array().unwrap();
    let types: Vec<_> = notices.iter().rev().skip(1).map(|notice| notice["type"].as_str().unwrap()).collect();
    let details = &notices[0]["details"];
    match *types {
        [] => String::new(),
        ["webhook.dropping"] => {
            let since = OffsetDateTime::parse(details["failing_since"].as_str().unwrap(), &Rfc3339).unwrap();
            format!("dropping since {}", (since - records.begin.as_datetime()).whole_seconds())
        }
        ["webhook.recovered"] | ["webhook.dropping", "webhook.recovered"] => {
            assert!(details["recover"].is_object(), "it says how to recover them: {details}");
            format!("recovered {}", details["dropped"])
        }
        _ => panic!("{types:?}"),
    }
}

/// The seconds after the event since which a webhook fails, in the ledger.
async fn failing_since(system: &System, records: &Records) -> Option<i64> {
    let since = "SELECT extract(epoch FROM failing_since)::bigint FROM webhook_health WHERE failing_since IS NOT NULL";
    let rows = system.sql(&format!("{since} AND webhook_id = '{}'", records.webhook)).await;
    rows.first().map(|row| row.get::<_, i64>(0) - records.begin.as_datetime().unix_timestamp())
}

/// Batches, each with the newest notice and the second since which the webhook fails, after the batch was recorded.
type Case<'c> = &'c [(&'c [(OutcomeClass, i64)], &'c str, Option<i64>)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_drop_is_told_once_and_its_recovery_in_whatever_order_they_are_recorded() {
    let system = TestSystem::shared().await;
    let first = Records::of(&system).await;
    let cases: [Case; 7] = [
        // A success after which a failure is known ends no failing period.
        &[
            (&[(Success, 1)], "", None),
            (&[(Failure, 15), (Failure, 5), (Success, 10)], "dropping since 15", Some(15)),
            (&[(Success, 12)], "dropping since 15", Some(15)),
            (&[(Failure, 16)], "dropping since 15", Some(15)),
            (&[(Success, 20)], "recovered 3", None),
        ],
        &[(&[(Success, 1)], "", None), (&[(Success, 10), (Failure, 5)], "recovered 1", None)],
        &[
            (&[(Success, 20)], "", None),
            (&[(Failure, 15)], "dropping since 15", Some(15)),
            (&[(Success, 18)], "recovered 1", None),
        ],
        &[(&[(Failure, 15), (Success, 18)], "recovered 1", None), (&[(Success, 21)], "recovered 1", None)],
        &[
            (&[(Success, 20)], "", None),
            (&[(Failure, 15), (Success, 18)], "recovered 1", None),
            (&[(Success, 21)], "recovered 1", None),
        ],
        // A late success moves the begin of the failing period behind it, to the failure that is known to be younger.
        &[
            (&[(Failure, 1), (Failure, 15)], "dropping since 1", Some(1)),
            (&[(Success, 12)], "dropping since 1", Some(15)),
        ],
        // A drop that is recorded after a younger success begins a failing period. The next success ends it.
        &[
            (&[(Success, 10)], "", None),
            (&[(Failure, 5)], "dropping since 5", Some(5)),
            (&[(Success, 20)], "recovered 1", None),
        ],
    ];
    for (number, case) in cases.into_iter().enumerate() {
        let records = first.of_another_webhook().await;
        for (batch, notice, since) in case {
            let failures = records.record(&records.attempts(batch).await).await.failures;
            let shown = records.api.webhook(&records.webhook.to_string()).await["failing_since"].clone();
            assert_eq!(shown.is_null(), failures == 0 || since.is_none(), "case {number}, {batch:?}: {shown}");
            let seen = (newest(&records).await, failing_since(&system, &records).await);
            assert_eq!(seen, ((*notice).to_owned(), *since), "case {number}, {batch:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_success_begins_no_failing_period() {
    let system = TestSystem::shared().await;
    let first = Records::of(&system).await;
    for (late, since) in [
        (vec![(Success, 12)], None),
        (vec![(Failure, 10), (Success, 11)], None),
        (vec![(Success, 12), (Failure, 30)], Some(30)),
        (vec![(Success, 8), (Failure, 9)], Some(9)),
    ] {
        for is_one_batch in [false, true] {
            let records = first.of_another_webhook().await;
            records.record(&[records.attempt(Failure, 15).await]).await;
            records.record(&[records.attempt(Success, 20).await]).await;
            let batch = records.attempts(&late).await;
            for part in batch.chunks(if is_one_batch { batch.len() } else { 1 }) {
                records.record(part).await;
            }
            assert_eq!(failing_since(&system, &records).await, since, "{late:?} {is_one_batch}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notices_of_one_millisecond_are_published_in_the_order_in_which_they_came() {
    let system = TestSystem::prepared(Options::default()).await;
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
    let order: Vec<_> =
        leased.iter().map(|Notice { webhook_name, .. }| webhook_name.as_deref().unwrap_or_default()).collect();
    assert_eq!(order, ["10", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notices_of_a_newer_version_are_left_to_it_and_end_no_page() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
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
