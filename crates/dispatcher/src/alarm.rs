//! Notices the panic of a task that all jobs need.

use tokio_util::sync::CancellationToken;

/// Cancels the token when its task panics. Then no job can end, and the process has to make room for another.
pub(crate) struct Alarm<'a>(pub(crate) &'a CancellationToken);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cancel();
        }
    }
}
