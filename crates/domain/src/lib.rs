#![doc = include_str!("../README.md")]

mod address;
mod answer;
pub mod catalogue;
mod destinations;
mod duration_bucket;
mod envelope;
mod event;
mod event_type;
mod ids;
mod job;
mod notice;
mod outcome;
mod progress;
mod schedule;
mod shortened;
mod timestamp;
mod traceparent;
mod webhook_url;

pub use address::{AddressPolicy, RefusedAddress};
pub use answer::Answer;
pub use destinations::{Destinations, DestinationsError, HostSuffixes, Ports, RefusedHost, RefusedPort};
pub use duration_bucket::{DurationBucket, Durations};
pub use envelope::envelope;
pub use event::{AcceptedSpan, Event, Rejection};
pub use event_type::{EventType, UnknownEventType};
pub use ids::{DeliveryId, EventId, TenantId, WebhookId};
pub use job::{Job, JobError};
pub use notice::{Notice, NoticeType, notice_by};
pub use outcome::OutcomeClass;
pub use progress::{DeliveryState, Progress, Redelivered, Verdict};
pub use schedule::{RetrySchedule, ScheduleError, gap_name};
pub use shortened::shortened;
pub use timestamp::Timestamp;
pub use traceparent::Traceparent;
pub use webhook_url::{UrlFault, WebhookUrl};
