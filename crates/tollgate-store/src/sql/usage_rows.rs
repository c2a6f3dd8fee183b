//! Content of a row of the usage log: which texts are in the dictionary, which attempt is in the row of its request, and
//! the way back from rows to records.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use sqlx::{Any, Row as _, any::AnyRow};
use tollgate_core::{
    AccountId, AttemptRecord, AttemptResult, ChannelId, GroupId, KeyId, MemberId, NanoUsd, Outcome, RequestId, Revision, Timestamp,
    Tokens, TraceEntry, UsageRecord,
};
use tollgate_protocol::{Method, Protocol};
use uuid::Uuid;

use super::{
    codes::Coded,
    dialect::Dialect,
    names::{NameKind, NameLookup},
};

/// Rare values of a record, as JSON.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ExtraValues {
    /// A requested model that no group offers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detail: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) dropped: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) trace: Vec<TraceEntry>,
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
}

impl RecordRefs {
    pub(super) fn of<'a>(record: &'a UsageRecord, names: &mut NameLookup<'a>) -> Self {
        let subject = subject(record.attempts.iter().map(|attempt| attempt.result));
        // Without a group no group offers the model: callers must not fill the dictionary.
        let model = record.group.and(record.model.as_deref());
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
        }
    }

    /// The attempts that have rows of their own, with their positions.
    pub(super) fn others<'a>(&self, record: &'a UsageRecord) -> impl Iterator<Item = (usize, &'a AttemptRecord)> {
        let inline = self.inline;
        record.attempts.iter().enumerate().filter(move |(at, _)| inline != Some(*at))
    }

    /// Members of the record without a column.
    pub(super) fn extra(&self, record: &UsageRecord) -> Option<String> {
        let has_trace = self.trace.is_none() && !record.trace.is_empty();
        let has_model = self.model.is_none() && record.model.is_some();
        if !has_trace && !has_model && record.detail.is_none() && record.dropped.is_empty() {
            return None;
        }
        let extra = ExtraValues {
            model: if self.model.is_none() { record.model.clone() } else { None },
            detail: record.detail.clone(),
            dropped: record.dropped.clone(),
            trace: if self.trace.is_none() { record.trace.clone() } else { Vec::new() },
        };
        Some(serde_json::to_string(&extra).expect("texts serialise to JSON"))
    }
}

/// The attempt that answered, else the last one.
fn subject(mut results: impl ExactSizeIterator<Item = AttemptResult> + DoubleEndedIterator) -> Option<usize> {
    let last = results.len().checked_sub(1);
    let answered = results.rposition(|result| result == AttemptResult::Answered);
    answered.or(last)
}

fn attempt_refs<'a>(attempt: &'a AttemptRecord, names: &mut NameLookup<'a>) -> AttemptRefs {
    AttemptRefs {
        channel: names.number(NameKind::Channel, Some(attempt.channel.uuid()), &attempt.channel_name),
        account: names.number(NameKind::Account, Some(attempt.account.uuid()), &attempt.account_name),
        upstream_model: names.number(NameKind::UpstreamModel, None, &attempt.upstream_model),
        error: attempt.error.as_deref().map(|error| names.number(NameKind::Code, None, error)),
    }
}

/// The start of an attempt after its request's arrival, in microseconds; `None` if the column cannot hold it.
pub(super) fn start_after(record: &UsageRecord, attempt: &AttemptRecord) -> Option<i32> {
    i32::try_from(attempt.at.0.checked_sub(record.at.0)?).ok()
}

/// Whether an attempt says nothing else than its record, besides what the columns of the row hold.
fn fits_inline(record: &UsageRecord, attempt: &AttemptRecord) -> bool {
    attempt.tokens == record.tokens
        && attempt.cost == record.cost
        && !attempt.hedged
        && attempt.status != Some(0)
        && start_after(record, attempt).is_some()
}

// === From rows to records ===

/// Texts by their number: id and name.
pub(super) type NamesByRef = HashMap<i64, (String, String)>;

/// A decoded row, with numbers where the record has texts.
#[derive(Debug)]
pub(super) struct UsageRow {
    pub(super) id: RequestId,
    /// Number of attempts, and the position of the one in this row.
    pub(super) attempts: usize,
    pub(super) inline: Option<usize>,
    key: i64,
    member: i64,
    group: Option<i64>,
    model: Option<i64>,
    channel: Option<i64>,
    account: Option<i64>,
    upstream_model: Option<i64>,
    reason: Option<i64>,
    trace: Option<i64>,
    attempt_error: Option<i64>,
    extra: ExtraValues,
    record: UsageRecord,
    attempt: Option<AttemptRecord>,
}

