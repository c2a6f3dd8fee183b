//! `verify`: whether the books agree, with the journal too. Exit code 1 with every difference when they do not.

use std::collections::HashSet;

use serde_json::{Value, json};
use tollgate_core::{NanoUsd, RequestId, UsageRecord};
use tollgate_store::{Difference, Rule, Store, Verified};

use crate::{cli::Common, compose, failure::Failure, say};

/// Looks at ledger, balances, records, attempts, roll-ups and journal.
pub(crate) fn run(common: &Common) -> Result<(), Failure> {
    compose::block_on(async {
        let store = compose::open(common).await?;
        // The journal first: what is booked in between is in both, and must be the same.
        let unbooked = compose::unbooked(common)?;
        let mut verified = store.ledger.verify().await?;
        let waiting = compare(&store, &unbooked, &mut verified.differences).await?;
        show(common, &verified, waiting)
    })
}

/// Holds the journal's records to those that were booked. How many are not booked yet.
async fn compare(store: &Store, unbooked: &[UsageRecord], differences: &mut Vec<Difference>) -> Result<usize, Failure> {
    let ids: Vec<RequestId> = unbooked.iter().map(|record| record.id).collect();
    let known = store.usage.known(&ids).await?;
    let mut seen = HashSet::new();
    let mut waiting = 0;
    for record in unbooked.iter().filter(|record| seen.insert(record.id)) {
        if !known.contains(&record.id) {
            waiting += 1;
            continue;
        }
        let Some(booked) = store.usage.find(record.id).await? else { continue };
        let money = |record: &UsageRecord| (record.sale, record.cost, record.attempts.len(), record.member);
        if money(&booked) != money(record) {
            let amount = |record: &UsageRecord| record.sale.map_or(0, |NanoUsd(sale)| sale);
            let what = record.id.to_string();
            differences.push(Difference { rule: Rule::Journal, what, expected: amount(record), found: amount(&booked) });
        }
    }
    Ok(waiting)
}

fn show(common: &Common, verified: &Verified, waiting: usize) -> Result<(), Failure> {
    let Verified { members, entries, records, attempts, differences, more } = verified;
    if common.json {
        let items: Vec<Value> = differences
            .iter()
            .map(|it| {
                json!({
                    "rule": it.rule.as_str(), "what": it.what, "expected": it.expected, "found": it.found, "message": it.to_string(),
                })
            })
            .collect();
        say::json(&json!({
            "agrees": verified.agrees(), "members": members, "ledger_entries": entries, "records": records, "attempts": attempts,
            "waiting_in_journal": waiting, "differences": items, "more_differences": more,
        }));
    } else {
        say::line(&format!("{members} balances, {entries} ledger entries, {records} records, {attempts} attempts"));
        if waiting > 0 {
            say::line(&format!("{waiting} records wait in the journal; a running gateway books them, else the next start"));
        }
        if verified.agrees() {
            say::line("everything agrees");
        }
    }
    if verified.agrees() {
        return Ok(());
    }
    let mut lines = vec!["the books do not agree:".to_owned()];
    lines.extend(differences.iter().map(ToString::to_string));
    if *more > 0 {
        lines.push(format!("and {more} more"));
    }
    Err(Failure::Machine(lines.join("\n")))
}
