//! Usage records as JSON objects and CSV rows, for the admin API and `usage export`.

use serde_json::{Value, json};
use tollgate_core::{AttemptRecord, NanoUsd, Tokens, TraceEntry, UsageRecord};

use crate::time::rfc3339;

/// The record as JSON: times in RFC 3339, amounts as decimal strings in USD.
pub fn json(record: &UsageRecord) -> Value {
    json!({
        "id": record.id,
        "at": rfc3339(record.at),
        "outcome": record.outcome,
        "reason": record.reason,
        "detail": record.detail,
        "status": record.status,
        "key": record.key,
        "key_name": record.key_name,
        "member": record.member,
        "group": record.group_name,
        "protocol_in": record.protocol_in,
        "protocol_out": record.protocol_out,
        "method": record.method,
        "model": record.model,
        "stream": record.stream,
        "tokens": tokens(&record.tokens),
        "sale": record.sale.map(NanoUsd::to_usd_string),
        "cost": record.cost.map(NanoUsd::to_usd_string),
        "price_version": record.price_version,
        "ttft_us": record.ttft_us,
        "duration_us": record.duration_us,
        "address": record.address,
        "client_request_id": record.client_request_id,
        "dropped": record.dropped,
        "trace": record.trace.iter().map(trace).collect::<Vec<_>>(),
        "attempts": record.attempts.iter().map(attempt).collect::<Vec<_>>(),
    })
}

fn attempt(attempt: &AttemptRecord) -> Value {
    json!({
        "channel": attempt.channel_name,
        "account": attempt.account_name,
        "protocol": attempt.protocol,
        "upstream_model": attempt.upstream_model,
        "at": rfc3339(attempt.at),
        "status": attempt.status,
        "result": attempt.result,
        "error": attempt.error,
        "tokens": tokens(&attempt.tokens),
        "cost": attempt.cost.map(NanoUsd::to_usd_string),
        "first_byte_us": attempt.first_byte_us,
        "duration_us": attempt.duration_us,
        "upstream_request_id": attempt.upstream_request_id,
        "beside": attempt.hedged,
    })
}

/// All kinds of tokens, zeros included.
fn tokens(tokens: &Tokens) -> Value {
    let Tokens { input, output, cache_read, cache_write, cache_write_1h, thinking, image, audio, source } = tokens;
    json!({
        "input": input, "output": output, "cache_read": cache_read, "cache_write": cache_write, "cache_write_1h": cache_write_1h,
        "thinking": thinking, "image": image, "audio": audio, "source": source.as_str(),
    })
}

fn trace(entry: &TraceEntry) -> Value {
    let TraceEntry { channel, account, code, detail } = entry;
    json!({"channel": channel, "account": account, "code": code, "detail": detail})
}

/// The columns of [`row`].
pub(crate) const CSV_HEADER: &str = "id,at,outcome,reason,status,key,key_name,member,group,protocol_in,protocol_out,method,model,\
    stream,input,output,cache_read,cache_write,cache_write_1h,thinking,image,audio,token_source,sale,cost,ttft_us,duration_us,attempts\n";

pub fn row(record: &UsageRecord) -> Vec<String> {
    let or_empty = |value: Option<String>| value.unwrap_or_default();
    vec![
        record.id.to_string(),
        rfc3339(record.at),
        record.outcome.as_str().to_owned(),
        or_empty(record.reason.clone()),
        record.status.to_string(),
        record.key.to_string(),
        escape_formula(&record.key_name),
        record.member.to_string(),
        escape_formula(record.group_name.as_deref().unwrap_or_default()),
        record.protocol_in.as_str().to_owned(),
        or_empty(record.protocol_out.map(|protocol| protocol.as_str().to_owned())),
        record.method.as_str().to_owned(),
        escape_formula(record.model.as_deref().unwrap_or_default()),
        record.stream.to_string(),
        record.tokens.input.to_string(),
        record.tokens.output.to_string(),
        record.tokens.cache_read.to_string(),
        record.tokens.cache_write.to_string(),
        record.tokens.cache_write_1h.to_string(),
        record.tokens.thinking.to_string(),
        record.tokens.image.to_string(),
        record.tokens.audio.to_string(),
        record.tokens.source.as_str().to_owned(),
        or_empty(record.sale.map(NanoUsd::to_usd_string)),
        or_empty(record.cost.map(NanoUsd::to_usd_string)),
        or_empty(record.ttft_us.map(|us| us.to_string())),
        record.duration_us.to_string(),
        record.attempts.len().to_string(),
    ]
}

/// Escapes text from a caller, such as a model name: spreadsheets evaluate cells that begin with one of these characters as
/// formulas, and an apostrophe prevents that.
fn escape_formula(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    if formula { format!("'{text}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_looks_like_a_formula_is_escaped() {
        for formula in ["=cmd|'/C calc'!A1", "+1", "-1", "@SUM(A1)", "\t=1"] {
            assert_eq!(escape_formula(formula), format!("'{formula}"));
        }
        assert_eq!((escape_formula("gpt-4=x"), escape_formula("")), ("gpt-4=x".to_owned(), String::new()));
    }
}
