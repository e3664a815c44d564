//! One tenant cannot slow another (crates/README.md, fairness). Measures the latency of a tenant with a quick receiver
//! alone, and beside receivers of other tenants that fail together. `CASES='one b'` measures these cases alone.

use std::{cell::OnceCell, time::Duration};

use crate::{
    bench::Bench, environment::Environment, latency::percentiles, load::SMALL_BODY_BYTES, publisher::Publisher,
    report::Figure, sink::Sink,
};

const ALONE_DURATION: Duration = Duration::from_secs(10);
/// The longest latency of the quick tenant, in milliseconds.
const MAX_LATENCY_MILLIS: f64 = 2_000.0;

/// The behaviour of the failing receivers.
#[derive(Clone, Copy)]
enum Receivers {
    Hang,
    /// They have a certificate that the service does not trust.
    Untrusted,
}

/// Receivers that fail together, and the tenant beside them.
struct Case {
    name: &'static str,
    receivers: Receivers,
    tenants: usize,
    webhooks: usize,
    /// Deliveries a second of all together.
    per_second: f64,
    quick_per_second: f64,
    /// For so long the failures are new, and nobody knows yet who is slow.
    new: Duration,
    lasting: Duration,
    /// The limit of the quick tenant's 99th percentile is twice that alone, and this many milliseconds.
    slack: f64,
    schedule: &'static str,
}

/// Retries come back soon.
const CASE: Case = Case {
    name: "",
    receivers: Receivers::Hang,
    tenants: 8,
    webhooks: 1,
    per_second: 200.0,
    quick_per_second: 50.0,
    new: Duration::from_secs(5),
    lasting: Duration::from_secs(30),
    slack: 20.0,
    schedule: "10s,20s,30s,45s,60s",
};

const CASES: [Case; 4] = [
    Case {
        name: "one_hanging",
        tenants: 1,
        per_second: 100.0,
        quick_per_second: 200.0,
        new: Duration::ZERO,
        slack: 0.0,
        schedule: "60s,5m,15m,1h,4h,12h",
        ..CASE
    },
    Case { name: "a_eight_tenants_hang", ..CASE },
    Case { name: "b_platform_hangs", tenants: 200, webhooks: 5, per_second: 300.0, ..CASE },
    // Each attempt is a handshake of its own, and a port that stays taken for a minute.
    Case {
        name: "g_untrusted_certificate",
        receivers: Receivers::Untrusted,
        tenants: 1,
        per_second: 600.0,
        lasting: Duration::from_secs(120),
        schedule: "1m,5m",
        ..CASE
    },
];

pub(crate) async fn measure(bench: &Bench) -> Vec<Figure> {
    let names = std::env::var("CASES").unwrap_or_default();
    let is_chosen = |case: &&Case| names.is_empty() || names.split(' ').any(|name| case.name.starts_with(name));
    let mut figures = Vec::new();
    for case in CASES.iter().filter(is_chosen) {
        let settings = [("RETRY__SCHEDULE", case.schedule)];
        figures.extend(Environment::with(bench, &settings, async |environment| beside(environment, case).await).await);
    }
    figures
}

async fn beside(environment: &Environment<'_>, case: &Case) -> Vec<Figure> {
    let untrusted = OnceCell::new();
    let quick = environment.webhooks(1, 1, "/ok/ok").await;
    // Another host than the quick tenant's: connections are pooled by host.
    let url = match case.receivers {
        Receivers::Hang => environment.bench.sink.url("/hang/platform").replace("localhost", "127.0.0.1"),
        Receivers::Untrusted => untrusted.get_or_init(|| Sink::start("untrusted")).url("/ok/platform"),
    };
    let troubled = environment.webhooks_at(case.tenants, case.webhooks, &url).await;
    let load = environment.start_warm(&quick).await;
    let alone = environment.pace(&load, case.quick_per_second, ALONE_DURATION).await;
    // A connection of its own, so that the troubled tenants do not hold up the quick one's publishing.
    let other = Publisher::connect(&environment.bench.servers().amqp_url).await;
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let events = case.per_second / case.webhooks as f64;
    let trouble = other.pace(environment.events(&troubled, SMALL_BODY_BYTES), events, case.new + case.lasting);
    let new = environment.pace(&load, case.quick_per_second, case.new).await;
    let beside = environment.pace(&load, case.quick_per_second, case.lasting).await;
    trouble.await.expect("publishing does not panic");
    environment.bench.sink.take("platform");
    let name = format!("isolation_{}", case.name);
    let most = 2.0 * alone.percentile(0.99) + case.slack;
    let mut figures = percentiles(&format!("{name}_alone"), &alone);
    figures.extend(percentiles(&format!("{name}_beside"), &beside));
    figures.push(Figure::new(format!("{name}_p99"), beside.percentile(0.99), "ms").at_most(most.round()));
    figures
        .push(Figure::new(format!("{name}_latest"), new.and(beside).percentile(1.0), "ms").at_most(MAX_LATENCY_MILLIS));
    figures
}
