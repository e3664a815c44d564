//! A receiver of deliveries over real TLS, for tests, the demonstration and the measurements.
//!
//! It plays an outsider: it checks what it gets with its own computation of the signature, not with our crate.

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt::Write as _,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use ring::hmac;
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::Value;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::{Instant, timeout_at},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// A certificate authority that lives as long as a test: give its file to `WEBHOOKS__EGRESS__EXTRA_CA_FILE`.
#[derive(Debug)]
pub struct TestCa {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Default for TestCa {
    fn default() -> Self {
        Self::new()
    }
}

impl TestCa {
    /// A new authority with a key of its own.
    #[must_use]
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "Authority of the webhook tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key can be made");
        let pem = params.self_signed(&key).expect("an authority signs itself").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// The authority's certificate as PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Writes the certificate to `ca.pem` in the directory (made if it is missing) and gives the file's path.
    pub fn write_to(&self, dir: impl AsRef<Path>) -> PathBuf {
        let path = dir.as_ref().join("ca.pem");
        fs::create_dir_all(dir.as_ref()).expect("the directory can be made");
        fs::write(&path, &self.pem).expect("the authority's certificate can be written");
        path
    }

    /// A TLS server for `localhost` and `127.0.0.1`, on the ring provider whatever other features pull in.
    fn acceptor(&self) -> TlsAcceptor {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("the names are valid");
        params.distinguished_name.push(DnType::CommonName, "localhost");
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.issuer).expect("the authority signs");
        let mut config =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("ring has the default versions of TLS")
                .with_no_client_auth()
                .with_single_cert(vec![certificate.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
                .expect("the certificate belongs to the key");
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

/// A request that arrived, and what was answered.
#[derive(Clone, Debug)]
pub struct Received {
    /// When its body was complete.
    pub at: OffsetDateTime,
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Names in lower case, in the order in which they came.
    pub headers: Vec<(String, String)>,
    /// The exact body.
    pub body: Bytes,
    /// The status that is answered; 0 while a [`Behaviour`] looks at the request, and for a request never answered.
    pub status: u16,
}

impl Received {
    /// The first value of a header, whatever the case of its name.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    async fn read(request: Request<Incoming>) -> hyper::Result<Self> {
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

/// What to answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// How long to wait before answering.
    pub delay: Duration,
    /// Further headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
    /// Never answer; the request is recorded with status 0.
    pub hang: bool,
}

impl Reply {
    /// 200 at once.
    #[must_use]
    pub fn ok() -> Self {
        Self::status(200)
    }

    /// The status at once, without a body.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self { status, delay: Duration::ZERO, headers: Vec::new(), body: Bytes::new(), hang: false }
    }

    /// No answer, ever; the connection stays open.
    #[must_use]
    pub fn hang() -> Self {
        Self { hang: true, ..Self::status(0) }
    }

    /// The same, later.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// The same, with a header, such as the `location` of a redirect.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// The same, with a body.
    #[must_use]
    pub fn body(self, body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..self }
    }
}

/// Decides the answer from the request and from its number among those with the same `X-Service-Webhook-Id`, from 1.
pub type Behaviour = Arc<dyn Fn(&Received, usize) -> Reply + Send + Sync>;

/// Makes a [`Behaviour`] of a closure.
pub fn behaviour(decide: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static) -> Behaviour {
    Arc::new(decide)
}

/// The same status, always.
#[must_use]
pub fn always(status: u16) -> Behaviour {
    behaviour(move |_, _| Reply::status(status))
}

/// 500 to the first `failures` requests of every delivery, then 200.
#[must_use]
pub fn fails_then_succeeds(failures: usize) -> Behaviour {
    behaviour(move |_, nth| if nth <= failures { Reply::status(500) } else { Reply::ok() })
}

struct State {
    behaviour: Behaviour,
    received: Vec<Received>,
    seen: HashMap<String, usize>,
}

/// What the connections share with the [`Receiver`].
struct Shared {
    state: Mutex<State>,
    arrived: watch::Sender<usize>,
}

impl Shared {
    /// A test's closure that panicked under the lock has failed already; the record is whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides and records, so that what a test sees is in the order in which it was decided.
    fn record(&self, mut request: Received) -> Reply {
        let mut guard = self.state();
        let state = &mut *guard;
        let id = request.header("x-service-webhook-id").unwrap_or_default().to_owned();
        let nth = state.seen.entry(id).or_insert(0);
        *nth += 1;
        let reply = (state.behaviour)(&request, *nth);
        request.status = if reply.hang { 0 } else { reply.status };
        state.received.push(request);
        let count = state.received.len();
        drop(guard);
        self.arrived.send_modify(|arrived| *arrived = count.max(*arrived));
        reply
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> hyper::Result<Response<Full<Bytes>>> {
        let reply = self.record(Received::read(request).await?);
        if reply.hang {
            std::future::pending::<Infallible>().await;
        }
        if !reply.delay.is_zero() {
            tokio::time::sleep(reply.delay).await;
        }
        let mut response = Response::builder().status(reply.status);
        for (name, value) in reply.headers {
            response = response.header(name, value);
        }
        Ok(response.body(Full::new(reply.body)).expect("a behaviour answers a valid status and valid headers"))
    }

    async fn accept(self: Arc<Self>, listener: TcpListener, tls: TlsAcceptor, stop: CancellationToken) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(Arc::clone(&self).serve(stream, tls.clone()));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the receiver could not accept a connection");
                        tokio::task::yield_now().await;
                    }
                },
            }
        }
        drop(listener);
        connections.shutdown().await;
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, tls: TlsAcceptor) {
        let _ = stream.set_nodelay(true);
        // A client that goes away or does not trust the authority is the client's affair.
        let Ok(stream) = tls.accept(stream).await else { return };
        let service = service_fn(move |request| Arc::clone(&self).answer(request));
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }
}

