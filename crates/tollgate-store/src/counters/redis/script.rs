//! The scripts: what they are asked and what they answer.

use std::collections::HashMap;

use redis::{FromRedisValue, RedisError, RedisResult, Script, aio::MultiplexedConnection};
use tollgate_core::{Limit, LimitRule, Meter, NanoUsd, Reservation, SlidingWindow, SpendTotals, Subject, Timestamp, Window};

use super::{
    lease::{LeaseGrant, LeaseRequest, LeaseReturn},
    leases::{binding, subjects_of},
    reservations::{BudgetWatch, CounterDelta},
};
use crate::subject;

/// All scripts, with the prefix of this gateway's names.
#[derive(Debug)]
pub(super) struct Scripts {
    prefix: String,
    take: Script,
    settle: Script,
    load: Script,
    beat: Script,
}

/// Who asks, of which generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeSeat {
    pub(super) node: String,
    pub(super) generation: String,
}

/// A meter with its subject.
pub(super) type SubjectMeter = (Subject, Meter);

/// An answer with meters.
#[derive(Debug)]
pub(super) struct ScriptReply {
    /// ReservationReceipt, or done.
    pub(super) yes: bool,
    /// Microseconds of Redis' clock.
    pub(super) micros: u64,
    pub(super) nodes: u64,
    pub(super) meters: Vec<SubjectMeter>,
    /// Meter, watch and what is spent.
    pub(super) crossed: Vec<(usize, usize, NanoUsd)>,
}

/// What is asked for a request: its hold, what its attempts may need, and by subject what is wanted on lease and what comes
/// back for it.
#[derive(Debug)]
pub(super) struct ReservationRequest {
    pub(super) hold: Reservation,
    pub(super) ahead: Vec<Reservation>,
    pub(super) leases: HashMap<Subject, (LeaseRequest, LeaseReturn)>,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct ReservationGrant {
    pub(super) answer: ScriptReply,
    /// Money taken; less than asked for where less was left and would do.
    pub(super) amount: i64,
    /// For each hold ahead, whether it was taken.
    pub(super) ahead: Vec<bool>,
    pub(super) given: Vec<(Subject, LeaseGrant)>,
}

/// What a sign of life was answered.
#[derive(Debug)]
pub(super) struct HeartbeatReply {
    pub(super) lives: bool,
    pub(super) nodes: u64,
    /// Empty: there is no data.
    pub(super) generation: String,
}

/// The seat is not known: another generation, or the node was given up.
#[derive(Debug)]
pub(super) enum ScriptError {
    Away(RedisError),
    SeatLost,
}

impl From<RedisError> for ScriptError {
    fn from(error: RedisError) -> Self {
        Self::Away(error)
    }
}

/// What was spent of one subject, as the database says it.
pub(super) struct SubjectSpending {
    pub(super) subject: Subject,
    pub(super) day: i64,
    pub(super) month: i64,
    pub(super) total: i64,
    pub(super) posted: Option<i64>,
}

impl Scripts {
    pub(super) fn new(namespace: &str) -> Self {
        const FIELDS: &str = include_str!("fields.lua");
        const READ: &str = include_str!("read.lua");
        let with_read = |text: &str| Script::new(&format!("{FIELDS}\n{READ}\n{text}"));
        Self {
            // In braces: one slot, should there ever be several.
            prefix: format!("tollgate:{{{namespace}}}:"),
            take: with_read(include_str!("take.lua")),
            settle: with_read(include_str!("settle.lua")),
            load: Script::new(&format!("{FIELDS}\n{}", include_str!("load.lua"))),
            beat: with_read(include_str!("beat.lua")),
        }
    }

    /// A name of this gateway's.
    pub(super) fn name(&self, of: &str) -> String {
        format!("{}{of}", self.prefix)
    }

    fn meter(&self, of: Subject) -> String {
        self.name(&format!("meter:{}", subject::name(of)))
    }

