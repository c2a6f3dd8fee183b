//! `ledger top-up|adjust|list|balances`: money that moves.

use serde_json::{Value, json};
use tollgate_core::{MemberId, NanoUsd};
use tollgate_store::{LedgerEntry, LedgerFilter, LedgerKind, LedgerPlace, Posted, Posting, PostingKind, Store};

use crate::{
    cli::{self, Common, LedgerPosting},
    compose,
    failure::Failure,
    say,
};

/// Runs one of the verbs.
pub(crate) fn run(common: &Common, verb: cli::Ledger) -> Result<(), Failure> {
    compose::block_on(async {
        let store = compose::open(common).await?;
        match verb {
            cli::Ledger::TopUp(posting) => post(common, &store, PostingKind::TopUp, posting).await,
            cli::Ledger::Adjust(posting) => post(common, &store, PostingKind::Adjust, posting).await,
            cli::Ledger::List { member, kind, before, limit } => {
                let member = match member {
                    Some(name) => Some(find(&store, &name).await?),
                    None => None,
                };
                let kind = kind.as_deref().map(kind_of).transpose()?;
                let filter = LedgerFilter { member, kind, before: before.map(LedgerPlace), limit };
                list(common, &store, &filter).await
            }
            cli::Ledger::Balances => balances(common, &store).await,
        }
    })
}

async fn post(common: &Common, store: &Store, kind: PostingKind, asked: LedgerPosting) -> Result<(), Failure> {
    let amount = NanoUsd::parse(&asked.amount).map_err(|fault| Failure::Usage(fault.to_string()))?;
    let posting = Posting {
        member: find(store, &asked.member).await?,
        kind,
        amount,
        idempotency_key: asked.idempotency_key,
        note: asked.note.unwrap_or_default(),
        actor: compose::actor().name,
    };
    let Posted { entry, repeated } = store.ledger.post(&posting, compose::now()).await?;
    if common.json {
        let mut shown = entry_json(&entry, &asked.member);
        shown["repeated"] = repeated.into();
        say::json(&shown);
        return Ok(());
    }
    let done = if repeated { "was posted before; nothing changed:" } else { "posted:" };
    say::line(&format!("{done} {} USD, balance {} USD", entry.amount.to_usd_string(), entry.balance.to_usd_string()));
    Ok(())
}

async fn list(common: &Common, store: &Store, filter: &LedgerFilter) -> Result<(), Failure> {
    let names = store.ledger.balances().await?;
    let name_of = |member: MemberId| {
        let known = names.iter().find(|balance| balance.member == member).map(|balance| balance.name.clone());
        known.filter(|name| !name.is_empty()).unwrap_or_else(|| member.to_string())
    };
    let entries = store.ledger.entries(filter).await?;
    if common.json {
        let items: Vec<Value> = entries.iter().map(|entry| entry_json(entry, &name_of(entry.member))).collect();
        let next = entries.last().map(|entry| entry.place.0);
        say::json(&json!({"items": items, "next": next}));
        return Ok(());
    }
    let mut rows =
        vec![["place", "at", "member", "kind", "amount USD", "balance USD", "request or note"].map(str::to_owned).to_vec()];
    for entry in entries {
        rows.push(vec![
            entry.place.0.to_string(),
            entry.at.to_string(),
            name_of(entry.member),
            entry.kind.as_str().to_owned(),
            entry.amount.to_usd_string(),
            entry.balance.to_usd_string(),
            entry.request.map_or(entry.note, |request| request.to_string()),
        ]);
    }
    say::table(&rows);
    Ok(())
}

async fn balances(common: &Common, store: &Store) -> Result<(), Failure> {
    let balances = store.ledger.balances().await?;
    if common.json {
        let items: Vec<Value> = balances
            .iter()
            .map(|it| {
                json!({"member": it.member, "name": it.name, "balance_nano_usd": it.balance, "balance_usd": it.balance.to_usd_string()})
            })
            .collect();
        say::json(&json!({"items": items}));
        return Ok(());
    }
    let mut rows = vec![["member", "balance USD"].map(str::to_owned).to_vec()];
    rows.extend(balances.into_iter().map(|it| {
        let name = if it.name.is_empty() { it.member.to_string() } else { it.name };
        vec![name, it.balance.to_usd_string()]
    }));
    say::table(&rows);
    Ok(())
}

/// The member of this name or id.
async fn find(store: &Store, name: &str) -> Result<MemberId, Failure> {
    let balances = store.ledger.balances().await?;
    let found = balances.iter().find(|it| it.name == name || it.member.to_string() == name);
    found
        .map(|it| it.member)
        .ok_or_else(|| Failure::written(format!("there is no member '{name}'; `tollgate ledger balances` lists them")))
}

fn kind_of(word: &str) -> Result<LedgerKind, Failure> {
    LedgerKind::parse(word).ok_or_else(|| Failure::Usage(format!("--kind takes top_up, settle or adjust, not '{word}'")))
}

fn entry_json(entry: &LedgerEntry, member: &str) -> Value {
    json!({
        "place": entry.place.0, "at": entry.at.to_string(), "member": entry.member, "name": member, "kind": entry.kind.as_str(),
        "amount_nano_usd": entry.amount, "amount_usd": entry.amount.to_usd_string(), "balance_nano_usd": entry.balance,
        "balance_usd": entry.balance.to_usd_string(), "request": entry.request, "idempotency_key": entry.idempotency_key,
        "note": entry.note, "actor": entry.actor,
    })
}
