//! One request after the other: admitted, routed and settled by the functions of the gateway, answered by providers that fail now
//! and then.

use std::{collections::HashMap, sync::Arc};

use anyhow::{Context as _, Result};
use tollgate_core::{
    AttemptFacts, AttemptHistory, AttemptResult, BudgetAction, Caller, Catalog, DeliveredContent, InputCount, Key, KeyId,
    LatencySample, Multiplier, NanoUsd, Observation, Offer, Outcome, PlannedAttempt, RequestFacts, RequestId, RouteInput, Tags,
    Timestamp, TokenSource, TraceEntry, UnlimitedView, UsageBounds, UsageRecord, Window, resolve, route, settle,
};
use tollgate_protocol::{Protocol, RequestSummary};

use crate::{
    alerts::ChannelAlerts,
    faults::{FaultKind, USUAL, USUAL_SHARE, faults_at},
    health::AccountBook,
    random::Random,
    refusals::RefusedRequest,
    sizes::RequestFigures,
    workload::Workload,
};

/// Attempts of one request.
const MAX_ATTEMPTS: usize = 3;

#[derive(Debug)]
pub(crate) struct Simulation {
    pub(crate) random: Random,
    pub(crate) accounts: AccountBook,
    pub(crate) alerts: ChannelAlerts,
    /// The end of the history.
    end: Timestamp,
    /// Keys by member and name.
    keys: HashMap<(String, String), Arc<Key>>,
    /// Spent by each key in its latest period.
    spent: HashMap<(KeyId, Window), (Timestamp, NanoUsd)>,
}

/// A request on its way.
struct RunningRequest<'a> {
    workload: &'a Workload,
    catalog: &'a Catalog,
    offer: &'a Offer,
    caller: &'a Caller,
    summary: &'a RequestSummary,
    figures: RequestFigures,
    at: Timestamp,
}

/// How the attempts of a request ended.
struct AttemptsEnd {
    attempts: Vec<AttemptFacts>,
    trace: Vec<TraceEntry>,
    outcome: Outcome,
    refused: Option<RefusedRequest>,
    delivered: DeliveredContent,
    /// Microseconds from the arrival.
    ttft_us: Option<u64>,
    duration_us: u64,
}

impl Simulation {
    pub(crate) fn new(end: Timestamp) -> Self {
        let (random, accounts, alerts) = (Random::seeded(2_026), AccountBook::new(), ChannelAlerts::default());
        Self { random, accounts, alerts, end, keys: HashMap::new(), spent: HashMap::new() }
    }

    pub(crate) fn set_keys(&mut self, keys: Vec<Key>) {
        self.keys = keys.into_iter().map(|key| ((key.member.name.clone(), key.name.clone()), Arc::new(key))).collect();
    }

    /// The record of a request of a workload.
    pub(crate) fn request(&mut self, catalog: &Catalog, workload: &Workload, at: Timestamp) -> Result<UsageRecord> {
        let model = *self.random.weighted(workload.models);
        let figures = RequestFigures::draw(workload, model, &mut self.random);
        let name = (workload.member.to_owned(), workload.key.to_owned());
        let key = Arc::clone(self.keys.get(&name).with_context(|| format!("there is no key {name:?}"))?);
        if self.random.happens(workload.faulty) {
            let (refused, model) = RefusedRequest::by_fault_of_caller(workload, model, &mut self.random);
            return Ok(self.refused_at_once(workload, &key, &model, refused, at));
        }
        if let Some(refused) = self.budget_spent(&key, at) {
            return Ok(self.refused_at_once(workload, &key, model, refused, at));
        }
        let caller = Caller::of(catalog, Arc::clone(&key));
        let mut summary = RequestSummary::minimal(model, workload.method);
        (summary.stream, summary.text_bytes) = (figures.stream, figures.usage.prompt_total * 4);
        summary.affinity = (workload.cached > 0).then(|| session(workload, at).0);
        let offer = resolve(catalog, &caller, &summary, workload.protocol, at);
        let offer = offer.map_err(|why| anyhow::anyhow!("{model} is not offered to {name:?}: {why:?}"))?;
        let running = RunningRequest { workload, catalog, offer: &offer, caller: &caller, summary: &summary, figures, at };
        let end = self.attempts(&running);
        self.alerts.evaluate(catalog, &self.accounts, at);
        let (id, address, tags) = self.identity(workload, at);
        let (status, reason, detail) = match (&end.refused, end.outcome) {
            (Some(refused), _) => (refused.status, Some(refused.error.to_owned()), Some(refused.message.clone())),
            (None, Outcome::CallerLeft) => (200, Some("E64".to_owned()), Some("The caller closed the connection.".to_owned())),
            (None, _) => (200, None, None),
        };
        let record = settle(RequestFacts {
            id,
            at,
            key: Arc::clone(&key),
            group: Some(Arc::clone(&offer.group)),
            protocol_in: workload.protocol,
            method: workload.method,
            model: Some(model.into()),
            stream: figures.stream,
            status,
            outcome: end.outcome,
            reason,
            detail,
            sale: offer.sale.clone(),
            sale_multiplier: offer.sale_multiplier,
            price_version: offer.revision,
            input: InputCount { tokens: figures.usage.prompt_total, source: TokenSource::Counted },
            bounds: UsageBounds::default(),
            delivered: end.delivered,
            attempts: end.attempts.into_iter().collect(),
            ttft_us: end.ttft_us,
            duration_us: end.duration_us,
            address: Some(address.into()),
            client_request_id: None,
            client: Some(client_of(workload.protocol).into()),
            request_bytes: figures.usage.prompt_total * 4 + 180,
            dropped: Vec::new(),
            trace: end.trace,
            tags,
        });
        self.spend(&key, at, record.sale.unwrap_or_default());
        Ok(record)
    }

