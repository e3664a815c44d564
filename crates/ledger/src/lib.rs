#![doc = include_str!("../README.md")]

mod attempts;
mod batch;
mod deliveries;
mod error;
mod holds;
mod intake;
mod pool;
mod promises;
mod recoveries;
mod resends;
mod schema;
mod secrets;
mod sessions;
mod tables;
mod webhooks;

pub use attempts::{Attempted, Destination, Due, Outcome, Standing};
pub use deliveries::{Attempt, Delivery, DeliveryFilter};
pub use error::LedgerError;
pub use intake::{NewDelivery, NewEvent, Subscriber};
pub use pool::{Ledger, LedgerConfig};
pub use promises::LEASE;
pub use recoveries::Recovery;
pub use resends::{Before, Resend};
pub use schema::SchemaState;
pub use secrets::{SealedSecret, SecretKeys, SecretKeysError, UnsealError};
pub use sessions::{NewSession, Session, SessionHash};
pub use webhooks::{NewWebhook, Page, Webhook, WebhookChange};
