//! Numbered sample records and journal entries for tests.

use std::borrow::Cow;

use tollgate_core::{
    AccountId, AttemptRecord, AttemptResult, AttemptStart, ChannelId, DeliveredContent, GroupId, InputCount, KeyId, MemberId,
    Multiplier, NanoUsd, Outcome, Price, RequestId, Revision, StartedAttempt, StreamBreak, StreamProgress, Tags, Timestamp,
    TokenSource, Tokens, TraceEntry, UsageRecord,
};
use tollgate_protocol::{FinishReason, Method, Protocol};

/// 2026-11-21T00:00:00Z.
pub(crate) const MIDNIGHT: Timestamp = Timestamp(1_795_219_200_000_000);

fn ten(n: u64) -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes[2..].copy_from_slice(&n.to_be_bytes());
    bytes
}

pub(crate) fn at(n: u64) -> Timestamp {
    MIDNIGHT.plus_ms(i64::try_from(n).unwrap())
}

pub(crate) fn request_id(n: u64) -> RequestId {
    RequestId::from_parts(at(n), ten(n))
}

pub(crate) fn record(n: u64) -> UsageRecord {
    UsageRecord {
        id: request_id(n),
        at: at(n),
        key: KeyId::from_parts(MIDNIGHT, ten(n % 3)),
        key_name: format!("key {}", n % 3).into(),
        member: MemberId::from_parts(MIDNIGHT, ten(n % 2)),
        group: Some(GroupId::from_parts(MIDNIGHT, ten(0))),
        group_name: Some("default".into()),
        protocol_in: Protocol::OpenAi,
        protocol_out: Some(Protocol::Gemini),
        method: Method::Chat,
        model: Some(format!("model-{}", n % 4).into()),
        stream: n.is_multiple_of(2),
        status: 200,
        outcome: if n % 5 == 4 { Outcome::UpstreamBroke } else { Outcome::Completed },
        reason: None,
        detail: Some("a detail with 'quotes' and \u{fc}".to_owned()),
        tokens: Tokens { input: 10 + n, output: 20, cache_read: 3, source: TokenSource::Provider, ..Tokens::default() },
        cost: Some(NanoUsd(1_000 + i64::try_from(n).unwrap())),
        sale: (!n.is_multiple_of(7)).then_some(NanoUsd(2_000)),
        price_version: Revision(3),
        ttft_us: Some(120),
        duration_us: 5_000 + n,
        address: Some("127.0.0.1".into()),
        client_request_id: None,
        dropped: vec!["logit_bias".to_owned(), "max_tokens=100".to_owned()],
        trace: vec![TraceEntry { channel: "main".into(), account: None, code: "planned".into(), detail: None }],
        attempts: vec![attempt(n, 0), attempt(n, 1)],
        tags: tags(n),
        sale_multiplier: if n.is_multiple_of(3) { Multiplier(1_250_000) } else { Multiplier::ONE },
        finish: FinishReason::ALL.get(usize::try_from(n % 7).unwrap()).copied(),
        client: n.is_multiple_of(3).then(|| format!("client/{}", n % 4).into()),
        request_bytes: n * 3,
    }
}

/// No tags, a tag with few values, or also a tag with a new value each time.
fn tags(n: u64) -> Tags {
    let mut tags = Tags::default();
    let entries = [("project".to_owned(), format!("p{}", n % 5)), ("user".to_owned(), format!("user {n} \u{fc}"))];
    tags.add_metadata(&entries[..usize::try_from(n % 3).unwrap()]);
    tags
}

/// The record with another time of arrival and the id for that time.
pub(crate) fn arrived(record: UsageRecord, at: Timestamp) -> UsageRecord {
    let mut random = [0; 10];
    random.copy_from_slice(&record.id.uuid().as_bytes()[6..]);
    UsageRecord { id: RequestId::from_parts(at, random), at, ..record }
}

/// A record with one attempt that has the same facts as the record, as in most records.
pub(crate) fn plain_record(n: u64) -> UsageRecord {
    let record = UsageRecord { detail: None, dropped: Vec::new(), cost: Some(NanoUsd(7)), ..record(n) };
    let answered = AttemptRecord { tokens: record.tokens, at: Timestamp(record.at.0 + 90), ..attempt(n, 1) };
    UsageRecord { attempts: vec![answered], ..record }
}

fn attempt(n: u64, position: u64) -> AttemptRecord {
    AttemptRecord {
        channel: ChannelId::from_parts(MIDNIGHT, ten(1)),
        channel_name: "main".into(),
        account: AccountId::from_parts(MIDNIGHT, ten(position)),
        account_name: format!("account {position}").into(),
        protocol: Protocol::Gemini,
        upstream_model: "upstream-model".into(),
        at: at(n),
        status: (position == 1).then_some(200),
        result: if position == 1 { AttemptResult::Answered } else { AttemptResult::NotSent },
        error: (position == 0).then(|| "E50".to_owned()),
        tokens: Tokens { input: n, ..Tokens::default() },
        cost: Some(NanoUsd(7)),
        first_byte_us: None,
        duration_us: 40,
        upstream_request_id: Some("up-1".into()),
        hedged: false,
        message: (position == 0 && n.is_multiple_of(2)).then(|| format!("the upstream's 'words' {n}")),
        cost_multiplier: if n.is_multiple_of(2) { Multiplier(900_000) } else { Multiplier::ONE },
        sent_us: (!n.is_multiple_of(3)).then_some(n),
    }
}

pub(crate) fn begin(n: u64) -> AttemptStart<'static> {
    let record = record(n);
    AttemptStart {
        id: record.id,
        at: record.at,
        key: record.key,
        key_name: String::from(record.key_name).into(),
        member: record.member,
        group: GroupId::from_parts(MIDNIGHT, ten(0)),
        group_name: "default".into(),
        protocol_in: Protocol::OpenAi,
        method: Method::Chat,
        model: "model-1".into(),
        stream: true,
        address: None,
        client_request_id: None,
        dropped: Cow::default(),
        price_version: Revision(3),
        sale: Some(Cow::Owned(Price { input: Some(1_000_000_000), output: Some(2_000_000_000), ..Price::default() })),
        sale_multiplier: Multiplier::ONE,
        policy: StreamBreak::Delivered,
        input: InputCount { tokens: 100, source: TokenSource::Counted },
        bounds: tollgate_core::UsageBounds::default(),
        earlier: Vec::new(),
        attempt: StartedAttempt {
            channel: ChannelId::from_parts(MIDNIGHT, ten(1)),
            channel_name: "main".into(),
            account: AccountId::from_parts(MIDNIGHT, ten(1)),
            account_name: "account 1".into(),
            protocol: Protocol::Gemini,
            upstream_model: "upstream-model".into(),
            at: record.at,
            cost: Some(Cow::Owned(Price { input: Some(500_000_000), ..Price::default() })),
            cost_multiplier: Multiplier::ONE,
        },
        tags: Cow::default(),
    }
}

pub(crate) fn progress(n: u64, text_bytes: u64) -> StreamProgress {
    StreamProgress {
        id: request_id(n),
        at: at(n),
        delivered: DeliveredContent { content: true, text_bytes, ..DeliveredContent::default() },
        usage: None,
    }
}
