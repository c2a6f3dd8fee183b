//! The attempts of a request: their beginnings in the journal, and their ends with their cost and their effect on the account's health.

use std::sync::Arc;

use tokio::time::Instant;
use tollgate_core::{AttemptResult, NanoUsd, Observation, PlannedAttempt, Provider, Timestamp, settle_attempt};
use tollgate_protocol::ReplySummary;

use super::{
    JournalFailurePolicy, UsageGuard,
    open_attempt::{AttemptProgress, OpenAttempt, micros_between, start_entry},
};
use crate::{
    path::types::failure::{Failure, Verdict},
    state::capacity_limiter::Permit,
};

impl UsageGuard {
    /// Begins an attempt and writes its beginning to the journal. `None` when the journal cannot be written and the policy is to
    /// refuse.
    pub(crate) fn begin_attempt(
        &mut self,
        planned: &Arc<PlannedAttempt>,
        permit: Permit,
        policy: JournalFailurePolicy,
    ) -> Option<Arc<AttemptProgress>> {
        self.attempt = Some(self.open_attempt(planned, permit));
        self.write_begin(self.attempt.as_ref()?, policy)
    }

    /// Begins a concurrent hedged attempt; otherwise like [`Self::begin_attempt`].
    pub(crate) fn begin_hedge(
        &mut self,
        planned: &Arc<PlannedAttempt>,
        permit: Permit,
        policy: JournalFailurePolicy,
    ) -> Option<Arc<AttemptProgress>> {
        self.hedge_attempt = Some(self.open_attempt(planned, permit));
        self.write_begin(self.hedge_attempt.as_ref()?, policy)
    }

    fn open_attempt(&self, planned: &Arc<PlannedAttempt>, permit: Permit) -> OpenAttempt {
        let clock = &self.recorder.shared.clock;
        let began = clock.fresh_instant();
        let now = self.wall_time(began);
        if planned.channel.spec.provider != Provider::Echo {
            let by = self.facts.as_deref().map(|facts| facts.key.requester());
            self.recorder.health.begin_request(planned.account.id, by, now);
        }
        OpenAttempt::begin(Arc::clone(planned), permit, clock, (began, now))
    }

    /// The wall-clock time of an instant of this request, counted from its arrival: one clock is read instead of two.
    fn wall_time(&self, at: Instant) -> Timestamp {
        let arrived = self.facts.as_deref().map_or_else(|| self.recorder.shared.clock.now(), |facts| facts.at);
        let since = i64::try_from(micros_between(self.started, at)).unwrap_or(i64::MAX);
        Timestamp(arrived.0.saturating_add(since))
    }

    fn write_begin(&self, attempt: &OpenAttempt, policy: JournalFailurePolicy) -> Option<Arc<AttemptProgress>> {
        let progress = Arc::clone(attempt.progress());
        let Some(facts) = self.facts.as_deref() else { return Some(progress) };
        // Recovery treats the attempt written last as the running one, and a concurrent one as cancelled.
        let others = [&self.attempt, &self.hedge_attempt].into_iter().flatten().filter(|other| !other.is_on(attempt.account()));
        let concurrent = others.map(OpenAttempt::facts).collect::<Vec<_>>();
        let Some(begin) = start_entry(facts, attempt, &concurrent) else { return Some(progress) };
        if let Err(fault) = self.recorder.journal.begin(&begin) {
            tracing::error!(request.id = %begin.id, %fault, "the journal did not take the beginning of an attempt");
            return (policy == JournalFailurePolicy::Continue).then_some(progress);
        }
        Some(progress)
    }

    /// Swaps the running attempt and the hedged attempt.
    pub(crate) const fn promote_hedge(&mut self) {
        std::mem::swap(&mut self.attempt, &mut self.hedge_attempt);
    }

