use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
    sync::OnceLock,
};

use actix_web::{
    App,
    http::{
        Method,
        header::{HeaderMap, HeaderName},
    },
    test::{TestRequest, call_service, init_service, read_body},
};
use domain::AddressPolicy;
use ledger::{Ledger, LedgerConfig, Session};
use prometheus_client::registry::Registry;
use serde_json::Value;

use super::*;
use crate::{docs::Docs, http::list::MAX_QUERY_BYTES, middleware, outbox::Wakes, state::Rules};

const LIST_PATH: &str = "/api/v1/webhooks/";
const ID: &str = "0192f0c1-0000-7000-8000-000000000001";
const ONE_PATH: &str = "/api/v1/webhooks/0192f0c1-0000-7000-8000-000000000001/";
pub(crate) const ADMIN_COOKIE: (&str, &str) = ("Cookie", "sessionid=boss");
const KEY: (&str, &str) = ("Authorization", "Bearer wk_sync");
pub(crate) const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Rendered once for all tests.
static DOCS: OnceLock<Docs> = OnceLock::new();

thread_local! {
    /// The canonical paths of all routes made in this thread.
    pub(crate) static ROUTES: RefCell<BTreeSet<&'static str>> = const { RefCell::new(BTreeSet::new()) };
}

/// Routes without a database: nothing listens at port 1.
pub(crate) fn routes() -> Routes {
    let config = LedgerConfig {
        url: "postgres://nobody@127.0.0.1:1/none".into(),
        password_file: None,
        tls: Default::default(),
        max_connections: 1,
        call_timeout: ledger::CALL_TIMEOUT,
        application_name: "api-service tests",
    };
    let ledger = Ledger::new(&config).unwrap();
    let session = |role: &str| Session { tenant: uuid::Uuid::nil().into(), user: "u".into(), role: role.into() };
    let state = State {
        searches: ledger.clone(),
        ledger,
        wakes: Wakes::default(),
        keys: format!("test:{}", "0".repeat(64)).parse().unwrap(),
        rules: Rules { name_chars: 255, url_chars: 2048, address_policy: AddressPolicy::default() },
        body_limit: 400,
        most: crate::state::most(&limits()),
        kept: settings().retention.kept(),
        attempt_timeout: std::time::Duration::from_secs(10),
        console: settings().console,
        brake: tokio::sync::watch::channel(None).1,
    };
    let authentication = Authentication::knowing([
        ("boss", session("admin")),
        ("clerk", session("sales")),
        ("wk_sync", session("admin")),
    ]);
    let docs = DOCS.get_or_init(|| Docs::new(&limits(), crate::state::most(&limits()), true)).clone();
    Routes::new(state, docs, authentication, Metrics::register(&mut Registry::default()), Traces::default())
}

/// The default limits.
pub(crate) fn limits() -> service_kit::settings::Limits {
    settings().limits
}

fn settings() -> service_kit::Settings {
    settings_with(&[])
}

/// The default settings, and others of the section `API`.
pub(crate) fn settings_with(api: &[(&str, &str)]) -> service_kit::Settings {
    let servers = [("DATABASE__URL", "postgres://db"), ("BROKER__URL", "amqp://mq")];
    let servers = servers.map(|(key, value)| (format!("WEBHOOKS__{key}"), value.to_owned()));
    let api = api.iter().map(|(key, value)| (format!("WEBHOOKS__API__{key}"), (*value).to_owned()));
    service_kit::Settings::from_sources(None, servers.into_iter().chain(api).collect()).unwrap()
}

pub(crate) struct TestResponse {
    status: u16,
    headers: HeaderMap,
    problem: Value,
}

impl TestResponse {
    pub(crate) fn code(&self) -> (u16, &str) {
        (self.status, self.problem["code"].as_str().unwrap_or_default())
    }

    /// The fields of the violations with this code.
    pub(crate) fn fields(&self, code: &str) -> Vec<&str> {
        let violations = self.problem["errors"].as_array().into_iter().flatten();
        violations.filter(|violation| violation["code"] == code).map(|one| one["field"].as_str().unwrap()).collect()
    }

    fn header(&self, name: &'static str) -> &str {
        self.headers.get(HeaderName::from_static(name)).map_or("", |value| value.to_str().unwrap())
    }
}

