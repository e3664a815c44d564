//! A lane: slots, of which nobody holds more than a share (a throttle for noisy neighbours), and the patience of a job
//! that waits for one (crates/README.md, fairness).

use std::{pin::Pin, sync::Arc, time::Duration};

use domain::{TenantId, WebhookId};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout, timeout_at},
};

use crate::shares::{Share, Shares, part};

mod kind;

pub(crate) use kind::{LaneKind, Refusal};

/// An attempt that takes this long shows that its webhook or its tenant is slow.
pub(crate) const SLOW: Duration = Duration::from_secs(1);

/// If a job of the main lane would wait for longer while places are scarce, its patience is not extended. Jobs that wait
/// hold places, and the main lane's are what others wait for: the first failures of a flood come back over it all at once.
const LONG_WAIT: Duration = Duration::from_millis(500);

/// How many slots a lane has, and what fraction one webhook or tenant may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    pub(crate) slots: u16,
    pub(crate) webhook_share: f64,
    pub(crate) tenant_share: f64,
}

/// Patience ends at the ticks of this clock, so that jobs are moved a few at a time. One by one, each would cost the
/// broker a disk write, for which the others wait.
const TICK: Duration = Duration::from_millis(100);

/// How many attempts of one tenant may be starting at a time. A start may take a TLS handshake, the most costly part
/// of an attempt. Hundreds that hang end together. Without this limit, hundreds that waited would start together, and
/// everybody would wait for their handshakes.
const MOST_STARTING: u32 = 16;
/// How long an attempt counts as starting, unless it ends before. If its tenant is near its share, it counts longer
/// (`Lane::starting_for`).
const STARTING_FOR: Duration = Duration::from_millis(5);

/// How many of the main lane's places the bulk lane's jobs may hold. The rest is always there for others.
pub(crate) const fn bulk_places(all: u16) -> u16 {
    all - all / 4
}

/// All lanes of this process.
pub(crate) struct Lanes {
    main: Lane,
    bulk: Lane,
    slow: Lane,
}

impl Lanes {
    pub(crate) fn new(main: Slots, slow: Slots) -> Self {
        let main = Lane::new(LaneKind::Main, main);
        Self { bulk: Lane::bulk_of(&main), main, slow: Lane::new(LaneKind::Slow, slow) }
    }

    pub(crate) const fn of(&self, kind: LaneKind) -> &Lane {
        match kind {
            LaneKind::Main => &self.main,
            LaneKind::Bulk => &self.bulk,
            LaneKind::Slow => &self.slow,
        }
    }
}

/// One lane of this process.
pub(crate) struct Lane {
    kind: LaneKind,
    started: Instant,
    /// As many as slots, so they bound the attempts at a time. A job holds one until it is done.
    places: Arc<Semaphore>,
    /// Places are scarce while fewer are free.
    scarce_places: usize,
    /// The places that jobs of this lane may hold, if not all.
    own_places: Option<Arc<Semaphore>>,
    slot_shares: Limits,
    starting: Arc<Shares<TenantId>>,
    body_shares: Limits,
    /// The whole of which `body_shares` are parts. Slots need none: a job that waits for one has a place.
    body_kib: Arc<Semaphore>,
    all_body_kib: u32,
}

/// A job's place in a lane. Dropping it gives it back.
pub(crate) struct Place {
    _own: Option<OwnedSemaphorePermit>,
    _place: OwnedSemaphorePermit,
}

#[derive(Clone)]
struct Limits {
    of_webhooks: Arc<Shares<WebhookId>>,
    of_tenants: Arc<Shares<TenantId>>,
}

/// The right to make an attempt. Dropping it gives it back.
pub(crate) struct Admission {
    starting: Share<TenantId>,
    starting_for: Duration,
    slot: HeldShares,
    _body: Option<(HeldShares, OwnedSemaphorePermit)>,
}

type HeldShares = (Share<WebhookId>, Share<TenantId>);

