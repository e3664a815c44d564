//! Every call that needs a session (crates/README.md, REST API), with others' sessions.

use std::time::Duration;

use end_to_end::{
    api::{Answer, Api},
    history,
    receiver::always,
    system::{Subscriber, TestSystem},
};
use serde_json::{Value, json};
use uuid::Uuid;

/// Method, path below `/api/v1`, a valid body, and the status that the owner gets.
fn calls(
    webhook: &str,
    delivery: &str,
    recovery: &str,
    event: &str,
) -> Vec<(&'static str, String, Option<Value>, u16)> {
    let one = format!("/webhooks/{webhook}/");
    let hook = json!({"name": "n", "url": "https://localhost/", "events": ["quote.closed"]});
    vec![
        ("POST", "/webhooks/".to_owned(), Some(hook), 201),
        ("GET", "/webhooks/".to_owned(), None, 200),
        ("GET", "/event-types/".to_owned(), None, 200),
        ("GET", one.clone(), None, 200),
        ("PATCH", one.clone(), Some(json!({"name": "other"})), 200),
        ("POST", format!("{one}test/"), Some(json!({})), 202),
        ("GET", format!("{one}deliveries/"), None, 200),
        ("GET", format!("{one}deliveries/{delivery}/"), None, 200),
        ("POST", format!("{one}deliveries/{delivery}/resend/"), Some(json!({})), 202),
        ("POST", format!("{one}recover/"), Some(json!({"since": "2026-01-01T00:00:00Z"})), 202),
        ("GET", format!("{one}recover/{recovery}/"), None, 200),
        ("GET", format!("/events/{event}/"), None, 200),
        ("GET", format!("{one}stats/"), None, 200),
        ("GET", format!("{one}notices/"), None, 200),
        ("GET", format!("{one}history/"), None, 200),
        ("POST", format!("{one}cancel/"), Some(json!({})), 202),
        ("DELETE", one, None, 204),
    ]
}

/// How many calls are described that need a session.
fn described() -> usize {
    let document = crate::openapi::described();
    let paths = document["paths"].as_object().into_iter().flat_map(|paths| paths.values());
    let calls = paths.flat_map(|calls| calls.as_object().into_iter().flat_map(|calls| calls.values()));
    calls.filter(|call| call["security"] != json!([])).count()
}

async fn send(api: &Api, method: &str, path: &str, body: Option<&Value>) -> Answer {
    match body {
        Some(body) => api.send(method, path, &[("content-type", "application/json")], body.to_string()).await,
        None => api.send(method, path, &[], "").await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_but_an_administrator_of_the_tenant_gets_anywhere() {
    let system = TestSystem::shared().await;
    let Subscriber { tenant, api: owner, receiver: _receiver, webhook, .. } = system.subscriber(always(200)).await;
    let own = system.admin(Uuid::new_v4()).await;
    let others = own.create("https://localhost/", &["quote.closed"]).await.id;
    history::dropped(&system, tenant, &webhook, 1).await;
    let newest = owner.log(&webhook, "").await["data"][0].clone();
    let [delivery, event] = ["id", "event_id"].map(|name| newest[name].as_str().unwrap());
    let since = json!({"since": "2026-01-01T00:00:00Z"});
    let recovery = owner.recover(&webhook, &since).await.json();
    let recovery = recovery["id"].as_str().unwrap();
    let clerk = system.session(tenant, "sales", Duration::from_secs(60)).await;
    let expired = system.session(tenant, "admin", Duration::ZERO).await;
    let nobody = system.anonymous().await;
    let both = format!("webhook_id IN ('{webhook}', '{others}')");
    let row = format!(
        "SELECT to_jsonb(w)::text \
         || (SELECT string_agg(to_jsonb(d)::text, '' ORDER BY d.id) FROM deliveries d WHERE {both}) \
         || coalesce((SELECT string_agg(to_jsonb(h)::text, '' ORDER BY h.webhook_id) FROM webhook_health h WHERE {both}), '') \
         FROM webhooks w WHERE id = '{webhook}'"
    );
    owner.recovered(&format!("/api/v1/webhooks/{webhook}/recover/{recovery}/")).await;
    owner.newest_in(&webhook, "succeeded").await;
    // One that waits: a cancellation would change it. No job comes for it.
    history::made(&system, tenant, &webhook, 1, "'pending'").await;
    let state = async || system.sql(&row).await[0].get::<_, String>(0);
    let before = state().await;
    assert_eq!(calls(&webhook, delivery, recovery, event).len(), described(), "every call is asked");
    for (method, path, body, _) in calls(&webhook, delivery, recovery, event) {
        let path = format!("/api/v1{path}");
        let ask = async |api: &Api, path: &str| send(api, method, path, body.as_ref()).await.status;
        for (who, expected) in [(&nobody, 401), (&expired, 401), (&clerk, 403)] {
            assert_eq!(ask(who, &path).await, expected, "{method} {path}");
        }
        if path.contains(&webhook) {
            assert_eq!(ask(&own, &path).await, 404, "another tenant's: {method} {path}");
            let unknown = path.replace(&webhook, &Uuid::now_v7().to_string());
            assert_eq!(ask(&owner, &unknown).await, 404, "unknown: {method} {unknown}");
        }
        if path.contains(event) {
            assert_eq!(ask(&own, &path).await, 404, "another tenant's: {method} {path}");
        }
        if path.contains(delivery) || path.contains(recovery) {
            let mixed = path.replace(&webhook, &others);
            assert_eq!(ask(&own, &mixed).await, 404, "of another webhook: {method} {mixed}");
        }
    }
    assert_eq!(state().await, before, "nobody has changed anything");
    for (method, path, body, expected) in calls(&webhook, delivery, recovery, event) {
        let answer = send(&owner, method, &format!("/api/v1{path}"), body.as_ref()).await;
        assert_eq!(answer.status, expected, "{method} {path}: {}", answer.text);
    }
}
