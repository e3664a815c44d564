//! An administrator's whole way through the console, in a real browser.

use domain::EventType;
use end_to_end::{
    api::Api,
    browser::{Browser, Kind},
    events::Event,
    receiver::{Receiver, Reply, always, behaviour, verify},
    system::{Options, System, TestSystem},
    wait::{SOON, until},
};
use serde_json::json;
use uuid::Uuid;

/// A browser in which an administrator of a tenant is logged in. `None` if `SKIP` leaves Chromium out.
pub(super) async fn logged_in(system: &System, tenant: Uuid, kind: Kind) -> Option<(Browser, Api)> {
    let api = system.admin(tenant).await;
    let browser = Browser::start(api.address, kind).await?;
    let link = system.console_link(tenant).await;
    browser.open(&link[link.find("/console").unwrap()..]).await;
    browser.press("Continue to the console").await;
    Some((browser, api))
}

pub(super) async fn fill_in(browser: &Browser, name: &str, url: &str) {
    browser.fill("input[name=name]", name).await;
    browser.fill("input[name=url]", url).await;
}

pub(super) async fn only_webhook(api: &Api) -> String {
    let list = api.get("/api/v1/webhooks/").await.json();
    assert_eq!(list["data"].as_array().unwrap().len(), 1, "{list}");
    list["data"][0]["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_administrator_registers_tests_watches_recovers_and_deletes() {
    let system = TestSystem::running(Options { schedule: "300ms,600ms", ..Options::default() }).await;
    let tenant = Uuid::new_v4();
    let receiver = Receiver::start(&system.ca, always(200));
    let Some((browser, api)) = logged_in(&system, tenant, Kind::default()).await else { return };

    // The first webhook: what is wrong stands beside its field, and what was right stays.
    browser.shows("No webhooks yet").await;
    browser.picture("empty").await;
    browser.press("Register the first webhook").await;
    fill_in(&browser, "Orders", "http://localhost/").await;
    browser.click("input[value='quote.closed']").await;
    browser.press("Register").await;
    let fault = browser.element("#url-fault:not(:empty)").await.text().await.unwrap();
    assert!(fault.contains("https"), "{fault}");
    browser.picture("refused").await;
    browser.fill("input[name=url]", &receiver.url("/in")).await;
    browser.press("Register").await;

    // The secret, once. Who leaves without it is asked once.
    let secret = browser.element("#secret").await.text().await.unwrap();
    assert!(secret.starts_with("whsec_"), "{secret}");
    let is_asked = async || {
        let leave = "return !dispatchEvent(new Event('beforeunload', { cancelable: true }));";
        browser.page.execute(leave, Vec::new()).await.unwrap() == true
    };
    assert_eq!((is_asked().await, is_asked().await), (true, false));
    browser.press("Send a test").await;
    browser.element("#test-result .good").await;
    browser.picture("registered").await;
    let received = receiver.wait_for(1, SOON).await;
    verify(&received[0], &secret).unwrap();
    let webhook = only_webhook(&api).await;
    browser.own("Page.reload", json!({})).await;
    browser.open("/console/").await;
    browser.shows("no event has been delivered yet").await;
    system.upstream.publish(&Event::closed(tenant, 1)).await;
    until("an event has succeeded", SOON, async || api.webhook(&webhook).await["last_success_at"].is_string()).await;
    browser.open("/console/").await;
    browser.shows("All well, last success").await;
    only_webhook(&api).await;

    let journey = Journey { system: &system, tenant, receiver, browser, api, webhook };
    journey.fails_and_is_found().await;
    journey.recover().await;
    journey.change_and_delete().await;
    journey.browser.close().await;
}

/// What an administrator does with a webhook.
struct Journey<'a> {
    system: &'a System,
    tenant: Uuid,
    receiver: Receiver,
    browser: Browser,
    api: Api,
    webhook: String,
}

