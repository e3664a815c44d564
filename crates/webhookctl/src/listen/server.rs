//! The HTTPS server.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use domain::is_reserved;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode, body::Incoming, header::HeaderName, server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use signing::SigningSecret;
use time::OffsetDateTime;
use tls::TlsAcceptor;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::connect::LONGEST_BODY;

use super::{
    answers::{Answers, ReceiverAnswer},
    screen::{Screen, Shown},
    verdict::Verdicts,
};

/// How long a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// What requests get to end after a signal.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Receives, verifies, shows and answers.
pub(super) struct Server {
    pub(super) screen: Screen,
    pub(super) secret: Option<SigningSecret>,
    pub(super) answers: Answers,
    /// Cancelled at the end.
    pub(super) stop: CancellationToken,
    /// The number of attempts of each delivery.
    pub(super) attempts: Mutex<HashMap<String, u32>>,
}

impl Server {
    /// Serves until the stop, and then what has begun for a second.
    pub(super) async fn serve(self: Arc<Self>, listener: TcpListener, tls: TlsAcceptor) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = self.stop.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        connections.spawn(Arc::clone(&self).converse(stream, peer, tls.clone()));
                    }
                    // Out of file descriptors, for example: connections that end make room.
                    Err(error) => {
                        self.screen.no_connection("a client", error);
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
        drop(listener);
        let _ = timeout(SHUTDOWN_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await;
        connections.shutdown().await;
    }

    async fn converse(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, tls: TlsAcceptor) {
        let _ = stream.set_nodelay(true);
        let stream = match timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return self.screen.no_tls(peer, &error),
            Err(_) => return self.screen.no_connection(peer, "the client did not complete the TLS handshake"),
        };
        let server = Arc::clone(&self);
        let service = service_fn(move |request| {
            let server = Arc::clone(&server);
            async move { Ok::<_, Infallible>(server.receive(request).await) }
        });
        let mut http = http1::Builder::new();
        let connection = http.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        // A connection that breaks off is shown where that is noticed.
        tokio::select! {
            _ = connection.as_mut() => {}
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        }
    }

    async fn receive(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let what = format!("{} {}", head.method, head.uri);
        if head.method != Method::POST {
            return self.refuse(&what, 405, "a delivery is a POST");
        }
        let body = match Limited::new(body, LONGEST_BODY).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return self.refuse(&what, 413, "the body is larger than 16 MiB");
            }
            Err(_) => return self.refuse(&what, 400, "the body is incomplete"),
        };
        let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (delivery, event) = (header("x-service-webhook-id"), header("x-service-event"));
        if delivery.is_empty() || event.is_empty() {
            return self.refuse(&what, 400, "not a delivery: X-Service-Webhook-Id or X-Service-Event is missing");
        }
        let began = Instant::now();
        let nth = self.count(delivery);
        let now = OffsetDateTime::now_utc().unix_timestamp();
        let verdicts = Verdicts::on(&head.headers, &body, self.secret.as_ref(), now);
        let shown = Shown {
            event,
            delivery,
            event_id: header("x-service-event-id"),
            attempt: header("x-service-attempt"),
            is_test: head.headers.contains_key("x-service-test"),
            nth,
            own_headers: own_headers(&head.headers),
            verdicts: &verdicts,
            body: &body,
        };
        self.screen.arrived(&shown);
        let mut unanswered = Unanswered { server: self, delivery, began, is_answered: false };
        let answer = self.answers.to(&head.headers, &body, nth).await;
        unanswered.is_answered = true;
        self.screen.answered(delivery, &answer, began.elapsed());
        response(answer)
    }

    /// Counts an attempt of a delivery.
    fn count(&self, delivery: &str) -> u32 {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let nth = attempts.entry(delivery.to_owned()).or_default();
        *nth += 1;
        *nth
    }

    fn refuse(&self, what: &str, status: u16, why: &str) -> Response<Full<Bytes>> {
        self.screen.refused(what, status, why);
        response(ReceiverAnswer::with(status, why.to_owned()))
    }
}

/// The names of the webhook's own headers. A proxy in between may have added some.
fn own_headers(headers: &HeaderMap) -> Vec<&str> {
    headers.keys().map(HeaderName::as_str).filter(|name| !is_reserved(name)).collect()
}

/// Says that there was no answer: the server drops a request when the service hangs up, and at the end.
struct Unanswered<'r> {
    server: &'r Server,
    delivery: &'r str,
    began: Instant,
    is_answered: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            let why =
                if self.server.stop.is_cancelled() { "this run ended" } else { "the service closed the connection" };
            self.server.screen.unanswered(self.delivery, why, self.began.elapsed());
        }
    }
}

fn response(answer: ReceiverAnswer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_GATEWAY);
    *response.headers_mut() = answer.headers;
    response
}
