//! Health over time: transitions of accounts and channels into states in which they get no requests, each with its reason and its
//! end, and their evaluation for a span of time.

mod uptime;

use std::collections::HashMap;

pub use uptime::{UptimeCell, uptime_cells};

use super::{CoolingReason, HealthState, RestingReason};
use crate::{Account, AccountId, AccountStanding, Channel, ChannelBudget, ChannelId, Timestamp};

/// A state in which an account, a channel or a part of its accounts gets no requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImpairedState {
    /// Switched off by an operator.
    Off,
    /// The account cools down after failures.
    Cooling,
    /// The account rests: its credential is refused, or its quota is spent.
    Resting,
    /// Some accounts of the channel cannot be used.
    Degraded,
    /// No account of the channel can be used.
    Unavailable,
}

/// Why an account or a channel could not be used, as recorded in the history of health.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HealthReason {
    /// The channel or the account is switched off.
    SwitchedOff,
    Cooling(CoolingReason),
    Resting(RestingReason),
    /// The state of the channel is that of its accounts.
    Accounts,
    /// The channel has no account that is switched on.
    NoAccount,
    /// A budget of the channel is spent.
    BudgetSpent,
    /// The address of the channel is private, which it does not allow.
    PrivateNetwork,
}

/// The kind of check that showed the transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransitionCause {
    /// Requests of callers.
    Request,
    /// A health probe. Probes are not traffic.
    Probe,
    /// A test by an operator, or an operator's request to end cooling. Tests are not traffic.
    Test,
    /// Reported by another node.
    Node,
    /// A change of the catalog, a credential or a budget.
    Operator,
}

/// An impaired state of an account or channel, with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Impairment {
    pub state: ImpairedState,
    pub reason: HealthReason,
    pub since: Timestamp,
    /// When it ends by itself: the next request then probes the account. `None`: it ends only with an event, such as a passed test.
    pub until: Option<Timestamp>,
}

/// A transition into an impaired state, and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthTransition {
    pub channel: ChannelId,
    /// The account; `None`: the channel itself.
    pub account: Option<AccountId>,
    pub impairment: Impairment,
    pub cause: TransitionCause,
    /// When the account was usable again, or went into another state; `None`: not yet.
    pub ended_at: Option<Timestamp>,
}

impl HealthTransition {
    /// The time until which it kept requests away, as of `now`: after `until` the next request may be tried.
    pub fn effective_end(&self, now: Timestamp) -> Timestamp {
        [self.ended_at, self.impairment.until].into_iter().flatten().fold(now, Timestamp::min).max(self.impairment.since)
    }
}

/// An account or a channel at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthCondition {
    Usable,
    /// A request probes the account: the previous state lasts until the result.
    Probing,
    Impaired(Impairment),
}

/// The condition of an account, independent of the caller. `health` is its state for all callers.
pub fn account_condition(channel: &Channel, account: &Account, health: &HealthState, now: Timestamp) -> HealthCondition {
    let impaired = |state, reason, since, until| HealthCondition::Impaired(Impairment { state, reason, since, until });
    if !channel.spec.on || !account.spec.on {
        return impaired(ImpairedState::Off, HealthReason::SwitchedOff, now, None);
    }
    match *health {
        _ if !channel.spec.cooling => HealthCondition::Usable,
        HealthState::Usable => HealthCondition::Usable,
        HealthState::Probing { .. } => HealthCondition::Probing,
        HealthState::Cooling { until, why, since } => {
            impaired(ImpairedState::Cooling, HealthReason::Cooling(why), since, Some(until))
        }
        HealthState::Resting { why, since, until } => impaired(ImpairedState::Resting, HealthReason::Resting(why), since, until),
    }
}

