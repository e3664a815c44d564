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
mod trials;
mod webhooks;

pub use attempts::{Attempted, Destination, Due, Outcome, Standing};
pub use deliveries::{Attempt, Delivery, DeliveryFilter};
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
