//! The Lua scripts, their arguments and their replies.

use std::collections::HashMap;

use redis::{RedisResult, Script, aio::MultiplexedConnection};
use tollgate_core::{Limit, LimitRule, Meter, NanoUsd, Reservation, SlidingWindow, SpendTotals, Subject, Timestamp, Window};

use super::{
    super::subjects::{binding_limits, binding_subjects},
    deltas::{BudgetWatch, CounterDelta},
    lease::{LeaseGrant, LeaseRequest, LeaseReturn},
    own_rates::RateWindows,
};
use crate::{StoreError, subject};

/// All scripts, with the key prefix of this gateway.
#[derive(Debug)]
pub(super) struct Scripts {
    prefix: String,
    reserve: Script,
    settle: Script,
    load: Script,
    heartbeat: Script,
    found: Script,
    gather: Script,
    changes: Script,
}

/// Registration of a node with a generation of the data. Redis drops it when the heartbeats stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeRegistration {
    pub(super) node: String,
    pub(super) generation: String,
}

#[derive(Debug)]
pub(super) struct ScriptReply {
    pub(super) is_granted: bool,
    /// Time of Redis, in microseconds.
    pub(super) micros: u64,
    pub(super) nodes: u64,
    pub(super) meters: Vec<(Subject, Meter)>,
    /// Crossed budgets: index of the meter, index of its watch, money spent.
    pub(super) crossed: Vec<(usize, usize, NanoUsd)>,
}

/// A reservation, reservations to prepare for its attempts, and leases to request and return, by subject.
#[derive(Debug)]
pub(super) struct ReservationRequest {
    pub(super) reservation: Reservation,
    pub(super) attempts: Vec<Reservation>,
    pub(super) leases: HashMap<Subject, (LeaseRequest, LeaseReturn)>,
}

#[derive(Debug)]
pub(super) struct ReservationGrant {
    pub(super) reply: ScriptReply,
    /// Money reserved; less than requested if less was left and sufficient.
    pub(super) amount: i64,
    /// For each reservation of an attempt, whether it was prepared.
    pub(super) prepared: Vec<bool>,
    pub(super) leases: Vec<(Subject, LeaseGrant)>,
}

#[derive(Debug)]
pub(super) struct HeartbeatReply {
    pub(super) is_registered: bool,
    pub(super) nodes: u64,
    /// Empty if Redis holds no data of this gateway.
    pub(super) generation: String,
}

/// Spending of one subject according to the database, in nano-USD.
pub(super) struct SubjectSpending {
    pub(super) subject: Subject,
    pub(super) day: i64,
    pub(super) month: i64,
    pub(super) total: i64,
    /// Sum of the postings to its balance, if it has one.
    pub(super) posted: Option<i64>,
}

impl Scripts {
    pub(super) fn new(namespace: &str) -> Self {
        const FIELDS: &str = include_str!("fields.lua");
        const METERS: &str = include_str!("meters.lua");
        let with_meters = |text: &str| Script::new(&format!("{FIELDS}\n{METERS}\n{text}"));
        Self {
            // The braces are a hash tag: in a cluster all keys of a gateway are in one slot.
            prefix: format!("tollgate:{{{namespace}}}:"),
            reserve: with_meters(include_str!("reserve.lua")),
            settle: with_meters(include_str!("settle.lua")),
            load: Script::new(&format!("{FIELDS}\n{}", include_str!("load.lua"))),
            heartbeat: with_meters(include_str!("heartbeat.lua")),
            found: with_meters(include_str!("found.lua")),
            gather: with_meters(include_str!("gathering.lua")),
            changes: with_meters(include_str!("changes.lua")),
        }
    }

    pub(super) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn meter_key(&self, subject: Subject) -> String {
        self.key(&format!("meter:{}", subject::name(subject)))
    }

