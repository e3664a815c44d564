//! The environment of a measurement: the service as processes, with its own database and queues.

mod webhooks;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use end_to_end::{
    processes::{Process, with_api_address},
    system::{Options, System, metric},
    wait::eventually,
};
use tokio_postgres::{Client, NoTls, Row};
use uuid::Uuid;

use crate::{
    bench::Bench,
    latencies::Latencies,
    load::{Load, SMALL_BODY_BYTES, unix_micros},
    round::{ROUND_TIMEOUT, Round},
    usage::{Usage, of_process, peak},
};

/// The real schedule and the real timeout: both are part of what is measured.
const SCHEDULE: &str = "60s,5m,15m,1h,4h,12h";
const TIMEOUT: &str = "10s";

/// One instance of the service in its environment.
pub(crate) struct Environment<'b> {
    pub(crate) bench: &'b Bench,
    pub(crate) system: Arc<System>,
    database: Client,
    services: Mutex<Vec<(&'static str, Process)>>,
}

impl Environment<'_> {
    /// Prepares an instance with further settings, runs `part` on it and removes it. No service runs at first.
    pub(crate) async fn with<T>(
        bench: &Bench,
        settings: &[(&'static str, &str)],
        part: impl AsyncFnOnce(&Environment<'_>) -> T,
    ) -> T {
        let mut own = vec![
            ("EGRESS__EXTRA_CA_FILE", bench.sink.ca.display().to_string()),
            ("DATABASE__MAX_CONNECTIONS", "8".to_owned()),
        ];
        own.extend(settings.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let options = Options {
            schedule: SCHEDULE,
            timeout: TIMEOUT,
            settings: own,
            servers: Some(bench.servers().clone()),
            ..Default::default()
        };
        let mut result = None;
        System::prepared(options, async |system| {
            let (database, connection) =
                tokio_postgres::connect(&system.database_url, NoTls).await.expect("the database answers");
            tokio::spawn(connection);
            let environment = Environment { bench, system, database, services: Mutex::default() };
            result = Some(part(&environment).await);
        })
        .await;
        bench.settle().await;
        result.expect("a part that does not panic has a result")
    }

    /// Starts one more process of a service and waits until it is ready.
    pub(crate) async fn start(&self, service: &'static str) {
        self.start_with(service, &[]).await;
    }

    /// Like `start`, with further settings for this process.
    pub(crate) async fn start_with(&self, service: &'static str, settings: &[(&str, &str)]) {
        let mut variables = self.system.variables.clone();
        variables.extend(settings.iter().map(|(name, value)| (format!("WEBHOOKS__{name}"), (*value).to_owned())));
        let process = Process::start(service, &variables).await;
        self.services().push((service, process));
    }

    /// Starts the API at an address that the system's administrators then use.
    pub(crate) async fn start_api(&self) {
        let process = Process::start("api-service", &with_api_address(&self.system).await).await;
        self.services().push(("api-service", process));
    }

    /// Starts one ingest and some dispatchers, and an API if there is none: it publishes held jobs.
    pub(crate) async fn start_all(&self, dispatchers: usize) {
        let has_api = self.services().iter().any(|(name, _)| *name == "api-service");
        if !has_api {
            self.start_api().await;
        }
        self.start("event-ingest").await;
        for _ in 0..dispatchers {
            self.start("dispatcher").await;
        }
    }

    /// Starts one ingest and one dispatcher and lets them deliver for a while, at last at a moderate rate. Returns the
    /// events of these tenants.
    pub(crate) async fn start_warm(&self, tenants: &[Uuid]) -> Load {
        self.start_all(1).await;
        let load = self.events(tenants, SMALL_BODY_BYTES);
        self.warm_up(&load, 1).await;
        self.pace(&load, 200.0, Duration::from_secs(1)).await;
        load
    }

    /// Stops every process of a service gracefully.
    pub(crate) async fn stop(&self, service: &str) {
        let (stopping, staying) =
            std::mem::take(&mut *self.services()).into_iter().partition(|(name, _)| *name == service);
        *self.services() = staying;
        let stopping: Vec<(_, Process)> = stopping;
        for (_, process) in stopping {
            process.terminate().await;
        }
    }

    /// Stops the oldest process of a service gracefully.
    pub(crate) async fn stop_oldest(&self, service: &str) {
        let oldest = {
            let mut services = self.services();
            let place = services.iter().position(|(name, _)| *name == service).expect("one runs");
            services.remove(place).1
        };
        oldest.terminate().await;
    }

    /// One metric of all processes of a service, over all lines that begin with `name`.
    pub(crate) async fn metric(&self, service: &str, name: &str) -> f64 {
        let services: Vec<_> =
            self.services().iter().filter(|(name, _)| *name == service).map(|(_, process)| process.ops).collect();
        let mut sum = 0.0;
        for ops in services {
            sum += metric(ops, name).await;
        }
        sum
    }

    fn services(&self) -> MutexGuard<'_, Vec<(&'static str, Process)>> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The CPU of the services and their servers so far.
    pub(crate) fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for (name, process) in &*self.services() {
            usage.add(name, of_process(process.pid()));
        }
        usage.add("postgres", self.bench.postgres_cpu());
        usage.add("rabbitmq", self.bench.rabbitmq_cpu());
        usage
    }

    /// The processes of a service.
    pub(crate) fn pids(&self, service: &str) -> Vec<u32> {
        self.services().iter().filter(|(name, _)| *name == service).map(|(_, process)| process.pid()).collect()
    }

    /// The largest resident size that a process of the service has had so far, in megabytes.
    pub(crate) fn peak(&self, service: &str) -> f64 {
        let services = self.services();
        services.iter().filter(|(name, _)| *name == service).map(|(_, process)| peak(process.pid())).fold(0.0, f64::max)
    }

    /// Events for these tenants in turn.
    pub(crate) fn events(&self, tenants: &[Uuid], size: usize) -> Load {
        Load::of_events(&self.system.names.events_exchange, tenants, size)
    }

    /// Makes about 1,000 deliveries, so that connections are open and statements prepared.
    pub(crate) async fn warm_up(&self, load: &Load, fan_out: u64) {
        self.round(load, 1000_u64.div_ceil(fan_out), fan_out).await;
    }

    /// Publishes events as fast as possible, until every delivery has arrived and is recorded as a success.
    pub(crate) async fn round(&self, load: &Load, events: u64, fan_out: u64) -> Round {
        let deliveries = events * fan_out;
        let first = first_id_from_now();
        let (usage, began) = (self.usage(), Instant::now());
        self.bench.flood(load, events, fan_out).await;
        self.recorded(first, deliveries).await;
        let (seconds, usage) = (began.elapsed().as_secs_f64(), self.usage().since(&usage));
        self.bench.sink.take("ok");
        Round { deliveries, seconds, usage }
    }

    /// Publishes at a fixed pace to webhooks at the receivers' `/ok/ok`.
    pub(crate) async fn pace(&self, load: &Load, per_second: f64, lasting: Duration) -> Latencies {
        self.bench.paced(load.clone(), "ok", per_second, lasting).await
    }

    /// Waits until this many deliveries with ids from `first` on are recorded as successes.
    pub(crate) async fn recorded(&self, first: Uuid, deliveries: u64) {
        let query = format!("SELECT count(*) FROM deliveries WHERE id >= '{first}' AND state = 'succeeded'");
        let wanted = i64::try_from(deliveries).unwrap_or(i64::MAX);
        eventually("every delivery is recorded", ROUND_TIMEOUT, || async {
            (self.count(&query).await >= wanted).then_some(())
        })
        .await;
    }

    pub(crate) async fn count(&self, query: &str) -> i64 {
        self.database.query_one(query, &[]).await.unwrap_or_else(|error| panic!("{query}: {error:?}")).get(0)
    }

    pub(crate) async fn rows(&self, query: &str) -> Vec<Row> {
        self.database.query(query, &[]).await.unwrap_or_else(|error| panic!("{query}: {error:?}"))
    }

    pub(crate) async fn sql(&self, statements: &str) {
        self.database.batch_execute(statements).await.unwrap_or_else(|error| panic!("{statements}: {error:?}"));
    }

    pub(crate) async fn ready(&self, queue: &str) -> u64 {
        self.system.upstream.ready(queue).await.into()
    }
}

/// The smallest id that a delivery of an event from now on can have.
pub(crate) fn first_id_from_now() -> Uuid {
    Uuid::from_u128(u128::from(unix_micros() / 1000) << 80)
}
