//! What is known of one HTTP/1.1 connection beyond what hyper says: whether a request's bytes left at all, and whether a
//! single byte of an answer came. Before the first byte leaves on a connection that was used before, the socket itself is
//! asked whether the far side has closed it: on a busy core the reactor may learn of that only milliseconds later.

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

use crate::upstream::call::SentMark;

/// A stream over a TCP connection.
pub(crate) trait OverTcp: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// The connection under it.
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

/// What happened on a connection since its latest request.
#[derive(Debug, Default)]
pub(crate) struct IoState {
    look: AtomicBool,
    written: AtomicBool,
    answered: AtomicBool,
    mark: Mutex<Option<SentMark>>,
}

impl IoState {
    /// The next request is about to be written; `mark` is set when its first byte leaves. `look`: not without having asked
    /// the socket, for the connection lay idle.
    pub(crate) fn begin(&self, mark: SentMark, look: bool) {
        *self.mark.lock().unwrap_or_else(PoisonError::into_inner) = Some(mark);
        self.written.store(false, Ordering::Release);
        self.answered.store(false, Ordering::Release);
        self.look.store(look, Ordering::Release);
    }

    /// Whether any byte of the latest request left.
    pub(crate) fn is_written(&self) -> bool {
        self.written.load(Ordering::Acquire)
    }

    /// Whether any byte came back since.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Acquire)
    }

    fn wrote(&self, bytes: usize) {
        if bytes > 0
            && !self.written.swap(true, Ordering::AcqRel)
            && let Some(mark) = self.mark.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            mark.set();
        }
    }
}

/// A connection that tells its [`IoState`] what happens on it.
pub(crate) struct CheckedIo<S> {
    stream: S,
    line: Arc<IoState>,
}

impl<S: OverTcp> CheckedIo<S> {
    pub(crate) fn new(stream: S) -> (Self, Arc<IoState>) {
        let line = Arc::new(IoState::default());
        (Self { stream, line: Arc::clone(&line) }, line)
    }

    /// Refuses to write on a connection whose far side has closed it, or said something unasked that could be taken for the
    /// answer. Above TLS a kept connection has nothing to say either, but that it closes.
    fn look(&self) -> io::Result<()> {
        if !self.line.look.swap(false, Ordering::AcqRel) {
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
            self.line.answered.store(true, Ordering::Release);
        }
        Poll::Ready(done)
    }
}

impl<S: OverTcp> AsyncWrite for CheckedIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.look()?;
        let done = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        Poll::Ready(done.inspect(|count| self.line.wrote(*count)))
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.look()?;
        let done = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, pieces));
        Poll::Ready(done.inspect(|count| self.line.wrote(*count)))
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
