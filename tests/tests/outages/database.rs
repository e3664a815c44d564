//! How the services react to the database's own state: its clock, whether it takes writes, and a
//! pooler in front of it.

mod clock;
mod hosts;
mod leader;
mod read_only;

const ALL: [&str; 3] = ["api-service", "event-ingest", "dispatcher"];
