//! Numbers, money and times as pages show them, in each language. Compact on the page, exact in a title.

use tollgate_core::{NanoUsd, Timestamp};

use super::locale::{Language, Locale};

/// A whole number with separated thousands.
pub(crate) fn integer(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The text with a capital letter first.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A number with three significant digits: 12.4k, in Chinese 1.24万.
pub(crate) fn compact(t: Locale, number: u64) -> String {
    let units: &[(u64, &str)] = match t.language {
        Language::En => &[(1_000_000_000, "B"), (1_000_000, "M"), (1_000, "k")],
        Language::ZhCn => &[(100_000_000, "亿"), (10_000, "万")],
    };
    match units.iter().find(|(unit, _)| number >= *unit) {
        None => integer(number),
        Some((unit, word)) => {
            let (whole, hundredths) = (number / unit, number % unit * 100 / unit);
            let text = match whole {
                0..10 => format!("{whole}.{hundredths:02}"),
                10..100 => format!("{whole}.{}", hundredths / 10),
                _ => integer(whole),
            };
            let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
            format!("{text}{word}")
        }
    }
}

/// A number of tokens, such as a context: powers of two in the usual short form, 65,536 as 64k.
pub(crate) fn tokens(t: Locale, number: u64) -> String {
    match number {
        1_048_576.. if number.is_power_of_two() => format!("{}M", number >> 20),
        1_024.. if number.is_power_of_two() => format!("{}k", number >> 10),
        _ => compact(t, number),
    }
}

/// An exact amount in USD, a decimal text, with separated thousands and at least two decimals: for titles. Pages show amounts as
/// [`super::money`] writes them.
pub(crate) fn usd(decimal: &str) -> String {
    let (sign, unsigned) = decimal.strip_prefix('-').map_or(("", decimal), |rest| ("−", rest));
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), integer);
    format!("{sign}${whole}.{}", with_cents(fraction.trim_end_matches('0')))
}

fn with_cents(fraction: &str) -> String {
    format!("{fraction:0<2}")
}

/// A share as a percentage with two decimals, never 100 unless it is complete.
pub(crate) fn percent(share: f64) -> String {
    let hundredths = (share * 10_000.0).floor() / 100.0;
    if hundredths >= 100.0 { "100 %".to_owned() } else { format!("{hundredths:.2} %") }
}

/// A time span in milliseconds.
pub(crate) fn milliseconds(t: Locale, ms: f64) -> String {
    match t.language {
        _ if ms < 1_000.0 => format!("{ms:.0} ms"),
        Language::En => format!("{:.2} s", ms / 1_000.0),
        Language::ZhCn => format!("{:.2} 秒", ms / 1_000.0),
    }
}

/// A time span in microseconds.
#[expect(clippy::cast_precision_loss, reason = "a span that is shown needs no exact figures")]
pub(crate) fn micros(t: Locale, us: u64) -> String {
    if us < 10_000 { format!("{:.2} ms", us as f64 / 1e3) } else { milliseconds(t, us as f64 / 1e3) }
}

/// A percentile of time spans, which is known up to an eighth: two significant digits.
#[expect(clippy::cast_precision_loss, reason = "a span that is shown needs no exact figures")]
pub(crate) fn percentile(t: Locale, us: u64) -> String {
    let mut unit = 1;
    while us / unit >= 100 {
        unit *= 10;
    }
    let us = us.saturating_add(unit / 2) / unit * unit;
    let (number, unit) = if us < 1_000_000 { (us as f64 / 1e3, "ms") } else { (us as f64 / 1e6, t.choose("s", "秒")) };
    match number {
        1.0..10.0 => format!("{number:.1} {unit}"),
        _ if us > 0 && us < 1_000 => format!("{number:.2} {unit}"),
        _ => format!("{number:.0} {unit}"),
    }
}

/// The same of milliseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a span of time is not negative, and within a number")]
pub(crate) fn percentile_ms(t: Locale, ms: f64) -> String {
    percentile(t, (ms * 1e3) as u64)
}

/// A share of a number as a percentage; a dash if the number is 0.
#[expect(clippy::cast_precision_loss, reason = "a percentage needs no exact figures")]
pub(crate) fn ratio(part: u64, whole: u64) -> String {
    if whole == 0 { "–".to_owned() } else { percent(part as f64 / whole as f64) }
}

