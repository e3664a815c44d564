//! What forms and addresses hold that nobody expects.

use std::time::Duration;

use domain::EventType;
use end_to_end::{
    api::Api,
    events::Event,
    history,
    wait::{SOON, eventually},
};
use serde_json::json;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use uuid::Uuid;

use crate::console::{Console, MAX_PAGE_BYTES, assert_leads, between, hidden};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rename_leaves_the_events_alone_in_whatever_order_they_were_registered() {
    let console = Console::open().await;
    let (webhook, page) = console.webhook(&["return_note.created", "quote.closed"]).await;
    let path = format!("{page}settings/");
    let page = console.admin.get(&path).await.text;
    let shown = hidden(&page, "shown").replace("&quot;", "\"");
    assert!(shown.contains(r#""events":["return_note.created","quote.closed"]"#), "{page}");
    // A browser posts the marked boxes in the order of the page.
    let fields =
        format!("shown={shown}&name=Renamed&url=https://localhost/&events=quote.closed&events=return_note.created");
    assert_eq!(console.post(&path, &fields).await.status, 303);
    assert_eq!(console.admin.webhook(&webhook).await["events"], json!(["return_note.created", "quote.closed"]));
    let history = console.admin.get(&format!("/api/v1/webhooks/{webhook}/history/")).await.json();
    assert_eq!(history["data"][0]["details"], json!({"name": {"from": "A test", "to": "Renamed"}}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_registers_once_shows_the_secret_once_and_loses_nothing_that_is_filled_in_anew() {
    let console = Console::open().await;
    let register = async |console: &Console, form: &str, name: &str| {
        let fields = format!("form={form}&name={name}&url=https%3A%2F%2Flocalhost%2F&events=quote.closed");
        console.post("/console/register/", &fields).await
    };
    let form = hidden(&console.admin.get("/console/register/").await.text, "form");
    let made = register(&console, &form, "first").await;
    assert_eq!(made.status, 200, "{}", made.text);
    assert!(made.text.contains("id=\"secret\">whsec_"), "{}", made.text);
    let again = register(&console, &form, "first").await;
    let location = again.header("location").unwrap();
    assert!(again.status == 303 && location.ends_with("/?done=registered"), "{location}");
    let lost = console.admin.get(location).await.text;
    assert!(!lost.contains("whsec_"), "a secret is shown again");
    assert!(between(&lost, r#"class="done warn""#, "</p>").contains("secret cannot be shown again"), "{lost}");
    // The same number in another tenant's form is another webhook.
    let other = Console::open().await;
    assert_eq!(register(&other, &form, "theirs").await.status, 200);
    for form in ["", "1", "0192f0c1-0000-7000-8000-000000000001", &Uuid::new_v4().to_string()] {
        assert_eq!(register(&other, form, "x").await.status, 403, "{form}");
    }
    for Console { admin, .. } in [&console, &other] {
        assert_eq!(admin.get("/api/v1/webhooks/").await.json()["data"].as_array().unwrap().len(), 1);
    }
    // Back, and filled in anew.
    let again = register(&console, &form, "second").await;
    assert_eq!(again.status, 409, "{}", again.text);
    assert!(again.text.contains(r#"value="second""#) && again.text.contains("first"), "{}", again.text);
    let new = hidden(&again.text, "form");
    assert_ne!(new, form);
    let made = register(&console, &new, "second").await;
    assert!(made.status == 200 && made.text.contains("whsec_"), "{}", made.text);
    // The same once more leads to the webhook, even after somebody has deleted it.
    let list = console.admin.get("/api/v1/webhooks/").await.json();
    let second = list["data"].as_array().unwrap().iter().find(|one| one["name"] == "second").unwrap();
    let webhook = second["id"].as_str().unwrap();
    for _ in 0..2 {
        let answer = register(&console, &new, "second").await;
        assert_leads(&answer, &format!("/console/webhooks/{webhook}/?done=registered"));
        console.admin.delete(&format!("/api/v1/webhooks/{webhook}/")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_are_set_and_removed_line_by_line_and_their_values_are_on_no_page() {
    let console = Console::open().await;
    let admin = &console.admin;
    let form = hidden(&admin.get("/console/register/").await.text, "form");
    let register = async |name: &str| {
        let headers = "Authorization%3A+Bearer+concealed%0D%0AX-B%3Aconcealed";
        let fields = format!("form={form}&name={name}&url=https%3A%2F%2Flocalhost%2F&events=quote.closed");
        console.post("/console/register/", &format!("{fields}&headers={headers}")).await
    };
    let refused = register("").await;
    assert_eq!(refused.status, 422);
    let fault = between(&refused.text, "id=\"headers-fault\"", "</p>");
    assert!(fault.contains("have to be filled in again"), "{fault}");
    let made = register("test").await;
    assert_eq!(made.status, 200, "{}", made.text);
    let webhook = admin.get("/api/v1/webhooks/").await.json()["data"][0].clone();
    assert_eq!(webhook["header_names"], json!(["Authorization", "X-B"]));
    let id = webhook["id"].as_str().unwrap();
    let path = format!("/console/webhooks/{id}/settings/");
    let page = admin.get(&path).await.text;
    assert!(page.contains(r#"name="headers" value="X-B:""#), "{page}");
    let shown = hidden(&page, "shown").replace("&quot;", "\"");
    let change = async |url: &str, headers: &str| {
        let fields = format!("shown={shown}&name=test&description=&url={url}&events=quote.closed&{headers}");
        console.post(&path, &fields).await
    };
    let changed = change("https://localhost/", "headers=X-B%3A&headers=X-C%3A+concealed").await;
    assert_eq!(changed.status, 303, "{}", changed.text);
    assert_eq!(admin.webhook(id).await["header_names"], json!(["Authorization", "X-C"]));
    let moved = change("https://localhost:8443/", "headers=X-C%3Aconcealed").await;
    assert_eq!(moved.status, 422);
    let fault = between(&moved.text, "id=\"headers-fault\"", "</p>");
    assert!(fault.contains("Authorization") && fault.contains("must be given again"), "{fault}");
    let history = admin.get(&format!("/console/webhooks/{id}/history/")).await.text;
    assert!(history.contains("set <bdi>X-C</bdi>; removed <bdi>X-B</bdi>"), "{history}");
    for page in [refused.text, made.text, page, moved.text, history] {
        assert!(!page.contains("concealed"), "{page}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_done_to_a_webhook_that_was_deleted_meanwhile_leads_to_its_history() {
    let console = Console::open().await;
    let (_, page) = console.webhook(&["quote.closed"]).await;
    for _ in 0..2 {
        let answer = console.post(&format!("{page}delete/"), "confirmed=yes").await;
        assert_leads(&answer, &format!("{page}?done=deleted"));
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
        ("recover", "from=2026-01-01T00:00&states=dropped"),
        ("recover", "from=yesterday&states=dropped"),
    ] {
        assert_leads(&console.post(&format!("{page}{action}/"), fields).await, &history);
    }
    for part in ["settings/", "recover/", "recover/?from=2026-01-01T00:00&states=dropped"] {
        assert_leads(&console.admin.get(&format!("{page}{part}")).await, &history);
    }
    let shown = console.admin.get(&history).await;
    assert_eq!(shown.status, 200);
    for text in ["Nothing more is sent.", "https://localhost/", "<h1><bdi>A test</bdi></h1>"] {
        assert!(shown.text.contains(text), "{}", shown.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_webhook_is_found_again_even_after_its_log_has_expired() {
    let console = Console::open().await;
    let Console { system, admin, .. } = &console;
    let (webhook, page) = console.webhook(&["quote.closed"]).await;
    let (_, other) = system.tenant().await;
    assert!(!admin.get("/console/deleted/").await.text.contains(&page));
    admin.delete(&format!("/api/v1/webhooks/{webhook}/")).await;
    let is_listed = async |admin: &Api| {
        let list = admin.get("/console/deleted/").await;
        assert_eq!(list.status, 200, "{}", list.text);
        list.text.contains(&page) && list.text.contains("A test") && list.text.contains("https://localhost/")
    };
    assert!(is_listed(admin).await);
    assert!(!is_listed(&other).await, "tenants are walls");
    let kept = admin.get(&page).await;
    assert!(kept.status == 200 && kept.text.contains("No deliveries.<"), "{}", kept.text);
    // As retention does with its row.
    system.sql(&format!("DELETE FROM webhooks WHERE id = '{webhook}'")).await;
    assert!(is_listed(admin).await);
    let history = format!("{page}history/");
    for path in [&page, &format!("{page}settings/"), &format!("/console/find/?id={webhook}")] {
        assert_leads(&admin.get(path).await, &history);
    }
    let shown = admin.get(&history).await;
    assert_eq!(shown.status, 200);
    // Notices are kept as long.
    for text in ["deleted the webhook", r#"<span class="badge idle">deleted</span>"#, "<h1><bdi>A test</bdi></h1>"] {
        assert!(shown.text.contains(text), "{}", shown.text);
    }
    assert!(!shown.text.contains(">Deliveries</a>"), "{}", shown.text);
    assert_eq!(other.get(&history).await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_is_of_the_event_type_that_was_chosen() {
    let console = Console::open().await;
    let (webhook, page) = console.webhook(&["quote.closed", "return_note.created"]).await;
    let test = async |fields: &str| console.post(&format!("{page}test/"), fields).await;
    let shown = console.admin.get(&page).await.text;
    let choice = between(&shown, r#"<select name="event_type""#, "</select>");
    assert!(choice.contains("quote.closed") && choice.contains("return_note.created"), "{choice}");
    assert!(!choice.contains("quote.accepted"), "{choice}");
    for (wish, sent) in [("", "quote.closed"), ("return_note.created", "return_note.created")] {
        let answer = test(&format!("event_type={wish}")).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
        assert_eq!(console.admin.log(&webhook, "limit=1").await["data"][0]["event_type"], sent);
    }
    // Unsubscribed by somebody else meanwhile, and of no use at all.
    for (wish, why) in [
        ("quote.accepted", "must be one that the webhook is subscribed to: quote.closed, return_note.created"),
        ("%3Cb%3E", "event type &quot;&lt;b&gt;&quot;"),
    ] {
        let refused = test(&format!("event_type={wish}")).await;
        assert!(refused.status == 422 && refused.text.contains(why), "{} {}", refused.status, refused.text);
    }
    console.admin.set_active(&webhook, false).await;
    let refused = test("").await;
    assert!(refused.status == 409 && refused.text.contains("The webhook is paused"), "{}", refused.text);
    assert!(!refused.text.contains("is_active"), "{}", refused.text);
    assert!(refused.text.contains(&page), "{}", refused.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_recovery_or_a_filter_stands_beside_its_field() {
    let console = Console::open().await;
    let (_, page) = console.webhook(&["quote.closed"]).await;
    let path = format!("{page}recover/");
    let assert_beside = |answer: &str, field: &str, why: &str| {
        let fault = between(answer, &format!(r#"id="{field}-fault""#), "</");
        assert!(fault.to_lowercase().contains(&why.to_lowercase()), "{field}: {fault}");
    };
    for (fields, field, why) in [
        ("from=yesterday&states=dropped", "from", "RFC 3339"),
        ("from=9000-01-01T00:00&states=dropped", "from", "must not be in the future"),
        ("from=2026-01-01T00:00&to=2025-01-01T00:00&states=dropped", "to", "must be later than"),
        ("from=2026-01-01T00:00", "states", "must list at least one state"),
        ("from=2026-01-01T00:00&states=lost", "states", "must be dropped or skipped"),
        ("from=2026-01-01T00:00&states=dropped&event_types=lost", "event_types", "unknown event type"),
    ] {
        for answer in [console.admin.get(&format!("{path}?{fields}")).await, console.post(&path, fields).await] {
            assert_beside(&answer.text, field, why);
            assert!(!answer.text.contains("id=\"counted\""), "nothing was counted: {fields}");
        }
    }
    for (query, field, why) in [
        ("state=lost", "state", "must be one of"),
        ("event_type=quote.opened", "event_type", "quote.closed"),
        ("from=yesterday", "from", "RFC 3339"),
        ("until=%3Cb%3E", "until", "RFC 3339"),
    ] {
        let answer = console.admin.get(&format!("{page}?{query}")).await;
        assert_eq!(answer.status, 200);
        assert_beside(&answer.text, field, why);
        assert!(!answer.text.contains("No deliveries."), "nothing was looked for: {query}");
    }
    let page = console.admin.get(&format!("{page}?cursor=x")).await.text;
    assert!(page.contains("not a next_cursor") || page.contains("This page of the log"), "{page}");
}

/// Stores a recovery that no relay goes on with.
async fn begun(console: &Console, webhook: &str, (state, reached, resent): (&str, &str, u32)) -> String {
    let id = Uuid::now_v7().to_string();
    let reached = if reached.is_empty() { &id } else { reached };
    let values =
        format!("'{id}', '{webhook}', '2026-01-01T00:00:00Z', '{{{state}}}', '{reached}', {resent}, 'infinity'");
    let columns = "id, webhook_id, since, states, cursor, resent, leased_until";
    console.system.sql(&format!("INSERT INTO recoveries ({columns}) VALUES ({values})")).await;
    format!("/console/webhooks/{webhook}/recoveries/{id}/")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_beside_a_running_one_is_not_begun_and_says_so() {
    let console = Console::open().await;
    let (webhook, page) = console.webhook(&["quote.closed"]).await;
    let progress = begun(&console, &webhook, ("dropped", "", 0)).await;
    let another = format!("{progress}?done=another");
    for (fields, expected) in [
        ("from=2026-01-01T00:00&states=dropped", &progress),
        ("from=2026-02-01T00:00&states=dropped", &another),
        ("from=2026-01-01T00:00&states=dropped&states=skipped", &another),
    ] {
        assert_leads(&console.post(&format!("{page}recover/"), fields).await, expected);
    }
    let page = console.admin.get(&another).await.text;
    assert!(between(&page, r#"class="done warn""#, "</p>").contains("yours did not begin"), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_recovery_is_shown_in_place_of_what_can_be_recovered_and_is_stopped_by_a_form() {
    let console = Console::open().await;
    let Console { system, tenant, admin, .. } = &console;
    let (webhook, page) = console.webhook(&["quote.closed"]).await;
    history::made(system, *tenant, &webhook, 5, "CASE i % 2 WHEN 0 THEN 'dropped' ELSE 'skipped' END").await;
    let recover = format!("{page}recover/");
    let counted = admin.get(&format!("{recover}?from=2026-01-01T00:00&states=dropped&states=skipped")).await.text;
    assert!(counted.contains("2 dropped and 3 skipped deliveries"), "{counted}");
    let shown = async |text: &str, count: usize| {
        for path in ["/console/", &page, &recover] {
            let shown = admin.get(path).await.text;
            assert_eq!(shown.matches(text).count(), count, "{text} on {path}: {shown}");
        }
    };
    shown("2 dropped and 3 skipped can be recovered", 1).await;
    let progress = begun(&console, &webhook, ("dropped", "", 7)).await;
    shown("can be recovered", 0).await;
    shown("A recovery is running: 7 deliveries sent again so far.", 1).await;
    let banner = between(&admin.get(&page).await.text, r#"id="health""#, "</div>").to_owned();
    assert!(banner.contains(&progress) && !banner.contains("Recover them"), "{banner}");
    for _ in 0..2 {
        assert_leads(&console.post(&format!("{progress}stop/"), "").await, &progress);
    }
    let stopped = admin.get(&progress).await.text;
    assert!(stopped.contains("<strong>Stopped</strong>") && stopped.contains("7 deliveries sent again."), "{stopped}");
    assert!(!stopped.contains("Stop the recovery"), "{stopped}");
    let listed = admin.get(&recover).await.text;
    assert!(listed.contains(&format!(r#"<a href="{progress}">Stopped</a>"#)), "{listed}");
    shown("2 dropped and 3 skipped can be recovered", 1).await;
    let history = admin.get(&format!("{page}history/")).await.text;
    assert_eq!(history.matches("stopped a recovery").count(), 1, "{history}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_of_a_paused_webhook_is_held_and_leads_back_to_its_part_of_the_log() {
    let console = Console::open().await;
    let Console { system, tenant, admin, .. } = &console;
    let (webhook, page) = console.webhook(&["quote.closed"]).await;
    history::made(system, *tenant, &webhook, 1, "'retrying'").await;
    let due =
        format!("UPDATE deliveries SET next_attempt_at = now() + interval '1 hour' WHERE webhook_id = '{webhook}'");
    system.sql(&due).await;
    let delivery = admin.newest_in(&webhook, "retrying").await["id"].as_str().unwrap().to_owned();
    let (log, id) = (format!("{page}?state=retrying"), format!("deliveries/{delivery}/"));
    let link = format!(r#"href="{page}{id}?state=retrying""#);
    assert!(admin.get(&log).await.text.contains(&link), "{link}");
    for (is_active, held) in [(true, false), (false, true)] {
        admin.set_active(&webhook, is_active).await;
        let listed = admin.get(&log).await.text;
        let next = between(&listed, r#"<td class="number">"#, "</tr>");
        assert_eq!(next.contains(">held<") && !next.contains("<time"), held, "{next}");
        let detail = admin.get(&format!("{page}{id}?state=retrying")).await.text;
        assert_eq!(detail.contains("is held until the webhook is active again"), held, "{detail}");
        assert_eq!(detail.contains("will be retried"), !held, "{detail}");
        assert!(detail.contains(&format!(r#"href="{log}#log""#)), "{detail}");
    }
    let resent = console.post(&format!("{page}{id}resend/?state=retrying"), "").await;
    assert_leads(&resent, &format!("{page}{id}?state=retrying&done=resent"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notices_are_shown_whole_with_times_and_links() {
    let console = Console::open().await;
    let Console { system, tenant, admin, .. } = &console;
    let (webhook, page) = console.webhook(&["quote.closed"]).await;
    history::dropped(system, *tenant, &webhook, 1).await;
    let delivery = admin.log(&webhook, "").await["data"][0]["id"].as_str().unwrap().to_owned();
    let name = "<Orders> ".repeat(30);
    for (kind, details) in [
        ("dropping", json!({"delivery_id": delivery, "last_failure": "answered 500"})),
        ("failing", json!({"failing_since": "2026-03-01T09:30:00.123456Z", "failed_attempts": 7})),
        ("recovered", json!({"dropped": 2, "first_dropped": delivery})),
    ] {
        let columns = "webhook_id, tenant_id, webhook_name, notice_type, details, leased_until";
        let values = format!("'{webhook}', '{tenant}', '{name}', 'webhook.{kind}', '{details}', NULL");
        system.sql(&format!("INSERT INTO notices ({columns}) VALUES ({values})")).await;
    }
    let shown = admin.get(&format!("{page}history/")).await.text;
    let name = name.replace('<', "&lt;").replace('>', "&gt;");
    for part in [
        &format!(
            r#"delivery <a href="{page}deliveries/{delivery}/">{delivery}</a> failed. The last failure: answered 500. It can"#
        ),
        r#"since <time datetime="2026-03-01T09:30:00.123456Z" data-time="full">2026-03-01 09:30:00.123 UTC</time>: 7 attempts"#,
        "A recovery sends again what is still dropped.</bdi> <a href",
        &format!("{page}recover/?from="),
        &name,
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let link = between(&shown, "still dropped.</bdi> <a href=\"", "\"").replace("&amp;", "&");
    assert!(admin.get(&link).await.text.contains("1 dropped delivery"), "{link}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_progress_of_a_recovery_counts_what_it_has_still_to_look_at() {
    let console = Console::open().await;
    let Console { system, tenant, admin, .. } = &console;
    let (webhook, _) = console.webhook(&["quote.closed"]).await;
    admin.set_active(&webhook, false).await;
    let publish = async |event: Event, count: usize| {
        system.upstream.publish(&[event]).await;
        let skipped = format!(
            "SELECT count(*) FROM unsuccessful_deliveries WHERE webhook_id = '{webhook}' HAVING count(*) = {count}"
        );
        eventually("it is skipped", SOON, || async { system.sql(&skipped).await.pop() }).await;
    };
    for count in 1..=3 {
        publish(Event::now(EventType::QuoteClosed, *tenant), count).await;
    }
    let log = admin.log(&webhook, "").await;
    let progress = begun(&console, &webhook, ("skipped", log["data"][1]["id"].as_str().unwrap(), 5)).await;
    // What came after it was asked for is none of its work either. It fires in another millisecond, which its id tells.
    let later = (OffsetDateTime::now_utc() + Duration::from_secs(1)).format(&Rfc3339).unwrap();
    publish(Event { timestamp: later, ..Event::now(EventType::QuoteClosed, *tenant) }, 4).await;
    let page = admin.get(&progress).await.text;
    let told = between(&page, r#"<p class="banner idle">"#, "</p>");
    // The last one that it has looked at is not told apart from what is ahead.
    assert!(told.contains("5 deliveries sent again so far, 2 skipped to go."), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_stays_small_whatever_its_form_or_address_holds() {
    let console = Console::open().await;
    let (_, page) = console.webhook(&["quote.closed"]).await;
    let form = hidden(&console.admin.get("/console/register/").await.text, "form");
    let (register, settings, recover) = ("/console/register/", format!("{page}settings/"), format!("{page}recover/"));
    for (path, fields) in [
        (register, format!("form={form}&{}", "events=&".repeat(7_900))),
        (register, format!("form={form}&name={}", "\"".repeat(60_000))),
        (&settings, "events=x&".repeat(2_700)),
        (&settings, format!("name=&shown={{\"name\":\"{}\"}}", "\\\"".repeat(8_000))),
        (&settings, format!("name={0}&shown={{\"name\":\"{0}\"}}", "a".repeat(30_000))),
        (&recover, format!("from=x&{}", "states=&".repeat(7_900))),
        (&recover, format!("from={}", "\"".repeat(60_000))),
    ] {
        let answer = console.post(path, &fields).await;
        assert_eq!(answer.status, 422, "{path}");
        assert!(answer.text.len() < MAX_PAGE_BYTES, "{path}: {} bytes", answer.text.len());
    }
    let most = format!("q={}", "x".repeat(4_094));
    assert_eq!(console.admin.get(&format!("/console/?{most}")).await.status, 200);
    for path in ["/console/", "/console/find/", "/console/register/"] {
        assert_eq!(console.admin.get(&format!("{path}?{most}x")).await.status, 414, "{path}");
    }
    let nobody = Api { session: None, ..console.admin };
    let page = nobody.get(&format!("/console/login/?next=/console/{}", "a".repeat(60_000))).await;
    assert!(page.text.len() < MAX_PAGE_BYTES, "{} bytes", page.text.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_creates_a_key_once_shows_it_once_and_revokes_it() {
    const KEYS: &str = "/console/keys/";
    let console = Console::open().await;
    let page = console.admin.get(KEYS).await.text;
    assert!(console.admin.get("/console/").await.text.contains("href=\"/console/keys/\""), "the list leads to it");
    let form = hidden(&page, "form");
    let create = async |fields: &str| console.post(KEYS, &format!("form={form}&{fields}")).await;
    for (fields, fault) in [
        ("name=&expires_at=", "id=\"name-fault\">Name must not be blank"),
        ("name=a&expires_at=2020-01-01T00:00", "id=\"expires_at-fault\">Must be a time in the future"),
    ] {
        let refused = create(fields).await;
        assert!(refused.status == 422 && refused.text.contains(fault), "{fault}: {}", refused.text);
    }
    let made = create("name=ERP+%3Cb%3E&expires_at=2099-01-01T00:00").await;
    assert_eq!(made.status, 200, "{}", made.text);
    let key = between(&made.text, "id=\"secret\">", "<").to_owned();
    assert!(key.starts_with("wk_") && made.text.contains("ERP &lt;b&gt;"), "{}", made.text);
    assert_leads(&create("name=ERP&expires_at=").await, "/console/keys/?done=key_created");
    let listed = console.admin.get(KEYS).await.text;
    assert!(
        listed.matches("name=\"key\"").count() == 1 && !listed.contains("wk_0") && !listed.contains(&key),
        "{listed}"
    );
    let program = Api { session: None, ..console.admin.clone() };
    let authorization = format!("Bearer {key}");
    let headers = [("authorization", authorization.as_str())];
    assert_eq!(program.send("GET", "/api/v1/webhooks/", &headers, "").await.status, 200);
    assert_eq!(program.send("GET", KEYS, &headers, "").await.status, 403, "a key opens no console");
    let id = hidden(&listed, "key");
    assert_leads(&console.post("/console/keys/revoke/", &format!("key={id}")).await, KEYS);
    assert_eq!(program.send("GET", "/api/v1/webhooks/", &headers, "").await.status, 200, "it was not confirmed");
    let other = Console::open().await;
    other.post("/console/keys/revoke/", &format!("confirmed=yes&key={id}")).await;
    assert_eq!(program.send("GET", "/api/v1/webhooks/", &headers, "").await.status, 200, "it is another tenant's");
    for _ in 0..2 {
        let revoked = console.post("/console/keys/revoke/", &format!("confirmed=yes&key={id}")).await;
        assert_leads(&revoked, "/console/keys/?done=key_revoked");
    }
    assert_eq!(program.send("GET", "/api/v1/webhooks/", &headers, "").await.status, 401);
}
