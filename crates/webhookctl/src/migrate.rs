//! `webhookctl migrate`.

use ledger::LedgerError;
use service_kit::Settings;

use crate::{arguments::Misuse, connect, output, server_error};

/// Applies the missing migrations and makes partitions ahead of time.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Takes the schema back to that of a release, such as 1.0. What only newer versions know goes: stop the services and keep a
    /// copy first.
    #[arg(long, value_name = "RELEASE")]
    to: Option<String>,
    /// Prints the migrations that would be applied or reverted, and changes nothing.
    #[arg(long)]
    plan: bool,
}

pub(crate) async fn run(settings: &Settings, arguments: &Arguments) -> anyhow::Result<()> {
    let ledger = connect::ledger(settings)?;
    let (migrations, done) = match (&arguments.to, arguments.plan) {
        (None, false) => (ledger.migrate().await, "applied"),
        (None, true) => (ledger.migrations_missing().await, "would apply"),
        (Some(release), false) => (ledger.migrate_back(release).await, "reverted"),
        (Some(release), true) => (ledger.migrate_back_plan(release).await, "would revert"),
    };
    if let (Some(release), Err(error @ LedgerError::UnknownRelease { .. })) = (&arguments.to, &migrations) {
        return Err(Misuse(format!("--to {release}: {error}")).into());
    }
    let migrations = server_error::database(migrations)?;
    match (migrations.len(), &arguments.to) {
        (0, None) => output::line("the schema is current"),
        (0, Some(release)) => output::line(format_args!("nothing to do: the schema is that of {release}")),
        (count, _) => output::line(format_args!("{done} {count} migration(s): {}", migrations.join(", "))),
    }
}