    /// The record of a request that was refused before a group was chosen.
    fn refused_at_once(
        &mut self,
        workload: &Workload,
        key: &Arc<Key>,
        model: &str,
        refused: RefusedRequest,
        at: Timestamp,
    ) -> UsageRecord {
        let (id, address, tags) = self.identity(workload, at);
        settle(RequestFacts {
            id,
            at,
            key: Arc::clone(key),
            group: None,
            protocol_in: workload.protocol,
            method: workload.method,
            model: Some(model.into()),
            stream: false,
            status: refused.status,
            outcome: Outcome::Refused,
            reason: Some(refused.error.to_owned()),
            detail: Some(refused.message),
            sale: None,
            sale_multiplier: Multiplier::ONE,
            price_version: tollgate_core::Revision(0),
            input: InputCount::default(),
            bounds: UsageBounds::default(),
            delivered: DeliveredContent::default(),
            attempts: [].into_iter().collect(),
            ttft_us: None,
            duration_us: self.random.between((180, 900)),
            address: Some(address.into()),
            client_request_id: None,
            client: Some(client_of(workload.protocol).into()),
            request_bytes: 0,
            dropped: Vec::new(),
            trace: Vec::new(),
            tags,
        })
    }

    fn identity(&mut self, workload: &Workload, at: Timestamp) -> (RequestId, String, Tags) {
        let id = RequestId::from_parts(at, self.random.bytes());
        let address = format!("{}.{}", workload.network, 10 + self.random.below(9));
        let mut tags = Tags::default();
        if !workload.project.is_empty() {
            tags.add_metadata(&[("project".to_owned(), workload.project.to_owned())]);
        }
        if workload.cached > 900 {
            tags.add_metadata(&[("session".to_owned(), session(workload, at).1)]);
        }
        (id, address, tags)
    }

    /// Whether a budget of the key that refuses requests is spent.
    fn budget_spent(&self, key: &Key, at: Timestamp) -> Option<RefusedRequest> {
        key.budgets.iter().filter(|budget| budget.action == BudgetAction::Block).find_map(|budget| {
            let (begin, spent) = self.spent.get(&(key.id, budget.window)).copied()?;
            let renews_at = budget.window.ends(at)?;
            let word = if budget.window == Window::Day { "daily" } else { "monthly" };
            let is_spent = begin == period(budget.window, at) && spent >= budget.amount;
            is_spent.then(|| RefusedRequest::budget_spent(spent, budget.amount, word, renews_at))
        })
    }

    fn spend(&mut self, key: &Key, at: Timestamp, amount: NanoUsd) {
        for budget in &key.budgets {
            let begin = period(budget.window, at);
            let spent = self.spent.entry((key.id, budget.window)).or_insert((begin, NanoUsd::ZERO));
            if spent.0 != begin {
                *spent = (begin, NanoUsd::ZERO);
            }
            spent.1.0 += amount.0;
        }
    }

