#![doc = include_str!("../README.md")]

mod address;
mod address_policy;
mod all;
pub mod catalogue;
#[cfg(feature = "diesel")]
mod columns;
mod delivery_headers;
mod duration_bucket;
mod end;
mod envelope;
mod error_chain;
mod event;
mod event_type;
mod ids;
mod job;
mod notice;
mod outcome;
mod post_result;
mod progress;
mod receiver_headers;
mod schedule;
mod sentinel;
mod shortened;
mod shown;
pub mod time_text;
mod timestamp;
mod traceparent;
mod webhook_state;
mod webhook_url;

pub use address::{AddressFault, RefusedAddress};
pub use address_policy::{AddressPolicy, AddressPolicyError, HostSuffixes, Ports, RefusedHost, RefusedPort};
#[cfg(feature = "diesel")]
pub use columns::parse_name;
pub use delivery_headers::{ATTEMPT_HEADER, TEST_HEADER, delivery_headers};
pub use duration_bucket::{DurationBucket, Durations};
pub use end::End;
pub use envelope::envelope;
pub use error_chain::error_chain;
pub use event::{AcceptedPeriod, Event, Rejection};
pub use event_type::{EventType, UnknownEventType};
pub use ids::{DeliveryId, EventId, KeyId, TenantId, WebhookId};
pub use job::{Job, JobError};
pub use notice::{Notice, NoticeType, notice_by, notice_of_key};
pub use outcome::OutcomeClass;
pub use post_result::PostResult;
pub use progress::{DeliveryState, Progress, Record, Redelivered, Verdict};
pub use receiver_headers::{
    HeaderChange, HeaderFault, MAX_HEADERS, MAX_NAME_CHARS, MAX_VALUE_CHARS, MAX_VALUES_CHARS, ReceiverHeaders,
    is_reserved,
};
pub use schedule::{RetrySchedule, ScheduleError, gap_name};
pub use sentinel::{BrokerData, Presence};
pub use shortened::shortened;
pub use shown::{escaped, find_hidden, indented, is_blank, is_hidden, visible};
pub use timestamp::Timestamp;
pub use traceparent::Traceparent;
pub use webhook_state::WebhookState;
pub use webhook_url::{UrlFault, WebhookUrl, is_same_origin};
