//! The brake: our own outage costs a delivery one or two of its attempts, and nothing that one tenant's receivers do stops the
//! others.

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use domain::{EventType, Job, WebhookId};
use end_to_end::{
    events::Event,
    name_server::{NameServer, Say},
    processes::Process,
    receiver::{Receiver, always},
    system::{Options, Service, System, metric},
    wait::{SOON, eventually},
};
use futures_util::future::join_all;
use time::OffsetDateTime;
use tokio::time::interval;
use uuid::Uuid;

type Environment = HashMap<String, String>;

/// A brake needs a minute of failures.
const LONG: Duration = Duration::from_secs(180);
const TENANTS: usize = 5;
const EACH: usize = 2;
const RECEIVERS: usize = TENANTS * EACH;
const ANY_BRAKE: &str = "webhooks_brake{";
const BRAKED: &str = r#"webhooks_brake{reason="no_answer"}"#;
const PROBES: &str = "webhooks_brake_probes_total";
const HARMLESS: &str = r#"webhooks_brake_probes_total{reached="true"}"#;
/// The third and last attempt is due when an outage has lasted for 90 s.
const SCHEDULE: &str = "30s,90s";
const NAME_SERVERS: &str = "WEBHOOKS__EGRESS__NAME_SERVERS";
const CANARY_URL: &str = "WEBHOOKS__EGRESS__CANARY_URL";

/// Where the receivers are.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// TCP refuses to connect to a broadcast address: the network is unreachable.
const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 255, 255, 255));
/// Something there accepts connections and is silent, as if packets vanished.
const SILENT_PLACE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));
/// Where a receiver is that only the allowed networks open.
const INTERNAL: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// The answers of the name server.
#[derive(Clone)]
struct Names(Arc<AtomicU8>);

impl Names {
    const WELL: u8 = 0;
    const SILENT: u8 = 1;
    const NOWHERE: u8 = 2;
    const VANISHING: u8 = 3;

    fn set(&self, how: u8) {
        self.0.store(how, SeqCst);
    }
}

/// A name server for all receivers. Those whose names begin with `internal` are always well.
async fn name_server() -> (NameServer, Names) {
    let names = Names(Arc::default());
    let how = names.clone();
    let server = NameServer::start(move |name, _| match how.0.load(SeqCst) {
        _ if name.starts_with("internal") => Say::Addresses(vec![INTERNAL]),
        Names::SILENT => Say::Silence,
        Names::NOWHERE => Say::Addresses(vec![NOWHERE]),
        Names::VANISHING => Say::Addresses(vec![SILENT_PLACE]),
        _ => Say::Addresses(vec![HERE]),
    })
    .await;
    (server, names)
}

/// No connection is left from before an outage.
fn options(server: &NameServer) -> Options {
    let settings =
        vec![("EGRESS__NAME_SERVERS", server.address().to_string()), ("EGRESS__MAX_IDLE_PER_HOST", "0".to_owned())];
    Options { schedule: SCHEDULE, timeout: "4s", settings, ..Options::default() }
}

/// The settings of a dispatcher for which the receivers of these tests are at public addresses.
fn public(system: &System) -> Environment {
    let mut variables = system.variables.clone();
    let addresses = [HERE, NOWHERE, SILENT_PLACE].map(|address| address.to_string()).join(",");
    variables.insert("WEBHOOKS_FAULT_PUBLIC".to_owned(), addresses);
    variables
}

