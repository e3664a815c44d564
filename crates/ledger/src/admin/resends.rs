//! Resends: single deliveries that are sent again (replay).

use std::time::Duration;

use diesel::prelude::*;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use domain::{DeliveryId, DeliveryState, WebhookId};
use serde_json::json;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    admin::{
        history::{Action, Actor, add_history, remove_history},
        outbox::{OutboxBatch, add_to_outbox, share, take_back},
        tasks::is_cancelling,
        webhooks::lock,
    },
    clock::{self, now},
    error::LedgerError,
    hot::waiting::is_one_of,
    pool::Ledger,
    tables::deliveries,
};

/// The number of attempts after which a delivery is not sent again: each attempt has a row, and their number is limited.
pub(crate) const MOST_ATTEMPTS: i16 = 1_000;

/// The result of a request to send a delivery again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resend {
    /// The tenant has no such webhook, or the webhook no such delivery.
    NotFound,
    /// Its day has been over for longer than history is kept, and may be dropped at any moment.
    TooOld,
    /// It has had too many attempts.
    TooOften,
    /// Deliveries of the webhook are being cancelled, and so would this one be.
    Cancelling,
    /// It already waits for the first attempt of a run. The request has joined that run.
    Waiting,
    /// A fresh run begins.
    Begun(BegunResend),
}

/// A resend that can still be taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BegunResend {
    /// The first job of the fresh run.
    pub batch: OutboxBatch,
    before: Before,
    /// Its entry in the webhook's history.
    history: Uuid,
}

/// A delivery before its resend.
#[derive(Clone, Debug, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = deliveries, check_for_backend(diesel::pg::Pg))]
struct Before {
    id: Uuid,
    state: String,
    attempts: i16,
    run_base: i16,
    first_failed_at: Option<OffsetDateTime>,
    next_attempt_at: Option<OffsetDateTime>,
}

impl Ledger {
    /// Begins a fresh run of the schedule for a delivery, unless it is older than `keep` by the database's clock. Two
    /// concurrent requests begin one run.
    ///
    /// # Errors
    /// When the database does not answer. Then all of it has happened, or nothing.
    pub async fn delivery_resend(
        &self,
        actor: &Actor,
        webhook: WebhookId,
        id: DeliveryId,
        keep: Duration,
    ) -> Result<Resend, LedgerError> {
        let query = deliveries::table
            .filter(deliveries::id.eq(id.as_uuid()).and(deliveries::webhook_id.eq(webhook.as_uuid())))
            .select(Before::as_select())
            .for_update();
        self.run(async |conn| {
            conn.transaction(async |conn| {
                if lock(conn, actor.tenant, webhook).await?.is_none() {
                    return Ok(Resend::NotFound);
                }
                let Some(before) = query.first(conn).await.optional()? else { return Ok(Resend::NotFound) };
                if before.id < first_kept(conn, keep).await? {
                    return Ok(Resend::TooOld);
                }
                if before.attempts >= MOST_ATTEMPTS {
                    return Ok(Resend::TooOften);
                }
                if is_cancelling(conn, webhook).await? {
                    return Ok(Resend::Cancelling);
                }
                if before.state == DeliveryState::Pending.as_str() {
                    share(conn, before.id).await?;
                    return Ok(Resend::Waiting);
                }
                begin(conn, &[before.id]).await?;
                let batch = add_to_outbox(conn, &[(before.id, before.attempts)]).await?;
                let details = json!({"delivery_id": before.id, "state": before.state});
                let history = add_history(conn, actor, webhook, Action::Resent, details).await?;
                Ok(Resend::Begun(BegunResend { batch, before, history }))
            })
            .await
        })
        .await
    }

    /// Takes a resend back whose job could not be published. Returns `false` when it stands: an attempt was made all
    /// the same, or another request has joined it. Its job is then published later.
    ///
    /// # Errors
    /// When the database does not answer. The resend stands then, too.
    pub async fn resend_undo(&self, begun: &BegunResend) -> Result<bool, LedgerError> {
        let Before { id, state, attempts, run_base, first_failed_at, next_attempt_at } = &begun.before;
        let untouched = deliveries::id
            .eq(id)
            .and(deliveries::attempts.eq(attempts))
            .and(deliveries::run_base.eq(attempts))
            .and(deliveries::state.eq(DeliveryState::Pending.as_str()));
        let row = deliveries::table.filter(untouched).select(deliveries::id).for_update();
        let restored = (
            deliveries::state.eq(state),
            deliveries::run_base.eq(run_base),
            deliveries::first_failed_at.eq(first_failed_at),
            deliveries::next_attempt_at.eq(next_attempt_at),
        );
        self.run(async |conn| {
            conn.transaction(async |conn| {
                // The delivery is locked before the outbox entry, as everywhere. Then nobody can join.
                let found: Option<Uuid> = row.first(conn).await.optional()?;
                if found.is_none() || !take_back(conn, &begun.batch).await? {
                    return Ok(false);
                }
                diesel::update(deliveries::table.find(id)).set(restored).execute(conn).await?;
                remove_history(conn, begun.history).await?;
                Ok(true)
            })
            .await
        })
        .await
    }
}

/// The smallest id that a delivery of a kept day can have, by the database's clock. A day is dropped as a whole once it
/// has been over for `keep`.
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
            deliveries::state.eq(DeliveryState::Pending.as_str()),
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
    use crate::upkeep::partitions::Day;

    #[test]
    fn the_first_id_that_is_kept_is_that_of_the_oldest_day_that_is_not_dropped() {
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
