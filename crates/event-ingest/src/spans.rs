//! The span of an event for a collector: a consumer's span by OpenTelemetry's conventions for messaging, from the
//! message's arrival until its jobs are confirmed. It holds nothing of the body, and no header.

use broker::Names;
use domain::{EventType, Traceparent};
use time::OffsetDateTime;
use traces::{Kind, Span, Traces};

use crate::plan::Usable;

/// Begins events' spans.
#[derive(Clone)]
pub(crate) struct Spans {
    traces: Traces,
    exchange: String,
    queue: String,
}

impl Spans {
    pub(crate) fn new(traces: Traces, names: &Names) -> Self {
        Self { traces, exchange: names.events_exchange.clone(), queue: names.events() }
    }

    /// Begins the span of a message: a child of the span that its `traceparent` names, or a trace of its own.
    pub(crate) fn begin(&self, parent: Option<&Traceparent>, routing_key: &str, at: OffsetDateTime) -> Option<Span> {
        let mut span = self.traces.begin(Kind::Consumer, parent, at)?;
        // Anybody who may publish chooses the routing key of an unusable event.
        let routing_key = routing_key.parse::<EventType>().map(EventType::as_str);
        let parts = [Some(self.exchange.as_str()), routing_key.ok(), Some(self.queue.as_str())];
        let destination = parts.into_iter().flatten().collect::<Vec<_>>().join(":");
        span.name(format!("process {destination}"));
        span.set("messaging.system", "rabbitmq");
        span.set("messaging.operation.name", "process");
        span.set("messaging.operation.type", "process");
        span.set("messaging.destination.name", destination);
        Some(span)
    }
}

/// Ends the span of an event that is rejected.
pub(crate) fn end_rejected(span: Option<Span>, reason: &'static str) {
    if let Some(mut span) = span {
        span.set("webhooks.event.outcome", "rejected");
        span.fail(reason);
        span.end(OffsetDateTime::now_utc());
    }
}

/// The span of a stored event, which says what became of it.
pub(crate) fn judged(mut usable: Usable, verdict: &'static str) -> Option<Span> {
    let mut span = usable.span.take()?;
    let event = &usable.event;
    span.set("webhooks.event.id", event.id.to_string());
    span.set("webhooks.event.type", event.event_type.as_str());
    span.set("webhooks.tenant.id", event.tenant.to_string());
    span.set("webhooks.event.outcome", verdict);
    Some(span)
}

/// Ends the spans of events whose jobs are confirmed.
pub(crate) fn end_all(spans: Vec<Span>) {
    let now = OffsetDateTime::now_utc();
    spans.into_iter().for_each(|span| span.end(now));
}
