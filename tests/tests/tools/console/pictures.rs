//! Every screen of a tenant full of life, as pictures in `target/console`: to be looked at. The README shows two of them.

use end_to_end::{
    browser::{Browser, Kind},
    life::{self, Hosts, Life},
    system::TestSystem,
};
use serde_json::json;
use uuid::Uuid;

use crate::console::MAX_PAGE_BYTES;

/// Lets axe-core judge the page, when `AXE_CORE` names its script (`make accessibility`).
async fn violations(browser: &Browser, name: &str) -> Vec<String> {
    let Ok(axe) = std::env::var("AXE_CORE") else { return Vec::new() };
    let axe = std::fs::read_to_string(axe).expect("AXE_CORE can be read");
    let run = "const done = arguments[0]; axe.run().then((found) => done(found.violations.map((one) => one.id + \": \" + \
               one.nodes.map((node) => node.html + \" \" + node.failureSummary).join(\"; \"))));";
    let found = browser.page.execute_async(&format!("{axe};{run}"), Vec::new()).await.expect("axe-core runs");
    found.as_array().unwrap().iter().map(|violation| format!("{name}: {violation}")).collect()
}

/// Every screen, with its name.
fn pages(life: &Life, event: &str, delivery: &str, recovery: &str) -> Vec<(&'static str, String)> {
    let of = |webhook: &str, part: &str| format!("/console/webhooks/{webhook}/{part}");
    let failing = &life.failing;
    vec![
        ("webhooks", "/console/".to_owned()),
        ("search", "/console/?q=nowhere".to_owned()),
        ("register", "/console/register/".to_owned()),
        ("webhook", of(failing, "?state=retrying")),
        ("log", of(failing, "")),
        ("hanging", of(&life.hanging, "")),
        ("webhook-well", of(&life.healthy, "?range=7d")),
        ("webhook-month", of(&life.fixed, "?range=30d&state=dropped")),
        ("webhook-paused", of(&life.paused, "")),
        ("delivery", of(failing, &format!("deliveries/{delivery}/"))),
        ("settings", of(failing, "settings/")),
        ("history", of(&life.paused, "history/")),
        ("recover", of(failing, "recover/?from=2026-01-01T00:00:00&states=dropped&states=skipped")),
        ("recovery", of(&life.fixed, &format!("recoveries/{recovery}/"))),
        ("keys", "/console/keys/".to_owned()),
        ("find", format!("/console/find/?id={event}")),
        ("find-nothing", format!("/console/find/?id={}", Uuid::now_v7())),
        ("docs", "/api/v1/docs/".to_owned()),
        ("docs-webhooks", "/api/v1/docs/webhooks/".to_owned()),
        ("docs-deliveries", "/api/v1/docs/deliveries/".to_owned()),
        ("docs-schemas", "/api/v1/docs/schemas/".to_owned()),
        ("not-found", of(&Uuid::now_v7().to_string(), "")),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_screen_is_small_fits_a_telephone_and_asks_no_other_host() {
    let hosts = Hosts::named().await;
    let system = TestSystem::running(life::options(&hosts)).await;
    let tenant = Uuid::new_v4();
    let life = Life::begin(&system, tenant, &hosts).await;
    let api = system.admin(tenant).await;
    let (event, delivery) = life.event(&api).await;
    let (path, since) = (format!("/api/v1/webhooks/{}/recover/", life.fixed), json!({"from": "2026-01-01T00:00:00Z"}));
    // It is running already, unless it has ended: `Location` leads to it in any case.
    let recovery = api.post(&path, &since).await.header("location").unwrap().rsplit('/').nth(1).unwrap().to_owned();
    for key in [json!({"name": "ERP sync"}), json!({"name": "Reports", "expires_at": "2099-01-01T00:00:00Z"})] {
        assert_eq!(api.post("/api/v1/keys/", &key).await.status, 201);
    }
    let pages = pages(&life, &event, &delivery, &recovery);
    for (name, path) in &pages {
        let text = api.get(path).await.text;
        assert!(text.starts_with("<!DOCTYPE html>") && text.len() < MAX_PAGE_BYTES, "{name} has {} bytes", text.len());
    }

    let Some(browser) = Browser::start(api.address, Kind::default()).await else { return };
    let link = life.link(&system, tenant).await;
    browser.open(&link[link.find("/console").unwrap()..]).await;
    browser.press("Continue to the console").await;
    browser.shows("Warehouse orders").await;
    let mut faults = Vec::new();
    for (name, path) in &pages {
        browser.open(path).await;
        browser.element("h1").await;
        for (width, is_dark) in [(1200, false), (1200, true), (768, false), (360, false), (360, true)] {
            browser.look(width, is_dark).await;
            let wide = browser.page.execute("return document.documentElement.scrollWidth", Vec::new()).await.unwrap();
            assert!(wide.as_u64().unwrap() <= width.into(), "{name} is {wide} wide at {width}");
            let theme = if is_dark { "dark" } else { "light" };
            faults.extend(violations(&browser, &format!("{name} {width} {theme}")).await);
            browser.picture(&format!("{name}-{width}-{theme}")).await;
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let base = format!("http://{}/", api.address);
    let requests = browser.requests().await;
    assert!(requests.len() > pages.len(), "{requests:?}");
    let others: Vec<_> = requests.iter().filter(|url| !url.starts_with(&base) && !url.starts_with("data:")).collect();
    assert!(others.is_empty(), "{others:?}");
    browser.close().await;
    drop(life);
}