/// Recorded health of accounts and channels: the open transitions, and since when accounts have been usable. Each change returns the rows
/// to store.
#[derive(Debug, Default)]
pub struct HealthHistory {
    open: HashMap<HealthSubject, OpenTransition>,
    usable_since: HashMap<AccountId, Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum HealthSubject {
    Channel(ChannelId),
    Account(AccountId),
}

#[derive(Clone, Copy, Debug)]
struct OpenTransition {
    row: HealthTransition,
    /// Start of the outage: when the account was last usable. Consecutive transitions are one outage.
    outage_since: Timestamp,
}

impl HealthHistory {
    /// Restores the history from recorded transitions, open and ended ones, in any order.
    pub fn restore(recorded: impl IntoIterator<Item = HealthTransition>) -> Self {
        let mut history = Self::default();
        for row in recorded {
            match (row.ended_at, row.account) {
                (None, _) => {
                    let outage_since = row.impairment.since;
                    history.open.insert(HealthSubject::of(&row), OpenTransition { row, outage_since });
                }
                (Some(ended), Some(account)) => {
                    let last = history.usable_since.entry(account).or_insert(ended);
                    *last = ended.max(*last);
                }
                (Some(_), None) => {}
            }
        }
        history
    }

    /// Records the condition of an account.
    pub fn record(
        &mut self,
        channel: &Channel,
        account: &Account,
        condition: HealthCondition,
        cause: TransitionCause,
        now: Timestamp,
    ) -> Vec<HealthTransition> {
        self.set(channel.id, Some(account.id), condition, cause, now)
    }

    /// Records the condition of a channel, which follows from those of its accounts and from its budgets.
    pub fn record_channel(
        &mut self,
        channel: &Channel,
        budget: ChannelBudget,
        cause: TransitionCause,
        now: Timestamp,
    ) -> Vec<HealthTransition> {
        let condition = self.channel_condition(channel, budget, now);
        self.set(channel.id, None, condition, cause, now)
    }

    fn channel_condition(&self, channel: &Channel, budget: ChannelBudget, now: Timestamp) -> HealthCondition {
        let impaired = |state, reason, until| HealthCondition::Impaired(Impairment { state, reason, since: now, until });
        if !channel.spec.on {
            return impaired(ImpairedState::Off, HealthReason::SwitchedOff, None);
        }
        if channel.needs_private_network {
            return impaired(ImpairedState::Unavailable, HealthReason::PrivateNetwork, None);
        }
        let accounts = || channel.accounts.iter().filter(|account| account.spec.on);
        if accounts().next().is_none() {
            return impaired(ImpairedState::Unavailable, HealthReason::NoAccount, None);
        }
        if let ChannelBudget::Spent { until } = budget {
            return impaired(ImpairedState::Unavailable, HealthReason::BudgetSpent, until);
        }
        // The next request uses an account whose rest is over, although it is not yet known to work.
        let rests = |until: &Option<Timestamp>| until.is_none_or(|until| now < until);
        let ends = || accounts().filter_map(|account| Some(self.open_of(account.id)?.impairment.until)).filter(rests);
        match ends().count() {
            0 => HealthCondition::Usable,
            all if all == accounts().count() => {
                impaired(ImpairedState::Unavailable, HealthReason::Accounts, ends().flatten().min())
            }
            _ => {
                let last = ends().try_fold(Timestamp(i64::MIN), |last, until| Some(last.max(until?)));
                impaired(ImpairedState::Degraded, HealthReason::Accounts, last)
            }
        }
    }

    fn open_of(&self, account: AccountId) -> Option<&HealthTransition> {
        self.open.get(&HealthSubject::Account(account)).map(|open| &open.row)
    }

    fn set(
        &mut self,
        channel: ChannelId,
        account: Option<AccountId>,
        condition: HealthCondition,
        cause: TransitionCause,
        now: Timestamp,
    ) -> Vec<HealthTransition> {
        let subject = account.map_or(HealthSubject::Channel(channel), HealthSubject::Account);
        let before = self.open.get(&subject).copied();
        let after = match condition {
            HealthCondition::Probing => return Vec::new(),
            HealthCondition::Usable => None,
            HealthCondition::Impaired(impairment) => Some(impairment),
        };
        match (before, after) {
            (None, None) => Vec::new(),
            (Some(open), Some(next)) if open.row.impairment.is_continued_by(&next) => {
                if open.row.impairment.until == next.until {
                    return Vec::new();
                }
                let impairment = Impairment { until: next.until, ..open.row.impairment };
                let row = HealthTransition { impairment, ..open.row };
                self.open.insert(subject, OpenTransition { row, ..open });
                vec![row]
            }
            (before, after) => {
                let mut changed = Vec::new();
                let at = after.map_or(now, |next| next.since);
                if let Some(open) = before {
                    let ended_at = Some(at.max(open.row.impairment.since));
                    changed.push(HealthTransition { ended_at, ..open.row });
                }
                match after {
                    None => {
                        self.open.remove(&subject);
                        self.usable_since.extend(account.map(|account| (account, at)));
                    }
                    Some(next) => {
                        // Rows of one subject must have different start times.
                        let since = before.map_or(next.since, |open| next.since.max(Timestamp(open.row.impairment.since.0 + 1)));
                        let impairment = Impairment { since, ..next };
                        let row = HealthTransition { channel, account, impairment, cause, ended_at: None };
                        let outage_since = before.map_or(since, |open| open.outage_since);
                        self.open.insert(subject, OpenTransition { row, outage_since });
                        changed.push(row);
                    }
                }
                changed
            }
        }
    }

