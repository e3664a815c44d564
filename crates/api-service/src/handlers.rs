//! The handlers, one file for each resource. Only the table of routes names them.

pub(crate) mod deliveries;
pub(crate) mod event_types;
pub(crate) mod events;
pub(crate) mod history;
pub(crate) mod recoveries;
pub(crate) mod stats;
pub(crate) mod test_deliveries;
pub(crate) mod webhooks;
