//! What alerts tell, in the reader's language, out of their facts.

use serde_json::Value;

use super::{format, locale::Locale, money, price_text, strip};

/// What an alert has found, as a sentence without its end. An alert whose facts are not there, such as one of an older version, is told
/// in the words of the gateway.
pub(crate) fn sentence(t: Locale, rule: &str, detail: &Value, node: &str, text: &str) -> String {
    said(t, rule, detail, node).unwrap_or_else(|| capital(text))
}

fn said(t: Locale, rule: &str, detail: &Value, node: &str) -> Option<String> {
    let fact = |name: &str| detail.get(name).and_then(Value::as_str);
    let usd = |name: &str| fact(name).map(|amount| money::exact(t, amount).with_title());
    let count = |name: &str| fact(name)?.parse().ok().map(format::integer);
    let time = |name: &str| format::time(t, fact(name)?).map(|at| at.text);
    Some(match rule {
        "budget" => {
            let whose = whose(t, fact("of")?, fact("name")?)?;
            let values = [("whose", whose.as_str()), ("percent", fact("percent")?), ("window", window(t, fact("window")?)?)];
            let (amount, spent) = (usd("amount")?, usd("spent")?);
            let values: Vec<(&str, &str)> = values.into_iter().chain([("amount", amount.as_str()), ("spent", &spent)]).collect();
            t.say_with("alert.budget", &values)
        }
        "balance_low" => {
            let (balance, least) = (usd("balance")?, usd("least")?);
            t.say_with("alert.balance_low", &[("name", fact("name")?), ("balance", &balance), ("least", &least)])
        }
        "channel_down" => {
            let (reason, since) = (strip::reason(t, fact("reason")?), time("since")?);
            t.say_with("alert.channel_down", &[("name", fact("name")?), ("reason", &reason), ("since", &since)])
        }
        "error_share" => {
            let (requests, failed) = (count("requests")?, count("failed")?);
            t.say_with("alert.error_share", &[("name", fact("name")?), ("requests", &requests), ("failed", &failed)])
        }
        "negative_margin" => {
            let (kind, sale, cost) = (price_text::label(t, fact("kind")?), usd("sale")?, usd("cost")?);
            let (group, model, channel) = (fact("group")?, fact("model")?, fact("channel")?);
            let values =
                [("group", group), ("model", model), ("channel", channel), ("kind", kind), ("sale", &sale), ("cost", &cost)];
            t.say_with("alert.negative_margin", &values)
        }
        "unpriced_model" => t.say_with("alert.unpriced_model", &[("model", fact("model")?)]),
        "journal_growing" => {
            let (records, bytes) = (count("records")?, count("bytes")?);
            t.say_with("alert.journal_growing", &[("records", &records), ("bytes", &bytes), ("node", node)])
        }
        "certificate_expiring" => {
            let at = time("expires_at")?;
            t.say_with("alert.certificate_expiring", &[("file", fact("file")?), ("node", node), ("at", &at)])
        }
        "key_expiring" => {
            let (name, at) = (fact("name")?, time("expires_at")?);
            let values = [("name", name), ("at", at.as_str())];
            if fact("id")?.starts_with("adm_") {
                t.say_with("alert.admin_key_expiring", &values)
            } else {
                t.say_with("alert.key_expiring", &values)
            }
        }
        "sold_below_cost" => {
            let (sale, cost) = (usd("sale")?, usd("cost")?);
            let values = [("model", fact("model")?), ("group", fact("group")?), ("sale", &sale), ("cost", &cost)];
            t.say_with("alert.sold_below_cost", &values)
        }
        "usage_excess" => {
            let tokens = count("tokens")?;
            t.say_with("alert.usage_excess", &[("channel", fact("channel")?), ("model", fact("model")?), ("tokens", &tokens)])
        }
        "clock_skew" => {
            let skew: i64 = fact("skew_s")?.parse().ok()?;
            let seconds = format::integer(skew.unsigned_abs());
            let values = [("node", node), ("seconds", seconds.as_str())];
            if skew > 0 { t.say_with("alert.clock_ahead", &values) } else { t.say_with("alert.clock_behind", &values) }
        }
        _ => return None,
    })
}

fn whose(t: Locale, of: &str, name: &str) -> Option<String> {
    let values = [("name", name)];
    Some(match of {
        "key" => t.say_with("alert.of_key", &values),
        "member" => t.say_with("alert.of_member", &values),
        "group" => t.say_with("alert.of_group", &values),
        "channel" => t.say_with("alert.of_channel", &values),
        "gateway" => t.say("alert.of_gateway").to_owned(),
        _ => return None,
    })
}

