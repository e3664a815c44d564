//! Turns at the connections that the requests of all tenants share. The tenant with the fewest connections is next, and of
//! several such, the one that had its latest turn longest ago; one without requests under way is ahead of these. So nobody
//! waits for all that another tenant asks for.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use domain::TenantId;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The turns of others that a tenant with no request under way is ahead of. A tenant that waits for longer is next anyway.
const AHEAD: i64 = 100;

/// Turns, as many as there are connections.
pub(crate) struct Turns(Mutex<State>);

struct State {
    free: usize,
    /// Tenants with a turn, or that wait for one.
    tenants: HashMap<TenantId, Tenant>,
    /// Counts turns, and tenants that come.
    count: i64,
}

struct Tenant {
    in_use: usize,
    waiting: VecDeque<oneshot::Sender<Turn>>,
    /// The count at its latest turn, or [`AHEAD`] before it came.
    at: i64,
}

/// The right to use a connection. Dropping it gives it to the next.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    tenant: TenantId,
}

impl Turns {
    pub(crate) fn new(at_once: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { free: at_once, tenants: HashMap::new(), count: 0 })))
    }

    /// Waits for a turn.
    pub(crate) async fn wait(self: &Arc<Self>, tenant: TenantId) -> Turn {
        let (turn, waiting) = oneshot::channel();
        self.0.lock().enqueue(tenant, turn);
        self.give();
        match waiting.await {
            Ok(turn) => turn,
            Err(_) => unreachable!("whoever waits is in the queue"),
        }
    }

    /// Gives free turns to those that wait. Who has gone drops its turn, so it is given again.
    fn give(self: &Arc<Self>) {
        loop {
            let next = self.0.lock().next();
            let Some((tenant, waiting)) = next else { return };
            let _ = waiting.send(Turn { turns: Arc::clone(self), tenant });
        }
    }
}

impl State {
    fn enqueue(&mut self, tenant: TenantId, turn: oneshot::Sender<Turn>) {
        self.count += 1;
        let at = self.count - AHEAD;
        let new = || Tenant { in_use: 0, waiting: VecDeque::new(), at };
        self.tenants.entry(tenant).or_insert_with(new).waiting.push_back(turn);
    }

    fn next(&mut self) -> Option<(TenantId, oneshot::Sender<Turn>)> {
        if self.free == 0 {
            return None;
        }
        self.tenants.retain(|_, tenant| {
            tenant.waiting.retain(|one| !one.is_closed());
            tenant.in_use > 0 || !tenant.waiting.is_empty()
        });
        let waiting = self.tenants.iter().filter(|(_, tenant)| !tenant.waiting.is_empty());
        let waiting = waiting.map(|(id, tenant)| (tenant.in_use, tenant.at, *id));
        let (_, _, id) = waiting.min()?;
        let tenant = self.tenants.get_mut(&id)?;
        let next = tenant.waiting.pop_front()?;
        self.free -= 1;
        self.count += 1;
        tenant.in_use += 1;
        tenant.at = self.count;
        Some((id, next))
    }

    fn give_back(&mut self, id: TenantId) {
        self.free += 1;
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        tenant.in_use -= 1;
        if tenant.in_use == 0 && tenant.waiting.is_empty() {
            self.tenants.remove(&id);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.0.lock().give_back(self.tenant);
        self.turns.give();
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
        let turns = Turns::new(2);
        let mut held = vec![turns.wait(tenant(1)).await, turns.wait(tenant(1)).await];
        let mut many: Vec<_> = (0..5).map(|_| Box::pin(turns.wait(tenant(1)))).collect();
        for one in &mut many {
            assert!(one.now_or_never().is_none());
        }
        let mut late = Box::pin(turns.wait(tenant(2)));
        assert!((&mut late).now_or_never().is_none());
        drop(held.pop());
        let turn = late.now_or_never().expect("the first free turn is its own");
        assert!(many.iter_mut().all(|one| one.now_or_never().is_none()));
        drop((turn, held));
        assert_eq!(join_all(many.drain(..2)).await.len(), 2, "who is alone may have all turns");
    }

    #[tokio::test]
    async fn tenants_that_ask_for_much_take_turns() {
        let turns = Turns::new(1);
        let first = turns.wait(tenant(0)).await;
        let mut waiting = Vec::new();
        for number in [3, 3, 3, 1, 1, 2] {
            let mut one = Box::pin(turns.wait(tenant(number)));
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
    async fn whoever_no_longer_waits_leaves_no_trace() {
        let turns = Turns::new(1);
        let first = turns.wait(tenant(1)).await;
        for _ in 0..3 {
            assert!(turns.wait(tenant(2)).now_or_never().is_none());
        }
        // This one has got its turn, and goes before it has seen it.
        let mut gone = Box::pin(turns.wait(tenant(3)));
        assert!((&mut gone).now_or_never().is_none());
        drop(first);
        drop(gone);
        let last = turns.wait(tenant(4)).await;
        drop(last);
        let state = turns.0.lock();
        assert_eq!((state.free, state.tenants.len()), (1, 0));
    }
}
