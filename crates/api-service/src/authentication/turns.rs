//! Limits how many look-ups are under way.
//!
//! A flood of random session ids must neither hold all of the ledger's connections nor keep the business application
//! busy. The tenant of a session that this process has confirmed is known, and its look-up needs no turn here.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::http::ApiError;

/// Gives turns to look-ups.
#[derive(Clone)]
pub(super) struct Turns {
    free: Arc<Semaphore>,
    patience: Duration,
}

impl Turns {
    /// Makes `at_once` turns, at least one.
    /// A look-up waits for its turn for `patience` at most, so that a burst of new sessions passes.
    pub(super) fn new(at_once: usize, patience: Duration) -> Self {
        Self { free: Arc::new(Semaphore::new(at_once.clamp(1, Semaphore::MAX_PERMITS))), patience }
    }

    /// Waits for a turn. It lasts until it is dropped.
    ///
    /// # Errors
    /// [`ApiError::Crowded`] when none was free in time.
    pub(super) async fn wait(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        match timeout(self.patience, Arc::clone(&self.free).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(ApiError::Crowded),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_look_up_waits_a_moment_for_its_turn() {
        let patience = Duration::from_millis(500);
        let turns = Turns::new(2, patience);
        let (first, _second) = (turns.wait().await, turns.wait().await);
        let began = Instant::now();
        assert!(turns.wait().await.is_err());
        assert_eq!(began.elapsed(), patience);
        drop(first);
        assert!(turns.wait().await.is_ok());
    }
}
