//! Half an hour of a busy day: 1,500 events a second for twenty tenants. One hangs, one answers 500, four fail the
//! first attempt of each delivery. Neither the others' latency nor a dispatcher's memory may grow. A stall of the disk
//! is in the p99 of its span. The median of the windows' p99s hardly sees it, and shows what grows.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;

use super::size::Size;
use crate::{
    bench::Bench,
    environment::Environment,
    latencies::Latencies,
    latency::{percentiles, ratio},
    load::SMALL,
    publisher::Publisher,
    report::Figure,
    usage::Usage,
};

const EVENTS: f64 = 1_500.0;
const LASTING: Duration = Duration::from_secs(30 * 60);
/// How many spans the time is divided into. The first and the last one are compared.
const PARTS: u32 = 6;
/// A part of a span, with a p99 of its own.
const WINDOW: Duration = Duration::from_secs(5);
/// Tenants, the webhooks of each, and their path: 1.75 deliveries per event, without retries.
const TENANTS: [(usize, usize, &str); 6] = [
    (4, 1, "/ok/ok"),
    (5, 2, "/ok/ok"),
    (5, 3, "/ok/ok"),
    (1, 1, "/hang/hang"),
    (1, 1, "/fail/fail"),
    (4, 1, "/once/once"),
];
const MOST_LATENCY: f64 = 1.3;
const MOST_MEMORY: f64 = 1.2;

/// The figures of a span.
struct Span {
    latencies: Latencies,
    /// The p99 of each window.
    windows: Latencies,
    cpu: f64,
    dispatcher: f64,
    broker: f64,
}

/// Takes half an hour, or a part of it at a smaller size.
pub(super) async fn measure(bench: &Bench, size: Size) -> Vec<Figure> {
    Environment::with(bench, &[], async |environment| soaked(environment, LASTING.mul_f64(size.factor())).await).await
}

async fn soaked(environment: &Environment<'_>, lasting: Duration) -> Vec<Figure> {
    let mut tenants: Vec<Uuid> = Vec::new();
    for (count, webhooks, path) in TENANTS {
        tenants.extend(environment.webhooks(count, webhooks, path).await);
    }
    environment.start_all(1).await;
    let publisher = Publisher::connect(&environment.bench.servers().amqp_url).await;
    let (load, began, span) = (environment.events(&tenants, SMALL), Instant::now(), lasting / PARTS);
    let publishing = publisher.pace(load, EVENTS, lasting);
    let mut spans = Vec::new();
    for part in 0..PARTS {
        let (usage, until) = (environment.usage(), began + span * (part + 1));
        forget(environment);
        let (latencies, windows) = until_end(environment, until).await;
        spans.push(Span::of(environment, &usage, latencies, windows));
        spans[spans.len() - 1].say(until - began);
    }
    publishing.await.expect("publishing does not panic");
    // Lets what is under way arrive, so that the next measurement does not count it.
    sleep(Duration::from_secs(1)).await;
    forget(environment);
    let (first, last) = (&spans[0], &spans[spans.len() - 1]);
    let mut figures = percentiles("soak_first", &first.latencies);
    figures.extend(percentiles("soak_last", &last.latencies));
    figures.push(ratio("soak_p50", &last.latencies, &first.latencies, 0.5).at_most(MOST_LATENCY));
    figures.push(ratio("soak_p99", &last.latencies, &first.latencies, 0.99).at_most(MOST_LATENCY));
    figures.push(Figure::new("soak_window_p99_first", first.windows.percentile(0.5), "ms"));
    figures.push(Figure::new("soak_window_p99_last", last.windows.percentile(0.5), "ms"));
    figures.push(ratio("soak_window_p99", &last.windows, &first.windows, 0.5).at_most(MOST_LATENCY));
    for (name, before, after) in
        [("dispatcher", first.dispatcher, last.dispatcher), ("broker", first.broker, last.broker)]
    {
        figures.push(Figure::new(format!("soak_{name}_memory_first"), before, "MB"));
        figures.push(Figure::new(format!("soak_{name}_memory_last"), after, "MB"));
    }
    figures.push(Figure::new("soak_memory", last.dispatcher / first.dispatcher, "ratio").at_most(MOST_MEMORY));
    figures.push(Figure::new("soak_cpu_first", first.cpu, "us/healthy delivery"));
    figures.push(Figure::new("soak_cpu_last", last.cpu, "us/healthy delivery"));
    figures
}

/// The latencies of the healthy tenants until then, and the p99 of each window.
async fn until_end(environment: &Environment<'_>, end: Instant) -> (Latencies, Latencies) {
    let mut windows = Vec::new();
    while Instant::now() < end {
        sleep_until(end.min(Instant::now() + WINDOW)).await;
        windows.push(environment.bench.sink.take("ok"));
    }
    let p99s = windows.iter().map(|window| window.percentile(0.99)).collect();
    (Latencies::together(windows), Latencies::new(p99s))
}

fn forget(environment: &Environment<'_>) {
    for group in ["ok", "hang", "fail", "once"] {
        environment.bench.sink.take(group);
    }
}

impl Span {
    #[expect(clippy::cast_precision_loss, reason = "some hundred thousand")]
    fn of(environment: &Environment<'_>, usage: &Usage, latencies: Latencies, windows: Latencies) -> Self {
        Self {
            cpu: environment.usage().since(usage).sum() / latencies.count().max(1) as f64,
            latencies,
            windows,
            dispatcher: environment.resident("dispatcher"),
            broker: environment.bench.rabbitmq_memory(),
        }
    }

    fn say(&self, after: Duration) {
        println!(
            "  after {:.0} s: p50 {:.1} ms, p99 {:.1} ms (of 5 s: median {:.1}, most {:.1}), {:.0} us a healthy delivery, \
             dispatcher {:.0} MB, broker {:.0} MB",
            after.as_secs_f64(),
            self.latencies.percentile(0.5),
            self.latencies.percentile(0.99),
            self.windows.percentile(0.5),
            self.windows.percentile(1.0),
            self.cpu,
            self.dispatcher,
            self.broker,
        );
    }
}
