//! What became of an event, for each webhook of its tenant.

use domain::EventType;
use end_to_end::{
    api::Api,
    events::Event,
    receiver::{Receiver, always},
    system::{Options, Subscriber, TestSystem},
    wait::{SOON, eventually_ok},
};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};
use uuid::Uuid;

const URL: &str = "https://localhost/";

async fn read(api: &Api, event: Uuid) -> Value {
    let answer = api.get(&format!("/api/v1/events/{event}/")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

/// What became of the newest event at a webhook.
fn at<'a>(answer: &'a Value, webhook: &str) -> &'a Value {
    let mut webhooks = answer["data"][0]["webhooks"].as_array().expect("there are webhooks").iter();
    webhooks.find(|entry| entry["webhook_id"] == webhook).expect("it is listed")
}

async fn delete(api: &Api, webhook: &str) {
    assert_eq!(api.delete(&format!("/api/v1/webhooks/{webhook}/")).await.status, 204);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_webhook_has_a_delivery_or_a_reason() {
    let options = Options { schedule: "3600s", ..Options::default() };
    let system = TestSystem::running(options).await;
    let (tenant, api) = system.tenant().await;
    let (receiver, failing) = (Receiver::start(&system.ca, always(200)), Receiver::start(&system.ca, always(500)));
    let create = async |url: &str, events: &[&str]| api.create(url, events).await.id;
    let got = create(&receiver.url("/"), &["quote.closed"]).await;
    let ended = create(&failing.url("/"), &["quote.closed"]).await;
    let others = create(URL, &["quote.accepted"]).await;
    let later = create(URL, &["quote.accepted"]).await;
    let gone = create(URL, &["quote.closed"]).await;
    delete(&api, &gone).await;
    let event = Event::now(EventType::QuoteClosed, tenant);
    system.upstream.publish(std::slice::from_ref(&event)).await;
    let delivery = api.newest_in(&got, "succeeded").await;
    api.newest_in(&ended, "retrying").await;
    delete(&api, &ended).await;
    let unwanted = create(URL, &["quote.cancelled"]).await;
    // As if it had been there when the event came: its deletion since then is not why it has no delivery.
    system.sql(&format!("UPDATE webhooks SET created_at = now() - interval '1 day' WHERE id = '{unwanted}'")).await;
    delete(&api, &unwanted).await;
    let subscribed = json!({"events": ["quote.accepted", "quote.closed"]});
    assert_eq!(api.patch(&format!("/api/v1/webhooks/{later}/"), &subscribed).await.status, 200);
    let young = create(URL, &["quote.closed"]).await;
    system.until_count("SELECT count(*) FROM cancellations", 0, SOON).await;
    // As if the deletion's steps had not come to it yet.
    let unmarked = "UPDATE deliveries SET state = 'retrying', next_attempt_at = now() WHERE webhook_id";
    system.sql(&format!("{unmarked} = '{ended}'")).await;

    let answer = read(&api, event.id).await;
    assert_eq!((answer["data"].as_array().unwrap().len(), &answer["is_complete"]), (1, &json!(true)));
    let found = &answer["data"][0];
    assert_eq!((&found["event_id"], &found["event_type"]), (&json!(event.id), &json!("quote.closed")));
    assert_eq!(found["occurred_at"], delivery["occurred_at"]);
    assert_eq!(found["webhooks"].as_array().unwrap().len(), 7);
    let expected = json!({
        "webhook_id": got, "name": "A test", "is_deleted": false,
        "delivery": {"id": delivery["id"], "state": "succeeded", "attempts": 1, "next_attempt_at": null,
                     "created_at": delivery["created_at"], "is_test": false},
        "reason": null, "explanation": null,
    });
    assert_eq!(*at(&answer, &got), expected);
    let cancelled = at(&answer, &ended);
    assert_eq!((&cancelled["is_deleted"], &cancelled["delivery"]["state"]), (&json!(true), &json!("cancelled")));
    assert_eq!(cancelled["delivery"]["next_attempt_at"], Value::Null);
    for (webhook, reason, is_deleted) in [
        (&others, "not_subscribed", false),
        (&later, "subscribed_later", false),
        (&young, "created_later", false),
        (&gone, "deleted", true),
        (&unwanted, "not_subscribed", true),
    ] {
        let entry = at(&answer, webhook);
        assert_eq!((&entry["reason"], &entry["is_deleted"]), (&json!(reason), &json!(is_deleted)), "{entry}");
        assert_eq!(entry["delivery"], Value::Null);
        assert!(entry["explanation"].as_str().is_some_and(|text| text.ends_with('.')), "{entry}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_is_for_one_webhook_and_what_is_old_may_have_been_deleted() {
    let system = TestSystem::shared().await;
    let Subscriber { tenant, api, receiver: _receiver, webhook: tested, .. } = system.subscriber(always(200)).await;
    let other = api.create(URL, &["quote.closed"]).await.id;
    let test = api.ask(&format!("/api/v1/webhooks/{tested}/test/")).await.json();
    let event = test["event_id"].as_str().unwrap().parse().unwrap();
    let answer = read(&api, event).await;
    assert_eq!(
        (&at(&answer, &tested)["delivery"]["is_test"], &at(&answer, &other)["reason"]),
        (&json!(true), &json!("test"))
    );
    api.newest_in(&tested, "succeeded").await;

    // As if the test had been an event that came before the time from which deliveries are kept.
    for (table, change, of) in [
        ("deliveries", "is_test = false", format!("webhook_id = '{tested}'")),
        ("events", "received_at = now() - interval '31 days'", format!("tenant_id = '{tenant}'")),
        ("webhooks", "created_at = now() - interval '40 days'", format!("tenant_id = '{tenant}'")),
    ] {
        system.sql(&format!("UPDATE {table} SET {change} WHERE {of}")).await;
    }
    let answer = read(&api, event).await;
    assert_eq!(at(&answer, &tested)["delivery"]["state"], "succeeded");
    assert_eq!(at(&answer, &other)["reason"], "expired");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_events_with_one_id_the_newest_ten_are_shown() {
    let system = TestSystem::shared().await;
    let (tenant, api) = system.tenant().await;
    let webhook = api.create(URL, &["quote.closed", "quote.accepted"]).await.id;
    let id = Uuid::now_v7();
    let begun = OffsetDateTime::now_utc() - Duration::HOUR;
    let event = |second: i64, event_type| {
        let timestamp = (begun + Duration::seconds(second)).format(&Rfc3339).unwrap();
        Event { id, timestamp, ..Event::now(event_type, tenant) }
    };
    let mut events: Vec<_> = (0..9).map(|second| event(second, EventType::QuoteClosed)).collect();
    events.push(event(8, EventType::QuoteAccepted));
    let deliveries = format!("SELECT count(*) FROM deliveries WHERE webhook_id = '{webhook}'");
    let stored = async |count: i64| {
        system.until_count(&deliveries, count, SOON).await;
    };
    system.upstream.publish(&events).await;
    stored(10).await;
    assert_eq!(read(&api, id).await["is_complete"], true);
    system.upstream.publish(&[event(9, EventType::QuoteClosed)]).await;
    stored(11).await;

    let answer = read(&api, id).await;
    assert_eq!((answer["data"].as_array().unwrap().len(), &answer["is_complete"]), (10, &json!(false)));
    let shown = answer["data"].as_array().unwrap();
    assert!(shown.windows(2).all(|two| two[0]["occurred_at"].as_str() >= two[1]["occurred_at"].as_str()));
    let types: Vec<_> = shown[1..3].iter().map(|event| &event["event_type"]).collect();
    assert_eq!(types, ["quote.accepted", "quote.closed"]);
    let log = api.log(&webhook, "").await;
    for event in shown {
        let delivery = log["data"].as_array().unwrap().iter().find(|delivery| {
            (&delivery["occurred_at"], &delivery["event_type"]) == (&event["occurred_at"], &event["event_type"])
        });
        assert_eq!(event["webhooks"][0]["delivery"]["id"], delivery.unwrap()["id"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_the_events_with_one_id_a_tenant_sees_its_own_and_very_many_are_not_looked_up_to_the_end() {
    let system = TestSystem::shared().await;
    let Subscriber { tenant, api, receiver, webhook: own, .. } = system.subscriber(always(200)).await;
    let (neighbour, other) = system.tenant().await;
    let others = other.create(&receiver.url("/"), &["quote.closed"]).await.id;
    let event = Event::now(EventType::QuoteClosed, tenant);
    system.upstream.publish(&[event.clone(), Event { tenant: neighbour, ..event.clone() }]).await;
    for (who, webhook) in [(&api, &own), (&other, &others)] {
        who.newest_in(webhook, "succeeded").await;
        let answer = read(who, event.id).await;
        assert_eq!((answer["data"].as_array().unwrap().len(), &answer["is_complete"]), (1, &json!(true)));
        let webhooks = answer["data"][0]["webhooks"].as_array().unwrap();
        assert_eq!((webhooks.len(), &webhooks[0]["webhook_id"]), (1, &json!(webhook)));
        assert_eq!(webhooks[0]["delivery"]["state"], "succeeded");
    }
    // Another tenant's publisher names every event so.
    let many = "INSERT INTO events (occurred_at, id, tenant_id, event_type, body) \
                SELECT occurred_at + i * interval '1 ms', id, gen_random_uuid(), event_type, body \
                FROM events CROSS JOIN generate_series(1, 2000) AS i";
    system.sql(&format!("{many} WHERE id = '{}' AND tenant_id = '{tenant}'", event.id)).await;
    let answer = read(&api, event.id).await;
    assert_eq!((answer["data"].as_array().unwrap().len(), &answer["is_complete"]), (1, &json!(false)));
    let unknown = system.admin(Uuid::new_v4()).await.get(&format!("/api/v1/events/{}/", event.id)).await;
    assert_eq!((unknown.status, &unknown.json()["code"]), (404, &json!("unknown_event")), "{}", unknown.text);
    let malformed = api.get("/api/v1/events/E-1/").await;
    assert_eq!((malformed.status, &malformed.json()["code"]), (404, &json!("not_found")));
}

/// As many webhooks as a tenant may have, and as many deleted ones as are kept.
const WEBHOOKS: usize = 1_100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_events_are_looked_up_at_as_many_webhooks_as_a_tenant_can_have() {
    let system = TestSystem::running(Options { dispatchers: 0, ..Options::default() }).await;
    let (tenant, api) = system.tenant().await;
    api.create(URL, &["quote.closed"]).await;
    let (id, last) = (Uuid::now_v7(), WEBHOOKS - 1);
    for statement in [
            format!(
                "INSERT INTO webhooks (id, tenant_id, name, url, events, secret_key_id, secret_sealed, deleted_at) \
             SELECT gen_random_uuid(), tenant_id, name, url, events, secret_key_id, secret_sealed, \
                    CASE WHEN i >= 100 THEN now() END FROM webhooks CROSS JOIN generate_series(1, {last}) AS i"
            ),
            format!(
                "INSERT INTO events (occurred_at, id, tenant_id, event_type, body) \
             SELECT date_trunc('milliseconds', now()) - i * interval '1 minute', '{id}', '{tenant}', 'quote.closed', '' \
             FROM generate_series(1, 10) AS i"
            ),
            "INSERT INTO deliveries (id, webhook_id, event_id, event_type) \
         SELECT derived_id( \
                    (lpad(to_hex((extract(epoch FROM e.occurred_at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid, \
                    uuid_send(w.id) || uuid_send(e.id) || convert_to(e.event_type, 'UTF8') \
                ), w.id, e.id, e.event_type FROM events AS e CROSS JOIN webhooks AS w"
                .to_owned(),
        ] {
            system.sql(&statement).await;
        }
    system.sql("ANALYZE webhooks, events, deliveries").await;
    // A look-up has a second. Beside many other tests it may need a second try.
    let answer = eventually_ok(SOON, || async {
        let answer = api.get(&format!("/api/v1/events/{id}/")).await;
        if answer.status == 200 { Ok(answer.json()) } else { Err(answer.text) }
    })
    .await;
    for event in answer["data"].as_array().unwrap() {
        let webhooks = event["webhooks"].as_array().unwrap();
        let found = webhooks.iter().filter(|entry| entry["delivery"]["created_at"].is_string()).count();
        assert_eq!((found, webhooks.len()), (WEBHOOKS, WEBHOOKS));
    }
    assert_eq!((answer["data"].as_array().unwrap().len(), &answer["is_complete"]), (10, &json!(true)));
}
