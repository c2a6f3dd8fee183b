//! Every ending under every policy, and what each attempt costs.

mod stopped;

use tollgate_protocol::Usage;

use super::*;
use crate::{
    Account, Channel, ModelMapping, StreamBreak,
    samples::{NOW, account, channel, group, key, price},
};

/// Input 1,000 nano-USD a token, output 2,000.
fn sale() -> Price {
    price("1", "2")
}

/// What a reading says of so much text, 4 bytes a token.
fn reading(tokens: u64, usage: Option<Usage>) -> ReplySummary {
    ReplySummary { usage, content: tokens > 0, text_bytes: tokens * 4, ..ReplySummary::default() }
}

fn usage(prompt_total: u64, completion_total: u64) -> Usage {
    Usage { prompt_total, completion_total, ..Usage::default() }
}

/// An attempt at half the sale's prices.
fn attempt(result: AttemptResult, reading: Option<ReplySummary>) -> AttemptFacts {
    AttemptFacts {
        planned: PlannedAttempt {
            channel: Arc::new(channel("c", &["m"])),
            account: Arc::new(account("c", 0)),
            mapping_index: 0,
            cost: Some(price("0.5", "1")),
            protocol: Protocol::OpenAi,
            last_resort: false,
        },
        at: NOW.plus_ms(1),
        status: Some(200),
        result,
        error: None,
        reply_summary: reading,
        first_byte_us: Some(900),
        duration_us: 5_000,
        upstream_request_id: Some("up-1".to_owned()),
        hedged: false,
    }
}

/// A chat request of 100 counted input tokens, under a policy.
fn facts(outcome: Outcome, policy: StreamBreak, attempts: Vec<AttemptFacts>) -> RequestFacts {
    RequestFacts {
        id: RequestId::from_parts(NOW, [1; 10]),
        at: NOW,
        key: Arc::new(key(&[])),
        group: Some(Arc::new(Group { stream_break: policy, ..group("default", &["c"]) })),
        protocol_in: Protocol::OpenAi,
        method: Method::Chat,
        model: Some("m".to_owned()),
        stream: true,
        status: 200,
        outcome,
        reason: None,
        detail: None,
        sale: Some(sale()),
        price_version: Revision(7),
        input: InputCount { tokens: 100, source: TokenSource::Counted },
        delivered: DeliveredContent::default(),
        attempts,
        ttft_us: Some(1_000),
        duration_us: 9_000,
        address: None,
        client_request_id: None,
        dropped: vec!["seed".to_owned()],
        trace: Vec::new(),
    }
}

/// So many tokens of text that reached the caller.
fn handed(tokens: u64) -> DeliveredContent {
    DeliveredContent { content: tokens > 0, text_bytes: tokens * 4, media: 0 }
}

const POLICIES: [StreamBreak; 3] = [StreamBreak::ProviderUsage, StreamBreak::Delivered, StreamBreak::NoneIfEmpty];

/// Input and output charged, where from, and the sale in nano-USD.
fn charged(facts: RequestFacts) -> (u64, u64, TokenSource, Option<i64>) {
    let record = settle(facts);
    (record.tokens.input, record.tokens.output, record.tokens.source, record.sale.map(|it| it.0))
}

use TokenSource::{Counted, Estimated, Provider as Reported};

// === Completed ===

#[test]
fn a_whole_answer_is_charged_as_the_provider_reports() {
    for policy in POLICIES {
        let answered = attempt(AttemptResult::Answered, Some(reading(9, Some(usage(50, 10)))));
        let facts = RequestFacts { delivered: handed(9), ..facts(Outcome::Completed, policy, vec![answered]) };
        assert_eq!(charged(facts), (50, 10, Reported, Some(70_000)));
    }
}

#[test]
fn a_whole_answer_without_figures_is_counted() {
    let answered = || vec![attempt(AttemptResult::Answered, Some(reading(9, None)))];
    assert_eq!(charged(facts(Outcome::Completed, StreamBreak::Delivered, answered())), (100, 9, Counted, Some(118_000)));
    let guessed = RequestFacts {
        input: InputCount { tokens: 100, source: Estimated },
        ..facts(Outcome::Completed, StreamBreak::Delivered, answered())
    };
    assert_eq!(charged(guessed).2, Estimated, "media in the input were guessed");
}

#[test]
fn reported_zeros_are_figures_too() {
    let answered = attempt(AttemptResult::Answered, Some(reading(9, Some(usage(0, 0)))));
    assert_eq!(charged(facts(Outcome::Completed, StreamBreak::Delivered, vec![answered])), (0, 0, Reported, Some(0)));
}

