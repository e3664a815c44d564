//! The HTTPS server that a test holds.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    net::TcpSocket,
    task::JoinHandle,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{Behaviour, Received, TestCa, received::summary, shared::ReceiverContext};

/// An HTTPS server on 127.0.0.1 that records every request. Dropping it stops it.
pub struct Receiver {
    addr: SocketAddr,
    shared: Arc<ReceiverContext>,
    stop: CancellationToken,
    accepting: Mutex<Option<JoinHandle<()>>>,
    reserved: Mutex<Option<TcpSocket>>,
}

impl Receiver {
    /// Starts on a free port. It needs a tokio runtime.
    #[must_use]
    pub fn start(ca: &TestCa, behaviour: Behaviour) -> Self {
        Self::start_on(SocketAddr::from(([127, 0, 0, 1], 0)), ca, behaviour)
    }

    /// Starts on the given address, such as the [`Receiver::addr`] of one that was stopped.
    #[must_use]
    pub fn start_on(addr: SocketAddr, ca: &TestCa, behaviour: Behaviour) -> Self {
        let listener = bind(addr).and_then(|socket| socket.listen(1024)).expect("the address is free");
        let addr = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(ReceiverContext::new(behaviour));
        let stop = CancellationToken::new();
        let accepting = tokio::spawn(Arc::clone(&shared).accept(listener, ca.acceptor(), stop.clone()));
        Self { addr, shared, stop, accepting: Mutex::new(Some(accepting)), reserved: Mutex::new(None) }
    }

    /// The address that it listens on.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The URL of a path. It has a name, as a literal address takes another way through the egress policy.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("https://localhost:{}/{}", self.addr.port(), path.trim_start_matches('/'))
    }

    /// Changes the behaviour from now on.
    pub fn behave(&self, behaviour: Behaviour) {
        self.shared.state().behaviour = behaviour;
    }

    /// Ends new connections with a reset instead of an orderly close.
    pub fn reset_connections(&self) {
        self.shared.state().resets = true;
    }

    /// Everything that has arrived so far, in order.
    pub fn received(&self) -> Vec<Received> {
        self.shared.state().received.clone()
    }

    /// The ids of the deliveries that have arrived so far.
    ///
    /// # Panics
    /// When one came twice.
    pub fn received_once(&self) -> HashSet<String> {
        let received = self.received();
        let id = |one: &Received| one.header("x-service-webhook-id").expect("every delivery has an id").to_owned();
        let ids: HashSet<_> = received.iter().map(id).collect();
        assert_eq!(ids.len(), received.len(), "a delivery came twice");
        ids
    }

    /// The number of requests that have arrived so far.
    pub fn arrived(&self) -> usize {
        self.shared.state().received.len()
    }

    /// Waits until at least `n` requests have arrived.
    ///
    /// # Panics
    /// When they have not arrived within `deadline`. The message shows what has.
    pub async fn wait_for(&self, n: usize, deadline: Duration) -> Vec<Received> {
        match self.try_wait_until(deadline, |received| received.len() >= n).await {
            Ok(received) => received,
            Err(summary) => panic!("wanted {n} requests: {summary}"),
        }
    }

    /// Waits until the predicate holds for what has arrived.
    ///
    /// # Panics
    /// When it does not hold within `deadline`. The message shows what has arrived.
    pub async fn wait_until(&self, deadline: Duration, predicate: impl Fn(&[Received]) -> bool) -> Vec<Received> {
        match self.try_wait_until(deadline, predicate).await {
            Ok(received) => received,
            Err(summary) => panic!("{summary}"),
        }
    }

    /// Waits until the predicate holds for what has arrived.
    ///
    /// # Errors
    /// When it does not hold within `deadline`: a summary of what has arrived.
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

    /// Closes the listener and every connection. Connecting fails from now on, and what arrived stays readable. While
    /// this value lives, nobody else gets its port, and [`Receiver::start_on`] can start on it again.
    pub async fn stop(&self) {
        self.stop.cancel();
        let accepting = self.accepting.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(accepting) = accepting {
            let _ = accepting.await;
            // A bound socket that does not listen refuses connections and keeps the port taken.
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

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;
    use crate::receiver::{
        always,
        client::{ANSWER_TIMEOUT, ID, OTHER, SECRET, connect, post},
        fails_then_succeeds, verify,
    };

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

        let received = receiver.wait_for(4, ANSWER_TIMEOUT).await;
        assert_eq!(statuses, [500, 500, 200, 410]);
        assert_eq!(received.iter().map(|request| request.status).collect::<Vec<_>>(), statuses);
        assert_eq!(received[0].path, "/hook?a=1");
        assert_eq!(receiver.url("/hook"), format!("https://localhost:{}/hook", receiver.addr().port()));
        for request in received {
            assert_eq!(verify(&request, SECRET), Ok(()));
        }
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
        timeout_at(Instant::now() + ANSWER_TIMEOUT, closed).await.expect("dropping a receiver closes its connections");
    }
}
