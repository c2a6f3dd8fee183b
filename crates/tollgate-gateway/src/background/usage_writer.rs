//! Writes usage records to the database in batches, each record once. While the database is unavailable the journal is the
//! buffer: records that did not fit the queue are read back from it alongside new ones. Records that the database rejects
//! permanently are quarantined in the journal, so that other records do not wait for them.
//!
//! Bounds: 16,384 records in the queue, and as many in a batch as the database should get at once; after a failure it gets
//! fewer. A record waits for its batch at most 200 ms, and at most a second while records keep arriving. Retries after 0.25 s
//! doubling to 10 s. Account health is saved at most once a second.

mod batch;
mod bisect;
mod watch;

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
use tollgate_core::UsageRecord;
use tollgate_store::{BATCH_SIZE, HealthStore, Journal, StoreError, UnbookedRecords, UsageStore};

use batch::Batch;
use bisect::bisect;
use watch::{BookingClock, JournalWatch};

use crate::{
    hand_over::{HandOverPhase, PhaseReceiver},
    state::{
        health_registry::HealthRegistry,
        shared::Shared,
        usage_recorder::{QUEUE_CAPACITY, QueuedRecord, UsageQueue, UsageReceiver},
    },
};

/// Longest wait of a record for its batch. The writer sleeps on the timer and not on the queue, so that only the first
/// record of a batch has to wake it.
const BATCH_INTERVAL: Duration = Duration::from_millis(200);
/// [`BATCH_INTERVAL`] while records keep coming: after a batch of [`BUSY_BATCH`] records. The records of a batch share rows of
/// sums, statements and pages of the log, which take SQLite a third of the time of a batch of a hundred.
const BUSY_BATCH_INTERVAL: Duration = Duration::from_secs(1);
const BUSY_BATCH: usize = 32;
/// A batch of this size is written at once: more records would gain little, and the queue needs space for those that arrive meanwhile.
const LARGE_BATCH: usize = QUEUE_CAPACITY / 4;
/// A database that did not accept a batch gets half as many records next time, but not fewer than this. So a slow one, which does not
/// book a large batch before the time for it is over, books a small one.
const MIN_AT_ONCE: usize = 1_024;
/// Time until the journal is read again after a part of it could not be read.
const REREAD_AFTER: Duration = Duration::from_mins(1);
/// Maximum records quarantined because the database rejects them. If it rejects more, the fault is the database's.
const MAX_QUARANTINED: usize = 1_000;
/// Wait after the first failure to reach the database, and the longest between two attempts.
const MIN_RETRY_WAIT: Duration = Duration::from_millis(250);
const MAX_RETRY_WAIT: Duration = Duration::from_secs(10);
/// Longest time between the settlement of a request and the queueing of its record.
const PAUSE_GRACE: Duration = Duration::from_millis(5);
/// How often account health is saved.
const HEALTH_INTERVAL: Duration = Duration::from_secs(1);
/// How long a shutdown keeps trying to reach the database; the journal keeps the remaining records.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// The background task that books usage records.
#[derive(Debug)]
pub struct UsageWriter {
    queue: mpsc::Receiver<QueuedRecord>,
    /// True when a record is in the journal but did not fit the queue.
    spilled: Arc<AtomicBool>,
    /// When to read the journal again after a part of it could not be read.
    reread_at: Option<Instant>,
    /// When the batch that is being filled is written.
    batch_due: Option<Instant>,
    /// Longest wait for the next batch.
    batch_interval: Duration,
    /// The most records that the database gets at once.
    at_once: usize,
    usage: Arc<dyn UsageStore>,
    health_store: Arc<dyn HealthStore>,
    journal: Arc<Journal>,
    registry: Arc<HealthRegistry>,
    shared: Arc<Shared>,
    is_unreachable: AtomicBool,
    booking: BookingClock,
}

