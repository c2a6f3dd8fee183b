//! Stores the contents of ended requests: the texts that are to be redacted are replaced, and batches go to the database.
//!
//! Contents are for people to read and not part of the accounting, so nothing waits for them: contents that the database does not
//! accept in time are dropped and counted.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, task::spawn_blocking, time::Instant};
use tokio_util::sync::CancellationToken;
use tollgate_core::{Redaction, RequestContents, Timestamp};
use tollgate_store::{ContentStore, StoreError};

use crate::state::{
    content_queue::{ContentQueue, QueuedContents},
    metrics::ContentEnd,
    shared::Shared,
    shares::QueueCharge,
};

/// Contents in one batch.
const MAX_BATCH: usize = 100;
/// Target size of a batch in bytes; the last contents may exceed it.
const MAX_BATCH_BYTES: usize = 4 << 20;
/// Bytes of a row besides its compressed texts: sealing and the header of the texts.
const ROW_OVERHEAD: usize = 256;
/// The stored bytes are counted again once this node has added `1 / RECOUNTED_SHARE` of the limit.
const RECOUNTED_SHARE: u64 = 8;
/// How long the first contents of a batch wait for more.
const BATCH_WAIT: Duration = Duration::from_millis(200);
/// Longest wait at the end of the process until the remaining contents are stored.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);
/// Minimum time between two warnings about contents that are not stored.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);

/// The result of storing contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowsEnd {
    Stored,
    /// Larger than the limit of all stored contents together.
    TooLarge,
}

/// The receiving end of the queue.
#[derive(Debug)]
pub struct ContentWriter {
    contents: mpsc::Receiver<QueuedContents>,
    /// Contents already taken from the queue for the next batch.
    next: Vec<QueuedContents>,
    /// Stored bytes at the last count.
    counted: u64,
    /// Upper bound of the bytes that this node has added since then.
    added: u64,
    warned: Option<Instant>,
}

impl ContentWriter {
    /// A queue and what empties it.
    #[must_use]
    pub fn new() -> (ContentQueue, Self) {
        let (queue, contents) = ContentQueue::new();
        (queue, Self { contents, next: Vec::new(), counted: 0, added: u64::MAX, warned: None })
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
                // All senders are dropped: the process is about to stop.
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
        let settings = shared.settings.load().contents.clone();
        // The batch counts against the queue until it is stored.
        let (contents, _charges): (Vec<RequestContents>, Vec<QueueCharge>) =
            batch.into_iter().map(QueuedContents::into_parts).unzip();
        for rows in groups(redacted(contents, settings.redact).await, settings.total_bytes) {
            let count = rows.len();
            match self.store_rows(rows, settings.total_bytes, store).await {
                Ok(RowsEnd::Stored) => shared.metrics.contents(ContentEnd::Stored, count),
                Ok(RowsEnd::TooLarge) => shared.metrics.contents(ContentEnd::Dropped, count),
                Err(fault) => {
                    shared.metrics.contents(ContentEnd::Lost, count);
                    self.warn(shared, &fault, "contents of requests could not be stored and are dropped");
                }
            }
        }
    }

    /// Stores contents, after removing older ones if space is needed for them.
    async fn store_rows(&mut self, rows: Vec<RequestContents>, max: u64, store: &dyn ContentStore) -> Result<RowsEnd, StoreError> {
        let new = rows.iter().map(largest).sum();
        if new > max {
            return Ok(RowsEnd::TooLarge);
        }
        self.free_space(new, max, store).await?;
        // Counted before the result is known: the rows may be stored although the database did not answer in time.
        self.added = self.added.saturating_add(new);
        store.store_contents(rows).await?;
        Ok(RowsEnd::Stored)
    }