    /// Takes a hold, or nothing of it.
    pub(super) async fn reserve(
        &self,
        link: &mut MultiplexedConnection,
        seat: &NodeSeat,
        ask: &ReservationRequest,
    ) -> Result<ReservationGrant, ScriptError> {
        let ReservationRequest { hold, ahead, leases } = ask;
        let mut subjects = subjects_of(hold);
        for of in ahead.iter().flat_map(subjects_of) {
            if !subjects.contains(&of) {
                subjects.push(of);
            }
        }
        let place = |of: Subject| subjects.iter().position(|it| *it == of).map_or(0, |at| at + 1);
        let mut asked = self.take.prepare_invoke();
        asked.key(self.name("nodes")).key(self.name("generation"));
        for of in &subjects {
            asked.key(self.meter(*of));
        }
        let least = hold.lowered_to_min();
        let (least, least_tokens) = least.map_or((-1, -1), |it| (it.amount.0, i64::try_from(it.tokens).unwrap_or(i64::MAX)));
        asked.arg(&seat.node).arg(&seat.generation).arg(hold.amount.0).arg(hold.tokens).arg(least).arg(least_tokens);
        asked.arg(hold.at.day()).arg(hold.at.month());
        for of in &subjects {
            let (want, back) = leases.get(of).copied().unwrap_or_default();
            let (requests, tokens) = (back.requests.unwrap_or_default(), back.tokens.unwrap_or_default());
            asked.arg(back.money).arg(back.places).arg(requests.0).arg(requests.1).arg(tokens.0).arg(tokens.1);
            asked.arg(want.money).arg(want.money_each).arg(want.requests).arg(want.tokens).arg(want.tokens_each).arg(want.places);
        }
        asked.arg(binding(hold).count());
        for limit in binding(hold) {
            let (kind, bound) = kind_of(limit);
            asked.arg(place(limit.subject)).arg(kind).arg(bound);
        }
        asked.arg(ahead.len());
        for (number, hold) in ahead.iter().enumerate() {
            let again = ahead[..number].iter().any(|before| before.limits == hold.limits);
            let of = hold.limits.first().map_or(0, |limit| place(limit.subject));
            asked.arg(of).arg(hold.amount.0).arg(if again { "far" } else { "must" }).arg(binding(hold).count());
            for limit in binding(hold) {
                let (kind, bound) = kind_of(limit);
                asked.arg(kind).arg(bound);
            }
        }
        type Reply = (i64, u64, u64, Vec<Vec<i64>>, i64, Vec<i64>, Vec<Vec<i64>>);
        let (status, micros, nodes, meters, amount, ahead, leases): Reply = asked.invoke_async(link).await?;
        if status < 0 {
            return Err(ScriptError::SeatLost);
        }
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        let given = subjects.iter().zip(leases).filter_map(|(of, given)| {
            let [money, requests, tokens, places] = *given.as_slice() else { return None };
            Some((*of, LeaseGrant { money, requests: count(requests), tokens: count(tokens), places: count(places) }))
        });
        let given = given.collect();
        let answer =
            ScriptReply { yes: status == 1, micros, nodes, meters: metered(&subjects, &meters, hold.at), crossed: Vec::new() };
        Ok(ReservationGrant { answer, amount, ahead: ahead.into_iter().map(|taken| taken == 1).collect(), given })
    }

    /// Gives back and counts what was spent; with nothing to give, a look at the meters.
    pub(super) async fn settle(
        &self,
        link: &mut MultiplexedConnection,
        seat: &NodeSeat,
        process: &str,
        number: u64,
        deltas: &[(Subject, CounterDelta)],
        now: Timestamp,
    ) -> Result<ScriptReply, ScriptError> {
        let mut asked = self.settle.prepare_invoke();
        asked.key(self.name("nodes")).key(self.name("generation")).key(self.name(&format!("number:{process}")));
        for (of, _) in deltas {
            asked.key(self.meter(*of));
        }
        asked.arg(&seat.node).arg(&seat.generation).arg(number).arg(now.day()).arg(now.month());
        for (_, delta) in deltas {
            asked.arg(delta.held).arg(delta.running).arg(delta.watches.len());
            for BudgetWatch { budget, at, .. } in &delta.watches {
                asked.arg(window(budget.window)).arg(at.day()).arg(at.month()).arg(budget.amount.0);
            }
            asked.arg(delta.spends.len());
            for ((day, month), amount) in &delta.spends {
                asked.arg(*day).arg(*month).arg(*amount);
            }
            asked.arg(delta.tokens.len());
            for (minute, taken, actual) in &delta.tokens {
                asked.arg(*minute).arg(*taken).arg(*actual);
            }
            asked.arg(delta.requests.len());
            for (minute, unused) in &delta.requests {
                asked.arg(*minute).arg(*unused);
            }
        }
        type Reply = (i64, u64, u64, Vec<Vec<i64>>, Vec<i64>);
        let (status, micros, nodes, meters, crossed): Reply = asked.invoke_async(link).await?;
        if status < 0 {
            return Err(ScriptError::SeatLost);
        }
        let subjects: Vec<Subject> = deltas.iter().map(|(of, _)| *of).collect();
        let place = |number: i64| usize::try_from(number - 1).unwrap_or(usize::MAX);
        let crossed = crossed.chunks_exact(3).map(|of| (place(of[0]), place(of[1]), NanoUsd(of[2]))).collect();
        Ok(ScriptReply { yes: true, micros, nodes, meters: metered(&subjects, &meters, now), crossed })
    }

