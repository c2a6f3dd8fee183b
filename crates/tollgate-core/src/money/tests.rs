//! Decimal text is exact in both directions; price lists fall back and tier correctly.

use proptest::prelude::*;

use super::*;

fn check(text: &str, expected: Option<i64>) {
    assert_eq!(parse_usd(text).ok(), expected, "{text}");
}

#[test]
fn decimal_text_is_parsed_exactly() {
    check("0.25", Some(250_000_000));
    check("3", Some(3_000_000_000));
    check("0", Some(0));
    check("0.000000001", Some(1));
    check("9223372036.854775807", Some(i64::MAX));
    check(".5", Some(500_000_000));
    check("1.5000000000", Some(1_500_000_000));
    check("007", Some(7_000_000_000));
}

#[test]
fn invalid_amounts_are_rejected() {
    for bad in ["", ".", "1.", "-1", "+1", "1e3", "1_000", "1,5", " 1", "1 ", "NaN", "inf", "0x1", "１", "1.0000000001"] {
        check(bad, None);
    }
    check("9223372036.854775808", None);
    check("99999999999999999999", None);
}

#[test]
fn error_names_the_text_and_the_allowed_decimals() {
    let error = Multiplier::parse("1.2345678").unwrap_err();
    assert_eq!(error.to_string(), "not a decimal amount with at most 6 decimals: '1.2345678'");
    let large = NanoUsd::parse("99999999999999").unwrap_err();
    assert_eq!(large.to_string(), "'99999999999999' is too large; the most is 9223372036.854775807");
    for other in ["1e30", "99999999999999.", "1.0000000001", "", ".", "99999999999999.0000000001"] {
        assert!(NanoUsd::parse(other).unwrap_err().to_string().starts_with("not a decimal amount"), "{other}");
    }
    assert_eq!(NanoUsd::parse("-x").unwrap_err().text, "-x");
}

#[test]
fn amounts_are_formatted_exactly() {
    let shown = |nano| (NanoUsd(nano).to_decimal(), NanoUsd(nano).to_usd_string());
    assert_eq!(shown(50_000_000_000), ("50".to_owned(), "50.00".to_owned()));
    assert_eq!(shown(250_000_000), ("0.25".to_owned(), "0.25".to_owned()));
    assert_eq!(shown(2_500_000), ("0.0025".to_owned(), "0.0025".to_owned()));
    assert_eq!(shown(-1), ("-0.000000001".to_owned(), "-0.000000001".to_owned()));
    assert_eq!(NanoUsd(i64::MIN).to_decimal(), "-9223372036.854775808");
    assert_eq!(Multiplier(1_250_000).to_decimal(), "1.25");
    assert_eq!(NanoUsd(-1_500_000_000).to_string(), "-1.5");
}

#[test]
fn overflowing_sums_are_none() {
    assert_eq!(NanoUsd(1).checked_add(NanoUsd(2)), Some(NanoUsd(3)));
    assert_eq!(NanoUsd(i64::MAX).checked_add(NanoUsd(1)), None);
    assert_eq!(NanoUsd(i64::MIN).checked_sub(NanoUsd(1)), None);
}

#[test]
fn price_times_multiplier_rounds_half_up() {
    assert_eq!(Multiplier(500_000).times(3), 2);
    assert_eq!(Multiplier(1_250_000).times(2_000_000_000), 2_500_000_000);
    assert_eq!(Multiplier(i64::MAX).times(i64::MAX), i64::MAX);
}

fn list(input: i64, output: i64) -> Price {
    Price { input: Some(input), output: Some(output), ..Price::default() }
}

#[test]
fn missing_kinds_fall_back_to_input_and_output() {
    let rates = list(3, 7).rates(0);
    assert_eq!((rates.cache_read, rates.cache_write, rates.image, rates.audio, rates.thinking), (3, 3, 3, 3, 7));
    let stated = Price { cache_read: Some(1), thinking: Some(9), audio: Some(0), ..list(3, 7) }.rates(0);
    assert_eq!((stated.cache_read, stated.cache_write, stated.audio, stated.thinking), (1, 3, 0, 9));
    assert_eq!(Price { per_request: Some(5), ..Price::default() }.rates(0), Rates { per_request: 5, ..Rates::default() });
}

#[test]
fn highest_exceeded_tier_applies_to_the_whole_request() {
    let tier = |above, price| PriceTier { above, price };
    let price = Price {
        cache_read: Some(1),
        tiers: vec![tier(500, list(50, 70)), tier(200, Price { input: Some(20), ..Price::default() })],
        ..list(3, 7)
    };
    let at = |prompt| (price.rates(prompt).input, price.rates(prompt).output, price.rates(prompt).cache_read);
    assert_eq!(at(200), (3, 7, 1));
    assert_eq!(at(201), (20, 7, 1), "kinds a tier leaves out come from the base list");
    assert_eq!(at(501), (50, 70, 1));
    assert!(price.tier(501).tiers.is_empty());
    assert_eq!(price.tier(501).tier(0), price.tier(501));
}

#[test]
fn schedule_selects_the_latest_started_list() {
    let at = |from, input| ScheduledPrice { valid_from: from, price: list(input, input).into() };
    let schedule = PriceSchedule(vec![at(Some(Timestamp(20)), 2), at(None, 0), at(Some(Timestamp(10)), 1)]);
    let input = |now| schedule.at(Timestamp(now)).and_then(|price| price.input);
    assert_eq!((input(-5), input(9), input(10), input(19), input(20)), (Some(0), Some(0), Some(1), Some(1), Some(2)));
    assert_eq!(PriceSchedule::default().at(Timestamp(0)), None);
}

proptest! {
    #[test]
    fn formatted_amounts_round_trip(nano in any::<i64>()) {
        // The minimum has no positive counterpart to be parsed through.
        prop_assume!(nano != i64::MIN);
        prop_assert_eq!(NanoUsd::parse(&NanoUsd(nano).to_decimal()), Ok(NanoUsd(nano)));
        prop_assert_eq!(NanoUsd::parse(&NanoUsd(nano).to_usd_string()), Ok(NanoUsd(nano)));
    }

    #[test]
    fn formatted_multipliers_round_trip(millionths in 0..i64::MAX) {
        prop_assert_eq!(Multiplier::parse(&Multiplier(millionths).to_decimal()), Ok(Multiplier(millionths)));
    }

    #[test]
    fn any_text_is_parsed_or_rejected(text in "\\PC{0,30}") {
        if let Ok(nano) = parse_usd(&text) {
            prop_assert!(nano >= 0);
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'));
        }
    }
}
