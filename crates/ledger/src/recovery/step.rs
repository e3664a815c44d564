//! The steps of recoveries. If a process dies, another one continues.

use std::{collections::HashMap, time::Duration};

use diesel::prelude::*;
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use domain::TenantId;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    connect::pool::Ledger,
    delivery::{bodies::with_bodies, waiting::is_one_of},
    error::LedgerError,
    outbox::{
        add_leased,
        tasks::{FAILURE_DELAY, STEP_LEASE, STEP_LOCK_TIMEOUT, TaskStep},
    },
    recovery::{
        end_of_ids,
        resends::{MAX_RESEND_ATTEMPTS, begin, first_kept},
    },
    statement::{rows, sql},
    tables::{deliveries, recoveries},
};

/// A running recovery, leased for its next step.
struct LeasedRecovery {
    id: Uuid,
    tenant_id: Uuid,
    webhook_id: Uuid,
    created_at: OffsetDateTime,
    cursor: Uuid,
    states: Vec<String>,
    outcomes: Vec<String>,
    event_types: Vec<String>,
    until: Option<OffsetDateTime>,
}

rows! { LeasedRecovery { id, tenant_id, webhook_id, created_at, cursor, states, outcomes, event_types, until } }

/// Deliveries that a step looks at for each one that it may begin. Those made after the request are left out, and may
/// come as fast as a recovery goes on: it has to be faster to come to its end.
const READ_PER_RESEND: u16 = 10;

/// The due recovery of the tenant whose turn is next: of the tenants in the order of their ids, the one after `$1`.
const FIND_NEXT: &str = "SELECT r.id, w.tenant_id FROM recoveries AS r JOIN webhooks AS w ON w.id = r.webhook_id \
     WHERE r.finished_at IS NULL AND r.leased_until <= now() \
     ORDER BY w.tenant_id <= $1, w.tenant_id, r.leased_until LIMIT 1 FOR UPDATE OF r SKIP LOCKED";

const ADVANCE_RECOVERY: &str = "UPDATE recoveries SET cursor = $2, resent = resent + $3, \
       finished_at = CASE WHEN $4 THEN now() END, leased_until = now() + $5 * interval '1 second' \
     WHERE id = $1 AND finished_at IS NULL";

