//! Retention: makes partitions ahead of time, and deletes what is too old.

use std::time::{Duration, Instant};

use domain::RetrySchedule;
use ledger::{Leader, LedgerError, Part, Removal};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    pace::{Pace, pause},
    upkeep::Upkeep,
};

const EVERY: Duration = Duration::from_secs(60 * 60);
/// A day is kept for this much longer than the schedule is long: a job may wait for others, or for a dispatcher.
const RESERVE: Duration = Duration::from_secs(24 * 60 * 60);
/// The pause after something could not be done.
const AGAIN: Duration = Duration::from_secs(60);
/// Retention stops while the database's clock and this machine's differ by more: one of them is wrong, and deleted history
/// does not come back.
const APART: time::Duration = time::Duration::MINUTE;

/// What remains of an hour's work. It is done in steps, none of which takes long.
pub(crate) struct Retention<'a> {
    upkeep: &'a Upkeep,
    /// When the hour's work begins, the partitions are looked at, and what failed is tried again.
    next: Instant,
    next_look: Instant,
    next_try: Instant,
    rest: Vec<Work>,
    /// Work of which a step failed, most often as somebody read the day. The first is tried again first.
    failed: Vec<Work>,
    /// The end of the history that is deleted, by the time at the beginning of the hour's work.
    before: OffsetDateTime,
    is_stopped: bool,
}

/// A piece of the work: on webhooks with held jobs, on a day, or on the tables beside the log of deliveries.
enum Work {
    Expiring(Uuid),
    Removal(Removal),
    Leftovers,
    Stats,
}

impl<'a> Retention<'a> {
    pub(crate) fn new(upkeep: &'a Upkeep) -> Self {
        Self {
            upkeep,
            next: Instant::now(),
            next_look: Instant::now(),
            next_try: Instant::now(),
            rest: Vec::new(),
            failed: Vec::new(),
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
        if Instant::now() >= self.next_look {
            let made = self.look(leader, now.unwrap_or(database)).await?;
            self.next_look = Instant::now() + if made { EVERY } else { AGAIN };
        }
        let Some(now) = now else { return Ok(()) };
        if self.rest.is_empty() && Instant::now() >= self.next {
            self.begin(leader, now).await?;
            self.next = Instant::now() + EVERY;
        } else if Instant::now() >= self.next_try {
            self.rest.extend(self.failed.drain(..).rev());
        }
        let mut pace = Pace::new(self.upkeep.interval, Instant::now());
        while pace.goes_on(0, Instant::now())
            && let Some(work) = self.rest.pop()
        {
            let began = Instant::now();
            let rows = match work {
                Work::Expiring(after) => self.tell_expiring(leader, after).await?,
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
                    (self.next, self.next_look) = (Instant::now(), Instant::now());
                }
            }
        }
        now
    }

    /// Returns how many rows it has looked at, as each kind of work does.
    async fn tell_expiring(&mut self, leader: &mut Leader, after: Uuid) -> Result<u32, LedgerError> {
        let age = self.upkeep.kept.bodies + margin(&self.upkeep.schedule);
        let told = leader.expiring_tell(after, age).await;
        let Some(told) = tolerate("looking for deliveries that are about to be cancelled", told)? else {
            return Ok(self.try_again(Work::Expiring(after)));
        };
        self.rest.extend(told.next.map(Work::Expiring));
        Ok(u32::try_from(told.looked).unwrap_or(u32::MAX))
    }

    /// Notes that a step failed. Returns 0: it has looked at no row.
    fn try_again(&mut self, work: Work) -> u32 {
        self.failed.push(work);
        self.next_try = Instant::now() + AGAIN;
        0
    }

    async fn remove(&mut self, leader: &mut Leader, removal: Removal) -> Result<u32, LedgerError> {
        let (day, part) = (removal.day(), removal.part());
        let Some(done) = tolerate("removing a day", leader.removal_step(&removal).await)? else {
            return Ok(self.try_again(Work::Removal(Removal::of(day, part))));
        };
        let metrics = &self.upkeep.metrics;
        metrics.ended.inc_by(done.cancelled.into());
        if done.cancelled > 0 {
            let deliveries = done.cancelled;
            tracing::warn!(%day, deliveries, "deliveries that still waited are cancelled: their day is older than the retention");
        }
        if done.is_dropped {
            let part_name = if part == Part::Log { "log" } else { "bodies" };
            tracing::info!(%day, part = part_name, "a day is older than the retention: it is dropped");
        }
        if done.is_dropped && part == Part::Log {
            metrics.days.inc();
            metrics.days_behind.dec();
        }
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
    /// partitions were made.
    async fn look(&mut self, leader: &mut Leader, now: OffsetDateTime) -> Result<bool, LedgerError> {
        let made = tolerate("making partitions", leader.partitions_ensure(now.date()).await)?.is_some();
        let metrics = &self.upkeep.metrics;
        metrics.partitions_ahead.set(leader.partitions_ahead(now.date()).await?.into());
        let behind = leader.days_old(now, self.upkeep.kept.log + margin(&self.upkeep.schedule)).await?.len();
        metrics.days_behind.set(i64::try_from(behind).unwrap_or(i64::MAX));
        if let Some(age) = tolerate("reading the age of transaction ids", leader.transaction_age().await)? {
            metrics.transaction_age.set(age.into());
        }
        Ok(made)
    }

    /// Notes what to remove, and deletes expired sessions.
    async fn begin(&mut self, leader: &mut Leader, now: OffsetDateTime) -> Result<(), LedgerError> {
        let margin = margin(&self.upkeep.schedule);
        self.before = now - self.upkeep.kept.log - margin;
        self.failed.clear();
        let old = leader.days_old(now, self.upkeep.kept.log + margin).await?;
        let mut bodies = leader.days_old(now, self.upkeep.kept.bodies + margin).await?;
        bodies.retain(|day| !old.contains(day));
        let bodies = leader.days_with_bodies(bodies).await?;
        // `rest` is a stack: the last entry is done first.
        self.rest.extend([Work::Leftovers, Work::Stats]);
        let removal = |part| move |day| Work::Removal(Removal::of(day, part));
        self.rest.extend(bodies.into_iter().rev().map(removal(Part::Bodies)));
        self.rest.extend(old.into_iter().rev().map(removal(Part::Log)));
        self.rest.push(Work::Expiring(Uuid::nil()));
        if let Some(sessions @ 1..) =
            tolerate("deleting expired sessions", self.upkeep.ledger.sessions_purge(now).await)?
        {
            tracing::info!(sessions, "expired sessions were deleted");
        }
        Ok(())
    }
}

/// The time by which days are kept longer than events are accepted and deliveries resent: for their whole schedule.
fn margin(schedule: &RetrySchedule) -> Duration {
    schedule.steps().last().copied().unwrap_or_default() + RESERVE
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
