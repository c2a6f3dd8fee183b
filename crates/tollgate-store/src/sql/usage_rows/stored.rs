//! Rows of the usage log as they are read, and their conversion to records: numbers become texts of the dictionary, and attempts in
//! separate rows are joined with the one in the row of the request.

use std::collections::HashMap;

use tollgate_core::{
    AccountId, AttemptRecord, ChannelId, GroupId, KeyId, MemberId, Multiplier, Outcome, RequestId, Revision, ShortText, Tags,
    Timestamp, Tokens, TraceEntry, UsageRecord,
};
use tollgate_protocol::{Method, Protocol};
use uuid::Uuid;

use super::{
    AttemptRefs, ExtraValues, RecordRefs,
    packed::{PackedAttempt, PackedNumbers, PackedStatus},
};
use crate::sql::{
    cells::{Cells, FromCells, broken},
    columns::{Column, ColumnKind, USAGE, column_list},
    names::{self, NameKind},
    tags::{self, StoredTag, TagRef},
};

/// The columns of a [`UsageRow`].
pub(in crate::sql) fn usage_columns() -> String {
    column_list(USAGE)
}

/// The columns of [`usage_columns`] with NULL for texts that are not counted. Only tags keep theirs.
pub(in crate::sql) fn usage_numbers() -> String {
    let is_read = |column: &Column| column.kind != ColumnKind::Text || column.name == "tags";
    let column = |column: &Column| if is_read(column) { column.name } else { "NULL" };
    USAGE.iter().map(column).collect::<Vec<_>>().join(", ")
}

/// A decoded row, with numbers where the record has texts.
#[derive(Debug)]
pub(in crate::sql) struct UsageRow {
    pub(in crate::sql) id: RequestId,
    /// Number of attempts, and the position of the one in this row.
    pub(in crate::sql) attempts: usize,
    pub(in crate::sql) inline: Option<usize>,
    /// The ledger's last position after the batch that wrote the row.
    pub(in crate::sql) booked: i64,
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
    tags: Vec<StoredTag>,
    record: UsageRecord,
    attempt: Option<AttemptRecord>,
}

/// A decoded row of an attempt.
#[derive(Debug)]
pub(in crate::sql) struct AttemptRow {
    pub(in crate::sql) request: RequestId,
    pub(in crate::sql) position: usize,
    refs: AttemptRefs,
    attempt: AttemptRecord,
}

/// An empty record, for values that follow.
fn blank_record(id: RequestId, at: Timestamp) -> UsageRecord {
    UsageRecord {
        id,
        at,
        key: KeyId::from_uuid(Uuid::nil()),
        key_name: ShortText::default(),
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
        tags: Tags::default(),
        attempts: Vec::new(),
        sale_multiplier: Multiplier::ONE,
        finish: None,
        client: None,
        request_bytes: 0,
    }
}

/// The attempt in the row of its record, without its texts.
fn inline_attempt(record: &UsageRecord, packed: &PackedAttempt) -> AttemptRecord {
    AttemptRecord {
        channel: ChannelId::from_uuid(Uuid::nil()),
        channel_name: ShortText::default(),
        account: AccountId::from_uuid(Uuid::nil()),
        account_name: ShortText::default(),
        protocol: packed.protocol.or(record.protocol_out).unwrap_or(record.protocol_in),
        upstream_model: ShortText::default(),
        at: Timestamp(record.at.0.wrapping_add(packed.start_us)),
        status: match packed.status {
            PackedStatus::OfRecord => Some(record.status),
            PackedStatus::None => None,
            PackedStatus::Other(status) => Some(status),
        },
        result: packed.result,
        error: None,
        tokens: record.tokens,
        cost: record.cost,
        first_byte_us: packed.first_byte_us,
        duration_us: packed.duration_us,
        upstream_request_id: None,
        hedged: false,
        cost_multiplier: packed.cost_multiplier,
        message: None,
        sent_us: packed.sent_us,
    }
}

