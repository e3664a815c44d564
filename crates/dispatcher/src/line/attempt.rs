//! Makes one attempt: signs the stored body, sends it, works out what follows, and returns the result.

use std::sync::Arc;

use bytes::Bytes;
use domain::{
    ATTEMPT_HEADER, AddressPolicy, Job, OutcomeClass, PostResult, ReceiverHeaders, TEST_HEADER, WebhookUrl,
    delivery_headers,
};
use egress::{Egress, NoDescriptor, Post};
use ledger::{Attempted, LoadedDelivery};
use signing::{
    SIGNATURE_HEADER, STANDARD_ID_HEADER, STANDARD_SIGNATURE_HEADER, STANDARD_TIMESTAMP_HEADER, SigningSecret, sign,
    sign_standard,
};
use time::OffsetDateTime;

use crate::{
    fault,
    line::{
        context::LineContext,
        echoes::{begins_with, hide_values},
        span::Spans,
    },
};

/// The headers of an attempt that are the service's own.
const MAX_SERVICE_HEADERS: usize = 9;

/// Makes attempts.
pub(crate) struct Sender {
    pub(crate) egress: Egress,
    pub(crate) address_policy: AddressPolicy,
    /// Whether attempts also carry the headers of Standard Webhooks.
    pub(crate) standard_webhooks: bool,
    pub(crate) spans: Spans,
    pub(crate) context: Arc<LineContext>,
}

/// The opened secrets of a webhook.
pub(crate) struct Secrets {
    pub(crate) signing: SigningSecret,
    pub(crate) headers: ReceiverHeaders,
}

impl Sender {
    /// Makes an attempt. Whatever the receiver does is an outcome. The result does not hold the body.
    ///
    /// # Errors
    /// [`NoDescriptor`]: the attempt was not made.
    pub(crate) async fn attempt(
        &self,
        job: Job,
        delivery: LoadedDelivery,
        secrets: Secrets,
        body: Bytes,
    ) -> Result<Attempted, NoDescriptor> {
        let LoadedDelivery { id, progress, event, event_type, is_test, traceparent, destination, .. } = delivery;
        let Secrets { signing, headers: receiver_headers } = secrets;
        let now = OffsetDateTime::now_utc();
        fault::at_attempt(&destination.url);
        let (t, id_text) = (now.unix_timestamp(), id.to_string());
        let signature = sign(&signing, &body, t);
        let standard = self.standard_webhooks.then(|| sign_standard(&signing, &id_text, t, &body)).flatten();
        // The ledger compares it with others' times.
        let started_at = self.context.database.now();
        let mut answer = match WebhookUrl::parse(&destination.url, usize::MAX, &self.address_policy) {
            Ok(url) => {
                let mut headers = Vec::with_capacity(MAX_SERVICE_HEADERS);
                headers.extend(delivery_headers(id, event, event_type));
                headers.push((ATTEMPT_HEADER, progress.next_of_run().to_string()));
                headers.extend(is_test.then(|| (TEST_HEADER.0, TEST_HEADER.1.to_owned())));
                headers.push((SIGNATURE_HEADER, signature.clone()));
                if let Some(standard) = &standard {
                    headers.push((STANDARD_ID_HEADER, id_text));
                    headers.push((STANDARD_TIMESTAMP_HEADER, t.to_string()));
                    headers.push((STANDARD_SIGNATURE_HEADER, standard.clone()));
                }
                self.egress.post(Post { url, headers, receiver_headers: receiver_headers.clone(), body }).await?
            }
            Err(refused) => refusal(format!("the URL {refused}"), now),
        };
        let hide_secrets = |text: &mut [u8]| {
            hide_digests(text, &signature, standard.as_deref());
            hide_values(text, &receiver_headers);
        };
        hide_secrets(&mut answer.head);
        // It may quote a header of the answer.
        answer.error = answer.error.map(|error| {
            let mut error = error.into_bytes();
            hide_secrets(&mut error);
            String::from_utf8_lossy(&error).into_owned()
        });
        let began = std::mem::replace(&mut answer.started_at, started_at);
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
        let attempted = Attempted {
            id,
            webhook: destination.webhook,
            progress: progress.after_attempt(
                answer.class,
                answer.started_at,
                answer.finished_at(),
                &self.context.schedule,
            ),
            url: destination.url,
            signed_at: OffsetDateTime::from_unix_timestamp(t).unwrap_or(now),
            answer,
            traceparent,
        };
        self.spans.export(event_type, destination.tenant, job.attempt, began, &attempted);
        Ok(attempted)
    }
}

