//! Prints the API's description with the default limits. `proto-schemas/openapi.json` holds the output.

use std::collections::HashMap;

use service_kit::{Settings, SettingsError};

fn main() -> Result<(), SettingsError> {
    // Both are required, but nothing connects to them.
    let servers = [("WEBHOOKS__DATABASE__URL", "postgres://database"), ("WEBHOOKS__BROKER__URL", "amqp://broker")];
    let servers: HashMap<_, _> = servers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    print!("{}", api_service::openapi(&Settings::from_sources(None, servers)?));
    Ok(())
}
