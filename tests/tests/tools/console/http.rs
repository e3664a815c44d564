//! What a browser does not show: headers, cookies, refusals.

use std::time::Duration;

use end_to_end::{
    api::{Answer, Api},
    further_api::FurtherApi,
    system::TestSystem,
};
use serde_json::json;
use url::form_urlencoded::byte_serialize;
use uuid::Uuid;

use crate::console::{Console, FORM, assert_leads, hidden, post};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_no_administrator_is_sent_to_the_log_in_with_a_way_back() {
    const LOGIN: &str = "https://app.example.com/log-in?from=hooks";
    let system = TestSystem::shared().await;
    let clerk = system.session(Uuid::new_v4(), "sales", MINUTE).await;
    let settings = [("CONSOLE__LOGIN_URL", LOGIN), ("CONSOLE__PUBLIC_URL", "https://hooks.example.com/")];
    let further = FurtherApi::start(&system, &settings, &clerk).await;
    for (clerk, has_own) in [(&clerk, true), (&*further, false)] {
        let log_in_before = |path: &str| {
            let path: String = byte_serialize(path.as_bytes()).collect();
            match has_own {
                true => format!("/console/login/?next={path}"),
                false => format!("{LOGIN}&next=https%3A%2F%2Fhooks.example.com{path}"),
            }
        };
        let nobody = Api { session: None, ..clerk.clone() };
        let stranger = Api { session: Some("unknown".to_owned()), ..clerk.clone() };
        for api in [&nobody, &stranger] {
            let forwarded = [("x-forwarded-host", "evil.example"), ("forwarded", "host=evil.example")];
            let answer = api.send("GET", "/console/find/?id=1", &forwarded, "").await;
            assert_leads(&answer, &log_in_before("/console/find/?id=1"));
        }
        let refused = clerk.get("/console/").await;
        assert_eq!((refused.status, refused.header("content-type")), (403, Some("text/html; charset=utf-8")));
        for said in ["only administrators may manage webhooks", r#"href="/console/login/""#] {
            assert!(refused.text.contains(said), "{}", refused.text);
        }
        // A form would be lost by a redirect.
        let lost = post(&nobody, "/console/register/", "name=a").await;
        assert_eq!(lost.status, 401);
        assert!(lost.text.contains("nothing was changed"), "{}", lost.text);
        for api in [clerk, &nobody] {
            let answer = api.get("/console/login/").await;
            match has_own {
                true => assert_eq!(answer.status, 200),
                false => assert_leads(&answer, &log_in_before("/console/")),
            }
        }
        // Every page has its policy, an error too. A form whose answer is a redirect may lead to the log-in.
        for path in ["/console/", "/console/nothing/"] {
            let policy = clerk.get(path).await.header("content-security-policy").unwrap().to_owned();
            let login = if has_own { "" } else { " https://app.example.com" };
            assert!(policy.ends_with(&format!("form-action 'self'{login}")), "{policy}");
        }
        let session = system.session(Uuid::new_v4(), "admin", MINUTE).await.session.unwrap();
        for (next, expected) in [
            ("", "/console/"),
            ("/console/find/?id=1", "/console/find/?id=1"),
            ("//evil.example/console/", "/console/"),
            ("https://evil.example/console/", "/console/"),
            ("/console/\\evil", "/console/"),
            ("/console/\r\nx: y", "/console/"),
        ] {
            let next: String = byte_serialize(next.as_bytes()).collect();
            let answer = post(&nobody, "/console/login/", &format!("session={session}&next={next}")).await;
            assert_eq!(answer.status, if has_own { 303 } else { 404 });
            assert_eq!(answer.header("location"), has_own.then_some(expected));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_logs_in_once_and_sets_a_cookie_that_no_script_and_no_other_site_can_use() {
    let system = TestSystem::shared().await;
    let settings = [("CONSOLE__PUBLIC_URL", "https://hooks.example.com")];
    let nobody = FurtherApi::start(&system, &settings, &system.anonymous().await).await;
    let link = system.console_link(Uuid::new_v4()).await;
    let code = link.split("code=").nth(1).unwrap().to_owned();
    // A preview of the link does not use it up, and its code is no session.
    assert_eq!(nobody.get(&format!("/console/login/?code={code}")).await.status, 200);
    let as_session = Api { session: Some(code.clone()), ..nobody.clone() };
    assert_eq!(as_session.get("/console/").await.status, 403);
    assert_eq!(post(&nobody, "/console/login/", &format!("session={code}")).await.status, 403);
    let logged_in = post(&nobody, "/console/login/", &format!("code={code}")).await;
    assert_leads(&logged_in, "/console/");
    let cookie = logged_in.header("set-cookie").unwrap();
    let (pair, attributes) = cookie.split_once("; ").unwrap();
    assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Strict; Max-Age=43200; Secure");
    let session = pair.strip_prefix("sessionid=").unwrap().to_owned();
    assert_ne!(session, code);
    assert_eq!(post(&nobody, "/console/login/", &format!("code={code}")).await.status, 403);

    let admin = Api { session: Some(session), ..nobody.clone() };
    let home = admin.get("/console/").await;
    assert_eq!(home.status, 200);
    let token = hidden(&home.text, "token");
    // A proxy may pass on another host.
    let own = [FORM, ("origin", "https://hooks.example.com")];
    let out = admin.send("POST", "/console/logout/", &own, format!("token={token}")).await;
    assert_eq!(out.status, 303, "{}", out.text);
    assert!(out.header("set-cookie").unwrap().starts_with("sessionid=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0"));
    assert_eq!(admin.get("/console/").await.status, 303, "the session is revoked");
    let cross = [FORM, ("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")];
    assert_eq!(nobody.send("POST", "/console/login/", &cross, "session=x").await.status, 403);
}

/// Another host of the same domain can set the first cookie, and knows its value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_cookies_the_session_that_passes_keys_the_forms_and_a_log_out_ends_both() {
    let Console { system, tenant, admin, token } = Console::open().await;
    let clerk = system.session(tenant, "sales", MINUTE).await;
    let stranger = system.anonymous().await;
    let cookies = |first: &Api| {
        let [first, second] = [first, &admin].map(|api| api.session.as_deref().unwrap_or("stale"));
        format!("sessionid={first}; sessionid={second}")
    };
    for first in [&stranger, &clerk] {
        let page = stranger.send("GET", "/console/register/", &[("cookie", &cookies(first))], "").await;
        assert_eq!((page.status, hidden(&page.text, "token")), (200, token.clone()));
    }
    let foreign = hidden(&system.admin(tenant).await.get("/console/register/").await.text, "token");
    let out = async |token: &str| {
        let headers = [FORM, ("cookie", &cookies(&clerk))];
        stranger.send("POST", "/console/logout/", &headers, format!("token={token}")).await.status
    };
    assert_eq!(out(&foreign).await, 403);
    assert_eq!((clerk.get("/console/").await.status, admin.get("/console/").await.status), (403, 200));
    assert_eq!(out(&token).await, 303);
    for ended in [&clerk, &admin] {
        assert_leads(&ended.get("/console/").await, "/console/login/?next=%2Fconsole%2F");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_needs_the_sessions_token_and_comes_from_the_console() {
    let console = Console::open().await;
    let Console { system, tenant, admin, token } = &console;
    let (webhook, page) = console.webhook(&["quote.closed"]).await;
    let path = format!("{page}pause/");
    let foreign = hidden(&system.admin(*tenant).await.get("/console/register/").await.text, "token");
    assert_ne!(*token, foreign);
    for fields in ["", "token=", "token=zz", &format!("token={foreign}"), &format!("token={}", &token[..62])] {
        assert_eq!(post(admin, &path, fields).await.status, 403, "{fields}");
    }
    for headers in [&[("content-type", "text/plain")][..], &[FORM, ("origin", "https://evil.example")]] {
        assert_eq!(admin.send("POST", &path, headers, format!("token={token}")).await.status, 403, "{headers:?}");
    }
    assert_eq!(admin.webhook(&webhook).await["is_active"], true);
    let own = [FORM, ("sec-fetch-site", "same-origin")];
    let paused = admin.send("POST", &path, &own, format!("token={token}")).await;
    assert_eq!((paused.status, admin.webhook(&webhook).await["is_active"].as_bool()), (303, Some(false)));
    // Of a form that was opened before somebody else's change, only what was filled in anew is changed.
    let settings = format!("{page}settings/");
    let shown = |description: &str| {
        let settings = format!(r#""name":"test","url":"https://localhost/","events":["quote.closed"]{description}"#);
        format!("shown={{{settings}}}&events=quote.closed")
    };
    let (described, without) = (shown(r#","description":"a\nb""#), shown(""));
    let theirs = format!("{described}&name=test&description=theirs&url=https://localhost/theirs");
    assert_leads(&console.post(&settings, &theirs).await, &format!("{settings}?done=changed"));
    // A browser sends each line break as two characters.
    let mine = format!("{described}&name=mine&description=a%0D%0Ab&url=https://localhost/");
    // The form of a version that knew no descriptions.
    let old = format!("{without}&name=old&url=https://localhost/");
    for (form, name) in [(mine, "mine"), (old, "old")] {
        assert_eq!(console.post(&settings, &form).await.status, 303);
        let changed = admin.webhook(&webhook).await;
        assert_eq!((&changed["name"], &changed["url"]), (&json!(name), &json!("https://localhost/theirs")));
        assert_eq!(changed["description"], "theirs", "{name}");
    }
    // What cannot be undone has to be confirmed.
    let delete = format!("{page}delete/");
    console.post(&delete, "").await;
    assert_eq!(admin.webhook(&webhook).await["id"], webhook);
    console.post(&delete, "confirmed=yes").await;
    assert_eq!(admin.get(&format!("/api/v1/webhooks/{webhook}/")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_tenants_ids_are_unknown_on_every_page() {
    let theirs = Console::open().await;
    let (_, mine) = theirs.system.tenant().await;
    let webhook = mine.create("https://127.0.0.1:9/", &["quote.closed"]).await.id;
    let test = mine.ask(&format!("/api/v1/webhooks/{webhook}/test/")).await.json();
    let delivery = test["id"].as_str().unwrap();
    let begun = mine.recover(&webhook, &json!({"from": "2026-01-01T00:00:00Z"})).await.json();
    let recovery = begun["id"].as_str().unwrap();
    let is_unknown = |path: &str, answer: Answer| {
        assert_eq!(answer.status, 404, "{path}");
        let said = "This path or id does not exist, belongs to another tenant, or";
        assert!(answer.text.contains(said), "{path}: {}", answer.text);
    };
    for part in [
        "",
        "settings/",
        "history/",
        "recover/",
        &format!("recoveries/{recovery}/"),
        &format!("deliveries/{delivery}/"),
        &format!("deliveries/{delivery}/body/"),
    ] {
        let path = format!("/console/webhooks/{webhook}/{part}");
        is_unknown(&path, theirs.admin.get(&path).await);
        assert_eq!(mine.get(&path).await.status, 200, "{path}");
    }
    let (resend, stop) = (format!("deliveries/{delivery}/resend"), format!("recoveries/{recovery}/stop"));
    for action in [&*resend, &stop, "settings", "recover", "test", "pause", "activate", "cancel", "delete"] {
        let path = format!("/console/webhooks/{webhook}/{action}/");
        let fields =
            "confirmed=yes&from=2026-01-01T00:00&states=dropped&name=a&url=https://localhost/&events=quote.closed";
        is_unknown(&path, theirs.post(&path, fields).await);
    }
    for id in [&webhook, delivery, test["event_id"].as_str().unwrap()] {
        let page = theirs.admin.get(&format!("/console/find/?id={id}")).await;
        assert!(page.status == 200 && page.text.contains("Nothing found"), "{}", page.text);
        assert!(!page.text.contains(">A test<"));
    }
    assert!(!theirs.admin.get("/console/").await.text.contains(&webhook));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_may_load_nothing_from_elsewhere_and_there_is_none_when_it_is_off() {
    let Console { system, admin, .. } = Console::open().await;
    let page = admin.get("/console/").await;
    let policy = page.header("content-security-policy").unwrap();
    for part in
        ["default-src 'none'", "script-src 'self'", "style-src 'self'", "form-action 'self'", "frame-ancestors 'none'"]
    {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("cache-control"), Some("no-store"));
    assert!(!page.text.contains(" style=") && !page.text.contains("<style") && !page.text.contains(" onclick="));
    let script = page.text.split("src=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    let (asset, version) = script.split_once("?v=").unwrap();
    let kept = "public, max-age=31536000, immutable";
    for (address, kept) in [
        (script.to_owned(), kept),
        (asset.to_owned(), "no-store"),
        (format!("{asset}?v="), "no-store"),
        (format!("{asset}?v=1{version}"), "no-store"),
    ] {
        let script = admin.get(&address).await;
        let headers = (script.header("content-type"), script.header("cache-control"));
        assert_eq!((script.status, headers), (200, (Some("text/javascript; charset=utf-8"), Some(kept))), "{address}");
    }
    for (path, status) in [
        ("/console/assets/nothing.js", 404),
        ("/console/assets/%ff", 404),
        ("/console/login/?code=a&code=b", 200),
        ("/console/find/?id=%ff&id=2", 200),
        ("/console/?page=-1&q=%00", 200),
        ("/console/?page=999999999999", 200),
    ] {
        assert_eq!(admin.get(path).await.status, status, "{path}");
    }
    let off = FurtherApi::start(&system, &[("CONSOLE__ENABLED", "false")], &admin).await;
    for path in ["/console", "/console/", "/console/login/", "/console/assets/console.css"] {
        assert_eq!(off.get(path).await.status, 404, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_shows_only_what_is_asked_for() {
    let api = Console::open().await.admin;
    for name in ["one", "two"] {
        let body = json!({"name": name, "url": "https://localhost/", "events": ["quote.closed"]});
        let made = api.post("/api/v1/webhooks/", &body).await.json();
        api.set_active(made["id"].as_str().unwrap(), name == "one").await;
    }
    for (query, shown) in [("", "one two"), ("?health=new", "one"), ("?health=paused", "two"), ("?health=well", "")] {
        let page = api.get(&format!("/console/{query}")).await.text;
        let names = ["one", "two"].into_iter().filter(|name| page.contains(&format!("<bdi>{name}</bdi>")));
        assert_eq!(names.collect::<Vec<_>>().join(" "), shown, "{query}");
        assert!(page.contains("Paused <span class=\"count\">1</span>"), "{page}");
    }
}
