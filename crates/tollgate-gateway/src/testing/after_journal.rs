//! A peer that checks that nothing is sent to it while journal entries wait to be written.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tollgate_store::{Journal, JournalOptions, JournalWriter};

use super::usage_record;

pub(crate) struct AfterJournal {
    writer: Arc<JournalWriter>,
    pub(crate) sent: Vec<u8>,
    _journal: Journal,
    _dir: TempDir,
}

impl AfterJournal {
    /// The peer, and the writer of a journal whose segment is open, so that further entries are collected.
    pub(crate) fn new() -> (Self, Arc<JournalWriter>) {
        let dir = TempDir::new().unwrap();
        let (journal, _) = Journal::open(JournalOptions::new(dir.path().to_owned(), uuid::Uuid::nil())).unwrap();
        let writer = Arc::new(journal.writer(0).unwrap());
        drop(writer.end(&usage_record("m")).unwrap());
        (Self { writer: Arc::clone(&writer), sent: Vec::new(), _journal: journal, _dir: dir }, writer)
    }
}

impl AsyncRead for AfterJournal {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for AfterJournal {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        assert!(!self.writer.has_collected(), "sent before it is in the journal");
        self.sent.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
