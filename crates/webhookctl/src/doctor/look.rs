//! The look: it gathers what is seen, changes nothing, and gives every step a deadline.

mod broker;
mod cluster;
mod database;
mod settings;

use std::time::Duration;

use domain::error_chain;
use service_kit::{connections, settings::Draft};

use super::observed::{Database, Observed, SettingsSeen};
use crate::connect;

/// How long a step at a server may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(4);

/// Looks concurrently at the database, the broker and, by its management API, the broker's cluster.
pub(super) async fn at_everything() -> Observed {
    let Draft { missing, settings } = Draft::load();
    let settings = match settings {
        Ok(settings) => settings,
        Err(error) => {
            let faults = missing.iter().map(|key| format!("{key} is not set")).chain([error_chain(&error)]).collect();
            let settings = SettingsSeen { faults, ..SettingsSeen::default() };
            return Observed { settings, database: Database::Unknown, broker: None, cluster: None };
        }
    };
    connect::warn(connections::unencrypted_urls(&settings));
    let (seen, ledger, keys, broker) = settings::look(&settings, &missing);
    let (database, (broker, cluster)) = tokio::join!(database::look(ledger.as_ref(), keys.as_ref()), async {
        let Some(broker) = &broker else { return (None, None) };
        let cluster = cluster::look(broker, &settings.broker);
        let (broker, cluster) = tokio::join!(broker::look(broker, ledger.as_ref()), cluster);
        (Some(broker), cluster)
    });
    Observed { settings: seen, database, broker, cluster }
}
