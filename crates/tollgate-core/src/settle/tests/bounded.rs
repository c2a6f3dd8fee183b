//! Usage beyond what the request can account for, and answers whose callers left early.

use tollgate_protocol::{FinishReason, Thinking};

use super::*;
use crate::samples::{model, summary};

/// Bounds of a request of 400 bytes that asks for at most 5 tokens.
fn bounds() -> UsageBounds {
    let summary = tollgate_protocol::RequestSummary { text_bytes: 400, max_output: Some(5), ..summary("m", Method::Chat) };
    UsageBounds::of_input(&summary).with_output(&summary, &model("m"), 5)
}

/// An attempt on a model that thinks.
fn thinking(result: AttemptResult, reply_summary: Option<ReplySummary>) -> AttemptFacts {
    let mut attempt = attempt(result, reply_summary);
    let mut row = channel("c", &["m"]);
    row.spec.serves[0].profile.thinking = Some(Thinking::Effort(vec!["low".to_owned()]));
    Arc::make_mut(&mut attempt.planned).channel = Arc::new(row);
    attempt
}

fn bounded(outcome: Outcome, attempt: AttemptFacts) -> RequestFacts {
    RequestFacts { bounds: bounds(), delivered: delivered(2), ..facts(outcome, StreamBreak::Delivered, vec![attempt]) }
}

/// A request that may take 5,000 output tokens.
fn long(outcome: Outcome, attempt: AttemptFacts) -> RequestFacts {
    let bounds = UsageBounds { output: 5_000, reserved_output: 5_000, ..bounds() };
    RequestFacts { bounds, ..bounded(outcome, attempt) }
}

#[test]
fn reported_usage_above_the_possible_maximum_is_replaced_by_an_estimate() {
    let record = settle(bounded(
        Outcome::Completed,
        attempt(AttemptResult::Answered, Some(reply_summary(2, Some(usage(100, 1_000_000_000))))),
    ));
    assert!(record.tokens.output < 100, "{:?}", record.tokens);
    assert_eq!((record.tokens.input, record.tokens.source), (100, Estimated));
    assert_eq!(record.reason.as_deref(), Some("usage_excess"));
    assert!(record.detail.unwrap().starts_with("the upstream reported 1000000000 output tokens where at most "));
    assert_eq!(record.attempts[0].tokens.output, record.tokens.output, "the channel's budget is not charged either");
    let input =
        settle(bounded(Outcome::Completed, attempt(AttemptResult::Answered, Some(reply_summary(2, Some(usage(1_000_000, 5)))))));
    assert!(input.tokens.input < 10_000, "{:?}", input.tokens);
}

/// Bounds of a request that may search at most this often.
fn searching(max_searches: Option<u64>, is_own: bool) -> UsageBounds {
    let mut asked = summary("m", Method::Chat);
    (asked.extras.web_search, asked.extras.own_search, asked.max_searches) = (true, is_own, max_searches);
    UsageBounds { input: 1_000, ..UsageBounds::of_input(&asked).with_output(&asked, &model("m"), 5) }
}

#[test]
fn searches_are_charged_by_their_number() {
    let searched = |bounds: UsageBounds, protocol: Protocol, searches: Option<u32>| {
        let reply = ReplySummary { searches, ..reply_summary(2, Some(usage(100, 2))) };
        let mut attempt = attempt(AttemptResult::Answered, Some(reply));
        let planned = Arc::make_mut(&mut attempt.planned);
        (planned.protocol, planned.cost) = (protocol, Some(Price { web_search: Some(5_000_000), ..price("0", "0") }.into()));
        let sale = Some(Price { web_search: Some(10_000_000), ..price("0", "0") }.into());
        settle(RequestFacts { sale, bounds, ..bounded(Outcome::Completed, attempt) })
    };
    let amounts = |record: &UsageRecord| {
        let searches = record.tokens.web_searches;
        assert_eq!(record.attempts[0].tokens.web_searches, searches);
        (searches, record.sale.unwrap().0, record.cost.unwrap().0)
    };
    let eight = searched(searching(Some(8), false), Protocol::Anthropic, Some(8));
    assert_eq!((amounts(&eight), eight.reason), ((8, 80_000_000, 40_000_000), None));
    let beyond = searched(searching(Some(8), false), Protocol::Anthropic, Some(9));
    assert_eq!(amounts(&beyond).0, 8);
    assert_eq!(beyond.reason.as_deref(), Some("usage_excess"));
    assert!(beyond.detail.unwrap().contains("9 web searches where at most 8 are possible"));
    assert_eq!(amounts(&searched(searching(None, false), Protocol::Anthropic, Some(1_000))).0, 100, "no report spends a budget");
    for protocol in [Protocol::Anthropic, Protocol::Responses] {
        assert_eq!(amounts(&searched(searching(None, true), protocol, None)), (0, 0, 0), "answers show every search");
    }
    assert_eq!(amounts(&searched(searching(None, false), Protocol::OpenAi, None)).0, 1, "nothing is reported");
    assert_eq!(amounts(&searched(searching(None, true), Protocol::OpenAi, None)).0, 0, "the search is not sent to it");
    assert_eq!(amounts(&searched(searching(None, false), Protocol::Gemini, Some(0))).0, 0);
    assert_eq!(amounts(&searched(bounds(), Protocol::Anthropic, Some(3))).0, 0, "the request has asked for none");
}