#[test]
fn cached_and_thinking_tokens_are_charged_once_at_their_own_price() {
    let reported = Usage { prompt_total: 100, cached: 80, completion_total: 30, reasoning: 10, ..Usage::default() };
    let answered = attempt(AttemptResult::Answered, Some(reading(20, Some(reported))));
    let list = Price { cache_read: Some(100_000_000), thinking: Some(3_000_000_000), ..sale() };
    let record = settle(RequestFacts { sale: Some(list), ..facts(Outcome::Completed, StreamBreak::Delivered, vec![answered]) });
    assert_eq!((record.tokens.input, record.tokens.cache_read, record.tokens.output, record.tokens.thinking), (20, 80, 20, 10));
    assert_eq!(record.sale, Some(NanoUsd(20 * 1_000 + 80 * 100 + 20 * 2_000 + 10 * 3_000)));
}

#[test]
fn the_groups_factor_is_on_the_sale_and_the_accounts_on_the_cost() {
    let mut answered = attempt(AttemptResult::Answered, Some(reading(0, Some(usage(100, 0)))));
    answered.planned.account = Arc::new(Account { cost_multiplier: Multiplier(3_000_000), ..account("c", 0) });
    let mut facts = facts(Outcome::Completed, StreamBreak::Delivered, vec![answered]);
    facts.group = Some(Arc::new(Group { sale_multiplier: Multiplier(1_500_000), ..group("default", &["c"]) }));
    let record = settle(facts);
    assert_eq!((record.sale, record.cost), (Some(NanoUsd(150_000)), Some(NanoUsd(150_000))));
}

#[test]
fn an_unpriced_model_is_served_with_tokens_and_without_a_figure() {
    let answered = attempt(AttemptResult::Answered, Some(reading(9, Some(usage(50, 10)))));
    let record = settle(RequestFacts { sale: None, ..facts(Outcome::Completed, StreamBreak::Delivered, vec![answered]) });
    assert_eq!((record.sale, record.tokens.input), (None, 50));
}

#[test]
fn echos_words_are_a_count() {
    let mut answered = attempt(AttemptResult::Answered, Some(reading(9, Some(usage(5, 5)))));
    answered.planned.channel = Arc::new(Channel { provider: Provider::Echo, ..channel("c", &["m"]) });
    let record = settle(facts(Outcome::Completed, StreamBreak::Delivered, vec![answered]));
    assert_eq!((record.tokens.source, record.attempts[0].tokens.source), (Counted, Counted));
}

#[test]
fn counting_tokens_is_free_and_says_when_the_gateway_counted_itself() {
    let counting =
        |attempts| RequestFacts { method: Method::CountTokens, ..facts(Outcome::Completed, StreamBreak::Delivered, attempts) };
    let asked = settle(counting(vec![attempt(AttemptResult::Answered, Some(reading(1, None)))]));
    assert_eq!((asked.sale, asked.cost, asked.tokens), (Some(NanoUsd(0)), Some(NanoUsd(0)), Tokens::default()));
    assert_eq!(settle(RequestFacts { sale: None, ..counting(vec![]) }).tokens.source, Estimated);
}

#[test]
fn embeddings_are_charged_for_their_input() {
    let answered = attempt(AttemptResult::Answered, Some(reading(0, None)));
    let facts = RequestFacts { method: Method::Embeddings, ..facts(Outcome::Completed, StreamBreak::Delivered, vec![answered]) };
    assert_eq!(charged(facts), (100, 0, Counted, Some(100_000)));
}

// === Broken by the upstream ===

#[test]
fn an_answer_that_broke_after_content_follows_the_policy() {
    let broke = |policy, usage| {
        let attempts = vec![attempt(AttemptResult::Broke, Some(reading(12, usage)))];
        charged(RequestFacts { delivered: handed(10), ..facts(Outcome::UpstreamBroke, policy, attempts) })
    };
    assert_eq!(broke(StreamBreak::ProviderUsage, Some(usage(50, 40))), (50, 40, Reported, Some(130_000)));
    assert_eq!(broke(StreamBreak::ProviderUsage, None), (100, 10, Counted, Some(120_000)), "nothing reported: as delivered");
    assert_eq!(broke(StreamBreak::Delivered, Some(usage(50, 40))), (50, 10, Counted, Some(70_000)), "input as reported");
    assert_eq!(broke(StreamBreak::Delivered, None), (100, 10, Counted, Some(120_000)));
    assert_eq!(broke(StreamBreak::NoneIfEmpty, None), (100, 10, Counted, Some(120_000)));
}

