//! Background: accounts are tried by listing the provider's models, which costs nothing. Those that rest because their
//! credential was refused, every ten minutes; those of channels that ask for it (`probe_interval_s`), all the time, so
//! that a dead one cools before a caller meets it. Probes leave no usage record; they are counted and logged as probes.
//!
//! A test that passed elsewhere (`tollgate channel test` and the consoles of all nodes note it in the database) ends a rest or a
//! cooling here within 2 s.
//!
//! Bounds: 16 probes at once; each within the channel's connect limit and 10 s.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, timeout},
};
use tokio_util::sync::CancellationToken;
use tollgate_core::{
    Account, AccountId, Channel, CoolingReason, HealthState, Observation, Provider, RequestId, RestingReason, Timestamp, quota_end,
};
use tollgate_protocol::{Method, Protocol, codec};
use tollgate_store::HealthStore;

use crate::{
    state::{health_registry::HealthRegistry, shared::Shared},
    upstream::call::{SentMark, Upstream, UpstreamAnswer, UpstreamCall, UpstreamError},
};

/// How often it is looked who is due, and asked, while an account rests or cools, whether a test has passed elsewhere.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often an account that rests is probed.
const RESTING_EVERY: Duration = Duration::from_mins(10);
/// Probes at once.
const MOST: usize = 16;
/// Longest wait for the head of an answer, and then for its body.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How much of an answer is read.
const MOST_BYTES: usize = 64 * 1024;

/// What probing works with.
pub struct Probes {
    /// Catalog, clock, figures.
    pub shared: Arc<Shared>,
    /// Health of accounts.
    pub registry: Arc<HealthRegistry>,
    /// Where a test that passed elsewhere is written down.
    pub saved: Arc<dyn HealthStore>,
    /// The outside world.
    pub upstream: Arc<dyn Upstream>,
}

impl std::fmt::Debug for Probes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probes").finish_non_exhaustive()
    }
}

/// What a probe showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeOutcome {
    /// A list of models.
    List,
    /// The credential does not work.
    Refused,
    /// Something that counts against the account.
    Failure(Observation),
    /// Nothing about the account: there is no such list, or too much was asked lately.
    Nothing,
}

/// An account that is due.
struct Due {
    channel: Arc<Channel>,
    account: Arc<Account>,
}

impl Probes {
    /// Probes until `stop` is cancelled. Must run inside a runtime.
    pub async fn run(self, stop: CancellationToken) {
        let mut next = HashMap::new();
        let mut running = JoinSet::new();
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(_) = running.join_next() => continue,
                _ = ticks.tick() => {}
            }
            self.ask_for_tests().await;
            for Due { channel, account } in self.due(&mut next, MOST.saturating_sub(running.len())) {
                let (upstream, registry, shared) =
                    (Arc::clone(&self.upstream), Arc::clone(&self.registry), Arc::clone(&self.shared));
                running.spawn(async move {
                    let sent = shared.clock.now();
                    let seen = look(&*upstream, &channel, &account, sent).await;
                    note(&shared, &registry, &channel, &account, seen, sent);
                });
            }
        }
    }

    /// The accounts whose time has come, at most so many; the others stay due.
    fn due(&self, next: &mut HashMap<AccountId, Instant>, most: usize) -> Vec<Due> {
        let now = Instant::now();
        let catalog = self.shared.catalog.load();
        let mut due = Vec::new();
        let mut watched = HashMap::new();
        for channel in catalog.channels.values().filter(|row| row.on && row.cooling && row.provider != Provider::Echo) {
            for account in channel.accounts.iter().filter(|row| row.on) {
                let Some((every, first)) = self.rhythm(channel, account) else { continue };
                // A shorter rhythm than before takes effect at once.
                let at = next.get(&account.id).map_or(now + first, |at| (*at).min(now + every));
                if at <= now && due.len() < most {
                    due.push(Due { channel: Arc::clone(channel), account: Arc::clone(account) });
                    watched.insert(account.id, now + every);
                } else {
                    watched.insert(account.id, at);
                }
            }
        }
        *next = watched;
        due
    }

    /// How often an account is probed, and how long from now for the first time; `None`: never.
    fn rhythm(&self, channel: &Channel, account: &Account) -> Option<(Duration, Duration)> {
        let active = Duration::from_secs(u64::from(channel.probe_interval_s));
        if let HealthState::Resting { why: RestingReason::Refused, since, .. } = self.registry.of(account.id).state {
            let every = if active.is_zero() { RESTING_EVERY } else { active.min(RESTING_EVERY) };
            let rested = u64::try_from(self.shared.clock.now().ms_since(since)).unwrap_or(0);
            return Some((every, every.saturating_sub(Duration::from_millis(rested))));
        }
        (!active.is_zero()).then_some((active, active))
    }

    /// Ends rests and coolings that began before the account passed a test elsewhere.
    async fn ask_for_tests(&self) {
        let now = self.shared.clock.now();
        let catalog = self.shared.catalog.load_full();
        let rows = catalog.channels.values().flat_map(|channel| channel.accounts.iter().map(move |account| (channel, account)));
        let out: Vec<_> = rows.filter(|(_, account)| self.out_since(account.id).is_some()).collect();
        if out.is_empty() {
            return;
        }
        match self.saved.load_tests().await {
            Ok(passed) => {
                let passed: HashMap<AccountId, Timestamp> = passed.into_iter().collect();
                for (channel, account) in out {
                    let (Some(since), Some(passed)) = (self.out_since(account.id), passed.get(&account.id)) else { continue };
                    if *passed >= since {
                        self.registry.observe(account.id, &Observation::TestPassed, channel.cooling, now);
                    }
                }
            }
            Err(fault) => {
                self.shared.metrics.store_error("load_tests");
                tracing::debug!(%fault, "it is not known whether resting accounts passed a test");
            }
        }
    }

    /// Since when an account rests or cools; `None`: it does not.
    fn out_since(&self, account: AccountId) -> Option<Timestamp> {
        match self.registry.of(account).state {
            HealthState::Resting { since, .. } | HealthState::Cooling { since, .. } => Some(since),
            HealthState::Usable | HealthState::Probing { .. } => None,
        }
    }
}

