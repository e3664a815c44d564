//! The span of an attempt for a collector: a client's span by OpenTelemetry's conventions for HTTP. It holds nothing of
//! the body, a header, or the URL but host and port: a path may hold a receiver's secret. Texts that a receiver wrote
//! are not in it either.

use domain::{AddressPolicy, EventType, OutcomeClass, PostResult, TenantId, WebhookUrl};
use ledger::Attempted;
use time::OffsetDateTime;
use traces::{Kind, Span, Traces, Value};

/// Exports attempts' spans.
pub(crate) struct Spans {
    pub(crate) traces: Traces,
    pub(crate) address_policy: AddressPolicy,
}

impl Spans {
    /// Exports an attempt if its event's trace is recorded: as a child of what the event came with. So all attempts of a
    /// delivery are in one trace, or none is. `began`: by this machine's clock, as in all spans. The ledger has the
    /// database's time.
    pub(crate) fn export(
        &self,
        event_type: EventType,
        tenant: TenantId,
        attempt: u16,
        began: OffsetDateTime,
        attempted: &Attempted,
    ) {
        let Attempted { id, webhook, url, answer, traceparent, .. } = attempted;
        let Some(parent) = traceparent else { return };
        let Some(mut span) = self.traces.begin(Kind::Client, Some(parent), began) else { return };
        span.name("POST");
        span.set("http.request.method", "POST");
        self.set_server(&mut span, url);
        if let Some(resent) = attempt.checked_sub(1).filter(|resent| *resent > 0) {
            span.set("http.request.resend_count", i64::from(resent));
        }
        if let Some(status) = answer.status {
            span.set("http.response.status_code", i64::from(status));
            span.set("network.protocol.version", "1.1");
        }
        span.set("webhooks.delivery.id", id.to_string());
        span.set("webhooks.webhook.id", webhook.to_string());
        span.set("webhooks.tenant.id", tenant.to_string());
        span.set("webhooks.event.type", event_type.as_str());
        span.set("webhooks.attempt", i64::from(attempt));
        span.set("webhooks.outcome", answer.class.as_str());
        if let Some(error) = error_of(answer) {
            span.fail(error);
        }
        span.end(began + answer.elapsed);
    }

    /// A URL that the settings refuse leads to no server.
    fn set_server(&self, span: &mut Span, url: &str) {
        let Ok(url) = WebhookUrl::parse(url, usize::MAX, &self.address_policy) else { return };
        if let (Some(host), Some(port)) = (url.as_url().host_str(), url.as_url().port_or_known_default()) {
            span.set("server.address", host.trim_matches(['[', ']']).to_owned());
            span.set("server.port", i64::from(port));
        }
    }
}

/// The conventions want the status's number where there is one. A redirect, which is not followed, is a failure as well.
fn error_of(answer: &PostResult) -> Option<Value> {
    match (answer.class, answer.status) {
        (OutcomeClass::Success, _) => None,
        (OutcomeClass::Status, Some(status)) => Some(status.to_string().into()),
        (class, _) => Some(class.as_str().into()),
    }
}
