#![doc = include_str!("../README.md")]

mod attempts;
mod batch;
mod error;
mod intake;
mod pool;
mod schema;
mod secrets;
mod sessions;
mod tables;
mod webhooks;

pub use attempts::{Attempted, Destination, Due};
pub use error::LedgerError;
pub use intake::{NewDelivery, NewEvent, Subscriber};
pub use pool::{Ledger, LedgerConfig};
pub use schema::SchemaState;
pub use secrets::{SealedSecret, SecretKeys, SecretKeysError, UnsealError};
pub use sessions::{NewSession, Session, SessionHash};
pub use webhooks::{NewWebhook, Page, Webhook};
