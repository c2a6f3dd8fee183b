//! Probes accounts by listing the provider's models, which costs nothing. Accounts that rest because their credential was
//! refused are probed every ten minutes. A refusal that only requests have received, and no probe, is probed immediately,
//! because the request may be its cause: at most every ten seconds, and at doubling intervals while it recurs after passed
//! probes. Accounts of channels with `probe_interval_s` are probed continuously, so that a failed account cools before a
//! request uses it. Probes leave no usage record; they are counted and logged as probes.
//!
//! A passed test that another process recorded in the database (`tollgate channel test`, the consoles of all nodes) ends a
//! rest or a cooling here within 2 s.
//!
//! Bounds: 16 concurrent probes, one of an account; each takes at most the channel's connect timeout plus 10 s.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use bytes::BytesMut;
use http_body_util::BodyExt as _;
use tokio::{
    task::{self, JoinError, JoinSet},
    time::{Instant, MissedTickBehavior, timeout},
};
use tokio_util::sync::CancellationToken;
use tollgate_core::{
    Account, AccountId, Channel, CoolingReason, HealthState, Observation, Provider, RestingReason, Timestamp, quota_end,
};
use tollgate_protocol::{Protocol, codec};
use tollgate_store::HealthStore;

use crate::{
    state::{health_registry::HealthRegistry, shared::Shared},
    upstream::call::{ConnectFault, Upstream, UpstreamAnswer, UpstreamCall, UpstreamError},
};

/// How often due accounts are searched and, while an account rests or cools, the database is checked for passed tests.
const TICK: Duration = Duration::from_secs(1);
/// How often a resting account is probed.
const RESTING_INTERVAL: Duration = Duration::from_mins(10);
/// Minimum time between two probes of an account whose refusals no probe has confirmed.
const UNPROVEN_INTERVAL: Duration = Duration::from_secs(10);
const MAX_PROBES: usize = 16;
/// Timeout for the head of an answer, and again for its body.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an answer that are read.
const MAX_BODY_BYTES: usize = 64 * 1024;

/// The background task that probes accounts.
#[derive(Debug)]
pub struct Probes {
    pub shared: Arc<Shared>,
    pub registry: Arc<HealthRegistry>,
    /// Holds tests that passed in other processes.
    pub saved: Arc<dyn HealthStore>,
    pub upstream: Arc<dyn Upstream>,
}

/// When an account is probed next and was probed last.
#[derive(Clone, Copy, Debug, Default)]
struct Schedule {
    at: Option<Instant>,
    last: Option<Instant>,
}

#[derive(Debug)]
struct DueProbe {
    channel: Arc<Channel>,
    account: Arc<Account>,
    /// Whether it is probed because of a refusal that only requests have seen.
    unproven: bool,
}