    /// Attempts until one answers.
    fn attempts(&mut self, running: &RunningRequest<'_>) -> AttemptsEnd {
        let mut history = AttemptHistory::default();
        let mut end = AttemptsEnd {
            attempts: Vec::new(),
            trace: Vec::new(),
            outcome: Outcome::Refused,
            refused: None,
            delivered: DeliveredContent::default(),
            ttft_us: None,
            duration_us: self.random.between((300, 1_100)),
        };
        loop {
            let now = plus_us(running.at, end.duration_us);
            let input = running.route_input(&self.accounts, &history, now);
            let random = &mut self.random;
            let planned = route(&input, &mut || u32::try_from(random.number() >> 32).unwrap_or(0));
            let attempt = match planned {
                Ok(plan) => {
                    if end.trace.is_empty() {
                        end.trace = plan.trace();
                    }
                    plan.first
                }
                Err(no_route) => {
                    if end.trace.is_empty() {
                        end.trace = no_route.trace();
                    }
                    let model = &running.offer.model.spec.name;
                    end.refused.get_or_insert_with(|| RefusedRequest::no_route(model, no_route.cause(), running.workload.protocol));
                    return end;
                }
            };
            history.record_attempt(&attempt);
            self.accounts.begin_attempt(attempt.account.id, now);
            let fault = self.fault_of(&attempt, now).filter(|kind| *kind != FaultKind::CutOff || running.figures.stream);
            match fault {
                None => self.answer(running, attempt, now, &mut end),
                Some(FaultKind::CutOff) => self.cut_off(running, attempt, now, &mut end),
                Some(kind) => {
                    self.fail(running, attempt, kind, now, &mut end);
                    if end.attempts.len() < MAX_ATTEMPTS {
                        continue;
                    }
                }
            }
            return end;
        }
    }

    /// The fault of an attempt, if any.
    fn fault_of(&mut self, attempt: &PlannedAttempt, now: Timestamp) -> Option<FaultKind> {
        let (channel, account) = (&attempt.channel.spec.name, &attempt.account.spec.name);
        let now = faults_at(channel, account, now, self.end).find(|fault| self.random.happens(fault.share));
        now.map(|fault| fault.kind).or_else(|| self.random.happens(USUAL_SHARE).then(|| *self.random.weighted(USUAL)))
    }

    fn answer(&mut self, running: &RunningRequest<'_>, planned: PlannedAttempt, now: Timestamp, end: &mut AttemptsEnd) {
        let figures = &running.figures;
        let leaves = figures.stream && self.random.happens(9);
        let share = if leaves { self.random.between((150, 850)) } else { 1_000 };
        let length_us = figures.first_us + (figures.last_us - figures.first_us) * share / 1_000;
        let seen_at = plus_us(now, figures.first_us);
        let latency =
            if figures.stream { LatencySample::FirstToken(figures.first_us) } else { LatencySample::WholeAnswer(length_us) };
        self.accounts.observe(&planned.channel, &planned.account, &Observation::Success { latency: Some(latency) }, seen_at);
        let reply = figures.reply();
        end.delivered = DeliveredContent { text_bytes: reply.text_bytes * share / 1_000, ..reply.into() };
        let reply = if leaves { tollgate_protocol::ReplySummary { usage: None, finish: None, ..reply } } else { reply };
        let result = if leaves { AttemptResult::Cancelled } else { AttemptResult::Answered };
        let before_us = end.duration_us;
        end.attempts.push(AttemptFacts {
            upstream_request_id: Some(self.upstream_id().into()),
            status: Some(200),
            reply_summary: Some(reply),
            first_byte_us: Some(figures.first_us * 9 / 10),
            ..attempt(planned, now, result, length_us)
        });
        end.ttft_us = Some(before_us + if figures.stream { figures.first_us } else { length_us } + 180);
        end.duration_us = before_us + length_us + self.random.between((120, 420));
        end.outcome = if leaves { Outcome::CallerLeft } else { Outcome::Completed };
        end.refused = None;
    }

    fn cut_off(&mut self, running: &RunningRequest<'_>, planned: PlannedAttempt, now: Timestamp, end: &mut AttemptsEnd) {
        let figures = &running.figures;
        let length_us = figures.first_us + (figures.last_us - figures.first_us) / 3;
        self.accounts.observe(&planned.channel, &planned.account, &Observation::BadAnswer, plus_us(now, length_us));
        let refused = RefusedRequest::by_upstream(FaultKind::CutOff, "", 0);
        end.delivered = DeliveredContent { content: true, text_bytes: figures.text_bytes() / 3, ..DeliveredContent::default() };
        end.attempts.push(AttemptFacts {
            upstream_request_id: Some(self.upstream_id().into()),
            status: Some(200),
            error: Some(refused.error.to_owned()),
            reply_summary: Some(tollgate_protocol::ReplySummary {
                content: true,
                text_bytes: end.delivered.text_bytes,
                ..Default::default()
            }),
            first_byte_us: Some(figures.first_us * 9 / 10),
            ..attempt(planned, now, AttemptResult::Broke, length_us)
        });
        end.ttft_us = Some(end.duration_us + figures.first_us + 180);
        end.duration_us += length_us + 200;
        end.outcome = Outcome::UpstreamBroke;
        end.refused = Some(refused);
    }

