//! The API's description: the OpenAPI document for programs, pages for people, and the contracts of messages. It needs no
//! session.

mod posts;

use std::collections::BTreeMap;

use actix_web::{
    HttpResponse,
    http::header,
    web::{Bytes, Data, Path},
};
use console::ApiReference;
use ledger::WebhookLimits;
use serde_json::{Value, json};
use service_kit::settings::Limits;

use crate::http::{ApiError, HandlerResult};

/// Code that receives deliveries: the very files that the tests run.
pub(crate) const RECEIVERS: [(&str, &str); 8] = [
    ("Python", include_str!("../../../proto-schemas/receivers/receiver.py")),
    ("Python, Standard Webhooks", include_str!("../../../proto-schemas/receivers/receiver_standard.py")),
    ("Node", include_str!("../../../proto-schemas/receivers/receiver.mjs")),
    ("Node, Standard Webhooks", include_str!("../../../proto-schemas/receivers/receiver_standard.mjs")),
    ("Go", include_str!("../../../proto-schemas/receivers/receiver.go")),
    ("PHP", include_str!("../../../proto-schemas/receivers/receiver.php")),
    ("Rust", include_str!("../../../proto-schemas/receivers/receiver.rs")),
    ("Rust, Standard Webhooks", include_str!("../../../proto-schemas/receivers/receiver_standard.rs")),
];

/// The names and texts of the messages' JSON Schemas.
pub(crate) const SCHEMAS: [(&str, &str); 4] = [
    ("envelope.schema.json", include_str!("../../../proto-schemas/envelope.schema.json")),
    ("event.schema.json", include_str!("../../../proto-schemas/event.schema.json")),
    ("job.schema.json", include_str!("../../../proto-schemas/job.schema.json")),
    ("notice.schema.json", include_str!("../../../proto-schemas/notice.schema.json")),
];

/// Rendered once, at the start.
#[derive(Clone)]
pub(crate) struct Docs {
    pub(crate) json: Bytes,
    /// The pages, by their names.
    pub(crate) pages: BTreeMap<String, Bytes>,
    pub(crate) asyncapi: Bytes,
}

impl Docs {
    pub(crate) fn new(limits: &Limits, most: WebhookLimits, has_console: bool) -> Self {
        let document = document(limits, most);
        let reference =
            ApiReference { document: &document, posts: &posts::posts(), receivers: &RECEIVERS, has_console };
        let pages = reference.pages().into_iter().map(|page| (page.name, page.html.into())).collect();
        Self { json: format!("{document:#}\n").into(), pages, asyncapi: asyncapi_text().into() }
    }
}

/// The committed OpenAPI document, with this version and the limits that are in force.
fn document(limits: &Limits, most: WebhookLimits) -> Value {
    // The tests show that the text is JSON, and that each place exists.
    let mut document: Value =
        serde_json::from_str(include_str!("../../../proto-schemas/openapi.json")).unwrap_or_default();
    let detail = |error: ApiError| json!(error.to_string());
    for (place, value) in [
        ("/info/version", json!(env!("CARGO_PKG_VERSION"))),
        ("/components/schemas/WebhookName/maxLength", json!(limits.name_chars)),
        ("/components/schemas/WebhookUrl/maxLength", json!(limits.url_chars)),
        ("/components/examples/too_many_webhooks/value/detail", detail(ApiError::TooManyWebhooks(most.webhooks))),
        ("/components/examples/too_many_deleted_webhooks/value/detail", detail(ApiError::TooManyDeleted(most.deleted))),
        ("/components/examples/body_too_large/value/detail", detail(ApiError::BodyTooLarge(limits.request_body_bytes))),
    ] {
        if let Some(place) = document.pointer_mut(place) {
            *place = value;
        }
    }
    document
}

/// The AsyncAPI document. Its references lead to where the schemas are served.
fn asyncapi_text() -> String {
    include_str!("../../../proto-schemas/asyncapi.yaml").replace("$ref: './", "$ref: './schemas/")
}

/// The pages need their style sheet and nothing else: no script, no other server.
const SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; frame-ancestors 'none'";

/// `GET /api/v1/openapi.json`
pub(crate) async fn openapi(docs: Data<Docs>) -> HttpResponse {
    HttpResponse::Ok().insert_header((header::CONTENT_TYPE, "application/json")).body(docs.json.clone())
}

/// `GET /api/v1/asyncapi.yaml`: as text, which browsers show.
pub(crate) async fn asyncapi(docs: Data<Docs>) -> HttpResponse {
    HttpResponse::Ok().insert_header((header::CONTENT_TYPE, "text/plain; charset=utf-8")).body(docs.asyncapi.clone())
}

/// `GET /api/v1/schemas/{file}`
pub(crate) async fn schema(file: Path<String>) -> HandlerResult {
    let (_, schema) = SCHEMAS.into_iter().find(|(name, _)| *name == *file).ok_or(ApiError::NotFound)?;
    Ok(HttpResponse::Ok().insert_header((header::CONTENT_TYPE, "application/schema+json")).body(schema))
}

/// `GET /api/v1/docs/`
pub(crate) async fn overview(docs: Data<Docs>) -> HandlerResult {
    html(&docs, "")
}

/// `GET /api/v1/docs/{page}/`
pub(crate) async fn page(docs: Data<Docs>, name: Path<String>) -> HandlerResult {
    html(&docs, &name)
}

fn html(docs: &Docs, name: &str) -> HandlerResult {
    let page = docs.pages.get(name).ok_or(ApiError::NotFound)?;
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, "text/html; charset=utf-8"))
        .insert_header((header::CONTENT_SECURITY_POLICY, SECURITY_POLICY))
        .body(page.clone()))
}

/// `GET /api/v1/docs/style.css`
pub(crate) async fn style() -> HttpResponse {
    HttpResponse::Ok().insert_header((header::CONTENT_TYPE, "text/css; charset=utf-8")).body(console::DOCS_STYLE)
}

#[cfg(test)]
mod tests;
