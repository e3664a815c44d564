//! A careful upstream service: it publishes unconfirmed events again with the same ids, so there are duplicates.

use std::sync::{Mutex, PoisonError};

use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::{evidence::Published, plan::PlannedEvent};
use crate::upstream::Upstream;

/// The most events that are published before the first confirm is awaited.
const MAX_UNCONFIRMED: usize = 50;

/// Publishes each event at its time, or once the earlier ones are confirmed: then up to `MAX_UNCONFIRMED` events that are due. Adds
/// confirmed events to `list`.
pub(super) async fn publish(
    upstream: Upstream,
    tenants: &[Uuid],
    began: Instant,
    events: Vec<PlannedEvent>,
    list: &Mutex<Vec<Published>>,
) {
    let (mut link, mut events) = (None, events.into_iter().peekable());
    while let Some(first) = events.next() {
        sleep_until(began + first.at).await;
        let mut due = vec![first.happened(tenants)];
        while due.len() < MAX_UNCONFIRMED
            && let Some(next) = events.next_if(|next| began + next.at <= Instant::now())
        {
            due.push(next.happened(tenants));
        }
        let times = upstream.persist(&mut link, &due).await;
        let confirmed = due.into_iter().map(|event| Published { event, times });
        list.lock().unwrap_or_else(PoisonError::into_inner).extend(confirmed);
    }
}
