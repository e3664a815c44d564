//! The cursor of untried deliveries: gives old ones a due time, so that the index of waiting deliveries has them.

use std::time::Instant;

use domain::DeliveryId;
use ledger::{Indexed, Leader, Ledger, LedgerError};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    reconciler::Reconciler,
    retention::earlier,
    throttle::{Throttle, pause},
};

/// The age of the ids that the cursor reaches. Ingest gives the delivery of an event that is older than a day a due time,
/// by the time at which its transaction begins. The hour is for the transaction's end, and for clocks that are set back.
const MIN_ID_AGE: time::Duration = time::Duration::hours(25);

impl Reconciler<'_> {
    /// Moves the cursor, in steps of 1,000 rows, unless the clocks are too far apart or a rebuild is under way.
    ///
    /// # Errors
    /// When the database does not answer, or a row is locked. The next pass continues where this one has ended.
    pub(crate) async fn index_untried(&mut self, leader: &mut Leader) -> Result<(), LedgerError> {
        let mut throttle = Throttle::new(self.upkeep.interval, Instant::now());
        let Some(now) = earlier(leader.now().await?, OffsetDateTime::now_utc()) else { return Ok(()) };
        let (mut cursor, end) = (leader.generation().await?.indexed_before, DeliveryId::bound_at(now - MIN_ID_AGE));
        loop {
            let began = Instant::now();
            let step = match leader.untried_index(cursor, end).await {
                Err(LedgerError::Query(error)) => match step_over(&self.upkeep.ledger, leader, cursor, end).await? {
                    None => return Err(LedgerError::Query(error)),
                    step => step,
                },
                step => step?,
            };
            let Some(step) = step else { return Ok(()) };
            if let Some(earliest) = step.earliest {
                self.search.begin_before(earliest);
            }
            cursor = step.indexed_before;
            throttle.spend(u32::try_from(step.looked).unwrap_or(u32::MAX));
            if cursor >= end || !throttle.goes_on(0, Instant::now()) {
                return Ok(());
            }
            pause(began.elapsed()).await;
        }
    }
}

/// Moves the cursor past a delivery of the next step that cannot get a due time for its row's own data: the others would
/// wait behind it for ever. Returns `None` if the step failed by something else, such as a locked row.
async fn step_over(
    ledger: &Ledger,
    leader: &mut Leader,
    cursor: Uuid,
    end: Uuid,
) -> Result<Option<Indexed>, LedgerError> {
    let next = leader.untried_next(cursor, end).await?;
    let Some(delivery) = ledger.untried_faulty(&next).await else { return Ok(None) };
    let Some(mut step) = leader.untried_index(cursor, delivery).await? else { return Ok(None) };
    // Others may have come before it.
    if step.indexed_before == delivery {
        step.indexed_before = leader.untried_pass(delivery).await?;
        tracing::error!(%delivery, "the database does not take the data of a delivery's row: it gets no due time, and may never be sent");
    }
    Ok(Some(step))
}
