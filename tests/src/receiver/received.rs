//! The requests that arrive.

use std::fmt::Write as _;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{Request, body::Incoming};
use time::OffsetDateTime;

/// A request that arrived, and its answer's status.
#[derive(Clone, Debug)]
pub struct Received {
    /// When its body was complete.
    pub at: OffsetDateTime,
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The headers as they came, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The exact body.
    pub body: Bytes,
    /// The status of the answer. It is 0 while a [`Behaviour`](super::Behaviour) looks at the request, and for a
    /// request that is never answered.
    pub status: u16,
}

impl Received {
    /// The first value of a header, whatever the case of its name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(super) async fn read(request: Request<Incoming>) -> hyper::Result<Self> {
        let (head, body) = request.into_parts();
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let body = body.collect().await?.to_bytes();
        Ok(Self {
            at: OffsetDateTime::now_utc(),
            method: head.method.to_string(),
            path: head.uri.path_and_query().map_or_else(String::new, ToString::to_string),
            headers: head.headers.iter().map(|(name, value)| (name.to_string(), text(value.as_bytes()))).collect(),
            body,
            status: 0,
        })
    }
}

/// How many of the last requests a failed wait shows.
const SHOWN_REQUESTS: usize = 20;

/// The last requests, as lines for a person.
pub(super) fn summary(received: &[Received]) -> String {
    let mut text = format!("{} requests had arrived", received.len());
    let skipped = received.len().saturating_sub(SHOWN_REQUESTS);
    if skipped > 0 {
        let _ = write!(text, ", the last {SHOWN_REQUESTS}");
    }
    for request in &received[skipped..] {
        let header = |name| request.header(name).unwrap_or("-");
        let Received { at, method, path, status, .. } = request;
        let (id, event) = (header("x-service-webhook-id"), header("x-service-event"));
        let _ = write!(text, "\n  {at} {method} {path} {event} {id} -> {status}");
    }
    text
}