/// A time span beside the lines of a chart, without needless fractions.
#[expect(clippy::cast_precision_loss, reason = "a span that is shown needs no exact figures")]
pub(crate) fn micros_short(t: Locale, us: u64) -> String {
    match us {
        0 => "0".to_owned(),
        1..1_000 => format!("{}.{:02} ms", us / 1_000, us % 1_000 / 10),
        1_000..1_000_000 => milliseconds(t, (us / 1_000) as f64),
        _ => {
            let tenths = us / 100_000;
            let number =
                if tenths.is_multiple_of(10) { (tenths / 10).to_string() } else { format!("{}.{}", tenths / 10, tenths % 10) };
            format!("{number} {}", t.choose("s", "秒"))
        }
    }
}

/// The value of a setting in the largest unit that it is a whole number of: 600000 ms as 10 min. Other values have the unit as it is.
pub(crate) fn with_unit(t: Locale, value: &str, unit: &str) -> String {
    if value.contains(',') {
        let each: Vec<String> = value.split(',').map(|one| with_unit(t, one.trim(), unit)).collect();
        return each.join(t.say("list.separator"));
    }
    let Ok(number) = value.parse::<u64>() else { return format!("{value} {unit}") };
    let whole = |of: u64| (number > 0 && number.is_multiple_of(of)).then_some(number / of);
    let of_second = match unit {
        "ms" => 1_000,
        "s" => 1,
        _ => 0,
    };
    if of_second > 0 {
        match (whole(86_400 * of_second), whole(3_600 * of_second), whole(60 * of_second)) {
            (Some(1), ..) => return t.say("unit.day").to_owned(),
            (Some(days), ..) => return t.say_with("unit.days", &[("count", &integer(days))]),
            (None, Some(hours), _) => return t.say_with("unit.hours", &[("count", &integer(hours))]),
            (None, None, Some(minutes)) => return t.say_with("unit.minutes", &[("count", &integer(minutes))]),
            (None, None, None) => {}
        }
    }
    match unit {
        "ms" if number > 0 && number.is_multiple_of(1_000) => format!("{} {}", integer(number / 1_000), t.choose("s", "秒")),
        "ms" => format!("{} {}", integer(number), t.choose("ms", "毫秒")),
        "s" => format!("{} {}", integer(number), t.choose("s", "秒")),
        "bytes" => {
            match [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")].iter().find_map(|(of, unit)| Some((whole(*of)?, unit))) {
                Some((count, unit)) => format!("{} {unit}", integer(count)),
                None => t.say_with("unit.bytes", &[("count", &integer(number))]),
            }
        }
        "days" if number == 1 => t.say("unit.day").to_owned(),
        "days" => t.say_with("unit.days", &[("count", &integer(number))]),
        "%" => format!("{number} %"),
        "per hour" => t.say_with("unit.per_hour", &[("count", &integer(number))]),
        "per minute" => t.say_with("unit.per_minute", &[("count", &integer(number))]),
        _ => format!("{} {unit}", integer(number)),
    }
}

/// Bytes in the largest unit of which there is one, with one decimal.
pub(crate) fn bytes(t: Locale, bytes: u64) -> String {
    if bytes < 1_024 { t.say_with("unit.bytes", &[("count", &integer(bytes))]) } else { tollgate_core::size_text(bytes) }
}

/// A share of a number with one decimal; a dash if the number is 0.
pub(crate) fn ratio_short(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let tenths = rounded_share(part, whole, 1_000);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

/// A failure rate as a percentage with two decimals; a dash if `whole` is 0. Rounded, but never to 0 % or 100 % unless it is exact.
pub(crate) fn ratio_of_failed(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let hundredths = rounded_share(part, whole, 10_000).max(u128::from(part > 0));
    if hundredths == 10_000 { "100 %".to_owned() } else { format!("{}.{:02} %", hundredths / 100, hundredths % 100) }
}

/// A share in parts of `scale`, rounded; the maximum only if it is exact.
fn rounded_share(part: u64, whole: u64, scale: u128) -> u128 {
    let (part, whole) = (u128::from(part), u128::from(whole));
    let rounded = (2 * scale * part + whole) / (2 * whole);
    if part < whole { rounded.min(scale - 1) } else { rounded }
}

/// A point in time, as text and as `datetime` of a `<time>`, from which scripts show it in the browser's zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimeText {
    pub(crate) text: String,
    pub(crate) machine: String,
}

