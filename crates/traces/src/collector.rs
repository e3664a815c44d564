//! Requests to the collector. The library decides what is sent, and whether it is sent again.

use std::{
    error::Error,
    sync::atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use egress::{Internal, InternalError};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header::CONTENT_TYPE};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response, ResponseBodyTooLarge};
use tokio::runtime::Handle;

/// The HTTP client of the library's exporter.
#[derive(Debug)]
pub(crate) struct Collector {
    client: Internal,
    /// All headers of a request. Those that the library adds may be from variables `OTEL_…`, which are not settings.
    headers: HeaderMap,
    /// The library's thread has no runtime.
    runtime: Handle,
    /// True since a request failed, until one succeeds.
    is_failing: AtomicBool,
}

impl Collector {
    pub(crate) fn new(client: Internal, mut headers: HeaderMap) -> Self {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        Self { client, headers, runtime: Handle::current(), is_failing: AtomicBool::new(false) }
    }

    /// Logs once that the collector accepts no spans, and once that it accepts them again.
    fn log(&self, failure: Option<String>) {
        match (self.is_failing.swap(failure.is_some(), Ordering::Relaxed), failure) {
            (false, Some(why)) => tracing::warn!(
                why,
                "traces.endpoint (WEBHOOKS__TRACES__ENDPOINT): the collector accepts no spans; all else continues"
            ),
            (true, None) => tracing::info!("the collector accepts spans again"),
            _ => {}
        }
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (client, headers) = (self.client.clone(), self.headers.clone());
        let sent = async move { client.send(Method::POST, headers, request.into_body()).await };
        let sent = self.runtime.spawn(sent).await?;
        self.log(match &sent {
            Ok(answer) if matches!(answer.status, 200..300) => None,
            Ok(answer) => Some(format!("it answered {}", answer.status)),
            Err(error) => {
                let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
                Some(format!("{error}{cause}"))
            }
        });
        let answer = sent.map_err(|error| match error {
            // The collector has the spans, or refuses them: the library does not send them again.
            InternalError::TooLarge(_) => ResponseBodyTooLarge::new().into(),
            other => HttpError::from(other),
        })?;
        let mut response = Response::new(answer.body);
        *response.status_mut() = StatusCode::from_u16(answer.status)?;
        *response.headers_mut() = answer.headers;
        Ok(response)
    }
}
