//! This service's metrics.

use std::time::Duration;

use actix_web::http::Method;
use domain::{Notice, NoticeType};
use ledger::RunningTasks;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};
use service_kit::metrics::{Counters, Gauges, Register, from_zero, seconds};

/// Shared by all clones. The label `task`, for work in steps, is `cancel`, `activate` or `recover`.
#[derive(Clone)]
pub(crate) struct Metrics {
    requests: Family<Labels, Counter>,
    seconds: Family<RouteLabel, Histogram>,
    tasks: Gauges,
    task_steps: Counters,
    task_deliveries: Counters,
    notices: Counters,
}

/// The label `route`.
type RouteLabel = [(&'static str, String); 1];

/// The labels of a request and its answer, each from a closed set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Labels {
    pub(crate) route: String,
    pub(crate) method: &'static str,
    pub(crate) status: u16,
}

const TASK_LABELS: [&str; 3] = ["cancel", "wake", "recover"];

/// The errors of the server among the answers.
const SERVER_ERRORS: [u16; 2] = [500, 503];

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self {
            requests: registry.shown("webhooks_api_requests", "Requests answered", Family::default()),
            seconds: registry.shown(
                "webhooks_api_request_seconds",
                "From the head of a request to the head of its answer",
                Family::new_with_constructor(seconds as fn() -> _),
            ),
            tasks: registry.shown(
                "webhooks_tasks",
                "Webhooks whose deliveries are being cancelled, activated or recovered, by task; the same in every \
                 process",
                Gauges::default(),
            ),
            task_steps: registry.shown(
                "webhooks_task_steps",
                "Steps of tasks that this process has taken",
                from_zero("task", TASK_LABELS),
            ),
            task_deliveries: registry.shown(
                "webhooks_task_deliveries",
                "Deliveries that this process has cancelled, activated or recovered, by task",
                from_zero("task", TASK_LABELS),
            ),
            notices: registry.shown(
                "webhooks_notices",
                "Notices that this process has published, by type",
                from_zero("type", NoticeType::ALL.map(NoticeType::as_str)),
            ),
        }
    }

    pub(crate) fn tasks(&self, running: RunningTasks) {
        let RunningTasks { cancel, release, recover } = running;
        for (task, count) in [("cancel", cancel), ("wake", release), ("recover", recover)] {
            self.tasks.get_or_create(&[("task", task)]).set(count);
        }
    }

    pub(crate) fn task_step(&self, task: &'static str, deliveries: usize) {
        self.task_steps.get_or_create(&[("task", task)]).inc();
        self.task_deliveries.get_or_create(&[("task", task)]).inc_by(u64::try_from(deliveries).unwrap_or_default());
    }

    pub(crate) fn notices(&self, published: &[&Notice]) {
        for notice in published {
            self.notices.get_or_create(&[("type", notice.notice_type.as_str())]).inc();
        }
    }

    /// Shows that no request of a route with one of some methods has failed yet: a rate misses the first count of a series
    /// that begins with it.
    pub(crate) fn none_failed(&self, route: &str, methods: impl IntoIterator<Item = &'static str>) {
        for method in methods {
            for status in SERVER_ERRORS {
                drop(self.requests.get_or_create(&Labels { route: route.to_owned(), method, status }));
            }
        }
    }

    pub(crate) fn observe(&self, labels: Labels, took: Duration) {
        self.requests.get_or_create(&labels).inc();
        self.seconds.get_or_create(&[("route", labels.route)]).observe(took.as_secs_f64());
    }
}

/// Other methods share one label: a client can invent them.
pub(crate) fn method_label(method: &Method) -> &'static str {
    let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    known.into_iter().find(|known| method.as_str() == *known).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_under_their_names() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let labels = Labels { route: "/api/v1/webhooks/".into(), method: method_label(&Method::GET), status: 200 };
        metrics.observe(labels, Duration::from_millis(3));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            r#"webhooks_api_requests_total{route="/api/v1/webhooks/",method="GET",status="200"} 1"#,
            r#"webhooks_api_request_seconds_bucket{le="0.005",route="/api/v1/webhooks/"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
