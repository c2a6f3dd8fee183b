//! Checks an explained request against the caller's limits.

use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use tollgate_core::{
    AdmitInput, BudgetAction, FundsStatus, Limit, LimitExceeded, LimitRule, NanoUsd, RateExceeded, RateKind, RequestId,
    Reservation, Subject, Window, reservation_for,
};

use super::{
    CounterSource, ExplainContext, ExplainedRefusal,
    capacity::{Figure, budget_word},
};
use crate::refusal::Refusal;

/// A limit of the key, its member, its group or the whole gateway. Money is in nano-USD here, and a decimal string in USD in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallerLimit {
    /// `key`, `member`, `group` or `gateway`.
    pub of: &'static str,
    /// Its name; absent for the gateway.
    pub name: Option<String>,
    /// `rpm`, `tpm`, `concurrency`, `budget_day`, `budget_month`, `budget_total` or `balance`.
    pub limit: &'static str,
    /// The limit; absent for a balance.
    pub amount: Option<i64>,
    /// Remaining amount; may be negative.
    pub left: i64,
    pub needs: i64,
    pub counted_by: CounterSource,
}

impl Serialize for CallerLimit {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let is_money = self.limit == "balance" || self.limit.starts_with("budget_");
        let figure = |value: i64| Figure::new(is_money, value);
        let mut members = to.serialize_struct("CallerLimit", 7)?;
        members.serialize_field("of", self.of)?;
        members.serialize_field("name", &self.name)?;
        members.serialize_field("limit", self.limit)?;
        members.serialize_field("amount", &self.amount.map(figure))?;
        members.serialize_field("left", &figure(self.left))?;
        members.serialize_field("needs", &figure(self.needs))?;
        members.serialize_field("counted_by", &self.counted_by)?;
        members.end()
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct LimitVerdict {
    pub(super) limits: Vec<CallerLimit>,
    pub(super) refusal: Option<ExplainedRefusal>,
    /// The output limit in tokens that the gateway sets so that the request stays within its reservation.
    pub(super) output_limit: Option<u64>,
}

impl ExplainContext<'_> {
    /// Checks the limits as the path does, without reserving anything.
    pub(super) fn limits(&self) -> LimitVerdict {
        let counters = self.input.counters;
        let input = AdmitInput {
            id: RequestId::from_parts(self.input.now, [0; 10]),
            at: self.input.now,
            caller: self.caller,
            offer: self.offer,
            summary: self.summary,
            from: self.question.from,
            gateway: &counters.budgets,
        };
        let Some(mut reservation) = reservation_for(&input) else { return LimitVerdict::default() };
        reservation.limits.retain(|limit| is_money(limit) || counters.counts(limit.subject).has_rates);
        let fit = reservation.fit_to_limits(counters.micros, |subject| counters.counts(subject).meter);
        let limits = reservation.limits.iter().filter_map(|limit| self.limit(&reservation, limit)).collect();
        match fit {
            Ok(fit) => LimitVerdict { limits, refusal: None, output_limit: fit.output },
            Err(exhausted) => LimitVerdict { limits, refusal: Some(self.refusal(&reservation, &exhausted)), output_limit: None },
        }
    }

    /// A limit compared with the request; `None` for a limit that never refuses.
    fn limit(&self, reservation: &Reservation, limit: &Limit) -> Option<CallerLimit> {
        let counters = self.input.counters;
        let counts = counters.counts(limit.subject);
        let (amount, left, needs) = match (limit.rule, counts.meter.funds(limit, reservation.at)) {
            (LimitRule::Budget(budget), Some(_)) if budget.action == BudgetAction::Alert => return None,
            (_, Some(short)) => (short.budget.map(|budget| budget.amount.0), short.left.0, reservation.amount.0),
            (rule, None) => {
                let rate = counts.meter.rate_check(rule, reservation.tokens, counters.micros)?;
                (Some(whole(rate.limit)), whole(rate.limit).saturating_sub(whole(rate.used)), whole(rate.wanted))
            }
        };
        Some(CallerLimit {
            of: word(limit.subject),
            name: self.name(limit.subject),
            limit: match limit.rule {
                LimitRule::Requests(_) => "rpm",
                LimitRule::Tokens(_) => "tpm",
                LimitRule::Concurrency(_) => "concurrency",
                LimitRule::Budget(budget) => budget_word(budget.window),
                LimitRule::Balance => "balance",
            },
            amount,
            left,
            needs,
            counted_by: counts.by,
        })
    }

