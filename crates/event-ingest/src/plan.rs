//! What a batch of messages asks for, decided without asking anybody.

use std::collections::{BTreeMap, HashMap, HashSet};

use broker::Outgoing;
use domain::{DeliveryId, Event, EventId, EventType, Redelivered, Rejection, TenantId, Timestamp, envelope};
use ledger::{NewDelivery, NewEvent, Subscriber};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// A usable event, ready to be stored.
pub(crate) struct Usable {
    event: NewEvent,
    redelivered: Redelivered,
}

impl Usable {
    pub(crate) fn parse(body: &[u8], redelivered: Redelivered, data_limit: usize) -> Result<Self, Rejection> {
        let event = Event::parse(body, data_limit)?;
        let body = envelope(&event).into();
        let Event { id, event_type, tenant, timestamp, .. } = event;
        Ok(Self { event: NewEvent { id, timestamp, tenant, event_type, body }, redelivered })
    }

    const fn pair(&self) -> (TenantId, EventType) {
        (self.event.tenant, self.event.event_type)
    }
}

/// The distinct questions that the events put to the ledger.
pub(crate) fn questions(usable: &[Usable]) -> Vec<(TenantId, EventType)> {
    let mut pairs: Vec<_> = usable.iter().map(Usable::pair).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

/// What is to be stored, and how to tell afterwards what became of each event.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) events: Vec<NewEvent>,
    pub(crate) deliveries: Vec<NewDelivery>,
    of_event: Vec<Planned>,
}

/// One event of the batch.
struct Planned {
    redelivered: Redelivered,
    key: (EventId, Timestamp),
    deliveries: Vec<DeliveryId>,
}

impl Plan {
    pub(crate) fn new(usable: Vec<Usable>, pairs: &[(TenantId, EventType)], subscribers: &[Subscriber]) -> Self {
        let mut by_pair: HashMap<_, Vec<_>> = HashMap::new();
        for Subscriber { pair, webhook } in subscribers {
            by_pair.entry(pairs[*pair]).or_default().push(*webhook);
        }
        let (mut plan, mut seen) = (Self::default(), HashSet::new());
        for Usable { event, redelivered } in usable {
            let webhooks = by_pair.get(&(event.tenant, event.event_type)).map(Vec::as_slice).unwrap_or_default();
            let deliveries: Vec<_> = webhooks.iter().map(|webhook| NewDelivery::of(&event, *webhook)).collect();
            let ids = deliveries.iter().map(|delivery| delivery.id).collect();
            plan.of_event.push(Planned { redelivered, key: (event.id, event.timestamp), deliveries: ids });
            if webhooks.is_empty() || !seen.insert((event.tenant, event.id, event.timestamp)) {
                continue;
            }
            plan.deliveries.extend(deliveries);
            plan.events.push(event);
        }
        plan
    }

    /// Events that were handed out before: deliveries of theirs may be stored without a job, also to webhooks that do not
    /// want them any more.
    pub(crate) fn again(&self) -> Vec<(EventId, Timestamp)> {
        let again = self.of_event.iter().filter(|event| event.redelivered == Redelivered::Yes);
        again.map(|event| event.key).collect()
    }

    /// Every event that somebody wants.
    pub(crate) fn wanted(&self) -> Vec<(EventId, Timestamp)> {
        self.of_event.iter().filter(|event| !event.deliveries.is_empty()).map(|event| event.key).collect()
    }

    /// What became of each event, for the metrics.
    pub(crate) fn outcomes(&self, stored: &HashSet<DeliveryId>) -> impl Iterator<Item = &'static str> {
        let mut counted = HashSet::new();
        self.of_event.iter().map(move |Planned { deliveries, .. }| match deliveries.first() {
            None => "unwanted",
            Some(first) if deliveries.iter().any(|id| stored.contains(id)) && counted.insert(*first) => "accepted",
            Some(_) => "duplicate",
        })
    }
}

/// The message that parks an unusable event.
pub(crate) fn rejected(
    queue: String,
    body: Vec<u8>,
    routing_key: String,
    rejection: &Rejection,
    now: OffsetDateTime,
) -> Outgoing {
    let headers = BTreeMap::from([
        ("x-rejected-reason".to_owned(), rejection.reason().to_owned()),
        ("x-rejected-detail".to_owned(), rejection.to_string()),
        ("x-rejected-at".to_owned(), now.format(&Rfc3339).unwrap_or_default()),
        ("x-rejected-routing-key".to_owned(), routing_key),
    ]);
    Outgoing { queue, body, headers, expires_in: None }
}
