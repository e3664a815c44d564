//! Deliveries that cannot be attempted for now, for reasons other than their receivers.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use domain::DeliveryId;
use time::OffsetDateTime;

use crate::{error::LedgerError, pool::Ledger, tables::deliveries};

impl Ledger {
    /// Makes the next attempt of a delivery due later. `attempts` is the number of those made so far. Returns `false`
    /// when the delivery does not wait, or was attempted meanwhile.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn delivery_postpone(
        &self,
        delivery: DeliveryId,
        attempts: u16,
        until: OffsetDateTime,
    ) -> Result<bool, LedgerError> {
        let made = deliveries::attempts.eq(i16::try_from(attempts).unwrap_or(i16::MAX));
        let is_waiting = made.and(deliveries::state.eq_any(["pending", "retrying"]));
        let postpone = diesel::update(deliveries::table.find(delivery.as_uuid()).filter(is_waiting))
            .set(deliveries::next_attempt_at.eq(until));
        self.run(async |conn| Ok(postpone.execute(conn).await? > 0)).await
    }
}