#[test]
fn an_answer_that_broke_before_content_is_free_under_every_policy() {
    for policy in POLICIES {
        for usage in [None, Some(usage(50, 40))] {
            let attempts = vec![attempt(AttemptResult::Broke, Some(reading(0, usage)))];
            let record = settle(facts(Outcome::UpstreamBroke, policy, attempts));
            assert_eq!((record.sale, record.tokens), (Some(NanoUsd(0)), Tokens::default()), "{policy:?}");
        }
    }
}

#[test]
fn an_unpriced_model_that_broke_before_content_is_free_rather_than_unknown() {
    let attempts = vec![attempt(AttemptResult::Failed, None)];
    let record = settle(RequestFacts { sale: None, ..facts(Outcome::UpstreamBroke, StreamBreak::Delivered, attempts) });
    assert_eq!(record.sale, Some(NanoUsd(0)));
}

// === The caller left ===

#[test]
fn a_caller_who_left_after_content_pays_by_the_policy() {
    let left = |policy| {
        let attempts = vec![attempt(AttemptResult::Cancelled, Some(reading(12, Some(usage(50, 12)))))];
        charged(RequestFacts { delivered: handed(10), ..facts(Outcome::CallerLeft, policy, attempts) })
    };
    assert_eq!(left(StreamBreak::ProviderUsage), (50, 12, Reported, Some(74_000)));
    assert_eq!(left(StreamBreak::Delivered), (50, 10, Counted, Some(70_000)));
    assert_eq!(left(StreamBreak::NoneIfEmpty), (50, 10, Counted, Some(70_000)));
}

#[test]
fn a_caller_who_left_before_content_pays_the_input_by_the_policy() {
    let left = |policy, usage| {
        charged(facts(Outcome::CallerLeft, policy, vec![attempt(AttemptResult::Cancelled, Some(reading(0, usage)))]))
    };
    assert_eq!(left(StreamBreak::Delivered, None), (100, 0, Counted, Some(100_000)));
    assert_eq!(left(StreamBreak::ProviderUsage, None), (100, 0, Counted, Some(100_000)));
    assert_eq!(left(StreamBreak::ProviderUsage, Some(usage(50, 30))), (50, 0, Reported, Some(50_000)), "the input alone");
    assert_eq!(left(StreamBreak::NoneIfEmpty, Some(usage(50, 30))), (0, 0, TokenSource::None, Some(0)));
}

#[test]
fn a_caller_who_left_while_nothing_was_under_way_pays_nothing() {
    for attempts in [vec![], vec![attempt(AttemptResult::NotSent, None)], vec![attempt(AttemptResult::Refused, None)]] {
        for policy in POLICIES {
            assert_eq!(settle(facts(Outcome::CallerLeft, policy, attempts.clone())).sale, Some(NanoUsd(0)));
        }
    }
}

// === Refused, and stopped by us ===

#[test]
fn a_refusal_is_free_whatever_happened_before() {
    let attempts = vec![attempt(AttemptResult::Refused, None), attempt(AttemptResult::Failed, Some(reading(5, None)))];
    let record = settle(facts(Outcome::Refused, StreamBreak::Delivered, attempts));
    assert_eq!((record.sale, record.tokens), (Some(NanoUsd(0)), Tokens::default()));
}

