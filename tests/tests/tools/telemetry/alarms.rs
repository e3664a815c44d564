//! A real Prometheus watches the real services while something goes wrong, with the operators' alerts in a hurry: the
//! right ones fire, no others, and they resolve.

use std::{
    collections::{BTreeSet, HashMap},
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use domain::EventType;
use end_to_end::{
    processes::{Process, with_api_address},
    prometheus::Prometheus,
    receiver::{Receiver, Reply, always, behaviour},
    servers::{PrivateServers, Server},
    system::{Options, System},
    upstream::Upstream,
    wait::eventually,
};
use uuid::Uuid;

use crate::telemetry::alerts::pages_of;

/// The deadline for alerts and for their end: some of them look back for a quarter of an hour of the rules.
const LONG: Duration = Duration::from_secs(120);

const WATCHDOG: &str = "WebhooksWatchdog";

/// The alerts at the end of a server. api-service needs no broker.
const DATABASE_AWAY: [&str; 6] = [
    "WebhooksNoneReady api-service",
    "WebhooksNoneReady event-ingest",
    "WebhooksNoneReady dispatcher",
    "WebhooksNotReady api-service",
    "WebhooksNotReady event-ingest",
    "WebhooksNotReady dispatcher",
];
const BROKER_AWAY: [&str; 5] = [
    "WebhooksNoneReady event-ingest",
    "WebhooksNoneReady dispatcher",
    "WebhooksNotReady api-service",
    "WebhooksNotReady event-ingest",
    "WebhooksNotReady dispatcher",
];
/// May fire while a server is unavailable, or once it is available again: for deliveries that were accepted before, and not
/// attempted.
const BESIDE_A_SERVER: [&str; 2] = ["WebhooksReconcileFails", "WebhooksDeliveriesLate"];

const DISPATCHER_AWAY: [&str; 1] = ["WebhooksMetricsAbsent dispatcher"];
/// May fire without a dispatcher, or once another one runs. That one has mostly done the queued jobs before it is scraped
/// for the first time, and a rate does not see earlier counts. A job that is not done within the grace of this test, two
/// seconds, counts as lost, as its queue is empty.
const BESIDE_A_DISPATCHER: [&str; 5] = [
    "WebhooksInstanceMissing",
    "WebhooksNothingAttempted",
    "WebhooksOldestDueGrowing",
    "WebhooksDeliveriesLate",
    "WebhooksJobsLost",
];

/// The services as processes, and what watches them.
pub(crate) struct Watched {
    pub(crate) prometheus: Prometheus,
    variables: HashMap<String, String>,
    processes: Vec<Process>,
    since: Instant,
}

impl Watched {
    /// Starts an API, an ingest and dispatchers. `None` if `SKIP` leaves Prometheus out.
    pub(crate) async fn start(system: &System, dispatchers: usize) -> Option<Self> {
        let variables = with_api_address(system).await;
        let prometheus = Prometheus::start().await?;
        let mut watched = Self { prometheus, variables, processes: Vec::new(), since: Instant::now() };
        for name in ["api-service", "event-ingest"] {
            watched.add(name).await;
        }
        for _ in 0..dispatchers {
            watched.add("dispatcher").await;
        }
        Some(watched)
    }

    async fn add(&mut self, name: &str) {
        let process = Process::start(name, &self.variables).await;
        self.prometheus.scrape(name, process.ops);
        self.processes.push(process);
    }

    /// Kills the process that was started last. Returns its address.
    fn kill_last(&mut self) -> SocketAddr {
        self.processes.pop().expect("a process runs").ops
    }

    /// Waits until Prometheus sees all processes at work and nothing but the watchdog fires. What fires from now on
    /// counts.
    pub(crate) async fn begin(&mut self) {
        let all = self.processes.len();
        self.prometheus.wait_for(&format!("sum(webhooks_ready) == {all}")).await;
        self.prometheus.wait_for("sum(rate(webhooks_deliveries_finished_total{state='succeeded'}[5s])) > 0").await;
        self.resolves().await;
        self.since = Instant::now();
    }

    /// Waits until each of these alerts has fired.
    async fn fires(&self, alerts: &[&str]) {
        let what = format!("{alerts:?} fire");
        let mut fired = BTreeSet::new();
        let begun = Instant::now();
        while !alerts.iter().all(|alert| fired.contains(*alert)) {
            assert!(begun.elapsed() < LONG, "not within {LONG:?}: {what}; these do: {fired:?}");
            fired = self.prometheus.fired(self.since).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        println!("{what} after {:.1} s", begun.elapsed().as_secs_f64());
    }

    /// Waits until only the watchdog fires.
    async fn resolves(&self) {
        let begun = Instant::now();
        eventually("only the watchdog fires", LONG, || async {
            (self.prometheus.firing().await == BTreeSet::from([WATCHDOG.to_owned()])).then_some(())
        })
        .await;
        println!("resolved after {:.1} s", begun.elapsed().as_secs_f64());
    }

    /// Asserts that these and the watchdog have fired, and no others but perhaps some of those that may.
    pub(crate) async fn assert_fired(&self, expected: &[&str], may: &[&str]) {
        let mut fired = self.prometheus.fired(self.since).await;
        fired.retain(|alert| !may.contains(&alert.as_str()));
        let expected: BTreeSet<_> = expected.iter().chain([&WATCHDOG]).map(|alert| (*alert).to_owned()).collect();
        let history = if fired == expected { String::new() } else { self.prometheus.history(self.since).await };
        assert_eq!(fired, expected, "{history}");
    }
}

/// A tenant whose receiver is well.
pub(crate) async fn well(system: &System) -> (Receiver, (Uuid, EventType)) {
    let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
    system.admin(tenant).await.create(&receiver.url("/well"), &["quote.closed"]).await;
    (receiver, (tenant, EventType::QuoteClosed))
}

/// The schedule of production: no retry comes during a test.
fn options(settings: &[(&'static str, &str)]) -> Options {
    let settings = settings.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Options { schedule: "60s,5m,15m,1h,4h,12h", settings, ..Options::default() }
}

async fn a_server_stops() {
    let servers = PrivateServers::start();
    let hurried = options(&[("RECONCILE__INTERVAL", "500ms")]);
    let options = Options { servers: Some(servers.servers().clone()), ..hurried };
    System::prepared(options, async |system: Arc<System>| {
        let Some(mut watched) = Watched::start(&system, 1).await else { return };
        let (_receiver, tenant) = well(&system).await;
        let _load = Upstream::of(&system).publish_steadily(vec![tenant]);
        for (server, away) in [(Server::Rabbitmq, &BROKER_AWAY[..]), (Server::Postgres, &DATABASE_AWAY[..])] {
            assert_eq!(pages_of(away), BTreeSet::from(["WebhooksNoneReady".to_owned()]));
            watched.begin().await;
            servers.kill(server);
            watched.fires(away).await;
            servers.restart(server);
            watched.resolves().await;
            watched.assert_fired(away, &BESIDE_A_SERVER).await;
        }
    })
    .await;
}

async fn the_dispatcher_dies() {
    // What is overdue is seen after a grace, which is in a hurry as well.
    let options = options(&[("RECONCILE__INTERVAL", "1s"), ("RECONCILE__GRACE", "2s")]);
    System::prepared(options, async |system: Arc<System>| {
        let Some(mut watched) = Watched::start(&system, 1).await else { return };
        let (_receiver, tenant) = well(&system).await;
        let _load = Upstream::of(&system).publish_steadily(vec![tenant]);
        watched.begin().await;

        let dead = watched.kill_last();
        watched.fires(&DISPATCHER_AWAY).await;
        watched.prometheus.forget(dead);
        watched.add("dispatcher").await;
        watched.resolves().await;
        watched.assert_fired(&DISPATCHER_AWAY, &BESIDE_A_DISPATCHER).await;
    })
    .await;
}

async fn a_receiver_hangs() {
    // One webhook has 8 of the slots, and 4 of the slow lane: much less than its jobs.
    let options = options(&[("DISPATCHER__MAX_IN_FLIGHT", "64"), ("DISPATCHER__SLOW_IN_FLIGHT", "16")]);
    System::prepared(options, async |system: Arc<System>| {
        let Some(mut watched) = Watched::start(&system, 1).await else { return };
        let ((_receiver, healthy), (hanging, other)) = (well(&system).await, well(&system).await);
        let _load = Upstream::of(&system).publish_steadily(vec![healthy, other]);
        watched.begin().await;

        hanging.behave(behaviour(|_, _| Reply::hang()));
        watched.prometheus.wait_for("sum(webhooks_jobs_held_total{reason='slow'}) > 50").await;
        watched.prometheus.watch_for(20).await;
        hanging.behave(always(200));
        watched.prometheus.wait_for("max(webhooks_tasks{task='wake'}) == 0").await;
        watched.prometheus.watch_for(5).await;
        watched.assert_fired(&[], &[]).await;
    })
    .await;
}

/// One after the other: together, such systems of unoptimized builds starve on two cores, and deliveries are late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_right_alerts_fire_when_a_server_stops() {
    a_server_stops().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_right_alerts_fire_when_the_dispatcher_dies() {
    the_dispatcher_dies().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_alert_fires_when_a_receiver_hangs() {
    a_receiver_hangs().await;
}
