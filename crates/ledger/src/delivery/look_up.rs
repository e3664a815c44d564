//! What jobs need: one read per batch (crates/README.md, the picture).

use bytes::Bytes;
use diesel::sql_types::{BigInt, Binary, Bool, Nullable, SmallInt, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use domain::{DeliveryId, DeliveryState, EventId, EventType, Progress, TenantId, Traceparent, WebhookId, WebhookState};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    batch::batch_statement,
    connect::pool::Ledger,
    error::LedgerError,
    partitions::Week,
    secrets::{SealedHeaders, SealedSecret},
};

/// A delivery with all that an attempt needs, as the ledger has it.
#[derive(Clone, Debug)]
pub struct LoadedDelivery {
    /// The delivery.
    pub id: DeliveryId,
    /// How far it has come.
    pub progress: Progress,
    /// When it was stored, by the database's clock.
    pub created_at: OffsetDateTime,
    /// The event.
    pub event: EventId,
    /// The event type.
    pub event_type: EventType,
    /// Whether an administrator has asked for it as a test.
    pub is_test: bool,
    /// The exact body, or its length.
    pub body: StoredBody,
    /// The trace that its event belongs to.
    pub traceparent: Option<Traceparent>,
    /// Where it goes.
    pub destination: Destination,
}

impl LoadedDelivery {
    /// When its next attempt is due.
    pub fn due(&self) -> OffsetDateTime {
        self.progress.next_attempt_at.unwrap_or(self.created_at)
    }

    /// Returns whether no attempt was made, and the first one is due since the delivery was stored: it was neither postponed
    /// nor held, and the delivery was not resent.
    pub fn is_new(&self) -> bool {
        self.progress.attempts == 0 && self.due() == self.created_at
    }
}

/// A body as a batch loads it. A long one stays in the ledger until its attempt begins, so that a batch of jobs needs
/// little memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredBody {
    /// The exact bytes, up to 24 KiB.
    Here(Bytes),
    /// A longer body's length in bytes. [`Ledger::body_load`] loads it.
    Long(usize),
}

/// What an attempt needs of a webhook.
#[derive(Clone, Debug)]
pub struct Destination {
    /// The webhook.
    pub webhook: WebhookId,
    /// Its tenant.
    pub tenant: TenantId,
    /// Its URL, as it was written.
    pub url: String,
    /// Whether it takes deliveries.
    pub state: WebhookState,
    /// Its sealed signing secret.
    pub secret: SealedSecret,
    /// Its own headers.
    pub headers: SealedHeaders,
}

batch_statement! {
    LoadDeliveries -> (
        BigInt,
        (Text, SmallInt, SmallInt, Nullable<Timestamptz>, Nullable<Timestamptz>),
        (Timestamptz, SqlUuid, Text, Bool, BigInt, Nullable<Binary>, Nullable<Text>),
        (SqlUuid, SqlUuid, Text, Bool, Bool, (Text, Binary), (Nullable<Text>, Nullable<Binary>)),
    ), of week;
    jobs as arrays { delivery_id: Uuid => SqlUuid, occurred_at: OffsetDateTime => Timestamptz };
    concat!(include_str!("load_deliveries.sql"), include_str!("from_jobs.sql"))
}

/// A delivery's `state`, `attempts`, `run_base`, `first_failed_at` and `next_attempt_at`.
pub(crate) type ProgressRow = (String, i16, i16, Option<OffsetDateTime>, Option<OffsetDateTime>);

type LoadedRow = (
    i64,
    ProgressRow,
    (OffsetDateTime, Uuid, String, bool, i64, Option<Vec<u8>>, Option<String>),
    (Uuid, Uuid, String, bool, bool, (String, Vec<u8>), (Option<String>, Option<Vec<u8>>)),
);

impl Ledger {
    /// Loads deliveries: one result for each id, in their order. `None`: the ledger does not know it.
    ///
    /// # Errors
    /// When the database does not answer, or a row cannot be read ([`LedgerError::of_row`]).
    pub async fn deliveries_load(&self, ids: &[DeliveryId]) -> Result<Vec<Option<LoadedDelivery>>, LedgerError> {
        let mut sorted: Vec<_> = ids.iter().copied().enumerate().collect();
        sorted.sort_unstable_by_key(|(_, id)| *id);
        let mut loaded = vec![None; ids.len()];
        for of_week in sorted.chunk_by(|(_, one), (_, next)| Week::of(*one) == Week::of(*next)) {
            let delivery_id = of_week.iter().map(|(_, id)| id.as_uuid()).collect();
            let occurred_at = of_week.iter().map(|(_, id)| id.occurred_at()).collect();
            let statement = LoadDeliveries { week: Week::of(of_week[0].1), delivery_id, occurred_at };
            let rows = self.run("deliveries_load", async |conn| (&statement).load(conn).await).await;
            let rows: Vec<LoadedRow> = self.judged(&statement, rows).await?;
            for row in rows {
                let number = usize::try_from(row.0 - 1).ok();
                let Some((place, id)) = number.and_then(|number| of_week.get(number)) else { continue };
                loaded[*place] = Some(read_delivery(*id, row).map_err(|column| LedgerError::Unreadable { column })?);
            }
        }
        Ok(loaded)
    }
}

/// Reads the row of a delivery. The error names the unreadable column.
fn read_delivery(id: DeliveryId, (_, progress, event, webhook): LoadedRow) -> Result<LoadedDelivery, &'static str> {
    let (created_at, event, event_type, is_test, length, body, traceparent) = event;
    let (webhook, tenant, url, is_active, is_deleted, secret, headers) = webhook;
    let state = match (is_active, is_deleted) {
        (_, true) => WebhookState::Deleted,
        (false, false) => WebhookState::Paused,
        (true, false) => WebhookState::Active,
    };
    let length = usize::try_from(length).map_err(|_| "events.body")?;
    Ok(LoadedDelivery {
        id,
        progress: read_progress(progress)?,
        created_at,
        event: event.into(),
        is_test,
        event_type: event_type.parse().map_err(|_| "events.event_type")?,
        body: body.map_or(StoredBody::Long(length), |body| StoredBody::Here(body.into())),
        traceparent: traceparent.as_deref().and_then(Traceparent::parse),
        destination: Destination {
            webhook: webhook.into(),
            tenant: tenant.into(),
            url,
            state,
            secret: SealedSecret { key_id: secret.0, sealed: secret.1 },
            headers: SealedHeaders { key_id: headers.0, sealed: headers.1 },
        },
    })
}

/// Reads a delivery's progress. The error names the unreadable column.
pub(crate) fn read_progress(row: ProgressRow) -> Result<Progress, &'static str> {
    let (state, attempts, run_base, first_failed_at, next_attempt_at) = row;
    Ok(Progress {
        state: read_state(&state)?,
        attempts: u16::try_from(attempts).map_err(|_| "deliveries.attempts")?,
        run_base: u16::try_from(run_base).map_err(|_| "deliveries.run_base")?,
        first_failed_at,
        next_attempt_at,
    })
}

pub(crate) fn read_state(state: &str) -> Result<DeliveryState, &'static str> {
    state.parse().map_err(|_| "deliveries.state")
}
