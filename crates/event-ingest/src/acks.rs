//! Acknowledgements wait a little for others: each frame is a write of the broker's, and nobody waits for it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use broker::Acker;

/// How long an acknowledgement waits for others. What is lost with the process or its connection in this time comes again,
/// and is known to be stored. At 200 events a second, acknowledging each one at once costs a sixth more CPU, and the median takes longer.
const TOGETHER: Duration = Duration::from_millis(25);
/// So many are sent at once.
const ENOUGH: usize = 64;

/// The acknowledgements of this process that wait.
#[derive(Clone)]
pub(crate) struct Acks {
    waiting: Arc<Mutex<Vec<Acker>>>,
    enough: usize,
}

impl Acks {
    /// Where so many events may be unacknowledged, whatever their size, an eighth of them waits at the most.
    pub(crate) fn of(unacknowledged: u16) -> Self {
        Self { waiting: Arc::default(), enough: ENOUGH.min(usize::from(unacknowledged) / 8) }
    }

    /// Acknowledges, soon. Whoever comes first sends those that have come by then, and is done when they are sent; the others
    /// are done at once.
    pub(crate) async fn add(&self, ackers: Vec<Acker>) {
        let (is_first, is_enough) = {
            let mut waiting = self.lock();
            let is_first = waiting.is_empty();
            waiting.extend(ackers);
            (is_first && !waiting.is_empty(), waiting.len() >= self.enough)
        };
        if is_first && !is_enough {
            tokio::time::sleep(TOGETHER).await;
        }
        if is_first || is_enough {
            let ackers = std::mem::take(&mut *self.lock());
            Acker::ack_all(ackers).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Acker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
