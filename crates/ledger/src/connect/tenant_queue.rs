//! The queue of tenants for the connections that their requests share. The tenant with the fewest connections is next. Of
//! several such tenants, it is the one that got its latest permit longest ago; a tenant without requests under way is ahead
//! of these. So nobody waits for all that another tenant asks for.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use domain::TenantId;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The permits of others that a tenant with no request under way is ahead of. A tenant that waits for longer is next
/// anyway.
const HEAD_START: i64 = 100;
const HEAD_START_OF_LONG_CALLS: i64 = 2;

/// Permits, as many as there are connections.
pub(crate) struct TenantQueue(Mutex<QueueState>);

struct QueueState {
    free: usize,
    /// The most that one tenant gets at once.
    each: usize,
    head_start: i64,
    /// Tenants with a permit, or that wait for one.
    tenants: HashMap<TenantId, QueuedTenant>,
    /// Counts permits, and tenants that come.
    count: i64,
}

struct QueuedTenant {
    in_use: usize,
    waiting: VecDeque<oneshot::Sender<TenantPermit>>,
    /// The count at its latest permit, or the head start before it came.
    latest: i64,
}

/// The right to use a connection. Dropping it gives it to the next.
pub struct TenantPermit {
    queue: Arc<TenantQueue>,
    tenant: TenantId,
}

impl TenantQueue {
    /// A queue for `at_once` permits.
    pub(crate) fn new(at_once: usize) -> Arc<Self> {
        Self::with(at_once, at_once, HEAD_START)
    }

    /// A queue for `at_once` permits of long calls: one at a time for each tenant.
    pub(crate) fn of_long_calls(at_once: usize) -> Arc<Self> {
        Self::with(at_once, 1, HEAD_START_OF_LONG_CALLS)
    }

    fn with(free: usize, each: usize, head_start: i64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(QueueState { free, each, head_start, tenants: HashMap::new(), count: 0 })))
    }

    /// Waits for a permit.
    pub(crate) async fn wait(self: &Arc<Self>, tenant: TenantId) -> TenantPermit {
        let (permit, waiting) = oneshot::channel();
        self.0.lock().enqueue(tenant, permit);
        self.grant();
        match waiting.await {
            Ok(permit) => permit,
            Err(_) => unreachable!("whoever waits is in the queue"),
        }
    }

    /// Grants free permits to those that wait. A caller that is gone drops its permit, which is granted again.
    fn grant(self: &Arc<Self>) {
        loop {
            let next = self.0.lock().next();
            let Some((tenant, waiting)) = next else { return };
            let _ = waiting.send(TenantPermit { queue: Arc::clone(self), tenant });
        }
    }
}

impl QueueState {
    fn enqueue(&mut self, tenant: TenantId, permit: oneshot::Sender<TenantPermit>) {
        self.count += 1;
        let latest = self.count - self.head_start;
        let new = || QueuedTenant { in_use: 0, waiting: VecDeque::new(), latest };
        self.tenants.entry(tenant).or_insert_with(new).waiting.push_back(permit);
    }

    fn next(&mut self) -> Option<(TenantId, oneshot::Sender<TenantPermit>)> {
        if self.free == 0 {
            return None;
        }
        self.tenants.retain(|_, tenant| {
            tenant.waiting.retain(|one| !one.is_closed());
            tenant.in_use > 0 || !tenant.waiting.is_empty()
        });
        let may_have = |tenant: &QueuedTenant| !tenant.waiting.is_empty() && tenant.in_use < self.each;
        let waiting = self.tenants.iter().filter(|(_, tenant)| may_have(tenant));
        let waiting = waiting.map(|(id, tenant)| (tenant.in_use, tenant.latest, *id));
        let (_, _, id) = waiting.min()?;
        let tenant = self.tenants.get_mut(&id)?;
        let next = tenant.waiting.pop_front()?;
        self.free -= 1;
        self.count += 1;
        tenant.in_use += 1;
        tenant.latest = self.count;
        Some((id, next))
    }

    fn release(&mut self, id: TenantId) {
        self.free += 1;
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        tenant.in_use -= 1;
        if tenant.in_use == 0 && tenant.waiting.is_empty() {
            self.tenants.remove(&id);
        }
    }
}

impl Drop for TenantPermit {
    fn drop(&mut self) {
        self.queue.0.lock().release(self.tenant);
        self.queue.grant();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, future::join_all};
    use uuid::Uuid;

    use super::*;

    fn tenant(number: u128) -> TenantId {
        Uuid::from_u128(number).into()
    }

    #[tokio::test]
    async fn a_tenant_that_comes_late_does_not_wait_for_all_that_another_asked_for() {
        let queue = TenantQueue::new(2);
        let mut held = vec![queue.wait(tenant(1)).await, queue.wait(tenant(1)).await];
        let mut many: Vec<_> = (0..5).map(|_| Box::pin(queue.wait(tenant(1)))).collect();
        for one in &mut many {
            assert!(one.now_or_never().is_none());
        }
        let mut late = Box::pin(queue.wait(tenant(2)));
        assert!((&mut late).now_or_never().is_none());
        drop(held.pop());
        let permit = late.now_or_never().expect("the first free permit is its own");
        assert!(many.iter_mut().all(|one| one.now_or_never().is_none()));
        drop((permit, held));
        assert_eq!(join_all(many.drain(..2)).await.len(), 2, "who is alone may have all permits");
    }

    #[tokio::test]
    async fn tenants_that_ask_for_much_take_turns() {
        let queue = TenantQueue::new(1);
        let first = queue.wait(tenant(0)).await;
        let mut waiting = Vec::new();
        for number in [3, 3, 3, 1, 1, 2] {
            let mut one = Box::pin(queue.wait(tenant(number)));
            assert!((&mut one).now_or_never().is_none());
            waiting.push((number, one));
        }
        drop(first);
        let mut order = Vec::new();
        while let Some(at) = waiting.iter_mut().position(|(_, one)| one.now_or_never().is_some()) {
            order.push(waiting.remove(at).0);
        }
        assert_eq!(order, [3, 1, 2, 3, 1, 3]);
    }

    #[tokio::test]
    async fn a_tenant_gets_no_more_than_its_part_though_others_are_free() {
        let queue = TenantQueue::of_long_calls(2);
        let first = queue.wait(tenant(1)).await;
        let mut second = Box::pin(queue.wait(tenant(1)));
        assert!((&mut second).now_or_never().is_none());
        let other = queue.wait(tenant(2)).now_or_never().expect("a permit is free");
        drop(other);
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        assert!(second.now_or_never().is_some());
    }

    #[tokio::test]
    async fn whoever_no_longer_waits_leaves_no_trace() {
        let queue = TenantQueue::new(1);
        let first = queue.wait(tenant(1)).await;
        for _ in 0..3 {
            assert!(queue.wait(tenant(2)).now_or_never().is_none());
        }
        // This one has got its permit, and goes before it has seen it.
        let mut gone = Box::pin(queue.wait(tenant(3)));
        assert!((&mut gone).now_or_never().is_none());
        drop(first);
        drop(gone);
        let last = queue.wait(tenant(4)).await;
        drop(last);
        let state = queue.0.lock();
        assert_eq!((state.free, state.tenants.len()), (1, 0));
    }
}
