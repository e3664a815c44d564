//! The brake: our own outage costs a delivery one or two of its attempts, and nothing that one tenant's receivers do stops the
//! others.

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, Ipv4Addr, TcpListener},
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
    system::{Options, Service, Subscriber, TestSystem, metric, until_metric},
    wait::{SOON, until},
};
use futures_util::future::join_all;
use time::OffsetDateTime;
use tokio::time::interval;
use uuid::Uuid;

type Environment = HashMap<String, String>;

/// The deadline for outages of several attempts.
const LONG: Duration = Duration::from_secs(180);
const TENANTS: usize = 5;
const EACH: usize = 2;
const RECEIVERS: usize = TENANTS * EACH;
const ANY_BRAKE: &str = "webhooks_brake{";
const BRAKED: &str = r#"webhooks_brake{reason="no_answer"}"#;
const PROBES: &str = "webhooks_brake_probes_total";
const HARMLESS: &str = r#"webhooks_brake_probes_total{reached="true"}"#;
/// Divides the brake's times: a minute of failures lasts six seconds, or three for tests in which it is to pass.
const HASTE: &str = "WEBHOOKS_FAULT_HASTE";
const QUICK: [(&str, &str); 1] = [(HASTE, "20")];
/// An outage brakes before the second attempt or soon afterwards. The third and last one is due much later.
const SCHEDULE: &str = "9s,40s";
/// The last attempt ends when failures have lasted for the brake's minute.
const SHORT_SCHEDULE: &str = "1s,8s";
const NAME_SERVERS: &str = "WEBHOOKS__EGRESS__NAME_SERVERS";
const CANARY_URL: &str = "WEBHOOKS__EGRESS__CANARY_URL";
const PUBLIC: &str = "WEBHOOKS_FAULT_PUBLIC";

/// Where the receivers are.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// TCP refuses to connect to a broadcast address: the network is unreachable.
const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 255, 255, 255));
/// Something there accepts connections and is silent, as if packets vanished.
const SILENT_PLACE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));
/// Nothing is sent there: whoever leads all names there is no receiver's name server.
const REFUSED: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
/// Where a receiver is that only the allowed networks open.
const INTERNAL: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// The answers of the name server.
#[derive(Clone, Default)]
struct Names(Arc<AtomicU8>);

impl Names {
    const WELL: u8 = 0;
    const SILENT: u8 = 1;
    const NOWHERE: u8 = 2;
    const VANISHING: u8 = 3;
    const WRONG: u8 = 4;

    fn set(&self, how: u8) {
        self.0.store(how, SeqCst);
    }

    /// A name server for all receivers. Receivers with a name that begins with `internal` are always well.
    async fn server(&self) -> NameServer {
        let how = self.clone();
        NameServer::start(move |name, _| match how.0.load(SeqCst) {
            _ if name.starts_with("internal") => Say::Addresses(vec![INTERNAL]),
            Self::SILENT => Say::Silence,
            Self::NOWHERE => Say::Addresses(vec![NOWHERE]),
            Self::VANISHING => Say::Addresses(vec![SILENT_PLACE]),
            Self::WRONG => Say::Addresses(vec![REFUSED]),
            _ => Say::Addresses(vec![HERE]),
        })
        .await
    }
}

/// A URL whose host a name server is asked for.
fn url(receiver: &Receiver, host: &str) -> String {
    format!("https://{host}.receiver.example:{}/", receiver.addr().port())
}

/// A dispatcher, and some tenants with some receivers each.
struct World {
    dispatcher: Process,
    variables: Environment,
    names: Names,
    tenants: Vec<Uuid>,
    receivers: Vec<Receiver>,
    system: TestSystem,
    _name_server: NameServer,
}

