//! Types: in short where they are used, and in full on a page of their own.

use maud::{Markup, html};
use serde_json::Value;

use super::{ApiReference, SCHEMAS_PAGE, array, inline, members, paragraphs, str};

/// The known values of a set to which later versions may add some. Generated clients break at `enum` then.
const OPEN_ENUM: &str = "x-extensible-enum";

impl<'a> ApiReference<'a> {
    /// The content of the page with all schemas, and with the headers of answers.
    pub(super) fn schemas(&self) -> Markup {
        let components = &self.document["components"];
        html! {
            p.lead {
                "The objects and values of all calls, and the headers of their answers. As JSON Schema they are in "
                a href={ (self.base()) "/openapi.json" } { "openapi.json" } "."
            }
            p { a href="#headers" { "Headers" } }
            ul.names { @for (name, _) in members(&components["schemas"]) { li { a href={ "#schema-" (name) } { (name) } } } }
            @for (name, schema) in members(&components["schemas"]) {
                article id={ "schema-" (name) } {
                    h2 { a href={ "#schema-" (name) } { (name) } }
                    (paragraphs(str(&schema["description"])))
                    @if schema.get("properties").is_some() || schema.get("allOf").is_some() {
                        (self.members(schema))
                    } @else {
                        p { (self.kind(schema)) }
                    }
                }
            }
            article #headers {
                h2 { "Headers" }
                table {
                    @for (name, header) in members(&components["headers"]) {
                        tr id={ "header-" (name) } {
                            th scope="row" { code { (name) } }
                            td { (self.kind(&header["schema"])) }
                            td { (inline(str(&header["description"]))) }
                        }
                    }
                }
            }
        }
    }

    /// The members of an object, as a table.
    pub(super) fn members(&self, schema: &'a Value) -> Markup {
        let parts = array(&schema["allOf"]).map(|part| self.resolve(part)).chain([schema]);
        let all: Vec<_> =
            parts.flat_map(|part| members(&part["properties"]).map(move |(name, kind)| (part, name, kind))).collect();
        html! {
            @if schema["additionalProperties"].is_object() {
                p { "An object. A member's name: " (self.kind(&schema["propertyNames"])) ". Its value: " (self.kind(&schema["additionalProperties"])) "." }
            } @else if all.is_empty() { p { "An object without members." } } @else {
                table {
                    @for (part, name, member) in all {
                        @let about = member.get("description").or_else(|| self.resolve(member).get("description"));
                        tr {
                            th scope="row" {
                                code { (name) }
                                @if !array(&part["required"]).any(|required| required == name) { small { "optional" } }
                            }
                            td { (self.kind(member)) }
                            td { (inline(about.map_or("", str))) }
                        }
                    }
                }
            }
        }
    }

    /// A type and its limits, in short.
    pub(super) fn kind(&self, schema: &'a Value) -> Markup {
        if let Some(name) = str(&schema["$ref"]).strip_prefix("#/components/schemas/") {
            let target = self.resolve(schema);
            let is_simple = ["properties", "allOf", "enum", OPEN_ENUM].iter().all(|key| target.get(key).is_none());
            return html! {
                a href={ (self.address(SCHEMAS_PAGE)) "#schema-" (name) } { (name) }
                @if is_simple { ": " (self.kind(target)) }
            };
        }
        if let Some(kinds) = schema["oneOf"].as_array() {
            return html! { @for (nth, kind) in kinds.iter().enumerate() { @if nth > 0 { " or " } (self.kind(kind)) } };
        }
        let limits: Vec<_> = schema.as_object().into_iter().flatten().filter_map(limit).collect();
        html! {
            @match &schema["type"] {
                Value::String(kind) if kind == "array" => { "array of " (self.kind(&schema["items"])) }
                Value::String(kind) => (kind),
                Value::Array(kinds) => (kinds.iter().map(str).collect::<Vec<_>>().join(" or ")),
                _ => "any",
            }
            @if !limits.is_empty() {
                small { @for (nth, limit) in limits.iter().enumerate() { @if nth > 0 { "; " } (limit) } }
            }
        }
    }
}

fn limit((name, value): (&String, &Value)) -> Option<Markup> {
    Some(match name.as_str() {
        "format" => html! { (str(value)) },
        "minimum" | "minItems" => html! { "at least " (value) },
        "maximum" => html! { "at most " (value) },
        "maxProperties" => html! { "at most " (value) " members" },
        "maxLength" => html! { "at most " (value) " characters" },
        "uniqueItems" => html! { "no repeats" },
        "default" => html! { "default " code { (bare(value)) } },
        "const" => html! { "always " code { (bare(value)) } },
        "enum" | OPEN_ENUM => html! { @for one in array(value) { code { (bare(one)) } " " } },
        _ => return None,
    })
}

/// A value as text, strings without quotes.
pub(super) fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}
