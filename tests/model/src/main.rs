//! Explores the large configurations, and prints the shortest trace to a violation.

use std::{process::ExitCode, time::Instant};

use model::{Config, Explored, explore};

/// States of a configuration, for which there is memory.
const MOST: usize = 3_500_000;

fn main() -> ExitCode {
    for config in Config::large() {
        let began = Instant::now();
        match explore(&config, MOST) {
            Ok(Explored { states, depth, is_whole }) => {
                let whole = if is_whole { "all" } else { "the first" };
                let seconds = began.elapsed().as_secs();
                println!("{}: {whole} {states} states, up to {depth} steps, {seconds} s", config.name);
            }
            Err(violation) => {
                println!("{}: {violation}", config.name);
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
