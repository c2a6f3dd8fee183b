//! Changes of health become rows, also when the database fails meanwhile.

use tollgate_core::{
    AccountStanding, ChannelSpec, CoolingReason, CoolingRules, HealthReason, Observation, RestingReason, Revision,
};
use tollgate_store::{
    AccessMode, MasterKeySource, OpenOptions, RandomSource, RecordedTransition, Store, StoreUrl, TransitionFilter, open,
};

use super::*;
use crate::{
    settings::Settings,
    testing::{self, PausedClock, key, memory_store::MemoryStore, shared_with},
};

struct Rig {
    shared: Arc<Shared>,
    registry: Arc<HealthRegistry>,
    records: Arc<HealthRecords>,
    store: Store,
    stop: CancellationToken,
}

fn catalog(revision: i64, on: bool) -> Catalog {
    let mut channel = testing::channel("http://127.0.0.1:1/v1");
    channel.accounts = (1..=2).map(|number| Arc::new(testing::account(number))).collect();
    channel.spec = ChannelSpec { on, ..channel.spec };
    Catalog::from_parts(Revision(revision), vec![channel], Vec::new(), Vec::new())
}

impl Rig {
    async fn start() -> Self {
        let options = OpenOptions {
            url: StoreUrl::Memory,
            data: std::path::PathBuf::new(),
            master: MasterKeySource::DataFolder,
            access: AccessMode::Command,
            random: RandomSource::system(),
            now: Timestamp(1),
            without_database: None,
        };
        let store = open(options).await.unwrap();
        let clock = Arc::new(PausedClock::start());
        let shared = shared_with(MemoryStore::new(key()), Settings::default(), catalog(1, true), clock);
        let rig = Self { shared, registry: Arc::default(), records: Arc::default(), store, stop: CancellationToken::new() };
        rig.record();
        rig.tick().await;
        rig
    }

    /// Starts a recorder.
    fn record(&self) {
        let recorder = HealthRecorder {
            shared: Arc::clone(&self.shared),
            registry: Arc::clone(&self.registry),
            store: Arc::clone(&self.store.health_history),
            records: Arc::clone(&self.records),
            node: "one".to_owned(),
        };
        self.shared.tracker.spawn(recorder.run(self.stop.clone()));
    }

    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    async fn tick(&self) {
        tokio::time::sleep(TICK + Duration::from_millis(10)).await;
    }

    fn observe(&self, number: u8, what: &Observation) {
        self.registry.observe(testing::account(number).id, what, CoolingRules::default(), self.now());
    }

    /// State, reason, cause and whether it ended, of accounts (or of channels), oldest first.
    async fn rows(&self, of_accounts: bool) -> Vec<(&'static str, HealthReason, &'static str, bool)> {
        let all = TransitionFilter { limit: 100, ..TransitionFilter::default() };
        let mut found: Vec<RecordedTransition> = self.store.health_history.transitions(&all).await.unwrap();
        found.retain(|row| row.transition.account.is_some() == of_accounts);
        found.reverse();
        let shown = |row: &RecordedTransition| {
            let HealthTransition { impairment, cause, ended_at, .. } = row.transition;
            (impairment.state.as_str(), impairment.reason, cause.as_str(), ended_at.is_some())
        };
        found.iter().map(shown).collect()
    }

