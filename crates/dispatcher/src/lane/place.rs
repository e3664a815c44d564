//! Places: room for jobs of a lane before they have a slot.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A job's place: room to be looked up, and to wait for admission. Dropping it releases the place.
pub(crate) struct Place {
    _own: Option<OwnedSemaphorePermit>,
    _place: OwnedSemaphorePermit,
}

impl Place {
    /// Waits for a place of all, and before that for one of the lane's own, if it has such.
    pub(super) async fn wait(own: Option<&Arc<Semaphore>>, all: &Arc<Semaphore>) -> Self {
        let own = match own {
            Some(own) => Some(Arc::clone(own).acquire_owned().await),
            None => None,
        };
        match (own.transpose(), Arc::clone(all).acquire_owned().await) {
            (Ok(own), Ok(place)) => Self { _own: own, _place: place },
            _ => unreachable!("the places are never closed"),
        }
    }

    /// Takes a place without waiting. `None` if no place is free.
    pub(super) fn free(own: Option<&Arc<Semaphore>>, all: &Arc<Semaphore>) -> Option<Self> {
        let own = own.map(|own| Arc::clone(own).try_acquire_owned()).transpose().ok()?;
        Some(Self { _own: own, _place: Arc::clone(all).try_acquire_owned().ok()? })
    }
}