async fn dispatcher(variables: &Environment) -> Process {
    Process::start("dispatcher", variables).await
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
        // A registration has a second at the database, and a dozen systems begin together.
        static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let _turn = ONE_AT_A_TIME.lock().await;
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
        self.until_count((each * self.receivers.len()) as i64, "deliveries WHERE state = 'succeeded'").await;
    }

    async fn until_count(&self, count: i64, what: &str) {
        eventually(what, LONG, || async { (self.count(what).await == count).then_some(()) }).await;
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

    async fn stop_receivers(&self) {
        join_all(self.receivers.iter().map(Receiver::stop)).await;
    }

    /// A webhook of another tenant.
    async fn add(&self, url: &str) -> Uuid {
        let tenant = Uuid::new_v4();
        self.system.admin(tenant).await.create(url, &["quote.closed"]).await;
        tenant
    }

    /// Events of all tenants in turn, at a pace, for ever.
    async fn publish_steadily(&self, pace: Duration) {
        let mut pace = interval(pace);
        for tenant in self.tenants.iter().cycle() {
            pace.tick().await;
            self.system.upstream.publish(&[Event::now(EventType::QuoteClosed, *tenant)]).await;
        }
    }
}

async fn until(ops: SocketAddr, name: &str, value: f64) {
    eventually(&format!("{name} is {value}"), LONG, || async { (metric(ops, name).await == value).then_some(()) })
        .await;
}

async fn assert_no_brake(dispatcher: &Process) {
    assert_eq!(metric(dispatcher.ops, ANY_BRAKE).await, 0.0);
}

async fn assert_no_page(dispatcher: &Process) {
    assert_no_brake(dispatcher).await;
    assert_eq!(metric(dispatcher.ops, PROBES).await, 0.0);
}

/// Deliveries before, in and after an outage of all receivers together. `begins` and `ends` get the dispatcher, and return the one
/// from then on.
async fn survives(
    system: Arc<System>,
    begins: impl AsyncFnOnce(Process) -> Process,
    ends: impl AsyncFnOnce(Process) -> Process,
) {
    let dispatcher = dispatcher(&public(&system)).await;
    let world = World::known(system).await;
    let dispatcher = begins(dispatcher).await;
    let began = Instant::now();
    world.publish(2).await;
    until(dispatcher.ops, BRAKED, 1.0).await;
    println!("{BRAKED} after {:?}", began.elapsed());
    let used_up = world.count("deliveries WHERE state <> 'succeeded' AND attempts NOT BETWEEN 1 AND 2").await;
    assert_eq!(used_up, 0, "the outage costs one or two attempts");
    world.publish(1).await;
    world.system.upstream.wait_ready(&world.system.names.events(), 0, LONG).await;
    assert_eq!(metric(dispatcher.ops, "webhooks_ready ").await, 1.0, "a braked dispatcher is well");
    world.until_count(1, "brakes WHERE reason = 'no_answer'").await;
    // It asks and renews for a while: the jobs stay where they are, also those of the last attempts.
    let probes = metric(dispatcher.ops, PROBES).await;
    eventually("two pages more", LONG, || async {
        (metric(dispatcher.ops, PROBES).await >= probes + 2.0).then_some(())
    })
    .await;
    world.system.upstream.wait_ready(&world.system.names.main(), 3 * RECEIVERS as u32, LONG).await;
    let counts = world.system.upstream.delivery_counts(&world.system.names.main()).await;
    assert!(counts.iter().all(|count| *count <= 3), "{counts:?}");
    let dispatcher = ends(dispatcher).await;
    world.wait_for(4).await;
    until(dispatcher.ops, BRAKED, 0.0).await;
    for receiver in &world.receivers {
        assert_eq!(receiver.received_once().len(), 4);
    }
    world.until_succeeded(4).await;
}

/// One that starts meanwhile, or after the only one was stopped, has not to find out at the cost of its jobs.
async fn survives_names(how: u8, is_stopped: bool) {
    let (server, names) = name_server().await;
    System::prepared(options(&server), async |system| {
        let (variables, mut lives_on) = (public(&system), None);
        let begins = async |dispatcher| {
            names.set(how);
            dispatcher
        };
        let ends = async |first: Process| {
            if is_stopped {
                first.terminate().await;
            } else {
                lives_on = Some(first);
            }
            let other = dispatcher(&variables).await;
            until(other.ops, BRAKED, 1.0).await;
            assert_eq!(metric(other.ops, "webhooks_ledger_read_batch_size_count").await, 0.0);
            names.set(Names::WELL);
            until(other.ops, BRAKED, 0.0).await;
            if let Some(first) = &lives_on {
                until(first.ops, BRAKED, 0.0).await;
            }
            other
        };
        survives(system, begins, ends).await;
    })
    .await;
}

