//! A lane: slots, of which nobody holds more than a share, and the patience of who waits for one (DESIGN 6).

use std::{sync::Arc, time::Duration};

use broker::Names;
use domain::{TenantId, WebhookId};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use crate::shares::{Share, Shares, part};

/// Which lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Which {
    /// Where every job comes first.
    Main,
    /// Where the jobs of webhooks over their share go.
    Slow,
}

impl Which {
    pub(crate) const BOTH: [Self; 2] = [Self::Main, Self::Slow];

    /// Its name in metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Slow => "slow",
        }
    }

    /// Its queue.
    pub(crate) fn queue(self, names: &Names) -> String {
        match self {
            Self::Main => names.deliveries(),
            Self::Slow => names.slow(),
        }
    }

    /// How long a job waits for a slot of its share before it is moved. In the main lane long enough that the slots of a
    /// healthy webhook turn over meanwhile, and short enough that the jobs of a slow one do not fill the prefetch. In the
    /// slow lane it also bounds how fast the jobs of a busy webhook go round the queue.
    const fn patience(self) -> Duration {
        match self {
            Self::Main => Duration::from_millis(100),
            Self::Slow => Duration::from_millis(500),
        }
    }

    /// How much of long bodies may be in memory at a time: of 256 KiB, 48 and 16. Together with what is read in
    /// batches, well below what a process may take.
    const fn body_kib(self) -> u32 {
        match self {
            Self::Main => 12 * 1024,
            Self::Slow => 4 * 1024,
        }
    }
}

/// How the slots of a lane are shared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    pub(crate) slots: u16,
    pub(crate) webhook_share: f64,
    pub(crate) tenant_share: f64,
}

/// One lane of this process.
pub(crate) struct Lane {
    patience: Duration,
    slots: Limits,
    bodies: Limits,
    /// Of which the shares are shares; slots need no such: the prefetch bounds them.
    body_kib: Arc<Semaphore>,
    all_body_kib: u32,
}

struct Limits {
    of_webhooks: Arc<Shares<WebhookId>>,
    of_tenants: Arc<Shares<TenantId>>,
}

/// The right to make an attempt; given back when dropped.
pub(crate) struct Admission {
    _slot: Held,
    _body: Option<(Held, OwnedSemaphorePermit)>,
}

type Held = (Share<WebhookId>, Share<TenantId>);

/// What a job waited for in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// Its webhook holds its share.
    Webhook,
    /// Its tenant does.
    Tenant,
    /// Too many long bodies are in memory.
    Bodies,
    /// Another job that may crash the process is being begun.
    Suspects,
}

impl Over {
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
    pub(crate) fn new(which: Which, slots: Slots) -> Self {
        let limits = |whole| Limits {
            of_webhooks: Shares::new(part(whole, slots.webhook_share)),
            of_tenants: Shares::new(part(whole, slots.tenant_share)),
        };
        let all_body_kib = which.body_kib();
        Self {
            patience: which.patience(),
            slots: limits(slots.slots.into()),
            bodies: limits(all_body_kib),
            body_kib: Arc::new(Semaphore::new(usize::try_from(all_body_kib).unwrap_or(usize::MAX))),
            all_body_kib,
        }
    }

    /// When the patience of a job ends that comes now.
    pub(crate) fn patience(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// Waits for a slot and, if the body is long, for room for it. Always in the same order, so that nobody waits for
    /// another in a circle.
    ///
    /// # Errors
    /// What could not be had until `end`.
    pub(crate) async fn admit(
        &self,
        webhook: WebhookId,
        tenant: TenantId,
        long_body: Option<usize>,
        end: Instant,
    ) -> Result<Admission, Over> {
        let slot = self.slots.acquire(webhook, tenant, 1, end).await?;
        let Some(bytes) = long_body else { return Ok(Admission { _slot: slot, _body: None }) };
        let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX).min(self.all_body_kib);
        let share = self.bodies.acquire(webhook, tenant, kib, end).await?;
        let room = Arc::clone(&self.body_kib).acquire_many_owned(kib);
        match timeout_at(end, room).await {
            Ok(Ok(room)) => Ok(Admission { _slot: slot, _body: Some((share, room)) }),
            _ => Err(Over::Bodies),
        }
    }
}

impl Limits {
    async fn acquire(&self, webhook: WebhookId, tenant: TenantId, amount: u32, end: Instant) -> Result<Held, Over> {
        let webhook = timeout_at(end, self.of_webhooks.acquire(webhook, amount)).await.map_err(|_| Over::Webhook)?;
        let tenant = timeout_at(end, self.of_tenants.acquire(tenant, amount)).await.map_err(|_| Over::Tenant)?;
        Ok((webhook, tenant))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn ids(webhook: u128, tenant: u128) -> (WebhookId, TenantId) {
        (Uuid::from_u128(webhook).into(), Uuid::from_u128(tenant).into())
    }

    async fn admit(
        lane: &Lane,
        (webhook, tenant): (WebhookId, TenantId),
        body: Option<usize>,
    ) -> Result<Admission, Over> {
        lane.admit(webhook, tenant, body, lane.patience()).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_webhook_and_a_tenant_at_their_share_wait_in_vain_and_others_do_not_wait() {
        let lane = Lane::new(Which::Main, Slots { slots: 16, webhook_share: 0.125, tenant_share: 0.25 });
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(admit(&lane, ids(1, 1), None).await.ok().unwrap());
        }
        assert_eq!(admit(&lane, ids(1, 1), None).await.err(), Some(Over::Webhook));
        for _ in 0..2 {
            held.push(admit(&lane, ids(2, 1), None).await.ok().unwrap());
        }
        assert_eq!(admit(&lane, ids(3, 1), None).await.err(), Some(Over::Tenant));
        let before = Instant::now();
        held.push(admit(&lane, ids(4, 2), None).await.ok().unwrap());
        assert_eq!(before, Instant::now(), "another tenant does not wait");
        held.clear();
        assert!(admit(&lane, ids(3, 1), None).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn long_bodies_share_a_room_of_their_own_and_one_larger_than_the_room_takes_all_of_it() {
        let lane = Lane::new(Which::Slow, Slots { slots: 1000, webhook_share: 0.5, tenant_share: 1.0 });
        let megabyte = Some(1024 * 1024);
        let _two = (admit(&lane, ids(1, 1), megabyte).await.ok(), admit(&lane, ids(1, 1), megabyte).await.ok());
        assert_eq!(admit(&lane, ids(1, 1), megabyte).await.err(), Some(Over::Webhook));
        assert!(admit(&lane, ids(1, 1), None).await.is_ok(), "a short body needs no room");
        let rest = admit(&lane, ids(2, 2), Some(usize::MAX)).await.ok().unwrap();
        assert_eq!(admit(&lane, ids(3, 3), megabyte).await.err(), Some(Over::Bodies));
        drop(rest);
        assert!(admit(&lane, ids(3, 3), megabyte).await.is_ok());
    }
}