    fn refusal(&self, reservation: &Reservation, exhausted: &LimitExceeded) -> ExplainedRefusal {
        let error = Refusal::LimitExceeded(Box::new(exhausted.clone())).id(self.question.from);
        let (retryable, text, remedy) = match exhausted {
            LimitExceeded::Rate(busy) => {
                let (text, remedy) = self.rate_refusal(reservation, busy);
                (true, text, remedy)
            }
            LimitExceeded::Money(short) => {
                let (text, remedy) = self.funds_refusal(reservation, short);
                (false, text, remedy)
            }
        };
        ExplainedRefusal { error, cause: None, retryable, text, remedy: Some(remedy) }
    }

    fn rate_refusal(&self, reservation: &Reservation, busy: &RateExceeded) -> (String, String) {
        let left = busy.limit.saturating_sub(busy.used);
        let owner = self.owner(busy.subject);
        let secs = busy.wait_ms.div_ceil(1_000);
        let of = word(busy.subject);
        match busy.kind {
            RateKind::Requests => (
                format!("{owner} has {left} of {} requests left this minute", busy.limit),
                format!("wait {secs} s, or raise the {of}'s rpm"),
            ),
            RateKind::Tokens => {
                let needs = reservation.tokens.min(busy.limit);
                let text = format!("{owner} has {left} of {} tokens left this minute, the request may use {needs}", busy.limit);
                (text, format!("wait {secs} s, set a smaller output limit, or raise the {of}'s tpm"))
            }
            RateKind::Concurrency => (
                format!("{owner} has {} of {} requests in progress", busy.used, busy.limit),
                format!("wait until one of them ends, or raise the {of}'s concurrency"),
            ),
        }
    }

    fn funds_refusal(&self, reservation: &Reservation, short: &FundsStatus) -> (String, String) {
        let (owner, of) = (self.owner(short.subject), word(short.subject));
        let usd = |amount: NanoUsd| amount.to_usd_string();
        let costs = usd(reservation.amount);
        let Some(budget) = short.budget else {
            let text = format!("{owner} has {} USD left of its balance, the request may cost {costs}", usd(short.left));
            let remedy = if short.left.0 > 0 { "set a smaller output limit, or top" } else { "top" };
            return (text, format!("{remedy} the member's balance up (`tollgate ledger top-up`)"));
        };
        let period = match budget.window {
            Window::Day => " today",
            Window::Month => " this month",
            Window::Total => "",
        };
        let left = NanoUsd(short.left.0.max(0));
        let text = format!("{owner} has {} of {} USD left{period}, the request may cost {costs}", usd(left), usd(budget.amount));
        let smaller = if short.left.0 > 0 { "set a smaller output limit, " } else { "" };
        let wait = match budget.window.ends(reservation.at) {
            Some(ends) => format!("wait until it renews at {ends}, or "),
            None if smaller.is_empty() => String::new(),
            None => "or ".to_owned(),
        };
        (text, format!("{smaller}{wait}raise the {of}'s budget"))
    }

    /// The subject of a limit, for use in a sentence.
    fn owner(&self, subject: Subject) -> String {
        match self.name(subject) {
            Some(name) => format!("{} {name}", word(subject)),
            None => "the gateway".to_owned(),
        }
    }

    fn name(&self, subject: Subject) -> Option<String> {
        let key = &self.caller.key;
        match subject {
            Subject::Key(_) => Some(key.name.clone()),
            Subject::Member(_) => Some(key.member.name.clone()),
            Subject::Group(_) => Some(self.offer.group.name.clone()),
            Subject::Channel(_) | Subject::Gateway => None,
        }
    }
}

const fn is_money(limit: &Limit) -> bool {
    matches!(limit.rule, LimitRule::Budget(_) | LimitRule::Balance)
}

const fn word(subject: Subject) -> &'static str {
    match subject {
        Subject::Key(_) => "key",
        Subject::Member(_) => "member",
        Subject::Group(_) => "group",
        Subject::Channel(_) => "channel",
        Subject::Gateway => "gateway",
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
