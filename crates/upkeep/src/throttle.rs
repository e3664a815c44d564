//! Throttles: the work that a pass may do, so that it gets through the ledger in time and holds up nobody else.

use std::time::{Duration, Instant};

/// Rows that each kind of work looks at per second, on average: several times what comes in.
const ROWS_A_SECOND: f64 = 24_000.0;
/// A pass may take as long as the interval between two passes, and at least this long.
const MIN_PASS_TIME: Duration = Duration::from_secs(1);
/// The shortest and the longest pause after a statement. In between, the pause is as long as the statement.
const PAUSE_BOUNDS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// What is left of the rows and the time of a pass.
pub(crate) struct Throttle {
    rows: u64,
    until: Instant,
}

impl Throttle {
    /// The share of a pass that begins now, when passes are an `interval` apart.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is positive, and saturates")]
    pub(crate) fn new(interval: Duration, now: Instant) -> Self {
        Self { rows: (interval.as_secs_f64() * ROWS_A_SECOND) as u64, until: now + interval.max(MIN_PASS_TIME) }
    }

    /// Half of the rows that are left: the reserve for the work that follows.
    pub(crate) const fn half(&self) -> u64 {
        self.rows / 2
    }

    pub(crate) fn spend(&mut self, rows: u32) {
        self.rows = self.rows.saturating_sub(rows.into());
    }

    pub(crate) fn has_time(&self, now: Instant) -> bool {
        now < self.until
    }

    /// Whether there is time left, and more rows are left than the reserve.
    pub(crate) fn goes_on(&self, reserve: u64, now: Instant) -> bool {
        self.rows > reserve && self.has_time(now)
    }
}

/// Leaves the server to others after a statement that took this long.
pub(crate) async fn pause(statement: Duration) {
    tokio::time::sleep(statement.clamp(PAUSE_BOUNDS.0, PAUSE_BOUNDS.1)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK_ROWS: u32 = 10_000;

    /// Rows that passes look at in `seconds`, when a chunk takes the duration `chunk`.
    fn scanned(seconds: u64, interval: Duration, chunk: Duration) -> u64 {
        let (began, mut now, mut rows) = (Instant::now(), Instant::now(), 0);
        while now < began + Duration::from_secs(seconds) {
            let (mut throttle, next) = (Throttle::new(interval, now), now + interval);
            while throttle.goes_on(0, now) {
                throttle.spend(CHUNK_ROWS);
                rows += u64::from(CHUNK_ROWS);
                now += chunk + chunk.clamp(PAUSE_BOUNDS.0, PAUSE_BOUNDS.1);
            }
            now = now.max(next);
        }
        rows
    }

    #[test]
    fn ten_thousand_rows_a_second_are_looked_at_even_by_a_slow_server() {
        for (interval, chunk) in [(5_000, 20), (5_000, 250), (100, 20), (60_000, 100), (200, 300)] {
            let rows = scanned(600, Duration::from_millis(interval), Duration::from_millis(chunk));
            assert!(rows >= 600 * 10_000, "{rows} rows, a chunk of {chunk} ms, a pass every {interval} ms");
        }
    }

    #[test]
    fn a_quick_server_is_not_kept_busy() {
        let rows = scanned(600, Duration::from_secs(5), Duration::from_millis(5));
        assert_eq!(rows, 600 * 24_000);
    }

    #[test]
    fn a_pass_ends_in_time_whatever_it_finds() {
        let now = Instant::now();
        let throttle = Throttle::new(Duration::from_secs(5), now);
        assert!(
            throttle.goes_on(0, now + Duration::from_millis(4_999)) && !throttle.has_time(now + Duration::from_secs(5))
        );
        assert!(Throttle::new(Duration::from_millis(100), now).has_time(now + Duration::from_millis(999)));
    }
}
