//! Background: from the journal to the database, in batches, each record once. While the database is away the journal
//! is the buffer; what did not fit the queue in memory is read back from it, beside what comes in then. What the database
//! refuses permanently is quarantined in the journal, so that no other record waits for it.
//!
//! Bounds: 16,384 records in the queue, 4,096 a batch, a batch at least every 200 ms while there is something to book,
//! retries after 0.25 s doubling to 10 s; account health at most once a second.

mod batch;
mod bisect;
mod retry;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, sleep},
};
use tokio_util::sync::CancellationToken;
use tollgate_core::{Availability, Timestamp, UsageRecord};
use tollgate_store::{HealthStore, Journal, StoreError, UnbookedRecords, UsageStore};

use batch::Batch;
use bisect::bisect;
use retry::RetryBackoff;

use crate::state::{
    health_registry::HealthRegistry,
    shared::Shared,
    usage_queue::{QueuedRecord, UsageQueue, UsageReceiver},
};

/// Records of a transaction.
const BATCH: usize = 4_096;
/// Longest wait of a record for its batch. The clock is waited for and not the queue: a core that hands a record in
/// wakes the writer with the first one only.
const BATCH_EVERY: Duration = Duration::from_millis(200);
/// When the journal is read again of which a part could not be read.
const REREAD_AFTER: Duration = Duration::from_mins(1);
/// Most records quarantined because the database rejects them. If it rejects more, the database is at fault.
const REFUSED_MOST: usize = 1_000;
/// How often health is saved.
const HEALTH_EVERY: Duration = Duration::from_secs(1);
/// How often room is made for the months to come.
const ROOM_EVERY: Duration = Duration::from_hours(1);
/// How long booking goes on after the last request when the database does not answer; the journal keeps the rest.
const LAST_TRY: Duration = Duration::from_secs(5);

/// The database's end.
#[derive(Debug)]
pub struct UsageWriter {
    queue: mpsc::Receiver<QueuedRecord>,
    /// Whether something has its end in the journal and found no room in the queue.
    spilled: Arc<AtomicBool>,
    /// When the journal is looked through again after a part of it could not be read.
    reread_at: Option<Instant>,
    usage: Arc<dyn UsageStore>,
    health_store: Arc<dyn HealthStore>,
    journal: Arc<Journal>,
    registry: Arc<HealthRegistry>,
    shared: Arc<Shared>,
    is_unreachable: AtomicBool,
    /// Revision whose accounts are in the metrics.
    shown: AtomicI64,
}

/// Dependencies of a usage writer.
#[derive(Debug)]
pub struct UsageWriterParts {
    /// Where records go.
    pub usage: Arc<dyn UsageStore>,
    /// Where health goes.
    pub health_store: Arc<dyn HealthStore>,
    /// Where records come from, and which segments may go.
    pub journal: Arc<Journal>,
    /// Health of accounts.
    pub registry: Arc<HealthRegistry>,
    /// Clock and figures.
    pub shared: Arc<Shared>,
}

impl UsageWriter {
    /// A writer and the queue that leads to it.
    #[must_use]
    pub fn new(parts: UsageWriterParts) -> (UsageQueue, Self) {
        let (sender, UsageReceiver { records, spilled }) = UsageQueue::new();
        let UsageWriterParts { usage, health_store, journal, registry, shared } = parts;
        let writer = Self {
            queue: records,
            spilled,
            reread_at: None,
            usage,
            health_store,
            journal,
            registry,
            shared,
            is_unreachable: AtomicBool::new(false),
            shown: AtomicI64::new(-1),
        };
        (sender, writer)
    }

    /// What waits in the queue; it is taken out.
    #[cfg(test)]
    pub(crate) fn waiting(&mut self) -> Vec<UsageRecord> {
        std::iter::from_fn(|| self.queue.try_recv().ok()).map(|queued| queued.record).collect()
    }

    /// The next record in the queue.
    #[cfg(test)]
    pub(crate) async fn next(&mut self) -> Option<UsageRecord> {
        self.queue.recv().await.map(|queued| queued.record)
    }

    /// Books until every queue is dropped or `stop` is cancelled, then what is left. `recovered` is what the last
    /// process had not booked.
    pub async fn run(mut self, recovered: UnbookedRecords, stop: CancellationToken) -> UsageBacklog {
        let mut work = Batch::after(recovered);
        let mut retry = RetryBackoff::default();
        let mut health = tokio::time::interval(HEALTH_EVERY);
        health.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut room = tokio::time::interval(ROOM_EVERY);
        loop {
            let open = tokio::select! {
                biased;
                () = stop.cancelled() => false,
                _ = health.tick() => {
                    self.look_at_journal();
                    self.save_health().await;
                    self.show();
                    continue;
                }
                _ = room.tick() => {
                    self.create_partitions().await;
                    continue;
                }
                open = self.collect(&mut work), if retry.is_due() => open,
                () = sleep(retry.left()), if !retry.is_due() => continue,
            };
            if !open {
                break;
            }
            if self.book(&mut work).await {
                retry = RetryBackoff::default();
            } else {
                retry.again();
            }
        }
        self.finish(work).await
    }

