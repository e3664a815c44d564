//! A cache of values per session, in bounded memory.

use std::{collections::HashMap, mem};

use ledger::SessionHash;

/// A value for each of the most recently used sessions, at most as many as there is room for.
///
/// There are two generations. A used value moves to the younger one. When that is full, the older one is dropped as a
/// whole. So all uses cost the same, and a value stays while fewer sessions than half the room are used after it.
pub(super) struct Recent<V> {
    half: usize,
    younger: HashMap<SessionHash, V>,
    older: HashMap<SessionHash, V>,
}

impl<V> Recent<V> {
    /// Makes room for two values at least.
    pub(super) fn new(room: usize) -> Self {
        Self { half: (room / 2).max(1), younger: HashMap::new(), older: HashMap::new() }
    }

    pub(super) fn get(&mut self, session: &SessionHash) -> Option<&V> {
        if let Some((session, value)) = self.older.remove_entry(session) {
            self.insert(session, value);
        }
        self.younger.get(session)
    }

    pub(super) fn insert(&mut self, session: SessionHash, value: V) {
        self.older.remove(&session);
        if self.younger.len() >= self.half && !self.younger.contains_key(&session) {
            self.older = mem::take(&mut self.younger);
        }
        self.younger.insert(session, value);
    }

    pub(super) fn remove(&mut self, session: &SessionHash) {
        self.older.remove(session);
        self.younger.remove(session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: usize) -> SessionHash {
        SessionHash::of(&number.to_string())
    }

    #[test]
    fn what_is_used_stays_and_what_is_not_is_forgotten() {
        let mut recent = Recent::new(10);
        for number in 0..1000 {
            recent.insert(hash(number), number);
            assert!(recent.younger.len() + recent.older.len() <= 10);
            assert_eq!(recent.get(&hash(0)), Some(&0), "{number}");
        }
        assert_eq!(recent.get(&hash(999)), Some(&999));
        assert_eq!(recent.get(&hash(1)), None);
    }

    #[test]
    fn there_is_one_value_per_session() {
        let mut recent = Recent::new(2);
        recent.insert(hash(1), "a");
        recent.insert(hash(2), "b");
        recent.insert(hash(1), "c");
        assert_eq!(recent.get(&hash(1)), Some(&"c"));
        recent.insert(hash(1), "d");
        assert_eq!(recent.get(&hash(1)), Some(&"d"));
        recent.insert(hash(2), "e");
        recent.remove(&hash(1));
        recent.remove(&hash(2));
        assert!(recent.get(&hash(1)).is_none() && recent.get(&hash(2)).is_none());
    }
}