impl World {
    /// Each receiver has had one delivery. For the dispatcher, the receivers are at public addresses.
    async fn start(schedule: &'static str, tenants: usize, each: usize, settings: &[(&str, &str)]) -> Self {
        let names = Names::default();
        let name_server = names.server().await;
        // No connection is left from before an outage.
        let own = [("EGRESS__NAME_SERVERS", &*name_server.address().to_string()), ("EGRESS__MAX_IDLE_PER_HOST", "0")];
        let system = TestSystem::prepared(Options { schedule, timeout: "4s", ..Options::with(own) }).await;
        let public = [HERE, NOWHERE, SILENT_PLACE].map(|address| address.to_string()).join(",");
        let mut variables = system.with(&[(PUBLIC, &public), (HASTE, "10")]);
        variables.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let dispatcher = dispatcher(&variables).await;
        system.start(Service::Api).await;
        system.start(Service::Ingest).await;
        let mut world = Self {
            dispatcher,
            variables,
            names,
            tenants: Vec::new(),
            receivers: Vec::new(),
            system,
            _name_server: name_server,
        };
        for _ in 0..tenants {
            let (tenant, admin) = world.system.tenant().await;
            for _ in 0..each {
                let receiver = Receiver::start(&world.system.ca, always(200));
                admin.create(&url(&receiver, "one"), &["quote.closed"]).await;
                world.receivers.push(receiver);
            }
            world.tenants.push(tenant);
        }
        world.publish(1).await;
        world.wait_for(1).await;
        world.until_succeeded(1).await;
        world
    }

    async fn replace_dispatcher(&mut self, variables: &Environment) {
        let next = dispatcher(variables).await;
        std::mem::replace(&mut self.dispatcher, next).terminate().await;
    }

    async fn until_succeeded(&self, each: usize) {
        self.until_count((each * self.receivers.len()) as i64, "deliveries WHERE state = 'succeeded'").await;
    }

    async fn until_count(&self, count: i64, what: &str) {
        self.system.until_count(&format!("SELECT count(*) FROM {what}"), count, LONG).await;
    }

    async fn until_dropped(&self, count: usize) {
        self.until_count(count as i64, "deliveries WHERE state = 'dropped'").await;
    }

    /// Each receiver gets one delivery for each event. Their events alternate.
    async fn publish(&self, each: usize) {
        let of_each = |_| self.tenants.iter().map(|tenant| Event::now(EventType::QuoteClosed, *tenant));
        let events: Vec<Event> = (0..each).flat_map(of_each).collect();
        self.system.upstream.publish(&events).await;
    }

    async fn publish_to(&self, tenant: Uuid) {
        self.system.upstream.publish(&Event::closed(tenant, 1)).await;
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
        let (tenant, admin) = self.system.tenant().await;
        admin.create(url, &["quote.closed"]).await;
        tenant
    }

    /// A receiver that only the allowed networks open, and its tenant.
    async fn add_internal(&self) -> (Receiver, Uuid) {
        let receiver = Receiver::start_on((INTERNAL, 0).into(), &self.system.ca, always(200));
        let tenant = self.add(&url(&receiver, "internal")).await;
        (receiver, tenant)
    }

    /// Events of all tenants in turn, at a pace, for ever.
    async fn publish_steadily(&self, pace: Duration) {
        let mut pace = interval(pace);
        for tenant in self.tenants.iter().cycle() {
            pace.tick().await;
            self.publish_to(*tenant).await;
        }
    }

    /// Another tenant's receiver gets an event.
    async fn delivers_to_others(&self) {
        let healthy = Receiver::start(&self.system.ca, always(200));
        let tenant = self.add(&url(&healthy, "one")).await;
        self.publish_to(tenant).await;
        healthy.wait_for(1, SOON).await;
        assert_no_brake(&self.dispatcher).await;
    }
}

async fn dispatcher(variables: &Environment) -> Process {
    Process::start("dispatcher", variables).await
}

async fn assert_no_brake(dispatcher: &Process) {
    assert_eq!(metric(dispatcher.ops, ANY_BRAKE).await, 0.0);
}

async fn assert_no_page(dispatcher: &Process) {
    assert_no_brake(dispatcher).await;
    assert_eq!(metric(dispatcher.ops, PROBES).await, 0.0);
}

