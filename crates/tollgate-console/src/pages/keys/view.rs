//! Keys as the admin API answers them, and as pages show them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use tollgate_core::Timestamp;
use tollgate_protocol::Protocol;

use crate::pages::{
    budgets,
    format::{self, TimeText},
    groups::{PriceLimitObject, price_limit_lines},
    locale::Locale,
    mark::{self, Mark},
    money::{self, Amount},
    protocols,
    spent_budget::{self, SpentGatewayBudget},
};

/// A key of the admin API.
#[derive(Debug, Deserialize)]
pub(in crate::pages) struct KeyObject {
    pub(in crate::pages) id: String,
    pub(in crate::pages) name: String,
    pub(in crate::pages) member: String,
    pub(super) prefix: String,
    pub(super) suffix: String,
    pub(in crate::pages) state: String,
    pub(in crate::pages) owner: String,
    pub(super) revision: u64,
    pub(super) groups: Vec<String>,
    pub(super) models: Vec<String>,
    pub(super) models_deny: Vec<String>,
    pub(super) protocols: Vec<String>,
    pub(super) ip_allow: Vec<String>,
    pub(super) expires_at: Option<String>,
    pub(super) rpm: u64,
    pub(super) tpm: u64,
    pub(super) concurrency: u64,
    /// One, a list, or null.
    pub(super) budget: Value,
    pub(super) previous_until: Option<String>,
    pub(super) created_at: String,
    pub(super) revoked_at: Option<String>,
    pub(super) price_limit: Option<PriceLimitObject>,
    pub(super) signatures_in_ids: Option<bool>,
    #[serde(default)]
    pub(super) log_contents: bool,
    pub(super) tags: BTreeMap<String, String>,
    /// Only in lists that ask for use.
    pub(super) month: Option<PeriodUse>,
    pub(super) today: Option<PeriodUse>,
    pub(super) last_used_at: Option<String>,
    pub(super) last_address: Option<String>,
    /// Group that keeps the member from changing the key; only in the answer about one key.
    pub(in crate::pages) locked_by: Option<String>,
}

/// A budget of a key: amount and window.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct KeyBudget {
    pub(super) amount: String,
    pub(super) window: String,
}

impl KeyObject {
    fn budgets(&self) -> Vec<KeyBudget> {
        let list = self.budget.as_array().map(Vec::as_slice);
        let entries = list.unwrap_or(std::slice::from_ref(&self.budget));
        entries.iter().filter_map(|entry| KeyBudget::deserialize(entry).ok()).collect()
    }

    /// Whether its requests may use a protocol.
    pub(super) fn may_speak(&self, protocol: Protocol) -> bool {
        self.protocols.is_empty() || self.protocols.iter().any(|word| word == protocol.as_str())
    }

    /// Whether the key is neither off nor expired: it works now, or when a budget renews.
    pub(super) fn is_active(&self) -> bool {
        matches!(self.state.as_str(), "active" | "exhausted")
    }

    /// The monthly budget.
    fn monthly(&self) -> Option<KeyBudget> {
        self.budgets().into_iter().find(|budget| budget.window == "month")
    }
}

/// Usage of a key in this UTC month, or on this UTC day.
#[derive(Debug, Deserialize)]
pub(super) struct PeriodUse {
    pub(super) requests: u64,
    pub(super) sale: String,
}

/// Restrictions on a key's requests, and values that are added to them.
#[derive(Debug, Deserialize)]
pub(super) struct Restrictions {
    protocols: Vec<String>,
    price_limit: Option<PriceLimitObject>,
    tags: BTreeMap<String, String>,
}

impl Restrictions {
    /// The names of the protocols it may be used with; empty: any.
    pub(super) fn protocols(&self, t: Locale) -> String {
        self.protocols.iter().map(|word| protocols::label(t, word)).collect::<Vec<_>>().join(t.say("list.separator"))
    }

