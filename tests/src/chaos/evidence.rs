//! The evidence: what was confirmed to the publishers, what the ledger says, what the receivers got.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use domain::{DeliveryId, DeliveryState, EventType, OutcomeClass, RetrySchedule, WebhookId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{events::Event, receiver::Received};

/// The state of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookState {
    /// It gets deliveries.
    Active,
    /// Its deliveries wait, and it gets no new events.
    Paused,
    /// It is gone.
    Deleted,
}

/// A change that an administrator asked for. It took effect at some moment between the two times.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// When it was asked for the first time.
    pub asked: OffsetDateTime,
    /// When it was confirmed.
    pub answered: OffsetDateTime,
    /// The new state.
    pub to: WebhookState,
}

/// A webhook as its administrator knows it.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// Its id.
    pub webhook: WebhookId,
    /// Its name in the report.
    pub name: String,
    /// Its tenant.
    pub tenant: Uuid,
    /// Its event types.
    pub types: Vec<EventType>,
    /// Its secret.
    pub secret: String,
    /// Its changes, in the order of time.
    pub changes: Vec<Change>,
}

/// An event that was confirmed to its publisher at least once.
#[derive(Clone, Debug)]
pub struct Published {
    /// The event.
    pub event: Event,
    /// How often it was published: again if a confirm did not come.
    pub times: u32,
}

/// An event in the ledger.
#[derive(Clone, Debug)]
pub struct StoredEvent {
    /// When it was stored.
    pub at: OffsetDateTime,
    /// The exact body.
    pub body: Vec<u8>,
}

/// A delivery in the ledger.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Its id.
    pub id: DeliveryId,
    /// Its webhook.
    pub webhook: WebhookId,
    /// Its event.
    pub event: Uuid,
    /// Whether it is a test delivery.
    pub is_test: bool,
    /// Its state.
    pub state: DeliveryState,
    /// Attempts, by its counter.
    pub attempts: u16,
    /// Attempts before its current run.
    pub run_base: u16,
}

/// An attempt in the ledger.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Its delivery.
    pub delivery: DeliveryId,
    /// Its number, from 1.
    pub number: u16,
    /// The `t` of the signature, in Unix seconds.
    pub signed_at: i64,
    /// When it began.
    pub started_at: OffsetDateTime,
    /// How long it took.
    pub duration: Duration,
    /// Its outcome.
    pub outcome: OutcomeClass,
    /// The status of the answer, if one came.
    pub status: Option<u16>,
    /// The id of the transaction that recorded it: a later one has a greater id.
    pub transaction: i64,
}

impl Attempt {
    /// When it ended.
    pub fn finished_at(&self) -> OffsetDateTime {
        self.started_at + self.duration
    }
}

/// The two indicators of health (specification, section 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// When an attempt last succeeded.
    pub last_success_at: Option<OffsetDateTime>,
    /// Attempts that have failed since.
    pub failure_count: i64,
}

/// The health of a webhook, in the ledger and in the API.
#[derive(Clone, Copy, Debug)]
pub struct HealthShown {
    /// In the ledger, by SQL.
    pub ledger: Health,
    /// In the API. A deleted webhook has none.
    pub api: Option<Health>,
}

/// A request that a receiver got.
#[derive(Clone, Debug)]
pub struct Post {
    /// The webhook that the receiver belongs to.
    pub webhook: WebhookId,
    /// The request, and what was answered.
    pub received: Received,
}

/// All evidence of a storm.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The retry schedule.
    pub schedule: RetrySchedule,
    /// The webhooks.
    pub subscriptions: Vec<Subscription>,
    /// What was confirmed to the publishers.
    pub published: Vec<Published>,
    /// The ledger's events, by id.
    pub events: HashMap<Uuid, StoredEvent>,
    /// The ledger's deliveries.
    pub deliveries: Vec<Delivery>,
    /// The ledger's attempts, by delivery, in the order of their numbers.
    pub attempts: HashMap<DeliveryId, Vec<Attempt>>,
    /// The health of each webhook.
    pub health: HashMap<WebhookId, HealthShown>,
    /// What the receivers got, in the order of its arrival.
    pub posts: Vec<Post>,
    /// Requests that followed a redirect.
    pub trapped: usize,
    /// Deliveries that an administrator asked to resend, whatever the answer.
    pub resent: HashSet<DeliveryId>,
    /// Deliveries, jobs, messages and outbox entries that are left.
    pub left: Vec<String>,
    /// What went wrong beside the lists.
    pub misconduct: Vec<String>,
}
