//! Shares: no key holds more than a fair part of something that all need.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

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
    /// When the holders began to use their parts, in that order.
    begun: BTreeMap<u64, Instant>,
    next: u64,
    /// How long the holder that ended last had used its part.
    last: Duration,
}

/// A part of a key's share. Dropping it gives it back.
pub(crate) struct Share<K: Eq + Hash + Copy> {
    // Dropped before the seat, which may remove the key.
    _permit: OwnedSemaphorePermit,
    seat: Seat<K>,
}

/// Keeps a key in the map.
struct Seat<K: Eq + Hash + Copy> {
    shares: Arc<Shares<K>>,
    key: K,
    begun: Option<u64>,
}

impl<K: Eq + Hash + Copy> Shares<K> {
    /// Each share is `limit`, at least 1.
    pub(crate) fn new(limit: u32) -> Arc<Self> {
        Arc::new(Self { limit: limit.max(1), keys: Mutex::default() })
    }

    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }

    /// Waits for `amount` of a key's share; more than the whole share counts as the whole share. Dropping the future
    /// gives everything back.
    pub(crate) async fn acquire(self: &Arc<Self>, key: K, amount: u32) -> Share<K> {
        let (seat, free) = self.sit(key);
        match free.acquire_many_owned(amount.min(self.limit)).await {
            Ok(permit) => Share { _permit: permit, seat },
            Err(_) => unreachable!("no share is ever closed"),
        }
    }

    /// How long ago the first of the key's present holders began. Zero if none has.
    pub(crate) fn longest(&self, key: K) -> Duration {
        self.keys.lock().get(&key).map(Seats::longest).unwrap_or_default()
    }

    /// How long the key's holders take, as far as is known: the first of the present ones, or the last that ended. Zero
    /// unless more than three quarters of the share are held.
    pub(crate) fn longest_when_crowded(&self, key: K) -> Duration {
        let crowded =
            |seats: &&Seats| seats.free.available_permits() * 4 < usize::try_from(self.limit).unwrap_or(usize::MAX);
        self.keys.lock().get(&key).filter(crowded).map(|seats| seats.longest().max(seats.last)).unwrap_or_default()
    }

    /// How long one that begins to wait now will wait, about, if all take as long as the last one that ended. Whole
    /// rounds count: while fewer wait than the share has parts, it is zero.
    pub(crate) fn expected_wait(&self, key: K) -> Duration {
        let keys = self.keys.lock();
        let Some(seats) = keys.get(&key) else { return Duration::ZERO };
        let free = u32::try_from(seats.free.available_permits()).unwrap_or(u32::MAX);
        let users = u32::try_from(seats.users).unwrap_or(u32::MAX);
        let waiting = users.saturating_sub(self.limit.saturating_sub(free));
        seats.last * (waiting / self.limit)
    }

    fn sit(self: &Arc<Self>, key: K) -> (Seat<K>, Arc<Semaphore>) {
        let mut keys = self.keys.lock();
        let seats = keys.entry(key).or_insert_with(|| Seats {
            free: Arc::new(Semaphore::new(usize::try_from(self.limit).unwrap_or(usize::MAX))),
            users: 0,
            begun: BTreeMap::new(),
            next: 0,
            last: Duration::ZERO,
        });
        seats.users += 1;
        (Seat { shares: Arc::clone(self), key, begun: None }, Arc::clone(&seats.free))
    }
}

impl Seats {
    fn longest(&self) -> Duration {
        self.begun.first_key_value().map(|(_, began)| began.elapsed()).unwrap_or_default()
    }
}

impl<K: Eq + Hash + Copy> Share<K> {
    /// Notes that the holder begins to use its part.
    pub(crate) fn begin(&mut self) {
        let Seat { shares, key, begun } = &mut self.seat;
        if let Some(seats) = shares.keys.lock().get_mut(key) {
            seats.begun.insert(seats.next, Instant::now());
            *begun = Some(seats.next);
            seats.next += 1;
        }
    }
}

impl<K: Eq + Hash + Copy> Drop for Seat<K> {
    fn drop(&mut self) {
        let mut keys = self.shares.keys.lock();
        if let Some(seats) = keys.get_mut(&self.key) {
            seats.users -= 1;
            if let Some(began) = self.begun.and_then(|begun| seats.begun.remove(&begun)) {
                seats.last = began.elapsed();
            }
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
