//! The searches for overdue deliveries. Each enqueues the lost jobs that it finds again as it goes.

use std::time::Instant;

use broker::{BrokerError, Outgoing, Publisher};
use domain::{DeliveryId, Job};
use ledger::{Leader, Stream, StreamPosition, Waiting, WaitingChunk};
use time::OffsetDateTime;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use crate::{
    reconciler::{Reconciler, Trouble},
    search::Scope,
    throttle::{Throttle, pause},
};

/// Rows of the ledger in a chunk: some tens of milliseconds.
const CHUNK_ROWS: u32 = 10_000;

/// A pass: what it may still do, the database's time when it began, the time before which lost jobs were due, the cursor of
/// untried deliveries, and a publishing connection of its own, so that the hot path never waits. The connection is made
/// for the first lost job and closed with the pass.
struct Pass {
    throttle: Throttle,
    now: OffsetDateTime,
    lost: Option<OffsetDateTime>,
    indexed_before: Uuid,
    publisher: Option<(Publisher, DropGuard)>,
    jobs: usize,
}

impl Reconciler<'_> {
    /// Continues the searches. `now`: the database's time; `lost`: the time before which lost jobs were due;
    /// `indexed_before`: the cursor of untried deliveries. Returns how many lost jobs it found.
    pub(crate) async fn search(
        &mut self,
        leader: &mut Leader,
        now: OffsetDateTime,
        lost: Option<OffsetDateTime>,
        indexed_before: Uuid,
    ) -> Result<usize, Trouble> {
        let throttle = Throttle::new(self.upkeep.interval, Instant::now());
        let mut pass = Pass { throttle, now, lost, indexed_before, publisher: None, jobs: 0 };
        self.search_on(leader, Scope::Due, &mut pass).await?;
        self.look_at_oldest_untried(leader, &mut pass).await?;
        if lost.is_some() {
            self.search_on(leader, Scope::New, &mut pass).await?;
        }
        self.search_on(leader, Scope::Untried, &mut pass).await?;
        Ok(pass.jobs)
    }

    /// Continues a search, chunk after chunk, until the end of its round or of its half of the rows that are left.
    async fn search_on(&mut self, leader: &mut Leader, scope: Scope, pass: &mut Pass) -> Result<(), Trouble> {
        let until = pass.lost.unwrap_or(pass.now) - self.upkeep.grace;
        let [first_new, last_new] = [until - self.upkeep.grace, until].map(DeliveryId::bound_at);
        let (stream, first, end, reserve) = match scope {
            Scope::Due => (Stream::Due, Uuid::nil(), Uuid::max(), pass.throttle.half()),
            Scope::New => (Stream::Untried, first_new, last_new, pass.throttle.half()),
            Scope::Untried => (Stream::Untried, before_all(pass.indexed_before).before().id, Uuid::max(), 0),
        };
        loop {
            let began = Instant::now();
            let after = self.search.place(scope, first, pass.now, self.upkeep.grace);
            let chunk = self.chunk(leader, stream, after, pass).await?;
            // What may not be enqueued again in this minute is searched for in the next one.
            let is_full = matches!(scope, Scope::New) && self.search.copies == 0;
            if is_full || !self.search.advance(scope, &chunk, end) || !pass.throttle.goes_on(reserve, Instant::now()) {
                return Ok(());
            }
            pause(began.elapsed()).await;
        }
    }

    /// Looks again at the most overdue untried delivery that is known, and at those that follow. If none is known, at
    /// those of a grace ago: there the backlog of dispatchers that have stopped begins.
    async fn look_at_oldest_untried(&mut self, leader: &mut Leader, pass: &mut Pass) -> Result<(), Trouble> {
        let known = self.search.oldest_untried.map(StreamPosition::before);
        let after = known.unwrap_or_else(|| before_all(DeliveryId::bound_at(pass.now - self.upkeep.grace)));
        self.search.oldest_untried = self.chunk(leader, Stream::Untried, after, pass).await?.oldest;
        Ok(())
    }

    async fn chunk(
        &mut self,
        leader: &mut Leader,
        stream: Stream,
        after: StreamPosition,
        pass: &mut Pass,
    ) -> Result<WaitingChunk, Trouble> {
        let limit = self.search.copies(Instant::now());
        let chunk = leader.overdue_find(stream, after, CHUNK_ROWS, (pass.lost, limit)).await?;
        pass.throttle.spend(CHUNK_ROWS);
        pass.jobs += chunk.found.len();
        self.requeue(leader, &chunk.found, pass).await?;
        Ok(chunk)
    }

    /// Enqueues lost jobs again, in the bulk lane, where no new event waits behind them. Remembers those that the
    /// broker has confirmed.
    async fn requeue(&mut self, leader: &mut Leader, lost: &[Waiting], pass: &mut Pass) -> Result<(), Trouble> {
        if lost.is_empty() {
            return Ok(());
        }
        let (publisher, _) = pass.publisher.get_or_insert_with(|| {
            let stop = CancellationToken::new();
            (self.upkeep.broker.publisher(stop.clone()), stop.drop_guard())
        });
        let (messages, own): (Vec<Outgoing>, Vec<_>) =
            self.upkeep.broker.names().jobs_in_bulk(lost, |waiting| waiting.job).into_iter().unzip();
        let published = publisher.publish(&messages).await;
        let left = published.as_ref().map_or_else(|error| error.places.as_slice(), |()| &[]);
        let own = own.into_iter().enumerate().filter(|(place, _)| left.binary_search(place).is_err());
        let there: Vec<Job> = own.flat_map(|(_, own)| own).map(|waiting| waiting.job).collect();
        leader.requeued_record(&there).await?;
        self.search.copies = self.search.copies.saturating_sub(u32::try_from(there.len()).unwrap_or(u32::MAX));
        self.upkeep.metrics.enqueued("overdue", there.len());
        Ok(published.map_err(BrokerError::from)?)
    }
}

/// The place before all deliveries with later ids, whenever they are due.
const fn before_all(id: Uuid) -> StreamPosition {
    StreamPosition { due: OffsetDateTime::UNIX_EPOCH, id }
}
