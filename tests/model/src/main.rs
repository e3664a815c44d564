//! Explores the large configurations, and prints the shortest trace to a violation.

use std::{process::ExitCode, time::Instant};

use model::{Config, LARGE, explore};

/// States of a configuration, for which there is memory.
const MOST: usize = 3_000_000;

fn main() -> ExitCode {
    for (name, events, may) in LARGE {
        let began = Instant::now();
        match explore(&Config::new(events, may), MOST) {
            Ok(states) => {
                let whole = if states > MOST { "the first" } else { "all" };
                println!("{name}: {whole} {states} states, {} s", began.elapsed().as_secs());
            }
            Err(violation) => {
                println!("{name}: {violation}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
