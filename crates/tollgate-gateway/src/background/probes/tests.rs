//! The choice and the times of probes, and their effect on the health of accounts.

use tollgate_core::{
    AccountHealth, Availability, Catalog, CoolingRules, HealthView as _, KeyId, MemberId, Requester, Revision, Timestamp,
};

use super::*;
use crate::{
    settings::Settings,
    testing::{self, PausedClock, key, memory_store::MemoryStore, scripted::Script, shared_with},
};

const SECOND: Duration = Duration::from_secs(1);
const LIST: &str = r#"{"object":"list","data":[]}"#;

struct Rig {
    script: Arc<Script>,
    registry: Arc<HealthRegistry>,
    store: Arc<MemoryStore>,
    shared: Arc<Shared>,
    stop: CancellationToken,
}

impl Rig {
    /// Starts the prober for one channel with this many accounts.
    fn start(script: Script, accounts: u8, change: impl FnOnce(&mut Channel)) -> Self {
        let mut channel = testing::channel("http://127.0.0.1:1/v1");
        channel.accounts = (1..=accounts).map(|number| Arc::new(testing::account(number))).collect();
        change(&mut channel);
        let catalog = Catalog::from_parts(Revision(1), vec![channel], Vec::new(), Vec::new());
        let store = MemoryStore::new(key());
        let shared = shared_with(store.clone(), Settings::default(), catalog, Arc::new(PausedClock::start()));
        let (script, registry) = (Arc::new(script), Arc::new(HealthRegistry::default()));
        let probes =
            Probes { shared: Arc::clone(&shared), registry: Arc::clone(&registry), saved: store.clone(), upstream: script.clone() };
        let stop = CancellationToken::new();
        shared.tracker.spawn(probes.run(stop.clone()));
        Self { script, registry, store, shared, stop }
    }

    fn rest(&self, number: u8) {
        let id = testing::account(number).id;
        self.registry.observe(id, &Observation::Refused, CoolingRules::default(), self.shared.clock.now());
    }

    /// Records this result for a request of the member's only key on account 1.
    fn request_of(&self, member: u8, what: &Observation) {
        let now = self.shared.clock.now();
        self.registry.observe_request(&testing::account(1), what, CoolingRules::default(), now, now, Some(requester(member)));
    }

    /// Which of the first two members may use account 1.
    fn may_use(&self) -> [bool; 2] {
        let now = self.shared.clock.now();
        let availability = |member| self.registry.snapshot_for(requester(member)).status(testing::account(1).id, now).availability;
        [1, 2].map(|member| availability(member) == Availability::Usable)
    }

    fn state(&self, number: u8) -> HealthState {
        self.registry.of(testing::account(number).id).state
    }

    fn rests(&self, number: u8) -> bool {
        matches!(self.state(number), HealthState::Resting { .. })
    }
}

const ANSWERED: Observation = Observation::Success { latency: None };