impl Ledger {
    /// Leases a running recovery and takes one step: up to `most` deliveries begin a fresh run, and their jobs are
    /// added to the outbox. Skips deliveries whose bodies are older than `bodies`. The recovery's next step is due after `pause`,
    /// whoever takes it. Returns `None` when there is nothing to do.
    ///
    /// Tenants take turns: the step is of the next tenant after `last_tenant`, which becomes this tenant.
    ///
    /// # Errors
    /// When the database does not answer. The step is then taken as a whole or not at all. Other recoveries come first.
    pub async fn recovery_step(
        &self,
        most: u16,
        pause: Duration,
        bodies: Duration,
        last_tenant: &mut Option<TenantId>,
    ) -> Result<Option<TaskStep>, LedgerError> {
        let lease = sql(format!(
            "UPDATE recoveries AS r SET leased_until = now() + {STEP_LEASE} FROM ({FIND_NEXT}) AS next WHERE r.id = next.id \
             RETURNING r.id, next.tenant_id, r.webhook_id, r.created_at, r.cursor, r.states, r.outcomes, r.event_types, \
                       r.until"
        ))
        .bind(last_tenant.map_or(Uuid::nil(), TenantId::as_uuid));
        let leased: Option<LeasedRecovery> =
            self.run("recovery_step", async |conn| lease.get_result(conn).await.optional()).await?;
        let Some(leased) = leased else { return Ok(None) };
        *last_tenant = Some(leased.tenant_id.into());
        let looked_at = most.saturating_mul(READ_PER_RESEND);
        let step = self.transaction("recovery_step", async |conn| {
            conn.batch_execute(STEP_LOCK_TIMEOUT).await?;
            if !leased.is_running(conn).await? {
                return Ok(TaskStep::default());
            }
            let first = first_kept(conn, bodies).await?;
            let candidates = leased.candidates(conn, first, looked_at).await?;
            let wanted: Vec<Uuid> = candidates.iter().filter(|(_, is_wanted)| *is_wanted).map(|(id, _)| *id).collect();
            let mut found = leased.unsuccessful(conn, &wanted, most).await?;
            let is_full = found.len() == usize::from(most);
            let cursor = if is_full { found.last().map(|(id, _)| *id) } else { candidates.last().map(|(id, _)| *id) };
            let ids: Vec<_> = found.iter().map(|(id, _)| *id).collect();
            let with_bodies = with_bodies(conn, &ids).await?;
            found.retain(|(id, _)| with_bodies.contains(id));
            let ids: Vec<_> = found.iter().map(|(id, _)| *id).collect();
            begin(conn, &ids).await?;
            let batch = add_leased(conn, &found, &HashMap::new()).await?;
            let is_finished = !is_full && candidates.len() < usize::from(looked_at);
            sql(ADVANCE_RECOVERY)
                .bind(leased.id)
                .bind(cursor.unwrap_or(leased.cursor))
                .bind(i32::try_from(ids.len()).unwrap_or_default())
                .bind(is_finished)
                .bind(pause.as_secs_f64())
                .execute(conn)
                .await?;
            Ok(TaskStep { deliveries: ids.len(), batch: Some(batch) })
        });
        let soon = sql(format!(
            "UPDATE recoveries AS r SET leased_until = now() + {FAILURE_DELAY} FROM ( \
               SELECT id FROM recoveries WHERE id = $1 AND finished_at IS NULL FOR UPDATE SKIP LOCKED \
             ) AS free WHERE r.id = free.id"
        ));
        let soon = soon.bind(leased.id);
        self.step_taken(step.await, async |conn| soon.execute(conn).await).await
    }
}

impl LeasedRecovery {
    /// Returns true if the recovery still runs, and nobody has taken a step since it was leased. A stop, or a deletion of its
    /// webhook, ends it, and waits until this transaction ends.
    async fn is_running(&self, conn: &mut AsyncPgConnection) -> QueryResult<bool> {
        let is_same = recoveries::finished_at.is_null().and(recoveries::cursor.eq(self.cursor));
        let running = recoveries::table.find(self.id).filter(is_same);
        let id: Option<Uuid> = running.select(recoveries::id).for_update().first(conn).await.optional()?;
        Ok(id.is_some())
    }

    /// The next deliveries to look at in the order of their ids, from `first` on, and whether each is wanted by its outcome and
    /// event type.
    async fn candidates(&self, conn: &mut AsyncPgConnection, first: Uuid, most: u16) -> QueryResult<Vec<(Uuid, bool)>> {
        // No delivery's id is the bound of its millisecond, so `first` itself need not be included.
        sql(concat!(include_str!("find_recoverable.sql"), " ORDER BY found.id LIMIT $5"))
            .bind(self.webhook_id)
            .bind(&self.states)
            .bind(self.cursor.max(first))
            .bind(end_of_ids(self.until))
            .bind(i64::from(most))
            .bind(&self.outcomes)
            .bind(&self.event_types)
            .values(conn)
            .await
    }

    /// The first `most` that are still in one of the states, with their attempts. Leaves out those made after the
    /// recovery was asked for, and those attempted too often.
    async fn unsuccessful(
        &self,
        conn: &mut AsyncPgConnection,
        ids: &[Uuid],
        most: u16,
    ) -> QueryResult<Vec<(Uuid, i16)>> {
        deliveries::table
            .filter(is_one_of(ids))
            .filter(deliveries::state.eq_any(&self.states))
            .filter(deliveries::created_at.le(self.created_at))
            .filter(deliveries::attempts.lt(MAX_RESEND_ATTEMPTS))
            .order(deliveries::id)
            .limit(most.into())
            .select((deliveries::id, deliveries::attempts))
            .for_update()
            .load(conn)
            .await
    }
}