/// The time from the last probe to the next one after this many probes that confirmed nothing.
fn unproven_interval(probes: u32) -> Duration {
    UNPROVEN_INTERVAL.saturating_mul(1 << probes.saturating_sub(1).min(6)).min(RESTING_INTERVAL)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeOutcome {
    /// A list of models.
    List,
    /// The credential does not work.
    Refused,
    /// A failure that counts against the account.
    Failure(Observation),
    /// Inconclusive: the provider has no such list, or limits the rate.
    Nothing,
}

impl Probes {
    /// Probes until `stop` is cancelled. Must run inside a runtime.
    pub async fn run(self, stop: CancellationToken) {
        let mut schedules = HashMap::new();
        let mut tests = PassedTests::default();
        let mut running = JoinSet::new();
        let mut probed: HashMap<task::Id, AccountId> = HashMap::new();
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = self.registry.suspicions.version();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(ended) = running.join_next_with_id() => {
                    probed.remove(&ended.map_or_else(|error: JoinError| error.id(), |(task, ())| task));
                    continue;
                }
                () = self.registry.suspicions.changed_since(seen) => {}
                _ = ticks.tick() => {
                    self.registry.follow_clock(self.shared.clock.now());
                    self.apply_passed_tests(&mut tests).await;
                }
            }
            seen = self.registry.suspicions.version();
            let under_way: HashSet<_> = probed.values().copied().collect();
            for due in self.due(&mut schedules, &under_way, MAX_PROBES.saturating_sub(running.len())) {
                let (upstream, registry, shared) =
                    (Arc::clone(&self.upstream), Arc::clone(&self.registry), Arc::clone(&self.shared));
                let account = due.account.id;
                let task = running.spawn(async move {
                    let sent = shared.clock.now();
                    let longest = due.channel.spec.timeouts.total_within(shared.settings.load().upstream.total);
                    let probed = timeout(longest, probe(&*upstream, &due.channel, &due.account, sent)).await;
                    let outcome = probed.unwrap_or(ProbeOutcome::Failure(Observation::Timeout));
                    record(&shared, &registry, &due, outcome, sent);
                });
                probed.insert(task.id(), account);
            }
        }
    }

    /// Accounts that are due and not `under_way`, at most `max`; the others stay due.
    fn due(&self, schedules: &mut HashMap<AccountId, Schedule>, under_way: &HashSet<AccountId>, max: usize) -> Vec<DueProbe> {
        let now = self.shared.clock.instant();
        let catalog = self.shared.catalog.load();
        let mut due = Vec::new();
        let mut scheduled = HashMap::new();
        for channel in
            catalog.channels.values().filter(|row| row.spec.on && row.spec.cooling && row.spec.provider != Provider::Echo)
        {
            for account in channel.accounts.iter().filter(|row| row.spec.on) {
                let old = schedules.get(&account.id).copied().unwrap_or_default();
                let (at, unproven) = match self.registry.unproven_refusal(account.id) {
                    Some(probes) => (Some(old.last.map_or(now, |last| last + unproven_interval(probes))), true),
                    None => (self.next_probe(channel, account, old.at, now), false),
                };
                // A probe for another reason does not move the regular ones.
                let mut new = if unproven { old } else { Schedule { at, ..old } };
                if at.is_some_and(|at| at <= now) && due.len() < max && !under_way.contains(&account.id) {
                    due.push(DueProbe { channel: Arc::clone(channel), account: Arc::clone(account), unproven });
                    new = Schedule { at: self.interval(channel, account).map(|(every, _)| now + every), last: Some(now) };
                }
                scheduled.insert(account.id, new);
            }
        }
        *schedules = scheduled;
        due
    }

    /// When an account is probed next; `None` when it is not. `at` is the time planned before.
    fn next_probe(&self, channel: &Channel, account: &Account, at: Option<Instant>, now: Instant) -> Option<Instant> {
        let (every, first) = self.interval(channel, account)?;
        // A shortened interval takes effect at once.
        Some(at.map_or(now + first, |at| at.min(now + every)))
    }

    /// The interval between probes of an account and the time until the first one; `None` when it is not probed.
    fn interval(&self, channel: &Channel, account: &Account) -> Option<(Duration, Duration)> {
        let active = Duration::from_secs(u64::from(channel.spec.probe_interval_s));
        if let HealthState::Resting { why: RestingReason::Refused, since, .. } = self.registry.of_all(account.id).state {
            let every = if active.is_zero() { RESTING_INTERVAL } else { active.min(RESTING_INTERVAL) };
            let rested = u64::try_from(self.shared.clock.now().ms_since(since)).unwrap_or(0);
            return Some((every, every.saturating_sub(Duration::from_millis(rested))));
        }
        (!active.is_zero()).then_some((active, active))
    }

    /// Ends rests and coolings that began before a passed test recorded in the database.
    async fn apply_passed_tests(&self, tests: &mut PassedTests) {
        let now = self.shared.clock.now();
        let catalog = self.shared.catalog.load_full();
        let rows = catalog.channels.values().flat_map(|channel| channel.accounts.iter().map(move |account| (channel, account)));
        let unavailable: Vec<_> = rows.filter(|(_, account)| self.unavailable_since(account.id).is_some()).collect();
        tests.0.retain(|known, _| unavailable.iter().any(|(_, account)| account.id == *known));
        if unavailable.is_empty() {
            return;
        }
        match self.saved.load_tests().await {
            Ok(passed) => {
                let passed: HashMap<AccountId, Timestamp> = passed.into_iter().collect();
                for (channel, account) in unavailable {
                    let passed = passed.get(&account.id).copied();
                    let Some(since) = self.unavailable_since(account.id) else { continue };
                    if tests.ends(account.id, since, passed, now) {
                        self.registry.observe(account.id, &Observation::TestPassed, channel.spec.cooling_rules(), now);
                    }
                }
            }
            Err(fault) => {
                self.shared.metrics.store_error("load_tests");
                tracing::debug!(%fault, "passed tests of resting accounts could not be loaded");
            }
        }
    }

    /// When the account's rest or cooling began; `None` when it is usable.
    fn unavailable_since(&self, account: AccountId) -> Option<Timestamp> {
        self.registry.of(account).state.unavailable_since()
    }
}

/// The last passed test of each unavailable account, by the clock of the process that recorded it, when its rest was first seen. A
/// test that is recorded later ends the rest, regardless of that clock.
#[derive(Debug, Default)]
struct PassedTests(HashMap<AccountId, Option<Timestamp>>);

impl PassedTests {
    fn ends(&mut self, account: AccountId, since: Timestamp, passed: Option<Timestamp>, now: Timestamp) -> bool {
        let known = *self.0.entry(account).or_insert(passed);
        // A test with a time in the future was recorded by a clock that is ahead, and does not end later rests.
        passed.is_some_and(|passed| (since <= passed && passed <= now) || Some(passed) != known)
    }
}

