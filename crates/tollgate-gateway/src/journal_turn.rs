//! Writes the journal before a connection sends, once for all requests of an iteration of the event loop.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use tollgate_store::JournalWriter;

/// Writes the collected entries of the journal before a connection sends. The beginning of an attempt is in the journal before the first
/// byte of its request goes out, and the end of a request before the last bytes of its answer.
#[derive(Debug)]
pub(crate) struct JournalTurn {
    /// The journal of this core; `None` for connections without records.
    journal: Option<Arc<JournalWriter>>,
    /// True if the connection has yielded in this iteration of the event loop, so that other connections can collect
    /// entries, too.
    has_yielded: bool,
}

impl JournalTurn {
    pub(crate) fn new(journal: Option<Arc<JournalWriter>>) -> Self {
        Self { journal, has_yielded: false }
    }

    /// Writes the collected entries. The first call yields to other tasks that are ready, so that one write serves all of them.
    /// Returns false if the entries could not be written and are only in memory.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let Some(journal) = &self.journal else { return Poll::Ready(true) };
        let mut is_written = true;
        if journal.has_collected() {
            if !self.has_yielded {
                self.has_yielded = true;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            is_written = journal.write_collected();
        }
        self.has_yielded = false;
        Poll::Ready(is_written)
    }

    /// Writes the collected entries at once.
    pub(crate) fn write(&self) {
        if let Some(journal) = &self.journal {
            journal.write_collected();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::testing::{after_journal::AfterJournal, usage_record};

    #[tokio::test]
    async fn collected_entries_are_written_after_yielding_once() {
        let (_peer, writer) = AfterJournal::new();
        let mut turn = JournalTurn::new(Some(Arc::clone(&writer)));
        for _ in 0..2 {
            drop(writer.end(&usage_record("m")).unwrap());
            let mut polls = 0;
            let polled = poll_fn(|context| {
                polls += 1;
                turn.poll(context)
            });
            assert!(polled.await);
            assert_eq!((polls, writer.has_collected()), (2, false));
        }
        drop(writer.end(&usage_record("m")).unwrap());
        turn.write();
        assert!(!writer.has_collected());
        // If nothing was collected, there is no need to wait for other connections.
        assert_eq!(futures_util::poll!(poll_fn(|context| turn.poll(context))), Poll::Ready(true));
        assert_eq!(futures_util::poll!(poll_fn(|context| JournalTurn::new(None).poll(context))), Poll::Ready(true));
    }
}
