//! The transactional outbox (`promised_jobs`). A transaction adds the jobs that it asks for, and nothing takes them
//! back. An outbox relay leases a job, publishes it, and deletes it once the broker has confirmed it. If the relay's
//! process dies, the lease ends, and another relay continues. A step (of a recovery, or of held jobs) adds its jobs
//! leased by its own process, which publishes them.

pub(crate) mod held_jobs;
pub(crate) mod tasks;

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use diesel::{
    prelude::*,
    sql_types::{Double, Int4, SmallInt, Timestamptz, Uuid as SqlUuid},
};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use domain::{DeliveryId, Job};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    batch::batch_statement,
    connect::{clock::sql::now, pool::Ledger},
    delivery::waiting::due_now,
    error::LedgerError,
    statement::sql,
    tables::promised_jobs,
};

/// The time to publish jobs after they were added or leased, by the database's clock.
pub const OUTBOX_LEASE: Duration = Duration::from_secs(30);

/// A job of the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PromisedJob {
    /// The job.
    pub job: Job,
    /// The number of its deliveries by the broker before it was held.
    pub delivery_count: u32,
}

/// An entry of the outbox: its delivery, the end of its lease, and the number of the job's deliveries by the broker.
type LeasedEntry = (Uuid, OffsetDateTime, i16);

/// Jobs that the caller has to publish, and then delete from the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxBatch {
    pub(crate) ids: Vec<Uuid>,
    /// The end of the lease, which tells these entries from later ones of the same deliveries.
    pub(crate) until: OffsetDateTime,
    jobs: Vec<PromisedJob>,
}

impl OutboxBatch {
    pub(crate) const EMPTY: Self = Self { ids: Vec::new(), until: OffsetDateTime::UNIX_EPOCH, jobs: Vec::new() };

    /// Leased entries, and the jobs of those deliveries that wait, given with their numbers of attempts made.
    fn of(entries: &[LeasedEntry], waiting: &[(Uuid, i16)]) -> Self {
        let delivery_counts: HashMap<Uuid, i16> = entries.iter().map(|(id, _, times)| (*id, *times)).collect();
        let promised = |(id, attempts): &(Uuid, i16)| PromisedJob {
            job: next_job(*id, *attempts),
            delivery_count: delivery_counts.get(id).map_or(0, |times| u32::from(times.unsigned_abs())),
        };
        Self {
            ids: entries.iter().map(|(id, ..)| *id).collect(),
            until: entries.first().map_or(OffsetDateTime::UNIX_EPOCH, |(_, until, _)| *until),
            jobs: waiting.iter().map(promised).collect(),
        }
    }

    /// The jobs to publish.
    pub fn jobs(&self) -> &[PromisedJob] {
        &self.jobs
    }

    /// The batch without some of its jobs, which stay in the outbox.
    pub fn without<'a>(&self, jobs: impl IntoIterator<Item = &'a PromisedJob>) -> Self {
        let unpublished: HashSet<_> = jobs.into_iter().map(|one| one.job.delivery.as_uuid()).collect();
        let is_published = |id: &Uuid| !unpublished.contains(id);
        Self {
            ids: self.ids.iter().copied().filter(is_published).collect(),
            until: self.until,
            jobs: self.jobs.iter().copied().filter(|one| is_published(&one.job.delivery.as_uuid())).collect(),
        }
    }

    /// Whether there is nothing to publish and nothing to delete.
    pub const fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

batch_statement! {
    LeaseOutbox -> (SqlUuid, Timestamptz, SmallInt);
    lease { seconds: f64 => Double, most: i32 => Int4 };
    include_str!("outbox/lease_outbox.sql")
}

batch_statement! {
    AddLeased -> (SqlUuid, Timestamptz, SmallInt);
    lease { seconds: f64 => Double }
    job { delivery: Uuid => SqlUuid, delivery_count: i16 => SmallInt };
    " INSERT INTO promised_jobs AS p (delivery_id, leased_until, delivery_count) \
      SELECT delivery, now() + seconds * interval '1 second', delivery_count FROM job, lease ORDER BY delivery \
      ON CONFLICT (delivery_id) DO UPDATE SET leased_until = excluded.leased_until, \
        delivery_count = greatest(p.delivery_count, excluded.delivery_count) \
      RETURNING delivery_id, leased_until, p.delivery_count"
}

