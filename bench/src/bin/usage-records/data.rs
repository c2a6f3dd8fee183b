//! The records: 90 days, of keys, members, groups and models in no particular order.

use tollgate_bench::{id_bytes, usage_record};
use tollgate_core::{
    AccountId, AttemptRecord, AttemptResult, ChannelId, GroupId, Multiplier, NanoUsd, Outcome, RequestId, Tags, Timestamp,
    TokenSource, Tokens, TraceEntry, UsageRecord,
};
use tollgate_protocol::Protocol;

use super::rows;

/// Keys, unless said otherwise.
pub(super) const KEYS: u64 = 200;
/// Models, unless said otherwise. Each key uses a few kinds of them.
pub(super) const MODELS: u64 = 20;
/// 2026-08-23T00:00:00Z, the time of the first record.
pub(super) const BEGIN: i64 = 1_787_443_200_000_000;
pub(super) const DAY: i64 = 86_400_000_000;
pub(super) const DAYS: i64 = 90;
pub(super) const HOUR: i64 = DAY / 24;
/// Days from one busy time to the next.
pub(super) const BUSY_EVERY: i64 = 3;
pub(super) const BUSY_TIMES: i64 = DAYS / BUSY_EVERY;
/// Records a busy hour, and at most in one busy time.
const BUSY_HOUR: i64 = 300_000;

/// Numbers and kinds of the records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) count: u64,
    pub(super) keys: u64,
    pub(super) models: u64,
    /// Adds tags: half of the records get a tag with fifty values, a tenth one with a unique value.
    pub(super) tags: bool,
}

pub(super) const fn at(day: i64, more: i64) -> Timestamp {
    Timestamp(BEGIN + day * DAY + more)
}

pub(super) fn account(number: u64) -> AccountId {
    AccountId::from_parts(Timestamp(BEGIN), id_bytes(number))
}

pub(super) fn channel(number: u64) -> ChannelId {
    ChannelId::from_parts(Timestamp(BEGIN), id_bytes(number))
}

pub(super) fn group(number: u64) -> GroupId {
    GroupId::from_parts(Timestamp(BEGIN), id_bytes(number))
}

/// When record `number` of `count` arrives. Nine of ten records of three days, at most [`BUSY_HOUR`], arrive from the first noon on at
/// [`BUSY_HOUR`] an hour. The others are spread evenly over the time before and after.
fn arrival(number: u64, count: u64) -> Timestamp {
    let narrow = |number: u64| i64::try_from(number).unwrap_or(0);
    let each = narrow(count.div_ceil(BUSY_TIMES.unsigned_abs())).max(1);
    let (busy_time, within) = (narrow(number) / each, narrow(number) % each);
    let busy = (each * 9 / 10).min(BUSY_HOUR);
    let before = (each - busy) / 6;
    let after = each - busy - before;
    let (noon, evening) = (12 * HOUR, 13 * HOUR);
    let at = if within < before {
        within * noon / before
    } else if within < before + busy {
        noon + (within - before) * (HOUR / BUSY_HOUR)
    } else {
        evening + (within - before - busy) * ((BUSY_EVERY * DAY - evening) / after)
    };
    Timestamp(BEGIN + busy_time * BUSY_EVERY * DAY + at)
}

/// A completed request of the only key, which arrives 12 ms after the one before.
pub(super) fn service_record(number: u64) -> UsageRecord {
    let at = Timestamp(BEGIN + i64::try_from(number).unwrap_or(0) * (HOUR / BUSY_HOUR));
    let like = record(1, Shape { count: 1, keys: KEYS, models: MODELS, tags: false });
    let attempt = AttemptRecord { at, duration_us: 1_990_000 + number % 1_000, ..like.attempts[0].clone() };
    let trace = TraceEntry {
        channel: attempt.channel_name.clone(),
        account: Some(attempt.account_name.clone()),
        code: "planned".into(),
        detail: None,
    };
    UsageRecord {
        id: RequestId::from_parts(at, id_bytes(number)),
        at,
        outcome: Outcome::Completed,
        duration_us: 2_000_000 + number % 1_000,
        trace: vec![trace],
        attempts: vec![attempt],
        ..like
    }
}

/// Record `number`.
pub(super) fn record(number: u64, Shape { count, keys, models, tags }: Shape) -> UsageRecord {
    let at = arrival(number, count);
    // Keys are in no particular order, and each uses a few models.
    let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let (caller, model) = (hash % keys, hash % keys / (keys / 4) % 4 * 5 + hash / keys % 5);
    let cost = NanoUsd(1_000 + i64::try_from(hash % 1_000).unwrap_or(0));
    let outcome = match hash % 1_000 {
        0..5 => Outcome::UpstreamBroke,
        5..10 => Outcome::CallerLeft,
        10..20 => Outcome::Refused,
        _ => Outcome::Completed,
    };
    let tokens = Tokens { input: 800, output: 200, source: TokenSource::Provider, ..Tokens::default() };
    UsageRecord {
        key: rows::key(caller),
        member: rows::member(caller % (keys / 4)),
        protocol_out: Some(Protocol::OpenAi),
        model: Some(format!("model-{}", model + hash / keys / 5 % (models / MODELS) * MODELS).into()),
        stream: number.is_multiple_of(2),
        outcome,
        reason: if outcome == Outcome::Completed { None } else { Some(format!("E{}", 50 + hash % 4)) },
        tags: if tags { tags_of(number, caller) } else { Tags::default() },
        tokens,
        cost: Some(cost),
        sale: Some(NanoUsd(cost.0 * 2)),
        ttft_us: Some(250_000),
        duration_us: 2_000_000,
        address: Some("10.0.0.1".into()),
        attempts: vec![AttemptRecord {
            channel: channel(model % 4),
            channel_name: format!("channel {}", model % 4).into(),
            account: account(hash % 12),
            account_name: format!("account {}", hash % 12).into(),
            protocol: Protocol::OpenAi,
            upstream_model: format!("upstream-{model}").into(),
            at,
            status: Some(200),
            result: AttemptResult::Answered,
            error: None,
            tokens,
            cost: Some(cost),
            first_byte_us: Some(240_000),
            duration_us: 1_990_000,
            upstream_request_id: None,
            hedged: false,
            cost_multiplier: Multiplier::ONE,
            message: None,
            sent_us: Some(40),
        }],
        ..usage_record(Timestamp(BEGIN), RequestId::from_parts(at, id_bytes(number)), at, [caller, caller % (keys / 4), caller % 5])
    }
}

fn tags_of(number: u64, caller: u64) -> Tags {
    let project = number.is_multiple_of(2).then(|| ("project".to_owned(), format!("p{}", caller % 50)));
    let session = number.is_multiple_of(10).then(|| ("session".to_owned(), number.to_string()));
    let mut tags = Tags::default();
    tags.add_metadata(&project.into_iter().chain(session).collect::<Vec<_>>());
    tags
}
