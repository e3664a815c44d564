//! Deliveries that are sent again: one by one, or all that were dropped since a time.

use diesel::prelude::*;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use domain::{DeliveryId, DeliveryState, Job, WebhookId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    error::LedgerError,
    pool::Ledger,
    promises::{LEASE, promise},
    tables::{deliveries, promised_jobs},
};

/// What came of a request to send a delivery again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resend {
    /// The webhook has no such delivery.
    NotFound,
    /// It waits for the first attempt of a run already: another request was first.
    Waiting,
    /// A fresh run begins with this job. It is promised; publish it, then keep the promise.
    Begun(Before),
}

/// How a delivery stood before its resend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before {
    /// The first job of the fresh run.
    pub job: Job,
    state: String,
    run_base: i16,
    first_failed_at: Option<OffsetDateTime>,
    next_attempt_at: Option<OffsetDateTime>,
}

impl Ledger {
    /// Begins a fresh run of the schedule for a delivery. Two requests at once begin one.
    ///
    /// # Errors
    /// When the database does not answer; nothing has happened then, or all of it.
    pub async fn delivery_resend(&self, webhook: WebhookId, id: DeliveryId) -> Result<Resend, LedgerError> {
        let query = deliveries::table
            .filter(deliveries::id.eq(id.as_uuid()).and(deliveries::webhook_id.eq(webhook.as_uuid())))
            .select((
                deliveries::state,
                deliveries::attempts,
                deliveries::run_base,
                deliveries::first_failed_at,
                deliveries::next_attempt_at,
            ))
            .for_update();
        self.run(async |conn| {
            conn.transaction(async |conn| {
                let row: Option<(String, i16, i16, _, _)> = query.first(conn).await.optional()?;
                let Some((state, attempts, run_base, first_failed_at, next_attempt_at)) = row else {
                    return Ok(Resend::NotFound);
                };
                if state == DeliveryState::Pending.as_str() && attempts > run_base {
                    // Cannot be: an attempt ends this state. Should it be, a fresh run mends it.
                    tracing::error!(delivery = %id, "pending after an attempt of its run");
                } else if state == DeliveryState::Pending.as_str() {
                    return Ok(Resend::Waiting);
                }
                begin(conn, &[id.as_uuid()]).await?;
                promise(conn, &[id.as_uuid()], OffsetDateTime::now_utc() + LEASE).await?;
                let job = Job { delivery: id, attempt: u16::try_from(attempts).unwrap_or_default() + 1 };
                Ok(Resend::Begun(Before { job, state, run_base, first_failed_at, next_attempt_at }))
            })
            .await
        })
        .await
    }

    /// Takes a resend back whose job could not be published, unless an attempt was made meanwhile.
    ///
    /// # Errors
    /// When the database does not answer: then the resend stands, and its promise will be kept.
    pub async fn resend_undo(&self, before: &Before) -> Result<(), LedgerError> {
        let id = before.job.delivery.as_uuid();
        let attempts = i16::try_from(before.job.attempt - 1).unwrap_or_default();
        let unchanged = deliveries::table.filter(
            deliveries::id
                .eq(id)
                .and(deliveries::attempts.eq(attempts))
                .and(deliveries::run_base.eq(attempts))
                .and(deliveries::state.eq(DeliveryState::Pending.as_str())),
        );
        self.run(async |conn| {
            conn.transaction(async |conn| {
                diesel::update(unchanged)
                    .set((
                        deliveries::state.eq(&before.state),
                        deliveries::run_base.eq(before.run_base),
                        deliveries::first_failed_at.eq(before.first_failed_at),
                        deliveries::next_attempt_at.eq(before.next_attempt_at),
                    ))
                    .execute(conn)
                    .await?;
                diesel::delete(promised_jobs::table.find(id)).execute(conn).await.map(|_| ())
            })
            .await
        })
        .await
    }
}

/// Lets a fresh run of the schedule begin, which counts its attempts from here.
pub(crate) async fn begin(conn: &mut AsyncPgConnection, ids: &[Uuid]) -> QueryResult<usize> {
    diesel::update(deliveries::table.filter(deliveries::id.eq_any(ids.to_vec())))
        .set((
            deliveries::state.eq(DeliveryState::Pending.as_str()),
            deliveries::run_base.eq(deliveries::attempts),
            deliveries::first_failed_at.eq(None::<OffsetDateTime>),
            deliveries::next_attempt_at.eq(None::<OffsetDateTime>),
        ))
        .execute(conn)
        .await
}
