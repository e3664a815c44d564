//! Records attempts: one statement per batch (crates/README.md, the picture).

use std::{collections::HashSet, time::Duration};

use diesel::{
    prelude::*,
    sql_types::{BigInt, Binary, Bool, Nullable, SmallInt, Text, Timestamptz, Uuid as SqlUuid},
};
use diesel_async::RunQueryDsl;
pub use domain::Record;
use domain::{DeliveryId, DurationBucket, PostResult, Progress, Traceparent, WebhookId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    batch::{batch_statement, plan_with_values},
    connect::pool::Ledger,
    delivery::look_up::{ProgressRow, read_progress, read_state},
    error::LedgerError,
    tables::deliveries,
};

/// An attempt that was made.
#[derive(Clone, Debug)]
pub struct Attempted {
    /// The delivery.
    pub id: DeliveryId,
    /// Its webhook.
    pub webhook: WebhookId,
    /// The delivery's progress after this attempt.
    pub progress: Progress,
    /// The URL it was sent to.
    pub url: String,
    /// The `t` of the signature that was sent, in whole seconds. The signature itself is not stored.
    pub signed_at: OffsetDateTime,
    /// What came of it.
    pub answer: PostResult,
    /// The trace that its event belongs to, for the log. It is not recorded again.
    pub traceparent: Option<Traceparent>,
}

batch_statement! {
    RecordAttempts -> (SqlUuid, Text, Nullable<Timestamptz>);
    made {
        delivery_id: Uuid => SqlUuid, webhook_id: Uuid => SqlUuid,
        attempt: i16 => SmallInt, run: i16 => SmallInt, new_state: String => Text,
        first_failed_at: Option<OffsetDateTime> => Nullable<Timestamptz>,
        next_attempt_at: Option<OffsetDateTime> => Nullable<Timestamptz>,
        started_at: OffsetDateTime => Timestamptz, finished_at: OffsetDateTime => Timestamptz,
        duration_us: i64 => BigInt, bucket: i16 => SmallInt, outcome: String => Text, status: Option<i16> => Nullable<SmallInt>,
        response_body: Vec<u8> => Binary, error: Option<String> => Nullable<Text>,
        url: String => Text, signed_at: OffsetDateTime => Timestamptz,
    };
    include_str!("record_attempts.sql")
}

batch_statement! {
    FindRecorded -> (SqlUuid, (Text, SmallInt, SmallInt, Nullable<Timestamptz>, Nullable<Timestamptz>), Bool);
    made as arrays {
        delivery_id: Uuid => SqlUuid, attempt: i16 => SmallInt,
        started_at: OffsetDateTime => Timestamptz, duration_us: i64 => BigInt,
    };
    include_str!("find_recorded.sql")
}

type RecordedRow = (Uuid, ProgressRow, bool);

/// The constraint that a delivery violates that is gone (`record_attempts.sql`).
const DELIVERY_IS_KNOWN: &str = "delivery_is_known";

impl Ledger {
    /// Records attempts, the deliveries' progress and the webhooks' health in one transaction, and in one more for each
    /// further attempt at the same delivery. Returns what became of each, in their order. Idempotent: only an attempt that
    /// the ledger expects changes anything. A repeated call returns the same unless the ledger has later attempts.
    ///
    /// # Errors
    /// When the database does not answer. It is then unknown what was recorded, and the call can be repeated. Or when an
    /// attempt's own data is not taken ([`LedgerError::of_row`]); others may be recorded.
    pub async fn attempts_record(&self, made: &[Attempted]) -> Result<Vec<Record>, LedgerError> {
        let mut records = vec![None; made.len()];
        // Several deliveries are always locked in the order of ids.
        let mut rest: Vec<usize> = (0..made.len()).collect();
        rest.sort_unstable_by_key(|place| (made[*place].id, made[*place].progress.attempts));
        while !rest.is_empty() {
            let (mut now, mut later) = (Vec::with_capacity(rest.len()), Vec::new());
            for of_one in rest.chunk_by(|one, next| made[*one].id == made[*next].id) {
                now.push(of_one[0]);
                later.extend(&of_one[1..]);
            }
            // A delivery occurs once in `now`, and so do its records.
            let mut note = |of: Vec<(DeliveryId, Record)>| {
                for (id, record) in of {
                    if let Ok(at) = now.binary_search_by_key(&id, |place| made[*place].id) {
                        records[now[at]] = Some(record);
                    }
                }
                now.iter().filter(|place| records[**place].is_none()).map(|place| &made[*place]).collect::<Vec<_>>()
            };
            let missed = note(self.record_distinct(now.iter().map(|place| &made[*place]).collect()).await?);
            if !missed.is_empty() {
                note(self.records_find(&missed).await?);
            }
            rest = later;
        }
        Ok(records.into_iter().map(|record| record.unwrap_or(Record::Unknown)).collect())
    }

