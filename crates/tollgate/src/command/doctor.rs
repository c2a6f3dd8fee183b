//! `doctor`: checks everything that serving needs and reports what is wrong.

use std::path::Path;

use serde_json::{Value, json};
use tollgate_core::RequestId;
use tollgate_store::{AccessMode, DataFolderLock, JournalEntry, RepairReport, StoreUrl};

use crate::{
    cli::{Common, Doctor},
    compose, descriptors,
    failure::Failure,
    health_share, journal_backlog, output,
};

struct CheckResult {
    what: &'static str,
    good: bool,
    text: String,
}

pub(crate) fn run(common: &Common, arguments: &Doctor) -> Result<(), Failure> {
    let config = compose::settings(common, &[])?;
    let mut findings = vec![CheckResult { what: "settings", good: true, text: "all values are valid".to_owned() }];
    let journal = compose::journal_folder(&config.data);
    if arguments.repair && journal.exists() {
        let repaired = tollgate_store::repair_journal(&journal).map_err(|error| compose::journal_failure(&error))?;
        findings.extend(repaired.iter().map(repair_result));
        if repaired.is_empty() && !common.quiet {
            findings.push(CheckResult { what: "repair", good: true, text: "no segment is damaged".to_owned() });
        }
    }
    if arguments.repair {
        findings.extend(accept_journal(&config));
    }
    let folder = std::fs::metadata(&config.data);
    findings.push(match &folder {
        Ok(metadata) if metadata.is_dir() => {
            CheckResult { what: "data folder", good: true, text: config.data.display().to_string() }
        }
        Ok(_) => CheckResult { what: "data folder", good: false, text: format!("{} is not a folder", config.data.display()) },
        Err(_) => CheckResult {
            what: "data folder",
            good: true,
            text: format!("{} is created on the first start", config.data.display()),
        },
    });
    findings.push(open_files(&config));
    if folder.is_ok() {
        findings.push(database(&config));
        findings.push(journal_state(&journal));
    }
    if config.redis_url.is_some() {
        findings.extend(redis(&config));
    }
    let wrong = findings.iter().filter(|finding| !finding.good).count();
    if common.json {
        let items: Vec<Value> =
            findings.iter().map(|finding| json!({"what": finding.what, "ok": finding.good, "text": finding.text})).collect();
        output::json(&json!({"items": items}));
    } else {
        for finding in findings.iter().filter(|finding| !common.quiet || !finding.good || finding.what == "repair") {
            output::line(&format!("{:<5} {:<12} {}", if finding.good { "ok" } else { "FAIL" }, finding.what, finding.text));
        }
    }
    if wrong == 0 { Ok(()) } else { Err(Failure::Machine(format!("{wrong} finding(s) need attention"))) }
}

fn open_files(config: &crate::config::Config) -> CheckResult {
    let (good, text) = descriptors::check(config.count("server.max_connections"), config.count("limits.in_flight"));
    CheckResult { what: "open files", good, text }
}

fn database(config: &crate::config::Config) -> CheckResult {
    let opened = compose::block_on(async {
        let store = compose::open_as(config, AccessMode::Command).await?;
        let catalog = store.catalog.load().await?;
        Ok(format!("{}, catalog revision {}, {} channels", store.database, catalog.revision.0, catalog.channels.len()))
    });
    match opened {
        Ok(text) => CheckResult { what: "database", good: true, text },
        Err(failure) => CheckResult { what: "database", good: false, text: failure.to_string() },
    }
}

/// Whether Redis is reachable, and whether its clock agrees with this machine's.
fn redis(config: &crate::config::Config) -> Vec<CheckResult> {
    let checked = compose::redis_address(config).and_then(|address| {
        compose::block_on(async {
            let Some(address) = &address else { return Ok(0) };
            let before = compose::now();
            let theirs = tollgate_store::check_redis(address).await?;
            Ok(before.0 / 2 + compose::now().0 / 2 - theirs.0)
        })
    });
    match checked {
        Ok(skew_us) => {
            let reachable = CheckResult { what: "redis", good: true, text: "reachable".to_owned() };
            vec![reachable, clock(skew_us)]
        }
        Err(failure) => vec![CheckResult { what: "redis", good: false, text: failure.to_string() }],
    }
}

fn clock(ahead_us: i64) -> CheckResult {
    let good = ahead_us.abs() <= health_share::MAX_SKEW_US;
    let text = if good {
        "agrees with that of Redis".to_owned()
    } else {
        let side = if ahead_us > 0 { "ahead of" } else { "behind" };
        format!("{} s {side} that of Redis; set the clocks of both machines, by NTP for instance", ahead_us.abs() / 1_000_000)
    };
    CheckResult { what: "clock", good, text }
}

/// Accepts a journal and a database that do not belong together: what is missing is named this once.
fn accept_journal(config: &crate::config::Config) -> Vec<CheckResult> {
    let result = |good, text| CheckResult { what: "repair", good, text };
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

/// Reads the whole journal.
fn journal_state(folder: &Path) -> CheckResult {
    let finding = |good, text| CheckResult { what: "journal", good, text };
    let entries = match journal_backlog::entries(folder) {
        Ok(entries) => entries,
        Err(failure) => return finding(false, failure.to_string()),
    };
    let (mut ended, mut rejected) = (0, 0);
    for entry in entries {
        match entry {
            Ok(JournalEntry::Ended { refused, .. }) => {
                ended += 1;
                rejected += usize::from(refused);
            }
            Ok(JournalEntry::Begun(_)) => {}
            Err(fault) => return finding(false, fault.to_string()),
        }
    }
    if rejected > 0 {
        return finding(false, format!("the database rejected {rejected} records; `tollgate verify` lists them"));
    }
    finding(true, format!("readable, {ended} ended requests in it"))
}

/// Result of a repair, with the requests that are lost.
fn repair_result(repaired: &RepairReport) -> CheckResult {
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
    CheckResult { what: "repair", good: true, text: parts.join("; ") }
}