impl FromCells for UsageRow {
    fn from_cells(c: &mut impl Cells) -> Result<Self, sqlx::Error> {
        let id = c.request()?;
        let at = Timestamp(id.time().0 + c.number()?);
        let (key, member, group, model) = (c.number()?, c.number()?, c.maybe()?, c.maybe()?);
        let (channel, account) = (c.maybe()?, c.maybe()?);
        let mut record = blank_record(id, at);
        (record.protocol_in, record.method) = (c.word()?, c.word()?);
        (record.stream, record.finish) = (c.number()? != 0, c.maybe_word()?);
        (record.status, record.outcome) = (c.status()?.unwrap_or(0), c.word()?);
        let reason = c.maybe()?;
        record.tokens = c.tokens()?;
        (record.cost, record.sale) = (c.money()?, c.money()?);
        (record.ttft_us, record.duration_us) = (c.maybe_count()?, c.count()?);
        let booked = c.number()?;
        record.address = c.maybe_text()?.map(Into::into);
        record.client_request_id = c.maybe_text()?.map(Into::into);
        record.client = c.maybe_text()?.map(Into::into);
        let attempts = c.size()?;
        let upstream_request_id = c.maybe_text()?.map(ShortText::from);
        let packed = PackedNumbers::decode(c.bytes()?).map_err(broken)?;
        (record.protocol_out, record.price_version) = (packed.protocol_out, packed.price_version);
        (record.tokens.source, record.tokens.web_searches) = (packed.token_source, packed.web_searches);
        (record.sale_multiplier, record.request_bytes) = (packed.sale_multiplier, packed.request_bytes);
        let mut attempt = packed.attempt.map(|attempt| inline_attempt(&record, &attempt));
        if let Some(extra) = c.maybe_text()? {
            let extra: ExtraValues = serde_json::from_str(extra).map_err(broken)?;
            (record.model, record.detail, record.dropped, record.trace) = (extra.model, extra.detail, extra.dropped, extra.trace);
            if let Some(attempt) = &mut attempt {
                attempt.message = extra.message;
            }
        }
        if let Some(attempt) = &mut attempt {
            attempt.upstream_request_id = upstream_request_id;
        }
        let tags = c.maybe_text()?.map(tags::parse).transpose()?.unwrap_or_default();
        let position = packed.attempt.map(|attempt| usize::try_from(attempt.position));
        Ok(Self {
            id,
            attempts,
            inline: position.transpose().map_err(broken)?,
            booked,
            key,
            member,
            group,
            model,
            channel,
            account,
            upstream_model: packed.upstream_model,
            reason,
            trace: packed.trace,
            attempt_error: packed.attempt.and_then(|attempt| attempt.error),
            tags,
            record,
            attempt,
        })
    }
}

impl FromCells for AttemptRow {
    fn from_cells(c: &mut impl Cells) -> Result<Self, sqlx::Error> {
        let request = c.request()?;
        let position = c.size()?;
        let (channel, account, upstream_model) = (c.number()?, c.number()?, c.number()?);
        let (protocol, at, status, result, error) = (c.word()?, Timestamp(c.number()?), c.status()?, c.word()?, c.maybe()?);
        let tokens = c.tokens()?;
        let attempt = AttemptRecord {
            channel: ChannelId::from_uuid(Uuid::nil()),
            channel_name: ShortText::default(),
            account: AccountId::from_uuid(Uuid::nil()),
            account_name: ShortText::default(),
            protocol,
            upstream_model: ShortText::default(),
            at,
            status,
            result,
            error: None,
            tokens: Tokens { source: c.word()?, web_searches: c.count()?, ..tokens },
            cost: c.money()?,
            first_byte_us: c.maybe_count()?,
            duration_us: c.count()?,
            upstream_request_id: c.maybe_text()?.map(Into::into),
            hedged: c.number()? != 0,
            cost_multiplier: c.maybe()?.map_or(Multiplier::ONE, Multiplier),
            message: c.maybe_text()?.map(str::to_owned),
            sent_us: c.maybe_count()?,
        };
        let refs = AttemptRefs { channel, account, upstream_model, error };
        Ok(Self { request, position, refs, attempt })
    }
}

/// Texts of the dictionary by their numbers.
#[derive(Debug, Default)]
pub(in crate::sql) struct TextsByRef(HashMap<i64, StoredText, foldhash::fast::RandomState>);

/// A row of the dictionary.
#[derive(Debug)]
pub(in crate::sql) struct StoredText {
    number: i64,
    kind: i64,
    /// The id of the row that a name belongs to, if its kind has one.
    id: Option<Uuid>,
    text: String,
    /// The parsed text, if it is a routing trace.
    trace: Vec<TraceEntry>,
}

impl StoredText {
    /// The columns of the dictionary that are read.
    pub(in crate::sql) const COLUMNS: &str = "ref, kind, id, name";
}

impl FromCells for StoredText {
    fn from_cells(c: &mut impl Cells) -> Result<Self, sqlx::Error> {
        let (number, kind) = (c.number()?, c.number()?);
        let id = names::parse_id(kind, c.text()?);
        let text = c.text()?.to_owned();
        let is_trace = kind == NameKind::Trace.code();
        let trace = if is_trace { serde_json::from_str(&text).map_err(broken)? } else { Vec::new() };
        Ok(Self { number, kind, id, text, trace })
    }
}

impl TextsByRef {
    pub(in crate::sql) fn of(texts: Vec<StoredText>) -> Self {
        Self(texts.into_iter().map(|text| (text.number, text)).collect())
    }

    fn get(&self, number: i64) -> Result<&StoredText, sqlx::Error> {
        self.0.get(&number).ok_or_else(|| broken(format!("the dictionary has no text {number}")))
    }

    fn text(&self, number: i64) -> Result<&str, sqlx::Error> {
        self.get(number).map(|found| found.text.as_str())
    }

    fn maybe_text(&self, number: Option<i64>) -> Result<Option<&str>, sqlx::Error> {
        number.map(|number| self.text(number)).transpose()
    }

