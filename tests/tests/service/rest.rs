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
mod registration;
mod resend;
mod snapshots;
mod tasks;
mod test_deliveries;
mod walls;

use end_to_end::system::System;

/// Ends the database sessions that wait for a lock, as a restart of the server does.
pub(crate) async fn end_waiting_sessions(system: &System) {
    let waiting = "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid) \
                   WHERE NOT granted AND datname = current_database()";
    system.sql(waiting).await;
}
