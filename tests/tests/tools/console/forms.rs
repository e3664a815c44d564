//! What forms and addresses hold that nobody expects.

use std::time::Duration;

use domain::EventType;
use end_to_end::{
    api::Api,
    events::Event,
    system::TestSystem,
    wait::{SOON, eventually},
};
use serde_json::json;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use uuid::Uuid;

use crate::console::http::{hidden, post, with_console};

/// The most bytes of a page.
const MOST: usize = 100_000;

async fn token(api: &Api) -> String {
    hidden(&api.get("/console/register/").await.text, "token")
}

/// The part of a page from one text to another.
fn between<'a>(page: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = page.split_once(from).unwrap_or_else(|| panic!("no {from}: {page}"));
    rest.split(to).next().unwrap()
}

async fn with_api() -> (TestSystem, Api) {
    let system = TestSystem::shared().await;
    let api = system.admin(Uuid::new_v4()).await;
    (system, api)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rename_leaves_the_events_alone_in_whatever_order_they_were_registered() {
    let (_system, admin) = with_api().await;
    let webhook = admin.create("https://localhost/", &["return_note.created", "quote.closed"]).await.id;
    let path = format!("/console/webhooks/{webhook}/settings/");
    let page = admin.get(&path).await.text;
    let shown = hidden(&page, "shown").replace("&quot;", "\"");
    assert!(shown.contains(r#""events":["return_note.created","quote.closed"]"#), "{page}");
    // A browser posts the marked boxes in the order of the page.
    let fields = format!(
        "token={}&shown={shown}&name=Renamed&url=https://localhost/&events=quote.closed&events=return_note.created",
        token(&admin).await
    );
    assert_eq!(post(&admin, &path, &fields).await.status, 303);
    assert_eq!(admin.webhook(&webhook).await["events"], json!(["return_note.created", "quote.closed"]));
    let history = admin.get(&format!("/api/v1/webhooks/{webhook}/history/")).await.json();
    assert_eq!(history["data"][0]["details"], json!({"name": {"from": "A test", "to": "Renamed"}}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_of_registration_that_is_filled_in_anew_is_shown_again_and_loses_nothing() {
    let (_system, admin) = with_api().await;
    let page = admin.get("/console/register/").await.text;
    let (token, form) = (hidden(&page, "token"), hidden(&page, "form"));
    let fields = |form: &str, name: &str| {
        format!("token={token}&form={form}&name={name}&url=https://localhost/&events=quote.closed")
    };
    assert_eq!(post(&admin, "/console/register/", &fields(&form, "first")).await.status, 200);
    // Back, and filled in anew.
    let again = post(&admin, "/console/register/", &fields(&form, "second")).await;
    assert_eq!(again.status, 409, "{}", again.text);
    assert!(again.text.contains(r#"value="second""#) && again.text.contains("first"), "{}", again.text);
    let new = hidden(&again.text, "form");
    assert_ne!(new, form);
    let made = post(&admin, "/console/register/", &fields(&new, "second")).await;
    assert!(made.status == 200 && made.text.contains("whsec_"), "{}", made.text);
    // The same once more leads to the webhook, even after somebody has deleted it.
    let list = admin.get("/api/v1/webhooks/").await.json();
    let webhook = list["data"].as_array().unwrap().iter().find(|one| one["name"] == "second").unwrap()["id"].clone();
    let page = format!("/console/webhooks/{}/", webhook.as_str().unwrap());
    let twice = async || {
        let answer = post(&admin, "/console/register/", &fields(&new, "second")).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some(&*format!("{page}?done=registered"))));
    };
    twice().await;
    admin.delete(&format!("/api/v1/webhooks/{}/", webhook.as_str().unwrap())).await;
    twice().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_done_to_a_webhook_that_was_deleted_meanwhile_leads_to_its_history() {
    let (_system, admin) = with_api().await;
    let webhook = admin.create("https://localhost/", &["quote.closed"]).await.id;
    let token = token(&admin).await;
    let page = format!("/console/webhooks/{webhook}/");
    let confirmed = format!("token={token}&confirmed=yes");
    for _ in 0..2 {
        let answer = post(&admin, &format!("{page}delete/"), &confirmed).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some(&*format!("{page}?done=deleted"))));
    }
    let history = format!("{page}history/");
    let shown = r#"shown={"name":"A","url":"https://localhost/","events":["quote.closed"]}"#;
    let settings = format!("{shown}&name=B&url=https://localhost/&events=quote.closed");
    let wrong = format!("{shown}&name=&url=https://localhost/&events=quote.closed");
    for (action, fields) in [
        ("pause", ""),
        ("activate", ""),
        ("test", ""),
        ("cancel", "confirmed=yes"),
        ("settings", &settings),
        ("settings", &wrong),
        ("recover", "since=2026-01-01T00:00&states=dropped"),
        ("recover", "since=yesterday&states=dropped"),
    ] {
        let answer = post(&admin, &format!("{page}{action}/"), &format!("token={token}&{fields}")).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some(&*history)), "{action} {fields}");
    }
    for part in ["settings/", "recover/", "recover/?since=2026-01-01T00:00&states=dropped"] {
        let answer = admin.get(&format!("{page}{part}")).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some(&*history)), "{part}");
    }
    let shown = admin.get(&history).await;
    assert!(shown.status == 200 && shown.text.contains("Nothing more is sent."), "{}", shown.text);
    assert!(
        shown.text.contains("https://localhost/") && shown.text.contains("<h1><bdi>A test</bdi></h1>"),
        "{}",
        shown.text
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_webhook_is_found_again_even_after_its_log_has_expired() {
    let (system, admin) = with_api().await;
    let webhook = admin.create("https://localhost/", &["quote.closed"]).await.id;
    let page = format!("/console/webhooks/{webhook}/");
    assert!(!admin.get("/console/deleted/").await.text.contains(&page));
    admin.delete(&format!("/api/v1/webhooks/{webhook}/")).await;
    let is_listed = async |admin: &Api| {
        let list = admin.get("/console/deleted/").await;
        assert_eq!(list.status, 200, "{}", list.text);
        list.text.contains(&page) && list.text.contains("A test") && list.text.contains("https://localhost/")
    };
    assert!(is_listed(&admin).await);
    assert!(!is_listed(&system.admin(Uuid::new_v4()).await).await, "tenants are walls");
    let kept = admin.get(&page).await;
    assert!(kept.status == 200 && kept.text.contains("No deliveries.<"), "{}", kept.text);
    // As retention does with its row.
    system.sql(&format!("DELETE FROM webhooks WHERE id = '{webhook}'")).await;
    assert!(is_listed(&admin).await);
    let history = format!("{page}history/");
    for path in [&page, &format!("{page}settings/"), &format!("/console/find/?id={webhook}")] {
        let answer = admin.get(path).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some(&*history)), "{path}");
    }
    let shown = admin.get(&history).await;
    assert!(shown.status == 200 && shown.text.contains("deleted the webhook"), "{}", shown.text);
    let notice = r#"<span class="badge idle">deleted</span>"#;
    assert!(shown.text.contains(notice), "notices are kept as long: {}", shown.text);
    assert!(
        shown.text.contains("<h1><bdi>A test</bdi></h1>") && !shown.text.contains(">Deliveries</a>"),
        "{}",
        shown.text
    );
    let other = system.admin(Uuid::new_v4()).await;
    assert_eq!(other.get(&history).await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_is_of_the_event_type_that_was_chosen() {
    let system = TestSystem::shared().await;
    let admin = system.admin(Uuid::new_v4()).await;
    let webhook = admin.create("https://localhost/", &["quote.closed", "return_note.created"]).await.id;
    let (path, token) = (format!("/console/webhooks/{webhook}/test/"), token(&admin).await);
    let page = admin.get(&format!("/console/webhooks/{webhook}/")).await.text;
    let choice = between(&page, r#"<select name="event_type""#, "</select>");
    assert!(choice.contains("quote.closed") && choice.contains("return_note.created"), "{choice}");
    assert!(!choice.contains("quote.accepted"), "{choice}");
    for (wish, sent) in [("", "quote.closed"), ("return_note.created", "return_note.created")] {
        let answer = post(&admin, &path, &format!("token={token}&event_type={wish}")).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
        assert_eq!(admin.log(&webhook, "limit=1").await["data"][0]["event_type"], sent);
    }
    // Unsubscribed by somebody else meanwhile, and of no use at all.
    for (wish, why) in [
        ("quote.accepted", "must be one that the webhook is subscribed to: quote.closed, return_note.created"),
        ("%3Cb%3E", "event type &quot;&lt;b&gt;&quot;"),
    ] {
        let refused = post(&admin, &path, &format!("token={token}&event_type={wish}")).await;
        assert_eq!(refused.status, 422);
        assert!(refused.text.contains(why), "{}", refused.text);
    }
    let pause = format!("/api/v1/webhooks/{webhook}/");
    admin.patch(&pause, &json!({"is_active": false})).await;
    let refused = post(&admin, &path, &format!("token={token}")).await;
    assert!(refused.status == 409 && refused.text.contains("The webhook is paused"), "{}", refused.text);
    assert!(!refused.text.contains("is_active"), "{}", refused.text);
    assert!(refused.text.contains(&format!("/console/webhooks/{webhook}/")), "{}", refused.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_recovery_or_a_filter_stands_beside_its_field() {
    let (_system, admin) = with_api().await;
    let webhook = admin.create("https://localhost/", &["quote.closed"]).await.id;
    let (path, token) = (format!("/console/webhooks/{webhook}/recover/"), token(&admin).await);
    for (fields, field, why) in [
        ("since=yesterday&states=dropped", "since", "RFC 3339"),
        ("since=9000-01-01T00:00&states=dropped", "since", "must not be in the future"),
        ("since=2026-01-01T00:00&until=2025-01-01T00:00&states=dropped", "until", "must be later than"),
        ("since=2026-01-01T00:00", "states", "must list at least one state"),
        ("since=2026-01-01T00:00&states=lost", "states", "must be dropped or skipped"),
    ] {
        for answer in [
            admin.get(&format!("{path}?{fields}")).await,
            post(&admin, &path, &format!("token={token}&{fields}")).await,
        ] {
            let fault = between(&answer.text, &format!(r#"id="{field}-fault">"#), "</p>");
            assert!(fault.to_lowercase().contains(&why.to_lowercase()), "{fields}: {fault}");
            assert!(!answer.text.contains("id=\"counted\""), "nothing was counted: {fields}");
        }
    }
    let log = format!("/console/webhooks/{webhook}/");
    for (query, field, why) in [
        ("state=lost", "state", "must be one of"),
        ("event_type=quote.opened", "event_type", "quote.closed"),
        ("from=yesterday", "from", "RFC 3339"),
        ("until=%3Cb%3E", "until", "RFC 3339"),
    ] {
        let page = admin.get(&format!("{log}?{query}")).await;
        let fault = between(&page.text, &format!(r#"id="{field}-fault""#), "</");
        assert!(page.status == 200 && fault.to_lowercase().contains(&why.to_lowercase()), "{query}: {fault}");
        assert!(!page.text.contains("No deliveries."), "nothing was looked for: {query}");
    }
    let page = admin.get(&format!("{log}?cursor=x")).await.text;
    assert!(page.contains("not a next_cursor") || page.contains("This page of the log"), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_beside_a_running_one_is_not_begun_and_says_so() {
    let (system, admin) = with_api().await;
    let webhook = admin.create("https://localhost/", &["quote.closed"]).await.id;
    let (path, token) = (format!("/console/webhooks/{webhook}/recover/"), token(&admin).await);
    // Somebody's, that no relay goes on with.
    let id = Uuid::now_v7();
    system
        .sql(&format!(
            "INSERT INTO recoveries (id, webhook_id, since, states, reached, leased_until) \
             VALUES ('{id}', '{webhook}', '2026-01-01T00:00:00Z', '{{dropped}}', '{id}', 'infinity')"
        ))
        .await;
    let progress = format!("/console/webhooks/{webhook}/recoveries/{id}/");
    for (fields, expected) in [
        ("since=2026-01-01T00:00&states=dropped", progress.clone()),
        ("since=2026-02-01T00:00&states=dropped", format!("{progress}?done=another")),
        ("since=2026-01-01T00:00&states=dropped&states=skipped", format!("{progress}?done=another")),
    ] {
        let answer = post(&admin, &path, &format!("token={token}&{fields}")).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some(&*expected)), "{fields}");
    }
    let page = admin.get(&format!("{progress}?done=another")).await.text;
    assert!(page.contains("yours did not begin"), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_stays_small_whatever_its_form_or_address_holds() {
    let (_system, admin) = with_api().await;
    let webhook = admin.create("https://localhost/", &["quote.closed"]).await.id;
    let token = token(&admin).await;
    let form = hidden(&admin.get("/console/register/").await.text, "form");
    for (path, fields) in [
        ("/console/register/".to_owned(), format!("form={form}&{}", "events=&".repeat(7_900))),
        ("/console/register/".to_owned(), format!("form={form}&name={}", "\"".repeat(60_000))),
        (format!("/console/webhooks/{webhook}/settings/"), "events=x&".repeat(2_700)),
        (
            format!("/console/webhooks/{webhook}/settings/"),
            format!("name=&shown={{\"name\":\"{}\"}}", "\\\"".repeat(8_000)),
        ),
        (
            format!("/console/webhooks/{webhook}/settings/"),
            format!("name={0}&shown={{\"name\":\"{0}\"}}", "a".repeat(30_000)),
        ),
        (format!("/console/webhooks/{webhook}/recover/"), format!("since=x&{}", "states=&".repeat(7_900))),
        (format!("/console/webhooks/{webhook}/recover/"), format!("since={}", "\"".repeat(60_000))),
    ] {
        let answer = post(&admin, &path, &format!("token={token}&{fields}")).await;
        assert_eq!(answer.status, 422, "{path}");
        assert!(answer.text.len() < MOST, "{path}: {} bytes", answer.text.len());
    }
    let most = format!("q={}", "x".repeat(4_094));
    assert_eq!(admin.get(&format!("/console/?{most}")).await.status, 200);
    for path in ["/console/", "/console/find/", "/console/register/"] {
        let refused = admin.get(&format!("{path}?{most}x")).await;
        assert_eq!(refused.status, 414, "{path}");
    }
    let nobody = Api { session: None, ..admin.clone() };
    let page = nobody.get(&format!("/console/login/?next=/console/{}", "a".repeat(60_000))).await;
    assert!(page.text.len() < MOST, "{} bytes", page.text.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_no_administrator_can_log_in_as_somebody_else() {
    let login = "https://app.example.com/log-in?from=hooks";
    for settings in
        [&[][..], &[("CONSOLE__LOGIN_URL", login), ("CONSOLE__PUBLIC_URL", "https://hooks.example.com")][..]]
    {
        with_console(settings, async |system| {
            let clerk = system.session(Uuid::new_v4(), "sales", Duration::from_secs(60)).await;
            let refused = clerk.get("/console/").await;
            assert_eq!(refused.status, 403);
            assert!(refused.text.contains(r#"href="/console/login/""#), "{}", refused.text);
            let answer = clerk.get("/console/login/").await;
            if settings.is_empty() {
                assert_eq!(answer.status, 200);
            } else {
                let home = format!("{login}&next=https%3A%2F%2Fhooks.example.com%2Fconsole%2F");
                assert_eq!((answer.status, answer.header("location")), (303, Some(&*home)));
            }
            // Every page has its policy, an error too. A form whose answer is a redirect may lead to the log-in.
            for path in ["/console/", "/console/nothing/"] {
                let policy = clerk.get(path).await.header("content-security-policy").unwrap().to_owned();
                let login = if settings.is_empty() { "" } else { " https://app.example.com" };
                assert!(policy.ends_with(&format!("form-action 'self'{login}")), "{policy}");
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_progress_of_a_recovery_counts_what_it_has_still_to_look_at() {
    let system = TestSystem::shared().await;
    let (tenant, admin) = system.tenant().await;
    let webhook = admin.create("https://localhost/", &["quote.closed"]).await.id;
    admin.patch(&format!("/api/v1/webhooks/{webhook}/"), &json!({"is_active": false})).await;
    let skipped = |count: usize| {
        format!("SELECT count(*) FROM unsuccessful_deliveries WHERE webhook_id = '{webhook}' HAVING count(*) = {count}")
    };
    for count in 1..=3 {
        system.upstream.publish(&Event::closed(tenant, 1)).await;
        eventually("it is skipped", SOON, || async { system.sql(&skipped(count)).await.pop() }).await;
    }
    let log = admin.log(&webhook, "").await;
    let second = log["data"][1]["id"].as_str().unwrap();
    let id = Uuid::now_v7();
    system
        .sql(&format!(
            "INSERT INTO recoveries (id, webhook_id, since, states, reached, resent, leased_until) \
             VALUES ('{id}', '{webhook}', '2026-01-01T00:00:00Z', '{{skipped}}', '{second}', 5, 'infinity')"
        ))
        .await;
    // What came after it was asked for is none of its work either. It fires in another millisecond, which its id tells.
    let later = (OffsetDateTime::now_utc() + Duration::from_secs(1)).format(&Rfc3339).unwrap();
    let event = Event { timestamp: later, ..Event::now(EventType::QuoteClosed, tenant) };
    system.upstream.publish(&[event]).await;
    eventually("it is skipped", SOON, || async { system.sql(&skipped(4)).await.pop() }).await;
    let page = admin.get(&format!("/console/webhooks/{webhook}/recoveries/{id}/")).await.text;
    let told = between(&page, r#"<p class="banner idle">"#, "</p>");
    // The last one that it has looked at is not told apart from what is ahead.
    assert!(told.contains("5 deliveries sent again so far, 2 to go."), "{told}");
}