/// A decoded row of an attempt.
#[derive(Debug)]
pub(super) struct AttemptRow {
    pub(super) request: RequestId,
    pub(super) position: usize,
    refs: AttemptRefs,
    attempt: AttemptRecord,
}

fn broken(detail: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> sqlx::Error {
    sqlx::Error::Decode(detail.into())
}

struct ColumnReader<'a> {
    /// None if only the numbers are read.
    row: Option<&'a AnyRow>,
    next: usize,
    /// The numbers, if they are one text.
    numbers: Option<std::str::Split<'a, char>>,
}

impl ColumnReader<'_> {
    fn take<'r, T: sqlx::Decode<'r, Any> + sqlx::Type<Any>>(&'r mut self) -> Result<T, sqlx::Error> {
        self.next += 1;
        self.row.ok_or_else(|| broken("only numbers were read"))?.try_get(self.next - 1)
    }

    fn text(&mut self) -> Result<Option<String>, sqlx::Error> {
        if self.row.is_some() { self.take() } else { Ok(None) }
    }

    fn number(&mut self) -> Result<i64, sqlx::Error> {
        self.maybe()?.ok_or_else(|| broken("a number is missing"))
    }

    fn maybe(&mut self) -> Result<Option<i64>, sqlx::Error> {
        match self.numbers.as_mut().map(Iterator::next) {
            None => self.take(),
            Some(None) => Err(broken("the row has too few numbers")),
            Some(Some("")) => Ok(None),
            Some(Some(digits)) => digits.parse().map(Some).map_err(broken),
        }
    }

    fn count(&mut self) -> Result<u64, sqlx::Error> {
        u64::try_from(self.number()?).map_err(broken)
    }

    fn maybe_count(&mut self) -> Result<Option<u64>, sqlx::Error> {
        self.maybe()?.map(u64::try_from).transpose().map_err(broken)
    }

    fn request(&mut self) -> Result<RequestId, sqlx::Error> {
        request_id(self.take()?)
    }

    fn word<T: Coded>(&mut self) -> Result<T, sqlx::Error> {
        word(self.number()?)
    }

    fn maybe_word<T: Coded>(&mut self) -> Result<Option<T>, sqlx::Error> {
        self.maybe()?.map(word).transpose()
    }

    fn money(&mut self) -> Result<Option<NanoUsd>, sqlx::Error> {
        Ok(self.maybe()?.map(NanoUsd))
    }

    fn tokens(&mut self) -> Result<Tokens, sqlx::Error> {
        Ok(Tokens {
            input: self.count()?,
            output: self.count()?,
            cache_read: self.count()?,
            cache_write: self.count()?,
            cache_write_1h: self.count()?,
            thinking: self.count()?,
            image: self.count()?,
            audio: self.count()?,
            source: self.word()?,
        })
    }

    fn status(&mut self) -> Result<Option<u16>, sqlx::Error> {
        self.maybe()?.map(u16::try_from).transpose().map_err(broken)
    }
}

fn word<T: Coded>(code: i64) -> Result<T, sqlx::Error> {
    T::of_code(code).ok_or_else(|| broken(format!("the code {code} is not known")))
}

pub(super) fn request_id(bytes: &[u8]) -> Result<RequestId, sqlx::Error> {
    Uuid::from_slice(bytes).map(RequestId::from_uuid).map_err(broken)
}

/// An empty record, for values that follow.
fn blank_record(id: RequestId, at: Timestamp) -> UsageRecord {
    UsageRecord {
        id,
        at,
        key: KeyId::from_uuid(Uuid::nil()),
        key_name: String::new(),
        member: MemberId::from_uuid(Uuid::nil()),
        group: None,
        group_name: None,
        protocol_in: Protocol::OpenAi,
        protocol_out: None,
        method: Method::Chat,
        model: None,
        stream: false,
        status: 0,
        outcome: Outcome::Completed,
        reason: None,
        detail: None,
        tokens: Tokens::default(),
        cost: None,
        sale: None,
        price_version: Revision(0),
        ttft_us: None,
        duration_us: 0,
        address: None,
        client_request_id: None,
        dropped: Vec::new(),
        trace: Vec::new(),
        attempts: Vec::new(),
    }
}

/// An empty attempt of the record's protocol, for values that follow.
fn blank_attempt(record: &UsageRecord) -> AttemptRecord {
    AttemptRecord {
        channel: ChannelId::from_uuid(Uuid::nil()),
        channel_name: String::new(),
        account: AccountId::from_uuid(Uuid::nil()),
        account_name: String::new(),
        protocol: record.protocol_out.unwrap_or(record.protocol_in),
        upstream_model: String::new(),
        at: record.at,
        status: Some(record.status),
        result: AttemptResult::Answered,
        error: None,
        tokens: record.tokens,
        cost: record.cost,
        first_byte_us: None,
        duration_us: 0,
        upstream_request_id: None,
        hedged: false,
    }
}

