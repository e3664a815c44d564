//! The database's clock, read every second.

use std::{
    sync::atomic::AtomicU64,
    time::{Duration, Instant},
};

use broker::EssentialTasks;
use domain::error_chain;
use ledger::{ClockReading, Ledger, LedgerError};
use prometheus_client::{metrics::gauge::Gauge, registry::Registry};
use time::OffsetDateTime;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use crate::metrics::Register;

/// The interval of readings. After a failover, the clock may be another one.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// The clocks of two well-kept machines differ by less.
const MAX_NORMAL_OFFSET: Duration = Duration::from_secs(5);
/// With more, one of the clocks is wrong. Receivers tolerate a timestamp that is five minutes off (specification 5.2), and
/// an event may be a day ahead of the database's clock.
const MAX_OFFSET: time::Duration = time::Duration::minutes(4);

/// The database's time, known without a query each time. Clones share the readings.
#[derive(Clone, Debug)]
pub struct DatabaseWatch {
    last: watch::Receiver<Option<ClockReading>>,
}

impl DatabaseWatch {
    /// Reads the clock immediately and then every second, in the background, until `stop`. Shows in `registry` how far
    /// the local clock is off. Warns once when that is more than five seconds.
    pub fn start(
        ledger: &Ledger,
        registry: &mut Registry,
        essential: &EssentialTasks,
        stop: CancellationToken,
    ) -> Self {
        let offset = registry.shown(
            "webhooks_database_clock_offset_seconds",
            "This machine's time less the database's",
            Gauge::default(),
        );
        let (sender, last) = watch::channel(None);
        let clock = Clock { ledger: ledger.clone(), offset, sender, is_off: false };
        essential.spawn("database clock", async move { stop.run_until_cancelled(clock.read_for_ever()).await });
        Self { last }
    }

    /// The database's time now: a reading, carried forward by the monotonic clock. A step of this machine's time does
    /// not change it, nor does an unavailable database. Before the first reading ([`DatabaseWatch::known`]), this
    /// machine's time.
    pub fn now(&self) -> OffsetDateTime {
        match &*self.last.borrow() {
            Some(reading) => carried(reading, Instant::now()),
            None => OffsetDateTime::now_utc(),
        }
    }

    /// The database's time now, unless this machine's clock and the database's differ by more than four minutes: nobody
    /// knows which of the two is wrong. `None` before the first reading, too.
    pub fn agreed_now(&self) -> Option<OffsetDateTime> {
        self.last.borrow().as_ref().filter(|reading| !is_off(reading)).map(|reading| carried(reading, Instant::now()))
    }

    /// Returns whether this machine's clock and the database's differ by more than four minutes. They do not before the first
    /// reading.
    pub fn is_off(&self) -> bool {
        self.last.borrow().as_ref().is_some_and(is_off)
    }

    /// Waits until [`DatabaseWatch::is_off`] returns `off`, at a reading.
    pub async fn until_off(&self, off: bool) {
        let _ = self.last.clone().wait_for(|last| last.as_ref().is_some_and(is_off) == off).await;
    }

    /// Waits for the first reading.
    pub async fn known(&self) {
        // The readings end only with the process.
        let _ = self.last.clone().wait_for(Option::is_some).await;
    }
}

struct Clock {
    ledger: Ledger,
    offset: Gauge<f64, AtomicU64>,
    sender: watch::Sender<Option<ClockReading>>,
    is_off: bool,
}

impl Clock {
    async fn read_for_ever(mut self) {
        let mut times = interval(READ_INTERVAL);
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut logged = None;
        loop {
            times.tick().await;
            let read = self.ledger.clock().await;
            log_change(&mut logged, &read);
            match read {
                Ok(reading) => self.take(reading),
                Err(error) => tracing::debug!(error = error_chain(&error), "no reading of its clock"),
            }
        }
    }

    fn take(&mut self, reading: ClockReading) {
        let before = *self.sender.borrow();
        let best = before.filter(|before| !improves(&reading, before)).unwrap_or(reading);
        let offset = reading.local - carried(&best, reading.at);
        self.offset.set(offset.as_seconds_f64());
        let is_off = offset.unsigned_abs() > MAX_NORMAL_OFFSET;
        if is_off != self.is_off {
            self.is_off = is_off;
            let seconds = offset.as_seconds_f64();
            match is_off {
                true => tracing::warn!(seconds, "this machine's clock is not the database's"),
                false => tracing::info!(seconds, "this machine's clock is the database's again"),
            }
        }
        self.sender.send_replace(Some(best));
    }
}

/// Logs once when the database is unavailable, accepts no writes, is behind the wrong pooler, or is well again. `logged`
/// is the fault that was logged last.
fn log_change(logged: &mut Option<&'static str>, read: &Result<ClockReading, LedgerError>) {
    let error = read.as_ref().err();
    let fault = error.map(|error| match error {
        LedgerError::ReadOnly => "the database accepts no writes: waiting until it does",
        LedgerError::SharedSession => {
            "the database's sessions are shared by a pooler: waiting until it lends its connections by session"
        }
        _ => "the database does not answer: waiting until it does",
    });
    let before = std::mem::replace(logged, fault);
    match fault {
        _ if fault == before => {}
        Some(fault) => tracing::warn!(error = error.map(|error| error_chain(error)), "{fault}"),
        None => tracing::info!("the database is well again"),
    }
}

fn is_off(reading: &ClockReading) -> bool {
    (OffsetDateTime::now_utc() - carried(reading, Instant::now())).abs() > MAX_OFFSET
}

fn carried(reading: &ClockReading, now: Instant) -> OffsetDateTime {
    reading.database + now.saturating_duration_since(reading.at)
}

/// Returns true if a reading is more exact than the one before, or contradicts it: a clock was set, or drifts.
fn improves(reading: &ClockReading, before: &ClockReading) -> bool {
    let difference = reading.database - carried(before, reading.at);
    reading.round_trip <= before.round_trip || difference.unsigned_abs() > reading.round_trip / 2
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    /// Two milliseconds' round trip at noon.
    fn at_noon(at: Instant) -> ClockReading {
        ClockReading {
            database: datetime!(2026-03-01 12:00 UTC),
            local: datetime!(1999-01-01 00:00 UTC),
            at,
            round_trip: Duration::from_millis(2),
        }
    }

    #[test]
    fn a_reading_is_carried_forward_by_the_monotonic_clock_alone() {
        let at = Instant::now();
        let reading = at_noon(at);
        assert_eq!(carried(&reading, at + Duration::from_secs(7)), datetime!(2026-03-01 12:00:07 UTC));
        assert_eq!(carried(&reading, at), reading.database);
    }

    #[test]
    fn a_slow_reading_counts_only_if_it_contradicts_the_time_that_is_carried() {
        let at = Instant::now();
        let before = at_noon(at);
        let after = |seconds: i64, round_trip: u64| ClockReading {
            database: before.database + time::Duration::seconds(seconds),
            at: at + Duration::from_secs(10),
            round_trip: Duration::from_millis(round_trip),
            ..before
        };
        assert!(!improves(&after(11, 2_000), &before), "it may have been ten seconds");
        assert!(!improves(&after(9, 2_000), &before));
        assert!(improves(&after(11, 1_999), &before));
        assert!(improves(&after(9, 1_999), &before));
        assert!(improves(&after(610, 2_000), &before), "a standby with another clock was promoted");
        assert!(improves(&after(10, 2), &before), "it is as exact, and younger");
    }
}
