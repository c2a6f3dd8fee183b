//! Translates the router's English details of an explanation into the reader's language.

use tollgate_core::UnlistedAddress;

use crate::pages::{
    failure_text, format,
    locale::{Locale, fill},
    price_text, strip,
};

/// The detail of an excluded or planned account. Names of fields and addresses stay as they are.
pub(in crate::pages) fn say(t: Locale, code: &str, detail: &str) -> Option<String> {
    match code {
        // For these codes the remedy already has all details.
        "private_network" | "unpriced" => return None,
        "cannot_translate" | "capability" => return Some(detail.to_owned()),
        _ => {}
    }
    let parts: Vec<String> = detail.split("; ").map(|part| say_part(t, part)).collect();
    Some(parts.join(t.say("list.separator")))
}

/// The remaining part of a limit and the part that the request may need, such as `3 of 60 requests left this minute, the request may use
/// 2`.
fn bound(t: Locale, part: &str) -> Option<String> {
    let (left, needs) = match part.split_once(", the request may ") {
        Some((left, needs)) => (left, Some(needs.split_once(' ')?)),
        None => (part, None),
    };
    let (figures, what) = match left.split_once(" USD left") {
        Some((figures, period)) => (figures, period),
        None => left.match_indices(' ').nth(2).map(|(at, _)| (&left[..at], &left[at..]))?,
    };
    let (left, limit) = figures.split_once(" of ")?;
    let key = match (what.trim_start(), needs) {
        ("slots free", _) => t.say("explain.slots_left"),
        ("slots of the channel free", _) => t.say("explain.channel_slots_left"),
        ("requests of the channel left this minute", _) => t.say("explain.channel_requests_left"),
        ("tokens of the channel left this minute", _) => t.say("explain.channel_tokens_left"),
        ("requests left this minute", _) => t.say("explain.requests_left"),
        ("tokens left this minute", _) => t.say("explain.tokens_left"),
        ("today", _) => t.say("explain.day_left"),
        ("this month", _) => t.say("explain.month_left"),
        ("", _) => t.say("explain.budget_left"),
        _ => return None,
    };
    let said = fill(key, &[("left", left), ("limit", limit)]);
    Some(match needs {
        Some(("cost", amount)) => {
            format!("{said}{}{}", t.say("list.separator"), t.say_with("explain.may_cost", &[("amount", amount)]))
        }
        Some((_, count)) => format!("{said}{}{}", t.say("list.separator"), t.say_with("explain.may_use", &[("count", count)])),
        None => said,
    })
}

/// A time of the router as pages show times.
fn time(t: Locale, rfc3339: &str) -> String {
    format::time(t, rfc3339).map_or_else(|| rfc3339.to_owned(), |at| at.text)
}

