//! The bound of connects under way to one receiver.

use std::{collections::HashMap, future::poll_fn, pin::pin, sync::Arc, task::Poll};

use domain::WebhookUrl;
use parking_lot::Mutex;
use tokio::{
    select,
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
};

use crate::connect_error::ConnectError;

/// The maximum of connects under way to one receiver.
const MAX_CONNECTS: usize = 128;

tokio::task_local! {
    /// The receiver of the attempt that this task makes.
    static RECEIVER: Arc<Receiver>;
}

/// The connects under way, by receiver: no more than the receiver has attempts, and [`MAX_CONNECTS`] at most. No limit is
/// shared by receivers.
///
/// hyper-util begins a connect for each request that finds no free connection, and continues it in the background when
/// another connection becomes free first. That spares the next request the handshake, and nothing limits it.
#[derive(Clone, Default)]
pub(crate) struct Connects(Arc<Mutex<HashMap<Host, Arc<Receiver>>>>);

/// A receiver's host and port.
type Host = (String, Option<u16>);

/// A receiver that has attempts.
struct Receiver {
    permits: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    attempts: usize,
    /// The connects that no attempt waits for, the newest last. If there are too many, the newest end: the others are
    /// sooner of use.
    background: Vec<Background>,
}

/// A connect in the background. Dropping this ends it.
struct Background {
    end: oneshot::Sender<()>,
    _permit: OwnedSemaphorePermit,
}

/// An attempt under way.
struct Attempt<'a> {
    connects: &'a Connects,
    host: Host,
    receiver: Arc<Receiver>,
}

impl Connects {
    /// Makes an attempt. All its connects have to be [`bounded`].
    pub(crate) async fn attempt<T>(&self, url: &WebhookUrl, attempt: impl Future<Output = T>) -> T {
        let begun = self.begin(url);
        RECEIVER.scope(Arc::clone(&begun.receiver), attempt).await
    }

    fn begin(&self, url: &WebhookUrl) -> Attempt<'_> {
        let url = url.as_url();
        let name = url.host_str().unwrap_or_default();
        let host = (name.trim_end_matches('.').to_owned(), url.port_or_known_default());
        let mut receivers = self.0.lock();
        let receiver = Arc::clone(receivers.entry(host.clone()).or_insert_with(Receiver::new));
        receiver.state.lock().attempts += 1;
        Attempt { connects: self, host, receiver }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let mut receivers = self.connects.0.lock();
        let mut state = self.receiver.state.lock();
        state.attempts -= 1;
        while self.receiver.under_way() > state.attempts && state.background.pop().is_some() {}
        if state.attempts == 0 {
            receivers.remove(&self.host);
        }
    }
}

impl Receiver {
    fn new() -> Arc<Self> {
        Arc::new(Self { permits: Arc::new(Semaphore::new(MAX_CONNECTS)), state: Mutex::default() })
    }

    fn under_way(&self) -> usize {
        MAX_CONNECTS - self.permits.available_permits()
    }

    /// Waits for the permit to connect for an attempt. A connect in the background gives way.
    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        let permits = Arc::clone(&self.permits);
        {
            let mut state = self.state.lock();
            if self.under_way() >= state.attempts.min(MAX_CONNECTS) {
                state.background.pop();
            }
            if let Ok(permit) = Arc::clone(&permits).try_acquire_owned() {
                return Some(permit);
            }
        }
        permits.acquire_owned().await.ok()
    }

    /// Continues a connect in the background until the returned receiver ends, unless an attempt may need its permit.
    fn continue_in_background(&self, permit: OwnedSemaphorePermit) -> Option<oneshot::Receiver<()>> {
        let mut state = self.state.lock();
        if self.under_way() > state.attempts || self.permits.available_permits() == 0 {
            return None;
        }
        let (end, ended) = oneshot::channel();
        state.background.push(Background { end, _permit: permit });
        Some(ended)
    }
}

