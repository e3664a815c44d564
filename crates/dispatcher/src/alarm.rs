//! The end of a task that all jobs need.

use tokio_util::sync::CancellationToken;

/// Tells when its task panicked: then no job can come to its end any more, and the process has to make room for another.
pub(crate) struct Alarm(pub(crate) CancellationToken);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cancel();
        }
    }
}
