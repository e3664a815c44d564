//! Cancellations: a request asks for one, and steps do the work afterwards. If a process dies, another one continues.

use std::time::Duration;

use diesel::prelude::*;
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use domain::{TenantId, WebhookId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    admin::outbox::OutboxBatch,
    error::LedgerError,
    hot::waiting::cancel_waiting,
    pool::Ledger,
    statement::{rows, sql},
    tables::webhook_tasks,
};

/// The maximum of deliveries that one step reads, and cancels: some tens of milliseconds.
const LOOKED_AT: usize = 10_000;
const CANCELLED: usize = 1_000;
/// How long nobody else takes a step: longer than any takes.
pub(crate) const STEP_LEASE: &str = "interval '30 seconds'";
/// When a step is taken again that failed, most often for a lock: long before its lease ends, and after the others of its
/// kind.
pub(crate) const AFTER_FAILURE: &str = "interval '5 seconds'";
/// A step waits for a lock for less time than a readiness check waits for its connection, and than a request waits for the
/// step.
pub(crate) const STEP_LOCKS: &str = "SET LOCAL lock_timeout = '400ms'";

/// A step that was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// How many deliveries it changed.
    pub deliveries: usize,
    /// The jobs that the caller has to publish, if there are any.
    pub batch: Option<OutboxBatch>,
}

/// How many webhooks have tasks or recoveries under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Running {
    /// Webhooks whose deliveries are being cancelled.
    pub cancel: i64,
    /// Active webhooks with held jobs.
    pub wake: i64,
    /// Webhooks with a recovery.
    pub recover: i64,
}

rows! { Running { cancel, wake, recover } }

// A webhook's log is read as the README says of it.
const LOOK_AT: &str = "SELECT id, state IN ('pending', 'retrying') AND ($4 IS NULL OR created_at <= $4) AS waits \
     FROM deliveries WHERE webhook_id = ANY (ARRAY[$1]) AND id > $2 ORDER BY webhook_id, id LIMIT $3";
/// Deletes held jobs of a webhook. Locks them in the order in which jobs are held and released.
pub(crate) const FORGET_HELD: &str = "DELETE FROM held_jobs WHERE webhook_id = $1 AND delivery_id = ANY (ARRAY( \
       SELECT delivery_id FROM held_jobs WHERE webhook_id = $1 AND delivery_id = ANY ($2) ORDER BY delivery_id FOR UPDATE))";
// A step under way is waited for: it has locked the row. Whatever its cursor has passed is looked at again.
const BEGIN_CANCELLATION: &str = "INSERT INTO webhook_tasks AS t (webhook_id, until) VALUES ($1, $2) \
     ON CONFLICT (webhook_id) DO UPDATE SET cursor = '00000000-0000-0000-0000-000000000000', \
       until = excluded.until, leased_until = excluded.leased_until";
const GO_ON: &str = "UPDATE webhook_tasks SET cursor = $2, leased_until = now() + $3 * interval '1 second' \
     WHERE webhook_id = $1";
const COUNT: &str = "SELECT (SELECT count(*) FROM webhook_tasks) AS cancel, \
            (SELECT count(*) FROM held_webhooks) AS wake, \
            (SELECT count(*) FROM recoveries WHERE finished_at IS NULL) AS recover";

