//! Changing and deleting webhooks.

use end_to_end::{
    events::Event,
    receiver::{Receiver, always},
    system::{Options, Service, Subscriber, TestSystem},
    wait::{SOON, eventually},
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::further_api::FurtherApi;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_shows_what_was_given_and_leaves_the_rest() {
    let system = TestSystem::shared().await;
    let api = system.admin(Uuid::new_v4()).await;
    let webhook = api.create("https://localhost/a", &["quote.closed"]).await;
    let path = format!("/api/v1/webhooks/{}/", webhook.id);
    let before = api.webhook(&webhook.id).await;

    let nothing = api.patch(&path, &json!({})).await;
    assert_eq!((nothing.status, nothing.json()), (200, before.clone()));

    let change = json!({"name": "Другой", "description": "Ask Ann.\n\tQuotes only.", "events": ["return_note.created", "quote.closed"]});
    let changed = api.patch(&path, &change).await;
    assert_eq!(changed.status, 200, "{}", changed.text);
    let changed = changed.json();
    assert_eq!(changed, api.webhook(&webhook.id).await);
    for given in ["name", "description", "events"] {
        assert_eq!(changed[given], change[given], "{given}");
    }
    for same in ["id", "url", "is_active", "created_at"] {
        assert_eq!(changed[same], before[same], "{same}");
    }
    assert!(changed["updated_at"].as_str() > before["updated_at"].as_str());
    assert!(!changed.to_string().contains(&webhook.secret));

    let equal = api.patch(&path, &json!({"name": changed["name"], "url": changed["url"], "is_active": true})).await;
    assert_eq!((equal.status, equal.json()), (200, changed.clone()), "nothing has changed, updated_at neither");

    let turned = api.patch(&path, &json!({"events": ["quote.closed", "return_note.created"]})).await;
    assert_eq!((turned.status, turned.json()), (200, changed.clone()), "events are a set");
    let history = api.get(&format!("{path}history/")).await.json();
    assert_eq!(history["data"].as_array().unwrap().len(), 2, "created, changed: {history}");

    let refused = api.patch(&path, &json!({"url": "http://x/", "is_active": 1, "signing_secret": "mine"})).await;
    assert_eq!(refused.status, 422);
    assert_eq!(changed, api.webhook(&webhook.id).await, "nothing was changed");
}

/// A commit that lasts longer than a request may: so it waits for a standby that is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_is_not_confirmed_in_time_says_that_it_may_have_been_made() {
    let system = TestSystem::serving(Options::default().impatient(), [Service::Api]).await;
    let api = system.admin(Uuid::new_v4()).await;
    let function = "CREATE FUNCTION wait_long() RETURNS trigger LANGUAGE plpgsql \
                    AS $$ BEGIN PERFORM pg_sleep(3); RETURN NULL; END $$";
    let trigger = "CREATE CONSTRAINT TRIGGER wait_long AFTER INSERT ON webhooks DEFERRABLE INITIALLY DEFERRED \
                   FOR EACH ROW EXECUTE FUNCTION wait_long()";
    system.sql(function).await;
    system.sql(trigger).await;
    let new = json!({"name": "A test", "url": "https://localhost/", "events": ["quote.closed"]});
    let answer = api.post("/api/v1/webhooks/", &new).await;
    assert_eq!((answer.status, &answer.json()["code"]), (503, &json!("unconfirmed")), "{}", answer.text);
    let made = eventually("it was made all the same", SOON, async || {
        api.get("/api/v1/webhooks/").await.json()["data"][0]["id"].as_str().map(str::to_owned)
    })
    .await;
    assert_eq!(api.delete(&format!("/api/v1/webhooks/{made}/")).await.status, 204);
}

