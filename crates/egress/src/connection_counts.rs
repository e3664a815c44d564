//! Connection counts over all hosts together.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Counts connections over all hosts. The pool limits each host only, and further hosts cost a receiver nothing.
#[derive(Clone, Default)]
pub(crate) struct ConnectionCounts(Arc<Counts>);

#[derive(Default)]
struct Counts {
    open: AtomicUsize,
    waiting: AtomicUsize,
}

/// One connection, counted until it is dropped.
pub(crate) struct Counted {
    counts: ConnectionCounts,
    waiting: bool,
}

impl ConnectionCounts {
    pub(crate) fn opened(&self) -> Counted {
        self.0.open.fetch_add(1, Relaxed);
        Counted { counts: self.clone(), waiting: false }
    }

    /// Connections on which no request waits for its answer to begin: those in the pool, and a few others.
    pub(crate) fn unused(&self) -> usize {
        self.0.open.load(Relaxed).saturating_sub(self.0.waiting.load(Relaxed))
    }
}

impl Counted {
    /// Notes that something was written: a request waits.
    pub(crate) fn wrote(&mut self) {
        if !std::mem::replace(&mut self.waiting, true) {
            self.counts.0.waiting.fetch_add(1, Relaxed);
        }
    }

    /// Notes that something was read: its answer has begun.
    pub(crate) fn read(&mut self) {
        if std::mem::replace(&mut self.waiting, false) {
            self.counts.0.waiting.fetch_sub(1, Relaxed);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.read();
        self.counts.0.open.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_unused_but_between_a_request_and_its_answer() {
        let counts = ConnectionCounts::default();
        let (mut one, mut other) = (counts.opened(), counts.opened());
        assert_eq!(counts.unused(), 2);
        one.wrote();
        one.wrote();
        assert_eq!(counts.unused(), 1);
        one.read();
        one.read();
        assert_eq!(counts.unused(), 2);
        other.wrote();
        drop(other);
        assert_eq!(counts.unused(), 1);
        drop(one);
        assert_eq!((counts.unused(), counts.0.waiting.load(Relaxed)), (0, 0));
    }
}