    /// Its own price limit, one bound on a line.
    pub(super) fn price_limit(&self, t: Locale) -> Vec<String> {
        self.price_limit.as_ref().map(|limit| price_limit_lines(t, limit)).unwrap_or_default()
    }

    /// The tags of its requests.
    pub(super) fn tags(&self, t: Locale) -> String {
        tags_text(&self.tags, t.say("list.separator"))
    }
}

/// Tags as `name=value`, one after the other.
pub(super) fn tags_text(tags: &BTreeMap<String, String>, separator: &str) -> String {
    tags.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(separator)
}

/// Groups, models and limits of a key, and the rest of its budgets.
#[derive(Debug, Deserialize)]
pub(super) struct Allowance {
    pub(super) groups: Vec<String>,
    pub(super) models: Vec<String>,
    pub(super) budgets: Vec<BudgetLeft>,
    spent_gateway_budgets: Vec<SpentGatewayBudget>,
    balance: Option<String>,
    #[serde(flatten)]
    restrictions: Restrictions,
    #[serde(default)]
    pub(super) contents_stored: bool,
    limits: AllowedLimits,
    member_limits: AllowedLimits,
    group_limits: Vec<GroupLimits>,
}

impl Allowance {
    pub(super) fn balance(&self) -> Option<&str> {
        self.balance.as_deref()
    }

    pub(super) const fn restrictions(&self) -> &Restrictions {
        &self.restrictions
    }

    pub(super) const fn limits(&self) -> &AllowedLimits {
        &self.limits
    }

    pub(super) const fn member_limits(&self) -> &AllowedLimits {
        &self.member_limits
    }

    /// When each budget of the whole gateway renews that is spent; `None`: never.
    pub(super) fn gateway_renewals(&self, t: Locale) -> Vec<Option<TimeText>> {
        spent_budget::renewals(t, &self.spent_gateway_budgets)
    }

