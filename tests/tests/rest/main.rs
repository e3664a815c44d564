//! What administrators do at the REST API, and what receivers see of it.

mod log;
mod manage;
mod pause;
mod recover;
mod resend;
mod tasks;
mod test_deliveries;
mod walls;