    /// Ends the transitions of accounts and channels that no longer exist.
    pub fn retain(&mut self, exists: impl Fn(ChannelId, Option<AccountId>) -> bool, now: Timestamp) -> Vec<HealthTransition> {
        let mut ended = Vec::new();
        self.open.retain(|_, OpenTransition { row, .. }| {
            let kept = exists(row.channel, row.account);
            if !kept {
                ended.push(HealthTransition { ended_at: Some(now.max(row.impairment.since)), ..*row });
            }
            kept
        });
        ended
    }

    /// Whether requests may use an account, as of `now`, and since when.
    pub fn standing(&self, channel: ChannelId, account: AccountId, now: Timestamp) -> AccountStanding {
        let of_channel = self
            .open
            .get(&HealthSubject::Channel(channel))
            .filter(|open| matches!(open.row.impairment.reason, HealthReason::BudgetSpent | HealthReason::PrivateNetwork));
        let of_account = self.open.get(&HealthSubject::Account(account));
        let Some(open) = of_channel.or(of_account) else {
            return AccountStanding::Usable { since: self.usable_since.get(&account).copied() };
        };
        let (since, Impairment { state, until, .. }) = (open.outage_since, open.row.impairment);
        match until {
            _ if state == ImpairedState::Off => AccountStanding::Off { since: Some(since) },
            Some(until) if until <= now => AccountStanding::Due { since },
            until => AccountStanding::Out { since, until },
        }
    }
}

impl HealthSubject {
    fn of(row: &HealthTransition) -> Self {
        row.account.map_or(Self::Channel(row.channel), Self::Account)
    }
}

impl Impairment {
    /// True if `next` continues this state, perhaps with another end. If this one ended before `next` began, `next` is a new
    /// state.
    fn is_continued_by(&self, next: &Self) -> bool {
        (self.state, self.reason) == (next.state, next.reason) && self.until.is_none_or(|until| next.since <= until)
    }
}

impl ImpairedState {
    pub const ALL: [Self; 5] = [Self::Off, Self::Cooling, Self::Resting, Self::Degraded, Self::Unavailable];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Cooling => "cooling",
            Self::Resting => "resting",
            Self::Degraded => "degraded",
            Self::Unavailable => "unavailable",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

impl HealthReason {
    pub const ALL: [Self; 13] = [
        Self::SwitchedOff,
        Self::Cooling(CoolingReason::ConnectFailure),
        Self::Cooling(CoolingReason::ServerError),
        Self::Cooling(CoolingReason::Timeout),
        Self::Cooling(CoolingReason::BadAnswer),
        Self::Cooling(CoolingReason::RateLimited),
        Self::Cooling(CoolingReason::PausingStatus),
        Self::Resting(RestingReason::QuotaSpent),
        Self::Resting(RestingReason::Refused),
        Self::Accounts,
        Self::NoAccount,
        Self::BudgetSpent,
        Self::PrivateNetwork,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SwitchedOff => "switched_off",
            Self::Cooling(why) => why.as_str(),
            Self::Resting(why) => why.as_str(),
            Self::Accounts => "accounts",
            Self::NoAccount => "no_account",
            Self::BudgetSpent => "budget_spent",
            Self::PrivateNetwork => "private_network",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

impl TransitionCause {
    pub const ALL: [Self; 5] = [Self::Request, Self::Probe, Self::Test, Self::Node, Self::Operator];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Probe => "probe",
            Self::Test => "test",
            Self::Node => "node",
            Self::Operator => "operator",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.as_str() == word)
    }
}

#[cfg(test)]
mod tests;
