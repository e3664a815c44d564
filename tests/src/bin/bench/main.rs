//! Measures the service on this machine, prints a table and writes `target/bench/report.json`. Ends with 1 when a target is
//! missed.

mod depth;
mod kept;
mod report;

use std::{io, process::ExitCode};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> io::Result<ExitCode> {
    let figures = depth::measure().await;
    report::print(&figures);
    report::write(&figures)?;
    Ok(if figures.iter().all(report::Figure::is_good) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