const DELETE: &str = "DELETE FROM promised_jobs WHERE delivery_id = ANY (ARRAY( \
       SELECT delivery_id FROM promised_jobs WHERE delivery_id = ANY ($1) AND leased_until = $2 \
       ORDER BY delivery_id FOR UPDATE))";

impl Ledger {
    /// Leases up to `most` entries that nobody leases to the caller, for [`OUTBOX_LEASE`]. Makes their deliveries due now: the
    /// entries may be old, and lost-job detection must not take their jobs for lost. A delivery that is gone or waits no
    /// longer has no job: its entry is only deleted.
    ///
    /// # Errors
    /// When the database does not answer. Others may lease the entries immediately then, if the database hears of it.
    pub async fn outbox_lease(&self, most: u16) -> Result<OutboxBatch, LedgerError> {
        let statement = LeaseOutbox { seconds: vec![OUTBOX_LEASE.as_secs_f64()], most: vec![most.into()] };
        let leased: Vec<LeasedEntry> = self.run("outbox_lease", async |conn| statement.load(conn).await).await?;
        let Some((_, until, _)) = leased.as_slice().first().copied() else { return Ok(OutboxBatch::EMPTY) };
        let ids: Vec<Uuid> = leased.iter().map(|(id, ..)| *id).collect();
        // Others lock deliveries before their entries here. The lease needs no lock any more.
        let waiting = self.transaction("outbox_lease", async |conn| due_now(conn, &ids).await).await;
        if waiting.is_err() {
            let ours = promised_jobs::delivery_id.eq_any(&ids).and(promised_jobs::leased_until.eq(until));
            let release = diesel::update(promised_jobs::table.filter(ours)).set(promised_jobs::leased_until.eq(now()));
            _ = self.run("outbox_lease", async |conn| release.execute(conn).await).await;
        }
        Ok(OutboxBatch::of(&leased, &waiting?))
    }

    /// Deletes entries whose jobs the broker has confirmed. Those added or leased again meanwhile stay.
    ///
    /// # Errors
    /// When the database does not answer. The jobs are then published again as duplicates, and found stale.
    pub async fn outbox_delete(&self, batch: &OutboxBatch) -> Result<(), LedgerError> {
        let query = sql(DELETE).bind(&batch.ids).bind(batch.until);
        self.run("outbox_delete", async |conn| query.execute(conn).await.map(|_| ())).await
    }
}

/// Adds the next attempt of a delivery, for the relay that is first to lease it. A relay that has leased an older entry
/// of the delivery does not delete this one.
pub(crate) async fn add_to_outbox(conn: &mut AsyncPgConnection, delivery: Uuid) -> QueryResult<()> {
    diesel::insert_into(promised_jobs::table)
        .values((promised_jobs::delivery_id.eq(delivery), promised_jobs::leased_until.eq(now())))
        .on_conflict(promised_jobs::delivery_id)
        .do_update()
        .set(promised_jobs::leased_until.eq(now()))
        .execute(conn)
        .await
        .map(|_| ())
}

/// Adds the next attempts of deliveries that wait, given with their numbers of attempts made. `delivery_counts` are the
/// numbers of deliveries of jobs by the broker that are not 0. The caller leases the jobs for [`OUTBOX_LEASE`], even those that are already in the outbox.
pub(crate) async fn add_leased(
    conn: &mut AsyncPgConnection,
    waiting: &[(Uuid, i16)],
    delivery_counts: &HashMap<Uuid, i16>,
) -> QueryResult<OutboxBatch> {
    if waiting.is_empty() {
        return Ok(OutboxBatch::EMPTY);
    }
    let delivery: Vec<Uuid> = waiting.iter().map(|(id, _)| *id).collect();
    let delivery_count = delivery.iter().map(|id| delivery_counts.get(id).copied().unwrap_or_default()).collect();
    let statement = AddLeased { seconds: vec![OUTBOX_LEASE.as_secs_f64()], delivery, delivery_count };
    let entries: Vec<LeasedEntry> = statement.load(conn).await?;
    Ok(OutboxBatch::of(&entries, waiting))
}

fn next_job(delivery: Uuid, attempts: i16) -> Job {
    Job { delivery: DeliveryId::from(delivery), attempt: u16::try_from(attempts).unwrap_or_default() + 1 }
}
