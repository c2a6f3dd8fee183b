//! Alerts: the rules, the conditions they find, and which alerts begin and end when conditions change. Reading spending, health and
//! files, and sending messages, is the caller's part.

mod conditions;

use std::collections::HashSet;

pub use conditions::{
    DownChannel, DownChannels, ErrorCounts, ExpiringKey, LowBalance, backup_condition, balance_conditions, budget_condition,
    budget_conditions, budget_subjects, catalog_conditions, certificate_condition, channels_down, error_condition,
    export_condition, journal_condition, key_conditions, size_text,
};

/// A rule that raises alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlertRule {
    Budget,
    BalanceLow,
    ChannelDown,
    ErrorShare,
    NegativeMargin,
    UnpricedModel,
    JournalGrowing,
    CertificateExpiring,
    KeyExpiring,
    SoldBelowCost,
    UsageExcess,
    ClockSkew,
    ExportLate,
    BackupFailed,
}

impl AlertRule {
    pub const ALL: [Self; 14] = [
        Self::Budget,
        Self::BalanceLow,
        Self::ChannelDown,
        Self::ErrorShare,
        Self::NegativeMargin,
        Self::UnpricedModel,
        Self::JournalGrowing,
        Self::CertificateExpiring,
        Self::KeyExpiring,
        Self::SoldBelowCost,
        Self::UsageExcess,
        Self::ClockSkew,
        Self::ExportLate,
        Self::BackupFailed,
    ];
    /// The names of all rules, in the order of [`Self::ALL`].
    pub const WORDS: &[&str] = &[
        "budget",
        "balance_low",
        "channel_down",
        "error_share",
        "negative_margin",
        "unpriced_model",
        "journal_growing",
        "certificate_expiring",
        "key_expiring",
        "sold_below_cost",
        "usage_excess",
        "clock_skew",
        "export_late",
        "backup_failed",
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        Self::WORDS[self as usize]
    }

    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.as_str() == word)
    }

    /// The condition that raises the rule's alerts, as a sentence.
    #[must_use]
    pub const fn doc(self) -> &'static str {
        match self {
            Self::Budget => "A budget has reached one of these percentages.",
            Self::BalanceLow => "The balance of a prepaid member is below this amount.",
            Self::ChannelDown => "Every account of a channel has been cooling or resting for this long.",
            Self::ErrorShare => "Of the requests of a channel in the last five to ten minutes, this share has failed.",
            Self::NegativeMargin => "A group sells a model below what a channel costs.",
            Self::UnpricedModel => "A channel serves a model without a price, while others have one.",
            Self::JournalGrowing => "Records that are not in the database take this much of the journal.",
            Self::CertificateExpiring => "A certificate of the gateway expires within this time.",
            Self::KeyExpiring => "An active key, or an admin key, expires within this time.",
            Self::SoldBelowCost => "A request was sold below its cost; once an hour for each group and model.",
            Self::UsageExcess => "An upstream reported more usage than a request can have; once an hour for each channel.",
            Self::ClockSkew => "The clock of a node differs from that of Redis by more than 2 s.",
            Self::ExportLate => "A finished day of usage records is not exported a day after it was due.",
            Self::BackupFailed => "The last scheduled backup has failed.",
        }
    }

    /// Names of the settings that hold the rule's thresholds. Empty for a rule that is always on.
    #[must_use]
    pub const fn settings(self) -> &'static [&'static str] {
        match self {
            Self::Budget => &["alerts.budget_percent"],
            Self::BalanceLow => &["alerts.balance_usd"],
            Self::ChannelDown => &["alerts.channel_down_s"],
            Self::ErrorShare => &["alerts.error_percent", "alerts.error_requests"],
            Self::NegativeMargin => &["alerts.negative_margin"],
            Self::UnpricedModel => &["alerts.unpriced_model"],
            Self::JournalGrowing => &["alerts.journal_bytes"],
            Self::CertificateExpiring | Self::KeyExpiring => &["alerts.expiry_days"],
            Self::SoldBelowCost | Self::UsageExcess | Self::ClockSkew | Self::ExportLate | Self::BackupFailed => &[],
        }
    }

    /// True if each node evaluates the rule for itself; one node evaluates the other rules for all.
    #[must_use]
    pub const fn is_of_node(self) -> bool {
        matches!(self, Self::JournalGrowing | Self::CertificateExpiring | Self::ClockSkew | Self::BackupFailed)
    }

    /// True if an alert of the rule reports a single request rather than a state. It ends after an hour, without a message.
    #[must_use]
    pub const fn is_event(self) -> bool {
        matches!(self, Self::SoldBelowCost | Self::UsageExcess)
    }
}

