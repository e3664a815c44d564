//! A span that has begun.

use std::{
    borrow::Cow,
    num::{NonZeroU64, NonZeroU128},
};

use domain::Traceparent;
use time::OffsetDateTime;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::{
    record::{Kind, Record, Value},
    stats::{DROPPED, Stats},
};

/// The way of ended spans to the exporter.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) records: mpsc::Sender<Record>,
    pub(crate) stats: Stats,
}

impl Ended {
    fn push(&self, record: Record) {
        if self.records.try_send(record).is_err() {
            self.stats.count(DROPPED, 1);
        }
    }
}

/// A span that has begun. It is exported once it is ended. One that is dropped never is.
#[derive(Debug)]
pub struct Span(Box<Begun>);

#[derive(Debug)]
struct Begun {
    record: Record,
    ended: Ended,
}

impl Span {
    pub(crate) fn new(
        ended: Ended,
        kind: Kind,
        started_at: OffsetDateTime,
        trace: NonZeroU128,
        parent: Option<u64>,
    ) -> Self {
        let record = Record {
            trace,
            id: new_span_id(),
            parent,
            name: Cow::Borrowed(""),
            kind,
            started_at,
            ended_at: started_at,
            attributes: Vec::with_capacity(12),
            is_failed: false,
        };
        Self(Box::new(Begun { record, ended }))
    }

    /// What others name as their parent.
    pub fn traceparent(&self) -> Traceparent {
        Traceparent::recorded(self.0.record.trace, self.0.record.id)
    }

    /// Names it: a name of few.
    pub fn name(&mut self, name: impl Into<Cow<'static, str>>) {
        self.0.record.name = name.into();
    }

    /// Adds an attribute. Every text is one that may be seen by whoever sees the collector's data.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        self.0.record.attributes.push((key, value.into()));
    }

    /// Notes that the work failed, and why: an error of few.
    pub fn fail(&mut self, error: impl Into<Value>) {
        self.0.record.is_failed = true;
        self.set("error.type", error);
    }

    /// Ends it. Never waits: it is dropped and counted if too many wait for the collector.
    pub fn end(self, at: OffsetDateTime) {
        let Begun { mut record, ended } = *self.0;
        // The clock may have been set back meanwhile.
        record.ended_at = at.max(record.started_at);
        ended.push(record);
    }
}

/// The id of a new trace. Its last 56 bits are random, as the ratio needs it.
pub(crate) fn new_trace_id() -> NonZeroU128 {
    NonZeroU128::new(Uuid::new_v4().as_u128()).unwrap_or(NonZeroU128::MIN)
}

fn new_span_id() -> NonZeroU64 {
    let (_, random) = Uuid::new_v4().as_u64_pair();
    NonZeroU64::new(random).unwrap_or(NonZeroU64::MIN)
}
