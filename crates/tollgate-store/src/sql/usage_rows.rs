//! Decodes rows into usage records and attempts.

use serde::de::DeserializeOwned;
use sqlx::{Any, Row as _, any::AnyRow};
use tollgate_core::{
    AccountId, AttemptRecord, ChannelId, GroupId, KeyId, MemberId, NanoUsd, RequestId, Revision, Timestamp, Tokens, UsageRecord,
};

/// Columns of usage records, in the order of [`record`].
pub(super) const USAGE_COLUMNS: &str = "id, at, key_id, key_name, member_id, group_id, group_name, protocol_in, protocol_out, \
     method, model, stream, status, outcome, reason, detail, tokens_input, tokens_output, tokens_cache_read, tokens_cache_write, \
     tokens_cache_write_1h, tokens_thinking, tokens_image, tokens_audio, tokens_source, cost, sale, price_version, ttft_us, duration_us, address, \
     client_request_id, dropped, trace";

/// Columns of attempts, in the order of [`attempt`].
pub(super) const ATTEMPT_COLUMNS: &str = "request_id, position, channel_id, channel_name, account_id, account_name, protocol, upstream_model, at, status, \
     result, error, tokens_input, tokens_output, tokens_cache_read, tokens_cache_write, tokens_cache_write_1h, \
     tokens_thinking, tokens_image, \
     tokens_audio, tokens_source, cost, first_byte_us, duration_us, upstream_request_id, beside";

/// Parses the serialised name of an enum value.
pub(super) fn parse_word<T: DeserializeOwned>(word: String) -> Result<T, sqlx::Error> {
    serde_json::from_value(serde_json::Value::String(word)).map_err(|error| sqlx::Error::Decode(error.into()))
}

fn json<T: DeserializeOwned>(text: &str) -> Result<T, sqlx::Error> {
    serde_json::from_str(text).map_err(|error| sqlx::Error::Decode(error.into()))
}

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
            cache_write_1h: self.count()?,
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
        hedged: c.take::<i64>()? != 0,
    };
    Ok((id, attempt))
}
