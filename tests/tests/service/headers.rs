//! Headers of deliveries: those that tell event, attempt and test, and a webhook's own.

use domain::EventType;
use end_to_end::{
    api::Api,
    events::Event,
    receiver::{Receiver, Reply, always, behaviour, fails_then_succeeds, verify},
    system::{Subscriber, TestSystem},
    wait::{SOON, until},
};
use serde_json::{Value, json};

fn path(webhook: &str) -> String {
    format!("/api/v1/webhooks/{webhook}/")
}

async fn set(api: &Api, webhook: &str, headers: Value) -> Value {
    let answer = api.patch(&path(webhook), &json!({"headers": headers})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["header_names"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_are_counted_in_their_run_and_tests_are_marked() {
    let system = TestSystem::shared().await;
    let Subscriber { tenant, api, receiver, webhook, .. } = system.subscriber(fails_then_succeeds(1)).await;
    let event = Event::now(EventType::QuoteClosed, tenant);
    system.upstream.publish(std::slice::from_ref(&event)).await;
    receiver.wait_for(2, SOON).await;
    let delivery = api.newest_in(&webhook, "succeeded").await;
    assert_eq!(api.resend(&webhook, &delivery).await.status, 202);
    receiver.wait_for(3, SOON).await;
    let test = api.ask(&format!("{}test/", path(&webhook))).await.json();
    let told = |one: &end_to_end::receiver::Received| {
        ["x-service-event-id", "x-service-attempt", "x-service-test"].map(|name| one.header(name).map(str::to_owned))
    };
    let all: Vec<_> = receiver.wait_for(4, SOON).await.iter().map(told).collect();
    let of_event = |attempt: &str| [Some(event.id.to_string()), Some(attempt.to_owned()), None];
    assert_eq!(all[..3], [of_event("1"), of_event("2"), of_event("1")]);
    let marked = [test["event_id"].as_str().map(str::to_owned), Some("1".to_owned()), Some("true".to_owned())];
    assert_eq!(all[3], marked);
    let request = |detail: Value| detail["request"]["headers"].clone();
    let of_delivery = request(api.delivery(&webhook, delivery["id"].as_str().unwrap()).await);
    assert_eq!(
        (&of_delivery["X-Service-Event-Id"], &of_delivery["X-Service-Test"]),
        (&json!(event.id.to_string()), &Value::Null)
    );
    assert_eq!(request(api.delivery(&webhook, test["id"].as_str().unwrap()).await)["X-Service-Test"], "true");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_delivery_carries_the_webhooks_headers_and_nobody_is_shown_a_value() {
    let system = TestSystem::shared().await;
    let ((tenant, api), receiver) = (system.tenant().await, Receiver::start(&system.ca, always(200)));
    let new = json!({
        "name": "A test", "url": receiver.url("/"), "events": ["quote.closed"],
        "headers": {"x-api-key": "hidden-1", "Authorization": "Bearer hidden-2"},
    });
    let created = api.post("/api/v1/webhooks/", &new).await;
    assert_eq!(created.status, 201, "{}", created.text);
    let (webhook, secret) = (created.json()["id"].clone(), created.json()["signing_secret"].clone());
    let webhook = webhook.as_str().unwrap();
    assert_eq!(created.json()["header_names"], json!(["Authorization", "x-api-key"]));

    system.upstream.publish(&Event::closed(tenant, 1)).await;
    receiver.wait_for(1, SOON).await;
    assert_eq!(api.ask(&format!("{}test/", path(webhook))).await.status, 202);
    let received = receiver.wait_for(2, SOON).await;
    for one in &received {
        let own = ["authorization", "x-api-key"].map(|name| one.header(name));
        assert_eq!(own, [Some("Bearer hidden-2"), Some("hidden-1")]);
        verify(one, secret.as_str().unwrap()).unwrap();
    }
    assert_eq!(
        set(&api, webhook, json!({"X-API-KEY": "hidden-3", "authorization": null, "X-New": "n"})).await,
        json!(["X-API-KEY", "X-New"])
    );
    assert_eq!(set(&api, webhook, json!({"Authorization": null})).await, json!(["X-API-KEY", "X-New"]));
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    let last = receiver.wait_for(3, SOON).await.remove(2);
    let own = ["authorization", "x-api-key", "x-new"].map(|name| last.header(name));
    assert_eq!(own, [None, Some("hidden-3"), Some("n")]);

    let history = api.get(&format!("{}history/", path(webhook))).await.json();
    let details: Vec<_> = history["data"].as_array().unwrap().iter().map(|entry| &entry["details"]).collect();
    assert_eq!(details.len(), 3, "created, tested, changed once: {history}");
    assert_eq!(*details[0], json!({"headers": {"set": ["X-API-KEY", "X-New"], "removed": ["Authorization"]}}));
    assert_eq!(details[2]["header_names"], json!(["Authorization", "x-api-key"]));
    let notices = api.get(&format!("{}notices/", path(webhook))).await.json();
    assert_eq!(notices["data"][0]["details"]["changed"], json!(["headers"]));
    let delivery = api.log(webhook, "limit=1").await["data"][0]["id"].as_str().unwrap().to_owned();
    for shown in [
        api.webhook(webhook).await.to_string(),
        created.text,
        history.to_string(),
        notices.to_string(),
        api.delivery(webhook, &delivery).await.to_string(),
    ] {
        assert!(!shown.contains("hidden"), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_host_needs_every_header_again() {
    let system = TestSystem::shared().await;
    let (_, api) = system.tenant().await;
    let webhook = api.create("https://localhost:8443/a", &["quote.closed"]).await.id;
    set(&api, &webhook, json!({"X-A": "1", "X-B": "2"})).await;
    let before = api.webhook(&webhook).await;
    let (moved, within) = ("https://localhost:9443/a", "https://localhost:8443/b");
    let refused = api.patch(&path(&webhook), &json!({"url": moved, "headers": {"x-a": "3"}})).await;
    let problem = refused.json();
    assert_eq!((refused.status, &problem["code"]), (422, &json!("headers_required")));
    assert_eq!(problem["errors"].as_array().unwrap().len(), 1);
    assert_eq!(problem["errors"][0]["field"], "headers.X-B");
    assert_eq!(api.webhook(&webhook).await, before, "nothing was changed");
    assert_eq!(api.patch(&path(&webhook), &json!({"url": within})).await.status, 200);
    let change = json!({"url": moved, "headers": {"x-a": "3", "X-B": null}});
    let changed = api.patch(&path(&webhook), &change).await.json();
    assert_eq!((&changed["url"], &changed["header_names"]), (&json!(moved), &json!(["x-a"])));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_headers_are_reported_without_values() {
    let system = TestSystem::shared().await;
    let (_, api) = system.tenant().await;
    let headers = r#"{"Host": "hidden", "X-A": "hid\u00e9den", "X-B": 1, "X-C": "hidden", "X-C": "hidden"}"#;
    let body =
        format!(r#"{{"name": "a", "url": "https://localhost/", "events": ["quote.closed"], "headers": {headers}}}"#);
    let json = [("content-type", "application/json")];
    let twice = api.send("POST", "/api/v1/webhooks/", &json, body.clone()).await;
    assert_eq!((twice.status, &twice.json()["errors"][0]["field"]), (422, &json!("headers.X-C")));
    let refused = api.send("POST", "/api/v1/webhooks/", &json, body.replace(r#", "X-C": "hidden"}"#, "}")).await;
    let faults: Vec<_> = refused.json()["errors"].as_array().unwrap().iter().map(|one| one["code"].clone()).collect();
    assert_eq!(faults, ["reserved_header", "invalid_header_value", "wrong_type"]);
    assert!(!refused.text.contains("hid"), "{}", refused.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_echo_of_a_value_is_stored_masked() {
    let system = TestSystem::shared().await;
    let echo = behaviour(|one, _| {
        let key = one.header("authorization").unwrap();
        Reply::status(401).header("www-authenticate", format!("Basic realm=\"{key}\"")).body(format!("key={key}&x=ab"))
    });
    let Subscriber { tenant, api, receiver: _receiver, webhook, .. } = system.subscriber(echo).await;
    set(&api, &webhook, json!({"Authorization": "Bearer hidden-12345", "X-Short": "ab"})).await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    let waiting = api.newest_in(&webhook, "retrying").await;
    let attempt = api.delivery(&webhook, waiting["id"].as_str().unwrap()).await["attempt_log"][0].clone();
    assert_eq!(attempt["response_body"], format!("key={}&x=ab", "*".repeat(19)));
    let error = attempt["error"].as_str().unwrap();
    assert!(error.contains(&format!("Basic realm=\"{}\"", "*".repeat(19))), "{error}");
    let health = api.webhook(&webhook).await["last_failure"].to_string();
    assert!(health.contains("****") && !health.contains("hidden"), "{health}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_that_do_not_open_delay_deliveries_until_they_are_given_again() {
    let system = TestSystem::shared().await;
    let Subscriber { tenant, api, receiver, webhook, .. } = system.subscriber(always(200)).await;
    set(&api, &webhook, json!({"X-A": "1", "X-B": "2"})).await;
    system.sql(&format!("UPDATE webhooks SET headers_sealed = '\\x00' WHERE id = '{webhook}'")).await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    let delayed = format!(
        "SELECT count(*) FROM deliveries WHERE webhook_id = '{webhook}' AND attempts = 0 \
         AND next_attempt_at > now() + interval '30 seconds'"
    );
    until("the delivery is delayed", SOON, || async { system.count(&delayed).await == 1 }).await;
    assert!(receiver.received().is_empty());
    let refused = api.patch(&path(&webhook), &json!({"headers": {"X-A": "3"}})).await;
    assert_eq!((refused.status, &refused.json()["errors"][0]["field"]), (422, &json!("headers.X-B")));
    assert_eq!(api.patch(&path(&webhook), &json!({"name": "renamed"})).await.status, 200);
    assert_eq!(set(&api, &webhook, json!({"X-A": "3", "X-B": null})).await, json!(["X-A"]));
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    assert_eq!(receiver.wait_for(1, SOON).await[0].header("x-a"), Some("3"));
}
