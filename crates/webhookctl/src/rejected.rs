//! `webhookctl rejected`: unusable events.

use broker::{Broker, Parked};
use serde_json::{Value, json};

use crate::{away, body, output};

/// Prints up to `limit` rejected events, one JSON object a line.
pub(crate) async fn list(broker: &Broker, limit: usize) -> anyhow::Result<()> {
    for parked in away::broker(broker.parked_list(&broker.names().rejected(), limit).await)? {
        output::line(line(&parked))?;
    }
    Ok(())
}

/// Publishes rejected events to ingest again. Without a limit, takes those there at the start: an event that is
/// rejected again does not go round for ever.
pub(crate) async fn requeue(broker: &Broker, limit: Option<usize>) -> anyhow::Result<()> {
    let (from, to) = (broker.names().rejected(), broker.names().events());
    let moved = away::broker(broker.parked_move(&from, &to, limit).await)?;
    output::line(format_args!("handed {moved} event(s) to ingest again"))
}

/// Deletes rejected events. Without a limit, takes those there at the start.
pub(crate) async fn discard(broker: &Broker, limit: Option<usize>) -> anyhow::Result<()> {
    let gone = away::broker(broker.parked_discard(&broker.names().rejected(), limit).await)?;
    output::line(format_args!("discarded {gone} event(s)"))
}

fn line(parked: &Parked) -> Value {
    let header = |name: &str| parked.headers.get(name).cloned();
    let (name, body) = body::shown(&parked.body);
    json!({
        "reason": header("x-rejected-reason"),
        "detail": header("x-rejected-detail"),
        "rejected_at": header("x-rejected-at"),
        "routing_key": header("x-rejected-routing-key"),
        "traceparent": header("traceparent"),
        name: body,
    })
}
