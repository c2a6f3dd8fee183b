//! Amounts are exact and rounded once; token kinds never overlap.

use proptest::prelude::*;
use tollgate_protocol::Method;

use super::*;
use crate::{
    ModelSpec, PriceTier,
    samples::{price, summary},
};

fn tokens(input: u64, output: u64) -> Tokens {
    Tokens { input, output, ..Tokens::default() }
}

#[test]
fn amount_is_tokens_times_price_per_million() {
    let check = |tokens: &Tokens, price: &Price, multiplier: &str| {
        amount(tokens, price, Multiplier::parse(multiplier).unwrap()).unwrap().to_decimal()
    };
    assert_eq!(check(&tokens(1_000_000, 0), &price("0.25", "2"), "1"), "0.25");
    assert_eq!(check(&tokens(1_000, 500), &price("0.25", "2"), "1"), "0.00125");
    assert_eq!(check(&tokens(1_000, 500), &price("0.25", "2"), "1.2"), "0.0015");
    assert_eq!(check(&tokens(7, 3), &Price::free(), "5"), "0");
    let per_request = Price { per_request: Some(10_000_000), ..price("0.25", "2") };
    assert_eq!(check(&Tokens::default(), &per_request, "1.5"), "0.015");
}

#[test]
fn every_kind_has_its_price() {
    let all = Tokens { input: 1, output: 1, cache_read: 1, cache_write: 1, thinking: 1, image: 1, audio: 1, ..Tokens::default() };
    let list = Price {
        input: Some(1_000_000),
        output: Some(2_000_000),
        cache_read: Some(4_000_000),
        cache_write: Some(8_000_000),
        thinking: Some(16_000_000),
        image: Some(32_000_000),
        audio: Some(64_000_000),
        per_request: Some(128),
        ..Price::default()
    };
    assert_eq!(amount(&all, &list, Multiplier::ONE), Some(NanoUsd(255)));
}

#[test]
fn amounts_are_rounded_once_half_up() {
    // Each kind alone is 0.4 nano-USD. Together they are 0.8, which rounds to 1 only if rounded once at the end.
    let list = Price { input: Some(400_000), output: Some(400_000), ..Price::default() };
    assert_eq!(amount(&tokens(1, 1), &list, Multiplier::ONE), Some(NanoUsd(1)));
    assert_eq!(amount(&tokens(1, 0), &list, Multiplier::ONE), Some(NanoUsd(0)));
    let half = Price { input: Some(500_000), ..Price::default() };
    assert_eq!(amount(&tokens(1, 0), &half, Multiplier::ONE), Some(NanoUsd(1)));
    assert_eq!(amount(&tokens(1, 0), &half, Multiplier(999_999)), Some(NanoUsd(0)));
}

#[test]
fn tier_depends_on_all_prompt_tokens() {
    let tier = PriceTier { above: 100, price: price("2", "4") };
    let list = Price { tiers: vec![tier], ..price("1", "2") };
    let cached = Tokens { input: 50, cache_read: 30, cache_write: 10, image: 5, audio: 5, ..Tokens::default() };
    let at = |tokens: &Tokens| amount(tokens, &list, Multiplier::ONE).unwrap().0;
    assert_eq!(at(&cached), 100_000);
    assert_eq!(at(&Tokens { audio: 6, ..cached }), 202_000);
    assert_eq!(at(&tokens(0, 1_000_000)), 2_000_000_000, "output does not count towards a tier");
}

#[test]
fn amounts_above_the_bound_are_none() {
    let max = Price { input: Some(NanoUsd::MAX_PER_REQUEST.0), ..Price::default() };
    assert_eq!(amount(&tokens(u64::MAX, 0), &max, Multiplier::ONE), None);
    assert_eq!(amount(&tokens(1_000_000, 0), &max, Multiplier::ONE), Some(NanoUsd::MAX_PER_REQUEST));
    assert_eq!(amount(&tokens(1_000_001, 0), &max, Multiplier::ONE), None);
    let all = Tokens { input: u64::MAX, output: u64::MAX, cache_read: u64::MAX, ..Tokens::default() };
    let list = Price { per_request: Some(i64::MAX), output: Some(i64::MAX), ..max };
    assert_eq!(amount(&all, &list, Multiplier(i64::MAX)), None);
}

