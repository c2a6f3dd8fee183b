//! Permits of the requests to one channel on one core: to make a connection, and to use a stream of the HTTP/2 connections. Each key
//! and member has a share of both. Waiting for a permit is not a failure of the upstream.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use tokio::time::{Instant, timeout_at};

use crate::{
    state::shares::{Bound, FairPermit, FairSemaphore, Holder, TooManyWaiting},
    upstream::call::ConnectFault,
};

/// Connections being made to one channel, per core.
pub(crate) const MAX_DIALS: usize = 256;
/// HTTP/2 connections to one channel, per core.
pub(crate) const MAX_HTTP2: usize = 16;
/// Requests that wait for a stream, and those that wait to make a connection, to one channel and per core.
pub(crate) const MAX_WAITING: usize = 4_096;
/// Streams of a connection that are assumed before an upstream states its limit.
pub(crate) const USUAL_STREAMS: usize = 100;
/// Upper bound for a stated limit: a connection never needs more streams.
const MAX_STREAMS: usize = 1 << 20;

pub(crate) struct ConnectionPermits {
    dials: Arc<FairSemaphore>,
    /// An HTTP/2 connection serves many requests, so only one of them establishes it.
    http2_dials: Arc<FairSemaphore>,
    streams: Arc<FairSemaphore>,
    /// Streams of each connection, as last used for the size of `streams`.
    streams_each: AtomicUsize,
    /// Connections made so far.
    made: AtomicU64,
}

impl ConnectionPermits {
    pub(crate) fn new() -> Self {
        Self {
            dials: FairSemaphore::new(Bound::UpstreamDials, MAX_DIALS, MAX_WAITING),
            http2_dials: FairSemaphore::new(Bound::UpstreamDials, 1, MAX_WAITING),
            streams: FairSemaphore::new(Bound::UpstreamStreams, MAX_HTTP2 * USUAL_STREAMS, MAX_WAITING),
            streams_each: AtomicUsize::new(USUAL_STREAMS),
            made: AtomicU64::new(0),
        }
    }

    /// A stream for a request of these holders.
    ///
    /// # Errors
    /// [`ConnectFault::AllTaken`] if none is free by `by`.
    pub(crate) async fn stream(&self, holders: &[Holder], by: Instant) -> Result<FairPermit, ConnectFault> {
        in_time(by, self.streams.acquire(holders)).await.unwrap_or(Err(ConnectFault::AllTaken))
    }

    /// The permit to make a connection.
    ///
    /// # Errors
    /// [`ConnectFault::AllTaken`] if it is not granted by `by`; [`ConnectFault::TimedOut`] if meanwhile no connection could be
    /// made to an upstream that speaks HTTP/2.
    pub(crate) async fn dial(&self, holders: &[Holder], by: Instant, speaks_http2: bool) -> Result<FairPermit, ConnectFault> {
        if !speaks_http2 {
            return in_time(by, self.dials.acquire(holders)).await.unwrap_or(Err(ConnectFault::AllTaken));
        }
        let before = self.made.load(Ordering::Relaxed);
        let turn = in_time(by, self.http2_dials.acquire(holders)).await;
        turn.unwrap_or_else(|| {
            let is_made = self.made.load(Ordering::Relaxed) > before;
            Err(if is_made { ConnectFault::AllTaken } else { ConnectFault::TimedOut })
        })
    }

    pub(crate) fn count_connection(&self) {
        self.made.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets how many streams each connection allows.
    pub(crate) fn set_streams(&self, each: usize) {
        let each = each.clamp(1, MAX_STREAMS);
        if self.streams_each.load(Ordering::Relaxed) != each {
            self.streams_each.store(each, Ordering::Relaxed);
            self.streams.resize(MAX_HTTP2 * each);
        }
    }
}

/// A permit, if it is granted by `by`.
async fn in_time(
    by: Instant,
    permit: impl Future<Output = Result<FairPermit, TooManyWaiting>>,
) -> Option<Result<FairPermit, ConnectFault>> {
    let permit = timeout_at(by, permit).await.ok()?;
    Some(permit.map_err(|TooManyWaiting| ConnectFault::AllTaken))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate_core::{KeyId, MemberId, Requester, Timestamp};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(3);

    fn holders(number: u8) -> [Holder; 2] {
        let (key, member) = (KeyId::from_parts(Timestamp(0), [number; 10]), MemberId::from_parts(Timestamp(0), [number; 10]));
        Holder::of_caller(Requester { key, member })
    }

    fn by() -> Instant {
        Instant::now() + LIMIT
    }

    #[tokio::test(start_paused = true)]
    async fn one_key_cannot_take_all_connection_attempts() {
        let places = ConnectionPermits::new();
        let mut hostile = Vec::new();
        while let Ok(turn) = places.dial(&holders(1), Instant::now(), false).await {
            hostile.push(turn);
        }
        assert_eq!(hostile.len(), MAX_DIALS / 4 * 3);
        let began = Instant::now();
        assert_eq!(places.dial(&holders(1), by(), false).await.err(), Some(ConnectFault::AllTaken));
        assert_eq!(began.elapsed(), LIMIT);
        assert!(places.dial(&holders(2), Instant::now(), false).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_an_upstream_that_accepts_no_connection_is_a_timeout() {
        let places = ConnectionPermits::new();
        let turn = places.dial(&holders(1), by(), true).await.unwrap();
        assert_eq!(places.dial(&holders(2), by(), true).await.err(), Some(ConnectFault::TimedOut));
        let makes = async {
            tokio::time::sleep(LIMIT / 2).await;
            places.count_connection();
        };
        let other = holders(2);
        let (waited, ()) = tokio::join!(places.dial(&other, by(), true), makes);
        assert_eq!(waited.err(), Some(ConnectFault::AllTaken), "others took the streams of the connection");
        drop(turn);
        assert!(places.dial(&holders(2), by(), true).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn stream_permits_follow_the_stream_limit_of_the_upstream() {
        let places = ConnectionPermits::new();
        places.set_streams(1);
        let mut held = Vec::new();
        while let Ok(stream) = places.stream(&holders(1), Instant::now()).await {
            held.push(stream);
        }
        assert_eq!(held.len(), MAX_HTTP2 / 4 * 3);
        let (one, two) = (holders(1), holders(1));
        let mut waits = Box::pin(places.stream(&one, by()));
        assert!(futures_util::poll!(waits.as_mut()).is_pending());
        places.set_streams(2);
        assert!(futures_util::poll!(waits.as_mut()).is_ready(), "more streams wake those that wait");
        places.set_streams(0);
        assert_eq!(places.stream(&two, by()).await.err(), Some(ConnectFault::AllTaken));
        drop(held);
        assert!(places.stream(&two, by()).await.is_ok());
    }
}
