//! The limit of concurrent look-ups.
//!
//! A flood of random session ids must neither hold all of the ledger's connections nor keep the business application
//! busy. The tenant of a session that this process has confirmed is known, and its look-up needs no permit here.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::http::ApiError;

/// The permits of look-ups.
#[derive(Clone)]
pub(super) struct LookupLimit {
    free: Arc<Semaphore>,
    wait_timeout: Duration,
}

impl LookupLimit {
    /// Allows `at_once` look-ups, at least one. Another look-up waits for its permit for `wait_timeout` at most, so that a burst
    /// of new sessions passes.
    pub(super) fn new(at_once: usize, wait_timeout: Duration) -> Self {
        Self { free: Arc::new(Semaphore::new(at_once.clamp(1, Semaphore::MAX_PERMITS))), wait_timeout }
    }

    /// Waits for a permit, which lasts until it is dropped.
    ///
    /// # Errors
    /// [`ApiError::Crowded`] when no permit was free in time.
    pub(super) async fn wait(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        match timeout(self.wait_timeout, Arc::clone(&self.free).acquire_owned()).await {
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
    async fn a_look_up_waits_a_moment_for_its_permit() {
        let wait_timeout = Duration::from_millis(500);
        let limit = LookupLimit::new(2, wait_timeout);
        let (first, _second) = (limit.wait().await, limit.wait().await);
        let began = Instant::now();
        assert!(limit.wait().await.is_err());
        assert_eq!(began.elapsed(), wait_timeout);
        drop(first);
        assert!(limit.wait().await.is_ok());
    }
}
