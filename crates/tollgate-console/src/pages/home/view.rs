//! Keys, budgets, models and news on the home page.

use serde::Deserialize;
use tollgate_core::{NanoUsd, Timestamp};

use crate::pages::{
    budgets,
    clients::curl,
    format::{self, TimeText},
    locale::Locale,
    mark::{self, Mark},
    models::{Availability, SquareDocument, StateText, availability, path_of_name, state},
    money::{self, Amount},
    notices,
    spent_budget::SpentGatewayBudget,
};

/// Models in the table.
const MODELS: usize = 6;
/// Number of news entries, and how long a model counts as new.
const NEWS: usize = 4;
const NEW_FOR_MS: i64 = 30 * 86_400_000;

#[derive(Debug, Deserialize)]
pub(super) struct KeyView {
    pub(super) id: String,
    pub(super) name: String,
    prefix: String,
    suffix: String,
    pub(super) state: String,
}

#[derive(Debug)]
pub(super) struct KeyEntry {
    pub(super) id: String,
    pub(super) name: String,
    /// Its first and last characters.
    pub(super) shown: String,
    pub(super) mark: Mark,
}

impl KeyEntry {
    pub(super) fn of(t: Locale, key: &KeyView) -> Self {
        Self {
            id: key.id.clone(),
            name: key.name.clone(),
            shown: format!("{}••••{}", key.prefix, key.suffix),
            mark: mark::of_key(t, &key.state),
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct AllowanceView {
    pub(super) name: String,
    pub(super) budgets: Vec<BudgetView>,
    pub(super) spent_gateway_budgets: Vec<SpentGatewayBudget>,
    pub(super) balance: Option<String>,
    pub(super) models: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct BudgetView {
    pub(super) of: String,
    pub(super) group: Option<String>,
    amount: String,
    window: String,
    action: String,
    spent: String,
    left: String,
    renews_at: Option<String>,
}

impl BudgetView {
    /// Whether it is the member's budget, and not that of a key or group.
    pub(super) fn is_of_member(&self) -> bool {
        self.of != "key" && self.group.is_none()
    }

    /// The notice about the highest of these percentages that is reached.
    pub(super) fn notice(&self, t: Locale, percents: &[u32]) -> Option<NoticeEntry> {
        let is_nothing = NanoUsd::parse(&self.amount).is_ok_and(|amount| amount == NanoUsd::ZERO);
        let reached = format::share_of(&self.spent, &self.amount);
        let percent = percents.iter().copied().filter(|percent| *percent <= reached && !is_nothing).max()?;
        Some(NoticeEntry { text: notices::budget(t, percent, (&self.spent, &self.amount), &self.window), is_spent: percent >= 100 })
    }
}

/// A threshold of the member's profile that is reached.
#[derive(Debug)]
pub(super) struct NoticeEntry {
    pub(super) text: String,
    /// Whether nothing is left.
    pub(super) is_spent: bool,
}

impl NoticeEntry {
    /// The notice about a prepaid balance below this amount.
    pub(super) fn of_balance(t: Locale, balance: &str, least: NanoUsd) -> Option<Self> {
        let left = NanoUsd::parse(balance).ok().filter(|left| *left < least)?;
        Some(Self { text: notices::balance(t, balance, &least.to_usd_string()), is_spent: left <= NanoUsd::ZERO })
    }
}

#[derive(Debug)]
pub(super) struct BudgetEntry {
    pub(super) label: String,
    /// The remaining amount, and the amount of the budget.
    pub(super) left: Amount,
    pub(super) left_of: String,
    pub(super) spent: String,
    pub(super) window: &'static str,
    /// What happens once it is spent.
    pub(super) action: &'static str,
    pub(super) is_blocking: bool,
    pub(super) renews_at: Option<TimeText>,
    /// The day on which it will be spent if spending continues at the same rate.
    pub(super) pace: Option<String>,
    /// Percent that is spent, for the meter.
    pub(super) percent: u32,
    pub(super) class: &'static str,
}

impl BudgetEntry {
    /// `sees_groups`: the reader may see the spending of a group. Others see only the percentage, because they share the group.
    pub(super) fn of(t: Locale, budget: &BudgetView, (key, sees_groups): (&str, bool), now: Timestamp) -> Self {
        let label = match (budget.of.as_str(), &budget.group) {
            (_, Some(group)) => t.say_with("home.budget_of_group", &[("group", group)]),
            ("key", None) => t.say_with("home.budget_of_key", &[("key", key)]),
            _ => t.say("home.budget_of_member").to_owned(),
        };
        let percent = format::share_of(&budget.spent, &budget.amount);
        let (left, left_of, spent) = if budget.group.is_some() && !sees_groups {
            let left = format!("{} %", 100_u32.saturating_sub(percent));
            let spent = t.say_with("home.share_spent", &[("percent", &percent.to_string())]);
            (Amount::plain(left), t.say("home.left_share").to_owned(), spent)
        } else {
            let amount = money::exact(t, &budget.amount).text;
            let spent = money::short(t, &budget.spent).text;
            let spent = t.say_with("home.spent_of", &[("spent", &spent), ("amount", &amount)]);
            (money::short(t, &budget.left), t.say_with("home.left_of", &[("amount", &amount)]), spent)
        };
        Self {
            label,
            left,
            left_of,
            spent,
            window: budgets::window(t, &budget.window),
            action: budgets::action(t, &budget.action),
            is_blocking: budget.action == "block",
            renews_at: budget.renews_at.as_deref().and_then(|at| format::time(t, at)),
            pace: (budget.window == "month").then(|| pace(t, budget, now)).flatten(),
            percent,
            class: match percent {
                100.. => "down",
                80.. => "part",
                _ => "fill",
            },
        }
    }
}

/// In the order of the page: budgets that refuse requests once they are spent come first.
pub(super) fn blocking_first(mut budgets: Vec<BudgetEntry>) -> Vec<BudgetEntry> {
    budgets.sort_by_key(|budget| !budget.is_blocking);
    budgets
}

/// The day until which a monthly budget lasts, if it will be spent before it renews.
fn pace(t: Locale, budget: &BudgetView, now: Timestamp) -> Option<String> {
    let amount = |text: &str| NanoUsd::parse(text).ok().map(|amount| i128::from(amount.0)).filter(|amount| *amount > 0);
    let (spent, left) = (amount(&budget.spent)?, amount(&budget.left)?);
    let elapsed_ms = i128::from(now.ms_since(Timestamp::of_month(now.month())).max(1));
    let left_ms = i64::try_from(left * elapsed_ms / spent).ok()?;
    let end = Timestamp::of_month(now.month() + 1);
    let lasts_ms = end.ms_since(now);
    if left_ms >= lasts_ms {
        return Some(t.say("home.pace_lasts").to_owned());
    }
    let at = format::date(t, &crate::time::rfc3339(now.plus_ms(left_ms)))?;
    Some(t.say_with("home.pace_ends", &[("day", &at.text)]))
}

/// The steps to the first answered request.
#[derive(Debug)]
pub(super) struct Steps {
    /// Name of the key to use.
    pub(super) key: Option<String>,
    pub(super) curl: String,
    /// Id and error message of the last request, if it failed.
    pub(super) fault: Option<(String, String)>,
}

impl Steps {
    pub(super) fn of(key: Option<String>, fault: Option<(String, String)>, base: &str, model: &str) -> Self {
        Self { key, curl: curl(base, model), fault }
    }

    pub(super) const fn done(&self) -> usize {
        if self.key.is_some() { 1 } else { 0 }
    }
}

/// A model that the reader uses, with its state.
#[derive(Debug)]
pub(super) struct UsedModel {
    pub(super) id: String,
    pub(super) link: String,
    pub(super) state: StateText,
    pub(super) day: Availability,
}

/// The used models that are still offered.
pub(super) fn used_models(t: Locale, document: &SquareDocument, used: &[String]) -> Vec<UsedModel> {
    let known = used.iter().filter_map(|name| document.data.iter().find(|model| model.id == *name));
    let row = |model: &crate::pages::models::SquareEntry| {
        let offer = model.offer(None)?;
        Some(UsedModel {
            id: model.id.clone(),
            link: path_of_name(&model.id),
            state: state(t, offer),
            day: availability(t, &offer.day),
        })
    };
    known.filter_map(row).take(MODELS).collect()
}

/// A past or coming change for callers.
#[derive(Debug)]
pub(super) struct NewsEntry {
    pub(super) icon: &'static str,
    pub(super) model: String,
    pub(super) link: String,
    pub(super) text: String,
    pub(super) at: Option<TimeText>,
}

/// Prices that are announced, then new models, the latest first.
pub(super) fn news(t: Locale, document: &SquareDocument, now: Timestamp) -> Vec<NewsEntry> {
    let entry = |model: &str, icon, text, at: &str| NewsEntry {
        icon,
        model: model.to_owned(),
        link: path_of_name(model),
        text,
        at: format::time(t, at),
    };
    let announced = document.data.iter().filter_map(|model| {
        let price = &model.offer(None)?.next_price;
        let amount = |kind: &str| price[kind].as_str().map_or_else(Amount::none, |amount| money::exact(t, amount)).with_title();
        let text = t.say_with("home.news_price", &[("input", &amount("input")), ("output", &amount("output"))]);
        Some(entry(&model.id, "price", text, price["valid_from"].as_str()?))
    });
    let since = crate::time::rfc3339(now.plus_ms(-NEW_FOR_MS));
    let mut added: Vec<(&str, &str)> =
        document.data.iter().filter_map(|model| Some((model.added_at.as_deref()?, model.id.as_str()))).collect();
    added.retain(|(at, _)| *at > since.as_str());
    added.sort_unstable_by(|one, other| other.cmp(one));
    let added = added.into_iter().map(|(at, model)| entry(model, "plus", t.say("home.news_model").to_owned(), at));
    announced.chain(added).take(NEWS).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn budget_pace_predicts_the_day_the_budget_is_spent() {
        // Noon of 21 November 2026.
        let now = Timestamp(1_795_262_400_000_000);
        let budget = |spent: &str, left: &str| {
            let budget = json!({"of": "key", "amount": "100", "window": "month", "action": "block", "spent": spent, "left": left, "renews_at": null});
            BudgetEntry::of(Locale::EN, &serde_json::from_value(budget).unwrap(), ("ci", false), now)
        };
        assert!(budget("10", "90").pace.unwrap().contains("lasts"));
        assert!(budget("90", "10").pace.unwrap().contains("23 Nov 2026"), "{:?}", budget("90", "10"));
        assert_eq!(budget("0", "100").pace, None);
        assert_eq!((budget("90", "10").class, budget("100", "0").class), ("part", "down"));
    }

    #[test]
    fn budgets_say_what_they_do_and_those_that_block_come_first() {
        let budget = |amount: &str, action: &str| {
            let budget = json!({
                "of": "group", "group": "engineering", "amount": amount, "window": "month", "action": action, "spent": "1", "left": "1",
                "renews_at": null
            });
            BudgetEntry::of(Locale::EN, &serde_json::from_value(budget).unwrap(), ("ci", true), Timestamp(0))
        };
        let entries = blocking_first(vec![budget("40", "alert"), budget("500", "alert"), budget("700", "block")]);
        let shown: Vec<_> = entries.iter().map(|entry| (entry.left_of.as_str(), entry.action)).collect();
        let (blocks, alerts) = (Locale::EN.say("budget.block"), Locale::EN.say("budget.alert"));
        assert_eq!(shown, [("left of $700.00", blocks), ("left of $40.00", alerts), ("left of $500.00", alerts)]);
    }

    #[test]
    fn notice_is_about_the_highest_percentage_that_is_reached() {
        let notice = |of: &str, spent: &str, percents: &[u32]| {
            let budget = json!({"of": of, "amount": "10", "window": "day", "action": "block", "spent": spent, "left": "0", "renews_at": null});
            let budget: BudgetView = serde_json::from_value(budget).unwrap();
            assert_eq!(budget.is_of_member(), of == "member");
            budget.notice(Locale::EN, percents).map(|notice| (notice.text, notice.is_spent))
        };
        assert_eq!(notice("member", "7.99", &[80, 100]), None);
        assert_eq!(notice("key", "12", &[]), None);
        let text = |percent: u32, spent: &str| format!("{percent} % of your budget is spent: {spent} of $10.00 per UTC day");
        assert_eq!(notice("member", "8.5", &[50, 80, 100]), Some((text(80, "$8.50"), false)));
        assert_eq!(notice("member", "12", &[50, 100]), Some((text(100, "$12.00"), true)));
        let balance = |left: &str| NoticeEntry::of_balance(Locale::EN, left, NanoUsd(1_000_000_000)).map(|notice| notice.is_spent);
        assert_eq!([balance("1"), balance("0.99"), balance("0"), balance("-1")], [None, Some(false), Some(true), Some(true)]);
    }
}
