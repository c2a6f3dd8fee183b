//! A record as a row.

use super::record_object::RecordObject;
use crate::pages::{
    format::{self, TimeText},
    locale::Locale,
    mark::{self, Mark},
    money::{self, Amount},
    protocols,
};

#[derive(Debug)]
pub(super) struct LogRow {
    pub(super) id: String,
    pub(super) at: Option<TimeText>,
    pub(super) mark: Mark,
    pub(super) model: String,
    /// The provider's name of the model, if it differs.
    pub(super) upstream_model: Option<String>,
    pub(super) key: String,
    /// The member whose key it is, for operators.
    pub(super) member: Option<String>,
    pub(super) group: String,
    pub(super) channel: Option<String>,
    pub(super) tries: Option<String>,
    pub(super) protocol: &'static str,
    pub(super) translated: Option<&'static str>,
    pub(super) is_stream: bool,
    pub(super) input: String,
    pub(super) output: String,
    pub(super) cached: String,
    pub(super) sale: Option<Amount>,
    pub(super) first: Option<String>,
    pub(super) total: String,
    pub(super) speed: Option<String>,
    pub(super) address: String,
}

impl LogRow {
    pub(super) fn of(t: Locale, record: &RecordObject, is_operator: bool) -> Self {
        let last = record.attempts.iter().rev().find(|attempt| !attempt.beside);
        let tokens = &record.tokens;
        let some = |count: u64| if count == 0 { "–".to_owned() } else { format::integer(count) };
        let model = record.model.clone().unwrap_or_else(|| "–".to_owned());
        Self {
            id: record.id.clone(),
            at: format::second(t, &record.at),
            mark: outcome_mark(t, record),
            upstream_model: last.map(|attempt| attempt.upstream_model.clone()).filter(|name| *name != model),
            model,
            key: record.key_name.clone(),
            member: record.member_name.clone().filter(|_| is_operator),
            group: record.group.clone().unwrap_or_else(|| "–".to_owned()),
            channel: last.map(|attempt| attempt.channel.clone()),
            tries: (record.attempts.len() > 1).then(|| t.say_with("log.tries", &[("count", &record.attempts.len().to_string())])),
            protocol: protocols::label(t, &record.protocol_in),
            translated: record.protocol_out.as_deref().filter(|out| *out != record.protocol_in).map(|out| protocols::label(t, out)),
            is_stream: record.stream,
            input: some(tokens.prompt()),
            output: some(tokens.answer()),
            cached: some(tokens.cache_read),
            sale: record.sale.as_deref().map(|sale| money::short(t, sale)),
            first: record.ttft_us.map(|us| format::micros(t, us)),
            total: format::micros(t, record.duration_us),
            speed: speed(record).map(|speed| format!("{speed:.1}")),
            address: record.address.clone().unwrap_or_default(),
        }
    }
}

/// The outcome with the status that the caller got.
pub(super) fn outcome_mark(t: Locale, record: &RecordObject) -> Mark {
    if record.is_empty_answer() {
        return Mark::new("warn", "minus", format!("{} {}", record.status, t.say("log.empty_answer")));
    }
    let mark = mark::of_outcome(t, &record.outcome);
    let word = if record.outcome == "completed" { record.status.to_string() } else { format!("{} {}", record.status, mark.word) };
    Mark { word, ..mark }
}

/// Tokens of the answer per second after the first one.
#[expect(clippy::cast_precision_loss, reason = "a speed needs no exact figures")]
pub(super) fn speed(record: &RecordObject) -> Option<f64> {
    let streamed_us = record.duration_us.checked_sub(record.ttft_us?)?;
    let tokens = record.tokens.answer();
    (record.stream && tokens > 1 && streamed_us > 0).then(|| tokens as f64 * 1e6 / streamed_us as f64)
}