    /// Fills the batch from queue and backlog, until it is full or has waited long enough. `false` when nothing will come
    /// any more.
    async fn collect(&mut self, batch: &mut Batch) -> bool {
        self.fill(batch);
        while batch.is_empty() {
            match self.queue.recv().await {
                Some(queued) => batch.take(queued, &self.journal),
                None => return false,
            }
        }
        if batch.room() > self.queue.len() {
            sleep(BATCH_EVERY).await;
            self.fill(batch);
        }
        true
    }

    /// Takes what is there, as much as the batch has room for. While something is read back from the journal it gets half
    /// of each batch: it neither waits for requests to stop nor delays running ones.
    fn fill(&mut self, batch: &mut Batch) {
        if !batch.has_backlog() && batch.room() > 0 && self.spilled.swap(false, Ordering::AcqRel) {
            self.reread(batch);
        }
        let share = if batch.has_backlog() { BATCH / 2 } else { 0 };
        self.fill_from_queue(batch, share);
        if batch.take_backlog() > 0 {
            self.reread_at = Some(Instant::now() + REREAD_AFTER);
        }
        self.fill_from_queue(batch, 0);
    }

    /// Takes from the queue until so much room is left.
    fn fill_from_queue(&mut self, batch: &mut Batch, leave: usize) {
        while batch.room() > leave {
            let Ok(queued) = self.queue.try_recv() else {
                batch.queue_is_empty();
                return;
            };
            batch.take(queued, &self.journal);
        }
    }

    /// Looks through the journal; `false` when that failed.
    fn reread(&mut self, batch: &mut Batch) -> bool {
        match self.journal.backlog() {
            Ok(records) => {
                batch.read_back(records);
                true
            }
            Err(fault) => {
                tracing::error!(%fault, "the journal cannot be read back");
                self.reread_at = Some(Instant::now() + REREAD_AFTER);
                false
            }
        }
    }

    /// What waits in the journal's memory goes to the disk when there is room, whether or not another request comes. What
    /// could not be read is tried again.
    fn look_at_journal(&mut self) {
        if self.journal.pending_bytes() > 0 {
            self.journal.write_pending();
        }
        if self.reread_at.is_some_and(|at| Instant::now() >= at) {
            self.reread_at = None;
            self.spilled.store(true, Ordering::Release);
        }
    }

    /// Books a batch; `false` when the database did not take all of it, which leaves the rest in the batch.
    async fn book(&self, batch: &mut Batch) -> bool {
        if batch.is_empty() {
            return true;
        }
        match self.usage.append(batch.records()).await {
            Ok(_new) => {
                self.booked(batch.records());
                batch.clear();
                true
            }
            Err(fault) if fault.is_invalid_data() && self.journal.quarantined() < REFUSED_MOST => self.book_bisected(batch).await,
            Err(fault) => self.not_booked(batch, &fault),
        }
    }

    /// Books what the database takes of a batch that it refuses as a whole.
    async fn book_bisected(&self, batch: &mut Batch) -> bool {
        let apart = bisect(&*self.usage, &self.journal, batch.records()).await;
        for _ in 0..apart.refused {
            self.shared.metrics.store_error("append_usage");
        }
        self.shared.metrics.booked(apart.booked as u64);
        batch.keep(&apart.left);
        match apart.stopped {
            None => {
                self.away(false);
                true
            }
            Some(fault) => self.not_booked(batch, &fault),
        }
    }

    fn booked(&self, records: &[UsageRecord]) {
        let ids: Vec<_> = records.iter().map(|record| record.id).collect();
        self.journal.mark_booked(&ids);
        self.shared.metrics.booked(ids.len() as u64);
        self.away(false);
    }

    fn not_booked(&self, batch: &Batch, fault: &StoreError) -> bool {
        self.shared.metrics.store_error("append_usage");
        self.away(true);
        let records = batch.records().len();
        tracing::warn!(%fault, records, "usage records wait in the journal: the database did not take them");
        false
    }

    /// `/readyz` says so when the database is away; it is told on changes only, since others may tell it too.
    fn away(&self, away: bool) {
        if self.is_unreachable.swap(away, Ordering::Relaxed) != away {
            self.shared.condition.set_degraded(away);
        }
    }

