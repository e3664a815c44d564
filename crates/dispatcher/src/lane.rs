//! Admission: who may begin an attempt, and what that takes (crates/README.md, fairness).

use std::{pin::Pin, sync::Arc, time::Duration};

use domain::TenantId;
use ledger::Waking;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout, timeout_at},
};

use crate::{
    pace::{Pace, Paces, Timed},
    room::{Lack, Owner, Part, Room},
    shares::{Share, Shares, part},
};

mod kind;

pub(crate) use kind::{LaneKind, Refusal};

/// The maximum of attempts at a time, and the fractions of one webhook and one tenant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    pub(crate) main: u16,
    pub(crate) slow: u16,
    pub(crate) webhook_share: f64,
    pub(crate) tenant_share: f64,
}

/// The maximum time that a job waits for admission. It is held then, so that others get its place.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// How many attempts of one tenant may be starting at a time. A start may take a TLS handshake, the most costly part
/// of an attempt. Without this limit, hundreds that waited would start together, and everybody would wait for their
/// handshakes.
const MOST_STARTING: u32 = 16;
/// The time for which an attempt counts as starting, unless it ends before.
const STARTING_FOR: Duration = Duration::from_millis(5);

/// KiB of long bodies that may be in memory: 48 of 256 KiB in the main lane, 8 and 16 in the halves of the slow one. With
/// what is read in batches, this is well below the memory of a process.
const MAIN_KIB: u32 = 12 * 1024;
const SILENT_KIB: u32 = 2 * 1024;
const LATE_KIB: u32 = 4 * 1024;

/// Attempts at a time of a webhook that does not answer.
const OF_SILENT: u32 = 4;

/// Held jobs that are published again: of a slow webhook a single job, after an attempt's time; of other webhooks some
/// jobs, after a second.
const OF_SILENT_ONES: Waking = Waking { batch: 1, pause: Duration::from_secs(10) };
const OF_LATE_ONES: Waking = Waking { batch: 1, pause: Duration::from_secs(3) };
const OF_OTHERS: Waking = Waking { batch: 16, pause: Duration::from_secs(1) };

/// How many of the main lane's places the bulk lane's jobs may hold. The rest is always there for others.
pub(crate) const fn bulk_places(all: u16) -> u16 {
    all - all / 4
}

/// The number of long places.
const fn long_places(main: u16) -> u16 {
    main / 2
}

impl Slots {
    /// The maximum of unacknowledged messages of a lane: those that wait for admission, and attempts in long places and
    /// in the slow lane.
    pub(crate) const fn prefetch(self, kind: LaneKind) -> u16 {
        let elsewhere = long_places(self.main).saturating_add(self.slow);
        match kind {
            LaneKind::Main => self.main.saturating_add(elsewhere),
            // A message may be held by one job that hangs. With fewer messages than places, those of one tenant
            // could be all.
            LaneKind::Bulk => bulk_places(self.main).saturating_add(elsewhere),
            LaneKind::Slow => self.slow.saturating_add(elsewhere),
        }
    }
}

/// The slots, places and memory of all lanes, with the memory of slow webhooks.
pub(crate) struct Lanes {
    places: Arc<Semaphore>,
    bulk_places: Arc<Semaphore>,
    slow_places: Arc<Semaphore>,
    main: Lane,
    /// For attempts of webhooks that do not answer, and of those that answer late.
    silent: Lane,
    late: Lane,
    /// For attempts that have become slow in the main lane.
    long: Room,
    starting: Arc<Shares<TenantId>>,
    paces: Arc<Paces>,
}

/// Slots, and memory for the long bodies of their attempts.
struct Lane {
    slots: Room,
    body_kib: Room,
}

/// A job's place: room to be looked up, and to wait for admission. Dropping it releases the place.
pub(crate) struct Place {
    _own: Option<OwnedSemaphorePermit>,
    _place: OwnedSemaphorePermit,
}

impl Place {
    /// Waits for a place of all, and before that for one of the lane's own, if it has such.
    async fn wait(own: Option<&Arc<Semaphore>>, all: &Arc<Semaphore>) -> Self {
        let own = match own {
            Some(own) => Some(Arc::clone(own).acquire_owned().await),
            None => None,
        };
        match (own.transpose(), Arc::clone(all).acquire_owned().await) {
            (Ok(own), Ok(place)) => Self { _own: own, _place: place },
            _ => unreachable!("the places are never closed"),
        }
    }

    /// The same without waiting: `None` if no place is free.
    fn free(own: Option<&Arc<Semaphore>>, all: &Arc<Semaphore>) -> Option<Self> {
        let own = own.map(|own| Arc::clone(own).try_acquire_owned()).transpose().ok()?;
        Some(Self { _own: own, _place: Arc::clone(all).try_acquire_owned().ok()? })
    }
}

/// The right to make an attempt. Dropping it gives it back.
pub(crate) struct Admission {
    lanes: Arc<Lanes>,
    owner: Owner,
    starting: Option<Share<TenantId>>,
    slot: Part,
    /// True for a slot of the main lane.
    is_main: bool,
    /// The memory for a long body. The body owns it in the end.
    body: Option<Part>,
}

/// Why a job is held, and how it is published again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) refusal: Refusal,
    pub(crate) waking: Waking,
}

