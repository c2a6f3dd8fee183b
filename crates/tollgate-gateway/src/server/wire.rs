//! The byte stream below HTTP. It replays the bytes read for protocol detection, updates the timers, sends the final
//! response of an aborted connection, and closes with a linger so that the response reaches the caller.
//!
//! Before it sends anything, it writes the collected entries of the journal, so that the end of a request is in the journal before
//! its last bytes reach the caller.

use std::{
    future::Future as _,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

use tollgate_store::JournalWriter;

use super::connection_timers::ConnectionTimers;
use crate::{
    clock::Clock,
    gathered_write::poll_write_pieces,
    journal_turn::JournalTurn,
    serving_state::ServingState,
    state::{shared::Shared, shares::Lingering},
};

/// How long received bytes are discarded after the write side is closed. Closing with unread bytes makes the kernel send a
/// reset, and the caller could lose the response.
const LINGER: Duration = Duration::from_secs(1);
/// Bytes that are discarded of every connection.
const LINGER_BYTES: usize = 256 * 1024;
/// Bytes that are discarded before each pause: 32 MiB per second. Without the pause, a caller that sends as fast as it is read would keep
/// a core busy.
const LINGER_TURN_BYTES: usize = 64 * 1024;
const LINGER_PAUSE: Duration = Duration::from_millis(2);

/// Patterns that received bytes are scanned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// HTTP/1.1: heads and the idle time between them.
    Heads,
    /// HTTP/2: nothing, since frames of many requests are interleaved.
    Nothing,
}

#[derive(Debug)]
pub(super) struct Wire<S> {
    io: S,
    first: Bytes,
    timers: Arc<ConnectionTimers>,
    clock: Arc<dyn Clock>,
    watch: Watch,
    ended: bool,
    shut: bool,
    linger: Option<Linger>,
    serving: Arc<ServingState>,
    /// No new request is read while the gateway is handed over.
    holds: bool,
    journal: JournalTurn,
}

/// The period in which received bytes are discarded.
#[derive(Debug)]
struct Linger {
    until: Instant,
    /// Ends with a pause, or with the linger.
    timer: Pin<Box<Sleep>>,
    is_pausing: bool,
    discarded: usize,
    lingering: Option<Lingering>,
}

impl Linger {
    fn begin(now: Instant) -> Self {
        let until = now + LINGER;
        Self { until, timer: Box::pin(sleep_until(until)), is_pausing: false, discarded: 0, lingering: None }
    }

    /// Waits for the end of a pause. False if the linger is over.
    fn poll_pause(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        if self.is_pausing {
            ready!(self.timer.as_mut().poll(context));
            self.is_pausing = false;
            self.timer.as_mut().reset(self.until);
        }
        // The timer before the bytes: a caller that never stops sending must not extend the linger.
        Poll::Ready(self.timer.as_mut().poll(context).is_pending())
    }

    fn pause(&mut self, now: Instant) {
        self.is_pausing = true;
        self.timer.as_mut().reset(self.until.min(now + LINGER_PAUSE));
    }
}

impl<S> Wire<S> {
    pub(super) fn new(io: S, first: Bytes, timers: Arc<ConnectionTimers>, shared: &Shared, watch: Watch) -> Self {
        let (clock, serving) = (Arc::clone(&shared.clock), Arc::clone(&shared.serving));
        let (ended, shut, linger) = (false, false, None);
        let (holds, journal) = (false, JournalTurn::new(None));
        Self { io, first, timers, clock, watch, ended, shut, linger, serving, holds, journal }
    }

    /// Sends nothing before the collected entries of this journal are written.
    pub(super) fn after(mut self, journal: Option<&Arc<JournalWriter>>) -> Self {
        self.journal = JournalTurn::new(journal.cloned());
        self
    }

    /// Writes the collected entries of the journal.
    fn poll_journal(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.journal.poll(context).map(|is_written| {
            if !is_written {
                self.serving.note_in_memory_only();
            }
        })
    }

    /// Reads no new request while the gateway is handed over, so that the connection can be moved.
    pub(super) fn holding(mut self) -> Self {
        self.holds = true;
        self
    }

