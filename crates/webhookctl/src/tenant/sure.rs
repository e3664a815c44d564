//! Whether the operator is sure.

use anyhow::bail;
use clap::Args;

/// Whether the operator is sure.
#[derive(Args, Clone, Copy)]
pub(crate) struct Sure {
    /// Does it. Without this, only says what it would do.
    #[arg(long)]
    yes: bool,
    /// Says what it would do, and ends well.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
}

impl Sure {
    /// Whether to go on, after it was said what would be done.
    pub(super) fn go_on(self) -> anyhow::Result<bool> {
        match (self.yes, self.dry_run) {
            (true, _) => Ok(true),
            (_, true) => Ok(false),
            _ => bail!("nothing was changed: run the command again with --yes"),
        }
    }
}