impl UsageWriter {
    /// A writer and the sending end of its queue. Records in the database are marked in `journal`.
    #[must_use]
    pub fn new(
        usage: Arc<dyn UsageStore>,
        health_store: Arc<dyn HealthStore>,
        journal: Arc<Journal>,
        registry: Arc<HealthRegistry>,
        shared: Arc<Shared>,
    ) -> (UsageQueue, Self) {
        let (sender, UsageReceiver { records, spilled }) = UsageQueue::new();
        let writer = Self {
            queue: records,
            spilled,
            reread_at: None,
            batch_due: None,
            batch_interval: BATCH_INTERVAL,
            at_once: usize::MAX,
            usage,
            health_store,
            journal,
            registry,
            shared,
            is_unreachable: AtomicBool::new(false),
            booking: BookingClock::default(),
        };
        (sender, writer)
    }

    fn now(&self) -> Instant {
        self.shared.clock.instant()
    }

    /// Writes records until every sender is dropped or `stop` is cancelled, then the remaining ones. `recovered` are the
    /// records that the last process left unwritten in the journal.
    pub async fn run(self, recovered: UnbookedRecords, stop: CancellationToken) -> UsageBacklog {
        let watch = JournalWatch {
            journal: Arc::clone(&self.journal),
            registry: Arc::clone(&self.registry),
            shared: Arc::clone(&self.shared),
            booking: self.booking.clone(),
            shown: AtomicI64::new(-1),
        };
        tokio::select! {
            backlog = self.write(recovered, stop) => backlog,
            never = watch.run() => match never {},
        }
    }

    async fn write(mut self, recovered: UnbookedRecords, stop: CancellationToken) -> UsageBacklog {
        let mut work = Batch::after(recovered);
        let mut retry = RetryBackoff::default();
        let mut health = tokio::time::interval(HEALTH_INTERVAL);
        health.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut phase = self.shared.serving.hand_over.subscribe();
        // A process that has just started may already be paused.
        phase.mark_changed();
        loop {
            let now = self.now();
            let open = tokio::select! {
                biased;
                () = stop.cancelled() => false,
                _ = health.tick() => {
                    self.reread_when_due();
                    self.save_health().await;
                    continue;
                }
                _ = phase.changed() => {
                    self.pause(&mut work, &mut phase, &stop).await;
                    continue;
                }
                open = self.collect(&mut work), if retry.left(now).is_zero() => open,
                () = sleep(retry.left(now)), if !retry.left(now).is_zero() => continue,
            };
            if !open {
                break;
            }
            if self.book(&mut work).await {
                retry = RetryBackoff::default();
            } else {
                retry.record_failure(self.now());
            }
        }
        self.finish(work).await
    }

    /// While the gateway is paused: books everything, reports whether that succeeded, and waits for the end of the pause.
    async fn pause(&mut self, batch: &mut Batch, phase: &mut PhaseReceiver, stop: &CancellationToken) {
        if *phase.borrow_and_update() != HandOverPhase::Paused {
            return;
        }
        // A request settled just before the pause may not have queued its record yet.
        sleep(PAUSE_GRACE).await;
        let is_booked = loop {
            self.fill(batch);
            if batch.is_empty() && !batch.has_backlog() && !self.spilled.load(Ordering::Acquire) {
                break true;
            }
            if !self.book(batch).await {
                break false;
            }
        };
        self.save_health().await;
        self.shared.serving.hand_over.booked(is_booked);
        tokio::select! {
            () = stop.cancelled() => {}
            _ = phase.wait_for(|phase| *phase != HandOverPhase::Paused) => {}
        }
    }

