//! Cancellations: a deletion of a webhook asks for one, or a request that lets the webhook stay, and steps do the work
//! afterwards. If a process dies, another one continues.

use std::time::Duration;

use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use domain::{TenantId, WebhookId};
use serde_json::json;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    connect::{clock::now, pool::Ledger},
    delivery::waiting::cancel_waiting,
    error::LedgerError,
    history::{Action, Actor, add_history},
    outbox::{
        held_jobs::DELETE_HELD,
        tasks::{FAILURE_DELAY, STEP_LEASE, STEP_LOCK_TIMEOUT, TaskStep},
    },
    refusal::Refusal,
    statement::sql,
    tables::{cancellations, webhooks},
    webhook::of,
};

/// The maximum of deliveries that one step reads, and cancels: some tens of milliseconds.
const MAX_READ: usize = 10_000;
const MAX_CANCELLED: usize = 1_000;

/// Stops the running recovery of webhook `$1`, if there is one. A step under way is waited for.
pub(crate) const STOP_RECOVERIES: &str =
    "UPDATE recoveries SET finished_at = now(), is_stopped = true WHERE webhook_id = $1 AND finished_at IS NULL";
// A webhook's log is read as the README says of it.
const FIND_WAITING: &str = "SELECT id, state IN ('pending', 'retrying') AND ($4 IS NULL OR created_at <= $4) AS waits \
     FROM deliveries WHERE webhook_id = ANY (ARRAY[$1]) AND id > $2 ORDER BY webhook_id, id LIMIT $3";
// A step under way is waited for: it has locked the row. Whatever its cursor has passed is looked at again.
const BEGIN_CANCELLATION: &str = "INSERT INTO cancellations AS t (webhook_id, until) VALUES ($1, $2) \
     ON CONFLICT (webhook_id) DO UPDATE SET cursor = '00000000-0000-0000-0000-000000000000', \
       until = excluded.until, leased_until = excluded.leased_until";
const ADVANCE_CANCELLATION: &str = "UPDATE cancellations SET cursor = $2, leased_until = now() + $3 * interval '1 second' \
     WHERE webhook_id = $1";

impl Ledger {
    /// Has [`Ledger::cancellation_step`] cancel the webhook's deliveries that wait and were made before this request. Stops
    /// its running recovery. A cancellation that is under way begins anew, and includes what was made since its own request.
    ///
    /// # Errors
    /// When the database does not answer. Then all of it has happened, or nothing.
    pub async fn webhook_cancel(&self, actor: &Actor, webhook: WebhookId) -> Result<Result<(), Refusal>, LedgerError> {
        let id = webhook.as_uuid();
        // Resends and recoveries share this lock. So each of them sees the cancellation, or is seen by its steps.
        let lock = webhooks::table.find(id).filter(of(actor.tenant)).select(webhooks::id).for_update();
        self.transaction("webhook_cancel", async |conn| {
            let locked: Option<Uuid> = lock.first(conn).await.optional()?;
            if locked.is_none() {
                return Ok(Err(Refusal::NotFound));
            }
            sql(STOP_RECOVERIES).bind(id).execute(conn).await?;
            let until = now(conn).await?;
            begin_cancellation(conn, id, Some(until)).await?;
            add_history(conn, actor, webhook, Action::Cancelled, json!({})).await?;
            Ok(Ok(()))
        })
        .await
    }

