//! Why a step is not done.

/// The shutdown's deadline has passed. What was under way stays unacknowledged, and is redelivered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abandoned;
