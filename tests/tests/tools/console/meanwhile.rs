//! What happens while a page is open in a browser.

use std::time::Duration;

use end_to_end::{
    browser::{Browser, Kind},
    further_api::FurtherApi,
    receiver::{Receiver, always},
    system::{System, TestSystem},
    wait::{SOON, until},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use uuid::Uuid;

use crate::console::screens::{fill_in, logged_in, only_webhook};

/// A log-in page of another origin. Returns its address.
async fn business_application() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = connection.read(&mut [0; 4096]).await;
                let answer = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 17\r\nconnection: close\r\n\r\nThe log-in's page";
                let _ = connection.write_all(answer.as_bytes()).await;
            });
        }
    });
    format!("http://{address}/log-in")
}

/// Ends all sessions of a tenant.
async fn end_sessions(system: &System, tenant: Uuid) {
    system.sql(&format!("DELETE FROM admin_sessions WHERE tenant_id = '{tenant}'")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_after_the_sessions_end_leads_to_the_log_in_of_another_origin() {
    let system = TestSystem::shared().await;
    let (tenant, admin) = system.tenant().await;
    let login = business_application().await;
    let settings = [("CONSOLE__LOGIN_URL", &*login), ("CONSOLE__PUBLIC_URL", "http://hooks.example.com")];
    let admin = FurtherApi::start(&system, &settings, &admin).await;
    let Some(browser) = Browser::start(admin.address, Kind::default()).await else { return };
    admin.create("https://localhost/", &["quote.closed"]).await;
    browser.open("/console/assets/icon.svg").await;
    let cookie = json!({"name": "sessionid", "value": admin.session, "url": format!("http://{}/", admin.address)});
    browser.own("Network.setCookie", cookie).await;
    browser.open("/console/").await;
    browser.shows("A test").await;
    end_sessions(&system, tenant).await;
    browser.fill("input[name=q]", "orders").await;
    browser.press("Search").await;
    browser.shows("The log-in's page").await;
    assert!(browser.path().await.starts_with("/log-in?next=http"), "{}", browser.path().await);
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_page_cannot_do_any_more_it_says_and_loses_nothing_silently() {
    let system = TestSystem::shared().await;
    let (tenant, receiver) = (Uuid::new_v4(), Receiver::start(&system.ca, always(200)));
    let Some((browser, api)) = logged_in(&system, tenant, Kind::default()).await else { return };
    browser.open("/console/register/").await;
    fill_in(&browser, "Orders", &receiver.url("/in")).await;
    browser.click("input[value='quote.closed']").await;
    browser.click("input[value='return_note.created']").await;
    browser.press("Register").await;
    browser.element("#secret").await;
    browser.click("select[name=event_type] option[value='return_note.created']").await;
    browser.press("Send a test").await;
    browser.element("#test-result .good").await;
    let sent = receiver.wait_for(1, SOON).await;
    assert_eq!(sent[0].header("x-service-event"), Some("return_note.created"));
    let webhook = only_webhook(&api).await;
    api.set_active(&webhook, false).await;
    browser.press("Send a test").await;
    browser.shows("The webhook is paused").await;
    end_sessions(&system, tenant).await;
    browser.press("Send a test").await;
    browser.shows("Your session has ended, and nothing was changed.").await;
    browser.element("#secret").await;

    let session = async || system.session(tenant, "admin", Duration::from_secs(600)).await.session.unwrap();
    browser.open("/console/login/").await;
    browser.fill("#session", &session().await).await;
    browser.press("Log in").await;
    browser.open(&format!("/console/webhooks/{webhook}/settings/")).await;
    end_sessions(&system, tenant).await;
    browser.shows("Your session has ended. Log in again").await;
    browser.press("Activate").await;
    browser.shows("Your session has ended, and nothing was changed.").await;
    browser.press("Log in").await;
    browser.shows("Session id").await;
    browser.fill("#session", "of nobody").await;
    browser.press("Log in").await;
    browser.shows("There is no such session").await;
    browser.picture("login").await;
    browser.fill("#session", &session().await).await;
    browser.press("Log in").await;
    browser.shows("Paused: nothing is sent.").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_page_says_why_it_is_no_longer_refreshed() {
    let system = TestSystem::shared().await;
    let tenant = Uuid::new_v4();
    let Some((browser, api)) = logged_in(&system, tenant, Kind::default()).await else { return };
    let (first, second) = (
        api.create("https://localhost/", &["quote.closed"]).await.id,
        api.create("https://localhost/", &["quote.closed"]).await.id,
    );
    // It is deleted by a colleague.
    browser.open(&format!("/console/webhooks/{first}/settings/")).await;
    api.delete(&format!("/api/v1/webhooks/{first}/")).await;
    browser.shows("This page can no longer be shown.").await;
    browser.press("Load it again to see why").await;
    browser.shows("Nothing more is sent.").await;
    browser.open(&format!("/console/webhooks/{second}/")).await;
    // Nobody uses it, then somebody does.
    let later = "const now = Date.now; Date.now = () => now() + 31 * 60000;";
    browser.page.execute(later, Vec::new()).await.unwrap();
    browser.shows("Nobody has used this page for 30 minutes.").await;
    browser.key(" ").await;
    until("the page is refreshed again", SOON, async || !browser.text().await.contains("Nobody has used this page"))
        .await;
    // A limit of requests is no lost connection.
    let limited = "const fetch = window.fetch; window.asked = 0; window.unlimited = () => { window.fetch = fetch; }; \
                   window.fetch = async () => { window.asked += 1; return new Response('', { status: 429 }); };";
    browser.page.execute(limited, Vec::new()).await.unwrap();
    until("it is limited twice", SOON, async || {
        let asked = browser.page.execute("return window.asked;", Vec::new()).await.unwrap();
        asked.as_u64() >= Some(2)
    })
    .await;
    assert!(!browser.text().await.contains("The connection to the service is lost."));
    browser.page.execute("window.unlimited();", Vec::new()).await.unwrap();
    api.delete(&format!("/api/v1/webhooks/{second}/")).await;
    browser.shows("Nothing more is sent.").await;
    // The user is no administrator any more.
    api.create("https://localhost/", &["quote.closed"]).await;
    browser.open("/console/").await;
    system.sql(&format!("UPDATE admin_sessions SET role = 'sales' WHERE tenant_id = '{tenant}'")).await;
    browser.shows("This page can no longer be shown.").await;
    browser.close().await;
}
