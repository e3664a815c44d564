//! Says whether the same failure meets several tenants together, so that it is most likely ours.

use std::{collections::HashMap, time::Duration};

use domain::TenantId;
use egress::OwnFault;
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

/// The failures are ours if they meet this many tenants,
const TENANTS: usize = 3;
/// within this time.
const TOGETHER: Duration = Duration::from_secs(60);
/// The time for which the first ones wait for the others.
const PATIENCE: Duration = Duration::from_secs(5);
/// The kinds of failures, times the tenants that are remembered: more than enough are known then.
const MOST: usize = 1_000;

/// The tenants that a failure has met, with receivers that were well.
#[derive(Default)]
pub(super) struct Witnesses {
    met: Mutex<HashMap<(OwnFault, TenantId), Instant>>,
    more: Notify,
}

impl Witnesses {
    /// A failure met a receiver of a tenant. Returns whether it meets several tenants: waits for some seconds to see that.
    pub(super) async fn are_several(&self, fault: OwnFault, tenant: TenantId) -> bool {
        {
            let mut met = self.met.lock();
            let now = Instant::now();
            if met.len() >= MOST {
                met.retain(|_, at| now.saturating_duration_since(*at) <= TOGETHER);
            }
            if met.len() < MOST {
                met.insert((fault, tenant), now);
            }
        }
        self.more.notify_waiters();
        let several = async {
            loop {
                let more = self.more.notified();
                if self.count(fault) >= TENANTS {
                    break;
                }
                more.await;
            }
        };
        timeout(PATIENCE, several).await.is_ok()
    }

    fn count(&self, fault: OwnFault) -> usize {
        let now = Instant::now();
        let is_recent = |at: &Instant| now.saturating_duration_since(*at) <= TOGETHER;
        self.met.lock().iter().filter(|((of, _), at)| *of == fault && is_recent(at)).count()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep};
    use uuid::Uuid;

    use super::*;

    fn tenant(number: u128) -> TenantId {
        Uuid::from_u128(number).into()
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_of_three_tenants_wait_for_the_third() {
        let witnesses = Witnesses::default();
        let began = Instant::now();
        let third = async {
            sleep(Duration::from_secs(2)).await;
            witnesses.are_several(OwnFault::NoRoute, tenant(3)).await
        };
        let of = |number| witnesses.are_several(OwnFault::NoRoute, tenant(number));
        assert_eq!(tokio::join!(of(1), of(2), third), (true, true, true));
        assert_eq!(began.elapsed(), Duration::from_secs(2));
        assert!(of(1).await);
        assert_eq!(began.elapsed(), Duration::from_secs(2), "it is known");
        advance(TOGETHER + Duration::from_secs(1)).await;
        assert!(!of(1).await, "the others' are over");
    }

    #[tokio::test(start_paused = true)]
    async fn one_tenant_is_not_several_nor_are_different_failures_one() {
        let witnesses = Witnesses::default();
        let of = |fault, number| witnesses.are_several(fault, tenant(number));
        let (one, again, other) = tokio::join!(of(OwnFault::NoRoute, 1), of(OwnFault::NoRoute, 1), async {
            tokio::join!(of(OwnFault::NoNameServer, 2), of(OwnFault::UnknownIssuer, 3))
        });
        assert_eq!((one, again, other), (false, false, (false, false)));
    }
}
