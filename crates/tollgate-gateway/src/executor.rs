//! Spawns the tasks of HTTP/2 connections on the tracker that a shutdown waits for.

use tokio_util::task::TaskTracker;

#[derive(Clone)]
pub(crate) struct TrackedExecutor(pub(crate) TaskTracker);

impl<F> hyper::rt::Executor<F> for TrackedExecutor
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}
