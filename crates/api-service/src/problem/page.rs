//! Pages of the console: the headers that all have, and an error as a page.

use actix_web::http::{
    StatusCode,
    header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderValue, REFERRER_POLICY},
};

use super::ApiError;

/// A page takes its style, script and icon from this service, and nothing from anywhere else.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Whether pages are answered below this path.
pub(crate) fn is_for(path: &str) -> bool {
    path == "/console" || path.starts_with("/console/")
}

/// Adds the headers of a page. Without a referrer within the site, browsers would not say from which site a form comes.
pub(crate) fn dress(headers: &mut HeaderMap) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
}

/// An error as a page.
pub(super) fn render(error: &ApiError, request_id: &str) -> String {
    let (status, _) = error.kind();
    let is_logged_out = status == StatusCode::UNAUTHORIZED;
    let (title, advice) = match status {
        StatusCode::UNAUTHORIZED => ("Log in again", ""),
        StatusCode::NOT_FOUND => (
            "Not found",
            "The address may be wrong, or what it showed is older than what is kept, or belongs to another tenant.",
        ),
        other => (other.canonical_reason().unwrap_or("Error"), ""),
    };
    console::Problem { title, detail: &error.to_string(), advice, request_id, is_logged_out }.render()
}
