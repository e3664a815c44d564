//! `webhookctl dead`: jobs that became dead letters (quarantine).

use broker::{Broker, Parked};
use domain::{DeliveryId, Job};
use ledger::Ledger;
use serde_json::{Value, json};

use crate::{away, body, output};

/// The most deliveries in one call to the ledger.
const BATCH: usize = 500;

/// Prints the dead jobs of up to `limit` messages, one JSON object a line.
pub(crate) async fn list(broker: &Broker, limit: usize) -> anyhow::Result<()> {
    for parked in away::broker(broker.parked_list(&broker.names().dead(), limit).await)? {
        for line in lines(&parked) {
            output::line(line)?;
        }
    }
    Ok(())
}

/// Publishes dead jobs to the dispatchers again and clears their marks. Without a limit, takes those that are there at
/// the start.
pub(crate) async fn requeue(broker: &Broker, ledger: &Ledger, limit: Option<usize>) -> anyhow::Result<()> {
    let (from, to) = (broker.names().dead(), broker.names().main());
    let (messages, deliveries) = parked(broker, &from, limit).await?;
    for deliveries in deliveries.chunks(BATCH) {
        away::database(ledger.jobs_unpark(deliveries).await)?;
    }
    let moved = away::broker(broker.parked_move(&from, |_| to.clone(), Some(messages)).await)?;
    output::line(format_args!("handed {moved} message(s) to the dispatchers again"))
}

/// Deletes dead jobs and cancels their waiting deliveries, which an administrator can resend. Without a limit, takes
/// those there at the start.
pub(crate) async fn discard(broker: &Broker, ledger: &Ledger, limit: Option<usize>) -> anyhow::Result<()> {
    let dead = broker.names().dead();
    let (messages, deliveries) = parked(broker, &dead, limit).await?;
    for deliveries in deliveries.chunks(BATCH) {
        away::database(ledger.deliveries_cancel(deliveries).await)?;
        away::database(ledger.jobs_unpark(deliveries).await)?;
    }
    let gone = away::broker(broker.parked_discard(&dead, Some(messages)).await)?;
    output::line(format_args!("discarded {gone} message(s); their deliveries that still waited are cancelled"))
}

/// The number of messages, up to the limit, and the deliveries of their jobs.
async fn parked(broker: &Broker, dead: &str, limit: Option<usize>) -> anyhow::Result<(usize, Vec<DeliveryId>)> {
    let parked = away::broker(broker.parked_list(dead, limit.unwrap_or(usize::MAX)).await)?;
    let jobs = parked.iter().filter_map(|parked| Job::parse(&parked.body).ok()).flatten();
    let mut deliveries: Vec<DeliveryId> = jobs.map(|job| job.delivery).collect();
    // Everyone locks deliveries in the order of their ids, to avoid deadlocks.
    deliveries.sort_unstable();
    Ok((parked.len(), deliveries))
}

/// A message that the broker moved by itself has the broker's reason instead of ours.
fn lines(parked: &Parked) -> Vec<Value> {
    let header = |name: &str| parked.headers.get(name).cloned();
    let moved = parked.moved.as_ref();
    let (name, body) = body::shown(&parked.body);
    let line = |job: Option<Job>| {
        json!({
            "reason": header("x-dead-reason").or_else(|| Some(moved?.reason.clone())),
            "detail": header("x-dead-detail").or_else(|| Some(moved?.detail())),
            "delivery_id": job.map(|job| job.delivery.to_string()),
            "attempt": job.map(|job| job.attempt),
            name: body,
        })
    };
    match Job::parse(&parked.body) {
        Ok(jobs) => jobs.into_iter().map(|job| line(Some(job))).collect(),
        Err(_) => vec![line(None)],
    }
}