fn requester(member: u8) -> Requester {
    Requester { key: KeyId::from_parts(Timestamp(0), [member; 10]), member: MemberId::from_parts(Timestamp(0), [100 + member; 10]) }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn lists(script: Script) -> Script {
    script.replies(LIST)
}

async fn pass(seconds: u32) {
    tokio::time::sleep(SECOND * seconds).await;
}

#[tokio::test(start_paused = true)]
async fn refused_account_is_probed_every_ten_minutes_until_it_answers() {
    let rig = Rig::start(lists(Script::new().refuses(401, &[])), 2, |_| {});
    rig.rest(1);
    pass(590).await;
    assert_eq!(rig.script.seen().len(), 0);
    pass(20).await;
    assert_eq!((rig.script.seen().len(), rig.rests(1)), (1, true));
    pass(600).await;
    assert_eq!((rig.script.seen().len(), rig.state(1)), (2, HealthState::Usable));
    pass(6_000).await;
    let seen = rig.script.seen();
    assert_eq!(seen.len(), 2, "healthy accounts are not probed");
    assert_eq!((seen[0].path.as_str(), seen[0].body.as_str()), ("/models", ""));
    assert!(seen.iter().all(|seen| seen.account == testing::account(1).id));
}

#[tokio::test(start_paused = true)]
async fn refusal_of_one_request_is_probed_at_once() {
    let rig = Rig::start(lists(Script::new()), 1, |_| {});
    pass(1).await;
    rig.request_of(1, &Observation::Refused);
    assert_eq!(rig.may_use(), [false, true]);
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!((rig.script.seen().len(), rig.may_use()), (1, [true, true]), "the credential works");
    pass(6_000).await;
    assert_eq!(rig.script.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn refused_credential_rests_after_its_first_refused_request() {
    for status in [401, 402, 403] {
        let rig = Rig::start(lists(Script::new().refuses(status, &[])), 1, |_| {});
        pass(1).await;
        rig.request_of(1, &Observation::Refused);
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!((rig.script.seen().len(), rig.may_use(), rig.rests(1)), (1, [false, false], true));
        pass(590).await;
        assert_eq!(rig.script.seen().len(), 1);
        pass(20).await;
        assert_eq!((rig.script.seen().len(), rig.may_use()), (2, [true, true]));
    }
}

#[tokio::test(start_paused = true)]
async fn number_of_probes_for_repeated_refusals_is_bounded() {
    let script = || (0..40).fold(Script::new(), |script, _| lists(script));
    let rig = Rig::start(script(), 1, |_| {});
    for _ in 0..600 {
        rig.request_of(1, &Observation::Refused);
        tokio::time::sleep(Duration::from_millis(50)).await;
        rig.request_of(2, &ANSWERED);
        assert!(rig.may_use()[1]);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!((4..=7).contains(&rig.script.seen().len()), "one in ten seconds: {}", rig.script.seen().len());

    // A provider that lists its models to everyone: after each probe that passed, the next one waits longer.
    let rig = Rig::start(script(), 1, |_| {});
    for _ in 0..3_600 {
        rig.request_of(1, &Observation::Refused);
        rig.request_of(2, &Observation::Refused);
        pass(1).await;
    }
    assert!((8..=14).contains(&rig.script.seen().len()), "{}", rig.script.seen().len());
}

#[tokio::test(start_paused = true)]
async fn refusals_of_two_members_are_probed_at_once_too() {
    let rig = Rig::start(lists(lists(Script::new())), 1, |_| {});
    rig.request_of(1, &Observation::Refused);
    rig.request_of(2, &Observation::Refused);
    assert_eq!((rig.may_use(), rig.rests(1)), ([false, false], true));
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!((rig.may_use(), rig.state(1)), ([true, true], HealthState::Usable));
}

#[tokio::test(start_paused = true)]
async fn account_is_probed_by_one_probe_at_a_time() {
    let rig = Rig::start(Script::new(), 1, |channel| channel.spec.timeouts.connect_ms = 60_000);
    rig.request_of(1, &Observation::Refused);
    pass(65).await;
    assert_eq!((rig.script.seen().len(), rig.script.open()), (1, 1));
    assert_eq!(rig.may_use(), [false, true], "nothing is known yet");
    pass(60).await;
    assert_eq!(rig.script.seen().len(), 2);
    assert!(rig.may_use()[1], "a probe that timed out because of a request does not count against the account");
}

#[tokio::test(start_paused = true)]
async fn credential_that_cannot_list_models_does_not_rest_while_requests_succeed() {
    let rig = Rig::start(Script::new(), 1, |_| {});
    let (channel, account) = (Arc::new(testing::channel("http://127.0.0.1:1/v1")), Arc::new(testing::account(1)));
    let due = DueProbe { channel, account, unproven: true };
    rig.request_of(1, &Observation::Refused);
    let sent = rig.shared.clock.now();
    rig.request_of(2, &ANSWERED);
    record(&rig.shared, &rig.registry, &due, ProbeOutcome::Refused, sent);
    assert_eq!((rig.may_use(), rig.rests(1)), ([true, true], false));
    rig.request_of(1, &Observation::Refused);
    record(&rig.shared, &rig.registry, &due, ProbeOutcome::Refused, sent);
    assert_eq!((rig.may_use(), rig.rests(1)), ([false, false], true), "nothing was answered");
}

#[tokio::test(start_paused = true)]
async fn rest_loaded_at_the_start_keeps_its_beginning() {
    let rig = Rig::start(lists(Script::new()), 1, |_| {});
    let since = rig.shared.clock.now().plus_ms(-3_600_000);
    let rested = AccountHealth {
        state: HealthState::Resting { why: RestingReason::Refused, since, until: None },
        ..AccountHealth::default()
    };
    let saved = HealthRegistry::from_saved([(testing::account(1).id, rested)], rig.shared.clock.now());
    let probes = Probes {
        shared: Arc::clone(&rig.shared),
        registry: Arc::new(saved),
        saved: rig.store.clone(),
        upstream: rig.script.clone(),
    };
    let mut next = HashMap::new();
    let mut due = || probes.due(&mut next, &HashSet::new(), MAX_PROBES).len();
    assert_eq!(due(), 1);
    assert_eq!(due(), 0, "once, not at every tick");
}

#[tokio::test(start_paused = true)]
async fn channels_with_a_probe_interval_are_probed_continuously() {
    let script = (0..9).fold(Script::new(), |script, _| lists(script));
    let rig = Rig::start(script, 3, |channel| channel.spec.probe_interval_s = 30);
    pass(95).await;
    assert_eq!(rig.script.seen().len(), 9, "three accounts, three times");
}

#[tokio::test(start_paused = true)]
async fn dead_account_cools_and_recovers_with_a_list() {
    let rig = Rig::start(lists(Script::new().not_sent()), 1, |channel| channel.spec.probe_interval_s = 10);
    pass(11).await;
    assert!(matches!(rig.state(1), HealthState::Cooling { why: CoolingReason::ConnectFailure, .. }));
    pass(10).await;
    assert_eq!(rig.state(1), HealthState::Usable);
}

#[tokio::test(start_paused = true)]
async fn disabled_accounts_and_channels_without_cooling_are_not_probed() {
    for change in [(|channel: &mut Channel| channel.spec.on = false) as fn(&mut Channel), |channel| channel.spec.cooling = false] {
        let rig = Rig::start(Script::new(), 1, |channel| {
            channel.spec.probe_interval_s = 10;
            change(channel);
        });
        pass(100).await;
        assert_eq!(rig.script.seen().len(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn at_most_sixteen_probes_run_at_once() {
    let rig = Rig::start(Script::new(), 40, |channel| channel.spec.probe_interval_s = 10);
    pass(15).await;
    assert_eq!((rig.script.seen().len(), rig.script.open()), (16, 16));
    pass(30).await;
    assert_eq!(rig.script.seen().len(), 48, "silent probes time out after 13 s and the next ones start");
}

#[tokio::test(start_paused = true)]
async fn test_passed_in_another_process_ends_a_rest_and_a_cooling() {
    let rig = Rig::start(Script::new(), 2, |_| {});
    let ids = [testing::account(1).id, testing::account(2).id];
    for id in ids {
        rig.store.note_test(id, rig.shared.clock.now());
    }
    pass(1).await;
    rig.rest(1);
    let limited = Observation::RateLimited { until: Some(rig.shared.clock.now().plus_ms(300_000)) };
    rig.registry.observe(ids[1], &limited, CoolingRules::default(), rig.shared.clock.now());
    pass(30).await;
    assert!(rig.rests(1) && rig.state(2) != HealthState::Usable, "a test passed before the rest does not end it");
    for id in ids {
        rig.store.note_test(id, rig.shared.clock.now());
    }
    pass(3).await;
    assert_eq!((rig.state(1), rig.state(2), rig.script.seen().len()), (HealthState::Usable, HealthState::Usable, 0));
}

#[tokio::test(start_paused = true)]
async fn test_passed_after_the_refused_request_ends_the_rest() {
    let rig = Rig::start(Script::new(), 1, |_| {});
    let sent = rig.shared.clock.now();
    pass(2).await;
    rig.store.note_test(testing::account(1).id, rig.shared.clock.now());
    pass(2).await;
    rig.registry.observe_probe(&testing::account(1), &Observation::Refused, CoolingRules::default(), sent, rig.shared.clock.now());
    assert!(rig.rests(1));
    pass(2).await;
    assert_eq!(rig.state(1), HealthState::Usable);
}

#[tokio::test(start_paused = true)]
async fn test_recorded_with_a_wrong_clock_ends_the_current_rest_and_no_later_one() {
    let rig = Rig::start(Script::new(), 1, |_| {});
    for wrong_by_ms in [3_600_000, -3_600_000] {
        rig.rest(1);
        pass(3).await;
        assert!(rig.rests(1));
        rig.store.note_test(testing::account(1).id, rig.shared.clock.now().plus_ms(wrong_by_ms));
        pass(2).await;
        assert_eq!(rig.state(1), HealthState::Usable, "clock wrong by {wrong_by_ms} ms");
        rig.rest(1);
        pass(5).await;
        assert!(rig.rests(1), "a rest that began after the test");
        rig.registry.observe(testing::account(1).id, &Observation::TestPassed, CoolingRules::default(), rig.shared.clock.now());
    }
}

#[test]
fn probe_answers_are_classified() {
    let error = |text: &str| format!(r#"{{"error":{{"message":"{text}","type":"t","param":null,"code":"c"}}}}"#);
    for (status, body, seen) in [
        (200, LIST.to_owned(), ProbeOutcome::List),
        (200, "<html>log in</html>".to_owned(), ProbeOutcome::Nothing),
        (204, String::new(), ProbeOutcome::Nothing),
        (302, String::new(), ProbeOutcome::Nothing),
        (401, error("no"), ProbeOutcome::Refused),
        (402, error("no"), ProbeOutcome::Refused),
        (403, error("no"), ProbeOutcome::Refused),
        (403, "<html>blocked</html>".to_owned(), ProbeOutcome::Nothing),
        (404, error("no"), ProbeOutcome::Nothing),
        (405, error("no"), ProbeOutcome::Nothing),
        (429, error("slow down"), ProbeOutcome::Nothing),
        (500, error("no"), ProbeOutcome::Failure(Observation::ServerError)),
        (501, error("no"), ProbeOutcome::Nothing),
        (503, "<html>".to_owned(), ProbeOutcome::Failure(Observation::ServerError)),
        (504, error("no"), ProbeOutcome::Failure(Observation::Timeout)),
    ] {
        assert_eq!(judge(Protocol::OpenAi, status, body.as_bytes(), Timestamp(0)), seen, "{status} {body}");
    }
}

#[test]
fn inconclusive_probe_changes_no_health() {
    let at = Timestamp(1);
    let cooling = |why| HealthState::Cooling { until: at, why, since: at };
    let resting = |why| HealthState::Resting { why, since: at, until: None };
    let passed = Some(Observation::TestPassed);
    let failure = ProbeOutcome::Failure(Observation::ServerError);
    for (state, seen, expected) in [
        (HealthState::Usable, ProbeOutcome::List, None),
        (HealthState::Usable, ProbeOutcome::Refused, Some(Observation::Refused)),
        (HealthState::Usable, failure, Some(Observation::ServerError)),
        (HealthState::Usable, ProbeOutcome::Nothing, None),
        (resting(RestingReason::Refused), ProbeOutcome::List, passed),
        (resting(RestingReason::Refused), ProbeOutcome::Refused, None),
        (resting(RestingReason::Refused), failure, None),
        (resting(RestingReason::QuotaSpent), ProbeOutcome::List, None),
        (cooling(CoolingReason::ConnectFailure), ProbeOutcome::List, passed),
        (cooling(CoolingReason::RateLimited), ProbeOutcome::List, None),
        (cooling(CoolingReason::ServerError), ProbeOutcome::List, None),
        (cooling(CoolingReason::ConnectFailure), failure, None),
    ] {
        assert_eq!(observation_of(&state, seen), expected, "{state:?} {seen:?}");
    }
}
