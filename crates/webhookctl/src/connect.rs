//! The servers of a command. A warning goes to standard error: standard output is for scripts.

use broker::Broker;
use ledger::{Ledger, SchemaState};
use service_kit::{
    Settings, SettingsError,
    connections::{self, SchemaTooOld},
};

use crate::{PROCESS, away, output};

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

/// Fails when the database lacks migrations.
pub(crate) async fn require_schema(ledger: &Ledger) -> anyhow::Result<()> {
    match away::database(ledger.schema_check().await)? {
        SchemaState::Current => Ok(()),
        SchemaState::Behind(missing) => Err(SchemaTooOld { missing }.into()),
    }
}

fn warn(warning: Option<String>) {
    if let Some(warning) = warning {
        output::error(format_args!("{PROCESS}: warning: {warning}"));
    }
}
