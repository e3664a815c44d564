//! What a batch of messages asks for. All of it is decided without IO.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use broker::Outgoing;
use domain::{AcceptedPeriod, Event, Redelivered, Rejection, Traceparent, envelope};
use ledger::{NewEvent, Stored};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use traces::Span;

/// A usable event, ready to be stored.
pub(crate) struct Usable {
    event: NewEvent,
    redelivered: Redelivered,
    /// Its span, if its trace is recorded.
    pub(crate) span: Option<Span>,
}

impl Usable {
    pub(crate) fn parse(
        body: &[u8],
        redelivered: Redelivered,
        data_limit: usize,
        accepted: AcceptedPeriod,
    ) -> Result<Self, Rejection> {
        let event = Event::parse(body, data_limit)?;
        accepted.check(event.timestamp)?;
        let body = envelope(&event).into();
        let Event { id, event_type, tenant, timestamp, .. } = event;
        let event = NewEvent { id, timestamp, tenant, event_type, body, traceparent: None };
        Ok(Self { event, redelivered, span: None })
    }

    /// The same event with its span and the trace that its message names, or else the one that its span begins.
    pub(crate) fn traced(mut self, traceparent: Option<Traceparent>, span: Option<Span>) -> Self {
        self.event.traceparent = traceparent.or_else(|| span.as_ref().map(Span::traceparent));
        self.span = span;
        self
    }

    pub(crate) const fn event(&self) -> &NewEvent {
        &self.event
    }

    /// The millisecond of the event, which is that of its deliveries' ids.
    pub(crate) fn unix_millis(&self) -> u64 {
        self.event.timestamp.unix_millis()
    }
}

/// What to store, and how to tell afterwards what became of each event.
#[derive(Default)]
pub(crate) struct Plan {
    /// The events, without duplicates.
    pub(crate) events: Vec<NewEvent>,
    messages: Vec<EventMessage>,
}

/// One message of the batch.
struct EventMessage {
    redelivered: Redelivered,
    /// The index of its event.
    event: usize,
    /// Whether it is a duplicate: an earlier message of the batch holds the same event.
    is_repeated: bool,
}

impl Plan {
    pub(crate) fn new<'u>(usable: impl Iterator<Item = &'u Usable>) -> Self {
        let (mut plan, mut known) = (Self::default(), HashMap::new());
        for Usable { event, redelivered, .. } in usable {
            let identity = (event.tenant, event.event_type, event.id, event.timestamp.unix_millis());
            let next = plan.events.len();
            let index = *known.entry(identity).or_insert(next);
            plan.messages.push(EventMessage { redelivered: *redelivered, event: index, is_repeated: index != next });
            if index == next {
                plan.events.push(event.clone());
            }
        }
        plan
    }

    /// The event of each message, in the order of [`Self::verdicts`]. That of a duplicate is the first one.
    pub(crate) fn events_of_messages(&self) -> impl Iterator<Item = &NewEvent> {
        self.messages.iter().map(|message| &self.events[message.event])
    }

    /// Redelivered events. Deliveries of theirs may be stored without a job, even to webhooks that no longer want them.
    pub(crate) fn redelivered(&self) -> Vec<&NewEvent> {
        let redelivered: BTreeSet<_> = self
            .messages
            .iter()
            .filter(|message| message.redelivered == Redelivered::Yes)
            .map(|message| message.event)
            .collect();
        redelivered.into_iter().map(|index| &self.events[index]).collect()
    }

    /// What became of each event, for the metrics. Events of one id and millisecond are not told apart: in a batch that
    /// has them of two tenants or types, each counts as accepted when one of them is.
    pub(crate) fn verdicts(&self, stored: &Stored) -> impl Iterator<Item = &'static str> {
        let unwanted: HashSet<_> = stored.unwanted.iter().copied().collect();
        let new: HashSet<_> =
            stored.deliveries.iter().chain(&stored.skipped).map(|(event, id)| (*event, id.unix_millis())).collect();
        self.messages.iter().map(move |message| {
            let event = &self.events[message.event];
            match () {
                () if unwanted.contains(&message.event) => "unwanted",
                () if !message.is_repeated && new.contains(&(event.id, event.timestamp.unix_millis())) => "accepted",
                () => "duplicate",
            }
        })
    }
}

/// The message that takes an unusable event to the queue of rejected ones.
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
    Outgoing { queue, body, headers, ..Default::default() }
}

#[cfg(test)]
mod tests {
    use domain::{DeliveryId, EventType};
    use uuid::Uuid;

    use super::*;

    fn usable(event_type: EventType, timestamp: &str) -> Usable {
        let (id, tenant) = (Uuid::from_u128(1).into(), Uuid::from_u128(2).into());
        let timestamp = timestamp.parse().unwrap();
        let event = NewEvent { id, timestamp, tenant, event_type, body: "{}".into(), traceparent: None };
        Usable { event, redelivered: Redelivered::No, span: None }
    }

    #[test]
    fn an_event_is_stored_once_and_judged_for_each_message_and_one_of_another_type_is_another() {
        let moments = ["2026-03-01T09:30:00.1230001Z", "2026-03-01T09:30:00.1239999Z"];
        let messages = [
            usable(EventType::QuoteAccepted, moments[0]),
            usable(EventType::QuoteClosed, moments[0]),
            usable(EventType::QuoteClosed, moments[1]),
            usable(EventType::QuoteAccepted, moments[0]),
        ];
        let plan = Plan::new(messages.iter());
        let types: Vec<_> = plan.events.iter().map(|event| event.event_type).collect();
        assert_eq!(types, [EventType::QuoteAccepted, EventType::QuoteClosed]);
        let closed = &plan.events[1];
        let id = DeliveryId::derive(Uuid::from_u128(3).into(), closed.id, closed.event_type, closed.timestamp);
        let mut stored = Stored { deliveries: vec![(closed.id, id)], skipped: Vec::new(), unwanted: vec![0] };
        let verdicts = |stored: &Stored| plan.verdicts(stored).collect::<Vec<_>>();
        assert_eq!(verdicts(&stored), ["unwanted", "accepted", "duplicate", "unwanted"]);
        stored.skipped = std::mem::take(&mut stored.deliveries);
        assert_eq!(verdicts(&stored), ["unwanted", "accepted", "duplicate", "unwanted"]);
        stored.skipped.clear();
        assert_eq!(verdicts(&stored), ["unwanted", "duplicate", "duplicate", "unwanted"]);
    }
}
