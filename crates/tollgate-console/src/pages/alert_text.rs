//! Texts of alerts in the reader's language, made from their facts.

use serde_json::Value;
use tollgate_core::NanoUsd;

use super::{channels::state::path, format, locale::Locale, models::path_of_name, money, price_text, pricing::model_query, strip};

/// The finding of an alert, as a sentence without its final period. An alert without facts, such as one of an older version, is shown
/// with the gateway's own text.
pub(crate) fn sentence(t: Locale, rule: &str, detail: &Value, node: &str, text: &str) -> String {
    said(t, rule, detail, node).unwrap_or_else(|| format::capital(text))
}

fn said(t: Locale, rule: &str, detail: &Value, node: &str) -> Option<String> {
    let fact = |name: &str| detail.get(name).and_then(Value::as_str);
    let usd = |name: &str| fact(name).map(|amount| money::rounded(t, amount).text);
    let count = |name: &str| fact(name)?.parse().ok().map(format::integer);
    let time = |name: &str| format::time(t, fact(name)?).map(|at| at.text);
    Some(match rule {
        "budget" => {
            let whose = whose(t, fact("of")?, fact("name")?)?;
            let values = [("whose", whose.as_str()), ("percent", fact("percent")?), ("window", window(t, fact("window")?)?)];
            let (amount, spent, share) = (usd("amount")?, usd("spent")?, share(fact("spent")?, fact("amount")?)?);
            let more = [("amount", amount.as_str()), ("spent", &spent), ("share", &share)];
            let values: Vec<(&str, &str)> = values.into_iter().chain(more).collect();
            t.say_with("alert.budget", &values)
        }
        "balance_low" => {
            let balance = money::rounded_down(t, fact("balance")?).text;
            let least = money::exact(t, fact("least")?).text;
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
            let (records, bytes) = (count("records")?, format::bytes(t, fact("bytes")?.parse().ok()?));
            t.say_with("alert.journal_growing", &[("records", &records), ("bytes", &bytes), ("node", node)])
        }
        "certificate_expiring" => {
            let at = time("expires_at")?;
            t.say_with("alert.certificate_expiring", &[("file", fact("file")?), ("node", node), ("at", &at)])
        }
        "key_expiring" => {
            let at = time("expires_at")?;
            key_expiring(t, fact("id")?, &[("name", fact("name")?), ("at", &at)])
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
        "export_late" => t.say_with("alert.export_late", &[("day", &format::day(t, fact("day")?)), ("fault", fact("fault")?)]),
        "backup_failed" => {
            let (since, fault) = (time("since")?, fact("fault")?);
            t.say_with("alert.backup_failed", &[("node", node), ("since", &since), ("fault", fault)])
        }
        _ => return None,
    })
}

fn key_expiring(t: Locale, id: &str, values: &[(&str, &str)]) -> String {
    if id.starts_with("adm_") { t.say_with("alert.admin_key_expiring", values) } else { t.say_with("alert.key_expiring", values) }
}

/// How much of a budget is spent, in whole percent. It may be above 100.
fn share(spent: &str, amount: &str) -> Option<String> {
    let nano = |decimal: &str| NanoUsd::parse(decimal).ok().and_then(|amount| u64::try_from(amount.0).ok());
    let (spent, amount) = (nano(spent)?, nano(amount)?);
    let percent = u128::from(spent) * 100 / u128::from(amount.max(1));
    Some(format::integer(u64::try_from(percent).unwrap_or(u64::MAX)))
}

/// Label and path of a link to the page of the alert's subject. `subject` begins with its kind and id.
pub(crate) fn link(t: Locale, rule: &str, subject: &str, detail: &Value) -> Option<(&'static str, String)> {
    let fact = |name: &str| detail.get(name).and_then(Value::as_str);
    let id = || subject.split(' ').nth(1);
    let of_channel = |name: &str| (t.say("overview.open_channel"), path(name));
    let of_price = |model: &str| (t.say("alert.open_price"), format!("/pricing/model?{}", model_query(model)));
    let of_member = |id: &str| (t.say("alert.open_member"), format!("/members/{id}"));
    let of_key = |id: &str| (t.say("alert.open_key"), format!("/keys/{id}"));
    Some(match rule {
        "budget" => match fact("of")? {
            "key" => of_key(id()?),
            "member" => of_member(id()?),
            "group" => (t.say("alert.open_group"), format!("/groups/{}", path_of_name(fact("name")?))),
            "channel" => of_channel(fact("name")?),
            _ => return None,
        },
        "balance_low" => of_member(id()?),
        "channel_down" | "error_share" => of_channel(fact("name")?),
        "usage_excess" => of_channel(fact("channel")?),
        "negative_margin" | "unpriced_model" | "sold_below_cost" => of_price(fact("model")?),
        "key_expiring" => of_key(fact("id").filter(|id| id.starts_with("key_"))?),
        "journal_growing" | "certificate_expiring" | "clock_skew" | "export_late" | "backup_failed" => {
            (t.say("alert.open_system"), "/system".to_owned())
        }
        _ => return None,
    })
}

/// The name of a rule in words.
pub(crate) fn name(t: Locale, rule: &str) -> String {
    let name = match rule {
        "budget" => t.say("alert.name.budget"),
        "balance_low" => t.say("alert.name.balance_low"),
        "channel_down" => t.say("alert.name.channel_down"),
        "error_share" => t.say("alert.name.error_share"),
        "negative_margin" => t.say("alert.name.negative_margin"),
        "unpriced_model" => t.say("alert.name.unpriced_model"),
        "journal_growing" => t.say("alert.name.journal_growing"),
        "certificate_expiring" => t.say("alert.name.certificate_expiring"),
        "key_expiring" => t.say("alert.name.key_expiring"),
        "sold_below_cost" => t.say("alert.name.sold_below_cost"),
        "usage_excess" => t.say("alert.name.usage_excess"),
        "clock_skew" => t.say("alert.name.clock_skew"),
        "export_late" => t.say("alert.name.export_late"),
        "backup_failed" => t.say("alert.name.backup_failed"),
        _ => return format::capital(&rule.replace('_', " ")),
    };
    name.to_owned()
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

/// Description of a rule. `doc` is the admin API's description, for rules that are unknown here.
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
        "export_late" => t.say("alert.rule.export_late"),
        "backup_failed" => t.say("alert.rule.backup_failed"),
        _ => doc,
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};
    use tollgate_core::{
        AlertCondition, AlertRule, Budget, BudgetAction, ErrorCounts, ExpiringKey, LowBalance, MemberId, NanoUsd, Subject,
        Timestamp, Window, backup_condition, balance_conditions, budget_condition, certificate_condition, error_condition,
        journal_condition, key_conditions,
    };

    use super::*;

    const NOW: Timestamp = Timestamp(1_795_000_000_000_000);

    fn shown(t: Locale, condition: &AlertCondition) -> String {
        let detail: Map<String, Value> =
            condition.detail.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into())).collect();
        said(t, condition.rule.as_str(), &detail.into(), "n1").unwrap_or_else(|| panic!("{condition:?} has no text"))
    }

    /// The facts that core records are sufficient for each sentence.
    #[test]
    fn alert_conditions_are_translated() {
        let budget = Budget { amount: NanoUsd(10_000_000_000), window: Window::Month, action: BudgetAction::Block };
        let of_gateway = budget_condition(&Subject::Gateway, "", &budget, NanoUsd(8_000_000_000), 80, NOW);
        let said = "The gateway has reached 80 % of its budget: $8.00 of $10.00 per UTC month (80 %)";
        assert_eq!(shown(Locale::EN, &of_gateway), said);
        let of_member = Subject::Member(MemberId::from_parts(NOW, [2; 10]));
        let past = budget_condition(&of_member, "lin", &budget, NanoUsd(9_323_694_643), 80, NOW);
        assert_eq!(shown(Locale::EN, &past), "Member lin has reached 80 % of its budget: $9.32 of $10.00 per UTC month (93 %)");
        let low = LowBalance { member: MemberId::from_parts(NOW, [1; 10]), name: "lab".to_owned(), balance: NanoUsd(5) };
        let key = |id: &str| ExpiringKey { id: id.to_owned(), name: "ci".to_owned(), expires_at: NOW.plus_ms(1_000) };
        let mut found = balance_conditions([low].into_iter(), NanoUsd(1_000_000_000));
        found.extend(key_conditions([key("key_1"), key("adm_1")].into_iter(), 14, NOW));
        found.extend(error_condition("chn_1", "main", ErrorCounts { requests: 20, failed: 12 }, 50, 20));
        found.extend(journal_condition("n1", 5_000, 12, 1_000));
        found.extend(certificate_condition("n1", "c.pem", NOW, 14, NOW));
        found.push(of_gateway);
        found.push(backup_condition("n1", NOW, "no space"));
        assert_eq!(found.len(), 8);
        for condition in &found {
            let (english, chinese) = (shown(Locale::EN, condition), shown(Locale::ZH_CN, condition));
            assert!(english.starts_with(|first: char| first.is_uppercase() || first.is_numeric()), "{english}");
            assert!(english != chinese && !english.contains('{') && !chinese.contains("  "), "{english}: {chinese}");
        }
    }

    #[test]
    fn alert_links_to_its_subject() {
        let to = |rule: &str, subject: &str, detail: Value| link(Locale::EN, rule, subject, &detail).map(|(_, path)| path);
        for (rule, subject, detail, path) in [
            ("budget", "member mbr_1 month 2026-11-01 42.00 80", json!({"of": "member", "name": "lin"}), Some("/members/mbr_1")),
            ("budget", "gateway month 2026-11-01 42.00 80", json!({"of": "gateway", "name": ""}), None),
            ("unpriced_model", "model a/b", json!({"model": "a/b"}), Some("/pricing/model?model=a%2Fb")),
            ("channel_down", "channel chn_1", json!({"name": "m 1"}), Some("/channels/m%201")),
            ("key_expiring", "key_1 2026", json!({"id": "key_1"}), Some("/keys/key_1")),
            ("key_expiring", "adm_1 2026", json!({"id": "adm_1"}), None),
            ("clock_skew", "node n1", json!({}), Some("/system")),
            ("of_tomorrow", "x", json!({}), None),
        ] {
            assert_eq!(to(rule, subject, detail).as_deref(), path, "{rule}");
        }
    }

    #[test]
    fn alert_without_details_falls_back_to_the_english_message() {
        let told =
            |rule: &str, detail: Value| sentence(Locale::ZH_CN, rule, &detail, "n", "the model m is served and has no price");
        assert_eq!(told("unpriced_model", json!({})), "The model m is served and has no price");
        assert_eq!(told("of_tomorrow", json!({"model": "m"})), "The model m is served and has no price");
        assert!(told("unpriced_model", json!({"model": "m"})).contains("没有价格"));
        assert_eq!(format::capital(""), "");
    }

    #[test]
    fn every_alert_rule_has_a_name_and_description() {
        for known in AlertRule::ALL {
            for t in [Locale::EN, Locale::ZH_CN] {
                assert_ne!(rule(t, known.as_str(), "?"), "?", "{known:?}");
                assert_ne!(name(t, known.as_str()), format::capital(&known.as_str().replace('_', " ")), "{known:?}");
            }
            assert_eq!(rule(Locale::EN, known.as_str(), ""), known.doc(), "{known:?}");
        }
    }
}
