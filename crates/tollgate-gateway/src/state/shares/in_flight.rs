//! Resources of one request: one of the permitted requests in progress, and memory for bodies and answers.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::{sleep, timeout};

use super::{Capacity, KeyShare, ShareExceeded, uncharge};
use crate::serving_state::ServingState;

/// Bytes of each request that are not counted, as a part of all memory: 16 KiB of the default 1 GiB. Small requests do not touch
/// the counters then.
const UNCOUNTED_PART: usize = 64 * 1024;

/// Delay of a refusal for a caller that is refused repeatedly, and the number of refusals that are delayed at a time.
const REFUSAL_DELAY: Duration = Duration::from_millis(10);
const MAX_DELAYED: usize = 1_024;
/// Delay of a refusal with a large body. It costs more, because the part of the body that is already in transit is received and
/// discarded.
const LARGE_BODY_DELAY: Duration = Duration::from_millis(50);
/// Size of a large body in bytes.
const LARGE_BODY: u64 = 256 * 1024;
/// Refused connections that are still read, because their callers keep sending and would otherwise not see the answer.
const MAX_LINGERING: usize = 8;

/// A request of a caller, from its head to the last byte of its answer. It is in progress once it was claimed.
#[derive(Debug)]
pub(crate) struct InFlightRequest {
    serving: Arc<ServingState>,
    /// The number of requests that may be in progress.
    max: usize,
    /// The bytes that bodies and answers of all requests may take.
    max_bytes: usize,
    /// Set once it no longer counts among the requests in progress.
    has_left: AtomicBool,
    /// The share it counts against, once it is in progress.
    share: OnceLock<Arc<KeyShare>>,
    memory: Mutex<HeldBytes>,
}

/// Why a request cannot be in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAdmitted {
    /// The limit of requests in progress is reached.
    Full,
    /// The share of its key or member is used up.
    AboveShare(ShareExceeded),
}

/// There is no memory for a body or an answer, or none within the share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryExhausted;

/// Bytes that a request holds, and the part of them that counts against the total.
#[derive(Clone, Copy, Debug, Default)]
struct HeldBytes {
    held: usize,
    counted: usize,
}

impl ServingState {
    /// A request whose key is not known yet. At most `max` may be in progress, and the bodies and answers of all of them together
    /// take at most `max_bytes`.
    pub(crate) fn enter(self: &Arc<Self>, max: usize, max_bytes: usize) -> Arc<InFlightRequest> {
        self.entered.fetch_add(1, Ordering::AcqRel);
        let (serving, has_left, share, memory) = (Arc::clone(self), AtomicBool::new(false), OnceLock::new(), Mutex::default());
        Arc::new(InFlightRequest { serving, max, max_bytes, has_left, share, memory })
    }
}

impl ServingState {
    /// Delays the refusal of a caller that is refused repeatedly, so that it does not keep the cores busy. At most [`MAX_DELAYED`]
    /// refusals wait; others are sent at once. `body` is the announced length of the request's body, `None` for one of unknown
    /// length.
    pub(crate) async fn delay_refusal(&self, body: Option<u64>) {
        if self.delayed.take(1, MAX_DELAYED).is_some() {
            let _released = Delayed(&self.delayed);
            sleep(refusal_delay(body)).await;
        }
    }

    /// Allows reading on from a refused connection; `None` if [`MAX_LINGERING`] are read already.
    pub(crate) fn linger(self: &Arc<Self>) -> Option<Lingering> {
        self.lingering.take(1, MAX_LINGERING).map(|()| Lingering(Arc::clone(self)))
    }
}

fn refusal_delay(body: Option<u64>) -> Duration {
    if body.is_none_or(|bytes| bytes > LARGE_BODY) { LARGE_BODY_DELAY } else { REFUSAL_DELAY }
}

/// A refusal that is delayed. It is counted until this is dropped.
struct Delayed<'a>(&'a Capacity);

impl Drop for Delayed<'_> {
    fn drop(&mut self) {
        self.0.release(1);
    }
}

/// A refused connection that is still read.
#[derive(Debug)]
pub(crate) struct Lingering(Arc<ServingState>);

impl Drop for Lingering {
    fn drop(&mut self) {
        self.0.lingering.release(1);
    }
}

impl InFlightRequest {
    /// Counts the request among those in progress, and against the share of its key and its key's member, unless it counts already.
    ///
    /// # Errors
    /// When there are too many.
    pub(crate) fn claim(&self, share: &Arc<KeyShare>) -> Result<(), NotAdmitted> {
        if self.share().is_some() {
            return Ok(());
        }
        let requests = &self.serving.requests;
        requests.take(1, self.max).ok_or(NotAdmitted::Full)?;
        let charged = requests.charge(share, |held| &held.requests, 1, 1, self.max);
        charged.inspect_err(|_| requests.put_back(1)).map_err(NotAdmitted::AboveShare)?;
        self.share.set(Arc::clone(share)).expect("a request is claimed once");
        Ok(())
    }

