//! A span that has begun.

use std::{borrow::Cow, sync::Arc, time::SystemTime};

use domain::Traceparent;
use opentelemetry::{KeyValue, Value, trace::Status};
use opentelemetry_sdk::trace::SpanData;
use time::OffsetDateTime;

use crate::traces::On;

/// A span that has begun. It is exported once it is ended. A span that is dropped never is.
#[derive(Debug)]
pub struct Span {
    pub(crate) data: Box<SpanData>,
    pub(crate) on: Arc<On>,
}

impl Span {
    /// What others name as their parent.
    pub fn traceparent(&self) -> Traceparent {
        let context = &self.data.span_context;
        Traceparent::recorded(
            u128::from_be_bytes(context.trace_id().to_bytes()),
            u64::from_be_bytes(context.span_id().to_bytes()),
        )
    }

    /// Names it: a name of few.
    pub fn name(&mut self, name: impl Into<Cow<'static, str>>) {
        self.data.name = name.into();
    }

    /// Adds an attribute. Every text is one that may be seen by whoever sees the collector's data.
    pub fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        self.data.attributes.push(KeyValue::new(key, value));
    }

    /// Notes that the work failed, and why: an error of few.
    pub fn fail(&mut self, error: impl Into<Value>) {
        self.data.status = Status::error("");
        self.set("error.type", error);
    }

    /// Ends it. Never waits: it is dropped and counted if too many wait for the collector.
    pub fn end(mut self, at: OffsetDateTime) {
        // The clock may have been set back meanwhile.
        self.data.end_time = SystemTime::from(at).max(self.data.start_time);
        self.on.export(*self.data);
    }
}
