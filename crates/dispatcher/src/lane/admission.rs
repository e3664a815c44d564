//! Admission: who may begin an attempt, and what that takes (crates/README.md, fairness).

use std::{pin::Pin, sync::Arc, time::Duration};

use domain::TenantId;
use service_kit::settings::Dispatcher;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};

use crate::lane::{
    LaneKind, long_places,
    place::Place,
    quota::{Owner, Permit, Quota},
    refusal::{Hold, LATE_RELEASE, OTHER_RELEASE, Refusal, SILENT_RELEASE},
    share::{Share, Shares, fraction_of},
    speed::{Speed, Speeds, Timed},
};

/// The maximum time that a job waits for admission. It is held then, so that others get its place.
pub(crate) const ADMISSION_TIMEOUT: Duration = Duration::from_secs(1);

/// The attempts of one tenant that may be starting at a time. A start may take a TLS handshake, the most costly part
/// of an attempt. Without this limit, hundreds that waited would start together, and everybody would wait for their
/// handshakes.
const MAX_STARTING_PER_TENANT: u32 = 16;
/// The time for which an attempt counts as starting, unless it ends before.
const MAX_START_TIME: Duration = Duration::from_millis(5);

/// KiB of long bodies that may be in memory: 48 of 256 KiB in the main lane, 8 and 16 in the halves of the slow one. With
/// what is read in batches, this is well below the memory of a process.
const MAIN_BODIES_KIB: u32 = 12 * 1024;
const SILENT_BODIES_KIB: u32 = 2 * 1024;
const LATE_BODIES_KIB: u32 = 4 * 1024;

/// Attempts at a time of a webhook that does not answer.
const MAX_ATTEMPTS_PER_SILENT_WEBHOOK: u32 = 4;

/// The slots, places and memory of all lanes, with the memory of slow webhooks.
pub(crate) struct Lanes {
    places: Arc<Semaphore>,
    bulk_places: Arc<Semaphore>,
    slow_places: Arc<Semaphore>,
    main: LaneQuotas,
    /// For attempts of webhooks that do not answer, and of those that answer late.
    silent: LaneQuotas,
    late: LaneQuotas,
    /// For attempts that have become slow in the main lane.
    long: Quota,
    starting: Arc<Shares<TenantId>>,
    speeds: Arc<Speeds>,
}

/// Slots, and memory for the long bodies of their attempts.
struct LaneQuotas {
    slots: Quota,
    body_kib: Quota,
}

/// The right to make an attempt. Dropping it gives it back.
pub(crate) struct Admission {
    lanes: Arc<Lanes>,
    owner: Owner,
    starting: Option<Share<TenantId>>,
    slot: Permit,
    /// True for a slot of the main lane.
    is_main: bool,
    /// The memory for a long body. The body owns it in the end.
    pub(crate) body: Option<Permit>,
}

impl Lanes {
    pub(crate) fn new(settings: &Dispatcher) -> Self {
        let Dispatcher { max_in_flight: main, slow_in_flight, webhook_share, tenant_share, .. } = *settings;
        let half = u32::from(slow_in_flight / 2).max(1);
        let places = |places: u16| Arc::new(Semaphore::new(places.into()));
        let quota = |whole, of_webhook, of_tenant, full| {
            Quota::new(whole, fraction_of(whole, of_webhook), fraction_of(whole, of_tenant), full)
        };
        let of_silent_webhook = MAX_ATTEMPTS_PER_SILENT_WEBHOOK.min(fraction_of(half, 0.5));
        let slow = Refusal::Slow;
        Self {
            places: places(main),
            // The rest is always there for others.
            bulk_places: places(main - main / 4),
            slow_places: places(slow_in_flight),
            main: LaneQuotas {
                slots: quota(main.into(), webhook_share, tenant_share, Refusal::Slots),
                body_kib: quota(MAIN_BODIES_KIB, webhook_share, tenant_share, Refusal::Bodies),
            },
            silent: LaneQuotas {
                slots: Quota::new(half, of_silent_webhook, fraction_of(half, tenant_share), slow),
                body_kib: quota(SILENT_BODIES_KIB, webhook_share, tenant_share, slow),
            },
            late: LaneQuotas { slots: quota(half, 0.5, 0.5, slow), body_kib: quota(LATE_BODIES_KIB, 0.5, 0.5, slow) },
            long: quota(long_places(main).into(), 1.0 / 32.0, 0.125, slow),
            starting: Shares::new(MAX_STARTING_PER_TENANT),
            speeds: Speeds::new(),
        }
    }

    /// Returns true if less than a sixteenth of the places is free for jobs that come by a lane. The bulk lane leaves a
    /// quarter of the main one's.
    fn places_are_scarce(&self, by: LaneKind) -> bool {
        let (places, all) = match by {
            LaneKind::Main | LaneKind::Bulk => (&self.places, self.main.slots.whole()),
            LaneKind::Slow => (&self.slow_places, self.silent.slots.whole() + self.late.slots.whole()),
        };
        places.available_permits() * 16 < usize::try_from(all).unwrap_or(usize::MAX)
    }