#[test]
fn a_refusal_before_a_group_was_chosen_has_a_record_all_the_same() {
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
fn an_answer_the_gateway_cut_off_follows_the_policy_after_content_and_is_free_before() {
    let stopped = |delivered| {
        let attempts = vec![attempt(AttemptResult::Cancelled, Some(reading(10, None)))];
        charged(RequestFacts { delivered, ..facts(Outcome::GatewayStopped, StreamBreak::Delivered, attempts) })
    };
    assert_eq!(stopped(handed(10)), (100, 10, Counted, Some(120_000)));
    assert_eq!(stopped(handed(0)).3, Some(0));
}

// === Cost ===

/// Input and output of the attempt, where from, and its cost in nano-USD.
fn costs(result: AttemptResult, reading: Option<ReplySummary>) -> (u64, u64, TokenSource, Option<i64>) {
    let record = settle_attempt(&attempt(result, reading), Method::Chat, InputCount { tokens: 100, source: Counted });
    (record.tokens.input, record.tokens.output, record.tokens.source, record.cost.map(|it| it.0))
}

#[test]
fn a_refused_or_unsent_attempt_costs_nothing() {
    for result in [AttemptResult::Refused, AttemptResult::NotSent] {
        assert_eq!(costs(result, None), (0, 0, TokenSource::None, Some(0)));
    }
}

#[test]
fn an_answered_attempt_costs_what_was_reported_else_what_was_counted() {
    assert_eq!(costs(AttemptResult::Answered, Some(reading(9, Some(usage(50, 10))))), (50, 10, Reported, Some(35_000)));
    assert_eq!(costs(AttemptResult::Answered, Some(reading(9, None))), (100, 9, Counted, Some(59_000)));
}

#[test]
fn an_attempt_that_ended_early_costs_what_was_reported_else_an_estimate() {
    for result in [AttemptResult::Failed, AttemptResult::Broke, AttemptResult::Cancelled] {
        assert_eq!(costs(result, None), (100, 0, Estimated, Some(50_000)));
        assert_eq!(costs(result, Some(reading(9, None))), (100, 9, Estimated, Some(59_000)));
        assert_eq!(costs(result, Some(reading(9, Some(usage(50, 10))))), (50, 10, Reported, Some(35_000)));
    }
}

#[test]
fn a_report_older_than_the_text_does_not_lower_the_cost() {
    // Some providers report input at the beginning, with one token of output.
    assert_eq!(costs(AttemptResult::Broke, Some(reading(9, Some(usage(50, 1))))), (50, 9, Estimated, Some(34_000)));
}

#[test]
fn the_records_cost_is_the_sum_over_its_attempts() {
    let attempts = vec![
        attempt(AttemptResult::Refused, None),
        attempt(AttemptResult::Failed, None),
        attempt(AttemptResult::Answered, Some(reading(9, Some(usage(50, 10))))),
    ];
    let record = settle(facts(Outcome::Completed, StreamBreak::Delivered, attempts));
    assert_eq!(record.cost, Some(NanoUsd(50_000 + 35_000)));
    assert_eq!(record.attempts.iter().map(|it| it.cost.unwrap().0).sum::<i64>(), 85_000);
    assert_eq!(record.sale, Some(NanoUsd(70_000)), "the sale is charged once");
}

#[test]
fn one_attempt_of_unknown_cost_makes_the_sum_unknown_unless_it_used_nothing() {
    let unknown = |result| {
        let mut attempt = attempt(result, None);
        attempt.planned.cost = None;
        attempt
    };
    let with = |first| {
        let attempts = vec![first, attempt(AttemptResult::Answered, Some(reading(9, None)))];
        settle(facts(Outcome::Completed, StreamBreak::Delivered, attempts)).cost
    };
    assert_eq!(with(unknown(AttemptResult::Failed)), None);
    assert_eq!(with(unknown(AttemptResult::Refused)), Some(NanoUsd(59_000)));
}

#[test]
fn an_amount_that_does_not_fit_is_an_error_of_the_record() {
    let answered = attempt(AttemptResult::Answered, Some(reading(9, Some(usage(1_000_000_000, 10)))));
    let dear = |per_million| RequestFacts {
        sale: Some(price(per_million, "0")),
        ..facts(Outcome::Completed, StreamBreak::Delivered, vec![answered.clone()])
    };
    let most = settle(dear("10"));
    assert_eq!((most.sale, most.reason.as_deref()), (Some(NanoUsd::MAX_PER_REQUEST), None));
    let record = settle(dear("10.000001"));
    assert_eq!((record.sale, record.cost, record.reason.as_deref()), (None, Some(NanoUsd(500_000_010_000)), Some("overflow")));
}

#[test]
fn a_report_beyond_belief_counts_as_none() {
    let answered = attempt(AttemptResult::Answered, Some(reading(9, Some(usage(1_000_000_001, 10)))));
    let record = settle(facts(Outcome::Completed, StreamBreak::Delivered, vec![answered]));
    assert_eq!((record.tokens.input, record.tokens.output, record.tokens.source), (100, 9, TokenSource::Counted));
    assert_eq!(record.attempts[0].tokens.input, 100);
}

// === The rest of the record ===

#[test]
fn the_record_says_who_what_and_where() {
    let mut answered = attempt(AttemptResult::Answered, Some(reading(9, None)));
    answered.planned.channel = Arc::new(Channel {
        mappings: vec![ModelMapping { upstream: "m-2026".to_owned(), ..crate::samples::serves("m") }],
        ..channel("c", &[])
    });
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
fn a_long_model_name_is_cut_between_characters() {
    let name = "ü".repeat(300);
    let record = settle(RequestFacts { model: Some(name), ..facts(Outcome::Refused, StreamBreak::Delivered, vec![]) });
    assert_eq!(record.model.unwrap().chars().count(), 256);
}
