//! How a stream ends for its caller, its account and its record.

use tollgate_core::{AttemptResult, Observation, Outcome};
use tollgate_protocol::{Protocol, StreamError, UpstreamProblem};

use super::{
    Relayed,
    phase::{Break, Close, Phase},
};
use crate::{
    path::types::usage_guard::Ending,
    refusal::{Refusal, Rejection, UpstreamFailure},
    request::Head,
};

impl Relayed {
    /// E52, E54, E56, E59, E60, E61, E63: sends the complete chunks, then the error event, then aborts the connection unless a clean end
    /// shows the failure in the caller's protocol.
    pub(super) fn break_off(&mut self, why: &Break) {
        self.upstream = None;
        let model = self.guard.as_ref().and_then(|guard| guard.model()).unwrap_or_default();
        let upstream = |failure| Refusal::Upstream { model: model.to_owned(), failure };
        let (refusal, outcome, observation) = match why {
            Break::GatewayStopped => (Refusal::ShuttingDown, Outcome::GatewayStopped, Observation::Success { latency: None }),
            Break::NoMemory => (Refusal::Overloaded, Outcome::GatewayStopped, Observation::Success { latency: None }),
            Break::AccessLost(refusal) => (refusal.clone(), Outcome::GatewayStopped, Observation::Success { latency: None }),
            Break::Interrupted => (upstream(UpstreamFailure::StreamInterrupted), Outcome::UpstreamBroke, Observation::BadAnswer),
            Break::TooLong => {
                (upstream(UpstreamFailure::Rejected(Box::new(too_long()))), Outcome::UpstreamBroke, Observation::RequestRefused)
            }
            Break::RateLimited(retry_after) => {
                let failure = UpstreamFailure::RateLimited { retry_after: *retry_after };
                (upstream(failure), Outcome::UpstreamBroke, Observation::RateLimited { until: None })
            }
            Break::Overloaded(retry_after) => {
                let failure = UpstreamFailure::Overloaded { retry_after: *retry_after };
                (upstream(failure), Outcome::UpstreamBroke, Observation::BadAnswer)
            }
            Break::Idle if self.limit.is_some_and(|limit| limit.at <= self.clock.instant() && limit.at < self.silent_at()) => {
                let limit_ms = self.limit.map_or(0, |limit| limit.ms);
                (upstream(UpstreamFailure::StreamTooLong { limit_ms }), Outcome::UpstreamBroke, Observation::Timeout)
            }
            Break::Idle => {
                let silence = self.silence_allowed();
                let is_stalled = self.clock.instant() < self.received + silence && !self.progress.finish;
                let limit = if is_stalled { self.stall_limit } else { silence };
                let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
                (upstream(UpstreamFailure::StreamIdle { limit_ms }), Outcome::UpstreamBroke, Observation::Timeout)
            }
        };
        let problem = refusal.problem(&self.head);
        self.out.extend(self.fresh.drain(..));
        self.out.extend(std::iter::from_fn(|| self.relay.next_shared()));
        self.out.push_back(self.relay.problem(&problem));
        let id = refusal.id(self.head.from);
        let ending = Ending { status: 200, outcome, reason: Some(id.to_owned()), detail: Some(problem.message) };
        let result = if outcome == Outcome::GatewayStopped { AttemptResult::Cancelled } else { AttemptResult::Broke };
        let close = if self.head.from.spec().aborts_broken_streams { Close::Abort } else { Close::Cleanly };
        self.end(result, Some(id), observation, ending, close);
    }

    pub(super) fn end(
        &mut self,
        result: AttemptResult,
        error: Option<&str>,
        observation: Observation,
        ending: Ending,
        then: Close,
    ) {
        let flush = self.guard.take().and_then(|mut guard| {
            let summary = self.relay.summary();
            guard.record_reply(summary);
            guard.delivered(summary);
            if guard.captures_contents() {
                // The last bytes are sent once the record is written.
                self.out.extend(std::iter::from_fn(|| self.relay.next_shared()));
                self.out.iter().for_each(|bytes| guard.capture_answer(bytes));
            }
            guard.end_attempt(result, error, Some(observation));
            guard.finish(ending)
        });
        self.phase = match flush {
            Some(flush) => Phase::Flushing { flush: Box::pin(flush.wait()), then },
            None => Phase::Closing(then),
        };
    }
}

/// The refusal of a request that is too long, in words and with the code by which clients shorten the conversation. The upstream's own
/// words may name the account.
fn too_long() -> Rejection {
    let message = "prompt is too long: it exceeds the context window of the model".to_owned();
    Rejection {
        protocol: Protocol::OpenAi,
        problem: UpstreamProblem { status: 400, message, context_exceeded: true, ..UpstreamProblem::default() },
    }
}

pub(super) fn warn(head: &Head, fault: &StreamError) {
    // Log only the class: the text of an error event is the upstream's.
    let class = match fault {
        StreamError::Malformed(what) => what,
        StreamError::Problem(_) => "error event",
        StreamError::Truncated => "truncated",
    };
    tracing::warn!(request.id = %head.request_id, class, "a stream broke after its first content");
}