    /// Makes a reservation as a whole or not at all.
    pub(super) async fn reserve(
        &self,
        connection: &mut MultiplexedConnection,
        node: &NodeRegistration,
        request: &ReservationRequest,
    ) -> Result<ReservationGrant, Disconnect> {
        let ReservationRequest { reservation, attempts, leases } = request;
        let mut subjects = binding_subjects(reservation);
        for subject in attempts.iter().flat_map(binding_subjects) {
            if !subjects.contains(&subject) {
                subjects.push(subject);
            }
        }
        // Indexes in Lua start at 1.
        let index = |subject: Subject| subjects.iter().position(|known| *known == subject).map_or(0, |at| at + 1);
        let mut invocation = self.reserve.prepare_invoke();
        invocation.key(self.key("nodes")).key(self.key("generation")).key(self.key("changes"));
        for subject in &subjects {
            invocation.key(self.meter_key(*subject));
        }
        let min = reservation.lowered_to_min();
        let (min, min_tokens) = min.map_or((-1, -1), |min| (min.amount.0, i64::try_from(min.tokens).unwrap_or(i64::MAX)));
        invocation.arg(&node.node).arg(&node.generation);
        invocation.arg(reservation.amount.0).arg(reservation.tokens).arg(min).arg(min_tokens);
        invocation.arg(reservation.at.day()).arg(reservation.at.month());
        for subject in &subjects {
            let (wanted, returned) = leases.get(subject).copied().unwrap_or_default();
            let (requests, tokens) = (returned.requests.unwrap_or_default(), returned.tokens.unwrap_or_default());
            invocation.arg(returned.money).arg(returned.permits).arg(requests.0).arg(requests.1).arg(tokens.0).arg(tokens.1);
            invocation.arg(wanted.money).arg(wanted.money_each).arg(wanted.requests);
            invocation.arg(wanted.tokens).arg(wanted.tokens_each).arg(wanted.permits);
        }
        invocation.arg(binding_limits(reservation).count());
        for limit in binding_limits(reservation) {
            let (kind, bound) = kind_of(limit);
            invocation.arg(index(limit.subject)).arg(kind).arg(bound);
        }
        invocation.arg(attempts.len());
        for (at, attempt) in attempts.iter().enumerate() {
            let is_repeated = attempts[..at].iter().any(|earlier| earlier.limits == attempt.limits);
            let subject = attempt.limits.first().map_or(0, |limit| index(limit.subject));
            let condition = if is_repeated { "far" } else { "must" };
            invocation.arg(subject).arg(attempt.amount.0).arg(condition).arg(binding_limits(attempt).count());
            for limit in binding_limits(attempt) {
                let (kind, bound) = kind_of(limit);
                invocation.arg(kind).arg(bound);
            }
        }
        type Reply = (i64, u64, u64, Vec<Vec<i64>>, i64, Vec<i64>, Vec<Vec<i64>>);
        let (status, micros, nodes, meters, amount, prepared, leases): Reply = invocation.invoke_async(connection).await?;
        if status < 0 {
            return Err(Disconnect::RegistrationLost);
        }
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        let leases = subjects.iter().zip(leases).filter_map(|(subject, granted)| {
            let [money, requests, tokens, permits] = *granted.as_slice() else { return None };
            Some((*subject, LeaseGrant { money, requests: count(requests), tokens: count(tokens), permits: count(permits) }))
        });
        let leases = leases.collect();
        let meters = parse_meters(&subjects, &meters, reservation.at);
        let reply = ScriptReply { is_granted: status == 1, micros, nodes, meters, crossed: Vec::new() };
        Ok(ReservationGrant { reply, amount, prepared: prepared.into_iter().map(|prepared| prepared == 1).collect(), leases })
    }

