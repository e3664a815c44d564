//! Runs a storm, from calm to calm.

use std::{
    panic::AssertUnwindSafe,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::FutureExt;
use time::OffsetDateTime;
use tokio::{task::JoinSet, time::Instant};

use super::{
    audit::audit,
    business::Business,
    cluster_plan,
    collect::{Seen, collect},
    evidence::{Evidence, Published, WebhookState},
    faults::Victims,
    fixtures::{Fixtures, Role},
    fleet::Fleet,
    gaps::{Suffered, gaps},
    ground::Ground,
    journal::Journal,
    ordeals::Ordeals,
    plan::{Line, Options, Plan, PlannedEvent, Setup},
    report::Report,
    rest::{Administrators, Record},
    settle::settle,
    upstream,
};
use crate::{
    processes::with_api_address,
    proxy::{Mode, Proxy},
    servers::Server,
    system::{self, System, TestSystem},
    upstream::Upstream,
};

/// The publishers: two upstream services, the second behind a proxy or balancer, and a business with an outbox.
const NAMES: [&str; 3] = ["the first upstream service", "the second upstream service", "the business"];
/// Every delivery settles within ten seconds of its first failure.
const SCHEDULE: &str = "1s,2s,4s,6s,8s,10s";
/// The timeout of an attempt: more than the slow receiver takes.
const TIMEOUT: &str = "3s";
/// One of so many events is stored in an outbox, in the transaction of a business change.
const THROUGH_THE_OUTBOX: usize = 4;
/// How long after the storm the publishers may go on. The broker may just have been killed.
const CATCH_UP: Duration = Duration::from_secs(120);

/// Runs a storm on servers of its own. Logs go to a folder in `parent`, which stays if anything is wrong. Returns
/// `None` when it is interrupted.
///
/// # Panics
/// When the storm itself cannot be run.
pub async fn run(options: Options, parent: &Path, interrupted: impl Future<Output = ()>) -> Option<Report> {
    let mut plan = Plan::new(&options);
    if options.setup == Setup::Cluster {
        plan.faults = cluster_plan::faults(&options);
    }
    let journal = Arc::new(Journal::open(parent, &options));
    journal.say(format_args!("seed {}, {} faults, {} events", options.seed, plan.faults.len(), plan.events.len()));
    let ground = tokio::task::spawn_blocking(move || Ground::start(options.setup)).await.expect("the servers start");
    let ground = Arc::new(ground);
    let found = Arc::new(Mutex::new(None));
    let faults = plan.faults.len();
    let of_system = system::Options {
        schedule: SCHEDULE,
        timeout: TIMEOUT,
        servers: Some(ground.servers().clone()),
        settings: settings(),
        ..system::Options::default()
    };
    {
        let system = TestSystem::prepared(of_system).await;
        let storm = AssertUnwindSafe(storm(&system, options, plan, &ground, &journal)).catch_unwind();
        let outcome = tokio::select! {
            outcome = storm => outcome.map(Some),
            () = interrupted => Ok(None),
        };
        if !matches!(outcome, Ok(Some(_))) {
            let ground = Arc::clone(&ground);
            let _ = tokio::task::spawn_blocking(move || ground.thaw()).await;
        }
        match outcome {
            Ok(evidence) => *found.lock().unwrap_or_else(PoisonError::into_inner) = evidence,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    let Some((evidence, suffered)) = found.lock().unwrap_or_else(PoisonError::into_inner).take() else {
        let _ = std::fs::remove_dir_all(&journal.folder);
        return None;
    };
    let audit = audit(&evidence);
    let logs = if audit.findings.is_empty() {
        let _ = std::fs::remove_dir_all(&journal.folder);
        None
    } else {
        Some(journal.folder.clone())
    };
    let gaps = gaps(&suffered, arrivals(&evidence));
    Some(Report { options, faults, gaps, audit, logs })
}

/// When the witnesses got something.
fn arrivals(evidence: &Evidence) -> Vec<OffsetDateTime> {
    let witnesses = evidence.subscriptions.iter().filter(|one| one.name.ends_with("witness"));
    let witnesses: Vec<_> = witnesses.map(|one| one.webhook).collect();
    evidence.posts.iter().filter(|post| witnesses.contains(&post.webhook)).map(|post| post.received.at).collect()
}

/// Small batches, so that a fault finds work in every step.
fn settings() -> Vec<(&'static str, String)> {
    let settings = [
        ("INGEST__BATCH", "16"),
        // Always high load: several jobs to a message.
        ("INGEST__BATCH_ABOVE", "0"),
        // Some tenants flood.
        ("INGEST__FLOOD", "5"),
        ("DISPATCHER__BATCH", "32"),
        ("DISPATCHER__MAX_IN_FLIGHT", "256"),
        ("BROKER__CONFIRM_TIMEOUT", "2s"),
        // A lost job comes back while everything comes to rest.
        ("RECONCILE__GRACE", "60s"),
        ("LOG__LEVEL", "info,dispatcher=debug"),
    ];
    settings.map(|(name, value)| (name, value.to_owned())).to_vec()
}

/// Starts the upstream services, each at an address of its own, which share the events by their tenants.
fn publish(
    system: &System,
    began: Instant,
    (fixtures, events): (&Fixtures, &[PlannedEvent]),
    addresses: [String; 2],
    confirmed: &Arc<Mutex<Vec<Published>>>,
    publishing: &mut JoinSet<&'static str>,
) {
    for (number, amqp_url) in addresses.into_iter().enumerate() {
        let exchange = system.names.events_exchange.clone();
        let (upstream, list) = (Upstream { amqp_url, exchange }, Arc::clone(confirmed));
        let own = events.iter().filter(|event| event.tenant % 2 == number).cloned().collect();
        let tenants = fixtures.tenants.clone();
        publishing.spawn(async move {
            upstream::publish(upstream, &tenants, began, own, &list).await;
            NAMES[number]
        });
    }
}

async fn storm(
    system: &Arc<System>,
    options: Options,
    plan: Plan,
    ground: &Arc<Ground>,
    journal: &Arc<Journal>,
) -> (Evidence, Vec<Suffered>) {
    let variables = with_api_address(system).await;
    let fleet = Arc::new(Fleet::launch(system, &variables, Arc::clone(journal)).await);
    let fixtures = Arc::new(Fixtures::register(system, options.seed).await);
    let (proxy, through) = Proxy::balancing(&system.amqp_url);
    let proxy = Arc::new(proxy);
    let ordeals = Ordeals::new(Arc::clone(ground), Arc::clone(journal), system.names.main());
    let victims =
        Victims::new(Arc::clone(&fleet), Arc::clone(ground), Arc::clone(&proxy), Arc::clone(journal), ordeals);
    let victims = Arc::new(victims);
    let record = Arc::new(Record::default());
    let administrators =
        Administrators { fixtures: Arc::clone(&fixtures), record: Arc::clone(&record), journal: Arc::clone(journal) };
    journal.say("the storm begins");
    let began = Instant::now();
    let mut background = JoinSet::new();
    let (supervised, flapping) = (Arc::clone(&fleet), Arc::clone(&fixtures));
    background.spawn(async move { supervised.supervise().await });
    let flap = background.spawn(async move { flapping.flap().await });
    let (mut publishing, confirmed) = (JoinSet::new(), Arc::<Mutex<Vec<Published>>>::default());
    let business = Arc::new(Business::open(system, through.clone(), fixtures.tenants.clone()).await);
    let (stored, events): (Vec<_>, Vec<_>) =
        plan.events.into_iter().enumerate().partition(|(number, _)| number % THROUGH_THE_OUTBOX == 0);
    let events = events.into_iter().map(|(_, event)| event).collect::<Vec<_>>();
    publish(system, began, (&fixtures, &events), [system.amqp_url.clone(), through], &confirmed, &mut publishing);
    let (relaying, stored) = (Arc::clone(&business), stored.into_iter().map(|(_, event)| event).collect());
    background.spawn(async move { relaying.relay().await });
    let list = Arc::clone(&confirmed);
    publishing.spawn(async move {
        let committed = business.work(began, stored).await;
        list.lock().unwrap_or_else(PoisonError::into_inner).extend(committed);
        NAMES[2]
    });
    let work = administrators.clone().work(began, options.length);
    tokio::join!(Arc::clone(&victims).suffer(began, plan.faults), work);

    journal.say("the storm is over");
    for server in [Server::Postgres, Server::Rabbitmq] {
        fleet.set(Line::All, server, Mode::Pass);
    }
    proxy.set(Mode::Pass);
    flap.abort();
    fixtures.settle_down();
    catch_up(publishing, journal).await;
    journal.say("every event is confirmed");
    fleet.ready().await;
    journal.say("every process is ready");
    let mut left = settle(system, &fleet, journal).await;
    administrators.change_all(Role::LeftPaused, WebhookState::Active).await;
    if left.is_empty() {
        left = settle(system, &fleet, journal).await;
    }
    journal.say("at rest");
    let published = std::mem::take(&mut *confirmed.lock().unwrap_or_else(PoisonError::into_inner));
    let seen = Seen { published, left, misconduct: journal.misconduct() };
    let schedule = SCHEDULE.parse().expect("the schedule is good");
    (collect(system, schedule, &fixtures, &record, seen).await, victims.ordeals.suffered())
}

/// Waits until every planned event is confirmed.
async fn catch_up(mut publishing: JoinSet<&'static str>, journal: &Journal) {
    let all = async {
        while let Some(ended) = publishing.join_next().await {
            let name = ended.expect("a publisher does not fail");
            journal.say(format_args!("{name} has all confirms"));
        }
    };
    if tokio::time::timeout(CATCH_UP, all).await.is_err() {
        journal.accuse(format_args!("a publisher had not all confirms {CATCH_UP:?} after the storm"));
    }
}
