//! The business application, as far as it knows who is logged in.

use std::{
    collections::HashMap,
    future,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use end_to_end::api::Api;
use http_body_util::Full;
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::{net::TcpListener, task::JoinSet};
use uuid::Uuid;

/// How the application answers.
#[derive(Clone, Debug)]
pub(crate) enum Mood {
    /// 200 for the sessions that it knows, 401 for others.
    Well,
    /// This status, with a session as the body all the same.
    Status(u16),
    /// 200 with this body.
    Body(&'static str),
    /// Not at all; the connection stays open.
    Hangs,
    /// 200 for the sessions that it knows, and nothing at all for others.
    HangsForStrangers,
}

/// A request, as it came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) line: String,
    /// Names in lower case, sorted.
    pub(crate) headers: Vec<(String, String)>,
}

struct State {
    mood: Mood,
    sessions: HashMap<String, Value>,
    asked: Vec<Asked>,
}

/// An HTTP server on 127.0.0.1. Dropping it closes its port and all its connections.
pub(crate) struct Application {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
    _tasks: JoinSet<()>,
}

impl Application {
    pub(crate) async fn start() -> Self {
        Self::start_on(SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    pub(crate) async fn start_on(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { mood: Mood::Well, sessions: HashMap::new(), asked: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let (mut tasks, shared) = (JoinSet::new(), Arc::clone(&state));
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                connections.spawn(async move {
                    let service = service_fn(move |request| answer(Arc::clone(&state), request));
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(tcp), service).await;
                });
            }
        });
        Self { address, state, _tasks: tasks }
    }

    /// `api.introspection_url`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/session?for=webhooks", self.address)
    }

    /// Logs somebody in; returns the session's id.
    pub(crate) fn login(&self, tenant: Uuid, role: &str, ttl: Duration) -> String {
        let id = Uuid::new_v4().simple().to_string();
        self.knows(&id, session(tenant, role, ttl));
        id
    }

    pub(crate) fn knows(&self, id: &str, session: Value) {
        self.state.lock().unwrap().sessions.insert(format!("sessionid={id}"), session);
    }

    pub(crate) fn logout(&self, id: &str) {
        self.state.lock().unwrap().sessions.remove(&format!("sessionid={id}"));
    }

    pub(crate) fn is(&self, mood: Mood) {
        self.state.lock().unwrap().mood = mood;
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.state.lock().unwrap().asked.clone()
    }
}

/// A session as the application describes it.
pub(crate) fn session(tenant: Uuid, role: &str, ttl: Duration) -> Value {
    let expires_at = (OffsetDateTime::now_utc() + ttl).format(&Rfc3339).unwrap();
    json!({"tenant_id": tenant, "user_id": "u-7", "role": role, "expires_at": expires_at, "theme": "dark"})
}

/// The API with that session.
pub(crate) fn with(api: &Api, session: &str) -> Api {
    Api { session: Some(session.to_owned()), ..api.clone() }
}

async fn answer(state: Arc<Mutex<State>>, request: Request<Incoming>) -> hyper::Result<Response<Full<Bytes>>> {
    let text = |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let mut headers: Vec<_> = request.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    headers.sort();
    let cookie = request.headers().get("cookie").map(text).unwrap_or_default();
    let line = format!("{} {}", request.method(), request.uri());
    let (mood, known) = {
        let mut state = state.lock().unwrap();
        state.asked.push(Asked { line, headers });
        (state.mood.clone(), state.sessions.get(&cookie).cloned())
    };
    let (status, body) = match (mood, known) {
        (Mood::Well | Mood::HangsForStrangers, Some(session)) => (200, session.to_string()),
        (Mood::Well, None) => (401, String::new()),
        (Mood::Status(status), known) => (status, known.unwrap_or_default().to_string()),
        (Mood::Body(body), _) => (200, body.to_owned()),
        (Mood::Hangs, _) | (Mood::HangsForStrangers, None) => future::pending().await,
    };
    Ok(Response::builder().status(status).header("location", "/login").body(Full::from(body)).unwrap())
}
