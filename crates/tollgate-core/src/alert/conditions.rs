//! What each rule finds, from values that the caller has read.

use std::collections::HashMap;

use super::{AlertCondition, AlertRule};
use crate::{
    AccountHealth, AccountId, Budget, BudgetAction, Catalog, ChannelId, HealthState, IdHash, MemberId, NanoUsd, Subject, Timestamp,
    Window, catalog_review::sales_below_cost,
};

const DAY_MS: i64 = 86_400_000;

/// The percentages that budgets have reached. A budget that has reached several at once is reported at the highest; the others are
/// quiet. `name`: of the subject. A period that ends leaves its alerts without a condition.
pub fn budget_conditions(
    subject: &Subject,
    name: &str,
    budgets: &[Budget],
    spent: impl Fn(Window) -> NanoUsd,
    percents: &[u32],
    now: Timestamp,
) -> Vec<AlertCondition> {
    let mut found = Vec::new();
    // A budget of nothing is spent from its beginning.
    for budget in budgets.iter().filter(|budget| budget.amount.0 > 0) {
        let spent = spent(budget.window);
        let has_reached = |percent: &u32| i128::from(spent.0) * 100 >= i128::from(budget.amount.0) * i128::from(*percent);
        let mut reached: Vec<u32> = percents_of(budget, percents).filter(has_reached).collect();
        reached.sort_unstable();
        for percent in &reached {
            let mut condition = budget_condition(subject, name, budget, spent, *percent, now);
            condition.is_quiet = reached.last() != Some(percent);
            found.push(condition);
        }
    }
    found
}

/// A budget has reached a percentage.
#[must_use]
pub fn budget_condition(
    subject: &Subject,
    name: &str,
    budget: &Budget,
    spent: NanoUsd,
    percent: u32,
    now: Timestamp,
) -> AlertCondition {
    let Budget { amount, window, .. } = budget;
    let (amount, spent) = (amount.to_usd_string(), spent.to_usd_string());
    let whose = if *subject == Subject::Gateway { "the gateway".to_owned() } else { format!("{} {name}", kind_of(subject)) };
    let of = match window {
        Window::Total => "total".to_owned(),
        Window::Day | Window::Month => format!("{} {}", window.as_str(), period(*window, now)),
    };
    let text = format!("{whose} has spent {percent} % of its budget of {amount} USD ({of}): {spent} USD");
    AlertCondition::new(AlertRule::Budget, budget_subject(subject, budget, percent, now), text)
        .with("of", &kind_of(subject))
        .with("name", &name)
        .with("window", &window.as_str())
        .with("percent", &percent)
        .with("amount", &amount)
        .with("spent", &spent)
}

/// The percentages at which a budget is reported. One that alerts instead of blocking is also reported when it is spent.
fn percents_of<'a>(budget: &Budget, percents: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
    let is_added = budget.action == BudgetAction::Alert && !percents.contains(&100);
    percents.iter().copied().chain(is_added.then_some(100))
}

/// The subjects of all alerts that these budgets can have now, however much is spent. Others are of a period that has ended, or of a
/// budget that was changed.
pub fn budget_subjects<'a>(
    subject: &'a Subject,
    budgets: &'a [Budget],
    percents: &'a [u32],
    now: Timestamp,
) -> impl Iterator<Item = String> + 'a {
    let of =
        move |budget: &'a Budget| percents_of(budget, percents).map(move |percent| budget_subject(subject, budget, percent, now));
    budgets.iter().flat_map(of)
}

fn budget_subject(subject: &Subject, budget: &Budget, percent: u32, now: Timestamp) -> String {
    let Budget { amount, window, .. } = budget;
    format!("{subject} {} {} {} {percent}", window.as_str(), period(*window, now), amount.to_usd_string())
}

/// First day of the period: `2026-11-01`; empty for a total.
fn period(window: Window, now: Timestamp) -> String {
    let begin = match window {
        Window::Day => Timestamp::of_day(now.day()),
        Window::Month => Timestamp::of_month(now.month()),
        Window::Total => return String::new(),
    };
    begin.to_string()[..10].to_owned()
}

const fn kind_of(subject: &Subject) -> &'static str {
    match subject {
        Subject::Key(_) => "key",
        Subject::Member(_) => "member",
        Subject::Group(_) => "group",
        Subject::Channel(_) => "channel",
        Subject::Gateway => "gateway",
    }
}

