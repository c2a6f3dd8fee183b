//! The log event of a request. The module's path is the event's target (docs/logging.md).

use tollgate_core::UsageRecord;

pub(super) fn log(record: &UsageRecord) {
    let tokens = &record.tokens;
    let last = record.attempts.last();
    tracing::info!(
        request.id = %record.id,
        http.status = record.status,
        error.id = record.reason.as_deref().filter(|reason| reason.starts_with('E')),
        outcome = record.outcome.as_str(),
        reason = record.reason.as_deref(),
        protocol.in = record.protocol_in.as_str(),
        protocol.out = record.protocol_out.map(tollgate_protocol::Protocol::as_str),
        model.name = record.model.as_deref(),
        key.id = %record.key,
        group.name = record.group_name.as_deref(),
        channel.id = last.map(|attempt| tracing::field::display(attempt.channel)),
        account.id = last.map(|attempt| tracing::field::display(attempt.account)),
        client.request_id = record.client_request_id.as_deref(),
        attempts = record.attempts.len(),
        stream = record.stream,
        tokens.input = tokens.input + tokens.cache_read + tokens.cache_write + tokens.image + tokens.audio,
        tokens.output = tokens.output + tokens.thinking,
        sale_nano_usd = record.sale.map(|amount| amount.0),
        cost_nano_usd = record.cost.map(|amount| amount.0),
        ttft_ms = record.ttft_us.map(|us| us / 1_000),
        duration_ms = record.duration_us / 1_000,
        "request"
    );
}
