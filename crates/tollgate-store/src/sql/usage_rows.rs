//! Content of a row of the usage log: which texts are in the dictionary, and which attempt is in the row of its request. [`stored`]
//! converts rows back to records.

mod packed;
pub(super) mod stored;

use serde::{Deserialize, Serialize};
use tollgate_core::{AttemptRecord, ShortText, TraceEntry, UsageRecord};

use super::{
    names::{NameKind, NameLookup},
    tags::TagRef,
};
use packed::{PackedAttempt, PackedNumbers, PackedStatus};

/// Rare values of a record, as JSON.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ExtraValues {
    /// A requested model that no group offers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<ShortText>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detail: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) dropped: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) trace: Vec<TraceEntry>,
    /// The upstream's message, for the attempt in the row of its request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
}

/// The prefix of the column `extra` for a request for this model, which no group offers. No other row has this prefix, because
/// quotes in texts are escaped.
pub(super) fn begin_of_extra(model: &str) -> String {
    format!("{{\"model\":{}", serde_json::Value::from(model))
}

/// Numbers of the texts of an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttemptRefs {
    pub(super) channel: i64,
    pub(super) account: i64,
    pub(super) upstream_model: i64,
    pub(super) error: Option<i64>,
}

/// Numbers of the texts of a record.
#[derive(Debug)]
pub(super) struct RecordRefs {
    pub(super) key: i64,
    pub(super) member: i64,
    pub(super) group: Option<i64>,
    pub(super) model: Option<i64>,
    pub(super) reason: Option<i64>,
    /// `None` if the trace is not in the dictionary.
    pub(super) trace: Option<i64>,
    pub(super) attempts: Vec<AttemptRefs>,
    /// The attempt whose channel is that of the record: the one that answered, else the last one.
    pub(super) subject: Option<usize>,
    /// The attempt that is in the row of its request.
    pub(super) inline: Option<usize>,
    /// The sums of the tags, in the order of the tags.
    pub(super) tags: Vec<TagRef>,
}

impl RecordRefs {
    pub(super) fn of<'a>(record: &'a UsageRecord, names: &mut NameLookup<'a>) -> Self {
        let subject = record.subject();
        // Callers must not fill the dictionary with names of models that do not exist.
        let model = record.offered_model();
        Self {
            key: names.number(NameKind::Key, Some(record.key.uuid()), &record.key_name),
            member: names.number(NameKind::Member, Some(record.member.uuid()), ""),
            group: record
                .group
                .map(|group| names.number(NameKind::Group, Some(group.uuid()), record.group_name.as_deref().unwrap_or_default())),
            model: model.map(|model| names.number(NameKind::Model, None, model)),
            reason: record.reason.as_deref().map(|reason| names.number(NameKind::Code, None, reason)),
            trace: names.trace(&record.trace),
            attempts: record.attempts.iter().map(|attempt| attempt_refs(attempt, names)).collect(),
            subject,
            inline: subject.filter(|at| fits_inline(record, &record.attempts[*at])),
            tags: Vec::new(),
        }
    }

    /// The attempts that have rows of their own, with their positions.
    pub(super) fn others<'a>(&self, record: &'a UsageRecord) -> impl Iterator<Item = (usize, &'a AttemptRecord)> {
        let inline = self.inline;
        record.attempts.iter().enumerate().filter(move |(at, _)| inline != Some(*at))
    }

    /// Numbers of the record that have no column.
    pub(super) fn packed(&self, record: &UsageRecord) -> PackedNumbers {
        PackedNumbers {
            protocol_out: record.protocol_out,
            token_source: record.tokens.source,
            web_searches: record.tokens.web_searches,
            price_version: record.price_version,
            sale_multiplier: record.sale_multiplier,
            trace: self.trace,
            upstream_model: self.subject.map(|at| self.attempts[at].upstream_model),
            request_bytes: record.request_bytes,
            attempt: self.inline.map(|at| packed_attempt(record, at, self.attempts[at].error)),
        }
    }

    /// Texts of the record that have no column.
    pub(super) fn extra(&self, record: &UsageRecord) -> Option<String> {
        let has_trace = self.trace.is_none() && !record.trace.is_empty();
        let has_model = self.model.is_none() && record.model.is_some();
        let message = self.inline.and_then(|at| record.attempts[at].message.as_ref());
        if !has_trace && !has_model && record.detail.is_none() && record.dropped.is_empty() && message.is_none() {
            return None;
        }
        let extra = ExtraValues {
            model: if self.model.is_none() { record.model.clone() } else { None },
            detail: record.detail.clone(),
            dropped: record.dropped.clone(),
            trace: if self.trace.is_none() { record.trace.clone() } else { Vec::new() },
            message: message.cloned(),
        };
        Some(serde_json::to_string(&extra).expect("texts serialise to JSON"))
    }
}

fn attempt_refs<'a>(attempt: &'a AttemptRecord, names: &mut NameLookup<'a>) -> AttemptRefs {
    AttemptRefs {
        channel: names.number(NameKind::Channel, Some(attempt.channel.uuid()), &attempt.channel_name),
        account: names.number(NameKind::Account, Some(attempt.account.uuid()), &attempt.account_name),
        upstream_model: names.number(NameKind::UpstreamModel, None, &attempt.upstream_model),
        error: attempt.error.as_deref().map(|error| names.number(NameKind::Code, None, error)),
    }
}

fn packed_attempt(record: &UsageRecord, at: usize, error: Option<i64>) -> PackedAttempt {
    let attempt = &record.attempts[at];
    PackedAttempt {
        position: at as u64,
        start_us: attempt.at.0.wrapping_sub(record.at.0),
        protocol: (record.protocol_out != Some(attempt.protocol)).then_some(attempt.protocol),
        status: match attempt.status {
            Some(status) if status == record.status => PackedStatus::OfRecord,
            None => PackedStatus::None,
            Some(other) => PackedStatus::Other(other),
        },
        result: attempt.result,
        error,
        first_byte_us: attempt.first_byte_us,
        duration_us: attempt.duration_us,
        cost_multiplier: attempt.cost_multiplier,
        sent_us: attempt.sent_us,
    }
}

/// Whether the row of the request can hold the attempt: its other figures are those of the record.
fn fits_inline(record: &UsageRecord, attempt: &AttemptRecord) -> bool {
    attempt.tokens == record.tokens && attempt.cost == record.cost && !attempt.hedged
}