    /// Stops counting among the requests in progress before the answer is sent: a delayed refusal must not keep out a request
    /// that can be served. Only the first call has an effect; without a call this happens when the request is dropped.
    pub(crate) fn leave(&self) {
        if self.has_left.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(share) = self.share() {
            uncharge(&share.holdings(), |held| &held.requests, 1);
            self.serving.requests.release(1);
        }
        if self.serving.entered.fetch_sub(1, Ordering::AcqRel) == 1 && self.serving.is_ending() {
            self.serving.notify_quiet();
        }
    }

    /// The share the request counts against.
    pub(crate) fn share(&self) -> Option<&Arc<KeyShare>> {
        self.share.get()
    }

    /// Reserves memory for `bytes` of a body or an answer. Released when the request ends, because a body may be sent more than
    /// once until then.
    ///
    /// # Errors
    /// When no memory is free, or none within the share of its key or member.
    pub(crate) fn reserve_bytes(&self, bytes: usize) -> Result<(), MemoryExhausted> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let held = memory.held.saturating_add(bytes);
        let counted = held.saturating_sub(self.max_bytes / UNCOUNTED_PART);
        let more = counted - memory.counted;
        if more > 0 && !self.count_bytes(more, counted) {
            return Err(MemoryExhausted);
        }
        *memory = HeldBytes { held, counted };
        Ok(())
    }

    fn count_bytes(&self, more: usize, own: usize) -> bool {
        let (pool, total) = (&self.serving.memory, self.max_bytes);
        if pool.take(more, total).is_none() {
            return false;
        }
        let Some(share) = self.share() else { return true };
        let charged = pool.charge(share, |held| &held.bytes, more, own, total).is_ok();
        if !charged {
            pool.put_back(more);
        }
        charged
    }

    /// Like [`Self::reserve_bytes`], but waits up to `limit` for other requests to release memory.
    async fn reserve_bytes_within(&self, bytes: usize, limit: Duration) -> Result<(), MemoryExhausted> {
        if self.reserve_bytes(bytes).is_ok() {
            return Ok(());
        }
        if bytes > self.max_bytes {
            return Err(MemoryExhausted);
        }
        let pool = &self.serving.memory;
        pool.waiting.fetch_add(1, Ordering::AcqRel);
        let _leaves = Waiting(&pool.waiting);
        let wait = async {
            loop {
                // Registered before the attempt, so that a release in between is not missed.
                let mut released = std::pin::pin!(pool.released.notified());
                released.as_mut().enable();
                if self.reserve_bytes(bytes).is_ok() {
                    return;
                }
                released.await;
            }
        };
        timeout(limit, wait).await.map_err(|_| MemoryExhausted)
    }

    /// Releases memory before the request ends.
    fn release_bytes(&self, bytes: usize) {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let held = memory.held.saturating_sub(bytes);
        let counted = held.saturating_sub(self.max_bytes / UNCOUNTED_PART);
        let less = memory.counted - counted;
        *memory = HeldBytes { held, counted };
        drop(memory);
        self.uncount_bytes(less);
    }

    fn uncount_bytes(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        if let Some(share) = self.share() {
            uncharge(&share.holdings(), |held| &held.bytes, bytes);
        }
        self.serving.memory.release(bytes);
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let memory = *self.memory.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.uncount_bytes(memory.counted);
        self.leave();
    }
}

/// A task that waits. It is counted until this is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Memory for the answer of one attempt. Released when the attempt fails, kept until the request ends when it is answered.
#[derive(Debug)]
pub(crate) struct MemoryCharge {
    request: Arc<InFlightRequest>,
    bytes: usize,
}

impl MemoryCharge {
    /// A charge of zero bytes.
    pub(crate) const fn new(request: Arc<InFlightRequest>) -> Self {
        Self { request, bytes: 0 }
    }

    /// Grows to `bytes`, and waits up to `limit` for memory.
    pub(crate) async fn grow_to(&mut self, bytes: usize, limit: Duration) -> Result<(), MemoryExhausted> {
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 {
            self.request.reserve_bytes_within(more, limit).await?;
        }
        self.bytes += more;
        Ok(())
    }

    /// Grows or shrinks to `bytes` without waiting. If there is no memory for more, nothing changes.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), MemoryExhausted> {
        if let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) {
            self.request.reserve_bytes(more)?;
        } else if bytes < self.bytes {
            self.request.release_bytes(self.bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }

    pub(crate) const fn is_counted(&self) -> bool {
        self.bytes > 0
    }

    /// Keeps the memory charged until the request ends.
    pub(crate) fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.request.release_bytes(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_of_a_large_body_is_delayed_longer() {
        assert_eq!(refusal_delay(Some(500)), REFUSAL_DELAY);
        assert_eq!(refusal_delay(Some(31 << 20)), LARGE_BODY_DELAY);
        assert_eq!(refusal_delay(None), LARGE_BODY_DELAY);
    }
}
