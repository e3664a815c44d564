//! A problem document of every code, as a snapshot.
use std::time::Duration;

use domain::EventType;
use end_to_end::{
    api::{Answer, Api},
    events::Event,
    processes::{Process, with_api_address},
    system::{Options, Service, System, TestSystem},
    wait::SOON,
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use service_kit::Settings;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use uuid::Uuid;

use crate::{openapi::described, rest::snapshots::Snapshots};

const LIST: &str = "/api/v1/webhooks/";
const KEYS: &str = "/api/v1/keys/";
const JSON: (&str, &str) = ("content-type", "application/json");
const URL: &str = "https://localhost/";
const QUOTES: &[&str] = &["quote.closed"];

/// The operation of each, if there is one, and its code.
type Problems = Vec<(&'static str, &'static str, Answer)>;

fn registration() -> Value {
    json!({"name": "A test", "url": URL, "events": QUOTES})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_problem_document_is_as_its_snapshot_says() {
    let system = TestSystem::serving(
        Options::with([("LIMITS__WEBHOOKS_PER_TENANT", "1")]).keeping_long().impatient(),
        [Service::Api],
    )
    .await;
    let api = system.admin(Uuid::new_v4()).await;
    let (callers, requests) = (of_callers(&system, &api).await, of_requests(&api).await);
    let (bodies, states) = tokio::join!(of_unfinished_bodies(&api), of_states(&system));
    let problems = [
        callers,
        requests,
        bodies,
        states,
        of_a_database_that_waits(&system, &api).await,
        of_repetitions(&system).await,
        of_another_api(&system).await,
    ];
    let mut snapshots = Snapshots::of("problems");
    for (operation, code, problem) in problems.concat() {
        assert_eq!(problem.json()["code"], code, "{}", problem.text);
        if !operation.is_empty() {
            snapshots.contract.check(operation, problem.status, &problem);
        }
        let problem = if problem.status == 429 { without_wait(problem) } else { problem };
        snapshots.compare_as(code, &problem, &problem.json());
    }
    let codes = &described()["components"]["schemas"]["Problem"]["properties"]["code"]["x-extensible-enum"];
    snapshots.assert_of(&codes.as_array().unwrap().iter().map(|code| code.as_str().unwrap()).collect());
}

async fn of_callers(system: &System, api: &Api) -> Problems {
    let clerk = system.session(Uuid::new_v4(), "sales", Duration::from_secs(60)).await;
    let key = system.admin(Uuid::new_v4()).await.post(KEYS, &json!({"name": "n"})).await.json();
    let program = format!("Bearer {}", key["key"].as_str().unwrap());
    let elsewhere = [JSON, ("sec-fetch-site", "cross-site")];
    vec![
        ("listWebhooks", "not_logged_in", system.anonymous().await.get(LIST).await),
        ("listWebhooks", "not_an_admin", clerk.get(LIST).await),
        ("listWebhooks", "unknown_key", api.send("GET", LIST, &[("authorization", "Bearer wk_0")], "").await),
        ("listKeys", "session_required", api.send("GET", KEYS, &[("authorization", &program)], "").await),
        ("createWebhook", "cross_site", api.send("POST", LIST, &elsewhere, "{}").await),
    ]
}

async fn of_requests(api: &Api) -> Problems {
    let mut with_headers = registration();
    with_headers["headers"] = json!({"Authorization": "Bearer a"});
    let made = api.post(LIST, &with_headers).await.json();
    let made = format!("{LIST}{}/", made["id"].as_str().unwrap());
    let with = |query: &str| format!("{LIST}?{query}");
    vec![
        ("readWebhook", "not_found", api.get(&format!("{LIST}{}/", Uuid::nil())).await),
        ("readEvent", "unknown_event", api.get(&format!("/api/v1/events/{}/", Uuid::nil())).await),
        ("", "method_not_allowed", api.send("PUT", LIST, &[JSON], "{}").await),
        ("createWebhook", "body_too_large", api.send("POST", LIST, &[JSON], "[".repeat(65_537)).await),
        ("createWebhook", "unsupported_media_type", api.send("POST", LIST, &[], "{}").await),
        ("createWebhook", "malformed_json", api.send("POST", LIST, &[JSON], r#"{"name": }"#).await),
        (
            "createWebhook",
            "validation_failed",
            api.post(LIST, &json!({"name": 7, "events": ["no"], "colour": 1})).await,
        ),
        ("changeWebhook", "headers_required", api.patch(&made, &json!({"url": "https://b.example/"})).await),
        ("listWebhooks", "invalid_parameters", api.get(&with("limit=0&page=2")).await),
        ("listWebhooks", "query_too_long", api.get(&with(&"a".repeat(4097))).await),
    ]
}

async fn of_repetitions(system: &System) -> Problems {
    let tenant = Uuid::new_v4();
    let [api, other] = [system.admin(tenant).await, system.admin(Uuid::new_v4()).await];
    let mut new = registration();
    new["external_id"] = json!("erp");
    let register = async |key: &str| api.send("POST", LIST, &[JSON, ("idempotency-key", key)], new.to_string()).await;
    assert_eq!(register("one").await.status, 201);
    // A tenant may have one webhook here.
    let second = other.create(URL, QUOTES).await.id;
    system.sql(&format!("UPDATE webhooks SET tenant_id = '{tenant}' WHERE id = '{second}'")).await;
    let second = format!("{LIST}{second}/");
    vec![
        ("createWebhook", "registered_before", register("one").await),
        ("createWebhook", "invalid_headers", register("").await),
        ("changeWebhook", "external_id_taken", api.patch(&second, &json!({"external_id": "erp"})).await),
        ("changeWebhook", "changed_meanwhile", api.send("PATCH", &second, &[JSON, ("if-match", "\"x\"")], "{}").await),
    ]
}

/// Anybody can send them: the log of errors is for faults of the service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_request_is_refused_without_a_line_in_the_log() {
    let system = TestSystem::prepared(Options::default()).await;
    let mut variables = with_api_address(&system).await;
    variables.insert("WEBHOOKS__LOG__LEVEL".to_owned(), "info".to_owned());
    let process = Process::start("api-service", &variables).await;
    let address = system.anonymous().await.address;
    let head = |rest: &str| format!("GET / HTTP/1.1\r\nhost: a\r\n{rest}\r\n\r\n").into_bytes();
    for (bytes, status) in [
        (head(&format!("x: {}", "a".repeat(200_000))), "431"),
        (head(&"x: a\r\n".repeat(200)), "431"),
        (format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "a".repeat(70_000)).into_bytes(), "400"),
        (head("content-length: 5\r\ncontent-length: 6"), "400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), "400"),
        // The beginning of a TLS handshake.
        ([&[0x16, 3, 1, 0, 245, 1, 0, 0, 241, 3, 3][..], &[1; 200]].concat(), "400"),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let mut answer = Vec::new();
        // The server may close the connection before all of it is sent.
        let _ = stream.write_all(&bytes).await;
        let _ = timeout(SOON, stream.read_to_end(&mut answer)).await.unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.is_empty() || answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
    }
    let logged = process.logged();
    let lines: Vec<_> = logged.lines().filter(|line| line.contains("ERROR") || line.contains("WARN")).collect();
    assert!(lines.iter().all(|line| !line.contains("actix")), "{lines:?}");
}

async fn of_unfinished_bodies(api: &Api) -> Problems {
    let (slow, mut broken) = (half_a_body(api).await, half_a_body(api).await);
    broken.shutdown().await.unwrap();
    let (slow, broken) = tokio::join!(answer_on(slow), answer_on(broken));
    vec![("createWebhook", "body_too_slow", slow), ("createWebhook", "incomplete_body", broken)]
}

async fn half_a_body(api: &Api) -> TcpStream {
    let Api { address, session } = api;
    let cookie = session.as_ref().unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST {LIST} HTTP/1.1\r\nhost: {address}\r\ncookie: sessionid={cookie}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn answer_on(mut stream: TcpStream) -> Answer {
    let mut answer = String::new();
    timeout(SOON, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.map(|line| line.split_once(": ").unwrap());
    let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    Answer { status, headers, text: text.to_owned() }
}

async fn of_states(system: &System) -> Problems {
    let admin = async || system.admin(Uuid::new_v4()).await;
    let (full, deleting, paused) = (admin().await, admin().await, admin().await);
    full.create(URL, QUOTES).await;
    for _ in 0..10 {
        let webhook = deleting.create(URL, QUOTES).await.id;
        assert_eq!(deleting.delete(&format!("{LIST}{webhook}/")).await.status, 204);
    }
    let webhook = format!("{LIST}{}/", paused.create(URL, QUOTES).await.id);
    let cancelling = admin().await;
    let waiting = cancelling.create(URL, QUOTES).await.id;
    // As if the next step of a cancellation were not due yet.
    let task = "INSERT INTO cancellations (webhook_id, leased_until, until)";
    system.sql(&format!("{task} VALUES ('{waiting}', 'infinity', now())")).await;
    let recovering = admin().await;
    let recovered = recovering.create(URL, QUOTES).await.id;
    let running = "INSERT INTO recoveries (id, webhook_id, since, states, cursor, leased_until)";
    let id = Uuid::now_v7();
    system.sql(&format!("{running} VALUES ('{id}', '{recovered}', now(), '{{dropped}}', '{id}', 'infinity')")).await;
    let recover = json!({"from": "2026-01-01T00:00:00Z"});
    assert_eq!(paused.patch(&webhook, &json!({"is_active": false})).await.status, 200);
    let keyed = admin().await;
    for _ in 0..ledger::ApiKey::MAX_PER_TENANT {
        assert_eq!(keyed.post(KEYS, &json!({"name": "n"})).await.status, 201);
    }
    vec![
        ("createKey", "too_many_keys", keyed.post(KEYS, &json!({"name": "n"})).await),
        ("createWebhook", "too_many_webhooks", full.post(LIST, &registration()).await),
        ("createWebhook", "too_many_deleted_webhooks", deleting.post(LIST, &registration()).await),
        ("recoverDeliveries", "cancelling", cancelling.recover(&waiting, &recover).await),
        ("recoverDeliveries", "recovering", recovering.recover(&recovered, &recover).await),
        ("testWebhook", "webhook_inactive", paused.ask(&format!("{webhook}test/")).await),
    ]
}

/// Of the unknown sessions, one is looked up at a time. Most of the others are turned away before a look-up ends.
async fn of_a_database_that_waits(system: &System, api: &Api) -> Problems {
    let lock = system.database_session("BEGIN; LOCK TABLE webhooks IN ACCESS EXCLUSIVE MODE").await;
    let (unavailable, unconfirmed) = (api.get(LIST).await, api.post(LIST, &registration()).await);
    drop(lock);
    let _lock = system.database_session("BEGIN; LOCK TABLE admin_sessions IN ACCESS EXCLUSIVE MODE").await;
    let strangers = (0..10).map(|number| Api { session: Some(format!("stranger-{number}")), ..api.clone() });
    let answers = join_all(strangers.map(async |stranger| stranger.get(LIST).await)).await;
    let busy = answers.into_iter().find(|answer| answer.json()["code"] == "busy").unwrap();
    vec![
        ("listWebhooks", "unavailable", unavailable),
        ("createWebhook", "unconfirmed", unconfirmed),
        ("listWebhooks", "busy", busy),
    ]
}

/// An API that keeps less, lets a tenant ask once in a minute, and whose table is broken at last.
async fn of_another_api(system: &System) -> Problems {
    let (tenant, api) = system.tenant().await;
    let webhook = api.create(URL, QUOTES).await.id;
    system.start(Service::Ingest).await;
    let timestamp = "2020-03-01T09:30:00Z".to_owned();
    system.upstream.publish(&[Event { timestamp, ..Event::now(EventType::QuoteClosed, tenant) }]).await;
    let delivery = api.newest_in(&webhook, "pending").await;
    system.stop(Service::Ingest).await;
    let resend = format!("{LIST}{webhook}/deliveries/{}/resend/", delivery["id"].as_str().unwrap());
    system.sql("UPDATE deliveries SET attempts = 1000, state = 'dropped'").await;
    let too_often = api.ask(&resend).await;
    system.sql("DELETE FROM events").await;
    let body_expired = api.ask(&resend).await;
    system.stop(Service::Api).await;
    let mut variables = system.variables.clone();
    for (name, value) in
        [("RETENTION__KEEP", "30days"), ("API__RATE_LIMIT_PER_MINUTE", "1"), ("API__RATE_LIMIT_BURST", "1")]
    {
        variables.insert(format!("WEBHOOKS__{name}"), value.to_owned());
    }
    system.start_with(Service::Api, Settings::from_sources(None, variables).unwrap()).await;
    let [first, second] = [system.admin(tenant).await, system.admin(Uuid::new_v4()).await];
    let too_old = first.ask(&resend).await;
    let too_many = first.get(LIST).await;
    system.sql("ALTER TABLE webhooks RENAME COLUMN name TO title").await;
    vec![
        ("resendDelivery", "too_old", too_old),
        ("resendDelivery", "body_expired", body_expired),
        ("resendDelivery", "too_many_attempts", too_often),
        ("listWebhooks", "too_many_requests", too_many),
        ("listWebhooks", "internal_error", second.get(LIST).await),
    ]
}

/// Hides the seconds to wait, which the header and the text agree on.
fn without_wait(mut answer: Answer) -> Answer {
    let (_, wait) = answer.headers.iter_mut().find(|(name, _)| name == "retry-after").unwrap();
    assert!((1..=120).contains(&wait.parse::<u8>().unwrap()), "{wait}");
    answer.text = answer.text.replace(&format!("in {wait} s"), "in [seconds] s");
    *wait = "[seconds]".to_owned();
    answer
}
