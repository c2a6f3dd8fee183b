//! The subjects that a request charges and those that limit its reservations, and the sharding of maps by subject and by request.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::{Budget, BudgetAction, Limit, LimitRule, NanoUsd, RequestId, Reservation, Subject, UsageRecord};

/// The charges of a request: its sale to key, member, group and gateway, the cost of each attempt to the attempt's channel.
pub(super) fn charges_of(record: &UsageRecord) -> impl Iterator<Item = (Subject, NanoUsd)> + Clone {
    let sale = record.sale.unwrap_or_default();
    let payers = [Some(Subject::Key(record.key)), Some(Subject::Member(record.member)), record.group.map(Subject::Group)];
    let payers = payers.into_iter().flatten().chain([Subject::Gateway]).map(move |subject| (subject, sale));
    let costs = record.attempts.iter().map(|attempt| (Subject::Channel(attempt.channel), attempt.cost.unwrap_or_default()));
    payers.chain(costs).filter(|(_, amount)| *amount != NanoUsd::ZERO)
}

/// The budgets among these limits that only alert, without duplicates.
pub(super) fn alerting_budgets<'a>(limits: impl Iterator<Item = &'a Limit>) -> Vec<(Subject, Budget)> {
    let mut alerts = Vec::new();
    for limit in limits {
        if let LimitRule::Budget(budget) = limit.rule
            && budget.action == BudgetAction::Alert
            && !alerts.contains(&(limit.subject, budget))
        {
            alerts.push((limit.subject, budget));
        }
    }
    alerts
}

/// The subjects with a limit on money, without duplicates.
pub(super) fn money_subjects(limits: &[Limit]) -> Vec<Subject> {
    unique(limits.iter().filter(|limit| limit.bounds_money()))
}

/// The limits that can refuse a reservation. Budgets that only alert are left out, and so are limits on money if the reservation costs
/// nothing.
pub(super) fn binding_limits(reservation: &Reservation) -> impl Iterator<Item = &Limit> {
    reservation.limits.iter().filter(|limit| match limit.rule {
        LimitRule::Budget(_) | LimitRule::Balance => limit.bounds_money() && reservation.amount > NanoUsd::ZERO,
        LimitRule::Requests(_) | LimitRule::Tokens(_) | LimitRule::Concurrency(_) => true,
    })
}

/// The subjects of the [`binding_limits`], without duplicates.
pub(super) fn binding_subjects(reservation: &Reservation) -> Vec<Subject> {
    unique(binding_limits(reservation))
}

fn unique<'a>(limits: impl Iterator<Item = &'a Limit>) -> Vec<Subject> {
    let mut subjects: Vec<Subject> = limits.map(|limit| limit.subject).collect();
    subjects.sort_unstable();
    subjects.dedup();
    subjects
}

pub(super) const SHARDS: usize = 64;

/// The shard of a subject, by the last byte of its id: that byte of a version 7 UUID is random.
pub(super) fn shard_of(subject: Subject) -> usize {
    let uuid = match subject {
        Subject::Key(id) => id.uuid(),
        Subject::Member(id) => id.uuid(),
        Subject::Group(id) => id.uuid(),
        Subject::Channel(id) => id.uuid(),
        Subject::Gateway => return 0,
    };
    usize::from(uuid.as_bytes()[15]) % SHARDS
}

pub(super) fn shard_of_request(id: RequestId) -> usize {
    usize::from(id.uuid().as_bytes()[15]) % SHARDS
}

/// The shards of these subjects, sorted and without duplicates. Locking several shards in this order cannot deadlock.
pub(super) fn lock_order(subjects: impl Iterator<Item = Subject>) -> Vec<usize> {
    let mut shards: Vec<usize> = subjects.map(shard_of).collect();
    shards.sort_unstable();
    shards.dedup();
    shards
}

/// Locks a mutex. Poisoning is ignored: counting continues after a panic in another thread.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
