//! The cost of a delivery at moderate load, which most users have all day. Measures the CPU of the services and their
//! servers, and the median latency.

use std::time::Duration;

use end_to_end::wait::eventually;

use crate::{
    bench::Bench,
    ceiling,
    environment::{Environment, first_id_from_now},
    latencies::Latencies,
    latency::percentiles,
    load::{Load, SMALL},
    report::Figure,
    round::PATIENCE,
};

const FEW: f64 = 200.0;
const MANY: f64 = 1_500.0;
const LASTING: Duration = Duration::from_secs(12);
/// Tenants, and the webhooks of each: 1.75 deliveries per event.
const TENANTS: [(usize, usize); 3] = [(9, 1), (7, 2), (4, 3)];
const FAN_OUT: (u64, u64) = (7, 4);
/// The limits at 200 a second, as ratios to the bare pipe.
const MOST_CPU_RATIO: f64 = 2.5;
const MOST_P50_RATIO: f64 = 3.0;
/// The limits at 1,500 events a second.
const MOST_CPU: f64 = 430.0;
const MOST_P50: f64 = 12.0;

/// CPU per delivery, in microseconds, and the latencies.
struct Cost {
    cpu: f64,
    latencies: Latencies,
}

pub(crate) async fn measure(bench: &Bench) -> Vec<Figure> {
    let mut figures = Environment::with(bench, &[], async |environment| few(environment).await).await;
    figures.extend(Environment::with(bench, &[], async |environment| many(environment).await).await);
    figures
}

async fn few(environment: &Environment<'_>) -> Vec<Figure> {
    let tenants = environment.webhooks(20, 1, "/ok/ok").await;
    let load = environment.start_warm(&tenants).await;
    let (bare, bare_cpu) = ceiling::cost(environment.bench, SMALL, FEW, LASTING).await;
    let ours = cost(environment, &load, FEW, (1, 1)).await;
    let mut figures = vec![
        Figure::new("moderate_200_cpu", ours.cpu, "us/delivery"),
        Figure::new("moderate_200_cpu_bare", bare_cpu, "us/delivery"),
        Figure::new("moderate_200_cpu_ratio", ours.cpu / bare_cpu, "ratio").at_most(MOST_CPU_RATIO),
    ];
    figures.extend(percentiles("moderate_200_bare", &bare));
    figures.extend(percentiles("moderate_200", &ours.latencies));
    let ratio = ours.latencies.percentile(0.5) / bare.percentile(0.5);
    figures.push(Figure::new("moderate_200_p50_ratio", ratio, "ratio").at_most(MOST_P50_RATIO));
    figures
}

async fn many(environment: &Environment<'_>) -> Vec<Figure> {
    let mut tenants = Vec::new();
    for (count, webhooks) in TENANTS {
        tenants.extend(environment.webhooks(count, webhooks, "/ok/ok").await);
    }
    environment.start_all(1).await;
    let load = environment.events(&tenants, SMALL);
    cost(environment, &load, MANY, FAN_OUT).await;
    let Cost { cpu, latencies } = cost(environment, &load, MANY, FAN_OUT).await;
    let mut figures = vec![Figure::new("moderate_1500_cpu", cpu, "us/delivery").at_most(MOST_CPU)];
    let mut of_latency = percentiles("moderate_1500", &latencies);
    of_latency[0] = Figure::new("moderate_1500_p50", latencies.percentile(0.5), "ms").at_most(MOST_P50);
    figures.extend(of_latency);
    figures
}

/// The cost of events that make `times / of` deliveries each.
async fn cost(environment: &Environment<'_>, load: &Load, per_second: f64, (times, of): (u64, u64)) -> Cost {
    let sink = &environment.bench.sink;
    sink.take("ok");
    let (first, before) = (first_id_from_now(), environment.usage());
    let sent =
        environment.bench.publisher.pace(load.clone(), per_second, LASTING).await.expect("publishing does not panic");
    let deliveries = sent * times / of;
    eventually("all have arrived", PATIENCE, || async { (sink.arrived("ok") >= deliveries).then_some(()) }).await;
    environment.recorded(first, deliveries).await;
    let usage = environment.usage().since(&before);
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let deliveries = deliveries as f64;
    let split: Vec<_> =
        usage.0.iter().map(|(name, microseconds)| format!("{name} {:.0}", microseconds / deliveries)).collect();
    println!("  {per_second} events/s: {:.0} us CPU each ({})", usage.sum() / deliveries, split.join(", "));
    Cost { cpu: usage.sum() / deliveries, latencies: sink.take("ok") }
}
