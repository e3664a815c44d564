//! The API's description in OpenAPI 3.1. Event types, states, limits and errors come from the code itself.

mod call;
mod calls;
mod errors;
mod examples;
mod schemas;

use serde_json::{Map, Value, json};
use service_kit::settings::Limits;

use self::call::{Body, Call, Content, Parameter, Success, Tag, header, reference};
use crate::{docs::SCHEMAS, request::Need};

/// The prefix of all paths.
pub(crate) const BASE: &str = "/api/v1";

/// The document, with the limits that are in force.
pub(crate) fn document(limits: &Limits) -> Value {
    let calls = calls::all();
    let mut paths = json!({});
    for call in &calls {
        paths[call.path][call.method.as_str().to_lowercase()] = operation(call, limits);
    }
    let codes = errors::codes(&calls, limits);
    json!({
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "Webhook Notification Service",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Signed HTTPS callbacks for business events: the administrators' API.",
            "description": include_str!("openapi/introduction.md").trim_end(),
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": BASE, "description": "This service"}],
        "tags": Tag::ALL.map(Tag::words).map(|(name, about)| json!({"name": name, "description": about})),
        "security": [{"session": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"session": {
                "type": "apiKey", "in": "cookie", "name": "sessionid",
                "description": "The session of an administrator of the business application. Of several cookies of this name, the first such session counts, among three.",
            }},
            "headers": headers(),
            "responses": errors::all(&calls, limits),
            "schemas": schemas::all(limits, &codes),
        },
    })
}

fn operation(call: &Call, limits: &Limits) -> Value {
    let mut operation = json!({
        "operationId": call.id,
        "tags": [call.tag.words().0],
        "summary": call.summary,
        "description": call.description,
        "parameters": parameters(call),
    });
    if let Some(body) = &call.body {
        operation["requestBody"] = request_body(body);
    }
    let successes = [&call.success].into_iter().chain(&call.other_success);
    let mut responses: Map<_, _> =
        successes.map(|success| (success.status.to_string(), response(call, success))).collect();
    responses.extend(errors::references(call, limits));
    operation["responses"] = responses.into();
    if call.is_public() {
        operation["security"] = json!([]);
    }
    operation
}

fn parameters(call: &Call) -> Vec<Value> {
    let in_path = call.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).map(|name| {
        if name == "file" {
            let files = SCHEMAS.map(|(file, _)| file);
            return json!({"name": name, "in": "path", "required": true, "description": "The schema's file.",
                          "schema": {"type": "string", "enum": files}, "example": "event.schema.json"});
        }
        let (description, example) = match name {
            "delivery_id" => ("The delivery's id, which is also its `X-Service-Webhook-Id`.", examples::DELIVERY),
            "event_id" => ("The event's id, as its publisher named it.", examples::EVENT),
            "recovery_id" => ("The recovery's id.", examples::RECOVERY),
            _ => ("The webhook's id.", examples::WEBHOOK),
        };
        json!({"name": name, "in": "path", "required": true, "description": description,
               "schema": {"type": "string", "format": "uuid"}, "example": example})
    });
    let in_query = call.query.iter().map(|Parameter { name, description, schema, example }| {
        json!({"name": name, "in": "query", "required": false, "description": description, "schema": schema,
               "example": example})
    });
    in_path.chain(in_query).collect()
}

fn request_body(body: &Body) -> Value {
    let examples = body.examples.iter().map(|(name, value)| ((*name).to_owned(), json!({"value": value})));
    json!({
        "required": body.need == Need::Required,
        "content": {"application/json": {"schema": reference(body.schema), "examples": Map::from_iter(examples)}},
    })
}

fn response(call: &Call, success: &Success) -> Value {
    let Success { description, content, location, .. } = success;
    let mut headers = json!({"X-Request-Id": header("X-Request-Id")});
    if let Some(location) = location {
        headers["Location"] = json!({"description": location, "required": true,
                                     "schema": {"type": "string", "format": "uri-reference"}});
    }
    let mut response = json!({"description": description, "headers": headers});
    if let Some(Content { media_type, schema, example }) = content {
        let mut content = json!({"schema": schema});
        if let Some(example) = example {
            content["example"] = example.clone();
        }
        response["content"][*media_type] = content;
    }
    let links = call.links.iter().filter(|_| success.status == call.success.status);
    for (id, parameters) in links {
        response["links"][*id] = json!({"operationId": id, "parameters": parameters});
    }
    response
}

fn headers() -> Value {
    json!({
        "X-Request-Id": {
            "description": "The request's name in the service's logs: the caller's own, if it was 1 to 128 visible ASCII characters.",
            "required": true,
            "schema": {"type": "string", "minLength": 1, "maxLength": 128}, "example": examples::REQUEST,
        },
        "Retry-After": {
            "description": "Seconds to wait before trying again.", "required": true,
            "schema": {"type": "integer", "minimum": 1}, "example": 5,
        },
        "Allow": {
            "description": "The methods that are possible here.", "required": true,
            "schema": {"type": "string"}, "example": "GET, HEAD",
        },
        "WWW-Authenticate": {
            "description": "How to authenticate.", "required": true,
            "schema": {"type": "string"}, "example": r#"Cookie realm="webhooks", cookie-name="sessionid""#,
        },
    })
}

#[cfg(test)]
mod tests;
