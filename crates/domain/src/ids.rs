//! Identifiers, each a type of its own.

use std::{fmt, str::FromStr};

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use time::{OffsetDateTime, PrimitiveDateTime};
use uuid::Uuid;

use crate::{event_type::EventType, timestamp::Timestamp};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(feature = "diesel", derive(diesel::expression::AsExpression, diesel::deserialize::FromSqlRow))]
        #[cfg_attr(feature = "diesel", diesel(sql_type = diesel::sql_types::Uuid))]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// The id as a UUID.
            pub const fn as_uuid(self) -> Uuid {
                self.0
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A registered webhook.
    WebhookId
);
id!(
    /// A tenant of the business application.
    TenantId
);
id!(
    /// A key by which a program calls the API. It is no secret: the key itself is another text.
    KeyId
);
id!(
    /// A business event, as its publisher named it.
    EventId
);
id!(
    /// One event on its way to one webhook: `X-Service-Webhook-Id` (specification, section 4.4).
    DeliveryId
);

impl WebhookId {
    /// The id of the webhook that a tenant registers with a key of its own. It is a `UUIDv8` of bits of SHA-256(tenant id ‖
    /// key), so nobody can choose the id of another tenant's webhook.
    pub fn derive(tenant: TenantId, key: &str) -> Self {
        let hash = digest(&SHA256, &[tenant.0.as_bytes(), key.as_bytes()].concat());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.as_ref()[..16]);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }
}

impl DeliveryId {
    /// The id of the delivery of an event to a webhook. It is deterministic, so deliveries are idempotent: the same
    /// event published twice makes the same one. It is a `UUIDv8` of the event's 48-bit Unix milliseconds, then bits of
    /// SHA-256(webhook id ‖ event id ‖ event type).
    pub fn derive(webhook: WebhookId, event: EventId, event_type: EventType, timestamp: Timestamp) -> Self {
        let name = [webhook.0.as_bytes(), event.0.as_bytes(), event_type.as_str().as_bytes()].concat();
        let hash = digest(&SHA256, &name);
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&timestamp.unix_millis().to_be_bytes()[2..]);
        bytes[6..].copy_from_slice(&hash.as_ref()[..10]);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// The event's timestamp in Unix milliseconds, as the id carries it. It tells the day's partition.
    pub fn unix_millis(self) -> u64 {
        let mut bytes = [0; 8];
        bytes[2..].copy_from_slice(&self.0.as_bytes()[..6]);
        u64::from_be_bytes(bytes)
    }

    /// The event's timestamp, which is also the key of its partition. A larger id never has an earlier one: ids past the
    /// year 9999, which no event has, have the last one.
    pub fn occurred_at(self) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.unix_millis()) * 1_000_000)
            .unwrap_or(PrimitiveDateTime::MAX.assume_utc())
    }

    /// The lower bound of the ids of a millisecond's deliveries, above all earlier ones. It bounds partitions.
    pub const fn bound_at_millis(unix_millis: u64) -> Uuid {
        Uuid::from_u128((unix_millis as u128) << 80)
    }

    /// The same for the millisecond that a time is in; the lowest id for a time before 1970.
    pub fn bound_at(time: OffsetDateTime) -> Uuid {
        Self::bound_at_millis(u64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap_or_default())
    }

    /// The bound above the ids of deliveries whose events fired before a time. Ids have whole milliseconds, so it is
    /// rounded up.
    pub fn bound_before(time: OffsetDateTime) -> Uuid {
        Self::bound_at(time.saturating_add(time::Duration::nanoseconds(999_999)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(millis_text: &str) -> DeliveryId {
        DeliveryId::derive(
            "11111111-2222-4333-8444-555555555555".parse().unwrap(),
            "0192f0c1-0000-7000-8000-000000000001".parse().unwrap(),
            EventType::QuoteClosed,
            millis_text.parse().unwrap(),
        )
    }

    #[test]
    fn the_same_event_and_webhook_always_give_the_same_version_8_id() {
        let id = sample("2026-03-01T09:30:00.123456Z");
        assert_eq!(id, sample("2026-03-01T10:30:00.123999+01:00"), "only the milliseconds count");
        assert_eq!(id.as_uuid().get_version_num(), 8);
        assert_eq!(id.as_uuid().get_variant(), uuid::Variant::RFC4122);
        assert_ne!(id, sample("2026-03-01T09:30:00.124Z"));
    }

    /// From the shell: `(printf %s 11111111222243338444555555555555 0192f0c1000070008000000000000001 | xxd -r -p;
    /// printf quote.closed) | sha256sum`.
    #[test]
    fn the_id_is_the_time_and_then_the_hash() {
        let id = sample("2026-03-01T09:30:00.123Z").to_string();

        assert_eq!(id, "019ca8bb-b63b-891e-85b1-b663072da299");
    }

    #[test]
    fn the_id_names_its_own_millisecond() {
        let id = sample("2026-03-01T09:30:00.123456Z");
        assert_eq!(id.unix_millis(), 1_772_357_400_123);
        assert!(DeliveryId::bound_at_millis(id.unix_millis()) <= id.as_uuid());
        assert!(id.as_uuid() < DeliveryId::bound_at_millis(id.unix_millis() + 1));
        let time = id.occurred_at() + time::Duration::microseconds(456);
        assert_eq!(DeliveryId::bound_at(time), DeliveryId::bound_at_millis(id.unix_millis()));
        assert_eq!(DeliveryId::bound_at(OffsetDateTime::UNIX_EPOCH - time::Duration::DAY), Uuid::nil());
    }
}
