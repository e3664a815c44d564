//! Nodes of the broker that answer differently: one blank node is not a broker that lost its disk.

use std::{net::SocketAddr, time::Instant};

use broker::{Broker, BrokerConfig, Names};
use domain::EventType;
use end_to_end::{
    cluster::{Cluster, Node},
    events::Event,
    outsider::Outsider,
    proxy::{Mode, Proxy},
    receiver::{Receiver, always},
    system::{Service, Subscriber, System, TestSystem},
    wait::{SOON, until},
};
use uuid::Uuid;

use crate::rebuild::{LONG, more_passes, options, passes};

/// A broker that knows nothing, with the credentials of another one. Returns its address too.
async fn blank_beside(url: &str) -> (Cluster, String) {
    let blank = start(1).await;
    let (credentials, _) = url.trim_start_matches("amqp://").split_once('@').unwrap();
    let (user, password) = credentials.split_once(':').unwrap();
    if user != "webhooks" {
        blank.rabbitmqctl(1, &["add_user", user, password]);
        blank.rabbitmqctl(1, &["set_permissions", user, ".*", ".*", ".*"]);
    }
    blank.rabbitmqctl(1, &["change_password", user, password]);
    let own = url::Url::parse(&blank.servers().amqp_url).unwrap();
    let (host, port) = (own.host_str().unwrap().to_owned(), own.port().unwrap());
    let mut beside = url::Url::parse(url).unwrap();
    beside.set_host(Some(&host)).unwrap();
    beside.set_port(Some(port)).unwrap();
    (blank, beside.to_string())
}

async fn start(brokers: usize) -> Cluster {
    tokio::task::spawn_blocking(move || Cluster::start(brokers, 0)).await.unwrap()
}

/// All services, with these addresses of the broker, and something to deliver.
struct Scene<'s> {
    system: &'s System,
    tenant: Uuid,
    receiver: Receiver,
    ingest: SocketAddr,
    expected: usize,
}

impl<'s> Scene<'s> {
    async fn open(system: &'s System, addresses: &str) -> Self {
        let settings = system.settings_with(&[("BROKER__URL", addresses)]);
        system.start_with(Service::Api, settings.clone()).await;
        let ingest = system.start_with(Service::Ingest, settings.clone()).await;
        system.start_with(Service::Dispatcher, settings).await;
        let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
        Self { system, tenant, receiver, ingest, expected: 0 }
    }

    async fn delivers(&mut self) {
        self.system.upstream.publish(&[Event::now(EventType::QuoteClosed, self.tenant)]).await;
        self.expected += 1;
        self.receiver.wait_for(self.expected, LONG).await;
    }

    async fn assert_never_rebuilt(&self, generation: &[Uuid]) {
        more_passes(self.ingest, "done", 5.0).await;
        assert_eq!(passes(self.ingest, "rebuilt").await, 0.0);
        assert_eq!(self.system.generations().await, generation);
    }
}

fn queues(blank: &Cluster) -> String {
    blank.rabbitmqctl(1, &["list_queues", "name"])
}

/// Makes the queues and the sentinel. Returns the generation.
async fn generation(system: &System) -> Vec<Uuid> {
    let ingest = system.start(Service::Ingest).await;
    more_passes(ingest, "done", 1.0).await;
    system.stop(Service::Ingest).await;
    system.generations().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blank_node_among_the_addresses_or_behind_a_balancer_gets_no_queue_and_starts_no_rebuild() {
    let system = TestSystem::prepared(options()).await;
    let generation = generation(&system).await;
    let (blank, beside) = blank_beside(&system.amqp_url).await;
    let (main, through) = Proxy::before(&system.amqp_url);
    let mut scene = Scene::open(&system, &format!("{beside},{through}")).await;
    scene.delivers().await;

    main.set(Mode::Refuse);
    more_passes(scene.ingest, "failed", 5.0).await;
    main.set(Mode::Pass);

    scene.delivers().await;
    scene.assert_never_rebuilt(&generation).await;
    assert_eq!(queues(&blank), "");
    for service in [Service::Api, Service::Ingest, Service::Dispatcher] {
        system.stop(service).await;
    }

    let (balancer, through) = Proxy::balancing(&format!("{},{beside}", system.amqp_url));
    let mut scene = Scene::open(&system, &through).await;
    for _ in 0..5 {
        balancer.cut();
        scene.delivers().await;
        scene.assert_never_rebuilt(&generation).await;
    }
    assert_eq!(queues(&blank), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_counts_when_more_than_half_of_the_nodes_confirm_it() {
    let system = TestSystem::prepared(options()).await;
    generation(&system).await;
    let ((first, one), (_second, other)) = (Proxy::before(&system.amqp_url), Proxy::before(&system.amqp_url));
    let mut scene = Scene::open(&system, &format!("{one},{other}")).await;
    first.set(Mode::Refuse);
    system.lose_generation().await;
    more_passes(scene.ingest, "doubtful", 5.0).await;
    assert_eq!(passes(scene.ingest, "rebuilt").await, 0.0, "the node that does not answer may have it");

    first.set(Mode::Pass);
    let ingest = scene.ingest;
    until("it is rebuilt", SOON, || async { passes(ingest, "rebuilt").await > 0.0 }).await;
    scene.delivers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_whose_leader_is_silent_is_not_empty() {
    let cluster = start(3).await;
    let (names, queue) = (Names::new("silent", "silent.business"), "silent.deliveries");
    let config = |uri: &str| BrokerConfig {
        uri: uri.to_owned(),
        password_file: None,
        tls: Default::default(),
        names: names.clone(),
        gaps: Vec::new(),
        confirm_timeout: SOON,
        process: "test",
    };
    let all = Broker::new(&config(&cluster.servers().amqp_url)).unwrap();
    assert_eq!(all.depth_shown(queue).await.unwrap(), Some(0));
    let outsider = Outsider::connect(&cluster.servers().amqp_url, "").await;
    for _ in 0..3 {
        outsider.publish_to("silent", queue, b"a job").await;
    }
    assert_eq!(all.depth_shown(queue).await.unwrap(), Some(3));
    let leader = cluster.leader_of(queue, 1);
    // Only the others are asked. They have been connected to before, as connecting takes longer than an election.
    let others = cluster.servers().amqp_url.split(',').enumerate().filter(|(index, _)| index + 1 != leader);
    let others: Vec<_> = others.map(|(_, uri)| Broker::new(&config(uri)).unwrap()).collect();
    for broker in &others {
        assert_eq!(broker.depth(queue).await.unwrap(), Some(3));
    }
    cluster.freeze(Node::Broker(leader));
    let (mut is_hidden, end) = (false, Instant::now() + LONG);
    loop {
        let (shown, proven) = tokio::join!(others[0].depth(queue), others[1].depth_shown(queue));
        is_hidden |= matches!(shown, Ok(Some(0)));
        match proven {
            Ok(Some(3)) => break,
            Err(error) => println!("nobody leads: {error}"),
            Ok(wrong) => panic!("{wrong:?} of 3 messages"),
        }
        assert!(Instant::now() < end, "nobody leads");
    }
    assert!(is_hidden, "the leader was replaced so soon that this shows nothing");
}
