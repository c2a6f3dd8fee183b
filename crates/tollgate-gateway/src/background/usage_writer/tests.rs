//! Records are written to the database exactly once despite its faults.

use tempfile::TempDir;
use tollgate_core::{AccountId, AttemptStart, Catalog, CoolingRules, Observation, RequestId, Timestamp};
use tollgate_store::{BATCH_SIZE, JournalOptions, JournalWriter};

use super::*;
use crate::{
    serving_state::Readiness,
    settings::Settings,
    state::usage_recorder::QUEUE_CAPACITY,
    testing::{PausedClock, key, memory_store::MemoryStore, shared_with, usage_record},
};

impl UsageWriter {
    /// Drains the queue.
    pub(crate) fn waiting(&mut self) -> Vec<UsageRecord> {
        std::iter::from_fn(|| self.queue.try_recv().ok()).map(|queued| queued.record).collect()
    }

    /// The next record in the queue.
    pub(crate) async fn next(&mut self) -> Option<UsageRecord> {
        self.queue.recv().await.map(|queued| queued.record)
    }
}

struct Rig {
    store: Arc<MemoryStore>,
    journal: Arc<Journal>,
    writer: JournalWriter,
    registry: Arc<HealthRegistry>,
    shared: Arc<Shared>,
    queue: UsageQueue,
    usage_writer: Option<UsageWriter>,
    stop: CancellationToken,
    drawn: u64,
    dir: TempDir,
}

impl Rig {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(options: impl FnOnce(&mut JournalOptions)) -> Self {
        let dir = TempDir::new().unwrap();
        let mut asked = JournalOptions::new(dir.path().to_owned(), uuid::Uuid::nil());
        options(&mut asked);
        let (journal, _) = Journal::open(asked).unwrap();
        let (journal, registry, store) = (Arc::new(journal), Arc::new(HealthRegistry::default()), MemoryStore::new(key()));
        let shared = shared_with(store.clone(), Settings::default(), Catalog::default(), Arc::new(PausedClock::start()));
        let (queue, usage_writer) =
            UsageWriter::new(store.clone(), store.clone(), Arc::clone(&journal), Arc::clone(&registry), Arc::clone(&shared));
        let writer = journal.writer(0).unwrap();
        let (usage_writer, stop) = (Some(usage_writer), CancellationToken::new());
        Self { store, journal, writer, registry, shared, queue, usage_writer, stop, drawn: 0, dir }
    }

    /// Records the end of a request: first in the journal, then in the queue.
    fn end(&mut self) -> RequestId {
        let mut record = usage_record("m");
        self.drawn += 1;
        record.id = RequestId::from_uuid(uuid::Uuid::from_u128(u128::from(self.drawn)));
        let id = record.id;
        drop(self.writer.end(&record).unwrap());
        self.queue.send(record, None, true);
        id
    }

    fn end_many(&mut self, count: usize) {
        for _ in 0..count {
            self.end();
        }
    }

    fn start(&mut self) -> tokio::task::JoinHandle<UsageBacklog> {
        let recovered = self.journal.backlog().unwrap();
        let writer = self.usage_writer.take().unwrap();
        self.shared.tracker.spawn(writer.run(recovered, self.stop.clone()))
    }
}

#[tokio::test(start_paused = true)]
async fn records_are_written_in_batches_and_leave_the_journal() {
    let mut rig = Rig::new();
    let running = rig.start();
    let mut ids = Vec::new();
    for batches in 1..=2 {
        ids.extend((0..9_000).map(|_| rig.end()));
        sleep(Duration::from_secs(1)).await;
        assert_eq!(rig.store.ids(), ids);
        assert_eq!(rig.store.appends(), batches, "9,000 fit into one");
    }
    assert_eq!(rig.journal.unbooked(), 0);
    rig.stop.cancel();
    assert_eq!(running.await.unwrap(), UsageBacklog::default());
}