pub(crate) async fn ask(method: Method, path: &str, headers: &[(&str, &str)], body: &'static str) -> TestResponse {
    let app = App::new().wrap(from_fn(middleware::complete)).configure(|config| routes().configure(config));
    let app = init_service(app).await;
    let mut request = TestRequest::with_uri(path).method(method).set_payload(body);
    for header in headers {
        request = request.append_header(*header);
    }
    let response = call_service(&app, request.to_request()).await;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let problem = serde_json::from_slice(&read_body(response).await).unwrap_or_default();
    TestResponse { status, headers, problem }
}

#[actix_web::test]
async fn whoever_is_not_logged_in_as_an_administrator_gets_nothing_below_api_v1() {
    for path in
        [LIST_PATH, ONE_PATH, "/api/v1", "/api/v1/", "/api/v1/nothing", "/api/v1/webhooks", "/api/%76%31/webhooks/"]
    {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            for (cookie, expected) in [
                ("", (401, "not_logged_in")),
                ("sessionid=unknown", (401, "not_logged_in")),
                ("sessionid=; sessionid=unknown", (401, "not_logged_in")),
                ("sessionid=clerk", (403, "not_an_admin")),
            ] {
                let answer = ask(method.clone(), path, &[("Cookie", cookie)], "").await;
                assert_eq!(answer.code(), expected, "{method} {path} {cookie}");
                assert_eq!(answer.headers.contains_key("www-authenticate"), expected.0 == 401);
            }
        }
    }
}

