//! Receivers that take half a second. A second dispatcher brings its own slots, and so about doubles the rate.

use std::time::Instant;

use crate::{
    bench::Bench,
    environment::Environment,
    load::{Load, SMALL},
    report::Figure,
    round::PATIENCE,
};

const SLOTS: u32 = 128;
/// Enough tenants that none needs more than its share of the slots.
const TENANTS: usize = 40;
/// What the slots of a dispatcher carry in a second when each attempt takes half a second.
const A_SECOND: u64 = 2 * SLOTS as u64;
/// How many seconds are counted. Begin and end are not: the first answers take half a second, and the last leave slots
/// empty.
const COUNTED: u64 = 5;

/// Deliveries a second with one dispatcher and with two.
pub(crate) async fn measure(bench: &Bench) -> Vec<Figure> {
    let slots = SLOTS.to_string();
    Environment::with(bench, &[("DISPATCHER__MAX_IN_FLIGHT", &slots)], async |environment| {
        let tenants = environment.webhooks(TENANTS, 1, "/late/500/ok").await;
        environment.start_all(1).await;
        let load = environment.events(&tenants, SMALL);
        let one = rate(environment, &load, 1).await;
        environment.start("dispatcher").await;
        let two = rate(environment, &load, 2).await;
        println!("  receivers of 500 ms: {one:.0}/s with one dispatcher, {two:.0}/s with two");
        vec![
            Figure::new("slow_receivers_1dispatcher", one, "deliveries/s"),
            Figure::new("slow_receivers_2dispatchers", two, "deliveries/s"),
            Figure::new("slow_receivers_scaling", two / one, "ratio").at_least(1.8),
        ]
    })
    .await
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
async fn rate(environment: &Environment<'_>, load: &Load, dispatchers: u64) -> f64 {
    let (a_second, sink) = (A_SECOND * dispatchers, &environment.bench.sink);
    let before = sink.seen().requests;
    let timed = async {
        sink.wait_for(before + a_second, PATIENCE).await;
        let (began, first) = (Instant::now(), sink.seen().requests);
        sink.wait_for(before + a_second * (COUNTED + 1), PATIENCE).await;
        (sink.seen().requests - first) as f64 / began.elapsed().as_secs_f64()
    };
    let ((), rate) = tokio::join!(environment.bench.publisher.flood(load, a_second * (COUNTED + 2)), timed);
    sink.wait_for(before + a_second * (COUNTED + 2), PATIENCE).await;
    sink.take("ok");
    rate
}