impl Admission {
    /// Makes the attempt. It is starting for `starting_for` at most. The attempt's state is large, so it stays where it is.
    pub(crate) async fn spend<T>(mut self, mut attempt: Pin<&mut impl Future<Output = T>>) -> T {
        self.begin();
        let Self { starting, starting_for, slot: _slot, _body } = self;
        if let Ok(made) = timeout(starting_for, attempt.as_mut()).await {
            return made;
        }
        drop(starting);
        attempt.await
    }

    /// Starts to time the attempt: the wait for admission does not count.
    fn begin(&mut self) {
        let (webhook, tenant) = &mut self.slot;
        webhook.begin();
        tenant.begin();
    }
}

impl Lane {
    fn new(kind: LaneKind, slots: Slots) -> Self {
        let limits = |whole| Limits {
            of_webhooks: Shares::new(part(whole, slots.webhook_share)),
            of_tenants: Shares::new(part(whole, slots.tenant_share)),
        };
        let all_body_kib = kind.body_kib();
        Self {
            kind,
            started: Instant::now(),
            places: Arc::new(Semaphore::new(slots.slots.into())),
            scarce_places: usize::from(slots.slots / 4).max(1),
            own_places: None,
            slot_shares: limits(slots.slots.into()),
            starting: Shares::new(MOST_STARTING),
            body_shares: limits(all_body_kib),
            body_kib: Arc::new(Semaphore::new(usize::try_from(all_body_kib).unwrap_or(usize::MAX))),
            all_body_kib,
        }
    }

    /// The bulk lane beside a main lane. It shares all with it, but may hold only a part of the places.
    fn bulk_of(main: &Self) -> Self {
        let all = u16::try_from(main.places.available_permits()).unwrap_or(u16::MAX);
        Self {
            kind: LaneKind::Bulk,
            started: main.started,
            places: Arc::clone(&main.places),
            scarce_places: main.scarce_places,
            own_places: Some(Arc::new(Semaphore::new(bulk_places(all).into()))),
            slot_shares: main.slot_shares.clone(),
            starting: Arc::clone(&main.starting),
            body_shares: main.body_shares.clone(),
            body_kib: Arc::clone(&main.body_kib),
            all_body_kib: main.all_body_kib,
        }
    }

    /// Waits for a place, then takes further free ones, up to `most` in all.
    pub(crate) async fn places(&self, most: usize) -> Vec<Place> {
        let mut places = vec![self.place().await];
        while places.len() < most
            && let Some(next) = self.try_place()
        {
            places.push(next);
        }
        places
    }

    async fn place(&self) -> Place {
        let own = match &self.own_places {
            Some(own) => Some(Arc::clone(own).acquire_owned().await),
            None => None,
        };
        match (own.transpose(), Arc::clone(&self.places).acquire_owned().await) {
            (Ok(own), Ok(place)) => Place { _own: own, _place: place },
            _ => unreachable!("the places are never closed"),
        }
    }

    fn try_place(&self) -> Option<Place> {
        let own = match &self.own_places {
            Some(own) => Some(Arc::clone(own).try_acquire_owned().ok()?),
            None => None,
        };
        Some(Place { _own: own, _place: Arc::clone(&self.places).try_acquire_owned().ok()? })
    }

    /// The patience of a job that begins to wait now.
    pub(crate) fn patience(&self, webhook: WebhookId, tenant: TenantId) -> Patience<'_> {
        let began = Instant::now();
        let latest_deadline = self.tick(began + self.kind.longest_patience());
        Patience { lane: self, webhook, tenant, deadline: self.tick(began + self.kind.patience()), latest_deadline }
    }

    /// How long an attempt of a tenant counts as starting. Of these, [`MOST_STARTING`] are under way at a time. While the
    /// tenant holds more than three quarters of its share, this time grows with the length of its attempts. So they
    /// begin at most twice as fast as they end, and do not gather to hang, end and begin together.
    fn starting_for(&self, tenant: TenantId) -> Duration {
        let of_tenants = &self.slot_shares.of_tenants;
        let longest = of_tenants.longest_when_crowded(tenant);
        STARTING_FOR.max(longest * MOST_STARTING / (2 * of_tenants.limit().max(MOST_STARTING)))
    }

    /// The first tick at or after a moment.
    fn tick(&self, moment: Instant) -> Instant {
        let ticks = (moment - self.started).as_millis().div_ceil(TICK.as_millis());
        self.started + TICK * u32::try_from(ticks).unwrap_or(u32::MAX)
    }
}

