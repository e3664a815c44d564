//! A flood (crates/README.md, fairness): one tenant's events come at 1.5 times the rate at which they can be delivered,
//! until 100,000 deliveries wait. Measures another tenant's latency at 50 a second meanwhile, and the flood's rate
//! beside its rate alone.

use std::time::{Duration, Instant};

use end_to_end::wait::eventually;
use tokio_util::sync::CancellationToken;

use crate::{
    bench::Bench,
    environment::Environment,
    latencies::Latencies,
    latency::percentiles,
    load::{Load, SMALL},
    publisher::Publisher,
    report::Figure,
    round::PATIENCE,
};

/// The rate of the other tenant.
const PER_SECOND: f64 = 50.0;
const ALONE: Duration = Duration::from_secs(10);
/// How much faster events come than they can be delivered.
const TOO_FAST: f64 = 1.5;
/// How many deliveries wait in the end.
const WAITING: u64 = 100_000;
/// How often the receivers are asked what has arrived.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How many events measure the rate at which they can be delivered.
const EVENTS: u64 = 30_000;
/// The receiver whose flood comes again, and when.
const REFUSING: &str = "/refuse/200/flood";
const FIRST_RETRY: Duration = Duration::from_secs(20);
/// Events a second that it gets, which is more than twice of what its slots allow, and for how long.
const REFUSED: f64 = 1_500.0;
const REFUSED_FOR: Duration = Duration::from_secs(15);
/// How long the retries are watched, from the first one on.
const RETRIES: Duration = Duration::from_secs(30);
/// The limit of the other tenant's 99th percentile, in milliseconds.
const MOST: f64 = 200.0;
/// The limit of the flood's rate, as a part of its rate alone.
const LEAST: f64 = 0.8;

struct Receiver {
    name: &'static str,
    path: &'static str,
}

/// One answers at once, so the machine is the limit. One takes 50 ms, so the slots are the limit.
const RECEIVERS: [Receiver; 2] =
    [Receiver { name: "prompt", path: "/ok/flood" }, Receiver { name: "late", path: "/late/50/flood" }];

/// Measures a paced flood to both receivers, and one that is not paced, whose events wait for ingest.
pub(crate) async fn measure(bench: &Bench) -> Vec<Figure> {
    let mut figures = Vec::new();
    for receiver in &RECEIVERS {
        figures.extend(Environment::with(bench, &[], async |environment| paced(environment, receiver).await).await);
    }
    figures.extend(Environment::with(bench, &[], async |environment| unpaced(environment).await).await);
    let schedule = format!("{}s,1h", FIRST_RETRY.as_secs());
    figures.extend(
        Environment::with(bench, &[("RETRY__SCHEDULE", schedule.as_str())], async |environment| {
            retried(environment).await
        })
        .await,
    );
    figures
}

async fn paced(environment: &Environment<'_>, Receiver { name, path }: &Receiver) -> Vec<Figure> {
    let (flood, other) = ready(environment, path).await;
    let possible = possible(environment, &flood).await;
    let alone = environment.pace(&other, PER_SECOND, ALONE).await;
    let too_fast = possible * TOO_FAST;
    let rate_alone = until_it_waits(environment, &flood, too_fast).await;
    drained(environment).await;
    let (during, rate) =
        environment.bench.paced_beside(other, "ok", PER_SECOND, until_it_waits(environment, &flood, too_fast)).await;
    drained(environment).await;
    println!(
        "  {name}: {possible:.0}/s can be delivered, {rate_alone:.0}/s at {too_fast:.0}/s, {rate:.0}/s beside another"
    );
    let mut figures = vec![
        Figure::new(format!("flood_{name}_possible"), possible, "deliveries/s"),
        Figure::new(format!("flood_{name}_rate_alone"), rate_alone, "deliveries/s"),
        Figure::new(format!("flood_{name}_rate"), rate, "deliveries/s"),
        Figure::new(format!("flood_{name}_rate_ratio"), rate / rate_alone, "ratio").at_least(LEAST),
    ];
    figures.extend(percentiles(&format!("flood_{name}_other_alone"), &alone));
    figures.extend(of_other(&format!("flood_{name}_other"), &during));
    figures
}

