//! Receives deliveries and verifies `X-Service-Signature` with the crate `signing`, which needs nothing else of this
//! service. Call [`Receiver::receive`] from a handler of your web framework, behind TLS.

use std::collections::HashSet;

use signing::{MAX_TOLERANCE_SECONDS, SigningSecret, verify};

/// Receives the deliveries of one webhook.
pub struct Receiver {
    secret: SigningSecret,
    /// In production: a unique key in your database, written in the transaction of the processing.
    seen: HashSet<String>,
}

impl Receiver {
    /// `signing_secret` as it was shown when the webhook was created.
    pub fn new(signing_secret: &str) -> Self {
        Self { secret: SigningSecret::from(signing_secret.to_owned()), seen: HashSet::new() }
    }

    /// Returns the status and the text of the answer. `signature` is the value of `X-Service-Signature`, `delivery` that
    /// of `X-Service-Webhook-Id`, `body` what came, byte by byte, and `now` the time in Unix seconds. `process` is your
    /// own code. If it fails, the delivery comes again.
    pub fn receive<E>(
        &mut self,
        (signature, delivery): (&str, &str),
        body: &[u8],
        now: i64,
        process: impl FnOnce(&[u8]) -> Result<(), E>,
    ) -> (u16, String) {
        if let Err(why) = verify(&self.secret, signature, body, now, MAX_TOLERANCE_SECONDS) {
            return (400, why.to_string());
        }
        if delivery.is_empty() {
            return (400, "X-Service-Webhook-Id is missing".to_owned());
        }
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