/// An HTTPS server on 127.0.0.1 that records every request. Dropping it stops it.
pub struct Receiver {
    addr: SocketAddr,
    shared: Arc<Shared>,
    stop: CancellationToken,
    accepting: Mutex<Option<JoinHandle<()>>>,
    reserved: Mutex<Option<TcpSocket>>,
}

impl Receiver {
    /// Starts on a free port. Must be called within a tokio runtime.
    #[must_use]
    pub fn start(ca: &TestCa, behaviour: Behaviour) -> Self {
        Self::start_on(SocketAddr::from(([127, 0, 0, 1], 0)), ca, behaviour)
    }

    /// Starts on the given address, such as the [`Receiver::addr`] of one that was stopped.
    #[must_use]
    pub fn start_on(addr: SocketAddr, ca: &TestCa, behaviour: Behaviour) -> Self {
        let listener = bind(addr).and_then(|socket| socket.listen(1024)).expect("the address is free");
        let addr = listener.local_addr().expect("a listener has an address");
        let state = Mutex::new(State { behaviour, received: Vec::new(), seen: HashMap::new() });
        let shared = Arc::new(Shared { state, arrived: watch::Sender::new(0) });
        let stop = CancellationToken::new();
        let accepting = tokio::spawn(Arc::clone(&shared).accept(listener, ca.acceptor(), stop.clone()));
        Self { addr, shared, stop, accepting: Mutex::new(Some(accepting)), reserved: Mutex::new(None) }
    }

