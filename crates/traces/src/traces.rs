//! Spans: which ones begin, what they say, and how they end.

use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, SystemTime},
};

use domain::Traceparent;
use opentelemetry::{
    InstrumentationScope, KeyValue, SpanId, TraceFlags, TraceId, Value,
    trace::{SpanContext, Status, TraceState},
};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, IdGenerator, RandomIdGenerator, SpanData, SpanEvents, SpanExporter,
    SpanLinks, SpanProcessor,
};
use prometheus_client::registry::Registry;
use time::OffsetDateTime;
use tokio::task::spawn_blocking;

use crate::{
    Kind,
    stats::{Counted, MAX_WAITING_SPANS, Stats},
};

/// The maximum number of spans in one export.
const MAX_BATCH_SPANS: usize = 512;
/// The longest time that a span waits for others, if no export is under way.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// The time for the last spans: a collector that never answers must not delay the end of a process.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Begins spans. Clones are cheap. By default traces are off: nothing begins.
#[derive(Clone, Debug, Default)]
pub struct Traces(Option<Arc<On>>);

#[derive(Debug)]
struct On {
    ratio: f64,
    scope: InstrumentationScope,
    /// The library's queue of ended spans, and its thread, which exports them.
    processor: BatchSpanProcessor,
    stats: Stats,
}

impl Traces {
    /// Traces that are on.
    pub(crate) fn on(ratio: f64, scope: InstrumentationScope, exporter: impl SpanExporter + 'static) -> Self {
        let stats = Stats::default();
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(MAX_WAITING_SPANS)
            .with_max_export_batch_size(MAX_BATCH_SPANS)
            .with_scheduled_delay(BATCH_DELAY);
        let processor = BatchSpanProcessor::new(Counted(exporter, stats.clone()), config.build());
        Self(Some(Arc::new(On { ratio, scope, processor, stats })))
    }

    /// Shows what became of the spans, if traces are on.
    pub fn register(&self, registry: &mut Registry) {
        if let Self(Some(on)) = self {
            let spans = on.stats.ended.clone();
            registry.register("webhooks_trace_spans", "Spans of traces, by what became of them", spans);
        }
    }

    /// Whether any span may begin.
    pub const fn are_on(&self) -> bool {
        self.0.is_some()
    }

    /// Begins a span if its trace is recorded. Its parent decides that, whose sender is trusted. Without a parent it
    /// begins a trace, and the ratio decides.
    pub fn begin(&self, kind: Kind, parent: Option<&Traceparent>, at: OffsetDateTime) -> Option<Span> {
        let on = self.0.as_ref()?;
        parent.map_or_else(|| on.chance(), Traceparent::is_recorded).then(|| on.span(kind, parent, at))
    }

    /// The same for a parent that anybody may have sent. It may ask for less than the ratio, not for more.
    pub fn begin_for_anybody(&self, kind: Kind, parent: Option<&Traceparent>, at: OffsetDateTime) -> Option<Span> {
        let on = self.0.as_ref()?;
        (parent.is_none_or(Traceparent::is_recorded) && on.chance()).then(|| on.span(kind, parent, at))
    }

    /// Exports the last spans, for a second at most. What is left then is dropped.
    pub async fn end(self) {
        if let Self(Some(on)) = self {
            let _ = spawn_blocking(move || on.end()).await;
        }
    }
}

/// A span that has begun. It is exported once it is ended. A span that is dropped never is.
#[derive(Debug)]
pub struct Span {
    data: Box<SpanData>,
    on: Arc<On>,
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

impl On {
    fn chance(&self) -> bool {
        fastrand::f64() < self.ratio
    }

    fn span(self: &Arc<Self>, kind: Kind, parent: Option<&Traceparent>, at: OffsetDateTime) -> Span {
        let new = RandomIdGenerator::default();
        let (trace, parent_span_id) = match parent.map(Traceparent::ids) {
            Some((trace, span)) => (TraceId::from(trace), SpanId::from(span)),
            None => (new.new_trace_id(), SpanId::INVALID),
        };
        let data = SpanData {
            span_context: SpanContext::new(trace, new.new_span_id(), TraceFlags::SAMPLED, false, TraceState::NONE),
            parent_span_id,
            // Every parent is in another process.
            parent_span_is_remote: parent.is_some(),
            span_kind: kind,
            name: "".into(),
            start_time: at.into(),
            end_time: at.into(),
            attributes: Vec::with_capacity(12),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        };
        Span { data: Box::new(data), on: Arc::clone(self) }
    }

    /// Never waits. The library's queue, which has the same bound, would not count what it drops.
    fn export(&self, span: SpanData) {
        if self.stats.admit() {
            self.processor.on_end(span);
        }
    }

