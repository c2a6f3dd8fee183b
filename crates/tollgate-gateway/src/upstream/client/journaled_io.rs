//! A stream that writes what the journal has collected before it sends anything: the beginning of an attempt is in the journal before
//! the first byte of its request goes out. Connections send after all requests of an iteration of the event loop have begun, so that one
//! write to the journal serves all of them.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tollgate_store::JournalWriter;

use crate::journal_turn::JournalTurn;

pub(crate) struct JournaledIo<S> {
    stream: S,
    journal: JournalTurn,
}

impl<S> JournaledIo<S> {
    pub(crate) fn new(stream: S, journal: Option<&Arc<JournalWriter>>) -> Self {
        Self { stream, journal: JournalTurn::new(journal.cloned()) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for JournaledIo<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for JournaledIo<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.journal.write();
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.journal.write();
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;
    use crate::testing::{after_journal::AfterJournal, usage_record};

    #[tokio::test]
    async fn journal_is_written_before_anything_is_sent() {
        let (upstream, writer) = AfterJournal::new();
        let mut io = JournaledIo::new(upstream, Some(&writer));
        for request in [&b"one"[..], b"two"] {
            drop(writer.end(&usage_record("m")).unwrap());
            assert!(writer.has_collected());
            io.write_all(request).await.unwrap();
            drop(writer.end(&usage_record("m")).unwrap());
            assert_eq!(io.write_vectored(&[IoSlice::new(b"!")]).await.unwrap(), 1);
        }
        assert_eq!(io.stream.sent, b"one!two!");
    }
}