impl Journey<'_> {
    async fn publish(&self) {
        self.system.upstream.publish(&Event::closed(self.tenant, 1)).await;
    }

    /// The open page shows a failure by itself. The delivery's page tells of each attempt, and is found by the event.
    async fn fails_and_is_found(&self) {
        let Self { receiver, browser, api, webhook, .. } = self;
        receiver.behave(behaviour(|_, _| Reply::status(503).body("<b>upgrading</b>")));
        browser.press("Orders").await;
        browser.shows("All well").await;
        self.publish().await;
        browser.shows("Failing for").await;
        browser.shows("The log has changed").await;
        browser.press("The log has changed: show it").await;
        until("the row says dropped", SOON, || async { browser.text().await.contains("dropped quote.closed") }).await;
        browser.press("quote.closed").await;
        browser.shows("3 attempts, 1 to 3: the receiver answered 503 Service Unavailable").await;
        browser.shows("<b>upgrading</b>").await;
        browser.press("Log").await;
        browser.press("quote.closed").await;
        let path = browser.path().await;
        let event = api.newest_in(webhook, "dropped").await["event_id"].as_str().unwrap().to_owned();

        // Found again by the event.
        browser.fill("input[name=id]", &event).await;
        browser.page.active_element().await.unwrap().send_keys("\u{e007}").await.unwrap();
        browser.shows("Outcome").await;
        browser.press("dropped").await;
        assert_eq!(browser.path().await, path);
    }

    /// Sends a delivery again once the receiver is fixed, and recovers another one.
    async fn recover(&self) {
        let Self { receiver, browser, api, webhook, .. } = self;
        receiver.behave(always(200));
        browser.press("Send again").await;
        browser.shows("The delivery is queued to be sent again.").await;
        browser.element("#timeline .good").await;
        receiver.behave(always(500));
        self.publish().await;
        api.newest_in(webhook, "dropped").await;
        receiver.behave(always(200));
        browser.open(&format!("/console/webhooks/{webhook}/recover/")).await;
        browser.press("Count them").await;
        browser.shows("1 dropped delivery would be sent again").await;
        browser.press("Send 1 delivery again").await;
        browser.shows("1 delivery sent again.").await;
    }

    /// It is renamed, paused, activated, cancelled and deleted. Its log stays.
    async fn change_and_delete(&self) {
        let Self { browser, webhook, .. } = self;
        browser.open(&format!("/console/webhooks/{webhook}/settings/")).await;
        browser.fill("input[name=name]", "Orders <i>2</i>").await;
        browser.press("Save").await;
        browser.shows("Orders <i>2</i>").await;
        browser.press("Pause").await;
        browser.shows("Paused: nothing is sent.").await;
        self.publish().await;
        browser.shows("1 skipped").await;
        browser.press("Activate").await;
        browser.shows("Active again.").await;
        browser.press("Settings").await;
        browser.click("form[action$='/cancel/'] input[name=confirmed]").await;
        browser.press("Cancel waiting deliveries").await;
        browser.shows("The deliveries that were waiting are being cancelled.").await;
        browser.press("History").await;
        browser.shows("somebody paused the webhook").await;
        browser.shows("somebody cancelled waiting deliveries").await;

        browser.press("Settings").await;
        browser.click("form[action$='/delete/'] input[name=confirmed]").await;
        browser.press("Delete").await;
        browser.shows("Nothing more is sent.").await;
        browser.press("Webhooks").await;
        browser.shows("No webhooks yet").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_of_fields_are_in_the_readers_zone_and_are_sent_in_utc() {
    let system = TestSystem::shared().await;
    let tenant = Uuid::new_v4();
    let Some((browser, api)) = logged_in(&system, tenant, Kind::default()).await else { return };
    let webhook = api.create("https://localhost/", &["quote.closed"]).await.id;
    browser.own("Emulation.setTimezoneOverride", json!({"timezoneId": "Asia/Kabul"})).await;
    let value = async |field: &str| {
        let read = format!("return document.querySelector('input[name={field}]').value;");
        browser.page.execute(&read, Vec::new()).await.unwrap()
    };
    browser.open(&format!("/console/webhooks/{webhook}/recover/?from=2026-03-01T20:00&states=dropped")).await;
    browser.shows("Events from (Asia/Kabul)").await;
    browser.shows("Times are in Asia/Kabul.").await;
    assert_eq!((value("from").await, value("to").await), (json!("2026-03-02T00:30"), json!("")));
    browser.press("Count them").await;
    browser.shows("None found.").await;
    assert!(browser.path().await.contains("?from=2026-03-01T20%3A00%3A00&to=&"), "{}", browser.path().await);
    assert_eq!(value("from").await, "2026-03-02T00:30");
    browser.open(&format!("/console/webhooks/{webhook}/?until=2026-03-01T20:00:07")).await;
    assert_eq!(value("until").await, "2026-03-02T00:30:07");
    browser.press("Filter").await;
    browser.shows("No delivery matches.").await;
    assert!(browser.path().await.contains("until=2026-03-01T20%3A00%3A07"), "{}", browser.path().await);
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_works_without_script() {
    let system = TestSystem::shared().await;
    let receiver = Receiver::start(&system.ca, always(200));
    let kind = Kind { is_without_script: true };
    let Some((browser, api)) = logged_in(&system, Uuid::new_v4(), kind).await else { return };
    browser.press("Register the first webhook").await;
    fill_in(&browser, "Plain", &receiver.url("/in")).await;
    browser.click("input[value='quote.closed']").await;
    browser.press("Register").await;
    let secret = browser.element("#secret").await.text().await.unwrap();
    browser.press("Send a test").await;
    browser.shows("The test is queued.").await;
    verify(&receiver.wait_for(1, SOON).await[0], &secret).unwrap();
    let webhook = only_webhook(&api).await;
    api.newest_in(&webhook, "succeeded").await;
    browser.page.refresh().await.unwrap();
    browser.shows("Attempt 1: 200").await;
    browser.press("Send again").await;
    receiver.wait_for(2, SOON).await;
    browser.press("Plain").await;
    browser.press("Pause").await;
    browser.shows("Paused: nothing is sent.").await;
    browser.press("Recover").await;
    browser.press("Count them").await;
    browser.shows("None found.").await;
    browser.press("Settings").await;
    browser.click("form[action$='/delete/'] input[name=confirmed]").await;
    browser.press("Delete").await;
    browser.shows("Deleted. Waiting deliveries are cancelled.").await;
    browser.press("Log out").await;
    browser.shows("Session id").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_wrote_is_shown_as_text() {
    let system = TestSystem::running(Options { schedule: "3600s", ..Options::default() }).await;
    let tenant = Uuid::new_v4();
    let hostile = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">";
    let binary: Vec<u8> = (0..=255).cycle().take(1024).collect();
    let answer = [hostile.as_bytes(), &binary].concat();
    let receiver = Receiver::start(&system.ca, behaviour(move |_, _| Reply::status(500).body(answer.clone())));
    let Some((browser, api)) = logged_in(&system, tenant, Kind::default()).await else { return };
    let url = receiver.url("/%3Cb%3E?a=\"><script>document.title='taken'</script>");
    let webhook = api.create(&url, &["quote.closed"]).await.id;
    let renamed = api.patch(&format!("/api/v1/webhooks/{webhook}/"), &json!({"name": hostile})).await;
    assert_eq!(renamed.status, 200, "{}", renamed.text);
    // A name from before such characters were refused.
    let rename = format!("UPDATE webhooks SET name = name || ' \u{202e}gnp.exe' WHERE id = '{webhook}'");
    system.sql(&rename).await;
    let event = Event::now(EventType::QuoteClosed, tenant)
        .with_data(json!({"</pre><script>document.title='taken'</script>": hostile}).to_string());
    system.upstream.publish(std::slice::from_ref(&event)).await;
    let delivery = api.newest_in(&webhook, "retrying").await["id"].as_str().unwrap().to_owned();
    for path in [
        "/console/".to_owned(),
        format!("/console/?q={}", "%22%3E%3Cscript%3Edocument.title%3D%27taken%27%3C%2Fscript%3E"),
        format!("/console/webhooks/{webhook}/"),
        format!("/console/webhooks/{webhook}/?state=%22%3E%3Cscript%3E&from=%22%3E%3Cb%3E"),
        format!("/console/webhooks/{webhook}/settings/"),
        format!("/console/webhooks/{webhook}/history/"),
        format!("/console/webhooks/{webhook}/deliveries/{delivery}/"),
        format!("/console/find/?id={}", event.id),
        "/console/find/?id=%3Cscript%3Edocument.title%3D%27taken%27%3C%2Fscript%3E".to_owned(),
    ] {
        browser.open(&path).await;
        browser.element("h1").await;
        assert_ne!(browser.page.title().await.unwrap(), "taken", "{path}");
        let scripts =
            browser.page.find_all(fantoccini::Locator::Css("main script, main img, main b, main style")).await;
        let count = scripts.unwrap().len();
        let expected = if path.contains("/deliveries/") { 4 } else { 0 };
        assert_eq!(count, expected, "{path}: only the names of headers are bold");
    }
    browser.open(&format!("/console/webhooks/{webhook}/deliveries/{delivery}/")).await;
    let text = browser.text().await;
    assert!(text.contains("<script>document.title='taken'</script>") && text.contains('␀'), "{text}");
    browser.open("/console/").await;
    assert!(browser.text().await.contains("⟨U+202E⟩gnp.exe"));
    browser.close().await;
}
