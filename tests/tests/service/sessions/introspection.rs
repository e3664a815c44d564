//! Sessions that the business application knows.

use std::time::Duration;

use end_to_end::{
    api::Api,
    processes::{Process, with_api_address},
    system::{Options, TestSystem},
    wait::{SOON, eventually, until},
};
use serde_json::json;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::{
    further_api::FurtherApi,
    sessions::application::{Application, Mood, session, with},
};

const LIST: &str = "/api/v1/webhooks/";
const HOUR: Duration = Duration::from_secs(3600);

/// An application, and an API of the shared system that asks it.
async fn asking(cache: &str, timeout: &str) -> (TestSystem, Application, FurtherApi) {
    let (system, application) = (TestSystem::shared().await, Application::start().await);
    let settings = [
        ("API__SESSIONS", "introspection"),
        ("API__INTROSPECTION_URL", &application.url()),
        ("API__INTROSPECTION_CACHE", cache),
        ("API__INTROSPECTION_TIMEOUT", timeout),
    ];
    let api = FurtherApi::start(&system, &settings, &system.anonymous().await).await;
    (system, application, api)
}

async fn status(api: &Api, session: &str) -> u16 {
    with(api, session).get(LIST).await.status
}

/// Another cookie may be another user's: a request must not act for that one because a look-up failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cookie_whose_look_up_fails_is_not_passed_over() {
    let (_system, application, api) = asking("1h", "3s").await;
    let id = application.login(Uuid::new_v4(), "admin", HOUR);
    assert_eq!(status(&api, &id).await, 200);
    let cookies = format!("sessionid=another; sessionid={id}");
    for mood in [Mood::Status(500), Mood::Hangs] {
        application.is(mood.clone());
        let answer = api.send("GET", LIST, &[("cookie", &cookies)], "").await;
        assert_eq!((answer.status, &answer.json()["code"]), (503, &json!("unavailable")), "{mood:?}");
        assert_eq!(answer.header("retry-after"), Some("5"));
        assert_eq!(status(&api, &id).await, 200, "it is remembered");
    }
    application.is(Mood::Status(403));
    assert_eq!(status(&api, "another").await, 401, "a refusal is clear");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_application_is_asked_with_one_session_cookie_after_the_other_and_nothing_else() {
    let (_system, application, api) = asking("10s", "20s").await;
    let id = application.login(Uuid::new_v4(), "admin", HOUR);
    let cookies = format!("theme=dark; sessionid={id}; lang=de");
    let more = [("cookie", cookies.as_str()), ("x-request-id", "r-1")];
    assert_eq!(api.send("GET", LIST, &more, "").await.status, 200);
    let asked = application.asked().remove(0);
    assert_eq!(asked.line, "GET /session?for=webhooks");
    let (cookie, host) = (format!("sessionid={id}"), application.address.to_string());
    let agent = concat!("webhooks/", env!("CARGO_PKG_VERSION"));
    let expected = [("accept", "application/json"), ("cookie", &cookie), ("host", &host), ("user-agent", agent)];
    assert_eq!(asked.headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));

    assert_eq!(api.get(LIST).await.status, 401);
    assert_eq!(status(&api, &"x".repeat(4097)).await, 401);
    assert_eq!(application.asked().len(), 1, "nobody is asked about what can be no session");

    let cookies = format!("sessionid=; sessionid=stale; sessionid={id}; sessionid=younger");
    assert_eq!(api.send("GET", LIST, &[("cookie", &cookies)], "").await.status, 200);
    let further: Vec<_> = application.asked().drain(1..).flat_map(|asked| asked.headers).collect();
    let further = further.iter().filter(|(name, _)| name == "cookie").map(|(_, value)| value.as_str());
    assert_eq!(further.collect::<Vec<_>>(), ["sessionid=stale"], "the good one is remembered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_yes_is_believed_for_a_while_and_a_no_is_not() {
    let (_system, application, api) = asking("1h", "20s").await;
    let (first, second) =
        (application.login(Uuid::new_v4(), "admin", HOUR), application.login(Uuid::new_v4(), "admin", HOUR));
    for _ in 0..3 {
        assert_eq!(status(&api, &first).await, 200);
    }
    assert_eq!(application.asked().len(), 1);
    assert_eq!(status(&api, &second).await, 200);
    assert_eq!(application.asked().len(), 2);

    let later = Uuid::new_v4().simple().to_string();
    assert_eq!(status(&api, &later).await, 401);
    application.knows(&later, session(Uuid::new_v4(), "admin", HOUR));
    assert_eq!(status(&api, &later).await, 200);
    assert_eq!(application.asked().len(), 4);

    let port = application.address;
    drop(application);
    assert_eq!(status(&api, &first).await, 200, "still believed while the application is away");
    assert_eq!(status(&api, "new").await, 503);
    let _again = Application::start_on(port).await;
    assert_eq!(status(&api, "new").await, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_cache_every_request_asks_and_a_logout_counts_at_once() {
    let (_system, application, api) = asking("0s", "20s").await;
    let id = application.login(Uuid::new_v4(), "admin", HOUR);
    for _ in 0..3 {
        assert_eq!(status(&api, &id).await, 200);
    }
    assert_eq!(application.asked().len(), 3);
    application.logout(&id);
    assert_eq!(status(&api, &id).await, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_cache_ends_and_the_application_is_asked_again() {
    let (_system, application, api) = asking("100ms", "20s").await;
    let id = application.login(Uuid::new_v4(), "admin", HOUR);
    assert_eq!(status(&api, &id).await, 200);
    application.logout(&id);
    until("the log-out counts", SOON, async || status(&api, &id).await == 401).await;
    assert_eq!(application.asked().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ends_when_it_expires_whatever_the_cache() {
    let (_system, application, api) = asking("1h", "20s").await;
    let short = application.login(Uuid::new_v4(), "admin", Duration::from_secs(5));
    let over = application.login(Uuid::new_v4(), "admin", Duration::ZERO);
    assert_eq!((status(&api, &short).await, status(&api, &over).await), (200, 401));
    until("it expires", SOON, async || status(&api, &short).await == 401).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_logged_with_its_reason_and_without_the_session() {
    let application = Application::start().await;
    let settings = vec![
        ("API__SESSIONS", "introspection".to_owned()),
        ("API__INTROSPECTION_URL", application.url()),
        ("LOG__LEVEL", "trace,lapin=trace".to_owned()),
    ];
    let system = TestSystem::prepared(Options { settings, ..Options::default() }).await;
    let process = Process::start("api-service", &with_api_address(&system).await).await;
    let api = system.anonymous().await;
    let id = application.login(Uuid::new_v4(), "admin", HOUR);
    assert_eq!(status(&api, &id).await, 200);
    application.is(Mood::Status(500));
    assert_eq!(status(&api, "secret-1").await, 503);
    application.is(Mood::Body("secret-2"));
    assert_eq!(status(&api, "secret-1").await, 503);
    drop(application);
    assert_eq!(status(&api, "secret-1").await, 503);
    let log = eventually("it is logged", SOON, async || {
        let log = process.logged();
        (log.matches("a session cannot be looked up").count() == 3).then_some(log)
    })
    .await;
    for reason in ["answered 500", "it is not a JSON object", "the business application did not answer"] {
        assert!(log.contains(reason), "{reason} is not in\n{log}");
    }
    assert!(!log.contains(&id) && !log.contains("secret-"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_unknown_sessions_does_not_flood_the_application_and_known_ones_go_on() {
    let (_system, application, api) = asking("0s", "5m").await;
    let id = application.login(Uuid::new_v4(), "admin", HOUR);
    assert_eq!(status(&api, &id).await, 200);
    application.is(Mood::HangsForStrangers);
    let mut flood = JoinSet::new();
    for number in 0..100 {
        let stranger = with(&api, &format!("stranger-{number}"));
        flood.spawn(async move { stranger.get(LIST).await });
    }
    for _ in 0..100 - 32 {
        let answer = flood.join_next().await.unwrap().unwrap();
        assert_eq!((answer.status, &answer.json()["code"]), (503, &json!("busy")));
        assert_eq!(answer.header("retry-after"), Some("5"));
    }
    assert_eq!(status(&api, &id).await, 200, "the application is asked about a session that it confirmed before");
    assert_eq!(application.asked().len(), 1 + 32 + 1);
    application.is(Mood::Well);
    // A client that hangs up makes no room: its question goes on until its time is over.
    flood.shutdown().await;
    assert_eq!(status(&api, "one-more").await, 503);
}
