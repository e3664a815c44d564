//! 100,000 waiting retries: their cost in the broker's memory and in the service's latency.

use std::time::Duration;

use domain::Job;
use futures_util::stream;
use uuid::Uuid;

use crate::{
    bench::Bench,
    environment::Environment,
    latency::{percentiles, ratio},
    load::{Load, SMALL, unix_micros},
    report::Figure,
};

const RETRIES: u32 = 100_000;
const TENANTS: usize = 20;
const LASTING: Duration = Duration::from_secs(8);
const GAP: Duration = Duration::from_secs(8 * 60 * 60);

/// The broker's memory and the latency at 200 a second, without and with the retries.
pub(crate) async fn measure(bench: &Bench) -> Vec<Figure> {
    Environment::with(bench, &[], async |environment| {
        let tenants = environment.webhooks(TENANTS, 1, "/ok/ok").await;
        let load = environment.start_warm(&tenants).await;
        let without = environment.pace(&load, 200.0, LASTING).await;
        let before = bench.rabbitmq_memory();
        fill(environment).await;
        bench.settle().await;
        let with = environment.pace(&load, 200.0, LASTING).await;
        let after = bench.rabbitmq_memory();
        let waiting = environment.ready(&environment.system.names.retry(GAP)).await;
        assert_eq!(waiting, u64::from(RETRIES), "they still wait");
        println!("  {RETRIES} waiting retries: the broker grew from {before:.0} to {after:.0} MB");
        let mut figures = vec![
            Figure::new("retries_broker_memory_before", before, "MB"),
            Figure::new("retries_broker_memory_100000_waiting", after, "MB"),
            Figure::new("retries_broker_memory_each", (after - before) * 1e6 / f64::from(RETRIES), "bytes/retry"),
        ];
        figures.extend(percentiles("retries_latency_before", &without));
        figures.extend(percentiles("retries_latency_100000_waiting", &with));
        figures.push(ratio("retries_latency_ratio_p50", &with, &without, 0.5));
        figures.push(ratio("retries_latency_ratio_p99", &with, &without, 0.99));
        figures
    })
    .await
}

/// Writes deliveries whose first six attempts failed, and publishes their next jobs to the queue of the longest delay.
async fn fill(environment: &Environment<'_>) {
    let first = unix_micros() / 1000 - u64::from(RETRIES);
    environment
        .sql(&format!(
            "WITH past AS MATERIALIZED ( \
                SELECT n, {first}::bigint + n AS ms, gen_random_uuid() AS event, webhook, tenant \
                FROM generate_series(0, {RETRIES} - 1) n JOIN ( \
                    SELECT id AS webhook, tenant_id AS tenant, row_number() OVER () - 1 AS number FROM webhooks \
                ) AS owners ON number = n % {TENANTS} \
             ), event AS ( \
                INSERT INTO events (occurred_at, id, tenant_id, event_type, body) \
                SELECT to_timestamp(ms / 1000.0), event, tenant, 'quote.closed', convert_to(repeat(event::text, 16), 'UTF8') FROM past \
             ) \
             INSERT INTO deliveries (id, webhook_id, event_id, event_type, state, attempts, created_at, first_failed_at, next_attempt_at) \
             SELECT (lpad(to_hex(ms), 12, '0') || '80008' || lpad(to_hex(n), 15, '0'))::uuid, webhook, event, 'quote.closed', \
                    'retrying', 6, now(), now() - interval '4 hours', now() + interval '8 hours' FROM past"
        ))
        .await;
    let load = Load {
        exchange: environment.system.names.exchange(),
        routing_key: environment.system.names.retry(GAP),
        ..environment.events(&[Uuid::nil()], SMALL)
    };
    let id = |n: u32| (u128::from(first + u64::from(n)) << 80) | (8 << 76) | (8 << 60) | u128::from(n);
    let job = |n: u32| Job { delivery: Uuid::from_u128(id(n)).into(), attempt: 7 }.to_bytes();
    environment.bench.publisher.send_all(&load, stream::iter((0..RETRIES).map(job))).await;
}
