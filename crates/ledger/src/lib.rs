#![doc = include_str!("../README.md")]

mod api_keys;
mod batch;
mod connect;
mod delivery;
mod diagnostics;
mod error;
mod history;
mod leader;
mod lists;
mod log;
mod migrations;
mod notices;
mod outbox;
mod partitions;
mod recovery;
mod refusal;
mod schema;
mod secrets;
mod sessions;
mod statement;
mod stats;
mod tables;
mod tenant;
mod test_deliveries;
mod webhook;

pub use api_keys::{ApiKey, NewApiKey};
pub use connect::{
    address::LedgerConfig,
    clock::ClockReading,
    pool::{CALL_TIMEOUT, Connections, Ledger},
    tenant_queue::TenantPermit,
};
pub use delivery::{
    attempts::{Attempted, Record},
    brakes::Brake,
    hold::{JobToHold, ReleaseRate},
    intake::{NewEvent, Stored},
    look_up::{Destination, LoadedDelivery, StoredBody},
};
pub use diagnostics::{
    ConnectionsSeen, DaysSeen, GenerationSeen, ServerCondition,
    top::{Top, WebhookAttempts, WebhookFailures, WebhookHeld},
    work::{AttemptsSeen, OverdueSeen, RetriesSeen, WorkSeen},
};
pub use error::{LedgerError, TlsOptionError};
pub use history::{Action, Actor, HistoryEntry};
pub use leader::{
    Candidate, Leader,
    find_waiting::{Stream, StreamPosition, Waiting, WaitingChunk},
    generation::{Generation, RebuildCursor},
    leftovers::{Cleared, retained_tables},
    retention::{DayPart, Removal, Removed},
    untried::Indexed,
};
pub use lists::Page;
pub use log::{
    Attempt, Delivery, DeliveryFilter, DeliveryPage, LastAttempt, ListedDelivery,
    event::{Absence, EventAtWebhook, FoundEvent, FoundEvents},
};
pub use notices::{expiring::Expiring, failing::FailingThresholds};
pub use outbox::{
    OUTBOX_LEASE, OutboxBatch, PromisedJob,
    tasks::{RunningTasks, TaskStep},
};
pub use partitions::Day;
pub use recovery::{
    NewRecovery, Recover, Recoverable, RecoverableCount, RecoverableWebhook, Recovery, resends::RetentionTimes,
};
pub use refusal::Refusal;
pub use schema::MigrationsSeen;
pub use secrets::{
    SealedField, SealedHeaders, SealedSecret, SecretKeys, SecretKeysError, UnsealError,
    keys::{KeyUse, Resealed, Unopened},
};
pub use sessions::{CredentialHash, NewSession, Session};
pub use stats::{HourCounts, StatsStep, Tally};
pub use tenant::{
    CountedDeliveries, TenantCondition,
    erasure::{Erased, Erasure, erased_tables},
};
pub use webhook::{
    Backlog, NewWebhook, OwnWebhook, SETTLE_TIME, Webhook, WebhookFilter, WebhookHealth, WebhookLimits,
    deletions::DeletedWebhook,
    headers::{NewHeaders, WebhookHeaders},
    settings::WebhookSettings,
};
