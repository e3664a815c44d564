//! What a browser does not show: headers, cookies, refusals.

use std::time::Duration;

use end_to_end::{
    api::{Answer, Api},
    system::{Options, Service, System, TestSystem},
};
use serde_json::json;
use uuid::Uuid;

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

/// The value of a hidden field on a page.
pub(super) fn hidden(page: &str, name: &str) -> String {
    let field = format!("name=\"{name}\" value=\"");
    let (_, rest) = page.split_once(&field).unwrap_or_else(|| panic!("no field {name}: {page}"));
    rest.split('"').next().unwrap().to_owned()
}

pub(super) async fn post(api: &Api, path: &str, fields: &str) -> Answer {
    api.send("POST", path, &[FORM], fields.to_owned()).await
}

pub(super) fn console(settings: &[(&'static str, &str)]) -> Options {
    let settings = settings.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Options { dispatchers: 0, settings, ..Options::default() }
}

/// Runs a test in a system with these settings. Without any, it is the shared one.
pub(super) async fn with_console(settings: &[(&'static str, &str)], test: impl AsyncFnOnce(&System)) {
    if settings.is_empty() {
        let system = TestSystem::shared().await;
        return test(&system).await;
    }
    let system = TestSystem::serving(console(settings), [Service::Api]).await;
    test(&system).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_session_is_sent_to_the_log_in_with_a_way_back() {
    for (settings, expected) in [
        (&[][..], "/console/login/?next=%2Fconsole%2Ffind%2F%3Fid%3D1".to_owned()),
        (
            &[("CONSOLE__LOGIN_URL", "https://app.example.com/log-in?from=hooks"), ("CONSOLE__PUBLIC_URL", "https://hooks.example.com/")][..],
            "https://app.example.com/log-in?from=hooks&next=https%3A%2F%2Fhooks.example.com%2Fconsole%2Ffind%2F%3Fid%3D1".to_owned(),
        ),
    ] {
        with_console(settings, async |system| {
            let clerk = system.session(Uuid::new_v4(), "sales", Duration::from_secs(60)).await;
            let nobody = Api { session: None, ..clerk.clone() };
            let stranger = Api { session: Some("unknown".to_owned()), ..clerk.clone() };
            for api in [&nobody, &stranger] {
                let forwarded = [("x-forwarded-host", "evil.example"), ("forwarded", "host=evil.example")];
                let answer = api.send("GET", "/console/find/?id=1", &forwarded, "").await;
                assert_eq!((answer.status, answer.header("location")), (303, Some(&*expected)));
            }
            let refused = clerk.get("/console/").await;
            assert_eq!((refused.status, refused.header("content-type")), (403, Some("text/html; charset=utf-8")));
            assert!(refused.text.contains("only administrators may manage webhooks"), "{}", refused.text);
            // A form would be lost by a redirect.
            let lost = post(&nobody, "/console/register/", "name=a").await;
            assert_eq!(lost.status, 401);
            assert!(lost.text.contains("nothing was changed"), "{}", lost.text);
            let own_log_in = settings.is_empty();
            assert_eq!(nobody.get("/console/login/").await.status, if own_log_in { 200 } else { 303 });
            let admin = system.session(Uuid::new_v4(), "admin", Duration::from_secs(60)).await;
            let session = format!("session={}", admin.session.unwrap());
            for (next, expected) in [
                ("", "/console/"),
                ("/console/find/?id=1", "/console/find/?id=1"),
                ("//evil.example/console/", "/console/"),
                ("https://evil.example/console/", "/console/"),
                ("/console/\\evil", "/console/"),
                ("/console/\r\nx: y", "/console/"),
            ] {
                let next: String = url::form_urlencoded::byte_serialize(next.as_bytes()).collect();
                let answer = post(&nobody, "/console/login/", &format!("{session}&next={next}")).await;
                assert_eq!(answer.status, if own_log_in { 303 } else { 404 });
                assert_eq!(answer.header("location"), own_log_in.then_some(expected));
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_logs_in_once_and_sets_a_cookie_that_no_script_and_no_other_site_can_use() {
    let system =
        TestSystem::serving(console(&[("CONSOLE__PUBLIC_URL", "https://hooks.example.com")]), [Service::Api]).await;
    let link = system.console_link(Uuid::new_v4()).await;
    let code = link.split("code=").nth(1).unwrap().to_owned();
    let nobody = system.anonymous().await;
    // A preview of the link does not use it up, and its code is no session.
    assert_eq!(nobody.get(&format!("/console/login/?code={code}")).await.status, 200);
    let as_session = Api { session: Some(code.clone()), ..nobody.clone() };
    assert_eq!(as_session.get("/console/").await.status, 403);
    assert_eq!(post(&nobody, "/console/login/", &format!("session={code}")).await.status, 403);
    let logged_in = post(&nobody, "/console/login/", &format!("code={code}")).await;
    assert_eq!((logged_in.status, logged_in.header("location")), (303, Some("/console/")));
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
    let system = TestSystem::shared().await;
    let tenant = Uuid::new_v4();
    let clerk = system.session(tenant, "sales", Duration::from_secs(60)).await;
    let (admin, stranger) = (system.admin(tenant).await, system.anonymous().await);
    let token = hidden(&admin.get("/console/register/").await.text, "token");
    let cookies = |first: &Api| {
        format!(
            "sessionid={}; sessionid={}",
            first.session.as_deref().unwrap_or("stale"),
            admin.session.as_deref().unwrap()
        )
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
        assert_eq!(ended.get("/console/").await.header("location"), Some("/console/login/?next=%2Fconsole%2F"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_needs_the_sessions_token_and_comes_from_the_console() {
    let system = TestSystem::shared().await;
    let tenant = Uuid::new_v4();
    let (admin, other) = (system.admin(tenant).await, system.admin(tenant).await);
    let webhook = admin.create("https://localhost/", &["quote.closed"]).await.id;
    let path = format!("/console/webhooks/{webhook}/pause/");
    let token = hidden(&admin.get("/console/register/").await.text, "token");
    let foreign = hidden(&other.get("/console/register/").await.text, "token");
    assert_ne!(token, foreign);
    for fields in ["", "token=", "token=zz", &format!("token={foreign}"), &format!("token={}", &token[..62])] {
        assert_eq!(post(&admin, &path, fields).await.status, 403, "{fields}");
    }
    let json = admin.send("POST", &path, &[("content-type", "text/plain")], format!("token={token}")).await;
    assert_eq!(json.status, 403);
    let cross = [FORM, ("origin", "https://evil.example")];
    assert_eq!(admin.send("POST", &path, &cross, format!("token={token}")).await.status, 403);
    assert_eq!(admin.webhook(&webhook).await["is_active"], true);
    let own = [FORM, ("sec-fetch-site", "same-origin")];
    let paused = admin.send("POST", &path, &own, format!("token={token}")).await;
    assert_eq!((paused.status, admin.webhook(&webhook).await["is_active"].as_bool()), (303, Some(false)));
    // Of a form that was opened before somebody else's change, only what was filled in anew is changed.
    let settings = format!("/console/webhooks/{webhook}/settings/");
    let shown = r#"shown={"name":"test","url":"https://localhost/","events":["quote.closed"]}"#;
    let theirs = format!("token={token}&{shown}&name=test&url=https://localhost/theirs&events=quote.closed");
    assert_eq!(post(&admin, &settings, &theirs).await.header("location"), Some(&*format!("{settings}?done=changed")));
    let mine = format!("token={token}&{shown}&name=mine&url=https://localhost/&events=quote.closed");
    assert_eq!(post(&admin, &settings, &mine).await.status, 303);
    let changed = admin.webhook(&webhook).await;
    assert_eq!((changed["name"].as_str(), changed["url"].as_str()), (Some("mine"), Some("https://localhost/theirs")));
    // What cannot be undone has to be confirmed.
    let delete = format!("/console/webhooks/{webhook}/delete/");
    post(&admin, &delete, &format!("token={token}")).await;
    assert_eq!(admin.webhook(&webhook).await["id"], webhook);
    post(&admin, &delete, &format!("token={token}&confirmed=yes")).await;
    assert_eq!(admin.get(&format!("/api/v1/webhooks/{webhook}/")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refresh_tells_a_deletion_from_a_log_out() {
    let system = TestSystem::shared().await;
    let admin = system.admin(Uuid::new_v4()).await;
    let webhook = admin.create("https://localhost/", &["quote.closed"]).await.id;
    let page = format!("/console/webhooks/{webhook}/settings/");
    let refresh = async || admin.send("GET", &page, &[("x-refresh", "1")], "").await.status;
    assert_eq!(refresh().await, 200);
    admin.delete(&format!("/api/v1/webhooks/{webhook}/")).await;
    assert_eq!(refresh().await, 404);
    let loaded = admin.get(&page).await;
    assert_eq!(
        (loaded.status, loaded.header("location")),
        (303, Some(&*format!("/console/webhooks/{webhook}/history/")))
    );
    let out = format!("DELETE FROM admin_sessions WHERE id_sha256 = sha256('{}')", admin.session.as_ref().unwrap());
    system.sql(&out).await;
    assert_eq!((refresh().await, admin.get(&page).await.status), (401, 303));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_form_registers_once_and_shows_the_secret_once() {
    let system = TestSystem::shared().await;
    let (tenant, another) = (Uuid::new_v4(), Uuid::new_v4());
    let (admin, other) = (system.admin(tenant).await, system.admin(another).await);
    let page = admin.get("/console/register/").await.text;
    let (token, form) = (hidden(&page, "token"), hidden(&page, "form"));
    let fields = format!("token={token}&form={form}&name=orders&url=https%3A%2F%2Flocalhost%2F&events=quote.closed");
    let made = post(&admin, "/console/register/", &fields).await;
    assert_eq!(made.status, 200, "{}", made.text);
    assert!(made.text.contains("id=\"secret\">whsec_"), "{}", made.text);
    let again = post(&admin, "/console/register/", &fields).await;
    let location = again.header("location").unwrap();
    assert!(again.status == 303 && location.ends_with("/?done=registered"), "{location}");
    assert!(!admin.get(location).await.text.contains("whsec_"), "a secret is shown again");
    assert_eq!(admin.get("/api/v1/webhooks/").await.json()["data"].as_array().unwrap().len(), 1);
    // The same number in another tenant's form is another webhook.
    let token = hidden(&other.get("/console/register/").await.text, "token");
    let fields = format!("token={token}&form={form}&name=theirs&url=https%3A%2F%2Flocalhost%2F&events=quote.closed");
    assert_eq!(post(&other, "/console/register/", &fields).await.status, 200);
    for form in ["", "1", "0192f0c1-0000-7000-8000-000000000001", &Uuid::new_v4().to_string()] {
        let fields = format!("token={token}&form={form}&name=x&url=https%3A%2F%2Flocalhost%2F&events=quote.closed");
        assert_eq!(post(&other, "/console/register/", &fields).await.status, 403, "{form}");
    }
    for tenant in [tenant, another] {
        let count = format!("SELECT count(*) FROM webhooks WHERE tenant_id = '{tenant}'");
        assert_eq!(system.count(&count).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_tenants_ids_are_unknown_on_every_page() {
    let system = TestSystem::shared().await;
    let (mine, theirs) = (system.admin(Uuid::new_v4()).await, system.admin(Uuid::new_v4()).await);
    let webhook = mine.create("https://127.0.0.1:9/", &["quote.closed"]).await.id;
    let test = mine.ask(&format!("/api/v1/webhooks/{webhook}/test/")).await.json();
    let delivery = test["id"].as_str().unwrap();
    let (path, since) = (format!("/api/v1/webhooks/{webhook}/recover/"), json!({"since": "2026-01-01T00:00:00Z"}));
    let recovery = mine.post(&path, &since).await.json()["id"].as_str().unwrap().to_owned();
    let token = hidden(&theirs.get("/console/register/").await.text, "token");
    for (part, is_read) in [
        (String::new(), true),
        ("settings/".to_owned(), true),
        ("history/".to_owned(), true),
        ("recover/".to_owned(), true),
        (format!("recoveries/{recovery}/"), true),
        (format!("deliveries/{delivery}/"), true),
        (format!("deliveries/{delivery}/body/"), true),
        (format!("deliveries/{delivery}/resend/"), false),
        ("settings/".to_owned(), false),
        ("recover/".to_owned(), false),
        ("test/".to_owned(), false),
        ("pause/".to_owned(), false),
        ("activate/".to_owned(), false),
        ("cancel/".to_owned(), false),
        ("delete/".to_owned(), false),
    ] {
        let path = format!("/console/webhooks/{webhook}/{part}");
        let fields = format!(
            "token={token}&confirmed=yes&since=2026-01-01T00:00&states=dropped&name=a&url=https%3A%2F%2Flocalhost%2F&events=quote.closed"
        );
        let answer = if is_read { theirs.get(&path).await } else { post(&theirs, &path, &fields).await };
        assert_eq!(answer.status, 404, "{path}");
        assert!(
            answer.text.contains("This path or id does not exist, belongs to another tenant, or"),
            "{path}: {}",
            answer.text
        );
        if is_read {
            assert_eq!(mine.get(&path).await.status, 200, "{path}");
        }
    }
    for id in [&webhook, delivery, test["event_id"].as_str().unwrap()] {
        let page = theirs.get(&format!("/console/find/?id={id}")).await;
        assert!(page.status == 200 && page.text.contains("Nothing found"), "{}", page.text);
        assert!(!page.text.contains(">A test<"));
    }
    assert!(!theirs.get("/console/").await.text.contains(&webhook));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_may_load_nothing_from_elsewhere_and_there_is_none_when_it_is_off() {
    let system = TestSystem::serving(console(&[]), [Service::Api]).await;
    let admin = system.admin(Uuid::new_v4()).await;
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
    system.stop(Service::Api).await;
    let off = system.settings_with(&[("CONSOLE__ENABLED", "false")]);
    system.start_with(Service::Api, off).await;
    let admin = Api { session: admin.session, ..system.anonymous().await };
    for path in ["/console", "/console/", "/console/login/", "/console/assets/console.css"] {
        assert_eq!(admin.get(path).await.status, 404, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_shows_only_what_is_asked_for() {
    let system = TestSystem::shared().await;
    let api = system.admin(Uuid::new_v4()).await;
    for name in ["one", "two"] {
        let body = serde_json::json!({"name": name, "url": "https://localhost/", "events": ["quote.closed"]});
        let made = api.post("/api/v1/webhooks/", &body).await.json();
        if name == "two" {
            let paused = serde_json::json!({"is_active": false});
            let path = format!("/api/v1/webhooks/{}/", made["id"].as_str().unwrap());
            assert_eq!(api.patch(&path, &paused).await.status, 200);
        }
    }
    for (query, shown) in [("", "one two"), ("?health=new", "one"), ("?health=paused", "two"), ("?health=well", "")] {
        let page = api.get(&format!("/console/{query}")).await.text;
        let names = ["one", "two"].into_iter().filter(|name| page.contains(&format!("<bdi>{name}</bdi>")));
        assert_eq!(names.collect::<Vec<_>>().join(" "), shown, "{query}");
        assert!(page.contains("Paused <span class=\"count\">1</span>"), "{page}");
    }
}
