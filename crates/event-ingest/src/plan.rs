//! What a batch of messages asks for. All of it is decided without IO.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use broker::Outgoing;
use domain::{AcceptedPeriod, Event, Redelivered, Rejection, Traceparent, envelope};
use ledger::{NewEvent, Stored};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use traces::Span;

/// A usable event, ready to be stored.
pub(crate) struct Usable {
    pub(crate) event: NewEvent,
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
}

/// The events to store. Whatever becomes of an event names it by its place in this list.
#[derive(Default)]
pub(crate) struct Plan {
    /// The events, without duplicates.
    pub(crate) events: Vec<NewEvent>,
    messages: Vec<EventMessage>,
}

/// A message whose event is stored, or needs not be.
pub(crate) struct Judged {
    /// The place of its event.
    pub(crate) event: usize,
    /// The verdict on it, for metrics and spans. `None` if it is left for another statement.
    pub(crate) verdict: Option<&'static str>,
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

    /// The places of redelivered events. Deliveries of theirs may be stored without a job, even to webhooks that no longer
    /// want them.
    pub(crate) fn redelivered(&self) -> Vec<usize> {
        let redelivered = self.messages.iter().filter(|message| message.redelivered == Redelivered::Yes);
        redelivered.map(|message| message.event).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the verdict on each message's event, in the order of the messages.
    pub(crate) fn judge(&self, stored: &Stored) -> Vec<Judged> {
        let mut verdicts = vec![Some("duplicate"); self.events.len()];
        stored.left.iter().for_each(|event| verdicts[*event] = None);
        stored.unwanted.iter().for_each(|event| verdicts[*event] = Some("unwanted"));
        stored.deliveries.iter().chain(&stored.skipped).for_each(|(event, _)| verdicts[*event] = Some("accepted"));
        let judged = |&EventMessage { event, is_repeated, .. }: &EventMessage| match verdicts[event] {
            Some("accepted") if is_repeated => Judged { event, verdict: Some("duplicate") },
            verdict => Judged { event, verdict },
        };
        self.messages.iter().map(judged).collect()
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
    Outgoing { routing_key: queue, body, headers, ..Default::default() }
}

#[cfg(test)]
mod tests {
    use domain::EventType;
    use uuid::Uuid;

    use super::*;

    fn usable(tenant: u128, event_type: EventType, timestamp: &str) -> Usable {
        let (id, tenant) = (Uuid::from_u128(1).into(), Uuid::from_u128(tenant).into());
        let timestamp = timestamp.parse().unwrap();
        let event = NewEvent { id, timestamp, tenant, event_type, body: "{}".into(), traceparent: None };
        Usable { event, redelivered: Redelivered::No, span: None }
    }

    #[test]
    fn events_of_one_id_and_millisecond_are_told_apart_by_type_and_tenant_and_judged_for_each_message() {
        let moments = ["2026-03-01T09:30:00.1230001Z", "2026-03-01T09:30:00.1239999Z"];
        let messages = [
            usable(2, EventType::QuoteAccepted, moments[0]),
            usable(2, EventType::QuoteClosed, moments[0]),
            usable(2, EventType::QuoteClosed, moments[1]),
            usable(2, EventType::QuoteAccepted, moments[0]),
            usable(3, EventType::QuoteClosed, moments[0]),
        ];
        let plan = Plan::new(messages.iter());
        let types: Vec<_> = plan.events.iter().map(|event| event.event_type).collect();
        assert_eq!(types, [EventType::QuoteAccepted, EventType::QuoteClosed, EventType::QuoteClosed]);
        let delivery = Uuid::from_u128(4).into();
        let mut stored = Stored { deliveries: vec![(1, delivery)], unwanted: vec![0], ..Stored::default() };
        let judged = |stored: &Stored| {
            let judged = plan.judge(stored).into_iter();
            judged.map(|Judged { event, verdict }| (event, verdict.unwrap_or("left"))).collect::<Vec<_>>()
        };
        let (unwanted, last) = ((0, "unwanted"), (2, "duplicate"));
        assert_eq!(judged(&stored), [unwanted, (1, "accepted"), (1, "duplicate"), unwanted, last]);
        stored.skipped = std::mem::take(&mut stored.deliveries);
        assert_eq!(judged(&stored), [unwanted, (1, "accepted"), (1, "duplicate"), unwanted, last]);
        stored.skipped = vec![(2, delivery)];
        assert_eq!(judged(&stored), [unwanted, (1, "duplicate"), (1, "duplicate"), unwanted, (2, "accepted")]);
        stored.left = vec![1];
        assert_eq!(judged(&stored), [unwanted, (1, "left"), (1, "left"), unwanted, (2, "accepted")]);
    }
}