/// Connects for the attempt of this task, once the receiver has a permit for it. Does nothing until then, and ends if
/// nobody waits for it any more. What nobody waits for has no reader of its error either.
pub(crate) async fn bounded<T>(connect: impl Future<Output = Result<T, ConnectError>>) -> Result<T, ConnectError> {
    let Ok(receiver) = RECEIVER.try_with(Arc::clone) else { return Err(ConnectError::Slow) };
    let permit = select! {
        biased;
        () = in_background() => None,
        permit = receiver.permit() => permit,
    };
    let Some(permit) = permit else { return Err(ConnectError::Slow) };
    let mut connect = pin!(connect);
    select! {
        biased;
        connected = &mut connect => return connected,
        () = in_background() => {}
    }
    let Some(mut ended) = receiver.continue_in_background(permit) else { return Err(ConnectError::Slow) };
    let connected = select! {
        biased;
        connected = connect => connected,
        _ = &mut ended => Err(ConnectError::Slow),
    };
    drop(ended);
    receiver.state.lock().background.retain(|connect| !connect.end.is_closed());
    connected
}

/// Ends at the first poll outside of an attempt: hyper-util has moved the connect to a task of its own.
async fn in_background() {
    poll_fn(|_| if RECEIVER.try_with(|_| ()).is_ok() { Poll::Pending } else { Poll::Ready(()) }).await;
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use domain::AddressPolicy;
    use tokio::{sync::Notify, task::yield_now};

    use super::*;

    /// Attempts whose connects stall, at one receiver.
    #[derive(Default)]
    struct Stalling {
        connects: Connects,
        under_way: Arc<()>,
        attempts: Vec<Arc<[Notify; 2]>>,
    }

    impl Stalling {
        /// Begins attempts. The first notice to one gives it a connection, as when a pooled one is free. The second ends it.
        fn begin(&mut self, attempts: usize) {
            for _ in 0..attempts {
                let (connects, under_way) = (self.connects.clone(), Arc::downgrade(&self.under_way));
                let notices = Arc::new([Notify::new(), Notify::new()]);
                self.attempts.push(Arc::clone(&notices));
                tokio::spawn(async move {
                    let url = WebhookUrl::parse("https://a.example/", 100, &AddressPolicy::default()).unwrap();
                    let stalls = async move {
                        let _under_way = under_way.upgrade();
                        pending::<Result<(), _>>().await
                    };
                    let attempt = async {
                        let mut connect = Box::pin(bounded(stalls));
                        select! {
                            biased;
                            _ = &mut connect => panic!("a connect ended beside its attempt"),
                            () = notices[0].notified() => {}
                        }
                        tokio::spawn(connect);
                        notices[1].notified().await;
                    };
                    connects.attempt(&url, attempt).await;
                });
            }
        }

        fn notify(&self, attempts: std::ops::Range<usize>, notice: usize) {
            self.attempts[attempts].iter().for_each(|notices| notices[notice].notify_one());
        }

        /// The number of connects under way once no task can continue.
        async fn under_way(&self) -> usize {
            for _ in 0..10 {
                yield_now().await;
            }
            Arc::strong_count(&self.under_way) - 1
        }
    }

    #[tokio::test]
    async fn no_more_connects_are_under_way_than_attempts() {
        let mut stalling = Stalling::default();
        stalling.begin(3);
        stalling.notify(0..3, 0);
        assert_eq!(stalling.under_way().await, 3, "three attempts, three connects in the background");
        stalling.notify(0..1, 1);
        assert_eq!(stalling.under_way().await, 2);
        stalling.begin(2);
        assert_eq!(stalling.under_way().await, 4);
        stalling.notify(1..3, 1);
        assert_eq!(stalling.under_way().await, 2, "those of the attempts that still wait");
        stalling.notify(3..5, 0);
        stalling.notify(3..5, 1);
        assert_eq!((stalling.under_way().await, stalling.connects.0.lock().len()), (0, 0));
    }

    #[tokio::test]
    async fn a_connect_beyond_the_maximum_waits_and_ends_with_its_attempt() {
        let mut stalling = Stalling::default();
        stalling.begin(MAX_CONNECTS + 3);
        assert_eq!(stalling.under_way().await, MAX_CONNECTS);
        stalling.notify(MAX_CONNECTS..MAX_CONNECTS + 2, 0);
        assert_eq!(stalling.under_way().await, MAX_CONNECTS);
        // The last waiting connect gets the permit of one that no attempt waits for.
        stalling.notify(0..1, 0);
        assert_eq!(stalling.under_way().await, MAX_CONNECTS);
        stalling.notify(1..2, 0);
        assert_eq!(stalling.under_way().await, MAX_CONNECTS - 1, "no other waits");
        stalling.notify(0..MAX_CONNECTS + 3, 0);
        stalling.notify(0..MAX_CONNECTS + 3, 1);
        assert_eq!((stalling.under_way().await, stalling.connects.0.lock().len()), (0, 0));
    }
}