#[test]
fn compaction_output_above_the_output_limit_is_billed() {
    let mut row = model("m");
    row.spec.max_output = Some(4_000);
    let mut asked = tollgate_protocol::RequestSummary { text_bytes: 400, max_output: Some(5), ..summary("m", Method::Chat) };
    let billed = |asked: &tollgate_protocol::RequestSummary| {
        let bounds = UsageBounds::of_input(asked).with_output(asked, &row, 5).limited_to(5);
        let answered = attempt(AttemptResult::Answered, Some(reply_summary(2, Some(usage(400, 3_505)))));
        settle(RequestFacts { bounds, ..bounded(Outcome::Completed, answered) }).tokens.output
    };
    assert!(billed(&asked) < 100);
    asked.extras.unseen.compaction = true;
    assert_eq!(billed(&asked), 3_505);
}

#[test]
fn input_not_in_the_body_is_billed_up_to_the_context_size() {
    let mut row = model("m");
    let mut asked = tollgate_protocol::RequestSummary { text_bytes: 400, max_output: Some(5), ..summary("m", Method::Chat) };
    asked.extras.unseen.tools = true;
    let billed = |bounds: UsageBounds, reported: u64| {
        let answered = attempt(AttemptResult::Answered, Some(reply_summary(2, Some(usage(reported, 5)))));
        settle(RequestFacts { bounds, ..bounded(Outcome::Completed, answered) })
    };
    let unknown = UsageBounds::of_input(&asked).with_output(&asked, &row, 5);
    assert_eq!(billed(unknown, 3_000_000).tokens.input, 3_000_000, "the model states no context");
    row.spec.context = Some(100_000);
    let known = UsageBounds::of_input(&asked).with_output(&asked, &row, 5);
    assert_eq!((billed(known, 100_000).tokens.input, billed(known, 100_000).reason), (100_000, None));
    let excess = billed(known, 3_000_000);
    assert!(excess.tokens.input < 106_000, "{:?}", excess.tokens);
    assert_eq!(excess.reason.as_deref(), Some("usage_excess"));
}

#[test]
fn image_by_url_is_billed_up_to_the_maximum_of_an_image() {
    let asked = tollgate_protocol::RequestSummary { text_bytes: 400, images: 1, max_output: Some(5), ..summary("m", Method::Chat) };
    let bounds = UsageBounds::of_input(&asked).with_output(&asked, &model("m"), 5);
    let answered = attempt(AttemptResult::Answered, Some(reply_summary(2, Some(usage(3_000_000, 5)))));
    let record = settle(RequestFacts { bounds, ..bounded(Outcome::Completed, answered) });
    assert!(record.tokens.input < 60_000, "{:?}", record.tokens);
}

#[test]
fn usage_that_is_possible_is_billed_as_reported() {
    for reported in [usage(100, 5), usage(400 + 2_000, 5), usage(100, 20)] {
        let answered = attempt(AttemptResult::Answered, Some(reply_summary(2, Some(reported))));
        let record = settle(bounded(Outcome::Completed, answered));
        assert_eq!((record.tokens.output, record.reason), (reported.completion_total, None));
    }
    let thought = Usage { reasoning: 20_000, ..usage(100, 20_005) };
    let record = settle(bounded(Outcome::Completed, thinking(AttemptResult::Answered, Some(reply_summary(2, Some(thought))))));
    assert_eq!((record.tokens.output, record.tokens.thinking, record.reason), (5, 20_000, None));
    let shown = reply_summary(300, Some(usage(100, 300)));
    let record = settle(bounded(Outcome::Completed, attempt(AttemptResult::Answered, Some(shown))));
    assert_eq!((record.tokens.output, record.reason), (300, None), "delivered content counts, whatever the limit");
}