fn say_part(t: Locale, part: &str) -> String {
    if let Some(said) = bound(t, part) {
        return said;
    }
    if let Some(why) = UnlistedAddress::ALL.into_iter().find(|why| why.as_str() == part) {
        return failure_text::of_address(t, why).to_owned();
    }
    if let Some(weight) = part.strip_prefix("recent failures: ").and_then(|rest| rest.strip_suffix(" of its weight")) {
        return t.say_with("explain.failures", &[("share", weight)]);
    }
    if let Some(figures) = part.strip_prefix("below cost: ") {
        return say_part(t, figures);
    }
    if let Some(protocol) = part.strip_prefix("speaks ") {
        return t.say_with("explain.speaks", &[("protocol", protocol)]);
    }
    if let Some(until) = part.strip_prefix("limit of the channel") {
        let parts = [
            Some(t.say("explain.of_channel").to_owned()),
            Some(until.trim_start()).filter(|it| !it.is_empty()).map(|it| say_part(t, it)),
        ];
        return parts.into_iter().flatten().collect::<Vec<_>>().join(" · ");
    }
    if let Some(until) = part.strip_prefix("until ") {
        return t.say_with("explain.until", &[("time", &time(t, until))]);
    }
    if let Some((reason, until)) = part.split_once(" until ") {
        let until = match until {
            "a test passes" => t.say("explain.until_test").to_owned(),
            at => t.say_with("explain.until", &[("time", &time(t, at))]),
        };
        return format!("{} · {until}", strip::reason(t, reason));
    }
    let words: Vec<&str> = part.split(' ').collect();
    match words.as_slice() {
        [on, kind, price, "above", "the", level, limit, "USD", ..] => {
            let text = if *on == "cost" { t.say("explain.cost_above") } else { t.say("explain.sale_above") };
            let of = match level.trim_end_matches("'s") {
                "group" => t.say("pricing.limit_of_group"),
                "key" => t.say("pricing.limit_of_key"),
                _ => t.say("pricing.limit_of_request"),
            };
            let (price, limit) = (format::usd(price), format::usd(limit));
            fill(text, &[("kind", price_text::label(t, kind)), ("price", &price), ("limit_of", of), ("limit", &limit)])
        }
        [kind, "sells", "for", sale, "and", "costs", cost, ..] => {
            t.say_with("explain.sells", &[("kind", price_text::label(t, kind)), ("sale", sale), ("cost", cost)])
        }
        [_] => strip::reason(t, part),
        _ => part.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::{CoolingReason, Exclusion, LimitLevel, PriceFigures, PriceKind, PriceLimitOn, RestingReason, Timestamp};

    use super::*;

    /// Uses the texts of the router itself, so that a change to one of them fails here.
    #[test]
    fn router_details_are_translated_to_chinese() {
        let figures = PriceFigures {
            level: LimitLevel::Group,
            on: PriceLimitOn::Sale,
            kind: PriceKind::Input,
            limit: 1_500_000_000,
            price: 2_000_000_000,
        };
        for (why, code) in [
            (Exclusion::Cooling { until: Timestamp(0), why: CoolingReason::RateLimited }, "cooling"),
            (Exclusion::Resting { until: None, why: RestingReason::Refused }, "resting"),
            (Exclusion::Rate { until: Timestamp(0) }, "rate"),
            (Exclusion::ChannelConcurrency, "concurrency"),
            (Exclusion::ChannelRate { until: Timestamp(0) }, "rate"),
            (Exclusion::PriceAboveLimit(figures), "price_above_limit"),
        ] {
            let said = say(Locale::ZH_CN, code, &why.detail().unwrap()).unwrap();
            let is_english = said.split(|c: char| !c.is_ascii_alphabetic()).any(|word| word.len() > 3);
            assert!(!is_english, "{said}");
        }
        for part in [
            "3 of 60 requests left this minute",
            "120 of 9000 tokens left this minute, the request may use 4096",
            "0 of 4 slots free",
            "0 of 4 slots of the channel free",
            "3 of 60 requests of the channel left this minute",
            "120 of 9000 tokens of the channel left this minute, the request may use 4096",
            "0.01 of 1.00 USD left today, the request may cost 0.25",
            "5.00 of 100.00 USD left this month",
            "5.00 of 100.00 USD left, the request may cost 6.00",
        ] {
            let said = say(Locale::ZH_CN, "rate", part).unwrap();
            let is_english =
                said.split(|c: char| !c.is_ascii_alphabetic()).any(|word| word.len() > 2 && !["USD", "token"].contains(&word));
            assert!(!is_english, "{said}");
            for figure in part.split([' ', ',']).filter(|word| word.starts_with(|c: char| c.is_ascii_digit())) {
                assert!(said.contains(figure), "{figure} is not in {said}");
            }
        }
        let above = say(Locale::EN, "price_above_limit", "sale output 9.50 above the group's 6.00 USD per 1M tokens");
        assert_eq!(above.as_deref(), Some("Output costs callers $9.50 per 1M tokens; the limit of the group is $6.00"));
        let below = say(Locale::ZH_CN, "below_cost", "output sells for 0.40 and costs 10.00 USD per 1M tokens").unwrap();
        assert!(!below.contains("sells") && below.contains("10.00"), "{below}");
        assert_eq!(say(Locale::ZH_CN, "capability", "top_k, seed").as_deref(), Some("top_k, seed"));
        assert_eq!(say(Locale::EN, "private_network", "the base URL is private"), None);
        assert!(say(Locale::EN, "cooling", "timeout until 2026-11-21T00:00:00Z").unwrap().contains("21 Nov 2026, 00:00 UTC"));
    }
}
