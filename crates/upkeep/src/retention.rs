//! Retention: makes partitions ahead of time, and deletes what is too old.

use std::time::{Duration, Instant};

use ledger::{Cleaned, Cleaning, Day, Finished, Leader, Ledger, LedgerError, Search, Searched};
use time::OffsetDateTime;

use crate::{
    metrics::Metrics,
    pace::{Pace, pause},
};

const EVERY: Duration = Duration::from_secs(60 * 60);
/// The pause after something could not be done.
const AGAIN: Duration = Duration::from_secs(60);
/// Retention stops while the database's clock and this machine's differ by more: one of them is wrong, and deleted history
/// does not come back.
const APART: time::Duration = time::Duration::MINUTE;

/// What remains of an hour's work. It is done in steps, none of which takes long.
pub(crate) struct Retention<'a> {
    ledger: &'a Ledger,
    interval: Duration,
    keep: Duration,
    metrics: &'a Metrics,
    next: Instant,
    rest: Vec<Work>,
    /// Days in which nothing waits, which could not be dropped as somebody read them.
    undropped: Vec<Finished>,
    /// The end of the history that is deleted: the time at the beginning of the hour's work, less `keep`.
    before: OffsetDateTime,
    is_stopped: bool,
}

/// A piece of the work: on a day, or on the tables beside the log of deliveries.
enum Work {
    Search(Search),
    Drop(Finished),
    Clean(Cleaning),
    Leftovers,
    Stats,
}

impl<'a> Retention<'a> {
    pub(crate) fn new(ledger: &'a Ledger, (interval, keep): (Duration, Duration), metrics: &'a Metrics) -> Self {
        let (rest, undropped, before) = (Vec::new(), Vec::new(), OffsetDateTime::UNIX_EPOCH);
        Self { ledger, interval, keep, metrics, next: Instant::now(), rest, undropped, before, is_stopped: false }
    }

    /// Does a bounded piece of work, if there is any, unless the clocks are too far apart.
    ///
    /// # Errors
    /// When the database is away, or the hour's work cannot begin. Other failures are logged and tried again.
    pub(crate) async fn step(&mut self, leader: &mut Leader) -> Result<(), LedgerError> {
        let database = leader.now().await?;
        let now = self.agreed(database);
        if (self.rest.is_empty() || now.is_none()) && Instant::now() >= self.next {
            let (made, old) = self.look(leader, now.unwrap_or(database)).await?;
            if let Some(now) = now {
                self.begin(now, old).await?;
            }
            self.next = Instant::now() + if made { EVERY } else { AGAIN };
        }
        if now.is_none() {
            return Ok(());
        }
        let mut pace = Pace::new(self.interval, Instant::now());
        while pace.goes_on(0, Instant::now())
            && let Some(work) = self.rest.pop()
        {
            let began = Instant::now();
            let rows = match work {
                Work::Search(search) => self.search(leader, search).await?,
                Work::Drop(finished) => self.drop_day(leader, finished).await?,
                Work::Clean(cleaning) => self.clean(leader, &cleaning).await?,
                Work::Leftovers => self.clear(leader).await?,
                Work::Stats => self.clear_stats(leader).await?,
            };
            pace.spend(rows);
            pause(began.elapsed()).await;
        }
        Ok(())
    }

    /// The time that retention goes by. `None` while it stops: logged once.
    fn agreed(&mut self, database: OffsetDateTime) -> Option<OffsetDateTime> {
        let local = OffsetDateTime::now_utc();
        let now = earlier(database, local);
        if self.is_stopped != now.is_none() {
            self.is_stopped = now.is_none();
            let seconds = (local - database).as_seconds_f64();
            match self.is_stopped {
                true => tracing::warn!(
                    seconds,
                    "this machine's clock and the database's differ by more than a minute: retention stops until they agree"
                ),
                false => {
                    tracing::info!(seconds, "the clocks agree again: retention continues");
                    self.next = Instant::now();
                }
            }
        }
        now
    }

    /// Returns how many rows it may have looked at, as each kind of work does.
    async fn search(&mut self, leader: &mut Leader, search: Search) -> Result<u32, LedgerError> {
        match tolerate("searching a day for what waits", leader.day_search(search).await)? {
            Some(Searched::Further(search)) => self.rest.push(Work::Search(search)),
            Some(Searched::Waiting(day)) => self.rest.push(Work::Clean(Cleaning::of_day(day, self.before))),
            Some(Searched::Nothing(finished)) => self.rest.push(Work::Drop(finished)),
            None => self.next = Instant::now() + AGAIN,
        }
        Ok(Search::ROWS)
    }

