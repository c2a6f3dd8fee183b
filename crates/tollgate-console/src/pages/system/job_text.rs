//! Translates the English sentences of jobs, which come from the commands that do the work. A sentence that matches one of the English
//! texts of pages is shown in the reader's language, any other unchanged.

use serde_json::{Map, Value};
use tollgate_core::{NanoUsd, Timestamp};

use super::fault_text;
use crate::{
    pages::{
        format,
        locale::{Locale, fill},
        sentences::{Said, translated},
    },
    time::rfc3339,
};

/// The name of a check of the doctor.
fn check_name(t: Locale, what: &str) -> Option<&'static str> {
    Some(match what {
        "settings" => t.say("doctor.settings"),
        "data folder" => t.say("doctor.data_folder"),
        "disk" => t.say("doctor.disk"),
        "open files" => t.say("doctor.open_files"),
        "address" => t.say("doctor.address"),
        "console" => t.say("doctor.console"),
        "database" => t.say("doctor.database"),
        "channels" => t.say("doctor.channels"),
        "journal" => t.say("doctor.journal"),
        "backups" => t.say("doctor.backups"),
        "redis" => t.say("doctor.redis"),
        "clock" => t.say("doctor.clock"),
        "export" => t.say("export.title"),
        _ => return None,
    })
}

/// The same; an unknown check keeps the doctor's name.
pub(super) fn check(t: Locale, what: &str) -> String {
    check_name(t, what).unwrap_or(what).to_owned()
}

/// Steps of all kinds of jobs except the doctor's checks.
const STEPS: [&str; 7] = ["records", "archive", "check", "list", "difference", "effects", "write"];
/// Checks of the doctor that take a while or whose name other jobs use for a step.
const CHECKS: [&str; 12] = [
    "data folder",
    "disk",
    "open files",
    "address",
    "console",
    "database",
    "channels",
    "journal",
    "backups",
    "redis",
    "clock",
    "export",
];

/// The step at which a job is.
pub(super) fn step(t: Locale, step: &str) -> &str {
    match step {
        "records" => t.say("fact.records"),
        "archive" => t.say("step.archive"),
        "check" => t.say("step.check"),
        "list" => t.say("step.list"),
        "difference" => t.say("step.difference"),
        "effects" => t.say("step.effects"),
        "write" => t.say("step.write"),
        _ => check_name(t, step).unwrap_or(step),
    }
}

/// All steps by their names, as JSON for the script that shows the progress.
pub(super) fn steps(t: Locale) -> String {
    let said = STEPS.into_iter().chain(CHECKS).map(|name| (name.to_owned(), Value::from(step(t, name))));
    Value::Object(said.collect::<Map<String, Value>>()).to_string()
}

/// The finding of a check of the doctor: a sentence, and further ones.
pub(super) fn finding(t: Locale, what: &str, text: &str) -> Vec<Said> {
    let sentences = |of| findings(of, what);
    if let Some(said) = translated(t, text, sentences) {
        return vec![Said::new(said)];
    }
    if let Some((first, rest)) = text.split_once("; ")
        && let Some(first) = translated(t, first, sentences)
    {
        let rest = if what == "channels" { fault_text::catalog_warnings(t, rest) } else { vec![Said::of(t, rest, sentences)] };
        return std::iter::once(Said::new(first)).chain(rest).collect();
    }
    if what == "journal" {
        return vec![fault_text::journal_fault(t, text)];
    }
    // The path of the folder.
    if what == "data folder" { vec![Said::new(text)] } else { vec![Said::english(text)] }
}

/// The sentences of a check of the doctor. A longer sentence comes before a shorter one that also matches its beginning
/// or end.
fn findings(t: Locale, what: &str) -> Vec<&'static str> {
    match what {
        "settings" => vec![t.say("finding.settings")],
        "data folder" => vec![t.say("finding.no_folder"), t.say("finding.new_folder")],
        "disk" => vec![t.say("finding.disk_full"), t.say("finding.disk")],
        "open files" => vec![t.say("finding.files"), t.say("finding.few_files")],
        "address" | "console" => vec![
            t.say("finding.address_free"),
            t.say("finding.address_other_folder"),
            t.say("finding.address_served"),
            t.say("finding.address_in_use"),
        ],
        "database" => vec![t.say("finding.database")],
        "channels" => vec![t.say("finding.channels")],
        "journal" => vec![t.say("finding.journal"), t.say("finding.journal_rejected")],
        "backups" => vec![
            t.say("finding.backups_no_space"),
            t.say("finding.backups_free"),
            t.say("finding.backups"),
            t.say("finding.backups_new_free"),
            t.say("finding.backups_new"),
            t.say("finding.backup_newest"),
            t.say("finding.backup_none"),
            t.say("finding.backup_late"),
        ],
        "redis" => vec![t.say("finding.redis")],
        "clock" => vec![t.say("finding.clock"), t.say("finding.clock_ahead"), t.say("finding.clock_behind")],
        "export" => {
            vec![t.say("finding.export"), t.say("finding.export_late"), t.say("finding.export_unknown")]
        }
        _ => Vec::new(),
    }
}

/// Why a day was not exported.
pub(super) fn export_reason(t: Locale, reason: &str) -> Said {
    Said::of(t, reason, |of| vec![of.say("finding.export_waits"), of.say("finding.export_fewer")])
}

/// Why a job ended without a result.
pub(super) fn error(t: Locale, message: &str) -> Said {
    Said::of(t, message, |of| {
        vec![
            of.say("job_error.catalog"),
            of.say("job_error.stopped"),
            of.say("job_error.exporting"),
            of.say("job_error.export_taken"),
            of.say("job_error.day"),
            of.say("job_error.backup_gone"),
        ]
    })
}

