//! `webhookctl rejected`: events that could not be used, and events with an unknown routing key.

use broker::{Moved, Parked, Reading};
use clap::Args;
use domain::Event;
use serde_json::{Value, json};
use service_kit::Settings;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{
    away, connect, output,
    parked::{self, Command, Counts},
};

const REASON: &str = "x-rejected-reason";

/// Events that could not be used, and events with an unknown routing key.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Reads the events that the broker itself parked instead: no ingest could receive or finish them, or they expired.
    #[arg(long, global = true)]
    unreadable: bool,
}

pub(crate) async fn run(settings: &Settings, arguments: Arguments) -> anyhow::Result<()> {
    let broker = connect::broker(settings)?;
    let names = broker.names();
    // In the order in which their events are listed, requeued and discarded.
    let queues = match arguments.unreadable {
        true => vec![names.unreadable()],
        false => vec![names.rejected(), names.unknown_key()],
    };
    let mut done = 0;
    match arguments.command {
        Command::List { limit } => {
            for queue in queues {
                let listed = away::broker(broker.parked_list(&queue, limit - done).await)?;
                done += listed.len();
                listed.iter().try_for_each(|parked| output::line(line(parked)))?;
            }
            Ok(())
        }
        // Each under its event type. An event that is rejected again is not requeued again.
        Command::Requeue { limit } => {
            let key = |body: &[u8]| Event::type_of(body).map_or_else(|| names.events(), |found| found.to_string());
            for queue in queues {
                done += away::broker(broker.parked_move(&queue, key, limit.map(|limit| limit - done)).await)?;
            }
            output::line(format_args!("handed {done} event(s) to ingest again"))
        }
        Command::Discard(discard) => {
            let (mut readings, mut counts): (Vec<Reading>, _) = (Vec::new(), Counts::default());
            for queue in queues {
                let kept = readings.iter().map(|reading| reading.parked().len()).sum();
                let reason = |parked: &Parked| parked::reason(parked, REASON).unwrap_or_default();
                readings.push(away::broker(discard.read(&broker, &queue, reason, kept, &mut counts).await)?);
            }
            if discard.show(&counts, &readings, |parked| vec![line(parked)])? {
                for reading in readings {
                    done += away::broker(reading.discard().await)?;
                }
            }
            output::line(format_args!("discarded {done} event(s)"))
        }
    }
}

/// An event that the broker moved by itself has the broker's reason instead of ours.
fn line(parked: &Parked) -> Value {
    let header = |name: &str| parked.headers.get(name).cloned();
    let moved = parked.moved.as_ref();
    let (name, body) = parked::body(&parked.body);
    json!({
        "reason": parked::reason(parked, REASON),
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
