//! Measures the service on this machine, prints a table and writes `target/bench/report.json`. Ends with 1 when a target is
//! missed. Arguments choose parts; without any, all are measured.

mod bare;
mod bench;
mod child;
mod depth;
mod growth;
mod isolation;
mod kept;
mod latencies;
mod latency;
mod load;
mod memory;
mod publisher;
mod report;
mod retries;
mod round;
mod scaling;
mod sink;
mod stage;
mod throughput;
mod usage;

use std::{panic::AssertUnwindSafe, process::ExitCode, time::Instant};

use bench::Bench;
use futures_util::FutureExt;
use report::Figure;
use tokio::signal::unix::{SignalKind, signal};

/// The parts, in the order in which they are measured.
const PARTS: [&str; 10] =
    ["throughput", "latency", "isolation", "scaling", "retries", "memory", "backlog", "webhooks", "history", "depth"];

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> std::io::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["sink", ca] => sink::serve(ca).await,
        ["pipe", order] => bare::run(order).await,
        [] => return measure(&PARTS).await,
        ref parts if parts.iter().all(|part| PARTS.contains(part)) => return measure(parts).await,
        _ => {
            eprintln!("usage: bench [PART...]; the parts: {}", PARTS.join(", "));
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(parts: &[&str]) -> std::io::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        measured = measured(parts) => measured,
        // Whatever was started is stopped by being dropped.
        _ = tokio::signal::ctrl_c() => Ok(ExitCode::from(130)),
        _ = terminate.recv() => Ok(ExitCode::from(143)),
    }
}

/// A part that fails costs its own figures only.
async fn measured(parts: &[&str]) -> std::io::Result<ExitCode> {
    let bench = Bench::start().await;
    let (mut figures, mut failed) = (Vec::new(), Vec::new());
    for part in parts {
        println!("{part}:");
        let began = Instant::now();
        match AssertUnwindSafe(figures_of(part, &bench)).catch_unwind().await {
            Ok(more) => figures.extend(more),
            Err(_) => failed.push(*part),
        }
        println!("  ({:.0} s)", began.elapsed().as_secs_f64());
        report::write(&figures)?;
    }
    report::print(&figures);
    let missed = figures.iter().filter(|figure| !figure.is_good()).count();
    println!("{missed} targets missed; target/bench/report.json is written");
    if !failed.is_empty() {
        println!("not measured, because of a failure: {}", failed.join(", "));
    }
    Ok(if missed == 0 && failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn figures_of(part: &str, bench: &Bench) -> Vec<Figure> {
    match part {
        "throughput" => throughput::measure(bench).await,
        "latency" => latency::measure(bench).await,
        "isolation" => isolation::measure(bench).await,
        "scaling" => scaling::measure(bench).await,
        "retries" => retries::measure(bench).await,
        "memory" => memory::measure(bench).await,
        "backlog" => growth::with_backlog(bench).await,
        "webhooks" => growth::with_webhooks(bench).await,
        "history" => growth::with_history(bench).await,
        _ => depth::measure(bench).await,
    }
}
