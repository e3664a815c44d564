//! Runs a storm from a seed and prints what the auditor found. Ends with 1 when anything is wrong.
//!
//! `SEED`, `SECONDS` and `RATE` (events a second) are variables, or arguments in this order. With a fourth argument,
//! `cluster`, it runs on a cluster.

use std::{env, process::ExitCode, str::FromStr, time::Duration};

use anyhow::Context;
use end_to_end::{
    chaos::{Options, Setup, run},
    servers::repository,
};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<ExitCode> {
    let setup = if env::args().nth(4).is_some_and(|setup| setup == "cluster") { Setup::Cluster } else { Setup::Pair };
    let (seconds, rate) = match setup {
        Setup::Pair => (180, 40),
        Setup::Cluster => (250, 20),
    };
    let options = Options {
        seed: setting("SEED", 1)?.unwrap_or_else(|| fastrand::u64(1..1_000_000)),
        length: Duration::from_secs(setting("SECONDS", 2)?.unwrap_or(seconds)),
        rate: setting("RATE", 3)?.unwrap_or(rate),
        setup,
    };
    anyhow::ensure!(options.rate > 0, "RATE: there must be events");
    println!("SEED={} SECONDS={} RATE={}", options.seed, options.length.as_secs(), options.rate);
    let mut terminated = signal(SignalKind::terminate())?;
    let interrupted = async {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminated.recv() => {}
        }
        eprintln!("interrupted; cleaning up");
    };
    let Some(report) = run(options, &repository().join("target/chaos"), interrupted).await else {
        return Ok(ExitCode::from(130));
    };
    print!("{report}");
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn setting<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    name: &str,
    argument: usize,
) -> anyhow::Result<Option<T>> {
    let text = env::args().nth(argument).or_else(|| env::var(name).ok()).filter(|text| !text.is_empty());
    text.map(|text| text.parse().with_context(|| format!("{name}={text}"))).transpose()
}