    /// The stream, and the bytes that were read from it and not consumed.
    pub(super) fn into_parts(self) -> (S, Bytes) {
        (self.io, self.first)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// Discards received bytes for up to [`LINGER`]. Only a limited number of callers that keep sending are still read.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut scratch = [0; 16 * 1024];
        let linger = self.linger.get_or_insert_with(|| Linger::begin(self.clock.instant()));
        loop {
            if !ready!(linger.poll_pause(context)) {
                return Poll::Ready(());
            }
            let mut turn = 0;
            while turn < LINGER_TURN_BYTES {
                let mut buffer = ReadBuf::new(&mut scratch);
                match ready!(Pin::new(&mut self.io).poll_read(context, &mut buffer)) {
                    Ok(()) if !buffer.filled().is_empty() => turn += buffer.filled().len(),
                    Ok(()) | Err(_) => return Poll::Ready(()),
                }
            }
            linger.discarded += turn;
            if linger.discarded > LINGER_BYTES && linger.lingering.is_none() {
                linger.lingering = self.serving.linger();
                if linger.lingering.is_none() {
                    return Poll::Ready(());
                }
            }
            linger.pause(self.clock.instant());
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Wire<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(response) = this.timers.final_response() {
            this.journal.write();
            // A single attempt: if the socket buffer is full, the connection closes without a response.
            let _ = Pin::new(&mut this.io).poll_write(context, &response);
            return Poll::Ready(Ok(()));
        }
        if this.holds && this.serving.hand_over.holds_requests() && !this.timers.is_answering() {
            // The loop that drives the connection polls it again when the hand-over proceeds.
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        if this.first.is_empty() {
            ready!(Pin::new(&mut this.io).poll_read(context, buffer))?;
        } else {
            let count = this.first.len().min(buffer.remaining());
            buffer.put_slice(&this.first[..count]);
            this.first.advance(count);
            if this.first.is_empty() {
                // Free the memory of the consumed bytes.
                this.first = Bytes::new();
            }
        }
        let read = &buffer.filled()[before..];
        this.ended |= read.is_empty();
        if this.watch == Watch::Heads && !read.is_empty() {
            this.timers.read(read, || this.clock.instant());
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_journal(context));
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_journal(context));
        poll_write_pieces(&mut self.io, pieces, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes only after it has written all of its own buffer.
        ready!(Pin::new(&mut self.io).poll_flush(context))?;
        self.timers.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.shut {
            self.timers.note_last();
            ready!(Pin::new(&mut self.io).poll_shutdown(context))?;
            self.shut = true;
        }
        if !self.ended && !self.timers.closes_at_once() {
            ready!(self.poll_linger(context));
            self.ended = true;
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tollgate_core::Catalog;

    use super::*;
    use crate::{
        settings::Settings,
        testing::{after_journal::AfterJournal, shared, usage_record},
    };

    /// A caller that sends as fast as it is read.
    #[derive(Debug, Default)]
    struct Endless {
        read: usize,
    }

    impl AsyncRead for Endless {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let count = buffer.remaining();
            buffer.put_slice(&vec![0; count]);
            self.read += count;
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Endless {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn caller_that_keeps_sending_is_drained_slowly_for_a_limited_time() {
        let shared = shared(Settings::default(), Catalog::default());
        let timers = Arc::new(ConnectionTimers::new(shared.clock.instant()));
        let mut wire = Wire::new(Endless::default(), Bytes::new(), timers, &shared, Watch::Heads);
        let (began, mut before, mut largest) = (Instant::now(), 0, 0);
        poll_fn(|context| {
            let shut = Pin::new(&mut wire).poll_shutdown(context);
            largest = largest.max(wire.io.read - before);
            before = wire.io.read;
            shut
        })
        .await
        .unwrap();
        assert!(largest <= LINGER_TURN_BYTES, "{largest} bytes at once");
        assert!(wire.io.read > 8 * LINGER_BYTES && wire.io.read <= 34 << 20, "{} bytes", wire.io.read);
        assert!(began.elapsed() >= LINGER && began.elapsed() < LINGER + Duration::from_millis(10));
    }

    #[tokio::test]
    async fn journal_is_written_before_anything_is_sent() {
        let (caller, writer) = AfterJournal::new();
        let shared = shared(Settings::default(), Catalog::default());
        let timers = Arc::new(ConnectionTimers::new(shared.clock.instant()));
        let mut wire = Wire::new(caller, Bytes::new(), timers, &shared, Watch::Heads).after(Some(&writer));
        for answer in [b"one", b"two"] {
            drop(writer.end(&usage_record("m")).unwrap());
            assert!(writer.has_collected());
            let mut polls = 0;
            let sent = poll_fn(|context| {
                polls += 1;
                Pin::new(&mut wire).poll_write(context, answer)
            });
            assert_eq!((sent.await.unwrap(), polls), (3, 2), "it gives way once, and is polled again");
            let mut polls = 0;
            let more = poll_fn(|context| {
                polls += 1;
                Pin::new(&mut wire).poll_write_vectored(context, &[io::IoSlice::new(b"!")])
            });
            assert_eq!((more.await.unwrap(), polls), (1, 1), "nothing waits");
        }
        assert_eq!(wire.io.sent, b"one!two!");
    }
}
