//! The rate limit of a tenant's requests, and the order of many tenants' requests.

use end_to_end::{
    api::{Answer, Api},
    processes::{Process, with_api_address},
    system::{Options, Service, TestSystem},
    wait::{SOON, eventually},
};
use serde_json::json;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::further_api::FurtherApi;

const LIST: &str = "/api/v1/webhooks/";

fn limited_to(per_minute: &str, burst: &str) -> Options {
    Options::with([("API__RATE_LIMIT_PER_MINUTE", per_minute), ("API__RATE_LIMIT_BURST", burst)])
}

fn number(answer: &Answer, header: &str) -> u64 {
    answer.header(header).unwrap_or_else(|| panic!("{header}: {answer:?}")).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_calls_too_often_is_told_when_to_come_again_and_leaves_its_colleagues_the_half() {
    let system = TestSystem::prepared(limited_to("12", "6")).await;
    let mut variables = with_api_address(&system).await;
    variables.insert("WEBHOOKS__LOG__LEVEL".to_owned(), "info".to_owned());
    let process = Process::start("api-service", &variables).await;
    let tenant = Uuid::new_v4();
    let (eager, same, other) =
        (system.admin(tenant).await, system.admin(tenant).await, system.admin(Uuid::new_v4()).await);
    for left in [2, 1, 0] {
        let answer = eager.get(LIST).await;
        assert_eq!((answer.status, number(&answer, "ratelimit-limit")), (200, 3));
        // On a slow machine, another token may have come meanwhile.
        assert!((left..=left + 1).contains(&number(&answer, "ratelimit-remaining")), "{answer:?}");
    }
    let refused = eventually("a refusal", SOON, async || {
        let answer = eager.get(LIST).await;
        (answer.status != 200).then_some(answer)
    })
    .await;
    assert_eq!((refused.status, refused.json()["code"].as_str()), (429, Some("too_many_requests")));
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert!((1..=10).contains(&number(&refused, "retry-after")), "{refused:?}");
    assert!((1..=30).contains(&number(&refused, "ratelimit-reset")), "{refused:?}");
    for _ in 0..100 {
        eager.get(LIST).await;
    }
    for _ in 0..2 {
        assert_eq!(same.get(LIST).await.status, 200, "a colleague has the other half");
    }
    assert_eq!(other.get(LIST).await.status, 200, "each tenant has its own pace");
    assert_eq!(eager.get("/console/").await.status, 200, "and so has the console");
    let logged = process.logged();
    let lines: Vec<_> = logged.lines().filter(|line| line.contains("above the rate limit")).collect();
    assert!(
        matches!(lines[..], [line] if line.contains(&tenant.to_string()) && line.contains("somebody")),
        "{lines:?}"
    );
}

/// Without the limit before it, the look-up would fail: its table is locked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_without_a_token_is_refused_before_its_session_is_looked_up() {
    let system = TestSystem::serving(limited_to("1", "1"), [Service::Api]).await;
    let (admin, user) = (system.admin(Uuid::new_v4()).await, system.session(Uuid::new_v4(), "user", SOON).await);
    assert_eq!((admin.get(LIST).await.status, user.get(LIST).await.status), (200, 403));
    let hold = system.database_session("BEGIN; LOCK TABLE admin_sessions IN ACCESS EXCLUSIVE MODE").await;
    for _ in 0..5 {
        assert_eq!((admin.get(LIST).await.status, user.get(LIST).await.status), (429, 429));
    }
    let cookies = format!("sessionid=; sessionid={}; sessionid=x", admin.session.clone().unwrap());
    let several = system.anonymous().await.send("GET", LIST, &[("cookie", &cookies)], "").await;
    assert_eq!(several.status, 429, "more cookies are no way around it");
    drop(hold);
}

async fn refreshed(api: &Api, tag: Option<&str>) -> Answer {
    let mut headers = vec![("x-refresh", "1")];
    headers.extend(tag.map(|tag| ("if-none-match", tag)));
    api.send("GET", "/console/", &headers, "").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_console_has_tokens_of_its_own_and_its_refreshes_say_when_nothing_is_new() {
    let system = TestSystem::shared().await;
    let limits = [("API__RATE_LIMIT_PER_MINUTE", "1"), ("API__RATE_LIMIT_BURST", "10")];
    let admin = FurtherApi::start(&system, &limits, &system.admin(Uuid::new_v4()).await).await;
    admin.create("https://receiver.example/", &["quote.closed"]).await;
    let first = refreshed(&admin, None).await;
    let tag = first.header("etag").unwrap().to_owned();
    assert_eq!((first.status, first.text.contains("receiver.example")), (200, true));
    let same = refreshed(&admin, Some(&tag)).await;
    assert_eq!((same.status, same.text.as_str()), (304, ""));
    admin.create("https://another.example/", &["quote.closed"]).await;
    let changed = refreshed(&admin, Some(&tag)).await;
    assert_eq!((changed.status, changed.text.contains("another.example")), (200, true));
    assert_eq!(number(&changed, "ratelimit-remaining"), 2, "of five");
    assert_eq!(number(&admin.get("/console/").await, "ratelimit-remaining"), 1, "its pages have the same");
    let answer = admin.get(LIST).await;
    assert_eq!((answer.status, number(&answer, "ratelimit-remaining"), answer.header("etag")), (200, 2, None));
}

/// A call that waits for the lock holds the only connection for requests for a second. Eighty of them are asked for
/// before: in the order of their arrival, this one would wait for a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_does_not_wait_for_all_that_others_have_asked_for() {
    let system = TestSystem::serving(Options::default().impatient(), [Service::Api]).await;
    let quiet = system.admin(Uuid::new_v4()).await;
    let mut logs = Vec::new();
    // Each of them may be ahead by one call, and a call waits for five seconds.
    for _ in 0..3 {
        let api = system.admin(Uuid::new_v4()).await;
        let webhook = api.create("https://receiver.example/", &["quote.closed"]).await.id;
        logs.push((api, format!("/api/v1/webhooks/{webhook}/deliveries/")));
    }
    let hold = system.database_session("BEGIN; LOCK TABLE deliveries IN ACCESS EXCLUSIVE MODE").await;
    let mut flood = JoinSet::new();
    for _ in 0..27 {
        for (api, log) in logs.clone() {
            flood.spawn(async move { api.get(&log).await.status });
        }
    }
    system.wait_for_locked_out(1).await;
    for _ in 0..3 {
        let answer = quiet.get(LIST).await;
        assert_eq!((answer.status, answer.json()), (200, json!({"data": [], "next_cursor": null})));
    }
    drop(hold);
    assert!(flood.join_all().await.iter().all(|status| [200, 503].contains(status)));
}
