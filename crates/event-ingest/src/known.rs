//! Who subscribed when the ledger was last asked.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use domain::{EventType, TenantId, WebhookId};
use ledger::Subscriber;

/// Pairs and webhooks together, about 4 MB. When there are more, all are forgotten.
const MOST: usize = 100_000;

/// A supposition, which the ledger checks whenever it stores something by it: so it may be as old as it likes, and empty.
#[derive(Default)]
pub(crate) struct Known(Mutex<Pairs>);

#[derive(Default)]
struct Pairs {
    webhooks: HashMap<(TenantId, EventType), Vec<WebhookId>>,
    size: usize,
}

impl Known {
    /// Who is supposed to want the pairs.
    pub(crate) fn subscribers(&self, pairs: &[(TenantId, EventType)]) -> Vec<Subscriber> {
        let known = self.lock();
        let of_pair = |(pair, key): (usize, &_)| {
            let webhooks = known.webhooks.get(key).map(Vec::as_slice).unwrap_or_default();
            webhooks.iter().map(move |webhook| Subscriber { pair, webhook: *webhook })
        };
        pairs.iter().enumerate().flat_map(of_pair).collect()
    }

    /// Remembers who does want them.
    pub(crate) fn learn(&self, pairs: &[(TenantId, EventType)], subscribers: &[Subscriber]) {
        let mut known = self.lock();
        for key in pairs {
            let forgotten = known.webhooks.insert(*key, Vec::new());
            known.size -= forgotten.map_or(0, |webhooks| 1 + webhooks.len());
        }
        known.size += pairs.len() + subscribers.len();
        for Subscriber { pair, webhook } in subscribers {
            if let Some(webhooks) = pairs.get(*pair).and_then(|key| known.webhooks.get_mut(key)) {
                webhooks.push(*webhook);
            }
        }
        if known.size > MOST {
            *known = Pairs::default();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pairs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn pair() -> (TenantId, EventType) {
        (Uuid::new_v4().into(), EventType::QuoteClosed)
    }

    fn subscriber(pair: usize) -> Subscriber {
        Subscriber { pair, webhook: Uuid::new_v4().into() }
    }

    #[test]
    fn what_was_learnt_last_is_supposed_by_the_new_questions_numbers() {
        let (known, first, second) = (Known::default(), pair(), pair());
        assert_eq!(known.subscribers(&[first, second]), []);
        let [one, two, three] = [0, 1, 1].map(subscriber);
        known.learn(&[first, second], &[one, two, three]);
        let turned = [Subscriber { pair: 0, ..two }, Subscriber { pair: 0, ..three }, Subscriber { pair: 1, ..one }];
        assert_eq!(known.subscribers(&[second, first]), turned);
        known.learn(&[second], &[]);
        assert_eq!(known.subscribers(&[second, first]), [Subscriber { pair: 1, ..one }]);
    }

    #[test]
    fn learning_the_same_again_fills_nothing_and_too_much_is_forgotten() {
        let (known, first) = (Known::default(), pair());
        for _ in 0..3 {
            known.learn(&[first], &(0..MOST / 2).map(|_| subscriber(0)).collect::<Vec<_>>());
            assert_eq!(known.subscribers(&[first]).len(), MOST / 2);
        }
        let second = pair();
        known.learn(&[second], &(0..MOST / 2).map(|_| subscriber(0)).collect::<Vec<_>>());
        assert_eq!(known.subscribers(&[first, second]), []);
        known.learn(&[first], &[subscriber(0)]);
        assert_eq!(known.subscribers(&[first]).len(), 1);
    }
}