    /// The gauges that only this side knows.
    fn show(&self) {
        let now = self.shared.clock.now();
        let age = self.journal.oldest_unbooked().map_or(0, |oldest| u64::try_from(now.ms_since(oldest)).unwrap_or(0));
        self.shared.metrics.journal(self.journal.bytes(), Duration::from_millis(age));
        let (held, refused) = (self.journal.pending_requests(), self.journal.quarantined());
        self.shared.metrics.journal_trouble(held, refused);
        self.shared.condition.set_in_memory_only(held);
        self.show_accounts(now);
    }

    /// Every configured account, those nothing ever happened to included; one whose cooling ended is usable again
    /// without anything happening to it.
    fn show_accounts(&self, now: Timestamp) {
        let catalog = self.shared.catalog.load();
        if self.shown.swap(catalog.revision.0, Ordering::Relaxed) != catalog.revision.0 {
            self.shared.metrics.forget_accounts();
        }
        for channel in catalog.channels.values() {
            for account in &channel.accounts {
                let rests =
                    !matches!(self.registry.of(account.id).availability(now), Availability::Usable | Availability::ProbeDue);
                self.shared.metrics.account_usable(&channel.name, &account.name, channel.on && account.on && !rests);
            }
        }
    }

    /// A database that is away is asked again in an hour; records of a month without room are kept all the same.
    async fn create_partitions(&self) {
        if let Err(fault) = self.usage.create_partitions(self.shared.clock.now()).await {
            self.shared.metrics.store_error("create_partitions");
            tracing::debug!(%fault, "no room was made for the coming months");
        }
    }

    async fn save_health(&self) {
        let changed = self.registry.take_unsaved();
        if changed.is_empty() {
            return;
        }
        let now = self.shared.clock.now();
        if let Err(fault) = self.health_store.save_health(&changed, now).await {
            self.shared.metrics.store_error("save_health");
            tracing::debug!(%fault, "account health was not saved");
            self.registry.put_back(changed.into_iter().map(|(account, _)| account));
        }
    }

    /// The last batches; gives up a while after the database stopped answering. What it did not take is on disk then, or
    /// lost.
    async fn finish(mut self, mut batch: Batch) -> UsageBacklog {
        let give_up = Instant::now() + LAST_TRY;
        let mut retry = RetryBackoff::default();
        self.queue.close();
        loop {
            self.fill(&mut batch);
            if batch.is_empty() {
                // What came between the look and here is seen by the next one.
                if self.spilled.load(Ordering::Acquire) || batch.has_backlog() {
                    continue;
                }
                break;
            }
            let booked = matches!(tokio::time::timeout_at(give_up, self.book(&mut batch)).await, Ok(true));
            if !booked {
                retry.again();
                if Instant::now() + retry.left() >= give_up {
                    break;
                }
                sleep(retry.left()).await;
            }
        }
        self.save_health().await;
        let mut unkept = batch.unkept();
        let mut waiting = batch.records().len();
        while let Ok(QueuedRecord { record, in_journal }) = self.queue.try_recv() {
            waiting += 1;
            if !in_journal {
                unkept.push(record);
            }
        }
        UsageBacklog { waiting, lost: self.journal.finish(&unkept) }
    }
}

/// State of a finished usage writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageBacklog {
    /// Records that the database did not take; they are in the journal but for those that are lost.
    pub waiting: usize,
    /// Records that neither the database nor the disk took.
    pub lost: usize,
}

/// Books what the last process left in the journal; to be done before anything is sold, since what was spent is counted
/// from what is booked. How many records there were.
///
/// # Errors
/// When the database does not take them; they stay in the journal.
pub async fn replay(usage: &dyn UsageStore, journal: &Journal, mut records: UnbookedRecords) -> Result<u64, StoreError> {
    let mut booked = 0;
    loop {
        let mut batch = Vec::new();
        for record in records.by_ref().take(BATCH) {
            match record {
                Ok(record) => batch.push(record),
                Err(fault) => tracing::error!(%fault, "a part of the journal cannot be read"),
            }
        }
        if batch.is_empty() {
            return Ok(booked);
        }
        match usage.append(&batch).await {
            Ok(_new) => {
                let ids: Vec<_> = batch.iter().map(|record| record.id).collect();
                journal.mark_booked(&ids);
                booked += ids.len() as u64;
            }
            Err(fault) if fault.is_invalid_data() => {
                let apart = bisect(usage, journal, &batch).await;
                if let Some(fault) = apart.stopped {
                    return Err(fault);
                }
                booked += apart.booked as u64;
            }
            Err(fault) => return Err(fault),
        }
    }
}

#[cfg(test)]
pub(crate) mod memory;
#[cfg(test)]
mod tests;