/// Asks for the list of models.
async fn look(upstream: &dyn Upstream, channel: &Arc<Channel>, account: &Arc<Account>, now: Timestamp) -> ProbeOutcome {
    let call = UpstreamCall {
        // No caller asked: there is no request to name.
        request_id: RequestId::from_uuid(uuid::Uuid::nil()),
        channel: Arc::clone(channel),
        account: Arc::clone(account),
        protocol: channel.protocol,
        method: Method::Chat,
        upstream_model: String::new(),
        stream: None,
        path: channel.protocol.spec().model_list_path.to_owned(),
        body: Bytes::new(),
        sent: SentMark::default(),
    };
    let within = Duration::from_millis(channel.timeouts.connect_ms) + ANSWER_WITHIN;
    match timeout(within, upstream.call(call)).await {
        Err(_) => ProbeOutcome::Failure(Observation::Timeout),
        Ok(Err(UpstreamError::NotSent(_))) => ProbeOutcome::Failure(Observation::ConnectFailure),
        Ok(Err(UpstreamError::Lost | UpstreamError::Unreadable(_))) => ProbeOutcome::Failure(Observation::ServerError),
        Ok(Ok(answer)) => {
            let (status, protocol) = (answer.status, channel.protocol);
            let body = timeout(ANSWER_WITHIN, beginning(answer)).await.unwrap_or_default();
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
        // A firewall's page says nothing of the credential.
        _ if problem.from_intermediary => ProbeOutcome::Nothing,
        401..=403 => ProbeOutcome::Refused,
        408 | 504 | 524 => ProbeOutcome::Failure(Observation::Timeout),
        501 => ProbeOutcome::Nothing,
        500.. => ProbeOutcome::Failure(Observation::ServerError),
        _ => ProbeOutcome::Nothing,
    }
}

async fn beginning(answer: UpstreamAnswer) -> Vec<u8> {
    let mut body = answer.body;
    let mut read = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Some(data) = frame.data_ref() {
            let room = MOST_BYTES - read.len();
            read.extend_from_slice(&data[..data.len().min(room)]);
            if read.len() == MOST_BYTES {
                break;
            }
        }
    }
    read.to_vec()
}

/// What a probe means for an account in this state. A list says nothing about limits, quotas and the health of models, and a
/// failed probe does not make an account rest or cool longer than it does.
fn meaning(state: &HealthState, seen: ProbeOutcome) -> Option<Observation> {
    match (state, seen) {
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

fn note(shared: &Shared, registry: &HealthRegistry, channel: &Channel, account: &Account, seen: ProbeOutcome, sent: Timestamp) {
    let word = match seen {
        ProbeOutcome::List => "well",
        ProbeOutcome::Refused => "refused",
        ProbeOutcome::Failure(_) => "failed",
        ProbeOutcome::Nothing => "unclear",
    };
    shared.metrics.probed(&channel.name, word);
    tracing::debug!(probe = true, channel.name = channel.name, account.id = %account.id, result = word, "an account was probed");
    if let Some(observation) = meaning(&registry.of(account.id).state, seen) {
        registry.observe_sent(account, &observation, channel.cooling, sent, shared.clock.now());
    }
}

#[cfg(test)]
mod tests;