/// A prepaid member with a balance below the threshold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LowBalance {
    pub member: MemberId,
    pub name: String,
    pub balance: NanoUsd,
}

/// Members whose balance is below `least`.
pub fn balance_conditions(members: impl Iterator<Item = LowBalance>, least: NanoUsd) -> Vec<AlertCondition> {
    let low = members.filter(|member| member.balance < least);
    low.map(|LowBalance { member, name, balance }| {
        let (balance, least) = (balance.to_usd_string(), least.to_usd_string());
        AlertCondition::new(
            AlertRule::BalanceLow,
            format!("member {member}"),
            format!("the balance of the prepaid member {name} is {balance} USD, below {least} USD"),
        )
        .with("name", &name)
        .with("balance", &balance)
        .with("least", &least)
    })
    .collect()
}

/// Enabled channels all of whose enabled accounts are cooling, resting or probed, with the reason of one.
pub fn channels_down(catalog: &Catalog, health: impl Fn(AccountId) -> AccountHealth) -> Vec<(ChannelId, &'static str)> {
    let mut down = Vec::new();
    for channel in catalog.channels.values().filter(|channel| channel.spec.on) {
        let mut accounts = channel.accounts.iter().filter(|account| account.spec.on).peekable();
        if accounts.peek().is_none() {
            continue;
        }
        let reasons: Option<Vec<&'static str>> = accounts.map(|account| reason(health(account.id).state)).collect();
        if let Some(reason) = reasons.and_then(|reasons| reasons.first().copied()) {
            down.push((channel.id, reason));
        }
    }
    down
}

/// Why an account is not usable; `None` if it is.
const fn reason(state: HealthState) -> Option<&'static str> {
    match state {
        HealthState::Usable => None,
        HealthState::Cooling { why, .. } | HealthState::Probing { why: Some(why), .. } => Some(why.as_str()),
        HealthState::Resting { why, .. } => Some(why.as_str()),
        HealthState::Probing { why: None, .. } => Some("probing"),
    }
}

/// Requests of a channel within some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorCounts {
    /// Without those whose caller left.
    pub requests: u64,
    pub failed: u64,
}

/// A channel of which `percent` of at least `least` requests have failed. `id`: of the channel, which may be removed by now.
#[must_use]
pub fn error_condition(id: &str, name: &str, counts: ErrorCounts, percent: u64, least: u64) -> Option<AlertCondition> {
    let ErrorCounts { requests, failed } = counts;
    let is_met = requests >= least.max(1) && u128::from(failed) * 100 >= u128::from(requests) * u128::from(percent);
    is_met.then(|| {
        let text = format!("{failed} of {requests} requests of channel {name} have failed within ten minutes");
        AlertCondition::new(AlertRule::ErrorShare, format!("channel {id}"), text)
            .with("name", &name)
            .with("requests", &requests)
            .with("failed", &failed)
    })
}

/// Prices below cost, and models without a price; each only if it is asked for.
#[must_use]
pub fn catalog_conditions(catalog: &Catalog, (margins, prices): (bool, bool), now: Timestamp) -> Vec<AlertCondition> {
    let mut found = Vec::new();
    if margins {
        for group in catalog.groups.values() {
            let mut last = String::new();
            for below in sales_below_cost(catalog, group, now) {
                let subject = format!("group {} model {} channel {}", group.id, below.model, below.channel);
                // Several kinds of tokens of one price are one alert.
                if subject != last {
                    let condition = AlertCondition::new(AlertRule::NegativeMargin, subject.clone(), below.to_string());
                    let condition =
                        condition.with("group", &below.group).with("model", &below.model).with("channel", &below.channel);
                    let (sale, cost) = (NanoUsd(below.sale).to_usd_string(), NanoUsd(below.cost).to_usd_string());
                    found.push(condition.with("kind", &below.kind).with("sale", &sale).with("cost", &cost));
                    last = subject;
                }
            }
        }
    }
    let is_priced = |model: &str| {
        let schedule = catalog.models.get(model).and_then(|model| model.spec.price.as_ref());
        schedule.is_some_and(|schedule| schedule.at(now).is_some())
    };
    if prices && catalog.models.keys().any(|model| is_priced(model)) {
        for model in catalog.mappings_by_model.keys().filter(|model| !is_priced(model)) {
            let text = format!("the model {model} is served and has no price");
            found.push(AlertCondition::new(AlertRule::UnpricedModel, format!("model {model}"), text).with("model", &model));
        }
    }
    found
}

