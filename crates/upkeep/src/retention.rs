//! Retention: makes partitions ahead of time, and deletes what is too old.

use std::time::{Duration, Instant};

use domain::{RetrySchedule, error_chain};
use ledger::{DayPart, Leader, LedgerError, Removal};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    throttle::{Throttle, pause},
    upkeep::Upkeep,
};

const CHECK_INTERVAL: Duration = Duration::from_secs(60 * 60);
/// A day is kept for this much longer than the schedule is long: a job may wait for others, or for a dispatcher.
const KEEP_MARGIN: Duration = Duration::from_secs(24 * 60 * 60);
/// The pause after something could not be done.
const RETRY_PAUSE: Duration = Duration::from_secs(60);
/// Retention stops while the database's clock and this machine's differ by more: one of them is wrong, and deleted history
/// does not come back.
const MAX_CLOCK_DIFFERENCE: time::Duration = time::Duration::MINUTE;

/// What remains of an hour's work. It is done in steps, none of which takes long.
pub(crate) struct Retention<'a> {
    upkeep: &'a Upkeep,
    /// When the hour's work begins, and when the partitions are looked at.
    next: Instant,
    next_look: Instant,
    agenda: Agenda,
    /// The end of the history that is deleted, by the time at the beginning of the hour's work.
    before: OffsetDateTime,
    is_stopped: bool,
}

/// A piece of the work: on webhooks with held jobs, on a day, or on the tables beside the log of deliveries.
#[derive(Clone)]
enum Work {
    Expiring(Uuid),
    Removal(Removal),
    Leftovers,
    Stats,
}

impl Work {
    /// Its name in the log.
    const fn name(&self) -> &'static str {
        match self {
            Self::Expiring(_) => "looking for deliveries that are about to be cancelled",
            Self::Removal(_) => "removing a day",
            Self::Leftovers => "cleaning",
            Self::Stats => "deleting old statistics",
        }
    }

    /// The work to begin with once a step of this has failed. A removal begins anew: something may wait by then.
    fn again(self) -> Self {
        match self {
            Self::Removal(removal) => Self::Removal(Removal::of(removal.day(), removal.part())),
            other => other,
        }
    }
}

/// The work that is left.
struct Agenda {
    /// The last piece is done first.
    rest: Vec<Work>,
    /// Work of which a step failed, most often as somebody read the day.
    failed: Vec<Work>,
    /// When the failed work comes again, the first of it first.
    next_try: Instant,
}

impl Agenda {
    fn new(now: Instant) -> Self {
        Self { rest: Vec::new(), failed: Vec::new(), next_try: now }
    }

    /// Returns the piece to do now.
    fn next(&mut self, now: Instant) -> Option<Work> {
        if now >= self.next_try {
            self.rest.extend(self.failed.drain(..).rev());
        }
        self.rest.pop()
    }

    /// Notes that a step of this work failed: it comes again after a pause, and other work continues.
    fn fail(&mut self, work: Work, now: Instant) {
        self.failed.push(work.again());
        self.next_try = now + RETRY_PAUSE;
    }
}

impl<'a> Retention<'a> {
    pub(crate) fn new(upkeep: &'a Upkeep) -> Self {
        Self {
            upkeep,
            next: Instant::now(),
            next_look: Instant::now(),
            agenda: Agenda::new(Instant::now()),
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
            self.next_look = Instant::now() + if made { CHECK_INTERVAL } else { RETRY_PAUSE };
        }
        let Some(now) = now else { return Ok(()) };
        if self.agenda.rest.is_empty() && Instant::now() >= self.next {
            self.begin(leader, now).await?;
            self.next = Instant::now() + CHECK_INTERVAL;
        }
        let mut throttle = Throttle::new(self.upkeep.interval, Instant::now());
        while throttle.goes_on(0, Instant::now())
            && let Some(work) = self.agenda.next(Instant::now())
        {
            let began = Instant::now();
            let looked_at = self.take_step(leader, work.clone()).await;
            match tolerate(work.name(), looked_at)? {
                Some(rows) => throttle.spend(rows),
                None => self.agenda.fail(work, Instant::now()),
            }
            pause(began.elapsed()).await;
        }
        Ok(())
    }

