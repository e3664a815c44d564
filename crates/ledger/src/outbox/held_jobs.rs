//! Releases held jobs: jobs that wait in the ledger, without a message, as their webhook is paused or too slow.

use std::collections::HashMap;

use diesel::{prelude::*, sql_types::Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use uuid::Uuid;

use crate::{
    batch::batch_statement,
    connect::pool::Ledger,
    delivery::waiting::due_now,
    error::LedgerError,
    outbox::{
        add_leased,
        tasks::{STEP_LOCK_TIMEOUT, TaskStep},
    },
    statement::sql,
};

// Writes the rows of deliveries, as publishing their jobs does.
batch_statement! {
    TouchDeliveries -> (SqlUuid,);
    job { delivery: Uuid => SqlUuid };
    " UPDATE deliveries AS d SET next_attempt_at = d.next_attempt_at FROM job WHERE d.id = job.delivery RETURNING d.id"
}

/// Deletes held jobs of a webhook. Locks them in the order in which jobs are held and released.
pub(crate) const DELETE_HELD: &str = "DELETE FROM held_jobs WHERE webhook_id = $1 AND delivery_id = ANY (ARRAY( \
       SELECT delivery_id FROM held_jobs WHERE webhook_id = $1 AND delivery_id = ANY ($2) ORDER BY delivery_id FOR UPDATE))";
const LOCK_READY_WEBHOOKS: &str = "SELECT webhook_id FROM held_webhooks WHERE release_at <= now() \
     ORDER BY release_at LIMIT $1 FOR UPDATE SKIP LOCKED";
const MAX_WEBHOOKS: i32 = 200;
/// The next jobs of the webhook that comes next.
const FIND_NEXT: &str = "SELECT h.webhook_id, h.delivery_id FROM ( \
       SELECT webhook_id FROM held_webhooks WHERE release_at <= now() ORDER BY release_at LIMIT 1) AS w \
     JOIN held_jobs AS h USING (webhook_id) ORDER BY h.webhook_id, h.delivery_id LIMIT $1";
/// A webhook whose jobs cannot be published comes after all others.
const POSTPONE_WEBHOOK: &str =
    "UPDATE held_webhooks SET release_at = now() + interval '10 seconds' WHERE webhook_id = $1";

const RELEASE_JOBS: &str = include_str!("release_jobs.sql");
/// Makes the held jobs of a webhook due, at the highest rate.
const RELEASE_ALL: &str = "INSERT INTO held_webhooks AS h (webhook_id, batch, released_at, release_at) VALUES ($1, 1000000, now(), now()) \
     ON CONFLICT (webhook_id) DO UPDATE SET release_at = now()";

impl Ledger {
    /// Releases held jobs that are due, of active webhooks, the oldest of each first, at most `per_second` of one webhook
    /// and some 1,000 in all. Makes their deliveries due now and adds the jobs to the outbox. Returns `None` when
    /// there is nothing to do. Any number of processes may call this. If the statement fails, it is tried with one webhook.
    /// If that fails by the data of some rows, the jobs of these rows are held no longer: lost-job detection publishes them.
    /// Otherwise the webhook is postponed.
    ///
    /// # Errors
    /// When the database does not answer, or a statement has failed. Then nothing was published.
    pub async fn jobs_release(&self, per_second: u16) -> Result<Option<TaskStep>, LedgerError> {
        match self.jobs_release_of(MAX_WEBHOOKS, per_second).await {
            Err(LedgerError::Query(_)) => {}
            done => return done,
        }
        let of_one = self.jobs_release_of(1, per_second).await;
        if let Err(LedgerError::Query(_)) = of_one {
            self.release_faulty(per_second).await?;
        }
        of_one
    }

    /// Releases the next jobs that have faulty rows. Postpones their webhook if there are none.
    async fn release_faulty(&self, most: u16) -> Result<(), LedgerError> {
        let next = sql(FIND_NEXT).bind(i32::from(most));
        let next: Vec<(Uuid, Uuid)> = self.run("release_faulty", async |conn| next.values(conn).await).await?;
        let Some((webhook, _)) = next.as_slice().first().copied() else { return Ok(()) };
        let jobs: Vec<Uuid> = next.into_iter().map(|(_, delivery)| delivery).collect();
        let faulty = self.faulty(&jobs).await?;
        if faulty.is_empty() {
            let postpone = sql(POSTPONE_WEBHOOK).bind(webhook);
            return self.run("release_faulty", async |conn| postpone.execute(conn).await.map(|_| ())).await;
        }
        tracing::error!(%webhook, deliveries = ?faulty, "held jobs cannot be published by the data of their rows: they are left to lost-job detection");
        let release = sql(DELETE_HELD).bind(webhook).bind(faulty);
        self.run("release_faulty", async |conn| release.execute(conn).await.map(|_| ())).await
    }

    /// Returns the deliveries whose rows cannot be written for their own data.
    async fn faulty(&self, deliveries: &[Uuid]) -> Result<Vec<Uuid>, LedgerError> {
        let (mut parts, mut faulty) = (vec![deliveries], Vec::new());
        while let Some(part) = parts.pop() {
            let statement = TouchDeliveries { delivery: part.to_vec() };
            let touched = self.run("faulty", async |conn| (&statement).load::<(Uuid,)>(conn).await).await;
            match (self.judged(&statement, touched).await, part) {
                (Ok(_), _) => {}
                (Err(error), [delivery]) if error.of_row().is_some() => faulty.push(*delivery),
                (Err(error), _) if error.of_row().is_some() => {
                    let (one, other) = part.split_at(part.len() / 2);
                    parts.extend([other, one]);
                }
                (Err(error), _) => return Err(error),
            }
        }
        Ok(faulty)
    }

    async fn jobs_release_of(&self, webhooks: i32, per_second: u16) -> Result<Option<TaskStep>, LedgerError> {
        self.transaction("jobs_release_of", async |conn| {
            conn.batch_execute(STEP_LOCK_TIMEOUT).await?;
            let ready: Vec<Uuid> = sql(LOCK_READY_WEBHOOKS).bind(webhooks).values(conn).await?;
            if ready.is_empty() {
                return Ok(None);
            }
            let release = sql(RELEASE_JOBS).bind(i32::from(per_second)).bind(ready);
            let delivery_counts: HashMap<Uuid, i16> = release.values(conn).await?.into_iter().collect();
            let released: Vec<Uuid> = delivery_counts.keys().copied().collect();
            let waiting = due_now(conn, &released).await?;
            let batch = add_leased(conn, &waiting, &delivery_counts).await?;
            Ok(Some(TaskStep { deliveries: waiting.len(), batch: Some(batch) }))
        })
        .await
    }
}

/// Releases the held jobs of a webhook that is becoming active. The caller has locked the webhook.
pub(crate) async fn release_all(conn: &mut AsyncPgConnection, webhook: Uuid) -> QueryResult<usize> {
    sql(RELEASE_ALL).bind(webhook).execute(conn).await
}
