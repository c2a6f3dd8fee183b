//! A client's connection over HTTP/1.1 (RFC 9112), driven by the request that uses it: it has no task of its own, and reads from the
//! upstream only when the request asks for more. httparse parses heads and sizes of chunks; hyper's client has a task, two channels
//! and some 25 KiB of buffers for each connection.

mod body;
mod request;
mod response;

use std::{
    future::poll_fn,
    io::{self, ErrorKind, IoSlice},
    mem::MaybeUninit,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;
use tollgate_store::JournalWriter;

use self::{
    body::{BodyDecoder, Decoded},
    request::Outgoing,
    response::{HeadScanner, InvalidHead, ParsedHead},
};
pub(crate) use self::{
    request::{Http1Request, RequestText},
    response::ResponseHead,
};
use crate::{
    clock::Clock,
    gathered_write::poll_write_pieces,
    journal_turn::JournalTurn,
    upstream::call::{SentMark, UpstreamBodyFault},
};

/// Space for the first read of a response. It grows while a larger response fills it.
const FIRST_READ: usize = 4 * 1024;
const MAX_READ: usize = 128 * 1024;
/// Space below which a buffer is replaced before a read.
const MIN_READ: usize = 1024;

/// A stream over a TCP connection.
pub(crate) trait OverTcp: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// The underlying TCP connection.
    fn tcp(&self) -> &TcpStream;

    /// Whether the stream has received more than was read from it, or its end, so that the TCP connection does not show it.
    fn holds_more(&mut self) -> bool;
}

impl OverTcp for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }

    fn holds_more(&mut self) -> bool {
        false
    }
}

impl OverTcp for TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }

    fn holds_more(&mut self) -> bool {
        let state = self.get_mut().1.process_new_packets();
        state.map_or(true, |state| state.plaintext_bytes_to_read() > 0 || state.peer_has_closed())
    }
}

/// A connection, used by one request at a time. Dropping it closes it at once.
pub(crate) struct Http1Connection {
    stream: Box<dyn OverTcp>,
    journal: JournalTurn,
    /// The part of the latest request that is not sent yet.
    outgoing: Option<Outgoing>,
    /// Received and not consumed.
    received: BytesMut,
    read_size: usize,
    scanner: HeadScanner,
    body: BodyDecoder,
    /// Whether the connection may be used again after the body.
    keeps_alive: bool,
    /// Whether any byte of the latest request was written.
    has_written: bool,
    /// Whether any byte of its response was received.
    has_received: bool,
}

/// Why a request got no response head.
#[derive(Debug)]
pub(crate) enum Http1Fault {
    /// The connection was closed or failed.
    Lost(io::Error),
    /// The head has too many bytes or fields.
    TooLarge,
    /// The received bytes are not an HTTP/1 response.
    NotHttp,
}

impl From<InvalidHead> for Http1Fault {
    fn from(fault: InvalidHead) -> Self {
        match fault {
            InvalidHead::TooLarge => Self::TooLarge,
            InvalidHead::NotHttp => Self::NotHttp,
        }
    }
}

impl Http1Connection {
    /// A connection that sends a request only after the collected entries of `journal` are written.
    pub(crate) fn new(stream: impl OverTcp, journal: Option<&Arc<JournalWriter>>) -> Self {
        Self {
            stream: Box::new(stream),
            journal: JournalTurn::new(journal.cloned()),
            outgoing: None,
            received: BytesMut::new(),
            read_size: FIRST_READ,
            scanner: HeadScanner::default(),
            body: BodyDecoder::EMPTY,
            keeps_alive: true,
            has_written: false,
            has_received: false,
        }
    }

    /// Sends a request and waits for the head of its response. `mark` is set when the first byte is written. With `is_reused`, the
    /// socket is checked before that byte: the connection was idle.
    pub(crate) async fn send(
        &mut self,
        request: Http1Request,
        is_reused: bool,
        mark: &SentMark,
        clock: &dyn Clock,
    ) -> Result<ResponseHead, Http1Fault> {
        self.outgoing = Some(Outgoing::new(request));
        (self.read_size, self.scanner, self.body) = (FIRST_READ, HeadScanner::default(), BodyDecoder::EMPTY);
        (self.keeps_alive, self.has_written, self.has_received) = (false, false, false);
        poll_fn(|context| self.journal.poll(context)).await;
        if is_reused {
            self.check_idle().map_err(Http1Fault::Lost)?;
        }
        poll_fn(|context| self.poll_head(mark, clock, context)).await
    }

    /// Fails if the peer closed the connection or sent unsolicited bytes, which could be mistaken for a response. With TLS, unsolicited
    /// bytes are a close alert in practice. The reactor of a busy core may report either only milliseconds later.
    pub(crate) fn check_idle(&self) -> io::Result<()> {
        match SockRef::from(self.stream.tcp()).peek(&mut [MaybeUninit::uninit()]) {
            Err(fault) if fault.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(fault) => Err(fault),
            Ok(_) => Err(ErrorKind::ConnectionAborted.into()),
        }
    }

