//! The brake: nobody's schedule is used up while no receiver can be reached, and no dead platform stops the others.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
    time::Duration,
};

use domain::{EventType, Job, WebhookId};
use end_to_end::{
    events::Event,
    name_server::{NameServer, Say},
    receiver::{Receiver, always},
    system::{Options, Service, System, metric},
    wait::{SOON, eventually},
};
use futures_util::future::join_all;
use service_kit::Settings;
use time::OffsetDateTime;
use tokio::time::interval;
use uuid::Uuid;

/// A brake needs a minute of failures.
const LONG: Duration = Duration::from_secs(180);
const TENANTS: usize = 5;
const EACH: usize = 2;
const RECEIVERS: usize = TENANTS * EACH;
const BRAKED: &str = r#"webhooks_brake{reason="no_answer"}"#;
const PROBES: &str = "webhooks_brake_probes_total";
const HARMLESS: &str = r#"webhooks_brake_probes_total{reached="true"}"#;
/// TCP refuses to connect to a broadcast address: the network is unreachable.
const NOWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 255, 255, 255));
const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// The answers of the name server.
#[derive(Clone)]
struct Names(Arc<AtomicU8>);

impl Names {
    const WELL: u8 = 0;
    const SILENT: u8 = 1;
    const NOWHERE: u8 = 2;

    fn set(&self, how: u8) {
        self.0.store(how, SeqCst);
    }
}

/// A name server for all receivers.
async fn name_server() -> (NameServer, Names) {
    let names = Names(Arc::default());
    let how = names.clone();
    let server = NameServer::start(move |_, _| match how.0.load(SeqCst) {
        Names::SILENT => Say::Silence,
        Names::NOWHERE => Say::Addresses(vec![NOWHERE]),
        _ => Say::Addresses(vec![HERE]),
    })
    .await;
    (server, names)
}

/// The whole schedule is shorter than an outage. No connection is left from before it.
fn options(server: &NameServer) -> Options {
    let settings =
        vec![("EGRESS__NAME_SERVERS", server.address().to_string()), ("EGRESS__MAX_IDLE_PER_HOST", "0".to_owned())];
    Options { schedule: "2s,4s", timeout: "4s", settings, ..Options::default() }
}

/// A URL whose host a name server is asked for.
fn url(receiver: &Receiver) -> String {
    format!("https://one.receiver.example:{}/", receiver.addr().port())
}

/// Some tenants with some receivers each.
struct World {
    system: Arc<System>,
    tenants: Vec<Uuid>,
    receivers: Vec<Receiver>,
}

impl World {
    /// With API and ingest.
    async fn new(system: Arc<System>) -> Self {
        Self::of(system, TENANTS, EACH).await
    }

    async fn of(system: Arc<System>, tenants: usize, each: usize) -> Self {
        system.start(Service::Api).await;
        system.start(Service::Ingest).await;
        let (count, mut tenants, mut receivers) = (tenants, Vec::new(), Vec::new());
        for _ in 0..count {
            let tenant = Uuid::new_v4();
            let admin = system.admin(tenant).await;
            for _ in 0..each {
                let receiver = Receiver::start(&system.ca, always(200));
                admin.create(&url(&receiver), &["quote.closed"]).await;
                receivers.push(receiver);
            }
            tenants.push(tenant);
        }
        Self { system, tenants, receivers }
    }

    /// The same, once each receiver has had one delivery.
    async fn known(system: Arc<System>) -> Self {
        Self::new(system).await.delivered().await
    }

    /// Each receiver has had one delivery.
    async fn delivered(self) -> Self {
        self.publish(1).await;
        self.wait_for(1).await;
        self.until_succeeded(1).await;
        self
    }

    async fn until_succeeded(&self, each: usize) {
        let recorded = "deliveries WHERE state = 'succeeded'";
        let are = || async { (self.count(recorded).await == (each * self.receivers.len()) as i64).then_some(()) };
        eventually("all are recorded as delivered", SOON, are).await;
    }

    /// Each receiver gets one delivery for each event. Their events alternate.
    async fn publish(&self, each: usize) {
        let of_each = |_| self.tenants.iter().map(|tenant| Event::now(EventType::QuoteClosed, *tenant));
        let events: Vec<Event> = (0..each).flat_map(of_each).collect();
        self.system.upstream.publish(&events).await;
    }

    async fn wait_for(&self, each: usize) {
        join_all(self.receivers.iter().map(|receiver| receiver.wait_for(each, LONG))).await;
    }

