//! The connections of a receiver, and what they share with it.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{Behaviour, Received, Reply};

pub(super) struct State {
    pub(super) behaviour: Behaviour,
    pub(super) received: Vec<Received>,
    pub(super) resets: bool,
    seen: HashMap<String, usize>,
}

pub(super) struct ReceiverContext {
    state: Mutex<State>,
    pub(super) arrived: watch::Sender<usize>,
}

impl ReceiverContext {
    pub(super) fn new(behaviour: Behaviour) -> Self {
        let state = Mutex::new(State { behaviour, received: Vec::new(), resets: false, seen: HashMap::new() });
        Self { state, arrived: watch::Sender::new(0) }
    }

    /// Ignores poisoning: a test whose closure panicked under the lock has failed already, and the record is whole.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides and records under one lock, so that a test sees the requests in the order of the decisions.
    fn record(&self, mut request: Received) -> Reply {
        let mut guard = self.state();
        let state = &mut *guard;
        let id = request.header("x-service-webhook-id").unwrap_or_default().to_owned();
        let nth = state.seen.entry(id).or_insert(0);
        *nth += 1;
        let reply = (state.behaviour)(&request, *nth);
        request.status = if reply.hang || reply.close { 0 } else { reply.status };
        state.received.push(request);
        let count = state.received.len();
        drop(guard);
        self.arrived.send_modify(|arrived| *arrived = count.max(*arrived));
        reply
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> anyhow::Result<Response<Full<Bytes>>> {
        let reply = self.record(Received::read(request).await?);
        if reply.hang {
            std::future::pending::<Infallible>().await;
        }
        if !reply.delay.is_zero() {
            tokio::time::sleep(reply.delay).await;
        }
        if let Some(gate) = reply.gate {
            gate.cancelled().await;
        }
        // An error here makes hyper close the connection without an answer.
        anyhow::ensure!(!reply.close, "closed");
        let mut response = Response::builder().status(reply.status);
        for (name, value) in reply.headers {
            response = response.header(name, value);
        }
        Ok(response.body(Full::new(reply.body)).expect("a behaviour answers a valid status and valid headers"))
    }

    pub(super) async fn accept(self: Arc<Self>, listener: TcpListener, tls: TlsAcceptor, stop: CancellationToken) {
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
        if self.state().resets {
            let _ = stream.set_zero_linger();
        }
        // A failed handshake is the client's affair: it went away, or does not trust the authority.
        let Ok(stream) = tls.accept(stream).await else { return };
        let service = service_fn(move |request| Arc::clone(&self).answer(request));
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }
}