    /// Name and value of a tag.
    fn tag(&self, StoredTag { counted, name, value }: StoredTag) -> Result<(String, String), sqlx::Error> {
        let missing = || broken("a tag has no text");
        Ok(match counted {
            TagRef::Own { tag, value } => (self.text(tag)?.to_owned(), self.text(value)?.to_owned()),
            TagRef::Other { tag } => (self.text(tag)?.to_owned(), value.ok_or_else(missing)?),
            TagRef::Unsummed => (name.ok_or_else(missing)?, value.ok_or_else(missing)?),
        })
    }

    /// The id and the name of a row of this kind.
    fn named<T>(&self, kind: NameKind, number: i64, id: fn(Uuid) -> T) -> Result<(T, ShortText), sqlx::Error> {
        let found = self.get(number)?;
        let uuid = found.id.filter(|_| found.kind == kind.code());
        let uuid = uuid.ok_or_else(|| broken(format!("text {number} of the dictionary has another kind")))?;
        Ok((id(uuid), (&found.text).into()))
    }
}

impl UsageRow {
    pub(in crate::sql) const fn at(&self) -> Timestamp {
        self.record.at
    }

    /// The numbers of its texts.
    pub(in crate::sql) fn refs(&self) -> impl Iterator<Item = i64> {
        let optional =
            [self.group, self.model, self.channel, self.account, self.upstream_model, self.reason, self.trace, self.attempt_error];
        let tags = self.tags.iter().flat_map(|tag| match tag.counted {
            TagRef::Own { tag, value } => [Some(tag), Some(value)],
            TagRef::Other { tag } => [Some(tag), None],
            TagRef::Unsummed => [None, None],
        });
        [self.key, self.member].into_iter().chain(optional.into_iter().chain(tags).flatten())
    }

    /// The record with the attempt of this row and the others of it, without texts, and the numbers of those.
    pub(in crate::sql) fn into_numbers(self, mut others: Vec<AttemptRow>) -> Result<(UsageRecord, RecordRefs), sqlx::Error> {
        let mut record = self.record;
        if let (Some(position), Some(attempt)) = (self.inline, self.attempt) {
            let [Some(channel), Some(account), Some(upstream_model)] = [self.channel, self.account, self.upstream_model] else {
                return Err(broken("an attempt has no channel"));
            };
            let refs = AttemptRefs { channel, account, upstream_model, error: self.attempt_error };
            others.push(AttemptRow { request: self.id, position, refs, attempt });
        }
        others.sort_by_key(|other| other.position);
        let attempts = others.iter().map(|other| other.refs).collect();
        record.attempts = others.into_iter().map(|other| other.attempt).collect();
        let refs = RecordRefs {
            key: self.key,
            member: self.member,
            group: self.group,
            model: self.model,
            reason: self.reason,
            trace: self.trace,
            attempts,
            subject: record.subject(),
            inline: self.inline,
            tags: self.tags.iter().map(|tag| tag.counted).collect(),
        };
        Ok((record, refs))
    }

    /// The whole record.
    pub(in crate::sql) fn into_record(mut self, others: Vec<AttemptRow>, texts: &TextsByRef) -> Result<UsageRecord, sqlx::Error> {
        let tags = std::mem::take(&mut self.tags);
        let (mut record, refs) = self.into_numbers(others)?;
        if !tags.is_empty() {
            record.tags.add_metadata(&tags.into_iter().map(|tag| texts.tag(tag)).collect::<Result<Vec<_>, _>>()?);
        }
        (record.key, record.key_name) = texts.named(NameKind::Key, refs.key, KeyId::from_uuid)?;
        record.member = texts.named(NameKind::Member, refs.member, MemberId::from_uuid)?.0;
        if let Some(group) = refs.group {
            let (group, name) = texts.named(NameKind::Group, group, GroupId::from_uuid)?;
            (record.group, record.group_name) = (Some(group), Some(name));
        }
        record.model = texts.maybe_text(refs.model)?.map(Into::into).or(record.model);
        record.reason = texts.maybe_text(refs.reason)?.map(Into::into);
        if let Some(trace) = refs.trace {
            record.trace.clone_from(&texts.get(trace)?.trace);
        }
        for (attempt, refs) in record.attempts.iter_mut().zip(&refs.attempts) {
            (attempt.channel, attempt.channel_name) = texts.named(NameKind::Channel, refs.channel, ChannelId::from_uuid)?;
            (attempt.account, attempt.account_name) = texts.named(NameKind::Account, refs.account, AccountId::from_uuid)?;
            attempt.upstream_model = texts.text(refs.upstream_model)?.into();
            attempt.error = texts.maybe_text(refs.error)?.map(Into::into);
        }
        Ok(record)
    }
}

impl AttemptRow {
    pub(in crate::sql) fn refs(&self) -> impl Iterator<Item = i64> {
        [self.refs.channel, self.refs.account, self.refs.upstream_model].into_iter().chain(self.refs.error)
    }
}