    /// Takes a step of a piece of work, and notes its next step. Returns how many rows it has looked at.
    async fn take_step(&mut self, leader: &mut Leader, work: Work) -> Result<u32, LedgerError> {
        match work {
            Work::Expiring(after) => self.notify_expiring(leader, after).await,
            Work::Removal(removal) => self.remove(leader, removal).await,
            Work::Leftovers => {
                let cleared = leader.leftovers_clear(self.before).await?;
                self.agenda.rest.extend((!cleared.is_last).then_some(Work::Leftovers));
                Ok(cleared.looked)
            }
            Work::Stats => {
                let gone = leader.stats_clear().await?;
                self.agenda.rest.extend((gone > 0).then_some(Work::Stats));
                Ok(u32::try_from(gone).unwrap_or(u32::MAX))
            }
        }
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

    async fn notify_expiring(&mut self, leader: &mut Leader, after: Uuid) -> Result<u32, LedgerError> {
        let age = self.upkeep.kept.bodies + margin(&self.upkeep.schedule);
        let notified = leader.expiring_notify(after, age).await?;
        self.agenda.rest.extend(notified.next.map(Work::Expiring));
        Ok(u32::try_from(notified.looked).unwrap_or(u32::MAX))
    }

    async fn remove(&mut self, leader: &mut Leader, removal: Removal) -> Result<u32, LedgerError> {
        let (day, part) = (removal.day(), removal.part());
        let done = leader.removal_step(&removal).await?;
        let metrics = &self.upkeep.metrics;
        metrics.ended.inc_by(done.cancelled.into());
        if done.cancelled > 0 {
            let deliveries = done.cancelled;
            tracing::warn!(%day, deliveries, "deliveries that still waited are cancelled: their day is older than the retention");
        }
        if done.is_dropped {
            let part_name = if part == DayPart::Log { "log" } else { "bodies" };
            tracing::info!(%day, part = part_name, "a day is older than the retention: it is dropped");
        }
        if done.is_dropped && part == DayPart::Log {
            metrics.days.inc();
            metrics.days_behind.dec();
        }
        self.agenda.rest.extend(done.rest.map(Work::Removal));
        Ok(done.looked)
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
        self.agenda = Agenda::new(Instant::now());
        let old = leader.days_old(now, self.upkeep.kept.log + margin).await?;
        let mut bodies = leader.days_old(now, self.upkeep.kept.bodies + margin).await?;
        bodies.retain(|day| !old.contains(day));
        let bodies = leader.days_with_bodies(bodies).await?;
        let (rest, removal) = (&mut self.agenda.rest, |part| move |day| Work::Removal(Removal::of(day, part)));
        rest.extend([Work::Leftovers, Work::Stats]);
        rest.extend(bodies.into_iter().rev().map(removal(DayPart::Bodies)));
        rest.extend(old.into_iter().rev().map(removal(DayPart::Log)));
        rest.push(Work::Expiring(Uuid::nil()));
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
    schedule.steps().last().copied().unwrap_or_default() + KEEP_MARGIN
}

/// The earlier of two clocks, unless they are too far apart.
pub(crate) fn earlier(database: OffsetDateTime, local: OffsetDateTime) -> Option<OffsetDateTime> {
    ((local - database).abs() <= MAX_CLOCK_DIFFERENCE).then(|| database.min(local))
}

/// Passes on that the database is away. Logs any other error, such as a lock that somebody else holds.
pub(crate) fn tolerate<T>(what: &str, result: Result<T, LedgerError>) -> Result<Option<T>, LedgerError> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.is_unavailable() => Err(error),
        Err(error) => {
            tracing::warn!(error = error_chain(&error), "{what} failed; trying again later");
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use time::{Duration, macros::datetime};

    use super::*;

    #[test]
    fn work_that_failed_comes_again_once_a_minute_later_in_its_order_and_the_rest_goes_on_meanwhile() {
        let (now, nearly) = (Instant::now(), RETRY_PAUSE - std::time::Duration::from_millis(1));
        let mut agenda = Agenda::new(now);
        agenda.rest = vec![Work::Stats, Work::Expiring(Uuid::max()), Work::Expiring(Uuid::nil())];
        for _ in 0..2 {
            let work = agenda.next(now).unwrap();
            agenda.fail(work, now);
        }
        assert!(matches!(agenda.next(now), Some(Work::Stats)));
        assert!(agenda.next(now + nearly).is_none());
        for expected in [Uuid::nil(), Uuid::max()] {
            let work = agenda.next(now + RETRY_PAUSE);
            assert!(matches!(work, Some(Work::Expiring(after)) if after == expected), "{expected}");
        }
        assert!(agenda.next(now + 2 * RETRY_PAUSE).is_none());
    }

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
