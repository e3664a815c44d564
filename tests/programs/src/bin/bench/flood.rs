//! A flood (crates/README.md, fairness): one tenant's events come at 0.9 times the rate at which they can be delivered,
//! as the machine is the limit, or at 1.5 times that rate until 100,000 deliveries wait, as the receiver is. Measures
//! another tenant's latency at 50 a second meanwhile, and the flood's rate beside its rate alone.

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
/// The maximum of deliveries that wait.
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
/// The limit of the other tenant's 99th percentile beside a flood's retries, in milliseconds.
const MOST_BESIDE_RETRIES: f64 = 200.0;
/// The limit of the flood's rate, as a part of its rate alone.
const LEAST: f64 = 0.8;

struct Receiver {
    name: &'static str,
    path: &'static str,
    /// Events a second, by the deliveries that are possible.
    times: f64,
    /// The longest time for which they come.
    lasting: Duration,
    /// The limit of the other tenant's 99th percentile, in milliseconds.
    most: f64,
}

/// One answers immediately, so the machine is the limit. One takes 50 ms, so the slots are the limit.
const RECEIVERS: [Receiver; 2] = [
    Receiver { name: "prompt", path: "/ok/flood", times: 0.9, lasting: Duration::from_secs(20), most: 100.0 },
    Receiver { name: "late", path: "/late/50/flood", times: 1.5, lasting: PATIENCE, most: 200.0 },
];

/// Measures a paced flood to each receiver, and one that is not paced, whose events wait for ingest.
pub(crate) async fn measure(bench: &Bench) -> Vec<Figure> {
    let mut figures = Vec::new();
    let names = std::env::var("CASES").unwrap_or_default();
    let is_named = |name: &str| names.is_empty() || names.split(' ').any(|one| one == name);
    for receiver in RECEIVERS.iter().filter(|receiver| is_named(receiver.name)) {
        figures.extend(Environment::with(bench, &[], async |environment| paced(environment, receiver).await).await);
    }
    if is_named("unpaced") {
        figures.extend(Environment::with(bench, &[], async |environment| unpaced(environment).await).await);
    }
    if !is_named("retries") {
        return figures;
    }
    let schedule = format!("{}s,1h", FIRST_RETRY.as_secs());
    figures.extend(
        Environment::with(bench, &[("RETRY__SCHEDULE", schedule.as_str())], async |environment| {
            retried(environment).await
        })
        .await,
    );
    figures
}

async fn paced(environment: &Environment<'_>, receiver: &Receiver) -> Vec<Figure> {
    let Receiver { name, path, times, most, .. } = receiver;
    let (flood, other) = ready(environment, path).await;
    let possible = possible(environment, &flood).await;
    let alone = environment.pace(&other, PER_SECOND, ALONE).await;
    let per_second = possible * times;
    let rate_alone = flooded(environment, &flood, per_second, receiver.lasting).await;
    drained(environment).await;
    let work = flooded(environment, &flood, per_second, receiver.lasting);
    let (during, rate) = environment.bench.paced_beside(other, "ok", PER_SECOND, work).await;
    drained(environment).await;
    println!(
        "  {name}: {possible:.0}/s can be delivered, {rate_alone:.0}/s at {per_second:.0}/s, {rate:.0}/s beside another"
    );
    let mut figures = vec![
        Figure::new(format!("flood_{name}_possible"), possible, "deliveries/s"),
        Figure::new(format!("flood_{name}_rate_alone"), rate_alone, "deliveries/s"),
        Figure::new(format!("flood_{name}_rate"), rate, "deliveries/s"),
        Figure::new(format!("flood_{name}_rate_ratio"), rate / rate_alone, "ratio").at_least(LEAST),
    ];
    figures.extend(percentiles(&format!("flood_{name}_other_alone"), &alone));
    figures.extend(of_other(&format!("flood_{name}_other"), &during, *most));
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
    of_other("flood_retries_other", &during, MOST_BESIDE_RETRIES)
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

/// Publishes until `WAITING` deliveries wait, or for so long. Returns how many were delivered a second.
async fn flooded(environment: &Environment<'_>, flood: &Load, per_second: f64, lasting: Duration) -> f64 {
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
        if sent >= arrived + WAITING || after > lasting {
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

fn of_other(name: &str, latencies: &Latencies, most: f64) -> Vec<Figure> {
    let mut figures = percentiles(name, latencies);
    figures[1] = Figure::new(format!("{name}_p99"), latencies.percentile(0.99), "ms").at_most(most);
    figures
}
