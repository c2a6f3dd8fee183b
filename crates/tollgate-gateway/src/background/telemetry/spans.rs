//! The spans of an ended request: one for the request, as a server of its caller, and below it one for each attempt, as a client of
//! the provider. They have names, numbers and ids; no content, no credential, no text of an error.

use opentelemetry_proto::tonic::{
    common::v1::KeyValue,
    trace::v1::{Span, Status, span::SpanKind, status::StatusCode},
};
use tollgate_core::{AttemptResult, Outcome, Timestamp, TokenSource, Tokens};
use url::Url;

use super::attributes::{flag, number, seconds, text, texts};
use crate::{
    gen_ai::{OWN_PROVIDER, attempt_error, finish_reason, operation, provider, request_error},
    state::trace_queue::{TracedAttempt, TracedRequest, span_id},
};

/// Flag: the trace is sampled.
const SAMPLED: u32 = 1;
/// Flag: [`IS_REMOTE`] says whether the parent is remote.
const KNOWS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// The spans of a request, the request's own first.
pub(super) fn spans_of(request: &TracedRequest) -> Vec<Span> {
    let attempts = request.attempts.iter().zip(1..).map(|(attempt, number)| attempt_span(request, attempt, number));
    std::iter::once(request_span(request)).chain(attempts).collect()
}

fn request_span(request: &TracedRequest) -> Span {
    let operation = operation(request.method, request.protocol);
    let answered = request.attempts.iter().rfind(|attempt| attempt.record.result == AttemptResult::Answered);
    let subject = answered.or(request.attempts.last());
    let error = request_error(request.outcome, request.reason.as_deref());
    let mut attributes = vec![
        text("gen_ai.operation.name", operation),
        text("gen_ai.provider.name", subject.map_or(OWN_PROVIDER, |attempt| provider(&attempt.channel))),
        number("http.response.status_code", request.status),
        text("tollgate.request.id", request.id.to_string()),
        text("tollgate.key.id", request.key.to_string()),
        text("tollgate.protocol.in", request.protocol.as_str()),
        text("tollgate.outcome", request.outcome.as_str()),
        number("tollgate.attempts", request.attempts.len() as u64),
    ];
    let optional = [
        request.model.as_deref().map(|model| text("gen_ai.request.model", model)),
        answered.map(|attempt| text("gen_ai.response.model", attempt.record.upstream_model.as_str())),
        request.stream.then(|| flag("gen_ai.request.stream", true)),
        answered.and_then(|attempt| attempt.finish).map(|finish| texts("gen_ai.response.finish_reasons", &[finish_reason(finish)])),
        request.ttft_us.filter(|_| request.stream).map(|first| seconds("gen_ai.response.time_to_first_chunk", first)),
        request.group.as_deref().map(|group| text("tollgate.group.name", group)),
        request.cost.map(|cost| number("tollgate.cost_nano_usd", cost.0)),
        request.sale.map(|sale| number("tollgate.sale_nano_usd", sale.0)),
        request.reason.as_deref().map(|reason| text("tollgate.reason", reason)),
        error.map(|error| text("error.type", error)),
    ];
    attributes.extend(optional.into_iter().flatten());
    push_usage(&mut attributes, &request.tokens);
    // A caller may request any name, so only names of existing models become span names.
    let model = request.model.as_deref().filter(|_| request.is_offered);
    // As conventions for HTTP servers have it, a mistake of the caller is not an error of the server.
    let has_failed = match request.outcome {
        Outcome::UpstreamBroke | Outcome::GatewayStopped => true,
        Outcome::Refused => request.status >= 500,
        Outcome::Completed | Outcome::CallerLeft => false,
    };
    Span {
        trace_id: request.trace.to_vec(),
        span_id: span_id(request.id, 0).to_vec(),
        parent_span_id: request.parent.map(|parent| parent.to_vec()).unwrap_or_default(),
        flags: SAMPLED | request.parent.map_or(0, |_| KNOWS_REMOTE | IS_REMOTE),
        name: named(operation, model),
        kind: SpanKind::Server.into(),
        start_time_unix_nano: nanos(request.at, 0),
        end_time_unix_nano: nanos(request.at, request.duration_us),
        attributes,
        status: Some(status(has_failed.then_some(error).flatten())),
        ..Span::default()
    }
}