/// The order of ids is another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_is_in_the_order_of_the_registrations() {
    let system = TestSystem::shared().await;
    let api = system.admin(Uuid::new_v4()).await;
    let mut ids = Vec::new();
    for minutes in [3, 1, 2, 2] {
        let id = api.create("https://localhost/", &["quote.closed"]).await.id;
        let at = format!("'2026-03-01T09:00:00.123456Z'::timestamptz + interval '{minutes} minutes'");
        system.sql(&format!("UPDATE webhooks SET created_at = {at} WHERE id = '{id}'")).await;
        ids.push(id);
    }
    let expected = [&ids[1], &ids[2], &ids[3], &ids[0]];
    let (mut listed, mut query) = (Vec::new(), "limit=1".to_owned());
    loop {
        let page = api.get(&format!("/api/v1/webhooks/?{query}")).await.json();
        let id = page["data"][0]["id"].as_str().unwrap().to_owned();
        // The place of a deleted webhook stays.
        api.delete(&format!("/api/v1/webhooks/{id}/")).await;
        listed.push(id);
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        query = format!("limit=1&cursor={cursor}");
    }
    assert_eq!(listed.iter().collect::<Vec<_>>(), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_url_holds_for_the_next_attempt() {
    let system = TestSystem::shared().await;
    let (tenant, api) = system.tenant().await;
    let (old, new) = (Receiver::start(&system.ca, always(500)), Receiver::start(&system.ca, always(200)));
    let webhook = api.create(&old.url("/old"), &["quote.closed"]).await;
    let path = format!("/api/v1/webhooks/{}/", webhook.id);

    system.upstream.publish(&Event::closed(tenant, 1)).await;
    let first = old.wait_for(1, SOON).await.remove(0);
    assert_eq!(api.patch(&path, &json!({"url": new.url("/new")})).await.status, 200);
    let retry = new.wait_for(1, SOON).await.remove(0);
    assert_eq!((retry.path.as_str(), &retry.body), ("/new", &first.body));
    assert_eq!(retry.header("x-service-webhook-id"), first.header("x-service-webhook-id"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_cancels_what_waits_and_leaves_the_history() {
    let system = TestSystem::shared().await;
    let Subscriber { tenant, api, receiver: _receiver, webhook, .. } = system.subscriber(always(500)).await;
    let path = format!("/api/v1/webhooks/{webhook}/");
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    let waiting = api.newest_in(&webhook, "retrying").await;

    let deleted = api.delete(&path).await;
    assert_eq!((deleted.status, deleted.text.as_str()), (204, ""));
    assert_eq!(api.get(&path).await.status, 404);
    assert_eq!(api.delete(&path).await.status, 404);
    assert_eq!(api.patch(&path, &json!({"is_active": true})).await.status, 404);
    assert_eq!(api.ask(&format!("{path}test/")).await.status, 404);
    assert_eq!(api.post(&format!("{path}recover/"), &json!({"from": "2026-01-01T00:00:00Z"})).await.status, 404);
    let id = waiting["id"].as_str().unwrap();
    assert_eq!(api.ask(&format!("{path}deliveries/{id}/resend/")).await.status, 404);
    assert_eq!(api.get("/api/v1/webhooks/").await.json()["data"], json!([]));

    let delivery = api.delivery(&webhook, id).await;
    assert_eq!((&delivery["state"], &delivery["next_attempt_at"]), (&json!("cancelled"), &Value::Null));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_registers_and_deletes_in_a_loop_comes_to_an_end() {
    let system = TestSystem::shared().await;
    let ((tenant, api), (_, other)) = (system.tenant().await, system.tenant().await);
    let api = FurtherApi::start(&system, &[("LIMITS__WEBHOOKS_PER_TENANT", "1")], &api).await;
    let of_tenant = format!("FROM webhooks WHERE tenant_id = '{tenant}'");
    let age = format!("UPDATE webhooks SET deleted_at = now() - interval '1 minute' WHERE tenant_id = '{tenant}'");
    let url = "https://localhost/";
    let registration = json!({"name": "A loop", "url": url, "events": ["quote.closed"]});
    for _ in 0..10 {
        let id = api.create(url, &["quote.closed"]).await.id;
        assert_eq!(api.delete(&format!("/api/v1/webhooks/{id}/")).await.status, 204);
    }
    // None of them had a delivery. Ingest may have read one before its deletion.
    system.sql(&age).await;
    let id = api.create(url, &["quote.closed"]).await.id;
    assert_eq!(system.count(&format!("SELECT count(*) {of_tenant}")).await, 1, "the others are gone");
    assert_eq!(api.delete(&format!("/api/v1/webhooks/{id}/")).await.status, 204);
    for _ in 1..10 {
        let id = api.create(url, &["quote.closed"]).await.id;
        assert_eq!(api.delete(&format!("/api/v1/webhooks/{id}/")).await.status, 204);
    }
    let id = "(lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') || '8' \
              || substr(md5(id::text), 1, 3) || '8' || substr(md5(id::text), 4, 15))::uuid";
    let delivery = "INSERT INTO deliveries (id, webhook_id, event_id, event_type, state)";
    let of_each = format!("{delivery} SELECT {id}, id, gen_random_uuid(), 'quote.closed', 'succeeded' {of_tenant}");
    system.sql(&of_each).await;
    system.sql(&age).await;
    let refused = api.post("/api/v1/webhooks/", &registration).await;
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("too_many_deleted_webhooks")));
    other.create(url, &["quote.closed"]).await;
    // As retention does.
    let one = format!("SELECT id FROM deliveries WHERE webhook_id IN (SELECT id {of_tenant}) LIMIT 1");
    system.sql(&format!("DELETE FROM deliveries WHERE id = ({one})")).await;
    api.create(url, &["quote.closed"]).await;
    let refused = api.post("/api/v1/webhooks/", &registration).await;
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("too_many_webhooks")));
}
