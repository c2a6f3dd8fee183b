//! Refusals by the caller's limits.

use tollgate_core::Window;

use super::RefusalRow;
use crate::{
    refusal::{
        BudgetSubject, LimitKind, LimitSubject, RateLimit, SpentBudget,
        text::{time, usd},
    },
    request::Head,
};

/// E31 without figures.
pub(super) fn wrong_keys(retry_after: u32) -> RefusalRow {
    let message = format!("Too many invalid API keys were sent from this address. Try again in {retry_after} s.");
    RefusalRow::new(429, "rate_limit_error", Some("rate_limit_exceeded"), "RESOURCE_EXHAUSTED", "RATE_LIMIT_EXCEEDED", message)
        .retry(retry_after)
}

/// E31.
pub(super) fn rate_limited(limit: &RateLimit) -> RefusalRow {
    let what = match limit.limited {
        LimitKind::Requests => "requests per minute",
        LimitKind::Tokens => "tokens per minute",
        LimitKind::Concurrency => "concurrent requests",
    };
    let subject = match limit.subject {
        LimitSubject::Key => "key",
        LimitSubject::Member => "member",
        LimitSubject::Group => "group",
        LimitSubject::Address => "address",
    };
    let secs = limit.retry_after.clamp(1, 60);
    let message = format!("Rate limit reached for {what}: limit {}, used {}. Try again in {secs} s.", limit.limit, limit.used);
    RefusalRow::new(
        429,
        "rate_limit_error",
        Some("rate_limit_exceeded"),
        "RESOURCE_EXHAUSTED",
        "RATE_LIMIT_EXCEEDED",
        message.clone(),
    )
    .retry(secs)
    .quota(subject, &message)
}

/// The budget's subject, as used in messages and in `QuotaFailure`.
fn owner_of(subject: BudgetSubject) -> (&'static str, &'static str) {
    match subject {
        BudgetSubject::Key => ("of this API key", "key"),
        BudgetSubject::Member | BudgetSubject::Balance => ("of this API key's member", "member"),
        BudgetSubject::Group => ("of this API key's group", "group"),
        BudgetSubject::Gateway => ("of this gateway", "gateway"),
    }
}

/// E32 and E33 differ only in the message.
fn out_of_money(subject: BudgetSubject, message: String) -> RefusalRow {
    let description = message.clone();
    RefusalRow::new(429, "insufficient_quota", Some("insufficient_quota"), "RESOURCE_EXHAUSTED", "RESOURCE_QUOTA_EXCEEDED", message)
        .stop()
        .quota(owner_of(subject).1, &description)
}

/// E32.
pub(super) fn spent(spent: &SpentBudget, head: &Head) -> RefusalRow {
    let (owner, _) = owner_of(spent.subject);
    let what = match (spent.subject, spent.window) {
        (BudgetSubject::Balance, _) => "balance",
        (_, Window::Day) => "daily budget",
        (_, Window::Month) => "monthly budget",
        (_, Window::Total) => "budget",
    };
    let figures = match spent.subject {
        BudgetSubject::Balance => format!(" ({} USD left)", usd(spent.amount)),
        BudgetSubject::Key | BudgetSubject::Member | BudgetSubject::Group | BudgetSubject::Gateway => {
            format!(" ({} of {} USD)", usd(spent.spent), usd(spent.amount))
        }
    };
    let then = match spent.renews_at {
        Some(at) => format!("; it renews on {}.", time(at)),
        None => ". Ask the operator to raise it.".to_owned(),
    };
    let row = out_of_money(spent.subject, format!("The {what} {owner} is spent{figures}{then}"));
    let wait = spent
        .renews_at
        .map(|at| at.ms_since(head.arrived).max(0).unsigned_abs().div_ceil(1_000))
        .and_then(|secs| u32::try_from(secs).ok());
    match wait {
        Some(secs) if secs <= 60 => row.retry(secs),
        Some(_) | None => row,
    }
}

/// E33.
pub(super) fn too_dear(subject: BudgetSubject) -> RefusalRow {
    let what = if subject == BudgetSubject::Balance { "balance" } else { "budget" };
    out_of_money(subject, format!("The estimated cost of this request exceeds the remaining {what} {}.", owner_of(subject).0))
}
