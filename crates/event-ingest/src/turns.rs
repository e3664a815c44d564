//! How many batches are under way at a time.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Two batches are under way at a time, so one can be stored while the other waits for its confirms. With more, each
/// batch would be smaller. Under high load only one is being stored, and the next one gathers what comes meanwhile.
const BATCHES: usize = 2;

/// The batches that may be under way.
pub(crate) struct Turns {
    batches: Arc<Semaphore>,
    storing: Arc<Semaphore>,
}

/// The right to take a batch.
pub(crate) struct Turn {
    /// Held until nothing is left to do but to acknowledge.
    pub(crate) under_way: OwnedSemaphorePermit,
    /// The store permit under high load, held until the batch is stored and its jobs are known.
    pub(crate) storing: Option<OwnedSemaphorePermit>,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self { batches: Arc::new(Semaphore::new(BATCHES)), storing: Arc::new(Semaphore::new(1)) }
    }

    /// Waits until a batch may be taken.
    pub(crate) async fn next(&self, is_high_load: impl Fn() -> bool) -> Turn {
        let under_way = acquire(&self.batches).await;
        let storing = if is_high_load() { Some(acquire(&self.storing).await) } else { None };
        Turn { under_way, storing }
    }
}

async fn acquire(permits: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    match Arc::clone(permits).acquire_owned().await {
        Ok(permit) => permit,
        Err(_) => unreachable!("it is never closed"),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn two_batches_are_under_way_of_which_one_is_stored_under_high_load() {
        let (turns, high_load) = (Turns::new(), Cell::new(false));
        let next = || turns.next(|| high_load.get());
        let calm = [next().await, next().await];
        assert!(calm.iter().all(|turn| turn.storing.is_none()));
        assert!(next().now_or_never().is_none());
        drop(calm);
        high_load.set(true);
        let mut first = next().await;
        assert!(first.storing.is_some());
        assert!(next().now_or_never().is_none(), "the other one is being stored");
        first.storing = None;
        let second = next().await;
        assert!(second.storing.is_some());
        assert!(next().now_or_never().is_none(), "not more than two");
        drop((first, second));
        assert!(next().now_or_never().is_some());
    }
}
