//! A backlog of 200,000 jobs: the cost of a delivery, and the memory.

use end_to_end::wait::eventually;
use uuid::Uuid;

use super::MAX_COST_RATIO;
use crate::{
    bench::Bench,
    environment::{Environment, first_id_from_now},
    load::SMALL_BODY_BYTES,
    report::Figure,
    round::ROUND_TIMEOUT,
};

const MANY_JOBS: u64 = 200_000;
const FEW_JOBS: u64 = 20_000;
const FAN_OUT: u64 = 20;
const TENANTS: usize = 5;
/// How many deliveries of a starting dispatcher pass before counting begins.
const SKIPPED_DELIVERIES: u64 = 1_000;
const COUNTED_DELIVERIES: u64 = 15_000;

/// What the halves of the service, one after the other, took.
struct Halves {
    cpu: f64,
    ingest_memory: f64,
    dispatcher_memory: f64,
}

/// CPU per delivery with a short and with a long queue, and the largest resident sizes.
pub(crate) async fn measure(bench: &Bench) -> Vec<Figure> {
    let mut both = Vec::new();
    for jobs in [FEW_JOBS, MANY_JOBS] {
        let halves = Environment::with(bench, &[], async |environment| {
            let tenants = environment.webhooks(TENANTS, usize::try_from(FAN_OUT).unwrap_or(1), "/ok/ok").await;
            halves(environment, &tenants, jobs).await
        });
        both.push(halves.await);
    }
    let (few, many) = (&both[0], &both[1]);
    vec![
        Figure::new("growth_backlog_20000_cpu", few.cpu, "us/delivery"),
        Figure::new("growth_backlog_200000_cpu", many.cpu, "us/delivery"),
        Figure::new("growth_backlog", many.cpu / few.cpu, "ratio").at_most(MAX_COST_RATIO),
        Figure::new("memory_ingest_backlog_200000", many.ingest_memory, "MB").at_most(100.0),
        Figure::new("memory_dispatcher_backlog_200000", many.dispatcher_memory, "MB").at_most(100.0),
    ]
}

/// Ingest makes all jobs, then a dispatcher does some of them.
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
async fn halves(environment: &Environment<'_>, tenants: &[Uuid], jobs: u64) -> Halves {
    let load = environment.events(tenants, SMALL_BODY_BYTES);
    environment.start("event-ingest").await;
    let (first, usage) = (first_id_from_now(), environment.usage());
    environment.bench.publisher.flood(&load, jobs / FAN_OUT).await;
    waiting(environment, first, jobs).await;
    let of_ingest = environment.usage().since(&usage).sum() / jobs as f64;

    let sink = &environment.bench.sink;
    let before = sink.requests();
    environment.start("dispatcher").await;
    sink.wait_for(before + SKIPPED_DELIVERIES, ROUND_TIMEOUT).await;
    let (from, usage) = (sink.requests(), environment.usage());
    sink.wait_for(before + SKIPPED_DELIVERIES + COUNTED_DELIVERIES, ROUND_TIMEOUT).await;
    let done = (sink.requests() - from) as f64;
    let of_dispatcher = environment.usage().since(&usage).sum() / done;
    let (ingest_memory, dispatcher_memory) = (environment.peak("event-ingest"), environment.peak("dispatcher"));
    environment.stop("dispatcher").await;
    sink.take("ok");
    Halves { cpu: of_ingest + of_dispatcher, ingest_memory, dispatcher_memory }
}

/// Waits until every job is on the queue, except those of a last batch.
async fn waiting(environment: &Environment<'_>, first: Uuid, jobs: u64) {
    let queue = environment.system.names.events();
    eventually("every event is taken", ROUND_TIMEOUT, || async {
        (environment.ready(&queue).await == 0).then_some(())
    })
    .await;
    let stored = format!("SELECT count(*) FROM deliveries WHERE id >= '{first}'");
    let jobs = i64::try_from(jobs).unwrap_or(i64::MAX);
    eventually("every job is made", ROUND_TIMEOUT, || async {
        (environment.count(&stored).await >= jobs).then_some(())
    })
    .await;
}