    fn standing(&self, number: u8) -> AccountStanding {
        let catalog = self.shared.catalog.load();
        let channel = catalog.channels.values().next().unwrap().id;
        self.records.standing(channel, testing::account(number).id, self.now())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

const RATE_LIMITED: HealthReason = HealthReason::Cooling(CoolingReason::RateLimited);

#[tokio::test(start_paused = true)]
async fn each_transition_is_one_row_with_its_cause() {
    let rig = Rig::start().await;
    assert_eq!(rig.rows(true).await, [], "no record is out of order");
    let began = rig.now();
    rig.observe(1, &Observation::RateLimited { until: Some(began.plus_ms(5_000)) });
    // A further answer with 429 only extends the state.
    rig.observe(1, &Observation::RateLimited { until: Some(began.plus_ms(9_000)) });
    rig.tick().await;
    assert_eq!(rig.rows(true).await, [("cooling", RATE_LIMITED, "request", false)]);
    assert_eq!(rig.rows(false).await, [("degraded", HealthReason::Accounts, "request", false)]);
    assert_eq!(rig.standing(1), AccountStanding::Out { since: began, until: Some(began.plus_ms(9_000)) });
    rig.observe(1, &Observation::TestPassed);
    rig.registry.observe_probe(&testing::account(2), &Observation::Refused, CoolingRules::default(), rig.now(), rig.now());
    rig.tick().await;
    let refused = HealthReason::Resting(RestingReason::Refused);
    assert_eq!(rig.rows(true).await, [("cooling", RATE_LIMITED, "request", true), ("resting", refused, "probe", false)]);
    assert!(matches!(rig.standing(1), AccountStanding::Usable { since: Some(_) }));
    assert_eq!(rig.store.health_history.node_runs().await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn failures_of_one_key_record_no_transition() {
    let rig = Rig::start().await;
    let by = |number: u8| {
        let id = |prefix: u8| [prefix + number; 10];
        tollgate_core::Requester {
            key: tollgate_core::KeyId::from_parts(Timestamp(0), id(0)),
            member: tollgate_core::MemberId::from_parts(Timestamp(0), id(100)),
        }
    };
    let fails = |by| {
        let account = testing::account(1);
        (0..3).for_each(|_| {
            rig.registry.observe_request(&account, &Observation::Timeout, CoolingRules::default(), rig.now(), rig.now(), Some(by));
        });
    };
    fails(by(1));
    rig.tick().await;
    assert_eq!(rig.rows(true).await, [], "others still use the account");
    fails(by(2));
    rig.tick().await;
    assert_eq!(rig.rows(true).await, [("cooling", HealthReason::Cooling(CoolingReason::Timeout), "request", false)]);
}

#[tokio::test(start_paused = true)]
async fn disabled_accounts_and_changes_dropped_by_a_full_queue_are_recorded() {
    let rig = Rig::start().await;
    rig.shared.replace_catalog(Arc::new(catalog(2, false)));
    rig.tick().await;
    let off = ("off", HealthReason::SwitchedOff, "operator", false);
    assert_eq!((rig.rows(true).await, rig.rows(false).await), (vec![off; 2], vec![off]));
    rig.shared.replace_catalog(Arc::new(catalog(3, true)));
    // More transitions at once than the queue holds. The last one applies.
    for _ in 0..2_000 {
        rig.observe(1, &Observation::QuotaSpent { until: None });
        rig.observe(1, &Observation::TestPassed);
    }
    tokio::time::advance(Duration::from_millis(1)).await;
    rig.observe(1, &Observation::QuotaSpent { until: None });
    rig.tick().await;
    rig.tick().await;
    let rows = rig.rows(true).await;
    assert!(rows.iter().filter(|row| row.0 == "off").all(|row| row.3), "{rows:?}");
    let open: Vec<_> = rows.iter().filter(|row| !row.3).map(|row| row.0).collect();
    assert_eq!(open, ["resting"]);
}

#[tokio::test(start_paused = true)]
async fn recorder_resumes_where_the_previous_one_ended() {
    let mut rig = Rig::start().await;
    let began = rig.now();
    rig.observe(1, &Observation::Refused);
    rig.tick().await;
    rig.stop.cancel();
    rig.tick().await;
    rig.stop = CancellationToken::new();
    rig.registry = Arc::new(HealthRegistry::from_saved([(testing::account(1).id, rig.registry.of(testing::account(1).id))], began));
    rig.records = Arc::default();
    rig.record();
    rig.tick().await;
    assert_eq!(rig.rows(true).await.len(), 1, "the same rest is not a new transition");
    assert_eq!(rig.standing(1), AccountStanding::Out { since: began, until: None });
    rig.observe(1, &Observation::TestPassed);
    rig.tick().await;
    assert!(rig.rows(true).await[0].3);
}
