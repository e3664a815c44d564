//! What the calls of the API do, without HTTP: for its handlers, and for the console's pages.

pub(crate) mod deliveries;
pub(crate) mod events;
pub(crate) mod recoveries;
pub(crate) mod stats;
pub(crate) mod test_deliveries;
pub(crate) mod webhooks;