    /// Sends deltas and returns the meters. Spending counts once per process and message number. Empty deltas only read the
    /// meters.
    pub(super) async fn settle(
        &self,
        connection: &mut MultiplexedConnection,
        node: &NodeRegistration,
        process: &str,
        number: u64,
        deltas: &[(Subject, CounterDelta)],
        now: Timestamp,
    ) -> Result<ScriptReply, Disconnect> {
        let mut invocation = self.settle.prepare_invoke();
        invocation
            .key(self.key("nodes"))
            .key(self.key("generation"))
            .key(self.key(&format!("number:{process}")))
            .key(self.key("changes"));
        for (subject, _) in deltas {
            invocation.key(self.meter_key(*subject));
        }
        invocation.arg(&node.node).arg(&node.generation).arg(number).arg(now.day()).arg(now.month());
        for (_, delta) in deltas {
            invocation.arg(delta.reserved).arg(delta.running).arg(delta.watches.len());
            for BudgetWatch { budget, at, .. } in &delta.watches {
                invocation.arg(window(budget.window)).arg(at.day()).arg(at.month()).arg(budget.amount.0);
            }
            invocation.arg(delta.spends.len());
            for ((day, month), amount) in &delta.spends {
                invocation.arg(*day).arg(*month).arg(*amount);
            }
            invocation.arg(delta.counted.len());
            for RateWindows { requests, tokens } in &delta.counted {
                for (minute, current, previous) in [requests.buckets(), tokens.buckets()] {
                    invocation.arg(minute).arg(current).arg(previous);
                }
            }
            invocation.arg(delta.tokens.len());
            for (minute, estimated, actual) in &delta.tokens {
                invocation.arg(*minute).arg(*estimated).arg(*actual);
            }
            invocation.arg(delta.requests.len());
            for (minute, unused) in &delta.requests {
                invocation.arg(*minute).arg(*unused);
            }
        }
        type Reply = (i64, u64, u64, Vec<Vec<i64>>, Vec<i64>);
        let (status, micros, nodes, meters, crossed): Reply = invocation.invoke_async(connection).await?;
        if status < 0 {
            return Err(Disconnect::RegistrationLost);
        }
        let subjects: Vec<Subject> = deltas.iter().map(|(subject, _)| *subject).collect();
        let index = |number: i64| usize::try_from(number - 1).unwrap_or(usize::MAX);
        let crossed = crossed.chunks_exact(3).map(|it| (index(it[0]), index(it[1]), NanoUsd(it[2]))).collect();
        Ok(ScriptReply { is_granted: true, micros, nodes, meters: parse_meters(&subjects, &meters, now), crossed })
    }

    /// The subjects of which any node has reserved or spent money since a time of Redis in microseconds, at most `limit`, and the
    /// time up to which they are complete.
    pub(super) async fn changes(
        &self,
        connection: &mut MultiplexedConnection,
        node: &NodeRegistration,
        since: u64,
        limit: usize,
    ) -> Result<(u64, Vec<Subject>), Disconnect> {
        let mut invocation = self.changes.prepare_invoke();
        invocation.key(self.key("nodes")).key(self.key("generation")).key(self.key("changes"));
        invocation.arg(&node.generation).arg(since).arg(limit);
        let (status, until, keys): (i64, u64, Vec<String>) = invocation.invoke_async(connection).await?;
        if status < 0 {
            return Err(Disconnect::RegistrationLost);
        }
        let prefix = self.key("meter:");
        let subjects = keys.iter().filter_map(|key| subject::parse(key.strip_prefix(&prefix)?));
        Ok((until, subjects.collect()))
    }

    /// Raises spending to the totals of the database.
    pub(super) async fn load(
        &self,
        connection: &mut MultiplexedConnection,
        spending: &[SubjectSpending],
        now: Timestamp,
        ledger: i64,
    ) -> RedisResult<()> {
        let mut invocation = self.load.prepare_invoke();
        for spent in spending {
            invocation.key(self.meter_key(spent.subject));
        }
        invocation.arg(now.day()).arg(now.month()).arg(ledger);
        for spent in spending {
            invocation.arg(spent.day).arg(spent.month).arg(spent.total);
            match spent.posted {
                Some(posted) => invocation.arg(posted),
                None => invocation.arg(""),
            };
        }
        invocation.invoke_async::<i64>(connection).await.map(drop)
    }

    /// Registers a node or extends its registration.
    pub(super) async fn heartbeat(
        &self,
        connection: &mut MultiplexedConnection,
        request: &RegistrationRequest<'_>,
    ) -> RedisResult<HeartbeatReply> {
        let mut invocation = self.heartbeat.prepare_invoke();
        let process = self.key(&format!("number:{}", request.process));
        invocation.key(self.key("nodes")).key(self.key("generation")).key(process);
        let kind = match request.kind {
            HeartbeatKind::New => "new",
            HeartbeatKind::Keep => "keep",
        };
        invocation.arg(request.node).arg(request.ttl_ms).arg(kind).arg(request.prefix);
        invocation.arg(request.generation).arg(request.answered);
        let (is_registered, nodes, generation): (i64, u64, String) = invocation.invoke_async(connection).await?;
        Ok(HeartbeatReply { is_registered: is_registered == 1, nodes, generation })
    }