    /// Waits for a place, then takes further free ones, up to `most` in all.
    pub(crate) async fn places(&self, kind: LaneKind, most: usize) -> Vec<Place> {
        let (own, all) = match kind {
            LaneKind::Main => (None, &self.places),
            LaneKind::Bulk => (Some(&self.bulk_places), &self.places),
            LaneKind::Slow => (None, &self.slow_places),
        };
        let mut places = vec![Place::wait(own, all).await];
        while places.len() < most
            && let Some(next) = Place::free(own, all)
        {
            places.push(next);
        }
        places
    }

    /// Admits an attempt of a job that came by a lane: with a slot, and with memory for its body if that is long. A webhook
    /// that is slow gets a slot of the slow lane immediately or is refused. So is one that is not trusted, while few long
    /// places are free. Others wait for [`ADMISSION_TIMEOUT`] at most.
    ///
    /// # Errors
    /// The part of an admission that the job did not get.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        owner: Owner,
        by: LaneKind,
        long_body: Option<usize>,
    ) -> Result<Admission, Hold> {
        let speed = self.speeds.of(owner.webhook);
        let (lane, is_main, release) = match speed {
            Speed::Late => (&self.late, false, LATE_RELEASE),
            Speed::Silent => (&self.silent, false, SILENT_RELEASE),
            // Many others of which as little is known came while few long places were left.
            Speed::Unknown if self.long.is_scarce() => (&self.silent, false, LATE_RELEASE),
            Speed::Unknown | Speed::Trusted => (&self.main, true, OTHER_RELEASE),
        };
        let deadline = Instant::now() + ADMISSION_TIMEOUT;
        let is_for_others = match speed {
            _ if is_main => false,
            // The rest is for webhooks of which nothing is known.
            Speed::Silent if lane.slots.is_nearly_full() => true,
            _ if lane.slots.is_for_others(owner) => true,
            // Otherwise new jobs would take each slot, and older ones would stay held.
            _ => speed != Speed::Unknown && by != LaneKind::Slow && lane.slots.is_for_held(owner),
        };
        let slot = if is_for_others { Err(Refusal::Slow) } else { lane.slots.try_acquire(owner, 1) };
        let slot = match slot {
            Err(_) if !is_main => Err(Refusal::Slow),
            // A job that waits holds a place, and others need it.
            Err(lack) if self.places_are_scarce(by) => Err(lack),
            Err(_) => lane.slots.acquire(owner, 1, deadline).await,
            slot => slot,
        };
        let refused = |refusal| Hold { webhook: owner.webhook, refusal, release: Some(release) };
        let slot = slot.map_err(refused)?;
        let body = match long_body {
            Some(bytes) => {
                let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
                Some(lane.body_kib.acquire(owner, kib, deadline).await.map_err(refused)?)
            }
            None => None,
        };
        Ok(Admission { lanes: Arc::clone(self), owner, starting: None, slot, is_main, body })
    }
}

impl Admission {
    /// Returns true for an attempt in the slow lane, which needs no place of the main one.
    pub(crate) const fn is_slow(&self) -> bool {
        !self.is_main
    }

    /// Waits until the attempt may start, for as long as that takes. Nothing else may be waited for between this and the
    /// attempt: the tenant's other attempts wait for the start.
    pub(crate) async fn begin(&mut self) {
        self.starting = Some(self.lanes.starting.acquire(self.owner.tenant, 1).await);
    }

    /// Begins to time the attempt.
    pub(crate) fn timed(&self) -> Arc<Timed> {
        Arc::new(self.lanes.speeds.begin(self.owner.webhook))
    }

    /// Makes the attempt. It is starting for [`MAX_START_TIME`] at most. One that has become slow releases its slot, and
    /// its place by `leave`, if a long place is free. The attempt's state is large, so it stays where it is.
    pub(crate) async fn spend<T>(
        self,
        timed: &Timed,
        mut attempt: Pin<&mut impl Future<Output = T>>,
        leave: impl FnOnce(),
    ) -> T {
        let Self { lanes, owner, starting, slot, is_main, .. } = self;
        if let Ok(made) = timeout(MAX_START_TIME, attempt.as_mut()).await {
            return made;
        }
        drop(starting);
        if let Ok(made) = timeout_at(timed.slow_from(), attempt.as_mut()).await {
            return made;
        }
        timed.mark_slow();
        let long = if is_main { lanes.long.try_acquire(owner, 1).ok() } else { None };
        let _slot = match long {
            Some(long) => {
                drop(slot);
                leave();
                long
            }
            None => slot,
        };
        attempt.await
    }
}

#[cfg(test)]
mod tests;
