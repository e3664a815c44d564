//! The answers to the three routes.

use bytes::Bytes;
use domain::error_chain;
use http_body_util::Full;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Response, StatusCode};
use prometheus_client::encoding::text;

use super::Served;

type OpsResponse = Response<Full<Bytes>>;

const TEXT_TYPE: &str = "text/plain; charset=utf-8";
const JSON_TYPE: &str = "application/json";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The answer to HEAD has a body here, which hyper leaves out.
pub(super) async fn answer(method: &Method, path: &str, served: &Served) -> OpsResponse {
    if !matches!(path, "/healthz" | "/readyz" | "/metrics") {
        return respond(StatusCode::NOT_FOUND, TEXT_TYPE, "not found\n");
    }
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut refusal = respond(StatusCode::METHOD_NOT_ALLOWED, TEXT_TYPE, "method not allowed\n");
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    match path {
        "/readyz" => ready(served).await,
        "/metrics" => metrics(served).await,
        _ => respond(StatusCode::OK, TEXT_TYPE, "ok"),
    }
}

async fn ready(served: &Served) -> OpsResponse {
    let report = served.readiness.report().await;
    let status = if report.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    // Texts by name always serialize.
    respond(status, JSON_TYPE, serde_json::to_vec(&report).unwrap_or_default())
}

/// Runs the checks first, so that the gauges of readiness are as fresh as the others.
async fn metrics(served: &Served) -> OpsResponse {
    served.readiness.report().await;
    let mut body = String::new();
    if let Err(error) = text::encode(&mut body, &served.registry) {
        tracing::error!(error = error_chain(&error), "ops server cannot encode its answer");
        return respond(StatusCode::INTERNAL_SERVER_ERROR, TEXT_TYPE, "internal error\n");
    }
    respond(StatusCode::OK, OPEN_METRICS, body)
}

fn respond(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> OpsResponse {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
