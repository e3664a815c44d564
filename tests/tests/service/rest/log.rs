//! The log of deliveries.

use std::{collections::HashSet, time::Duration};

use domain::{DeliveryState, EventType};
use end_to_end::{
    events::Event,
    history,
    processes::free_address,
    receiver::{Receiver, Reply, TestCa, always, behaviour},
    system::{Options, Service, System, TestSystem},
    wait::{SOON, eventually},
};
use ledger::{DeliveryFilter, DeliveryPage, Page};
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use uuid::Uuid;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_shows_what_was_sent_and_what_came_back() {
    let system = TestSystem::shared().await;
    let (tenant, api) = system.tenant().await;
    let answers = behaviour(|_, nth| match nth {
        1 => Reply::status(503).body([&b"caf\xe9 "[..], &[b'x'; 2000]].concat()),
        _ => Reply::ok().body("thanks"),
    });
    let receiver = Receiver::start(&system.ca, answers);
    let webhook = api.create(&receiver.url("/in"), &["quote.closed"]).await;
    let event = Event::now(EventType::QuoteClosed, tenant).with_data(r#"{"z": 1.50,  "ä":"\u00e9"}"#);
    system.upstream.publish(std::slice::from_ref(&event)).await;
    let listed = api.newest_in(&webhook.id, "succeeded").await;
    let received = receiver.received();

    let detail = api.delivery(&webhook.id, listed["id"].as_str().unwrap()).await;
    for (name, value) in listed.as_object().unwrap() {
        assert_eq!(&detail[name], value, "the list and the delivery agree on {name}");
    }
    assert_eq!(
        (&listed["attempts"], &listed["is_test"], &listed["next_attempt_at"]),
        (&json!(2), &json!(false), &Value::Null)
    );
    assert_eq!((&listed["event_id"], &listed["webhook_id"]), (&json!(event.id), &json!(webhook.id)));
    let request = &detail["request"];
    assert_eq!(request["body"].as_str().unwrap().as_bytes(), received[0].body);
    assert_eq!(request["method"], received[0].method);
    for (name, value) in request["headers"].as_object().unwrap() {
        assert_eq!(received[0].header(name), value.as_str(), "{name}");
    }
    assert_eq!(detail["is_attempt_log_complete"], true);
    let log = detail["attempt_log"].as_array().unwrap();
    for (nth, (attempt, received)) in log.iter().zip(&received).enumerate() {
        assert_eq!(attempt["attempt"], nth + 1);
        assert_eq!(attempt["url"], receiver.url("/in"));
        let signed_at = OffsetDateTime::parse(attempt["signed_at"].as_str().unwrap(), &Rfc3339).unwrap();
        let signed = format!("t={},v1=", signed_at.unix_timestamp());
        assert!(received.header("x-service-signature").unwrap().starts_with(&signed));
        assert_eq!((signed_at.nanosecond(), attempt.get("signature")), (0, None), "no signature is kept");
        assert_eq!(attempt["status"], received.status);
        let started = OffsetDateTime::parse(attempt["started_at"].as_str().unwrap(), &Rfc3339).unwrap();
        // The dispatcher knows the database's clock to the time that it takes to ask for it.
        assert!((received.at - started).abs() < Duration::from_secs(60));
        assert!(attempt["duration_ms"].as_u64().unwrap() < 5_000);
    }
    assert_eq!(
        (&log[0]["outcome"], &log[0]["error"]),
        (&json!("status"), &json!("the receiver answered 503 Service Unavailable"))
    );
    let head = log[0]["response_body"].as_str().unwrap();
    assert!(head.starts_with("caf\u{fffd} xxx") && head.chars().count() == 1024, "{head}");
    assert_eq!((&log[1]["outcome"], &log[1]["error"]), (&json!("success"), &Value::Null));
    assert_eq!((log.len(), &log[1]["response_body"]), (2, &json!("thanks")));
    assert!(!detail.to_string().contains(&webhook.secret));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_are_told_in_words_and_none_changes_the_schedule() {
    let system = TestSystem::running(Options { schedule: "1h", ..Options::default() }).await;
    let (tenant, api) = system.tenant().await;
    let (hanging, untrusted) =
        (Receiver::start(&system.ca, behaviour(|_, _| Reply::hang())), Receiver::start(&TestCa::new(), always(200)));
    let moved = Receiver::start(&system.ca, behaviour(|_, _| Reply::status(302).header("location", "https://x/")));
    let gone = behaviour(|_, _| Reply::status(410).header("retry-after", "7200"));
    let gone = Receiver::start(&system.ca, gone);
    let nobody = free_address();
    let cases = [
        ("https://nowhere.invalid/".to_owned(), "dns", "does not resolve".to_owned()),
        (format!("https://{nobody}/"), "connect", format!("connection refused by {nobody}")),
        (hanging.url("/"), "timeout", "no answer within 5 s".to_owned()),
        (untrusted.url("/"), "tls", "the certificate ".to_owned()),
        (moved.url("/"), "status", "the receiver answered 302 Found".to_owned()),
        (
            gone.url("/"),
            "status",
            "the receiver answered 410 Gone, which says that this address is gone for good, with \
                 Retry-After: 7200; the schedule of attempts is fixed"
                .to_owned(),
        ),
    ];
    let mut webhooks = Vec::new();
    for (url, ..) in &cases {
        webhooks.push(api.create(url, &["quote.closed"]).await);
    }
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    for (webhook, (url, outcome, message)) in webhooks.iter().zip(&cases) {
        let attempted = eventually("an attempt is recorded", SOON, || async {
            let newest = api.log(&webhook.id, "").await["data"][0].clone();
            (newest["attempts"].as_i64() > Some(0)).then_some(newest)
        })
        .await;
        let detail = api.delivery(&webhook.id, attempted["id"].as_str().unwrap()).await;
        let attempt = &detail["attempt_log"][0];
        assert_eq!(attempt["outcome"], *outcome, "{url}");
        assert!(attempt["error"].as_str().unwrap().contains(message), "{url}: {}", attempt["error"]);
    }
    let on_schedule = "SELECT count(*) FROM deliveries AS d JOIN attempts AS a ON a.delivery_id = d.id \
         WHERE d.state = 'retrying' AND d.attempts = 1 \
             AND abs(extract(epoch FROM d.next_attempt_at - a.started_at) * 1e6 - 3.6e9 - a.duration_us) <= 1";
    assert_eq!(system.count(on_schedule).await, cases.len() as i64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_can_be_filtered() {
    let system = TestSystem::shared().await;
    let (tenant, api) = system.tenant().await;
    let receiver = Receiver::start(&system.ca, always(200));
    let webhook = api.create(&receiver.url("/"), &["quote.closed", "return_note.created"]).await.id;
    let state = "CASE i % 3 WHEN 0 THEN 'dropped' WHEN 1 THEN 'succeeded' ELSE 'cancelled' END";
    history::made(&system, tenant, &webhook, 30, state).await;
    system.upstream.publish(&[Event::now(EventType::ReturnNoteCreated, tenant)]).await;
    receiver.wait_for(1, SOON).await;
    api.newest_in(&webhook, "succeeded").await;
    let all = api.log(&webhook, "limit=200").await["data"].as_array().unwrap().clone();
    let moment = all[10]["occurred_at"].as_str().unwrap();
    let event = all[10]["event_id"].as_str().unwrap();
    for (query, expected) in [
        ("state=dropped".to_owned(), 10),
        ("state=retrying".to_owned(), 0),
        ("event_type=return_note.created".to_owned(), 1),
        ("event_type=quote.closed&state=succeeded".to_owned(), 10),
        ("state=dropped,cancelled".to_owned(), 20),
        ("state=dropped&state=succeeded".to_owned(), 21),
        ("is_test=true".to_owned(), 0),
        ("is_test=false&state=cancelled".to_owned(), 10),
        (format!("event_id={event}"), 1),
        (format!("event_id={}", Uuid::new_v4()), 0),
        ("outcome=success".to_owned(), 1),
        ("outcome=timeout".to_owned(), 0),
        (format!("occurred_before={moment}"), 20),
        (format!("occurred_after={moment}"), 11),
        (format!("occurred_after={moment}&occurred_before={moment}"), 0),
    ] {
        let found = api.log(&webhook, &format!("{query}&limit=200")).await;
        assert_eq!(found["data"].as_array().unwrap().len(), expected, "{query}");
        assert_eq!((&found["next_cursor"], &found["searched_until"]), (&Value::Null, &Value::Null));
    }
    let refused = api.get(&format!("/api/v1/webhooks/{webhook}/deliveries/?state=lost&since=1")).await;
    assert_eq!((refused.status, &refused.json()["code"]), (400, &json!("invalid_parameters")));
}

/// Reads a filtered log in the shortest pages. Returns the deliveries' states and the number of pages.
async fn pages(system: &System, tenant: Uuid, webhook: &str, filter: &DeliveryFilter) -> (Vec<DeliveryState>, usize) {
    let ledger = system.ledger_as("pages", 1);
    let id: Uuid = webhook.parse().expect("it is an id");
    let known = ledger.webhook_known(tenant.into(), id.into()).await;
    let webhook = known.expect("the ledger answers").expect("the tenant has it");
    let (mut states, mut count, mut after) = (Vec::new(), 0, None);
    loop {
        let page = Page { after, limit: 200 };
        let DeliveryPage { deliveries, next } = ledger
            .delivery_list((tenant.into(), &[webhook]), filter, page, Duration::ZERO)
            .await
            .expect("the ledger answers");
        assert!(deliveries.len() <= 200);
        states.extend(deliveries.iter().map(|listed| listed.delivery.state));
        count += 1;
        match next {
            Some(next) => after = Some(next),
            None => return (states, count),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_ends_after_a_while_though_little_matches_and_the_next_goes_on_to_the_end() {
    let system = TestSystem::serving(Options::default(), [Service::Api]).await;
    let state = "CASE WHEN i IN (1, 7000, 12000) THEN 'dropped' WHEN i % 4 = 0 THEN 'cancelled' ELSE 'succeeded' END";
    let (tenant, _, webhook) = history::webhook(&system, 12_000, state).await;
    let change = "UPDATE deliveries SET event_type = 'quote.accepted' WHERE state = 'dropped'";
    system.sql(change).await;
    let accepted = DeliveryFilter { event_type: Some(EventType::QuoteAccepted), ..DeliveryFilter::default() };
    // A page is searched in 2,000 rows of the log, or in 500 of the deliveries that did not go well.
    let dropped = vec![DeliveryState::Dropped; 3];
    assert_eq!(pages(&system, tenant, &webhook, &accepted).await, (dropped.clone(), 7));
    let only = |state| DeliveryFilter { states: vec![state], ..DeliveryFilter::default() };
    assert_eq!(pages(&system, tenant, &webhook, &only(DeliveryState::Dropped)).await, (dropped.clone(), 1));
    let both = DeliveryFilter { states: vec![DeliveryState::Dropped], ..accepted.clone() };
    assert_eq!(pages(&system, tenant, &webhook, &both).await, (dropped, 1));
    let none = DeliveryFilter { states: vec![DeliveryState::Cancelled], ..accepted };
    assert_eq!(pages(&system, tenant, &webhook, &none).await, (Vec::new(), 6));
    let (cancelled, count) = pages(&system, tenant, &webhook, &only(DeliveryState::Cancelled)).await;
    assert_eq!((cancelled.len(), count), (3_000 - 2, 15), "full pages");
    assert_eq!(pages(&system, tenant, &webhook, &only(DeliveryState::Pending)).await, (Vec::new(), 7));
    assert_eq!(pages(&system, tenant, &webhook, &DeliveryFilter::default()).await.0.len(), 12_000);
}

/// The ids of all deliveries of a tenant. A bound in time leads on as well as a cursor; deliveries of its millisecond come
/// twice.
async fn by_bounds_in_time(system: &System, tenant: Uuid) -> HashSet<String> {
    let ledger = system.ledger_as("pages", 1);
    let own = ledger.own_webhooks(tenant.into()).await.unwrap();
    let (mut seen, mut filter) = (HashSet::new(), DeliveryFilter { is_test: Some(false), ..DeliveryFilter::default() });
    loop {
        let page = Page { after: None, limit: 20 };
        let found = ledger.delivery_list((tenant.into(), &own), &filter, page, Duration::ZERO).await.unwrap();
        seen.extend(found.deliveries.iter().map(|listed| listed.delivery.id.to_string()));
        let Some(until) = found.searched_until() else { return seen };
        assert!(filter.occurred_before.is_none_or(|before| until < before));
        filter.occurred_before = Some(until);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_of_a_tenant_is_that_of_its_webhooks_in_one_order() {
    let system = TestSystem::shared().await;
    let (tenant, api) = system.tenant().await;
    let (_, stranger) = system.tenant().await;
    let mut webhooks = Vec::new();
    for count in [300, 40, 3, 3, 0] {
        let webhook = api.create("https://localhost/", &["quote.closed"]).await.id;
        let state = "CASE i % 3 WHEN 0 THEN 'retrying' WHEN 1 THEN 'dropped' ELSE 'succeeded' END";
        history::made(&system, tenant, &webhook, count, state).await;
        webhooks.push(webhook);
    }
    assert_eq!(api.delete(&format!("/api/v1/webhooks/{}/", webhooks[1])).await.status, 204);
    let all = format!(
        "SELECT id::text FROM deliveries WHERE webhook_id = ANY ('{{{}}}') ORDER BY id DESC",
        webhooks.join(",")
    );
    let expected: Vec<String> = system.sql(&all).await.iter().map(|row| row.get(0)).collect();
    let listed = api.whole("/api/v1/deliveries/", "limit=20").await;
    let found: Vec<_> = listed.iter().map(|entry| entry["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!((found.len(), found), (346, expected.clone()));
    for (query, count) in [
        ("state=retrying", 102),
        ("state=cancelled", 13),
        ("state=cancelled,retrying", 115),
        ("state=pending,cancelled,succeeded", 13 + 100 + 13 + 2),
        ("state=dropped", 100 + 14 + 2),
        ("outcome=success", 0),
        ("is_test=false", 346),
        ("contains=%22number%22:17%7D", 2),
        ("contains=number%22:17%7D&state=succeeded", 2),
        ("contains=number%22:1%25", 0),
        ("contains=%5C%22number", 0),
    ] {
        let list = api.whole("/api/v1/deliveries/", &format!("limit=20&{query}")).await;
        assert_eq!(list.len(), count, "{query}");
        assert!(list.is_sorted_by(|before, after| before["id"].as_str() > after["id"].as_str()), "{query}");
    }
    assert_eq!(by_bounds_in_time(&system, tenant).await, expected.iter().cloned().collect());
    // A search of empty logs comes to an end.
    let (_, quiet) = system.tenant().await;
    for _ in 0..2 {
        quiet.create("https://localhost/", &["quote.closed"]).await;
    }
    let empty = quiet.get("/api/v1/deliveries/?is_test=true").await.json();
    assert_eq!(empty, json!({"data": [], "next_cursor": null, "searched_until": null}));
    // A receiver knows the id alone. Nobody else finds it by that.
    let path = format!("/api/v1/deliveries/{}/", expected[0]);
    let of_webhook =
        format!("/api/v1/webhooks/{}/deliveries/{}/", listed[0]["webhook_id"].as_str().unwrap(), expected[0]);
    assert_eq!(api.get(&path).await.json(), api.get(&of_webhook).await.json());
    assert_eq!(stranger.get(&path).await.status, 404);
    for (list, query) in [("deliveries", ""), ("deliveries", "contains=number"), ("history", "")] {
        assert_eq!(stranger.whole(&format!("/api/v1/{list}/"), query).await, Vec::<Value>::new(), "{list} {query}");
    }
    // A body that has expired contains nothing.
    system.sql(&format!("DELETE FROM events WHERE tenant_id = '{tenant}'")).await;
    assert_eq!(api.whole("/api/v1/deliveries/", "contains=number").await, Vec::<Value>::new());
    let history = api.whole("/api/v1/history/", "limit=2").await;
    let acts: Vec<_> = history.iter().map(|entry| (entry["webhook_id"].clone(), entry["action"].clone())).collect();
    let of = |at: usize, action: &str| (json!(webhooks[at]), json!(action));
    let created = [4, 3, 2, 1, 0].map(|at| of(at, "created"));
    assert_eq!(acts, [vec![of(1, "deleted")], created.to_vec()].concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paging_while_rows_arrive_repeats_nothing_and_misses_nothing() {
    let system = TestSystem::shared().await;
    let (tenant, api, webhook) = history::webhook(&system, 210, "'succeeded'").await;
    let others = api.create("https://localhost/", &["quote.closed"]).await.id;
    let past = format!("SELECT id::text FROM deliveries WHERE webhook_id = '{webhook}'");
    let at_the_start = ids(&system.sql(&past).await);
    let (mut seen, mut query, mut pages) = (Vec::new(), "limit=20".to_owned(), 0);
    loop {
        let page = api.log(&webhook, &query).await;
        let entries = page["data"].as_array().unwrap();
        seen.extend(entries.iter().map(|entry| entry["id"].as_str().unwrap().to_owned()));
        pages += 1;
        // New deliveries come among those of earlier and of later pages.
        history::made(&system, tenant, &webhook, 7, "'pending'").await;
        history::made(&system, tenant, &others, 7, "'pending'").await;
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        assert_eq!(entries.len(), 20);
        query = format!("limit=20&cursor={cursor}");
    }
    let distinct: HashSet<_> = seen.iter().cloned().collect();
    assert_eq!(distinct.len(), seen.len(), "no repeats");
    assert!(at_the_start.is_subset(&distinct), "no gaps");
    assert!(seen.is_sorted_by(|before, after| before > after) && pages >= 11);
    // A cursor is of one list.
    for list in [format!("{others}/deliveries"), format!("{webhook}/history")] {
        assert_eq!(api.get(&format!("/api/v1/webhooks/{list}/?{query}")).await.status, 400, "{list}");
    }
}

fn ids(rows: &[tokio_postgres::Row]) -> HashSet<String> {
    rows.iter().map(|row| row.get(0)).collect()
}
