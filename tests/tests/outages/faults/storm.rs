//! 2,000 events, and what must be true of their deliveries, whatever happens meanwhile.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use domain::EventType;
use end_to_end::{
    api::{Api, Created},
    events::Event,
    outsider::Outsider,
    processes::Process,
    receiver::{Receiver, Reply, behaviour},
    system::{System, metric},
    upstream::Upstream,
    wait::{SOON, eventually, until},
};
use tokio::task::JoinHandle;

use crate::faults::LONG;

pub(crate) const EVENTS: usize = 2_000;
/// How long the receivers take to answer, so that there is always something in flight.
const ANSWER: Duration = Duration::from_millis(10);

/// Two receivers. The steady one gets every event. The shaky one gets two of the seven types and fails the first
/// attempt of every delivery.
pub(crate) struct Storm {
    system: Arc<System>,
    pub(crate) admin: Api,
    pub(crate) steady: Receiver,
    shaky: Receiver,
    webhooks: [Created; 2],
    events: Arc<Vec<Event>>,
    began: Instant,
}

/// How many events are published before the last ones: more than [`points`] reach.
const EARLY_EVENTS: usize = EVENTS * 8 / 10;

/// The events that are being published. The last ones wait until something has gone wrong, so it does in the middle,
/// however slow the test is beside the service.
pub(crate) struct Publishing {
    most: JoinHandle<()>,
    upstream: Upstream,
    events: Arc<Vec<Event>>,
}

impl Publishing {
    /// Publishes the last events after the others.
    pub(crate) async fn rest(self) {
        self.most.await.unwrap();
        self.upstream.publish(&self.events[EARLY_EVENTS..]).await;
    }
}

const SHAKY: [EventType; 2] = [EventType::QuoteClosed, EventType::DeliveryNoteCreated];

/// What the receivers saw beyond what the ledger records.
#[derive(Debug)]
pub(crate) struct Tally {
    /// POSTs beyond those that were recorded as attempts.
    pub(crate) repeated: usize,
}