/// Deliveries before, in and after an outage of all receivers together. `ends` gets the dispatcher, and returns the one from
/// then on.
async fn survives(world: World, ends: impl AsyncFnOnce(Process) -> Process) {
    let (began, ops) = (Instant::now(), world.dispatcher.ops);
    world.publish(2).await;
    until_metric(ops, BRAKED, 1.0, LONG).await;
    println!("{BRAKED} after {:?}", began.elapsed());
    let used_up = world.count("deliveries WHERE state <> 'succeeded' AND attempts NOT BETWEEN 1 AND 2").await;
    assert_eq!(used_up, 0, "the outage costs one or two attempts");
    world.publish(1).await;
    let (upstream, names) = (&world.system.upstream, &world.system.names);
    upstream.wait_ready(&names.events(), 0, LONG).await;
    assert_eq!(metric(ops, "webhooks_ready ").await, 1.0, "a braked dispatcher is well");
    world.until_count(1, "brakes WHERE reason = 'no_answer'").await;
    // The dispatcher asks another page: the jobs stay where they are, also those of further attempts.
    let probes = metric(ops, PROBES).await;
    until("another page", LONG, || async { metric(ops, PROBES).await > probes }).await;
    upstream.wait_ready(&names.main(), 3 * RECEIVERS as u32, LONG).await;
    let counts = upstream.delivery_counts(&names.main()).await;
    assert!(counts.iter().all(|count| *count <= 3), "{counts:?}");
    let World { dispatcher, receivers, system, .. } = world;
    let dispatcher = ends(dispatcher).await;
    join_all(receivers.iter().map(|receiver| receiver.wait_for(4, LONG))).await;
    until_metric(dispatcher.ops, BRAKED, 0.0, LONG).await;
    for receiver in &receivers {
        assert_eq!(receiver.received_once().len(), 4);
    }
    system.until_count("SELECT count(*) FROM deliveries WHERE state = 'succeeded'", 4 * RECEIVERS as i64, LONG).await;
}