impl Ledger {
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
    ) -> Result<Option<Step>, LedgerError> {
        let lease = sql(format!(
            "UPDATE webhook_tasks AS t SET leased_until = now() + {STEP_LEASE} FROM ( \
               SELECT webhook_id FROM webhook_tasks WHERE leased_until <= now() \
                 AND ($1 IS NULL OR webhook_id IN (SELECT id FROM webhooks WHERE tenant_id = $1)) \
               ORDER BY leased_until LIMIT 1 FOR UPDATE SKIP LOCKED \
             ) AS next WHERE t.webhook_id = next.webhook_id RETURNING t.webhook_id"
        ))
        .bind(tenant.map(TenantId::as_uuid));
        let leased: Option<Uuid> =
            self.run("cancellation_step", async |conn| lease.value(conn).await.optional()).await?;
        let Some(webhook_id) = leased else { return Ok(None) };
        // A process that is still at a step after its lease has ended has locked the task.
        let row = webhook_tasks::table.find(webhook_id).select((webhook_tasks::cursor, webhook_tasks::until));
        let lock = row.for_update().skip_locked();
        let step = self.run("cancellation_step", async |conn| {
            conn.transaction(async |conn| {
                conn.batch_execute(STEP_LOCKS).await?;
                let locked: Option<(Uuid, Option<OffsetDateTime>)> = lock.first(conn).await.optional()?;
                let Some((cursor, until)) = locked else { return Ok(Step::default()) };
                let (step, next) = cancel_some(conn, webhook_id, (cursor, until)).await?;
                match next {
                    Some(cursor) => {
                        let go_on = sql(GO_ON).bind(webhook_id).bind(cursor);
                        go_on.bind(pause.as_secs_f64()).execute(conn).await?;
                    }
                    None => {
                        diesel::delete(webhook_tasks::table.find(webhook_id)).execute(conn).await?;
                    }
                }
                Ok(step)
            })
            .await
        });
        let soon = sql(format!(
            "UPDATE webhook_tasks AS t SET leased_until = now() + {AFTER_FAILURE} FROM ( \
               SELECT webhook_id FROM webhook_tasks WHERE webhook_id = $1 FOR UPDATE SKIP LOCKED \
             ) AS free WHERE t.webhook_id = free.webhook_id"
        ));
        let soon = soon.bind(webhook_id);
        self.step_taken(step.await, async |conn| soon.execute(conn).await).await
    }

    /// What a leased step has come to. One that failed is made due again soon by `soon`, which waits for no lock: somebody
    /// may hold that of its row for long. Where it does not come to it, the lease ends by itself.
    pub(crate) async fn step_taken<F>(
        &self,
        step: Result<Step, LedgerError>,
        soon: F,
    ) -> Result<Option<Step>, LedgerError>
    where
        F: AsyncFnOnce(&mut AsyncPgConnection) -> QueryResult<usize>,
    {
        if matches!(&step, Err(error) if !error.is_unavailable()) {
            let _ = self.run("step_taken", soon).await;
        }
        step.map(Some)
    }

    /// How many tasks and recoveries are under way.
    pub async fn tasks_count(&self) -> Result<Running, LedgerError> {
        self.run("tasks_count", async |conn| sql(COUNT).get_result(conn).await).await
    }
}

/// Whether deliveries of this webhook are being cancelled: because it is deleted, or because that was asked for.
#[diesel::dsl::auto_type(no_type_alias)]
pub(crate) fn cancelling(webhook: Uuid) -> _ {
    webhook_tasks::table.filter(webhook_tasks::webhook_id.eq(webhook))
}

/// The same, for a caller that has locked the webhook: nobody asks for a cancellation meanwhile, but one may end.
pub(crate) async fn is_cancelling(conn: &mut AsyncPgConnection, webhook: WebhookId) -> QueryResult<bool> {
    diesel::select(diesel::dsl::exists(cancelling(webhook.as_uuid()))).get_result(conn).await
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
) -> QueryResult<(Step, Option<Uuid>)> {
    let look = sql(LOOK_AT).bind(webhook).bind(cursor);
    let most = i64::try_from(LOOKED_AT).unwrap_or(i64::MAX);
    let look = look.bind(most).bind(until);
    let looked_at: Vec<(Uuid, bool)> = look.values(conn).await?;
    let waiting = looked_at.iter().filter(|(_, waits)| *waits).map(|(id, _)| *id);
    let waiting: Vec<Uuid> = waiting.take(CANCELLED).collect();
    let next = match waiting.last() {
        Some(last) if waiting.len() == CANCELLED => Some(*last),
        _ => looked_at.get(LOOKED_AT - 1).map(|(last, _)| *last),
    };
    let forget = sql(FORGET_HELD).bind(webhook);
    forget.bind(&waiting).execute(conn).await?;
    let cancelled = cancel_waiting(conn, &waiting).await?;
    Ok((Step { deliveries: cancelled, batch: None }, next))
}
