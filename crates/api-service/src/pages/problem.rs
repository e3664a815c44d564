//! Pages of the console: the headers that all have, and an error as a page.

use actix_web::{
    HttpMessage, HttpRequest,
    dev::ServiceResponse,
    http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY},
    web::Data,
};
use console::WayOut;
use ledger::Actor;
use url::Url;

use crate::{
    http::{ApiError, MAX_LISTED_VIOLATIONS, Violation},
    state::State,
};

/// A page takes its style, script and icon from this service, and nothing from anywhere else.
const SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; frame-ancestors 'none'; form-action 'self'";

/// Where the form posts that registers a webhook.
const REGISTER_PATH: &str = "/console/register/";

/// Where the form posts that creates a key.
const KEYS_PATH: &str = console::Paths::KEYS;

/// Returns true if pages are answered at this path.
pub(crate) fn is_for(path: &str) -> bool {
    path == "/console" || path.starts_with("/console/")
}

/// Adds the headers of a page, if the answer is one. Without a referrer within the site, browsers would not say from
/// which site a form comes.
pub(crate) fn dress(answered: &mut ServiceResponse) {
    let is_html = |kind: &HeaderValue| kind.as_bytes().starts_with(b"text/html");
    if !is_for(answered.request().path()) || !answered.headers().get(CONTENT_TYPE).is_some_and(is_html) {
        return;
    }
    let state = answered.request().app_data::<Data<State>>();
    let policy = policy(state.and_then(|state| state.console.login_url.as_ref()));
    let headers = answered.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
}

/// The policy of all pages. Who sends a form after the session's end is redirected to the log-in, and some browsers
/// judge redirects as they judge the form.
fn policy(login: Option<&Url>) -> HeaderValue {
    let with_login =
        login.and_then(|login| format!("{SECURITY_POLICY} {}", login.origin().ascii_serialization()).try_into().ok());
    with_login.unwrap_or_else(|| HeaderValue::from_static(SECURITY_POLICY))
}

/// An error as a page.
pub(crate) fn render(error: &ApiError, request: &HttpRequest, request_id: &str) -> String {
    let (status, _) = error.kind();
    let tenant = request.extensions().get::<Actor>().map(|admin| admin.tenant);
    let way_out = match (error, request.match_info().get("id").and_then(|id| id.parse().ok())) {
        (ApiError::NotLoggedIn, _) => WayOut::LogIn,
        (ApiError::NotAnAdmin, _) => WayOut::OtherUser,
        (ApiError::NotFound, _) | (_, None) => WayOut::Webhooks,
        (_, Some(id)) => WayOut::Webhook(id),
    };
    let title = match way_out {
        WayOut::LogIn => "Log in again",
        _ => status.canonical_reason().unwrap_or("Error"),
    };
    console::ProblemPage { title, detail: &detail(error, request.path()), tenant, request_id, way_out }.render()
}

/// What is wrong, for who knows nothing of the API.
fn detail(error: &ApiError, path: &str) -> String {
    let sentence = |wrong: &Violation| format!("{} {}", wrong.field.replace('_', " "), wrong.message);
    match error {
        ApiError::WebhookInactive => "the webhook is paused; activate it first".to_owned(),
        ApiError::Unconfirmed(_) => {
            let remedy = match path {
                REGISTER_PATH => ". If there is a new webhook, delete it: its secret was not shown",
                KEYS_PATH => ". If there is a new key, revoke it: it was not shown",
                _ => "",
            };
            format!(
                "the database did not answer in time. Your change may have been saved: look before you repeat it{remedy}"
            )
        }
        ApiError::Cancelling => {
            "the webhook's waiting deliveries are being cancelled, and deliveries that are sent again \
                                 now would be too: try again when the webhook's page no longer says so"
                .to_owned()
        }
        ApiError::Fields(violations) | ApiError::Parameters(violations) => {
            violations.iter().take(MAX_LISTED_VIOLATIONS).map(sentence).collect::<Vec<_>>().join(". ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn page(error: &ApiError) -> String {
        page_at("/console/", error)
    }

    fn page_at(path: &str, error: &ApiError) -> String {
        let request = TestRequest::with_uri(path).param("id", "0192f0c1-0000-7000-8000-000000000001").to_http_request();
        request.extensions_mut().insert(Actor { tenant: uuid::Uuid::nil().into(), user: "u".to_owned() });
        render(error, &request, "r-1")
    }

    #[test]
    fn a_page_names_no_field_of_the_api() {
        let cancelling = page(&ApiError::Cancelling);
        assert!(!cancelling.contains("is_cancelling") && cancelling.contains("try again when"), "{cancelling}");
        let inactive = page(&ApiError::WebhookInactive);
        assert!(!inactive.contains("is_active") && inactive.contains("activate it first"), "{inactive}");
    }

    #[test]
    fn only_a_registration_that_is_not_confirmed_speaks_of_a_secret() {
        let unconfirmed = ApiError::Unconfirmed(ledger::LedgerError::Timeout(std::time::Duration::from_secs(1)));
        for (path, speaks) in [(REGISTER_PATH, true), ("/console/login/", false), ("/console/webhooks/1/pause/", false)]
        {
            let page = page_at(path, &unconfirmed);
            assert!(page.contains("may have been saved") && page.contains("secret") == speaks, "{path}: {page}");
        }
    }

    #[test]
    fn a_page_that_is_not_found_gives_each_reason_once() {
        let page = page(&ApiError::NotFound);
        for reason in ["does not exist", "another tenant", "retention period", "Organization <code>00000000</code>"] {
            assert_eq!(page.matches(reason).count(), 1, "{page}");
        }
    }
}
