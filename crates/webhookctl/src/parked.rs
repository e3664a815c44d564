//! Messages that wait for an operator.

use std::{collections::BTreeMap, fmt};

use broker::{Broker, BrokerError, Parked, Reading};
use clap::{Args, Subcommand};
use serde_json::Value;

use crate::{confirm::Confirm, output};

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
    /// The most messages to delete. Without it, all that are there at the start.
    #[arg(long, default_value_t = usize::MAX, hide_default_value = true)]
    limit: usize,
    #[command(flatten)]
    pub(crate) confirm: Confirm,
}

/// The number of messages by reason.
#[derive(Default)]
pub(crate) struct Counts(BTreeMap<String, usize>);

impl Discard {
    /// Reads a queue, counts its messages by reason, and keeps those that are to be deleted: with those of `kept_before`, as
    /// many as the limit.
    pub(crate) async fn read(
        &self,
        broker: &Broker,
        queue: &str,
        reason: impl Fn(&Parked) -> String,
        kept_before: usize,
        counts: &mut Counts,
    ) -> Result<Reading, BrokerError> {
        let is_wanted = |parked: &Parked| {
            let reason = reason(parked);
            let is_wanted = self.reason.as_ref().is_none_or(|wanted| *wanted == reason);
            *counts.0.entry(reason).or_default() += 1;
            is_wanted
        };
        broker.parked_read(queue, self.limit.saturating_sub(kept_before), is_wanted).await
    }

    /// Prints the counts and the messages. Returns false if nothing is to be deleted.
    pub(crate) fn show(
        &self,
        counts: &Counts,
        readings: &[Reading],
        lines: impl Fn(&Parked) -> Vec<Value>,
    ) -> anyhow::Result<bool> {
        let parked = || readings.iter().flat_map(Reading::parked);
        output::line(format_args!("parked: {counts}; to discard: {}", parked().count()))?;
        parked().flat_map(lines).try_for_each(output::line)?;
        Ok(parked().next().is_some() && self.confirm.go_on()?)
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.values().sum::<usize>())?;
        for (place, (reason, count)) in self.0.iter().enumerate() {
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
