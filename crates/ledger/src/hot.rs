//! The hot path: what every event and every delivery goes through.

pub(crate) mod attempts;
pub(crate) mod bodies;
pub(crate) mod dead_letters;
pub(crate) mod held_jobs;
pub(crate) mod intake;
pub(crate) mod look_up;
pub(crate) mod suspects;
pub(crate) mod waiting;
