//! Background: from the journal to the database, in batches, each record once. While the database is away the journal
//! is the buffer; what did not fit the queue in memory is read back from it.
//!
//! Bounds: 16,384 records in the queue, 4,096 a batch, a batch at least every 200 ms while there is something to book,
//! retries after 0.25 s doubling to 10 s; account health at most once a second.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::mpsc::{self, OwnedPermit},
    time::{Instant, MissedTickBehavior, sleep},
};
use tokio_util::sync::CancellationToken;
use tollgate_core::{Standing, Timestamp, UsageRecord};
use tollgate_store::{HealthStore, Journal, Records, StoreError, UsageStore};

use crate::{HealthBoard, Shared};

/// Records that wait in memory.
const QUEUE: usize = 16_384;
/// Records of a transaction.
const BATCH: usize = 4_096;
/// Longest wait of a record for its batch. The clock is waited for and not the queue: a core that hands a record in
/// wakes nobody but with the first one.
const BATCH_EVERY: Duration = Duration::from_millis(200);
/// First wait after a failure.
const RETRY_FIRST: Duration = Duration::from_millis(250);
/// Longest wait between two tries.
const RETRY_LAST: Duration = Duration::from_secs(10);
/// How often health is saved.
const HEALTH_EVERY: Duration = Duration::from_secs(1);
/// How often room is made for the months to come.
const ROOM_EVERY: Duration = Duration::from_hours(1);
/// How long booking goes on after the last request when the database does not answer; the journal keeps the rest.
const LAST_TRY: Duration = Duration::from_secs(5);

/// The cores' end of the queue.
#[derive(Clone, Debug)]
pub struct TillQueue {
    records: mpsc::Sender<UsageRecord>,
    spilled: Arc<AtomicBool>,
}

/// Room for one record.
#[derive(Debug)]
pub(crate) struct Place(OwnedPermit<UsageRecord>);

impl TillQueue {
    /// Sets room aside; `None` when the queue is full: the record will come by way of the journal.
    pub(crate) fn reserve(&self) -> Option<Place> {
        self.records.clone().try_reserve_owned().ok().map(Place)
    }

    /// Hands a record over. `kept`: the journal has it, so that it may be left out when there is no room. Returns
    /// whether it will be booked from here.
    pub(crate) fn put(&self, record: UsageRecord, place: Option<Place>, kept: bool) -> bool {
        let queued = match place {
            Some(Place(permit)) => {
                permit.send(record);
                true
            }
            None => self.records.try_send(record).is_ok(),
        };
        if !queued && kept {
            self.spilled.store(true, Ordering::Release);
        }
        queued
    }
}

/// The database's end.
#[derive(Debug)]
pub struct Till {
    queue: mpsc::Receiver<UsageRecord>,
    spilled: Arc<AtomicBool>,
    usage: Arc<dyn UsageStore>,
    health_store: Arc<dyn HealthStore>,
    journal: Arc<Journal>,
    board: Arc<HealthBoard>,
    shared: Arc<Shared>,
    is_away: AtomicBool,
    /// Revision whose accounts are in the metrics.
    shown: AtomicI64,
}

/// What a till works with.
#[derive(Debug)]
pub struct TillParts {
    /// Where records go.
    pub usage: Arc<dyn UsageStore>,
    /// Where health goes.
    pub health_store: Arc<dyn HealthStore>,
    /// Where records come from, and which segments may go.
    pub journal: Arc<Journal>,
    /// Health of accounts.
    pub board: Arc<HealthBoard>,
    /// Clock and figures.
    pub shared: Arc<Shared>,
}

impl Till {
    /// A till and the queue that leads to it.
    #[must_use]
    pub fn new(parts: TillParts) -> (TillQueue, Self) {
        let (records, queue) = mpsc::channel(QUEUE);
        let spilled = Arc::new(AtomicBool::new(false));
        let TillParts { usage, health_store, journal, board, shared } = parts;
        let till = Self {
            queue,
            spilled: Arc::clone(&spilled),
            usage,
            health_store,
            journal,
            board,
            shared,
            is_away: AtomicBool::new(false),
            shown: AtomicI64::new(-1),
        };
        (TillQueue { records, spilled }, till)
    }