    /// Ends the hedged attempt, and settles the cost of hedging.
    pub(crate) fn end_hedge(&mut self, result: AttemptResult, error: Option<&str>, observation: Option<Observation>) {
        let Some(hedge_attempt) = self.hedge_attempt.take() else { return };
        let now = self.recorder.shared.clock.instant();
        let cost = self.close((hedge_attempt, now), true, result, error, observation);
        if let Some(reservation) = self.hedge_reservation.take() {
            reservation.settle(cost);
        }
        if let Some(attempt) = &self.attempt {
            // Recovery needs it to find the running attempt. If it is not written, only the account's name is wrong.
            let _ = self.write_begin(attempt, JournalFailurePolicy::Continue);
        }
    }

    /// Records the part of the attempt's answer that has been read.
    pub(crate) fn record_reply(&mut self, summary: ReplySummary) {
        if let Some(attempt) = &self.attempt {
            attempt.progress().record_reply(summary);
        }
    }

    pub(crate) fn end_attempt(&mut self, result: AttemptResult, error: Option<&str>, observation: Option<Observation>) {
        if self.attempt.is_some() {
            self.end_attempt_at(self.recorder.shared.clock.instant(), result, error, observation);
        }
    }

    /// [`Self::end_attempt`] at an instant that has just been read.
    pub(super) fn end_attempt_at(
        &mut self,
        now: Instant,
        result: AttemptResult,
        error: Option<&str>,
        observation: Option<Observation>,
    ) {
        if let Some(attempt) = self.attempt.take() {
            self.close((attempt, now), false, result, error, observation);
        }
    }

    /// Returns the cost of the attempt, if it is known and needed.
    fn close(
        &mut self,
        (attempt, now): (OpenAttempt, Instant),
        hedged: bool,
        result: AttemptResult,
        error: Option<&str>,
        observation: Option<Observation>,
    ) -> Option<NanoUsd> {
        let (mut facts, mut permit) = attempt.close(result, error, now);
        facts.hedged = hedged;
        if let Some(pieces) = facts.reply_summary.map(|summary| summary.unknown).filter(|pieces| *pieces > 0) {
            self.recorder.shared.metrics.unknown_content(&facts.planned.channel.spec.name, pieces);
        }
        // The answer still counts, but an account that reports its limit in it takes no further request.
        let limited = facts.reply_summary.is_some_and(|summary| summary.account_refused);
        let observation = observation.map(|observed| {
            if limited && matches!(observed, Observation::Success { .. }) { Observation::Refused } else { observed }
        });
        if let Some(observation) = observation
            && facts.planned.channel.spec.provider != Provider::Echo
        {
            // Not counted from the arrival: the wall clock may have been set while a long answer ran.
            let (planned, now) = (&facts.planned, self.recorder.shared.clock.now());
            let (channel, by) = (&planned.channel, self.facts.as_deref().map(|facts| facts.key.requester()));
            let rules = channel.spec.cooling_rules();
            self.recorder.health.observe_request(&planned.account, &observation, rules, facts.at, now, by);
        }
        let all = self.facts.as_deref_mut()?;
        let cost = if result == AttemptResult::NotSent {
            permit.mark_unsent();
            Some(NanoUsd::ZERO)
        } else if permit.counts() || hedged {
            let record = settle_attempt(&facts, &all.size());
            permit.used_tokens(record.tokens.prompt().saturating_add(record.tokens.completion()));
            record.cost
        } else {
            None
        };
        all.attempts.push(facts);
        cost
    }

    /// Ends the running attempt, which failed.
    pub(crate) fn fail_attempt(&mut self, failure: &Failure, verdict: &Verdict) {
        if let Some(attempt) = &self.attempt {
            attempt.record_message(failure.message());
        }
        self.end_attempt(verdict.result, Some(verdict.id()), verdict.observation);
    }

    /// Ends the hedged attempt, which failed.
    pub(crate) fn fail_hedge(&mut self, failure: &Failure, verdict: &Verdict) {
        if let Some(attempt) = &self.hedge_attempt {
            attempt.record_message(failure.message());
        }
        self.end_hedge(verdict.result, Some(verdict.id()), verdict.observation);
    }
}
