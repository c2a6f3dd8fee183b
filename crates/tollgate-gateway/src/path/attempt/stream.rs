//! Reads a stream until the status 200 may be sent for it: its first content has arrived, or its model has been thinking for long.
//!
//! A model may think for minutes before it sends content. Meanwhile providers send pings, comments, empty deltas or the beginnings
//! of thoughts. Any of these shows that the upstream is alive, so only silence ends the attempt. Callers and the proxies in between
//! have timeouts, too. Therefore the status 200 is sent after a while even without content: the keep-alives of the relay then reach
//! the caller, but failing over to another account is no longer possible.

use std::future::poll_fn;

use bytes::Bytes;
use tokio::time::Instant;
use tollgate_protocol::{Framing, Method, StreamError, StreamRelay};

use super::Attempt;
use crate::{
    path::types::{
        attempt::{AttemptAnswer, Rest, Streaming, may_send_status},
        failure::Failure,
        request_bodies::ResponseConversion,
        stream_memory::StreamMemory,
        stream_progress::StreamProgress,
        usage_guard::AttemptProgress,
    },
    upstream::call::{UpstreamAnswer, UpstreamBody},
};

/// Bytes a stream may send without content, besides [`ECHOES`] of the request.
const MAX_PRELUDE_BYTES: usize = 1024 * 1024;
/// Times a stream may repeat the request before its content: Responses send instructions and tools with each of up to three events, and
/// escapes may lengthen them.
const ECHOES: usize = 4;

/// Bytes that a stream may send without content for a request of this length.
pub(super) const fn prelude_limit(request_bytes: usize) -> usize {
    MAX_PRELUDE_BYTES.saturating_add(ECHOES * request_bytes)
}

/// A stream without content so far.
struct Beginning {
    relay: Box<dyn StreamRelay>,
    /// Chunks for the caller.
    first: Vec<Bytes>,
    memory: StreamMemory,
    /// Bytes received since the last progress, and the progress of the answer.
    received: usize,
    reached: StreamProgress,
}

impl Beginning {
    /// Converts the next bytes, or the end of the body.
    fn push(&mut self, piece: Option<&Bytes>) -> Result<(), StreamError> {
        match piece {
            Some(piece) => {
                self.received += piece.len();
                self.relay.push(piece, &mut self.first)
            }
            None => self.relay.finish(&mut self.first),
        }
    }

    /// Counts the memory of the bytes that are kept, and waits if none is free.
    async fn count(&mut self, read: usize) -> Result<(), Failure> {
        if self.memory.received(read) {
            self.memory.measured(self.relay.held_bytes() + self.first.iter().map(Bytes::len).sum::<usize>());
            poll_fn(|context| self.memory.poll_wait(context)).await.map_err(|_| Failure::NoMemory)?;
        }
        Ok(())
    }

    /// True if more bytes came without content than are allowed.
    fn is_too_long(&mut self, limit: usize) -> bool {
        let reached = StreamProgress::of(&*self.relay);
        if reached != self.reached {
            // The model works although the caller gets nothing yet: hidden thoughts, or an incomplete call.
            (self.reached, self.received) = (reached, 0);
        }
        // An incomplete event may be the content. It has a separate limit.
        self.received.saturating_sub(self.relay.held_bytes()) > limit
    }
}

impl Attempt<'_> {
    pub(super) async fn stream(
        &self,
        answer: UpstreamAnswer,
        (framing, method, prelude_limit): (Framing, Method, usize),
        conversion: &ResponseConversion,
        progress: &AttemptProgress,
    ) -> Result<AttemptAnswer, Failure> {
        let UpstreamAnswer { headers, mut body, .. } = answer;
        let mut beginning = Beginning {
            relay: conversion.relay(framing),
            first: Vec::new(),
            memory: StreamMemory::new(self.memory),
            received: 0,
            reached: StreamProgress::default(),
        };
        let timeouts = self.planned.channel.spec.timeouts;
        let silence_ms = timeouts.first_byte_ms.max(timeouts.idle_ms);
        let answer_at = self.answer_after.map(|after| self.clock.instant() + after);
        loop {
            let piece = self.next_within(&mut body, silence_ms).await?;
            let pushed = beginning.push(piece.as_ref());
            beginning.count(piece.as_ref().map_or(0, Bytes::len)).await?;
            let summary = beginning.relay.summary();
            progress.record_reply(summary);
            if may_send_status(&summary, &*beginning.relay) {
                self.refuse_empty(method, &summary)?;
                let rest = match (piece, pushed) {
                    (None, Ok(())) => Rest::Ended,
                    (Some(_), Ok(())) => Rest::Pending(body),
                    (_, Err(fault)) => Rest::Broken(fault),
                };
                return Ok(self.streaming(beginning, rest, None));
            }
            match pushed {
                Err(StreamError::Problem(problem)) => return Err(self.problem_of(*problem, &headers, progress)),
                Err(StreamError::Malformed(what)) => return Err(Failure::BadAnswer(what)),
                Err(StreamError::Truncated) => return Err(Failure::BadAnswer("stream ended without content")),
                // A complete stream without content is an empty answer.
                Ok(()) if piece.is_none() => {
                    self.refuse_empty(method, &summary)?;
                    return Ok(self.streaming(beginning, Rest::Ended, None));
                }
                Ok(()) if beginning.is_too_long(prelude_limit) => return Err(Failure::BadAnswer("too much without content")),
                Ok(()) if self.answers_before_content(&beginning, answer_at) => {
                    return Ok(self.begun(beginning, body, silence_ms));
                }
                Ok(()) => {}
            }
        }
    }

    /// Whether the model has been thinking for long enough that the status is sent without content.
    fn answers_before_content(&self, beginning: &Beginning, answer_at: Option<Instant>) -> bool {
        answer_at.is_some_and(|at| self.clock.instant() >= at) && !beginning.relay.reads_document()
    }

    /// The answer of a model that is still thinking: the beginning of the stream in the caller's protocol, or else a keep-alive.
    fn begun(&self, mut beginning: Beginning, body: UpstreamBody, silence_ms: u64) -> AttemptAnswer {
        beginning.relay.open(&mut beginning.first);
        if beginning.first.is_empty() {
            beginning.first.push(Bytes::from_static(beginning.relay.keep_alive()));
        }
        self.streaming(beginning, Rest::Pending(body), Some(silence_ms))
    }

    fn streaming(&self, beginning: Beginning, rest: Rest, before_content_ms: Option<u64>) -> AttemptAnswer {
        let Beginning { relay, first, memory, .. } = beginning;
        let idle_ms = self.planned.channel.spec.timeouts.idle_ms;
        let limit = self.channel_limit;
        AttemptAnswer::Stream(Streaming { relay, first, rest, memory, idle_ms, before_content_ms, limit, whole_by: None })
    }
}
