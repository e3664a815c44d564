//! Further measurements: restarts while very many jobs are held, a webhook that is slow but well, and the API.

use std::{sync::Arc, time::Duration};

use end_to_end::{history, wait::eventually};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::platform::{HANGS, SCHEDULE};
use crate::{
    bench::Bench, environment::Environment, growth::history as past, kept::Kept, latencies::Latencies,
    latency::percentiles, load::SMALL, publisher::Publisher, report::Figure, round::PATIENCE,
};

/// The jobs that are held.
const HELD: u64 = 100_000;
const WEBHOOKS: u64 = 8;

/// The time for which a webhook is slow but well, beside others that hang.
const LONG: Duration = Duration::from_secs(10 * 60);
const SLOW_PER_SECOND: f64 = 10.0;
/// The maximum of its 99th percentile, in milliseconds. What has not come within 15 s counts as that slow.
const SLOW_P99: f64 = 14_999.0;

/// The tenants that flood the API, and the calls that each of them has under way.
const FLOODING: usize = 8;
const CALLS_OF_EACH: usize = 8;
const DELIVERIES: u32 = 900_000;
const FOR: Duration = Duration::from_secs(20);
/// The maximum of the other tenant's 99th percentile, in milliseconds.
const CALL_P99: f64 = 100.0;

/// Replaces every process twice while the jobs are published and delivered.
pub(super) async fn restarts(bench: &Bench) -> Vec<Figure> {
    Environment::with(bench, &[("RETRY__SCHEDULE", SCHEDULE)], async |environment| {
        let system = &environment.system;
        for tenant in environment.webhooks(usize::try_from(WEBHOOKS).unwrap_or_default(), 1, "/ok/held").await {
            let webhook = webhook_of(environment, tenant).await;
            let each = usize::try_from(HELD / WEBHOOKS).unwrap_or_default();
            history::made(system, tenant, &webhook, each, "'pending'").await;
            history::held(system, &webhook).await;
        }
        let (first, began) = (bench.sink.seen().requests, std::time::Instant::now());
        for part in 1..=3 {
            environment.start_all(2).await;
            bench.sink.wait_for(first + HELD * part / 3, PATIENCE).await;
            if part < 3 {
                for service in ["dispatcher", "event-ingest", "api-service"] {
                    environment.stop(service).await;
                }
            }
        }
        let waiting = "SELECT count(*) FROM deliveries WHERE state <> 'succeeded'";
        eventually("all are recorded", PATIENCE, || async { (environment.count(waiting).await == 0).then_some(()) })
            .await;
        let left =
            environment.count("SELECT (SELECT count(*) FROM held_jobs) + (SELECT count(*) FROM promised_jobs)").await;
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let (left, again) = (left as f64, (bench.sink.seen().requests - first - HELD) as f64);
        bench.sink.take("held");
        vec![
            Figure::new("isolation_g_held_took", began.elapsed().as_secs_f64(), "s"),
            Figure::new("isolation_g_held_left", left, "jobs").at_most(0.0),
            Figure::new("isolation_g_held_again", again, "POSTs").at_most(0.0),
        ]
    })
    .await
}

/// A webhook whose receiver answers after three seconds, beside eight tenants whose receivers hang.
pub(super) async fn slow_but_well(bench: &Bench) -> Vec<Figure> {
    Environment::with(bench, &[("RETRY__SCHEDULE", SCHEDULE)], async |environment| {
        let slow = environment.webhooks(1, 1, "/late/3000/ok").await;
        let hanging = environment.webhooks(8, 1, HANGS).await;
        environment.start_all(1).await;
        let other = Publisher::connect(&bench.servers().amqp_url).await;
        let trouble = other.pace(environment.events(&hanging, SMALL), 200.0, LONG);
        let latencies = environment.pace(&environment.events(&slow, SMALL), SLOW_PER_SECOND, LONG).await;
        trouble.await.expect("publishing does not panic");
        bench.sink.take("platform");
        let mut figures = percentiles("isolation_h_slow_but_well", &latencies);
        figures.push(Figure::new("isolation_h_slow_p99", latencies.percentile(0.99), "ms").at_most(SLOW_P99));
        figures
    })
    .await
}

/// Eight tenants ask for filtered logs, without a limit. Another one lists its webhooks.
pub(super) async fn flooded_api(bench: &Bench) -> Vec<Figure> {
    let settings = [("API__RATE_LIMIT_PER_MINUTE", "0")];
    Environment::with(bench, &settings, async |environment| {
        let tenants = environment.webhooks(FLOODING + 1, 1, "/ok/ok").await;
        past::fill(environment, DELIVERIES).await;
        environment.start_api().await;
        let (ninth, flooding) = tenants.split_last().expect("there are nine");
        let alone = lists(environment, *ninth).await;
        let (stop, mut calls) = (CancellationToken::new(), tokio::task::JoinSet::new());
        for tenant in flooding {
            let webhook = webhook_of(environment, *tenant).await;
            let filters = "limit=100&event_type=quote.closed&state=succeeded";
            let path: Arc<str> = format!("/api/v1/webhooks/{webhook}/deliveries/?{filters}").into();
            let admin = environment.system.admin(*tenant).await;
            for _ in 0..CALLS_OF_EACH {
                let (mut kept, path, stop) = (Kept::open(&admin).await, Arc::clone(&path), stop.clone());
                calls.spawn(async move {
                    let mut statuses = Vec::new();
                    while !stop.is_cancelled() {
                        statuses.push(kept.ask("GET", &path, None).await.status);
                    }
                    statuses
                });
            }
        }
        let beside = lists(environment, *ninth).await;
        stop.cancel();
        let statuses = calls.join_all().await.concat();
        let refused = statuses.iter().filter(|status| **status != 200).count();
        println!("  {} calls meanwhile, {refused} of them refused", statuses.len());
        let mut figures = percentiles("isolation_i_api_alone", &alone);
        figures.extend(percentiles("isolation_i_api_beside", &beside));
        figures.push(Figure::new("isolation_i_api_p99", beside.percentile(0.99), "ms").at_most(CALL_P99));
        figures
    })
    .await
}

/// Returns the id of a tenant's only webhook.
async fn webhook_of(environment: &Environment<'_>, tenant: Uuid) -> String {
    let rows = environment.rows(&format!("SELECT id::text FROM webhooks WHERE tenant_id = '{tenant}'")).await;
    rows[0].get(0)
}

/// The times of a tenant's calls for its webhooks.
async fn lists(environment: &Environment<'_>, tenant: Uuid) -> Latencies {
    let mut kept = Kept::open(&environment.system.admin(tenant).await).await;
    let (began, mut times) = (std::time::Instant::now(), Vec::new());
    while began.elapsed() < FOR {
        times.push(kept.get("/api/v1/webhooks/").await.1.as_secs_f64() * 1000.0);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Latencies::new(times)
}