#[test]
fn totals_are_split_into_disjoint_kinds() {
    let usage = Usage {
        prompt_total: 100,
        cached: 60,
        cache_write: 10,
        image: 5,
        audio: 3,
        completion_total: 50,
        reasoning: 20,
        ..Usage::default()
    };
    let expected = Tokens {
        input: 22,
        output: 30,
        cache_read: 60,
        cache_write: 10,
        cache_write_1h: 0,
        thinking: 20,
        image: 5,
        audio: 3,
        source: TokenSource::Provider,
        web_searches: 0,
    };
    assert_eq!(tokens_of(&usage, TokenSource::Provider), expected);
}

#[test]
fn parts_larger_than_their_total_are_capped() {
    let usage = Usage { prompt_total: 10, cached: 60, image: 5, completion_total: 1, reasoning: 20, ..Usage::default() };
    let tokens = tokens_of(&usage, TokenSource::Provider);
    assert_eq!((tokens.cache_read, tokens.input, tokens.image, tokens.thinking, tokens.output), (10, 0, 0, 1, 0));
}

#[test]
fn input_estimate_uses_the_upper_bounds() {
    let check = |change: fn(&mut RequestSummary), expected| {
        let mut summary = RequestSummary { text_bytes: 0, ..summary("m", Method::Chat) };
        change(&mut summary);
        assert_eq!(estimate_input(&summary), expected);
    };
    check(|_| {}, 0);
    check(|it| it.text_bytes = 11, 6);
    check(|it| it.turns = 2, 16);
    check(|it| it.images = 2, 3_200);
    check(|it| it.audio_bytes = 16_001, 96);
    check(|it| it.document_bytes = 4_001, 3);
}

#[test]
fn output_estimate_is_the_requested_limit_capped_by_the_models() {
    let bounded = Model { spec: ModelSpec { max_output: Some(1_000), ..ModelSpec::default() }, ..Model::default() };
    let requested = |max_output, candidates| RequestSummary { max_output, candidates, ..summary("m", Method::Chat) };
    assert_eq!(estimate_output(&requested(Some(50), 1), &bounded), 50);
    assert_eq!(estimate_output(&requested(Some(5_000), 1), &bounded), 1_000);
    assert_eq!(estimate_output(&requested(None, 3), &bounded), 3_000);
    assert_eq!(estimate_output(&requested(Some(0), 3), &bounded), 3_000, "some upstreams treat 0 as unlimited");
    assert_eq!(estimate_output(&requested(Some(0), 1), &Model::default()), 16_384);
    assert_eq!(estimate_output(&requested(None, 1), &Model::default()), 16_384);
    assert_eq!(estimate_output(&requested(Some(70_000), 2), &Model::default()), 140_000);
    assert_eq!(estimate_output(&summary("m", Method::CountTokens), &bounded), 0);
    assert_eq!(estimate_output(&summary("m", Method::Embeddings), &bounded), 0);
}

#[test]
fn input_count_uses_four_bytes_per_token_and_marks_estimates() {
    let text = RequestSummary { text_bytes: 41, ..summary("m", Method::Chat) };
    assert_eq!(count_input(&text), InputCount { tokens: 11, source: TokenSource::Counted });
    let image = RequestSummary { images: 1, ..text };
    assert_eq!(count_input(&image), InputCount { tokens: 1_611, source: TokenSource::Estimated });
}

#[test]
fn output_count_rounds_up_and_includes_media() {
    let count = |text_bytes, media| count_output(DeliveredContent { content: true, text_bytes, media, searches: None });
    assert_eq!((count(0, 0), count(1, 0), count(4, 0), count(5, 0), count(4, 1)), (0, 1, 1, 2, 1_601));
}

#[test]
fn combined_source_is_the_least_certain() {
    use TokenSource::{Counted, Estimated, None, Provider};
    assert_eq!(Provider.with(Counted), Counted);
    assert_eq!(Estimated.with(Provider), Estimated);
    assert_eq!(None.with(Provider), Provider);
    assert_eq!(None.with(None), None);
}

fn any_tokens() -> impl Strategy<Value = Tokens> {
    // Bounded so that amounts stay within one request's maximum at the highest prices and multipliers below.
    let count = 0u64..1_000_000;
    (count.clone(), count.clone(), count.clone(), count.clone(), count.clone(), count.clone(), count).prop_map(
        |(input, output, cache_read, cache_write, thinking, image, audio)| Tokens {
            input,
            output,
            cache_read,
            cache_write,
            cache_write_1h: 0,
            thinking,
            image,
            audio,
            source: TokenSource::Provider,
            web_searches: 0,
        },
    )
}

