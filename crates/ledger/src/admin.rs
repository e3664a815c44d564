//! What administrators ask for.

pub(crate) mod brakes;
pub(crate) mod cancellations;
pub(crate) mod deletions;
pub(crate) mod deliveries;
pub(crate) mod erasure;
pub(crate) mod events;
pub(crate) mod history;
pub(crate) mod notices;
pub(crate) mod outbox;
pub(crate) mod records;
pub(crate) mod recoveries;
pub(crate) mod resends;
pub(crate) mod sessions;
pub(crate) mod stats;
pub(crate) mod tasks;
pub(crate) mod tenants;
pub(crate) mod test_deliveries;
pub(crate) mod webhooks;
