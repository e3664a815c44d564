//! The outermost middleware. It gives every answer a request id, headers, the body of an error, a line in the log and
//! metrics.

mod request_id;
pub(crate) mod unread_body;

use std::time::Instant;

use actix_web::{
    Error,
    body::{BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
    middleware::Next,
    web::Data,
};
use traces::{Span, Traces};
use tracing::{Instrument, field::Empty};

use self::request_id::{REQUEST_ID_HEADER, RequestId};
use crate::{
    http::{ApiError, problem, span},
    metrics::{Labels, Metrics, method_label},
    pages,
};

/// The route's name in logs and metrics when no route matches.
pub(crate) const UNMATCHED_ROUTE: &str = "unmatched";

/// Answers hold secrets or live figures and are no pages. The one page sets its own policy, which stays.
const ANSWER_HEADERS: [(&str, &str); 5] = [
    ("cache-control", "no-store"),
    ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
];

/// The outermost middleware.
pub(crate) async fn complete(
    metrics: Data<Metrics>,
    traces: Data<Traces>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let begun = Instant::now();
    let id = RequestId::of(request.headers());
    let traced = span::begin(&traces, &request);
    let logged = tracing::info_span!("request", request_id = id.as_str(), traceparent = Empty);
    if let Some(traced) = &traced {
        logged.record("traceparent", traced.traceparent().as_str());
    }
    let answering = async {
        let answered = next.call(request).await?.map_into_boxed_body();
        let mut answered = with_body(answered, id.as_str());
        pages::problem::dress(&mut answered);
        dress(answered.headers_mut(), &id);
        observe(&metrics, &answered, begun, traced);
        Ok(answered)
    };
    answering.instrument(logged).await
}

/// Gives an error its body. An error that is no `ApiError` is unexpected.
fn with_body(answered: ServiceResponse, request_id: &str) -> ServiceResponse {
    let Some(error) = answered.response().error() else { return answered };
    let Some(error) = error.as_error::<ApiError>() else {
        let foreign = ApiError::unexpected(error.to_string());
        let (request, _) = answered.into_parts();
        return with_body(ServiceResponse::from_err(foreign, request), request_id);
    };
    error.log();
    let (kind, body) = if pages::problem::is_for(answered.request().path()) {
        ("text/html; charset=utf-8", pages::problem::render(error, answered.request(), request_id))
    } else {
        ("application/problem+json", problem::body::text(error, request_id))
    };
    answered.map_body(|head, _| {
        head.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        BoxBody::new(body)
    })
}

fn dress(headers: &mut HeaderMap, id: &RequestId) {
    for (name, value) in ANSWER_HEADERS {
        if !headers.contains_key(name) {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
    }
    headers.insert(REQUEST_ID_HEADER, id.header());
}

/// Records route and method, which are from closed sets, but never the path, query string, cookie or body.
fn observe(metrics: &Metrics, answered: &ServiceResponse, begun: Instant, traced: Option<Span>) {
    let took = begun.elapsed();
    let route = answered.request().match_pattern();
    let is_matched = route.is_some();
    let labels = Labels {
        route: route.unwrap_or_else(|| UNMATCHED_ROUTE.to_owned()),
        method: method_label(answered.request().method()),
        status: answered.status().as_u16(),
    };
    tracing::info!(
        method = labels.method,
        route = labels.route,
        status = labels.status,
        ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "answered"
    );
    span::end(traced, &labels, is_matched);
    metrics.observe(labels, took);
}