/// A point in time out of RFC 3339; `None` for other texts.
pub(crate) fn time(t: Locale, rfc3339: &str) -> Option<TimeText> {
    let at: jiff::Timestamp = rfc3339.parse().ok()?;
    let utc = at.to_zoned(jiff::tz::TimeZone::UTC);
    let text = utc.strftime(t.choose("%-d %b %Y, %H:%M UTC", "%Y年%-m月%-d日 %H:%M UTC")).to_string();
    Some(TimeText { text, machine: utc.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() })
}

/// The same to the second and without the year, for rows of a log.
pub(crate) fn second(t: Locale, rfc3339: &str) -> Option<TimeText> {
    let utc = rfc3339.parse::<jiff::Timestamp>().ok()?.to_zoned(jiff::tz::TimeZone::UTC);
    let text = utc.strftime(t.choose("%-d %b, %H:%M:%S UTC", "%-m月%-d日 %H:%M:%S UTC")).to_string();
    Some(TimeText { text, machine: utc.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() })
}

/// The same to the millisecond, so that callers can find a request in their own logs.
pub(crate) fn millisecond(t: Locale, rfc3339: &str) -> Option<TimeText> {
    let utc = rfc3339.parse::<jiff::Timestamp>().ok()?.to_zoned(jiff::tz::TimeZone::UTC);
    let text = utc.strftime(t.choose("%-d %b %Y, %H:%M:%S%.3f UTC", "%Y年%-m月%-d日 %H:%M:%S%.3f UTC")).to_string();
    Some(TimeText { text, machine: utc.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string() })
}

/// A UTC day, such as 2026-11-23.
pub(crate) fn day(t: Locale, date: &str) -> String {
    let Ok(date) = date.parse::<jiff::civil::Date>() else { return date.to_owned() };
    date.strftime(t.choose("%a %-d %b", "%-m月%-d日")).to_string()
}

/// The beginning of a typed UTC day, for the admin API, which refuses other texts.
pub(crate) fn begin_of_day(day: &str) -> String {
    format!("{day}T00:00:00Z")
}

/// The end of a typed UTC day, which is the beginning of the next one, for filters that include their last day.
pub(crate) fn end_of_day(day: &str) -> String {
    let next = day.parse::<jiff::civil::Date>().ok().and_then(|day| day.tomorrow().ok());
    next.map_or_else(|| begin_of_day(day), |next| begin_of_day(&next.to_string()))
}

/// The UTC day of a point in time in RFC 3339, for sentences. Elsewhere scripts show the day of a [`time`] in the reader's zone.
pub(crate) fn date(t: Locale, rfc3339: &str) -> Option<TimeText> {
    let utc = rfc3339.parse::<jiff::Timestamp>().ok()?.to_zoned(jiff::tz::TimeZone::UTC);
    let text = utc.strftime(t.choose("%-d %b %Y UTC", "%Y年%-m月%-d日 UTC")).to_string();
    Some(TimeText { text, machine: utc.strftime("%Y-%m-%d").to_string() })
}

/// Whether a time in RFC 3339 is the beginning of a UTC day.
pub(crate) fn is_midnight(rfc3339: &str) -> bool {
    rfc3339.ends_with("T00:00:00Z")
}

/// The time from which something is valid: the day, with the time of day unless it is the beginning of the day.
pub(crate) fn beginning(t: Locale, rfc3339: &str) -> Option<TimeText> {
    if is_midnight(rfc3339) { date(t, rfc3339) } else { time(t, rfc3339) }
}

/// Whole days until a point in time in RFC 3339; negative once it is over.
pub(crate) fn days_until(rfc3339: &str, now: Timestamp) -> Option<i64> {
    let at = Timestamp(rfc3339.parse::<jiff::Timestamp>().ok()?.as_microsecond());
    Some(at.ms_since(now).div_euclid(86_400_000))
}

/// The beginning of the UTC month.
pub(crate) fn month_begin(now: Timestamp) -> String {
    crate::time::rfc3339(Timestamp::of_month(now.month()))
}

