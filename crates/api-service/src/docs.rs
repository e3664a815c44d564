//! The API's description, served to programs and to people. It needs no session.

mod html;
mod json_text;
mod page;

use actix_web::{
    HttpResponse,
    http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE},
    web::{Bytes, Data},
};
use serde_json::Value;
use service_kit::settings::Limits;

use crate::{api::Api, openapi::document};

/// The page needs its style sheet and nothing else: no script, no other server.
const POLICY: &str = "default-src 'none'; style-src 'self'; frame-ancestors 'none'";

/// Rendered once, at the start.
#[derive(Clone)]
pub(crate) struct Docs {
    json: Bytes,
    page: Bytes,
}

impl Docs {
    pub(crate) fn new(limits: &Limits) -> Self {
        let document = document(limits);
        Self { json: text(&document).into(), page: page::render(&document).into() }
    }
}

/// The document's text, as it is committed and served.
pub(crate) fn text(document: &Value) -> String {
    format!("{document:#}\n")
}

/// `GET /api/v1/openapi.json`
pub(crate) async fn openapi(api: Data<Api>) -> HttpResponse {
    HttpResponse::Ok().insert_header((CONTENT_TYPE, "application/json")).body(api.docs.json.clone())
}

/// `GET /api/v1/docs/`
pub(crate) async fn page(api: Data<Api>) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((CONTENT_TYPE, "text/html; charset=utf-8"))
        .insert_header((CONTENT_SECURITY_POLICY, POLICY))
        .body(api.docs.page.clone())
}

/// `GET /api/v1/docs/style.css`
pub(crate) async fn style() -> HttpResponse {
    HttpResponse::Ok().insert_header((CONTENT_TYPE, "text/css; charset=utf-8")).body(include_str!("docs/style.css"))
}
