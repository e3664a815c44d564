//! What the real binaries say and do when something is wrong at their start.
mod descriptors;
mod encrypted;
mod passwords;
mod refused;
mod tls_servers;
mod unencrypted;
mod waiting;

const ALL: [&str; 3] = ["api-service", "event-ingest", "dispatcher"];