/// The answer for a URL that was registered, but that today's settings refuse.
fn refusal(error: String, now: OffsetDateTime) -> PostResult {
    PostResult {
        class: OutcomeClass::RefusedAddress,
        status: None,
        head: Vec::new(),
        error: Some(error),
        started_at: now,
        elapsed: std::time::Duration::ZERO,
    }
}

/// Fewer digits of a digest than this reveal nothing.
const MIN_MASKED_DIGITS: usize = 8;

/// Masks the signatures in what a receiver sent: it may echo them, and they must not be stored.
fn hide_digests(text: &mut [u8], signature: &str, standard: Option<&str>) {
    hide(text, signature.rsplit('=').next().unwrap_or_default());
    if let Some((_, digest)) = standard.and_then(|standard| standard.split_once(',')) {
        // Some escape or drop the padding.
        hide(text, digest.trim_end_matches('='));
    }
}

/// Masks a digest, also one that is cut.
fn hide(text: &mut [u8], digest: &str) {
    let mut at = 0;
    while at < text.len() {
        let (digits, length) = begins_with(&text[at..], digest);
        if digits >= MIN_MASKED_DIGITS {
            text[at..at + length].fill(b'*');
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNATURE: &str = "t=1772357400,v1=abcdef0123";

    #[test]
    fn an_answer_that_repeats_the_signature_is_kept_without_it() {
        let mut head = b"v1=abcdef0123, again abcdef0123, abcdef01.".to_vec();
        hide_digests(&mut head, SIGNATURE, None);
        assert_eq!(head, b"v1=**********, again **********, ********.");
        let mut short = b"ok".to_vec();
        hide_digests(&mut short, SIGNATURE, None);
        assert_eq!(short, b"ok");
        let mut cut = b"v1=abcdef012".to_vec();
        hide_digests(&mut cut, SIGNATURE, None);
        assert_eq!(cut, b"v1=*********");
    }

    #[test]
    fn neither_signature_is_kept_as_it_is_or_in_json() {
        let mut head =
            br#"{"a":"v1,ab/defgh+k=","b":"v1,ab\/defgh+k\u003d","c":"v1=abcdef0123"}, v1,ab/defgh"#.to_vec();
        hide_digests(&mut head, SIGNATURE, Some("v1,ab/defgh+k="));
        let kept = String::from_utf8(head).unwrap();
        assert_eq!(kept, r#"{"a":"v1,**********=","b":"v1,***********\u003d","c":"v1=**********"}, v1,********"#);
        for (echo, kept) in [
            (r"abcdefgh\/i/k", "*************"),
            ("abcdefgh/i/k", "************"),
            ("abcdefg/", "abcdefg/"),
            ("abcdefgh%2Fi%2fk", "****************"),
            (r"abcdefgh\u002Fi\u002fk", "**********************"),
        ] {
            let mut head = echo.as_bytes().to_vec();
            hide(&mut head, "abcdefgh/i/k");
            assert_eq!(head, kept.as_bytes());
        }
        for echo in ["abcdefgh+", "abcdefgh%2B", "abcdefgh%2b", r"abcdefgh\u002B"] {
            let mut head = echo.as_bytes().to_vec();
            hide(&mut head, "abcdefgh+");
            assert_eq!(head, "*".repeat(echo.len()).as_bytes());
        }
    }
}
