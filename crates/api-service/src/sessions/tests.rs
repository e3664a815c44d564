use actix_web::test::TestRequest;
use uuid::Uuid;

use super::*;
use crate::routes::tests::settings_with;

const TENANT: u128 = 1;
const OTHER: u128 = 2;

fn tenant(number: u128) -> TenantId {
    Uuid::from_u128(number).into()
}

/// An authentication that knows three administrators, of two tenants, and a clerk. A session has three tokens, its tenant
/// six.
fn authentication() -> Authentication {
    let session =
        |number, user: &str, role: &str| Session { tenant: tenant(number), user: user.into(), role: role.into() };
    let sessions = [
        ("boss", session(TENANT, "b", "admin")),
        ("deputy", session(TENANT, "d", "admin")),
        ("other", session(OTHER, "o", "admin")),
        ("clerk", session(TENANT, "c", "sales")),
    ];
    let limits = [("RATE_LIMIT_PER_MINUTE", "1"), ("RATE_LIMIT_BURST", "6")];
    let rate_limit = RateLimit::new(&settings_with(&limits).api);
    Authentication { sessions: Sessions::Known(sessions.into()), known: known(), rate_limit, public_url: None }
}

/// Makes this process know a session that has ended since.
fn remember_ended(authentication: &Authentication, id: &str) {
    authentication
        .known
        .insert(CredentialHash::of(id), KnownSession { tenant: tenant(TENANT), user: "e".into(), is_admin: true });
}

async fn asked(
    authentication: &Authentication,
    cookies: &str,
    target: Target,
    site: &str,
) -> Result<(Actor, SessionId), ApiError> {
    let request = TestRequest::default().insert_header(("cookie", cookies)).insert_header(("sec-fetch-site", site));
    authentication.administrator(&request.to_http_request(), target, &mut None).await
}

async fn passes_by(authentication: &Authentication, cookies: &str) -> Option<String> {
    asked(authentication, cookies, Target::Api, "none").await.ok().map(|(_, id)| id.expose().to_owned())
}

async fn code(authentication: &Authentication, cookies: &str) -> &'static str {
    asked(authentication, cookies, Target::Api, "none").await.map_or_else(|error| error.kind().1, |_| "")
}

#[actix_web::test]
async fn the_first_session_of_an_administrator_among_three_cookies_counts() {
    for (cookies, id) in [
        ("sessionid=stale; sessionid=boss", "boss"),
        ("sessionid=boss; sessionid=stale", "boss"),
        ("sessionid=; sessionid=boss", "boss"),
        ("sessionid=a; sessionid=b; sessionid=a; sessionid=; sessionid=boss", "boss"),
        ("sessionid=clerk; sessionid=boss", "boss"),
        ("sessionid=stale; sessionid=other; sessionid=boss", "other"),
    ] {
        assert_eq!(passes_by(&authentication(), cookies).await.as_deref(), Some(id), "{cookies}");
    }
    for (cookies, expected) in [
        ("sessionid=a; sessionid=b; sessionid=c; sessionid=boss", "not_logged_in"),
        ("sessionid=; sessionid=", "not_logged_in"),
        ("sessionid=stale; sessionid=clerk", "not_an_admin"),
        ("sessionid=clerk; sessionid=stale", "not_an_admin"),
    ] {
        assert_eq!(code(&authentication(), cookies).await, expected, "{cookies}");
    }
}

#[actix_web::test]
async fn a_known_session_is_paid_for_before_its_look_up_wherever_its_cookie_is() {
    let authentication = authentication();
    for _ in 0..3 {
        assert_eq!(code(&authentication, "sessionid=stale; sessionid=boss").await, "");
    }
    for cookies in ["sessionid=boss", "sessionid=x; sessionid=boss", "sessionid=; sessionid=y; sessionid=boss"] {
        assert_eq!(code(&authentication, cookies).await, "too_many_requests", "{cookies}");
    }
    for _ in 0..3 {
        assert_eq!(code(&authentication, "sessionid=deputy").await, "", "a session leaves its tenant the half");
    }
    // KnownSession again though it has ended: its tenant's token would be needed for the look-up that finds that out.
    remember_ended(&authentication, "ended");
    assert_eq!(code(&authentication, "sessionid=ended; sessionid=other").await, "too_many_requests");
    assert_eq!(code(&authentication, "sessionid=other").await, "", "another tenant has its own tokens");
}

#[actix_web::test]
async fn each_look_up_of_a_request_costs_a_token() {
    let authentication = authentication();
    remember_ended(&authentication, "ended");
    assert_eq!(code(&authentication, "sessionid=ended; sessionid=boss").await, "", "two of the tenant's six");
    for (session, tokens) in [("boss", 2), ("deputy", 2)] {
        for _ in 0..tokens {
            assert_eq!(code(&authentication, &format!("sessionid={session}")).await, "");
        }
        assert_eq!(code(&authentication, &format!("sessionid={session}")).await, "too_many_requests", "{session}");
    }
}

#[actix_web::test]
async fn a_failed_log_in_costs_a_token_of_its_id() {
    let authentication = authentication();
    for _ in 0..3 {
        assert_eq!(code(&authentication, "sessionid=stale").await, "not_logged_in");
    }
    assert_eq!(code(&authentication, "sessionid=stale").await, "too_many_requests");
    assert_eq!(code(&authentication, "sessionid=other-stale").await, "not_logged_in");
    assert!(matches!(authentication.session("stale").await, Err(ApiError::TooManyRequests(_))));
    assert_eq!(passes_by(&authentication, "sessionid=stale; sessionid=boss").await.as_deref(), Some("boss"));
    assert_eq!(code(&authentication, "sessionid=stale; sessionid=other-stale").await, "too_many_requests");
    assert_eq!(code(&authentication, "sessionid=stale; sessionid=clerk").await, "too_many_requests");
}

#[actix_web::test]
async fn another_site_spends_no_token_of_the_api_and_may_link_to_the_console() {
    let authentication = authentication();
    for _ in 0..10 {
        let refused = asked(&authentication, "sessionid=boss", Target::Api, "cross-site").await;
        assert_eq!(refused.map_or_else(|error| error.kind().1, |_| ""), "cross_site");
    }
    for target in [Target::Api, Target::Console] {
        let site = if target == Target::Api { "same-origin" } else { "cross-site" };
        for _ in 0..3 {
            assert!(asked(&authentication, "sessionid=boss", target, site).await.is_ok(), "{target:?}");
        }
        assert!(asked(&authentication, "sessionid=boss", target, site).await.is_err(), "{target:?}");
    }
}
