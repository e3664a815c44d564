//! Receives deliveries and verifies `webhook-signature` with the official library of Standard Webhooks, the crate
//! `standardwebhooks`. Call [`Receiver::receive`] from a handler of your web framework, behind TLS.

use std::collections::HashSet;

use http::HeaderMap;
use standardwebhooks::{Webhook, WebhookError};

/// Receives the deliveries of one webhook.
pub struct Receiver {
    webhook: Webhook,
    /// In production: a unique key in your database, written in the transaction of the processing.
    seen: HashSet<String>,
}

impl Receiver {
    /// `signing_secret` as it was shown when the webhook was created.
    ///
    /// # Errors
    /// When it is no secret.
    pub fn new(signing_secret: &str) -> Result<Self, WebhookError> {
        Ok(Self { webhook: Webhook::new(signing_secret)?, seen: HashSet::new() })
    }

    /// Returns the status and the text of the answer. `process` is your own code. If it fails, the delivery comes again.
    pub fn receive<E>(
        &mut self,
        headers: &HeaderMap,
        body: &[u8],
        process: impl FnOnce(&[u8]) -> Result<(), E>,
    ) -> (u16, String) {
        if let Err(why) = self.webhook.verify(body, headers) {
            return (400, why.to_string());
        }
        let id = headers.get("webhook-id").and_then(|id| id.to_str().ok()); // it is signed, so it is there
        let delivery = id.unwrap_or_default();
        if self.seen.contains(delivery) {
            return (200, "seen before".to_owned()); // 2xx, or it comes again
        }
        if process(body).is_err() {
            return (500, "processing failed".to_owned());
        }
        self.seen.insert(delivery.to_owned()); // only now: what failed has to come again
        (200, "received".to_owned())
    }
}