/// Which records retention has removed.
pub(super) fn removed(t: Locale, message: &str) -> Said {
    Said::of(t, message, |of| vec![of.say("finding.removed_none"), of.say("finding.removed_fewer"), of.say("finding.removed")])
}

/// A difference between sums, records and ledger.
pub(super) fn difference(t: Locale, it: &Value) -> Said {
    let text = |name: &str| it[name].as_str().unwrap_or_default();
    let sentence = match text("rule") {
        "balance" => t.say("verify.balance"),
        "running_balance" => t.say("verify.running"),
        "settled" => t.say("verify.settled"),
        "settled_count" => t.say("verify.settled_count"),
        "settles" => t.say("verify.settles"),
        "kind" => t.say("verify.kind"),
        "positions" => t.say("verify.positions"),
        "cost" => t.say("verify.cost"),
        "attempts" => t.say("verify.attempts"),
        "rollup" => t.say("verify.rollup"),
        "attempt_rollup" => t.say("verify.attempt_rollup"),
        "removed" => t.say("verify.removed"),
        "removed_days" => t.say("verify.removed_days"),
        "journal" => t.say("verify.journal"),
        "journals" => t.say("verify.journals"),
        "journal_missing" => t.say("verify.journal_missing"),
        // The name of the change stays in English.
        _ => return Said::english(text("message")),
    };
    let [expected, found] = ["expected", "found"].map(|name| it[name].as_i64().unwrap_or_default());
    let usd = |nano| NanoUsd(nano).to_usd_string();
    let time = |at| format::time(t, &rfc3339(Timestamp(at))).map(|at| at.text).unwrap_or_default();
    Said::new(fill(
        sentence,
        &[
            ("what", text("what")),
            ("expected", &expected.to_string()),
            ("found", &found.to_string()),
            ("expected_usd", &usd(expected)),
            ("found_usd", &usd(found)),
            ("expected_time", &time(expected)),
            ("found_time", &time(found)),
        ],
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn zh(what: &str, text: &str) -> Vec<(String, bool)> {
        finding(Locale::ZH_CN, what, text).into_iter().map(|said| (said.text, said.is_english)).collect()
    }

    #[test]
    fn findings_are_said_in_the_readers_language_with_their_values() {
        assert_eq!(zh("settings", "all values are valid"), [("所有值均有效".to_owned(), false)]);
        assert_eq!(zh("disk", "22 GiB free"), [("可用 22 GiB".to_owned(), false)]);
        assert!(
            zh("disk", "full (1 MiB free): nothing can be booked, and a start may have to wait; free some space")[0]
                .0
                .contains("1 MiB")
        );
        let served = zh("address", "127.0.0.1:8080 is served by tollgate 0.1.0");
        assert!(!served[0].1 && served[0].0.contains("127.0.0.1:8080") && served[0].0.contains("0.1.0"), "{served:?}");
        let backups = zh("backups", "/b takes backups, 3 GiB free; the newest scheduled backup is of 2026-11-30T00:00:00Z");
        assert!(backups.len() == 2 && backups.iter().all(|(_, is_english)| !is_english), "{backups:?}");
        let channels = zh("channels", "2 of 3 channels are on; channel a has no account; b too");
        assert_eq!(channels[1], ("channel a has no account; b too".to_owned(), true), "unknown warnings are unchanged");
        let warned = zh(
            "channels",
            "2 of 3 channels are on; channel 'a' serves no request, because all its accounts are off; switch one on",
        );
        assert!(warned.len() == 2 && !warned[1].1 && warned[1].0.contains("“a”"), "{warned:?}");
        let journal = zh("journal", "a tollgate writes the journal in /data; stop it first");
        assert!(journal.len() == 1 && !journal[0].1 && journal[0].0.contains("/data"), "{journal:?}");
        assert_eq!(zh("data folder", "/var/lib/tollgate"), [("/var/lib/tollgate".to_owned(), false)]);
        assert_eq!(zh("disk", "something new"), [("something new".to_owned(), true)]);
        assert_eq!(finding(Locale::EN, "redis", "reachable")[0].text, "reachable");
    }

    #[test]
    fn differences_are_said_with_amounts() {
        let it = json!({"rule": "balance", "what": "mbr_1", "expected": 1_500_000_000, "found": 0, "message": "english"});
        assert_eq!(difference(Locale::EN, &it).text, "member mbr_1: ledger sum 1.50 USD, balance 0.00 USD");
        let said = difference(Locale::ZH_CN, &it);
        assert!(!said.is_english && said.text.contains("mbr_1") && said.text.contains("1.50 USD"), "{said:?}");
        let unknown = json!({"rule": "chain", "what": "ledger entries 1 to 2", "expected": 1, "found": 2, "message": "english"});
        assert_eq!(difference(Locale::ZH_CN, &unknown), Said::english("english"));
    }

    #[test]
    fn errors_steps_and_reasons_are_translated() {
        assert!(!error(Locale::ZH_CN, "the gateway stopped").is_english);
        assert!(error(Locale::ZH_CN, "no such file").is_english);
        assert!(!export_reason(Locale::ZH_CN, "records of it are in the journal and not booked yet").is_english);
        assert!(!removed(Locale::ZH_CN, "records before 2026-11-01T00:00:00Z were removed by retention").is_english);
        assert_eq!((step(Locale::ZH_CN, "records"), step(Locale::ZH_CN, "unknown")), ("记录", "unknown"));
        let steps: Value = serde_json::from_str(&steps(Locale::ZH_CN)).unwrap();
        assert_eq!(steps.as_object().unwrap().len(), STEPS.len() + CHECKS.len());
        assert!(steps.as_object().unwrap().iter().all(|(name, said)| said != name || name == "redis"), "{steps}");
    }
}
