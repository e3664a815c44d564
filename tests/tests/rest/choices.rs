//! Recovery by choice, cancellation of what waits, and what became of an event.

use domain::EventType;
use end_to_end::{
    api::{Api, Created},
    events::Event,
    receiver::{Receiver, always},
    system::{Options, Service, System},
    wait::{SOON, eventually},
};
use serde_json::{Value, json};
use uuid::Uuid;

fn path(webhook: &Created, call: &str) -> String {
    format!("/api/v1/webhooks/{}/{call}", webhook.id)
}

async fn states(api: &Api, webhook: &Created) -> Vec<String> {
    let log = api.log(&webhook.id, "").await;
    log["data"].as_array().unwrap().iter().map(|one| one["state"].as_str().unwrap().to_owned()).collect()
}

/// Waits until the webhook's deliveries, newest event first, have these states.
async fn until_states(api: &Api, webhook: &Created, wanted: &[&str]) {
    eventually(&format!("{wanted:?}"), SOON, || async { (states(api, webhook).await == wanted).then_some(()) }).await;
}

/// Finished deliveries of events, one a minute ago and one for each of these states before that, a minute apart.
async fn insert(system: &System, webhook: &Created, states: &[&str]) {
    for (place, state) in states.iter().enumerate() {
        let minutes = states.len() - place;
        let moment = format!("now() - interval '{minutes} minutes'");
        let id = format!(
            "(lpad(to_hex((extract(epoch FROM {moment}) * 1000)::bigint), 12, '0') || substr(md5(random()::text), 1, 20))::uuid"
        );
        system
            .sql(&format!(
                "WITH event AS (INSERT INTO events (occurred_at, id, tenant_id, event_type, body) \
                   SELECT date_trunc('milliseconds', {moment}), gen_random_uuid(), tenant_id, 'quote.closed', '{{}}' \
                   FROM webhooks WHERE id = '{}' RETURNING occurred_at, id) \
                 INSERT INTO deliveries (id, webhook_id, event_id, event_type, state, attempts, created_at) \
                 SELECT {id}, '{}', id, 'quote.closed', '{state}', 0, occurred_at FROM event",
                webhook.id, webhook.id
            ))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_takes_the_states_and_the_span_that_are_chosen_and_counts_them_first() {
    System::run(Options::default(), async |system| {
        let api = system.admin(Uuid::new_v4()).await;
        let receiver = Receiver::start(&system.ca, always(200));
        let webhook = api.create(&receiver.url("/"), &["quote.closed"]).await;
        insert(&system, &webhook, &["dropped", "skipped", "dropped", "skipped", "cancelled"]).await;
        let log = api.log(&webhook.id, "").await;
        // The third of five, by the time of its event: the second dropped one.
        let middle = log["data"][2]["occurred_at"].as_str().unwrap().to_owned();
        let early = "2020-01-01T00:00:00Z";
        let ask = async |body: Value| api.post(&path(&webhook, "recover/"), &body).await;
        for (body, count) in [
            (json!({"since": early, "count_only": true}), 2),
            (json!({"from": early, "states": ["skipped"], "count_only": true}), 2),
            (json!({"since": early, "states": ["skipped", "dropped"], "count_only": true}), 4),
            (json!({"since": middle, "states": ["skipped", "dropped"], "count_only": true}), 2),
            (json!({"since": early, "until": middle, "states": ["skipped", "dropped"], "count_only": true}), 2),
        ] {
            let answer = ask(body.clone()).await;
            assert_eq!((answer.status, answer.json()), (200, json!({"count": count, "is_exact": true})), "{body}");
        }
        assert_eq!(system.count("SELECT count(*) FROM recoveries").await, 0, "counting begins nothing");
        for (body, faults) in [
            (json!({"states": []}), 2),
            (json!({"since": early, "from": early, "states": ["cancelled", "dropped", "dropped"]}), 3),
            (json!({"since": middle, "until": early, "count_only": 1}), 2),
        ] {
            let answer = ask(body.clone()).await;
            let found = answer.json()["errors"].as_array().map_or(0, Vec::len);
            assert_eq!(answer.status, 422, "{}", answer.text);
            assert!(found >= faults - 1 && found > 0, "{body}: {}", answer.text);
        }

        let began = ask(json!({"since": early, "until": middle, "states": ["skipped", "dropped"]})).await;
        assert_eq!(began.status, 202, "{}", began.text);
        assert_eq!((&began.json()["until"], &began.json()["states"]), (&json!(middle), &json!(["skipped", "dropped"])));
        until_states(&api, &webhook, &["cancelled", "skipped", "dropped", "succeeded", "succeeded"]).await;
        let history = api.get(&path(&webhook, "history/?limit=1")).await.json()["data"][0].clone();
        assert_eq!((&history["action"], &history["user"]), (&json!("recovered"), &json!("somebody")));
        assert_eq!(history["details"]["recovery_id"], began.json()["id"]);
        let done = began.header("location").unwrap().to_owned();
        eventually("it is done", SOON, || async { (api.get(&done).await.json()["state"] == "done").then_some(()) })
            .await;
        ask(json!({"since": early, "states": ["skipped"]})).await;
        until_states(&api, &webhook, &["cancelled", "succeeded", "dropped", "succeeded", "succeeded"]).await;
        let other = system.admin(Uuid::new_v4()).await;
        let body = json!({"since": early, "count_only": true});
        assert_eq!(other.post(&path(&webhook, "recover/"), &body).await.status, 404, "tenants are walls");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancellation_ends_what_waits_and_leaves_the_webhook() {
    System::run(Options { schedule: "1h,2h", ..Options::default() }, async |system| {
        let tenant = Uuid::new_v4();
        let api = system.admin(tenant).await;
        let receiver = Receiver::start(&system.ca, always(500));
        let webhook = api.create(&receiver.url("/"), &["quote.closed"]).await;
        let other = api.create(&receiver.url("/other"), &["quote.closed"]).await;
        system.upstream.publish(&[Event::now(EventType::QuoteClosed, tenant)]).await;
        until_states(&api, &webhook, &["retrying"]).await;
        until_states(&api, &other, &["retrying"]).await;
        // One that is held: resent while the webhook is paused.
        insert(&system, &webhook, &["dropped"]).await;
        api.patch(&path(&webhook, ""), &json!({"is_active": false})).await;
        let id = api.log(&webhook.id, "?state=dropped").await["data"][0]["id"].as_str().unwrap().to_owned();
        let resend = path(&webhook, &format!("deliveries/{id}/resend/"));
        assert_eq!(api.post(&resend, &json!({})).await.status, 202);
        eventually("it is held", SOON, || async {
            (system.count("SELECT count(*) FROM held_jobs").await == 1).then_some(())
        })
        .await;

        let answer = api.post(&path(&webhook, "cancel/"), &json!({})).await;
        assert_eq!((answer.status, answer.json()), (202, json!({"state": "running"})), "{}", answer.text);
        until_states(&api, &webhook, &["cancelled", "cancelled"]).await;
        until_states(&api, &other, &["retrying"]).await;
        assert_eq!(system.count("SELECT count(*) FROM held_jobs").await, 0);
        let history = api.get(&path(&webhook, "history/?limit=1")).await.json()["data"][0].clone();
        assert_eq!((&history["action"], &history["user"]), (&json!("cancelled"), &json!("somebody")));
        eventually("the cancellation is done", SOON, || async {
            (system.count("SELECT count(*) FROM webhook_tasks").await == 0).then_some(())
        })
        .await;

        // What comes afterwards is delivered, and what was cancelled can be sent again.
        api.patch(&path(&webhook, ""), &json!({"is_active": true})).await;
        receiver.behave(always(200));
        assert_eq!(api.post(&resend, &json!({})).await.status, 202);
        system.upstream.publish(&[Event::now(EventType::QuoteClosed, tenant)]).await;
        until_states(&api, &webhook, &["succeeded", "cancelled", "succeeded"]).await;
        let stranger = system.admin(Uuid::new_v4()).await;
        assert_eq!(stranger.post(&path(&webhook, "cancel/"), &json!({})).await.status, 404, "tenants are walls");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_what_waits_is_cancelled_nothing_is_sent_again_and_a_deletion_cancels_the_rest() {
    System::prepared(Options::default(), async |system| {
        system.start(Service::Api).await;
        let api = system.admin(Uuid::new_v4()).await;
        let webhook = api.create("https://example.com/", &["quote.closed"]).await;
        insert(&system, &webhook, &["dropped", "pending"]).await;
        let id = api.log(&webhook.id, "?state=dropped").await["data"][0]["id"].as_str().unwrap().to_owned();
        // No relay can take the task's steps.
        let hold = system.database_session("BEGIN; LOCK TABLE held_jobs IN ACCESS EXCLUSIVE MODE").await;
        assert_eq!(api.post(&path(&webhook, "cancel/"), &json!({})).await.status, 202);
        for (call, body) in [
            (format!("deliveries/{id}/resend/"), json!({})),
            ("recover/".to_owned(), json!({"since": "2020-01-01T00:00:00Z"})),
        ] {
            let answer = api.post(&path(&webhook, &call), &body).await;
            assert_eq!((answer.status, &answer.json()["code"]), (409, &json!("cancelling")), "{}", answer.text);
        }
        // It was made after the request, so only the deletion cancels it.
        system.sql("UPDATE deliveries SET created_at = now() + interval '1 hour' WHERE state = 'pending'").await;
        assert_eq!(api.delete(&path(&webhook, "")).await.status, 204);
        drop(hold);
        eventually("all that waited is cancelled", SOON, || async {
            let done = system.count("SELECT count(*) FROM deliveries WHERE state = 'cancelled'").await == 1
                && system.count("SELECT count(*) FROM webhook_tasks").await == 0;
            done.then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_tells_what_became_of_it_at_each_webhook() {
    System::run(Options::default(), async |system| {
        let tenant = Uuid::new_v4();
        let api = system.admin(tenant).await;
        let receiver = Receiver::start(&system.ca, always(200));
        let early = api.create(&receiver.url("/early"), &["quote.closed"]).await;
        assert_eq!(api.delete(&path(&early, "")).await.status, 204);
        let got = api.create(&receiver.url("/got"), &["quote.closed"]).await;
        let paused = api.create(&receiver.url("/paused"), &["quote.closed"]).await;
        api.patch(&path(&paused, ""), &json!({"is_active": false})).await;
        let unsubscribed = api.create(&receiver.url("/unsubscribed"), &["quote.accepted"]).await;
        let event = Event::now(EventType::QuoteClosed, tenant);
        system.upstream.publish(std::slice::from_ref(&event)).await;
        until_states(&api, &got, &["succeeded"]).await;
        let late = api.create(&receiver.url("/late"), &["quote.closed"]).await;

        let answer = api.get(&format!("/api/v1/events/{}/", event.id)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let answer = answer.json();
        assert_eq!((&answer["is_complete"], answer["data"].as_array().unwrap().len()), (&json!(true), 1));
        let found = &answer["data"][0];
        assert_eq!((&found["event_id"], &found["event_type"]), (&json!(event.id), &json!("quote.closed")));
        let of = |webhook: &Created| {
            let all = found["webhooks"].as_array().unwrap();
            let one = all.iter().find(|one| one["webhook_id"] == webhook.id.as_str()).unwrap().clone();
            (one["delivery"]["state"].clone(), one["reason"].clone())
        };
        assert_eq!(of(&got), (json!("succeeded"), Value::Null));
        assert_eq!(of(&paused), (json!("skipped"), Value::Null));
        assert_eq!(of(&unsubscribed), (Value::Null, json!("not_subscribed")));
        assert_eq!(of(&late), (Value::Null, json!("created_later")));
        assert_eq!(of(&early), (Value::Null, json!("deleted")));
        let delivery = api.log(&got.id, "").await["data"][0]["id"].clone();
        let own =
            found["webhooks"].as_array().unwrap().iter().find(|one| one["webhook_id"] == got.id.as_str()).unwrap();
        assert_eq!(own["delivery"]["id"], delivery);
        api.patch(&path(&unsubscribed, ""), &json!({"events": ["quote.closed"]})).await;
        let again = api.get(&format!("/api/v1/events/{}/", event.id)).await.text;
        assert!(again.contains("subscribed_later"), "{again}");

        // The same id of another type is another event; the plan finds it by the index on ids.
        system.upstream.publish(&[Event { event_type: EventType::QuoteAccepted, ..event.clone() }]).await;
        system.upstream.publish(&[Event::now(EventType::QuoteClosed, tenant)]).await;
        until_states(&api, &got, &["succeeded", "succeeded"]).await;
        let stranger = system.admin(Uuid::new_v4()).await;
        for (who, id) in [(&stranger, event.id), (&api, Uuid::new_v4())] {
            let unknown = who.get(&format!("/api/v1/events/{id}/")).await;
            assert_eq!((unknown.status, &unknown.json()["code"]), (404, &json!("unknown_event")), "{}", unknown.text);
        }
        assert_eq!(api.get("/api/v1/events/x/").await.status, 404);
    })
    .await;
}