    async fn count(&self, what: &str) -> i64 {
        self.system.count(&format!("SELECT count(*) FROM {what}")).await
    }

    /// Nothing is charged: no failure is in the ledger.
    async fn assert_nothing_is_used_up(&self) {
        let failed = self.count("webhook_health WHERE failure_count > 0 OR failing_since IS NOT NULL").await;
        let attempts = self.count("attempts WHERE outcome <> 'success'").await;
        let dropped =
            self.count("deliveries WHERE state NOT IN ('pending', 'succeeded') OR first_failed_at IS NOT NULL").await;
        assert_eq!((failed, attempts, dropped), (0, 0, 0), "webhooks that fail, failed attempts, deliveries");
    }
}

async fn until(ops: SocketAddr, name: &str, value: f64) {
    eventually(&format!("{name} is {value}"), LONG, || async { (metric(ops, name).await == value).then_some(()) })
        .await;
}

/// Deliveries before, in and after an outage of all receivers together, as a dispatcher sees it. `begins` and `ends` return
/// the address of the dispatcher from then on.
async fn survives(
    system: Arc<System>,
    begins: impl AsyncFnOnce(&System, SocketAddr) -> SocketAddr,
    ends: impl AsyncFnOnce(&System, SocketAddr) -> SocketAddr,
) {
    let ops = system.start(Service::Dispatcher).await;
    let world = World::known(system).await;
    let ops = begins(&world.system, ops).await;
    world.publish(2).await;
    until(ops, BRAKED, 1.0).await;
    world.assert_nothing_is_used_up().await;
    world.publish(1).await;
    world.system.upstream.wait_ready(&world.system.names.events(), 0, LONG).await;
    assert_eq!(metric(ops, "webhooks_ready ").await, 1.0, "a braked dispatcher is well");
    eventually("the ledger has it", SOON, || async {
        (world.count("brakes WHERE reason = 'no_answer'").await == 1).then_some(())
    })
    .await;
    // It is probed and renewed for a while: the jobs stay where they are.
    let probes = metric(ops, PROBES).await;
    eventually("two probes more", LONG, || async { (metric(ops, PROBES).await >= probes + 2.0).then_some(()) }).await;
    let counts = world.system.upstream.delivery_counts(&world.system.names.main()).await;
    assert!(counts.len() >= RECEIVERS && counts.iter().all(|count| *count <= 3), "{counts:?}");
    let ops = ends(&world.system, ops).await;
    world.wait_for(4).await;
    until(ops, BRAKED, 0.0).await;
    for receiver in &world.receivers {
        assert_eq!(receiver.received_once().len(), 4);
    }
    world.until_succeeded(4).await;
    world.assert_nothing_is_used_up().await;
}

/// One that starts meanwhile, or after the only one was stopped, has not to find out at the cost of its jobs.
async fn survives_names(how: u8, is_stopped: bool) {
    let (server, names) = name_server().await;
    System::prepared(options(&server), async |system| {
        let begins = async |_: &System, ops| {
            names.set(how);
            ops
        };
        let ends = async |system: &System, ops| {
            if is_stopped {
                system.stop(Service::Dispatcher).await;
            }
            let other = system.start(Service::Dispatcher).await;
            until(other, BRAKED, 1.0).await;
            assert_eq!(metric(other, "webhooks_ledger_read_batch_size_count").await, 0.0);
            names.set(Names::WELL);
            until(other, BRAKED, 0.0).await;
            if is_stopped { other } else { ops }
        };
        survives(system, begins, ends).await;
    })
    .await;
}

async fn survives_a_lost_authority() {
    let (server, _names) = name_server().await;
    System::prepared(options(&server), async |system| {
        let restart = |with_authority: bool| {
            async move |system: &System, _| {
                system.stop(Service::Dispatcher).await;
                let mut variables = system.variables.clone();
                if !with_authority {
                    variables.remove("WEBHOOKS__EGRESS__EXTRA_CA_FILE").unwrap();
                }
                let settings = Settings::from_sources(None, variables).unwrap();
                system.start_with(Service::Dispatcher, settings).await
            }
        };
        survives(system, restart(false), restart(true)).await;
    })
    .await;
}

