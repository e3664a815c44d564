//! A collector: an HTTP server that takes spans, and reads them by the types that OpenTelemetry generates.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, Ordering},
    },
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value},
    trace::v1::{Span, span::SpanKind, status::StatusCode},
};
use prost::Message;
use tokio::net::TcpListener;
use uuid::Uuid;

/// An export as it came.
pub(crate) struct Export {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A span, as a person reads it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) service: String,
    pub(crate) name: String,
    pub(crate) kind: SpanKind,
    /// `00-trace-span-01`, as others name it.
    pub(crate) traceparent: String,
    /// The same of its parent, if it has one.
    pub(crate) parent: Option<String>,
    pub(crate) is_failed: bool,
    pub(crate) nanos: u64,
    pub(crate) attributes: BTreeMap<String, String>,
}

impl Seen {
    pub(crate) fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map_or("", String::as_str)
    }
}

/// It stops with the runtime of its test.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    exports: Arc<Mutex<Vec<Export>>>,
    status: Arc<AtomicU16>,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        Self::start_on(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    pub(crate) async fn start_on(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (exports, status) = (Arc::<Mutex<Vec<Export>>>::default(), Arc::new(AtomicU16::new(200)));
        let (taken, answer) = (Arc::clone(&exports), Arc::clone(&status));
        tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let (taken, answer) = (Arc::clone(&taken), Arc::clone(&answer));
                let service = service_fn(move |request| take(request, Arc::clone(&taken), Arc::clone(&answer)));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(tcp), service));
            }
        });
        Self { address, exports, status }
    }

    /// The settings that send spans to it.
    pub(crate) fn endpoint(&self) -> (&'static str, String) {
        ("TRACES__ENDPOINT", format!("http://{}", self.address))
    }

    /// Answers with this status from now on.
    pub(crate) fn answer(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    pub(crate) fn with_exports<T>(&self, look: impl FnOnce(&[Export]) -> T) -> T {
        look(&self.exports.lock().unwrap())
    }

    /// Checks that no byte of what came shows one of these.
    pub(crate) fn assert_untold(&self, secrets: &[&str]) {
        self.with_exports(|exports| {
            for export in exports {
                let text = String::from_utf8_lossy(&export.body);
                let shown: Vec<_> = secrets.iter().filter(|secret| text.contains(**secret)).collect();
                assert!(shown.is_empty(), "{shown:?} in {text:?}");
            }
        });
    }

    /// All spans so far, whatever it answered.
    pub(crate) fn spans(&self) -> Vec<Seen> {
        self.with_exports(|exports| exports.iter().flat_map(|export| read(&export.body)).collect())
    }
}

async fn take(
    request: Request<Incoming>,
    exports: Arc<Mutex<Vec<Export>>>,
    status: Arc<AtomicU16>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    exports.lock().unwrap().push(Export { path: head.uri.path().to_owned(), headers: head.headers, body });
    let answer = Response::builder().status(status.load(Ordering::Relaxed)).body(Full::default());
    Ok(answer.unwrap())
}

fn read(body: &[u8]) -> Vec<Seen> {
    let mut seen = Vec::new();
    for spans in ExportTraceServiceRequest::decode(body).unwrap().resource_spans {
        let resource = texts(&spans.resource.unwrap().attributes);
        assert_eq!(resource["service.namespace"], "webhooks");
        assert_eq!(resource["service.version"], env!("CARGO_PKG_VERSION"));
        assert!(resource["service.instance.id"].parse::<Uuid>().is_ok() && resource.len() == 4, "{resource:?}");
        let all = spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
        seen.extend(all.map(|span| read_span(&span, &resource["service.name"])));
    }
    seen
}

fn read_span(span: &Span, service: &str) -> Seen {
    let named = |id: &[u8]| format!("00-{}-{}-01", hex::encode(&span.trace_id), hex::encode(id));
    // The trace is recorded, and a parent is in another process.
    assert_eq!(span.flags, if span.parent_span_id.is_empty() { 0x101 } else { 0x301 });
    Seen {
        service: service.to_owned(),
        name: span.name.clone(),
        kind: span.kind(),
        traceparent: named(&span.span_id),
        parent: (!span.parent_span_id.is_empty()).then(|| named(&span.parent_span_id)),
        is_failed: span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error),
        nanos: span.end_time_unix_nano.checked_sub(span.start_time_unix_nano).unwrap(),
        attributes: texts(&span.attributes),
    }
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |one: &KeyValue| match one.value.clone().unwrap().value.unwrap() {
        any_value::Value::StringValue(text) => text,
        any_value::Value::IntValue(number) => number.to_string(),
        other => panic!("{other:?}"),
    };
    attributes.iter().map(|one| (one.key.clone(), text(one))).collect()
}
