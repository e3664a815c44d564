//! Compares what waits by the ledger with what is on the queues.

use std::time::{Duration, Instant};

use broker::{Broker, Outgoing, Unconfirmed};
use domain::{DeliveryId, RetrySchedule};
use ledger::{Bite, Generation, Leader};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::{
    Metrics, Trouble,
    looks::{Looks, SlowLane, Stale, Suspects},
};

/// Rows of the ledger that a pass looks at, twice: some milliseconds.
const ROWS: u32 = 10_000;
/// What was made lately is looked at again and again, as a lost job is most likely there.
const LATELY: Duration = Duration::from_secs(60 * 60);

/// What a leader remembers from one pass to the next; a new one begins anew.
pub(crate) struct Reconciler<'a> {
    pub(super) broker: &'a Broker,
    pub(super) schedule: &'a RetrySchedule,
    pub(super) metrics: &'a Metrics,
    grace: Duration,
    looks: Looks,
    slow_lane: SlowLane,
    suspects: Suspects,
    /// How far the walk through what was made lately has come, and the one through everything.
    lately: Option<uuid::Uuid>,
    everything: Option<uuid::Uuid>,
    is_doubtful: bool,
}

/// What became of the broker's memory.
enum Memory {
    Kept,
    /// Nobody has looked after it before: there is nothing to compare it with.
    Unknown,
    /// It looks lost; another look will tell.
    Doubtful,
    Lost,
}

impl<'a> Reconciler<'a> {
    pub(crate) fn new(broker: &'a Broker, schedule: &'a RetrySchedule, grace: Duration, metrics: &'a Metrics) -> Self {
        let (looks, slow_lane, suspects) = (Looks::default(), SlowLane::new(Instant::now()), Suspects::default());
        let (lately, everything) = (None, None);
        Self { broker, schedule, metrics, grace, looks, slow_lane, suspects, lately, everything, is_doubtful: false }
    }

    /// Forgets what was seen of the queues: the broker was away, and so the dispatchers had nothing to do either.
    pub(crate) fn forget(&mut self) {
        self.looks = Looks::default();
        self.slow_lane = SlowLane::new(Instant::now());
        self.suspects.clear();
    }

    /// One pass; says what came of it.
    pub(crate) async fn pass(&mut self, leader: &mut Leader) -> Result<&'static str, Trouble> {
        let known = leader.generation().await?;
        match self.memory(known).await? {
            Memory::Kept => leader.generation_verify().await?,
            Memory::Doubtful => return Ok("doubtful"),
            Memory::Unknown => {
                self.adopt(leader, known).await?;
                return Ok("adopted");
            }
            Memory::Lost => {
                self.forget();
                return self.rebuild(leader, known).await;
            }
        }
        self.find_overdue(leader).await
    }

    async fn memory(&mut self, known: Generation) -> Result<Memory, Trouble> {
        let Some(id) = known.id else { return Ok(Memory::Unknown) };
        if known.rebuilding.is_some() {
            return Ok(Memory::Lost);
        }
        if self.broker.depth(&self.broker.names().generation(id)).await?.is_some() {
            self.is_doubtful = false;
            return Ok(Memory::Kept);
        }
        let was_doubtful = std::mem::replace(&mut self.is_doubtful, true);
        Ok(if was_doubtful { Memory::Lost } else { Memory::Doubtful })
    }

    async fn find_overdue(&mut self, leader: &mut Leader) -> Result<&'static str, Trouble> {
        let names = self.broker.names();
        let ready = self.broker.depth(&names.deliveries()).await?.unwrap_or(0);
        let (moment, now) = (Instant::now(), OffsetDateTime::now_utc());
        self.looks.look(ready, moment);
        self.slow_lane.look(self.broker.depth(&names.slow()).await?.unwrap_or(0), moment);
        match self.slow_lane.stale(moment) {
            Stale::OfEmptyLane(age) => leader.slow_forget(age).await?,
            Stale::WhileTaken(age) => leader.slow_forget_while_taken(age).await?,
            Stale::Unknown => {}
        }
        self.walk(leader, now).await?;
        let oldest = self.suspects.oldest_due().map(|due| Duration::try_from(now - due).unwrap_or_default());
        self.metrics.oldest_overdue(oldest.unwrap_or_default());
        let ripe = match self.looks.is_calm(moment, self.grace) {
            true => self.suspects.take_ripe(&self.looks, moment, self.grace),
            false => Vec::new(),
        };
        let lost = if ripe.is_empty() { Vec::new() } else { leader.overdue_check(&ripe, now, self.grace).await? };
        if lost.is_empty() {
            return Ok(if self.suspects.any_old(moment, self.grace) { "behind" } else { "done" });
        }
        let jobs: Vec<_> = lost.iter().map(|waiting| waiting.job).collect();
        let published = self.publish(&jobs.iter().map(|job| names.job(*job)).collect::<Vec<_>>()).await;
        let left = match &published {
            Ok(()) => &[],
            Err(error) => error.places.as_slice(),
        };
        let enqueued = jobs.iter().enumerate().filter(|(place, _)| left.binary_search(place).is_err());
        let jobs: Vec<_> = enqueued.map(|(_, job)| *job).collect();
        leader.requeued_remember(&jobs, now).await?;
        self.metrics.enqueued("overdue", jobs.len());
        published?;
        tracing::warn!(jobs = jobs.len(), "overdue deliveries had lost their jobs: they are enqueued again");
        Ok("acted")
    }

    /// Looks at two bites of the ledger for deliveries that are overdue.
    async fn walk(&mut self, leader: &mut Leader, now: OffsetDateTime) -> Result<(), Trouble> {
        let since = now - self.grace;
        let lately = (now - LATELY).unix_timestamp_nanos() / 1_000_000;
        let lately = DeliveryId::bound_at_millis(u64::try_from(lately).unwrap_or_default());
        let Bite { waiting, reached } = leader.overdue_find(self.lately.unwrap_or(lately), ROWS, since).await?;
        self.lately = reached;
        self.suspects.see(&waiting, Instant::now());
        let Bite { waiting, reached } = leader.overdue_find(self.everything.unwrap_or_default(), ROWS, since).await?;
        self.everything = reached;
        self.suspects.see(&waiting, Instant::now());
        Ok(())
    }

    /// Publishes over a connection that is made for it, so that the hot path's never waits, and closed afterwards.
    async fn publish(&self, messages: &[Outgoing]) -> Result<(), Unconfirmed> {
        let stop = CancellationToken::new();
        let _close = stop.clone().drop_guard();
        self.broker.publisher(stop).publish(messages).await
    }
}
