//! `webhookctl dead`: jobs that became dead letters (quarantine).

use broker::{Broker, Parked};
use domain::{DeliveryId, Job};
use serde_json::{Value, json};
use service_kit::Settings;

use crate::{
    away, connect, output,
    parked::{self, Command},
};

/// The most deliveries in one call to the ledger.
const BATCH: usize = 500;

pub(crate) async fn run(settings: &Settings, command: Command) -> anyhow::Result<()> {
    let broker = connect::broker(settings)?;
    let (dead, main) = (broker.names().dead(), broker.names().main());
    match command {
        Command::List { limit } => {
            let parked = away::broker(broker.parked_list(&dead, limit).await)?;
            parked.iter().flat_map(lines).try_for_each(output::line)
        }
        Command::Requeue { limit } => {
            let ledger = connect::ledger(settings)?;
            let (messages, deliveries) = parked(&broker, &dead, limit).await?;
            for deliveries in deliveries.chunks(BATCH) {
                away::database(ledger.jobs_unpark(deliveries).await)?;
            }
            let moved = away::broker(broker.parked_move(&dead, |_| main.clone(), Some(messages)).await)?;
            output::line(format_args!("handed {moved} message(s) to the dispatchers again"))
        }
        Command::Discard { limit } => {
            let ledger = connect::ledger(settings)?;
            let (messages, deliveries) = parked(&broker, &dead, limit).await?;
            for deliveries in deliveries.chunks(BATCH) {
                away::database(ledger.deliveries_cancel(deliveries).await)?;
                away::database(ledger.jobs_unpark(deliveries).await)?;
            }
            let gone = away::broker(broker.parked_discard(&dead, Some(messages)).await)?;
            output::line(format_args!("discarded {gone} message(s); their deliveries that still waited are cancelled"))
        }
    }
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
    let (name, body) = parked::body(&parked.body);
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