/// They wait for the same minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_used_up_while_no_receiver_can_be_reached_and_a_dead_platform_stops_nobody() {
    tokio::join!(
        survives_names(Names::SILENT, false),
        survives_names(Names::NOWHERE, true),
        survives_a_lost_authority(),
        a_dead_platform_is_charged_and_stops_nobody(),
        a_platform_of_200_tenants_that_was_dead_already_is_not_even_probed(),
        only_the_dispatcher_without_a_way_out_brakes(),
        each_of_three_dispatchers_without_a_way_out_brakes(),
        while_half_of_the_destinations_are_dead_nobody_brakes(),
        in_a_quiet_night_one_failing_webhook_brakes_nobody()
    );
}

async fn a_dead_platform_is_charged_and_stops_nobody() {
    let (server, _) = name_server().await;
    System::prepared(options(&server), async |system| {
        let ops = system.start(Service::Dispatcher).await;
        let world = World::known(system).await;
        // Nothing was ever sent there.
        let (tenant, healthy) = (Uuid::new_v4(), Receiver::start(&world.system.ca, always(200)));
        world.system.admin(tenant).await.create(&url(&healthy), &["quote.closed"]).await;
        join_all(world.receivers.iter().map(Receiver::stop)).await;
        world.publish(2).await;
        eventually("a probe reaches somebody", LONG, || async {
            assert_eq!(metric(ops, "webhooks_brake{").await, 0.0, "it is probed before the brake is set");
            (metric(ops, HARMLESS).await == 1.0).then_some(())
        })
        .await;
        assert_eq!(world.count("deliveries WHERE state = 'dropped'").await, 2 * RECEIVERS as i64);
        world.system.upstream.publish(&[Event::now(EventType::QuoteClosed, tenant)]).await;
        healthy.wait_for(1, Duration::from_secs(2)).await;
    })
    .await;
}

/// It has been dead for an hour, and nobody else gets anything.
async fn a_platform_of_200_tenants_that_was_dead_already_is_not_even_probed() {
    let (server, _) = name_server().await;
    // The last attempt ends when the failures have lasted for a minute.
    System::prepared(Options { schedule: "2s,65s", ..options(&server) }, async |system| {
        let ops = system.start(Service::Dispatcher).await;
        let world = World::of(system, 200, 1).await.delivered().await;
        let (tenant, healthy) = (Uuid::new_v4(), Receiver::start(&world.system.ca, always(200)));
        world.system.admin(tenant).await.create(&url(&healthy), &["quote.closed"]).await;
        join_all(world.receivers.iter().map(Receiver::stop)).await;
        let an_hour = "UPDATE webhook_health SET failing_since = now() - interval '1 hour', failure_count = 1, \
                       last_success_at = now() - interval '61 minutes'";
        world.system.sql(an_hour).await;
        world.publish(1).await;
        eventually("all are dropped", LONG, || async {
            (world.count("deliveries WHERE state = 'dropped'").await == 200).then_some(())
        })
        .await;
        assert_eq!(metric(ops, PROBES).await, 0.0);
        assert_eq!(metric(ops, "webhooks_brake{").await, 0.0);
        world.system.upstream.publish(&[Event::now(EventType::QuoteClosed, tenant)]).await;
        healthy.wait_for(1, Duration::from_secs(2)).await;
    })
    .await;
}

async fn only_the_dispatcher_without_a_way_out_brakes() {
    let ((server, _), (silent, names)) = (name_server().await, name_server().await);
    System::prepared(options(&server), async |system| {
        let well = system.start(Service::Dispatcher).await;
        // An odd number, as the jobs go to the two in turn: each of them meets every receiver.
        let world = World::of(Arc::clone(&system), RECEIVERS + 1, 1).await.delivered().await;
        let mut variables = system.variables.clone();
        variables.insert("WEBHOOKS__EGRESS__NAME_SERVERS".to_owned(), silent.address().to_string());
        names.set(Names::SILENT);
        let without = system.start_with(Service::Dispatcher, Settings::from_sources(None, variables).unwrap()).await;
        world.publish(10).await;
        until(without, BRAKED, 1.0).await;
        world.publish(10).await;
        world.wait_for(21).await;
        world.until_succeeded(21).await;
        assert_eq!(metric(well, "webhooks_brake{").await, 0.0);
        world.assert_nothing_is_used_up().await;
    })
    .await;
}

/// An event each second is divided among them.
async fn each_of_three_dispatchers_without_a_way_out_brakes() {
    let (server, names) = name_server().await;
    System::prepared(options(&server), async |system| {
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(system.start(Service::Dispatcher).await);
        }
        let world = World::known(Arc::clone(&system)).await;
        names.set(Names::SILENT);
        let events = async {
            let mut pace = interval(Duration::from_secs(1));
            for tenant in world.tenants.iter().cycle() {
                pace.tick().await;
                system.upstream.publish(&[Event::now(EventType::QuoteClosed, *tenant)]).await;
            }
        };
        tokio::select! {
            () = events => {}
            _ = join_all(all.iter().map(|ops| until(*ops, BRAKED, 1.0))) => {}
        }
    })
    .await;
}

