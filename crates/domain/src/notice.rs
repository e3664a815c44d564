//! Notices: what the business application is notified of, so that it can notify the administrators of a tenant.

use serde::Serialize;
use serde_json::{Map, Value, json};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{DeliveryId, KeyId, TenantId, WebhookId, all::all, time_text, visible};

/// What a notice is about; also its routing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display, EnumString, IntoStaticStr, Serialize, VariantArray)]
#[serde(into = "&'static str")]
pub enum NoticeType {
    /// Attempts have failed for long, and none has succeeded.
    #[strum(serialize = "webhook.failing")]
    Failing,
    /// The first delivery was dropped since the last success.
    #[strum(serialize = "webhook.dropping")]
    Dropping,
    /// The first success after either.
    #[strum(serialize = "webhook.recovered")]
    Recovered,
    /// A user registered it.
    #[strum(serialize = "webhook.created")]
    Created,
    /// A user changed its name, URL or events.
    #[strum(serialize = "webhook.changed")]
    Changed,
    /// A user paused it.
    #[strum(serialize = "webhook.paused")]
    Paused,
    /// A user activated it.
    #[strum(serialize = "webhook.activated")]
    Activated,
    /// A user deleted it.
    #[strum(serialize = "webhook.deleted")]
    Deleted,
    /// It has been paused, or slow, for so long that its held deliveries are about to be cancelled.
    #[strum(serialize = "webhook.expiring")]
    Expiring,
    /// A user created a key.
    #[strum(serialize = "key.created")]
    KeyCreated,
    /// A user revoked a key.
    #[strum(serialize = "key.revoked")]
    KeyRevoked,
}

impl NoticeType {
    /// Every type.
    pub const ALL: [Self; 11] = all(Self::VARIANTS);

    /// The name in the ledger, in messages and in the API.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A notice, as its message and the API show it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Notice {
    /// Tells notices apart: a notice may be published more than once.
    pub notice_id: Uuid,
    /// What it is about.
    #[serde(rename = "type")]
    pub notice_type: NoticeType,
    /// When it happened.
    #[serde(with = "time_text")]
    pub created_at: OffsetDateTime,
    /// The tenant.
    pub tenant_id: TenantId,
    /// The webhook, unless the notice is about a key.
    pub webhook_id: Option<WebhookId>,
    /// The webhook's name.
    pub webhook_name: Option<String>,
    /// One or two sentences for people.
    pub summary: String,
    /// What the type has beside these.
    pub details: Value,
}

impl Notice {
    /// A notice whose `details` are the ledger's.
    pub fn new(
        notice_id: Uuid,
        notice_type: NoticeType,
        created_at: OffsetDateTime,
        tenant_id: TenantId,
        webhook_id: Option<WebhookId>,
        webhook_name: Option<String>,
        details: Value,
    ) -> Self {
        let details = shown(notice_type, webhook_id, details);
        let summary = visible(&summary(notice_type, webhook_name.as_deref().unwrap_or_default(), &details));
        Self { notice_id, notice_type, created_at, tenant_id, webhook_id, webhook_name, summary, details }
    }

