//! `webhookctl doctor`: what is right, what is wrong, and how to fix it.

mod checks;
mod finding;
mod look;
mod observed;
mod screen;

use finding::Level;

use crate::output;

/// Looks at settings, database, broker and services, and says what is wrong and how to fix it. It changes nothing, and
/// ends within 20 seconds whatever is unavailable.
///
/// Exit codes: 0 nothing is wrong (there may be warnings), 1 something is wrong, settings included, 2 arguments that cannot
/// be used.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Prints one JSON document: the worst `level` (`ok`, `note`, `warning` or `error`), and of each of the `checks` its
    /// `id`, `level`, `text` and `remedy`. Ids stay the same.
    #[arg(long)]
    json: bool,
}

/// Returns whether nothing is wrong.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<bool> {
    let observed = look::at_everything().await;
    let findings = checks::all(&observed);
    match arguments.json {
        true => output::line(format_args!("{:#}", screen::document(&findings)))?,
        false => output::styled(&screen::text(&findings))?,
    }
    Ok(findings.iter().all(|finding| finding.level < Level::Error))
}
