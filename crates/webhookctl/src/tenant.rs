//! `webhookctl tenant`: a tenant leaves.

mod erase;
mod stop;

use clap::Subcommand;
use domain::TenantId;
use service_kit::Settings;

use self::erase::Begin;
use crate::{confirm::Confirm, connect};

/// What a tenant that leaves needs.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Revokes all keys of a tenant, deletes all its webhooks, as its administrators can, and cancels their waiting deliveries.
    /// Nothing more is delivered, and new events make no deliveries. The log stays readable.
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
    /// interrupted and run again. Refuses until the retry schedule's length and an hour after the deletion of the tenant's last
    /// webhook, and while dispatchers are braked: the broker may hold jobs of the tenant.
    Erase {
        /// The tenant: a UUID.
        tenant: TenantId,
        /// Begins although the broker may hold jobs of the tenant. These are parked on the queue of dead jobs when they come.
        #[arg(long)]
        now: bool,
        #[command(flatten)]
        confirm: Confirm,
    },
}

pub(crate) async fn run(settings: &Settings, command: Command) -> anyhow::Result<()> {
    let ledger = connect::ledger(settings)?;
    connect::require_schema(&ledger).await?;
    match command {
        Command::Stop { tenant, user, confirm } => stop::run(&ledger, tenant, user, confirm).await,
        Command::Erase { tenant, now, confirm } => {
            let last_retry = settings.retry.schedule.steps().last().copied().unwrap_or_default();
            let begin = if now { Begin::Now } else { Begin::Drained(last_retry) };
            erase::run(&ledger, tenant, begin, confirm).await
        }
    }
}
