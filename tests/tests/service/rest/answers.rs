//! The answer of every operation, as a snapshot.
use std::fs;

use domain::{EventType, catalogue};
use end_to_end::{
    api::Api,
    events::Event,
    history,
    receiver::{Receiver, Reply, behaviour},
    servers::repository,
    system::{Options, Service, System, TestSystem},
    wait::{SOON, eventually},
};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    contracts,
    openapi::{Contract, described},
    rest::snapshots::Snapshots,
};

const LIST: &str = "/api/v1/webhooks/";
const TENANT: Uuid = Uuid::from_u128(0x5b0e_0000_0000_4000_8000_0000_0000_0001);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_answers_as_its_snapshot_says() {
    let system = TestSystem::running(Options::default().keeping_long()).await;
    let mut snapshots = Snapshots::of("operations");
    let api = system.admin(TENANT).await;
    let fails_once = behaviour(|_, nth| match nth {
        1 => Reply::status(503).body("maintenance"),
        _ => Reply::ok().body("thanks"),
    });
    let receiver = Receiver::start(&system.ca, fails_once);
    let webhook = of_webhooks(&api, &receiver, &mut snapshots).await;
    of_deliveries(&system, &api, &webhook, &mut snapshots).await;
    of_recoveries(&system, &api, &webhook, &mut snapshots).await;
    snapshots.compare("cancelDeliveries", &api.ask(&format!("{LIST}{webhook}/cancel/")).await);
    snapshots.compare("deleteWebhook", &api.delete(&format!("{LIST}{webhook}/")).await);
    of_keys(&api, &mut snapshots).await;
    of_event_types(&api, &mut snapshots).await;
    of_documentation(&system.anonymous().await, &mut snapshots).await;
    let described = Contract::committed();
    snapshots.assert_of(&described.operations(|_| true));
}

/// Returns the id of the first of two webhooks.
async fn of_webhooks(api: &Api, receiver: &Receiver, snapshots: &mut Snapshots) -> String {
    let events = json!(["quote.closed", "quote.accepted"]);
    let new = json!({"name": "ERP: quotes", "url": receiver.url("/in"), "events": events});
    let created = api.post(LIST, &new).await;
    snapshots.compare("createWebhook", &created);
    let webhook = created.json()["id"].as_str().unwrap().to_owned();
    api.create(&receiver.url("/other"), &["return_note.created"]).await;
    snapshots.compare("listWebhooks", &api.get(&format!("{LIST}?limit=1")).await);
    let change = json!({"name": "ERP: all quotes"});
    snapshots.compare("changeWebhook", &api.patch(&format!("{LIST}{webhook}/"), &change).await);
    webhook
}

/// The dispatcher is stopped once one delivery is done, so that the others wait.
async fn of_deliveries(system: &System, api: &Api, webhook: &str, snapshots: &mut Snapshots) {
    let timestamp = "2020-03-01T09:30:00.123456Z".to_owned();
    system.upstream.publish(&[Event { timestamp, ..Event::now(EventType::QuoteClosed, TENANT) }]).await;
    let delivery = api.newest_in(webhook, "succeeded").await;
    system.stop(Service::Dispatcher).await;
    snapshots.compare("readWebhook", &api.get(&format!("{LIST}{webhook}/")).await);
    let path = format!("{LIST}{webhook}/deliveries/{}/", delivery["id"].as_str().unwrap());
    snapshots.compare("readDelivery", &api.get(&path).await);
    let by_id = format!("/api/v1/deliveries/{}/", delivery["id"].as_str().unwrap());
    snapshots.compare("readTenantDelivery", &api.get(&by_id).await);
    let event = format!("/api/v1/events/{}/", delivery["event_id"].as_str().unwrap());
    snapshots.compare("readEvent", &api.get(&event).await);
    snapshots.compare("resendDelivery", &api.ask(&format!("{path}resend/")).await);
    snapshots.compare("testWebhook", &api.ask(&format!("{LIST}{webhook}/test/")).await);
    snapshots.compare("listDeliveries", &api.get(&format!("{LIST}{webhook}/deliveries/?limit=1")).await);
    snapshots.compare("listTenantDeliveries", &api.get("/api/v1/deliveries/?limit=1").await);
    snapshots.compare("listTenantHistory", &api.get("/api/v1/history/?limit=1").await);
}

