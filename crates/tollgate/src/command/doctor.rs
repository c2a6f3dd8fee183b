//! `doctor`: checks everything that serving needs and reports faults. With `--repair` it first repairs the journal.

use serde_json::json;
use tollgate_core::RequestId;
use tollgate_store::{AccessMode, DataFolderLock, RepairReport, StoreUrl};

use crate::{
    admin,
    cli::{Common, Doctor},
    command::job,
    compose,
    config::Config,
    failure::Failure,
    output,
    work::doctor::{DoctorOutcome, Finding, doctor},
};

const REPAIR: &str = "repair";

pub(crate) fn run(common: &Common, arguments: &Doctor) -> Result<(), Failure> {
    if arguments.repair {
        admin::require_local(common, "tollgate doctor --repair")?;
    }
    let here = |control: &_| {
        let config = compose::settings(common, &[])?;
        let repaired = if arguments.repair { repair(&config, common.quiet)? } else { Vec::new() };
        let mut outcome = doctor(&config, control)?;
        outcome.items.splice(1..1, repaired);
        Ok(outcome)
    };
    let outcome: DoctorOutcome = job::run(common, &json!({"kind": "doctor"}), here)?;
    if common.json {
        output::json(&serde_json::to_value(&outcome).expect("texts are valid JSON"));
    } else {
        for finding in outcome.items.iter().filter(|finding| !common.quiet || !finding.ok || finding.what == REPAIR) {
            let verdict = match (finding.ok, finding.note) {
                (true, false) => "ok",
                (true, true) => "note",
                (false, _) => "FAIL",
            };
            output::line(&format!("{verdict:<5} {:<12} {}", finding.what, finding.text));
        }
    }
    match outcome.wrong() {
        0 => Ok(()),
        wrong => Err(Failure::Machine(format!("{wrong} finding(s) need attention"))),
    }
}

/// Repairs the journal and accepts it beside the database, while no gateway runs.
fn repair(config: &Config, quiet: bool) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    let journal = compose::journal_folder(&config.data);
    if journal.exists() {
        let repaired = tollgate_store::repair_journal(&journal).map_err(|error| compose::journal_failure(&error))?;
        findings.extend(repaired.iter().map(repair_result));
        if repaired.is_empty() && !quiet {
            findings.push(Finding::new(REPAIR, true, "no segment is damaged"));
        }
    }
    findings.extend(accept_journal(config));
    Ok(findings)
}

/// Accepts a journal and a database that do not belong together. Missing records are reported this last time.
fn accept_journal(config: &Config) -> Vec<Finding> {
    let result = |ok, text: String| Finding::new(REPAIR, ok, text);
    let is_there = match compose::store_url(config) {
        Ok(StoreUrl::Sqlite(path)) => path.exists(),
        Ok(StoreUrl::Postgres(_) | StoreUrl::Memory) => true,
        Err(failure) => return vec![result(false, failure.to_string())],
    };
    if !is_there || DataFolderLock::is_taken(&config.data) {
        return Vec::new();
    }
    let accepted = compose::block_on(async {
        let store = compose::open_as(config, AccessMode::Command).await?;
        let accepted = store.accept_journal(&config.data).await?;
        store.close().await;
        Ok(accepted)
    });
    match accepted {
        Ok(found) => found.iter().map(|mismatch| result(true, format!("accepted as it is: {mismatch}"))).collect(),
        Err(failure) => vec![result(false, failure.to_string())],
    }
}

/// Result of a repair, with the requests that are lost.
fn repair_result(repaired: &RepairReport) -> Finding {
    let RepairReport { moved_to, kept, damaged, lost, without_end } = repaired;
    let listed = |ids: &[RequestId]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let mut parts = vec![format!("moved to {}; {} requests kept", moved_to.display(), kept.len())];
    if !lost.is_empty() {
        parts.push(format!("lost: {}", listed(lost)));
    }
    if !without_end.is_empty() {
        parts.push(format!("begun without an end, recorded as stopped at the next start: {}", listed(without_end)));
    }
    for range in damaged.iter().filter(|range| range.ids.is_empty()) {
        parts.push(format!("{} bytes at offset {} contain no request id", range.bytes, range.offset));
    }
    Finding::new(REPAIR, true, parts.join("; "))
}
