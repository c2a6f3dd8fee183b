//! `ledger top-up|adjust|list|balances`: money that moves.

use http::Method;
use serde_json::{Value, json};
use tollgate_core::NanoUsd;

use crate::{
    admin::{Admin, AdminError, AdminRequest, ApiPath, FolderPolicy},
    cli::{self, Common, LedgerPosting},
    compose,
    failure::Failure,
    output,
};

/// Runs one of the verbs.
pub(crate) fn run(common: &Common, verb: cli::Ledger) -> Result<(), Failure> {
    compose::block_on(async {
        let admin = Admin::open(common, FolderPolicy::MustExist).await?;
        match verb {
            cli::Ledger::TopUp(posting) => post(common, &admin, "top-ups", posting).await,
            cli::Ledger::Adjust(posting) => post(common, &admin, "adjustments", posting).await,
            cli::Ledger::List { member, kind, before, limit } => {
                if let Some(kind) = kind.as_deref().filter(|kind| !["top_up", "settle", "adjust"].contains(kind)) {
                    return Err(Failure::Usage(format!("--kind takes top_up, settle or adjust, not '{kind}'")));
                }
                let before = before.map(|place| place.to_string());
                let target = ApiPath::of(&["ledger"]).with("limit", &limit.to_string()).maybe("member", member.as_deref());
                list(common, &admin, &target.maybe("kind", kind.as_deref()).maybe("after", before.as_deref())).await
            }
            cli::Ledger::Balances => balances(common, &admin).await,
        }
    })
}

async fn post(common: &Common, admin: &Admin, path: &str, asked: LedgerPosting) -> Result<(), Failure> {
    let amount = NanoUsd::parse(&asked.amount).map_err(|fault| Failure::Usage(fault.to_string()))?;
    let own = asked.idempotency_key.is_some();
    let key = asked.idempotency_key.unwrap_or_else(|| format!("cli-{}", uuid::Uuid::now_v7()));
    let body = json!({"member": asked.member, "amount_nano_usd": amount, "note": asked.note.unwrap_or_default()});
    let target = ApiPath::of(&["ledger", path]);
    let sending = AdminRequest { idempotency_key: Some(&key), ..AdminRequest::of(Method::POST, &target, &body) };
    let said = admin.send(sending).await.map_err(|trouble| once_more(trouble, &key, own))?;
    let entry = &said.body;
    if common.json {
        let mut shown = entry_json(entry);
        shown["repeated"] = said.repeated.into();
        output::json(&shown);
        return Ok(());
    }
    let done = if said.repeated { "was posted before; nothing changed:" } else { "posted:" };
    let text = |member: &str| entry[member].as_str().unwrap_or_default();
    output::line(&format!("{done} {} USD, balance {} USD", text("amount_usd"), text("balance_usd")));
    Ok(())
}

/// Whoever does not know whether money moved needs the key that makes a repetition harmless.
fn once_more(trouble: AdminError, key: &str, own: bool) -> Failure {
    match trouble {
        AdminError::Failed(Failure::Unreachable(text)) => {
            let how = if own { "the same --idempotency-key".to_owned() } else { format!("--idempotency-key {key}") };
            Failure::Unreachable(format!("{text}; repeated with {how} it is posted once"))
        }
        trouble @ (AdminError::Refused(_) | AdminError::Failed(_)) => trouble.into(),
    }
}

async fn list(common: &Common, admin: &Admin, target: &ApiPath) -> Result<(), Failure> {
    let (entries, _) = admin.page(target).await?;
    if common.json {
        let next = entries.last().map(|entry| entry["place"].clone());
        output::json(&json!({"items": entries.iter().map(entry_json).collect::<Vec<_>>(), "next": next}));
        return Ok(());
    }
    let mut rows =
        vec![["place", "at", "member", "kind", "amount USD", "balance USD", "request or note"].map(str::to_owned).to_vec()];
    for entry in &entries {
        let text = |member: &str| entry[member].as_str().unwrap_or_default().to_owned();
        rows.push(vec![
            entry["place"].to_string(),
            text("at"),
            name_of(entry, "member_name"),
            text("kind"),
            text("amount_usd"),
            text("balance_usd"),
            entry["request"].as_str().map_or_else(|| text("note"), str::to_owned),
        ]);
    }
    output::table(&rows);
    Ok(())
}

async fn balances(common: &Common, admin: &Admin) -> Result<(), Failure> {
    let mut items = admin.all(&ApiPath::of(&["ledger", "balances"])).await?;
    items.sort_by_cached_key(|it| name_of(it, "name"));
    if common.json {
        output::json(&json!({"items": items}));
        return Ok(());
    }
    let mut rows = vec![["member", "balance USD"].map(str::to_owned).to_vec()];
    rows.extend(items.iter().map(|it| vec![name_of(it, "name"), it["balance_usd"].as_str().unwrap_or_default().to_owned()]));
    output::table(&rows);
    Ok(())
}

/// A member's name, or its id where it is gone.
fn name_of(it: &Value, member: &str) -> String {
    let name = it[member].as_str().filter(|name| !name.is_empty());
    name.or(it["member"].as_str()).unwrap_or_default().to_owned()
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
    fn a_posting_that_may_have_been_made_is_told_how_to_repeat() {
        let broke = || AdminError::Failed(Failure::Unreachable("it broke".to_owned()));
        assert!(once_more(broke(), "cli-1", false).to_string().contains("--idempotency-key cli-1"));
        let own = once_more(broke(), "invoice", true);
        assert!(own.to_string().contains("the same --idempotency-key") && own.code() == 4);
    }
}
