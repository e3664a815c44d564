//! The confirmation of a command that changes much.

use anyhow::bail;
use clap::Args;

/// The confirmation of the operator.
#[derive(Args, Clone, Copy)]
pub(crate) struct Confirm {
    /// Does it. Without this, only says what it would do.
    #[arg(long)]
    yes: bool,
    /// Says what it would do, and ends well.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
}

impl Confirm {
    /// Returns true if the command is to continue, after it was said what would be done.
    pub(crate) fn go_on(self) -> anyhow::Result<bool> {
        match (self.yes, self.dry_run) {
            (true, _) => Ok(true),
            (_, true) => Ok(false),
            _ => bail!("nothing was changed: run the command again with --yes"),
        }
    }
}