#[test]
fn implausible_usage_is_marked() {
    let record = settle(bounded(
        Outcome::Completed,
        attempt(AttemptResult::Answered, Some(reply_summary(2, Some(usage(100, 2_000_000_000))))),
    ));
    assert_eq!((record.tokens.output, record.reason.as_deref()), (2, Some("usage_excess")));
}

#[test]
fn caller_leaving_after_the_finish_pays_the_reported_usage() {
    let finished = ReplySummary { finish: Some(FinishReason::Stop), ..reply_summary(68, Some(usage(100, 5_000))) };
    let record = settle(long(Outcome::CallerLeft, attempt(AttemptResult::Cancelled, Some(finished))));
    assert_eq!((record.tokens.output, record.tokens.source), (5_000, Reported));
    assert_eq!(record.attempts[0].tokens.output, 5_000);
}

#[test]
fn abandoned_answer_of_a_thinking_model_is_charged_for_possible_thinking() {
    let left = |seconds: u64| {
        let mut attempt = thinking(AttemptResult::Cancelled, Some(reply_summary(2, None)));
        attempt.duration_us = seconds * 1_000_000;
        settle(long(Outcome::CallerLeft, attempt))
    };
    let record = left(60);
    assert_eq!((record.tokens.output, record.tokens.thinking, record.tokens.source), (2, 4_998, Estimated));
    assert_eq!((record.attempts[0].tokens.output, record.attempts[0].tokens.thinking), (2, 4_998));
    assert_eq!(left(1).tokens.completion(), 1_000, "no more than it can have thought by then");
    let mut silent = long(Outcome::CallerLeft, thinking(AttemptResult::Cancelled, None));
    (silent.delivered, silent.stream) = (DeliveredContent::default(), false);
    let record = settle(silent);
    assert_eq!((record.tokens.thinking, record.attempts[0].tokens.thinking), (5_000, 5_000));
}

#[test]
fn reported_thinking_is_charged_when_the_caller_leaves() {
    let reported = Usage { reasoning: 700, ..usage(100, 701) };
    let record = settle(long(Outcome::CallerLeft, thinking(AttemptResult::Cancelled, Some(reply_summary(2, Some(reported))))));
    assert_eq!((record.tokens.completion(), record.tokens.thinking), (701, 700));
    assert_eq!(record.attempts[0].tokens.completion(), 702, "what was delivered and the known thinking");
}

#[test]
fn abandoned_non_streamed_answer_is_charged_its_estimated_output() {
    let mut attempt = attempt(AttemptResult::Cancelled, None);
    attempt.duration_us = 3_000_000;
    let mut facts = long(Outcome::CallerLeft, attempt);
    (facts.delivered, facts.stream) = (DeliveredContent::default(), false);
    let record = settle(facts.clone());
    assert_eq!((record.attempts[0].tokens.output, record.attempts[0].tokens.source), (300, Estimated));
    assert_eq!((record.tokens.input, record.tokens.output, record.tokens.source), (100, 300, Estimated));
    facts.group = Some(Arc::new(Group { stream_break: StreamBreak::NoneIfEmpty, ..group("default", &["c"]) }));
    assert_eq!(settle(facts).tokens, Tokens::default(), "the group gives it away");
}

#[test]
fn cache_writes_kept_for_an_hour_have_their_own_price() {
    let reported = Usage { cache_write: 40, cache_write_1h: 30, ..usage(100, 10) };
    let answered = attempt(AttemptResult::Answered, Some(reply_summary(10, Some(reported))));
    let sold = |list: Price| {
        let facts = facts(Outcome::Completed, StreamBreak::Delivered, vec![answered.clone()]);
        settle(RequestFacts { sale: Some(list.into()), ..facts }).sale
    };
    let both = Price { cache_write: Some(1_250_000_000), cache_write_1h: Some(2_000_000_000), ..sale() };
    assert_eq!(sold(both), Some(NanoUsd(60 * 1_000 + 10 * 1_250 + 30 * 2_000 + 10 * 2_000)));
    let one = Price { cache_write: Some(1_250_000_000), ..sale() };
    assert_eq!(sold(one), Some(NanoUsd(60 * 1_000 + 40 * 1_250 + 10 * 2_000)));
}
