//! How many batches are under way at a time.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::sleep,
};

/// Two batches are under way at a time, so one can be stored while the other waits for its confirms. With more, each
/// batch would be smaller. Under high load only one is being stored, and the next one gathers what comes meanwhile.
const BATCHES: usize = 2;
/// Two more may begin while a full batch of events waits: those are full, so they make no batch smaller.
const EXTRA_BATCHES: usize = 2;
/// How often to look whether a whole batch waits.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The batches that may be under way.
pub(crate) struct Turns {
    batches: Arc<Semaphore>,
    storing: Arc<Semaphore>,
    extra: Arc<Semaphore>,
}

/// The right to take a batch.
pub(crate) struct Turn {
    /// Held until nothing is left to do but to acknowledge.
    pub(crate) under_way: OwnedSemaphorePermit,
    /// The store permit, held until the batch is stored and its jobs are known. Extra batches have none, and others have
    /// one under high load only.
    pub(crate) storing: Option<OwnedSemaphorePermit>,
}

impl Turns {
    pub(crate) fn new() -> Self {
        let permits = |count| Arc::new(Semaphore::new(count));
        Self { batches: permits(BATCHES), storing: permits(1), extra: permits(EXTRA_BATCHES) }
    }

    /// Waits until a batch may be taken. `is_full` tells whether a whole batch waits.
    pub(crate) async fn next(&self, is_high_load: impl Fn() -> bool, is_full: impl Fn() -> bool) -> Turn {
        let usual = async {
            let under_way = acquire(&self.batches).await;
            let storing = if is_high_load() { Some(acquire(&self.storing).await) } else { None };
            Turn { under_way, storing }
        };
        let extra = async {
            let under_way = acquire(&self.extra).await;
            while !is_full() {
                sleep(LOOK_EVERY).await;
            }
            Turn { under_way, storing: None }
        };
        tokio::select! {
            biased;
            turn = usual => turn,
            turn = extra => turn,
        }
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

    #[tokio::test(start_paused = true)]
    async fn two_batches_are_under_way_of_which_one_is_stored_under_high_load_and_two_more_once_whole_ones_wait() {
        let (turns, high_load, full) = (Turns::new(), Cell::new(false), Cell::new(false));
        let next = || turns.next(|| high_load.get(), || full.get());
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
        assert!(next().now_or_never().is_none());
        full.set(true);
        let extra = [next().await, next().await];
        assert!(extra.iter().all(|turn| turn.storing.is_none()));
        assert!(next().now_or_never().is_none(), "not more than these");
        drop((first, second, extra));
        assert!(next().now_or_never().is_some());
    }
}
