//! Receives deliveries and verifies `webhook-signature` with the official library of Standard Webhooks, the crate
//! `standardwebhooks`. Call [`Receiver::receive`] from a handler of your web framework, behind TLS.

use std::collections::HashSet;

use http::HeaderMap;
use standardwebhooks::{Webhook, WebhookError};

/// Receives the deliveries of one webhook.
pub struct Receiver {
    webhook: Webhook,
    /// In production: a unique key in your database, written in the transaction that processes the delivery.
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

    /// Returns the status and the text of the answer.
    pub fn receive(&mut self, headers: &HeaderMap, body: &[u8]) -> (u16, String) {
        if let Err(why) = self.webhook.verify(body, headers) {
            return (400, why.to_string());
        }
        let delivery = headers.get("webhook-id").map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned());
        if !self.seen.insert(delivery.unwrap_or_default()) {
            return (200, "seen before".to_owned()); // 2xx, or it comes again
        }
        (200, "received".to_owned()) // now process it
    }
}
