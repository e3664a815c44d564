//! Keeps ended spans until the exporter takes them.

use tokio::sync::mpsc;

use crate::{
    record::Record,
    stats::{Fate, Stats},
};

/// How many spans may wait for the collector: some 8 MB.
pub(crate) const LIMIT: usize = 8192;

/// The way to the exporter.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub(crate) records: mpsc::Sender<Record>,
    pub(crate) stats: Stats,
}

impl Queue {
    pub(crate) fn push(&self, record: Record) {
        if self.records.try_send(record).is_err() {
            self.stats.count(Fate::Dropped, 1);
        }
    }
}
