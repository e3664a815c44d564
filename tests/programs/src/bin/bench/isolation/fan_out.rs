//! A burst of events of a tenant with very many webhooks, beside a tenant with one webhook and few events.

use crate::{
    bench::Bench,
    environment::Environment,
    isolation::{ALONE, BESIDE},
    latency::{percentiles, ratio},
    load::SMALL,
    publisher::Publisher,
    report::Figure,
};

const WEBHOOKS: usize = 10_000;
const EVENTS: u64 = 200;
/// The rate of the other tenant.
const PER_SECOND: f64 = 50.0;
/// The limit of the other tenant's 99th percentile, in milliseconds: that of a flood (`flood.rs`), as the burst is one.
const MOST: f64 = 200.0;

/// Ends after a fixed time, with some of the burst's 2,000,000 deliveries: what is left shows nothing new.
pub(super) async fn measure(bench: &Bench) -> Vec<Figure> {
    Environment::with(bench, &[], async |environment| {
        let many = environment.webhooks(1, WEBHOOKS, "/ok/burst").await;
        let few = environment.webhooks(1, 1, "/ok/ok").await;
        let load = environment.start_warm(&few).await;
        let alone = environment.pace(&load, PER_SECOND, ALONE).await;
        let before = environment.count("SELECT count(*) FROM events").await;
        let other = Publisher::connect(&bench.servers().amqp_url).await;
        let burst = environment.events(&many, SMALL);
        let beside = environment.pace(&load, PER_SECOND, BESIDE);
        let ((), beside) = tokio::join!(other.flood(&burst, EVENTS), beside);
        let stored = environment.count("SELECT count(*) FROM events").await - before;
        let own = i64::try_from(beside.count()).unwrap_or(i64::MAX);
        let made = bench.sink.take("burst").count();
        println!("  {} of {EVENTS} events of the burst are stored, {made} of its deliveries made", stored - own);
        let mut figures = percentiles("isolation_j_fan_out_alone", &alone);
        figures.extend(percentiles("isolation_j_fan_out_beside", &beside));
        figures.push(ratio("isolation_j_fan_out_ratio_p99", &beside, &alone, 0.99));
        figures.push(Figure::new("isolation_j_fan_out_p99", beside.percentile(0.99), "ms").at_most(MOST));
        figures
    })
    .await
}
