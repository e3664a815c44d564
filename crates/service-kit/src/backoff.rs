//! Back-off: how long to wait between tries of a dependency that is away.

use std::time::Duration;

use backon::ExponentialBuilder;

const SHORTEST: Duration = Duration::from_millis(100);
/// Without the jitter, which adds up to as much again.
const LONGEST: Duration = Duration::from_millis(2_500);

/// Delays for a loop that waits for a dependency: from 100 ms, doubling, to 5 s at most. Jitter keeps many processes
/// from returning at once. The delays never end: the caller's shutdown ends the loop.
#[must_use]
pub fn backoff() -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_min_delay(SHORTEST)
        .with_max_delay(LONGEST)
        .with_factor(2.0)
        .with_jitter()
        .without_max_times()
}

#[cfg(test)]
mod tests {
    use backon::BackoffBuilder;

    use super::*;

    #[test]
    fn delays_stay_between_a_tenth_and_five_seconds_and_never_end() {
        let delays: Vec<_> = backoff().build().take(1_000).collect();
        assert_eq!(delays.len(), 1_000);
        assert!(delays.iter().all(|delay| (SHORTEST..=Duration::from_secs(5)).contains(delay)));
        assert!(delays[999] >= LONGEST);
    }

    #[test]
    fn two_processes_do_not_wait_in_step() {
        let delays = || backoff().build().take(20).collect::<Vec<_>>();
        assert_ne!(delays(), delays());
    }
}