async fn of_recoveries(system: &System, api: &Api, webhook: &str, snapshots: &mut Snapshots) {
    history::dropped(system, TENANT, webhook, 3).await;
    let since = json!({"from": "2020-01-01T00:00:00Z"});
    let running = api.recover(webhook, &since).await;
    snapshots.compare("recoverDeliveries", &running);
    let path = running.header("location").unwrap();
    let done = eventually("the recovery is done", SOON, || async {
        let read = api.get(path).await;
        (read.json()["state"] == "done").then_some(read)
    })
    .await;
    snapshots.compare("readRecovery", &done);
    snapshots.compare("stopRecovery", &api.delete(path).await);
    snapshots.compare("listRecoveries", &api.get(&format!("{LIST}{webhook}/recover/")).await);
    for (operation, call) in
        [("readStats", "stats/?step=day"), ("listNotices", "notices/"), ("listHistory", "history/")]
    {
        let answer = api.get(&format!("{LIST}{webhook}/{call}")).await;
        let mut first = answer.json();
        // One entry shows what all are like. How many days there are is the clock's matter.
        first["data"].as_array_mut().unwrap().truncate(1);
        snapshots.compare_with(operation, &answer, &first);
    }
}

async fn of_keys(api: &Api, snapshots: &mut Snapshots) {
    let list = "/api/v1/keys/";
    let created = api.post(list, &json!({"name": "ERP sync", "expires_at": "2099-01-01T00:00:00Z"})).await;
    snapshots.compare("createKey", &created);
    snapshots.compare("listKeys", &api.get(list).await);
    let id = created.json()["id"].as_str().unwrap().to_owned();
    snapshots.compare("revokeKey", &api.delete(&format!("{list}{id}/")).await);
}

/// Shows the first one. The schemas of all are in the description of the API.
async fn of_event_types(api: &Api, snapshots: &mut Snapshots) {
    let answer = api.get("/api/v1/event-types/").await;
    let mut list = answer.json();
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let catalogue = EventType::ALL.map(|one| {
        let (schema, sample) = (json(catalogue::schema(one)), json(catalogue::sample(one)));
        json!({"event_type": one, "description": catalogue::description(one), "schema": schema, "sample": sample})
    });
    assert_eq!(list["data"], json!(catalogue));
    let others = list["data"].as_array_mut().unwrap().split_off(1);
    list["others"] = json!(others.len());
    snapshots.compare_with("listEventTypes", &answer, &list);
}

/// These texts are too long for a snapshot, and two of them are in files.
async fn of_documentation(anybody: &Api, snapshots: &mut Snapshots) {
    let openapi = anybody.get("/api/v1/openapi.json").await;
    assert!(openapi.json() == described(), "openapi.json is proto-schemas/openapi.json");
    snapshots.compare_with("readOpenApi", &openapi, &json!("[proto-schemas/openapi.json]"));
    let (style, file) = (anybody.get("/api/v1/docs/style.css").await, "crates/console/src/assets/docs.css");
    assert!(style.text == fs::read_to_string(repository().join(file)).unwrap(), "docs/style.css is {file}");
    snapshots.compare_with("readDocsStyle", &style, &json!(format!("[{file}]")));
    let asyncapi = anybody.get("/api/v1/asyncapi.yaml").await;
    // The schemas are served in a folder.
    let with_folder = contracts::file("asyncapi.yaml").replace("$ref: './", "$ref: './schemas/");
    assert!(asyncapi.text == with_folder, "{}", asyncapi.text);
    snapshots.compare_with("readAsyncApi", &asyncapi, &json!("[proto-schemas/asyncapi.yaml]"));
    for name in contracts::SCHEMAS {
        assert!(anybody.get(&format!("/api/v1/schemas/{name}")).await.text == contracts::file(name), "{name}");
    }
    let schema = anybody.get("/api/v1/schemas/event.schema.json").await;
    snapshots.compare_with("readSchema", &schema, &json!("[proto-schemas/event.schema.json]"));
    let page = anybody.get("/api/v1/docs/").await;
    assert!(page.text.starts_with("<!DOCTYPE html>") && page.text.ends_with("</html>"), "{}", page.text);
    snapshots.compare_with("readDocs", &page, &json!("[a page]"));
    let page = anybody.get("/api/v1/docs/webhooks/").await;
    assert!(page.text.contains("id=\"createWebhook\""), "{}", page.text);
    snapshots.compare_with("readDocsPage", &page, &json!("[a page]"));
}
