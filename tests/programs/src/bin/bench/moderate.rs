//! The cost of a delivery at 1,500 events a second: the CPU of the services and their servers, and the latencies.

use std::time::Duration;

use end_to_end::wait::eventually;

use crate::{
    bench::Bench,
    environment::{Environment, first_id_from_now},
    latencies::Latencies,
    latency::percentiles,
    load::{Load, SMALL},
    report::Figure,
    round::PATIENCE,
};

const PER_SECOND: f64 = 1_500.0;
const LASTING: Duration = Duration::from_secs(12);
/// Tenants, and the webhooks of each: 1.75 deliveries per event.
const TENANTS: [(usize, usize); 3] = [(9, 1), (7, 2), (4, 3)];
const FAN_OUT: (u64, u64) = (7, 4);
const MOST_CPU: f64 = 430.0;
const MOST_P50: f64 = 12.0;

/// CPU per delivery, in microseconds, and the latencies.
struct Cost {
    cpu: f64,
    latencies: Latencies,
}

pub(crate) async fn measure(bench: &Bench) -> Vec<Figure> {
    Environment::with(bench, &[], async |environment| {
        let mut tenants = Vec::new();
        for (count, webhooks) in TENANTS {
            tenants.extend(environment.webhooks(count, webhooks, "/ok/ok").await);
        }
        environment.start_all(1).await;
        let load = environment.events(&tenants, SMALL);
        cost(environment, &load).await;
        let Cost { cpu, latencies } = cost(environment, &load).await;
        let mut figures = vec![Figure::new("moderate_1500_cpu", cpu, "us/delivery").at_most(MOST_CPU)];
        let mut of_latency = percentiles("moderate_1500", &latencies);
        of_latency[0] = Figure::new("moderate_1500_p50", latencies.percentile(0.5), "ms").at_most(MOST_P50);
        figures.extend(of_latency);
        figures
    })
    .await
}

async fn cost(environment: &Environment<'_>, load: &Load) -> Cost {
    let sink = &environment.bench.sink;
    sink.take("ok");
    let (first, before) = (first_id_from_now(), environment.usage());
    let sent =
        environment.bench.publisher.pace(load.clone(), PER_SECOND, LASTING).await.expect("publishing does not panic");
    let deliveries = sent * FAN_OUT.0 / FAN_OUT.1;
    eventually("all have arrived", PATIENCE, || async { (sink.arrived("ok") >= deliveries).then_some(()) }).await;
    environment.recorded(first, deliveries).await;
    let usage = environment.usage().since(&before);
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let deliveries = deliveries as f64;
    let split: Vec<_> =
        usage.0.iter().map(|(name, microseconds)| format!("{name} {:.0}", microseconds / deliveries)).collect();
    println!("  {PER_SECOND} events/s: {:.0} us CPU each ({})", usage.sum() / deliveries, split.join(", "));
    Cost { cpu: usage.sum() / deliveries, latencies: sink.take("ok") }
}