    /// Fills the batch from queue and backlog until it is full or its time is over. `false` when the queue is closed.
    async fn collect(&mut self, batch: &mut Batch) -> bool {
        self.fill(batch);
        while batch.is_empty() {
            match self.queue.recv().await {
                Some(queued) => batch.push(queued, &self.journal),
                None => return false,
            }
        }
        let due = *self.batch_due.get_or_insert(self.now() + self.batch_interval);
        while batch.records().len() + self.queue.len() < LARGE_BATCH && self.now() < due {
            sleep(BATCH_INTERVAL.min(due - self.now())).await;
        }
        self.fill(batch);
        self.batch_due = None;
        self.batch_interval = if batch.records().len() < BUSY_BATCH { BATCH_INTERVAL } else { BUSY_BATCH_INTERVAL };
        true
    }

    /// Fills the batch without waiting. While records are read back from the journal, they get half of each batch, so that
    /// neither the backlog nor new records starve.
    fn fill(&mut self, batch: &mut Batch) {
        let size = self.usage.batch_size();
        batch.set_size(size);
        if !batch.has_backlog() && batch.remaining() > 0 && self.spilled.swap(false, Ordering::AcqRel) {
            self.reread(batch);
        }
        let share = if batch.has_backlog() { size / 2 } else { 0 };
        self.fill_from_queue(batch, share);
        if batch.take_backlog() > 0 {
            self.reread_at = Some(self.now() + REREAD_AFTER);
        }
        self.fill_from_queue(batch, 0);
    }

    /// Takes records from the queue until the batch has space for only `leave` more.
    fn fill_from_queue(&mut self, batch: &mut Batch, leave: usize) {
        while batch.remaining() > leave {
            let Ok(queued) = self.queue.try_recv() else {
                batch.queue_is_empty();
                return;
            };
            batch.push(queued, &self.journal);
        }
    }

    /// Starts reading the journal's backlog; `false` when that failed.
    fn reread(&mut self, batch: &mut Batch) -> bool {
        match self.journal.backlog() {
            Ok(records) => {
                batch.read_back(records);
                true
            }
            Err(fault) => {
                tracing::error!(%fault, "the journal's backlog cannot be read");
                self.reread_at = Some(self.now() + REREAD_AFTER);
                false
            }
        }
    }

    /// Schedules another read of parts of the journal that could not be read.
    fn reread_when_due(&mut self) {
        if self.reread_at.is_some_and(|at| self.now() >= at) {
            self.reread_at = None;
            self.spilled.store(true, Ordering::Release);
        }
    }

    /// Writes a batch to the database; `false` when some records could not be written. Those stay in the batch.
    async fn book(&mut self, batch: &mut Batch) -> bool {
        let mut is_booked = true;
        while is_booked && !batch.is_empty() {
            self.booking.set(Some(self.now()));
            is_booked = self.append(batch).await;
            self.booking.set(None);
        }
        is_booked
    }

    /// Writes the first records of a batch, which is not empty.
    async fn append(&mut self, batch: &mut Batch) -> bool {
        let count = batch.records().len().min(self.at_once);
        match self.usage.append(&batch.records()[..count]).await {
            Ok(_new) => {
                self.booked(&batch.records()[..count]);
                batch.remove_first(count);
                self.at_once = self.at_once.saturating_mul(2);
                true
            }
            Err(fault) if fault.is_invalid_data() && self.journal.quarantined() < MAX_QUARANTINED => {
                self.book_bisected(batch).await
            }
            Err(fault) => {
                self.at_once = (count / 2).max(MIN_AT_ONCE);
                self.not_booked(batch, &fault)
            }
        }
    }

    /// Writes those records of a rejected batch that the database accepts.
    async fn book_bisected(&self, batch: &mut Batch) -> bool {
        let outcome = bisect(&*self.usage, &self.journal, batch.records()).await;
        for _ in 0..outcome.refused {
            self.shared.metrics.store_error("append_usage");
        }
        self.shared.metrics.booked(outcome.booked as u64);
        batch.keep(&outcome.left);
        match outcome.stopped {
            None => {
                self.set_unreachable(false);
                true
            }
            Some(fault) => self.not_booked(batch, &fault),
        }
    }

