//! Retention: makes partitions ahead of time, and deletes what is too old.

use std::time::{Duration, Instant};

use ledger::{Day, Leader, LedgerError, Part, Removal};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    pace::{Pace, pause},
    upkeep::Upkeep,
};

const EVERY: Duration = Duration::from_secs(60 * 60);
/// A day in which something waits is copied once in this time, at most.
const AT_MOST_EACH: Duration = Duration::from_secs(24 * 60 * 60);
/// The pause after something could not be done.
const AGAIN: Duration = Duration::from_secs(60);
/// Retention stops while the database's clock and this machine's differ by more: one of them is wrong, and deleted history
/// does not come back.
const APART: time::Duration = time::Duration::MINUTE;

/// What remains of an hour's work. It is done in steps, none of which takes long.
pub(crate) struct Retention<'a> {
    upkeep: &'a Upkeep,
    next: Instant,
    looked_at: Instant,
    rest: Vec<Work>,
    /// Removals whose last step failed, most often as somebody read the day.
    failed: Vec<Removal>,
    /// Removals of the last [`AT_MOST_EACH`].
    replaced: Vec<(Day, Part, Instant)>,
    /// The end of the history that is deleted: the time at the beginning of the hour's work, less `kept.log`.
    before: OffsetDateTime,
    is_stopped: bool,
}

/// A piece of the work: on held jobs, on a day, or on the tables beside the log of deliveries.
enum Work {
    Held((Uuid, Uuid)),
    Removal(Removal),
    Leftovers,
    Stats,
}

impl<'a> Retention<'a> {
    pub(crate) fn new(upkeep: &'a Upkeep) -> Self {
        Self {
            upkeep,
            next: Instant::now(),
            looked_at: Instant::now(),
            rest: Vec::new(),
            failed: Vec::new(),
            replaced: Vec::new(),
            before: OffsetDateTime::UNIX_EPOCH,
            is_stopped: false,
        }
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
                self.begin(leader, now, old).await?;
            }
            self.next = Instant::now() + if made { EVERY } else { AGAIN };
        } else if self.looked_at.elapsed() >= EVERY {
            // The removal of many days may take longer than the partitions ahead last.
            self.look(leader, now.unwrap_or(database)).await?;
        }
        if now.is_none() {
            return Ok(());
        }
        let mut pace = Pace::new(self.upkeep.interval, Instant::now());
        while pace.goes_on(0, Instant::now())
            && let Some(work) = self.rest.pop()
        {
            let began = Instant::now();
            let rows = match work {
                Work::Held(after) => self.end_held(leader, after).await?,
                Work::Removal(removal) => self.remove(leader, removal).await?,
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

    /// Returns how many rows it has looked at, as each kind of work does.
    async fn end_held(&mut self, leader: &mut Leader, after: (Uuid, Uuid)) -> Result<u32, LedgerError> {
        let ended = leader.held_end(after, self.before, self.upkeep.held).await;
        let Some(ended) = tolerate("looking for deliveries that were held for too long", ended)? else { return Ok(0) };
        self.upkeep.metrics.ended.inc_by(ended.ended.into());
        self.rest.extend(ended.next.map(Work::Held));
        Ok(ended.looked)
    }

    async fn remove(&mut self, leader: &mut Leader, removal: Removal) -> Result<u32, LedgerError> {
        let Some(done) = tolerate("removing a day", leader.removal_step(&removal).await)? else {
            self.failed.push(removal);
            self.next = Instant::now() + AGAIN;
            return Ok(0);
        };
        let is_log = removal.part() == Part::Log;
        if done.is_dropped {
            let part = if is_log { "log" } else { "bodies" };
            tracing::info!(day = %removal.day(), part, "a day is older than the retention: its partitions are dropped");
        }
        if done.is_dropped {
            self.replaced.push((removal.day(), removal.part(), Instant::now()));
        }
        if done.is_dropped && is_log {
            self.upkeep.metrics.days.inc();
        }
        if done.rest.is_none() && is_log {
            self.upkeep.metrics.days_behind.dec();
        }
        self.upkeep.metrics.copied.inc_by(done.copied.into());
        self.rest.extend(done.rest.map(Work::Removal));
        Ok(done.looked)
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
        let metrics = &self.upkeep.metrics;
        metrics.partitions_ahead.set(leader.partitions_ahead(now.date()).await?.into());
        let old = leader.days_old(now, self.upkeep.kept.log).await?;
        self.replaced.retain(|(_, _, at)| at.elapsed() < AT_MOST_EACH);
        let behind = old.iter().filter(|day| !self.is_replaced(**day, Part::Log)).count();
        metrics.days_behind.set(i64::try_from(behind).unwrap_or(i64::MAX));
        if let Some(age) = tolerate("reading the age of transaction ids", leader.transaction_age().await)? {
            metrics.transaction_age.set(age.into());
        }
        self.looked_at = Instant::now();
        Ok((made, old))
    }

    /// Returns true if this leader has copied a day's waiting deliveries in the last [`AT_MOST_EACH`].
    fn is_replaced(&self, day: Day, part: Part) -> bool {
        self.replaced.iter().any(|(other, of, _)| *other == day && *of == part)
    }

    /// Notes what to remove, and deletes expired sessions.
    async fn begin(&mut self, leader: &mut Leader, now: OffsetDateTime, old: Vec<Day>) -> Result<(), LedgerError> {
        self.before = now - self.upkeep.kept.log;
        let bodiless = leader.days_old(now, self.upkeep.kept.bodies).await?;
        let failed = std::mem::take(&mut self.failed);
        let under_way: Vec<_> = failed.iter().map(Removal::day).collect();
        tolerate("cleaning up after another leader", leader.remains_clear(&under_way).await)?;
        let is_due = |(day, part): &(Day, Part)| !under_way.contains(day) && !self.is_replaced(*day, *part);
        let removals = bodiless.into_iter().rev().map(|day| {
            let part = if old.contains(&day) { Part::Log } else { Part::Bodies };
            (day, part)
        });
        let removals = removals.filter(is_due).map(|(day, part)| Work::Removal(Removal::of(day, part)));
        let removals: Vec<_> = removals.collect();
        // `rest` is a stack: the last entry is done first.
        self.rest.extend([Work::Leftovers, Work::Stats]);
        self.rest.extend(removals);
        self.rest.extend(failed.into_iter().map(Work::Removal));
        self.rest.push(Work::Held((Uuid::nil(), Uuid::nil())));
        if let Some(sessions @ 1..) =
            tolerate("deleting expired sessions", self.upkeep.ledger.sessions_purge(now).await)?
        {
            tracing::info!(sessions, "expired sessions were deleted");
        }
        Ok(())
    }
}

/// The earlier of two clocks, unless they are too far apart.
pub(crate) fn earlier(database: OffsetDateTime, local: OffsetDateTime) -> Option<OffsetDateTime> {
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
