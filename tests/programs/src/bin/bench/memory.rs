//! The largest resident size of each service, with large bodies at full load and with receivers that all hang. The part
//! `backlog` measures it with a backlog.

use std::time::{Duration, Instant};

use crate::{
    bench::Bench,
    environment::{Environment, first_id_from_now},
    load::SMALL,
    report::Figure,
    round::PATIENCE,
};

/// About the largest that an event's `data` may be, with room for what surrounds it.
const LARGEST: usize = 256 * 1024 - 200;
const EVENTS: u64 = 1_000;
const FAN_OUT: u64 = 4;
const TENANTS: usize = 5;
/// Long enough for the first attempts to time out and for others to take their slots.
const HANGING: Duration = Duration::from_secs(15);
const MOST: f64 = 100.0;
/// The same of a dispatcher whose receivers hang.
const MOST_HANGING: f64 = 150.0;

pub(crate) async fn measure(bench: &Bench) -> Vec<Figure> {
    let mut figures = Environment::with(bench, &[], async |environment| large_bodies(environment).await).await;
    figures.extend(Environment::with(bench, &[], async |environment| hanging(environment).await).await);
    figures
}

/// All events wait before ingest starts, so that every batch is as large as batches get.
async fn large_bodies(environment: &Environment<'_>) -> Vec<Figure> {
    let tenants = environment.webhooks(TENANTS, usize::try_from(FAN_OUT).unwrap_or(1), "/ok/ok").await;
    let (first, before) = (first_id_from_now(), environment.bench.sink.seen().requests);
    environment.start_all(1).await;
    environment.stop("event-ingest").await;
    environment.bench.publisher.flood(&environment.events(&tenants, LARGEST), EVENTS).await;
    environment.start("event-ingest").await;
    environment.bench.sink.wait_for(before + EVENTS * FAN_OUT, PATIENCE).await;
    environment.recorded(first, EVENTS * FAN_OUT).await;
    environment.bench.sink.take("ok");
    peaks(environment, "256k_bodies", MOST)
}

/// More jobs than slots: every slot holds an attempt that hangs.
async fn hanging(environment: &Environment<'_>) -> Vec<Figure> {
    let tenants = environment.webhooks(200, 1, "/hang/hang").await;
    let slots = u64::from(environment.system.settings().dispatcher.max_in_flight);
    environment.start_all(1).await;
    environment.bench.publisher.flood(&environment.events(&tenants, SMALL), slots * 2).await;
    let (mut most, began) = (0, Instant::now());
    while began.elapsed() < HANGING {
        most = most.max(environment.bench.sink.seen().unanswered);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut figures = peaks(environment, "hanging_receivers", MOST_HANGING);
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    figures.push(Figure::new("memory_hanging_receivers_attempts_out", most as f64, "attempts"));
    environment.bench.sink.take("hang");
    figures
}

fn peaks(environment: &Environment<'_>, case: &str, most: f64) -> Vec<Figure> {
    let (ingest, dispatcher) = (environment.peak("event-ingest"), environment.peak("dispatcher"));
    println!("  {case}: ingest {ingest:.0} MB, dispatcher {dispatcher:.0} MB");
    vec![
        Figure::new(format!("memory_ingest_{case}"), ingest, "MB").at_most(MOST),
        Figure::new(format!("memory_dispatcher_{case}"), dispatcher, "MB").at_most(most),
    ]
}
