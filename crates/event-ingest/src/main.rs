//! Starts event-ingest.

use std::process::ExitCode;

fn main() -> ExitCode {
    service_kit::process::run(
        "event-ingest",
        "Turns business events into deliveries.",
        |settings, shutdown| async move { event_ingest::App::build(&settings).await?.run(shutdown).await },
    )
}