    /// Raises what was spent to what the database says.
    pub(super) async fn load(
        &self,
        link: &mut MultiplexedConnection,
        loaded: &[SubjectSpending],
        now: Timestamp,
        ledger: i64,
    ) -> RedisResult<()> {
        let mut asked = self.load.prepare_invoke();
        for of in loaded {
            asked.key(self.meter(of.subject));
        }
        asked.arg(now.day()).arg(now.month()).arg(ledger);
        for of in loaded {
            asked.arg(of.day).arg(of.month).arg(of.total);
            match of.posted {
                Some(posted) => asked.arg(posted),
                None => asked.arg(""),
            };
        }
        asked.invoke_async::<i64>(link).await.map(drop)
    }

    /// A sign of life; `replaces` is taken out.
    pub(super) async fn beat(
        &self,
        link: &mut MultiplexedConnection,
        node: &str,
        life_ms: u64,
        how: HeartbeatKind,
        replaces: &str,
    ) -> RedisResult<HeartbeatReply> {
        let mut asked = self.beat.prepare_invoke();
        asked.key(self.name("nodes")).key(self.name("generation"));
        let how = match how {
            HeartbeatKind::New => "new",
            HeartbeatKind::Keep => "keep",
        };
        asked.arg(node).arg(life_ms).arg(how).arg(replaces);
        let (lives, nodes, generation): (i64, u64, String) = asked.invoke_async(link).await?;
        Ok(HeartbeatReply { lives: lives == 1, nodes, generation })
    }
}

/// Which sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeartbeatKind {
    /// The first one.
    New,
    /// Another one; a node that was given up does not live on.
    Keep,
}

/// Any other command.
pub(super) async fn ask<T: FromRedisValue>(link: &mut MultiplexedConnection, command: &mut redis::Cmd) -> RedisResult<T> {
    command.query_async(link).await
}

const fn window(window: Window) -> &'static str {
    match window {
        Window::Day => "day",
        Window::Month => "month",
        Window::Total => "total",
    }
}

/// What the script checks of a limit.
fn kind_of(limit: &Limit) -> (&'static str, i64) {
    let bound = |most: u64| i64::try_from(most).unwrap_or(i64::MAX);
    match limit.rule {
        LimitRule::Budget(budget) => (window(budget.window), budget.amount.0),
        LimitRule::Balance => ("balance", 0),
        LimitRule::Requests(most) => ("requests", bound(most)),
        LimitRule::Tokens(most) => ("tokens", bound(most)),
        LimitRule::Concurrency(most) => ("running", bound(most)),
    }
}

/// Meters out of numbers, as of `at`.
fn metered(subjects: &[Subject], numbers: &[Vec<i64>], at: Timestamp) -> Vec<SubjectMeter> {
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    let read = |(of, numbers): (&Subject, &Vec<i64>)| {
        let [day, month, total, posted, held, running, rb, rc, rp, tb, tc, tp] = numbers.as_slice() else { return None };
        let meter = Meter {
            spent: SpendTotals::loaded(at, NanoUsd(*day), NanoUsd(*month), NanoUsd(*total)),
            balance: posted.saturating_sub(*total),
            reserved: *held,
            requests: SlidingWindow::from_buckets(count(*rb), count(*rc), count(*rp)),
            tokens: SlidingWindow::from_buckets(count(*tb), count(*tc), count(*tp)),
            running: count(*running),
        };
        Some((*of, meter))
    };
    subjects.iter().zip(numbers).filter_map(read).collect()
}