async fn unpaced(environment: &Environment<'_>) -> Vec<Figure> {
    let (flood, other) = ready(environment, RECEIVERS[0].path).await;
    let publisher = Publisher::connect(&environment.bench.servers().amqp_url).await;
    let work = async {
        publisher.flood(&flood, WAITING).await;
        let sink = &environment.bench.sink;
        eventually("all have arrived", PATIENCE, || async { (sink.arrived("flood") >= WAITING).then_some(()) }).await;
    };
    let (during, ()) = environment.bench.paced_beside(other, "ok", PER_SECOND, work).await;
    environment.bench.sink.take("flood");
    percentiles("flood_unpaced_other", &during)
}

/// Every attempt of a flood fails and comes again, over the lane of the other tenant's jobs.
async fn retried(environment: &Environment<'_>) -> Vec<Figure> {
    let (flood, other) = started(environment, REFUSING).await;
    environment.warm_up(&other, 1).await;
    let publisher = Publisher::connect(&environment.bench.servers().amqp_url).await;
    let first = publisher.pace(flood, REFUSED, REFUSED_FOR);
    first.await.expect("publishing does not panic");
    // The first attempt was made about when the first event was published.
    tokio::time::sleep(FIRST_RETRY.saturating_sub(REFUSED_FOR)).await;
    let (during, ()) = environment.bench.paced_beside(other, "ok", PER_SECOND, tokio::time::sleep(RETRIES)).await;
    environment.bench.sink.take("flood");
    of_other("flood_retries_other", &during)
}

/// Returns what is published to the flooded tenant and to the other. The service runs.
async fn started(environment: &Environment<'_>, path: &str) -> (Load, Load) {
    let flooded = environment.webhooks(1, 1, path).await;
    let others = environment.webhooks(1, 1, "/ok/ok").await;
    environment.start_all(1).await;
    (environment.events(&flooded, SMALL), environment.events(&others, SMALL))
}

/// The same, warmed up.
async fn ready(environment: &Environment<'_>, path: &str) -> (Load, Load) {
    let (flood, other) = started(environment, path).await;
    for load in [&flood, &other] {
        environment.warm_up(load, 1).await;
    }
    environment.bench.sink.take("flood");
    (flood, other)
}

/// The possible deliveries a second.
async fn possible(environment: &Environment<'_>, flood: &Load) -> f64 {
    let rate = environment.round(flood, EVENTS, 1).await.per_second();
    environment.bench.sink.take("flood");
    rate
}

/// Publishes too fast until `WAITING` deliveries wait. Returns how many were delivered a second.
async fn until_it_waits(environment: &Environment<'_>, flood: &Load, per_second: f64) -> f64 {
    let publisher = Publisher::connect(&environment.bench.servers().amqp_url).await;
    let began = Instant::now();
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let publishing = publisher.pace_while(flood.clone(), per_second, move |_| !stopped.is_cancelled());
    let arrived = loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let (arrived, after) = (environment.bench.sink.arrived("flood"), began.elapsed());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some hundred thousand")]
        let sent = (after.as_secs_f64() * per_second) as u64;
        if sent >= arrived + WAITING || after > PATIENCE {
            break arrived;
        }
    };
    let seconds = began.elapsed().as_secs_f64();
    stop.cancel();
    publishing.await.expect("publishing does not panic");
    #[expect(clippy::cast_precision_loss, reason = "some hundred thousand")]
    let rate = arrived as f64 / seconds;
    rate
}

/// Waits until nothing of the flood waits any more.
async fn drained(environment: &Environment<'_>) {
    let query = "SELECT count(*) FROM deliveries WHERE state = 'pending'";
    eventually("what was published is delivered", PATIENCE, || async {
        // Rows are counted last, because there are many.
        let names = &environment.system.names;
        let waits = environment.ready(&names.events()).await + environment.ready(&names.bulk()).await > 0;
        (!waits && environment.count(query).await == 0).then_some(())
    })
    .await;
    environment.bench.sink.take("flood");
}

fn of_other(name: &str, latencies: &Latencies) -> Vec<Figure> {
    let mut figures = percentiles(name, latencies);
    figures[1] = Figure::new(format!("{name}_p99"), latencies.percentile(0.99), "ms").at_most(MOST);
    figures
}
