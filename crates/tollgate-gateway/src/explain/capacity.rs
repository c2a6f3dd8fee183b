//! Remaining capacity of channels and accounts, compared with what the request needs.

use std::{borrow::Cow, fmt, sync::Arc};

use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use tollgate_core::{
    Account, BudgetAction, CapacityLimits, Channel, ExcludedCandidate, Exclusion, FundsStatus, Limit, LimitRule, NanoUsd,
    PlannedAttempt, RequestId, Reservation, Window, cost_of, reservation_for_attempt,
};

use super::ExplainContext;
use crate::state::capacity_limiter::CapacityUsage;

/// A limit with its remaining amount and the amount that the request needs. Money is in nano-USD here, and a decimal string in USD in
/// JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityBound {
    /// `concurrency`, `rpm`, `tpm` of the account, or `channel_concurrency`, `channel_rpm`, `channel_tpm`, `budget_day`,
    /// `budget_month`, `budget_total` of the channel.
    pub bound: &'static str,
    /// The limit.
    pub limit: i64,
    /// Remaining amount; may be negative.
    pub left: i64,
    /// Amount the request needs; absent when its cost is unknown.
    pub needs: Option<i64>,
}

impl Serialize for CapacityBound {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let figure = |value: i64| Figure::new(self.is_money(), value);
        let mut members = to.serialize_struct("CapacityBound", 4)?;
        members.serialize_field("bound", self.bound)?;
        members.serialize_field("limit", &figure(self.limit))?;
        members.serialize_field("left", &figure(self.left))?;
        members.serialize_field("needs", &self.needs.map(figure))?;
        members.end()
    }
}

/// A figure in JSON: money as a decimal string in USD, a count as a number.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Figure {
    Usd(String),
    Count(i64),
}

impl Figure {
    pub(super) fn new(is_money: bool, value: i64) -> Self {
        if is_money { Self::Usd(NanoUsd(value).to_usd_string()) } else { Self::Count(value) }
    }
}

impl CapacityBound {
    /// Whether something is left, but less than the request needs.
    const fn is_too_small(&self) -> bool {
        matches!(self.needs, Some(needs) if self.left > 0 && needs > self.left)
    }

    /// Whether the limit depends on the request's size, and so is shown for usable accounts too.
    pub(super) fn is_about_size(&self) -> bool {
        self.is_money() || matches!(self.bound, "tpm" | "channel_tpm")
    }

    fn is_money(&self) -> bool {
        self.bound.starts_with("budget_")
    }
}

impl fmt::Display for CapacityBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.left.max(0);
        if self.is_money() {
            let period = match self.bound {
                "budget_day" => " today",
                "budget_month" => " this month",
                _ => "",
            };
            let usd = |amount: i64| NanoUsd(amount).to_usd_string();
            write!(f, "{} of {} USD left{period}", usd(left), usd(self.limit))?;
            return match self.needs {
                Some(needs) => write!(f, ", the request may cost {}", usd(needs)),
                None => Ok(()),
            };
        }
        let what = match self.bound {
            "concurrency" => "slots free",
            "rpm" => "requests left this minute",
            "channel_concurrency" => "slots of the channel free",
            "channel_rpm" => "requests of the channel left this minute",
            "channel_tpm" => "tokens of the channel left this minute",
            _ => "tokens left this minute",
        };
        write!(f, "{left} of {} {what}", self.limit)?;
        match self.needs.filter(|needs| *needs > 1) {
            Some(needs) => write!(f, ", the request may use {needs}"),
            None => Ok(()),
        }
    }
}

/// The remedy when the request's size decides.
pub(super) fn remedy(bounds: &[CapacityBound]) -> Option<&'static str> {
    let small = bounds.iter().find(|bound| bound.is_too_small())?;
    Some(if small.is_money() {
        "a smaller output limit, a larger budget, or wait for it to renew"
    } else if small.bound == "channel_tpm" {
        "a smaller output limit, more tpm of the channel, or another channel"
    } else {
        "a smaller output limit, more tpm, or more accounts"
    })
}

pub(super) const fn budget_word(window: Window) -> &'static str {
    match window {
        Window::Day => "budget_day",
        Window::Month => "budget_month",
        Window::Total => "budget_total",
    }
}

