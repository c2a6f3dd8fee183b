//! Stores the contents of ended requests: the texts that are to be redacted are replaced, and batches go to the database.
//!
//! Contents are a help for people and not part of the books, so nothing waits for them: those that the database does not take in time are
//! dropped and counted.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;
use tollgate_core::{Redaction, RequestContents, Timestamp};
use tollgate_store::{ContentStore, StoreError};

use crate::state::{
    content_queue::{ContentQueue, QueuedContents},
    metrics::ContentEnd,
    shared::Shared,
};

/// Contents in one batch.
const MAX_BATCH: usize = 100;
/// Bytes of contents in one batch; the last ones may exceed them.
const MAX_BATCH_BYTES: usize = 4 << 20;
/// How long the first contents of a batch wait for more.
const BATCH_WAIT: Duration = Duration::from_millis(200);
/// Longest wait at the end of the process until the remaining contents are stored.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);
/// Least time between two warnings about contents that are not stored.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);

/// The receiving end of the queue.
#[derive(Debug)]
pub struct ContentWriter {
    contents: mpsc::Receiver<QueuedContents>,
    /// Contents already taken from the queue for the next batch.
    next: Vec<QueuedContents>,
    /// Upper bound of the stored bytes, as far as this node knows.
    stored: u64,
    warned: Option<Instant>,
}

impl ContentWriter {
    /// A queue and what empties it.
    #[must_use]
    pub fn new() -> (ContentQueue, Self) {
        let (queue, contents) = ContentQueue::new();
        (queue, Self { contents, next: Vec::new(), stored: u64::MAX, warned: None })
    }

    /// Stores contents until `stop` is cancelled, then the remaining ones, for at most [`SHUTDOWN_LIMIT`].
    pub async fn run(mut self, store: Arc<dyn ContentStore>, shared: Arc<Shared>, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.wait() => {}
            }
            let batch = self.batch();
            self.store(batch, &*store, &shared).await;
        }
        let rest = async {
            loop {
                let batch = self.batch();
                if batch.is_empty() {
                    return;
                }
                self.store(batch, &*store, &shared).await;
            }
        };
        if tokio::time::timeout(SHUTDOWN_LIMIT, rest).await.is_err() {
            tracing::warn!("the contents of the last requests could not be stored in time");
        }
    }

    /// Waits for contents, and then for more of them. May be cancelled: nothing is lost.
    async fn wait(&mut self) {
        if self.next.is_empty() {
            match self.contents.recv().await {
                Some(first) => self.next.push(first),
                // The senders are gone: the process is about to stop.
                None => std::future::pending().await,
            }
        }
        tokio::time::sleep(BATCH_WAIT).await;
    }

    /// The next batch: as many of the waiting contents as fit.
    fn batch(&mut self) -> Vec<QueuedContents> {
        let mut batch = std::mem::take(&mut self.next);
        let mut bytes: usize = batch.iter().map(length).sum();
        while batch.len() < MAX_BATCH && bytes < MAX_BATCH_BYTES {
            let Ok(queued) = self.contents.try_recv() else { break };
            bytes += length(&queued);
            batch.push(queued);
        }
        batch
    }

    async fn store(&mut self, batch: Vec<QueuedContents>, store: &dyn ContentStore, shared: &Shared) {
        let settings = shared.settings.load();
        let redaction = settings.contents.redact.as_ref();
        // The batch keeps its space in the queue until it is stored.
        let rows: Vec<RequestContents> = batch.iter().map(|queued| redacted(queued.contents.clone(), redaction)).collect();
        if let Err(fault) = store.store_contents(&rows).await {
            shared.metrics.contents(ContentEnd::Lost, rows.len());
            self.warn(shared, &fault, "contents of requests could not be stored and are dropped");
            return;
        }
        shared.metrics.contents(ContentEnd::Stored, rows.len());
        let bytes: usize = batch.iter().map(length).sum();
        if let Err(fault) = self.make_room(bytes as u64, settings.contents.total_bytes, store).await {
            self.warn(shared, &fault, "stored contents could not be counted or removed; it will be tried again");
        }
    }

    /// Removes stored contents down to seven eighths of `max` when they may exceed it.
    async fn make_room(&mut self, new: u64, max: u64, store: &dyn ContentStore) -> Result<(), StoreError> {
        // Stored contents are compressed, so the length of their texts is an upper bound.
        self.stored = self.stored.saturating_add(new);
        if self.stored > max {
            while store.prune_contents(Timestamp(i64::MIN), max / 8 * 7).await? > 0 {}
            self.stored = store.stored_contents().await?.bytes;
        }
        Ok(())
    }

    fn warn(&mut self, shared: &Shared, fault: &StoreError, message: &str) {
        let now = shared.clock.instant();
        if self.warned.is_none_or(|warned| now.saturating_duration_since(warned) >= WARNING_INTERVAL) {
            self.warned = Some(now);
            tracing::warn!(%fault, "{message}");
        }
    }
}

/// Bytes of the texts.
fn length(queued: &QueuedContents) -> usize {
    queued.contents.request.text.len() + queued.contents.answer.text.len()
}

/// The contents after redaction.
fn redacted(mut contents: RequestContents, redaction: Option<&Redaction>) -> RequestContents {
    if let Some(redaction) = redaction {
        for excerpt in [&mut contents.request, &mut contents.answer] {
            if let Some(text) = redaction.redact(&excerpt.text) {
                excerpt.text = text;
            }
        }
    }
    contents
}
