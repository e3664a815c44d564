//! Resends: single deliveries that are sent again (replay).

use std::time::Duration;

use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use domain::{DeliveryId, DeliveryState, WebhookId};
use serde_json::json;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    connect::{
        clock::{self, now},
        pool::Ledger,
    },
    delivery::{bodies::with_bodies, waiting::is_one_of},
    error::LedgerError,
    history::{Action, Actor, add_history},
    log::Delivery,
    outbox::add_to_outbox,
    refusal::Refusal,
    tables::deliveries,
    webhook::{cancellation::is_cancelling, lock},
};

/// The number of attempts after which a delivery is not sent again: each attempt has a row, and their number is limited.
pub(crate) const MAX_RESEND_ATTEMPTS: i16 = 1_000;

/// The times for which events' bodies and deliveries are kept, and sent. A day is dropped as a whole: later, once what was
/// sent in time has had its whole schedule.
#[derive(Clone, Copy, Debug)]
pub struct RetentionTimes {
    /// Deliveries and their attempts.
    pub log: Duration,
    /// Events with their bodies; not longer than the log.
    pub bodies: Duration,
}

impl Ledger {
    /// Begins a fresh run of the schedule for a delivery, and adds its job to the outbox, unless the delivery is older than
    /// bodies are kept, by the database's clock. Two concurrent requests begin one run. Returns the delivery, which waits for
    /// the first attempt of a run that this request or an earlier one has begun.
    ///
    /// # Errors
    /// When the database does not answer. Then all of it has happened, or nothing.
    pub async fn delivery_resend(
        &self,
        actor: &Actor,
        webhook: WebhookId,
        id: DeliveryId,
        kept: RetentionTimes,
    ) -> Result<Result<Delivery, Refusal>, LedgerError> {
        let key = id.as_uuid();
        let delivery =
            || deliveries::table.filter(deliveries::id.eq(key).and(deliveries::webhook_id.eq(webhook.as_uuid())));
        self.transaction("delivery_resend", async |conn| {
            if lock(conn, actor.tenant, webhook).await?.is_none() {
                return Ok(Err(Refusal::NotFound));
            }
            let before = delivery().select((deliveries::state, deliveries::attempts)).for_update();
            let before: Option<(DeliveryState, i16)> = before.first(conn).await.optional()?;
            let Some((state, attempts)) = before else { return Ok(Err(Refusal::NotFound)) };
            if key < first_kept(conn, kept.log).await? {
                return Ok(Err(Refusal::TooOld));
            }
            if with_bodies(conn, &[key]).await?.is_empty() {
                return Ok(Err(Refusal::BodyExpired));
            }
            // Its day goes before its schedule would end.
            if key < first_kept(conn, kept.bodies).await? {
                return Ok(Err(Refusal::TooOld));
            }
            if attempts >= MAX_RESEND_ATTEMPTS {
                return Ok(Err(Refusal::TooOften));
            }
            if is_cancelling(conn, webhook).await? {
                return Ok(Err(Refusal::Cancelling));
            }
            if state != DeliveryState::Pending {
                begin(conn, &[key]).await?;
                add_to_outbox(conn, key).await?;
                let details = json!({"delivery_id": id, "state": state.as_str()});
                add_history(conn, actor, webhook, Action::Resent, details).await?;
            }
            delivery().select(Delivery::as_select()).first(conn).await.map(Ok)
        })
        .await
    }
}

/// The smallest id that a delivery of a kept day can have, by the database's clock: a day counts as a
/// whole, until it has been over for `keep`.
pub(crate) async fn first_kept(conn: &mut AsyncPgConnection, keep: Duration) -> QueryResult<Uuid> {
    Ok(first_kept_at(now(conn).await?, keep))
}

fn first_kept_at(now: OffsetDateTime, keep: Duration) -> Uuid {
    DeliveryId::bound_at((now - keep).date().midnight().assume_utc())
}

/// Begins a fresh run of the schedule. The run counts its attempts from here. It is due now, so that lost-job detection
/// does not take it for overdue since its event fired.
pub(crate) async fn begin(conn: &mut AsyncPgConnection, ids: &[Uuid]) -> QueryResult<usize> {
    diesel::update(deliveries::table.filter(is_one_of(ids)))
        .set((
            deliveries::state.eq(DeliveryState::Pending),
            deliveries::run_base.eq(deliveries::attempts),
            deliveries::first_failed_at.eq(None::<OffsetDateTime>),
            deliveries::next_attempt_at.eq(clock::sql::now().nullable()),
        ))
        .execute(conn)
        .await
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;
    use crate::partitions::Day;

    #[test]
    fn the_first_id_that_is_kept_is_that_of_the_oldest_day_that_is_not_over_for_so_long() {
        let keep = Duration::from_secs(2 * 86_400);
        for now in
            [datetime!(2026-03-05 00:00 UTC), datetime!(2026-03-05 00:00:01 UTC), datetime!(2026-03-05 23:59 UTC)]
        {
            let first = first_kept_at(now, keep);
            for back in 0..6 {
                let day = Day::from(now.date() - time::Duration::days(back));
                assert_eq!(day.ids().0 < first, day.is_over(now - keep), "{day} at {now}");
            }
        }
    }
}