impl ExplainContext<'_> {
    /// Estimated tokens, for accounts' token limits.
    pub(super) const fn tokens(&self) -> u64 {
        self.estimate.input_tokens.saturating_add(self.estimate.output_tokens)
    }

    /// Amount an attempt would reserve from the budgets of its channel.
    fn reservation(&self, planned: &PlannedAttempt) -> Option<Reservation> {
        let id = RequestId::from_parts(self.input.now, [0; 10]);
        reservation_for_attempt(id, self.input.now, planned, (self.question.from, self.summary), self.offer)
    }

    /// The exclusion of an attempt that the channel's budget does not cover.
    pub(super) fn budget_exclusion(&self, planned: &PlannedAttempt) -> Option<Exclusion> {
        let short = self.reservation(planned)?.insufficient_funds(|limit| self.left_of(&planned.channel, limit))?;
        Some(Exclusion::Budget { until: short.budget.and_then(|budget| budget.window.ends(self.input.now)) })
    }

    fn left_of(&self, channel: &Channel, limit: &Limit) -> Option<FundsStatus> {
        let LimitRule::Budget(budget) = limit.rule else { return None };
        let spent = self.input.state.spent(channel.id, budget.window);
        let left = NanoUsd(budget.amount.0.saturating_sub(spent.0));
        Some(FundsStatus { subject: limit.subject, budget: Some(budget), spent, left })
    }

    pub(super) fn bounds_of(&self, channel: &Channel, account: Option<&Arc<Account>>) -> Vec<CapacityBound> {
        let mut bounds = self.budgets_of(channel, account);
        bounds.extend(self.rates_of_channel(channel));
        bounds.extend(account.into_iter().flat_map(|account| self.rates_of(account)));
        bounds
    }

    pub(super) fn bounds_against(&self, it: &ExcludedCandidate<'_>) -> Vec<CapacityBound> {
        if matches!(it.why, Exclusion::Budget { .. }) {
            return self.budgets_of(it.channel, it.account());
        }
        let rates = if matches!(it.why, Exclusion::ChannelConcurrency | Exclusion::ChannelRate { .. }) {
            self.rates_of_channel(it.channel)
        } else if matches!(it.why, Exclusion::Concurrency | Exclusion::Rate { .. }) {
            it.account().map(|account| self.rates_of(account)).unwrap_or_default()
        } else {
            return Vec::new();
        };
        let full = |bound: &CapacityBound| bound.left <= 0 || bound.needs.is_some_and(|needs| needs > bound.left);
        rates.into_iter().filter(full).collect()
    }

    /// The channel's blocking budgets, compared with the cost on this account, or on the most expensive one.
    fn budgets_of(&self, channel: &Channel, account: Option<&Arc<Account>>) -> Vec<CapacityBound> {
        let needs = self.cost_on(channel, account);
        let blocking = channel.spec.budgets.iter().filter(|budget| budget.action == BudgetAction::Block);
        let bounds = blocking.map(|budget| {
            let spent = self.input.state.spent(channel.id, budget.window);
            let bound = budget_word(budget.window);
            CapacityBound { bound, limit: budget.amount.0, left: budget.amount.0.saturating_sub(spent.0), needs }
        });
        bounds.collect()
    }

    /// The maximum cost of an attempt in nano-USD; `None` when the price is unknown.
    fn cost_on(&self, channel: &Channel, account: Option<&Arc<Account>>) -> Option<i64> {
        let dearest = || channel.accounts.iter().filter(|it| it.spec.on).max_by_key(|it| it.spec.cost_multiplier);
        let account = account.or_else(dearest)?;
        let (_, row) = self.input.catalog.channels.get_key_value(&channel.id)?;
        let serves = self.offer.candidates.iter().find_map(|served| {
            let same = self.input.catalog.channel_at(served.channel).is_some_and(|it| it.id == channel.id);
            same.then_some(served.mapping as usize)
        })?;
        let cost = cost_of(channel, serves, self.input.now).map(Cow::into_owned);
        cost.as_ref()?;
        let planned = PlannedAttempt {
            channel: row.clone(),
            account: account.clone(),
            mapping_index: serves,
            cost,
            protocol: channel.upstream_protocol(self.summary.method),
            last_resort: false,
        };
        self.reservation(&planned).map(|reservation| reservation.amount.0)
    }

    fn rates_of(&self, account: &Account) -> Vec<CapacityBound> {
        self.rates(["concurrency", "rpm", "tpm"], account.limits(), self.input.state.in_use(account.id))
    }

    /// Limits of all accounts of the channel together.
    fn rates_of_channel(&self, channel: &Channel) -> Vec<CapacityBound> {
        let bounds = ["channel_concurrency", "channel_rpm", "channel_tpm"];
        self.rates(bounds, channel.limits(), self.input.state.channel_in_use(channel.id))
    }

    fn rates(
        &self,
        [concurrency, rpm, tpm]: [&'static str; 3],
        limits: CapacityLimits,
        in_use: CapacityUsage,
    ) -> Vec<CapacityBound> {
        let micros = self.input.state.micros_at(self.input.now);
        let bound = |bound, limit: u64, used: u64, needs: u64| {
            let number = |it: u64| i64::try_from(it).unwrap_or(i64::MAX);
            (limit > 0).then(|| CapacityBound {
                bound,
                limit: number(limit),
                left: number(limit).saturating_sub(number(used)),
                needs: Some(number(needs)),
            })
        };
        // A request estimated above the whole limit is admitted when the window is empty.
        let tokens = self.tokens().min(limits.tpm);
        [
            bound(concurrency, u64::from(limits.concurrency), u64::from(in_use.running), 1),
            bound(rpm, u64::from(limits.rpm), in_use.requests.used(micros), 1),
            bound(tpm, limits.tpm, in_use.tokens.used(micros), tokens),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
