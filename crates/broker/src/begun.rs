//! Calls to lapin that are begun at once and waited for later.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
};

/// A call whose frames are queued.
pub(crate) enum Begun<F: Future> {
    /// They wait for the socket.
    Waiting(Pin<Box<F>>),
    /// The call is over.
    Over(F::Output),
}

/// Begins a call: lapin queues a call's frames when it is first asked, before it waits for anything. Calls that are begun in
/// order have their frames queued in that order, and sent together.
pub(crate) fn begun<F: Future>(call: F) -> Begun<F> {
    let mut call = Box::pin(call);
    match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Begun::Over(output),
        Poll::Pending => Begun::Waiting(call),
    }
}

impl<F: Future> Begun<F> {
    /// Waits for the call's end.
    pub(crate) async fn done(self) -> F::Output {
        match self {
            Self::Waiting(call) => call.await,
            Self::Over(output) => output,
        }
    }
}
