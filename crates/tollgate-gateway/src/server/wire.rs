//! The byte stream below HTTP. It replays the bytes read for protocol detection, updates the timers, sends the final
//! response of an aborted connection, and closes with a linger so that the response reaches the caller.

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
    time::Sleep,
};

use super::connection_timers::ConnectionTimers;
use crate::{
    clock::Clock,
    condition::Condition,
    state::{shared::Shared, shares::Lingering},
};

/// How long received bytes are discarded after the write side is closed. Closing with unread bytes makes the kernel send a
/// reset, and the caller could lose the response.
const LINGER: Duration = Duration::from_secs(1);
/// Bytes that are discarded of every connection.
const LINGER_BYTES: usize = 256 * 1024;

/// What received bytes are scanned for.
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
    linger: Option<Pin<Box<Sleep>>>,
    condition: Arc<Condition>,
    discarded: usize,
    lingering: Option<Lingering>,
    /// No new request is read while the gateway is handed over.
    holds: bool,
}

impl<S> Wire<S> {
    pub(super) fn new(io: S, first: Bytes, timers: Arc<ConnectionTimers>, shared: &Shared, watch: Watch) -> Self {
        let (clock, condition) = (Arc::clone(&shared.clock), Arc::clone(&shared.condition));
        let (ended, shut, linger, discarded, lingering) = (false, false, None, 0, None);
        Self { io, first, timers, clock, watch, ended, shut, linger, condition, discarded, lingering, holds: false }
    }

    /// Reads no new request while the gateway is handed over, so that the connection can be moved.
    pub(super) fn holding(mut self) -> Self {
        self.holds = true;
        self
    }

    /// The stream, and what was read of it but not by the reader of this.
    pub(super) fn into_parts(self) -> (S, Bytes) {
        (self.io, self.first)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// Discards received bytes for up to [`LINGER`]. Of callers that go on sending only a few are read on.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut scratch = [0; 4_096];
        let linger = self.linger.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        loop {
            // The timer first: a caller that never stops sending must not extend the linger.
            if linger.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            let mut buffer = ReadBuf::new(&mut scratch);
            match ready!(Pin::new(&mut self.io).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => self.discarded += buffer.filled().len(),
                Ok(()) | Err(_) => return Poll::Ready(()),
            }
            if self.discarded > LINGER_BYTES && self.lingering.is_none() {
                self.lingering = self.condition.linger();
                if self.lingering.is_none() {
                    return Poll::Ready(());
                }
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Wire<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(response) = this.timers.final_response() {
            // A single attempt: if the socket buffer is full, the connection closes without a response.
            let _ = Pin::new(&mut this.io).poll_write(context, &response);
            return Poll::Ready(Ok(()));
        }
        if this.holds && this.condition.hand_over.holds_requests() && !this.timers.is_answering() {
            // Whatever drives the connection polls it again when the hand-over goes on.
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        if this.first.is_empty() {
            ready!(Pin::new(&mut this.io).poll_read(context, buffer))?;
        } else {
            let count = this.first.len().min(buffer.remaining());
            buffer.put_slice(&this.first[..count]);
            this.first.advance(count);
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
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, pieces)
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
        if !self.ended {
            ready!(self.poll_linger(context));
            self.ended = true;
        }
        Poll::Ready(Ok(()))
    }
}