/// The columns that [`usage_row`] decodes.
pub(super) fn usage_columns(dialect: Dialect) -> String {
    dialect.packed(super::columns::USAGE)
}

/// Decodes a row with the columns of [`usage_columns`].
pub(super) fn usage_row(row: &AnyRow) -> Result<UsageRow, sqlx::Error> {
    let numbers: &str = row.try_get(1)?;
    let mut columns = ColumnReader { row: Some(row), next: 0, numbers: Some(numbers.split(',')) };
    let id = columns.request()?;
    columns.next += 1;
    decode(id, &mut columns)
}

/// Decodes records without their texts, ordered by id. `rows`: [`Dialect::packed_rows`] of [`super::columns::USAGE`].
pub(super) fn usage_numbers(rows: &str) -> Result<Vec<UsageRow>, sqlx::Error> {
    let row = |row: &str| {
        let mut numbers = row.split(',');
        let mut id = [0; 16];
        hex::decode_to_slice(numbers.next().unwrap_or_default(), &mut id).map_err(broken)?;
        decode(request_id(&id)?, &mut ColumnReader { row: None, next: 0, numbers: Some(numbers) })
    };
    let mut rows = rows.split(';').map(row).collect::<Result<Vec<_>, _>>()?;
    rows.sort_unstable_by_key(|row| row.id);
    Ok(rows)
}

/// Decodes what follows the id.
fn decode(id: RequestId, c: &mut ColumnReader<'_>) -> Result<UsageRow, sqlx::Error> {
    let at = Timestamp(id.time().0 + c.number()?);
    let (key, member, group, model) = (c.number()?, c.number()?, c.maybe()?, c.maybe()?);
    let (channel, account, upstream_model) = (c.maybe()?, c.maybe()?, c.maybe()?);
    let mut record = blank_record(id, at);
    (record.protocol_in, record.protocol_out, record.method) = (c.word()?, c.maybe_word()?, c.word()?);
    (record.stream, record.status, record.outcome) = (c.number()? != 0, c.status()?.unwrap_or(0), c.word()?);
    let reason = c.maybe()?;
    record.tokens = c.tokens()?;
    (record.cost, record.sale, record.price_version) = (c.money()?, c.money()?, Revision(c.number()?));
    (record.ttft_us, record.duration_us) = (c.maybe_count()?, c.count()?);
    let _booked = c.number()?;
    (record.address, record.client_request_id) = (c.text()?, c.text()?);
    let attempts = usize::try_from(c.number()?).map_err(broken)?;
    let inline = c.maybe()?.map(usize::try_from).transpose().map_err(broken)?;
    let (start, protocol, status) = (c.maybe()?, c.maybe_word()?, c.maybe()?);
    let (result, attempt_error) = (c.maybe_word()?, c.maybe()?);
    let mut attempt = AttemptRecord { result: result.unwrap_or(AttemptResult::Answered), ..blank_attempt(&record) };
    attempt.at = Timestamp(at.0 + start.unwrap_or(0));
    attempt.protocol = protocol.unwrap_or(attempt.protocol);
    match status {
        None => {}
        Some(0) => attempt.status = None,
        Some(status) => attempt.status = Some(u16::try_from(status).map_err(broken)?),
    }
    attempt.first_byte_us = c.maybe_count()?;
    attempt.duration_us = c.maybe_count()?.unwrap_or(0);
    attempt.upstream_request_id = c.text()?;
    let trace = c.maybe()?;
    let extra = c.text()?;
    let extra = extra.map(|text| serde_json::from_str(&text)).transpose().map_err(broken)?.unwrap_or_default();
    let attempt = inline.map(|_| attempt);
    Ok(UsageRow {
        id,
        attempts,
        inline,
        key,
        member,
        group,
        model,
        channel,
        account,
        upstream_model,
        reason,
        trace,
        attempt_error,
        extra,
        record,
        attempt,
    })
}

