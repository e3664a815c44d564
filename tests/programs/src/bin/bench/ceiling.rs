//! What the bare pipe achieves: the service is compared with it.

use std::time::{Duration, Instant};

use crate::{bare::GROUP, bench::Bench, latencies::Latencies, load::SMALL_BODY_BYTES, round::Round, usage::Usage};

fn usage(bench: &Bench) -> Usage {
    let mut usage = Usage::default();
    usage.add("pipe", bench.bare.cpu());
    usage.add("rabbitmq", bench.rabbitmq_cpu());
    usage
}

/// Publishes as fast as possible until all have arrived.
pub(crate) async fn flood(bench: &Bench, count: u64) -> Round {
    let (used, began) = (usage(bench), Instant::now());
    bench.flood(&bench.bare.load(SMALL_BODY_BYTES), count, 1).await;
    let (seconds, usage) = (began.elapsed().as_secs_f64(), usage(bench).since(&used));
    bench.sink.take(GROUP);
    Round { deliveries: count, seconds, usage }
}

pub(crate) async fn pace(bench: &Bench, per_second: f64, lasting: Duration) -> Latencies {
    bench.paced(bench.bare.load(SMALL_BODY_BYTES), GROUP, per_second, lasting).await
}
