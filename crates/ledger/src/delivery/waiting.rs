//! Deliveries that wait for an attempt: postponed, made due, or cancelled.

use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use domain::{DeliveryId, DeliveryState};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    batch::plan_with_values,
    connect::{clock::sql::now, pool::Ledger},
    error::LedgerError,
    tables::deliveries,
};

/// The states of deliveries that wait.
fn waiting() -> impl Iterator<Item = DeliveryState> {
    DeliveryState::ALL.into_iter().filter(|state| state.is_waiting())
}

/// That a delivery is one of these. The range keeps the partitions of other days closed.
#[diesel::dsl::auto_type(no_type_alias)]
pub(crate) fn is_one_of(ids: &[Uuid]) -> _ {
    let (first, last): (Uuid, Uuid) = ends(ids);
    let ids: Vec<Uuid> = ids.to_vec();
    deliveries::id.eq_any(ids).and(deliveries::id.between(first, last))
}

/// The smallest and the largest id. Nothing is between them if there is none.
fn ends(ids: &[Uuid]) -> (Uuid, Uuid) {
    let first = ids.iter().min().copied().unwrap_or(Uuid::max());
    (first, ids.iter().max().copied().unwrap_or(Uuid::nil()))
}

impl Ledger {
    /// Makes the next attempt of a delivery due later. `attempts` is the number of those made so far. Returns `false`
    /// when the delivery does not wait, or was attempted meanwhile.
    pub async fn delivery_postpone(
        &self,
        delivery: DeliveryId,
        attempts: u16,
        until: OffsetDateTime,
    ) -> Result<bool, LedgerError> {
        let made = deliveries::attempts.eq(i16::try_from(attempts).unwrap_or(i16::MAX));
        let is_waiting = made.and(deliveries::state.eq_any(waiting()));
        let postpone = diesel::update(deliveries::table.find(delivery.as_uuid()).filter(is_waiting))
            .set(deliveries::next_attempt_at.eq(until));
        self.transaction("delivery_postpone", async |conn| {
            plan_with_values(conn).await?;
            Ok(postpone.execute(conn).await? > 0)
        })
        .await
    }

    /// Cancels those of the deliveries that still wait.
    pub async fn deliveries_cancel(&self, ids: &[DeliveryId]) -> Result<(), LedgerError> {
        let ids: Vec<Uuid> = ids.iter().map(|id| id.as_uuid()).collect();
        self.transaction("deliveries_cancel", async |conn| cancel_waiting(conn, &ids).await.map(|_| ())).await
    }
}

/// Locks the waiting ones of the deliveries in the order of ids, as recording attempts does, so that neither deadlocks.
/// The rest of the transaction is planned with its values.
async fn lock_waiting(conn: &mut AsyncPgConnection, ids: &[Uuid]) -> QueryResult<Vec<(Uuid, i16)>> {
    plan_with_values(conn).await?;
    deliveries::table
        .filter(is_one_of(ids).and(deliveries::state.eq_any(waiting())))
        .order(deliveries::id)
        .select((deliveries::id, deliveries::attempts))
        .for_update()
        .load(conn)
        .await
}

/// Makes the waiting ones of the deliveries due now, except those due later. Returns all that wait, with their
/// attempts.
pub(crate) async fn due_now(conn: &mut AsyncPgConnection, ids: &[Uuid]) -> QueryResult<Vec<(Uuid, i16)>> {
    let waiting = lock_waiting(conn, ids).await?;
    let ids: Vec<Uuid> = waiting.iter().map(|(id, _)| *id).collect();
    let is_due = deliveries::next_attempt_at.is_null().or(deliveries::next_attempt_at.lt(now().nullable()));
    diesel::update(deliveries::table.filter(is_one_of(&ids).and(is_due)))
        .set(deliveries::next_attempt_at.eq(now().nullable()))
        .execute(conn)
        .await?;
    Ok(waiting)
}

/// Cancels those of the deliveries that wait. Returns how many.
pub(crate) async fn cancel_waiting(conn: &mut AsyncPgConnection, ids: &[Uuid]) -> QueryResult<usize> {
    let waiting: Vec<Uuid> = lock_waiting(conn, ids).await?.into_iter().map(|(id, _)| id).collect();
    diesel::update(deliveries::table.filter(is_one_of(&waiting)))
        .set((deliveries::state.eq(DeliveryState::Cancelled), deliveries::next_attempt_at.eq(None::<OffsetDateTime>)))
        .execute(conn)
        .await
}
