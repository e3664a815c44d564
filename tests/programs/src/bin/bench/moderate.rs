//! The cost of a delivery at 1,500 events a second: the CPU of the services and their servers, and the latencies.

use std::time::Duration;

use end_to_end::wait::eventually;

use crate::{
    bench::Bench,
    environment::{Environment, first_id_from_now},
    latencies::Latencies,
    latency::percentiles,
    load::{Load, SMALL_BODY_BYTES},
    report::Figure,
    round::ROUND_TIMEOUT,
};

const PER_SECOND: f64 = 1_500.0;
const RUN_DURATION: Duration = Duration::from_secs(12);
/// Tenants, and the webhooks of each: 1.75 deliveries per event.
const TENANTS: [(usize, usize); 3] = [(9, 1), (7, 2), (4, 3)];
const FAN_OUT: (u64, u64) = (7, 4);
const MOST_CPU: f64 = 430.0;

pub(crate) async fn measure(bench: &Bench) -> Vec<Figure> {
    Environment::with(bench, &[], async |environment| {
        let mut tenants = Vec::new();
        for (count, webhooks) in TENANTS {
            tenants.extend(environment.webhooks(count, webhooks, "/ok/ok").await);
        }
        environment.start_all(1).await;
        let load = environment.events(&tenants, SMALL_BODY_BYTES);
        cost(environment, &load).await;
        let (cpu, latencies) = cost(environment, &load).await;
        let mut figures = vec![Figure::new("moderate_1500_cpu", cpu, "us/delivery").at_most(MOST_CPU)];
        figures.extend(percentiles("moderate_1500", &latencies));
        figures
    })
    .await
}

/// CPU per delivery, in microseconds, and the latencies.
async fn cost(environment: &Environment<'_>, load: &Load) -> (f64, Latencies) {
    let sink = &environment.bench.sink;
    sink.take("ok");
    let (first, before) = (first_id_from_now(), environment.usage());
    let sent = environment
        .bench
        .publisher
        .pace(load.clone(), PER_SECOND, RUN_DURATION)
        .await
        .expect("publishing does not panic");
    let deliveries = sent * FAN_OUT.0 / FAN_OUT.1;
    eventually("all have arrived", ROUND_TIMEOUT, || async { (sink.arrived("ok") >= deliveries).then_some(()) }).await;
    environment.recorded(first, deliveries).await;
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let cpu = environment.usage().since(&before).sum() / deliveries as f64;
    (cpu, sink.take("ok"))
}
