//! The process of the receivers.

use std::{
    collections::HashMap,
    convert::Infallible,
    io::BufRead,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::load::{sent_at, unix_micros};

/// How many bytes of a body are kept, to find in them when it was to be sent.
const MAX_KEPT_BYTES: usize = 512;

/// The time for which the connection of an unread request is kept: longer than any attempt.
const UNREAD_FOR: Duration = Duration::from_secs(15);

#[derive(Default)]
struct State {
    requests: AtomicU64,
    /// Microseconds from the time in the body to the arrival, by group.
    latencies: Mutex<HashMap<String, Vec<u64>>>,
}

/// Serves until standard input ends. Writes the certificate to the file `ca`.
pub(crate) async fn serve(ca: &str) {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let identity = rcgen::generate_simple_self_signed(names).expect("a certificate can be made");
    std::fs::write(ca, identity.cert.pem()).expect("the certificate can be written");
    let acceptor = acceptor(&identity);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
    println!("{}", listener.local_addr().expect("a listener has an address").port());
    let state = Arc::<State>::default();
    tokio::spawn(accept(listener, acceptor, Arc::clone(&state)));
    let answering = tokio::task::spawn_blocking(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            println!("{}", state.answer(&line));
        }
    });
    answering.await.expect("answering does not panic");
}

/// The TLS server. Clients resume sessions with tickets.
fn acceptor(identity: &rcgen::CertifiedKey<rcgen::KeyPair>) -> TlsAcceptor {
    let key = PrivatePkcs8KeyDer::from(identity.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has the default versions of TLS")
        .with_no_client_auth()
        .with_single_cert(vec![identity.cert.der().clone()], key.into())
        .expect("the certificate belongs to the key");
    config.ticketer = rustls::crypto::ring::Ticketer::new().expect("ring makes tickets");
    TlsAcceptor::from(Arc::new(config))
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, state: Arc<State>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (acceptor, state) = (acceptor.clone(), Arc::clone(&state));
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(|request| Arc::clone(&state).respond(request));
            let server = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
            let _ = server.await;
        });
    }
}

impl State {
    async fn respond(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
        let (parts, mut body) = request.into_parts();
        if parts.uri.path().starts_with("/unread/") {
            self.requests.fetch_add(1, Relaxed);
            // The body is kept, so that the connection stays as it is.
            tokio::spawn(async move {
                tokio::time::sleep(UNREAD_FOR).await;
                drop(body);
            });
            return Ok(Response::new(Empty::new()));
        }
        let mut head = Vec::with_capacity(MAX_KEPT_BYTES);
        while let Some(frame) = body.frame().await {
            match frame.map(hyper::body::Frame::into_data) {
                Ok(Ok(data)) => head.extend_from_slice(&data[..data.len().min(MAX_KEPT_BYTES - head.len())]),
                Ok(Err(_)) => {}
                Err(_) => std::future::pending().await,
            }
        }
        let now = unix_micros();
        let mut path = parts.uri.path().split('/').skip(1);
        let (behaviour, group) = (path.next().unwrap_or_default(), path.next().unwrap_or_default());
        self.arrived(group, sent_at(&head).map_or(0, |sent| now.saturating_sub(sent)));
        if behaviour == "hang" {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(Empty::new()))
    }

    fn arrived(&self, group: &str, latency: u64) {
        let mut latencies = self.latencies.lock().unwrap_or_else(PoisonError::into_inner);
        match latencies.get_mut(group) {
            Some(group) => group.push(latency),
            None => drop(latencies.insert(group.to_owned(), vec![latency])),
        }
        drop(latencies);
        self.requests.fetch_add(1, Relaxed);
    }

    fn answer(&self, question: &str) -> String {
        let (verb, group) = question.split_once(' ').unwrap_or((question, ""));
        let mut latencies = self.latencies.lock().unwrap_or_else(PoisonError::into_inner);
        match verb {
            "requests" => self.requests.load(Relaxed).to_string(),
            "arrived" => latencies.get(group).map_or(0, Vec::len).to_string(),
            "take" => {
                let taken = latencies.remove(group).unwrap_or_default();
                taken.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
            }
            other => panic!("an unknown question: {other}"),
        }
    }
}