    fn end(&self) {
        let _ = self.processor.shutdown_with_timeout(END_TIMEOUT);
        let dropped = self.stats.waiting();
        if dropped > 0 {
            tracing::warn!(dropped, "the collector did not take the last spans in time");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
        time::{sleep, timeout},
    };

    use super::*;
    use crate::{CollectorHeaders, TracesConfig};

    const AT: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn upstream(flags: &str) -> Traceparent {
        Traceparent::parse(&format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}")).unwrap()
    }

    /// Traces of a collector that accepts connections and never answers by itself.
    async fn traces(ratio: f64) -> (Traces, TcpListener) {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = TracesConfig {
            endpoint: format!("http://{}", silent.local_addr().unwrap()),
            headers: CollectorHeaders::default(),
            timeout: Duration::from_secs(3600),
            ratio,
            extra_ca_pem: None,
            service: "tests",
            version: "0",
        };
        (Traces::new(config).unwrap(), silent)
    }

    #[tokio::test]
    async fn the_parent_decides_and_the_ratio_only_where_a_trace_begins() {
        let ((none, _a), (all, _b)) = (traces(0.0).await, traces(1.0).await);
        for (traces, ratio) in [(&none, false), (&all, true)] {
            let begins = |parent: Option<&Traceparent>| traces.begin(Kind::Consumer, parent, AT).is_some();
            assert_eq!(begins(None), ratio);
            assert!(begins(Some(&upstream("01"))) && !begins(Some(&upstream("00"))));
            let anybody = |parent: Option<&Traceparent>| traces.begin_for_anybody(Kind::Server, parent, AT).is_some();
            assert_eq!((anybody(Some(&upstream("01"))), anybody(Some(&upstream("00")))), (ratio, false));
            assert_eq!(anybody(None), ratio);
        }
        let off = Traces::default();
        assert!(!off.are_on() && off.begin(Kind::Consumer, Some(&upstream("01")), AT).is_none());
    }

    #[tokio::test]
    async fn a_parent_from_anybody_does_not_choose_to_be_recorded() {
        for (ratio, likely) in [(0.001, 0..30), (0.5, 350..650)] {
            let (traces, _silent) = traces(ratio).await;
            for parent in [None, Some(&upstream("01"))] {
                let begun = (0..1_000).filter(|_| traces.begin_for_anybody(Kind::Server, parent, AT).is_some()).count();
                assert!(likely.contains(&begun), "{begun} of 1000 at {ratio}");
            }
        }
    }

    #[tokio::test]
    async fn a_child_is_of_its_parents_trace_and_names_itself_to_others() {
        let (traces, _silent) = traces(1.0).await;
        let parent = upstream("01");
        let span = traces.begin(Kind::Consumer, Some(&parent), AT).unwrap();
        let shown = span.traceparent();
        assert!(shown.is_recorded() && shown.trace_id() == parent.trace_id() && shown.ids().1 != parent.ids().1);
        let (context, (trace, id)) = (&span.data.span_context, shown.ids());
        assert_eq!((context.trace_id(), context.span_id()), (trace.into(), id.into()));
        assert_eq!(span.data.parent_span_id, parent.ids().1.into());
    }

    #[tokio::test]
    async fn a_silent_collector_delays_no_end_and_what_finds_no_room_is_dropped_and_counted() {
        let (traces, silent) = traces(1.0).await;
        for _ in 0..MAX_WAITING_SPANS + 3 {
            traces.begin(Kind::Server, None, AT).unwrap().end(AT);
        }
        let on = Arc::clone(traces.0.as_ref().unwrap());
        assert_eq!(on.stats.ended.get_or_create_owned(&[("outcome", "dropped")]).get(), 3);
        let _export = timeout(Duration::from_secs(10), silent.accept()).await.expect("it exports").unwrap();
        let began = Instant::now();
        traces.end().await;
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        assert_eq!(on.stats.waiting(), MAX_WAITING_SPANS);
    }

    #[tokio::test]
    async fn at_most_64_kib_of_an_answer_are_read_and_spans_with_a_longer_one_are_not_sent_again() {
        for (length, fate) in [(65_536, "exported"), (65_537, "dropped")] {
            let (traces, collector) = traces(1.0).await;
            traces.begin(Kind::Server, None, AT).unwrap().end(AT);
            let answers = tokio::spawn(async move {
                let (mut tcp, _) = collector.accept().await.unwrap();
                assert!(tcp.read(&mut [0; 4096]).await.unwrap() > 0);
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{}", "x".repeat(length));
                let _ = tcp.write_all(answer.as_bytes()).await;
                (collector, tcp)
            });
            let on = Arc::clone(traces.0.as_ref().unwrap());
            let export = async {
                while on.stats.waiting() > 0 {
                    sleep(Duration::from_millis(10)).await;
                }
            };
            timeout(Duration::from_secs(30), export).await.expect("the export ends");
            assert_eq!(on.stats.ended.get_or_create_owned(&[("outcome", fate)]).get(), 1, "{length} bytes");
            let (collector, _tcp) = answers.await.unwrap();
            let again = timeout(Duration::ZERO, collector.accept()).await;
            assert!(again.is_err(), "{length} bytes: the spans were sent again");
        }
    }
}
