//! What administrators do at the REST API, and what receivers see of it.

mod answers;
mod cancel;
mod events;
mod insight;
mod log;
mod manage;
mod pause;
mod problems;
mod recover;
mod resend;
mod snapshots;
mod tasks;
mod test_deliveries;
mod walls;
