//! How the services react to the database's own state: its clock, and whether it takes writes.

mod clock;
mod leader;
mod read_only;

const ALL: [&str; 3] = ["api-service", "event-ingest", "dispatcher"];
