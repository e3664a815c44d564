//! `webhookctl brake`: all dispatchers stop, and start again.

use domain::time_text::written;
use ledger::Brake;
use service_kit::Settings;

use crate::{connect, output, server_error};

/// Stops all dispatchers, or lets them start again. While the brake is on, no attempt begins: deliveries wait, and no
/// schedule is used up; those of a day that retention removes are cancelled. Without a command: shows the brakes that are on.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Stops all dispatchers, within three seconds. Attempts under way end.
    On {
        /// Why, for whoever finds it.
        #[arg(long, default_value = "set by an operator")]
        reason: String,
    },
    /// Releases it. A dispatcher that has braked by itself is released when its reason ends.
    Off,
}

pub(crate) async fn run(settings: &Settings, arguments: Arguments) -> anyhow::Result<()> {
    let ledger = connect::ledger(settings)?;
    connect::require_schema(&ledger).await?;
    match arguments.command {
        Some(Command::On { reason }) => {
            server_error::database(ledger.brake_all(&reason).await)?;
            output::line(
                "The brake is on: within three seconds no dispatcher begins an attempt. Deliveries wait, at least for a day.\n\
                 To release it: webhookctl brake off",
            )
        }
        Some(Command::Off) => {
            let was_on = server_error::database(ledger.brake_release(None).await)?;
            output::line(if was_on { "The brake is released." } else { "The brake was not on." })?;
            show(&server_error::database(ledger.brakes().await)?)
        }
        None => {
            let brakes = server_error::database(ledger.brakes().await)?;
            if brakes.is_empty() {
                return output::line("No brake is on: dispatchers accept jobs.");
            }
            show(&brakes)
        }
    }
}

fn show(brakes: &[Brake]) -> anyhow::Result<()> {
    brakes.iter().try_for_each(|brake| output::line(described(brake)))
}

/// A brake in a line.
pub(crate) fn described(brake: &Brake) -> String {
    let Brake { holder, reason, since } = brake;
    let since = written(*since).unwrap_or_default();
    if brake.is_operators() {
        return format!("All dispatchers are braked since {since}: {reason}. To release them: webhookctl brake off");
    }
    format!("A dispatcher ({holder}) is braked since {since}: {}", why(reason))
}

/// Why a dispatcher has braked.
pub(crate) fn why(reason: &str) -> &str {
    match reason {
        "no_answer" => "no receiver can be reached from it (name servers, routes, authorities)",
        "clock" => "its clock is more than four minutes from the database's",
        other => other,
    }
}
