//! Every outcome under every policy, and the cost of each attempt.

mod bounded;
mod stopped;

use tollgate_protocol::Usage;

use super::*;
use crate::{
    Account, AccountSpec, Channel, ChannelSpec, ModelMapping, Price, Provider, StreamBreak,
    samples::{NOW, account, channel, group, key, price},
};

/// 1,000 nano-USD per input token, 2,000 per output token.
fn sale() -> Price {
    price("1", "2")
}

/// Summary of an answer with this many tokens of text, 4 bytes each.
fn reply_summary(tokens: u64, usage: Option<Usage>) -> ReplySummary {
    ReplySummary { usage, content: tokens > 0, text_bytes: tokens * 4, ..ReplySummary::default() }
}

fn usage(prompt_total: u64, completion_total: u64) -> Usage {
    Usage { prompt_total, completion_total, ..Usage::default() }
}

/// An attempt at half the sale price.
fn attempt(result: AttemptResult, reply_summary: Option<ReplySummary>) -> AttemptFacts {
    AttemptFacts {
        planned: Arc::new(PlannedAttempt {
            channel: Arc::new(channel("c", &["m"])),
            account: Arc::new(account("c", 0)),
            mapping_index: 0,
            cost: Some(price("0.5", "1").into()),
            protocol: Protocol::OpenAi,
            last_resort: false,
        }),
        at: NOW.plus_ms(1),
        status: Some(200),
        result,
        error: None,
        reply_summary,
        first_byte_us: Some(900),
        duration_us: 5_000,
        upstream_request_id: Some("up-1".into()),
        hedged: false,
        message: None,
        sent_us: Some(40),
    }
}

/// A chat request of 100 counted input tokens under a policy.
fn facts(outcome: Outcome, policy: StreamBreak, attempts: Vec<AttemptFacts>) -> RequestFacts {
    RequestFacts {
        id: RequestId::from_parts(NOW, [1; 10]),
        at: NOW,
        key: Arc::new(key(&[])),
        group: Some(Arc::new(Group { stream_break: policy, ..group("default", &["c"]) })),
        protocol_in: Protocol::OpenAi,
        method: Method::Chat,
        model: Some("m".into()),
        stream: true,
        status: 200,
        outcome,
        reason: None,
        detail: None,
        sale: Some(sale().into()),
        sale_multiplier: Multiplier::ONE,
        price_version: Revision(7),
        input: InputCount { tokens: 100, source: TokenSource::Counted },
        bounds: UsageBounds::default(),
        delivered: DeliveredContent::default(),
        attempts: attempts.into(),
        ttft_us: Some(1_000),
        duration_us: 9_000,
        address: None,
        client_request_id: None,
        client: Some("OpenAI/Python 2.1.0".into()),
        request_bytes: 500,
        dropped: vec!["seed".to_owned()],
        trace: Vec::new(),
        tags: Tags::default(),
    }
}

/// The size of such a request.
fn size() -> RequestSize {
    facts(Outcome::Completed, StreamBreak::Delivered, vec![]).size()
}

/// Delivered text of this many tokens.
fn delivered(tokens: u64) -> DeliveredContent {
    DeliveredContent { content: tokens > 0, text_bytes: tokens * 4, ..DeliveredContent::default() }
}

const POLICIES: [StreamBreak; 3] = [StreamBreak::ProviderUsage, StreamBreak::Delivered, StreamBreak::NoneIfEmpty];

/// Charged input and output, their source, and the sale amount in nano-USD.
fn charged(facts: RequestFacts) -> (u64, u64, TokenSource, Option<i64>) {
    let record = settle(facts);
    (record.tokens.input, record.tokens.output, record.tokens.source, record.sale.map(|it| it.0))
}

use TokenSource::{Counted, Estimated, Provider as Reported};

// === Completed ===

#[test]
fn complete_answer_is_charged_as_reported() {
    for policy in POLICIES {
        let answered = attempt(AttemptResult::Answered, Some(reply_summary(9, Some(usage(50, 10)))));
        let facts = RequestFacts { delivered: delivered(9), ..facts(Outcome::Completed, policy, vec![answered]) };
        assert_eq!(charged(facts), (50, 10, Reported, Some(70_000)));
    }
}

