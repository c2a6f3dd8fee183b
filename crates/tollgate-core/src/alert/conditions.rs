//! The conditions that each rule finds in values that the caller has read.

use std::collections::HashMap;

use super::{AlertCondition, AlertRule};
use crate::{
    AccountHealth, AccountId, Availability, Budget, BudgetAction, Catalog, ChannelId, Fault, HealthState, IdHash, MemberId,
    NanoUsd, Subject, Timestamp, Window, catalog_review::sales_below_cost,
};

const DAY_MS: i64 = 86_400_000;
/// An account that has cooled this many times since its last success has failed a probe.
const COOLINGS_OF_FAILED_PROBE: u32 = 2;

/// The percentages that budgets have reached. If a budget has reached several at once, only the highest is reported. `name` is the
/// name of the subject. Alerts of a period that has ended have no condition.
pub fn budget_conditions(
    subject: &Subject,
    name: &str,
    budgets: &[Budget],
    spent: impl Fn(Window) -> NanoUsd,
    percents: &[u32],
    now: Timestamp,
) -> Vec<AlertCondition> {
    let mut found = Vec::new();
    // A budget of zero would count as spent from the start.
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
    let share = i128::from(spent.0.max(0)) * 100 / i128::from(amount.0.max(1));
    let (rounded, amount, spent) = (spent.to_rounded_usd(), amount.to_usd_string(), spent.to_usd_string());
    let whose = if *subject == Subject::Gateway { "the gateway".to_owned() } else { format!("{} {name}", kind_of(subject)) };
    let of = match window {
        Window::Total => "total".to_owned(),
        Window::Day | Window::Month => format!("{} {}", window.as_str(), period(*window, now)),
    };
    let text = format!("{whose} has reached {percent} % of its budget: {rounded} of {amount} USD ({of}), {share} %");
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

/// The subjects of all alerts that these budgets can have now, however much is spent. An open alert with another subject belongs to a
/// period that has ended or to a budget that was changed.
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
        let (rounded, balance, least) = (balance.to_rounded_usd(), balance.to_usd_string(), least.to_usd_string());
        AlertCondition::new(
            AlertRule::BalanceLow,
            format!("member {member}"),
            format!("the balance of the prepaid member {name} is {rounded} USD, below {least} USD"),
        )
        .with("name", &name)
        .with("balance", &balance)
        .with("least", &least)
    })
    .collect()
}

/// An enabled channel none of whose enabled accounts is usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DownChannel {
    pub channel: ChannelId,
    /// Why its first account is not usable.
    pub reason: &'static str,
    /// When its last account became unusable.
    pub since: Timestamp,
}

/// Enabled channels all of whose enabled accounts are cooling, resting or probed. An account whose wait is over counts as usable unless
/// its last probe failed: without requests nothing would show that it has recovered from a single 429.
pub fn channels_down(catalog: &Catalog, health: impl Fn(AccountId) -> AccountHealth, now: Timestamp) -> Vec<DownChannel> {
    let mut down = Vec::new();
    for channel in catalog.channels.values().filter(|channel| channel.spec.on) {
        let accounts = channel.accounts.iter().filter(|account| account.spec.on);
        let unusable: Option<Vec<_>> = accounts.map(|account| unusable(&health(account.id), now)).collect();
        let unusable = unusable.unwrap_or_default();
        if let (Some((reason, _)), Some(since)) = (unusable.first(), unusable.iter().map(|(_, since)| *since).max()) {
            down.push(DownChannel { channel: channel.id, reason, since });
        }
    }
    down
}

/// Why and since when an account is not usable; `None` if it is.
fn unusable(health: &AccountHealth, now: Timestamp) -> Option<(&'static str, Timestamp)> {
    let is_due = matches!(health.availability(now), Availability::Usable | Availability::ProbeDue);
    if is_due && health.coolings < COOLINGS_OF_FAILED_PROBE {
        return None;
    }
    match health.state {
        HealthState::Usable => None,
        HealthState::Resting { .. } if is_due => None,
        HealthState::Cooling { why, since, .. } | HealthState::Probing { why: Some(why), since } => Some((why.as_str(), since)),
        HealthState::Resting { why, since, .. } => Some((why.as_str(), since)),
        HealthState::Probing { why: None, since } => Some(("probing", since)),
    }
}