/// How long one job waits, for one thing after another. All jobs wait in the same order, so there is no deadlock.
pub(crate) struct Patience<'a> {
    lane: &'a Lane,
    webhook: WebhookId,
    tenant: TenantId,
    deadline: Instant,
    latest_deadline: Instant,
}

impl Patience<'_> {
    /// When it ends, unless the attempts are short: then it is extended.
    pub(crate) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Waits for a slot within the shares, for room if the body is long, and for a start. The patience does not limit
    /// the wait for the start: a tenant at its share begins its attempts at its own pace. It comes last, as the tenant's
    /// other jobs wait for it.
    ///
    /// # Errors
    /// What the job did not get in time.
    pub(crate) async fn admit(&mut self, long_body: Option<usize>) -> Result<Admission, Refusal> {
        let slot = self.acquire_shares(&self.lane.slot_shares, 1).await?;
        let body = match long_body {
            Some(bytes) => Some(self.room(bytes).await?),
            None => None,
        };
        let starting = self.lane.starting.acquire(self.tenant, 1).await;
        Ok(Admission { starting, starting_for: self.lane.starting_for(self.tenant), slot, _body: body })
    }

    async fn room(&mut self, bytes: usize) -> Result<(HeldShares, OwnedSemaphorePermit), Refusal> {
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(self.lane.all_body_kib);
        let shares = &self.lane.body_shares;
        let share = self.acquire_shares(shares, kib).await?;
        let room = Arc::clone(&self.lane.body_kib).acquire_many_owned(kib);
        match self.wait_for(Refusal::Bodies, shares, room).await? {
            Ok(room) => Ok((share, room)),
            Err(_) => unreachable!("the room is never closed"),
        }
    }

    async fn acquire_shares(&mut self, limits: &Limits, amount: u32) -> Result<HeldShares, Refusal> {
        let webhook = limits.of_webhooks.acquire(self.webhook, amount);
        let webhook = self.wait_for(Refusal::Webhook, limits, webhook).await?;
        let tenant = limits.of_tenants.acquire(self.tenant, amount);
        let tenant = self.wait_for(Refusal::Tenant, limits, tenant).await?;
        Ok((webhook, tenant))
    }

    /// Waits until the deadline. Extends it, up to the latest one, while no attempt of the webhook or the tenant takes
    /// long, and in the main lane while it would not hold a scarce place for long.
    async fn wait_for<T>(
        &mut self,
        refusal: Refusal,
        limits: &Limits,
        thing: impl Future<Output = T>,
    ) -> Result<T, Refusal> {
        tokio::pin!(thing);
        loop {
            if let Ok(had) = timeout_at(self.deadline, &mut thing).await {
                return Ok(had);
            }
            let slots = &self.lane.slot_shares;
            let longest = slots.of_webhooks.longest(self.webhook).max(slots.of_tenants.longest(self.tenant));
            if self.deadline >= self.latest_deadline || longest >= SLOW || self.blocks_others(limits) {
                return Err(refusal);
            }
            self.deadline = self.latest_deadline.min(self.deadline + self.lane.kind.patience());
        }
    }

    /// Whether the job holds a scarce place of the main lane and would wait for long.
    fn blocks_others(&self, limits: &Limits) -> bool {
        let wait = limits.of_webhooks.expected_wait(self.webhook).max(limits.of_tenants.expected_wait(self.tenant));
        let lane = self.lane;
        lane.kind == LaneKind::Main && lane.places.available_permits() < lane.scarce_places && wait >= LONG_WAIT
    }
}

#[cfg(test)]
mod tests;
