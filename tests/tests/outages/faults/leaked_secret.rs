//! The replacement of a leaked signing secret, in the order of `deploy/security.md`, under load and kills.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use domain::EventType;
use end_to_end::{
    api::Api,
    events::Event,
    processes::Process,
    receiver::{Received, Receiver, Reply, behaviour, verify},
    servers::PrivateServers,
    system::{Options, System, TestSystem},
    upstream::Upstream,
    wait::until,
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::faults::{API, DISPATCHER, INGEST, LONG, Processes, settings};

/// The type of every event.
const TYPE: EventType = EventType::QuoteClosed;
/// The `data` of an event whose answer never arrives.
const UNANSWERED: &str = "unanswered";
const PAUSE: Duration = Duration::from_millis(33);

/// The program behind a receiver: it deduplicates by the delivery's id, as the specification has it.
#[derive(Default)]
struct Program {
    /// The secret that it accepts. Without one it answers 503 to everything.
    secret: Option<String>,
    /// The ids of the deliveries that it has processed.
    deliveries: HashSet<String>,
    /// The number of times that it has processed each event.
    events: HashMap<Uuid, usize>,
}

impl Program {
    fn answer(&mut self, request: &Received) -> Reply {
        let Some(secret) = &self.secret else { return Reply::status(503) };
        if verify(request, secret).is_err() {
            return Reply::status(400);
        }
        if self.deliveries.insert(request.header("x-service-webhook-id").unwrap().to_owned()) {
            let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
            *self.events.entry(body["data"]["id"].as_str().unwrap().parse().unwrap()).or_default() += 1;
            if body["data"][UNANSWERED] == true {
                return Reply::hang();
            }
        }
        Reply::ok()
    }
}

/// The events that a deleted webhook has not delivered, by its log.
#[derive(Default)]
struct Undelivered {
    /// Events that are to be published again.
    events: Vec<Event>,
    /// Events whose delivery the receiver has processed, although no answer of it was recorded.
    processed: HashSet<Uuid>,
}

/// A tenant, its upstream service and its receiver.
struct Tenant {
    admin: Api,
    id: Uuid,
    upstream: Upstream,
    /// All events, before they are published.
    events: Mutex<HashMap<Uuid, Event>>,
    program: Arc<Mutex<Program>>,
    receiver: Receiver,
}

impl Tenant {
    async fn new(system: &System) -> Arc<Self> {
        let id = Uuid::new_v4();
        let program = Arc::<Mutex<Program>>::default();
        let (admin, upstream, behind) = (system.admin(id).await, Upstream::of(system), Arc::clone(&program));
        let receiver = Receiver::start(&system.ca, behaviour(move |request, _| behind.lock().unwrap().answer(request)));
        Arc::new(Self { admin, id, upstream, events: Mutex::default(), program, receiver })
    }

    /// Registers a webhook. Returns its id and its secret.
    async fn register(&self) -> (String, String) {
        let webhook = self.admin.create(&self.receiver.url("/"), &[TYPE.as_str()]).await;
        (webhook.id, webhook.secret)
    }

    fn switch(&self, secret: Option<String>) {
        self.program.lock().unwrap().secret = secret;
    }

    fn processed(&self, event: &Event) -> usize {
        self.program.lock().unwrap().events.get(&event.id).copied().unwrap_or_default()
    }

    async fn publish_new(&self, is_answered: bool) -> Event {
        let event = Event::now(TYPE, self.id);
        let event = Event { data: format!(r#"{{"id":"{}","{UNANSWERED}":{}}}"#, event.id, !is_answered), ..event };
        self.events.lock().unwrap().insert(event.id, event.clone());
        self.upstream.publish(std::slice::from_ref(&event)).await;
        event
    }

    /// Publishes an event, and waits until it is processed.
    async fn deliver(&self, is_answered: bool) -> Event {
        let event = self.publish_new(is_answered).await;
        until("it is processed", LONG, || async { self.processed(&event) == 1 }).await;
        event
    }

    /// Publishes about thirty events a second.
    fn publish_steadily(self: &Arc<Self>, until: CancellationToken) -> JoinHandle<()> {
        let tenant = Arc::clone(self);
        tokio::spawn(async move {
            let mut pace = tokio::time::interval(PAUSE);
            while !until.is_cancelled() {
                pace.tick().await;
                tenant.publish_new(true).await;
            }
        })
    }

    /// Finds the events that a deleted webhook has not delivered, by its log.
    async fn undelivered(&self, webhook: &str) -> Undelivered {
        let mut found = Undelivered::default();
        for state in ["cancelled", "dropped", "skipped"] {
            let log = format!("/api/v1/webhooks/{webhook}/deliveries/");
            for delivery in self.admin.whole(&log, &format!("limit=100&state={state}")).await {
                let event = delivery["event_id"].as_str().unwrap().parse().unwrap();
                if self.program.lock().unwrap().deliveries.contains(delivery["id"].as_str().unwrap()) {
                    found.processed.insert(event);
                } else {
                    found.events.push(self.events.lock().unwrap()[&event].clone());
                }
            }
        }
        found
    }
}

/// Waits until every event that was published before is stored and acknowledged.
async fn all_stored(servers: &PrivateServers, system: &System) {
    let queue = system.names.events();
    until("no event is on its way", LONG, || async { servers.messages(&queue) == 0 }).await;
}

/// Waits until a statement counts `wanted` rows.
async fn counted(system: &System, wanted: i64, statement: &str) {
    system.until_count(statement, wanted, LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leaked_secret_is_replaced_under_load_and_kills_without_loss_or_repetition() {
    let servers = PrivateServers::borrow().await;
    let (schedule, timeout) = ("10s,20s,30s,40s,60s,80s", "3s");
    let options = Options { schedule, timeout, settings: settings(), ..Options::default() };
    let system = TestSystem::prepared(servers.options(options)).await;
    let mut processes = Processes::start(&system).await;
    let variables = processes.variables.clone();
    let started = |name| Process::spawn(name, &variables);
    let tenant = Tenant::new(&system).await;
    let (old, leaked) = tenant.register().await;
    tenant.switch(Some(leaked));
    let stop = CancellationToken::new();
    let load = tenant.publish_steadily(stop.clone());

    // The last moments before the replacement: two events are processed without an answer, and the log has the
    // timeout of the first only, as the dispatcher dies; one event that was delivered is published once more.
    let repeated = tenant.deliver(true).await;
    let is_recorded = "SELECT count(*) FROM deliveries WHERE state = 'succeeded' AND event_id";
    counted(&system, 1, &format!("{is_recorded} = '{}'", repeated.id)).await;
    let unanswered = tenant.deliver(false).await;
    counted(&system, 1, "SELECT count(*) FROM attempts WHERE outcome = 'timeout'").await;
    let unrecorded = tenant.deliver(false).await;
    processes.dispatcher.kill();
    processes.ingest.kill();
    tenant.upstream.publish(std::slice::from_ref(&repeated)).await;

    tenant.switch(None);
    (processes.dispatcher, processes.ingest) = (started(DISPATCHER), started(INGEST));
    all_stored(&servers, &system).await;

    let (new, secret) = tenant.register().await;
    processes.ingest.kill();
    processes.api.kill();
    (processes.api, processes.ingest) = (processes.again(API).await, started(INGEST));
    all_stored(&servers, &system).await;

    let deleted = tenant.admin.delete(&format!("/api/v1/webhooks/{old}/")).await;
    assert_eq!(deleted.status, 204, "{}", deleted.text);
    processes.dispatcher.kill();
    processes.api.kill();
    (processes.api, processes.dispatcher) = (processes.again(API).await, started(DISPATCHER));

    tenant.switch(Some(secret));
    let again = tenant.undelivered(&old).await;
    processes.ingest.kill();
    tenant.upstream.publish(&again.events).await;
    processes.ingest = started(INGEST);

    stop.cancel();
    load.await.unwrap();
    all_stored(&servers, &system).await;
    let waiting = "SELECT count(*) FROM deliveries WHERE state IN ('pending', 'retrying')";
    counted(&system, 0, waiting).await;
    let published: Vec<_> = tenant.events.lock().unwrap().values().cloned().collect();
    println!("{} events, {} published again for {new}", published.len(), again.events.len());
    for event in &published {
        assert_eq!(tenant.processed(event), 1, "{event:?}");
    }
    assert!(!again.events.is_empty());
    // The dispatcher may have been killed during attempts of other events, too.
    assert!(again.processed.is_superset(&HashSet::from([unanswered.id, unrecorded.id])), "{:?}", again.processed);
}
