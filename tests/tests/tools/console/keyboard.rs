//! The console with the keyboard alone.

use domain::EventType;
use end_to_end::{
    browser::{Browser, Kind},
    events::Event,
    receiver::{Receiver, always},
    system::{Options, TestSystem},
    wait::SOON,
};
use serde_json::json;
use uuid::Uuid;

use crate::console::screens::only_webhook;

/// Moves with Tab until an element is in focus, and sees the ring around it.
async fn tab_to(browser: &Browser, selector: &str) {
    browser.element(selector).await;
    for _ in 0..60 {
        let tab = json!({"type": "rawKeyDown", "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9});
        browser.own("Input.dispatchKeyEvent", tab).await;
        let is_there = format!("return document.activeElement.matches({selector:?})");
        if browser.page.execute(&is_there, Vec::new()).await.unwrap() == true {
            let ring = "const of = (part) => getComputedStyle(document.activeElement, part).outlineStyle; \
                        return of(null) !== 'none' || of('::after') !== 'none'";
            assert_eq!(browser.page.execute(ring, Vec::new()).await.unwrap(), true, "{selector} shows no focus");
            return;
        }
    }
    panic!("Tab does not lead to {selector}: {}", browser.text().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_works_with_the_keyboard_alone() {
    const ENTER: &str = "\u{e007}";
    const SPACE: &str = " ";
    let system = TestSystem::running(Options { schedule: "300ms,600ms", ..Options::default() }).await;
    let tenant = Uuid::new_v4();
    let receiver = Receiver::start(&system.ca, always(500));
    let api = system.admin(tenant).await;
    let Some(browser) = Browser::start(api.address, Kind::default()).await else { return };
    let link = system.console_link(tenant).await;
    browser.open(&link[link.find("/console").unwrap()..]).await;
    // The button of the log-in is in focus already.
    browser.key(ENTER).await;
    browser.shows("No webhooks yet").await;

    // The skipped header leads straight to the content.
    tab_to(&browser, ".skip").await;
    browser.key(ENTER).await;
    tab_to(&browser, "main a[href='/console/register/']").await;
    browser.key(ENTER).await;
    tab_to(&browser, "#name").await;
    browser.key("Orders").await;
    tab_to(&browser, "#url").await;
    browser.key(&receiver.url("/in")).await;
    tab_to(&browser, "input[value='quote.closed']").await;
    browser.key(SPACE).await;
    tab_to(&browser, "main .stack button").await;
    browser.key(ENTER).await;
    browser.element("#secret").await;

    // The test fails, and says so in place.
    tab_to(&browser, "form[action$='/test/'] button").await;
    browser.key(SPACE).await;
    browser.element("#test-result .bad").await;
    let webhook = only_webhook(&api).await;
    let event = Event::now(EventType::QuoteClosed, tenant);
    system.upstream.publish(std::slice::from_ref(&event)).await;
    receiver.wait_for(6, SOON).await;
    receiver.behave(always(200));
    let _ = api.ask(&format!("/api/v1/webhooks/{webhook}/test/")).await;
    api.newest_in(&webhook, "succeeded").await;

    // What was dropped is counted and sent again.
    tab_to(&browser, "main > p > a.button").await;
    browser.key(ENTER).await;
    tab_to(&browser, ".tabs a[href$='/recover/']").await;
    browser.key(ENTER).await;
    tab_to(&browser, "input[value='skipped']").await;
    browser.key(SPACE).await;
    tab_to(&browser, "form[method='get'] .actions button").await;
    browser.key(ENTER).await;
    browser.shows("2 dropped deliveries would be sent again").await;
    tab_to(&browser, "#counted button").await;
    browser.key(ENTER).await;
    browser.shows("2 deliveries sent again.").await;
    browser.close().await;
}