#[test]
fn complete_answer_without_usage_is_counted() {
    let answered = || vec![attempt(AttemptResult::Answered, Some(reply_summary(9, None)))];
    assert_eq!(charged(facts(Outcome::Completed, StreamBreak::Delivered, answered())), (100, 9, Counted, Some(118_000)));
    let guessed = RequestFacts {
        input: InputCount { tokens: 100, source: Estimated },
        ..facts(Outcome::Completed, StreamBreak::Delivered, answered())
    };
    assert_eq!(charged(guessed).2, Estimated, "media in the input are estimated");
}

#[test]
fn usage_of_zeros_is_counted_instead() {
    let settled = |usage| {
        let answered = attempt(AttemptResult::Answered, Some(reply_summary(9, usage)));
        charged(facts(Outcome::Completed, StreamBreak::Delivered, vec![answered]))
    };
    assert_eq!(settled(Some(usage(0, 0))), settled(None));
    assert_eq!(settled(Some(usage(0, 1))).2, Reported);
}

#[test]
fn cached_and_thinking_tokens_are_charged_at_their_own_price() {
    let reported = Usage { prompt_total: 100, cached: 80, completion_total: 30, reasoning: 10, ..Usage::default() };
    let answered = attempt(AttemptResult::Answered, Some(reply_summary(20, Some(reported))));
    let list = Price { cache_read: Some(100_000_000), thinking: Some(3_000_000_000), ..sale() };
    let record =
        settle(RequestFacts { sale: Some(list.into()), ..facts(Outcome::Completed, StreamBreak::Delivered, vec![answered]) });
    assert_eq!((record.tokens.input, record.tokens.cache_read, record.tokens.output, record.tokens.thinking), (20, 80, 20, 10));
    assert_eq!(record.sale, Some(NanoUsd(20 * 1_000 + 80 * 100 + 20 * 2_000 + 10 * 3_000)));
}

#[test]
fn multiplier_of_the_offer_applies_to_sale_and_account_multiplier_to_cost() {
    let mut answered = attempt(AttemptResult::Answered, Some(reply_summary(0, Some(usage(100, 0)))));
    Arc::make_mut(&mut answered.planned).account = Arc::new(Account {
        spec: AccountSpec { cost_multiplier: Multiplier(3_000_000), ..account("c", 0).spec },
        ..account("c", 0)
    });
    let sale_multiplier = Multiplier(1_500_000);
    let record = settle(RequestFacts { sale_multiplier, ..facts(Outcome::Completed, StreamBreak::Delivered, vec![answered]) });
    assert_eq!((record.sale, record.cost), (Some(NanoUsd(150_000)), Some(NanoUsd(150_000))));
}

#[test]
fn unpriced_model_has_tokens_but_no_sale() {
    let answered = attempt(AttemptResult::Answered, Some(reply_summary(9, Some(usage(50, 10)))));
    let record = settle(RequestFacts { sale: None, ..facts(Outcome::Completed, StreamBreak::Delivered, vec![answered]) });
    assert_eq!((record.sale, record.tokens.input), (None, 50));
}

#[test]
fn echo_usage_is_marked_as_counted() {
    let mut answered = attempt(AttemptResult::Answered, Some(reply_summary(9, Some(usage(5, 5)))));
    Arc::make_mut(&mut answered.planned).channel =
        Arc::new(Channel { spec: ChannelSpec { provider: Provider::Echo, ..channel("c", &["m"]).spec }, ..channel("c", &["m"]) });
    let record = settle(facts(Outcome::Completed, StreamBreak::Delivered, vec![answered]));
    assert_eq!((record.tokens.source, record.attempts[0].tokens.source), (Counted, Counted));
}

