//! The settings, as the services use them.

use broker::Broker;
use domain::error_chain;
use ledger::{Ledger, SecretKeys};
use service_kit::{
    Settings, SettingsError, connections,
    settings::{Key, SessionBackEnd},
};

use super::{super::observed::SettingsSeen, STEP_TIMEOUT};
use crate::PROCESS;

/// Connections for looks at the same time.
const MAX_CONNECTIONS: usize = 4;

/// The settings, and what can be made of them.
type Usable = (SettingsSeen, Option<Ledger>, Option<SecretKeys>, Option<Broker>);

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
        .and_then(|()| connections::ledger_with(settings, PROCESS, MAX_CONNECTIONS))
        .and_then(|ledger| connections::part_of_ledger(&ledger, MAX_CONNECTIONS, STEP_TIMEOUT));
    let ledger = ledger.map_err(&mut keep).ok();
    let broker = required("broker.url").and_then(|()| connections::broker(settings, PROCESS));
    let broker = broker.map_err(&mut keep).ok();
    let keys = connections::secret_keys(settings).map_err(&mut keep).ok();
    if settings.api.sessions == SessionBackEnd::Introspection {
        let _ = settings.introspection_url().map_err(&mut keep);
    }
    let authorities = settings.egress.extra_ca_pem().and_then(|pem| {
        let unusable = |error| SettingsError::invalid("egress.extra_ca_file", error);
        tls::client_config(pem.as_deref()).map(drop).map_err(unusable)
    });
    let _ = authorities.map_err(&mut keep);
    let _ = settings.console.log_in().map_err(&mut keep);
    let seen = SettingsSeen {
        faults,
        exempt: settings.egress.allowed_networks.iter().map(ToString::to_string).collect(),
        denied: settings.egress.denied_networks.iter().map(ToString::to_string).collect(),
        keep: settings.retention.keep,
        max_connections: settings.database.max_connections,
    };
    (seen, ledger, keys, broker)
}