/// Decodes a row with the columns of [`super::columns::ATTEMPTS`].
pub(super) fn attempt_row(row: &AnyRow) -> Result<AttemptRow, sqlx::Error> {
    let c = &mut ColumnReader { row: Some(row), next: 0, numbers: None };
    let request = c.request()?;
    let position = usize::try_from(c.number()?).map_err(broken)?;
    let (channel, account, upstream_model) = (c.number()?, c.number()?, c.number()?);
    let (protocol, at, status, result, error) = (c.word()?, Timestamp(c.number()?), c.status()?, c.word()?, c.maybe()?);
    let attempt = AttemptRecord {
        channel: ChannelId::from_uuid(Uuid::nil()),
        channel_name: String::new(),
        account: AccountId::from_uuid(Uuid::nil()),
        account_name: String::new(),
        protocol,
        upstream_model: String::new(),
        at,
        status,
        result,
        error: None,
        tokens: c.tokens()?,
        cost: c.money()?,
        first_byte_us: c.maybe_count()?,
        duration_us: c.count()?,
        upstream_request_id: c.take()?,
        hedged: c.number()? != 0,
    };
    let refs = AttemptRefs { channel, account, upstream_model, error };
    Ok(AttemptRow { request, position, refs, attempt })
}

fn text(names: &NamesByRef, number: i64) -> Result<&(String, String), sqlx::Error> {
    names.get(&number).ok_or_else(|| broken(format!("the dictionary has no text {number}")))
}

fn named<T>(names: &NamesByRef, number: i64, parse: impl Fn(&str) -> Option<T>) -> Result<(T, String), sqlx::Error> {
    let (id, name) = text(names, number)?;
    let id = parse(id).ok_or_else(|| broken(format!("text {number} of the dictionary has another kind")))?;
    Ok((id, name.clone()))
}

impl UsageRow {
    /// The numbers of its texts.
    pub(super) fn refs(&self) -> impl Iterator<Item = i64> {
        let optional =
            [self.group, self.model, self.channel, self.account, self.upstream_model, self.reason, self.trace, self.attempt_error];
        [self.key, self.member].into_iter().chain(optional.into_iter().flatten())
    }

    /// The record with the attempt of this row and the others of it, without texts, and the numbers of those.
    pub(super) fn into_numbers(self, mut others: Vec<AttemptRow>) -> Result<(UsageRecord, RecordRefs), sqlx::Error> {
        let mut record = self.record;
        record.model = self.extra.model;
        record.detail = self.extra.detail;
        record.dropped = self.extra.dropped;
        record.trace = self.extra.trace;
        if let (Some(position), Some(attempt)) = (self.inline, self.attempt) {
            let [Some(channel), Some(account), Some(upstream_model)] = [self.channel, self.account, self.upstream_model] else {
                return Err(broken("an attempt has no channel"));
            };
            let refs = AttemptRefs { channel, account, upstream_model, error: self.attempt_error };
            others.push(AttemptRow { request: self.id, position, refs, attempt });
        }
        others.sort_by_key(|other| other.position);
        let refs = RecordRefs {
            key: self.key,
            member: self.member,
            group: self.group,
            model: self.model,
            reason: self.reason,
            trace: self.trace,
            attempts: others.iter().map(|other| other.refs).collect(),
            subject: subject(others.iter().map(|other| other.attempt.result)),
            inline: self.inline,
        };
        record.attempts = others.into_iter().map(|other| other.attempt).collect();
        Ok((record, refs))
    }

    /// The whole record.
    pub(super) fn into_record(self, others: Vec<AttemptRow>, names: &NamesByRef) -> Result<UsageRecord, sqlx::Error> {
        let (mut record, refs) = self.into_numbers(others)?;
        (record.key, record.key_name) = named(names, refs.key, KeyId::parse)?;
        record.member = named(names, refs.member, MemberId::parse)?.0;
        if let Some(group) = refs.group {
            let (group, name) = named(names, group, GroupId::parse)?;
            (record.group, record.group_name) = (Some(group), Some(name));
        }
        let name = |number: Option<i64>| number.map(|number| text(names, number).map(|(_, name)| name.clone())).transpose();
        record.model = name(refs.model)?.or(record.model);
        record.reason = name(refs.reason)?;
        if let Some(trace) = name(refs.trace)? {
            record.trace = serde_json::from_str(&trace).map_err(broken)?;
        }
        for (attempt, refs) in record.attempts.iter_mut().zip(&refs.attempts) {
            (attempt.channel, attempt.channel_name) = named(names, refs.channel, ChannelId::parse)?;
            (attempt.account, attempt.account_name) = named(names, refs.account, AccountId::parse)?;
            attempt.upstream_model.clone_from(&text(names, refs.upstream_model)?.1);
            attempt.error = name(refs.error)?;
        }
        Ok(record)
    }
}

impl AttemptRow {
    pub(super) fn refs(&self) -> impl Iterator<Item = i64> {
        [self.refs.channel, self.refs.account, self.refs.upstream_model].into_iter().chain(self.refs.error)
    }
}
