//! `make demo`: the whole service at work on real servers, from an event to a verified delivery, in a few seconds.
//!
//! It uses its own database, queues, ports and keys, and removes them, whatever happens. The first check that fails
//! ends it with exit code 1.

mod deliveries;
mod environment;
mod failure;
mod fixtures;
mod health;
mod leftovers;
mod notices;
mod page;
mod retries;
mod services;

use std::{panic::AssertUnwindSafe, process::ExitCode, time::Duration};

use end_to_end::{outsider::Outsider, receiver::Receiver};
use futures_util::FutureExt;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::Instant,
};

use crate::{
    environment::Environment,
    failure::{Checked, Failure},
    fixtures::Fixtures,
    page::say,
    services::Services,
};

/// The limit for the demonstration. It takes about ten seconds, so beyond this something hangs.
const LONGEST: Duration = Duration::from_secs(180);

#[tokio::main]
async fn main() -> ExitCode {
    // A panic of the harness is reported like any other failure.
    std::panic::set_hook(Box::new(|_| {}));
    let began = Instant::now();
    let environment = match guarded(async { Ok(Environment::new()) }).await {
        Ok(environment) => environment,
        Err(failure) => return lament(&failure),
    };
    let mut services = Services::default();
    let outcome = guarded(story(&environment, &mut services)).await;
    let ended = services.ended().await;
    drop(services);
    let left = leftovers::remove(&environment).await;
    leftovers::remove_folder(&environment, &outcome);
    match outcome {
        Err(failure) => {
            let code = lament(&failure);
            ended.iter().for_each(|ended| say!("          {ended}"));
            let blamed = services::NAMES.into_iter().filter(|service| failure.blames(service));
            page::show_logs(&environment.folder, blamed);
            left.iter().for_each(|left| say!("  perhaps left behind: {left}"));
            code
        }
        Ok(()) if !left.is_empty() => lament(&Failure::new("cleaning up", "nothing left behind", left.join("; "))),
        Ok(()) => {
            say!(
                "\nEverything worked, in {:.1} s. The database and the queues of this demonstration are removed.",
                secs(began)
            );
            say!("To see it in a browser: make console");
            ExitCode::SUCCESS
        }
    }
}

async fn story(environment: &Environment, services: &mut Services) -> Checked {
    environment.create_database().await?;
    let upstream = Outsider::try_connect(&environment.servers.amqp_url, &environment.names().events_exchange)
        .await
        .map_err(|error| Failure::new("connecting to AMQP_URL", "a broker that lets us in", error))?;
    say!("\nWebhook delivery, from a business event to a signed HTTPS POST");
    say!(
        "(real processes on PostgreSQL and RabbitMQ; database {}, queues {}.*)",
        environment.database,
        environment.prefix
    );
    page::title("1 Services");
    services.start(environment).await?;
    let receiver = Receiver::start(&environment.ca, fixtures::behaviour());
    page::title("2 Webhooks, registered by POST /api/v1/webhooks/ with a session cookie");
    let fixtures = Fixtures::register(environment, &receiver).await?;
    page::title("3 Seven events, published with publisher confirms; what the receiver of /always-ok got and checked");
    deliveries::show(&fixtures, &receiver, &upstream).await?;
    page::title(
        "4 Retries, in seconds after the first attempt (schedule shortened; in production 1m 5m 15m 1h 4h 12h)",
    );
    retries::show(environment, &fixtures, &receiver, &upstream).await?;
    page::title("5 Health, read back by GET /api/v1/webhooks/");
    health::show(&fixtures, environment.schedule.steps().len() + 1).await?;
    page::title("6 Notices, which the business application takes and turns into e-mails");
    notices::show(environment, &upstream).await?;
    upstream.close().await;
    page::title("7 Shutdown, by SIGTERM");
    services.stop().await
}

/// Runs a part so that a signal, a panic or a hang ends it as a failure. Cleaning up follows in any case.
async fn guarded<T>(part: impl Future<Output = Checked<T>>) -> Checked<T> {
    let whole = "the demonstration";
    let (mut interrupt, mut terminate) = match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
        (Ok(interrupt), Ok(terminate)) => (interrupt, terminate),
        _ => return Err(Failure::new(whole, "to listen to signals", "the system refuses")),
    };
    tokio::select! {
        outcome = AssertUnwindSafe(part).catch_unwind() => {
            outcome.unwrap_or_else(|panic| Err(Failure::of_panic(panic.as_ref())))
        }
        _ = interrupt.recv() => Err(Failure::interrupted("SIGINT")),
        _ = terminate.recv() => Err(Failure::interrupted("SIGTERM")),
        () = tokio::time::sleep(LONGEST) => Err(Failure::new(whole, format!("an end within {LONGEST:?}"), "none")),
    }
}

fn lament(failure: &Failure) -> ExitCode {
    say!("\nFAILED    {}", failure.what);
    say!("expected  {}", failure.expected);
    say!("came      {}", failure.came);
    ExitCode::FAILURE
}

fn secs(since: Instant) -> f64 {
    since.elapsed().as_secs_f64()
}