impl Storm {
    /// Registers the webhooks. The API must run already.
    pub(crate) async fn prepare(system: &Arc<System>) -> Self {
        let (tenant, admin) = system.tenant().await;
        let [steady, shaky] = [0, 1].map(|failures| {
            let status = move |nth| if nth <= failures { 500 } else { 200 };
            Receiver::start(&system.ca, behaviour(move |_, nth| Reply::status(status(nth)).after(ANSWER)))
        });
        let all = EventType::ALL.map(EventType::as_str);
        let webhooks = [
            admin.create(&steady.url("/steady"), &all).await,
            admin.create(&shaky.url("/shaky"), &SHAKY.map(EventType::as_str)).await,
        ];
        let event = |number: usize| {
            let event_type = EventType::ALL[number % EventType::ALL.len()];
            Event::now(event_type, tenant).with_data(format!(r#"{{"number":{number}}}"#))
        };
        let events = Arc::new((0..EVENTS).map(event).collect());
        let system = Arc::clone(system);
        Self { system, admin, steady, shaky, webhooks, events, began: Instant::now() }
    }

    /// Begins to publish all events but the last ones.
    pub(crate) fn publish(&self) -> Publishing {
        let (upstream, events) = (self.upstream(), Arc::clone(&self.events));
        let most = tokio::spawn(async move { upstream.publish(&events[..EARLY_EVENTS]).await });
        Publishing { most, upstream: self.upstream(), events: Arc::clone(&self.events) }
    }

    /// Begins to publish `few` events at a time, `pause` apart: a steady load.
    pub(crate) fn publish_steadily(&self, few: usize, pause: Duration) -> JoinHandle<()> {
        let (upstream, events) = (self.upstream(), Arc::clone(&self.events));
        tokio::spawn(async move {
            let mut pace = tokio::time::interval(pause);
            for few in events.chunks(few) {
                pace.tick().await;
                upstream.publish(few).await;
            }
        })
    }

    /// One number from the ledger.
    pub(crate) async fn count(&self, statement: &str) -> usize {
        usize::try_from(self.system.count(statement).await).unwrap()
    }

    /// How many deliveries of these webhooks are stored.
    pub(crate) async fn stored(&self) -> usize {
        self.count(&self.deliveries()).await
    }

    fn deliveries(&self) -> String {
        let [steady, shaky] = &self.webhooks;
        format!("SELECT count(*) FROM deliveries WHERE webhook_id IN ('{}', '{}')", steady.id, shaky.id)
    }

    pub(crate) fn upstream(&self) -> Upstream {
        Upstream::of(&self.system)
    }

    pub(crate) fn event(&self, event_type: EventType) -> Event {
        Event::now(event_type, self.events[0].tenant)
    }

    /// One of the events that are published anyway.
    pub(crate) fn first(&self) -> &Event {
        &self.events[0]
    }

    /// How many deliveries these webhooks must have.
    pub(crate) fn expected(&self) -> usize {
        EVENTS + self.wanted_by_shaky().len()
    }

    fn wanted_by_shaky(&self) -> HashSet<usize> {
        (0..EVENTS).filter(|number| SHAKY.contains(&self.events[*number].event_type)).collect()
    }

    /// How many deliveries of these webhooks are not finished.
    async fn unfinished(&self) -> usize {
        self.expected() - self.count(&format!("{} AND state = 'succeeded'", self.deliveries())).await
    }

    /// POSTs that have arrived.
    pub(crate) fn posts(&self) -> usize {
        self.steady.received().len() + self.shaky.received().len()
    }

    /// POSTs that the ledger knows of.
    pub(crate) async fn recorded(&self) -> usize {
        self.count("SELECT count(*) FROM attempts").await
    }

    /// Waits until everything is delivered and no message is left anywhere, then checks all of it.
    pub(crate) async fn settle(&self, what: &str, dispatchers: &[&Process]) -> Tally {
        self.steady.wait_for(EVENTS, LONG).await;
        until("every delivery has succeeded", LONG, || async { self.unfinished().await == 0 }).await;
        self.quiet(dispatchers).await;
        let tally = self.check().await;
        let (posts, seconds) = (self.posts(), self.began.elapsed().as_secs_f64());
        println!("{what}: {} deliveries, {posts} POSTs, {} repeated, {seconds:.1} s", self.expected(), tally.repeated);
        tally
    }

    /// Waits until nothing can arrive any more.
    async fn quiet(&self, dispatchers: &[&Process]) {
        let names = &self.system.names;
        let outsider = Outsider::connect(&self.system.amqp_url, &names.events_exchange).await;
        let mut queues = self.system.retry_queues();
        queues.extend([names.events(), names.main()]);
        eventually("no message is left in any queue", SOON, || async {
            for queue in &queues {
                if outsider.ready(queue).await > 0 {
                    return None;
                }
            }
            for dispatcher in dispatchers {
                if metric(dispatcher.ops, "webhooks_attempts_in_flight").await > 0.0 {
                    return None;
                }
            }
            Some(())
        })
        .await;
        for queue in [names.rejected(), names.dead(), names.unroutable()] {
            assert_eq!(outsider.ready(&queue).await, 0, "{queue}");
        }
        outsider.close().await;
    }

    async fn check(&self) -> Tally {
        let [steady, shaky] = &self.webhooks;
        let all: HashSet<_> = (0..EVENTS).collect();
        let posts = [
            self.posts_by_delivery(&self.steady, steady, &all).await,
            self.posts_by_delivery(&self.shaky, shaky, &self.wanted_by_shaky()).await,
        ];
        let rows = self.system.sql(
            "SELECT d.id::text, d.attempts, (SELECT count(*) FROM attempts AS a WHERE a.delivery_id = d.id) FROM deliveries AS d",
        );
        let rows = rows.await;
        let recorded: HashMap<String, i64> = rows.iter().map(|row| (row.get(0), row.get(2))).collect();
        assert!(
            rows.iter().all(|row| i64::from(row.get::<_, i16>(1)) == row.get::<_, i64>(2)),
            "each attempt has its row"
        );
        let mut repeated = 0;
        for (id, made) in posts.iter().flatten() {
            let recorded = usize::try_from(recorded[id]).unwrap();
            assert!(recorded <= *made, "{id}: {recorded} attempts are recorded, {made} were made");
            repeated += made - recorded;
        }
        Tally { repeated }
    }

    /// How many POSTs each delivery of a webhook had. Asserts that each event has exactly one id, in the ledger and at
    /// the receiver, and one body.
    async fn posts_by_delivery(
        &self,
        receiver: &Receiver,
        webhook: &Created,
        wanted: &HashSet<usize>,
    ) -> HashMap<String, usize> {
        let (mut ids, mut posts, mut bodies) = (HashMap::new(), HashMap::new(), HashMap::new());
        for one in receiver.received() {
            let body: serde_json::Value = serde_json::from_slice(&one.body).unwrap();
            let number = usize::try_from(body["data"]["number"].as_u64().unwrap()).unwrap();
            let id = one.header("x-service-webhook-id").unwrap().to_owned();
            assert_eq!(*ids.entry(number).or_insert_with(|| id.clone()), id, "event {number} has a second id");
            assert_eq!(
                *bodies.entry(id.clone()).or_insert_with(|| one.body.clone()),
                one.body,
                "{id} has a second body"
            );
            *posts.entry(id).or_insert(0) += 1;
        }
        assert_eq!(ids.keys().copied().collect::<HashSet<_>>(), *wanted, "the events that arrived");
        let in_ledger = format!("SELECT id::text FROM deliveries WHERE webhook_id = '{}'", webhook.id);
        let in_ledger: HashSet<String> = self.system.sql(&in_ledger).await.iter().map(|row| row.get(0)).collect();
        assert_eq!(in_ledger, posts.keys().cloned().collect(), "the ids in the ledger");
        posts
    }
}

/// So many numbers between a tenth and seven tenths of `total`, in order: pseudo-random, the same for each seed.
pub(crate) fn points(mut seed: u64, count: usize, total: usize) -> Vec<usize> {
    let mut points: Vec<_> = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        total / 10 + usize::try_from(seed >> 33).unwrap() % (total * 6 / 10)
    })
    .take(count)
    .collect();
    points.sort_unstable();
    points
}
