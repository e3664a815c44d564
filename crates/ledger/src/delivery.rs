//! What every event and every delivery goes through, and what stops dispatchers.

pub(crate) mod attempts;
pub(crate) mod bodies;
pub(crate) mod brakes;
pub(crate) mod dead_letters;
pub(crate) mod hold;
pub(crate) mod intake;
pub(crate) mod look_up;
pub(crate) mod suspects;
pub(crate) mod waiting;
