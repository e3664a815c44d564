//! One tenant cannot slow another (crates/README.md, fairness). Measures a healthy tenant's latency alone, and beside a
//! tenant whose receivers hang, beside many tenants whose receivers fail together, and beside a burst of a tenant with very
//! many webhooks. `CASES='b d'` measures these alone.

mod fan_out;
mod flooded_api;
mod platform;

use std::time::Duration;

use uuid::Uuid;

use crate::{
    bench::Bench,
    environment::Environment,
    latencies::Latencies,
    latency::{percentiles, ratio},
    load::{Load, SMALL},
    publisher::Publisher,
    report::Figure,
};

const PER_SECOND: f64 = 200.0;
const ALONE: Duration = Duration::from_secs(10);
/// Long enough for three timeouts.
const BESIDE: Duration = Duration::from_secs(30);
const MOST: f64 = 2.0;

/// The webhooks that hang. Each of them gets every event.
struct Trouble {
    name: &'static str,
    webhooks: usize,
    events_per_second: f64,
}

const TROUBLES: [Trouble; 2] = [
    Trouble { name: "one_hanging", webhooks: 1, events_per_second: 100.0 },
    Trouble { name: "200_dead", webhooks: 200, events_per_second: 1.0 },
];

pub(crate) async fn measure(bench: &Bench) -> Vec<Figure> {
    let mut figures = Vec::new();
    let names = std::env::var("CASES").unwrap_or_default();
    let troubles = if names.is_empty() { &TROUBLES[..] } else { &[] };
    for trouble in troubles {
        figures.extend(Environment::with(bench, &[], async |environment| beside(environment, trouble).await).await);
    }
    figures.extend(platform::measure(bench, &names).await);
    let is_named = |name: &str| names.split(' ').any(|one| one == name);
    if names.is_empty() || is_named("i") {
        figures.extend(flooded_api::measure(bench).await);
    }
    if names.is_empty() || is_named("j") {
        figures.extend(fan_out::measure(bench).await);
    }
    figures
}

async fn beside(environment: &Environment<'_>, trouble: &Trouble) -> Vec<Figure> {
    let healthy = environment.webhooks(1, 1, "/ok/ok").await;
    let hanging = environment.webhooks(1, trouble.webhooks, "/hang/hang").await;
    let load = environment.start_warm(&healthy).await;
    let alone = environment.pace(&load, PER_SECOND, ALONE).await;
    let beside = with_trouble(environment, &load, &hanging, trouble.events_per_second).await;
    environment.bench.sink.take("hang");
    let name = trouble.name;
    let mut figures = percentiles(&format!("isolation_{name}_alone"), &alone);
    figures.extend(percentiles(&format!("isolation_{name}_beside"), &beside));
    figures.push(ratio(&format!("isolation_{name}_ratio_p50"), &beside, &alone, 0.5));
    figures.push(ratio(&format!("isolation_{name}_ratio_p99"), &beside, &alone, 0.99).at_most(MOST));
    figures
}

async fn with_trouble(environment: &Environment<'_>, load: &Load, hanging: &[Uuid], per_second: f64) -> Latencies {
    // A connection of its own, so that the troubled tenant does not hold up the other's publishing.
    let other = Publisher::connect(&environment.bench.servers().amqp_url).await;
    let trouble = other.pace(environment.events(hanging, SMALL), per_second, BESIDE);
    let latencies = environment.pace(load, PER_SECOND, BESIDE).await;
    trouble.await.expect("publishing does not panic");
    latencies
}