    /// Leases a cancellation, of one tenant or of any, and takes its next step: cancels at most 1,000 deliveries. All
    /// waiting ones of a deleted webhook are cancelled, else those made until the request. The next step is due after
    /// `pause`, in any process. Returns `None` when there is nothing to do.
    ///
    /// # Errors
    /// When the database does not answer. The step is then taken as a whole or not at all. Other webhooks come first.
    pub async fn cancellation_step(
        &self,
        tenant: Option<TenantId>,
        pause: Duration,
    ) -> Result<Option<TaskStep>, LedgerError> {
        let lease = sql(format!(
            "UPDATE cancellations AS t SET leased_until = now() + {STEP_LEASE} FROM ( \
               SELECT webhook_id FROM cancellations WHERE leased_until <= now() \
                 AND ($1 IS NULL OR webhook_id IN (SELECT id FROM webhooks WHERE tenant_id = $1)) \
               ORDER BY leased_until LIMIT 1 FOR UPDATE SKIP LOCKED \
             ) AS next WHERE t.webhook_id = next.webhook_id RETURNING t.webhook_id"
        ))
        .bind(tenant.map(TenantId::as_uuid));
        let leased: Option<Uuid> =
            self.run("cancellation_step", async |conn| lease.value(conn).await.optional()).await?;
        let Some(webhook_id) = leased else { return Ok(None) };
        // A process that is still at a step after its lease has ended has locked the task.
        let row = cancellations::table.find(webhook_id).select((cancellations::cursor, cancellations::until));
        let lock = row.for_update().skip_locked();
        let step = self.transaction("cancellation_step", async |conn| {
            conn.batch_execute(STEP_LOCK_TIMEOUT).await?;
            let locked: Option<(Uuid, Option<OffsetDateTime>)> = lock.first(conn).await.optional()?;
            let Some((cursor, until)) = locked else { return Ok(TaskStep::default()) };
            let (step, next) = cancel_some(conn, webhook_id, (cursor, until)).await?;
            match next {
                Some(cursor) => {
                    let go_on = sql(ADVANCE_CANCELLATION).bind(webhook_id).bind(cursor);
                    go_on.bind(pause.as_secs_f64()).execute(conn).await?;
                }
                None => {
                    diesel::delete(cancellations::table.find(webhook_id)).execute(conn).await?;
                }
            }
            Ok(step)
        });
        let soon = sql(format!(
            "UPDATE cancellations AS t SET leased_until = now() + {FAILURE_DELAY} FROM ( \
               SELECT webhook_id FROM cancellations WHERE webhook_id = $1 FOR UPDATE SKIP LOCKED \
             ) AS free WHERE t.webhook_id = free.webhook_id"
        ));
        let soon = soon.bind(webhook_id);
        self.step_taken(step.await, async |conn| soon.execute(conn).await).await
    }
}

/// Whether deliveries of this webhook are being cancelled: because it is deleted, or because that was asked for. The caller
/// has locked the webhook: nobody asks for a cancellation meanwhile, but one may end.
pub(crate) async fn is_cancelling(conn: &mut AsyncPgConnection, webhook: WebhookId) -> QueryResult<bool> {
    let one = cancellations::table.filter(cancellations::webhook_id.eq(webhook.as_uuid()));
    diesel::select(diesel::dsl::exists(one)).get_result(conn).await
}

/// Notes that a webhook's waiting deliveries have to be cancelled: those that were made `until` then, or all of a deleted
/// webhook's. A cancellation that is under way begins anew. The caller has locked the webhook.
pub(crate) async fn begin_cancellation(
    conn: &mut AsyncPgConnection,
    webhook: Uuid,
    until: Option<OffsetDateTime>,
) -> QueryResult<usize> {
    let begin = sql(BEGIN_CANCELLATION).bind(webhook);
    begin.bind(until).execute(conn).await
}

/// Cancels some of the deliveries after a cursor that were made until a time, and deletes their held jobs. Returns the
/// next cursor, if any. An activation locks held jobs before deliveries, so this does too.
async fn cancel_some(
    conn: &mut AsyncPgConnection,
    webhook: Uuid,
    (cursor, until): (Uuid, Option<OffsetDateTime>),
) -> QueryResult<(TaskStep, Option<Uuid>)> {
    let look = sql(FIND_WAITING).bind(webhook).bind(cursor);
    let most = i64::try_from(MAX_READ).unwrap_or(i64::MAX);
    let look = look.bind(most).bind(until);
    let looked_at: Vec<(Uuid, bool)> = look.values(conn).await?;
    let waiting = looked_at.iter().filter(|(_, waits)| *waits).map(|(id, _)| *id);
    let waiting: Vec<Uuid> = waiting.take(MAX_CANCELLED).collect();
    let next = match waiting.last() {
        Some(last) if waiting.len() == MAX_CANCELLED => Some(*last),
        _ => looked_at.get(MAX_READ - 1).map(|(last, _)| *last),
    };
    let forget = sql(DELETE_HELD).bind(webhook);
    forget.bind(&waiting).execute(conn).await?;
    let cancelled = cancel_waiting(conn, &waiting).await?;
    Ok((TaskStep { deliveries: cancelled, batch: None }, next))
}
