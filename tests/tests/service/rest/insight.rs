//! Statistics, notices and the history of webhooks.
use std::collections::BTreeSet;

use end_to_end::{
    api::{Api, Created},
    events::Event,
    proxy::{Mode, Proxy},
    receiver::{Receiver, always},
    servers::repository,
    system::{Options, Service, System, TestSystem},
    wait::{SOON, eventually, until},
};
use jsonschema::Validator;
use lapin::message::BasicGetMessage;
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use uuid::Uuid;

use crate::further_api::FurtherApi;

/// A schedule whose deliveries are dropped after three attempts, and thresholds that are reached at once.
fn short() -> Options {
    Options {
        schedule: "200ms,400ms",
        ..Options::with([
            ("RECONCILE__INTERVAL", "100ms"),
            ("NOTICES__FAILING_AFTER", "200ms"),
            ("NOTICES__FAILING_ATTEMPTS", "2"),
            ("NOTICES__FAILING_AGAIN_AFTER", "1h,2h"),
        ])
    }
}

fn path(webhook: &Created, call: &str) -> String {
    format!("/api/v1/webhooks/{}/{call}", webhook.id)
}

async fn list(api: &Api, webhook: &Created, call: &str) -> Vec<Value> {
    let answer = api.get(&path(webhook, call)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()["data"].as_array().unwrap().clone()
}

async fn publish(system: &System, tenant: Uuid) {
    system.upstream.publish(&Event::closed(tenant, 1)).await;
}

fn moment(value: &Value) -> OffsetDateTime {
    OffsetDateTime::parse(value.as_str().unwrap(), &Rfc3339).unwrap()
}

fn schema() -> Validator {
    let schema = std::fs::read(repository().join("proto-schemas/notice.schema.json")).unwrap();
    let schema: Value = serde_json::from_slice(&schema).unwrap();
    jsonschema::draft202012::options().should_validate_formats(true).build(&schema).unwrap()
}

/// Takes notices of these types from a queue, however they are ordered and repeated.
async fn take_notices(system: &System, queue: &str, types: &[&str]) -> Vec<Value> {
    let (schema, wanted) = (schema(), types.iter().copied().collect::<BTreeSet<_>>());
    let notices = Vec::<Value>::new();
    let notices = tokio::sync::Mutex::new(notices);
    until(&format!("{types:?} come"), SOON, || async {
        let mut notices = notices.lock().await;
        while let Some(message) = system.upstream.take(queue).await {
            let notice = read(&schema, &message);
            if notices.iter().all(|one| one["notice_id"] != notice["notice_id"]) {
                notices.push(notice);
            }
        }
        let there: BTreeSet<_> = notices.iter().map(|one| one["type"].as_str().unwrap()).collect();
        there.is_superset(&wanted)
    })
    .await;
    notices.into_inner()
}

/// Checks a message and reads its notice.
fn read(schema: &Validator, message: &BasicGetMessage) -> Value {
    let notice: Value = serde_json::from_slice(&message.data).unwrap();
    let violations: Vec<_> = schema.iter_errors(&notice).map(|one| one.to_string()).collect();
    assert!(violations.is_empty(), "{violations:?} in {notice}");
    assert_eq!(message.routing_key.as_str(), notice["type"].as_str().unwrap());
    assert_eq!(*message.properties.delivery_mode(), Some(2), "it survives a restart of the broker");
    let id = message.properties.message_id().as_ref().unwrap().to_string();
    assert_eq!(id, notice["notice_id"].as_str().unwrap());
    notice
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_webhook_says_since_when_why_and_what_is_next_and_a_mended_one_that_it_works() {
    let options = Options { schedule: "1h,2h", ..Options::default() };
    let system = TestSystem::running(options).await;
    let (tenant, api) = system.tenant().await;
    let receiver = Receiver::start(&system.ca, always(503));
    let webhook = api.create(&receiver.url("/"), &["quote.closed"]).await;
    let fresh = api.webhook(&webhook.id).await;
    assert_eq!(
        (&fresh["failing_since"], &fresh["last_failure"], &fresh["next_attempt_at"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    for count in 1..=2 {
        publish(&system, tenant).await;
        until("the failure counts", SOON, || async { api.webhook(&webhook.id).await["failure_count"] == count }).await;
    }
    let failing = api.webhook(&webhook.id).await;
    let since = moment(&failing["failing_since"]);
    let last = moment(&failing["last_failure"]["at"]);
    assert!(since < last, "{failing}");
    let error = failing["last_failure"]["error"].as_str().unwrap();
    assert!(error.contains("503"), "{error}");
    assert_eq!(failing["deliveries"], json!({"waiting": 2, "dropped": 0, "skipped": 0}));
    let due = moment(&failing["next_attempt_at"]) - since;
    assert!((due - time::Duration::HOUR).abs() < time::Duration::SECOND, "{due}");
    assert_eq!(api.get("/api/v1/webhooks/").await.json()["data"][0], failing, "the list says the same");

    let answer = api.patch(&path(&webhook, ""), &json!({"is_active": false})).await.json();
    assert_eq!(answer["next_attempt_at"], Value::Null, "nothing is attempted while it is paused");
    api.patch(&path(&webhook, ""), &json!({"is_active": true})).await;
    receiver.behave(always(200));
    publish(&system, tenant).await;
    let mended = eventually("it works", SOON, || async {
        let webhook = api.webhook(&webhook.id).await;
        (webhook["failure_count"] == 0).then_some(webhook)
    })
    .await;
    assert_eq!(mended["failing_since"], Value::Null);
    assert_eq!(mended["last_failure"], failing["last_failure"], "the last failure stays readable");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statistics_count_attempts_outcomes_drops_and_durations() {
    let system = TestSystem::shared().await;
    let (tenant, api) = system.tenant().await;
    let receiver = Receiver::start(&system.ca, always(500));
    let webhook = api.create(&receiver.url("/"), &["quote.closed"]).await;
    publish(&system, tenant).await;
    api.newest_in(&webhook.id, "dropped").await;
    receiver.behave(always(200));
    publish(&system, tenant).await;
    api.newest_in(&webhook.id, "succeeded").await;

    let stats = api.get(&path(&webhook, "stats/")).await.json();
    let total = &stats["total"];
    let counts = ["attempts", "succeeded", "dropped"].map(|member| total[member].as_u64().unwrap());
    assert_eq!(counts, [8, 1, 1], "{stats}");
    assert_eq!((&total["outcomes"]["success"], &total["outcomes"]["status"]), (&json!(1), &json!(7)));
    let steps = stats["data"].as_array().unwrap();
    assert!((24..=25).contains(&steps.len()), "{} steps", steps.len());
    let sum: u64 = steps.iter().map(|step| step["attempts"].as_u64().unwrap()).sum();
    assert_eq!(sum, 8, "each attempt is in one step");
    assert!(total["duration_ms"]["p50"].is_u64(), "{total}");
    let days = api.get(&path(&webhook, "stats/?step=day")).await.json();
    assert_eq!((&days["total"], &days["step"]), (total, &json!("day")));
    let before = api.get(&path(&webhook, "stats/?to=2026-03-01T00:00:00Z")).await.json();
    assert_eq!(before["total"]["attempts"], 0);

    let (id, now) = (webhook.id.parse().unwrap(), OffsetDateTime::now_utc());
    let ledger = system.ledger_as("statistics", 1);
    let by_hour = async |tenant: Uuid| {
        let span = (now - time::Duration::DAY, now + time::Duration::HOUR);
        let hours = ledger.stats_by_webhook(tenant.into(), &[id], span).await.unwrap();
        assert!(hours.iter().all(|hour| hour.webhook == id));
        let sum = |of: fn(&ledger::HourCounts) -> i64| hours.iter().map(of).sum::<i64>();
        [sum(|hour| hour.succeeded), sum(|hour| hour.failed), sum(|hour| hour.dropped)]
    };
    assert_eq!((by_hour(tenant).await, by_hour(Uuid::new_v4()).await), ([1, 7, 1], [0; 3]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn administrators_are_told_of_failing_dropping_and_recovered_webhooks() {
    let system = TestSystem::running(short()).await;
    let (tenant, api) = system.tenant().await;
    let own = format!("{}-own", system.names.notices());
    system.upstream.bind_own_queue(&own, &system.names.notices(), "webhook.*").await;
    let receiver = Receiver::start(&system.ca, always(500));
    let webhook = api.create(&receiver.url("/"), &["quote.closed"]).await;
    publish(&system, tenant).await;
    let dropped = api.newest_in(&webhook.id, "dropped").await;
    let attempts = api.delivery(&webhook.id, dropped["id"].as_str().unwrap()).await["attempt_log"].clone();
    let since = moment(&api.webhook(&webhook.id).await["failing_since"]);
    assert!(since < moment(&attempts[1]["started_at"]), "it has failed since the first failure: {since} {attempts}");
    let told = take_notices(&system, &own, &["webhook.created", "webhook.failing", "webhook.dropping"]).await;
    assert_eq!(told.len(), 3, "each is told once: {told:?}");
    let of = |wanted: &str| told.iter().find(|one| one["type"] == wanted).unwrap();
    let failing = of("webhook.failing");
    assert_eq!((&failing["webhook_id"], &failing["tenant_id"]), (&json!(webhook.id), &json!(tenant)));
    assert!(failing["details"]["failed_attempts"].as_u64().unwrap() >= 2, "{failing}");
    assert!(failing["summary"].as_str().unwrap().contains("500"), "{failing}");
    assert_eq!(of("webhook.dropping")["details"]["delivery_id"], dropped["id"]);

    // A second drop is no news. It is there before the success, so its notice would be, too.
    publish(&system, tenant).await;
    until("a second one is dropped", SOON, || async { api.webhook(&webhook.id).await["deliveries"]["dropped"] == 2 })
        .await;
    assert_eq!(moment(&api.webhook(&webhook.id).await["failing_since"]), since);
    receiver.behave(always(200));
    publish(&system, tenant).await;
    let told = take_notices(&system, &own, &["webhook.recovered"]).await;
    assert_eq!(told.len(), 1, "{told:?}");
    let details = &told[0]["details"];
    assert_eq!(details["dropped"], 2);
    assert!(moment(&details["failing_since"]) < moment(&details["succeeded_at"]));

    // The request that the notice names recovers both.
    let request = &details["recover"];
    let answer = api.post(request["path"].as_str().unwrap(), &request["body"]).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    system.until_count("SELECT count(*) FROM deliveries WHERE state = 'succeeded'", 3, SOON).await;
    let listed = list(&api, &webhook, "notices/").await;
    assert_eq!(listed[0], told[0], "the API shows the same, newest first");
    assert_eq!(listed.len(), 4);
    assert_eq!(system.upstream.ready(&system.names.notices()).await, 0, "somebody took them");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_fails_for_long_is_told_of_again_and_a_paused_one_is_not() {
    let system = TestSystem::prepared(short()).await;
    let tenant = Uuid::new_v4();
    system.start(Service::Api).await;
    let api = system.admin(tenant).await;
    let [failing, paused, few] = [1, 2, 3].map(|number| format!("https://example.com/{number}"));
    let failing = api.create(&failing, &["quote.closed"]).await;
    let paused = api.create(&paused, &["quote.closed"]).await;
    let few = api.create(&few, &["quote.closed"]).await;
    for (webhook, failures) in [(&failing, 5), (&paused, 5), (&few, 1)] {
        let row = format!("'{}', {failures}, now() - interval '30 minutes'", webhook.id);
        let columns = "webhook_id, failure_count, failing_since";
        system.sql(&format!("INSERT INTO webhook_health ({columns}) VALUES ({row})")).await;
    }
    api.patch(&path(&paused, ""), &json!({"is_active": false})).await;
    system.start(Service::Ingest).await;
    let told = async |webhook: &Created| {
        let notices = list(&api, webhook, "notices/").await;
        notices.iter().filter(|one| one["type"] == "webhook.failing").count()
    };
    let count = async |wanted: usize| {
        until(&format!("{wanted} notices"), SOON, || async { told(&failing).await == wanted }).await;
    };
    count(1).await;
    assert_eq!(told(&few).await, 0);
    let age = async |interval: &str| {
        system.sql(&format!("UPDATE webhook_health SET failing_since = now() - interval '{interval}'")).await;
    };
    age("61 minutes").await;
    count(2).await;
    age("3 hours").await;
    count(3).await;
    // A success ends the period. After a new one, whose times have all passed, one notice tells.
    system.sql("UPDATE webhook_health SET failing_notices = 0").await;
    count(4).await;
    age("4 hours").await;
    // A pass that looks at all of them tells of this one.
    system.sql(&format!("UPDATE webhook_health SET failure_count = 5 WHERE webhook_id = '{}'", few.id)).await;
    until("a pass", SOON, || async { told(&few).await == 1 }).await;
    let passes = "SELECT failing_notices::bigint FROM webhook_health WHERE webhook_id = ";
    assert_eq!(system.count(&format!("{passes} '{}'", failing.id)).await, 3);
    assert_eq!((told(&paused).await, told(&failing).await), (0, 4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_did_what_is_in_the_history_and_told_and_outlives_the_webhook() {
    let system = TestSystem::running(Options::default()).await;
    let (_tenant, api) = system.tenant().await;
    let receiver = Receiver::start(&system.ca, always(200));
    let webhook = api.create(&receiver.url("/a"), &["quote.closed"]).await;
    assert_eq!(api.patch(&path(&webhook, ""), &json!({"url": receiver.url("/a")})).await.status, 200);
    let change = json!({"url": receiver.url("/b"), "is_active": false});
    assert_eq!(api.patch(&path(&webhook, ""), &change).await.status, 200);
    api.set_active(&webhook.id, true).await;
    let test = api.post(&path(&webhook, "test/"), &json!({})).await.json();
    let id = test["id"].as_str().unwrap();
    api.newest_in(&webhook.id, "succeeded").await;
    assert_eq!(api.resend(&webhook.id, &test).await.status, 202);
    assert_eq!(api.delete(&path(&webhook, "")).await.status, 204);

    let history = list(&api, &webhook, "history/").await;
    let actions: Vec<_> = history.iter().rev().map(|one| one["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["created", "changed", "changed", "tested", "resent", "deleted"], "no change, no entry");
    assert!(history.iter().all(|entry| entry["user"] == "somebody"));
    let changed = &history[4]["details"];
    let url = json!({"from": receiver.url("/a"), "to": receiver.url("/b")});
    assert_eq!(changed, &json!({"url": url, "is_active": {"from": true, "to": false}}));
    assert_eq!(history[2]["details"]["delivery_id"], id);
    assert_eq!(history[0]["details"], json!({"name": "A test", "url": receiver.url("/b")}));
    let text = serde_json::to_string(&history).unwrap();
    assert!(!text.contains(&webhook.secret["whsec_".len()..]), "never the secret");
    let expected = ["webhook.activated", "webhook.changed", "webhook.created", "webhook.deleted", "webhook.paused"];
    let told = take_notices(&system, &system.names.notices(), &expected).await;
    let mut types: Vec<_> = told.iter().map(|one| one["type"].as_str().unwrap()).collect();
    types.sort_unstable();
    assert_eq!(types, expected, "our queue keeps what nobody takes");
    let changed = told.iter().find(|one| one["type"] == "webhook.changed").unwrap();
    assert_eq!(changed["details"], json!({"user": "somebody", "changed": ["url"]}));

    assert_eq!(api.whole(&path(&webhook, "history/"), "limit=2").await, history, "page by page it is the same");
    let other = system.admin(Uuid::new_v4()).await;
    system.sql("DELETE FROM deliveries").await;
    system.sql("DELETE FROM webhooks").await;
    assert_eq!(list(&api, &webhook, "history/").await, history, "it outlives the webhook's row");
    system.sql("DELETE FROM notices").await;
    assert_eq!(list(&api, &webhook, "notices/").await, Vec::<Value>::new(), "there are none any more");
    for call in ["history/", "notices/"] {
        assert_eq!(other.get(&path(&webhook, call)).await.status, 404, "{call}");
    }
}

/// At least once: what the broker has not confirmed in time is published again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notice_that_is_not_confirmed_comes_again_and_is_the_same() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let admin = system.admin(Uuid::new_v4()).await;
    system.stop(Service::Api).await;
    let (proxy, url) = Proxy::before(&system.amqp_url);
    let settings = [("BROKER__URL", url.as_str()), ("BROKER__CONFIRM_TIMEOUT", "1s")];
    let api = FurtherApi::start(&system, &settings, &admin).await;
    let webhook = api.create("https://example.com/", &["quote.closed"]).await;
    let queue = system.names.notices();
    take_notices(&system, &queue, &["webhook.created"]).await;

    proxy.set(Mode::HoldAnswers);
    assert_eq!(api.patch(&path(&webhook, ""), &json!({"name": "other"})).await.status, 200);
    let first = take_notices(&system, &queue, &["webhook.changed"]).await;
    // The held confirm is lost with its connection.
    proxy.set(Mode::Refuse);
    assert_eq!(api.patch(&path(&webhook, ""), &json!({"name": "a third one"})).await.status, 200);
    let unpublished = "SELECT count(*) FROM notices WHERE leased_until IS NOT NULL";
    assert_eq!(system.count(unpublished).await, 2, "without a confirm a notice is not published");
    proxy.set(Mode::Pass);
    let noted = until("both are noted", SOON, || async {
        system.sql("UPDATE notices SET leased_until = now() WHERE leased_until > now()").await;
        system.count(unpublished).await == 0
    });
    noted.await;
    let again = take_notices(&system, &queue, &["webhook.changed"]).await;
    assert!(again.contains(&first[0]), "the same, with the name of that time: {again:?}");
    assert_eq!(again.len(), 2, "{again:?}");
}
