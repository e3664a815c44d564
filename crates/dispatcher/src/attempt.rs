//! One attempt: sign the stored body, send it, hand the outcome on.

use std::sync::Arc;

use bytes::Bytes;
use domain::{Destinations, Job, OutcomeClass, WebhookId, WebhookUrl};
use egress::{Answer, Egress, Post};
use ledger::{Due, SecretKeys, UnsealError};
use signing::sign;
use time::OffsetDateTime;

use crate::{fault, metrics::Metrics};

/// What attempts need.
#[derive(Clone)]
pub(crate) struct Sender {
    pub(crate) egress: Egress,
    pub(crate) keys: Arc<SecretKeys>,
    pub(crate) destinations: Destinations,
    pub(crate) metrics: Metrics,
}

/// An attempt that was made.
pub(crate) struct Made {
    pub(crate) job: Job,
    pub(crate) due: Due,
    pub(crate) signature: String,
    pub(crate) answer: Answer,
}

impl Sender {
    /// Makes an attempt. Whatever the receiver does is an outcome. The body is let go of when the attempt ends.
    ///
    /// # Errors
    /// When the operator's keys do not open the webhook's secret: that is not the receiver's fault, and no attempt.
    pub(crate) async fn attempt(&self, job: Job, due: Due, body: Bytes) -> Result<Made, (Due, UnsealError)> {
        let destination = &due.destination;
        let secret = match self.keys.open(destination.webhook, &destination.secret) {
            Ok(secret) => secret,
            Err(error) => return Err((due, error)),
        };
        let now = OffsetDateTime::now_utc();
        if due.progress.attempts == 0 {
            self.metrics.first_attempt_seconds.observe((now - due.occurred_at).as_seconds_f64().max(0.0));
        }
        fault::at_attempt(&destination.url);
        let signature = sign(&secret, &body, now.unix_timestamp());
        let answer = match WebhookUrl::parse(&destination.url, usize::MAX, &self.destinations) {
            Ok(url) => {
                let headers = vec![
                    ("X-Service-Webhook-Id", due.id.to_string()),
                    ("X-Service-Event", due.event_type.to_string()),
                    ("X-Service-Signature", signature.clone()),
                ];
                self.egress.post(Post { url, headers, body }).await
            }
            Err(fault) => refused(format!("the URL {fault}"), now),
        };
        self.metrics.attempted(answer.class);
        self.metrics.attempt_seconds.observe(answer.elapsed.as_secs_f64());
        log(&due, job, destination.webhook, &answer);
        Ok(Made { job, due, signature, answer })
    }
}

/// A URL that was good when it was registered, but is not by today's configuration.
fn refused(error: String, now: OffsetDateTime) -> Answer {
    Answer {
        class: OutcomeClass::RefusedAddress,
        status: None,
        head: Vec::new(),
        error: Some(error),
        started_at: now,
        elapsed: std::time::Duration::ZERO,
    }
}

fn log(due: &Due, job: Job, webhook: WebhookId, answer: &Answer) {
    tracing::debug!(
        delivery = %due.id,
        %webhook,
        event_type = %due.event_type,
        attempt = job.attempt,
        outcome = %answer.class,
        status = answer.status,
        milliseconds = answer.elapsed.as_millis(),
        "attempted"
    );
}
