//! The fixtures: tenants, their webhooks, and a receiver of every kind.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use domain::{EventType, WebhookId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    api::Api,
    chaos::evidence::Subscription,
    proxy::{Mode, Proxy, Reserved},
    receiver::{Behaviour, Receiver, Reply, TestCa, always, behaviour},
    system::System,
};

/// How a receiver behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Answers 200 at once.
    Good,
    /// Answers 500 to up to three first attempts, then 200.
    Recovers,
    /// Answers 200, 204, 400 or 503 by chance.
    Moody,
    /// Answers 200 after 300 ms to 2 s.
    Slow,
    /// Reads the request and resets the connection.
    Resets,
    /// Reads the request and closes the connection.
    Closes,
    /// Never answers.
    Hangs,
    /// Ends every connection before a byte has passed.
    Drops,
    /// Answers 302 to the trap.
    Redirects,
    /// Has a certificate of an unknown authority.
    Untrusted,
    /// Always answers 500.
    Broken,
    /// Is up for 4 s and down for 3 s, in turns.
    Flaps,
}

/// What administrators do with a webhook during the storm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nothing.
    Plain,
    /// They pause and activate it.
    Paused,
    /// They pause it until the storm is over.
    LeftPaused,
    /// They delete it.
    Deleted,
    /// They resend deliveries and send test deliveries.
    Resent,
}

use EventType as E;

const ALL: &[EventType] = &EventType::ALL;
const QUOTES: &[EventType] = &[E::QuoteClosed, E::QuoteAccepted, E::QuoteCancelled];
const NOTES: &[EventType] = &[E::DeliveryNoteCreated, E::DeliveryNoteMarkedDelivered];
const RETURNS: &[EventType] = &[E::ReturnNoteCreated];
const RECEIPTS: &[EventType] = &[E::StockReceiptCompleted];

/// Tenant, name, manner, role, event types. The first webhook of each tenant is a witness: it gets every event.
const SUBSCRIBERS: [(usize, &str, Manner, Role, &[EventType]); 21] = [
    (0, "shop witness", Manner::Good, Role::Plain, ALL),
    (0, "recovers", Manner::Recovers, Role::Plain, QUOTES),
    (0, "slow", Manner::Slow, Role::Plain, RETURNS),
    (0, "moody", Manner::Moody, Role::Plain, NOTES),
    (1, "fault witness", Manner::Good, Role::Plain, ALL),
    (1, "resets", Manner::Resets, Role::Plain, RETURNS),
    (1, "closes", Manner::Closes, Role::Plain, RECEIPTS),
    (1, "drops", Manner::Drops, Role::Plain, &[E::QuoteClosed]),
    (1, "redirects", Manner::Redirects, Role::Plain, &[E::QuoteAccepted]),
    (1, "untrusted", Manner::Untrusted, Role::Plain, &[E::QuoteCancelled]),
    (1, "broken", Manner::Broken, Role::Plain, &[E::DeliveryNoteCreated]),
    (2, "hang witness", Manner::Good, Role::Plain, ALL),
    (2, "hangs", Manner::Hangs, Role::Plain, RETURNS),
    (3, "managed witness", Manner::Good, Role::Plain, ALL),
    (3, "paused", Manner::Good, Role::Paused, QUOTES),
    (3, "paused and moody", Manner::Moody, Role::Paused, RETURNS),
    (3, "left paused", Manner::Recovers, Role::LeftPaused, NOTES),
    (3, "deleted", Manner::Good, Role::Deleted, NOTES),
    (3, "deleted and broken", Manner::Broken, Role::Deleted, RECEIPTS),
    (3, "flaps", Manner::Flaps, Role::Plain, QUOTES),
    (3, "resent", Manner::Moody, Role::Resent, QUOTES),
];

/// The number of tenants.
pub const TENANTS: usize = 4;

/// A webhook with its receiver.
pub struct Subscriber {
    /// Its event types and its secret.
    pub subscription: Subscription,
    /// What administrators do with it.
    pub role: Role,
    /// Its tenant's administrator.
    pub admin: Api,
    /// Its receiver.
    pub receiver: Receiver,
    proxy: Option<Proxy>,
    manner: Manner,
}

/// All fixtures.
pub struct Fixtures {
    /// The tenants, by number.
    pub tenants: Vec<Uuid>,
    /// The webhooks, in a fixed order.
    pub subscribers: Vec<Subscriber>,
    /// The target of redirects. Nothing may arrive here.
    pub trap: Receiver,
}