#[test]
fn token_count_is_free_and_marked_when_made_locally() {
    let counting =
        |attempts| RequestFacts { method: Method::CountTokens, ..facts(Outcome::Completed, StreamBreak::Delivered, attempts) };
    let forwarded = settle(counting(vec![attempt(AttemptResult::Answered, Some(reply_summary(1, None)))]));
    assert_eq!((forwarded.sale, forwarded.cost, forwarded.tokens), (Some(NanoUsd(0)), Some(NanoUsd(0)), Tokens::default()));
    assert_eq!(settle(RequestFacts { sale: None, ..counting(vec![]) }).tokens.source, Estimated);
}

#[test]
fn embeddings_are_charged_for_their_input() {
    let answered = attempt(AttemptResult::Answered, Some(reply_summary(0, None)));
    let facts = RequestFacts { method: Method::Embeddings, ..facts(Outcome::Completed, StreamBreak::Delivered, vec![answered]) };
    assert_eq!(charged(facts), (100, 0, Counted, Some(100_000)));
}

// === Broken by the upstream ===

#[test]
fn broken_answer_with_content_follows_the_policy() {
    let broke = |policy, usage| {
        let attempts = vec![attempt(AttemptResult::Broke, Some(reply_summary(12, usage)))];
        charged(RequestFacts { delivered: delivered(10), ..facts(Outcome::UpstreamBroke, policy, attempts) })
    };
    assert_eq!(broke(StreamBreak::ProviderUsage, Some(usage(50, 40))), (50, 40, Reported, Some(130_000)));
    assert_eq!(broke(StreamBreak::ProviderUsage, None), (100, 10, Counted, Some(120_000)), "nothing reported: as delivered");
    assert_eq!(broke(StreamBreak::Delivered, Some(usage(50, 40))), (50, 10, Counted, Some(70_000)), "input as reported");
    assert_eq!(broke(StreamBreak::Delivered, None), (100, 10, Counted, Some(120_000)));
    assert_eq!(broke(StreamBreak::NoneIfEmpty, None), (100, 10, Counted, Some(120_000)));
}

#[test]
fn broken_answer_without_content_is_free() {
    for policy in POLICIES {
        for usage in [None, Some(usage(50, 40))] {
            let attempts = vec![attempt(AttemptResult::Broke, Some(reply_summary(0, usage)))];
            let record = settle(facts(Outcome::UpstreamBroke, policy, attempts));
            assert_eq!((record.sale, record.tokens), (Some(NanoUsd(0)), Tokens::default()), "{policy:?}");
        }
    }
}

#[test]
fn broken_unpriced_answer_without_content_is_free() {
    let attempts = vec![attempt(AttemptResult::Failed, None)];
    let record = settle(RequestFacts { sale: None, ..facts(Outcome::UpstreamBroke, StreamBreak::Delivered, attempts) });
    assert_eq!(record.sale, Some(NanoUsd(0)));
}

// === The caller left ===

#[test]
fn caller_leaving_after_content_pays_by_the_policy() {
    let left = |policy| {
        let attempts = vec![attempt(AttemptResult::Cancelled, Some(reply_summary(12, Some(usage(50, 12)))))];
        charged(RequestFacts { delivered: delivered(10), ..facts(Outcome::CallerLeft, policy, attempts) })
    };
    assert_eq!(left(StreamBreak::ProviderUsage), (50, 12, Reported, Some(74_000)));
    assert_eq!(left(StreamBreak::Delivered), (50, 10, Counted, Some(70_000)));
    assert_eq!(left(StreamBreak::NoneIfEmpty), (50, 10, Counted, Some(70_000)));
}

#[test]
fn caller_leaving_before_content_pays_the_input_by_the_policy() {
    let left = |policy, usage| {
        charged(facts(Outcome::CallerLeft, policy, vec![attempt(AttemptResult::Cancelled, Some(reply_summary(0, usage)))]))
    };
    assert_eq!(left(StreamBreak::Delivered, None), (100, 0, Counted, Some(100_000)));
    assert_eq!(left(StreamBreak::ProviderUsage, None), (100, 0, Counted, Some(100_000)));
    assert_eq!(left(StreamBreak::ProviderUsage, Some(usage(50, 30))), (50, 0, Reported, Some(50_000)), "the input alone");
    assert_eq!(left(StreamBreak::NoneIfEmpty, Some(usage(50, 30))), (0, 0, TokenSource::None, Some(0)));
}