    /// The limits of groups, each with the label of the group.
    pub(super) fn group_limits(&self, t: Locale) -> Vec<(String, Vec<String>)> {
        let limits = self.group_limits.iter();
        limits.map(|of| (t.say_with("home.budget_of_group", &[("group", &of.group)]), limit_lines(t, &of.limits))).collect()
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct BudgetLeft {
    of: String,
    group: Option<String>,
    amount: String,
    window: String,
    action: String,
    spent: String,
    left: String,
    renews_at: Option<String>,
}

#[derive(Debug, Deserialize)]
struct GroupLimits {
    group: String,
    #[serde(flatten)]
    limits: AllowedLimits,
}

#[derive(Debug, Deserialize)]
pub(super) struct AllowedLimits {
    rpm: Option<u64>,
    tpm: Option<u64>,
    concurrency: Option<u64>,
}

/// A meter of an amount that is spent.
#[derive(Debug)]
pub(super) struct Meter {
    pub(super) percent: u32,
    /// Class of its bar.
    pub(super) class: &'static str,
    pub(super) label: String,
    /// The label with the exact amounts; empty if it has them.
    pub(super) exact: String,
}

impl Meter {
    fn of(t: Locale, spent: &str, amount: &str) -> Self {
        let percent = format::share_of(spent, amount);
        let class = match percent {
            100.. => "down",
            80.. => "part",
            _ => "fill",
        };
        let say = |spent: &str, amount: &str| t.say_with("home.spent_of", &[("spent", spent), ("amount", amount)]);
        let label = say(&money::rounded(t, spent).text, &money::rounded(t, amount).text);
        let exact = say(&money::exact(t, spent).with_title(), &money::exact(t, amount).with_title());
        Self { percent, class, exact: if exact == label { String::new() } else { exact }, label }
    }

    /// The same without the amounts.
    fn without_amounts(self, t: Locale) -> Self {
        Self { label: t.say_with("home.share_spent", &[("percent", &self.percent.to_string())]), exact: String::new(), ..self }
    }
}

/// A key in the list.
#[derive(Debug)]
pub(super) struct KeyRow {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) shown: String,
    pub(super) mark: Mark,
    pub(super) member: String,
    pub(super) groups: String,
    pub(super) spent: Amount,
    pub(super) budget: Option<String>,
    pub(super) meter: Option<Meter>,
    pub(super) requests: String,
    pub(super) today: String,
    pub(super) last_used: Option<LastUsed>,
    pub(super) expires: Option<Expiry>,
    pub(super) created: Option<TimeText>,
}

/// When a key was used last, and from where.
#[derive(Debug)]
pub(super) struct LastUsed {
    pub(super) at: TimeText,
    pub(super) ago: String,
    pub(super) address: Option<String>,
}

impl LastUsed {
    fn of(t: Locale, key: &KeyObject, now: Timestamp) -> Option<Self> {
        let at = key.last_used_at.as_deref()?;
        Some(Self { at: format::time(t, at)?, ago: format::ago(t, at, now), address: key.last_address.clone() })
    }
}

/// When a key ends.
#[derive(Debug)]
pub(in crate::pages) struct Expiry {
    pub(in crate::pages) at: TimeText,
    /// In the coming week.
    pub(in crate::pages) is_soon: bool,
    pub(in crate::pages) words: String,
}

impl Expiry {
    pub(in crate::pages) fn of(t: Locale, at: Option<&str>, now: Timestamp) -> Option<Self> {
        let (at, days) = (at?, format::days_until(at?, now)?);
        let words = match days {
            ..0 => t.say("key.expired").to_owned(),
            0 => t.say("keys.within_a_day").to_owned(),
            days => t.say_count("keys.in_day", "keys.in_days", u64::try_from(days).unwrap_or(0)),
        };
        Some(Self { at: format::time(t, at)?, is_soon: (0..7).contains(&days), words })
    }
}

/// The first and the last characters of a key.
fn shown(key: &KeyObject) -> String {
    format!("{}••••{}", key.prefix, key.suffix)
}

impl KeyRow {
    pub(super) fn of(t: Locale, key: &KeyObject, now: Timestamp) -> Self {
        let used = key.month.as_ref();
        let spent = used.map_or("0", |used| used.sale.as_str());
        let monthly = key.monthly();
        Self {
            id: key.id.clone(),
            name: key.name.clone(),
            shown: shown(key),
            mark: mark::of_key(t, &key.state),
            member: key.member.clone(),
            groups: key.groups.join(t.say("list.separator")),
            spent: money::short(t, spent),
            meter: monthly.as_ref().map(|budget| Meter::of(t, spent, &budget.amount)),
            budget: monthly.map(|budget| t.say_with("keys.of_budget", &[("amount", &money::exact(t, &budget.amount).text)])),
            requests: format::integer(used.map_or(0, |used| used.requests)),
            today: format::integer(key.today.as_ref().map_or(0, |used| used.requests)),
            last_used: LastUsed::of(t, key, now),
            expires: Expiry::of(t, key.expires_at.as_deref(), now),
            created: format::time(t, &key.created_at),
        }
    }
}

/// A budget and its remaining amount.
#[derive(Debug)]
pub(super) struct BudgetRow {
    pub(super) label: String,
    pub(super) left: String,
    pub(super) meter: Meter,
    pub(super) window: &'static str,
    pub(super) action: &'static str,
    pub(super) renews_at: Option<TimeText>,
}

impl BudgetRow {
    /// `sees_groups`: the reader may see the spending of a group. Others see only the percentage, because they share the group.
    pub(super) fn of(t: Locale, budget: &BudgetLeft, sees_groups: bool) -> Self {
        let (meter, is_share) = (Meter::of(t, &budget.spent, &budget.amount), budget.group.is_some() && !sees_groups);
        Self {
            label: match (budget.of.as_str(), &budget.group) {
                (_, Some(group)) => t.say_with("home.budget_of_group", &[("group", group)]),
                ("key", None) => t.say("keys.this_key").to_owned(),
                _ => t.say("home.budget_of_member").to_owned(),
            },
            left: if is_share {
                t.say_with("home.share_left", &[("percent", &100_u32.saturating_sub(meter.percent).to_string())])
            } else {
                t.say_with("home.left", &[("amount", &money::short(t, &budget.left).text)])
            },
            meter: if is_share { meter.without_amounts(t) } else { meter },
            window: budgets::window(t, &budget.window),
            action: budgets::action(t, &budget.action),
            renews_at: budget.renews_at.as_deref().and_then(|at| format::time(t, at)),
        }
    }
}

/// A key on its own page.
#[derive(Debug)]
pub(super) struct KeyDetail {
    pub(super) id: String,
    pub(super) shown: String,
    /// The last characters of its secret, which change when it is replaced.
    pub(super) suffix: String,
    pub(super) mark: Mark,
    pub(super) member: String,
    pub(super) is_active: bool,
    pub(super) is_revoked: bool,
    pub(super) is_of_file: bool,
    pub(super) created: Option<TimeText>,
    pub(super) expires: Option<Expiry>,
    pub(super) previous_until: Option<TimeText>,
    pub(super) revoked_at: Option<TimeText>,
    pub(super) groups: String,
    /// Models that the key may use, as far as they are listed.
    pub(super) models: String,
    pub(super) limits: Vec<String>,
    pub(super) member_limits: Vec<String>,
    pub(super) group_limits: Vec<(String, Vec<String>)>,
    pub(super) models_deny: String,
    pub(super) protocols: String,
    pub(super) price_limit: Vec<String>,
    pub(super) tags: String,
    pub(super) contents_stored: bool,
    pub(super) ip_allow: String,
    pub(super) balance: Option<Amount>,
}

/// Limits as sentences; none where there is no limit.
pub(super) fn limit_lines(t: Locale, limits: &AllowedLimits) -> Vec<String> {
    let line = |limit: Option<u64>, say: fn(Locale, &str) -> String| limit.map(|limit| say(t, &format::integer(limit)));
    let lines = [
        line(limits.rpm, |t, limit| t.say_with("keys.rpm_is", &[("limit", limit)])),
        line(limits.tpm, |t, limit| t.say_with("keys.tpm_is", &[("limit", limit)])),
        line(limits.concurrency, |t, limit| t.say_with("keys.concurrency_is", &[("limit", limit)])),
    ];
    lines.into_iter().flatten().collect()
}

/// Models that are named; more are counted.
const MODELS: usize = 6;

impl KeyDetail {
    pub(super) fn of(t: Locale, key: &KeyObject, allowance: Option<&Allowance>, now: Timestamp) -> Self {
        Self {
            id: key.id.clone(),
            shown: shown(key),
            suffix: key.suffix.clone(),
            mark: mark::of_key(t, &key.state),
            member: key.member.clone(),
            is_active: key.is_active(),
            is_revoked: key.state == "revoked",
            is_of_file: key.owner == "file",
            created: format::time(t, &key.created_at),
            expires: Expiry::of(t, key.expires_at.as_deref(), now),
            previous_until: key.previous_until.as_deref().and_then(|at| format::time(t, at)),
            revoked_at: key.revoked_at.as_deref().and_then(|at| format::time(t, at)),
            groups: allowance.map_or(&key.groups, |allowance| &allowance.groups).join(t.say("list.separator")),
            models: allowance.map(|allowance| models(t, &allowance.models)).unwrap_or_default(),
            limits: allowance.map(|allowance| limit_lines(t, &allowance.limits)).unwrap_or_default(),
            member_limits: allowance.map(|allowance| limit_lines(t, &allowance.member_limits)).unwrap_or_default(),
            group_limits: allowance.map(|allowance| allowance.group_limits(t)).unwrap_or_default(),
            models_deny: key.models_deny.join(t.say("list.separator")),
            protocols: key.protocols.iter().map(|word| protocols::label(t, word)).collect::<Vec<_>>().join(t.say("list.separator")),
            price_limit: key.price_limit.as_ref().map(|limit| price_limit_lines(t, limit)).unwrap_or_default(),
            tags: tags_text(&key.tags, t.say("list.separator")),
            contents_stored: allowance.map_or(key.log_contents, |allowance| allowance.contents_stored),
            ip_allow: key.ip_allow.join(t.say("list.separator")),
            balance: allowance.and_then(|allowance| allowance.balance.as_deref()).map(|balance| money::rounded(t, balance)),
        }
    }
}

fn models(t: Locale, models: &[String]) -> String {
    let named = models.iter().take(MODELS).cloned().collect::<Vec<_>>().join(t.say("list.separator"));
    match models.len().saturating_sub(MODELS) {
        0 => named,
        more => t.say_with("keys.and_more", &[("names", &named), ("count", &more.to_string())]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(budget: &Value) -> KeyObject {
        serde_json::from_value(json!({
            "id": "key_1", "name": "ci", "member": "ann", "prefix": "sk-tg-abcd", "suffix": "wxyz", "state": "active", "owner": "database", "revision": 1,
            "groups": ["a", "b"], "models": [], "models_deny": [], "protocols": [], "tags": {}, "ip_allow": [], "expires_at": "1970-01-03T00:00:00Z", "rpm": 0, "tpm": 0,
            "concurrency": 0, "budget": budget, "previous_until": null, "created_at": "1970-01-01T00:00:00Z", "revoked_at": null,
        }))
        .unwrap()
    }

    #[test]
    fn row_shows_the_meter_of_the_monthly_budget() {
        let budget = |amount: &str, window: &str| json!({"amount": amount, "window": window, "action": "block"});
        let month = || Some(PeriodUse { requests: 1_234, sale: "9".to_owned() });
        let row = |budget| KeyRow::of(Locale::EN, &KeyObject { month: month(), ..key(&budget) }, Timestamp(0));
        let monthly = row(json!([budget("1", "day"), budget("10", "month")]));
        assert_eq!(
            (monthly.meter.unwrap().percent, monthly.requests.as_str(), monthly.shown.as_str()),
            (90, "1,234", "sk-tg-abcd••••wxyz")
        );
        assert!(row(budget("1", "day")).meter.is_none() && row(Value::Null).budget.is_none());
        let expires = monthly.expires.unwrap();
        assert!(expires.is_soon && expires.words.contains('2'), "{expires:?}");
    }

    #[test]
    fn members_see_group_budgets_only_as_percentages() {
        let budget = |group: Option<&str>| {
            let budget = json!({
                "of": "group", "group": group, "amount": "500", "window": "month", "action": "block", "spent": "401.43", "left": "98.57",
                "renews_at": null,
            });
            serde_json::from_value::<BudgetLeft>(budget).unwrap()
        };
        let shown = |group, sees_groups| {
            let row = BudgetRow::of(Locale::EN, &budget(group), sees_groups);
            (row.left, row.meter.label)
        };
        assert_eq!(shown(Some("team"), false), ("20 % left".to_owned(), "80 % spent".to_owned()));
        let amounts = ("$98.57 left".to_owned(), "$401.43 of $500.00 spent".to_owned());
        assert_eq!((shown(Some("team"), true), shown(None, false)), (amounts.clone(), amounts));
    }

    #[test]
    fn models_beyond_the_first_few_are_shown_as_a_count() {
        let names: Vec<String> = (0..9).map(|number| format!("m{number}")).collect();
        assert!(models(Locale::EN, &names).contains("3 more"));
        assert_eq!(models(Locale::EN, &names[..2]), "m0, m1");
    }
}