impl Fixtures {
    /// Registers all webhooks. The API has to run.
    pub async fn register(system: &System, seed: u64) -> Self {
        let tenants: Vec<Uuid> = (0..TENANTS).map(|_| Uuid::new_v4()).collect();
        let mut admins = Vec::new();
        for tenant in &tenants {
            admins.push(system.admin(*tenant).await);
        }
        let trap = Receiver::start(&system.ca, always(200));
        let stranger = TestCa::new();
        let mut subscribers = Vec::new();
        for (index, (tenant, name, manner, role, types)) in SUBSCRIBERS.into_iter().enumerate() {
            let ca = if manner == Manner::Untrusted { &stranger } else { &system.ca };
            let receiver = Receiver::start(ca, manner.behaviour(seed.wrapping_add(index as u64), trap.url("/trap")));
            if manner == Manner::Resets {
                receiver.reset_connections();
            }
            let proxy = manner.is_behind_a_proxy().then(|| Reserved::take().forward_to(receiver.addr()));
            if let (Some(proxy), Manner::Drops) = (&proxy, manner) {
                proxy.set(Mode::Refuse);
            }
            let port = proxy.as_ref().map_or(receiver.addr().port(), |proxy| proxy.address.port());
            let names: Vec<_> = types.iter().map(|one| one.as_str()).collect();
            let created = admins[tenant].create(&format!("https://localhost:{port}/{index}"), &names).await;
            let subscription = Subscription {
                webhook: created.id.parse::<WebhookId>().expect("an id"),
                name: name.to_owned(),
                tenant: tenants[tenant],
                types: types.to_vec(),
                secret: created.secret,
                changes: Vec::new(),
            };
            subscribers.push(Subscriber { subscription, role, admin: admins[tenant].clone(), receiver, proxy, manner });
        }
        Self { tenants, subscribers, trap }
    }

    /// The webhooks of a role, with their indexes.
    pub fn with(&self, role: Role) -> impl Iterator<Item = (usize, &Subscriber)> {
        self.subscribers.iter().enumerate().filter(move |(_, subscriber)| subscriber.role == role)
    }

    /// Flaps forever.
    pub async fn flap(&self) {
        loop {
            for (mode, seconds) in [(Mode::Pass, 4), (Mode::Refuse, 3)] {
                for subscriber in self.subscribers.iter().filter(|subscriber| subscriber.manner == Manner::Flaps) {
                    subscriber.proxy.as_ref().expect("it is behind a proxy").set(mode);
                }
                tokio::time::sleep(Duration::from_secs(seconds)).await;
            }
        }
    }

    /// Ends the flapping: the receivers are up.
    pub fn settle_down(&self) {
        for subscriber in self.subscribers.iter().filter(|subscriber| subscriber.manner == Manner::Flaps) {
            subscriber.proxy.as_ref().expect("it is behind a proxy").set(Mode::Pass);
        }
    }
}

impl Manner {
    const fn is_behind_a_proxy(self) -> bool {
        matches!(self, Self::Drops | Self::Flaps)
    }

    fn behaviour(self, seed: u64, trap: String) -> Behaviour {
        // Random, but the same for an attempt of a delivery.
        let chance = move |id: &str, nth: usize| {
            let mut hasher = DefaultHasher::new();
            (seed, id, nth).hash(&mut hasher);
            hasher.finish()
        };
        let of =
            |received: &crate::receiver::Received| received.header("x-service-webhook-id").unwrap_or("").to_owned();
        match self {
            Self::Good | Self::Untrusted | Self::Flaps | Self::Drops => always(200),
            Self::Broken => always(500),
            Self::Recovers => behaviour(move |received, nth| {
                let failures = chance(&of(received), 0) % 4;
                Reply::status(if nth as u64 <= failures { 500 } else { 200 })
            }),
            Self::Moody => behaviour(move |received, nth| {
                Reply::status([200, 200, 503, 204, 400][chance(&of(received), nth) as usize % 5])
            }),
            Self::Slow => behaviour(move |received, nth| {
                Reply::ok().after(Duration::from_millis(300 + chance(&of(received), nth) % 1_700))
            }),
            Self::Resets | Self::Closes => behaviour(|_, _| Reply::close()),
            Self::Hangs => behaviour(|_, _| Reply::hang()),
            Self::Redirects => behaviour(move |_, _| Reply::status(302).header("location", trap.clone())),
        }
    }
}

/// The time on the clock that everything is compared by.
#[must_use]
pub fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}
