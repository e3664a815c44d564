//! One tenant's calls of the API beside very many calls of others.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    bench::Bench, environment::Environment, growth::history, kept::Kept, latencies::Latencies, latency::percentiles,
    report::Figure,
};

/// The tenants that flood the API, and the calls that each of them has under way.
const FLOODING: usize = 8;
const CALLS_OF_EACH: usize = 8;
const DELIVERIES: u32 = 900_000;
const FOR: Duration = Duration::from_secs(20);
/// The maximum of the other tenant's 99th percentile, in milliseconds.
const CALL_P99: f64 = 100.0;

/// Eight tenants ask for filtered logs, without a limit. Another one lists its webhooks.
pub(super) async fn measure(bench: &Bench) -> Vec<Figure> {
    let settings = [("API__RATE_LIMIT_PER_MINUTE", "0")];
    Environment::with(bench, &settings, async |environment| {
        let tenants = environment.webhooks(FLOODING + 1, 1, "/ok/ok").await;
        history::fill(environment, DELIVERIES).await;
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