    /// The address that it listens on.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The URL of a path: by name, since a literal address takes another way through the egress policy.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("https://localhost:{}/{}", self.addr.port(), path.trim_start_matches('/'))
    }

    /// Answers differently from now on.
    pub fn behave(&self, behaviour: Behaviour) {
        self.shared.state().behaviour = behaviour;
    }

    /// Everything that has arrived so far, in order.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        self.shared.state().received.clone()
    }

    /// Waits until at least `n` requests have arrived.
    ///
    /// # Panics
    /// When they have not within `deadline`, with what has.
    pub async fn wait_for(&self, n: usize, deadline: Duration) -> Vec<Received> {
        match self.try_wait_until(deadline, |received| received.len() >= n).await {
            Ok(received) => received,
            Err(summary) => panic!("wanted {n} requests: {summary}"),
        }
    }

    /// Waits until what has arrived satisfies the predicate.
    ///
    /// # Panics
    /// When it does not within `deadline`, with what has arrived.
    pub async fn wait_until(&self, deadline: Duration, predicate: impl Fn(&[Received]) -> bool) -> Vec<Received> {
        match self.try_wait_until(deadline, predicate).await {
            Ok(received) => received,
            Err(summary) => panic!("{summary}"),
        }
    }

    /// Waits until what has arrived satisfies the predicate.
    ///
    /// # Errors
    /// When it does not within `deadline`, a summary of what has arrived.
    pub async fn try_wait_until(
        &self,
        deadline: Duration,
        predicate: impl Fn(&[Received]) -> bool,
    ) -> Result<Vec<Received>, String> {
        let end = Instant::now() + deadline;
        let mut arrived = self.shared.arrived.subscribe();
        loop {
            arrived.borrow_and_update();
            {
                let state = self.shared.state();
                if predicate(&state.received) {
                    return Ok(state.received.clone());
                }
            }
            if !matches!(timeout_at(end, arrived.changed()).await, Ok(Ok(()))) {
                return Err(format!("after {deadline:?} {}", summary(&self.received())));
            }
        }
    }

    /// Closes the listener and every connection: connecting fails from now on. What arrived stays readable. As long as
    /// this value lives, nobody is given its port by chance, and [`Receiver::start_on`] can start on it again.
    pub async fn stop(&self) {
        self.stop.cancel();
        let accepting = self.accepting.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(accepting) = accepting {
            let _ = accepting.await;
            // Bound, not listening: refuses connections, but keeps the port from being handed out.
            *self.reserved.lock().unwrap_or_else(PoisonError::into_inner) = bind(self.addr).ok();
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(accepting) = self.accepting.get_mut().unwrap_or_else(PoisonError::into_inner) {
            accepting.abort();
        }
    }
}

fn bind(addr: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}

/// How many of the last requests a failed wait shows.
const SHOWN: usize = 20;

fn summary(received: &[Received]) -> String {
    let mut text = format!("{} requests had arrived", received.len());
    let skipped = received.len().saturating_sub(SHOWN);
    if skipped > 0 {
        let _ = write!(text, ", the last {SHOWN}");
    }
    for request in &received[skipped..] {
        let header = |name| request.header(name).unwrap_or("-");
        let Received { at, method, path, status, .. } = request;
        let (id, event) = (header("x-service-webhook-id"), header("x-service-event"));
        let _ = write!(text, "\n  {at} {method} {path} {event} {id} -> {status}");
    }
    text
}

/// How far from the receiver's clock a signature may be (specification, section 5.2.5), in seconds.
const TOLERANCE_SECONDS: i64 = 300;

/// Checks a delivery as a receiver would that knows the specification and the webhook's secret, and nothing of ours.
/// The time that counts is that of its arrival.
///
/// # Errors
/// What does not hold.
pub fn verify(received: &Received, secret: &str) -> Result<(), String> {
    ensure(received.method == "POST", || format!("the method is {}", received.method))?;
    let content_type = only_header(received, "content-type")?;
    ensure(content_type == "application/json", || format!("Content-Type is {content_type:?}"))?;
    let id = only_header(received, "x-service-webhook-id")?;
    ensure(is_uuid(id), || format!("X-Service-Webhook-Id {id:?} is not a UUID"))?;
    verify_signature(received, secret)?;
    verify_envelope(&received.body, only_header(received, "x-service-event")?)
}

fn ensure(holds: bool, fault: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(fault()) }
}

fn is_uuid(text: &str) -> bool {
    // 36 characters: the parser takes forms without hyphens and with braces, too.
    text.len() == 36 && uuid::Uuid::parse_str(text).is_ok()
}

fn only_header<'r>(received: &'r Received, name: &str) -> Result<&'r str, String> {
    let count = received.headers.iter().filter(|(have, _)| have == name).count();
    received.header(name).filter(|_| count == 1).ok_or_else(|| format!("{name} is there {count} times, not once"))
}