fn attempt_span(request: &TracedRequest, attempt: &TracedAttempt, count: u64) -> Span {
    let TracedAttempt { channel, finish, record } = attempt;
    let operation = operation(request.method, record.protocol);
    let error = attempt_error(record);
    let mut attributes = vec![
        text("gen_ai.operation.name", operation),
        text("gen_ai.provider.name", provider(channel)),
        text("gen_ai.request.model", record.upstream_model.as_str()),
        text("tollgate.request.id", request.id.to_string()),
        text("tollgate.channel.id", record.channel.to_string()),
        text("tollgate.channel.name", record.channel_name.as_str()),
        text("tollgate.account.id", record.account.to_string()),
        text("tollgate.account.name", record.account_name.as_str()),
        text("tollgate.attempt.result", record.result.as_str()),
        number("tollgate.attempt.number", count),
    ];
    let optional = [
        request.stream.then(|| flag("gen_ai.request.stream", true)),
        finish.map(|finish| texts("gen_ai.response.finish_reasons", &[finish_reason(finish)])),
        record.first_byte_us.filter(|_| request.stream).map(|first| seconds("gen_ai.response.time_to_first_chunk", first)),
        record.status.map(|status| number("http.response.status_code", status)),
        record.hedged.then(|| flag("tollgate.attempt.hedged", true)),
        record.cost.map(|cost| number("tollgate.cost_nano_usd", cost.0)),
        record.upstream_request_id.as_deref().map(|id| text("tollgate.upstream.request_id", id)),
        error.map(|error| text("error.type", error)),
    ];
    attributes.extend(optional.into_iter().flatten());
    attributes.extend(server_of(&channel.spec.base_url));
    push_usage(&mut attributes, &record.tokens);
    let has_failed = !matches!(record.result, AttemptResult::Answered | AttemptResult::Cancelled);
    Span {
        trace_id: request.trace.to_vec(),
        span_id: span_id(request.id, count).to_vec(),
        parent_span_id: span_id(request.id, 0).to_vec(),
        flags: SAMPLED | KNOWS_REMOTE,
        name: named(operation, Some(&record.upstream_model)),
        kind: SpanKind::Client.into(),
        start_time_unix_nano: nanos(record.at, 0),
        end_time_unix_nano: nanos(record.at, record.duration_us),
        attributes,
        status: Some(status(has_failed.then_some(error).flatten())),
        ..Span::default()
    }
}

fn named(operation: &str, model: Option<&str>) -> String {
    model.map_or_else(|| operation.to_owned(), |model| format!("{operation} {model}"))
}

/// Tokens, if they were used. Cached and reasoning tokens are part of the totals, as the conventions require.
fn push_usage(attributes: &mut Vec<KeyValue>, tokens: &Tokens) {
    if tokens.source == TokenSource::None {
        return;
    }
    attributes.push(number("gen_ai.usage.input_tokens", tokens.prompt()));
    attributes.push(number("gen_ai.usage.output_tokens", tokens.completion()));
    let parts = [
        ("gen_ai.usage.cache_read.input_tokens", tokens.cache_read),
        ("gen_ai.usage.cache_write.input_tokens", tokens.cache_write),
        // Its name until release 1.41 of the semantic conventions.
        ("gen_ai.usage.cache_creation.input_tokens", tokens.cache_write),
        ("gen_ai.usage.reasoning.output_tokens", tokens.thinking),
        ("gen_ai.usage.image.input_tokens", tokens.image),
        ("gen_ai.usage.audio.input_tokens", tokens.audio),
    ];
    attributes.extend(parts.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| number(name, count)));
    attributes.push(text("tollgate.tokens.source", tokens.source.as_str()));
}

/// Host and port of an upstream, never its path or query.
fn server_of(base_url: &str) -> Vec<KeyValue> {
    let Ok(url) = Url::parse(base_url) else { return Vec::new() };
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else { return Vec::new() };
    vec![text("server.address", host.trim_matches(['[', ']'])), number("server.port", port)]
}

fn status(error: Option<&str>) -> Status {
    match error {
        Some(error) => Status { code: StatusCode::Error.into(), message: error.to_owned() },
        None => Status::default(),
    }
}

/// A time and microseconds after it, in nanoseconds since the epoch.
pub(super) fn nanos(at: Timestamp, after_us: u64) -> u64 {
    u64::try_from(at.0).unwrap_or(0).saturating_add(after_us).saturating_mul(1_000)
}

#[cfg(test)]
mod tests;