    /// What waits in the queue; it is taken out.
    #[cfg(test)]
    pub(crate) fn waiting(&mut self) -> Vec<UsageRecord> {
        std::iter::from_fn(|| self.queue.try_recv().ok()).collect()
    }

    /// The next record in the queue.
    #[cfg(test)]
    pub(crate) async fn next(&mut self) -> Option<UsageRecord> {
        self.queue.recv().await
    }

    /// Books until every queue is dropped or `stop` is cancelled, then what is left. `recovered` is what the last
    /// process had not booked. Returns how many records the database did not take; they stay in the journal.
    pub async fn run(mut self, recovered: Records, stop: CancellationToken) -> usize {
        let mut backlog = Some(recovered);
        let mut batch = VecDeque::new();
        let mut retry = Retry::default();
        let mut health = tokio::time::interval(HEALTH_EVERY);
        health.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut room = tokio::time::interval(ROOM_EVERY);
        loop {
            let open = tokio::select! {
                biased;
                () = stop.cancelled() => false,
                _ = health.tick() => {
                    self.save_health().await;
                    self.show();
                    continue;
                }
                _ = room.tick() => {
                    self.make_room().await;
                    continue;
                }
                open = self.collect(&mut batch, &mut backlog), if retry.is_due() => open,
                () = sleep(retry.left()), if !retry.is_due() => continue,
            };
            if !open {
                break;
            }
            if self.book(&mut batch).await {
                retry = Retry::default();
            } else {
                retry.again();
            }
        }
        self.finish(batch, backlog).await
    }

    /// Fills the batch: the backlog first, then the queue, until the batch is full or has waited long enough. `false`
    /// when nothing will come any more.
    async fn collect(&mut self, batch: &mut VecDeque<UsageRecord>, backlog: &mut Option<Records>) -> bool {
        take_backlog(batch, backlog);
        if backlog.is_none() && self.queue.is_empty() && self.spilled.swap(false, Ordering::AcqRel) {
            self.reread(backlog);
            take_backlog(batch, backlog);
        }
        if !batch.is_empty() && batch.len() >= BATCH {
            return true;
        }
        if batch.is_empty() {
            match self.queue.recv().await {
                Some(record) => batch.push_back(record),
                None => return false,
            }
        }
        if batch.len() + self.queue.len() < BATCH {
            sleep(BATCH_EVERY).await;
        }
        self.fill(batch);
        true
    }

    /// Takes what waits in the queue, as much as the batch has room for.
    fn fill(&mut self, batch: &mut VecDeque<UsageRecord>) {
        while batch.len() < BATCH {
            match self.queue.try_recv() {
                Ok(record) => batch.push_back(record),
                Err(_) => break,
            }
        }
    }

    fn reread(&self, backlog: &mut Option<Records>) {
        match self.journal.backlog() {
            Ok(records) => *backlog = Some(records),
            Err(fault) => {
                tracing::error!(%fault, "the journal cannot be read back");
                self.spilled.store(true, Ordering::Release);
            }
        }
    }

    /// Books a batch; `false` when the database did not take it, which leaves the batch as it is.
    async fn book(&self, batch: &mut VecDeque<UsageRecord>) -> bool {
        if batch.is_empty() {
            return true;
        }
        let records = &*batch.make_contiguous();
        match self.usage.append(records).await {
            Ok(_new) => {
                let ids: Vec<_> = records.iter().map(|record| record.id).collect();
                self.journal.booked(&ids);
                self.shared.metrics.booked(ids.len() as u64);
                self.away(false);
                batch.clear();
                true
            }
            Err(fault) => {
                self.shared.metrics.store_error("append_usage");
                self.away(true);
                tracing::warn!(%fault, records = batch.len(), "usage records wait in the journal: the database did not take them");
                false
            }
        }
    }

