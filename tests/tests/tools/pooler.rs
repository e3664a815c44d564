//! PgBouncer between the services and the database: it must lend its connections by session.
use std::{collections::HashMap, time::Duration};

use end_to_end::{
    api::Api,
    commands::{done, refusal},
    events::Event,
    pooler::Pooler,
    receiver::always,
    system::{Options, Service, Subscriber, System, TestSystem, metric},
    wait::{SOON, eventually, until},
};
use service_kit::Settings;

const REFUSED: &str = "several clients share this session of the database";
/// A process looks for shared sessions every ten seconds at most.
const LONG: Duration = Duration::from_secs(90);

fn through(system: &System, pooler: &Pooler) -> HashMap<String, String> {
    system.with(&[("DATABASE__URL", &pooler.url)])
}

/// Starts all services through the pooler. Returns where ingest shows its metrics.
async fn start_all(system: &System, pooler: &Pooler) -> Vec<std::net::SocketAddr> {
    let settings = Settings::from_sources(None, through(system, pooler)).unwrap();
    let mut services = Vec::new();
    for service in [Service::Api, Service::Ingest, Service::Dispatcher] {
        services.push(system.start_with(service, settings.clone()).await);
    }
    services
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_of_sessions_serves_all_services_and_their_leader() {
    let system = TestSystem::prepared(Options::default()).await;
    let Some(pooler) = Pooler::before(&system.database_url, "session", "").await else { return };
    let services = start_all(&system, &pooler).await;
    let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
    system.upstream.publish(&Event::closed(tenant, 20)).await;
    receiver.wait_for(20, SOON).await;
    until("ingest leads", SOON, || async { metric(services[1], "webhooks_maintenance_leader").await > 0.0 }).await;
    // What its client leaves behind is cleared before the next one comes.
    done(&through(&system, &pooler), &["migrate"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_of_transactions_or_statements_is_refused_at_the_start() {
    let system = TestSystem::prepared(Options::default()).await;
    for (mode, lines) in [
        ("transaction", ""),
        ("transaction", "server_round_robin = 1\nmin_pool_size = 3"),
        ("transaction", "server_reset_query_always = 1"),
        ("statement", ""),
    ] {
        let Some(pooler) = Pooler::before(&system.database_url, mode, lines).await else { return };
        for process in ["api-service", "event-ingest", "dispatcher"] {
            let said = refusal(process, &through(&system, &pooler), &[]).await;
            for words in ["database.url (WEBHOOKS__DATABASE__URL)", REFUSED, "pool_mode = session"] {
                assert!(said.contains(words), "{mode} {lines}: {words:?} is missing in: {said}");
            }
        }
        let said = refusal("webhookctl", &through(&system, &pooler), &["migrate"]).await;
        assert!(said.contains(REFUSED) && said.contains("WEBHOOKS__DATABASE__URL"), "{mode} {lines}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_changes_its_mode_is_noticed_and_its_way_back_too() {
    let system = TestSystem::prepared(Options::default()).await;
    let Some(pooler) = Pooler::before(&system.database_url, "session", "").await else { return };
    let services = start_all(&system, &pooler).await;
    pooler.change_mode("transaction");
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() \
               AND application_name IN ('api-service', 'event-ingest', 'dispatcher')";
    for ops in &services {
        eventually("it is not ready, because sessions are shared", LONG, || async {
            let ready = Api { address: *ops, session: None }.get("/readyz").await;
            let says = ready.json()["checks"]["database"].as_str().is_some_and(|said| said.contains(REFUSED));
            if !says {
                system.sql(cut).await;
            }
            (ready.status == 503 && says).then_some(())
        })
        .await;
    }
    pooler.change_mode("session");
    for ops in services {
        eventually("it is ready again", LONG, || async {
            let ready = Api { address: ops, session: None }.get("/readyz").await;
            (ready.status == 200).then_some(())
        })
        .await;
    }
}
