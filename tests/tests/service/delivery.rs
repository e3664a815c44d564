//! From the event to the receiver.
mod body;
mod large;
mod log_plans;
mod plans;
mod routing;
mod span;
mod twice;
mod wire;

use std::{net::SocketAddr, time::Duration};

use end_to_end::{
    system::{Service, System, metric},
    wait::until,
};
use uuid::Uuid;

/// The deadline for work that keeps the machine busy.
const LONG: Duration = Duration::from_secs(90);

/// Starts every service. Returns ingest's operations address.
async fn start_all(system: &System) -> SocketAddr {
    system.start(Service::Api).await;
    system.start(Service::Dispatcher).await;
    system.start(Service::Ingest).await
}

/// Waits until ingest has judged `events` events and no delivery is pending or retrying. Nothing can arrive after that.
async fn settled(system: &System, ingest: SocketAddr, events: u32) {
    let what = format!("{events} events are judged and their deliveries ended");
    until(&what, LONG, || async {
        let judged = metric(ingest, "webhooks_ingest_events_total").await;
        let waiting = "SELECT count(*) FROM deliveries WHERE state IN ('pending', 'retrying')";
        judged >= f64::from(events) && system.count(waiting).await == 0
    })
    .await;
}

/// Waits until exactly `events` events of these tenants are stored and none of their deliveries is pending or retrying.
/// Nothing can arrive after that, if each event is wanted.
async fn ended(system: &System, tenants: &[Uuid], events: i64) {
    let tenants: Vec<_> = tenants.iter().map(Uuid::to_string).collect();
    let theirs = format!("tenant_id = ANY ('{{{}}}')", tenants.join(","));
    // One statement: an event and its deliveries are stored together.
    let counts = format!(
        "SELECT (SELECT count(*) FROM events WHERE {theirs}), \
                (SELECT count(*) FROM deliveries AS d JOIN webhooks AS w ON w.id = d.webhook_id \
                 WHERE w.{theirs} AND d.state IN ('pending', 'retrying'))"
    );
    until(&format!("{events} events are stored and their deliveries ended"), LONG, || async {
        let row = &system.sql(&counts).await[0];
        let (stored, waiting): (i64, i64) = (row.get(0), row.get(1));
        assert!(stored <= events, "{stored} events are stored instead of {events}");
        stored == events && waiting == 0
    })
    .await;
}

/// How many events ingest judged with this outcome.
async fn judged(ingest: SocketAddr, outcome: &str) -> f64 {
    metric(ingest, &format!("webhooks_ingest_events_total{{outcome=\"{outcome}\"}}")).await
}