    /// The message's content.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// The ledger's details. Of a recovered webhook, also the request that sends again what was dropped.
fn shown(notice_type: NoticeType, webhook: Option<WebhookId>, mut details: Value) -> Value {
    if notice_type == NoticeType::Recovered
        && let (Some(webhook), Some(details)) = (webhook, details.as_object_mut())
    {
        let first = details.remove("first_dropped");
        let first = first.and_then(|id| id.as_str()?.parse::<DeliveryId>().ok());
        let since = first.and_then(|first| time_text::written(first.occurred_at()));
        let request = since.map(|since| {
            json!({
                "method": "POST",
                "path": format!("/api/v1/webhooks/{webhook}/recover/"),
                "body": {"from": since, "states": ["dropped"]},
            })
        });
        details.insert("recover".to_owned(), request.unwrap_or_default());
    }
    details
}

fn summary(notice_type: NoticeType, name: &str, details: &Value) -> String {
    let text = |member: &str| details[member].as_str().unwrap_or("?");
    let last_failure =
        details["last_failure"].as_str().map(|words| format!(" The last failure: {}.", words.trim_end_matches('.')));
    let last_failure = last_failure.unwrap_or_default();
    let user = text("user");
    match notice_type {
        NoticeType::Failing => format!(
            "The webhook \"{name}\" has been failing since {}: {} attempts failed and none succeeded.{last_failure}",
            text("failing_since"),
            details["failed_attempts"],
        ),
        NoticeType::Dropping => format!(
            "The webhook \"{name}\" dropped a delivery, the first one since it fails: every attempt of delivery {} \
             failed.{last_failure} It can be sent again.",
            text("delivery_id"),
        ),
        NoticeType::Recovered => {
            let dropped = match details["dropped"].as_u64().unwrap_or_default() {
                0 => "No delivery was dropped meanwhile.".to_owned(),
                1 => "Meanwhile a delivery was dropped. A recovery sends it again, if nobody has done so.".to_owned(),
                more => format!(
                    "Meanwhile deliveries were dropped {more} times. A recovery sends again what is still dropped."
                ),
            };
            format!("The webhook \"{name}\" works again. {dropped}")
        }
        NoticeType::Created => format!("{user} registered the webhook \"{name}\"."),
        NoticeType::Changed => {
            let members = details["changed"].as_array().map(Vec::as_slice).unwrap_or_default();
            let names: Vec<&str> = members.iter().filter_map(Value::as_str).collect();
            format!("{user} changed the webhook \"{name}\": {}.", names.join(", "))
        }
        NoticeType::Paused => format!("{user} paused the webhook \"{name}\"."),
        NoticeType::Activated => format!("{user} activated the webhook \"{name}\"."),
        NoticeType::Deleted => format!("{user} deleted the webhook \"{name}\"."),
        NoticeType::Expiring => {
            let (why, unless) = match text("reason") {
                "slow" => ("has a receiver that is too slow", "it becomes quick enough"),
                _ => ("is paused", "the webhook is activated"),
            };
            format!(
                "The webhook \"{name}\" {why}, and has held deliveries since {}. The first of them will be cancelled after \
                 {} unless {unless}; later ones follow, each with the day of its event.",
                text("held_since"),
                text("cancelled_after"),
            )
        }
        NoticeType::KeyCreated => {
            let until = details["expires_at"].as_str().map(|at| format!(" until {at}")).unwrap_or_default();
            format!(
                "{user} created the key \"{}\". A program can manage your webhooks with it{until}. If you do not know this \
                 key, revoke it.",
                text("key_name"),
            )
        }
        NoticeType::KeyRevoked => format!("{user} revoked the key \"{}\".", text("key_name")),
    }
}

/// The details of what a user did.
pub fn notice_by(user: &str, changed: &[&str]) -> Value {
    let mut details = Map::from_iter([("user".to_owned(), Value::from(user))]);
    if !changed.is_empty() {
        details.insert("changed".to_owned(), Value::from(changed.to_vec()));
    }
    Value::Object(details)
}

/// The details of what a user did to a key.
pub fn notice_of_key(user: &str, key: KeyId, name: &str, expires_at: Option<OffsetDateTime>) -> Value {
    let expires_at = expires_at.and_then(time_text::written);
    json!({"user": user, "key_id": key, "key_name": name, "expires_at": expires_at})
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    fn notice(notice_type: NoticeType, details: Value) -> Notice {
        let created_at = datetime!(2026-03-01 09:30 UTC);
        let (tenant, webhook) = (Uuid::from_u128(2).into(), Uuid::from_u128(3).into());
        Notice::new(Uuid::from_u128(1), notice_type, created_at, tenant, Some(webhook), Some("orders".into()), details)
    }

    fn notice_about_key(notice_type: NoticeType, expires_at: Option<OffsetDateTime>) -> Notice {
        let details = notice_of_key("u-1", Uuid::from_u128(4).into(), "ERP sync", expires_at);
        let (id, tenant) = (Uuid::from_u128(1), Uuid::from_u128(2).into());
        Notice::new(id, notice_type, datetime!(2026-03-01 09:30 UTC), tenant, None, None, details)
    }

    #[test]
    fn the_names_are_read_back() {
        for notice_type in NoticeType::ALL {
            assert_eq!(notice_type.as_str().parse(), Ok(notice_type));
        }
    }

    #[test]
    fn a_recovered_webhook_s_notice_says_how_to_send_again_what_was_dropped() {
        let first = DeliveryId::from(DeliveryId::bound_at_millis(1_772_357_400_123));
        let details = json!({"failing_since": "2026-03-01T09:30:00Z", "dropped": 2, "first_dropped": first});
        let notice = notice(NoticeType::Recovered, details);
        let request = &notice.details["recover"];
        assert_eq!(request["body"], json!({"from": "2026-03-01T09:30:00.123000Z", "states": ["dropped"]}));
        assert_eq!(request["path"], "/api/v1/webhooks/00000000-0000-0000-0000-000000000003/recover/");
        assert!(notice.details.get("first_dropped").is_none());
        assert!(notice.summary.contains("dropped 2 times"), "{}", notice.summary);
    }

    #[test]
    fn without_a_drop_there_is_nothing_to_recover() {
        let notice = notice(NoticeType::Recovered, json!({"dropped": 0, "first_dropped": null}));
        assert_eq!(notice.details["recover"], Value::Null);
        assert!(notice.summary.ends_with("No delivery was dropped meanwhile."), "{}", notice.summary);
    }

    #[test]
    fn each_summary_names_the_webhook_and_who_or_why() {
        let of_user = notice_by("u-1", &["url", "events"]);
        for (notice_type, details, words) in [
            (NoticeType::Created, of_user.clone(), "u-1 registered the webhook \"orders\"."),
            (NoticeType::Changed, of_user.clone(), "u-1 changed the webhook \"orders\": url, events."),
            (NoticeType::Paused, of_user.clone(), "u-1 paused the webhook \"orders\"."),
            (NoticeType::Activated, of_user.clone(), "u-1 activated the webhook \"orders\"."),
            (NoticeType::Deleted, of_user, "u-1 deleted the webhook \"orders\"."),
            (
                NoticeType::Failing,
                json!({"failing_since": "2026-03-01T09:30:00Z", "failed_attempts": 7, "last_failure": "answered 500"}),
                "The webhook \"orders\" has been failing since 2026-03-01T09:30:00Z: 7 attempts failed and none \
                 succeeded. The last failure: answered 500.",
            ),
            (
                NoticeType::Expiring,
                json!({
                    "reason": "paused", "held_since": "2026-01-01T09:30:00Z", "cancelled_after": "2026-02-01T00:00:00Z"
                }),
                "The webhook \"orders\" is paused, and has held deliveries since 2026-01-01T09:30:00Z. The first of them \
                 will be cancelled after 2026-02-01T00:00:00Z unless the webhook is activated; later ones follow, each \
                 with the day of its event.",
            ),
            (
                NoticeType::Expiring,
                json!({
                    "reason": "slow", "held_since": "2026-01-01T09:30:00Z", "cancelled_after": "2026-02-01T00:00:00Z"
                }),
                "The webhook \"orders\" has a receiver that is too slow, and has held deliveries since \
                 2026-01-01T09:30:00Z. The first of them will be cancelled after 2026-02-01T00:00:00Z unless it becomes \
                 quick enough; later ones follow, each with the day of its event.",
            ),
            (
                NoticeType::Dropping,
                json!({"failing_since": "2026-03-01T09:30:00Z", "delivery_id": "d-1", "last_failure": null}),
                "The webhook \"orders\" dropped a delivery, the first one since it fails: every attempt of delivery d-1 \
                 failed. It can be sent again.",
            ),
        ] {
            assert_eq!(notice(notice_type, details).summary, words);
        }
    }

    #[test]
    fn a_summary_shows_what_is_hidden_in_the_texts_of_others() {
        let summary = notice(NoticeType::Paused, notice_by("ad\u{202e}nim\u{200b}", &[])).summary;
        assert_eq!(summary, "ad⟨U+202E⟩nim⟨U+200B⟩ paused the webhook \"orders\".");
    }

    #[test]
    fn a_notice_about_a_key_names_the_key_and_no_webhook() {
        let until = Some(datetime!(2027-03-01 09:30 UTC));
        for (notice_type, expires_at, words) in [
            (
                NoticeType::KeyCreated,
                None,
                "u-1 created the key \"ERP sync\". A program can manage your webhooks with it. If you do not know this key, \
                 revoke it.",
            ),
            (
                NoticeType::KeyCreated,
                until,
                "u-1 created the key \"ERP sync\". A program can manage your webhooks with it until \
                 2027-03-01T09:30:00.000000Z. If you do not know this key, revoke it.",
            ),
            (NoticeType::KeyRevoked, until, "u-1 revoked the key \"ERP sync\"."),
        ] {
            assert_eq!(notice_about_key(notice_type, expires_at).summary, words);
        }
        let message: Value =
            serde_json::from_slice(&notice_about_key(NoticeType::KeyRevoked, until).to_bytes()).unwrap();
        assert_eq!((&message["webhook_id"], &message["webhook_name"]), (&Value::Null, &Value::Null));
        let expected = json!({
            "user": "u-1",
            "key_id": "00000000-0000-0000-0000-000000000004",
            "key_name": "ERP sync",
            "expires_at": "2027-03-01T09:30:00.000000Z",
        });
        assert_eq!(message["details"], expected);
    }

    #[test]
    fn a_message_is_the_notice_as_json() {
        let message = notice(NoticeType::Paused, notice_by("u-1", &[])).to_bytes();
        let expected = json!({
            "notice_id": "00000000-0000-0000-0000-000000000001",
            "type": "webhook.paused",
            "created_at": "2026-03-01T09:30:00.000000Z",
            "tenant_id": "00000000-0000-0000-0000-000000000002",
            "webhook_id": "00000000-0000-0000-0000-000000000003",
            "webhook_name": "orders",
            "summary": "u-1 paused the webhook \"orders\".",
            "details": {"user": "u-1"},
        });
        assert_eq!(serde_json::from_slice::<Value>(&message).unwrap(), expected);
    }
}