/// Half of the receivers of each tenant.
async fn while_half_of_the_destinations_are_dead_nobody_brakes() {
    let (server, _) = name_server().await;
    System::prepared(Options { schedule: "2s,65s", ..options(&server) }, async |system| {
        let ops = system.start(Service::Dispatcher).await;
        let world = World::of(Arc::clone(&system), TENANTS, 2 * EACH).await.delivered().await;
        let (dead, well): (Vec<_>, Vec<_>) = world.receivers.iter().enumerate().partition(|(place, _)| place % 2 == 0);
        join_all(dead.iter().map(|(_, receiver)| receiver.stop())).await;
        let events = async {
            let mut pace = interval(Duration::from_secs(2));
            for published in 1.. {
                pace.tick().await;
                world.publish(1).await;
                join_all(well.iter().map(|(_, receiver)| receiver.wait_for(published + 1, SOON))).await;
            }
        };
        let dropped = eventually("the first ones are dropped", LONG, || async {
            (world.count("deliveries WHERE state = 'dropped'").await >= dead.len() as i64).then_some(())
        });
        tokio::select! {
            () = events => {}
            () = dropped => {}
        }
        assert_eq!(metric(ops, "webhooks_brake{").await, 0.0);
        assert_eq!(metric(ops, PROBES).await, 0.0);
    })
    .await;
}

