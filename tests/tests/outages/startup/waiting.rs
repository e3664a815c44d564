//! A server that is away may come back: the process stays, says so, and begins when the server comes.

use end_to_end::{
    api::Api,
    processes::Process,
    proxy::{Reserved, redirected, target},
    system::{Options, TestSystem, wait_ready},
    wait::{SOON, eventually, until},
};
use serde_json::Value;

use crate::startup::ALL;

pub(crate) async fn is_up(process: &Process) {
    eventually("the operations port is open", SOON, || async {
        tokio::net::TcpStream::connect(process.ops).await.ok()
    })
    .await;
}

/// The status and the checks of `/readyz`.
async fn readiness(process: &Process) -> (u16, Value) {
    let answer = Api { address: process.ops, session: None }.get("/readyz").await;
    (answer.status, answer.json()["checks"].clone())
}

pub(crate) async fn logs(process: &Process, times: usize, words: &[&str]) {
    let what = format!("{words:?} is logged {times} times in {}", process.log.display());
    until(&what, SOON, || async {
        let log = process.logged();
        let said = log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count();
        said >= times
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_away_at_the_start_are_waited_for() {
    let system = TestSystem::prepared(Options::default()).await;
    let (database, broker) = (Reserved::take(), Reserved::take());
    let variables = system.with(&[
        ("DATABASE__URL", &redirected(&system.database_url, database.address())),
        ("BROKER__URL", &redirected(&system.amqp_url, broker.address())),
        ("SHUTDOWN__DEADLINE", "1h"),
    ]);
    let mut processes = ALL.map(|name| Process::spawn(name, &variables));
    for process in &processes {
        is_up(process).await;
        let health = Api { address: process.ops, session: None }.get("/healthz").await;
        assert_eq!(health.status, 200);
        let (status, checks) = readiness(process).await;
        assert_eq!(status, 503);
        assert_ne!(checks["database"], "ok");
        assert_eq!(checks["broker"], "not connected");
        logs(process, 2, &["WARN", "database.url (WEBHOOKS__DATABASE__URL)", "refused"]).await;
        logs(process, 2, &["WARN", "broker.url (WEBHOOKS__BROKER__URL)", "refused"]).await;
    }
    for mut process in ALL.map(|name| Process::spawn(name, &variables)) {
        is_up(&process).await;
        logs(&process, 1, &["WARN", "broker.url (WEBHOOKS__BROKER__URL)", "refused"]).await;
        process.ask_to_stop();
        assert_eq!(process.wait().await.code(), Some(0), "it ends while it waits");
    }
    let _database = database.forward_to(target(&system.database_url));
    for (name, process) in ALL.iter().zip(&processes) {
        until("the database is there", SOON, || async {
            let (status, checks) = readiness(process).await;
            assert_eq!(checks["broker"], "not connected");
            // The REST API needs no broker.
            let ready = checks["database"] == "ok" && *name == "api-service";
            assert_eq!(status, if ready { 200 } else { 503 }, "{name}: {checks}");
            checks["database"] == "ok"
        })
        .await;
    }
    let _broker = broker.forward_to(target(&system.amqp_url));
    for process in &mut processes {
        wait_ready(process.ops).await;
        process.ask_to_stop();
        assert_eq!(process.wait().await.code(), Some(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_start_on_an_empty_broker_warns_of_nothing() {
    let system = TestSystem::prepared(Options::default()).await;
    let variables = system.with(&[("LOG__LEVEL", "info")]);
    for mut process in ALL.map(|name| Process::spawn(name, &variables)) {
        is_up(&process).await;
        wait_ready(process.ops).await;
        process.ask_to_stop();
        assert_eq!(process.wait().await.code(), Some(0));
        let log = process.logged();
        assert!(!log.contains("ERROR") && !log.contains("WARN"), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_logged_without_being_shown() {
    let system = TestSystem::prepared(Options::default()).await;
    let wrong = |url: &str| {
        let (user, rest) = url.split_once("://").and_then(|(_, rest)| rest.split_once('@')).unwrap();
        let (scheme, _) = url.split_once("://").unwrap();
        format!("{scheme}://{}:correct-horse@{rest}", user.split(':').next().unwrap())
    };
    for format in ["text", "json"] {
        let variables = system.with(&[
            ("DATABASE__URL", &wrong(&system.database_url)),
            ("BROKER__URL", &wrong(&system.amqp_url)),
            ("LOG__LEVEL", "trace,lapin=trace"),
            ("LOG__FORMAT", format),
        ]);
        for mut process in ALL.map(|name| Process::spawn(name, &variables)) {
            is_up(&process).await;
            let words = ["WARN", "database.url (WEBHOOKS__DATABASE__URL)", "password authentication failed"];
            logs(&process, 2, &words).await;
            logs(&process, 2, &["WARN", "broker.url (WEBHOOKS__BROKER__URL)", "ACCESS_REFUSED"]).await;
            let (status, checks) = readiness(&process).await;
            assert_eq!(status, 503);
            assert!(checks["database"] != "ok" && checks["broker"] != "ok", "{checks}");
            assert!(!checks.to_string().contains("horse"), "{checks}");
            process.ask_to_stop();
            assert_eq!(process.wait().await.code(), Some(0));
            assert!(!process.logged().contains("horse"), "the password is in {}", process.log.display());
        }
    }
}
