//! Acknowledgements wait a little, to share a frame. Each frame costs the broker a write, and nobody waits for it.

use std::{sync::Arc, time::Duration};

use broker::Acker;
use parking_lot::Mutex;

/// How long an acknowledgement waits for others. If the process or its connection is lost meanwhile, the event comes
/// again as a duplicate. At 200 events a second, acknowledging each one at once costs a sixth more CPU, and the median
/// takes longer.
const ACK_DELAY: Duration = Duration::from_millis(25);
/// From this many on, acknowledgements are sent at once.
const ENOUGH: usize = 64;

/// The waiting acknowledgements of this process.
#[derive(Clone)]
pub(crate) struct AckBatch {
    waiting: Arc<Mutex<Vec<Acker>>>,
    enough: usize,
}

impl AckBatch {
    /// Of the events that may be unacknowledged, whatever their size, an eighth waits here at the most.
    pub(crate) fn of(unacknowledged: u16) -> Self {
        Self { waiting: Arc::default(), enough: ENOUGH.min(usize::from(unacknowledged) / 8) }
    }

    /// Acknowledges soon. The first caller waits and then sends what has come. One that makes it enough sends at once.
    /// Any other returns at once.
    pub(crate) async fn add(&self, ackers: Vec<Acker>) {
        let (is_first, is_enough) = {
            let mut waiting = self.waiting.lock();
            let is_first = waiting.is_empty();
            waiting.extend(ackers);
            (is_first && !waiting.is_empty(), waiting.len() >= self.enough)
        };
        if is_first && !is_enough {
            tokio::time::sleep(ACK_DELAY).await;
        }
        if is_first || is_enough {
            let ackers = std::mem::take(&mut *self.waiting.lock());
            Acker::ack_all(ackers).await;
        }
    }
}
