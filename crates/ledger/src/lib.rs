#![doc = include_str!("../README.md")]

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
mod schema;
mod secrets;
mod sessions;
mod statement;
mod stats;
mod tables;
mod tenant;
mod test_deliveries;
mod webhook;

pub use connect::{
    address::LedgerConfig,
    clock::ClockReading,
    pool::{Connections, Ledger, PATIENCE},
};
pub use delivery::{
    attempts::{Attempted, Record},
    brakes::Brake,
    hold::{Held, ReleaseRate},
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
    find_waiting::{Place, Stream, Waiting, WaitingChunk},
    generation::{Generation, RebuildCursor},
    leftovers::{Cleared, retained_tables},
    retention::{Part, Removal, Removed},
    untried::Indexed,
};
pub use lists::Page;
pub use log::{
    Attempt, Delivery, DeliveryFilter, DeliveryPage,
    event::{Absence, EventAtWebhook, FoundEvent, FoundEvents},
};
pub use notices::{expiring::Expiring, failing::FailingThresholds};
pub use outbox::{
    LEASE, OutboxBatch, Promised,
    tasks::{Running, Step},
};
pub use partitions::Day;
pub use recovery::{
    NewRecovery, Recover, Recoverable, RecoverableCount, RecoverableWebhook, Recovery,
    resends::{Kept, Resend},
};
pub use schema::{MigrationsSeen, SchemaState};
pub use secrets::{
    SealedSecret, SecretKeys, SecretKeysError, UnsealError,
    keys::{KeyUse, Resealed, Unopened},
};
pub use sessions::{NewSession, Session, SessionHash};
pub use stats::{HourCounts, StatsStep, Tally};
pub use tenant::{
    Counted, TenantCondition,
    erasure::{Erased, Erasure, erased_tables},
};
pub use test_deliveries::TestDelivery;
pub use webhook::{
    Backlog, Most, NewWebhook, OwnWebhook, Registration, SETTLING, Webhook, WebhookHealth, cancellation::Cancellation,
    deletions::DeletedWebhook, settings::WebhookSettings,
};
