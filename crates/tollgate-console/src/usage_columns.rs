//! The columns of exports in rows: CSV and Parquet have the same.

use std::borrow::Cow;

use tollgate_core::{AttemptRecord, NanoUsd, UsageRecord};
use tollgate_protocol::{FinishReason, Protocol};

/// A value of a record.
pub(crate) enum Cell<'a> {
    Null,
    Flag(bool),
    Number(i64),
    Text(Cow<'a, str>),
}

impl<'a> Cell<'a> {
    const fn text(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }

    fn maybe_text(text: Option<&'a str>) -> Self {
        text.map_or(Self::Null, Self::text)
    }

    fn shown(value: &impl ToString) -> Self {
        Self::Text(Cow::Owned(value.to_string()))
    }

    /// Saturates; such counts do not occur.
    fn count(count: u64) -> Self {
        Self::Number(i64::try_from(count).unwrap_or(i64::MAX))
    }

    fn maybe_count(count: Option<u64>) -> Self {
        count.map_or(Self::Null, Self::count)
    }

    fn money(amount: Option<NanoUsd>) -> Self {
        amount.map_or(Self::Null, |amount| Self::Number(amount.0))
    }
}

/// The type of a column, as the file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellType {
    Text,
    Count,
    Flag,
    /// Microseconds since 1970, UTC.
    Time,
    /// Nano-USD, written as decimal numbers with nine digits after the point.
    Usd,
}

pub(crate) struct ExportColumn {
    pub(crate) name: &'static str,
    pub(crate) kind: CellType,
    pub(crate) is_optional: bool,
    /// Left out of the exports of members.
    is_internal: bool,
    pub(crate) value: for<'a> fn(&'a UsageRecord) -> Cell<'a>,
}

/// The audience of an export, which determines its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportView {
    Operator,
    /// Lacks the columns that [`caller_view`](crate::usage_format::caller_view) removes, which would be empty or 0.
    Member,
}

impl ExportView {
    pub(crate) fn columns(self) -> impl Iterator<Item = &'static ExportColumn> {
        COLUMNS.iter().filter(move |column| self == Self::Operator || !column.is_internal)
    }
}

const fn required(name: &'static str, kind: CellType, value: for<'a> fn(&'a UsageRecord) -> Cell<'a>) -> ExportColumn {
    ExportColumn { name, kind, is_optional: false, is_internal: false, value }
}

const fn optional(name: &'static str, kind: CellType, value: for<'a> fn(&'a UsageRecord) -> Cell<'a>) -> ExportColumn {
    ExportColumn { name, kind, is_optional: true, is_internal: false, value }
}

impl ExportColumn {
    const fn internal(self) -> Self {
        Self { is_internal: true, ..self }
    }
}

/// The columns before the tags.
static COLUMNS: [ExportColumn; 40] = [
    required("id", CellType::Text, |record| Cell::shown(&record.id)),
    required("at", CellType::Time, |record| Cell::Number(record.at.0)),
    required("outcome", CellType::Text, |record| Cell::text(record.outcome.as_str())),
    optional("reason", CellType::Text, |record| Cell::maybe_text(record.reason.as_deref())),
    optional("detail", CellType::Text, |record| Cell::maybe_text(record.detail.as_deref())),
    required("status", CellType::Count, |record| Cell::Number(record.status.into())),
    required("key", CellType::Text, |record| Cell::shown(&record.key)),
    required("key_name", CellType::Text, |record| Cell::text(&record.key_name)),
    required("member", CellType::Text, |record| Cell::shown(&record.member)),
    optional("group", CellType::Text, |record| Cell::maybe_text(record.group_name.as_deref())),
    required("protocol_in", CellType::Text, |record| Cell::text(record.protocol_in.as_str())),
    optional("protocol_out", CellType::Text, |record| Cell::maybe_text(record.protocol_out.map(Protocol::as_str))).internal(),
    required("method", CellType::Text, |record| Cell::text(record.method.as_str())),
    optional("model", CellType::Text, |record| Cell::maybe_text(record.model.as_deref())),
    required("stream", CellType::Flag, |record| Cell::Flag(record.stream)),
    optional("finish", CellType::Text, |record| Cell::maybe_text(record.finish.map(FinishReason::as_str))),
    required("input", CellType::Count, |record| Cell::count(record.tokens.input)),
    required("output", CellType::Count, |record| Cell::count(record.tokens.output)),
    required("cache_read", CellType::Count, |record| Cell::count(record.tokens.cache_read)),
    required("cache_write", CellType::Count, |record| Cell::count(record.tokens.cache_write)),
    required("cache_write_1h", CellType::Count, |record| Cell::count(record.tokens.cache_write_1h)),
    required("thinking", CellType::Count, |record| Cell::count(record.tokens.thinking)),
    required("image", CellType::Count, |record| Cell::count(record.tokens.image)),
    required("audio", CellType::Count, |record| Cell::count(record.tokens.audio)),
    required("token_source", CellType::Text, |record| Cell::text(record.tokens.source.as_str())),
    required("web_searches", CellType::Count, |record| Cell::count(record.tokens.web_searches)),
    optional("sale", CellType::Usd, |record| Cell::money(record.sale)),
    optional("cost", CellType::Usd, |record| Cell::money(record.cost)).internal(),
    required("price_version", CellType::Count, |record| Cell::Number(record.price_version.0)),
    optional("ttft_us", CellType::Count, |record| Cell::maybe_count(record.ttft_us)),
    required("duration_us", CellType::Count, |record| Cell::count(record.duration_us)),
    optional("overhead_us", CellType::Count, |record| Cell::maybe_count(record.overhead_us())).internal(),
    required("attempts", CellType::Count, |record| Cell::count(record.attempts.len() as u64)).internal(),
    optional("channel", CellType::Text, |record| Cell::maybe_text(subject(record).map(|it| it.channel_name.as_str()))).internal(),
    optional("account", CellType::Text, |record| Cell::maybe_text(subject(record).map(|it| it.account_name.as_str()))).internal(),
    optional("upstream_model", CellType::Text, |record| Cell::maybe_text(subject(record).map(|it| it.upstream_model.as_str())))
        .internal(),
    optional("address", CellType::Text, |record| Cell::maybe_text(record.address.as_deref())),
    optional("client_request_id", CellType::Text, |record| Cell::maybe_text(record.client_request_id.as_deref())),
    optional("client", CellType::Text, |record| Cell::maybe_text(record.client.as_deref())),
    required("request_bytes", CellType::Count, |record| Cell::count(record.request_bytes)),
];

/// The attempt on the record's channel.
fn subject(record: &UsageRecord) -> Option<&AttemptRecord> {
    record.subject().map(|at| &record.attempts[at])
}