    /// Removes stored contents down to seven eighths of `max`, or less for a large batch, when they and `new` bytes may exceed it.
    async fn free_space(&mut self, new: u64, max: u64, store: &dyn ContentStore) -> Result<(), StoreError> {
        // Other nodes store contents too.
        if self.added.saturating_add(new) > max / RECOUNTED_SHARE {
            self.count(store).await?;
        }
        if self.counted.saturating_add(self.added).saturating_add(new) > max {
            let level = (max - max / RECOUNTED_SHARE).min(max - new);
            while store.prune_contents(Timestamp(i64::MIN), level).await? > 0 {}
            self.count(store).await?;
        }
        Ok(())
    }

    async fn count(&mut self, store: &dyn ContentStore) -> Result<(), StoreError> {
        self.counted = store.stored_contents().await?.bytes;
        self.added = 0;
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

/// Upper bound of the bytes that contents take in the database, with sealing and the growth of incompressible text.
fn largest(contents: &RequestContents) -> u64 {
    let text = contents.request.text.len() + contents.answer.text.len();
    (text + text / 256 + ROW_OVERHEAD) as u64
}

/// Contents divided so that no group takes more than `max` bytes, except a single row that does.
fn groups(rows: Vec<RequestContents>, max: u64) -> Vec<Vec<RequestContents>> {
    let (mut groups, mut left): (Vec<Vec<RequestContents>>, u64) = (Vec::new(), 0);
    for row in rows {
        let bytes = largest(&row);
        if let Some(group) = groups.last_mut().filter(|_| bytes <= left) {
            left -= bytes;
            group.push(row);
        } else {
            left = max.saturating_sub(bytes);
            groups.push(vec![row]);
        }
    }
    groups
}

/// The contents after redaction. Regular expressions take milliseconds for a batch, so they run on a thread that serves no requests.
async fn redacted(mut contents: Vec<RequestContents>, redaction: Option<Redaction>) -> Vec<RequestContents> {
    let Some(redaction) = redaction else { return contents };
    let work = move || {
        for excerpt in contents.iter_mut().flat_map(|contents| [&mut contents.request, &mut contents.answer]) {
            if let Some(text) = redaction.redact(&excerpt.text) {
                excerpt.text = text;
            }
        }
        contents
    };
    match spawn_blocking(work).await {
        Ok(contents) => contents,
        Err(fault) if fault.is_panic() => std::panic::resume_unwind(fault.into_panic()),
        // The runtime is ending.
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use tollgate_core::{Excerpt, KeyId, MemberId, RequestId};
    use tollgate_store::StoredContents;

    use super::*;

    /// Stores contents like a database, and records the maximum number of bytes it has held.
    #[derive(Debug, Default)]
    struct Kept(Mutex<(Vec<(RequestId, u64)>, u64)>);

    impl Kept {
        fn most(&self) -> u64 {
            self.0.lock().unwrap().1
        }

        fn ids(&self) -> Vec<RequestId> {
            self.0.lock().unwrap().0.iter().map(|(id, _)| *id).collect()
        }
    }

    #[async_trait]
    impl ContentStore for Kept {
        async fn store_contents(&self, contents: Vec<RequestContents>) -> Result<(), StoreError> {
            let mut kept = self.0.lock().unwrap();
            kept.0.extend(contents.iter().map(|row| (row.id, largest(row))));
            kept.1 = kept.1.max(kept.0.iter().map(|(_, bytes)| bytes).sum());
            Ok(())
        }

        async fn contents(&self, _: RequestId) -> Result<Option<RequestContents>, StoreError> {
            Ok(None)
        }

        async fn has_contents(&self, request: RequestId) -> Result<bool, StoreError> {
            Ok(self.ids().contains(&request))
        }

        async fn remove_contents(&self, _: RequestId) -> Result<bool, StoreError> {
            Ok(false)
        }

        async fn stored_contents(&self) -> Result<StoredContents, StoreError> {
            let kept = self.0.lock().unwrap();
            Ok(StoredContents { requests: kept.0.len() as u64, bytes: kept.0.iter().map(|(_, bytes)| bytes).sum() })
        }

        async fn prune_contents(&self, _: Timestamp, max_bytes: u64) -> Result<u64, StoreError> {
            let mut kept = self.0.lock().unwrap();
            let before = kept.0.len();
            while kept.0.iter().map(|(_, bytes)| bytes).sum::<u64>() > max_bytes {
                kept.0.remove(0);
            }
            Ok((before - kept.0.len()) as u64)
        }
    }

    fn contents(number: i64, length: usize) -> RequestContents {
        let at = Timestamp(0).plus_ms(number);
        RequestContents {
            id: RequestId::from_parts(at, [1; 10]),
            at,
            key: KeyId::from_uuid(uuid::Uuid::nil()),
            member: MemberId::from_uuid(uuid::Uuid::nil()),
            request: Excerpt { text: "x".repeat(length), bytes: length as u64, is_cut: false },
            answer: Excerpt::default(),
        }
    }

    /// Stores contents of these lengths as one batch. Returns how many were too large.
    async fn store(writer: &mut ContentWriter, kept: &Kept, first: i64, lengths: &[usize], max: u64) -> usize {
        let rows = (first..).zip(lengths).map(|(number, length)| contents(number, *length)).collect();
        let mut too_large = 0;
        for rows in groups(rows, max) {
            let count = rows.len();
            if writer.store_rows(rows, max, kept).await.unwrap() == RowsEnd::TooLarge {
                too_large += count;
            }
        }
        too_large
    }

    #[tokio::test]
    async fn oldest_contents_are_removed_before_new_ones_are_stored() {
        let (kept, (_, mut writer)) = (Kept::default(), ContentWriter::new());
        let max = 10_000;
        for batch in 0..50 {
            assert_eq!(store(&mut writer, &kept, batch * 10, &[700, 0, 1_500, 30], max).await, 0);
            assert_eq!(kept.ids().last(), Some(&contents(batch * 10 + 3, 0).id), "the newest are there");
        }
        assert!((8_000..=max).contains(&kept.most()), "{}", kept.most());
        // A batch larger than the total limit is stored in parts, and a single row larger than the limit is not stored.
        assert_eq!(store(&mut writer, &kept, 1_000, &[6_000, 6_000, 20_000, 3_000], max).await, 1);
        assert_eq!(kept.ids(), [contents(1_001, 0).id, contents(1_003, 0).id]);
        assert!(kept.most() <= max, "{}", kept.most());
        // The setting becomes smaller.
        assert_eq!(store(&mut writer, &kept, 2_000, &[500], 4_000).await, 0);
        assert!(kept.stored_contents().await.unwrap().bytes <= 4_000);
    }

    #[tokio::test]
    async fn contents_stored_by_other_nodes_are_recounted_periodically() {
        let (kept, (_, mut one), (_, mut other)) = (Kept::default(), ContentWriter::new(), ContentWriter::new());
        let max = 100_000;
        for number in 0..200 {
            store(&mut one, &kept, number * 2, &[2_000], max).await;
            store(&mut other, &kept, number * 2 + 1, &[2_000], max).await;
        }
        assert!(kept.most() <= max + max / RECOUNTED_SHARE, "{}", kept.most());
    }

    #[tokio::test]
    async fn redaction_yields_to_other_tasks() {
        let text = |number| contents(number, 200_000);
        let redaction = Redaction::new("x{3}|[a-z]+@[a-z]+").unwrap();
        let work = tokio_util::task::TaskTracker::new().spawn(redacted((0..10).map(text).collect(), Some(redaction)));
        let mut turns = 0_u64;
        while !work.is_finished() {
            turns += 1;
            tokio::task::yield_now().await;
        }
        let rows = work.await.unwrap();
        assert!(rows.len() == 10 && rows.iter().all(|row| row.request.text.starts_with("[redacted]")));
        assert!(turns > 20, "{turns} turns of another task on the only thread of the runtime");
    }
}
