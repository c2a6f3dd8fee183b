//! I/O state of an HTTP/1.1 connection that hyper does not expose: whether any byte of a request was written, and whether
//! any byte of a response was read. Before the first write on a reused connection the socket is peeked for a close by the
//! peer, which the reactor of a busy core may report only milliseconds later.

use std::{
    io::{self, ErrorKind, IoSlice},
    mem::MaybeUninit,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

use crate::{clock::Clock, upstream::call::SentMark};

/// A stream over a TCP connection.
pub(crate) trait OverTcp: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// The underlying TCP connection.
    fn tcp(&self) -> &TcpStream;
}

impl OverTcp for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl OverTcp for TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// I/O on a connection since the start of its latest request.
#[derive(Debug, Default)]
pub(crate) struct IoState {
    look: AtomicBool,
    written: AtomicBool,
    answered: AtomicBool,
    mark: Mutex<Option<(SentMark, Arc<dyn Clock>)>>,
}

impl IoState {
    /// Starts the next request. `mark` is set when its first byte is written, to the time of `clock`. With `look`, the
    /// socket is checked before that byte: the connection was idle.
    pub(crate) fn begin(&self, mark: SentMark, clock: Arc<dyn Clock>, look: bool) {
        *self.mark.lock().unwrap_or_else(PoisonError::into_inner) = Some((mark, clock));
        self.written.store(false, Ordering::Release);
        self.answered.store(false, Ordering::Release);
        self.look.store(look, Ordering::Release);
    }

    /// Whether any byte of the latest request was written.
    pub(crate) fn is_written(&self) -> bool {
        self.written.load(Ordering::Acquire)
    }

    /// Whether any byte was read since.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire)
    }

    fn wrote(&self, bytes: usize) {
        if bytes > 0
            && !self.written.swap(true, Ordering::AcqRel)
            && let Some((mark, clock)) = self.mark.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            mark.set(clock.instant());
        }
    }
}

/// A stream that records its reads and writes in an [`IoState`].
pub(crate) struct CheckedIo<S> {
    stream: S,
    state: Arc<IoState>,
}

impl<S: OverTcp> CheckedIo<S> {
    pub(crate) fn new(stream: S) -> (Self, Arc<IoState>) {
        let state = Arc::new(IoState::default());
        (Self { stream, state: Arc::clone(&state) }, state)
    }

    /// Fails if the peer of a reused connection closed it or sent unsolicited bytes, which could be mistaken for the
    /// response. With TLS, unsolicited bytes are a close alert in practice.
    fn check_idle(&self) -> io::Result<()> {
        if !self.state.look.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        match SockRef::from(self.stream.tcp()).peek(&mut [MaybeUninit::uninit()]) {
            Err(fault) if fault.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(fault) => Err(fault),
            Ok(_) => Err(ErrorKind::ConnectionAborted.into()),
        }
    }
}

impl<S: OverTcp> AsyncRead for CheckedIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let done = ready!(Pin::new(&mut self.stream).poll_read(context, into));
        if into.filled().len() > before {
            self.state.answered.store(true, Ordering::Release);
        }
        Poll::Ready(done)
    }
}

impl<S: OverTcp> AsyncWrite for CheckedIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check_idle()?;
        let done = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        Poll::Ready(done.inspect(|count| self.state.wrote(*count)))
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.check_idle()?;
        let done = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, pieces));
        Poll::Ready(done.inspect(|count| self.state.wrote(*count)))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