#[test]
fn caller_leaving_with_nothing_in_flight_pays_nothing() {
    for attempts in [vec![], vec![attempt(AttemptResult::NotSent, None)], vec![attempt(AttemptResult::Refused, None)]] {
        for policy in POLICIES {
            assert_eq!(settle(facts(Outcome::CallerLeft, policy, attempts.clone())).sale, Some(NanoUsd(0)));
        }
    }
}

// === Refused, and stopped by us ===

#[test]
fn refusal_is_free_despite_earlier_attempts() {
    let attempts = vec![attempt(AttemptResult::Refused, None), attempt(AttemptResult::Failed, Some(reply_summary(5, None)))];
    let record = settle(facts(Outcome::Refused, StreamBreak::Delivered, attempts));
    assert_eq!((record.sale, record.tokens), (Some(NanoUsd(0)), Tokens::default()));
}

#[test]
fn refusal_before_resolution_has_a_record() {
    let early = RequestFacts {
        group: None,
        model: None,
        sale: None,
        reason: Some("E18".to_owned()),
        ..facts(Outcome::Refused, StreamBreak::Delivered, vec![])
    };
    let record = settle(early);
    assert_eq!((record.group, record.model, record.sale, record.cost), (None, None, Some(NanoUsd(0)), Some(NanoUsd(0))));
    assert_eq!(record.reason.as_deref(), Some("E18"));
}

#[test]
fn answer_cut_off_by_shutdown_follows_the_policy_after_content() {
    let stopped = |delivered| {
        let attempts = vec![attempt(AttemptResult::Cancelled, Some(reply_summary(10, None)))];
        charged(RequestFacts { delivered, ..facts(Outcome::GatewayStopped, StreamBreak::Delivered, attempts) })
    };
    assert_eq!(stopped(delivered(10)), (100, 10, Counted, Some(120_000)));
    assert_eq!(stopped(delivered(0)).3, Some(0));
}

// === Cost ===

/// Input and output of an attempt, their source, and its cost in nano-USD.
fn costs(result: AttemptResult, reply_summary: Option<ReplySummary>) -> (u64, u64, TokenSource, Option<i64>) {
    let record = settle_attempt(&attempt(result, reply_summary), &size());
    (record.tokens.input, record.tokens.output, record.tokens.source, record.cost.map(|it| it.0))
}

#[test]
fn refused_or_unsent_attempt_is_free() {
    for result in [AttemptResult::Refused, AttemptResult::NotSent] {
        assert_eq!(costs(result, None), (0, 0, TokenSource::None, Some(0)));
    }
}

#[test]
fn answered_attempt_costs_reported_or_counted_usage() {
    assert_eq!(costs(AttemptResult::Answered, Some(reply_summary(9, Some(usage(50, 10))))), (50, 10, Reported, Some(35_000)));
    assert_eq!(costs(AttemptResult::Answered, Some(reply_summary(9, None))), (100, 9, Counted, Some(59_000)));
}

#[test]
fn interrupted_attempt_costs_reported_or_estimated_usage() {
    for result in [AttemptResult::Failed, AttemptResult::Broke, AttemptResult::Cancelled] {
        assert_eq!(costs(result, None), (100, 0, Estimated, Some(50_000)));
        assert_eq!(costs(result, Some(reply_summary(9, None))), (100, 9, Estimated, Some(59_000)));
        assert_eq!(costs(result, Some(reply_summary(9, Some(usage(50, 10))))), (50, 10, Reported, Some(35_000)));
    }
}

#[test]
fn report_older_than_the_content_does_not_lower_the_cost() {
    // Some providers report the input first, with one token of output.
    assert_eq!(costs(AttemptResult::Broke, Some(reply_summary(9, Some(usage(50, 1))))), (50, 9, Estimated, Some(34_000)));
}

