//! The documentation page, rendered from the OpenAPI document.

use serde_json::{Map, Value};

use super::{
    deliveries,
    html::{escape, inline, paragraphs},
};

/// The known values of a set to which later versions may add some. Generated clients break at `enum` then.
const OPEN: &str = "x-extensible-enum";

/// Makes the whole page.
pub(super) fn render(document: &Value) -> String {
    let info = &document["info"];
    let title = escape(str(&info["title"]));
    let base = str(&document["servers"][0]["url"]);
    let page = Page { document, base };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}: API</title>\n\
         <link rel=\"stylesheet\" href=\"{base}/docs/style.css\">\n</head>\n<body>\n\
         <nav aria-label=\"Contents\">\n{}</nav>\n<main>\n<header>\n<h1>{title}</h1>\n<p class=\"lead\">{}</p>\n\
         <p class=\"facts\">Version {} · base path <code>{base}</code> · OpenAPI {}: \
         <a href=\"{base}/openapi.json\">openapi.json</a> · messages: \
         <a href=\"{base}/asyncapi.yaml\">asyncapi.yaml</a></p>\n</header>\n{}{}{}{}{}</main>\n</body>\n</html>\n",
        page.contents(),
        inline(str(&info["summary"])),
        escape(str(&info["version"])),
        escape(str(&document["openapi"])),
        page.introduction(),
        deliveries::section(),
        receivers(),
        page.chapters(),
        page.schemas(),
    )
}

/// Code that receives deliveries: the very files that the tests run.
pub(crate) const RECEIVERS: [(&str, &str); 8] = [
    ("Python", include_str!("../../../../proto-schemas/receivers/receiver.py")),
    ("Python, Standard Webhooks", include_str!("../../../../proto-schemas/receivers/receiver_standard.py")),
    ("Node", include_str!("../../../../proto-schemas/receivers/receiver.mjs")),
    ("Node, Standard Webhooks", include_str!("../../../../proto-schemas/receivers/receiver_standard.mjs")),
    ("Go", include_str!("../../../../proto-schemas/receivers/receiver.go")),
    ("PHP", include_str!("../../../../proto-schemas/receivers/receiver.php")),
    ("Rust", include_str!("../../../../proto-schemas/receivers/receiver.rs")),
    ("Rust, Standard Webhooks", include_str!("../../../../proto-schemas/receivers/receiver_standard.rs")),
];

fn receivers() -> String {
    let code = |(language, code): (&str, &str)| {
        format!("<details>\n<summary>{language}</summary>\n<pre>{}</pre>\n</details>\n", escape(code))
    };
    let files: String = RECEIVERS.into_iter().map(code).collect();
    format!(
        "<section id=\"receivers\">\n<h2>Receivers</h2>\n<p class=\"lead\">Programs that receive deliveries: they verify \
         a signature, refuse an old one, and take each delivery once. Without a library they verify \
         <code>X-Service-Signature</code>.</p>\n{files}</section>\n"
    )
}

struct Page<'a> {
    document: &'a Value,
    base: &'a str,
}

/// A call with its place in the document.
struct Entry<'a> {
    path: &'a str,
    method: &'a str,
    call: &'a Value,
}

impl<'a> Page<'a> {
    fn entries(&self, tag: &'a Value) -> impl Iterator<Item = Entry<'a>> {
        let calls = members(&self.document["paths"])
            .flat_map(|(path, calls)| members(calls).map(move |(method, call)| Entry { path, method, call }));
        calls.filter(move |entry| entry.call["tags"][0] == tag["name"])
    }

    fn tags(&self) -> impl Iterator<Item = &'a Value> {
        array(&self.document["tags"])
    }

    fn contents(&self) -> String {
        let mut nav = "<a class=\"home\" href=\"#introduction\">Introduction</a>\n\
                       <a class=\"home\" href=\"#posts\">What a receiver gets</a>\n\
                       <a class=\"home\" href=\"#receivers\">Receivers</a>\n"
            .to_owned();
        for tag in self.tags() {
            nav += &format!("<h2>{}</h2>\n<ul>\n", escape(str(&tag["name"])));
            for Entry { method, call, .. } in self.entries(tag) {
                let (id, summary) = (escape(str(&call["operationId"])), escape(str(&call["summary"])));
                nav += &format!(
                    "<li><a href=\"#{id}\"><b class=\"{method}\">{method}</b><span>{summary}</span></a></li>\n"
                );
            }
            nav += "</ul>\n";
        }
        nav += "<h2>Schemas</h2>\n<ul>\n";
        for (name, _) in members(&self.document["components"]["schemas"]) {
            nav += &format!("<li><a href=\"#schema-{name}\">{name}</a></li>\n");
        }
        nav + "</ul>\n"
    }

