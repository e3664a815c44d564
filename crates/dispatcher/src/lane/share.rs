//! Shares: no key holds more than a fair part of something that all need.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A share of `limit` for every key. A request for more than is left waits behind earlier ones of its key. A key
/// without holders or waiters costs nothing.
pub(crate) struct Shares<K> {
    limit: u32,
    keys: Mutex<HashMap<K, Seats>>,
}

struct Seats {
    free: Arc<Semaphore>,
    /// How many hold or wait.
    users: usize,
}

/// A part of a key's share, or a request for one. Dropping it releases the part.
pub(crate) struct Share<K: Eq + Hash + Copy> {
    shares: Arc<Shares<K>>,
    key: K,
    /// `None` for a request.
    part: Option<OwnedSemaphorePermit>,
}

impl<K: Eq + Hash + Copy> Shares<K> {
    /// Each share is `limit`, at least 1.
    pub(crate) fn new(limit: u32) -> Arc<Self> {
        Arc::new(Self { limit: limit.max(1), keys: Mutex::default() })
    }

    /// Waits for `amount` of a key's share; more than the whole share counts as the whole share. Dropping the future
    /// gives everything back.
    pub(crate) async fn acquire(self: &Arc<Self>, key: K, amount: u32) -> Share<K> {
        let (mut share, free) = self.request(key);
        match free.acquire_many_owned(amount.min(self.limit)).await {
            Ok(part) => share.part = Some(part),
            Err(_) => unreachable!("no share is ever closed"),
        }
        share
    }

    /// The same without waiting: `None` if that much is not left.
    pub(crate) fn try_acquire(self: &Arc<Self>, key: K, amount: u32) -> Option<Share<K>> {
        let (mut share, free) = self.request(key);
        share.part = Some(free.try_acquire_many_owned(amount.min(self.limit)).ok()?);
        Some(share)
    }

    /// Returns true if somebody holds or waits for a part of the key's share.
    pub(crate) fn has_users(&self, key: K) -> bool {
        self.keys.lock().contains_key(&key)
    }

    /// Returns true if no more than one of several parts of the key's share is left.
    pub(crate) fn is_last(&self, key: K) -> bool {
        self.limit > 1 && self.keys.lock().get(&key).is_some_and(|seats| seats.free.available_permits() <= 1)
    }

    fn request(self: &Arc<Self>, key: K) -> (Share<K>, Arc<Semaphore>) {
        let mut keys = self.keys.lock();
        let seats = keys.entry(key).or_insert_with(|| Seats {
            free: Arc::new(Semaphore::new(usize::try_from(self.limit).unwrap_or(usize::MAX))),
            users: 0,
        });
        seats.users += 1;
        (Share { shares: Arc::clone(self), key, part: None }, Arc::clone(&seats.free))
    }
}

impl<K: Eq + Hash + Copy> Drop for Share<K> {
    fn drop(&mut self) {
        // Before the key may be removed.
        drop(self.part.take());
        let mut keys = self.shares.keys.lock();
        if let Some(seats) = keys.get_mut(&self.key) {
            seats.users -= 1;
            if seats.users == 0 {
                keys.remove(&self.key);
            }
        }
    }
}

/// A fraction of a whole, rounded down, at least 1.
pub(crate) fn fraction_of(whole: u32, fraction: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a u32 is one")]
    let part = (f64::from(whole) * fraction) as u32;
    part.max(1)
}

#[cfg(test)]
mod tests;