async fn in_a_quiet_night_one_failing_webhook_brakes_nobody() {
    let (server, _) = name_server().await;
    System::prepared(Options { schedule: "2s,65s", ..options(&server) }, async |system| {
        let ops = system.start(Service::Dispatcher).await;
        let world = World::of(Arc::clone(&system), TENANTS, 1).await.delivered().await;
        world.receivers[0].stop().await;
        let events: Vec<_> = (0..50).map(|_| Event::now(EventType::QuoteClosed, world.tenants[0])).collect();
        system.upstream.publish(&events).await;
        eventually("all are dropped", LONG, || async {
            (world.count("deliveries WHERE state = 'dropped'").await == 50).then_some(())
        })
        .await;
        assert_eq!(metric(ops, "webhooks_brake{").await, 0.0);
        assert_eq!(metric(ops, PROBES).await, 0.0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_one_tenant_alone_cannot_reach_is_charged() {
    let (server, names) = name_server().await;
    System::prepared(options(&server), async |system| {
        for service in [Service::Api, Service::Ingest, Service::Dispatcher] {
            system.start(service).await;
        }
        let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
        let admin = system.admin(tenant).await;
        let webhook = admin.create(&url(&receiver), &["quote.closed"]).await;
        let publish = async || system.upstream.publish(&[Event::now(EventType::QuoteClosed, tenant)]).await;
        publish().await;
        receiver.wait_for(1, SOON).await;
        admin.newest_in(&webhook.id, "succeeded").await;
        names.set(Names::NOWHERE);
        publish().await;
        let dropped = admin.newest_in(&webhook.id, "dropped").await;
        assert_eq!(dropped["attempts"], 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operators_brake_stops_all_dispatchers_until_it_is_released() {
    let (server, _) = name_server().await;
    System::prepared(options(&server), async |system| {
        system.ledger_as("operator", 1).brake_all("a test").await.unwrap();
        // A dispatcher that starts meanwhile begins nothing either.
        let all = [system.start(Service::Dispatcher).await, system.start(Service::Dispatcher).await];
        for ops in all {
            until(ops, r#"webhooks_brake{reason="operator"}"#, 1.0).await;
        }
        let world = World::new(Arc::clone(&system)).await;
        world.publish(1).await;
        system.upstream.wait_ready(&system.names.main(), RECEIVERS as u32, SOON).await;
        assert_eq!(system.upstream.consumers(&system.names.main()).await, 0);
        assert!(world.receivers.iter().all(|receiver| receiver.received().is_empty()));
        assert!(system.ledger_as("operator", 1).brake_release(None).await.unwrap());
        world.wait_for(1).await;
        assert!(!system.ledger_as("operator", 1).brake_release(None).await.unwrap());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operators_brake_is_seen_within_three_seconds_while_jobs_hold_all_other_connections() {
    let options = Options { settings: vec![("DATABASE__MAX_CONNECTIONS", "2".to_owned())], ..Options::default() };
    System::prepared(options, async |system| {
        system.start(Service::Api).await;
        system.start(Service::Ingest).await;
        let ops = system.start(Service::Dispatcher).await;
        let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
        system.admin(tenant).await.create(&receiver.url("/"), &["quote.closed"]).await;
        system.upstream.publish(&[Event::now(EventType::QuoteClosed, tenant)]).await;
        receiver.wait_for(1, SOON).await;
        system.stop(Service::Ingest).await;
        system.stop(Service::Api).await;
        let job = system.sql("SELECT id::text FROM deliveries").await[0].get::<_, String>(0);
        let lock = system.database_session("BEGIN; LOCK TABLE deliveries").await;
        let job = Job { delivery: job.parse().unwrap(), attempt: 2 };
        system.upstream.publish_to(&system.names.exchange(), &system.names.main(), &job.to_bytes()).await;
        system.wait_for_locked_out(1).await;
        system.ledger_as("operator", 1).brake_all("a test").await.unwrap();
        eventually("it is seen", Duration::from_secs(3), || async {
            (metric(ops, r#"webhooks_brake{reason="operator"}"#).await == 1.0).then_some(())
        })
        .await;
        drop(lock);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_go_round_all_tenants_with_active_webhooks() {
    System::prepared(Options::default(), async |system| {
        let add = |tenant: &str, url: &str, is_active: bool| {
            format!(
                "INSERT INTO webhooks (id, tenant_id, name, url, events, secret_key_id, secret_sealed, is_active) SELECT \
                     gen_random_uuid(), {tenant}, 'w', {url}, '{{}}', 'test', '', {is_active} FROM generate_series(1, 100) AS n"
            )
        };
        let own = "lpad(n::text, 32, '0')::uuid";
        system.sql(&add(own, "'https://h' || n || '.example/'", true)).await;
        // One tenant has many webhooks of one host, and further hosts; others are paused.
        let first = "lpad('1', 32, '0')::uuid";
        system.sql(&add(first, "'https://same.example/' || n", true)).await;
        system.sql(&add("gen_random_uuid()", "'https://paused.example/'", false)).await;
        let ledger = system.ledger_as("prober", 1);
        let (urls, next) = ledger.receivers_to_probe(None, 50).await.unwrap();
        assert_eq!((urls.len(), next.is_some()), (51, true), "{urls:?}");
        assert_eq!(urls.iter().filter(|url| url.starts_with("https://same.example/")).count(), 1);
        let (urls, next) = ledger.receivers_to_probe(next, 50).await.unwrap();
        assert_eq!((urls.len(), next.is_some()), (50, true));
        let (urls, next) = ledger.receivers_to_probe(next, 50).await.unwrap();
        assert_eq!((urls.len(), next.is_some()), (0, false), "the end: probes begin with the first tenant again");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_that_succeeded_lately_and_were_not_failing_are_well() {
    System::prepared(Options::default(), async |system| {
        let webhook = |number: u32| format!("00000000-0000-0000-0000-{number:012}");
        for (number, succeeded, failing) in [
            (1, "NULL", "NULL"),
            (2, "30", "NULL"),
            (3, "30", "5"),
            (4, "30", "20"),
            (5, "90", "NULL"),
            (6, "1500", "NULL"),
        ] {
            let ago = |minutes: &str| format!("now() - {minutes}::float8 * interval '1 minute'");
            system
                .sql(&format!(
                    "INSERT INTO webhook_health (webhook_id, failure_count, last_success_at, failing_since) \
                         VALUES ('{}', 0, {}, {})",
                    webhook(number),
                    ago(succeeded),
                    ago(failing)
                ))
                .await;
        }
        let ledger = system.ledger_as("judge", 1);
        let all: Vec<WebhookId> = (1..=7).map(|number| webhook(number).parse::<Uuid>().unwrap().into()).collect();
        let now = OffsetDateTime::now_utc();
        for (minutes, well) in [(0, vec![2, 5]), (10, vec![2, 3, 5]), (60, vec![2, 3, 4, 5])] {
            let failing_from = now - time::Duration::minutes(minutes);
            let mut found: Vec<_> = ledger.receivers_well(&all, failing_from).await.unwrap();
            found.sort_unstable();
            let expected: Vec<WebhookId> = well.iter().map(|number| all[*number - 1]).collect();
            assert_eq!(found, expected, "not failing {minutes} minutes ago");
        }
    })
    .await;
}
