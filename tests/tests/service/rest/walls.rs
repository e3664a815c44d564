//! Every call that needs a session (crates/README.md, REST API), with others' sessions.

use std::{collections::BTreeSet, time::Duration};

use end_to_end::{
    api::{Answer, Api},
    history,
    receiver::always,
    system::{Subscriber, TestSystem},
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::openapi::Contract;

/// Operation, method, path below `/api/v1`, a valid body, and the status that the owner gets.
fn calls(
    webhook: &str,
    delivery: &str,
    recovery: &str,
    event: &str,
    key: &str,
) -> Vec<(&'static str, &'static str, String, Option<Value>, u16)> {
    let one = format!("/webhooks/{webhook}/");
    let hook = json!({"name": "n", "url": "https://localhost/", "events": ["quote.closed"]});
    vec![
        ("createWebhook", "POST", "/webhooks/".to_owned(), Some(hook), 201),
        ("listWebhooks", "GET", "/webhooks/".to_owned(), None, 200),
        ("listEventTypes", "GET", "/event-types/".to_owned(), None, 200),
        ("readWebhook", "GET", one.clone(), None, 200),
        ("changeWebhook", "PATCH", one.clone(), Some(json!({"name": "other"})), 200),
        ("testWebhook", "POST", format!("{one}test/"), Some(json!({})), 202),
        ("listDeliveries", "GET", format!("{one}deliveries/"), None, 200),
        ("readDelivery", "GET", format!("{one}deliveries/{delivery}/"), None, 200),
        ("resendDelivery", "POST", format!("{one}deliveries/{delivery}/resend/"), Some(json!({})), 202),
        ("recoverDeliveries", "POST", format!("{one}recover/"), Some(json!({"from": "2026-01-01T00:00:00Z"})), 202),
        (
            "recoverDeliveries",
            "POST",
            format!("{one}recover/"),
            Some(json!({"from": "2026-01-01T00:00:00Z", "count_only": true})),
            200,
        ),
        ("readRecovery", "GET", format!("{one}recover/{recovery}/"), None, 200),
        ("readEvent", "GET", format!("/events/{event}/"), None, 200),
        ("readStats", "GET", format!("{one}stats/"), None, 200),
        ("listNotices", "GET", format!("{one}notices/"), None, 200),
        ("listRecoveries", "GET", format!("{one}recover/"), None, 200),
        ("stopRecovery", "DELETE", format!("{one}recover/{recovery}/"), None, 200),
        ("listHistory", "GET", format!("{one}history/"), None, 200),
        ("listTenantHistory", "GET", "/history/".to_owned(), None, 200),
        ("listTenantDeliveries", "GET", "/deliveries/?contains=number".to_owned(), None, 200),
        ("readTenantDelivery", "GET", format!("/deliveries/{delivery}/"), None, 200),
        ("cancelDeliveries", "POST", format!("{one}cancel/"), Some(json!({})), 202),
        ("deleteWebhook", "DELETE", one, None, 204),
        ("createKey", "POST", "/keys/".to_owned(), Some(json!({"name": "n"})), 201),
        ("listKeys", "GET", "/keys/".to_owned(), None, 200),
        ("revokeKey", "DELETE", format!("/keys/{key}/"), None, 204),
    ]
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
    let key = owner.post("/api/v1/keys/", &json!({"name": "n"})).await.json();
    let key = key["id"].as_str().unwrap();
    let since = json!({"from": "2026-01-01T00:00:00Z"});
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
         || (SELECT to_jsonb(k)::text FROM api_keys k WHERE id = '{key}') FROM webhooks w WHERE id = '{webhook}'"
    );
    owner.recovered(&format!("/api/v1/webhooks/{webhook}/recover/{recovery}/")).await;
    owner.newest_in(&webhook, "succeeded").await;
    // One that waits: a cancellation would change it. No job comes for it.
    history::made(&system, tenant, &webhook, 1, "'pending'").await;
    let state = async || system.sql(&row).await[0].get::<_, String>(0);
    let before = state().await;
    let contract = Contract::committed();
    let asked: BTreeSet<_> =
        calls(&webhook, delivery, recovery, event, key).iter().map(|(operation, ..)| *operation).collect();
    assert_eq!(asked, contract.operations(|call| call["security"] != json!([])), "every call is asked");
    for (operation, method, path, body, _) in calls(&webhook, delivery, recovery, event, key) {
        let path = format!("/api/v1{path}");
        let refuses = async |api: &Api, path: &str, status: u16| {
            contract.check(operation, status, &send(api, method, path, body.as_ref()).await);
        };
        for (who, expected) in [(&nobody, 401), (&expired, 401), (&clerk, 403)] {
            refuses(who, &path, expected).await;
        }
        if path.contains(&webhook) || path.contains(event) || path.contains(key) {
            refuses(&own, &path, 404).await;
        }
        if path.contains(&webhook) {
            refuses(&owner, &path.replace(&webhook, &Uuid::now_v7().to_string()), 404).await;
        }
        if path.contains(delivery) || path.contains(recovery) {
            // Of another webhook.
            refuses(&own, &path.replace(&webhook, &others), 404).await;
        }
    }
    assert_eq!(state().await, before, "nobody has changed anything");
    for (operation, method, path, body, expected) in calls(&webhook, delivery, recovery, event, key) {
        let answer = send(&owner, method, &format!("/api/v1{path}"), body.as_ref()).await;
        contract.check(operation, expected, &answer);
    }
}
