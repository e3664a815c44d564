//! The errors that a call can answer with, as the code would render them.

use std::{collections::BTreeMap, time::Duration};

use actix_web::http::Method;
use broker::PublishError;
use ledger::LedgerError;
use serde_json::{Map, Value, json};
use service_kit::settings::Limits;

use super::{Call, Need, PROBLEM, examples, header, reference};
use crate::{
    fault::Fault,
    problem::{self, ApiError},
};

/// Every code of the API, each once.
pub(super) fn codes(calls: &[Call], limits: &Limits) -> Vec<&'static str> {
    let errors = calls.iter().flat_map(|call| of(call, limits)).chain([ApiError::MethodNotAllowed("GET, HEAD")]);
    let more = calls.iter().flat_map(|call| &call.refusals).map(|error| error.kind().1);
    let mut codes: Vec<_> = errors.map(|error| error.kind().1).chain(more).collect();
    codes.sort_unstable();
    codes.dedup();
    codes
}

/// A call's errors by their statuses.
pub(super) fn responses(call: &Call, limits: &Limits) -> Map<String, Value> {
    let common = of(call, limits);
    let mut by_status = BTreeMap::<u16, Vec<&ApiError>>::new();
    for error in common.iter().chain(&call.refusals) {
        by_status.entry(error.kind().0.as_u16()).or_default().push(error);
    }
    by_status.into_iter().map(|(status, errors)| (status.to_string(), response(&errors))).collect()
}

/// No call that is described can give it.
pub(super) fn method_not_allowed() -> Value {
    response(&[&ApiError::MethodNotAllowed("GET, HEAD")])
}

/// What follows from the kind of call: a session, a write, ids, parameters, a body.
fn of(call: &Call, limits: &Limits) -> Vec<ApiError> {
    if call.is_public() {
        return Vec::new();
    }
    let mut errors = vec![
        ApiError::NotLoggedIn,
        ApiError::NotAnAdmin,
        ApiError::TooManyRequests(Duration::from_secs(2)),
        ApiError::Unavailable(LedgerError::Timeout(Duration::ZERO)),
        ApiError::unexpected("an example"),
    ];
    if call.method != Method::GET {
        errors.push(ApiError::CrossSite("Sec-Fetch-Site"));
    }
    if call.path.contains('{') {
        errors.push(ApiError::NotFound);
    }
    if !call.query.is_empty() {
        let fault = Fault::new("limit", "invalid_limit", "must be a whole number from 1 to 200");
        errors.push(ApiError::Parameters(vec![fault]));
    }
    if let Some(body) = &call.body {
        errors.extend(malformed_json());
        errors.push(ApiError::IncompleteBody);
        errors.push(ApiError::BodyTooSlow(crate::json::PATIENCE));
        errors.push(ApiError::BodyTooLarge(limits.request_body_bytes));
        errors.push(ApiError::MediaType);
        errors.push(ApiError::Fields(match body.need {
            Need::Required => vec![Fault::new("name", "required", "is required")],
            Need::Optional => vec![Fault::new("sample", "unknown_field", "is unknown here")],
        }));
    }
    errors
}

fn malformed_json() -> Option<ApiError> {
    serde_json::from_str::<Value>("{\"name\": }").err().map(ApiError::MalformedJson)
}

pub(super) fn broker_away() -> ApiError {
    ApiError::BrokerAway(PublishError::NotConnected)
}

fn response(errors: &[&ApiError]) -> Value {
    let mut headers = json!({"X-Request-Id": header("X-Request-Id")});
    let mut samples = Map::new();
    let mut described = Vec::new();
    for error in errors {
        let code = error.kind().1;
        described.push(format!("`{code}`: {}.", when(error)));
        let name = if samples.contains_key(code) { format!("{code}_2") } else { code.to_owned() };
        let body: Value = serde_json::from_str(&problem::text(error, examples::REQUEST)).unwrap_or_default();
        samples.insert(name, json!({"value": body}));
        if let Some(name) = header_of(error) {
            headers[name] = header(name);
        }
    }
    json!({
        "description": described.join("\n\n"),
        "headers": headers,
        "content": {"application/problem+json": {"schema": reference(PROBLEM), "examples": samples}},
    })
}

fn header_of(error: &ApiError) -> Option<&'static str> {
    let (name, _) = error.header()?;
    ["Allow", "Retry-After", "WWW-Authenticate"].into_iter().find(|known| name == *known)
}

/// When the error comes. Exhaustive, so that a new one is described.
const fn when(error: &ApiError) -> &'static str {
    match error {
        ApiError::NotLoggedIn => "the cookie `sessionid` is missing, unknown or expired",
        ApiError::NotAnAdmin => "the session is not an administrator's",
        ApiError::CrossSite(_) => "a browser sent this from another site's page",
        ApiError::NotFound => "there is nothing of that id, or it belongs to another tenant",
        ApiError::MethodNotAllowed(_) => "the path does not take this method; `Allow` says which it takes",
        ApiError::BodyTooSlow(_) => "the body did not arrive in time",
        ApiError::TooManyWebhooks(_) => "the tenant has as many webhooks as it may have",
        ApiError::WebhookInactive => "the webhook is paused",
        ApiError::BodyTooLarge(_) => "the body is larger than it may be",
        ApiError::MediaType => "the body does not say that it is JSON, or is compressed",
        ApiError::MalformedJson(_) => "the body is not JSON; `detail` says where it goes wrong",
        ApiError::IncompleteBody => "the body broke off",
        ApiError::Parameters(_) => "parameters are unknown, repeated or unusable; `errors` names each",
        ApiError::Fields(_) => "fields are unknown, missing, repeated or unusable; `errors` names each",
        ApiError::TooManyRequests(_) => "the session makes requests too fast; `Retry-After` says when to go on",
        ApiError::Unavailable(_) => "the database, or whoever knows the sessions, does not answer; nothing was changed",
        ApiError::SessionUnknown(_) => "nobody can tell at the moment who is logged in",
        ApiError::BrokerAway(_) => "the message broker is away; nothing was begun",
        ApiError::Unexpected(_) => "something went wrong that should not; operators find it under `request_id`",
    }
}
