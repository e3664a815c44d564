//! The servers of a command. A warning goes to standard error: standard output is for scripts.

use std::time::Duration;

use broker::Broker;
use egress::{EgressError, Internal, InternalConfig};
use ledger::Ledger;
use service_kit::{SchemaTooOld, Settings, SettingsError, connections};

use crate::{PROCESS, output, server_error};

/// The longest body that is read, in bytes: of an answer, such as one about some 50,000 queues, and of a delivery.
pub(crate) const LONGEST_BODY: usize = 16 * 1024 * 1024;

/// The ledger, with a warning if the way to it is not encrypted. Nothing is connected yet.
pub(crate) fn ledger(settings: &Settings) -> Result<Ledger, SettingsError> {
    let ledger = connections::ledger(settings, PROCESS)?;
    warn(connections::unencrypted_ledger(&ledger));
    Ok(ledger)
}

/// The broker, likewise.
pub(crate) fn broker(settings: &Settings) -> Result<Broker, SettingsError> {
    let broker = connections::broker(settings, PROCESS)?;
    warn(connections::unencrypted_broker(&broker));
    Ok(broker)
}

/// A client of a program that the operator names.
pub(crate) fn client(url: &str, timeout: Duration, extra_ca_pem: Option<Vec<u8>>) -> Result<Internal, EgressError> {
    let (url, user_agent) = (url.to_owned(), PROCESS.to_owned());
    Internal::new(InternalConfig { url, timeout, extra_ca_pem, user_agent, answer_limit: LONGEST_BODY })
}

/// Fails when the database lacks migrations.
pub(crate) async fn require_schema(ledger: &Ledger) -> anyhow::Result<()> {
    let missing = server_error::database(ledger.migrations_missing().await)?;
    if missing.is_empty() { Ok(()) } else { Err(SchemaTooOld { missing }.into()) }
}

/// Writes warnings.
pub(crate) fn warn(warnings: impl IntoIterator<Item = String>) {
    for warning in warnings {
        output::error(format_args!("{PROCESS}: warning: {warning}"));
    }
}
