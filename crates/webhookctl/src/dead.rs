//! `webhookctl dead`: jobs that became dead letters (quarantine).

use std::time::Duration;

use broker::{Broker, Parked};
use domain::{DeliveryId, Job};
use serde_json::{Value, json};
use service_kit::Settings;
use tokio::time::{Instant, sleep};

use crate::{
    connect, output,
    parked::{self, Command},
    server_error,
};

const REASON_HEADER: &str = "x-dead-reason";

/// The most deliveries in one call to the ledger.
const MAX_BATCH_DELIVERIES: usize = 500;
/// The maximum time until the messages that were listed are ready again.
const RETURN_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval at which they are counted until then.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) async fn run(settings: &Settings, command: Command) -> anyhow::Result<()> {
    let broker = connect::broker(settings)?;
    let (dead, main) = (broker.names().dead(), broker.names().main());
    match command {
        Command::List { limit } => {
            let parked = server_error::broker(broker.parked_list(&dead, limit).await)?;
            parked.iter().flat_map(lines).try_for_each(output::line)
        }
        Command::Requeue { limit } => {
            let ledger = connect::ledger(settings)?;
            let noted = server_error::database(ledger.jobs_parked().await)?;
            let ready = ready(&broker).await?;
            let parked = server_error::broker(broker.parked_list(&dead, usize::MAX).await)?;
            // Somebody removed their messages: lost-job detection makes their jobs again.
            let lost = match limit.is_none() && noted.len() > ready && is_back(&broker, ready).await? {
                true => without_message(noted, &parked),
                false => Vec::new(),
            };
            let requeued = &parked[..parked.len().min(limit.unwrap_or(usize::MAX))];
            for deliveries in
                [deliveries(requeued), lost.clone()].iter().flat_map(|ids| ids.chunks(MAX_BATCH_DELIVERIES))
            {
                server_error::database(ledger.jobs_unpark(deliveries).await)?;
            }
            let moved = server_error::broker(broker.parked_move(&dead, |_| main.clone(), Some(requeued.len())).await)?;
            if !lost.is_empty() {
                output::line(format_args!(
                    "released {} deliveries without a message: their jobs are made again",
                    lost.len()
                ))?;
            }
            output::line(format_args!("handed {moved} message(s) to the dispatchers again"))
        }
        Command::Discard(discard) => {
            let (ledger, mut gone) = (connect::ledger(settings)?, 0);
            if let Some(reading) = discard.choose(&broker, &dead, REASON_HEADER, lines).await? {
                for deliveries in deliveries(reading.parked()).chunks(MAX_BATCH_DELIVERIES) {
                    server_error::database(ledger.deliveries_cancel(deliveries).await)?;
                    server_error::database(ledger.jobs_unpark(deliveries).await)?;
                }
                gone = server_error::broker(reading.discard().await)?;
            }
            output::line(format_args!("discarded {gone} message(s); their deliveries that still waited are cancelled"))
        }
    }
}

/// The number of dead letters that are ready.
async fn ready(broker: &Broker) -> anyhow::Result<usize> {
    let ready = server_error::broker(broker.depth(&broker.names().dead()).await)?;
    Ok(usize::try_from(ready.unwrap_or_default())?)
}

/// Returns true if as many dead letters are ready as before they were listed. Otherwise somebody else reads them: then a delivery
/// whose message was not seen may have one.
async fn is_back(broker: &Broker, before: usize) -> anyhow::Result<bool> {
    let deadline = Instant::now() + RETURN_TIMEOUT;
    loop {
        let ready = ready(broker).await?;
        if ready == before || Instant::now() >= deadline {
            return Ok(ready == before);
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// The deliveries among `noted` that none of the messages is about.
fn without_message(noted: Vec<DeliveryId>, parked: &[Parked]) -> Vec<DeliveryId> {
    let present = deliveries(parked);
    noted.into_iter().filter(|id| present.binary_search(id).is_err()).collect()
}

/// The deliveries of the jobs of messages, in the order in which everyone locks deliveries, to avoid deadlocks.
fn deliveries(parked: &[Parked]) -> Vec<DeliveryId> {
    let jobs = parked.iter().filter_map(|parked| Job::parse(&parked.body).ok()).flatten();
    let mut deliveries: Vec<DeliveryId> = jobs.map(|job| job.delivery).collect();
    deliveries.sort_unstable();
    deliveries
}

/// A message that the broker moved by itself has the broker's reason instead of ours.
fn lines(parked: &Parked) -> Vec<Value> {
    let header = |name: &str| parked.headers.get(name).cloned();
    let moved = parked.moved.as_ref();
    let (name, body) = parked::body(&parked.body);
    let line = |job: Option<Job>| {
        json!({
            "reason": parked::reason(parked, REASON_HEADER),
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
