//! A lane: slots, of which nobody holds more than a share, and the patience of a job that waits for one
//! (crates/README.md, fairness).

use std::{sync::Arc, time::Duration};

use broker::Names;
use domain::{TenantId, WebhookId};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout, timeout_at},
};

use crate::shares::{Share, Shares, part};

/// An attempt that takes this long shows that its webhook or its tenant is slow.
const SLOW: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LaneKind {
    /// For jobs that need no other lane. Retries come back over it.
    Main,
    /// For jobs in great numbers: of a tenant that floods, or published again in bulk.
    Bulk,
    /// For jobs that were refused, above all as their webhook is at its share.
    Slow,
}

impl LaneKind {
    pub(crate) const ALL: [Self; 3] = [Self::Main, Self::Bulk, Self::Slow];

    /// Its name in metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Bulk => "bulk",
            Self::Slow => "slow",
        }
    }

    pub(crate) fn queue(self, names: &Names) -> String {
        match self {
            Self::Main => names.deliveries(),
            Self::Bulk => names.bulk(),
            Self::Slow => names.slow(),
        }
    }

    /// How long a job waits for a slot before it is moved, once its webhook or its tenant is known to be slow. Short
    /// outside of the slow lane, so that jobs of a slow webhook do not fill the places: each place lets up to ten leave
    /// a second. In the slow lane it limits how fast the jobs of a busy webhook go round the queue.
    const fn patience(self) -> Duration {
        match self {
            Self::Main | Self::Bulk => Duration::from_millis(100),
            Self::Slow => Duration::from_secs(2),
        }
    }

    /// The same while no attempt of the two takes long. Then slots become free, and a burst is soon through, even if
    /// each connection has to be made first. Moving it would cost more than waiting.
    const fn longest_patience(self) -> Duration {
        match self {
            Self::Main | Self::Bulk => Duration::from_secs(2),
            Self::Slow => self.patience(),
        }
    }

    /// How many KiB of long bodies may be in memory: 48 bodies of 256 KiB in main and bulk lane together, 16 in the
    /// slow lane. With what is read in batches, this is well below what a process may take.
    const fn body_kib(self) -> u32 {
        match self {
            Self::Main | Self::Bulk => 12 * 1024,
            Self::Slow => 4 * 1024,
        }
    }
}

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

/// How many attempts of one tenant may be beginning at a time. To begin may take a TLS handshake, the most costly part
/// of an attempt. Hundreds that hang end together. Without this limit, hundreds that waited would begin together, and
/// everybody would wait for their handshakes.
const BEGINNING: u32 = 16;
/// An attempt is beginning until it ends, but not for longer than this unless its tenant is near its share.
const BEGUN: Duration = Duration::from_millis(5);

/// The fraction of the main lane's places that the bulk lane's jobs may hold. The rest is always there for others.
const BULK: f64 = 0.75;

/// One lane of this process.
pub(crate) struct Lane {
    kind: LaneKind,
    started: Instant,
    /// As many as slots. A job holds one until it is done.
    places: Arc<Semaphore>,
    /// The places that jobs of this lane may hold, if not all.
    own_places: Option<Arc<Semaphore>>,
    slots: Limits,
    beginning: Arc<Shares<TenantId>>,
    bodies: Limits,
    /// The whole of which `bodies` are shares. Slots need none: a job that waits for one has a place.
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
    beginning: Share<TenantId>,
    begun: Duration,
    slot: Held,
    _body: Option<(Held, OwnedSemaphorePermit)>,
}

type Held = (Share<WebhookId>, Share<TenantId>);

impl Admission {
    /// Makes the attempt. It is beginning for `begun` at most.
    pub(crate) async fn spend<T>(mut self, attempt: impl Future<Output = T>) -> T {
        self.begin();
        let Self { beginning, begun, slot: _slot, _body } = self;
        tokio::pin!(attempt);
        if let Ok(made) = timeout(begun, &mut attempt).await {
            return made;
        }
        drop(beginning);
        attempt.await
    }

    /// Starts to time the attempt: the wait for admission does not count.
    fn begin(&mut self) {
        let (webhook, tenant) = &mut self.slot;
        webhook.begin();
        tenant.begin();
    }
}

/// Why a job is refused admission: what it did not get in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Its webhook is at its share.
    Webhook,
    /// Its tenant is at its share.
    Tenant,
    /// Too many long bodies are in memory.
    Bodies,
    /// It is a suspect, and it is another suspect's turn.
    Suspects,
}