fn verify_signature(received: &Received, secret: &str) -> Result<(), String> {
    let header = only_header(received, "x-service-signature")?;
    let parts = header.strip_prefix("t=").and_then(|rest| rest.split_once(",v1="));
    let (seconds, digits) = parts.ok_or_else(|| format!("X-Service-Signature {header:?} is not t=…,v1=…"))?;
    let t: i64 = seconds.parse().map_err(|_| format!("t is {seconds:?}"))?;
    let distance = received.at.unix_timestamp() - t;
    ensure(distance.abs() <= TOLERANCE_SECONDS, || format!("it was signed {distance} s before it arrived"))?;
    let lowercase = digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    ensure(lowercase, || format!("v1 is {digits:?}, not 64 lowercase hexadecimal digits"))?;
    let digest = hex::decode(digits).map_err(|error| error.to_string())?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    hmac::verify(&key, &received.body, &digest).map_err(|_| "the signature does not match the body".to_owned())
}

fn verify_envelope(body: &[u8], event: &str) -> Result<(), String> {
    let envelope: Value = serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))?;
    let members = envelope.as_object().ok_or("the body is not an object")?;
    let mut names: Vec<_> = members.keys().map(String::as_str).collect();
    names.sort_unstable();
    ensure(names == ["data", "event_type", "tenant_id", "timestamp"], || format!("the members are {names:?}"))?;
    let text = |name: &str| members[name].as_str().unwrap_or_default();
    ensure(text("event_type") == event, || {
        format!("X-Service-Event is {event:?}, event_type is {}", members["event_type"])
    })?;
    ensure(is_uuid(text("tenant_id")), || format!("tenant_id is {}", members["tenant_id"]))?;
    let utc = text("timestamp").ends_with('Z') && OffsetDateTime::parse(text("timestamp"), &Rfc3339).is_ok();
    ensure(utc, || format!("timestamp is {}", members["timestamp"]))?;
    ensure(members["data"].is_object(), || "data is not an object".to_owned())
}

