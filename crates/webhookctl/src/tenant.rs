//! `webhookctl tenant`: a tenant leaves.

mod erase;
mod stop;

use std::time::Duration;

use clap::Subcommand;
use domain::TenantId;
use ledger::Ledger;

use crate::{confirm::Confirm, connect};

/// How often a step is tried that fails.
const TRIES: u32 = 20;
/// The pause between two steps, which leaves the database to other work, as that of api-service.
const BREATH: Duration = Duration::from_millis(20);
/// How often a line says how far it has come.
const TELL: Duration = Duration::from_secs(2);

/// What a tenant that leaves needs.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Deletes all webhooks of a tenant, as its administrators can, and cancels what waits for them. Nothing more is
    /// delivered, and new events make no deliveries. The log stays readable.
    Stop {
        /// The tenant: a UUID.
        tenant: TenantId,
        /// Who did it, for the webhooks' history and the notices.
        #[arg(long, default_value = "operator")]
        user: String,
        #[command(flatten)]
        confirm: Confirm,
    },
    /// Erases all that the ledger holds of a stopped tenant, for good, in small steps while the services run. It may be
    /// interrupted and run again.
    Erase {
        /// The tenant: a UUID.
        tenant: TenantId,
        #[command(flatten)]
        confirm: Confirm,
    },
}

pub(crate) async fn run(ledger: &Ledger, command: Command) -> anyhow::Result<()> {
    connect::require_schema(ledger).await?;
    match command {
        Command::Stop { tenant, user, confirm } => stop::run(ledger, tenant, user, confirm).await,
        Command::Erase { tenant, confirm } => erase::run(ledger, tenant, confirm).await,
    }
}