/// A condition that a rule has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertCondition {
    pub rule: AlertRule,
    /// Identifies the object of the condition. A rule has at most one open alert for each subject.
    pub subject: String,
    /// One sentence without its full stop.
    pub text: String,
    /// Further facts for programs, by name.
    pub detail: Vec<(&'static str, String)>,
    /// Listed without a message, because another condition reports more.
    pub is_quiet: bool,
}

impl AlertCondition {
    pub fn new(rule: AlertRule, subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self { rule, subject: subject.into(), text: text.into(), detail: Vec::new(), is_quiet: false }
    }

    #[must_use]
    pub fn with(mut self, name: &'static str, value: &(impl ToString + ?Sized)) -> Self {
        self.detail.push((name, value.to_string()));
        self
    }
}

/// The difference between the conditions found by the `evaluated` rules and the alerts that are `open`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertChanges {
    pub raised: Vec<AlertCondition>,
    /// Rule and subject of each alert that ended.
    pub ended: Vec<(AlertRule, String)>,
}

/// `remains` returns true for an alert that stays open although its condition was not found, for example because the budget was not read.
#[must_use]
pub fn alert_changes(
    open: &[(AlertRule, String)],
    found: Vec<AlertCondition>,
    evaluated: &[AlertRule],
    remains: impl Fn(AlertRule, &str) -> bool,
) -> AlertChanges {
    let known: HashSet<(AlertRule, &str)> = open.iter().map(|(rule, subject)| (*rule, subject.as_str())).collect();
    let still: HashSet<(AlertRule, String)> = found.iter().map(|condition| (condition.rule, condition.subject.clone())).collect();
    let raised = found.into_iter().filter(|it| !known.contains(&(it.rule, it.subject.as_str()))).collect();
    let over = |it: &&(AlertRule, String)| evaluated.contains(&it.0) && !still.contains(*it) && !remains(it.0, &it.1);
    AlertChanges { raised, ended: open.iter().filter(over).cloned().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alert_rule_names_round_trip() {
        for rule in AlertRule::ALL {
            assert_eq!(AlertRule::parse(rule.as_str()), Some(rule));
        }
        assert_eq!(AlertRule::WORDS.len(), AlertRule::ALL.len());
        assert_eq!(AlertRule::ClockSkew.as_str(), "clock_skew");
    }

    #[test]
    fn alert_begins_once_and_ends_when_its_condition_does() {
        let down = |channel: &str| AlertCondition::new(AlertRule::ChannelDown, channel, "down");
        let open = |rule, subject: &str| (rule, subject.to_owned());
        let evaluated = [AlertRule::ChannelDown];
        let first = alert_changes(&[], vec![down("a"), down("b")], &evaluated, |_, _| false);
        assert_eq!((first.raised.len(), first.ended.len()), (2, 0));
        let known = [open(AlertRule::ChannelDown, "a"), open(AlertRule::ChannelDown, "b"), open(AlertRule::Budget, "c")];
        let later = alert_changes(&known, vec![down("b")], &evaluated, |_, _| false);
        assert!(later.raised.is_empty());
        assert_eq!(later.ended, [open(AlertRule::ChannelDown, "a")], "alerts of rules that were not evaluated stay open");
        assert!(alert_changes(&known, vec![down("b")], &evaluated, |_, subject| subject == "a").ended.is_empty());
    }
}
