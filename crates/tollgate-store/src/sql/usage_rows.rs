//! Usage records and attempts as rows.

use serde::{Serialize, de::DeserializeOwned};
use sqlx::{Any, Row as _, any::AnyRow};
use tollgate_core::{AttemptRecord, NanoUsd, RequestId, Revision, Timestamp, Tokens, UsageRecord};
use tollgate_protocol::Protocol;

/// Columns of usage records, in the order of [`bind_record`] and [`record`].
macro_rules! usage_columns {
    () => {
        "id, at, key_id, key_name, member_id, group_id, group_name, protocol_in, protocol_out, method, model, stream, status, \
         outcome, reason, detail, tokens_input, tokens_output, tokens_cache_read, tokens_cache_write, tokens_thinking, tokens_image, \
         tokens_audio, tokens_source, cost, sale, price_version, ttft_us, duration_us, address, client_request_id, dropped, trace"
    };
}
pub(super) const USAGE_COLUMNS: &str = usage_columns!();
pub(super) const USAGE_HEAD: &str = concat!("INSERT INTO usage (", usage_columns!(), ") VALUES");
pub(super) const USAGE_WIDTH: usize = 33;

/// Before the values of attempts; the columns are in the order of [`bind_attempt`] and [`attempt`].
pub(super) const ATTEMPT_HEAD: &str = "INSERT INTO attempts (request_id, position, channel_id, channel_name, account_id, \
     account_name, protocol, upstream_model, at, status, result, error, tokens_input, tokens_output, tokens_cache_read, \
     tokens_cache_write, tokens_thinking, tokens_image, tokens_audio, tokens_source, cost, first_byte_us, duration_us, \
     upstream_request_id, beside) VALUES";
pub(super) const ATTEMPT_WIDTH: usize = 25;

type Query<'q> = sqlx::query::Query<'q, Any, sqlx::any::AnyArguments>;

/// A word of an enum, as it is serialised everywhere else.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        other => unreachable!("enums without fields are words, not {other:?}"),
    }
}

pub(super) fn parse_word<T: DeserializeOwned>(word: String) -> Result<T, sqlx::Error> {
    serde_json::from_value(serde_json::Value::String(word)).map_err(|error| sqlx::Error::Decode(error.into()))
}

fn json<T: DeserializeOwned>(text: &str) -> Result<T, sqlx::Error> {
    serde_json::from_str(text).map_err(|error| sqlx::Error::Decode(error.into()))
}

fn json_text<T: Serialize>(value: &[T]) -> String {
    if value.is_empty() {
        return "[]".to_owned();
    }
    serde_json::to_string(value).expect("lists of words and entries are JSON")
}

/// Counts beyond what a database can hold do not occur; they would be cut, not wrapped.
fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// PostgreSQL refuses NUL in text.
fn text(value: &str) -> String {
    if value.as_bytes().contains(&0) { value.replace('\0', "\u{fffd}") } else { value.to_owned() }
}

fn optional(value: Option<&String>) -> Option<String> {
    value.map(|value| text(value))
}

fn bind_tokens<'q>(query: Query<'q>, tokens: &Tokens) -> Query<'q> {
    query
        .bind(count(tokens.input))
        .bind(count(tokens.output))
        .bind(count(tokens.cache_read))
        .bind(count(tokens.cache_write))
        .bind(count(tokens.thinking))
        .bind(count(tokens.image))
        .bind(count(tokens.audio))
        .bind(tokens.source.as_str())
}

pub(super) fn bind_record<'q>(query: Query<'q>, record: &UsageRecord) -> Query<'q> {
    let query = query
        .bind(record.id.to_string())
        .bind(record.at.0)
        .bind(record.key.to_string())
        .bind(text(&record.key_name))
        .bind(record.member.to_string())
        .bind(record.group.map(|id| id.to_string()))
        .bind(optional(record.group_name.as_ref()))
        .bind(record.protocol_in.as_str())
        .bind(record.protocol_out.map(Protocol::as_str))
        .bind(word(&record.method))
        .bind(optional(record.model.as_ref()))
        .bind(i64::from(record.stream))
        .bind(i64::from(record.status))
        .bind(record.outcome.as_str())
        .bind(optional(record.reason.as_ref()))
        .bind(optional(record.detail.as_ref()));
    bind_tokens(query, &record.tokens)
        .bind(record.cost.map(|cost| cost.0))
        .bind(record.sale.map(|sale| sale.0))
        .bind(record.price_version.0)
        .bind(record.ttft_us.map(count))
        .bind(count(record.duration_us))
        .bind(optional(record.address.as_ref()))
        .bind(optional(record.client_request_id.as_ref()))
        .bind(json_text(&record.dropped))
        .bind(json_text(&record.trace))
}

