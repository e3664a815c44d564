//! Why requests of administrators are refused.

use domain::WebhookId;

/// Why a request of an administrator is refused. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The tenant has no such webhook, or the webhook no such delivery.
    NotFound,
    /// A webhook has this id already.
    Exists(WebhookId),
    /// The tenant has the most webhooks that it may have: this many.
    TooMany(u32),
    /// The tenant has the most deleted webhooks that are kept: this many.
    TooManyDeleted(u32),
    /// A key has this id already.
    KeyExists,
    /// The tenant has the most keys that it may have: this many.
    TooManyKeys(u16),
    /// The webhook is paused.
    Paused,
    /// Deliveries of the webhook are being cancelled, and so would those be that are sent again now.
    Cancelling,
    /// The delivery's day has been over for longer than bodies or history are kept.
    TooOld,
    /// The body is gone, of all deliveries that were asked for.
    BodyExpired,
    /// The delivery has had too many attempts.
    TooOften,
}
