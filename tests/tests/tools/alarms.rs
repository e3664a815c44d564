//! A real Prometheus watches the real services while something goes wrong, with the operators' alerts in a hurry: the
//! right ones fire, no others, and they resolve.
mod dashboards;
pub(crate) mod rules;

use std::{
    collections::{BTreeSet, HashMap},
    time::{Duration, Instant},
};

use domain::EventType;
use end_to_end::{
    api::Api,
    processes::{Process, with_api_address},
    prometheus::Prometheus,
    receiver::{Reply, always, behaviour},
    servers::{PrivateServers, Server},
    system::{Options, Subscriber, System, TestSystem},
    upstream::Upstream,
    wait::{SOON, eventually_ok},
};
use tokio_util::task::AbortOnDropHandle;

use crate::alarms::{dashboards::unanswered, rules::pages_of};

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
/// attempted. On a busy machine the dispatcher may connect seconds after ingest, which are minutes of the rules.
const BESIDE_A_SERVER: [&str; 3] = ["WebhooksReconcileFails", "WebhooksDeliveriesLate", "WebhooksNothingAttempted"];

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
struct Watched {
    prometheus: Prometheus,
    variables: HashMap<String, String>,
    processes: Vec<Process>,
    since: Instant,
}

impl Watched {
    /// Starts an API, an ingest and dispatchers. No alert of Prometheus waits longer than `longest` minutes of the rules.
    /// `None` if `SKIP` leaves Prometheus out.
    async fn start(system: &System, dispatchers: usize, longest: u32) -> Option<Self> {
        let variables = with_api_address(system).await;
        let prometheus = Prometheus::start(longest).await?;
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

    /// Waits until Prometheus sees all processes at work and nothing but the watchdog fires. What fires from now on
    /// counts.
    async fn begin(&mut self) {
        let all = self.processes.len();
        self.prometheus.wait_for(&format!("sum(webhooks_ready) == {all}")).await;
        self.prometheus.wait_for("sum(rate(webhooks_deliveries_finished_total{state='succeeded'}[5s])) > 0").await;
        self.resolves().await;
        self.since = Instant::now();
    }

    /// Waits until each of these alerts has fired.
    async fn fires(&self, alerts: &[&str]) {
        eventually_ok(LONG, || async {
            let fired = self.prometheus.fired(self.since).await;
            let all = alerts.iter().all(|alert| fired.contains(*alert));
            all.then_some(()).ok_or_else(|| format!("{alerts:?} fire; these do: {fired:?}"))
        })
        .await;
    }

    /// Waits until only the watchdog fires.
    async fn resolves(&self) {
        eventually_ok(LONG, || async {
            let firing = self.prometheus.firing().await;
            let only = firing == BTreeSet::from([WATCHDOG.to_owned()]);
            only.then_some(()).ok_or_else(|| format!("only the watchdog fires; these do: {firing:?}"))
        })
        .await;
    }

    /// Asserts that these and the watchdog have fired, and no others but perhaps some of those that may, and that
    /// Prometheus could evaluate each rule.
    async fn assert_fired(&self, expected: &[&str], may: &[&str]) {
        let mut fired = self.prometheus.fired(self.since).await;
        fired.retain(|alert| !may.contains(&alert.as_str()));
        let expected: BTreeSet<_> = expected.iter().chain([&WATCHDOG]).map(|alert| (*alert).to_owned()).collect();
        let history = if fired == expected { String::new() } else { self.prometheus.history(self.since).await };
        assert_eq!(fired, expected, "{history}");
        assert_eq!(self.prometheus.failed_evaluations().await, 0.0);
    }
}

/// Publishes ten events a second for each of these, until the handle is dropped.
fn load<const N: usize>(system: &System, subscribers: [&Subscriber; N]) -> AbortOnDropHandle<()> {
    let what = subscribers.map(|subscriber| (subscriber.tenant, EventType::QuoteClosed));
    Upstream::of(system).publish_steadily(what.to_vec())
}

/// The schedule of production: no retry comes during a test.
fn options<const N: usize>(settings: [(&'static str, &str); N]) -> Options {
    Options { schedule: "60s,5m,15m,1h,4h,12h", ..Options::with(settings) }
}

/// Every alert of the rules waits as long as its rule says.
const AS_THEY_SAY: u32 = u32::MAX;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_right_alerts_fire_when_a_server_stops() {
    let servers = PrivateServers::start();
    let hurried = options([("RECONCILE__INTERVAL", "500ms")]);
    let system = TestSystem::prepared(Options { servers: Some(servers.servers().clone()), ..hurried }).await;
    let Some(mut watched) = Watched::start(&system, 1, AS_THEY_SAY).await else { return };
    let well = system.subscriber(always(200)).await;
    let _load = load(&system, [&well]);
    for (server, away) in [(Server::Rabbitmq, &BROKER_AWAY[..]), (Server::Postgres, &DATABASE_AWAY[..])] {
        assert_eq!(pages_of(away), BTreeSet::from(["WebhooksNoneReady".to_owned()]));
        watched.begin().await;
        servers.kill(server);
        watched.fires(away).await;
        servers.restart(server);
        watched.resolves().await;
        watched.assert_fired(away, &BESIDE_A_SERVER).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_right_alerts_fire_when_the_dispatcher_dies() {
    // What is overdue is seen after a grace, which is in a hurry as well.
    let system = TestSystem::prepared(options([("RECONCILE__INTERVAL", "1s"), ("RECONCILE__GRACE", "2s")])).await;
    let Some(mut watched) = Watched::start(&system, 1, AS_THEY_SAY).await else { return };
    let well = system.subscriber(always(200)).await;
    let _load = load(&system, [&well]);
    watched.begin().await;
    let dead = watched.processes.pop().unwrap().ops;
    watched.fires(&DISPATCHER_AWAY).await;
    watched.prometheus.forget(dead);
    watched.add("dispatcher").await;
    watched.resolves().await;
    watched.assert_fired(&DISPATCHER_AWAY, &BESIDE_A_DISPATCHER).await;
}

/// Somebody who looks at the console again and again.
fn look_again_and_again(admin: Api) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut pace = tokio::time::interval(Duration::from_millis(200));
        loop {
            pace.tick().await;
            admin.get("/api/v1/webhooks/").await;
            admin.get("/api/v1/nothing/").await;
        }
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_panel_has_data_and_no_alert_fires_while_receivers_refuse_and_hang() {
    // One webhook has 8 of the slots, and 4 of the slow lane: much less than its jobs.
    let slots = [("DISPATCHER__MAX_IN_FLIGHT", "64"), ("DISPATCHER__SLOW_IN_FLIGHT", "16")];
    let system = TestSystem::prepared(Options { schedule: "1s,2s,3s,4s,5s,6s", ..Options::with(slots) }).await;
    // The jobs of a hanging webhook come again after ten seconds, which are ten minutes of the rules.
    let Some(mut watched) = Watched::start(&system, 2, 20).await else { return };
    let [well, hanging] = [system.subscriber(always(200)).await, system.subscriber(always(200)).await];
    // A receiver that refuses everything is its tenant's business.
    let refusing = system.subscriber(always(500)).await;
    let _looking = look_again_and_again(refusing.api.clone());
    let _load = load(&system, [&well, &hanging, &refusing]);
    watched.begin().await;

    hanging.receiver.behave(behaviour(|_, _| Reply::hang()));
    let Watched { prometheus, .. } = &watched;
    prometheus.wait_for("sum(webhooks_jobs_held_total{reason='slow'}) > 50").await;
    prometheus.wait_for("sum(rate(webhooks_deliveries_finished_total{state='dropped'}[10s])) > 0").await;
    // On a busy machine a scrape may come late.
    eventually_ok(SOON, || unanswered(prometheus)).await;
    prometheus.watch_for(25).await;
    hanging.receiver.behave(always(200));
    prometheus.wait_for("max(webhooks_tasks{task='wake'}) == 0").await;
    prometheus.watch_for(5).await;
    // A third of the deliveries are dropped since the minute that stands for the day before.
    watched.assert_fired(&[], &["WebhooksDrops"]).await;
}