impl Lanes {
    pub(crate) fn new(slots: Slots) -> Self {
        let of = |whole: u16, share| part(whole.into(), share);
        let half = (slots.slow / 2).max(1);
        let places = |places: u16| Arc::new(Semaphore::new(places.into()));
        let bodies = |kib| Room::new(kib, part(kib, slots.webhook_share), part(kib, slots.tenant_share));
        let long = long_places(slots.main);
        Self {
            places: places(slots.main),
            bulk_places: places(bulk_places(slots.main)),
            slow_places: places(slots.slow),
            main: Lane {
                slots: Room::new(
                    slots.main.into(),
                    of(slots.main, slots.webhook_share),
                    of(slots.main, slots.tenant_share),
                ),
                body_kib: bodies(MAIN_KIB),
            },
            silent: Lane {
                slots: Room::new(half.into(), OF_SILENT.min(of(half, 0.5)), of(half, slots.tenant_share)),
                body_kib: bodies(SILENT_KIB),
            },
            late: Lane {
                slots: Room::new(half.into(), of(half, 0.5), of(half, 0.5)),
                body_kib: Room::new(LATE_KIB, LATE_KIB / 2, LATE_KIB / 2),
            },
            long: Room::new(long.into(), of(long, 1.0 / 32.0), of(long, 0.125)),
            starting: Shares::new(MOST_STARTING),
            paces: Paces::new(),
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
    /// places are free. Others wait for [`PATIENCE`] at most.
    ///
    /// # Errors
    /// What the job did not get.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        owner: Owner,
        by: LaneKind,
        long_body: Option<usize>,
    ) -> Result<Admission, Refused> {
        let pace = self.paces.of(owner.webhook);
        let (lane, is_main) = match pace {
            Pace::Late => (&self.late, false),
            Pace::Silent => (&self.silent, false),
            Pace::Unknown if self.long.is_scarce() => (&self.silent, false),
            Pace::Unknown | Pace::Trusted => (&self.main, true),
        };
        let deadline = Instant::now() + PATIENCE;
        let slot = match is_main {
            true => match lane.slots.try_acquire(owner, 1) {
                Ok(slot) => Ok(slot),
                // A job that waits holds a place, and others need it.
                Err(lack) if self.places_are_scarce(by) => Err(lack.refusal(Refusal::Places)),
                Err(_) => lane.slots.wait(owner, 1, deadline, Refusal::Slots).await,
            },
            // The rest is for webhooks of which nothing is known.
            false if pace == Pace::Silent && lane.slots.is_nearly_full() => Err(Refusal::Slow),
            false if lane.slots.is_for_others(owner) => Err(Refusal::Slow),
            // Otherwise new jobs would take each slot, and older ones would stay held.
            false if by != LaneKind::Slow && pace != Pace::Unknown && lane.slots.is_for_held(owner) => {
                Err(Refusal::Slow)
            }
            false => lane.slots.try_acquire(owner, 1).map_err(|_| Refusal::Slow),
        };
        // Many others of which as little is known came while few long places were left.
        let waking = if pace == Pace::Unknown && !is_main { OF_LATE_ONES } else { waking(pace) };
        let refused = |refusal| Refused { refusal, waking };
        let slot = slot.map_err(refused)?;
        let body = match long_body {
            Some(bytes) => {
                let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(lane.body_kib.whole());
                let whole = if is_main { Refusal::Bodies } else { Refusal::Slow };
                Some(lane.body_kib.wait(owner, kib, deadline, whole).await.map_err(refused)?)
            }
            None => None,
        };
        Ok(Admission { lanes: Arc::clone(self), owner, starting: None, slot, is_main, body })
    }
}

/// The rule by which held jobs of a webhook are published again.
pub(crate) const fn waking(pace: Pace) -> Waking {
    match pace {
        Pace::Silent => OF_SILENT_ONES,
        Pace::Late => OF_LATE_ONES,
        Pace::Unknown | Pace::Trusted => OF_OTHERS,
    }
}

impl Room {
    /// Waits for a part until a deadline.
    async fn wait(&self, owner: Owner, amount: u32, until: Instant, whole: Refusal) -> Result<Part, Refusal> {
        let mut lack = Lack::Webhook;
        match timeout_at(until, self.acquire(owner, amount, &mut lack)).await {
            Ok(part) => Ok(part),
            Err(_) => Err(lack.refusal(whole)),
        }
    }
}

impl Lack {
    /// The refusal for this lack. `whole`: the one for a lack of the whole.
    const fn refusal(self, whole: Refusal) -> Refusal {
        match self {
            Self::Webhook => Refusal::Webhook,
            Self::Tenant => Refusal::Tenant,
            Self::Whole => whole,
        }
    }
}

impl Admission {
    /// Returns true for an attempt in the slow lane, which needs no place of the main one.
    pub(crate) const fn is_slow(&self) -> bool {
        !self.is_main
    }

    /// The memory for a long body.
    pub(crate) fn take_body(&mut self) -> Option<Part> {
        self.body.take()
    }

    /// Waits until the attempt may start, for as long as that takes, and begins to time the attempt. Nothing else may come
    /// between this and the attempt: the tenant's other attempts wait for the start.
    pub(crate) async fn begin(&mut self) -> Arc<Timed> {
        self.starting = Some(self.lanes.starting.acquire(self.owner.tenant, 1).await);
        Arc::new(self.lanes.paces.begin(self.owner.webhook))
    }

    /// Makes the attempt. It is starting for [`STARTING_FOR`] at most. One that has become slow releases its slot, and
    /// its place by `leave`, if a long place is free. The attempt's state is large, so it stays where it is.
    pub(crate) async fn spend<T>(
        self,
        timed: &Timed,
        mut attempt: Pin<&mut impl Future<Output = T>>,
        leave: impl FnOnce(),
    ) -> T {
        let Self { lanes, owner, starting, slot, is_main, .. } = self;
        if let Ok(made) = timeout(STARTING_FOR, attempt.as_mut()).await {
            return made;
        }
        drop(starting);
        if let Ok(made) = timeout_at(timed.slow_from(), attempt.as_mut()).await {
            return made;
        }
        timed.is_slow();
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
