//! What the receiver answers.

use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use domain::error_chain;
use egress::{Internal, InternalAnswer};
use hyper::{
    HeaderMap, Method,
    header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, TE, TRAILER, TRANSFER_ENCODING, UPGRADE},
};

use super::Arguments;
use crate::connect;

/// The longest time for a developer's program. The service waits for less.
pub(super) const PROGRAM_TIMEOUT: Duration = Duration::from_secs(120);

/// Headers about one connection: they are not handed on, and neither are those that `Connection` names.
const CONNECTION_HEADERS: [HeaderName; 10] = [
    HOST,
    CONNECTION,
    CONTENT_LENGTH,
    TRANSFER_ENCODING,
    EXPECT,
    TE,
    TRAILER,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// An answer, and what the developer should know of it.
pub(super) struct ReceiverAnswer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Why the answer is our own, although the developer's program should have given it.
    pub(super) fault: Option<String>,
}

impl ReceiverAnswer {
    /// A status with a line of text.
    pub(super) fn with(status: u16, text: String) -> Self {
        Self { status, headers: HeaderMap::new(), body: text.into(), fault: None }
    }
}

/// How to answer.
pub(super) struct Answers {
    delay: Duration,
    /// The status of the first `attempts` attempts of each delivery. The next ones get 200.
    status: u16,
    attempts: u32,
    /// The developer's program, if it answers.
    program: Option<Internal>,
}

impl Answers {
    pub(super) fn new(Arguments { forward, delay, status, attempts, .. }: &Arguments) -> anyhow::Result<Self> {
        let program =
            |url: &String| connect::client(url, PROGRAM_TIMEOUT, None).with_context(|| format!("--forward {url}"));
        let program = forward.as_ref().map(program).transpose()?;
        Ok(Self { delay: *delay, status: *status, attempts: attempts.unwrap_or(u32::MAX), program })
    }

    /// The answer to the `nth` attempt of a delivery, from 1.
    pub(super) async fn to(&self, headers: &HeaderMap, body: &Bytes, nth: u32) -> ReceiverAnswer {
        tokio::time::sleep(self.delay).await;
        let Some(program) = &self.program else {
            return ReceiverAnswer::with(if nth <= self.attempts { self.status } else { 200 }, String::new());
        };
        match program.send(Method::POST, of_the_message(headers), body.clone()).await {
            Ok(InternalAnswer { status, headers, body }) => {
                ReceiverAnswer { status, headers: of_the_message(&headers), body, fault: None }
            }
            Err(error) => {
                let fault = format!("--forward: {}", error_chain(&error));
                ReceiverAnswer { fault: Some(fault.clone()), ..ReceiverAnswer::with(502, fault) }
            }
        }
    }
}

fn of_the_message(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    let named = headers.get_all(CONNECTION).into_iter().filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> =
        named.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect();
    for name in CONNECTION_HEADERS.into_iter().chain(named) {
        headers.remove(name);
    }
    headers
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn what_is_about_one_connection_is_not_handed_on() {
        let pairs = [
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("transfer-encoding", "chunked"),
            ("x-service-event", "quote.closed"),
        ];
        let headers: HeaderMap =
            pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect();
        let kept: Vec<_> = of_the_message(&headers).keys().map(|name| name.as_str().to_owned()).collect();
        assert_eq!(kept, ["x-service-event"]);
    }
}
