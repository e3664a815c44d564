//! Makes one attempt: signs the stored body, sends it, and returns the result.

use std::sync::Arc;

use bytes::Bytes;
use domain::{Answer, Destinations, Job, OutcomeClass, WebhookUrl};
use egress::{Egress, Post};
use ledger::{Attempted, LoadedDelivery};
use signing::{SigningSecret, sign};
use time::OffsetDateTime;

use crate::{fault, shared::Shared};

/// Makes attempts.
pub(crate) struct Sender {
    pub(crate) egress: Egress,
    pub(crate) destinations: Destinations,
    pub(crate) shared: Arc<Shared>,
}

impl Sender {
    /// Makes an attempt. Whatever the receiver does is an outcome. The result does not hold the body.
    pub(crate) async fn attempt(
        &self,
        job: Job,
        delivery: LoadedDelivery,
        secret: &SigningSecret,
        body: Bytes,
    ) -> Attempted {
        let LoadedDelivery { id, progress, occurred_at, event_type, destination, .. } = delivery;
        let now = OffsetDateTime::now_utc();
        if progress.attempts == 0 {
            self.shared.metrics.first_attempt_seconds.observe((now - occurred_at).as_seconds_f64().max(0.0));
        }
        fault::at_attempt(&destination.url);
        let t = now.unix_timestamp();
        let signature = sign(secret, &body, t);
        let mut answer = match WebhookUrl::parse(&destination.url, usize::MAX, &self.destinations) {
            Ok(url) => {
                let headers = vec![
                    ("X-Service-Webhook-Id", id.to_string()),
                    ("X-Service-Event", event_type.to_string()),
                    ("X-Service-Signature", signature.clone()),
                ];
                self.egress.post(Post { url, headers, body }).await
            }
            Err(refused) => refusal(format!("the URL {refused}"), now),
        };
        hide_digest(&mut answer.head, &signature);
        self.shared.metrics.attempted(&answer);
        tracing::debug!(
            delivery = %id,
            webhook = %destination.webhook,
            %event_type,
            attempt = job.attempt,
            outcome = %answer.class,
            status = answer.status,
            milliseconds = answer.elapsed.as_millis(),
            "attempted"
        );
        Attempted {
            id,
            webhook: destination.webhook,
            progress: progress.after(answer.class, answer.started_at, answer.finished_at(), &self.shared.schedule),
            url: destination.url,
            signed_at: OffsetDateTime::from_unix_timestamp(t).unwrap_or(now),
            answer,
        }
    }
}

/// The answer for a URL that was registered, but that today's settings refuse.
fn refusal(error: String, now: OffsetDateTime) -> Answer {
    Answer {
        class: OutcomeClass::RefusedAddress,
        status: None,
        head: Vec::new(),
        error: Some(error),
        started_at: now,
        elapsed: std::time::Duration::ZERO,
    }
}

/// Fewer digits of a digest than this reveal nothing.
const DIGITS: usize = 8;

/// Masks the signature in an answer: a receiver may echo it, and it must not be stored.
fn hide_digest(head: &mut [u8], signature: &str) {
    let digest = signature.rsplit('=').next().unwrap_or_default().as_bytes();
    while let Some(at) = head.windows(digest.len().max(1)).position(|part| part == digest) {
        head[at..at + digest.len()].fill(b'*');
    }
    // The kept part of the answer may end within the digest.
    let cut = (DIGITS..digest.len()).rev().find(|digits| head.ends_with(&digest[..*digits]));
    if let Some(digits) = cut {
        let end = head.len();
        head[end - digits..].fill(b'*');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_repeats_the_signature_is_kept_without_it() {
        let mut head = b"v1=abcdef0123, again abcdef0123, abcdef01.".to_vec();
        hide_digest(&mut head, "t=1772357400,v1=abcdef0123");
        assert_eq!(head, b"v1=**********, again **********, abcdef01.");
        let mut short = b"ok".to_vec();
        hide_digest(&mut short, "t=1772357400,v1=abcdef0123");
        assert_eq!(short, b"ok");
        let mut cut = b"v1=abcdef012".to_vec();
        hide_digest(&mut cut, "t=1772357400,v1=abcdef0123");
        assert_eq!(cut, b"v1=*********");
    }
}
