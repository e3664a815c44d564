//! What the ledger keeps: partitions ahead of time, and nothing that is too old.

use std::time::{Duration, Instant};

use ledger::{Cleaned, Cleaning, Dropped, Leader, Ledger, LedgerError};
use time::OffsetDateTime;

use super::Metrics;

const EVERY: Duration = Duration::from_secs(60 * 60);
/// When something could not be done just now.
const AGAIN: Duration = Duration::from_secs(60);
/// Bites of a cleaning in one step, and the pause between them.
const BITES: usize = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// What remains of an hour's work, so that one step never takes long.
pub(crate) struct Retention<'a> {
    ledger: &'a Ledger,
    keep: Duration,
    metrics: &'a Metrics,
    next: Instant,
    cleanings: Vec<Cleaning>,
}

impl<'a> Retention<'a> {
    pub(crate) fn new(ledger: &'a Ledger, keep: Duration, metrics: &'a Metrics) -> Self {
        Self { ledger, keep, metrics, next: Instant::now(), cleanings: Vec::new() }
    }

    /// Does a bounded piece of work, if there is any.
    ///
    /// # Errors
    /// When the leader's connection is lost. What else fails is logged and tried again.
    pub(crate) async fn step(&mut self, leader: &mut Leader) -> Result<(), LedgerError> {
        if self.cleanings.is_empty() && Instant::now() >= self.next {
            self.next = Instant::now() + if self.begin(leader).await? { EVERY } else { AGAIN };
        }
        for _ in 0..BITES {
            let Some(cleaning) = self.cleanings.pop() else { break };
            if let Some(Cleaned { rows, rest }) = tolerate("cleaning", leader.clean(&cleaning).await)? {
                self.metrics.rows_deleted(rows);
                self.cleanings.extend(rest);
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Makes and drops partitions, and notes which ones have to be cleaned. Says whether all of it succeeded.
    async fn begin(&mut self, leader: &mut Leader) -> Result<bool, LedgerError> {
        let now = OffsetDateTime::now_utc();
        let before = now - self.keep;
        let mut is_done = tolerate("making partitions", leader.partitions_ensure(now.date()).await)? == Some(0);
        for day in leader.days_old(now, self.keep).await? {
            match tolerate("dropping a day", leader.day_drop(day).await)? {
                Some(Dropped::Gone) => {
                    tracing::info!(%day, "a day is older than the retention: its partitions are dropped");
                    self.metrics.day_dropped();
                }
                Some(Dropped::Waiting) => self.cleanings.push(Cleaning::of_day(day, before)),
                None => is_done = false,
            }
        }
        self.cleanings.push(Cleaning::of_default(before));
        for _ in 0..BITES {
            if tolerate("cleaning", leader.leftovers_clean(before).await)?.unwrap_or_default() == 0 {
                break;
            }
        }
        if let Some(sessions @ 1..) = tolerate("deleting expired sessions", self.ledger.sessions_purge(now).await)? {
            tracing::info!(sessions, "expired sessions were deleted");
        }
        Ok(is_done)
    }
}

/// Passes on that the database is away. Anything else, such as a lock that somebody else holds, is logged.
fn tolerate<T>(what: &str, result: Result<T, LedgerError>) -> Result<Option<T>, LedgerError> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.is_unavailable() => Err(error),
        Err(error) => {
            let error: &(dyn std::error::Error + 'static) = &error;
            tracing::warn!(error, "{what} failed; trying again later");
            Ok(None)
        }
    }
}
