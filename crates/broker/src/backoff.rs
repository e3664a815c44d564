//! Back-off: how long to wait between tries of a dependency that is away.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::sleep;

const MIN_PAUSE: Duration = Duration::from_millis(100);
/// Without the jitter, which adds up to as much again.
const MAX_PAUSE: Duration = Duration::from_millis(2_500);

/// The pauses of a loop that waits for a dependency: from 100 ms, doubling, to 5 s at most. Jitter keeps many processes
/// from returning at once. The pauses never end: the caller's shutdown ends the loop. Each success starts a new one.
#[derive(Debug)]
pub struct Backoff(ExponentialBackoff);

impl Default for Backoff {
    fn default() -> Self {
        let delays = ExponentialBuilder::new()
            .with_min_delay(MIN_PAUSE)
            .with_max_delay(MAX_PAUSE)
            .with_factor(2.0)
            .with_jitter()
            .without_max_times();
        Self(delays.build())
    }
}

impl Backoff {
    /// Pauses, longer each time.
    pub async fn pause(&mut self) {
        sleep(self.0.next().unwrap_or(MAX_PAUSE)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_stay_between_a_tenth_and_five_seconds_and_never_end() {
        let pauses: Vec<_> = Backoff::default().0.take(1_000).collect();
        assert_eq!(pauses.len(), 1_000);
        assert!(pauses.iter().all(|pause| (MIN_PAUSE..=Duration::from_secs(5)).contains(pause)));
        assert!(pauses[999] >= MAX_PAUSE);
    }

    #[test]
    fn two_processes_do_not_wait_in_step() {
        let pauses = || Backoff::default().0.take(20).collect::<Vec<_>>();
        assert_ne!(pauses(), pauses());
    }
}