/// The journal of a node holds at least `threshold` bytes that are not in the database.
#[must_use]
pub fn journal_condition(node: &str, bytes: u64, records: usize, threshold: u64) -> Option<AlertCondition> {
    (threshold > 0 && bytes >= threshold).then(|| {
        let text = format!("{records} records ({bytes} bytes) wait in the journal of {node} for the database");
        AlertCondition::new(AlertRule::JournalGrowing, format!("node {node}"), text).with("bytes", &bytes).with("records", &records)
    })
}

/// A certificate that expires within `days`, or has expired.
#[must_use]
pub fn certificate_condition(node: &str, file: &str, expires: Timestamp, days: i64, now: Timestamp) -> Option<AlertCondition> {
    is_near(expires, days, now).then(|| {
        let verb = if expires <= now { "expired" } else { "expires" };
        let text = format!("the certificate {file} of {node} {verb} at {expires}");
        let condition = AlertCondition::new(AlertRule::CertificateExpiring, format!("node {node} {file}"), text);
        condition.with("file", &file).with("expires_at", &expires)
    })
}

/// A key that is still valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiringKey {
    pub id: String,
    pub name: String,
    pub expires_at: Timestamp,
}

/// Keys that expire within `days`. One that has expired has no condition any more.
pub fn key_conditions(keys: impl Iterator<Item = ExpiringKey>, days: i64, now: Timestamp) -> Vec<AlertCondition> {
    let near = keys.filter(|key| key.expires_at > now && is_near(key.expires_at, days, now));
    near.map(|ExpiringKey { id, name, expires_at }| {
        let kind = if id.starts_with("adm_") { "admin key" } else { "key" };
        AlertCondition::new(
            AlertRule::KeyExpiring,
            format!("{id} {expires_at}"),
            format!("the {kind} {name} expires at {expires_at}"),
        )
        .with("id", &id)
        .with("name", &name)
        .with("expires_at", &expires_at)
    })
    .collect()
}

const fn is_near(expires: Timestamp, days: i64, now: Timestamp) -> bool {
    expires.ms_since(now) < days.saturating_mul(DAY_MS)
}

/// Since when each channel has been down.
#[derive(Debug, Default)]
pub struct DownChannels(HashMap<ChannelId, Timestamp, IdHash>);