#[test]
fn record_cost_is_the_sum_of_its_attempts() {
    let attempts = vec![
        attempt(AttemptResult::Refused, None),
        attempt(AttemptResult::Failed, None),
        attempt(AttemptResult::Answered, Some(reply_summary(9, Some(usage(50, 10))))),
    ];
    let record = settle(facts(Outcome::Completed, StreamBreak::Delivered, attempts));
    assert_eq!(record.cost, Some(NanoUsd(50_000 + 35_000)));
    assert_eq!(record.attempts.iter().map(|it| it.cost.unwrap().0).sum::<i64>(), 85_000);
    assert_eq!(record.sale, Some(NanoUsd(70_000)), "the sale is charged once");
}

#[test]
fn unknown_attempt_cost_makes_the_sum_unknown_unless_unused() {
    let with_unknown_cost = |result| {
        let mut attempt = attempt(result, None);
        Arc::make_mut(&mut attempt.planned).cost = None;
        attempt
    };
    let with = |first| {
        let attempts = vec![first, attempt(AttemptResult::Answered, Some(reply_summary(9, None)))];
        settle(facts(Outcome::Completed, StreamBreak::Delivered, attempts)).cost
    };
    assert_eq!(with(with_unknown_cost(AttemptResult::Failed)), None);
    assert_eq!(with(with_unknown_cost(AttemptResult::Refused)), Some(NanoUsd(59_000)));
}

#[test]
fn amount_above_the_bound_is_reported_as_overflow() {
    let answered = attempt(AttemptResult::Answered, Some(reply_summary(9, Some(usage(1_000_000_000, 10)))));
    let priced_at = |per_million| RequestFacts {
        sale: Some(price(per_million, "0").into()),
        ..facts(Outcome::Completed, StreamBreak::Delivered, vec![answered.clone()])
    };
    let max = settle(priced_at("10"));
    assert_eq!((max.sale, max.reason.as_deref()), (Some(NanoUsd::MAX_PER_REQUEST), None));
    let record = settle(priced_at("10.000001"));
    assert_eq!((record.sale, record.cost, record.reason.as_deref()), (None, Some(NanoUsd(500_000_010_000)), Some("overflow")));
}

#[test]
fn implausible_usage_is_ignored() {
    let answered = attempt(AttemptResult::Answered, Some(reply_summary(9, Some(usage(1_000_000_001, 10)))));
    let record = settle(facts(Outcome::Completed, StreamBreak::Delivered, vec![answered]));
    assert_eq!((record.tokens.input, record.tokens.output, record.tokens.source), (100, 9, TokenSource::Counted));
    assert_eq!(record.attempts[0].tokens.input, 100);
}

// === The rest of the record ===

#[test]
fn record_names_key_group_channel_and_account() {
    let mut answered = attempt(AttemptResult::Answered, Some(reply_summary(9, None)));
    let mut served = channel("c", &[]);
    served.spec.serves = vec![ModelMapping { upstream: "m-2026".to_owned(), ..crate::samples::mapping("m") }];
    Arc::make_mut(&mut answered.planned).channel = Arc::new(served);
    let record = settle(facts(Outcome::Completed, StreamBreak::Delivered, vec![answered]));
    assert_eq!((record.key_name.as_str(), record.group_name.as_deref()), ("ci", Some("default")));
    assert_eq!((record.protocol_out, record.price_version, record.dropped.len()), (Some(Protocol::OpenAi), Revision(7), 1));
    let only = &record.attempts[0];
    assert_eq!((only.channel_name.as_str(), only.account_name.as_str(), only.upstream_model.as_str()), ("c", "c/0", "m-2026"));
    assert_eq!((only.upstream_request_id.as_deref(), only.first_byte_us), (Some("up-1"), Some(900)));
    let stored = serde_json::to_string(&record).unwrap();
    assert_eq!(serde_json::from_str::<UsageRecord>(&stored).unwrap(), record);
}

#[test]
fn long_model_name_is_cut_at_a_character_boundary() {
    let name = "ü".repeat(300);
    let record = settle(RequestFacts { model: Some(name.into()), ..facts(Outcome::Refused, StreamBreak::Delivered, vec![]) });
    assert_eq!(record.model.unwrap().chars().count(), 256);
}