async fn survives_a_lost_authority() {
    let (server, _names) = name_server().await;
    System::prepared(options(&server), async |system| {
        let variables = public(&system);
        let mut without = variables.clone();
        without.remove("WEBHOOKS__EGRESS__EXTRA_CA_FILE").unwrap();
        let restart = |variables: Environment| {
            async move |first: Process| {
                first.terminate().await;
                dispatcher(&variables).await
            }
        };
        survives(system, restart(without), restart(variables)).await;
    })
    .await;
}

/// They wait for the same minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_ours_costs_one_or_two_attempts() {
    tokio::join!(
        survives_names(Names::SILENT, false),
        survives_names(Names::NOWHERE, true),
        survives_a_lost_authority(),
        only_the_dispatcher_without_a_way_out_brakes(),
        each_of_three_dispatchers_without_a_way_out_brakes(),
        an_unreachable_canary_brakes_for_one_tenant_until_there_is_nobody_to_ask(),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_receivers_do_brakes() {
    tokio::join!(
        a_dead_platform_is_charged_and_stops_nobody(),
        a_platform_of_200_tenants_that_was_dead_already_is_not_even_probed(),
        while_half_of_the_destinations_are_dead_nobody_brakes(),
        one_tenant_with_many_dead_receivers_brakes_nobody(),
        receivers_in_allowed_networks_do_not_count(),
        a_canary_that_can_be_reached_proves_a_way_out(),
        an_unreachable_canary_alone_brakes_nobody(),
    );
}

/// With a receiver in an allowed network that answers all the time.
async fn brakes_within(limit: Duration, how: u8) {
    let (server, names) = name_server().await;
    System::prepared(Options { timeout: "10s", ..options(&server) }, async |system| {
        let dispatcher = dispatcher(&public(&system)).await;
        let mut world = World::known(Arc::clone(&system)).await;
        let silent = |receiver: &Receiver| TcpListener::bind((SILENT_PLACE, receiver.addr().port())).unwrap();
        let _silent: Vec<_> = world.receivers.iter().map(silent).collect();
        let internal = Receiver::start_on((INTERNAL, 0).into(), &system.ca, always(200));
        let url = format!("https://internal.receiver.example:{}/", internal.addr().port());
        let tenant = world.add(&url).await;
        world.tenants.push(tenant);
        names.set(how);
        let began = Instant::now();
        tokio::select! {
            () = world.publish_steadily(Duration::from_millis(15)) => {}
            () = until(dispatcher.ops, BRAKED, 1.0) => {}
        }
        assert!(began.elapsed() < limit, "{:?}", began.elapsed());
        println!("{how}: braked after {:?}", began.elapsed());
        assert!(internal.arrived() > 10, "{} deliveries", internal.arrived());
        names.set(Names::WELL);
        until(dispatcher.ops, BRAKED, 0.0).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_a_hundred_deliveries_a_second_seconds_are_enough() {
    brakes_within(Duration::from_secs(15), Names::NOWHERE).await;
    brakes_within(Duration::from_secs(25), Names::VANISHING).await;
}

async fn a_dead_platform_is_charged_and_stops_nobody() {
    let (server, _) = name_server().await;
    System::prepared(Options { schedule: "2s,4s", ..options(&server) }, async |system| {
        let dispatcher = dispatcher(&public(&system)).await;
        let world = World::known(system).await;
        // Nothing was ever sent there.
        let healthy = Receiver::start(&world.system.ca, always(200));
        let tenant = world.add(&url(&healthy)).await;
        world.stop_receivers().await;
        world.publish(2).await;
        eventually("a page reaches somebody", LONG, || async {
            assert_no_brake(&dispatcher).await;
            (metric(dispatcher.ops, HARMLESS).await == 1.0).then_some(())
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
        let dispatcher = dispatcher(&public(&system)).await;
        let world = World::of(system, 200, 1).await.delivered().await;
        let healthy = Receiver::start(&world.system.ca, always(200));
        let tenant = world.add(&url(&healthy)).await;
        world.stop_receivers().await;
        let an_hour = "UPDATE webhook_health SET failing_since = now() - interval '1 hour', failure_count = 1, \
                       last_success_at = now() - interval '61 minutes'";
        world.system.sql(an_hour).await;
        world.publish(1).await;
        world.until_count(200, "deliveries WHERE state = 'dropped'").await;
        assert_no_page(&dispatcher).await;
        world.system.upstream.publish(&[Event::now(EventType::QuoteClosed, tenant)]).await;
        healthy.wait_for(1, Duration::from_secs(2)).await;
    })
    .await;
}

async fn only_the_dispatcher_without_a_way_out_brakes() {
    let ((server, _), (silent, names)) = (name_server().await, name_server().await);
    System::prepared(options(&server), async |system| {
        let mut variables = public(&system);
        let well = dispatcher(&variables).await;
        // An odd number, as the jobs go to the two in turn: each of them meets every receiver.
        let world = World::of(Arc::clone(&system), RECEIVERS + 1, 1).await.delivered().await;
        variables.insert(NAME_SERVERS.to_owned(), silent.address().to_string());
        names.set(Names::SILENT);
        let without = dispatcher(&variables).await;
        world.publish(10).await;
        until(without.ops, BRAKED, 1.0).await;
        world.publish(10).await;
        world.wait_for(21).await;
        world.until_succeeded(21).await;
        assert_no_brake(&well).await;
    })
    .await;
}

/// An event each second is divided among them.
async fn each_of_three_dispatchers_without_a_way_out_brakes() {
    let (server, names) = name_server().await;
    System::prepared(options(&server), async |system| {
        let variables = public(&system);
        let all = join_all((0..3).map(|_| dispatcher(&variables))).await;
        let world = World::known(Arc::clone(&system)).await;
        names.set(Names::SILENT);
        tokio::select! {
            () = world.publish_steadily(Duration::from_secs(1)) => {}
            _ = join_all(all.iter().map(|one| until(one.ops, BRAKED, 1.0))) => {}
        }
    })
    .await;
}

/// Half of the receivers of each tenant.
async fn while_half_of_the_destinations_are_dead_nobody_brakes() {
    let (server, _) = name_server().await;
    System::prepared(Options { schedule: "2s,65s", ..options(&server) }, async |system| {
        let dispatcher = dispatcher(&public(&system)).await;
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
        assert_no_page(&dispatcher).await;
    })
    .await;
}

/// In a quiet night, when nobody else gets anything.
async fn one_tenant_with_many_dead_receivers_brakes_nobody() {
    let (server, _) = name_server().await;
    System::prepared(Options { schedule: "2s,65s", ..options(&server) }, async |system| {
        let dispatcher = dispatcher(&public(&system)).await;
        let world = World::of(Arc::clone(&system), 1, 12).await.delivered().await;
        world.stop_receivers().await;
        world.publish(50).await;
        world.until_count(600, "deliveries WHERE state = 'dropped'").await;
        assert_no_page(&dispatcher).await;
    })
    .await;
}

async fn receivers_in_allowed_networks_do_not_count() {
    let (server, _) = name_server().await;
    System::prepared(Options { schedule: "2s,65s", ..options(&server) }, async |system| {
        let dispatcher = dispatcher(&system.variables).await;
        let world = World::known(system).await;
        world.stop_receivers().await;
        world.publish(50).await;
        world.until_count(50 * RECEIVERS as i64, "deliveries WHERE state = 'dropped'").await;
        assert_no_page(&dispatcher).await;
    })
    .await;
}

/// A receiver of one tenant, and a dispatcher with a canary. Returns when the receiver has had a delivery, and is dead.
async fn with_canary(system: Arc<System>, canary: &Receiver) -> (World, Process) {
    let mut variables = public(&system);
    variables.insert(CANARY_URL.to_owned(), url(canary));
    let dispatcher = dispatcher(&variables).await;
    let world = World::of(system, 1, 1).await.delivered().await;
    world.stop_receivers().await;
    (world, dispatcher)
}

async fn a_canary_that_can_be_reached_proves_a_way_out() {
    let (server, _) = name_server().await;
    System::prepared(options(&server), async |system| {
        let canary = Receiver::start(&system.ca, always(200));
        let (world, dispatcher) = with_canary(system, &canary).await;
        world.publish(1).await;
        world.until_count(1, "deliveries WHERE state = 'dropped'").await;
        assert_no_brake(&dispatcher).await;
        assert_eq!(metric(dispatcher.ops, HARMLESS).await, metric(dispatcher.ops, PROBES).await);
    })
    .await;
}

async fn an_unreachable_canary_brakes_for_one_tenant_until_there_is_nobody_to_ask() {
    let (server, _) = name_server().await;
    System::prepared(options(&server), async |system| {
        let canary = Receiver::start(&system.ca, always(200));
        canary.stop().await;
        let (world, dispatcher) = with_canary(system, &canary).await;
        world.publish(1).await;
        until(dispatcher.ops, BRAKED, 1.0).await;
        world.until_count(1, "brakes WHERE reason = 'no_answer'").await;
        world.system.sql("UPDATE webhooks SET is_active = false").await;
        until(dispatcher.ops, BRAKED, 0.0).await;
        world.until_count(0, "brakes").await;
    })
    .await;
}

/// The receiver that failed is no longer asked, and the one of the other tenant is in an allowed network.
async fn an_unreachable_canary_alone_brakes_nobody() {
    let (server, _) = name_server().await;
    System::prepared(options(&server), async |system| {
        let canary = Receiver::start(&system.ca, always(200));
        canary.stop().await;
        let (world, dispatcher) = with_canary(system, &canary).await;
        let internal = Receiver::start_on((INTERNAL, 0).into(), &world.system.ca, always(200));
        let tenant = world.add(&format!("https://internal.receiver.example:{}/", internal.addr().port())).await;
        world.publish(1).await;
        world.until_count(1, "attempts WHERE outcome = 'connect'").await;
        world.system.sql(&format!("UPDATE webhooks SET is_active = false WHERE tenant_id <> '{tenant}'")).await;
        internal.stop().await;
        world.system.upstream.publish(&[Event::now(EventType::QuoteClosed, tenant)]).await;
        world.until_count(1, "deliveries WHERE state = 'dropped'").await;
        assert_no_page(&dispatcher).await;
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
        let (first, next) = ledger.receivers_to_probe(None, 50).await.unwrap();
        assert_eq!((first.len(), next.is_some()), (50, true), "one of each tenant: {first:?}");
        let (last, next) = ledger.receivers_to_probe(next, 50).await.unwrap();
        assert_eq!((last.len(), next.is_some()), (50, false), "the end: pages begin with the first tenant again");
        let all: HashSet<String> = first[1..].iter().chain(&last).cloned().collect();
        assert_eq!(all, (2..=100).map(|number| format!("https://h{number}.example/")).collect());
        let (urls, next) = ledger.receivers_to_probe(None, 200).await.unwrap();
        assert_eq!((urls.len(), next), (101, None), "of one tenant a second host");
        assert_eq!(urls.iter().filter(|url| url.starts_with("https://same.example/")).count(), 1);
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
