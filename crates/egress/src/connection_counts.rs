//! Connection counts over all hosts together.

use std::sync::Arc;

/// Counts connections over all hosts. The pool limits each host only, and further hosts cost a receiver nothing. Each count
/// is that of its clones. A clone of both adds one to each, which cancels.
#[derive(Clone, Default)]
pub(crate) struct ConnectionCounts {
    /// A clone counts an open connection.
    pub(crate) open: Counted,
    /// A clone counts a request that waits for its answer on a connection.
    pub(crate) waiting: Counted,
}

/// A place in a count, until it is dropped.
pub(crate) type Counted = Arc<()>;

impl ConnectionCounts {
    /// Connections on which no request waits for its answer: those in the pool, and a few others.
    pub(crate) fn unused(&self) -> usize {
        Arc::strong_count(&self.open).saturating_sub(Arc::strong_count(&self.waiting))
    }
}
