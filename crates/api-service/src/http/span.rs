//! What a collector is told of a request: a server's span by OpenTelemetry's conventions for HTTP. It holds nothing of
//! the body, a header or the URL, only the route, which is one of few: a path may hold anything.

use std::future::{Ready, ready};

use actix_web::{
    Error, FromRequest, HttpMessage, HttpRequest,
    dev::{Payload, ServiceRequest},
    http::header::HeaderMap,
};
use domain::Traceparent;
use time::OffsetDateTime;
use traces::{Kind, Span, Traces};

use crate::metrics::Labels;

const TRACEPARENT_HEADER: &str = "traceparent";

/// The trace that a request belongs to, if it is recorded. Events that it makes go on with it.
#[derive(Clone, Default)]
pub(crate) struct Trace(pub(crate) Option<Traceparent>);

impl FromRequest for Trace {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(request.extensions().get().cloned().unwrap_or_default()))
    }
}

/// Begins the span of a request. Anybody may have sent its `traceparent`.
pub(crate) fn begin(traces: &Traces, request: &ServiceRequest) -> Option<Span> {
    if !traces.are_on() {
        return None;
    }
    let parent = parent(request.headers());
    let span = traces.begin_for_anybody(Kind::Server, parent.as_ref(), OffsetDateTime::now_utc())?;
    request.extensions_mut().insert(Trace(Some(span.traceparent())));
    Some(span)
}

/// Ends it with the head of the answer.
pub(crate) fn end(span: Option<Span>, Labels { route, method, status }: &Labels, is_matched: bool) {
    let Some(mut span) = span else { return };
    // The conventions' words for a method that a client has invented.
    let (method, named) = if *method == "other" { ("_OTHER", "HTTP") } else { (*method, *method) };
    span.set("http.request.method", method);
    span.set("url.scheme", "http");
    if is_matched {
        span.name(format!("{named} {route}"));
        span.set("http.route", route.clone());
    } else {
        span.name(named);
    }
    span.set("http.response.status_code", i64::from(*status));
    if *status >= 500 {
        span.fail(status.to_string());
    }
    span.end(OffsetDateTime::now_utc());
}

/// The one `traceparent` of a request. Several are none.
fn parent(headers: &HeaderMap) -> Option<Traceparent> {
    let mut values = headers.get_all(TRACEPARENT_HEADER);
    let value = values.next().filter(|_| values.next().is_none())?;
    Traceparent::parse(value.to_str().ok()?)
}
