//! The walk through the ledger, and the jobs that it finds lost: they are enqueued again as it goes.

use std::time::{Duration, Instant};

use broker::{Outgoing, Publisher};
use domain::{DeliveryId, Job};
use ledger::{Leader, Waiting};
use time::OffsetDateTime;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use super::{
    Trouble,
    pace::{Pace, pause},
    reconciler::Reconciler,
    walk::Walk,
};

/// Rows of the ledger in a chunk: some tens of milliseconds.
const ROWS: u32 = 10_000;
/// What was made lately has a walk of its own, and is looked at more often, as a lost job is most likely there.
const LATELY: Duration = Duration::from_secs(60 * 60);
/// Jobs that are published, and remembered, at a time.
const JOBS: usize = 1_000;

/// Which walk.
#[derive(Clone, Copy)]
enum Scope {
    Lately,
    Older,
}

/// A pass: what it may still do, where one walk ends and the other begins, and its connection to publish over, so that the
/// hot path's never waits. It is made for the first lost job, and closed with the pass.
struct Pass {
    pace: Pace,
    border: Uuid,
    publisher: Option<(Publisher, DropGuard)>,
}

impl Reconciler<'_> {
    /// Walks on, first through what was made lately, then through everything older. Returns how many jobs were lost.
    pub(super) async fn walk(&mut self, leader: &mut Leader) -> Result<usize, Trouble> {
        let border = (OffsetDateTime::now_utc() - LATELY).unix_timestamp_nanos() / 1_000_000;
        let border = DeliveryId::bound_at_millis(u64::try_from(border).unwrap_or_default());
        let mut pass = Pass { pace: Pace::new(self.interval, Instant::now()), border, publisher: None };
        let lately = self.walk_on(leader, Scope::Lately, &mut pass).await?;
        let older = self.walk_on(leader, Scope::Older, &mut pass).await?;
        Ok(lately + older)
    }

    /// Walks on, chunk after chunk, until the end of the round or of the pass. One that finds lost jobs goes on for as long
    /// as it may, whatever the pace: so a queue's worth of them is back soon.
    async fn walk_on(&mut self, leader: &mut Leader, scope: Scope, pass: &mut Pass) -> Result<usize, Trouble> {
        let (first, last, reserve) = match scope {
            Scope::Lately => (pass.border, Uuid::max(), pass.pace.half()),
            Scope::Older => (Uuid::nil(), pass.border, 0),
        };
        let mut jobs = 0;
        loop {
            let (walk, began) = (self.walk_of(scope), Instant::now());
            let (cursor, lost) = (walk.cursor_or(first), walk.lost());
            let chunk = leader.overdue_find(cursor, ROWS, OffsetDateTime::now_utc() - self.grace, lost).await?;
            let took = began.elapsed();
            pass.pace.spend(ROWS);
            self.requeue(leader, &chunk.lost, pass).await?;
            jobs += chunk.lost.len();
            let goes_on = self.walk_of(scope).advance(&chunk, last);
            let has_share = pass.pace.goes_on(reserve, Instant::now());
            let has_found = !chunk.lost.is_empty() && pass.pace.has_time(Instant::now());
            if !goes_on || !(has_share || has_found) {
                return Ok(jobs);
            }
            pause(took).await;
        }
    }

    const fn walk_of(&mut self, scope: Scope) -> &mut Walk {
        match scope {
            Scope::Lately => &mut self.lately,
            Scope::Older => &mut self.older,
        }
    }

    /// Enqueues lost jobs again, and remembers those that the broker has confirmed.
    async fn requeue(&self, leader: &mut Leader, lost: &[Waiting], pass: &mut Pass) -> Result<(), Trouble> {
        if lost.is_empty() {
            return Ok(());
        }
        let (publisher, _) = pass.publisher.get_or_insert_with(|| {
            let stop = CancellationToken::new();
            (self.broker.publisher(stop.clone()), stop.drop_guard())
        });
        for some in lost.chunks(JOBS) {
            let (messages, own): (Vec<Outgoing>, Vec<_>) =
                self.broker.names().messages_due(some, |waiting| waiting.job).into_iter().unzip();
            let published = publisher.publish(&messages).await;
            let left = published.as_ref().map_or_else(|error| error.places.as_slice(), |()| &[]);
            let own = own.into_iter().enumerate().filter(|(place, _)| left.binary_search(place).is_err());
            let there: Vec<Job> = own.flat_map(|(_, own)| own).map(|waiting| waiting.job).collect();
            leader.requeued_remember(&there, OffsetDateTime::now_utc()).await?;
            self.metrics.enqueued("overdue", there.len());
            published?;
        }
        Ok(())
    }
}
