//! Starts the dispatcher.

use std::process::ExitCode;

fn main() -> ExitCode {
    service_kit::process::run("dispatcher", "Turns deliveries into attempts.", |settings, shutdown| async move {
        dispatcher::App::build(&settings).await?.run(shutdown).await
    })
}
