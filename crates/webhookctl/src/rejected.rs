//! `webhookctl rejected`: events that could not be used, and events with an unknown routing key.

use broker::{Broker, Moved, Parked};
use domain::Event;
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{away, body, output};

/// The queues, in the order in which their events are listed, requeued and discarded.
fn queues(broker: &Broker) -> [String; 2] {
    [broker.names().rejected(), broker.names().unknown_key()]
}

/// Prints up to `limit` rejected events, one JSON object a line.
pub(crate) async fn list(broker: &Broker, limit: usize) -> anyhow::Result<()> {
    let mut left = limit;
    for queue in queues(broker) {
        let listed = away::broker(broker.parked_list(&queue, left).await)?;
        left -= listed.len();
        for parked in listed {
            output::line(line(&parked))?;
        }
        if left == 0 {
            break;
        }
    }
    Ok(())
}

/// Publishes rejected events to ingest again, each under its event type. Without a limit, moves those there at the start:
/// an event that is rejected again is not requeued again.
pub(crate) async fn requeue(broker: &Broker, limit: Option<usize>) -> anyhow::Result<()> {
    let key = |body: &[u8]| Event::type_of(body).map_or_else(|| broker.names().events(), |found| found.to_string());
    let mut moved = 0;
    for queue in queues(broker) {
        moved += away::broker(broker.parked_move(&queue, key, limit.map(|limit| limit - moved)).await)?;
    }
    output::line(format_args!("handed {moved} event(s) to ingest again"))
}

/// Deletes rejected events. Without a limit, deletes those there at the start.
pub(crate) async fn discard(broker: &Broker, limit: Option<usize>) -> anyhow::Result<()> {
    let mut gone = 0;
    for queue in queues(broker) {
        gone += away::broker(broker.parked_discard(&queue, limit.map(|limit| limit - gone)).await)?;
    }
    output::line(format_args!("discarded {gone} event(s)"))
}

/// An event that the broker moved by itself has the broker's reason instead of ours.
fn line(parked: &Parked) -> Value {
    let header = |name: &str| parked.headers.get(name).cloned();
    let moved = parked.moved.as_ref();
    let (name, body) = body::shown(&parked.body);
    json!({
        "reason": header("x-rejected-reason").or_else(|| Some(moved?.reason.clone())),
        "detail": header("x-rejected-detail").or_else(|| Some(moved?.detail())),
        "rejected_at": header("x-rejected-at").or_else(|| at(moved?)),
        "routing_key": header("x-rejected-routing-key").or_else(|| moved?.routing_key.clone()),
        "traceparent": header("traceparent"),
        name: body,
    })
}

fn at(moved: &Moved) -> Option<String> {
    let at = OffsetDateTime::from_unix_timestamp(i64::try_from(moved.at?).ok()?).ok()?;
    at.format(&Rfc3339).ok()
}
