//! `/v1/key`, and the same for members: what a key may use, and what is left of its limits and budgets.

use std::sync::Arc;

use serde_json::{Value, json};
use tollgate_core::{Billing, Budget, Caller, Limits, NanoUsd, Subject, Timestamp, Window, visible_models};
use tollgate_store::LedgerFilter;

use super::CallerRequest;
use crate::{api_error::ApiError, time::time_value};

/// Models that are listed.
const MAX_MODELS: usize = 10_000;

/// A budget with what is left of it.
pub(super) struct BudgetState {
    of: &'static str,
    budget: Budget,
    spent: NanoUsd,
}

impl BudgetState {
    pub(super) fn left(&self) -> NanoUsd {
        NanoUsd(self.budget.amount.0.saturating_sub(self.spent.0).max(0))
    }

    fn show(&self, now: Timestamp) -> Value {
        let renews_at = match self.budget.window {
            Window::Day => Some(Timestamp::of_day(now.day() + 1)),
            Window::Month => Some(Timestamp::of_month(now.month() + 1)),
            Window::Total => None,
        };
        json!({
            "of": self.of, "amount": self.budget.amount.to_usd_string(), "window": self.budget.window, "action": self.budget.action,
            "spent": self.spent.to_usd_string(), "left": self.left().to_usd_string(), "renews_at": renews_at.map(time_value),
        })
    }
}

/// The budgets of the key and of its member.
pub(super) async fn budgets(request: &CallerRequest) -> Result<Vec<BudgetState>, ApiError> {
    let CallerRequest { state, key, .. } = request;
    let subjects = [("key", Subject::Key(key.id), &key.budgets), ("member", Subject::Member(key.member.id), &key.member.budgets)];
    let mut found = Vec::new();
    for (of, subject, budgets) in subjects {
        for budget in budgets {
            let spent = request.read(state.gateway.spent(subject, budget.window)).await?;
            found.push(BudgetState { of, budget: *budget, spent });
        }
    }
    Ok(found)
}

/// The balance of a prepaid member; `None` for others.
pub(super) async fn balance(request: &CallerRequest) -> Result<Option<NanoUsd>, ApiError> {
    let member = &request.key.member;
    if member.billing == Billing::Postpaid {
        return Ok(None);
    }
    let newest = LedgerFilter { member: Some(member.id), limit: 1, ..LedgerFilter::default() };
    let entries = request.read(request.state.store.ledger.entries(&newest)).await?;
    Ok(Some(entries.first().map_or(NanoUsd::ZERO, |entry| entry.balance)))
}

pub(crate) async fn show(request: &CallerRequest) -> Result<Value, ApiError> {
    let (state, key) = (&request.state, &request.key);
    let catalog = request.read(state.gateway.catalog()).await?;
    let caller = Caller::of(&catalog, Arc::clone(key));
    let models: Vec<String> =
        visible_models(&catalog, &caller).into_iter().take(MAX_MODELS).map(|it| it.model.spec.name.clone()).collect();
    let groups: Vec<&str> = caller.groups.iter().map(|group| group.name.as_str()).collect();
    let now = state.gateway.now();
    let budgets: Vec<Value> = budgets(request).await?.iter().map(|budget| budget.show(now)).collect();
    Ok(json!({
        "object": "key", "id": key.id, "name": key.name, "prefix": key.prefix, "suffix": key.suffix, "member": key.member.name,
        "created_at": time_value(key.created_at), "expires_at": key.expires_at.map(time_value), "groups": groups, "models": models,
        "limits": limits(key.limits), "member_limits": limits(key.member.limits), "budgets": budgets,
        "balance": balance(request).await?.map(NanoUsd::to_usd_string),
    }))
}

/// Limits; null where there is none.
fn limits(limits: Limits) -> Value {
    let some = |limit: u64| (limit > 0).then_some(limit);
    json!({"rpm": some(limits.rpm.into()), "tpm": some(limits.tpm), "concurrency": some(limits.concurrency.into())})
}
