//! Begins spans.

use domain::Traceparent;
use prometheus_client::registry::Registry;
use time::OffsetDateTime;
use tokio::sync::mpsc;

use crate::{
    ratio::SampleRatio,
    record::{Kind, Record},
    span::{Ended, Span, new_trace_id},
    stats::Stats,
};

/// How many spans may wait for the collector: some 8 MB.
const LIMIT: usize = 8192;

/// Begins spans. Clones are cheap. By default traces are off: nothing begins.
#[derive(Clone, Debug, Default)]
pub struct Traces(Option<On>);

/// The ratio, and the way to the exporter.
#[derive(Clone, Debug)]
struct On {
    ratio: SampleRatio,
    ended: Ended,
}

impl Traces {
    /// Traces that are on, and the spans that come of them.
    pub(crate) fn on(ratio: SampleRatio, stats: Stats) -> (Self, mpsc::Receiver<Record>) {
        let (records, ended) = mpsc::channel(LIMIT);
        (Self(Some(On { ratio, ended: Ended { records, stats } })), ended)
    }

    /// Shows what became of the spans, if traces are on.
    pub fn register(&self, registry: &mut Registry) {
        if let Self(Some(on)) = self {
            on.ended.stats.register(registry);
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
        match parent {
            Some(parent) => parent.is_recorded().then(|| on.child(kind, parent, at))?,
            None => on.root(kind, at),
        }
    }

    /// The same for a parent that anybody may have sent. It may ask for less than the ratio, not for more: chance decides,
    /// as who sends a trace's id has chosen its deciding bits.
    pub fn begin_for_anybody(&self, kind: Kind, parent: Option<&Traceparent>, at: OffsetDateTime) -> Option<Span> {
        let on = self.0.as_ref()?;
        match parent {
            Some(parent) => {
                let is_recorded = parent.is_recorded() && on.ratio.takes(new_trace_id().get());
                is_recorded.then(|| on.child(kind, parent, at))?
            }
            None => on.root(kind, at),
        }
    }
}

impl On {
    fn child(&self, kind: Kind, parent: &Traceparent, at: OffsetDateTime) -> Option<Span> {
        let (trace, span) = parent.ids();
        Some(Span::new(self.ended.clone(), kind, at, trace.try_into().ok()?, Some(span)))
    }

    fn root(&self, kind: Kind, at: OffsetDateTime) -> Option<Span> {
        let trace = new_trace_id();
        self.ratio.takes(trace.get()).then(|| Span::new(self.ended.clone(), kind, at, trace, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn upstream(flags: &str) -> Traceparent {
        // Half of all ratios take the trace: its deciding bits begin with 8.
        Traceparent::parse(&format!("00-4bf92f3577b34da6a380000000000000-00f067aa0ba902b7-{flags}")).unwrap()
    }

    fn traces(part: f64) -> (Traces, mpsc::Receiver<Record>) {
        Traces::on(SampleRatio::of(part), Stats::default())
    }

    #[test]
    fn the_parent_decides_and_the_ratio_only_where_a_trace_begins() {
        let ((none, _a), (all, _b)) = (traces(0.0), traces(1.0));
        for (traces, ratio) in [(&none, false), (&all, true)] {
            let begins = |parent: Option<&Traceparent>| traces.begin(Kind::Consumer, parent, AT).is_some();
            assert_eq!(begins(None), ratio);
            assert!(begins(Some(&upstream("01"))) && !begins(Some(&upstream("00"))));
            let anybody = |parent: Option<&Traceparent>| traces.begin_for_anybody(Kind::Server, parent, AT).is_some();
            assert_eq!((anybody(Some(&upstream("01"))), anybody(Some(&upstream("00")))), (ratio, false));
        }
        let off = Traces::default();
        assert!(!off.are_on() && off.begin(Kind::Consumer, Some(&upstream("01")), AT).is_none());
    }

    #[test]
    fn a_parent_from_anybody_does_not_choose_to_be_recorded() {
        // Every ratio but 0 would take the trace: its deciding bits are all 1.
        let chosen = Traceparent::parse("00-4bf92f3577b34da6a3ffffffffffffff-00f067aa0ba902b7-01").unwrap();
        for (part, likely) in [(0.001, 0..30), (0.5, 350..650)] {
            let (traces, _ended) = traces(part);
            let begun = (0..1_000).filter(|_| traces.begin_for_anybody(Kind::Server, Some(&chosen), AT).is_some());
            let begun = begun.count();
            assert!(likely.contains(&begun), "{begun} of 1000 at {part}");
        }
    }

    #[test]
    fn a_child_is_of_its_parents_trace_and_names_itself_to_others() {
        let (traces, mut ended) = traces(1.0);
        let parent = upstream("01");
        let span = traces.begin(Kind::Consumer, Some(&parent), AT).unwrap();
        let shown = span.traceparent();
        assert!(shown.is_recorded() && shown.trace_id() == parent.trace_id() && shown.ids().1 != parent.ids().1);
        span.end(AT);
        let record = ended.try_recv().unwrap();
        assert_eq!((record.trace.get(), record.parent), (parent.ids().0, Some(parent.ids().1)));
        assert_eq!(shown.ids(), (record.trace.get(), record.id.get()));
    }

    #[test]
    fn what_finds_no_room_is_dropped_and_counted() {
        let stats = Stats::default();
        let (traces, mut ended) = Traces::on(SampleRatio::of(1.0), stats.clone());
        for _ in 0..LIMIT + 3 {
            traces.begin(Kind::Server, None, AT).unwrap().end(AT);
        }
        assert_eq!(stats.dropped(), 3);
        assert!(std::iter::from_fn(|| ended.try_recv().ok()).count() == LIMIT);
    }
}