#[cfg(test)]
mod tests {
    use hyper::client::conn::http1::{SendRequest, handshake};
    use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
    use tokio_rustls::TlsConnector;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);
    const SECRET: &str = "whsec_0123456789abcdef";
    const BODY: &str = r#"{"event_type":"quote.closed","tenant_id":"5b0e0000-0000-4000-8000-000000000001","timestamp":"2026-03-01T09:30:00Z","data":{}}"#;

    async fn connect(ca: &TestCa, receiver: &Receiver) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.pem().as_bytes())?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let tls = TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
        let tcp = TcpStream::connect(receiver.addr()).await?;
        let stream = tls.connect(ServerName::try_from("localhost")?, tcp).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }

    fn request(id: &str) -> Request<Full<Bytes>> {
        let secret = signing::SigningSecret::from(SECRET.to_owned());
        let now = OffsetDateTime::now_utc().unix_timestamp();
        Request::post("/hook?a=1")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("x-service-webhook-id", id)
            .header("x-service-event", "quote.closed")
            .header(signing::SIGNATURE_HEADER, signing::sign(&secret, BODY.as_bytes(), now))
            .body(Full::from(BODY))
            .unwrap()
    }

    async fn post(sender: &mut SendRequest<Full<Bytes>>, id: &str) -> anyhow::Result<u16> {
        let response = sender.send_request(request(id)).await?;
        let status = response.status().as_u16();
        response.into_body().collect().await?;
        Ok(status)
    }

    const ID: &str = "019ca8bb-b63b-81e0-9e67-8295475fb864";
    const OTHER: &str = "019ca8bb-b63b-81e0-9e67-000000000000";

    #[tokio::test]
    async fn it_counts_requests_by_delivery_over_one_connection_and_verifies_what_we_sign() {
        let ca = TestCa::new();
        let receiver = Receiver::start(&ca, fails_then_succeeds(1));
        let mut sender = connect(&ca, &receiver).await.unwrap();

        let mut statuses = Vec::new();
        for id in [ID, OTHER, ID] {
            statuses.push(post(&mut sender, id).await.unwrap());
        }
        receiver.behave(always(410));
        statuses.push(post(&mut sender, ID).await.unwrap());

        let received = receiver.wait_for(4, SOON).await;
        assert_eq!(statuses, [500, 500, 200, 410]);
        assert_eq!(received.iter().map(|request| request.status).collect::<Vec<_>>(), statuses);
        assert_eq!(received[0].path, "/hook?a=1");
        assert_eq!(receiver.url("/hook"), format!("https://localhost:{}/hook", receiver.addr().port()));
        for request in received {
            assert_eq!(verify(&request, SECRET), Ok(()));
        }
    }

    #[tokio::test]
    async fn what_is_not_a_delivery_by_the_specification_does_not_verify() {
        let ca = TestCa::new();
        let receiver = Receiver::start(&ca, always(200));
        post(&mut connect(&ca, &receiver).await.unwrap(), ID).await.unwrap();
        let good = receiver.wait_for(1, SOON).await.remove(0);
        let with_header = |name: &str, value: &str| {
            let mut bad = good.clone();
            bad.headers.retain(|(have, _)| have != name);
            bad.headers.push((name.to_owned(), value.to_owned()));
            verify(&bad, SECRET).unwrap_err()
        };
        let signed = |body: &str| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
            let digest = hex::encode(hmac::sign(&key, body.as_bytes()));
            let header = format!("t={},v1={digest}", good.at.unix_timestamp());
            let mut bad = Received { body: Bytes::from(body.to_owned()), ..good.clone() };
            bad.headers.retain(|(have, _)| have != "x-service-signature");
            bad.headers.push(("x-service-signature".to_owned(), header));
            verify(&bad, SECRET)
        };

        assert_eq!(signed(BODY), Ok(()));
        assert!(with_header("content-type", "application/json; charset=utf-8").contains("Content-Type"));
        assert!(with_header("x-service-webhook-id", "7").contains("not a UUID"));
        assert!(with_header("x-service-event", "quote.accepted").contains("X-Service-Event"));
        assert!(with_header("x-service-signature", "v1=00").contains("not t="));
        let (_, digest) = good.header("X-Service-Signature").unwrap().split_once(",v1=").unwrap();
        let late = good.at.unix_timestamp() - 301;
        assert!(with_header("x-service-signature", &format!("t={late},v1={digest}")).contains("301 s"));
        assert!(with_header("x-service-signature", &format!("t={late},v1={}", &digest[1..])).contains("301 s"));
        assert!(verify(&good, "whsec_other").unwrap_err().contains("does not match"));
        assert!(verify(&Received { method: "PUT".to_owned(), ..good.clone() }, SECRET).unwrap_err().contains("PUT"));
        assert!(signed(&BODY.replace("Z\"", "+00:00\"")).unwrap_err().contains("timestamp"));
        assert!(signed(&BODY.replace("5b0e", "zz0e")).unwrap_err().contains("tenant_id"));
        assert!(signed(&BODY.replace("{}", "[]")).unwrap_err().contains("data"));
        assert!(signed(&BODY.replace("\"data\"", "\"extra\":1,\"data\"")).unwrap_err().contains("extra"));
    }

    #[tokio::test]
    async fn a_stopped_receiver_refuses_and_another_starts_on_its_port() {
        let ca = TestCa::new();
        let receiver = Receiver::start(&ca, always(200));
        let mut open = connect(&ca, &receiver).await.unwrap();
        post(&mut open, ID).await.unwrap();

        receiver.stop().await;

        assert!(post(&mut open, ID).await.is_err(), "an open connection is closed");
        let refused = TcpStream::connect(receiver.addr()).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        assert_eq!(receiver.received().len(), 1);
        let again = Receiver::start_on(receiver.addr(), &ca, always(204));
        let mut sender = connect(&ca, &again).await.unwrap();
        assert_eq!(post(&mut sender, ID).await.unwrap(), 204);
        drop(again);
        let closed = async { while post(&mut sender, ID).await.is_ok() {} };
        timeout_at(Instant::now() + SOON, closed).await.expect("dropping a receiver closes its connections");
    }

    #[tokio::test]
    async fn a_hanging_receiver_records_and_a_wait_in_vain_says_what_arrived() {
        let ca = TestCa::new();
        let receiver = Receiver::start(&ca, behaviour(|_, _| Reply::hang()));
        let mut sender = connect(&ca, &receiver).await.unwrap();
        let answer = tokio::spawn(async move { post(&mut sender, ID).await });

        let received = receiver.wait_until(SOON, |received| !received.is_empty()).await;
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