    async fn drop_day(&mut self, leader: &mut Leader, finished: Finished) -> Result<u32, LedgerError> {
        if tolerate("dropping a day", leader.day_drop(&finished).await)?.is_some() {
            tracing::info!(day = %finished.day(), "a day is older than the retention: its partitions are dropped");
            self.metrics.day_dropped();
        } else {
            self.undropped.push(finished);
            self.next = Instant::now() + AGAIN;
        }
        Ok(0)
    }

    async fn clean(&mut self, leader: &mut Leader, cleaning: &Cleaning) -> Result<u32, LedgerError> {
        if let Some(Cleaned { rows, ended, rest }) = tolerate("cleaning", leader.clean(cleaning).await)? {
            self.metrics.rows_deleted(rows);
            self.metrics.ended(ended);
            self.rest.extend(rest.map(Work::Clean));
        }
        Ok(Cleaning::ROWS)
    }

    async fn clear(&mut self, leader: &mut Leader) -> Result<u32, LedgerError> {
        let cleared = tolerate("cleaning", leader.leftovers_clear(self.before).await)?;
        if cleared.as_ref().is_some_and(|cleared| !cleared.is_last) {
            self.rest.push(Work::Leftovers);
        }
        Ok(cleared.map(|cleared| cleared.looked).unwrap_or_default())
    }

    async fn clear_stats(&mut self, leader: &mut Leader) -> Result<u32, LedgerError> {
        let gone = tolerate("deleting old statistics", leader.stats_clear().await)?.unwrap_or_default();
        if gone > 0 {
            self.rest.push(Work::Stats);
        }
        Ok(u32::try_from(gone).unwrap_or(u32::MAX))
    }

    /// Makes partitions, and shows how the ledger is. Deletes nothing, so the clocks need not agree. Returns whether the
    /// partitions were made, and the days that are too old.
    async fn look(&mut self, leader: &mut Leader, now: OffsetDateTime) -> Result<(bool, Vec<Day>), LedgerError> {
        let made = tolerate("making partitions", leader.partitions_ensure(now.date()).await)?.is_some();
        self.metrics.partitions_ahead(leader.partitions_ahead(now.date()).await?);
        let old = leader.days_old(now, self.keep).await?;
        self.metrics.days_behind(old.len());
        if let Some(age) = tolerate("reading the age of transaction ids", leader.transaction_age().await)? {
            self.metrics.transaction_age(age);
        }
        Ok((made, old))
    }

    /// Notes what to search and drop, and deletes expired sessions.
    async fn begin(&mut self, now: OffsetDateTime, old: Vec<Day>) -> Result<(), LedgerError> {
        self.before = now - self.keep;
        // `rest` is a stack: the last entry is done first.
        self.rest.extend([Work::Leftovers, Work::Stats]);
        let undropped = std::mem::take(&mut self.undropped);
        let is_unsearched = |day: &Day| undropped.iter().all(|finished| finished.day() != *day);
        let unsearched: Vec<Day> = old.into_iter().rev().filter(is_unsearched).collect();
        self.rest.extend(unsearched.into_iter().map(|day| Work::Search(day.into())));
        self.rest.extend(undropped.into_iter().map(Work::Drop));
        if let Some(sessions @ 1..) = tolerate("deleting expired sessions", self.ledger.sessions_purge(now).await)? {
            tracing::info!(sessions, "expired sessions were deleted");
        }
        Ok(())
    }
}

/// The earlier of two clocks, unless they are too far apart.
fn earlier(database: OffsetDateTime, local: OffsetDateTime) -> Option<OffsetDateTime> {
    ((local - database).abs() <= APART).then(|| database.min(local))
}

/// Passes on that the database is away. Logs any other error, such as a lock that somebody else holds.
pub(crate) fn tolerate<T>(what: &str, result: Result<T, LedgerError>) -> Result<Option<T>, LedgerError> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.is_unavailable() => Err(error),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "{what} failed; trying again later");
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use time::{Duration, macros::datetime};

    use super::*;

    #[test]
    fn retention_goes_by_the_earlier_clock_and_stops_at_a_minute_of_difference_either_way() {
        let local = datetime!(2026-03-31 12:00 UTC);
        for (ahead, expected) in [
            (Duration::ZERO, Some(local)),
            (Duration::seconds(60), Some(local)),
            (Duration::seconds(-60), Some(local - Duration::MINUTE)),
            (Duration::milliseconds(60_001), None),
            (Duration::milliseconds(-60_001), None),
            (Duration::days(30), None),
            (Duration::days(-30), None),
        ] {
            assert_eq!(earlier(local + ahead, local), expected, "the database is {ahead} ahead");
        }
    }
}
