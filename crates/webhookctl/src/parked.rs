//! Messages that wait for an operator.

use clap::Subcommand;

/// Commands about parked messages.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Shows the messages, one JSON object a line, oldest first. They stay where they are.
    List {
        /// The most messages to show. A dead one may hold several jobs, and each job has its own line.
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Deletes the messages for good, oldest first. Use it when no repair would make them usable.
    Discard {
        /// The most messages to delete. Without it, all that are there at the start.
        #[arg(long)]
        limit: Option<usize>,
    },
    /// Publishes the messages again, oldest first: events to ingest, jobs to the dispatchers.
    Requeue {
        /// The most messages to publish again. Without it, all that are there at the start.
        #[arg(long)]
        limit: Option<usize>,
    },
}

/// A message's body as a member of a JSON line: the text if the body is UTF-8, else its hexadecimal digits.
pub(crate) fn body(body: &[u8]) -> (&'static str, String) {
    match std::str::from_utf8(body) {
        Ok(text) => ("body", text.to_owned()),
        Err(_) => ("body_hex", hex::encode(body)),
    }
}