    /// Begins a generation of data and the gathering of its nodes; `min_ms` and `longest_ms` bound the wait for nodes.
    pub(super) async fn found(
        &self,
        connection: &mut MultiplexedConnection,
        generation: &str,
        min_ms: u64,
        longest_ms: u64,
    ) -> RedisResult<()> {
        let mut invocation = self.found.prepare_invoke();
        invocation.key(self.key("nodes")).key(self.key("generation")).key(self.key("gathering"));
        invocation.arg(generation).arg(min_ms).arg(longest_ms);
        invocation.invoke_async::<i64>(connection).await.map(drop)
    }

    /// Reports the phase of this node to a gathering.
    pub(super) async fn gather(
        &self,
        connection: &mut MultiplexedConnection,
        node: &NodeRegistration,
        phase: GatheringPhase,
        known_nodes: u64,
    ) -> Result<GatheringReply, Disconnect> {
        let mut invocation = self.gather.prepare_invoke();
        invocation.key(self.key("nodes")).key(self.key("generation")).key(self.key("gathering"));
        let phase = match phase {
            GatheringPhase::Arrived => "arrived",
            GatheringPhase::Reported => "reported",
        };
        invocation.arg(&node.node).arg(&node.generation).arg(phase).arg(known_nodes);
        match invocation.invoke_async::<String>(connection).await?.as_str() {
            "lost" => Err(Disconnect::RegistrationLost),
            "none" => Ok(GatheringReply::NoGathering),
            "wait" => Ok(GatheringReply::Wait),
            _ => Ok(GatheringReply::Proceed),
        }
    }
}

/// A registration to begin or to extend.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegistrationRequest<'a> {
    pub(super) node: &'a str,
    pub(super) ttl_ms: u64,
    pub(super) kind: HeartbeatKind,
    /// The beginning of the names of this node's registrations.
    pub(super) prefix: &'a str,
    pub(super) process: &'a str,
    /// The generation it counted in; empty if it has not joined yet.
    pub(super) generation: &'a str,
    /// Number of the process's last message that was answered there.
    pub(super) answered: u64,
}

/// Progress of a node in a gathering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GatheringPhase {
    /// It has arrived, and still serves from its share.
    Arrived,
    /// It has sent all that it has reserved and spent.
    Reported,
}

/// Reply to a node in a gathering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GatheringReply {
    /// Other nodes are expected.
    Wait,
    /// All other nodes have reached this phase.
    Proceed,
    /// The other nodes count in Redis.
    NoGathering,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeartbeatKind {
    New,
    Keep,
}

const fn window(window: Window) -> &'static str {
    match window {
        Window::Day => "day",
        Window::Month => "month",
        Window::Total => "total",
    }
}

/// Kind and bound of a limit, as the script takes them.
fn kind_of(limit: &Limit) -> (&'static str, i64) {
    let bound = |limit: u64| i64::try_from(limit).unwrap_or(i64::MAX);
    match limit.rule {
        LimitRule::Budget(budget) => (window(budget.window), budget.amount.0),
        LimitRule::Balance => ("balance", 0),
        LimitRule::Requests(limit) => ("requests", bound(limit)),
        LimitRule::Tokens(limit) => ("tokens", bound(limit)),
        LimitRule::Concurrency(limit) => ("running", bound(limit)),
    }
}

/// Meters from their numbers, as of `at`.
fn parse_meters(subjects: &[Subject], numbers: &[Vec<i64>], at: Timestamp) -> Vec<(Subject, Meter)> {
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    let parse = |(subject, numbers): (&Subject, &Vec<i64>)| {
        let [day, month, total, posted, reserved, running, rb, rc, rp, tb, tc, tp] = numbers.as_slice() else { return None };
        let meter = Meter {
            spent: SpendTotals::loaded(at, NanoUsd(*day), NanoUsd(*month), NanoUsd(*total)),
            balance: posted.saturating_sub(*total),
            reserved: *reserved,
            requests: SlidingWindow::from_buckets(count(*rb), count(*rc), count(*rp)),
            tokens: SlidingWindow::from_buckets(count(*tb), count(*tc), count(*tp)),
            running: count(*running),
        };
        Some((*subject, meter))
    };
    subjects.iter().zip(numbers).filter_map(parse).collect()
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Disconnect {
    #[error("{0}")]
    Redis(#[from] redis::RedisError),
    #[error("it did not answer in time")]
    Timeout,
    #[error("the registration of this node has expired")]
    RegistrationLost,
    #[error("a request lost the connection")]
    ConnectionLost,
    #[error("it holds no data, and the database cannot provide it: {0}")]
    NoData(StoreError),
}