/// Requests of a channel within a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorCounts {
    /// Requests, without those whose caller left and those that the provider rejected.
    pub requests: u64,
    pub failed: u64,
}

impl ErrorCounts {
    /// Adds requests that ended with `reason`: so many were completed and failed. Failures that the caller is at fault for are left out.
    pub fn add(&mut self, reason: &str, completed: u64, failed: u64) {
        let failed = if Fault::of_error(reason) == Some(Fault::Caller) { 0 } else { failed };
        self.requests = self.requests.saturating_add(completed).saturating_add(failed);
        self.failed = self.failed.saturating_add(failed);
    }
}

/// A channel of which `percent` of at least `least` requests have failed. `id` is that of the channel, which may have been removed.
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

/// Conditions for sale prices below cost if `margins` is set, and for models without a price if `prices` is set.
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
        let size = size_text(bytes);
        let text = format!("{records} records ({size}) wait in the journal of {node} for the database");
        AlertCondition::new(AlertRule::JournalGrowing, format!("node {node}"), text).with("bytes", &bytes).with("records", &records)
    })
}

/// Finished days of usage records are not exported a day after they were due. `first` is the first of them, `fault` the last error.
#[must_use]
pub fn export_condition(first: &str, fault: &str) -> AlertCondition {
    let text = format!("usage records of {first} and later are not exported: {fault}");
    AlertCondition::new(AlertRule::ExportLate, "export", text).with("day", first).with("fault", fault)
}

/// The last scheduled backup of a node has failed; scheduled backups have failed since `since`.
#[must_use]
pub fn backup_condition(node: &str, since: Timestamp, fault: &str) -> AlertCondition {
    let text = format!("scheduled backups of {node} have failed since {since}: {fault}");
    AlertCondition::new(AlertRule::BackupFailed, format!("node {node}"), text).with("since", &since).with("fault", fault)
}