    fn booked(&self, records: &[UsageRecord]) {
        let ids: Vec<_> = records.iter().map(|record| record.id).collect();
        self.journal.mark_booked(&ids);
        self.shared.metrics.booked(ids.len() as u64);
        self.set_unreachable(false);
    }

    fn not_booked(&self, batch: &Batch, fault: &StoreError) -> bool {
        self.shared.metrics.store_error("append_usage");
        self.set_unreachable(true);
        let records = batch.records().len();
        tracing::warn!(%fault, records, "usage records wait in the journal: the database did not accept them");
        false
    }

    /// Reports an unreachable database to `/readyz`, on changes only, because other tasks set the same state.
    fn set_unreachable(&self, unreachable: bool) {
        if self.is_unreachable.swap(unreachable, Ordering::Relaxed) != unreachable {
            self.shared.serving.set_degraded(unreachable);
        }
    }

    async fn save_health(&self) {
        if self.shared.serving.hand_over.has_left() {
            // The successor has newer health.
            return;
        }
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

    /// Writes the remaining records and stops after [`SHUTDOWN_LIMIT`] when the database does not answer. Records not written
    /// are then in the journal or lost.
    async fn finish(mut self, mut batch: Batch) -> UsageBacklog {
        let deadline = self.now() + SHUTDOWN_LIMIT;
        let mut retry = RetryBackoff::default();
        self.queue.close();
        loop {
            self.fill(&mut batch);
            if batch.is_empty() {
                // Records that spilled after `fill` are read in the next round.
                if self.spilled.load(Ordering::Acquire) || batch.has_backlog() {
                    continue;
                }
                break;
            }
            let booked = matches!(tokio::time::timeout_at(deadline, self.book(&mut batch)).await, Ok(true));
            if !booked {
                retry.record_failure(self.now());
                if self.now() + retry.left(self.now()) >= deadline {
                    break;
                }
                sleep(retry.left(self.now())).await;
            }
        }
        self.save_health().await;
        let mut not_in_journal = batch.not_in_journal();
        let mut waiting = batch.records().len();
        while let Ok(QueuedRecord { record, in_journal }) = self.queue.try_recv() {
            waiting += 1;
            if !in_journal {
                not_in_journal.push(record);
            }
        }
        UsageBacklog { waiting, lost: self.journal.finish(&not_in_journal) }
    }
}

/// Exponential backoff between attempts to reach the database.
#[derive(Debug, Default)]
struct RetryBackoff {
    wait: Duration,
    at: Option<Instant>,
}

impl RetryBackoff {
    /// Time until the next attempt.
    fn left(&self, now: Instant) -> Duration {
        self.at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }

    fn record_failure(&mut self, now: Instant) {
        self.wait = (self.wait * 2).clamp(MIN_RETRY_WAIT, MAX_RETRY_WAIT);
        self.at = Some(now + self.wait);
    }
}

/// Records that a stopped writer leaves unwritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageBacklog {
    /// Records that are not in the database; all but `lost` are in the journal.
    pub waiting: usize,
    /// Records that are neither in the database nor on disk.
    pub lost: usize,
}

/// Writes the records that the last process left in the journal to the database, and returns their number. Must run before
/// requests are served, because spending is initialised from the database.
///
/// # Errors
/// When the database does not accept them; they stay in the journal.
pub async fn replay(usage: &dyn UsageStore, journal: &Journal, mut records: UnbookedRecords) -> Result<u64, StoreError> {
    let mut booked = 0;
    loop {
        let mut batch = Vec::new();
        for record in records.by_ref().take(BATCH_SIZE) {
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
                let outcome = bisect(usage, journal, &batch).await;
                if let Some(fault) = outcome.stopped {
                    return Err(fault);
                }
                booked += outcome.booked as u64;
            }
            Err(fault) => return Err(fault),
        }
    }
}

#[cfg(test)]
mod tests;
