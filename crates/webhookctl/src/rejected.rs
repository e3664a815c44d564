//! `webhookctl rejected`: events that could not be used.

use broker::{Moved, Parked};
use clap::Args;
use domain::Event;
use serde_json::{Value, json};
use service_kit::Settings;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{
    connect, output,
    parked::{self, Command},
    server_error,
};

const REASON_HEADER: &str = "x-rejected-reason";

/// Events that could not be used.
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
    let queue = if arguments.unreadable { names.unreadable() } else { names.rejected() };
    match arguments.command {
        Command::List { limit } => {
            let listed = server_error::broker(broker.parked_list(&queue, limit).await)?;
            listed.iter().try_for_each(|parked| output::line(line(parked)))
        }
        // Each under its event type. An event that is rejected again is not requeued again.
        Command::Requeue { limit } => {
            let key = |body: &[u8]| Event::type_of(body).map_or_else(|| names.events(), |found| found.to_string());
            let moved = server_error::broker(broker.parked_move(&queue, key, limit).await)?;
            output::line(format_args!("handed {moved} event(s) to ingest again"))
        }
        Command::Discard(discard) => {
            let lines = |parked: &Parked| vec![line(parked)];
            let gone = match discard.choose(&broker, &queue, REASON_HEADER, lines).await? {
                Some(reading) => server_error::broker(reading.discard().await)?,
                None => 0,
            };
            output::line(format_args!("discarded {gone} event(s)"))
        }
    }
}

/// An event that the broker moved by itself has the broker's reason instead of ours.
fn line(parked: &Parked) -> Value {
    let header = |name: &str| parked.headers.get(name).cloned();
    let moved = parked.moved.as_ref();
    let (name, body) = parked::body(&parked.body);
    json!({
        "reason": parked::reason(parked, REASON_HEADER),
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
