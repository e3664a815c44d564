//! Calls to lapin that are polled once to queue their frames, and awaited later.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
};

/// A call that was polled once. Its frames are queued.
pub(crate) enum PolledOnce<F: Future> {
    /// The frames wait for the socket.
    Pending(Pin<Box<F>>),
    /// The call is over.
    Ready(F::Output),
}

/// Polls a call once. lapin queues a call's frames at its first poll, before it waits for anything. Calls that are
/// polled in order have their frames queued in that order, and sent together.
pub(crate) fn poll_once<F: Future>(call: F) -> PolledOnce<F> {
    let mut call = Box::pin(call);
    match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => PolledOnce::Ready(output),
        Poll::Pending => PolledOnce::Pending(call),
    }
}

impl<F: Future> PolledOnce<F> {
    /// Waits for the call's end.
    pub(crate) async fn done(self) -> F::Output {
        match self {
            Self::Pending(call) => call.await,
            Self::Ready(output) => output,
        }
    }
}
