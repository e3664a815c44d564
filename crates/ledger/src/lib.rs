#![doc = include_str!("../README.md")]

mod attempts;
mod batch;
mod bodies;
mod deliveries;
mod due;
mod error;
mod holds;
mod intake;
mod pool;
mod postpone;
mod promises;
mod recoveries;
mod resends;
mod schema;
mod secrets;
mod sessions;
mod slow;
mod suspects;
mod tables;
mod trials;
mod webhooks;

pub use attempts::{Attempted, Outcome};
pub use deliveries::{Attempt, Delivery, DeliveryFilter};
pub use due::{Destination, Due, Loaded, Standing, StoredBody, Unreadable};
pub use error::LedgerError;
pub use intake::{NewDelivery, NewEvent, Subscriber};
pub use pool::{Ledger, LedgerConfig};
pub use promises::{LEASE, Promised};
pub use recoveries::Recovery;
pub use resends::{BegunResend, Resend};
pub use schema::SchemaState;
pub use secrets::{SealedSecret, SecretKeys, SecretKeysError, UnsealError};
pub use sessions::{NewSession, Session, SessionHash};
pub use trials::{BegunTrial, Trial};
pub use webhooks::{NewWebhook, OwnWebhook, Page, Webhook, WebhookChange};
