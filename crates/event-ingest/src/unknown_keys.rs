//! Messages of the events exchange with an unknown routing key: counted, and parked if they may be events.

use std::{
    error::Error,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use broker::{Acker, BatchLimit, Broker, Outgoing, Publisher, QUEUE_LIMIT, Received, Subscription};
use domain::{Event, EventType, Rejection};
use service_kit::publishing::{Publication, Publishing};
use time::OffsetDateTime;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{fault, metrics::Metrics, plan::rejected, waiting_events::content};

/// The maximum of messages that ingest holds, beside its events, of any size.
pub(crate) const PREFETCH: u16 = 8;
const LIMIT: BatchLimit = BatchLimit { messages: PREFETCH as usize, bytes: usize::MAX, linger: Duration::ZERO };

pub(crate) struct UnknownKeys {
    pub(crate) broker: Broker,
    pub(crate) publisher: Publisher,
    pub(crate) metrics: Metrics,
}

/// The verdict on a message by its routing key and its body.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The key is known: somebody deleted a binding. The events queue may lack the event.
    Known,
    /// The key is misspelt. The event belongs under this type, unless neither key nor body decides that.
    Misspelt(Option<EventType>),
    /// The key may be another service's, and the body is an event of this type.
    Event(EventType),
    /// The message is another service's.
    Foreign,
}

fn judge(routing_key: &str, body: &[u8]) -> Verdict {
    if routing_key.parse::<EventType>().is_ok() {
        return Verdict::Known;
    }
    let of_body = Event::type_of(body);
    match (EventType::of_misspelt(routing_key).as_slice(), of_body) {
        ([], Some(event_type)) => Verdict::Event(event_type),
        ([], None) => Verdict::Foreign,
        ([only], None) => Verdict::Misspelt(Some(*only)),
        (_, of_body) => Verdict::Misspelt(of_body),
    }
}

impl UnknownKeys {
    /// Judges messages until the shutdown. What is not confirmed `deadline` after it stays on the queue.
    pub(crate) async fn consume(
        self,
        mut subscription: Subscription,
        deadline: Duration,
        shutdown: &CancellationToken,
    ) {
        while let Some(Some(batch)) = shutdown.run_until_cancelled(subscription.next_batch(LIMIT)).await {
            let mut taking = pin!(self.take(batch));
            if shutdown.run_until_cancelled(&mut taking).await.is_none() {
                subscription.stop();
                if timeout(deadline, taking).await.is_err() {
                    tracing::warn!("the shutdown's deadline has passed: unparked events stay on the queue");
                }
                break;
            }
        }
        subscription.into_closing().close().await;
    }

    async fn take(&self, batch: Vec<Received>) {
        let (mut publications, mut done, now) = (Vec::new(), Vec::new(), OffsetDateTime::now_utc());
        let names = self.broker.names();
        let mut parked = 0;
        for Received { body, routing_key, traceparent, acker, .. } in batch {
            let judge = || {
                fault::at(fault::Step::Judge, &body);
                judge(&routing_key, &body)
            };
            // It may be an event, and another try would panic as well.
            let verdict = catch_unwind(AssertUnwindSafe(judge)).unwrap_or(Verdict::Misspelt(None));
            let to_park = match verdict {
                Verdict::Known => None,
                Verdict::Misspelt(right) => Some(("rejected", right)),
                Verdict::Event(right) => Some(("unknown_key", Some(right))),
                Verdict::Foreign => {
                    self.metrics.event("unknown_key");
                    tracing::debug!(routing_key, "a message of the events exchange is another service's");
                    done.push(vec![acker]);
                    continue;
                }
            };
            let content = match to_park {
                None => Outgoing { queue: names.events(), body, ..Default::default() },
                Some((outcome, right)) => {
                    self.metrics.event(outcome);
                    let rejection = Rejection::UnknownKey { key: routing_key.clone(), right };
                    tracing::warn!(reason = rejection.reason(), detail = %rejection, "an event is parked");
                    parked += 1;
                    rejected(names.unknown_key(), body, routing_key, &rejection, now)
                }
            };
            let content = content.traced(traceparent.as_ref());
            publications.push(Publication { sources: vec![Arc::new(vec![acker])], content });
        }
        if parked > 0 {
            self.count_dropped(parked).await;
        }
        // A shutdown drops this future instead.
        let (what, abandon) = ("parking events with an unknown routing key", CancellationToken::new());
        let publishing = Publishing { what, publisher: &self.publisher, abandon: &abandon };
        let acknowledge = |sources: Vec<Vec<Acker>>| Acker::ack_all(sources.into_iter().flatten().collect());
        publishing.until_confirmed(publications, done, content, acknowledge).await;
    }

    /// Counts the parked events that give way to further ones: the broker drops the oldest beyond the limit, and says so
    /// to nobody.
    async fn count_dropped(&self, further: u64) {
        let queue = self.broker.names().unknown_key();
        match self.broker.depth(&queue).await {
            Ok(depth) => {
                let dropped = (u64::from(depth.unwrap_or_default()) + further).saturating_sub(QUEUE_LIMIT.into());
                self.metrics.unknown_key_dropped.inc_by(dropped.min(further));
                if dropped > 0 {
                    tracing::warn!(queue, dropped, "the queue is full: its oldest events are dropped");
                }
            }
            Err(error) => tracing::debug!(queue, error = &error as &dyn Error, "dropped events are not counted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_parked_by_its_key_or_its_body_and_what_is_anothers_is_not() {
        let event: &[u8] = br#"{"event_type":"quote.cancelled"}"#;
        for (key, body, verdict) in [
            ("quote.closed", event, Verdict::Known),
            ("Quote.Closed", event, Verdict::Misspelt(Some(EventType::QuoteCancelled))),
            ("Quote.Closed", b"no JSON", Verdict::Misspelt(Some(EventType::QuoteClosed))),
            ("", event, Verdict::Misspelt(Some(EventType::QuoteCancelled))),
            ("", b"no JSON", Verdict::Misspelt(None)),
            ("quote.c", event, Verdict::Misspelt(Some(EventType::QuoteCancelled))),
            ("quote.c", b"no JSON", Verdict::Misspelt(None)),
            ("quotes.cancelled", event, Verdict::Event(EventType::QuoteCancelled)),
            ("invoice.paid", br#"{"event_type":"invoice.paid"}"#, Verdict::Foreign),
            ("invoice.paid", b"\xff", Verdict::Foreign),
        ] {
            assert_eq!(judge(key, body), verdict, "{key:?} {body:?}");
        }
    }
}