pub(super) fn bind_attempt<'q>(query: Query<'q>, id: RequestId, position: i64, attempt: &AttemptRecord) -> Query<'q> {
    let query = query
        .bind(id.to_string())
        .bind(position)
        .bind(attempt.channel.to_string())
        .bind(text(&attempt.channel_name))
        .bind(attempt.account.to_string())
        .bind(text(&attempt.account_name))
        .bind(attempt.protocol.as_str())
        .bind(text(&attempt.upstream_model))
        .bind(attempt.at.0)
        .bind(attempt.status.map(i64::from))
        .bind(attempt.result.as_str())
        .bind(optional(attempt.error.as_ref()));
    bind_tokens(query, &attempt.tokens)
        .bind(attempt.cost.map(|cost| cost.0))
        .bind(attempt.first_byte_us.map(count))
        .bind(count(attempt.duration_us))
        .bind(optional(attempt.upstream_request_id.as_ref()))
        .bind(i64::from(attempt.beside))
}

/// Reads columns one after the other.
struct Columns<'a> {
    row: &'a AnyRow,
    next: usize,
}

impl Columns<'_> {
    fn take<'r, T: sqlx::Decode<'r, Any> + sqlx::Type<Any>>(&'r mut self) -> Result<T, sqlx::Error> {
        self.next += 1;
        self.row.try_get(self.next - 1)
    }

    fn count(&mut self) -> Result<u64, sqlx::Error> {
        let value: i64 = self.take()?;
        u64::try_from(value).map_err(|error| sqlx::Error::Decode(error.into()))
    }

    fn maybe_count(&mut self) -> Result<Option<u64>, sqlx::Error> {
        let value: Option<i64> = self.take()?;
        value.map(u64::try_from).transpose().map_err(|error| sqlx::Error::Decode(error.into()))
    }

    fn text(&mut self) -> Result<String, sqlx::Error> {
        self.take()
    }

    fn word<T: DeserializeOwned>(&mut self) -> Result<T, sqlx::Error> {
        parse_word(self.text()?)
    }

    fn id<T>(&mut self, parse: impl Fn(&str) -> Option<T>) -> Result<T, sqlx::Error> {
        let text = self.text()?;
        parse(&text).ok_or_else(|| sqlx::Error::Decode(format!("'{text}' is not an id").into()))
    }

    fn money(&mut self) -> Result<Option<NanoUsd>, sqlx::Error> {
        Ok(self.take::<Option<i64>>()?.map(NanoUsd))
    }

    fn tokens(&mut self) -> Result<Tokens, sqlx::Error> {
        Ok(Tokens {
            input: self.count()?,
            output: self.count()?,
            cache_read: self.count()?,
            cache_write: self.count()?,
            thinking: self.count()?,
            image: self.count()?,
            audio: self.count()?,
            source: self.word()?,
        })
    }

    fn status(&mut self) -> Result<Option<u16>, sqlx::Error> {
        let status: Option<i64> = self.take()?;
        status.map(u16::try_from).transpose().map_err(|error| sqlx::Error::Decode(error.into()))
    }
}

use tollgate_core::{AccountId, ChannelId, GroupId, KeyId, MemberId};

/// A record without its attempts.
pub(super) fn record(row: &AnyRow) -> Result<UsageRecord, sqlx::Error> {
    let mut columns = Columns { row, next: 0 };
    let c = &mut columns;
    Ok(UsageRecord {
        id: c.id(RequestId::parse)?,
        at: Timestamp(c.take()?),
        key: c.id(KeyId::parse)?,
        key_name: c.text()?,
        member: c.id(MemberId::parse)?,
        group: c.take::<Option<String>>()?.as_deref().and_then(GroupId::parse),
        group_name: c.take()?,
        protocol_in: c.word()?,
        protocol_out: c.take::<Option<String>>()?.map(parse_word).transpose()?,
        method: c.word()?,
        model: c.take()?,
        stream: c.take::<i64>()? != 0,
        status: c.status()?.unwrap_or(0),
        outcome: c.word()?,
        reason: c.take()?,
        detail: c.take()?,
        tokens: c.tokens()?,
        cost: c.money()?,
        sale: c.money()?,
        price_version: Revision(c.take()?),
        ttft_us: c.maybe_count()?,
        duration_us: c.count()?,
        address: c.take()?,
        client_request_id: c.take()?,
        dropped: json(&c.text()?)?,
        trace: json(&c.text()?)?,
        attempts: Vec::new(),
    })
}

/// An attempt and the request it belongs to.
pub(super) fn attempt(row: &AnyRow) -> Result<(RequestId, AttemptRecord), sqlx::Error> {
    let mut columns = Columns { row, next: 0 };
    let c = &mut columns;
    let id = c.id(RequestId::parse)?;
    let _position: i64 = c.take()?;
    let attempt = AttemptRecord {
        channel: c.id(ChannelId::parse)?,
        channel_name: c.text()?,
        account: c.id(AccountId::parse)?,
        account_name: c.text()?,
        protocol: c.word()?,
        upstream_model: c.text()?,
        at: Timestamp(c.take()?),
        status: c.status()?,
        result: c.word()?,
        error: c.take()?,
        tokens: c.tokens()?,
        cost: c.money()?,
        first_byte_us: c.maybe_count()?,
        duration_us: c.count()?,
        upstream_request_id: c.take()?,
        beside: c.take::<i64>()? != 0,
    };
    Ok((id, attempt))
}
