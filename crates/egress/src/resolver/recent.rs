//! A cache of recent answers, so that a busy host is not looked up for every connection.

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use hickory_resolver::proto::rr::Name;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{LookupError, LookupResult};

/// The longest time that an answer is cached, whatever its time to live.
const MAX_TTL: Duration = Duration::from_secs(5);

/// The time for which the answer that a name has no address is cached.
const NEGATIVE_TTL: Duration = Duration::from_secs(1);

/// The number of names that are cached.
const MAX_NAMES: usize = 1024;

type Addresses = Result<Arc<[IpAddr]>, LookupError>;

/// Answers of the last seconds, bounded in number, size and time. Failures of name servers are not cached.
#[derive(Default)]
pub(super) struct Recent(Mutex<HashMap<Name, Remembered>>);

struct Remembered {
    addresses: Addresses,
    until: Instant,
}

impl Recent {
    pub(super) fn get(&self, name: &Name, now: Instant) -> Option<Addresses> {
        let names = self.0.lock();
        names.get(name).filter(|known| now < known.until).map(|known| known.addresses.clone())
    }

    /// Caches the answer as long as it may, and returns it.
    pub(super) fn remember(&self, name: Name, found: LookupResult, now: Instant) -> Addresses {
        let (addresses, lasts) = match found {
            Ok((addresses, ttl)) => (Ok(addresses.into()), ttl.min(MAX_TTL)),
            Err(LookupError::NoAddress) => (Err(LookupError::NoAddress), NEGATIVE_TTL),
            Err(error) => return Err(error),
        };
        // Times to live are whole seconds: of 0 nothing is left, of 1 almost all.
        if !lasts.is_zero() {
            let mut names = self.0.lock();
            make_room(&mut names, now);
            names.insert(name, Remembered { addresses: Addresses::clone(&addresses), until: now + lasts });
        }
        addresses
    }
}

/// Removes what has expired. If nothing has, removes what expires next.
fn make_room(names: &mut HashMap<Name, Remembered>, now: Instant) {
    if names.len() < MAX_NAMES {
        return;
    }
    names.retain(|_, known| now < known.until);
    if names.len() >= MAX_NAMES {
        let first = names.iter().min_by_key(|(_, known)| known.until).map(|(name, _)| name.clone());
        first.and_then(|name| names.remove(&name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    fn found(ttl: u64) -> LookupResult {
        Ok((vec![[192, 0, 2, 1].into()], Duration::from_secs(ttl)))
    }

    #[test]
    fn an_answer_is_believed_as_long_as_it_says_but_for_seconds_at_most() {
        let (recent, now) = (Recent::default(), Instant::now());
        for (given, lasts) in [
            (found(0), 0),
            (found(2), 2),
            (found(86_400), 5),
            (Err(LookupError::NoAddress), 1),
            (Err(LookupError::Failed), 0),
        ] {
            let name = name(&format!("ttl-{lasts}.example."));
            let answer = recent.remember(name.clone(), given, now);
            let at = |millis| recent.get(&name, now + Duration::from_millis(millis));
            if lasts == 0 {
                assert_eq!(at(0), None);
            } else {
                assert_eq!((at(lasts * 1000 - 1), at(lasts * 1000)), (Some(answer), None));
            }
        }
    }

    #[test]
    fn only_so_many_names_are_remembered_and_those_that_lapse_last_stay() {
        let (recent, now) = (Recent::default(), Instant::now());
        let long = name("long.example.");
        let _ = recent.remember(long.clone(), found(5), now);
        for number in 0..2 * MAX_NAMES {
            let _ = recent.remember(name(&format!("{number}.example.")), found(2), now);
        }
        assert_eq!(recent.0.lock().len(), MAX_NAMES);
        assert!(recent.get(&long, now).is_some());
        let _ = recent.remember(name("late.example."), found(2), now + Duration::from_secs(3));
        assert_eq!(recent.0.lock().len(), 2, "what has lapsed goes first");
    }
}
