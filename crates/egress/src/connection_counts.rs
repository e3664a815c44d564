//! Connection counts over all hosts together.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Counts connections over all hosts. The pool limits each host only, and further hosts cost a receiver nothing.
#[derive(Clone, Default)]
pub(crate) struct ConnectionCounts {
    open: Arc<AtomicUsize>,
    waiting: Arc<AtomicUsize>,
}

/// A place in a count, until it is dropped.
pub(crate) struct Counted(Arc<AtomicUsize>);

impl ConnectionCounts {
    /// Counts an open connection.
    pub(crate) fn opened(&self) -> Counted {
        Counted::in_count(&self.open)
    }

    /// Counts a request that waits for its answer on a connection.
    pub(crate) fn waiting(&self) -> Counted {
        Counted::in_count(&self.waiting)
    }

    /// Connections on which no request waits for its answer: those in the pool, and a few others.
    pub(crate) fn unused(&self) -> usize {
        self.open.load(Relaxed).saturating_sub(self.waiting.load(Relaxed))
    }
}

impl Counted {
    fn in_count(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
