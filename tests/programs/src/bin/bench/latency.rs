//! From the time at which an event was to be published to its arrival at the receiver. The loop is open: each event has
//! its time, whether or not the last one has arrived.

use std::time::Duration;

use crate::{bench::Bench, ceiling, environment::Environment, latencies::Latencies, load::Load, report::Figure};

const TENANTS: usize = 20;
const PER_SECOND: f64 = 200.0;
const RUN_DURATION: Duration = Duration::from_secs(6);

/// At 200 events a second, beside the bare pipe's.
pub(crate) async fn measure(bench: &Bench) -> Vec<Figure> {
    Environment::with(bench, &[], async |environment| {
        let tenants = environment.webhooks(TENANTS, 1, "/ok/ok").await;
        let load = environment.start_warm(&tenants).await;
        let (bare, ours) = in_turns(environment, &load).await;
        let mut figures = percentiles("latency_200", &ours);
        figures.extend(percentiles("latency_bare_200", &bare));
        figures.push(ratio("latency_ratio_p50_200", &ours, &bare, 0.5).at_most(4.0));
        figures.push(ratio("latency_ratio_p99_200", &ours, &bare, 0.99).at_most(4.0));
        figures
    })
    .await
}

/// The service twice, the bare pipe before, between and after: both share whatever else this machine does.
async fn in_turns(environment: &Environment<'_>, load: &Load) -> (Latencies, Latencies) {
    let (mut bare, mut ours) = (Latencies::default(), Latencies::default());
    for _ in 0..2 {
        bare = bare.and(ceiling::pace(environment.bench, PER_SECOND, RUN_DURATION / 2).await);
        ours = ours.and(environment.pace(load, PER_SECOND, RUN_DURATION).await);
    }
    (bare.and(ceiling::pace(environment.bench, PER_SECOND, RUN_DURATION / 2).await), ours)
}

/// The 50th, 99th and 99.9th percentiles.
pub(crate) fn percentiles(name: &str, latencies: &Latencies) -> Vec<Figure> {
    let figure = |(label, part)| Figure::new(format!("{name}_{label}"), latencies.percentile(part), "ms");
    [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)].map(figure).into()
}

/// The ratio of a percentile to that of the reference.
pub(crate) fn ratio(name: &str, latencies: &Latencies, reference: &Latencies, part: f64) -> Figure {
    Figure::new(name, latencies.percentile(part) / reference.percentile(part), "ratio")
}
