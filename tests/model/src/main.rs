//! Explores the large configurations, and prints the shortest trace to a violation.

use std::{process::ExitCode, time::Instant};

use model::{Config, LARGE_CONFIGS, explore};

/// States of a configuration, for which there is memory.
const MAX_STATES: usize = 3_000_000;

fn main() -> ExitCode {
    for (name, events, may) in LARGE_CONFIGS {
        let began = Instant::now();
        match explore(&Config::new(events, may), MAX_STATES) {
            Ok(states) => {
                let whole = if states > MAX_STATES { "the first" } else { "all" };
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
