//! The errors that a call can answer with, as the service renders them.

use std::{collections::BTreeMap, time::Duration};

use actix_web::http::Method;
use ledger::LedgerError;
use serde_json::{Map, Value, json};
use service_kit::settings::Limits;

use super::{
    call::{Call, PROBLEM, header, reference},
    examples,
};
use crate::{
    authentication::cross_site,
    problem::{self, ApiError},
    request::{LONGEST_QUERY, PATIENCE},
    violation::Violation,
};

/// No described call gives this error, but its path can.
pub(super) const METHOD_NOT_ALLOWED: &str = "405.method_not_allowed";

/// Every code of the API, each once.
pub(super) fn codes(calls: &[Call], limits: &Limits) -> Vec<&'static str> {
    let errors = calls.iter().flat_map(|call| of(call, limits)).chain([ApiError::MethodNotAllowed("GET, HEAD")]);
    let mut codes: Vec<_> = errors.map(|error| error.kind().1).collect();
    codes.sort_unstable();
    codes.dedup();
    codes
}

/// Every error answer, by its name.
pub(super) fn all(calls: &[Call], limits: &Limits) -> Value {
    let mut all =
        BTreeMap::from([(METHOD_NOT_ALLOWED.to_owned(), response(&[ApiError::MethodNotAllowed("GET, HEAD")]))]);
    for errors in calls.iter().flat_map(|call| by_status(call, limits).into_values()) {
        all.entry(name(&errors)).or_insert_with(|| response(&errors));
    }
    Map::from_iter(all).into()
}

/// A call's errors, as references into [`all`].
pub(super) fn references(call: &Call, limits: &Limits) -> Map<String, Value> {
    let by_status = by_status(call, limits).into_iter();
    let reference = |errors: &[ApiError]| json!({"$ref": format!("#/components/responses/{}", name(errors))});
    by_status.map(|(status, errors)| (status.to_string(), reference(&errors))).collect()
}

fn by_status(call: &Call, limits: &Limits) -> BTreeMap<u16, Vec<ApiError>> {
    let mut by_status = BTreeMap::<u16, Vec<ApiError>>::new();
    for error in of(call, limits) {
        by_status.entry(error.kind().0.as_u16()).or_default().push(error);
    }
    by_status
}

/// For example `403.not_an_admin.cross_site`.
fn name(errors: &[ApiError]) -> String {
    let status = errors.first().map_or(0, |error| error.kind().0.as_u16());
    errors.iter().fold(status.to_string(), |name, error| format!("{name}.{}", error.kind().1))
}

/// A call's own errors, and those of its kind: a session, a write, ids, parameters, a body.
fn of(call: &Call, limits: &Limits) -> Vec<ApiError> {
    if call.is_public() {
        return if call.path.contains('{') { vec![ApiError::NotFound] } else { Vec::new() };
    }
    let mut errors = vec![
        ApiError::NotLoggedIn,
        ApiError::NotAnAdmin,
        ApiError::TooManyRequests(Duration::from_secs(2)),
        ApiError::Unavailable(LedgerError::Timeout(Duration::ZERO)),
        ApiError::Crowded,
        ApiError::unexpected("an example"),
    ];
    if call.method != Method::GET {
        errors.push(ApiError::Unconfirmed(LedgerError::Timeout(Duration::ZERO)));
        errors.push(cross_site::of_another_site("cross-site"));
    }
    if call.path.contains('{') {
        errors.push(ApiError::NotFound);
    }
    if !call.query.is_empty() {
        let violation = Violation::new("limit", "invalid_limit", "must be a whole number from 1 to 200");
        errors.push(ApiError::Parameters(vec![violation]));
        errors.push(ApiError::QueryTooLong(LONGEST_QUERY));
    }
    if call.body.is_some() {
        errors.extend(malformed_json());
        errors.push(ApiError::IncompleteBody);
        errors.push(ApiError::BodyTooSlow(PATIENCE));
        errors.push(ApiError::BodyTooLarge(limits.request_body_bytes));
        errors.push(ApiError::MediaType);
        errors.push(ApiError::Fields(vec![Violation::new("colour", "unknown_field", "is unknown here")]));
    }
    errors.extend(call.refusals.iter().map(|refusal| refusal(limits)));
    errors
}

