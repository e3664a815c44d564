//! The outcome of the measured parts.

use std::{io, panic::AssertUnwindSafe, process::ExitCode, time::Instant};

use futures_util::FutureExt;

use crate::report::{self, Figure};

/// The figures of all parts so far, and the parts that failed.
#[derive(Default)]
pub(crate) struct Outcome {
    figures: Vec<Figure>,
    failed: Vec<String>,
}

impl Outcome {
    /// Measures a part and writes the report. A part that fails loses only its own figures.
    pub(crate) async fn measure(&mut self, part: &str, figures: impl Future<Output = Vec<Figure>>) -> io::Result<()> {
        println!("{part}:");
        let began = Instant::now();
        match AssertUnwindSafe(figures).catch_unwind().await {
            Ok(more) => self.figures.extend(more),
            Err(_) => self.failed.push(part.to_owned()),
        }
        println!("  ({:.0} s)", began.elapsed().as_secs_f64());
        report::write(&self.figures)
    }

    /// Prints the table. The run fails when a target is missed or a part failed.
    pub(crate) fn end(&self) -> ExitCode {
        report::print(&self.figures);
        let missed = self.figures.iter().filter(|figure| !figure.is_good()).count();
        println!("{missed} targets missed; target/bench/report.json is written");
        if !self.failed.is_empty() {
            println!("not measured, because of a failure: {}", self.failed.join(", "));
        }
        if missed == 0 && self.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
