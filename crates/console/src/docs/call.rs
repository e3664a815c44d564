//! A call: its parameters, its body, its answers, and the command that makes it.

use maud::{Markup, html};
use serde_json::Value;

use super::{ApiCall, ApiReference, array, code, folded, inline, members, paragraphs, schema::bare, str};

impl ApiCall<'_> {
    fn id(&self) -> &str {
        str(&self.about["operationId"])
    }

    /// A link to the call on its page.
    pub(super) fn link(&self) -> Markup {
        html! { a href={ "#" (self.id()) } { (self.badge()) span { (str(&self.about["summary"])) } } }
    }

    fn badge(&self) -> Markup {
        html! { b class=(self.method) { (self.method) } }
    }
}

impl<'a> ApiReference<'a> {
    pub(super) fn call(&self, call: &ApiCall<'a>) -> Markup {
        let about = call.about;
        html! {
            article id=(call.id()) {
                h2 { a href={ "#" (call.id()) } { (str(&about["summary"])) } }
                p.path { (call.badge()) " " code { (self.base()) (call.path) } }
                (paragraphs(str(&about["description"])))
                (self.parameters(&about["parameters"]))
                @if let Some(body) = about.get("requestBody") { (self.body(body)) }
                h3 { "Call it" }
                (code(&self.curl(call)))
                h3 { "Answers" }
                table.answers { @for (status, answer) in members(&about["responses"]) { (self.answer(status, answer)) } }
            }
        }
    }

    fn parameters(&self, parameters: &'a Value) -> Markup {
        let parameters: Vec<_> = array(parameters).map(|parameter| self.resolve(parameter)).collect();
        html! {
            @if !parameters.is_empty() {
                h3 { "Parameters" }
                table {
                    @for parameter in parameters {
                        tr {
                            th scope="row" {
                                code { (str(&parameter["name"])) }
                                small { (str(&parameter["in"])) ", " (need(parameter)) }
                            }
                            td { (self.kind(&parameter["schema"])) }
                            td {
                                (inline(str(&parameter["description"]))) " "
                                small { "Example: " code { (bare(&parameter["example"])) } }
                            }
                        }
                    }
                }
            }
        }
    }

    fn body(&self, body: &'a Value) -> Markup {
        let content = &body["content"]["application/json"];
        html! {
            h3 {
                "Body " small { code { "application/json" } ", " (need(body)) ": " (self.kind(&content["schema"])) }
            }
            (self.members(self.resolve(&content["schema"])))
            (self.examples(content))
        }
    }

    /// A row of a table of answers.
    pub(super) fn answer(&self, status: &str, answer: &'a Value) -> Markup {
        let answer = self.resolve(answer);
        let class = if status.starts_with('2') { "good" } else { "bad" };
        html! {
            tr {
                th.(class) scope="row" { (status) }
                td {
                    (paragraphs(str(&answer["description"])))
                    p.facts {
                        @for (media_type, content) in members(&answer["content"]) {
                            code { (media_type) } ": " (self.kind(&content["schema"])) " · "
                        }
                        "headers: "
                        @for (nth, (name, header)) in members(&answer["headers"]).enumerate() {
                            @if nth > 0 { ", " }
                            (self.header(name, header))
                        }
                    }
                    @for (_, content) in members(&answer["content"]) { (self.examples(content)) }
                }
            }
        }
    }

    /// A header's name, which leads to what it says if other answers have it too.
    fn header(&self, name: &str, header: &'a Value) -> Markup {
        html! {
            @if header.get("$ref").is_some() {
                a href={ (self.address(super::SCHEMAS_PAGE)) "#header-" (name) } { code { (name) } }
            } @else {
                code { (name) } " (" (inline(str(&header["description"]))) ")"
            }
        }
    }

    fn examples(&self, content: &'a Value) -> Markup {
        let named = members(&content["examples"]).map(|(name, example)| (name, &self.resolve(example)["value"]));
        let all = named.chain(content.get("example").map(|example| ("Example", example)));
        html! { @for (name, value) in all { (folded(name, &format!("{value:#}"))) } }
    }

    fn curl(&self, call: &ApiCall<'a>) -> String {
        let mut path = call.path.to_owned();
        for parameter in array(&call.about["parameters"]).map(|parameter| self.resolve(parameter)) {
            path = path.replace(&format!("{{{}}}", str(&parameter["name"])), str(&parameter["example"]));
        }
        let method = call.method.to_uppercase();
        let mut words = vec!["curl".to_owned()];
        if method != "GET" {
            words.push(format!("-X {method}"));
        }
        words.push(format!("\"$SERVICE{}{path}\"", self.base()));
        match call.about.get("security").map(|schemes| array(schemes).count()) {
            None => words.push("\\\n  -H \"Authorization: Bearer $KEY\"".to_owned()),
            Some(0) => {}
            Some(_) => words.push("\\\n  -b \"sessionid=$SESSION\"".to_owned()),
        }
        let mut examples = members(&call.about["requestBody"]["content"]["application/json"]["examples"]);
        if let Some((_, example)) = examples.next() {
            let body = example["value"].to_string().replace('\'', "'\\''");
            words.push(format!("\\\n  -H 'Content-Type: application/json' \\\n  -d '{body}'"));
        }
        words.join(" ")
    }
}

fn need(part: &Value) -> &'static str {
    if part["required"] == true { "required" } else { "optional" }
}
