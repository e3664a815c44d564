//! A flood (crates/README.md, fairness): one tenant's events come at 0.9 times the rate at which they can be delivered.
//! Measures another tenant's latency at 50 a second meanwhile.

use std::time::Duration;

use crate::{
    bench::Bench, environment::Environment, latency::percentiles, load::SMALL_BODY_BYTES, publisher::Publisher,
    report::Figure,
};

/// The rate of the other tenant.
const PER_SECOND: f64 = 50.0;
/// The flood's rate, as a part of the possible one.
const FLOOD_FRACTION: f64 = 0.9;
const FLOOD_DURATION: Duration = Duration::from_secs(20);
/// How many events measure the rate at which they can be delivered.
const EVENTS: u64 = 30_000;
/// The limit of the other tenant's 99th percentile, in milliseconds.
const MAX_P99_MILLIS: f64 = 100.0;

pub(crate) async fn measure(bench: &Bench) -> Vec<Figure> {
    Environment::with(bench, &[], async |environment| {
        let flooded = environment.webhooks(1, 1, "/ok/flood").await;
        let others = environment.webhooks(1, 1, "/ok/ok").await;
        environment.start_all(1).await;
        let (flood, other) =
            (environment.events(&flooded, SMALL_BODY_BYTES), environment.events(&others, SMALL_BODY_BYTES));
        for load in [&flood, &other] {
            environment.warm_up(load, 1).await;
        }
        let possible = environment.round(&flood, EVENTS, 1).await.per_second();
        let publisher = Publisher::connect(&bench.servers().amqp_url).await;
        let flooding = publisher.pace(flood, possible * FLOOD_FRACTION, FLOOD_DURATION);
        let (during, flooding) = bench.paced_beside(other, "ok", PER_SECOND, flooding).await;
        flooding.expect("publishing does not panic");
        bench.sink.take("flood");
        let mut figures = percentiles("flood_other", &during);
        figures[1] = Figure::new("flood_other_p99", during.percentile(0.99), "ms").at_most(MAX_P99_MILLIS);
        figures.push(Figure::new("flood_possible", possible, "deliveries/s"));
        figures
    })
    .await
}
