//! The answers of a receiver.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::Received;

/// An answer to a request.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// How long to wait before answering.
    pub delay: Duration,
    /// What to wait for before answering.
    pub gate: Option<CancellationToken>,
    /// Further headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
    /// Never answer. The recorded status is 0.
    pub hang: bool,
    /// Close the connection instead of answering. The recorded status is 0.
    pub close: bool,
}

impl Reply {
    /// 200 at once.
    #[must_use]
    pub fn ok() -> Self {
        Self::status(200)
    }

    /// This status at once, without a body.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self {
            status,
            delay: Duration::ZERO,
            gate: None,
            headers: Vec::new(),
            body: Bytes::new(),
            hang: false,
            close: false,
        }
    }

    /// No answer, ever. The connection stays open.
    #[must_use]
    pub fn hang() -> Self {
        Self { hang: true, ..Self::status(0) }
    }

    /// No answer. The connection closes once the request is read.
    #[must_use]
    pub fn close() -> Self {
        Self { close: true, ..Self::status(0) }
    }

    /// Delays the answer.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// Holds the answer back until this is cancelled.
    #[must_use]
    pub fn once(self, gate: &CancellationToken) -> Self {
        Self { gate: Some(gate.clone()), ..self }
    }

    /// Adds a header, such as the `location` of a redirect.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(self, body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..self }
    }
}

/// Decides the answer from the request and its number, from 1, among those with the same `X-Service-Webhook-Id`.
pub type Behaviour = Arc<dyn Fn(&Received, usize) -> Reply + Send + Sync>;

/// Makes a [`Behaviour`] of a closure.
pub fn behaviour(decide: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static) -> Behaviour {
    Arc::new(decide)
}

/// Answers every request with this status.
#[must_use]
pub fn always(status: u16) -> Behaviour {
    behaviour(move |_, _| Reply::status(status))
}

/// Answers 500 to the first `failures` requests of every delivery, then 200.
#[must_use]
pub fn fails_then_succeeds(failures: usize) -> Behaviour {
    behaviour(move |_, nth| if nth <= failures { Reply::status(500) } else { Reply::ok() })
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::time::Instant;

    use super::*;
    use crate::receiver::{
        Receiver, TestCa,
        client::{ANSWER_TIMEOUT, ID, connect, post, request},
    };

    #[tokio::test]
    async fn a_hanging_receiver_records_and_a_wait_in_vain_says_what_arrived() {
        let ca = TestCa::new();
        let receiver = Receiver::start(&ca, behaviour(|_, _| Reply::hang()));
        let mut sender = connect(&ca, &receiver).await.unwrap();
        let answer = tokio::spawn(async move { post(&mut sender, ID).await });

        let received = receiver.wait_until(ANSWER_TIMEOUT, |received| !received.is_empty()).await;
        let summary = receiver.try_wait_until(Duration::from_millis(50), |_| false).await.unwrap_err();

        assert_eq!(received[0].status, 0);
        assert!(summary.contains("1 requests had arrived") && summary.contains(ID), "{summary}");
        assert!(!answer.is_finished());
        answer.abort();
    }

    #[tokio::test]
    async fn a_reply_carries_its_headers_and_body_after_its_delay() {
        let ca = TestCa::new();
        let delay = Duration::from_millis(30);
        let reply = Reply::status(302).header("location", "https://elsewhere/").body("gone").after(delay);
        let receiver = Receiver::start(&ca, behaviour(move |_, _| reply.clone()));
        let mut sender = connect(&ca, &receiver).await.unwrap();
        let start = Instant::now();

        let response = sender.send_request(request(ID)).await.unwrap();

        assert!(start.elapsed() >= delay);
        assert_eq!(
            (response.status().as_u16(), &response.headers()["location"]),
            (302, &"https://elsewhere/".parse().unwrap())
        );
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "gone");
    }
}
