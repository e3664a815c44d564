//! Measures the service on this machine, prints a table and writes `target/bench/report.json`. Ends with 1 when a
//! target is missed or a part failed. Arguments choose parts; without any, all are measured. `volume` has parts of its
//! own and is measured only when named.

mod bare;
mod bench;
mod ceiling;
mod child;
mod environment;
mod flood;
mod growth;
mod isolation;
mod kept;
mod latencies;
mod latency;
mod load;
mod memory;
mod moderate;
mod outcome;
mod publisher;
mod report;
mod round;
mod sink;
mod throughput;
mod usage;
mod volume;

use std::process::ExitCode;

use bench::Bench;
use outcome::Outcome;
use report::Figure;
use tokio::signal::unix::{SignalKind, signal};

/// The parts, in the order in which they are measured.
const PARTS: [&str; 9] =
    ["throughput", "latency", "moderate", "isolation", "flood", "memory", "backlog", "webhooks", "history"];

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> std::io::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["sink", ca] => sink::serve(ca).await,
        ["pipe", order] => bare::run(order).await,
        [] => return until_stopped(measured(&PARTS)).await,
        ["volume", ref parts @ ..] if volume::knows(parts) => return until_stopped(measured_at_volume(parts)).await,
        ref parts if parts.iter().all(|part| PARTS.contains(part)) => return until_stopped(measured(parts)).await,
        _ => {
            eprintln!("usage: bench [PART...]; the parts: {}", PARTS.join(", "));
            eprintln!("       bench volume [PART...]; the parts: {}", volume::PARTS.join(", "));
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn until_stopped(measured: impl Future<Output = std::io::Result<ExitCode>>) -> std::io::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        measured = measured => measured,
        // Dropping the measurement stops whatever it started.
        _ = tokio::signal::ctrl_c() => Ok(ExitCode::from(130)),
        _ = terminate.recv() => Ok(ExitCode::from(143)),
    }
}

async fn measured(parts: &[&str]) -> std::io::Result<ExitCode> {
    let (bench, mut outcome) = (Bench::start().await, Outcome::default());
    for part in parts {
        outcome.measure(part, figures_of(part, &bench)).await?;
    }
    Ok(outcome.end())
}

async fn measured_at_volume(parts: &[&str]) -> std::io::Result<ExitCode> {
    let (bench, mut outcome) = (Bench::start().await, Outcome::default());
    volume::measure(&bench, parts, &mut outcome).await?;
    Ok(outcome.end())
}

async fn figures_of(part: &str, bench: &Bench) -> Vec<Figure> {
    match part {
        "throughput" => throughput::measure(bench).await,
        "latency" => latency::measure(bench).await,
        "moderate" => moderate::measure(bench).await,
        "isolation" => isolation::measure(bench).await,
        "flood" => flood::measure(bench).await,
        "memory" => memory::measure(bench).await,
        "backlog" => growth::with_backlog(bench).await,
        "webhooks" => growth::with_webhooks(bench).await,
        _ => growth::with_history(bench).await,
    }
}
