//! Starts the service.

use std::process::ExitCode;

use api_service::App;

fn main() -> ExitCode {
    service_kit::process::run("api-service", "the REST API for administrators", |settings, shutdown| async move {
        App::build(&settings).await?.run(shutdown).await
    })
}
