//! `/v1/key`, and the same for members: the models, groups and protocols that a key may use, and the rest of its limits and budgets.

use std::sync::Arc;

use serde_json::{Value, json};
use tollgate_core::{Billing, Budget, BudgetAction, Caller, Catalog, Limits, NanoUsd, Subject, Timestamp, Window, visible_models};
use tollgate_store::{LedgerFilter, fields::FieldValue as _};

use super::CallerRequest;
use crate::{api_error::ApiError, time::time_value};

/// Models that are listed.
const MAX_MODELS: usize = 10_000;

/// A budget and its remaining amount.
pub(super) struct BudgetState {
    of: &'static str,
    /// The group, of a group's budget.
    group: Option<String>,
    budget: Budget,
    spent: NanoUsd,
}

impl BudgetState {
    /// The remaining amount; `None` if the budget only alerts.
    pub(super) fn bound(&self) -> Option<NanoUsd> {
        (self.budget.action == BudgetAction::Block).then(|| self.left())
    }

    pub(super) const fn is_of_group(&self) -> bool {
        self.group.is_some()
    }

    pub(super) fn is_of(&self, group: &str) -> bool {
        self.group.as_deref() == Some(group)
    }

    fn left(&self) -> NanoUsd {
        NanoUsd(self.budget.amount.0.saturating_sub(self.spent.0).max(0))
    }

    fn show(&self, now: Timestamp) -> Value {
        json!({
            "of": self.of, "group": self.group, "amount": self.budget.amount.to_usd_string(), "window": self.budget.window, "action": self.budget.action,
            "spent": self.spent.to_usd_string(), "left": self.left().to_usd_string(), "renews_at": renews_at(self.budget.window, now),
        })
    }
}

/// When a budget renews; null: never.
fn renews_at(window: Window, now: Timestamp) -> Option<Value> {
    window.ends(now).map(time_value)
}

/// The gateway's own budgets that are spent and refuse requests. Callers do not get their amounts, which are the spending of all
/// callers.
pub(super) async fn spent_budgets_of_gateway(request: &CallerRequest) -> Result<Vec<Window>, ApiError> {
    let gateway = &request.state.gateway;
    let mut spent = Vec::new();
    for budget in gateway.budgets().into_iter().filter(|budget| budget.action == BudgetAction::Block) {
        if request.read(gateway.spent(Subject::Gateway, budget.window)).await? >= budget.amount {
            spent.push(budget.window);
        }
    }
    Ok(spent)
}

/// The budgets of the key, of its member and of its groups.
pub(super) async fn budgets(request: &CallerRequest, caller: &Caller) -> Result<Vec<BudgetState>, ApiError> {
    let CallerRequest { state, key, .. } = request;
    let mut subjects = vec![
        ("key", None, Subject::Key(key.id), key.budgets.as_slice()),
        ("member", None, Subject::Member(key.member.id), key.member.budgets.as_slice()),
    ];
    let of_groups = caller.groups.iter().map(|group| {
        let name = Some(group.name.clone());
        ("group", name, Subject::Group(group.id), group.budgets.as_slice())
    });
    subjects.extend(of_groups);
    let mut found = Vec::new();
    for (of, group, subject, budgets) in subjects {
        for budget in budgets {
            let spent = request.read(state.gateway.spent(subject, budget.window)).await?;
            found.push(BudgetState { of, group: group.clone(), budget: *budget, spent });
        }
    }
    Ok(found)
}

/// The caller that the request's key makes with the catalog in force.
pub(super) async fn caller(request: &CallerRequest) -> Result<(Arc<Catalog>, Caller), ApiError> {
    let catalog = request.read(request.state.gateway.catalog()).await?;
    let caller = Caller::of(&catalog, Arc::clone(&request.key));
    Ok((catalog, caller))
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
    let (catalog, caller) = caller(request).await?;
    let models: Vec<String> =
        visible_models(&catalog, &caller).into_iter().take(MAX_MODELS).map(|it| it.model.spec.name.clone()).collect();
    let groups: Vec<&str> = caller.groups.iter().map(|group| group.name.as_str()).collect();
    let group_limits: Vec<Value> = caller.groups.iter().filter_map(|group| group_limits(&group.name, group.limits)).collect();
    let now = state.gateway.now();
    let budgets: Vec<Value> = budgets(request, &caller).await?.iter().map(|budget| budget.show(now)).collect();
    let contents_stored =
        state.gateway.stores_contents() && (key.log_contents || caller.groups.iter().any(|group| group.log_contents));
    let of_gateway = spent_budgets_of_gateway(request).await?;
    let of_gateway: Vec<Value> = of_gateway.into_iter().map(|it| json!({"window": it, "renews_at": renews_at(it, now)})).collect();
    Ok(json!({
        "object": "key", "id": key.id, "name": key.name, "prefix": key.prefix, "suffix": key.suffix, "member": key.member.name,
        "created_at": time_value(key.created_at), "expires_at": key.expires_at.map(time_value), "groups": groups, "models": models,
        "protocols": key.protocols.show(), "price_limit": key.price_limit.show(), "tags": key.tags.show(),
        "contents_stored": contents_stored,
        "limits": limits(key.limits), "member_limits": limits(key.member.limits), "group_limits": group_limits, "budgets": budgets,
        "spent_gateway_budgets": of_gateway,
        "balance": balance(request).await?.map(NanoUsd::to_usd_string),
    }))
}

/// Limits; null where there is none.
fn limits(limits: Limits) -> Value {
    let some = |limit: u64| (limit > 0).then_some(limit);
    json!({"rpm": some(limits.rpm.into()), "tpm": some(limits.tpm), "concurrency": some(limits.concurrency.into())})
}

/// Limits of a group for all of its keys together; `None` without any.
fn group_limits(name: &str, of: Limits) -> Option<Value> {
    let mut shown = limits(of);
    shown["group"] = name.into();
    (of != Limits::default()).then_some(shown)
}
