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

/// A part of a key's share. Dropping it gives it back.
pub(crate) struct Share<K: Eq + Hash + Copy> {
    // Dropped before the seat, which may remove the key.
    _permit: OwnedSemaphorePermit,
    _seat: Seat<K>,
}

/// Keeps a key in the map.
struct Seat<K: Eq + Hash + Copy> {
    shares: Arc<Shares<K>>,
    key: K,
}

impl<K: Eq + Hash + Copy> Shares<K> {
    /// Each share is `limit`, at least 1.
    pub(crate) fn new(limit: u32) -> Arc<Self> {
        Arc::new(Self { limit: limit.max(1), keys: Mutex::default() })
    }

    /// Waits for `amount` of a key's share; more than the whole share counts as the whole share. Dropping the future
    /// gives everything back.
    pub(crate) async fn acquire(self: &Arc<Self>, key: K, amount: u32) -> Share<K> {
        let (seat, free) = self.sit(key);
        match free.acquire_many_owned(amount.min(self.limit)).await {
            Ok(permit) => Share { _permit: permit, _seat: seat },
            Err(_) => unreachable!("no share is ever closed"),
        }
    }

    /// The same without waiting: `None` if that much is not left.
    pub(crate) fn try_acquire(self: &Arc<Self>, key: K, amount: u32) -> Option<Share<K>> {
        let (seat, free) = self.sit(key);
        let permit = free.try_acquire_many_owned(amount.min(self.limit)).ok()?;
        Some(Share { _permit: permit, _seat: seat })
    }

    /// Returns true if somebody holds or waits for a part of the key's share.
    pub(crate) fn has_users(&self, key: K) -> bool {
        self.keys.lock().contains_key(&key)
    }

    /// Returns true if no more than one of several parts of the key's share is left.
    pub(crate) fn is_last(&self, key: K) -> bool {
        self.limit > 1 && self.keys.lock().get(&key).is_some_and(|seats| seats.free.available_permits() <= 1)
    }

    fn sit(self: &Arc<Self>, key: K) -> (Seat<K>, Arc<Semaphore>) {
        let mut keys = self.keys.lock();
        let seats = keys.entry(key).or_insert_with(|| Seats {
            free: Arc::new(Semaphore::new(usize::try_from(self.limit).unwrap_or(usize::MAX))),
            users: 0,
        });
        seats.users += 1;
        (Seat { shares: Arc::clone(self), key }, Arc::clone(&seats.free))
    }
}

impl<K: Eq + Hash + Copy> Drop for Seat<K> {
    fn drop(&mut self) {
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
pub(crate) fn part(whole: u32, fraction: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a u32 is one")]
    let part = (f64::from(whole) * fraction) as u32;
    part.max(1)
}

#[cfg(test)]
mod tests;
