//! Whether the limits of the caller let a request of this size in: the first thing that may refuse it.

use serde::Serialize;
use tollgate_core::{
    AdmitInput, BudgetAction, FundsStatus, Limit, LimitExceeded, LimitRule, NanoUsd, RateExceeded, RateKind, RequestId,
    Reservation, Subject, Window, reservation_for,
};

use super::{CounterSource, ExplainContext, Refused, room::budget_word};
use crate::refusal::Refusal;

/// A limit of the key, its member, its group or the whole gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallerLimit {
    /// `key`, `member`, `group` or `gateway`.
    pub of: &'static str,
    /// Its name; absent for the gateway.
    pub name: Option<String>,
    /// `rpm`, `tpm`, `concurrency`, `budget_day`, `budget_month`, `budget_total` or `balance`.
    pub limit: &'static str,
    /// The limit; money in nano-USD. Absent for a balance.
    pub amount: Option<i64>,
    /// What is left of it, 0 or less: nothing.
    pub left: i64,
    /// What the request takes of it.
    pub needs: i64,
    /// Where these figures come from.
    pub counted_by: CounterSource,
}

/// What the limits say of the request.
#[derive(Clone, Debug, Default)]
pub(super) struct LimitVerdict {
    /// Each that may refuse it.
    pub(super) limits: Vec<CallerLimit>,
    /// How it is refused.
    pub(super) refusal: Option<Refused>,
    /// The output limit, in tokens, imposed on the request so that its reservation suffices.
    pub(super) output_limit: Option<u64>,
}

impl ExplainContext<'_> {
    /// Asks as the path does, and sets nothing aside.
    pub(super) fn limits(&self) -> LimitVerdict {
        let counted = self.sight.counted;
        let input = AdmitInput {
            id: RequestId::from_parts(self.sight.now, [0; 10]),
            at: self.sight.now,
            caller: self.caller,
            offer: self.offer,
            summary: self.summary,
            from: self.question.from,
            gateway: &counted.budgets,
        };
        let Some(mut hold) = reservation_for(&input) else { return LimitVerdict::default() };
        hold.limits.retain(|limit| is_money(limit) || counted.counts(limit.subject).knows_rates);
        let fit = hold.fit_to_limits(counted.micros, |subject| counted.counts(subject).meter);
        let limits = hold.limits.iter().filter_map(|limit| self.limit(&hold, limit)).collect();
        match fit {
            Ok(fit) => LimitVerdict { limits, refusal: None, output_limit: fit.output },
            Err(exhausted) => LimitVerdict { limits, refusal: Some(self.refused(&hold, &exhausted)), output_limit: None },
        }
    }

    /// How the request meets a limit; `None` when the limit never refuses.
    fn limit(&self, hold: &Reservation, limit: &Limit) -> Option<CallerLimit> {
        let counted = self.sight.counted;
        let counts = counted.counts(limit.subject);
        let (amount, left, needs) = match (limit.rule, counts.meter.funds(limit, hold.at)) {
            (LimitRule::Budget(budget), Some(_)) if budget.action == BudgetAction::Alert => return None,
            (_, Some(short)) => (short.budget.map(|budget| budget.amount.0), short.left.0, hold.amount.0),
            (rule, None) => {
                let rate = counts.meter.rate_check(rule, hold.tokens, counted.micros)?;
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

    fn refused(&self, hold: &Reservation, exhausted: &LimitExceeded) -> Refused {
        let error = Refusal::limit_exceeded(exhausted, hold.at).id(self.question.from);
        let (retryable, text, remedy) = match exhausted {
            LimitExceeded::Rate(busy) => {
                let (text, remedy) = self.busy(hold, busy);
                (true, text, remedy)
            }
            LimitExceeded::Money(short) => {
                let (text, remedy) = self.short(hold, short);
                (false, text, remedy)
            }
        };
        Refused { error, cause: None, retryable, text, remedy: Some(remedy) }
    }

    fn busy(&self, hold: &Reservation, busy: &RateExceeded) -> (String, String) {
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
                let needs = hold.tokens.min(busy.limit);
                let text = format!("{owner} has {left} of {} tokens left this minute, the request may use {needs}", busy.limit);
                (text, format!("wait {secs} s, set a smaller output limit, or raise the {of}'s tpm"))
            }
            RateKind::Concurrency => (
                format!("{owner} has {} of {} requests under way", busy.used, busy.limit),
                format!("wait until one of them ends, or raise the {of}'s concurrency"),
            ),
        }
    }

    fn short(&self, hold: &Reservation, short: &FundsStatus) -> (String, String) {
        let (owner, of) = (self.owner(short.subject), word(short.subject));
        let usd = |amount: NanoUsd| amount.to_usd_string();
        let costs = usd(hold.amount);
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
        let wait = match budget.window.ends(hold.at) {
            Some(ends) => format!("wait until it renews at {ends}, or "),
            None if smaller.is_empty() => String::new(),
            None => "or ".to_owned(),
        };
        (text, format!("{smaller}{wait}raise the {of}'s budget"))
    }

    /// Whose limit it is, in a sentence.
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
