//! Test deliveries, and the event types.

use std::time::{Duration, Instant};

use domain::{EventType, catalogue};
use end_to_end::{
    receiver::{Receiver, always, verify},
    system::{Options, Service, TestSystem},
    wait::SOON,
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::rest::resend::outbox_empties;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_is_a_real_delivery_of_a_sample_and_marked() {
    let system = TestSystem::shared().await;
    let (tenant, api) = system.tenant().await;
    let receiver = Receiver::start(&system.ca, always(200));
    let webhook = api.create(&receiver.url("/"), &["stock_receipt.completed", "quote.closed"]).await;
    let path = format!("/api/v1/webhooks/{}/test/", webhook.id);
    for (body, event_type) in [
        (None, EventType::StockReceiptCompleted),
        (Some(json!({"event_type": "quote.closed"})), EventType::QuoteClosed),
    ] {
        let nth = receiver.received().len();
        let answer = match &body {
            Some(body) => api.post(&path, body).await,
            None => api.ask(&path).await,
        };
        assert_eq!(answer.status, 202, "{}", answer.text);
        let accepted = answer.json();
        assert_eq!((&accepted["is_test"], &accepted["event_type"]), (&json!(true), &json!(event_type.as_str())));
        let received = receiver.wait_for(nth + 1, SOON).await.remove(nth);
        verify(&received, &webhook.secret).unwrap();
        assert_eq!(received.header("x-service-webhook-id"), accepted["id"].as_str());
        let envelope: Value = serde_json::from_slice(&received.body).unwrap();
        assert_eq!(envelope["tenant_id"], tenant.to_string());
        assert_eq!(envelope["data"], serde_json::from_str::<Value>(catalogue::sample(event_type)).unwrap());
        let recorded = api.newest_in(&webhook.id, "succeeded").await;
        assert_eq!((&recorded["id"], &recorded["is_test"]), (&accepted["id"], &json!(true)));
        assert_eq!(api.get(answer.header("location").unwrap()).await.json()["id"], accepted["id"]);
    }
    let promised = format!(
        "SELECT count(*) FROM promised_jobs AS p JOIN deliveries AS d ON d.id = p.delivery_id WHERE d.webhook_id = '{}'",
        webhook.id
    );
    outbox_empties(&system, &promised).await;
}

/// The relay looks by itself once a second. So twenty tests, one after the other, would take at least 19 s. Nobody else
/// wakes this relay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_wakes_the_relay_that_publishes_its_job() {
    let system = TestSystem::serving(Options::default(), [Service::Api, Service::Dispatcher]).await;
    let api = system.admin(Uuid::new_v4()).await;
    let receiver = Receiver::start(&system.ca, always(200));
    let webhook = api.create(&receiver.url("/"), &["quote.closed"]).await.id;
    let begun = Instant::now();
    for nth in 1..=20 {
        assert_eq!(api.ask(&format!("/api/v1/webhooks/{webhook}/test/")).await.status, 202);
        receiver.wait_for(nth, SOON).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_tested_is_refused_and_leaves_nothing() {
    let system = TestSystem::shared().await;
    let (tenant, api) = system.tenant().await;
    let webhook = api.create("https://localhost/", &["quote.closed"]).await;
    let path = format!("/api/v1/webhooks/{}/", webhook.id);
    let refused = api.post(&format!("{path}test/"), &json!({"event_type": "quote.accepted"})).await;
    assert_eq!((refused.status, &refused.json()["errors"][0]["code"]), (422, &json!("not_subscribed")));
    assert_eq!(api.patch(&path, &json!({"is_active": false})).await.status, 200);
    let refused = api.ask(&format!("{path}test/")).await;
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("webhook_inactive")));
    let left = format!(
        "SELECT (SELECT count(*) FROM deliveries WHERE webhook_id = '{}') \
         + (SELECT count(*) FROM events WHERE tenant_id = '{tenant}')",
        webhook.id
    );
    assert_eq!(system.count(&left).await, 0);
}
