//! `ledger top-up|adjust|list|balances`: balances of members.

use http::Method;
use serde_json::{Value, json};
use tollgate_core::NanoUsd;

use crate::{
    admin::{self, Admin, AdminError, AdminRequest, ApiPath},
    cli::{self, Common, LedgerPosting},
    failure::Failure,
    output,
};

pub(crate) fn run(common: &Common, subcommand: cli::Ledger) -> Result<(), Failure> {
    admin::run(common, async |admin| match subcommand {
        cli::Ledger::TopUp(posting) => post(common, admin, "top-ups", posting).await,
        cli::Ledger::Adjust(posting) => post(common, admin, "adjustments", posting).await,
        cli::Ledger::List { member, kind, before, limit } => {
            if let Some(kind) = kind.as_deref().filter(|kind| !["top_up", "settle", "adjust"].contains(kind)) {
                return Err(Failure::Usage(format!("--kind takes top_up, settle or adjust, not '{kind}'")));
            }
            let before = before.map(|position| position.to_string());
            let target = ApiPath::of(&["ledger"]).with("limit", &limit.to_string()).maybe("member", member.as_deref());
            list(common, admin, &target.maybe("kind", kind.as_deref()).maybe("after", before.as_deref())).await
        }
        cli::Ledger::Balances => balances(common, admin).await,
    })
}

async fn post(common: &Common, admin: &Admin, path: &str, posting: LedgerPosting) -> Result<(), Failure> {
    let amount = NanoUsd::parse(&posting.amount).map_err(|fault| Failure::Usage(fault.to_string()))?;
    let has_own_key = posting.idempotency_key.is_some();
    let key = posting.idempotency_key.unwrap_or_else(|| format!("cli-{}", uuid::Uuid::now_v7()));
    let body = json!({"member": posting.member, "amount": amount.to_usd_string(), "note": posting.note.unwrap_or_default()});
    let target = ApiPath::of(&["ledger", path]);
    let request = AdminRequest { idempotency_key: Some(&key), ..AdminRequest::of(Method::POST, &target, &body) };
    let response = admin.send(request).await.map_err(|error| posting_failure(error, &key, has_own_key))?;
    let entry = &response.body;
    let mut shown = entry_json(entry);
    shown["repeated"] = response.repeated.into();
    let done = if response.repeated { "was posted before; nothing changed:" } else { "posted:" };
    let text = |member: &str| entry[member].as_str().unwrap_or_default();
    output::result(common, &shown, &format!("{done} {} USD, balance {} USD", text("amount"), text("balance")));
    Ok(())
}

/// Adds the idempotency key to the message when it is unknown whether the posting was made, so that it can be repeated safely.
fn posting_failure(error: AdminError, key: &str, has_own_key: bool) -> Failure {
    match error {
        AdminError::Failed(Failure::Unreachable(text)) => {
            let how = if has_own_key { "the same --idempotency-key".to_owned() } else { format!("--idempotency-key {key}") };
            Failure::Unreachable(format!("{text}; repeat it with {how}: it is posted only once"))
        }
        error @ (AdminError::Refused(_) | AdminError::Failed(_)) => error.into(),
    }
}

async fn list(common: &Common, admin: &Admin, target: &ApiPath) -> Result<(), Failure> {
    let (entries, _) = admin.page(target).await?;
    if common.json {
        let next = entries.last().map(|entry| entry["position"].clone());
        output::json(&json!({"items": entries.iter().map(entry_json).collect::<Vec<_>>(), "next": next}));
        return Ok(());
    }
    let row = |entry: &Value| {
        let text = |member: &str| entry[member].as_str().unwrap_or_default().to_owned();
        vec![
            entry["position"].to_string(),
            text("at"),
            name_of(entry, "member_name"),
            text("kind"),
            text("amount"),
            text("balance"),
            entry["covers"]["count"].as_u64().map_or_else(|| text("note"), covered),
        ]
    };
    let headings = ["position", "at", "member", "kind", "amount USD", "balance USD", "requests or note"];
    output::table(&headings, &entries.iter().map(row).collect::<Vec<_>>());
    Ok(())
}

fn covered(count: u64) -> String {
    if count == 1 { "1 request".to_owned() } else { format!("{count} requests") }
}

async fn balances(common: &Common, admin: &Admin) -> Result<(), Failure> {
    let mut items = admin.all(&ApiPath::of(&["ledger", "balances"])).await?;
    items.sort_by_cached_key(|item| name_of(item, "name"));
    let row = |item: &Value| vec![name_of(item, "name"), item["balance"].as_str().unwrap_or_default().to_owned()];
    output::list(common, &items, &["member", "balance USD"], &items.iter().map(row).collect::<Vec<_>>());
    Ok(())
}

/// Name of a member, or its id if it was removed.
fn name_of(item: &Value, member: &str) -> String {
    let name = item[member].as_str().filter(|name| !name.is_empty());
    name.or(item["member"].as_str()).unwrap_or_default().to_owned()
}

fn entry_json(entry: &Value) -> Value {
    let mut shown = entry.clone();
    let name = shown.as_object_mut().and_then(|members| members.shift_remove("member_name"));
    shown["name"] = name.unwrap_or_default();
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_outcome_of_a_posting_names_the_idempotency_key() {
        let broke = || AdminError::Failed(Failure::Unreachable("it broke".to_owned()));
        assert!(posting_failure(broke(), "cli-1", false).to_string().contains("--idempotency-key cli-1"));
        let own = posting_failure(broke(), "invoice", true);
        assert!(own.to_string().contains("the same --idempotency-key") && own.code() == 4);
    }
}
