//! Receives deliveries and verifies `X-Service-Signature` with the crate `signing`, which needs nothing else of this
//! service. Call [`Receiver::receive`] from a handler of your web framework, behind TLS.

use std::collections::HashSet;

use signing::{MAX_TOLERANCE_SECONDS, SigningSecret, verify};

/// Receives the deliveries of one webhook.
pub struct Receiver {
    secret: SigningSecret,
    /// In production: a unique key in your database, written in the transaction that processes the delivery.
    seen: HashSet<String>,
}

impl Receiver {
    /// `signing_secret` as it was shown when the webhook was created.
    pub fn new(signing_secret: &str) -> Self {
        Self { secret: SigningSecret::from(signing_secret.to_owned()), seen: HashSet::new() }
    }

    /// Returns the status and the text of the answer. `signature` is the value of `X-Service-Signature`, `delivery` that
    /// of `X-Service-Webhook-Id`, `body` what came, byte by byte, and `now` the time in Unix seconds.
    pub fn receive(&mut self, signature: &str, delivery: &str, body: &[u8], now: i64) -> (u16, String) {
        if let Err(why) = verify(&self.secret, signature, body, now, MAX_TOLERANCE_SECONDS) {
            return (400, why.to_string());
        }
        if !self.seen.insert(delivery.to_owned()) {
            return (200, "seen before".to_owned()); // 2xx, or it comes again
        }
        (200, "received".to_owned()) // only now parse the body and process it
    }
}