    fn introduction(&self) -> String {
        let problem = &self.document["components"]["responses"]["405.method_not_allowed"];
        let session = &self.document["components"]["securitySchemes"]["session"];
        format!(
            "<section id=\"introduction\">\n{}<h3>Authentication</h3>\n<p>Cookie <code>{}</code>. {}</p>\n\
             <h3>Methods that a path does not take</h3>\n<table class=\"answers\">\n{}</table>\n</section>\n",
            paragraphs(str(&self.document["info"]["description"])),
            escape(str(&session["name"])),
            inline(str(&session["description"])),
            self.answer("405", problem),
        )
    }

    fn chapters(&self) -> String {
        let chapter = |tag: &'a Value| {
            let calls: String = self.entries(tag).map(|entry| self.call(&entry)).collect();
            let (name, about) = (escape(str(&tag["name"])), inline(str(&tag["description"])));
            format!("<section>\n<h2>{name}</h2>\n<p class=\"lead\">{about}</p>\n{calls}</section>\n")
        };
        self.tags().map(chapter).collect()
    }

    fn call(&self, entry: &Entry<'_>) -> String {
        let Entry { path, method, call } = entry;
        let id = escape(str(&call["operationId"]));
        let mut html = format!(
            "<article id=\"{id}\">\n<h3><a href=\"#{id}\">{}</a></h3>\n\
             <p class=\"path\"><b class=\"{method}\">{method}</b> <code>{}{}</code></p>\n{}",
            escape(str(&call["summary"])),
            self.base,
            escape(path),
            paragraphs(str(&call["description"])),
        );
        html += &self.parameters(call);
        if let Some(body) = call.get("requestBody") {
            html += &self.body(body);
        }
        html += &format!("<h4>Call it</h4>\n<pre>{}</pre>\n", escape(&self.curl(entry)));
        let answers: String = members(&call["responses"]).map(|(status, answer)| self.answer(status, answer)).collect();
        html += &format!("<h4>Answers</h4>\n<table class=\"answers\">\n{answers}</table>\n</article>\n");
        html
    }

    fn parameters(&self, call: &Value) -> String {
        let rows: String = array(&call["parameters"])
            .map(|parameter| {
                let parameter = self.resolve(parameter);
                let need = if parameter["required"] == true { "required" } else { "optional" };
                format!(
                    "<tr><th><code>{}</code><small>{}, {need}</small></th><td>{}</td><td>{} <small>Example: <code>{}</code></small></td></tr>\n",
                    escape(str(&parameter["name"])),
                    escape(str(&parameter["in"])),
                    self.kind(&parameter["schema"]),
                    inline(str(&parameter["description"])),
                    escape(&bare(&parameter["example"])),
                )
            })
            .collect();
        if rows.is_empty() { rows } else { format!("<h4>Parameters</h4>\n<table>\n{rows}</table>\n") }
    }

    fn body(&self, body: &Value) -> String {
        let need = if body["required"] == true { "required" } else { "optional" };
        let content = &body["content"]["application/json"];
        let schema = self.resolve(&content["schema"]);
        format!(
            "<h4>Body <small><code>application/json</code>, {need}: {}</small></h4>\n{}{}",
            self.kind(&content["schema"]),
            self.members(schema),
            self.examples(content, " open"),
        )
    }

    /// The members of an object, as a table.
    fn members(&self, schema: &Value) -> String {
        let parts = array(&schema["allOf"]).map(|part| self.resolve(part)).chain([schema]);
        let rows: String = parts
            .flat_map(|part| members(&part["properties"]).map(move |member| (part, member)))
            .map(|(part, (name, member))| {
                let is_required = array(&part["required"]).any(|required| required == name);
                let need = if is_required { "" } else { "<small>optional</small>" };
                let about = member.get("description").or_else(|| self.resolve(member).get("description"));
                format!(
                    "<tr><th><code>{}</code>{need}</th><td>{}</td><td>{}</td></tr>\n",
                    escape(name),
                    self.kind(member),
                    inline(about.map_or("", str)),
                )
            })
            .collect();
        if rows.is_empty() {
            "<p>An object without members.</p>\n".to_owned()
        } else {
            format!("<table>\n{rows}</table>\n")
        }
    }

    fn answer(&self, status: &str, answer: &'a Value) -> String {
        let answer = self.resolve(answer);
        let class = if status.starts_with('2') { "good" } else { "bad" };
        let headers = members(&answer["headers"]).map(|(name, header)| {
            let about = str(&self.resolve(header)["description"]);
            format!("<code title=\"{}\">{}</code>", escape(about), escape(name))
        });
        let content = members(&answer["content"]).map(|(media_type, content)| {
            format!("<code>{}</code>: {} · ", escape(media_type), self.kind(&content["schema"]))
        });
        let examples = members(&answer["content"])
            .map(|(_, content)| self.examples(content, if class == "good" { " open" } else { "" }));
        format!(
            "<tr><th class=\"{class}\">{status}</th><td>{}<p class=\"facts\">{}headers {}</p>\n{}</td></tr>\n",
            paragraphs(str(&answer["description"])),
            content.collect::<String>(),
            headers.collect::<Vec<_>>().join(" "),
            examples.collect::<String>(),
        )
    }

    fn curl(&self, entry: &Entry<'_>) -> String {
        let mut path = entry.path.to_owned();
        for parameter in array(&entry.call["parameters"]).map(|parameter| self.resolve(parameter)) {
            path = path.replace(&format!("{{{}}}", str(&parameter["name"])), str(&parameter["example"]));
        }
        let method = entry.method.to_uppercase();
        let mut words = vec!["curl".to_owned()];
        if method != "GET" {
            words.push(format!("-X {method}"));
        }
        words.push(format!("\"$SERVICE{}{path}\"", self.base));
        if entry.call.get("security").is_none() {
            words.push("\\\n  -b \"sessionid=$SESSION\"".to_owned());
        }
        let mut examples = members(&entry.call["requestBody"]["content"]["application/json"]["examples"]);
        if let Some((_, example)) = examples.next() {
            let body = example["value"].to_string().replace('\'', "'\\''");
            words.push(format!("\\\n  -H 'Content-Type: application/json' \\\n  -d '{body}'"));
        }
        words.join(" ")
    }

    fn schemas(&self) -> String {
        let mut html = "<section>\n<h2>Schemas</h2>\n".to_owned();
        for (name, schema) in members(&self.document["components"]["schemas"]) {
            html += &format!("<article id=\"schema-{name}\">\n<h3><a href=\"#schema-{name}\">{name}</a></h3>\n");
            html += &schema["description"].as_str().map(paragraphs).unwrap_or_default();
            html += &if schema.get("properties").is_some() || schema.get("allOf").is_some() {
                self.members(schema)
            } else {
                format!("<p>{}</p>\n", self.kind(schema))
            };
            html += &format!(
                "<details><summary>JSON Schema</summary><pre>{}</pre></details>\n</article>\n",
                escape(&format!("{schema:#}"))
            );
        }
        html + "</section>\n"
    }

    /// Follows a reference. Any other part is returned as it is.
    fn resolve(&self, part: &'a Value) -> &'a Value {
        let pointer = part["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
        pointer.and_then(|pointer| self.document.pointer(pointer)).unwrap_or(part)
    }

    /// The examples of a body. `open` is an attribute or empty.
    fn examples(&self, content: &Value, open: &str) -> String {
        let named = members(&content["examples"]).map(|(name, example)| (name, &self.resolve(example)["value"]));
        let all = named.chain(content.get("example").map(|example| ("Example", example)));
        all.map(|(name, value)| {
            let (name, value) = (escape(name), escape(&format!("{value:#}")));
            format!("<details{open}><summary>{name}</summary><pre>{value}</pre></details>\n")
        })
        .collect()
    }

    /// A type and its limits, in short.
    fn kind(&self, schema: &Value) -> String {
        if let Some(name) =
            schema["$ref"].as_str().and_then(|reference| reference.strip_prefix("#/components/schemas/"))
        {
            let link = format!("<a href=\"#schema-{name}\">{name}</a>");
            let target = self.resolve(schema);
            let is_simple = ["properties", "allOf", "enum", OPEN].iter().all(|key| target.get(key).is_none());
            return if is_simple { format!("{link}: {}", self.kind(target)) } else { link };
        }
        if let Some(kinds) = schema["oneOf"].as_array() {
            return kinds.iter().map(|kind| self.kind(kind)).collect::<Vec<_>>().join(" or ");
        }
        let kind = match &schema["type"] {
            Value::String(kind) if kind == "array" => format!("array of {}", self.kind(&schema["items"])),
            Value::String(kind) => escape(kind),
            Value::Array(kinds) => kinds.iter().map(|kind| escape(str(kind))).collect::<Vec<_>>().join(" or "),
            _ => "any".to_owned(),
        };
        let limits: Vec<_> = schema.as_object().into_iter().flatten().filter_map(limit).collect();
        if limits.is_empty() { kind } else { format!("{kind}<small>{}</small>", limits.join("; ")) }
    }
}

fn limit((name, value): (&String, &Value)) -> Option<String> {
    let code = |value: &Value| format!("<code>{}</code>", escape(&bare(value)));
    Some(match name.as_str() {
        "format" => escape(str(value)),
        "minimum" | "minItems" => format!("at least {value}"),
        "maximum" => format!("at most {value}"),
        "maxLength" => format!("at most {value} characters"),
        "uniqueItems" => "no repeats".to_owned(),
        "default" => format!("default {}", code(value)),
        "const" => format!("always {}", code(value)),
        "enum" | OPEN => array(value).map(code).collect::<Vec<_>>().join(" "),
        _ => return None,
    })
}

/// A value as text, strings without quotes.
fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
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
