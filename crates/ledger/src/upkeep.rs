//! Upkeep: what the leader does, so that the ledger and the queues stay whole and nothing grows for ever.

pub(crate) mod condition;
pub(crate) mod failing;
pub(crate) mod find_waiting;
pub(crate) mod generation;
pub(crate) mod leader;
pub(crate) mod leftovers;
pub(crate) mod partitions;
pub(crate) mod retention;
pub(crate) mod untried;