async fn probe(upstream: &dyn Upstream, channel: &Arc<Channel>, account: &Arc<Account>, now: Timestamp) -> ProbeOutcome {
    let call = UpstreamCall::of_gateway(channel, account, channel.spec.protocol.spec().model_list_path.to_owned());
    let within = Duration::from_millis(channel.spec.timeouts.connect_ms) + ANSWER_TIMEOUT;
    match timeout(within, upstream.call(call)).await {
        Err(_) => ProbeOutcome::Failure(Observation::Timeout),
        Ok(Err(UpstreamError::NotSent(ConnectFault::OwnLimit | ConnectFault::AllTaken))) => ProbeOutcome::Nothing,
        Ok(Err(UpstreamError::NotSent(_))) => ProbeOutcome::Failure(Observation::ConnectFailure),
        Ok(Err(UpstreamError::Lost | UpstreamError::Unreadable(_))) => ProbeOutcome::Failure(Observation::ServerError),
        Ok(Ok(answer)) => {
            let (status, protocol) = (answer.status, channel.spec.protocol);
            let body = timeout(ANSWER_TIMEOUT, read_body(answer)).await.unwrap_or_default();
            judge(protocol, status, &body, now)
        }
    }
}

fn judge(protocol: Protocol, status: u16, body: &[u8], now: Timestamp) -> ProbeOutcome {
    if (200..300).contains(&status) {
        let is_json = body.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| matches!(byte, b'{' | b'['));
        return if is_json { ProbeOutcome::List } else { ProbeOutcome::Nothing };
    }
    if status < 400 {
        return ProbeOutcome::Nothing;
    }
    let problem = codec(protocol).decode_problem(status, body);
    match problem.status {
        _ if problem.quota_exhausted => {
            ProbeOutcome::Failure(Observation::QuotaSpent { until: quota_end(problem.window, None, now) })
        }
        _ if problem.account_refused => ProbeOutcome::Refused,
        // An intermediary's page is not evidence about the credential.
        _ if problem.from_intermediary => ProbeOutcome::Nothing,
        401..=403 => ProbeOutcome::Refused,
        408 | 504 | 524 => ProbeOutcome::Failure(Observation::Timeout),
        501 => ProbeOutcome::Nothing,
        500.. => ProbeOutcome::Failure(Observation::ServerError),
        _ => ProbeOutcome::Nothing,
    }
}

async fn read_body(answer: UpstreamAnswer) -> Vec<u8> {
    let mut body = answer.body;
    let mut read = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Some(data) = frame.data_ref() {
            let remaining = MAX_BODY_BYTES - read.len();
            read.extend_from_slice(&data[..data.len().min(remaining)]);
            if read.len() == MAX_BODY_BYTES {
                break;
            }
        }
    }
    read.to_vec()
}

/// The observation a probe yields for an account in this state. A list says nothing about limits, quotas and the health of
/// models, and a failed probe does not extend a rest or cooling.
fn observation_of(state: &HealthState, outcome: ProbeOutcome) -> Option<Observation> {
    match (state, outcome) {
        (
            HealthState::Resting { why: RestingReason::Refused, .. }
            | HealthState::Cooling { why: CoolingReason::ConnectFailure, .. },
            ProbeOutcome::List,
        ) => Some(Observation::TestPassed),
        (HealthState::Usable, ProbeOutcome::Refused) => Some(Observation::Refused),
        (HealthState::Usable, ProbeOutcome::Failure(failure)) => Some(failure),
        _ => None,
    }
}

fn record(shared: &Shared, registry: &HealthRegistry, due: &DueProbe, outcome: ProbeOutcome, sent: Timestamp) {
    let DueProbe { channel, account, unproven } = due;
    let word = match outcome {
        ProbeOutcome::List => "well",
        ProbeOutcome::Refused => "refused",
        ProbeOutcome::Failure(_) => "failed",
        ProbeOutcome::Nothing => "unclear",
    };
    shared.metrics.probed(&channel.spec.name, word);
    tracing::debug!(probe = true, channel.name = channel.spec.name, account.id = %account.id, result = word, "account probed");
    let (rules, now) = (channel.spec.cooling_rules(), shared.clock.now());
    if !unproven {
        if let Some(observation) = observation_of(&registry.state_of_all(account.id), outcome) {
            registry.observe_probe(account, &observation, rules, sent, now);
        }
        return;
    }
    // The account is probed because of a refusal that requests provoked. Only the credential is judged, not the account's other health.
    match outcome {
        ProbeOutcome::List => registry.probe_passed(account, rules, sent, now),
        // If a request was answered meanwhile, the credential works, even if it may not be allowed to list models.
        ProbeOutcome::Refused if registry.unproven_refusal(account.id).is_some() => {
            registry.observe_probe(account, &Observation::Refused, rules, sent, now);
        }
        ProbeOutcome::Refused | ProbeOutcome::Failure(_) | ProbeOutcome::Nothing => registry.probe_was_unclear(account.id),
    }
}

#[cfg(test)]
mod tests;
