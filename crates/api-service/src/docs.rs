//! The API's description: the OpenAPI document for programs, pages for people, and the contracts of messages. It needs no
//! session.

mod posts;

use std::collections::BTreeMap;

use actix_web::{
    HttpRequest, HttpResponse,
    http::header,
    web::{Bytes, Data},
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

const HTML: &str = "text/html; charset=utf-8";

/// The files of the documentation, rendered once, at the start: each with its media type, by its path below `/api/v1/`
/// without a slash at its end.
#[derive(Clone)]
pub(crate) struct Docs(BTreeMap<String, (&'static str, Bytes)>);

impl Docs {
    pub(crate) fn new(limits: &Limits, most: WebhookLimits, has_console: bool) -> Self {
        let document = document(limits, most);
        let reference =
            ApiReference { document: &document, posts: &posts::posts(), receivers: &RECEIVERS, has_console };
        let pages = reference.pages().into_iter().map(|page| (format!("docs/{}", page.name), HTML, page.html.into()));
        let schemas = SCHEMAS.map(|(name, text)| (format!("schemas/{name}"), "application/schema+json", text.into()));
        let others = [
            ("openapi.json".to_owned(), "application/json", format!("{document:#}\n").into()),
            // Browsers show text, and offer YAML to save.
            ("asyncapi.yaml".to_owned(), "text/plain; charset=utf-8", asyncapi_text().into()),
            ("docs/style.css".to_owned(), "text/css; charset=utf-8", console::DOCS_STYLE.into()),
        ];
        let all = pages.chain(schemas).chain(others);
        Self(all.map(|(path, kind, text)| (path.trim_end_matches('/').to_owned(), (kind, text))).collect())
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

/// Answers with a file. A slash at the end of a page's path may be missing.
pub(crate) async fn file(docs: Data<Docs>, request: HttpRequest) -> HandlerResult {
    let path = request.path().trim_start_matches("/api/v1/").trim_end_matches('/');
    let (kind, text) = docs.0.get(path).ok_or(ApiError::NotFound)?;
    let mut answer = HttpResponse::Ok();
    answer.insert_header((header::CONTENT_TYPE, *kind));
    if *kind == HTML {
        answer.insert_header((header::CONTENT_SECURITY_POLICY, SECURITY_POLICY));
    }
    Ok(answer.body(text.clone()))
}

#[cfg(test)]
mod tests;
