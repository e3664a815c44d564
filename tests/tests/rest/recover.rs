//! Recoveries of dropped deliveries.

use std::collections::HashMap;

use end_to_end::{
    api::Api,
    history,
    processes::{Process, with_api_address},
    proxy::Mode,
    receiver::{Receiver, always},
    system::{Options, Service, System},
    wait::{SOON, eventually},
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};
use uuid::Uuid;

fn ago(time: Duration) -> Value {
    let moment = OffsetDateTime::now_utc() - time;
    json!({"since": moment.format(&Rfc3339).expect("it can be written")})
}

async fn done(api: &Api, location: &str) -> Value {
    eventually("the recovery is done", SOON, || async {
        let recovery = api.get(location).await.json();
        (recovery["state"] == "done").then_some(recovery)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_dropped_since_then_is_sent_again_and_nothing_else() {
    System::run(Options::default(), async |system| {
        let tenant = Uuid::new_v4();
        let api = system.admin(tenant).await;
        let receiver = Receiver::start(&system.ca, always(200));
        let webhook = api.create(&receiver.url("/"), &["quote.closed"]).await.id;
        let other = api.create(&receiver.url("/other"), &["quote.closed"]).await.id;
        history::made(&system, tenant, &webhook, 60, "CASE WHEN i % 2 = 0 THEN 'dropped' ELSE 'succeeded' END").await;
        history::dropped(&system, tenant, &other, 5).await;
        let path = format!("/api/v1/webhooks/{webhook}/recover/");
        // Of the 40 newest, half were dropped.
        let since = api.log(&webhook, "limit=200").await["data"][39]["occurred_at"].clone();
        let answer = api.post(&path, &json!({"since": since})).await;
        assert_eq!(answer.status, 202, "{}", answer.text);
        let begun = answer.json();
        assert_eq!(answer.header("location"), Some(&*format!("{path}{}/", begun["id"].as_str().unwrap())));
        let recovery = done(&api, answer.header("location").unwrap()).await;
        assert_eq!(recovery["resent"], 20);
        assert!(recovery["finished_at"].as_str() >= recovery["created_at"].as_str());
        receiver.wait_for(20, SOON).await;
        eventually("all are recorded", SOON, || async {
            (system.count("SELECT count(*) FROM deliveries WHERE attempts = 8 AND state = 'succeeded'").await == 20)
                .then_some(())
        })
        .await;
        assert!(receiver.received().iter().all(|one| one.path == "/"));
        assert_eq!(system.count("SELECT count(*) FROM deliveries WHERE state = 'dropped'").await, 10 + 5);

        let again = api.post(&path, &json!({"since": since})).await.json();
        assert_ne!(again["id"], begun["id"], "a finished one is not begun anew");
        assert_eq!(done(&api, &format!("{path}{}/", again["id"].as_str().unwrap())).await["resent"], 0);
        assert_eq!(receiver.received().len(), 20);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_twice_is_done_once() {
    let options = Options { settings: vec![("API__RECOVER_PER_SECOND", "20".to_owned())], ..Options::default() };
    System::run(options, async |system| {
        let tenant = Uuid::new_v4();
        let api = system.admin(tenant).await;
        let receiver = Receiver::start(&system.ca, always(200));
        let webhook = api.create(&receiver.url("/"), &["quote.closed"]).await.id;
        history::dropped(&system, tenant, &webhook, 50).await;
        let path = format!("/api/v1/webhooks/{webhook}/recover/");
        let since = ago(Duration::HOUR);
        let answers = join_all((0..10).map(|_| api.post(&path, &since))).await;
        let ids: Vec<Value> = answers.iter().map(|answer| answer.json()["id"].clone()).collect();
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        done(&api, answers[0].header("location").unwrap()).await;
        receiver.wait_for(50, SOON).await;
        eventually("all are recorded", SOON, || async {
            (system.count("SELECT count(*) FROM deliveries WHERE state = 'succeeded' AND attempts = 8").await == 50)
                .then_some(())
        })
        .await;
        assert_eq!(receiver.received().len(), 50);
        let received = receiver.received();
        let (first, last) = (received[0].at, received[49].at);
        assert!(last - first >= Duration::milliseconds(1_800), "about twenty a second: {}", last - first);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_that_is_none_or_to_come_is_refused() {
    System::run(Options { dispatchers: 0, ..Options::default() }, async |system| {
        let api = system.admin(Uuid::new_v4()).await;
        let webhook = api.create("https://localhost/", &["quote.closed"]).await.id;
        let path = format!("/api/v1/webhooks/{webhook}/recover/");
        for (body, code) in [
            (ago(-Duration::HOUR), "in_the_future"),
            (json!({"since": "yesterday"}), "invalid_timestamp"),
            (json!({"since": 1}), "wrong_type"),
            (json!({}), "required"),
            (json!({"since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"}), "unknown_field"),
        ] {
            let refused = api.post(&path, &body).await;
            assert_eq!((refused.status, &refused.json()["errors"][0]["code"]), (422, &json!(code)), "{body}");
        }
        assert_eq!(system.count("SELECT count(*) FROM recoveries").await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_whose_step_cannot_be_taken_holds_up_no_other() {
    System::run(Options::default(), async |system| {
        let tenant = Uuid::new_v4();
        let api = system.admin(tenant).await;
        let receiver = Receiver::start(&system.ca, always(200));
        let (stuck, other) = (
            api.create(&receiver.url("/"), &["quote.closed"]).await.id,
            api.create(&receiver.url("/"), &["quote.closed"]).await.id,
        );
        history::dropped(&system, tenant, &stuck, 5).await;
        history::dropped(&system, tenant, &other, 200).await;
        let lock = format!("BEGIN; SELECT FROM deliveries WHERE webhook_id = '{stuck}' FOR UPDATE");
        let hold = system.database_session(&lock).await;
        let since = ago(Duration::HOUR);
        let begin = async |webhook: &str| api.post(&format!("/api/v1/webhooks/{webhook}/recover/"), &since).await;
        let first = begin(&stuck).await;
        system.wait_for_locked_out(1).await;
        // The first one's step is blocked meanwhile.
        let second = begin(&other).await;
        system.sql("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted").await;
        assert_eq!(done(&api, second.header("location").unwrap()).await["resent"], 200);
        assert_eq!(api.get(first.header("location").unwrap()).await.json()["state"], "running");
        drop(hold);
        // As if the lease of the failed step had ended.
        system.sql("UPDATE recoveries SET leased_until = now()").await;
        assert_eq!(done(&api, first.header("location").unwrap()).await["resent"], 5);
    })
    .await;
}

/// The process dies at the worst moment: a step is committed, and the broker has not got its jobs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_survives_the_kill_of_its_process() {
    System::prepared(Options::default(), async |system| {
        let variables = with_api_address(&system).await;
        let (proxy, mut doomed) = Process::start_behind_proxy("api-service", variables).await;
        let tenant = Uuid::new_v4();
        let api = system.admin(tenant).await;
        let receiver = Receiver::start(&system.ca, always(200));
        let webhook = api.create(&receiver.url("/"), &["quote.closed"]).await.id;
        history::dropped(&system, tenant, &webhook, 300).await;

        proxy.set(Mode::Stall);
        let begun = api.post(&format!("/api/v1/webhooks/{webhook}/recover/"), &ago(Duration::HOUR)).await;
        assert_eq!(begun.status, 202, "{}", begun.text);
        let location = begun.header("location").unwrap();
        eventually("a step is taken", SOON, || async {
            let recovery = api.get(location).await.json();
            (recovery["resent"] == 50).then_some(())
        })
        .await;
        doomed.kill();
        assert_eq!(system.count("SELECT count(*) FROM promised_jobs").await, 50);

        system.start(Service::Dispatcher).await;
        system.start(Service::Api).await;
        let api = Api { address: system.anonymous().await.address, ..api };
        // As if the dead process's lease had ended.
        system.sql("UPDATE promised_jobs SET leased_until = now()").await;
        assert_eq!(done(&api, location).await["resent"], 300);
        let all_sent = "SELECT count(*) FROM deliveries WHERE state = 'succeeded' AND attempts = 8";
        eventually("all are recorded", SOON, || async { (system.count(all_sent).await == 300).then_some(()) }).await;
        eventually("every job is published", SOON, || async {
            (system.count("SELECT count(*) FROM promised_jobs").await == 0).then_some(())
        })
        .await;
        let mut posts: HashMap<String, usize> = HashMap::new();
        for one in receiver.received() {
            *posts.entry(one.header("x-service-webhook-id").unwrap().to_owned()).or_default() += 1;
        }
        assert!(posts.len() == 300 && posts.values().all(|count| *count == 1), "{} ids", posts.len());
    })
    .await;
}
