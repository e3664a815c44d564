//! The three lists: what was confirmed to the publishers, what the ledger says, what the receivers got.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use domain::{DeliveryId, DeliveryState, EventType, OutcomeClass, RetrySchedule, WebhookId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{events::Event, receiver::Received};

/// What a webhook may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookState {
    /// It gets deliveries.
    Active,
    /// Its deliveries wait, and new events are not for it.
    Paused,
    /// It is gone.
    Deleted,
}

/// A change that an administrator asked for; when it took effect is known only to lie between the two times.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// When it was asked for first.
    pub asked: OffsetDateTime,
    /// When it was confirmed.
    pub answered: OffsetDateTime,
    /// What it made of the webhook.
    pub to: WebhookState,
}

/// A webhook as its administrator knows it.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// Its id.
    pub webhook: WebhookId,
    /// What it is called in the report.
    pub name: String,
    /// Whose it is.
    pub tenant: Uuid,
    /// What it wants.
    pub types: Vec<EventType>,
    /// Its secret.
    pub secret: String,
    /// In the order of time.
    pub changes: Vec<Change>,
}

/// An event whose publishing was confirmed at least once.
#[derive(Clone, Debug)]
pub struct Published {
    /// The event.
    pub event: Event,
    /// How often it was published: more than once where a confirm did not come.
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
    /// To whom.
    pub webhook: WebhookId,
    /// Of which event.
    pub event: Uuid,
    /// Whether an administrator asked for it as a test.
    pub is_test: bool,
    /// Its state.
    pub state: DeliveryState,
    /// Attempts by its counter.
    pub attempts: u16,
    /// Attempts before its current run.
    pub run_base: u16,
}

/// An attempt in the ledger.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Of which delivery.
    pub delivery: DeliveryId,
    /// Its number, from 1.
    pub number: u16,
    /// The `t` of the signature, in Unix seconds.
    pub signed_at: i64,
    /// When it began.
    pub started_at: OffsetDateTime,
    /// How long it took.
    pub duration: Duration,
    /// What came of it.
    pub outcome: OutcomeClass,
    /// The status that came.
    pub status: Option<u16>,
}

impl Attempt {
    /// When it ended.
    #[must_use]
    pub fn finished_at(&self) -> OffsetDateTime {
        self.started_at + self.duration
    }
}

/// The two indicators of the specification, section 2.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// When an attempt succeeded last.
    pub last_success_at: Option<OffsetDateTime>,
    /// Attempts that failed since.
    pub failure_count: i64,
}

/// The health of a webhook, from two sides.
#[derive(Clone, Copy, Debug)]
pub struct HealthShown {
    /// By SQL.
    pub ledger: Health,
    /// By the API; a deleted webhook has none.
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

/// All of it.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The schedule of the retries.
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
    /// Deliveries that an administrator asked for again, whatever was answered.
    pub resent: HashSet<DeliveryId>,
    /// Messages and entries of the outbox that are left where none should be.
    pub left: Vec<String>,
    /// What the processes did that they should not.
    pub misconduct: Vec<String>,
}