fn any_price() -> impl Strategy<Value = Price> {
    let kind = || proptest::option::of(0i64..100_000_000_000);
    (kind(), kind(), kind(), kind(), kind(), kind(), kind(), kind()).prop_map(
        |(input, output, cache_read, cache_write, thinking, image, audio, per_request)| Price {
            input,
            output,
            cache_read,
            cache_write,
            thinking,
            image,
            audio,
            per_request,
            ..Price::default()
        },
    )
}

proptest! {
    #[test]
    fn amounts_are_within_half_a_nano_of_the_exact_sum(tokens in any_tokens(), price in any_price(), multiplier in 0i64..10_000_000) {
        let rates = price.rates(0);
        // The exact sum in 10^-12 nano-USD, computed per kind.
        let exact: i128 = [
            (tokens.input, rates.input), (tokens.output, rates.output), (tokens.cache_read, rates.cache_read),
            (tokens.cache_write, rates.cache_write), (tokens.thinking, rates.thinking), (tokens.image, rates.image),
            (tokens.audio, rates.audio),
        ].into_iter().map(|(count, rate)| i128::from(count) * i128::from(rate) * i128::from(multiplier)).sum::<i128>()
            + i128::from(rates.per_request) * i128::from(multiplier) * 1_000_000;
        let scaled = i128::from(amount(&tokens, &price, Multiplier(multiplier)).unwrap().0) * 1_000_000_000_000;
        let off = scaled - exact;
        prop_assert!(-500_000_000_000 < off && off <= 500_000_000_000, "off by {off}");
    }

    #[test]
    fn more_tokens_or_a_larger_factor_never_cost_less(tokens in any_tokens(), more in any_tokens(), price in any_price(), multiplier in 0i64..5_000_000, raise in 0i64..5_000_000) {
        let sum = Tokens {
            input: tokens.input + more.input,
            output: tokens.output + more.output,
            cache_read: tokens.cache_read + more.cache_read,
            cache_write: tokens.cache_write + more.cache_write,
            cache_write_1h: 0,
            thinking: tokens.thinking + more.thinking,
            image: tokens.image + more.image,
            audio: tokens.audio + more.audio,
            source: TokenSource::Provider,
            web_searches: 0,
        };
        let base = amount(&tokens, &price, Multiplier(multiplier)).unwrap();
        prop_assert!(amount(&sum, &price, Multiplier(multiplier)).unwrap() >= base);
        prop_assert!(amount(&tokens, &price, Multiplier(multiplier + raise)).unwrap() >= base);
    }

    #[test]
    fn kinds_always_sum_up_to_the_totals(
        prompt_total in any::<u64>(), cached in any::<u64>(), cache_write in any::<u64>(), image in any::<u64>(),
        audio in any::<u64>(), completion_total in any::<u64>(), reasoning in any::<u64>(),
    ) {
        let usage = Usage { prompt_total, cached, cache_write, image, audio, completion_total, reasoning, ..Usage::default() };
        let tokens = tokens_of(&usage, TokenSource::Provider);
        prop_assert_eq!(tokens.prompt(), prompt_total);
        prop_assert_eq!(tokens.completion(), completion_total);
    }

    #[test]
    fn any_input_gives_an_amount_or_none(a in any::<u64>(), b in any::<u64>(), p in any::<i64>(), q in any::<i64>(), multiplier in any::<i64>()) {
        let list = Price { input: Some(p), output: Some(q), per_request: Some(p), ..Price::default() };
        let _ = amount(&tokens(a, b), &list, Multiplier(multiplier));
    }
}

#[test]
fn reported_tokens_are_those_of_a_record() {
    let usage = Usage { prompt_total: 10, cached: 4, completion_total: 5, reasoning: 2, ..Usage::default() };
    let tokens = reported_tokens(usage).unwrap();
    assert_eq!((tokens.prompt(), tokens.input, tokens.cache_read), (10, 6, 4));
    assert_eq!((tokens.completion(), tokens.thinking, tokens.source), (5, 2, TokenSource::Provider));
    assert_eq!(reported_tokens(Usage::default()), None, "zeros do not count as a report");
    assert_eq!(reported_tokens(Usage { prompt_total: MAX_PLAUSIBLE_TOKENS + 1, ..Usage::default() }), None);
}
