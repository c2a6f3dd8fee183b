//! Limits that refuse every further request, whatever its size. They are checked before the request's body is received.

use super::{
    FundsStatus, Limit, LimitExceeded, LimitRule, Meter, NanoUsd, RateExceeded, RequestKind, Subject, limits_of, rate_statuses,
};
use crate::{Key, Timestamp};

/// A request of which only the head is known.
#[derive(Clone, Copy, Debug)]
pub struct EarlyRequest<'a> {
    /// The authenticated key.
    pub key: &'a Key,
    /// When the request arrived.
    pub at: Timestamp,
    /// False if the request may be free: it is then served although no money is left.
    pub costs_money: bool,
    /// True for a token count, which does not count towards limits on requests.
    pub counts_tokens: bool,
    /// The time in the monotonic microseconds of the sliding windows.
    pub micros: u64,
}

/// True if a limit or a budget of the key or its member applies, so that [`exhausted_limit`] has something to check.
#[must_use]
pub fn has_limits(key: &Key) -> bool {
    !limits_of(key, None, &[], RequestKind { costs_money: true, counts_tokens: false }).is_empty()
}

/// The limit of the key or its member that refuses any further request. `ahead` returns the requests of a subject that arrived
/// earlier and are not counted in its meter yet; each of them will take one request and one permit.
#[must_use]
pub fn exhausted_limit(
    request: &EarlyRequest<'_>,
    ahead: impl Fn(Subject) -> u64,
    mut meter: impl FnMut(Subject) -> Meter,
) -> Option<LimitExceeded> {
    let EarlyRequest { key, at, costs_money, counts_tokens, micros } = *request;
    let limits = limits_of(key, None, &[], RequestKind { costs_money, counts_tokens });
    let funds = limits.iter().filter(|limit| limit.bounds_money()).filter_map(|limit| meter(limit.subject).funds(limit, at));
    let spent: Option<FundsStatus> = funds.filter(|funds| funds.left <= NanoUsd::ZERO).min_by_key(|funds| funds.left);
    if let Some(funds) = spent {
        return Some(LimitExceeded::Money(funds));
    }
    limits.iter().find_map(|limit| {
        let mut found = exhausted_rate(limit, &meter(limit.subject), ahead(limit.subject), micros)?;
        found.rate_statuses = rate_statuses(&limits, micros, &mut meter);
        Some(LimitExceeded::Rate(found))
    })
}

fn exhausted_rate(limit: &Limit, meter: &Meter, ahead: u64, micros: u64) -> Option<RateExceeded> {
    let ahead = match limit.rule {
        LimitRule::Requests(_) | LimitRule::Concurrency(_) => ahead,
        LimitRule::Tokens(_) | LimitRule::Budget(_) | LimitRule::Balance => 0,
    };
    let rate = meter.rate_check(limit.rule, 1, micros)?;
    let used = rate.used.saturating_add(ahead);
    if used < rate.limit {
        return None;
    }
    // If the limit is reached only because of requests that are still being received, when these will be counted is unknown.
    let wait_ms = meter.exceeded_rate(limit.rule, 1, micros).map_or(1_000, |(_, _, wait_ms)| wait_ms);
    let rate_statuses = super::RateStatuses::default();
    Some(RateExceeded { subject: limit.subject, kind: limit.rule.rate_kind()?, limit: rate.limit, used, wait_ms, rate_statuses })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Budget, BudgetAction, Limits, RateKind, Window,
        samples::{NOW, key},
    };

    fn limited(rpm: u32, concurrency: u32) -> Key {
        Key { limits: Limits { rpm, concurrency, ..Limits::default() }, ..key(&[]) }
    }

    fn exceeded(key: &Key, costs_money: bool, ahead: u64, meter: &Meter) -> Option<LimitExceeded> {
        let request = EarlyRequest { key, at: NOW, costs_money, counts_tokens: false, micros: 1 };
        let of_key = |subject| subject == Subject::Key(key.id);
        exhausted_limit(
            &request,
            |subject| if of_key(subject) { ahead } else { 0 },
            |subject| {
                if of_key(subject) { *meter } else { Meter::default() }
            },
        )
    }

    fn kind(exceeded: Option<LimitExceeded>) -> Option<(RateKind, u64, u64)> {
        match exceeded? {
            LimitExceeded::Rate(rate) => Some((rate.kind, rate.limit, rate.used)),
            LimitExceeded::Money(_) => None,
        }
    }

    #[test]
    fn requests_still_being_received_count_against_the_limits() {
        let meter = Meter { running: 1, ..Meter::default() };
        assert_eq!(kind(exceeded(&limited(0, 3), true, 1, &meter)), None);
        assert_eq!(kind(exceeded(&limited(0, 3), true, 2, &meter)), Some((RateKind::Concurrency, 3, 3)));
        assert_eq!(kind(exceeded(&limited(1, 0), true, 0, &meter)), None);
        assert_eq!(kind(exceeded(&limited(1, 0), true, 1, &meter)), Some((RateKind::Requests, 1, 1)));
        assert!(!has_limits(&limited(0, 0)) && has_limits(&limited(1, 0)));
    }

    #[test]
    fn exhausted_money_refuses_unless_the_request_is_free() {
        let budget = |amount| Budget { amount: NanoUsd(amount), window: Window::Total, action: BudgetAction::Block };
        let meter = Meter { reserved: 100, ..Meter::default() };
        for (amount, costs_money, refused) in [(100, true, true), (101, true, false), (100, false, false)] {
            let key = Key { budgets: vec![budget(amount)], ..limited(0, 0) };
            let found = exceeded(&key, costs_money, 0, &meter);
            assert_eq!(matches!(found, Some(LimitExceeded::Money(_))), refused, "{amount} {costs_money}: {found:?}");
        }
        let alerts = Key { budgets: vec![Budget { action: BudgetAction::Alert, ..budget(1) }], ..limited(0, 0) };
        assert_eq!(exceeded(&alerts, true, 0, &meter), None);
    }
}