/// One that starts meanwhile, or after the only one was stopped, has not to find out at the cost of its jobs.
async fn survives_names(how: u8, is_stopped: bool) {
    let world = World::start(SCHEDULE, TENANTS, EACH, &QUICK).await;
    let (names, variables, mut lives_on) = (world.names.clone(), world.variables.clone(), None);
    names.set(how);
    let ends = async |first: Process| {
        if is_stopped {
            first.terminate().await;
        } else {
            lives_on = Some(first);
        }
        let other = dispatcher(&variables).await;
        until_metric(other.ops, BRAKED, 1.0, LONG).await;
        assert_eq!(metric(other.ops, "webhooks_ledger_read_batch_size_count").await, 0.0);
        names.set(Names::WELL);
        until_metric(other.ops, BRAKED, 0.0, LONG).await;
        if let Some(first) = &lives_on {
            until_metric(first.ops, BRAKED, 0.0, LONG).await;
        }
        other
    };
    survives(world, ends).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_name_servers_costs_one_or_two_attempts() {
    survives_names(Names::SILENT, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_all_routes_costs_one_or_two_attempts() {
    survives_names(Names::NOWHERE, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_authority_costs_one_or_two_attempts() {
    let mut world = World::start(SCHEDULE, TENANTS, EACH, &QUICK).await;
    let variables = world.variables.clone();
    let mut without = variables.clone();
    without.remove("WEBHOOKS__EGRESS__EXTRA_CA_FILE").unwrap();
    world.replace_dispatcher(&without).await;
    let ends = async |blind: Process| {
        blind.terminate().await;
        dispatcher(&variables).await
    };
    survives(world, ends).await;
}

/// With a receiver in an allowed network that answers all the time. A minute of failures is not needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_a_hundred_deliveries_a_second_seconds_are_enough() {
    let mut world = World::start(SCHEDULE, TENANTS, EACH, &[(HASTE, "1")]).await;
    let silent = |receiver: &Receiver| TcpListener::bind((SILENT_PLACE, receiver.addr().port())).unwrap();
    let _silent: Vec<_> = world.receivers.iter().map(silent).collect();
    let (internal, tenant) = world.add_internal().await;
    world.tenants.push(tenant);
    world.names.set(Names::VANISHING);
    let began = Instant::now();
    tokio::select! {
        () = world.publish_steadily(Duration::from_millis(15)) => {}
        () = until_metric(world.dispatcher.ops, BRAKED, 1.0, LONG) => {}
    }
    println!("braked after {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert!(internal.arrived() > 10, "{} deliveries", internal.arrived());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_platform_is_counted_and_stops_nobody() {
    let world = World::start("1s,2s", TENANTS, EACH, &[]).await;
    // Nothing was ever sent there.
    let healthy = Receiver::start(&world.system.ca, always(200));
    let tenant = world.add(&url(&healthy, "one")).await;
    world.stop_receivers().await;
    world.publish(2).await;
    until("a page reaches somebody", LONG, || async {
        assert_no_brake(&world.dispatcher).await;
        metric(world.dispatcher.ops, HARMLESS).await >= 1.0
    })
    .await;
    world.until_dropped(2 * RECEIVERS).await;
    world.publish_to(tenant).await;
    healthy.wait_for(1, SOON).await;
    assert_no_brake(&world.dispatcher).await;
}

/// It has been dead for an hour, and nobody else gets anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_platform_of_200_tenants_that_was_dead_already_is_not_even_probed() {
    let world = World::start(SHORT_SCHEDULE, 200, 1, &[]).await;
    world.stop_receivers().await;
    let an_hour = "UPDATE webhook_health SET failing_since = now() - interval '1 hour', failure_count = 1, \
                   last_success_at = now() - interval '61 minutes'";
    world.system.sql(an_hour).await;
    world.publish(1).await;
    world.until_dropped(200).await;
    assert_no_page(&world.dispatcher).await;
    world.delivers_to_others().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_dispatcher_without_a_way_out_brakes() {
    // An odd number of receivers: the jobs go to the two dispatchers in turn, so each dispatcher calls every receiver.
    let world = World::start(SCHEDULE, RECEIVERS + 1, 1, &QUICK).await;
    let (names, mut variables) = (Names::default(), world.variables.clone());
    let silent = names.server().await;
    variables.insert(NAME_SERVERS.to_owned(), silent.address().to_string());
    names.set(Names::SILENT);
    let without = dispatcher(&variables).await;
    world.publish(10).await;
    until_metric(without.ops, BRAKED, 1.0, LONG).await;
    world.publish(10).await;
    world.wait_for(21).await;
    world.until_succeeded(21).await;
    assert_no_brake(&world.dispatcher).await;
}

/// The events are divided among them. Their name servers lead every name to an internal address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_three_dispatchers_without_a_way_out_brakes() {
    let world = World::start(SCHEDULE, TENANTS, EACH, &QUICK).await;
    let (second, third) = tokio::join!(dispatcher(&world.variables), dispatcher(&world.variables));
    world.names.set(Names::WRONG);
    let all = [&world.dispatcher, &second, &third].map(|one| until_metric(one.ops, BRAKED, 1.0, LONG));
    tokio::select! {
        () = world.publish_steadily(Duration::from_millis(300)) => {}
        _ = join_all(all) => {}
    }
}

/// Half of the receivers of each tenant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_half_of_the_destinations_are_dead_nobody_brakes() {
    let world = World::start(SHORT_SCHEDULE, TENANTS, 2 * EACH, &[]).await;
    let (dead, well): (Vec<_>, Vec<_>) = world.receivers.iter().enumerate().partition(|(place, _)| place % 2 == 0);
    join_all(dead.iter().map(|(_, receiver)| receiver.stop())).await;
    let events = async {
        let mut pace = interval(Duration::from_millis(500));
        for published in 1.. {
            pace.tick().await;
            world.publish(1).await;
            join_all(well.iter().map(|(_, receiver)| receiver.wait_for(published + 1, SOON))).await;
        }
    };
    let dropped = until("the first ones are dropped", LONG, || async {
        world.count("deliveries WHERE state = 'dropped'").await >= dead.len() as i64
    });
    tokio::select! {
        () = events => {}
        () = dropped => {}
    }
    assert_no_page(&world.dispatcher).await;
}

/// In a quiet night, when nobody else gets anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_tenant_with_many_dead_receivers_brakes_nobody() {
    let world = World::start(SHORT_SCHEDULE, 1, 12, &[]).await;
    world.stop_receivers().await;
    world.publish(20).await;
    world.until_dropped(240).await;
    assert_no_page(&world.dispatcher).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_in_allowed_networks_do_not_count() {
    let world = World::start(SHORT_SCHEDULE, TENANTS, EACH, &[(PUBLIC, "")]).await;
    world.stop_receivers().await;
    world.publish(20).await;
    world.until_dropped(20 * RECEIVERS).await;
    assert_no_page(&world.dispatcher).await;
}

/// A receiver of one tenant, which is dead after one delivery, and a dispatcher with a canary.
async fn with_canary(is_reachable: bool) -> (World, Receiver) {
    let mut world = World::start(SHORT_SCHEDULE, 1, 1, &[]).await;
    let canary = Receiver::start(&world.system.ca, always(200));
    let mut variables = world.variables.clone();
    variables.insert(CANARY_URL.to_owned(), url(&canary, "one"));
    world.replace_dispatcher(&variables).await;
    if !is_reachable {
        canary.stop().await;
    }
    world.stop_receivers().await;
    (world, canary)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canary_that_can_be_reached_proves_a_way_out() {
    let (world, _canary) = with_canary(true).await;
    world.publish(1).await;
    world.until_dropped(1).await;
    assert_no_brake(&world.dispatcher).await;
    let probes = metric(world.dispatcher.ops, PROBES).await;
    assert_eq!(metric(world.dispatcher.ops, HARMLESS).await, probes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_canary_brakes_for_one_tenant_until_there_is_nobody_to_ask() {
    let (world, _canary) = with_canary(false).await;
    world.publish(1).await;
    until_metric(world.dispatcher.ops, BRAKED, 1.0, LONG).await;
    world.until_count(1, "brakes WHERE reason = 'no_answer'").await;
    world.system.sql("UPDATE webhooks SET is_active = false").await;
    until_metric(world.dispatcher.ops, BRAKED, 0.0, LONG).await;
    world.until_count(0, "brakes").await;
}

/// The receiver that failed is no longer asked, and the one of the other tenant is in an allowed network.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_canary_alone_brakes_nobody() {
    let (world, _canary) = with_canary(false).await;
    let (internal, tenant) = world.add_internal().await;
    world.publish(1).await;
    world.until_count(1, "attempts WHERE outcome = 'connect'").await;
    world.system.sql(&format!("UPDATE webhooks SET is_active = false WHERE tenant_id <> '{tenant}'")).await;
    internal.stop().await;
    world.publish_to(tenant).await;
    world.until_dropped(1).await;
    assert_no_page(&world.dispatcher).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operators_brake_stops_all_dispatchers_until_it_is_released() {
    let system = TestSystem::prepared(Options::default()).await;
    let operator = system.ledger_as("operator", 1);
    operator.brake_all("a test").await.unwrap();
    // A dispatcher that starts meanwhile begins nothing either.
    for _ in 0..2 {
        let ops = system.start(Service::Dispatcher).await;
        until_metric(ops, r#"webhooks_brake{reason="operator"}"#, 1.0, LONG).await;
    }
    system.start(Service::Api).await;
    system.start(Service::Ingest).await;
    let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
    system.upstream.publish(&Event::closed(tenant, 10)).await;
    let main = system.names.main();
    system.upstream.wait_ready(&main, 10, SOON).await;
    assert_eq!((system.upstream.consumers(&main).await, receiver.arrived()), (0, 0));
    assert!(operator.brake_release(None).await.unwrap());
    receiver.wait_for(10, SOON).await;
    assert!(!operator.brake_release(None).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operators_brake_is_seen_within_three_seconds_while_jobs_hold_all_other_connections() {
    let options = Options::with([("DATABASE__MAX_CONNECTIONS", "2")]);
    let system = TestSystem::serving(options, [Service::Api, Service::Ingest]).await;
    let ops = system.start(Service::Dispatcher).await;
    let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    receiver.wait_for(1, SOON).await;
    system.stop(Service::Ingest).await;
    system.stop(Service::Api).await;
    let job = system.sql("SELECT id::text FROM deliveries").await[0].get::<_, String>(0);
    let lock = system.database_session("BEGIN; LOCK TABLE deliveries").await;
    let job = Job { delivery: job.parse().unwrap(), attempt: 2 };
    system.upstream.publish_to(&system.names.exchange(), &system.names.main(), &job.to_bytes()).await;
    system.wait_for_locked_out(1).await;
    system.ledger_as("operator", 1).brake_all("a test").await.unwrap();
    until("the brake is seen", Duration::from_secs(3), || async {
        metric(ops, r#"webhooks_brake{reason="operator"}"#).await == 1.0
    })
    .await;
    drop(lock);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_go_round_all_tenants_with_active_webhooks() {
    let system = TestSystem::prepared(Options::default()).await;
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
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_that_succeeded_lately_and_were_not_failing_are_well() {
    let system = TestSystem::prepared(Options::default()).await;
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
}
