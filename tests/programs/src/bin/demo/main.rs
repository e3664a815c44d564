//! `make demo`: the whole service at work on real servers, from an event to a verified delivery, in a few seconds.
//!
//! It uses its own database, queues, ports and keys, and removes them, whatever happens. The first check that fails
//! ends it, with the ends of the services' logs.

mod deliveries;
mod fixtures;
mod page;
mod reading;
mod retries;

use std::{process::ExitCode, time::Duration};

use end_to_end::{
    processes::{Process, with_api_address},
    system::{Options, System, TestSystem},
};
use futures_util::future::join_all;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Instant, sleep},
};

use crate::{fixtures::Fixtures, page::say};

/// Six growing steps as in production, in seconds instead of hours.
const SCHEDULE: &str = "200ms,500ms,1s,1700ms,2600ms,3700ms";
/// The limit for the demonstration. It takes about ten seconds, so beyond this something hangs.
const DEMO_TIMEOUT: Duration = Duration::from_secs(180);

#[tokio::main]
async fn main() -> ExitCode {
    // The demonstration looks for queues before they exist, and lapin logs each.
    tracing_subscriber::fmt().with_env_filter("warn,lapin=off").init();
    let began = Instant::now();
    let mut terminated = signal(SignalKind::terminate()).expect("the system has signals");
    let system = TestSystem::prepared(Options { schedule: SCHEDULE, ..Options::default() }).await;
    let interrupted = tokio::select! {
        () = story(&system) => None,
        _ = tokio::signal::ctrl_c() => Some(130),
        _ = terminated.recv() => Some(143),
        () = sleep(DEMO_TIMEOUT) => panic!("the demonstration does not end within {DEMO_TIMEOUT:?}"),
    };
    drop(system);
    if let Some(code) = interrupted {
        return ExitCode::from(code);
    }
    let seconds = began.elapsed().as_secs_f64();
    say!("\nEverything worked, in {seconds:.1} s. The database and the queues of this demonstration are removed.");
    say!("To see it in a browser: make console");
    ExitCode::SUCCESS
}

async fn story(system: &System) {
    say!("\nWebhook delivery, from a business event to a signed HTTPS POST");
    say!("(real processes on PostgreSQL and RabbitMQ; queues {}.*)", system.names.exchange());
    say!("\n1 Services");
    let (variables, mut services) = (with_api_address(system).await, Vec::new());
    for name in ["api-service", "event-ingest", "dispatcher"] {
        let process = Process::start(name, &variables).await;
        say!("  {name:<14}ready, metrics on http://{}/metrics", process.ops);
        services.push(process);
    }
    say!("\n2 Webhooks, registered by POST /api/v1/webhooks/ with a session cookie");
    let fixtures = Fixtures::register(system).await;
    say!("\n3 Seven events, published with publisher confirms; what the receiver of /always-ok got and checked");
    deliveries::show(system, &fixtures).await;
    say!("\n4 Retries, in seconds after the first attempt (schedule shortened; in production 1m 5m 15m 1h 4h 12h)");
    retries::show(system, &fixtures).await;
    say!("\n5 Health, read back by GET /api/v1/webhooks/");
    reading::show_health(system, &fixtures).await;
    say!("\n6 Notices, which the business application takes and turns into e-mails");
    reading::show_notices(system).await;
    say!("\n7 Shutdown, by SIGTERM");
    for status in join_all(services.into_iter().map(Process::terminate)).await {
        assert_eq!(status.code(), Some(0), "a service after SIGTERM");
    }
    say!("  api-service, event-ingest, dispatcher: exit code 0");
}
