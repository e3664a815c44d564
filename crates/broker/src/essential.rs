//! Tasks without which a process is of no use.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Tasks without which the process is of no use. When one of them panics, the process ends, and is started again by
/// whoever started it. Clones belong together.
#[derive(Clone, Debug, Default)]
pub struct EssentialTasks {
    /// Cancelled when one of them panics. A clone of the token itself takes a lock, and each job has one.
    failed: Arc<CancellationToken>,
}

/// An essential task panicked.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("a task panicked that the process needs: the lines above show which one, and where")]
pub struct TaskPanicked;

/// Notices the panic of the task that holds it.
#[derive(Debug)]
#[must_use = "it has to live as long as the task"]
pub struct Watched {
    task: &'static str,
    failed: Arc<CancellationToken>,
}

impl EssentialTasks {
    /// Spawns an essential task. Its name is for the log.
    pub fn spawn<F>(&self, task: &'static str, work: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let watched = self.watch(task);
        tokio::spawn(async move {
            let _watched = watched;
            fault(task);
            work.await
        })
    }

    /// Makes the task essential that holds the returned value.
    pub fn watch(&self, task: &'static str) -> Watched {
        Watched { task, failed: Arc::clone(&self.failed) }
    }

    /// Does the work of a process until an essential task panics.
    ///
    /// # Errors
    /// [`TaskPanicked`], also if that was before.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, TaskPanicked> {
        let done = self.failed.run_until_cancelled(work).await;
        done.filter(|_| !self.failed.is_cancelled()).ok_or(TaskPanicked)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(task = self.task, "a task panicked that the process needs: the process ends");
            self.failed.cancel();
        }
    }
}

/// A fault point for tests, in debug builds only: panics in the task that `WEBHOOKS_FAULT_TASK` names.
#[cfg(debug_assertions)]
fn fault(task: &str) {
    assert!(std::env::var("WEBHOOKS_FAULT_TASK").as_deref() != Ok(task), "WEBHOOKS_FAULT_TASK");
}

#[cfg(not(debug_assertions))]
const fn fault(_task: &str) {}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    async fn panics() {
        panic!("on purpose");
    }

    #[tokio::test]
    async fn a_panic_of_an_essential_task_ends_the_work_and_any_other_end_does_not() {
        let tasks = EssentialTasks::default();
        tasks.spawn("ends", async {}).await.unwrap();
        let aborted = tasks.spawn("aborted", pending::<()>());
        aborted.abort();
        assert!(aborted.await.unwrap_err().is_cancelled());
        let other = tokio::spawn(panics());
        assert!(other.await.unwrap_err().is_panic());
        assert_eq!(tasks.run(async { 7 }).await.unwrap(), 7);

        let working = tokio::spawn({
            let tasks = tasks.clone();
            async move { tasks.run(pending::<()>()).await }
        });
        let failed = tasks.spawn("panics", panics());
        assert!(failed.await.unwrap_err().is_panic());
        assert!(working.await.unwrap().is_err());
        assert!(tasks.run(async {}).await.is_err(), "it does not begin again");
    }
}