fn malformed_json() -> Option<ApiError> {
    serde_json::from_str::<Value>("{\"name\": }").err().map(ApiError::MalformedJson)
}

pub(super) fn recovering(_: &Limits) -> ApiError {
    ApiError::Recovering(format!("/api/v1/webhooks/{}/recover/{}/", examples::WEBHOOK, examples::RECOVERY))
}

fn response(errors: &[ApiError]) -> Value {
    let mut headers = json!({"X-Request-Id": header("X-Request-Id")});
    let mut samples = Map::new();
    let mut described = Vec::new();
    for error in errors {
        let code = error.kind().1;
        described.push(format!("`{code}`: {}.", when(error)));
        let same = samples.keys().filter(|name| name.starts_with(code)).count();
        let name = if same == 0 { code.to_owned() } else { format!("{code}_{}", same + 1) };
        let body: Value = serde_json::from_str(&problem::body::text(error, examples::REQUEST)).unwrap_or_default();
        samples.insert(name, json!({"value": body}));
        if let ApiError::Recovering(_) = error {
            headers["Location"] = json!({
                "description": "With `recovering`: the path of the running recovery.", "required": false,
                "schema": {"type": "string", "format": "uri-reference"},
            });
        }
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

/// When the error occurs. Exhaustive, so that a new error is described.
const fn when(error: &ApiError) -> &'static str {
    match error {
        ApiError::NotLoggedIn => "the cookie `sessionid` is missing, unknown or expired",
        ApiError::NotAnAdmin => "the session is not an administrator's",
        ApiError::CrossSite(..) => "a browser sent this from another site's page",
        ApiError::NotFound => "the id does not exist, belongs to another tenant, or expired with the retention period",
        ApiError::UnknownEvent => "the tenant has no event with this id; `detail` lists the possible reasons",
        ApiError::MethodNotAllowed(_) => "the path does not support the method; `Allow` lists those that it supports",
        ApiError::BodyTooSlow(_) => "the body did not arrive in time",
        ApiError::TooManyWebhooks(_) => "the tenant has the maximum number of webhooks",
        ApiError::TooManyDeleted(_) => {
            "the tenant has deleted ten times the maximum number of webhooks, and their logs are still kept"
        }
        ApiError::RegisteredBefore => "this form of the console has already registered a webhook",
        ApiError::StaleForm => "this form of the console belongs to another session, or to none",
        ApiError::TooOld => "the delivery is older than the retention period",
        ApiError::BodyExpired => "the body has expired: a resend or a recovery has nothing to send",
        ApiError::TooOften => "the delivery has had 1,000 attempts",
        ApiError::Cancelling => {
            "the webhook's waiting deliveries are being cancelled; wait until `is_cancelling` is false"
        }
        ApiError::Recovering(_) => {
            "a recovery of the webhook is already running, and a second one did not begin; `Location` leads to its progress"
        }
        ApiError::WebhookInactive => "the webhook is paused",
        ApiError::BodyTooLarge(_) => "the body is larger than the maximum",
        ApiError::MediaType => "`Content-Type` is not `application/json`, or the body is compressed",
        ApiError::MalformedJson(_) => "the body is not JSON; `detail` shows where",
        ApiError::IncompleteBody => "the body did not arrive completely",
        ApiError::QueryTooLong(_) => "the query string is longer than the maximum",
        ApiError::Parameters(_) => "parameters are unknown, repeated or invalid; `errors` lists each",
        ApiError::Fields(_) => "fields are unknown, missing, repeated or invalid; `errors` lists each",
        ApiError::TooManyRequests(_) => "the tenant has made too many requests; `Retry-After` says when to try again",
        ApiError::Unavailable(_) => "the database or the session service does not answer; nothing was changed",
        ApiError::Unconfirmed(_) => {
            "the database did not confirm the change in time, and it may have been made: check before you try again"
        }
        ApiError::Crowded => "too many new sessions are being checked; known sessions do not wait",
        ApiError::SessionUnknown(_) => "sessions cannot be checked at the moment",
        ApiError::Unexpected(_) => "the service failed unexpectedly; operators find the cause under `request_id`",
    }
}
