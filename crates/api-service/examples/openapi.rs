//! Prints the description of the API with the default limits: what `proto-schemas/openapi.json` holds.

use std::collections::HashMap;

use service_kit::{Settings, SettingsError};

fn main() -> Result<(), SettingsError> {
    // They are required, and nothing connects to them.
    let servers = [("WEBHOOKS__DATABASE__URL", "postgres://database"), ("WEBHOOKS__BROKER__URL", "amqp://broker")];
    let servers: HashMap<_, _> = servers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    print!("{}", api_service::openapi(&Settings::from_sources(None, servers)?));
    Ok(())
}