impl Refusal {
    /// Its name in metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook_share",
            Self::Tenant => "tenant_share",
            Self::Bodies => "body_bytes",
            Self::Suspects => "suspect",
        }
    }
}

impl Lane {
    pub(crate) fn new(kind: LaneKind, slots: Slots) -> Self {
        let limits = |whole| Limits {
            of_webhooks: Shares::new(part(whole, slots.webhook_share)),
            of_tenants: Shares::new(part(whole, slots.tenant_share)),
        };
        let all_body_kib = kind.body_kib();
        Self {
            kind,
            started: Instant::now(),
            places: Arc::new(Semaphore::new(slots.slots.into())),
            own_places: None,
            slots: limits(slots.slots.into()),
            beginning: Shares::new(BEGINNING),
            bodies: limits(all_body_kib),
            body_kib: Arc::new(Semaphore::new(usize::try_from(all_body_kib).unwrap_or(usize::MAX))),
            all_body_kib,
        }
    }

    /// The bulk lane beside a main lane. It shares all with it, but may hold only a part of the places.
    pub(crate) fn bulk_of(main: &Self) -> Self {
        let own_places = part(u32::try_from(main.places.available_permits()).unwrap_or(u32::MAX), BULK);
        Self {
            kind: LaneKind::Bulk,
            started: main.started,
            places: Arc::clone(&main.places),
            own_places: Some(Arc::new(Semaphore::new(usize::try_from(own_places).unwrap_or(usize::MAX)))),
            slots: main.slots.clone(),
            beginning: Arc::clone(&main.beginning),
            bodies: main.bodies.clone(),
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
        let last = self.tick(began + self.kind.longest_patience());
        Patience { lane: self, webhook, tenant, began, end: self.tick(began + self.kind.patience()), last }
    }

    /// How long an attempt of a tenant counts as beginning. If the attempts nearly fill the tenant's share, they begin
    /// at twice the rate at which they can end. At a higher rate, they would gather to end, and begin, at once.
    fn begun(&self, tenant: TenantId) -> Duration {
        let of_tenants = &self.slots.of_tenants;
        let longest = of_tenants.longest_when_crowded(tenant);
        BEGUN.max(longest * BEGINNING / (2 * of_tenants.limit().max(BEGINNING)))
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
    began: Instant,
    end: Instant,
    last: Instant,
}

impl Patience<'_> {
    pub(crate) const fn began(&self) -> Instant {
        self.began
    }

    /// When it ends, unless the attempts are short: then it is extended.
    pub(crate) const fn end(&self) -> Instant {
        self.end
    }

    /// Waits for a slot, for a turn to begin, and for room if the body is long. The patience does not limit the wait
    /// for the turn: a tenant at its share begins its attempts at its own pace.
    ///
    /// # Errors
    /// What the job did not get in time.
    pub(crate) async fn admit(&mut self, long_body: Option<usize>) -> Result<Admission, Refusal> {
        let slot = self.held(&self.lane.slots, 1).await?;
        let beginning = self.lane.beginning.acquire(self.tenant, 1).await;
        let body = match long_body {
            Some(bytes) => Some(self.room(bytes).await?),
            None => None,
        };
        Ok(Admission { beginning, begun: self.lane.begun(self.tenant), slot, _body: body })
    }

    async fn room(&mut self, bytes: usize) -> Result<(Held, OwnedSemaphorePermit), Refusal> {
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(self.lane.all_body_kib);
        let share = self.held(&self.lane.bodies, kib).await?;
        let room = Arc::clone(&self.lane.body_kib).acquire_many_owned(kib);
        match self.wait(Refusal::Bodies, room).await? {
            Ok(room) => Ok((share, room)),
            Err(_) => unreachable!("the room is never closed"),
        }
    }

    async fn held(&mut self, limits: &Limits, amount: u32) -> Result<Held, Refusal> {
        let webhook = self.wait(Refusal::Webhook, limits.of_webhooks.acquire(self.webhook, amount)).await?;
        let tenant = self.wait(Refusal::Tenant, limits.of_tenants.acquire(self.tenant, amount)).await?;
        Ok((webhook, tenant))
    }

    async fn wait<T>(&mut self, refusal: Refusal, thing: impl Future<Output = T>) -> Result<T, Refusal> {
        tokio::pin!(thing);
        loop {
            if let Ok(had) = timeout_at(self.end, &mut thing).await {
                return Ok(had);
            }
            let Limits { of_webhooks, of_tenants } = &self.lane.slots;
            let longest = of_webhooks.longest(self.webhook).max(of_tenants.longest(self.tenant));
            if self.end >= self.last || longest >= SLOW {
                return Err(refusal);
            }
            self.end = self.last.min(self.end + self.lane.kind.patience());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::{FutureExt, future::join_all};
    use tokio::task::JoinSet;
    use uuid::Uuid;

    use super::*;

    fn ids(webhook: u128, tenant: u128) -> (WebhookId, TenantId) {
        (Uuid::from_u128(webhook).into(), Uuid::from_u128(tenant).into())
    }

    async fn admit(
        lane: &Lane,
        (webhook, tenant): (WebhookId, TenantId),
        body: Option<usize>,
    ) -> Result<Admission, Refusal> {
        let mut admission = lane.patience(webhook, tenant).admit(body).await?;
        admission.begin();
        Ok(admission)
    }

    /// Begins `count` attempts, each as soon as it may. Returns how long that took, in milliseconds.
    async fn begin(lane: &Lane, attempts: &mut JoinSet<()>, count: usize, attempt: Duration) -> u128 {
        let began = Instant::now();
        for _ in 0..count {
            let (webhook, tenant) = ids(1, 1);
            let admission = lane.patience(webhook, tenant).admit(None).await.ok().unwrap();
            attempts.spawn(admission.spend(tokio::time::sleep(attempt)));
            tokio::task::yield_now().await;
        }
        began.elapsed().as_millis()
    }

    #[tokio::test(start_paused = true)]
    async fn there_are_as_many_places_as_slots_and_who_finds_none_waits() {
        let lane = Lane::new(LaneKind::Main, Slots { slots: 10, webhook_share: 1.0, tenant_share: 1.0 });
        let mut held = lane.places(8).await;
        assert_eq!(held.len(), 8);
        held.extend(lane.places(8).await);
        assert_eq!(held.len(), 10, "as many as are free");
        let waiting = lane.places(8);
        tokio::pin!(waiting);
        assert!(waiting.as_mut().now_or_never().is_none());
        held.truncate(9);
        assert_eq!(waiting.await.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_bulk_lane_leaves_a_quarter_of_the_places_to_the_main_lane_and_has_no_slots_of_its_own() {
        let main = Lane::new(LaneKind::Main, Slots { slots: 16, webhook_share: 0.125, tenant_share: 1.0 });
        let bulk = Lane::bulk_of(&main);
        let in_bulk = bulk.places(16).await;
        assert_eq!(in_bulk.len(), 12);
        let in_main = main.places(16).await;
        assert_eq!(in_main.len(), 4);
        drop(in_bulk);
        assert_eq!(main.places(16).await.len(), 12, "all of them while nothing is in bulk");
        drop(in_main);
        let _held =
            (admit(&main, ids(1, 1), None).await.ok().unwrap(), admit(&bulk, ids(1, 1), None).await.ok().unwrap());
        assert_eq!(admit(&bulk, ids(1, 1), None).await.err(), Some(Refusal::Webhook), "one share in both");
    }

    #[tokio::test(start_paused = true)]
    async fn a_webhook_and_a_tenant_at_their_share_wait_in_vain_and_others_do_not_wait() {
        let lane = Lane::new(LaneKind::Main, Slots { slots: 16, webhook_share: 0.125, tenant_share: 0.25 });
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(admit(&lane, ids(1, 1), None).await.ok().unwrap());
        }
        assert_eq!(admit(&lane, ids(1, 1), None).await.err(), Some(Refusal::Webhook));
        for _ in 0..2 {
            held.push(admit(&lane, ids(2, 1), None).await.ok().unwrap());
        }
        assert_eq!(admit(&lane, ids(3, 1), None).await.err(), Some(Refusal::Tenant));
        let before = Instant::now();
        held.push(admit(&lane, ids(4, 2), None).await.ok().unwrap());
        assert_eq!(before, Instant::now(), "another tenant does not wait");
        held.clear();
        assert!(admit(&lane, ids(3, 1), None).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_waits_while_attempts_are_short_and_is_moved_once_one_takes_long() {
        let lane = Lane::new(LaneKind::Main, Slots { slots: 64, webhook_share: 0.125, tenant_share: 1.0 });
        let mut held = Vec::new();
        for _ in 0..8 {
            held.push(admit(&lane, ids(1, 1), None).await.ok().unwrap());
        }
        let waited = async || {
            let began = Instant::now();
            assert_eq!(admit(&lane, ids(1, 1), None).await.err(), Some(Refusal::Webhook));
            began.elapsed().as_millis()
        };
        let first = waited().await;
        assert!((1_000..=1_200).contains(&first), "until an attempt has taken a second: {first} ms");
        let next = waited().await;
        assert!((100..=200).contains(&next), "its attempts are known to take long: {next} ms");
        held.clear();
        assert!(admit(&lane, ids(1, 1), None).await.is_ok(), "and forgotten with them");
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenants_attempts_begin_a_few_at_a_time_and_another_tenants_do_not_wait() {
        let lane = Lane::new(LaneKind::Main, Slots { slots: 1000, webhook_share: 0.5, tenant_share: 1.0 });
        let mut attempts = JoinSet::new();
        let few = usize::try_from(BEGINNING).unwrap();
        assert_eq!(begin(&lane, &mut attempts, few, Duration::from_secs(10)).await, 0);
        let began = Instant::now();
        drop(admit(&lane, ids(2, 2), None).await.ok().unwrap());
        assert_eq!(began, Instant::now(), "another tenant does not wait");
        assert_eq!(begin(&lane, &mut attempts, 1, Duration::from_secs(10)).await, BEGUN.as_millis());
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_hangs_does_not_slow_the_others_of_its_tenant() {
        let lane = Lane::new(LaneKind::Main, Slots { slots: 1024, webhook_share: 0.125, tenant_share: 0.25 });
        let mut attempts = JoinSet::new();
        begin(&lane, &mut attempts, 1, Duration::from_secs(10)).await;
        tokio::time::advance(Duration::from_millis(900)).await;
        let took = begin(&lane, &mut attempts, 1_000, Duration::from_millis(30)).await;
        assert!(took <= 400, "as the slots allow, 30 ms for each 128: {took} ms");
    }

    #[tokio::test(start_paused = true)]
    async fn what_hung_together_does_not_begin_together_again() {
        let lane = Lane::new(LaneKind::Slow, Slots { slots: 256, webhook_share: 1.0, tenant_share: 1.0 });
        let (mut attempts, hangs) = (JoinSet::new(), Duration::from_secs(10));
        let began = Instant::now();
        let took = begin(&lane, &mut attempts, 256, hangs).await;
        assert!(took < 500, "nothing is known of them yet: {took} ms");
        tokio::time::advance(Duration::from_secs(9)).await;
        let last = Cell::new(began);
        let waiting = (0..256).map(|_| async {
            let admission = lane.patience(ids(1, 1).0, ids(1, 1).1).admit(None).await.ok().unwrap();
            last.set(Instant::now());
            admission.spend(tokio::time::sleep(hangs)).await;
        });
        join_all(waiting).await;
        let took = (last.get() - began - hangs).as_millis();
        assert!((4_000..=6_000).contains(&took), "within half the time of an attempt: {took} ms");
    }

    #[tokio::test(start_paused = true)]
    async fn long_bodies_share_a_room_of_their_own_and_one_larger_than_the_room_takes_all_of_it() {
        let lane = Lane::new(LaneKind::Slow, Slots { slots: 1000, webhook_share: 0.5, tenant_share: 1.0 });
        let megabyte = Some(1024 * 1024);
        let two = (admit(&lane, ids(1, 1), megabyte).await.ok(), admit(&lane, ids(1, 1), megabyte).await.ok());
        assert_eq!(admit(&lane, ids(1, 1), megabyte).await.err(), Some(Refusal::Webhook));
        assert!(admit(&lane, ids(1, 1), None).await.is_ok(), "a short body needs no room");
        drop(two);
        let rest = admit(&lane, ids(2, 2), Some(usize::MAX)).await.ok().unwrap();
        assert_eq!(admit(&lane, ids(3, 3), megabyte).await.err(), Some(Refusal::Bodies));
        drop(rest);
        assert!(admit(&lane, ids(3, 3), megabyte).await.is_ok());
    }
}
