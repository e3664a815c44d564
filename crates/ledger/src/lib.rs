#![doc = include_str!("../README.md")]

mod address;
mod admin;
mod batch;
mod clock;
mod connect;
mod error;
mod hosts;
mod hot;
mod keys;
mod migrations;
mod names;
mod pool;
mod row_fault;
mod schema;
mod secrets;
mod session;
mod settings;
mod statement;
mod tables;
mod timings;
mod turns;
mod upkeep;

pub use address::LedgerConfig;
pub use admin::{
    brakes::Brake,
    cancellations::Cancellation,
    deletions::DeletedWebhook,
    deliveries::{Attempt, Delivery, DeliveryFilter, DeliveryPage},
    erasure::{Erased, Erasure, erased_tables},
    events::{Absence, EventAtWebhook, FoundEvent, FoundEvents},
    history::{Action, Actor},
    outbox::{LEASE, OutboxBatch, Promised},
    records::HistoryEntry,
    recoveries::{NewRecovery, Recover, Recoverable, RecoverableCount, RecoverableWebhook, Recovery},
    resends::{Kept, Resend},
    sessions::{NewSession, Session, SessionHash},
    stats::{HourCounts, StatsStep, Tally},
    tasks::{Running, Step},
    tenants::{Counted, SETTLING, TenantCondition},
    test_deliveries::TestDelivery,
    webhooks::{Backlog, Most, NewWebhook, OwnWebhook, Page, Registration, Webhook, WebhookHealth},
};
pub use clock::ClockReading;
pub use error::{LedgerError, TlsOptionError};
pub use hot::{
    attempts::{Attempted, Record},
    held_jobs::{Held, ReleaseRate},
    intake::{NewEvent, Stored},
    look_up::{Destination, LoadedDelivery, StoredBody},
};
pub use keys::{KeyUse, Resealed, Unopened};
pub use pool::{Connections, Ledger, PATIENCE};
pub use schema::{MigrationsSeen, SchemaState};
pub use secrets::{SealedSecret, SecretKeys, SecretKeysError, UnsealError};
pub use settings::WebhookSettings;
pub use upkeep::{
    condition::{
        ConnectionsSeen, DaysSeen, GenerationSeen, ServerCondition,
        top::{Top, WebhookAttempts, WebhookFailures, WebhookHeld},
        work::{AttemptsSeen, OverdueSeen, RetriesSeen, WorkSeen},
    },
    failing::FailingThresholds,
    find_waiting::{Place, Stream, Waiting, WaitingChunk},
    generation::{Generation, RebuildCursor},
    leader::{Candidate, Leader},
    leftovers::{Cleared, retained_tables},
    partitions::Day,
    retention::{Expiring, Part, Removal, Removed},
    untried::Indexed,
};
