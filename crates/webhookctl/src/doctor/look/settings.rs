//! The settings, as the services use them.

use broker::Broker;
use egress::{Egress, EgressConfig};
use ledger::{Ledger, SecretKeys};
use service_kit::{
    Settings, SettingsError, connections,
    settings::{Key, SessionBackEnd},
};

use super::{super::observed::SettingsSeen, PATIENCE, error_chain};
use crate::PROCESS;

/// Connections for looks at the same time.
const CONNECTIONS: usize = 4;

/// What can be made of the settings.
pub(super) struct Usable {
    pub(super) seen: SettingsSeen,
    pub(super) ledger: Option<Ledger>,
    pub(super) keys: Option<SecretKeys>,
    pub(super) broker: Option<Broker>,
}

/// Makes what the services make at their start, and keeps what each of them would complain of. `missing` are required
/// settings that nobody has set: what needs one is not made.
pub(super) fn look(settings: &Settings, missing: &[Key]) -> Usable {
    let mut faults = Vec::new();
    let mut keep = |fault: SettingsError| faults.push(error_chain(&fault));
    let required = |key: &str| match missing.iter().any(|missing| missing.path() == key) {
        true => Err(SettingsError::missing(key)),
        false => Ok(()),
    };
    let ledger = required("database.url")
        .and_then(|()| connections::ledger_with(settings, PROCESS, CONNECTIONS))
        .and_then(|ledger| connections::part_of_ledger(&ledger, CONNECTIONS, PATIENCE));
    let ledger = ledger.map_err(&mut keep).ok();
    let broker = required("broker.url").and_then(|()| connections::broker(settings, PROCESS));
    let broker = broker.map_err(&mut keep).ok();
    let keys = connections::secret_keys(settings).map_err(&mut keep).ok();
    if settings.api.sessions == SessionBackEnd::Introspection {
        let _ = settings.introspection_url().map_err(&mut keep);
    }
    let _ = egress(settings).map_err(&mut keep);
    let seen = SettingsSeen {
        faults,
        exempt: settings.egress.allowed_networks.iter().map(ToString::to_string).collect(),
        grace: settings.reconcile.grace,
        keep: settings.retention.keep,
        max_connections: settings.database.max_connections,
    };
    Usable { seen, ledger, keys, broker }
}

/// Checks what dispatchers make of the section `egress`.
fn egress(settings: &Settings) -> Result<(), SettingsError> {
    let egress = &settings.egress;
    let config = EgressConfig {
        timeout: egress.timeout,
        destinations: egress.destinations(),
        name_servers: egress.name_servers.clone(),
        extra_ca_pem: egress.extra_ca_pem()?,
        idle_timeout: egress.idle_timeout,
        max_idle_per_host: egress.max_idle_per_host,
        max_idle: egress.max_idle,
        user_agent: PROCESS.to_owned(),
    };
    Egress::new(config).map(drop).map_err(|error| SettingsError::invalid("egress.extra_ca_file", error))
}
