//! The pages of the API's documentation: one for each tag of the OpenAPI document, one for its schemas, and an overview.

mod call;
mod schema;

use domain::EventType;
use maud::{Markup, html};
use serde_json::{Map, Value};

use crate::{Paths, layout};

/// The name of the page with the schemas.
const SCHEMAS_PAGE: &str = "schemas";

/// The sources of the documentation.
#[derive(Clone, Copy, Debug)]
pub struct ApiReference<'a> {
    /// The OpenAPI document.
    pub document: &'a Value,
    /// The requests that receivers get.
    pub posts: &'a Posts,
    /// Programs that receive deliveries, with the names of their languages.
    pub receivers: &'a [(&'a str, &'a str)],
    /// True if there is a console to go back to.
    pub has_console: bool,
}

/// The whole POST of each event type.
#[derive(Clone, Debug)]
pub struct Posts {
    /// The secret that signs all of them.
    pub secret: &'static str,
    /// The second after 1970 of all signatures.
    pub signed_at: i64,
    /// Each request as a receiver reads it.
    pub requests: Vec<(EventType, String)>,
}

/// One page.
#[derive(Clone, Debug)]
pub struct DocsPage {
    /// Its name in the path, below `/docs/`. That of the overview is empty.
    pub name: String,
    /// The HTML.
    pub html: String,
}

/// A call with its place in the document.
struct ApiCall<'a> {
    path: &'a str,
    method: &'a str,
    about: &'a Value,
}

impl<'a> ApiReference<'a> {
    /// Renders all pages.
    pub fn pages(&self) -> Vec<DocsPage> {
        let title = str(&self.document["info"]["title"]);
        let overview = self.page("", title, &self.overview());
        let tags = self.tags().map(|tag| self.page(&slug(tag), str(&tag["name"]), &self.chapter(tag)));
        let schemas = self.page(SCHEMAS_PAGE, "Schemas", &self.schemas());
        [overview].into_iter().chain(tags).chain([schemas]).collect()
    }

    fn page(&self, name: &str, title: &str, content: &Markup) -> DocsPage {
        let links = html! { link rel="stylesheet" href={ (self.base()) "/docs/style.css" }; };
        let body = html! {
            a.skip href="#main" { "Skip to the content" }
            (self.contents(name))
            main #main { h1 { (title) } (content) }
        };
        DocsPage { name: name.to_owned(), html: layout::with_links(&format!("{title} · Webhooks API"), &links, &body) }
    }

    /// The links to all pages, and to the calls of this one.
    fn contents(&self, current: &str) -> Markup {
        let link = |name: &str, title: &str| {
            html! { a href=(self.address(name)) aria-current=[(name == current).then_some("page")] { (title) } }
        };
        html! {
            nav aria-label="Contents" {
                @if self.has_console { a.back href=(Paths::HOME) { "Back to the console" } }
                ul {
                    li { (link("", "Overview")) }
                    @for tag in self.tags() {
                        @let name = slug(tag);
                        li {
                            (link(&name, str(&tag["name"])))
                            @if name == current { ul { @for call in self.calls(tag) { li { (call.link()) } } } }
                        }
                    }
                    li { (link(SCHEMAS_PAGE, "Schemas")) }
                }
            }
        }
    }

    fn overview(&self) -> Markup {
        let info = &self.document["info"];
        let schemes = &self.document["components"]["securitySchemes"];
        let (session, key) = (&schemes["session"], &schemes["key"]);
        let refused = &self.document["components"]["responses"]["405.method_not_allowed"];
        let base = self.base();
        html! {
            p.lead { (inline(str(&info["summary"]))) }
            p.facts {
                "Version " (str(&info["version"])) " · base path " code { (base) } " · OpenAPI "
                (str(&self.document["openapi"])) ": " a href={ (base) "/openapi.json" } { "openapi.json" }
                " · messages: " a href={ (base) "/asyncapi.yaml" } { "asyncapi.yaml" }
            }
            (paragraphs(str(&info["description"])))
            h2 { "Calls" }
            @for tag in self.tags() {
                p { a href=(self.address(&slug(tag))) { (str(&tag["name"])) } ": " (inline(str(&tag["description"]))) }
            }
            h2 { "Authentication" }
            p { "Programs: " code { "Authorization: Bearer wk_…" } ". " (inline(str(&key["description"]))) }
            p { "Administrators: the cookie " code { (str(&session["name"])) } ". " (inline(str(&session["description"]))) }
            h2 { "Methods that a path does not take" }
            table.answers { (self.answer("405", refused)) }
            (self.posts())
            section #receivers {
                h2 { "Receivers" }
                p.lead {
                    "Programs that receive deliveries: they verify a signature, refuse an old one, and take each delivery \
                     once. Without a library they verify " code { "X-Service-Signature" } "."
                }
                @for (language, program) in self.receivers { (folded(language, program)) }
            }
        }
    }

    fn posts(&self) -> Markup {
        let Posts { secret, signed_at, requests } = self.posts;
        html! {
            section #posts {
                h2 { "What a receiver gets" }
                p.lead {
                    "The whole POST of each event type. The signatures are those of the secret " code { (secret) }
                    ": verify them with your own code at the time " (signed_at)
                    ". The body ends with its last brace, without a line break."
                }
                @for (event_type, request) in requests { (folded(event_type.as_str(), request)) }
            }
        }
    }

    fn chapter(&self, tag: &'a Value) -> Markup {
        html! {
            p.lead { (inline(str(&tag["description"]))) }
            @for call in self.calls(tag) { (self.call(&call)) }
        }
    }

    fn tags(&self) -> impl Iterator<Item = &'a Value> {
        array(&self.document["tags"])
    }

    fn calls(&self, tag: &'a Value) -> impl Iterator<Item = ApiCall<'a>> {
        let calls = members(&self.document["paths"])
            .flat_map(|(path, calls)| members(calls).map(move |(method, about)| ApiCall { path, method, about }));
        calls.filter(move |call| call.about["tags"][0] == tag["name"])
    }

    fn base(&self) -> &'a str {
        str(&self.document["servers"][0]["url"])
    }

    fn address(&self, name: &str) -> String {
        let slash = if name.is_empty() { "" } else { "/" };
        format!("{}/docs/{name}{slash}", self.base())
    }

    /// Follows a reference. Any other part is returned as it is.
    fn resolve(&self, part: &'a Value) -> &'a Value {
        let pointer = part["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
        pointer.and_then(|pointer| self.document.pointer(pointer)).unwrap_or(part)
    }
}

/// A tag's name in the path.
fn slug(tag: &Value) -> String {
    str(&tag["name"]).to_lowercase().replace(' ', "-")
}

/// Text that scrolls, also by the keyboard.
fn code(text: &str) -> Markup {
    html! { pre tabindex="0" { (text) } }
}

fn folded(summary: &str, text: &str) -> Markup {
    html! { details { summary { (summary) } (code(text)) } }
}

/// One paragraph. Text between backticks is code.
fn inline(text: &str) -> Markup {
    html! { @for (nth, part) in text.split('`').enumerate() { @if nth % 2 == 1 { code { (part) } } @else { (part) } } }
}

/// Paragraphs, separated by empty lines.
fn paragraphs(text: &str) -> Markup {
    html! { @for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.is_empty()) { p { (inline(paragraph)) } } }
}

fn str(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter).map(|(name, member)| (name.as_str(), member))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_markup_but_paragraphs_and_code() {
        assert_eq!(paragraphs("a `<b>` c\n\n<i>").into_string(), "<p>a <code>&lt;b&gt;</code> c</p><p>&lt;i&gt;</p>");
    }
}
