//! The API's description as texts: the OpenAPI document for programs, a page for people, and the contracts of messages.

mod contracts;
mod deliveries;
mod html;
mod json_text;
mod page;

use actix_web::web::Bytes;
use serde_json::Value;
use service_kit::settings::Limits;

pub(crate) use self::{contracts::SCHEMAS, page::RECEIVERS};
use crate::openapi::document;

/// The page's style sheet.
pub(crate) const STYLE: &str = include_str!("docs/style.css");

/// Rendered once, at the start.
#[derive(Clone)]
pub(crate) struct Docs {
    pub(crate) json: Bytes,
    pub(crate) page: Bytes,
    pub(crate) asyncapi: Bytes,
}

impl Docs {
    pub(crate) fn new(limits: &Limits) -> Self {
        let document = document(limits);
        let page = page::render(&document).into();
        Self { json: text(&document).into(), page, asyncapi: contracts::asyncapi().into() }
    }
}

/// The document's text, as it is committed and served.
pub(crate) fn text(document: &Value) -> String {
    format!("{document:#}\n")
}
