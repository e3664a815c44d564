//! Two versions of the service side by side: each gets messages of the other, and the older one meets the newer schema.

use std::{fs, path::PathBuf};

use broker::Names;
use domain::{EventType, Job};
use end_to_end::{
    events::Event,
    outsider::text_header,
    receiver::{Receiver, always},
    servers::repository,
    system::{Options, Service, Subscriber, System, TestSystem},
    wait::{SOON, eventually, until},
};
use ledger::LedgerError;
use uuid::Uuid;

/// The queues from which dispatchers take jobs.
fn lanes(names: &Names) -> Vec<String> {
    vec![names.main(), names.bulk(), names.slow()]
}

async fn subscriber(system: &System) -> (Receiver, Event) {
    let Subscriber { tenant, receiver, .. } = system.subscriber(always(200)).await;
    (receiver, Event::now(EventType::QuoteClosed, tenant))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_of_a_later_version_are_parked_untouched_from_every_lane_and_hold_nothing_up() {
    let system = TestSystem::running(Options::default()).await;
    let (receiver, event) = subscriber(&system).await;
    let mut later = Vec::new();
    for lane in lanes(&system.names) {
        for number in 0..20 {
            let body = format!(r#"{{ "v": 3, "lane": "{lane}", "number": {number}, "to": ["somebody", 1.50] }}"#);
            system.upstream.publish_to(&system.names.exchange(), &lane, body.as_bytes()).await;
            later.push(body.into_bytes());
        }
    }
    system.upstream.publish(&[event]).await;
    receiver.wait_for(1, SOON).await;

    let dead = system.names.dead();
    let all = u32::try_from(later.len()).unwrap();
    until("they are parked", SOON, || async { system.upstream.ready(&dead).await == all }).await;
    let mut parked = Vec::new();
    for message in system.upstream.take_all(&dead).await {
        assert_eq!(text_header(&message, "x-dead-reason"), "unknown_version");
        assert!(!text_header(&message, "x-dead-detail").is_empty());
        parked.push(message.delivery.data);
    }
    parked.sort();
    later.sort();
    assert_eq!(parked, later, "bodies are untouched");
    for lane in lanes(&system.names) {
        assert_eq!(system.upstream.ready(&lane).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_with_members_that_nobody_knows_yet_is_done() {
    let system = TestSystem::serving(Options::default(), [Service::Api, Service::Ingest]).await;
    let (receiver, event) = subscriber(&system).await;
    system.upstream.publish(&[event]).await;
    let queue = system.names.main();
    let made = eventually("ingest makes the job", SOON, || system.upstream.take(&queue)).await;
    let Job { delivery, attempt } = Job::parse(&made.delivery.data).unwrap()[0];
    let job = format!(r#"{{"lane":"fast","v":1,"delivery_id":"{delivery}","more":{{"a":[1]}},"attempt":{attempt}}}"#);
    system.upstream.publish_to(&system.names.exchange(), &queue, job.as_bytes()).await;
    system.start(Service::Dispatcher).await;
    let received = receiver.wait_for(1, SOON).await;
    assert_eq!(received[0].header("x-service-webhook-id"), Some(delivery.to_string().as_str()));
    assert_eq!(system.upstream.ready(&system.names.dead()).await, 0);
}

/// The migration of a made-up next version, and what it does.
const NEXT: &str = "2099-01-01-000001_next";
const NEXT_VERSION: &str = "20990101000001";
const UP: &str = "ALTER TABLE webhooks ADD COLUMN region text NOT NULL DEFAULT 'eu'";
const DOWN: &str = "ALTER TABLE webhooks DROP COLUMN region";

/// The migrations of a made-up next version: this version's and one more.
struct NextMigrations(PathBuf);

impl NextMigrations {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("e2e-migrations-{}", Uuid::new_v4().simple()));
        for known in fs::read_dir(repository().join("crates/ledger/migrations")).unwrap() {
            let known = known.unwrap();
            let own = folder.join(known.file_name());
            fs::create_dir_all(&own).unwrap();
            for file in ["up.sql", "down.sql"] {
                fs::copy(known.path().join(file), own.join(file)).unwrap();
            }
        }
        let next = folder.join(NEXT);
        fs::create_dir_all(&next).unwrap();
        fs::write(next.join("up.sql"), UP).unwrap();
        fs::write(next.join("down.sql"), DOWN).unwrap();
        Self(folder)
    }
}

impl Drop for NextMigrations {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_run_and_start_on_the_next_versions_schema_and_the_next_version_refuses_theirs() {
    let system = TestSystem::running(Options::default()).await;
    let (receiver, event) = subscriber(&system).await;
    let next = NextMigrations::new();
    let older = system.ledger_as("older", 2);
    let newer = older.clone().with_migrations(next.0.clone());
    assert_eq!(newer.migrations_missing().await.unwrap(), [NEXT]);

    // Somebody reads the table meanwhile, and two migrate at the same time.
    let reader = system.database_session("BEGIN; SELECT FROM webhooks").await;
    let migrating = [(); 2].map(|()| {
        let newer = newer.clone();
        tokio::spawn(async move { newer.migrate().await.unwrap() })
    });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                 AND application_name = 'older' AND wait_event_type = 'Lock'";
    system.until_count(waits, 1, SOON).await;
    assert!(migrating.iter().all(|one| !one.is_finished()));
    reader.batch_execute("COMMIT").await.unwrap();
    let mut applied = Vec::new();
    for one in migrating {
        applied.extend(one.await.unwrap());
    }
    assert_eq!(applied, [NEXT_VERSION]);
    assert_eq!(newer.migrations_missing().await.unwrap(), Vec::<String>::new());
    assert_eq!(older.migrations_missing().await.unwrap(), Vec::<String>::new(), "a newer one is accepted");
    assert_eq!(older.migrate().await.unwrap(), Vec::<String>::new());
    assert_eq!(older.migrations_seen().await.unwrap().unknown, [NEXT_VERSION]);

    system.upstream.publish(std::slice::from_ref(&event)).await;
    receiver.wait_for(1, SOON).await;
    for service in [Service::Dispatcher, Service::Api, Service::Ingest] {
        system.stop(service).await;
        system.start(service).await;
    }
    let (other, others) = subscriber(&system).await;
    system.upstream.publish(&[others]).await;
    other.wait_for(1, SOON).await;

    // The way back, as deploy/production.md says.
    assert!(matches!(older.migrate_back("1.0").await, Err(LedgerError::NoWayBack(why)) if why.contains(NEXT_VERSION)));
    assert_eq!(newer.migrate_back_plan("1.0").await.unwrap(), [NEXT]);
    assert_eq!(newer.migrate_back("1.0").await.unwrap(), [NEXT]);
    assert_eq!(newer.migrate_back("1.0").await.unwrap(), Vec::<String>::new(), "the baseline stays");
    assert_eq!(newer.migrations_missing().await.unwrap(), [NEXT]);
    assert_eq!(older.migrations_missing().await.unwrap(), Vec::<String>::new());
    system.upstream.publish(&Event::closed(event.tenant, 1)).await;
    receiver.wait_for(2, SOON).await;
}
