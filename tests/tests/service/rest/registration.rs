//! Registrations and changes that programs repeat.

use end_to_end::{
    api::{Answer, Api},
    events::Event,
    receiver::{Receiver, always},
    system::TestSystem,
    wait::SOON,
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use uuid::Uuid;

const JSON: (&str, &str) = ("content-type", "application/json");

fn new(more: &Value) -> Value {
    let mut new = json!({"name": "A", "url": "https://localhost/", "events": ["quote.closed"]});
    for (name, value) in more.as_object().unwrap() {
        new[name] = value.clone();
    }
    new
}

async fn register(api: &Api, key: &str, more: Value) -> Answer {
    api.send("POST", "/api/v1/webhooks/", &[JSON, ("idempotency-key", key)], new(&more).to_string()).await
}

/// The status and the code of a refusal.
fn refusal(answer: &Answer) -> (u16, String) {
    (answer.status, answer.json()["code"].as_str().unwrap_or_default().to_owned())
}

fn code(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idempotency_key_registers_one_webhook_of_its_tenant() {
    let system = TestSystem::shared().await;
    let [api, other] = [system.admin(Uuid::new_v4()).await, system.admin(Uuid::new_v4()).await];
    let answers = join_all((0..2).map(|_| register(&api, "deploy 1", json!({})))).await;
    let (made, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 201);
    assert_eq!((made.len(), refused.len()), (1, 1));
    let id = made[0].json()["id"].clone();
    let path = format!("/api/v1/webhooks/{}/", id.as_str().unwrap());
    assert_eq!(made[0].header("location"), Some(path.as_str()));

    let again = register(&api, "deploy 1", json!({"name": "B"})).await;
    for refused in refused.into_iter().chain([&again]) {
        assert_eq!(refusal(refused), code(409, "registered_before"));
        assert_eq!(refused.header("location"), Some(path.as_str()));
    }
    assert_eq!(api.get(&path).await.json()["name"], "A");
    let listed = api.get("/api/v1/webhooks/").await.json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 1, "{listed}");

    let of_another_tenant = register(&other, "deploy 1", json!({})).await;
    assert_eq!(of_another_tenant.status, 201, "{}", of_another_tenant.text);
    assert_ne!(of_another_tenant.json()["id"], id);
    assert_eq!(register(&api, "deploy 2", json!({})).await.status, 201);

    // The key of a deleted webhook stays used.
    assert_eq!(api.delete(&path).await.status, 204);
    assert_eq!(refusal(&register(&api, "deploy 1", json!({})).await), code(409, "registered_before"));
    assert_eq!(refusal(&register(&api, &"k".repeat(256), json!({})).await), code(400, "invalid_headers"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_external_id_is_one_webhooks_and_free_after_its_deletion() {
    let system = TestSystem::shared().await;
    let [api, other] = [system.admin(Uuid::new_v4()).await, system.admin(Uuid::new_v4()).await];
    let erp = new(&json!({"external_id": "erp"}));
    let first = api.post("/api/v1/webhooks/", &erp).await.json();
    let path = |webhook: &Value| format!("/api/v1/webhooks/{}/", webhook["id"].as_str().unwrap());
    assert_eq!(first["external_id"], "erp");
    assert_eq!(refusal(&api.post("/api/v1/webhooks/", &erp).await), code(409, "external_id_taken"));
    assert_eq!(other.post("/api/v1/webhooks/", &erp).await.status, 201);
    let second = api.post("/api/v1/webhooks/", &new(&json!({"name": "Second"}))).await.json();
    assert_eq!(second["external_id"], json!(null));
    let taken = api.patch(&path(&second), &json!({"external_id": "erp", "name": "Not this"})).await;
    assert_eq!(refusal(&taken), code(409, "external_id_taken"));
    assert_eq!(api.get(&path(&second)).await.json()["name"], "Second", "nothing was changed");

    let ids = async |query: &str| -> Vec<Value> {
        let listed = api.get(&format!("/api/v1/webhooks/?{query}")).await.json();
        listed["data"].as_array().unwrap().iter().map(|webhook| webhook["id"].clone()).collect()
    };
    assert_eq!(ids("external_id=erp").await, [first["id"].clone()]);
    assert_eq!(ids("name=Second").await, [second["id"].clone()]);
    assert!(ids("external_id=ERP").await.is_empty() && ids("deleted=true").await.is_empty());

    assert_eq!(api.delete(&path(&first)).await.status, 204);
    assert!(ids("external_id=erp").await.is_empty());
    let deleted = api.get("/api/v1/webhooks/?deleted=true&external_id=erp").await.json();
    assert_eq!(deleted["data"][0]["id"], first["id"]);
    assert!(deleted["data"][0]["deleted_at"].is_string(), "{deleted}");
    assert_eq!(api.patch(&path(&second), &json!({"external_id": "erp"})).await.json()["external_id"], "erp");
    let removed = api.patch(&path(&second), &json!({"external_id": null})).await.json();
    assert_eq!(removed["external_id"], json!(null));
    for wrong in ["deleted=yes", "name=%00", "external_id=a%00"] {
        let refused = api.get(&format!("/api/v1/webhooks/?{wrong}")).await;
        assert_eq!(refusal(&refused), code(400, "invalid_parameters"), "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_can_be_registered_paused() {
    let system = TestSystem::shared().await;
    let (tenant, api) = system.tenant().await;
    let receiver = Receiver::start(&system.ca, always(200));
    let paused = new(&json!({"url": receiver.url("/"), "is_active": false}));
    let webhook = api.post("/api/v1/webhooks/", &paused).await.json();
    assert_eq!(webhook["is_active"], false);
    let id = webhook["id"].as_str().unwrap();
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    api.newest_in(id, "skipped").await;
    api.set_active(id, true).await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    let sent = api.newest_in(id, "succeeded").await;
    let received = receiver.wait_for(1, SOON).await;
    assert_eq!(
        received.iter().map(|request| request.header("x-service-webhook-id")).collect::<Vec<_>>(),
        [sent["id"].as_str()]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_with_the_tag_of_other_settings_is_refused() {
    let system = TestSystem::shared().await;
    let api = system.admin(Uuid::new_v4()).await;
    let created = api.post("/api/v1/webhooks/", &new(&json!({}))).await;
    let path = created.header("location").unwrap().to_owned();
    let tag = created.header("etag").unwrap().to_owned();
    assert_eq!(tag, format!("\"{}\"", created.json()["updated_at"].as_str().unwrap()));
    assert_eq!(api.get(&path).await.header("etag"), Some(tag.as_str()));
    let patch = async |tag: &str, body: Value| {
        let headers = [("content-type", "application/merge-patch+json"), ("if-match", tag)];
        api.send("PATCH", &path, &headers, body.to_string()).await
    };
    let answers = join_all(["B", "C"].map(|name| patch(&tag, json!({"name": name})))).await;
    let (made, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert_eq!((made.len(), refusal(refused[0])), (1, code(412, "changed_meanwhile")));
    let current = made[0].header("etag").unwrap();
    assert_ne!(current, tag);
    assert_eq!(api.get(&path).await.json(), made[0].json());

    let delete = async |tag: &str| api.send("DELETE", &path, &[("if-match", tag)], "").await;
    assert_eq!(refusal(&delete(&tag).await), code(412, "changed_meanwhile"));
    assert_eq!(patch("*", json!({"name": "D"})).await.status, 200);
    let current = api.get(&path).await.header("etag").unwrap().to_owned();
    assert_eq!(delete(&format!("{tag}, {current}")).await.status, 204);
    assert_eq!(delete("*").await.status, 404);
    let unsuited = [("content-type", "application/merge-patch+json")];
    let refused = api.send("POST", "/api/v1/webhooks/", &unsuited, new(&json!({})).to_string()).await;
    assert_eq!(refusal(&refused), code(415, "unsupported_media_type"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answer_of_a_get_is_a_change() {
    let system = TestSystem::shared().await;
    let api = system.admin(Uuid::new_v4()).await;
    let webhook = api.create("https://localhost/", &["quote.closed"]).await;
    let path = format!("/api/v1/webhooks/{}/", webhook.id);
    let mut read = api.get(&path).await.json();
    let same = api.patch(&path, &read).await;
    assert_eq!((same.status, same.json()), (200, read.clone()));
    read["name"] = json!("B");
    read["failure_count"] = json!(7);
    let changed = api.patch(&path, &read).await.json();
    assert_eq!((&changed["name"], &changed["failure_count"]), (&json!("B"), &json!(0)));
    read["id"] = json!(Uuid::new_v4());
    let refused = api.patch(&path, &read).await.json();
    assert_eq!(refused["errors"][0]["code"], "other_webhook", "{refused}");
}