#[tokio::test(start_paused = true)]
async fn single_record_waits_at_most_the_batch_interval() {
    let mut rig = Rig::new();
    let _running = rig.start();
    rig.end();
    sleep(BATCH_INTERVAL + Duration::from_millis(10)).await;
    assert_eq!(rig.store.ids().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn batches_wait_longer_while_many_records_arrive() {
    let mut rig = Rig::new();
    let _running = rig.start();
    rig.end_many(BUSY_BATCH);
    sleep(BATCH_INTERVAL + Duration::from_millis(10)).await;
    assert_eq!(rig.store.appends(), 1);
    rig.end();
    sleep(BUSY_BATCH_INTERVAL.saturating_sub(Duration::from_millis(10))).await;
    assert_eq!(rig.store.appends(), 1, "the batch before was large");
    sleep(Duration::from_millis(20)).await;
    assert_eq!((rig.store.ids().len(), rig.store.appends()), (BUSY_BATCH + 1, 2));

    rig.end_many(BUSY_BATCH);
    sleep(BATCH_INTERVAL + Duration::from_millis(10)).await;
    rig.end_many(LARGE_BATCH);
    sleep(BATCH_INTERVAL + Duration::from_millis(10)).await;
    assert_eq!((rig.store.ids().len(), rig.store.appends()), (2 * BUSY_BATCH + 1 + LARGE_BATCH, 4), "so many wait no longer");
}

#[tokio::test(start_paused = true)]
async fn outage_delays_records_without_loss_or_duplicates() {
    let mut rig = Rig::new();
    rig.shared.serving.set_without_catalog(false);
    let _running = rig.start();
    rig.store.set_unreachable(true);
    let mut ids = Vec::new();
    for _ in 0..60 {
        ids.extend((0..20).map(|_| rig.end()));
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(rig.store.ids().len(), 0);
    assert!(rig.store.appends() < 20, "{} tries in a minute", rig.store.appends());
    assert_eq!(rig.journal.unbooked(), 1_200);
    rig.store.set_unreachable(false);
    sleep(Duration::from_secs(15)).await;
    assert_eq!(rig.store.ids(), ids);
    assert_eq!(rig.journal.unbooked(), 0);
}

#[tokio::test(start_paused = true)]
async fn slow_database_gets_smaller_batches_until_it_books_them() {
    let mut rig = Rig::new();
    rig.store.set_max_batch(3_000);
    let ids: Vec<_> = (0..9_000).map(|_| rig.end()).collect();
    let _running = rig.start();
    sleep(Duration::from_secs(30)).await;
    assert_eq!((rig.store.ids(), rig.journal.unbooked()), (ids, 0));
    // 9,000 and 4,500 fail, 2,250 are booked; 4,500 fail again, and so on.
    assert!(rig.store.appends() < 12, "{} appends", rig.store.appends());

    rig.store.set_max_batch(usize::MAX);
    let before = rig.store.appends();
    rig.end_many(9_000);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(rig.journal.unbooked(), 0);
    rig.end_many(9_000);
    sleep(Duration::from_secs(5)).await;
    assert!(rig.store.appends() - before <= 5, "batches have become larger again");
}

#[tokio::test(start_paused = true)]
async fn readiness_is_degraded_while_the_database_is_unreachable() {
    let mut rig = Rig::new();
    rig.shared.serving.listening();
    let _running = rig.start();
    rig.store.set_unreachable(true);
    rig.end();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.shared.serving.readiness(), Readiness::Degraded);
    rig.store.set_unreachable(false);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(rig.shared.serving.readiness(), Readiness::Ready);
}

#[tokio::test(start_paused = true)]
async fn records_beyond_the_queue_are_read_back_from_the_journal() {
    let mut rig = Rig::new();
    rig.store.set_unreachable(true);
    let ids: Vec<_> = (0..QUEUE_CAPACITY + 700).map(|_| rig.end()).collect();
    assert!(rig.queue.reserve().is_none());
    rig.store.set_unreachable(false);
    let _running = rig.start();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(rig.store.ids(), ids);
    assert_eq!(rig.journal.unbooked(), 0);
}

/// New records arrive while each batch is written, so the queue is never empty; spilled records must not wait for that.
#[tokio::test(start_paused = true)]
async fn spilled_records_are_written_while_new_ones_arrive() {
    let mut rig = Rig::new();
    rig.store.set_unreachable(true);
    let _running = rig.start();
    sleep(Duration::from_secs(1)).await;
    let away: Vec<_> = (0..QUEUE_CAPACITY + 3 * BATCH_SIZE).map(|_| rig.end()).collect();
    rig.store.set_unreachable(false);
    rig.store.set_append_ms(50);
    for _ in 0..400 {
        let _ = (0..100).map(|_| rig.end()).count();
        sleep(Duration::from_millis(10)).await;
    }
    let booked: std::collections::HashSet<_> = rig.store.ids().into_iter().collect();
    assert_eq!(away.iter().filter(|id| !booked.contains(id)).count(), 0, "after 4 s");
    sleep(Duration::from_secs(2)).await;
    assert_eq!((rig.store.ids().len(), rig.journal.unbooked()), (QUEUE_CAPACITY + 3 * BATCH_SIZE + 40_000, 0));
}

#[tokio::test(start_paused = true)]
async fn records_pending_in_the_journals_memory_are_written_and_reported() {
    let mut rig = Rig::with(|options| options.max_bytes = 100_000);
    rig.shared.serving.listening();
    rig.store.set_unreachable(true);
    let _running = rig.start();
    sleep(Duration::from_secs(1)).await;
    let ids: Vec<_> = (0..QUEUE_CAPACITY + 700).map(|_| rig.end()).collect();
    sleep(Duration::from_secs(2)).await;
    let held = rig.journal.pending_requests();
    assert!(held > QUEUE_CAPACITY, "{held} of {} did not fit on disk", ids.len());
    let metrics = rig.shared.metrics.render();
    assert!(metrics.contains(&format!("tollgate_journal_held {held}\n")), "{metrics}");
    rig.store.set_unreachable(false);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(rig.store.ids(), ids);
    assert_eq!((rig.journal.unbooked(), rig.journal.pending_requests()), (0, 0));
    assert_eq!(rig.shared.serving.readiness(), Readiness::Ready);
}

#[tokio::test(start_paused = true)]
async fn rejected_record_is_quarantined_and_does_not_block_others() {
    let mut rig = Rig::new();
    let mut ids: Vec<_> = (0..100).map(|_| rig.end()).collect();
    let refused = [ids.remove(71), ids.remove(3)];
    rig.store.reject(&refused);
    let running = rig.start();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(rig.store.ids(), ids);
    assert_eq!((rig.journal.quarantined(), rig.journal.unbooked()), (2, 2), "they stay in the journal");
    assert!(rig.shared.metrics.render().contains("tollgate_journal_refused 2\n"));
    let tries = rig.store.appends();
    assert!(tries < 40, "{tries} tries");
    ids.push(rig.end());
    sleep(BUSY_BATCH_INTERVAL + Duration::from_millis(10)).await;
    assert_eq!((rig.store.ids(), rig.store.appends()), (ids, tries + 1), "they are not offered again");
    rig.stop.cancel();
    assert_eq!(running.await.unwrap(), UsageBacklog::default());
}

#[tokio::test(start_paused = true)]
async fn rejecting_every_record_does_not_quarantine_them_all() {
    let mut rig = Rig::new();
    let ids: Vec<_> = (0..MAX_QUARANTINED + 200).map(|_| rig.end()).collect();
    rig.store.reject(&ids);
    let running = rig.start();
    sleep(Duration::from_secs(5)).await;
    assert_eq!((rig.store.ids().len(), rig.journal.quarantined()), (0, MAX_QUARANTINED));
    rig.stop.cancel();
    assert_eq!(running.await.unwrap(), UsageBacklog { waiting: 200, lost: 0 });
}

#[tokio::test(start_paused = true)]
async fn rejected_record_does_not_block_a_start() {
    let mut rig = Rig::new();
    let ids: Vec<_> = (0..20).map(|_| rig.end()).collect();
    rig.store.reject(&[ids[7]]);
    let recovered = rig.journal.backlog().unwrap();
    assert_eq!(replay(&*rig.store, &rig.journal, recovered).await.unwrap(), 19);
    assert_eq!((rig.journal.quarantined(), rig.journal.unbooked()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn shutdown_without_database_and_disk_reports_lost_records() {
    let mut rig = Rig::with(|options| options.max_bytes = 0);
    rig.store.set_unreachable(true);
    let _ = (0..3).map(|_| rig.end()).count();
    let mut nowhere = usage_record("m");
    nowhere.id = RequestId::from_uuid(uuid::Uuid::from_u128(77));
    rig.queue.send(nowhere, None, false);
    let running = rig.start();
    std::fs::remove_dir_all(rig.dir.path()).unwrap();
    rig.stop.cancel();
    assert_eq!(running.await.unwrap(), UsageBacklog { waiting: 4, lost: 4 });
}

#[tokio::test(start_paused = true)]
async fn records_of_the_last_process_are_written_first() {
    let mut rig = Rig::new();
    let left = rig.end();
    let _ = rig.usage_writer.as_mut().unwrap().waiting();
    let _running = rig.start();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.store.ids(), [left]);
}

#[tokio::test(start_paused = true)]
async fn shutdown_writes_remaining_records_and_times_out_without_a_database() {
    let mut rig = Rig::new();
    let running = rig.start();
    let ids: Vec<_> = (0..700).map(|_| rig.end()).collect();
    rig.stop.cancel();
    assert_eq!(running.await.unwrap(), UsageBacklog::default());
    assert_eq!(rig.store.ids(), ids);

    let mut rig = Rig::new();
    rig.store.set_unreachable(true);
    let running = rig.start();
    let _ = (0..3).map(|_| rig.end()).count();
    rig.stop.cancel();
    let began = Instant::now();
    assert_eq!(running.await.unwrap(), UsageBacklog { waiting: 3, lost: 0 });
    assert!(began.elapsed() <= SHUTDOWN_LIMIT + Duration::from_secs(1));
    assert_eq!(rig.journal.unbooked(), 3, "the journal keeps them");
}

#[tokio::test(start_paused = true)]
async fn health_is_saved_at_most_once_a_second_and_again_after_a_failure() {
    let mut rig = Rig::new();
    let account = AccountId::from_parts(Timestamp(1), [1; 10]);
    let _running = rig.start();
    sleep(Duration::from_millis(10)).await;
    for _ in 0..50 {
        rig.registry.observe(account, &Observation::ServerError, CoolingRules::default(), rig.shared.clock.now());
        sleep(Duration::from_millis(50)).await;
    }
    sleep(Duration::from_secs(2)).await;
    let saved = rig.store.saved_health().len();
    assert!((2..=4).contains(&saved), "{saved} times in 2.5 s");
    rig.store.set_unreachable(true);
    rig.registry.observe(account, &Observation::ServerError, CoolingRules::default(), rig.shared.clock.now());
    sleep(Duration::from_secs(3)).await;
    rig.store.set_unreachable(false);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(rig.store.saved_health().len(), saved + 1);
}

#[tokio::test(start_paused = true)]
async fn request_without_an_end_is_not_written() {
    let mut rig = Rig::new();
    let begin: AttemptStart<'_> = serde_json::from_value(serde_json::json!({
        "id": usage_record("m").id, "at": 0, "key": key().id, "key_name": "k", "member": key().member.id,
        "group": tollgate_core::GroupId::from_parts(Timestamp(0), [1; 10]), "group_name": "g", "protocol_in": "openai",
        "method": "chat", "model": "m", "stream": false, "price_version": 1, "sale": null, "sale_multiplier": 1_000_000,
        "policy": "delivered", "input": {"tokens": 1, "source": "counted"},
        "attempt": {"channel": usage_record("m").attempts[0].channel, "channel_name": "c",
            "account": usage_record("m").attempts[0].account, "account_name": "a", "protocol": "openai",
            "upstream_model": "u", "at": 0, "cost": null, "cost_multiplier": 1_000_000},
    }))
    .unwrap();
    rig.writer.begin(&begin).unwrap();
    let _running = rig.start();
    sleep(Duration::from_secs(1)).await;
    assert_eq!((rig.store.appends(), rig.journal.unbooked()), (0, 1));
    assert!(rig.dir.path().exists());
}