    /// `/readyz` says so when the database is away; it is told on changes only, since others may tell it too.
    fn away(&self, away: bool) {
        if self.is_away.swap(away, Ordering::Relaxed) != away {
            self.shared.condition.set_degraded(away);
        }
    }

    /// The gauges that only this side knows.
    fn show(&self) {
        let now = self.shared.clock.now();
        let age = self.journal.oldest().map_or(0, |oldest| u64::try_from(now.ms_since(oldest)).unwrap_or(0));
        self.shared.metrics.journal(self.journal.bytes(), Duration::from_millis(age));
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
                let rests = !matches!(self.board.of(account.id).standing(now), Standing::Usable | Standing::ProbeDue);
                self.shared.metrics.account_usable(&channel.name, &account.name, channel.on && account.on && !rests);
            }
        }
    }

    /// A database that is away is asked again in an hour; records of a month without room are kept all the same.
    async fn make_room(&self) {
        if let Err(fault) = self.usage.make_room(self.shared.clock.now()).await {
            self.shared.metrics.store_error("make_room");
            tracing::debug!(%fault, "no room was made for the coming months");
        }
    }

    async fn save_health(&self) {
        let changed = self.board.take_unsaved();
        if changed.is_empty() {
            return;
        }
        let now = self.shared.clock.now();
        if let Err(fault) = self.health_store.save_health(&changed, now).await {
            self.shared.metrics.store_error("save_health");
            tracing::debug!(%fault, "account health was not saved");
            self.board.put_back(changed.into_iter().map(|(account, _)| account));
        }
    }

    /// The last batches; gives up a while after the database stopped answering.
    async fn finish(mut self, mut batch: VecDeque<UsageRecord>, mut backlog: Option<Records>) -> usize {
        let give_up = Instant::now() + LAST_TRY;
        let mut retry = Retry::default();
        self.queue.close();
        loop {
            take_backlog(&mut batch, &mut backlog);
            self.fill(&mut batch);
            if batch.is_empty() {
                if !self.spilled.swap(false, Ordering::AcqRel) {
                    break;
                }
                self.reread(&mut backlog);
                continue;
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
        batch.len() + self.queue.len()
    }
}

/// Books what the last process left in the journal; to be done before anything is sold, since what was spent is counted
/// from what is booked. How many records there were.
///
/// # Errors
/// When the database does not take them; they stay in the journal.
pub async fn replay(usage: &dyn UsageStore, journal: &Journal, mut records: Records) -> Result<u64, StoreError> {
    let mut booked = 0;
    loop {
        let batch: Vec<UsageRecord> = records.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            return Ok(booked);
        }
        usage.append(&batch).await?;
        let ids: Vec<_> = batch.iter().map(|record| record.id).collect();
        journal.booked(&ids);
        booked += ids.len() as u64;
    }
}

fn take_backlog(batch: &mut VecDeque<UsageRecord>, backlog: &mut Option<Records>) {
    if let Some(records) = backlog {
        let room = BATCH.saturating_sub(batch.len());
        batch.extend(records.take(room));
        if batch.len() < BATCH {
            *backlog = None;
        }
    }
}

/// When to try again.
#[derive(Debug, Default)]
struct Retry {
    wait: Duration,
    at: Option<Instant>,
}

impl Retry {
    fn is_due(&self) -> bool {
        self.at.is_none_or(|at| Instant::now() >= at)
    }

    fn left(&self) -> Duration {
        self.at.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()))
    }

    fn again(&mut self) {
        self.wait = (self.wait * 2).clamp(RETRY_FIRST, RETRY_LAST);
        self.at = Some(Instant::now() + self.wait);
    }
}

#[cfg(test)]
pub(crate) mod memory;
#[cfg(test)]
mod tests;
