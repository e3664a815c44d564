//! What the bare pipe achieves: the service is compared with it.

use std::time::{Duration, Instant};

use crate::{bare::GROUP, bench::Bench, latencies::Latencies, round::Round, usage::Usage};

fn usage(bench: &Bench) -> Usage {
    let mut usage = Usage::default();
    usage.add("pipe", bench.bare.cpu());
    usage.add("rabbitmq", bench.rabbitmq_cpu());
    usage
}

/// Publishes as fast as possible until all have arrived.
pub(crate) async fn flood(bench: &Bench, size: usize, count: u64) -> Round {
    let load = bench.bare.load(size);
    let (before, used, outside) = (bench.sink.seen(), usage(bench), bench.outside());
    let began = Instant::now();
    bench.flood(&load, count, 1).await;
    let seconds = began.elapsed().as_secs_f64();
    let (usage, outside) = (usage(bench).since(&used), bench.outside().since(&outside));
    let connections = bench.sink.seen().connections - before.connections;
    bench.sink.take(GROUP);
    Round { deliveries: count, seconds, usage, outside, connections }
}

pub(crate) async fn pace(bench: &Bench, size: usize, per_second: f64, lasting: Duration) -> Latencies {
    bench.paced(&bench.publisher, bench.bare.load(size), GROUP, per_second, lasting).await
}
