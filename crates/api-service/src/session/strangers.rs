//! How many questions about callers that nobody knows may be under way.
//!
//! Whoever sends random session ids must neither hold all of the ledger's connections nor make the business application
//! answer without end. A session that was confirmed once in this process is known, and asks without a turn.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ledger::SessionHash;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::recent::Recent;

/// Sessions that are known.
const SESSIONS: usize = 10_000;

/// How long a question waits for its turn, so that a burst of new sessions passes.
const PATIENCE: Duration = Duration::from_millis(500);

/// Gives turns to questions about strangers.
pub(crate) struct Strangers {
    turns: Arc<Semaphore>,
    known: Mutex<Recent<()>>,
}

/// Leave to ask, until it is dropped. A known session needs no turn.
pub(super) struct Turn(
    #[allow(dead_code, reason = "it is given back when it is dropped")] Option<OwnedSemaphorePermit>,
);

/// As many questions as may be are under way.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Crowded;

impl Strangers {
    /// So many at once, at least one.
    pub(super) fn new(at_once: usize) -> Self {
        let at_once = at_once.clamp(1, Semaphore::MAX_PERMITS);
        Self { turns: Arc::new(Semaphore::new(at_once)), known: Mutex::new(Recent::new(SESSIONS)) }
    }

    /// Waits a moment for a turn.
    ///
    /// # Errors
    /// [`Crowded`] when there was none.
    pub(super) async fn turn(&self, session: &SessionHash) -> Result<Turn, Crowded> {
        if self.known().get(session).is_some() {
            return Ok(Turn(None));
        }
        match timeout(PATIENCE, Arc::clone(&self.turns).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Turn(Some(permit))),
            Ok(Err(_)) | Err(_) => Err(Crowded),
        }
    }

    /// Remembers what an answer told: whether there is such a session.
    pub(super) fn answered(&self, session: &SessionHash, exists: bool) {
        if exists {
            self.known().insert(session.clone(), ());
        } else {
            self.known().remove(session);
        }
    }

    fn known(&self) -> MutexGuard<'_, Recent<()>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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