    /// Records those attempts that the ledger expects. They are at different deliveries, in the order of ids.
    async fn record_distinct(&self, mut made: Vec<&Attempted>) -> Result<Vec<(DeliveryId, Record)>, LedgerError> {
        let mut has_days = false;
        loop {
            let (mut statement, count) = (RecordAttempts::default(), made.len());
            for attempted in &made {
                statement.push(attempted);
            }
            let rows: Result<Vec<(Uuid, String, _)>, _> =
                self.run("record_distinct", async |conn| (&statement).load(conn).await).await;
            match rows {
                Ok(rows) => {
                    let taken = |(id, state, next_attempt_at): (Uuid, String, _)| {
                        Ok((
                            id.into(),
                            Record::Taken { state: read_state(&state).map_err(unreadable)?, next_attempt_at },
                        ))
                    };
                    return rows.into_iter().map(taken).collect();
                }
                Err(error) if error.constraint() == Some(DELIVERY_IS_KNOWN) => {
                    let known = self.deliveries_known(&made).await?;
                    made.retain(|attempted| known.contains(&attempted.id.as_uuid()));
                    if made.len() == count {
                        return self.judged(&statement, Err(error)).await;
                    }
                }
                // The day may lack partitions: their creation was interrupted, or they were dropped.
                Err(error) => {
                    let times: Vec<_> = made.iter().map(|attempted| attempted.id.occurred_at()).collect();
                    if has_days || !self.days_made(&error, &times).await? {
                        return self.judged(&statement, Err(error)).await;
                    }
                    has_days = true;
                }
            }
        }
    }

    async fn deliveries_known(&self, made: &[&Attempted]) -> Result<HashSet<Uuid>, LedgerError> {
        let ids: Vec<_> = made.iter().map(|attempted| attempted.id.as_uuid()).collect();
        let known = deliveries::table.filter(deliveries::id.eq_any(ids)).select(deliveries::id);
        let known: Vec<Uuid> = self
            .transaction("deliveries_known", async |conn| {
                plan_with_values(conn).await?;
                known.load(conn).await
            })
            .await?;
        Ok(known.into_iter().collect())
    }

    /// Finds what the ledger has of attempts that it did not expect.
    async fn records_find(&self, made: &[&Attempted]) -> Result<Vec<(DeliveryId, Record)>, LedgerError> {
        let mut statement = FindRecorded::default();
        for attempted in made {
            statement.delivery_id.push(attempted.id.as_uuid());
            statement.attempt.push(attempt_number(attempted));
            statement.started_at.push(attempted.answer.started_at);
            statement.duration_us.push(microseconds(attempted.answer.elapsed));
        }
        let find = self.transaction("records_find", async |conn| {
            plan_with_values(conn).await?;
            (&statement).load(conn).await
        });
        let rows = find.await;
        let rows: Vec<RecordedRow> = self.judged(&statement, rows).await?;
        let read = |(id, progress, is_latest): RecordedRow| {
            let progress = read_progress(progress).map_err(unreadable)?;
            Ok((id.into(), if is_latest { Record::taken(&progress) } else { Record::Superseded(progress) }))
        };
        rows.into_iter().map(read).collect()
    }
}

fn unreadable(column: &'static str) -> LedgerError {
    LedgerError::Unreadable { column }
}

fn attempt_number(attempted: &Attempted) -> i16 {
    i16::try_from(attempted.progress.attempts).unwrap_or(i16::MAX)
}

fn microseconds(elapsed: Duration) -> i64 {
    i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX)
}

impl RecordAttempts {
    fn push(&mut self, attempted: &Attempted) {
        let answer = &attempted.answer;
        let Progress { state, run_base, first_failed_at, next_attempt_at, .. } = attempted.progress;
        self.delivery_id.push(attempted.id.as_uuid());
        self.webhook_id.push(attempted.webhook.as_uuid());
        self.attempt.push(attempt_number(attempted));
        self.run.push(i16::try_from(run_base).unwrap_or(i16::MAX));
        self.new_state.push(state.to_string());
        self.url.push(attempted.url.clone());
        self.signed_at.push(attempted.signed_at);
        self.first_failed_at.push(first_failed_at);
        self.next_attempt_at.push(next_attempt_at);
        self.started_at.push(answer.started_at);
        self.finished_at.push(answer.finished_at());
        self.duration_us.push(microseconds(answer.elapsed));
        self.bucket.push(DurationBucket::of(answer.elapsed).number().into());
        self.outcome.push(answer.class.to_string());
        self.status.push(answer.status.and_then(|status| i16::try_from(status).ok()));
        self.response_body.push(answer.head.clone());
        self.error.push(answer.error.clone());
    }
}
