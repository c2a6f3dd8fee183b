//! `replay`: routes the requests of the usage log again under a changed catalog file and compares the result. It writes nothing and
//! sends nothing.

use serde_json::{Value, json};
use tollgate_console::RecordSelection;
use tollgate_core::NanoUsd;

use crate::{
    catalog_file,
    cli::{Common, RecordFilter, Replay as Arguments},
    command::{job, secrets, usage},
    compose,
    failure::Failure,
    output,
    work::replay::{ChannelShare, Move, ReplayFailure, ReplayOutcome, Totals, replay},
};

/// Replays the usage log under the file.
pub(crate) fn run(common: &Common, arguments: &Arguments) -> Result<(), Failure> {
    let (file, text) = catalog_file::read_with_text(&arguments.file)?;
    let records = selection(&arguments.filter)?;
    let here = |control: &_| {
        replay(&compose::settings(common, &[])?, &file, &records, control).map_err(|failure| match failure {
            ReplayFailure::File(faults) => catalog_file::file_faults(&arguments.file, &faults),
            ReplayFailure::Other(failure) => failure,
        })
    };
    let outcome: ReplayOutcome = if job::is_remote(common) {
        let request = request(&secrets::inline_secrets(&text)?, &records);
        job::remote(common, &request).map_err(|failure| failure.in_file(&arguments.file))?
    } else {
        job::here(common, here)?
    };
    if common.json {
        output::json(&serde_json::to_value(&outcome).expect("texts and numbers are valid JSON"));
    } else {
        print(&outcome);
    }
    Ok(())
}

/// The records that the flags select.
fn selection(args: &RecordFilter) -> Result<RecordSelection, Failure> {
    let (key, member, group) = (args.key.clone(), args.member.clone(), args.group.clone());
    Ok(RecordSelection { key, member, group, filter: usage::parse_records(args)? })
}

/// The job that replays this file.
fn request(file: &str, records: &RecordSelection) -> Value {
    let RecordSelection { key, member, group, filter } = records;
    let outcomes: Vec<&str> = filter.outcomes.iter().map(|outcome| outcome.as_str()).collect();
    let mut request = json!({
        "kind": "replay", "file": file, "key": key, "member": member, "group": group, "model": filter.model,
        "outcome": (!outcomes.is_empty()).then(|| outcomes.join(",")), "since": filter.since.map(tollgate_console::rfc3339),
        "until": filter.until.map(tollgate_console::rfc3339),
    });
    if let Some(members) = request.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    request
}

fn print(outcome: &ReplayOutcome) {
    if outcome.changes.is_empty() {
        output::line("the file changes nothing");
    }
    for line in &outcome.changes {
        output::line(line);
    }
    output::line("");
    output::line(&format!(
        "{} requests replayed, {} of them change their target; {} never reached routing, {} have a key that does not work",
        outcome.replayed, outcome.moved, outcome.not_routed, outcome.without_key
    ));
    if outcome.replayed == 0 {
        return;
    }
    output::line("");
    output::table(&["", "now", "changed", "difference"], &totals(&outcome.before, &outcome.after));
    if !outcome.channels.is_empty() {
        output::line("");
        print_channels(&outcome.channels);
    }
    if !outcome.moves.is_empty() {
        output::line("");
        print_moves(&outcome.moves);
    }
}

fn totals(before: &Totals, after: &Totals) -> Vec<Vec<String>> {
    let count = |name: &str, of: fn(&Totals) -> u64| {
        let (a, b) = (of(before), of(after));
        vec![name.to_owned(), a.to_string(), b.to_string(), difference(i128::from(a), i128::from(b), |value| value.to_string())]
    };
    let money = |name: &str, of: fn(&Totals) -> &String| {
        let nano_usd = |text: &String| i128::from(NanoUsd::parse(text).unwrap_or(NanoUsd::ZERO).0);
        let amount = |value: i128| NanoUsd(i64::try_from(value).unwrap_or(i64::MAX)).to_usd_string();
        let (a, b) = (of(before), of(after));
        vec![name.to_owned(), a.clone(), b.clone(), difference(nano_usd(a), nano_usd(b), amount)]
    };
    vec![
        count("served", |totals| totals.served),
        count("refused", |totals| totals.refused),
        money("sale USD", |totals| &totals.sale),
        money("cost USD", |totals| &totals.cost),
        count("not priced", |totals| totals.unpriced),
        count("cost not known", |totals| totals.cost_unknown),
    ]
}

/// A difference with its sign; empty if there is none.
fn difference(before: i128, after: i128, shown: impl Fn(i128) -> String) -> String {
    match after - before {
        0 => String::new(),
        more @ 1.. => format!("+{}", shown(more)),
        less => format!("-{}", shown(-less)),
    }
}

fn print_channels(channels: &[ChannelShare]) {
    let row = |share: &ChannelShare| {
        vec![
            share.model.clone(),
            share.channel.clone(),
            share.requests_before.to_string(),
            share.requests_after.to_string(),
            share.cost_before.clone(),
            share.cost_after.clone(),
        ]
    };
    let headings = ["model", "channel", "requests now", "changed", "cost USD now", "changed"];
    output::long_table(&headings, &channels.iter().map(row).collect::<Vec<_>>());
}

fn print_moves(moves: &[Move]) {
    let mut moves: Vec<&Move> = moves.iter().collect();
    moves.sort_by_key(|it| std::cmp::Reverse(it.requests));
    let rows = moves.into_iter().map(|it| vec![it.requests.to_string(), it.model.clone(), it.from.clone(), it.to.clone()]);
    output::long_table(&["requests", "model", "from", "to"], &rows.collect::<Vec<_>>());
}