    fn fail(
        &mut self,
        running: &RunningRequest<'_>,
        planned: PlannedAttempt,
        kind: FaultKind,
        now: Timestamp,
        end: &mut AttemptsEnd,
    ) {
        let timeout_ms = planned.channel.spec.timeouts.first_byte_ms;
        let (status, result, length_us) = match kind {
            FaultKind::RateLimited(_) => (Some(429), AttemptResult::Refused, self.random.between((40_000, 160_000))),
            FaultKind::Overloaded(_) => (Some(529), AttemptResult::Refused, self.random.between((200_000, 1_900_000))),
            FaultKind::Broken | FaultKind::CutOff => (Some(500), AttemptResult::Refused, self.random.between((300_000, 2_500_000))),
            FaultKind::Silent => (None, AttemptResult::Failed, timeout_ms * 1_000),
            FaultKind::Unreachable => (None, AttemptResult::NotSent, self.random.between((1_000, 9_000))),
            FaultKind::CredentialRefused => (Some(401), AttemptResult::Refused, self.random.between((60_000, 140_000))),
            FaultKind::CreditSpent => (Some(402), AttemptResult::Refused, self.random.between((60_000, 140_000))),
        };
        let seen_at = plus_us(now, length_us);
        let wait = |seconds: u64| seen_at.plus_ms(i64::try_from(seconds).unwrap_or(0) * 1_000);
        let observation = match kind {
            FaultKind::RateLimited(seconds) => Observation::RateLimited { until: Some(wait(seconds)) },
            FaultKind::Overloaded(seconds) => Observation::Overloaded { until: wait(seconds) },
            FaultKind::Broken | FaultKind::CutOff => Observation::ServerError,
            FaultKind::Silent => Observation::Timeout,
            FaultKind::Unreachable => Observation::ConnectFailure,
            FaultKind::CredentialRefused => Observation::Refused,
            FaultKind::CreditSpent => Observation::QuotaSpent { until: Window::Month.ends(now) },
        };
        self.accounts.observe(&planned.channel, &planned.account, &observation, seen_at);
        let refused = RefusedRequest::by_upstream(kind, &running.offer.model.spec.name, timeout_ms);
        end.attempts.push(AttemptFacts {
            upstream_request_id: status.map(|_| self.upstream_id().into()),
            status,
            error: Some(refused.error.to_owned()),
            first_byte_us: status.map(|_| length_us - 300),
            ..attempt(planned, now, result, length_us)
        });
        end.duration_us += length_us + self.random.between((150, 600));
        end.refused = Some(refused);
    }

    fn upstream_id(&mut self) -> String {
        format!("req_{:016x}", self.random.number())
    }
}

impl RunningRequest<'_> {
    fn route_input<'a>(&'a self, accounts: &'a AccountBook, history: &'a AttemptHistory, now: Timestamp) -> RouteInput<'a, 'a> {
        RouteInput {
            catalog: self.catalog,
            latest_catalog: None,
            caller: self.caller,
            offer: self.offer,
            summary: self.summary,
            from: self.workload.protocol,
            health: accounts,
            candidate_view: &UnlimitedView,
            now,
            request_limit: None,
            translates: true,
            history,
        }
    }
}

/// The usual client of a protocol.
const fn client_of(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::OpenAi => "OpenAI/Python 2.1.0",
        Protocol::Gemini => "google-genai-sdk/1.52.0 gl-python/3.12.4",
        Protocol::Anthropic => "claude-cli/2.1.330 (external, cli)",
        Protocol::Responses => "codex_cli_rs/0.60.1",
    }
}

/// An attempt without an answer.
fn attempt(planned: PlannedAttempt, at: Timestamp, result: AttemptResult, duration_us: u64) -> AttemptFacts {
    AttemptFacts {
        planned: Arc::new(planned),
        at,
        status: None,
        result,
        error: None,
        reply_summary: None,
        first_byte_us: None,
        duration_us,
        upstream_request_id: None,
        hedged: false,
        message: None,
        sent_us: (result != AttemptResult::NotSent).then_some(duration_us.min(60)),
    }
}

/// The session that a workload has at a time, as a number and as a tag. One lasts two hours.
fn session(workload: &Workload, at: Timestamp) -> (u64, String) {
    let seed = workload
        .member
        .bytes()
        .chain(workload.key.bytes())
        .fold(at.seconds().unsigned_abs() / 7_200, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut random = Random::seeded(seed);
    let number = random.number();
    let text = format!("{number:016x}{:016x}", random.number());
    (number, format!("{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..]))
}

/// The beginning of the period that a time is in.
const fn period(window: Window, at: Timestamp) -> Timestamp {
    match window {
        Window::Day => Timestamp::of_day(at.day()),
        Window::Month => Timestamp::of_month(at.month()),
        Window::Total => Timestamp(0),
    }
}

fn plus_us(at: Timestamp, us: u64) -> Timestamp {
    Timestamp(at.0.saturating_add(i64::try_from(us).unwrap_or(i64::MAX)))
}
