//! What the ledger keeps: partitions ahead of time, and nothing that is too old.

use std::time::{Duration, Instant};

use ledger::{Cleaned, Cleaning, Leader, Ledger, LedgerError, Search, Searched};
use time::OffsetDateTime;

use super::Metrics;

const EVERY: Duration = Duration::from_secs(60 * 60);
/// When something could not be done just now.
const AGAIN: Duration = Duration::from_secs(60);
/// How long one step may work, and the pause between its statements.
const STEP: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);
/// Times that leftovers are cleaned in one step.
const LEFTOVERS: usize = 20;

/// What remains of an hour's work, so that one step never takes long.
pub(crate) struct Retention<'a> {
    ledger: &'a Ledger,
    keep: Duration,
    metrics: &'a Metrics,
    next: Instant,
    rest: Vec<Work>,
    /// What is too old by the database's clock, at the beginning of the hour's work.
    before: OffsetDateTime,
}

/// One partition's or day's share of it.
enum Work {
    Search(Search),
    Clean(Cleaning),
}

impl<'a> Retention<'a> {
    pub(crate) fn new(ledger: &'a Ledger, keep: Duration, metrics: &'a Metrics) -> Self {
        let before = OffsetDateTime::UNIX_EPOCH;
        Self { ledger, keep, metrics, next: Instant::now(), rest: Vec::new(), before }
    }

    /// Does a bounded piece of work, if there is any.
    ///
    /// # Errors
    /// When the leader's connection is lost. What else fails is logged and tried again.
    pub(crate) async fn step(&mut self, leader: &mut Leader) -> Result<(), LedgerError> {
        if self.rest.is_empty() && Instant::now() >= self.next {
            self.next = Instant::now() + if self.begin(leader).await? { EVERY } else { AGAIN };
        }
        let began = Instant::now();
        while began.elapsed() < STEP
            && let Some(work) = self.rest.pop()
        {
            match work {
                Work::Search(search) => self.search(leader, search).await?,
                Work::Clean(cleaning) => self.clean(leader, &cleaning).await?,
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    async fn search(&mut self, leader: &mut Leader, search: Search) -> Result<(), LedgerError> {
        match tolerate("searching a day for what waits", leader.day_search(search).await)? {
            Some(Searched::Further(search)) => self.rest.push(Work::Search(search)),
            Some(Searched::Waiting(day)) => self.rest.push(Work::Clean(Cleaning::of_day(day, self.before))),
            Some(Searched::Nothing(finished)) => {
                if tolerate("dropping a day", leader.day_drop(&finished).await)?.is_some() {
                    tracing::info!(day = %finished.day(), "a day is older than the retention: its partitions are dropped");
                    self.metrics.day_dropped();
                } else {
                    self.next = Instant::now() + AGAIN;
                }
            }
            None => self.next = Instant::now() + AGAIN,
        }
        Ok(())
    }

    async fn clean(&mut self, leader: &mut Leader, cleaning: &Cleaning) -> Result<(), LedgerError> {
        if let Some(Cleaned { rows, rest }) = tolerate("cleaning", leader.clean(cleaning).await)? {
            self.metrics.rows_deleted(rows);
            self.rest.extend(rest.map(Work::Clean));
        }
        Ok(())
    }

    /// Makes partitions, and notes which days have to go and which ones have to be cleaned. Says whether all of it
    /// succeeded.
    async fn begin(&mut self, leader: &mut Leader) -> Result<bool, LedgerError> {
        let now = leader.now().await?;
        self.before = now - self.keep;
        let made = tolerate("making partitions", leader.partitions_ensure(now.date()).await)?.is_some();
        let old = leader.days_old(now, self.keep).await?;
        // The oldest one last, as the last is taken first.
        self.rest.extend(old.into_iter().rev().map(|day| Work::Search(day.into())));
        let odd = tolerate("cleaning odd days", leader.odd_days_clean(self.before).await)?;
        let is_done = made && odd.is_some();
        self.rest.extend(odd.into_iter().flatten().map(Work::Clean));
        for _ in 0..LEFTOVERS {
            if tolerate("cleaning", leader.leftovers_clean(self.before).await)?.unwrap_or_default() == 0 {
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
