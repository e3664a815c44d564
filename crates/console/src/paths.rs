//! Where the console's pages are.

use domain::{DeliveryId, WebhookId};
use uuid::Uuid;

/// The console's pages.
pub struct Paths;

impl Paths {
    /// The list of webhooks, and the beginning of every other path.
    pub const HOME: &str = "/console/";

    /// The log-in.
    pub const LOG_IN: &str = "/console/login/";

    /// The deleted webhooks.
    pub const DELETED: &str = "/console/deleted/";

    /// The keys of programs.
    pub const KEYS: &str = "/console/keys/";

    /// One webhook.
    pub fn webhook(id: WebhookId) -> String {
        format!("/console/webhooks/{id}/")
    }

    /// A page or an action of a webhook, such as `settings`.
    pub fn of_webhook(id: WebhookId, part: &str) -> String {
        format!("/console/webhooks/{id}/{part}/")
    }

    /// One delivery.
    pub fn delivery(webhook: WebhookId, id: DeliveryId) -> String {
        format!("/console/webhooks/{webhook}/deliveries/{id}/")
    }

    /// The body that a delivery sends, to download.
    pub fn body(webhook: WebhookId, id: DeliveryId) -> String {
        format!("/console/webhooks/{webhook}/deliveries/{id}/body/")
    }

    /// Sends a delivery again.
    pub fn resend(webhook: WebhookId, id: DeliveryId) -> String {
        format!("/console/webhooks/{webhook}/deliveries/{id}/resend/")
    }

    /// The progress of a recovery.
    pub fn recovery(webhook: WebhookId, id: Uuid) -> String {
        format!("/console/webhooks/{webhook}/recoveries/{id}/")
    }

    /// What became of an event or a delivery.
    pub fn find(id: &str) -> String {
        format!("/console/find/?{}", crate::text::query([("id", id)]))
    }
}
