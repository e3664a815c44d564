//! Messages that wait for an operator.

use std::{collections::BTreeMap, fmt};

use broker::{Broker, Parked, Reading};
use clap::{Args, Subcommand};
use serde_json::Value;

use crate::{confirm::Confirm, output, server_error};

/// Commands about parked messages.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Shows the messages, one JSON object a line, oldest first. They stay where they are.
    List {
        /// The most messages to show. A dead one may hold several jobs, and each job has its own line.
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    Discard(Discard),
    /// Publishes the messages again, oldest first: events to ingest, jobs to the dispatchers.
    Requeue {
        /// The most messages to publish again. Without it, all that are there at the start.
        #[arg(long)]
        limit: Option<usize>,
    },
}

/// Deletes messages permanently, oldest first. Counts the messages by reason, and prints those that it deletes as `list` does.
#[derive(Args)]
pub(crate) struct Discard {
    /// Deletes only messages with this `reason`.
    #[arg(long)]
    reason: Option<String>,
    /// The maximum number of messages to delete: the command holds them in memory until it ends.
    #[arg(long, default_value_t = 10_000)]
    limit: usize,
    #[command(flatten)]
    confirm: Confirm,
}

/// The number of messages.
#[derive(Default)]
struct Counts {
    by_reason: BTreeMap<String, usize>,
    /// Those that are to be deleted, including those beyond the limit.
    wanted: usize,
}

impl Discard {
    /// Reads a queue, and prints its counts by reason and the messages that are to be deleted, as many as the limit. Returns
    /// these messages, or `None` if nothing is to be deleted.
    pub(crate) async fn choose(
        &self,
        broker: &Broker,
        queue: &str,
        reason_header: &str,
        lines: impl Fn(&Parked) -> Vec<Value>,
    ) -> anyhow::Result<Option<Reading>> {
        let mut counts = Counts::default();
        let is_wanted = |parked: &Parked| {
            let reason = reason(parked, reason_header).unwrap_or_default();
            let is_wanted = self.reason.as_ref().is_none_or(|wanted| *wanted == reason);
            *counts.by_reason.entry(reason).or_default() += 1;
            counts.wanted += usize::from(is_wanted);
            is_wanted
        };
        let reading = server_error::broker(broker.parked_read(queue, self.limit, is_wanted).await)?;
        let count = reading.parked().len();
        let more = match counts.wanted - count {
            0 => String::new(),
            more => format!("; beyond the limit: {more} more"),
        };
        output::line(format_args!("parked: {counts}; to discard: {count}{more}"))?;
        reading.parked().iter().flat_map(lines).try_for_each(output::line)?;
        Ok((count > 0 && self.confirm.go_on()?).then_some(reading))
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.by_reason.values().sum::<usize>())?;
        for (place, (reason, count)) in self.by_reason.iter().enumerate() {
            write!(f, "{} {count} {reason}", if place == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

/// A value that the service wrote into a header, or the broker's own, if the broker parked the message.
pub(crate) fn reason(parked: &Parked, header: &str) -> Option<String> {
    parked.headers.get(header).cloned().or_else(|| Some(parked.moved.as_ref()?.reason.clone()))
}

/// A message's body as a member of a JSON line: the text if the body is UTF-8, else its hexadecimal digits.
pub(crate) fn body(body: &[u8]) -> (&'static str, String) {
    match std::str::from_utf8(body) {
        Ok(text) => ("body", text.to_owned()),
        Err(_) => ("body_hex", hex::encode(body)),
    }
}