/// A size in the largest fitting unit, with one decimal: `268435456` as `256.0 MiB`.
#[must_use]
pub fn size_text(bytes: u64) -> String {
    match [(30, "GiB"), (20, "MiB"), (10, "KiB")].into_iter().find(|(shift, _)| bytes >> shift > 0) {
        Some((shift, unit)) => {
            let tenths = (u128::from(bytes) * 10) >> shift;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} bytes"),
    }
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

/// Keys that expire within `days`. Expired keys have no condition.
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

/// When each channel went down.
#[derive(Debug, Default)]
pub struct DownChannels(HashMap<ChannelId, Timestamp, IdHash>);

impl DownChannels {
    /// The channels that have been down for `for_ms`.
    pub fn conditions(&mut self, catalog: &Catalog, down: &[DownChannel], for_ms: i64, now: Timestamp) -> Vec<AlertCondition> {
        self.0.retain(|known, _| down.iter().any(|down| down.channel == *known));
        let mut found = Vec::new();
        for DownChannel { channel: id, reason, since } in down {
            // Each failed probe starts a new cooling; the outage began with the first one.
            let since = *self.0.entry(*id).or_insert(*since);
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
    use crate::{CoolingReason, RestingReason};

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
    fn highest_reached_budget_percentage_is_reported_and_the_lower_ones_are_listed() {
        let budgets = [budget(10, Window::Month, BudgetAction::Block)];
        let found = |spent| budget_conditions(&Subject::Gateway, "", &budgets, |_| spent, &[100, 50, 80], NOW);
        assert!(found(usd(4)).is_empty());
        let at_80 = found(usd(8));
        assert_eq!(subjects(&at_80), [("gateway month 2026-11-01 10.00 50", true), ("gateway month 2026-11-01 10.00 80", false)]);
        assert_eq!(at_80[1].text, "the gateway has reached 80 % of its budget: 8.00 of 10.00 USD (month 2026-11-01), 80 %");
        let at_93 = found(NanoUsd(9_323_694_643));
        assert_eq!(at_93[1].text, "the gateway has reached 80 % of its budget: 9.32 of 10.00 USD (month 2026-11-01), 93 %");
        assert!(at_80[1].detail.contains(&("percent", "80".to_owned())));
        assert_eq!(found(usd(10)).len(), 3);
        let possible: Vec<String> = budget_subjects(&Subject::Gateway, &budgets, &[50, 80], NOW).collect();
        assert_eq!(possible, at_80.iter().map(|it| it.subject.clone()).collect::<Vec<_>>());
        let later = NOW.plus_ms(31 * DAY_MS);
        assert!(budget_subjects(&Subject::Gateway, &budgets, &[50], later).all(|subject| !possible.contains(&subject)));
    }

    #[test]
    fn alert_budget_is_reported_when_spent_regardless_of_the_percentages() {
        let of = |action, amount| {
            let budgets = [budget(amount, Window::Total, action)];
            budget_conditions(&Subject::Gateway, "", &budgets, |_| usd(10), &[], NOW).len()
        };
        assert_eq!((of(BudgetAction::Alert, 10), of(BudgetAction::Block, 10), of(BudgetAction::Alert, 11)), (1, 0, 0));
        assert_eq!(of(BudgetAction::Alert, 0), 0, "a budget of 0 is spent from the beginning");
    }

    #[test]
    fn alert_thresholds_are_exact() {
        let member = MemberId::from_parts(NOW, [1; 10]);
        let poor = |balance| LowBalance { member, name: "lab".to_owned(), balance };
        assert_eq!(balance_conditions([poor(NanoUsd(usd(1).0 - 1)), poor(usd(1))].into_iter(), usd(1)).len(), 1);
        let errors =
            |requests, failed, percent| error_condition("chn_1", "c", ErrorCounts { requests, failed }, percent, 20).is_some();
        assert!(errors(20, 10, 50) && !errors(20, 9, 50) && !errors(19, 19, 50), "too few requests give no condition");
        assert!(error_condition("chn_1", "c", ErrorCounts::default(), 0, 0).is_none(), "no requests, no share");
        let mut counts = ErrorCounts::default();
        for (reason, completed, failed) in [("", 7, 0), ("E52", 0, 90), ("E51", 0, 2), ("usage_excess", 1, 0)] {
            counts.add(reason, completed, failed);
        }
        assert_eq!(
            (counts.requests, counts.failed),
            (10, 2),
            "requests that the provider rejects do not count against the channel"
        );
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
        let mut after = |ms, since: Option<i64>| {
            let found: Vec<_> =
                since.map(|since| DownChannel { channel: id, reason: "timeout", since: NOW.plus_ms(since) }).into_iter().collect();
            down.conditions(&catalog, &found, 1_000, NOW.plus_ms(ms)).len()
        };
        assert_eq!(
            [after(5, Some(0)), after(999, Some(0)), after(1_000, Some(900))],
            [0, 0, 1],
            "a failed probe begins no new time"
        );
        assert_eq!(
            [after(1_100, None), after(1_200, Some(1_200)), after(2_199, Some(1_200)), after(2_200, Some(1_200))],
            [0, 0, 0, 1],
            "it begins again"
        );
    }

    #[test]
    fn channel_is_down_while_no_account_may_be_used_or_its_last_probe_failed() {
        let mut channel = crate::samples::channel("c", &["m"]);
        channel.accounts.truncate(1);
        let (id, account) = (channel.id, channel.accounts[0].id);
        let catalog = Catalog::from_parts(crate::Revision(1), vec![channel], Vec::new(), Vec::new());
        let at = |ms| NOW.plus_ms(ms);
        let cooling = |coolings| AccountHealth {
            state: HealthState::Cooling { until: at(10_000), why: CoolingReason::RateLimited, since: NOW },
            coolings,
            ..AccountHealth::default()
        };
        let down = |health: AccountHealth, ms| {
            let found = channels_down(&catalog, |it| if it == account { health } else { AccountHealth::default() }, at(ms));
            found.first().map(|down| (down.channel, down.reason, down.since))
        };
        assert_eq!(down(cooling(1), 9_999), Some((id, "rate_limited", NOW)));
        assert_eq!(down(cooling(1), 10_000), None, "the next request may use it");
        assert_eq!(down(cooling(2), 60_000), Some((id, "rate_limited", NOW)), "its last probe failed");
        let resting = |until| AccountHealth {
            state: HealthState::Resting { why: RestingReason::QuotaSpent, since: NOW, until },
            ..AccountHealth::default()
        };
        assert_eq!(down(resting(Some(at(10_000))), 5_000).map(|it| it.1), Some("quota_spent"));
        assert_eq!(down(resting(Some(at(10_000))), 10_000), None);
        assert_eq!(down(resting(None), 1_000_000).map(|it| it.1), Some("quota_spent"), "until a test passes");
        assert_eq!(down(AccountHealth::default(), 0), None);
    }
}