/// How much of an amount is spent, in percent, at most 100. Only for the width of a meter.
pub(crate) fn share_of(spent: &str, amount: &str) -> u32 {
    let number = |text: &str| NanoUsd::parse(text).map_or(0, |amount| i128::from(amount.0.max(0)));
    let (spent, amount) = (number(spent), number(amount));
    if amount == 0 { 100 } else { u32::try_from((spent * 100 / amount).min(100)).unwrap_or(100) }
}

/// How long ago a point in time is.
pub(crate) fn ago(t: Locale, rfc3339: &str, now: Timestamp) -> String {
    let Ok(at) = rfc3339.parse::<jiff::Timestamp>() else { return String::new() };
    let minutes = u64::try_from(now.ms_since(Timestamp(at.as_microsecond())).max(0) / 60_000).unwrap_or(0);
    match minutes {
        0 => t.say("ago.now").to_owned(),
        1..60 => t.say_count("ago.minute", "ago.minutes", minutes),
        60..1_440 => t.say_count("ago.hour", "ago.hours", minutes / 60),
        _ => t.say_count("ago.day", "ago.days", minutes / 1_440),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_meter_is_clamped_to_0_and_100_percent() {
        for (spent, amount, expected) in [("0", "10", 0), ("2.5", "10", 25), ("11", "10", 100), ("-1", "10", 0), ("0", "0", 100)] {
            assert_eq!(share_of(spent, amount), expected, "{spent} of {amount}");
        }
    }

    #[test]
    fn days_until_are_counted_in_whole_utc_days() {
        let now = Timestamp(1_795_219_200_000_000);
        assert_eq!(month_begin(now).get(..10), Some("2026-11-01"));
        for (at, days) in [("2026-11-21T12:00:00Z", 0), ("2026-11-24T00:00:00Z", 3), ("2026-11-20T23:00:00Z", -1)] {
            assert_eq!(days_until(at, now), Some(days), "{at}");
        }
        assert_eq!(date(Locale::ZH_CN, "2026-11-03T23:00:00Z").unwrap().text, "2026年11月3日 UTC");
    }

    #[test]
    fn last_day_of_a_filter_is_included() {
        assert_eq!(
            (begin_of_day("2026-12-31").as_str(), end_of_day("2026-12-31").as_str()),
            ("2026-12-31T00:00:00Z", "2027-01-01T00:00:00Z")
        );
        assert_eq!(end_of_day("soon"), "soonT00:00:00Z");
    }

    #[test]
    fn numbers_are_grouped_and_shortened() {
        for (number, expected) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(integer(number), expected);
        }
        for (number, en, zh) in [
            (999, "999", "999"),
            (1_000, "1k", "1,000"),
            (12_480, "12.4k", "1.24万"),
            (128_000, "128k", "12.8万"),
            (1_048_576, "1.04M", "104万"),
            (2_500_000_000, "2.5B", "25亿"),
        ] {
            assert_eq!((compact(Locale::EN, number).as_str(), compact(Locale::ZH_CN, number).as_str()), (en, zh), "{number}");
        }
    }

    #[test]
    fn token_counts_are_shortened_to_common_names() {
        for (number, text) in
            [(8_192, "8k"), (65_536, "64k"), (1_048_576, "1M"), (128_000, "128k"), (200_000, "200k"), (512, "512")]
        {
            assert_eq!(tokens(Locale::EN, number), text);
        }
        assert_eq!([1_048_576, 200_000].map(|number| tokens(Locale::ZH_CN, number)), ["1M", "20万"]);
    }

    #[test]
    fn amount_in_usd_has_all_its_digits() {
        for (amount, exact) in [
            ("0", "$0.00"),
            ("2.5", "$2.50"),
            ("-1234.5", "−$1,234.50"),
            ("0.000000037", "$0.000000037"),
            ("1234567.891234", "$1,234,567.891234"),
        ] {
            assert_eq!(usd(amount), exact, "{amount}");
        }
    }

    #[test]
    fn setting_values_use_the_largest_exact_unit() {
        for (value, unit, shown) in [
            ("600000", "ms", "10 min"),
            ("1500", "ms", "1,500 ms"),
            ("5000", "ms", "5 s"),
            ("86400", "s", "1 day"),
            ("7776000", "s", "90 days"),
            ("0", "s", "0 s"),
            ("33554432", "bytes", "32 MiB"),
            ("1000", "bytes", "1,000 bytes"),
            ("600", "per minute", "600 per minute"),
            ("14", "days", "14 days"),
            ("50,80,100", "%", "50 %, 80 %, 100 %"),
            ("auto", "bytes", "auto bytes"),
        ] {
            assert_eq!(with_unit(Locale::EN, value, unit), shown, "{value} {unit}");
        }
        assert_eq!(with_unit(Locale::ZH_CN, "7200", "s"), "2 小时");
        assert_eq!(with_unit(Locale::ZH_CN, "14", "days"), "14 天");
        assert_eq!(
            [0, 1_023, 1_536, 268_435_456].map(|size| bytes(Locale::EN, size)),
            ["0 bytes", "1,023 bytes", "1.5 KiB", "256.0 MiB"]
        );
    }

    #[test]
    fn percentiles_have_two_significant_digits() {
        for (us, text) in [
            (655_360, "660 ms"),
            (13_631_000, "14 s"),
            (1_310_720, "1.3 s"),
            (9_960_000, "10 s"),
            (5_242, "5.2 ms"),
            (312, "0.31 ms"),
            (0, "0 ms"),
        ] {
            assert_eq!(percentile(Locale::EN, us), text, "{us}");
        }
        assert_eq!(percentile(Locale::ZH_CN, 1_310_720), "1.3 秒");
    }

    #[test]
    fn shares_below_100_percent_are_not_rounded_up_to_it() {
        let failed = [(0, 8), (1, 8), (1, 3), (2, 3), (1, 1_000_000), (999_999, 1_000_000), (8, 8), (0, 0)];
        assert_eq!(
            failed.map(|(part, whole)| ratio_of_failed(part, whole)),
            ["0.00 %", "12.50 %", "33.33 %", "66.67 %", "0.01 %", "99.99 %", "100 %", "–"]
        );
        let short = [(1, 3), (2, 3), (1, 800), (999, 1_000), (9_999, 10_000), (5, 5)];
        assert_eq!(
            short.map(|(part, whole)| ratio_short(part, whole)),
            ["33.3 %", "66.7 %", "0.1 %", "99.9 %", "99.9 %", "100.0 %"]
        );
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.999_99), "99.99 %");
        assert_eq!(percent(0.5), "50.00 %");
    }

    #[test]
    fn times_are_formatted_in_each_language() {
        let at = "2026-11-03T09:05:07.123456Z";
        assert_eq!(time(Locale::EN, at).unwrap().text, "3 Nov 2026, 09:05 UTC");
        assert_eq!(time(Locale::ZH_CN, at).unwrap().text, "2026年11月3日 09:05 UTC");
        assert_eq!(time(Locale::EN, at).unwrap().machine, "2026-11-03T09:05:07Z");
        assert_eq!(time(Locale::EN, "soon"), None);
        assert_eq!(beginning(Locale::EN, "2030-01-01T00:00:00Z").unwrap().text, "1 Jan 2030 UTC");
        assert_eq!(beginning(Locale::EN, "2030-01-01T08:00:00Z").unwrap().text, "1 Jan 2030, 08:00 UTC");
        let precise = "2026-11-03T09:05:07.204681Z";
        assert_eq!(second(Locale::EN, precise).unwrap().text, "3 Nov, 09:05:07 UTC");
        assert_eq!(second(Locale::ZH_CN, precise).unwrap().text, "11月3日 09:05:07 UTC");
        let exact = millisecond(Locale::EN, precise).unwrap();
        assert_eq!((&*exact.text, &*exact.machine), ("3 Nov 2026, 09:05:07.204 UTC", "2026-11-03T09:05:07.204Z"));
        assert_eq!(millisecond(Locale::ZH_CN, "2026-11-03T09:05:07Z").unwrap().text, "2026年11月3日 09:05:07.000 UTC");
        assert_eq!(day(Locale::ZH_CN, "2026-11-03"), "11月3日");
        assert_eq!(milliseconds(Locale::EN, 573.6), "574 ms");
        assert_eq!(milliseconds(Locale::ZH_CN, 1_710.0), "1.71 秒");
    }
}
