//! Limits how many look-ups are under way.
//!
//! A flood of random session ids must neither hold all of the ledger's connections nor keep the business application
//! busy. The tenant of a session that this process has confirmed is known, and its look-up needs no turn here.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::problem::ApiError;

/// How long a look-up waits for its turn, so that a burst of new sessions passes.
const PATIENCE: Duration = Duration::from_millis(500);

/// Gives turns to look-ups.
#[derive(Clone)]
pub(super) struct Turns(Arc<Semaphore>);

impl Turns {
    /// Makes `at_once` turns, at least one.
    pub(super) fn new(at_once: usize) -> Self {
        Self(Arc::new(Semaphore::new(at_once.clamp(1, Semaphore::MAX_PERMITS))))
    }

    /// Waits up to half a second for a turn. It lasts until it is dropped.
    ///
    /// # Errors
    /// [`ApiError::Crowded`] when none was free in time.
    pub(super) async fn wait(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        match timeout(PATIENCE, Arc::clone(&self.0).acquire_owned()).await {
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
        let turns = Turns::new(2);
        let (first, _second) = (turns.wait().await, turns.wait().await);
        let began = Instant::now();
        assert!(turns.wait().await.is_err());
        assert_eq!(began.elapsed(), PATIENCE);
        drop(first);
        assert!(turns.wait().await.is_ok());
    }
}