    /// Whether any byte of the latest request was written.
    pub(crate) const fn has_written(&self) -> bool {
        self.has_written
    }

    /// Whether any byte of its response was received.
    pub(crate) const fn has_received(&self) -> bool {
        self.has_received
    }

    fn poll_head(
        &mut self,
        mark: &SentMark,
        clock: &dyn Clock,
        context: &mut Context<'_>,
    ) -> Poll<Result<ResponseHead, Http1Fault>> {
        let was_written = self.has_written;
        let written = self.poll_send(context);
        // Without an answer, a request that cannot be sent has failed.
        let unanswered = |written| match written {
            Poll::Ready(Err(fault)) => Poll::Ready(Err(Http1Fault::Lost(fault))),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        };
        if !self.has_written {
            // A response belongs to a request: nothing is read before one was sent.
            return unanswered(written);
        }
        if !was_written {
            mark.set(clock.instant());
        }
        loop {
            match self.scanner.take_head(&mut self.received)? {
                // Interim responses contain nothing that a caller needs (RFC 9110, section 15.2). One that switches protocols is final.
                Some(ParsedHead { head, .. }) if matches!(head.status, 100 | 102..=199) => continue,
                Some(ParsedHead { head, body, keeps_alive }) => {
                    (self.body, self.keeps_alive) = (body, keeps_alive);
                    return Poll::Ready(Ok(head));
                }
                None => {}
            }
            match self.poll_receive(context) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(Http1Fault::Lost(ErrorKind::UnexpectedEof.into()))),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(fault)) => return Poll::Ready(Err(Http1Fault::Lost(fault))),
                Poll::Pending => return unanswered(written),
            }
        }
    }

    /// Sends the rest of the request.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(outgoing) = &mut self.outgoing {
            let mut slices = [IoSlice::new(&[]); Outgoing::PARTS];
            let slices = outgoing.slices(&mut slices);
            if slices.is_empty() {
                ready!(Pin::new(&mut *self.stream).poll_flush(context))?;
                self.outgoing = None;
                break;
            }
            let count = ready!(poll_write_pieces(&mut *self.stream, slices, context))?;
            if count == 0 {
                return Poll::Ready(Err(ErrorKind::WriteZero.into()));
            }
            self.has_written = true;
            outgoing.advance(count);
        }
        Poll::Ready(Ok(()))
    }

    /// Receives more bytes; none at the end of the connection.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.received.capacity() - self.received.len() < MIN_READ {
            self.received.reserve(self.read_size);
        }
        let space = self.received.capacity() - self.received.len();
        let count = ready!(pin!(self.stream.read_buf(&mut self.received)).poll(context))?;
        if count == space {
            self.read_size = MAX_READ.min(2 * self.read_size);
        }
        self.has_received |= count > 0;
        Poll::Ready(Ok(count))
    }

    /// The next bytes of the response's body; `None` at its end.
    pub(crate) fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, UpstreamBodyFault>>> {
        if self.outgoing.is_some() && matches!(self.poll_send(context), Poll::Ready(Err(_))) {
            // The answer counts, although the upstream does not take the rest of the request.
            (self.outgoing, self.keeps_alive) = (None, false);
        }
        loop {
            match self.body.decode(&mut self.received) {
                Ok(Decoded::Data(data)) => return Poll::Ready(Some(Ok(data))),
                Ok(Decoded::End) => return Poll::Ready(None),
                Ok(Decoded::Incomplete) => {}
                Err(_) => return Poll::Ready(Some(Err(self.fail(UpstreamBodyFault::Unreadable)))),
            }
            match ready!(self.poll_receive(context)) {
                Ok(0) if self.body.end_at_close() => return Poll::Ready(None),
                Ok(0) | Err(_) => return Poll::Ready(Some(Err(self.fail(UpstreamBodyFault::Lost)))),
                Ok(_) => {}
            }
        }
    }

    /// Ends the body with a fault.
    fn fail(&mut self, fault: UpstreamBodyFault) -> UpstreamBodyFault {
        (self.body, self.keeps_alive) = (BodyDecoder::EMPTY, false);
        fault
    }

    /// Whether the body is known to be complete.
    pub(crate) const fn is_end(&self) -> bool {
        self.body.is_end()
    }

    /// A lower bound of the remaining bytes of the body.
    pub(crate) const fn at_least(&self) -> u64 {
        self.body.at_least()
    }

    /// Whether another request may use the connection: request and response are complete, and nothing follows the response.
    pub(crate) fn is_reusable(&mut self) -> bool {
        let is_complete = self.keeps_alive && self.body.is_end() && self.outgoing.is_none();
        is_complete && self.received.is_empty() && !self.stream.holds_more()
    }

    /// Frees a buffer that grew with its response.
    pub(crate) fn shrink(&mut self) {
        if self.read_size > FIRST_READ {
            self.received = BytesMut::new();
        }
    }
}