fn window(t: Locale, word: &str) -> Option<&'static str> {
    Some(match word {
        "day" => t.say("window.day"),
        "month" => t.say("window.month"),
        "total" => t.say("window.total"),
        _ => return None,
    })
}

/// What raises the alerts of a rule; `doc`: in the words of the admin API, for a rule that is not known here.
pub(crate) fn rule(t: Locale, rule: &str, doc: &str) -> String {
    let text = match rule {
        "budget" => t.say("alert.rule.budget"),
        "balance_low" => t.say("alert.rule.balance_low"),
        "channel_down" => t.say("alert.rule.channel_down"),
        "error_share" => t.say("alert.rule.error_share"),
        "negative_margin" => t.say("alert.rule.negative_margin"),
        "unpriced_model" => t.say("alert.rule.unpriced_model"),
        "journal_growing" => t.say("alert.rule.journal_growing"),
        "certificate_expiring" => t.say("alert.rule.certificate_expiring"),
        "key_expiring" => t.say("alert.rule.key_expiring"),
        "sold_below_cost" => t.say("alert.rule.sold_below_cost"),
        "usage_excess" => t.say("alert.rule.usage_excess"),
        "clock_skew" => t.say("alert.rule.clock_skew"),
        _ => doc,
    };
    text.to_owned()
}

/// The text with a capital letter first.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};
    use tollgate_core::{
        AlertCondition, AlertRule, Budget, BudgetAction, ErrorCounts, ExpiringKey, LowBalance, MemberId, NanoUsd, Subject,
        Timestamp, Window, balance_conditions, budget_condition, certificate_condition, error_condition, journal_condition,
        key_conditions,
    };

    use super::*;

    const NOW: Timestamp = Timestamp(1_795_000_000_000_000);

    fn shown(t: Locale, condition: &AlertCondition) -> String {
        let detail: Map<String, Value> =
            condition.detail.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into())).collect();
        said(t, condition.rule.as_str(), &detail.into(), "n1").unwrap_or_else(|| panic!("{condition:?} is not told"))
    }

    /// Facts that core gives are enough for each sentence.
    #[test]
    fn conditions_are_told_in_the_readers_language() {
        let budget = Budget { amount: NanoUsd(10_000_000_000), window: Window::Month, action: BudgetAction::Block };
        let of_gateway = budget_condition(&Subject::Gateway, "", &budget, NanoUsd(8_000_000_000), 80, NOW);
        assert_eq!(shown(Locale::EN, &of_gateway), "The gateway has spent 80 % of its budget of $10.00 per UTC month: $8.00");
        let low = LowBalance { member: MemberId::from_parts(NOW, [1; 10]), name: "lab".to_owned(), balance: NanoUsd(5) };
        let key = |id: &str| ExpiringKey { id: id.to_owned(), name: "ci".to_owned(), expires_at: NOW.plus_ms(1_000) };
        let mut found = balance_conditions([low].into_iter(), NanoUsd(1_000_000_000));
        found.extend(key_conditions([key("key_1"), key("adm_1")].into_iter(), 14, NOW));
        found.extend(error_condition("chn_1", "main", ErrorCounts { requests: 20, failed: 12 }, 50, 20));
        found.extend(journal_condition("n1", 5_000, 12, 1_000));
        found.extend(certificate_condition("n1", "c.pem", NOW, 14, NOW));
        found.push(of_gateway);
        assert_eq!(found.len(), 7);
        for condition in &found {
            let (english, chinese) = (shown(Locale::EN, condition), shown(Locale::ZH_CN, condition));
            assert!(english.starts_with(|first: char| first.is_uppercase() || first.is_numeric()), "{english}");
            assert!(english != chinese && !english.contains('{') && !chinese.contains("  "), "{english}: {chinese}");
        }
    }

    #[test]
    fn alert_without_its_facts_is_told_as_the_gateway_did() {
        let told =
            |rule: &str, detail: Value| sentence(Locale::ZH_CN, rule, &detail, "n", "the model m is served and has no price");
        assert_eq!(told("unpriced_model", json!({})), "The model m is served and has no price");
        assert_eq!(told("of_tomorrow", json!({"model": "m"})), "The model m is served and has no price");
        assert!(told("unpriced_model", json!({"model": "m"})).contains("没有价格"));
        assert_eq!(capital(""), "");
    }

    #[test]
    fn every_rule_is_described() {
        for known in AlertRule::ALL {
            for t in [Locale::EN, Locale::ZH_CN] {
                assert_ne!(rule(t, known.as_str(), "?"), "?", "{known:?}");
            }
            assert_eq!(rule(Locale::EN, known.as_str(), ""), known.doc(), "{known:?}");
        }
    }
}
