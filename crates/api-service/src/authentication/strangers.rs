//! Limits how many look-ups of unknown sessions are under way.
//!
//! A flood of random session ids must neither hold all of the ledger's connections nor keep the business application
//! busy. A session that this process has confirmed is known, and its look-up needs no turn.

use std::{sync::Arc, time::Duration};

use ledger::SessionHash;
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use super::recent::Recent;
use crate::problem::ApiError;

/// How many known sessions are remembered.
const SESSIONS: usize = 10_000;

/// How long a look-up waits for its turn, so that a burst of new sessions passes.
const PATIENCE: Duration = Duration::from_millis(500);

/// Gives turns to look-ups of unknown sessions.
pub(super) struct Strangers {
    turns: Arc<Semaphore>,
    known: Mutex<Recent<()>>,
}

/// Permission to look up, until it is dropped. A known session takes no permit.
pub(super) struct Turn(
    #[allow(dead_code, reason = "it is given back when it is dropped")] Option<OwnedSemaphorePermit>,
);

impl Strangers {
    /// Makes `at_once` turns, at least one.
    pub(super) fn new(at_once: usize) -> Self {
        let at_once = at_once.clamp(1, Semaphore::MAX_PERMITS);
        Self { turns: Arc::new(Semaphore::new(at_once)), known: Mutex::new(Recent::new(SESSIONS)) }
    }

    /// Waits up to half a second for a turn.
    ///
    /// # Errors
    /// [`ApiError::Crowded`] when none was free in time.
    pub(super) async fn turn(&self, session: &SessionHash) -> Result<Turn, ApiError> {
        if self.known.lock().get(session).is_some() {
            return Ok(Turn(None));
        }
        match timeout(PATIENCE, Arc::clone(&self.turns).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Turn(Some(permit))),
            Ok(Err(_)) | Err(_) => Err(ApiError::Crowded),
        }
    }

    /// Remembers whether the look-up has found the session.
    pub(super) fn answered(&self, session: &SessionHash, exists: bool) {
        if exists {
            self.known.lock().insert(session.clone(), ());
        } else {
            self.known.lock().remove(session);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn strangers_wait_a_moment_for_a_turn_and_known_sessions_do_not() {
        let strangers = Strangers::new(2);
        let (friend, stranger) = (SessionHash::of("friend"), SessionHash::of("stranger"));
        strangers.answered(&friend, true);
        let first = strangers.turn(&stranger).await;
        let _second = strangers.turn(&stranger).await;
        let began = Instant::now();
        assert!(strangers.turn(&stranger).await.is_err());
        assert_eq!(began.elapsed(), PATIENCE);
        assert!(strangers.turn(&friend).await.is_ok());
        drop(first);
        assert!(strangers.turn(&stranger).await.is_ok());
        strangers.answered(&friend, false);
        let _third = strangers.turn(&stranger).await;
        assert!(strangers.turn(&friend).await.is_err(), "it is known no more");
    }
}
