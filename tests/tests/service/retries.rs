//! What follows a failed attempt (specification, section 8).
mod jobs;
mod overdue;
mod pairs;
mod schedule;

use std::time::{Duration, SystemTime};

use end_to_end::{
    events::Event,
    system::{Service, System},
    wait::{eventually, until},
};
use time::OffsetDateTime;
use uuid::Uuid;

/// The deadline for what takes a schedule's time.
const LONG: Duration = Duration::from_secs(90);

/// A row of `attempts`.
#[derive(Debug)]
struct Attempt {
    number: i16,
    started_at: OffsetDateTime,
    took: Duration,
    outcome: String,
}

/// The attempts of a webhook's deliveries, in order.
async fn attempts(system: &System, webhook: &str) -> Vec<Attempt> {
    let statement = format!(
        "SELECT attempt, started_at, duration_us, outcome \
         FROM attempts AS a JOIN deliveries AS d ON d.id = a.delivery_id \
         WHERE d.webhook_id = '{webhook}' ORDER BY started_at"
    );
    let row = |row: tokio_postgres::Row| Attempt {
        number: row.get(0),
        started_at: row.get::<_, SystemTime>(1).into(),
        took: Duration::from_micros(row.get::<_, i64>(2).unsigned_abs()),
        outcome: row.get(3),
    };
    system.sql(&statement).await.into_iter().map(row).collect()
}

/// Waits until all of a webhook's deliveries are in `state`, after `attempts` attempts.
async fn ended(system: &System, webhook: &str, state: &str, attempts: i16) {
    let what = format!("the delivery is {state} after {attempts} attempts");
    until(&what, LONG, || async {
        let statement = format!("SELECT state, attempts FROM deliveries WHERE webhook_id = '{webhook}'");
        let rows = system.sql(&statement).await;
        let done = |row: &tokio_postgres::Row| (row.get::<_, &str>(0), row.get::<_, i16>(1)) == (state, attempts);
        !rows.is_empty() && rows.iter().all(done)
    })
    .await;
}

/// When the first attempt of the only delivery failed.
async fn first_failed_at(system: &System) -> OffsetDateTime {
    eventually("an attempt has failed", LONG, || async {
        let rows = system.sql("SELECT first_failed_at FROM deliveries WHERE first_failed_at IS NOT NULL").await;
        Some(rows.first()?.get::<_, SystemTime>(0).into())
    })
    .await
}

async fn publish(system: &System, tenant: Uuid) {
    system.upstream.publish(&Event::closed(tenant, 1)).await;
}

/// Stops the consumers, so that unacknowledged messages return to their queues. Asserts that every queue is empty.
async fn no_message_is_left(system: &System) {
    system.stop(Service::Ingest).await;
    system.stop(Service::Dispatcher).await;
    for queue in system.queues() {
        assert_eq!(system.upstream.ready(&queue).await, 0, "{queue}");
    }
}
