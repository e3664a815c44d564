//! The walks through the ledger. Each enqueues the lost jobs that it finds again as it goes.

use std::time::{Duration, Instant};

use broker::{Outgoing, Publisher};
use domain::{DeliveryId, Job};
use ledger::{Leader, Waiting};
use time::OffsetDateTime;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use crate::{
    pace::{Pace, pause},
    reconciler::{Reconciler, Trouble},
    walk::Walk,
};

/// Rows of the ledger in a chunk: some tens of milliseconds.
const ROWS: u32 = 10_000;
/// Younger deliveries have a walk of their own, which comes round more often: a lost job is most likely there.
const LATELY: Duration = Duration::from_secs(60 * 60);
/// Jobs that are published, and remembered, at a time.
const JOBS: usize = 1_000;

#[derive(Clone, Copy)]
enum Scope {
    Lately,
    Older,
}

/// A pass: what it may still do, the database's time when it began, the id where one walk ends and the other begins, and
/// a publishing connection of its own, so that the hot path never waits. The connection is made for the first lost job and closed with the pass.
struct Pass {
    pace: Pace,
    now: OffsetDateTime,
    border: Uuid,
    publisher: Option<(Publisher, DropGuard)>,
}

impl Reconciler<'_> {
    /// Continues both walks, first the one through young deliveries. `now`: the database's time. Returns how many lost
    /// jobs it found.
    pub(crate) async fn walk(&mut self, leader: &mut Leader, now: OffsetDateTime) -> Result<usize, Trouble> {
        let border = DeliveryId::bound_at(now - LATELY);
        let mut pass = Pass { pace: Pace::new(self.interval, Instant::now()), now, border, publisher: None };
        let lately = self.walk_on(leader, Scope::Lately, &mut pass).await?;
        let older = self.walk_on(leader, Scope::Older, &mut pass).await?;
        Ok(lately + older)
    }

    /// Continues a walk, chunk after chunk, until the end of its round or of the pass. A walk that finds lost jobs goes
    /// on until the time is up, whatever its share of rows. So all jobs of a lost queue are back soon.
    async fn walk_on(&mut self, leader: &mut Leader, scope: Scope, pass: &mut Pass) -> Result<usize, Trouble> {
        let (first, last, reserve) = match scope {
            Scope::Lately => (pass.border, Uuid::max(), pass.pace.half()),
            Scope::Older => (Uuid::nil(), pass.border, 0),
        };
        let mut jobs = 0;
        loop {
            let (walk, began) = (self.walk_of(scope), Instant::now());
            let (cursor, lost) = (walk.cursor_or(first), walk.lost());
            let chunk = leader.overdue_find(cursor, ROWS, pass.now - self.grace, lost).await?;
            let took = began.elapsed();
            pass.pace.spend(ROWS);
            self.requeue(leader, &chunk.found, pass).await?;
            jobs += chunk.found.len();
            let goes_on = self.walk_of(scope).advance(&chunk, last);
            let has_share = pass.pace.goes_on(reserve, Instant::now());
            let has_found = !chunk.found.is_empty() && pass.pace.has_time(Instant::now());
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

    /// Enqueues lost jobs again. Remembers those that the broker has confirmed.
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
            leader.requeued_remember(&there).await?;
            self.metrics.enqueued("overdue", there.len());
            published?;
        }
        Ok(())
    }
}