impl DownChannels {
    /// The channels that have been down for `for_ms`.
    pub fn conditions(
        &mut self,
        catalog: &Catalog,
        down: &[(ChannelId, &'static str)],
        for_ms: i64,
        now: Timestamp,
    ) -> Vec<AlertCondition> {
        self.0.retain(|known, _| down.iter().any(|(channel, _)| channel == known));
        let mut found = Vec::new();
        for (id, reason) in down {
            let since = *self.0.entry(*id).or_insert(now);
            let Some(channel) = catalog.channels.get(id).filter(|_| now.ms_since(since) >= for_ms) else { continue };
            let name = &channel.spec.name;
            let text = format!("no account of channel {name} is usable since {since} ({reason})");
            let condition = AlertCondition::new(AlertRule::ChannelDown, format!("channel {id}"), text);
            found.push(condition.with("name", &name).with("reason", &reason).with("since", &since));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_795_000_000_000_000);

    fn budget(usd: i64, window: Window, action: BudgetAction) -> Budget {
        Budget { amount: NanoUsd(usd * 1_000_000_000), window, action }
    }

    fn usd(amount: i64) -> NanoUsd {
        NanoUsd(amount * 1_000_000_000)
    }

    fn subjects(found: &[AlertCondition]) -> Vec<(&str, bool)> {
        found.iter().map(|it| (it.subject.as_str(), it.is_quiet)).collect()
    }

    #[test]
    fn highest_percentage_of_a_budget_is_told_and_the_others_are_listed() {
        let budgets = [budget(10, Window::Month, BudgetAction::Block)];
        let found = |spent| budget_conditions(&Subject::Gateway, "", &budgets, |_| spent, &[100, 50, 80], NOW);
        assert!(found(usd(4)).is_empty());
        let at_80 = found(usd(8));
        assert_eq!(subjects(&at_80), [("gateway month 2026-11-01 10.00 50", true), ("gateway month 2026-11-01 10.00 80", false)]);
        assert_eq!(at_80[1].text, "the gateway has spent 80 % of its budget of 10.00 USD (month 2026-11-01): 8.00 USD");
        assert!(at_80[1].detail.contains(&("percent", "80".to_owned())));
        assert_eq!(found(usd(10)).len(), 3);
        let possible: Vec<String> = budget_subjects(&Subject::Gateway, &budgets, &[50, 80], NOW).collect();
        assert_eq!(possible, at_80.iter().map(|it| it.subject.clone()).collect::<Vec<_>>());
        let later = NOW.plus_ms(31 * DAY_MS);
        assert!(budget_subjects(&Subject::Gateway, &budgets, &[50], later).all(|subject| !possible.contains(&subject)));
    }

    #[test]
    fn budget_that_alerts_is_reported_when_it_is_spent_whatever_the_percentages() {
        let of = |action, amount| {
            let budgets = [budget(amount, Window::Total, action)];
            budget_conditions(&Subject::Gateway, "", &budgets, |_| usd(10), &[], NOW).len()
        };
        assert_eq!((of(BudgetAction::Alert, 10), of(BudgetAction::Block, 10), of(BudgetAction::Alert, 11)), (1, 0, 0));
        assert_eq!(of(BudgetAction::Alert, 0), 0, "a budget of nothing is spent from its beginning");
    }

    #[test]
    fn thresholds_are_met_exactly() {
        let member = MemberId::from_parts(NOW, [1; 10]);
        let poor = |balance| LowBalance { member, name: "lab".to_owned(), balance };
        assert_eq!(balance_conditions([poor(NanoUsd(usd(1).0 - 1)), poor(usd(1))].into_iter(), usd(1)).len(), 1);
        let errors =
            |requests, failed, percent| error_condition("chn_1", "c", ErrorCounts { requests, failed }, percent, 20).is_some();
        assert!(errors(20, 10, 50) && !errors(20, 9, 50) && !errors(19, 19, 50), "too few requests say nothing");
        assert!(error_condition("chn_1", "c", ErrorCounts::default(), 0, 0).is_none(), "no requests, no share");
        let journal = |bytes, threshold| journal_condition("n", bytes, 1, threshold).is_some();
        assert!(journal(5, 5) && !journal(4, 5) && !journal(4, 0));
    }

    #[test]
    fn certificates_are_reported_until_they_are_replaced_and_keys_until_they_expire() {
        let at = |days| NOW.plus_ms(days * DAY_MS);
        let certificate = |days| certificate_condition("n", "c.pem", at(days), 14, NOW).map(|it| it.text);
        assert!(certificate(14).is_none());
        assert!(
            certificate(13).is_some_and(|text| text.contains("expires"))
                && certificate(-1).is_some_and(|text| text.contains("expired"))
        );
        let key = |id: &str, days| ExpiringKey { id: id.to_owned(), name: "ci".to_owned(), expires_at: at(days) };
        let found = key_conditions([key("key_1", 13), key("adm_1", 1), key("key_2", 14), key("key_3", 0)].into_iter(), 14, NOW);
        assert_eq!(found.iter().map(|it| it.text.split(" ci").next().unwrap()).collect::<Vec<_>>(), ["the key", "the admin key"]);
    }

    #[test]
    fn channel_is_reported_after_it_was_down_for_some_time() {
        let (id, mut down) = (ChannelId::from_parts(NOW, [1; 10]), DownChannels::default());
        let mut channel = crate::samples::channel("c", &["m"]);
        channel.id = id;
        let catalog = Catalog::from_parts(crate::Revision(1), vec![channel], Vec::new(), Vec::new());
        let mut after = |ms, is_down: bool| {
            let found: &[_] = if is_down { &[(id, "timeout")] } else { &[] };
            down.conditions(&catalog, found, 1_000, NOW.plus_ms(ms)).len()
        };
        assert_eq!([after(0, true), after(999, true), after(1_000, true)], [0, 0, 1]);
        assert_eq!(
            [after(1_100, false), after(1_200, true), after(2_199, true), after(2_200, true)],
            [0, 0, 0, 1],
            "it begins again"
        );
    }
}