#[actix_web::test]
async fn a_key_opens_every_call_but_those_about_keys_and_no_page() {
    for (path, headers, expected) in [
        (LIST_PATH, &[KEY][..], (503, "unavailable")),
        (ONE_PATH, &[KEY, ("Origin", "https://erp.example")], (503, "unavailable")),
        ("/api/v1/nothing/", &[KEY], (404, "not_found")),
        (LIST_PATH, &[("Authorization", "Bearer wk_other"), ADMIN_COOKIE], (401, "unknown_key")),
        (LIST_PATH, &[("Authorization", "Basic Ym9zczo="), ADMIN_COOKIE], (401, "unknown_key")),
        ("/api/v1/keys/", &[KEY, ADMIN_COOKIE], (403, "session_required")),
        ("/api/v1/keys/?limit=0", &[KEY], (403, "session_required")),
        ("/api/v1/keys/", &[ADMIN_COOKIE], (503, "unavailable")),
    ] {
        let answer = ask(Method::GET, path, headers, "").await;
        assert_eq!(answer.code(), expected, "{path} {headers:?}");
        let challenge = if expected.0 == 401 { "Bearer realm=\"webhooks\"" } else { "" };
        assert_eq!(answer.header("www-authenticate"), challenge, "{path} {headers:?}");
    }
    for (method, path) in [(Method::POST, "/api/v1/keys/".to_owned()), (Method::DELETE, format!("/api/v1/keys/{ID}/"))]
    {
        let answer = ask(method.clone(), &path, &[KEY, JSON], r#"{"name": "another"}"#).await;
        assert_eq!(answer.code(), (403, "session_required"), "{method}");
    }
    for headers in [&[KEY][..], &[KEY, ADMIN_COOKIE], &[("Authorization", "Bearer wk_other"), ADMIN_COOKIE]] {
        assert_eq!(ask(Method::GET, "/console/", headers, "").await.status, 403, "{headers:?}");
    }
}

#[actix_web::test]
async fn a_new_key_has_a_name_and_expires_in_the_future_if_at_all() {
    let at = |seconds: i64| {
        let at = time::OffsetDateTime::now_utc() + time::Duration::seconds(seconds);
        format!("\"{}\"", domain::time_text::written(at).unwrap())
    };
    for (expires_at, code) in [
        (at(60), ""),
        ("null".to_owned(), ""),
        (at(-1), "in_the_past"),
        ("\"tomorrow\"".to_owned(), "invalid_timestamp"),
        ("\"\"".to_owned(), "invalid_timestamp"),
        ("7".to_owned(), "wrong_type"),
    ] {
        let body = format!(r#"{{"name": "ERP", "expires_at": {expires_at}}}"#).leak();
        let answer = ask(Method::POST, "/api/v1/keys/", &[ADMIN_COOKIE, JSON], body).await;
        let (status, fields) = if code.is_empty() { (503, vec![]) } else { (422, vec!["expires_at"]) };
        assert_eq!((answer.status, answer.fields(code)), (status, fields), "{expires_at}");
    }
    for name in ["", " ", "a\\u0007", "a\\u202e"] {
        let body = format!(r#"{{"name": "{name}"}}"#).leak();
        let status = ask(Method::POST, "/api/v1/keys/", &[ADMIN_COOKIE, JSON], body).await.status;
        assert_eq!(status, 422, "{name}");
    }
}

/// The token of the forms of a session in a tenant, computed by itself.
fn token(session: &str, tenant: uuid::Uuid) -> String {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, session.as_bytes());
    let text = [b"a form of the console".as_slice(), tenant.as_bytes()].concat();
    format!("token={}", hex::encode(ring::hmac::sign(&key, &text)))
}

#[actix_web::test]
async fn a_form_needs_the_token_of_the_session_that_lets_it_pass_and_of_its_tenant() {
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let (tenant, other) = (uuid::Uuid::nil(), uuid::Uuid::max());
    for action in ["register", &format!("webhooks/{ID}/pause")] {
        let path = &format!("/console/{action}/");
        for cookies in ["sessionid=boss", "sessionid=stale; sessionid=boss", "sessionid=boss; sessionid=stale"] {
            for (session, tenant, is_refused) in
                [("boss", tenant, false), ("boss", other, true), ("stale", tenant, true), ("", tenant, true)]
            {
                let body = format!("{}&form={}", token(session, tenant), uuid::Uuid::now_v7()).leak();
                let answer = ask(Method::POST, path, &[("Cookie", cookies), form], body).await;
                // The form that passes is incomplete, or the database is unavailable to it.
                assert_eq!(answer.status == 403, is_refused, "{path} {cookies} {session}: {}", answer.status);
            }
        }
    }
}

#[actix_web::test]
async fn a_session_logs_out_by_a_form_from_before_a_change_of_its_organization() {
    let headers = [ADMIN_COOKIE, ("Content-Type", "application/x-www-form-urlencoded")];
    let other = uuid::Uuid::max();
    // A form that passes ends at the database, which is unavailable.
    for (session, shown, expected) in [("boss", other, 503), ("boss", uuid::Uuid::nil(), 403), ("stale", other, 403)] {
        let body = format!("{}&organization={shown}", token(session, other)).leak();
        assert_eq!(ask(Method::POST, "/console/logout/", &headers, body).await.status, expected, "{session} {shown}");
    }
}

#[actix_web::test]
async fn every_answer_has_its_request_id_and_security_headers() {
    for (path, cookie) in
        [("/", "-"), (LIST_PATH, "-"), (LIST_PATH, "sessionid=boss"), ("/api/v1/nothing", "sessionid=boss")]
    {
        let answer = ask(Method::GET, path, &[("Cookie", cookie), ("X-Request-Id", "r-1")], "").await;
        assert_eq!(answer.problem["request_id"], "r-1");
        assert_eq!(answer.problem["status"], answer.status);
        for (name, value) in [
            ("x-request-id", "r-1"),
            ("content-type", "application/problem+json"),
            ("x-content-type-options", "nosniff"),
            ("cache-control", "no-store"),
            ("cross-origin-resource-policy", "same-origin"),
            ("referrer-policy", "no-referrer"),
            ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
        ] {
            assert_eq!(answer.header(name), value, "{path}");
        }
    }
}

#[actix_web::test]
async fn unknown_paths_and_malformed_ids_are_not_found() {
    for path in [
        "/",
        "/api",
        "/api/v1x",
        "/api/v1",
        "/api/v1/",
        "/api/v1/webhooks//",
        "/api/v1/webhooks/no-id/",
        "/api/v1/events/no-id/",
        "/api/v1/schemas/other.schema.json",
        "//",
    ] {
        assert_eq!(ask(Method::GET, path, &[ADMIN_COOKIE], "").await.code(), (404, "not_found"), "{path}");
    }
}

#[actix_web::test]
async fn a_page_without_a_session_leads_to_the_log_in_and_its_refresh_does_not() {
    let page = ask(Method::GET, "/console/", &[], "").await;
    assert_eq!((page.status, page.header("location")), (303, "/console/login/?next=%2Fconsole%2F"));
    let refresh = ask(Method::GET, "/console/", &[("x-refresh", "1")], "").await;
    assert_eq!((refresh.status, refresh.header("location")), (401, ""));
}

#[actix_web::test]
async fn bodies_are_refused_in_the_order_of_their_faults() {
    let long = "[".repeat(401).leak();
    let cross_site = ("Sec-Fetch-Site", "cross-site");
    for (headers, body, expected) in [
        (&[ADMIN_COOKIE, cross_site][..], "{", (403, "cross_site")),
        (&[ADMIN_COOKIE], "{", (415, "unsupported_media_type")),
        (&[ADMIN_COOKIE, JSON], long, (413, "body_too_large")),
        (&[ADMIN_COOKIE, JSON], "", (400, "malformed_json")),
        (&[ADMIN_COOKIE, JSON], "[]", (422, "validation_failed")),
        (&[ADMIN_COOKIE, JSON], "{}", (422, "validation_failed")),
    ] {
        assert_eq!(ask(Method::POST, LIST_PATH, headers, body).await.code(), expected, "{headers:?}");
    }
}

#[actix_web::test]
async fn a_malformed_id_comes_before_the_body_and_the_ledger_before_the_query() {
    let malformed = ask(Method::PATCH, "/api/v1/webhooks/no-id/", &[ADMIN_COOKIE], "{").await;
    assert_eq!(malformed.code(), (404, "not_found"));
    let log = ask(Method::GET, &format!("{ONE_PATH}deliveries/?limit=0"), &[ADMIN_COOKIE], "").await;
    assert_eq!(log.code(), (503, "unavailable"));
}

#[actix_web::test]
async fn a_long_query_string_is_refused_unread_and_many_faults_are_counted() {
    let query = |length: usize| {
        format!("{LIST_PATH}?{}", "a&b&c1&".repeat(600)).chars().take(LIST_PATH.len() + 1 + length).collect()
    };
    let longest: String = query(MAX_QUERY_BYTES);
    let answer = ask(Method::GET, &longest, &[ADMIN_COOKIE], "").await;
    assert_eq!(answer.code(), (400, "invalid_parameters"));
    assert_eq!(answer.problem["errors"].as_array().unwrap().len(), 20);
    assert!(answer.problem["more_errors"].as_u64().unwrap() > 1000, "{}", answer.problem["more_errors"]);
    let longer: String = query(MAX_QUERY_BYTES + 1);
    let answer = ask(Method::GET, &longer, &[ADMIN_COOKIE], "").await;
    assert_eq!(answer.code(), (414, "query_too_long"));
    assert_eq!(answer.problem["detail"], "the query string is longer than 4096 bytes, the maximum");
}

#[actix_web::test]
async fn while_the_database_is_away_the_client_is_told_to_come_again() {
    let body = r#"{"name": "a", "url": "https://example.com/", "events": ["quote.closed"]}"#;
    for (method, path) in
        [(Method::GET, LIST_PATH), (Method::GET, ONE_PATH), (Method::POST, LIST_PATH), (Method::PATCH, ONE_PATH)]
    {
        let answer = ask(method, path, &[ADMIN_COOKIE, JSON], body).await;
        assert_eq!(answer.code(), (503, "unavailable"), "{path}");
        assert_eq!(answer.header("retry-after"), "5");
    }
}

#[actix_web::test]
async fn where_no_body_is_needed_none_need_be_announced() {
    let test = &format!("{ONE_PATH}test/");
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    for (headers, body, expected) in [
        (&[ADMIN_COOKIE][..], "", (503, "unavailable")),
        (&[ADMIN_COOKIE, JSON], "", (503, "unavailable")),
        (&[ADMIN_COOKIE, JSON], "{}", (503, "unavailable")),
        (&[ADMIN_COOKIE], "{}", (415, "unsupported_media_type")),
        (&[ADMIN_COOKIE, form], "", (415, "unsupported_media_type")),
        (&[ADMIN_COOKIE, JSON], "{", (400, "malformed_json")),
        (&[ADMIN_COOKIE, JSON], r#"{"event": 1}"#, (422, "validation_failed")),
        (&[ADMIN_COOKIE, JSON], r#"{"event_type": "quote.opened"}"#, (422, "validation_failed")),
    ] {
        assert_eq!(ask(Method::POST, test, headers, body).await.code(), expected, "{headers:?} {body}");
    }
}

/// A path of a route, with ids.
pub(crate) fn path_of(route: &str) -> String {
    let names = ["{id}", "{delivery_id}", "{recovery_id}", "{event_id}"];
    names.iter().fold(route.replace("{file}", "event.schema.json"), |path, name| path.replace(name, ID))
}

/// The methods in `Allow` of a path's answer to an unknown one. Asserts that all others get a 405.
pub(crate) async fn allowed(path: &str) -> BTreeSet<String> {
    let path = path_of(path);
    let answer = ask("MADEUP".parse().unwrap(), &path, &[ADMIN_COOKIE], "").await;
    let allowed: BTreeSet<_> = answer.header("allow").split(", ").map(str::to_owned).collect();
    for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"] {
        if !allowed.contains(method) {
            let answer = ask(method.parse().unwrap(), &path, &[ADMIN_COOKIE], "").await;
            assert_eq!(answer.status, 405, "{method} {path}");
        }
    }
    allowed
}

#[actix_web::test]
async fn the_documentation_is_for_everybody_and_its_pages_may_load_their_style_sheet_only() {
    let policy = "default-src 'none'; style-src 'self'; frame-ancestors 'none'";
    for (path, content_type, expected) in [
        ("/api/v1/openapi.json", "application/json", "default-src 'none'; frame-ancestors 'none'"),
        ("/api/v1/asyncapi.yaml", "text/plain; charset=utf-8", "default-src 'none'; frame-ancestors 'none'"),
        ("/api/v1/schemas/job.schema.json", "application/schema+json", "default-src 'none'; frame-ancestors 'none'"),
        ("/api/v1/docs/", "text/html; charset=utf-8", policy),
        ("/api/v1/docs", "text/html; charset=utf-8", policy),
        ("/api/v1/docs/event-types/", "text/html; charset=utf-8", policy),
        ("/api/v1/docs/style.css", "text/css; charset=utf-8", "default-src 'none'; frame-ancestors 'none'"),
    ] {
        let answer = ask(Method::GET, path, &[], "").await;
        assert_eq!((answer.status, answer.header("content-type")), (200, content_type), "{path}");
        assert_eq!(answer.header("content-security-policy"), expected, "{path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
    }
}

/// The series of errors, with their values.
fn errors(registry: &Registry) -> HashMap<String, String> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    let lines =
        text.lines().filter(|line| line.starts_with("webhooks_api_requests_total") && line.contains("status=\"5"));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(series, value)| (series.to_owned(), value.to_owned()))
        .collect()
}

/// A rate misses the first count of a series that begins with it.
#[actix_web::test]
async fn the_first_error_of_each_route_counts() {
    ROUTES.take();
    let mut registry = Registry::default();
    let routes = Routes { metrics: Data::new(Metrics::register(&mut registry)), ..routes() };
    let answering = App::new().wrap(from_fn(middleware::complete)).configure(|config| routes.configure(config));
    let app = init_service(answering).await;
    let before = errors(&registry);
    assert!(before.values().all(|value| value == "0"));
    let others = ["/", "/webhooks/{id}/", "/webhooks/{id}/recover/"].map(|path| format!("/console{path}"));
    let paths = ROUTES.take().into_iter().map(|path| format!("/api/v1{}", path.trim_start_matches("/api/v1")));
    let mut failed = 0;
    for path in paths.chain(others).chain(["/api/v1/unknown/".to_owned()]) {
        let path = path_of(&path);
        for method in [Method::GET, Method::POST, Method::HEAD, Method::PATCH, Method::DELETE] {
            let request = TestRequest::with_uri(&path).method(method).insert_header(ADMIN_COOKIE).insert_header(JSON);
            let answer = call_service(&app, request.set_payload("{}").to_request()).await;
            failed += usize::from(answer.status().is_server_error());
        }
    }
    let after = errors(&registry);
    assert!(failed > 10, "{failed}: {after:?}");
    let new: Vec<_> = after.keys().filter(|series| !before.contains_key(*series)).collect();
    assert!(new.is_empty(), "{new:?}");
}
