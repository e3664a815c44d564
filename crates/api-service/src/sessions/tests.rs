use actix_web::test::TestRequest;
use uuid::Uuid;

use super::*;
use crate::routes::tests::settings_with;

const TENANT: u128 = 1;
const OTHER: u128 = 2;

fn tenant(number: u128) -> TenantId {
    Uuid::from_u128(number).into()
}

/// A back end that knows these sessions, and keys, which begin with `wk_`.
pub(super) fn fixture(sessions: impl IntoIterator<Item = (&'static str, Session)>) -> BackEnd {
    let found = |text: &str, session: Session| match text.starts_with(ApiKey::PREFIX) {
        true => Found::Key(ApiKey {
            id: Uuid::nil().into(),
            tenant: session.tenant,
            name: session.user,
            created_by: "b".to_owned(),
            created_at: OffsetDateTime::UNIX_EPOCH,
            expires_at: None,
            last_used_on: None,
        }),
        false => Found::Session(session),
    };
    let all = sessions.into_iter().map(|(text, session)| (CredentialHash::of(text), found(text, session)));
    BackEnd::Known(all.collect())
}

/// An authentication that knows three administrators, of two tenants, a clerk, and a key. A session or key has three
/// tokens, its tenant six.
fn authentication() -> Authentication {
    let session =
        |number, user: &str, role: &str| Session { tenant: tenant(number), user: user.into(), role: role.into() };
    let sessions = [
        ("boss", session(TENANT, "b", "admin")),
        ("deputy", session(TENANT, "d", "admin")),
        ("other", session(OTHER, "o", "admin")),
        ("clerk", session(TENANT, "c", "sales")),
        ("wk_sync", session(TENANT, "ERP sync", "admin")),
    ];
    let limits = [("RATE_LIMIT_PER_MINUTE", "1"), ("RATE_LIMIT_BURST", "6")];
    let rate_limit = RateLimit::new(&settings_with(&limits).api);
    Authentication { back_end: fixture(sessions), known: known(), rate_limit, public_url: None }
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
) -> Result<(Actor, Passed), ApiError> {
    let request = TestRequest::default().insert_header(("cookie", cookies)).insert_header(("sec-fetch-site", site));
    authentication.administrator(&request.to_http_request(), target, &mut None).await
}

async fn passes_by(authentication: &Authentication, cookies: &str) -> Option<String> {
    match asked(authentication, cookies, Target::Api, "none").await.ok()? {
        (_, Passed::Session(id)) => Some(id.expose().to_owned()),
        (_, Passed::Key(_)) => None,
    }
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

/// The user who is let pass, or the code of the refusal.
async fn judged(authentication: &Authentication, headers: &[(&str, &str)], target: Target) -> String {
    let mut request = TestRequest::default();
    for header in headers {
        request = request.append_header(*header);
    }
    let passed = authentication.administrator(&request.to_http_request(), target, &mut None).await;
    passed.map_or_else(|error| error.kind().1.to_owned(), |(actor, _)| actor.user)
}

const SYNC: &str = "key \"ERP sync\" (00000000-0000-0000-0000-000000000000)";

#[actix_web::test]
async fn a_request_with_the_header_authorization_is_judged_by_it_alone() {
    let (boss, sync) = (("cookie", "sessionid=boss"), ("authorization", "Bearer wk_sync"));
    let elsewhere = [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")];
    for (headers, expected) in [
        (&[sync][..], SYNC),
        (&[sync, boss], SYNC),
        (&[sync, elsewhere[0], elsewhere[1]], SYNC),
        (&[("authorization", "bearer wk_sync")], SYNC),
        (&[("authorization", "Bearer wk_other"), boss], "unknown_key"),
        (&[("authorization", "Bearer boss"), boss], "unknown_key"),
        (&[("authorization", "Basic Ym9zczo="), boss], "unknown_key"),
        (&[("authorization", ""), boss], "unknown_key"),
        (&[sync, sync, boss], "unknown_key"),
        (&[boss], "b"),
    ] {
        assert_eq!(judged(&authentication(), headers, Target::Api).await, expected, "{headers:?}");
    }
    for headers in [&[sync][..], &[sync, boss], &[("authorization", "Basic Ym9zczo="), boss]] {
        assert_eq!(judged(&authentication(), headers, Target::Console).await, "session_required", "{headers:?}");
    }
}

#[actix_web::test]
async fn a_key_has_half_of_its_tenants_tokens_and_an_unknown_one_those_of_an_unknown_session() {
    let authentication = authentication();
    let sync = ("authorization", "Bearer wk_sync");
    for _ in 0..3 {
        assert_eq!(judged(&authentication, &[sync], Target::Api).await, SYNC);
    }
    assert_eq!(judged(&authentication, &[sync], Target::Api).await, "too_many_requests");
    for _ in 0..3 {
        assert_eq!(code(&authentication, "sessionid=boss").await, "", "a key leaves its tenant the half");
    }
    assert_eq!(code(&authentication, "sessionid=deputy").await, "too_many_requests", "its tokens were its tenant's");
    let unknown = ("authorization", "Bearer wk_unknown");
    for _ in 0..3 {
        assert_eq!(judged(&authentication, &[unknown], Target::Api).await, "unknown_key");
    }
    assert_eq!(judged(&authentication, &[unknown], Target::Api).await, "too_many_requests");
}
