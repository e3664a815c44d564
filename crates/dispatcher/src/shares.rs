//! Shares: nobody holds more than a part of something that all need.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

/// A share of `limit` for every key. Who asks for more than is left waits behind those of the same key who asked before.
/// A key that nobody holds or waits for costs nothing.
pub(crate) struct Shares<K> {
    limit: u32,
    keys: Mutex<HashMap<K, Seats>>,
}

struct Seats {
    free: Arc<Semaphore>,
    /// Who holds or waits.
    users: usize,
    /// Who holds and has begun, in the order in which they did.
    begun: BTreeMap<u64, Instant>,
    next: u64,
    /// How long it took the last one that had begun to give its part back.
    last: Duration,
}

/// A part of a key's share; given back when dropped.
pub(crate) struct Share<K: Eq + Hash + Copy> {
    // Before the seat, whose key may be forgotten with it.
    _permit: OwnedSemaphorePermit,
    seat: Seat<K>,
}

/// Keeps a key from being forgotten.
struct Seat<K: Eq + Hash + Copy> {
    shares: Arc<Shares<K>>,
    key: K,
    begun: Option<u64>,
}

impl<K: Eq + Hash + Copy> Shares<K> {
    /// Shares of at least 1 each.
    pub(crate) fn new(limit: u32) -> Arc<Self> {
        Arc::new(Self { limit: limit.max(1), keys: Mutex::default() })
    }

    /// How much each key may have.
    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }

    /// Waits for so much of a key's share; more than the whole share is the whole share. Giving up the wait gives
    /// everything back.
    pub(crate) async fn acquire(self: &Arc<Self>, key: K, amount: u32) -> Share<K> {
        let (seat, free) = self.sit(key);
        match free.acquire_many_owned(amount.min(self.limit)).await {
            Ok(permit) => Share { _permit: permit, seat },
            Err(_) => unreachable!("no share is ever closed"),
        }
    }

    /// For how long the one of the key's holders has been at it who began first.
    pub(crate) fn longest(&self, key: K) -> Duration {
        self.lock().get(&key).map(Seats::longest).unwrap_or_default()
    }

    /// How long the key's holders take at the most, as far as is known, if more than three quarters of its share are held.
    /// Otherwise nothing.
    pub(crate) fn longest_when_crowded(&self, key: K) -> Duration {
        let crowded =
            |seats: &&Seats| seats.free.available_permits() * 4 < usize::try_from(self.limit).unwrap_or(usize::MAX);
        self.lock().get(&key).filter(crowded).map(|seats| seats.longest().max(seats.last)).unwrap_or_default()
    }

    fn sit(self: &Arc<Self>, key: K) -> (Seat<K>, Arc<Semaphore>) {
        let mut keys = self.lock();
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

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Seats>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seats {
    fn longest(&self) -> Duration {
        self.begun.first_key_value().map(|(_, began)| began.elapsed()).unwrap_or_default()
    }
}

impl<K: Eq + Hash + Copy> Share<K> {
    /// The holder begins with what it needs its part for.
    pub(crate) fn begin(&mut self) {
        let Seat { shares, key, begun } = &mut self.seat;
        if let Some(seats) = shares.lock().get_mut(key) {
            seats.begun.insert(seats.next, Instant::now());
            *begun = Some(seats.next);
            seats.next += 1;
        }
    }
}

impl<K: Eq + Hash + Copy> Drop for Seat<K> {
    fn drop(&mut self) {
        let mut keys = self.shares.lock();
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

/// How much a part of a whole is, at least 1.
pub(crate) fn part(whole: u32, fraction: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a u32 is one")]
    let part = (f64::from(whole) * fraction) as u32;
    part.max(1)
}

#[cfg(test)]
mod tests;
