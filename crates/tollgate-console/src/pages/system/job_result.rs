//! The result of a job: findings, facts, tables, and the rest as JSON.

use serde::Deserialize as _;
use serde_json::Value;

use super::{fault_text, job_text};
use crate::pages::{
    format,
    locale::Locale,
    mark::Mark,
    money,
    pricing::{
        import::{ImportRow, RowObject},
        import_text,
    },
    sentences::Said,
};

/// Lines of a result, and rows of a table, that are shown.
const MAX_LINES: usize = 500;
/// Characters of a result that is shown as JSON.
const MAX_JSON: usize = 200_000;

/// A result as lines of checks, facts and tables; with the whole JSON if there is more in it.
#[derive(Debug, Default)]
pub(super) struct JobResult {
    /// The finding, with further sentences.
    pub(super) checks: Vec<(Mark, Vec<Said>)>,
    pub(super) facts: Vec<(Said, Said)>,
    pub(super) lines: Vec<Said>,
    pub(super) tables: Vec<ResultTable>,
    pub(super) json: Option<String>,
}

#[derive(Debug)]
pub(super) struct ResultTable {
    pub(super) title: &'static str,
    pub(super) heads: Vec<ResultHead>,
    pub(super) rows: Vec<Vec<ResultCell>>,
    /// There are more rows than are shown.
    pub(super) is_cut: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ResultHead {
    pub(super) label: &'static str,
    pub(super) is_number: bool,
}

#[derive(Debug)]
pub(super) struct ResultCell {
    pub(super) head: ResultHead,
    pub(super) said: Said,
}

const fn text(label: &'static str) -> ResultHead {
    ResultHead { label, is_number: false }
}

const fn number(label: &'static str) -> ResultHead {
    ResultHead { label, is_number: true }
}

impl ResultTable {
    /// `None` without a row.
    fn of(title: &'static str, heads: Vec<ResultHead>, rows: impl Iterator<Item = Vec<Said>>) -> Option<Self> {
        let mut rows =
            rows.map(|row| heads.iter().zip(row).map(|(head, said)| ResultCell { head: *head, said }).collect::<Vec<_>>());
        let shown: Vec<Vec<ResultCell>> = rows.by_ref().take(MAX_LINES).collect();
        let is_cut = rows.next().is_some();
        drop(rows);
        (!shown.is_empty()).then_some(Self { title, heads, rows: shown, is_cut })
    }
}

/// The entries of a list of a result, up to the bound of lines.
fn list<'a>(result: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    whole_list(result, name).take(MAX_LINES)
}

fn whole_list<'a>(result: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    result[name].as_array().into_iter().flatten()
}

/// A name of a result.
fn named(it: &Value, name: &str) -> Said {
    Said::new(it[name].as_str().unwrap_or_default())
}

fn count(it: &Value, name: &str) -> Said {
    Said::new(it[name].as_u64().map_or_else(|| "–".to_owned(), format::integer))
}

fn amount(t: Locale, it: &Value, name: &str) -> Said {
    Said::new(money::exact(t, it[name].as_str().unwrap_or_default()).with_title())
}

/// The name of a fact of a result.
fn fact_name(t: Locale, name: &str) -> Said {
    let known = match name {
        "known_schema" => t.say("fact.known_schema"),
        "made_at" => t.say("fact.made_at"),
        "schema" => t.say("fact.schema"),
        "records" => t.say("fact.records"),
        "ledger_entries" => t.say("fact.ledger_entries"),
        "members" => t.say("nav.members"),
        "attempts" => t.say("record.attempts"),
        "more_differences" => t.say("fact.more_differences"),
        "removed_before" => t.say("fact.removed_before"),
        "removed_message" => t.say("fact.retention"),
        "served" => t.say("fact.served"),
        "waiting_in_journal" => t.say("fact.waiting"),
        "begun_in_journal" => t.say("fact.without_end"),
        "in_memory_only" => t.say("fact.in_memory_only"),
        "file" => t.say("system.file"),
        "bytes" => t.say("system.size"),
        "journal_segments" => t.say("fact.segments"),
        "master_key" => t.say("fact.master_key"),
        "database" => t.say("doctor.database"),
        "target" => t.say("export.target"),
        "database_address" => t.say("fact.database_address"),
        _ => return of_list(t, name).map_or_else(|| Said::english(name.replace('_', " ")), Said::new),
    };
    Said::new(known)
}

/// The name of a fact of a replay, or of an import.
fn of_list(t: Locale, name: &str) -> Option<&'static str> {
    Some(match name {
        "replayed" => t.say("fact.replayed"),
        "not_routed" => t.say("fact.not_routed"),
        "without_key" => t.say("fact.without_key"),
        "moved" => t.say("fact.moved"),
        "source" => t.say("pricing.source"),
        "dry_run" => t.say("fact.dry_run"),
        "revision" => t.say("fact.revision"),
        "written" => t.say("fact.written"),
        "not_served_count" => t.say("fact.not_served"),
        "skipped_count" => t.say("fact.skipped"),
        "rows_cut" => t.say("fact.rows_cut"),
        "effects_cut" => t.say("fact.effects_cut"),
        _ => return None,
    })
}

impl JobResult {
    pub(super) fn of(t: Locale, kind: &str, result: &Value) -> Self {
        let mut found = Self::default();
        match kind {
            "doctor" => found.add_findings(t, result),
            "verify" => found.add_sums(t, result),
            "backup_check" => {
                found.checks.push((Mark::new("ok", "okc", t.say("backups.whole")), Vec::new()));
                let verified = &result["verified"];
                if verified.is_null() {
                    found.checks.push((Mark::new("off", "stop", t.say("backups.no_database")), Vec::new()));
                } else {
                    found.add_sums(t, verified);
                }
            }
            "export" => found.add_days(t, result),
            "replay" => found.add_replay(t, result),
            "import" => found.add_import(t, result),
            _ => {}
        }
        found.add_facts(t, result);
        if matches!(kind, "replay" | "import") {
            let text = serde_json::to_string_pretty(result).unwrap_or_default();
            found.json = Some(text.chars().take(MAX_JSON).collect());
        }
        found
    }

    /// Numbers and words at the top level of the result.
    fn add_facts(&mut self, t: Locale, result: &Value) {
        for (name, value) in result.as_object().into_iter().flatten() {
            let said = match value {
                Value::String(text) if name == "removed_message" => job_text::removed(t, text),
                Value::String(text) if name == "made_at" => {
                    Said::new(format::time(t, text).map_or_else(|| text.clone(), |at| at.text))
                }
                Value::String(text) => Said::new(text),
                Value::Number(number) if name == "bytes" => {
                    Said::new(number.as_u64().map_or_else(String::new, |size| format::bytes(t, size)))
                }
                Value::Number(number) => Said::new(number.as_u64().map_or_else(|| number.to_string(), format::integer)),
                Value::Bool(false) if name == "dry_run" || name.ends_with("_cut") => continue,
                Value::Bool(true) => Said::new(t.say("fact.yes")),
                Value::Bool(false) => Said::new(t.say("fact.no")),
                Value::Null | Value::Array(_) | Value::Object(_) => continue,
            };
            if name != "agrees" && !said.text.is_empty() {
                self.facts.push((fact_name(t, name), said));
            }
        }
    }

    fn add_findings(&mut self, t: Locale, result: &Value) {
        for item in list(result, "items") {
            let what = item["what"].as_str().unwrap_or_default();
            let (tone, icon) = match (item["ok"] == true, item["note"] == true) {
                (true, false) => ("ok", "okc"),
                (true, true) => ("warn", "warn"),
                (false, _) => ("bad", "badc"),
            };
            let said = job_text::finding(t, what, item["text"].as_str().unwrap_or_default());
            self.checks.push((Mark::new(tone, icon, job_text::check(t, what)), said));
        }
    }

    /// The requests before and under the file: totals, by model and channel, and those that another channel would serve.
    fn add_replay(&mut self, t: Locale, result: &Value) {
        self.lines = list(result, "changes").filter_map(Value::as_str).map(Said::english).collect();
        let (before, after) = (&result["before"], &result["after"]);
        let counts = |label: &'static str, name: &str| vec![Said::new(label), count(before, name), count(after, name)];
        let amounts = |label: &'static str, name: &str| vec![Said::new(label), amount(t, before, name), amount(t, after, name)];
        let sums = [
            counts(t.say("replay.served"), "served"),
            counts(t.say("replay.refused"), "refused"),
            amounts(t.say("log.charged"), "sale"),
            amounts(t.say("log.cost"), "cost"),
            counts(t.say("replay.unpriced"), "unpriced"),
            counts(t.say("replay.cost_unknown"), "cost_unknown"),
        ];
        let (model, channel) = (text(t.say("log.model")), text(t.say("log.channel")));
        let sides = [number(t.say("pricing.before")), number(t.say("pricing.after"))];
        let heads = [&[text(t.say("replay.sum"))][..], &sides[..]].concat();
        let by_channel = whole_list(result, "channels").map(|it| {
            let requests = ["requests_before", "requests_after"].map(|name| count(it, name));
            let costs = ["cost_before", "cost_after"].map(|name| amount(t, it, name));
            [named(it, "model"), named(it, "channel")].into_iter().chain(requests).chain(costs).collect()
        });
        let channel_heads = vec![
            model,
            channel,
            number(t.say("replay.requests_before")),
            number(t.say("replay.requests_after")),
            number(t.say("replay.cost_before")),
            number(t.say("replay.cost_after")),
        ];
        let moves = whole_list(result, "moves")
            .map(|it| vec![named(it, "model"), named(it, "from"), named(it, "to"), count(it, "requests")]);
        let move_heads = vec![model, sides[0], sides[1], number(t.say("home.requests"))];
        let move_heads = move_heads.into_iter().enumerate().map(|(at, head)| ResultHead { is_number: at == 3, ..head }).collect();
        self.tables.extend(ResultTable::of(t.say("replay.sums"), heads, sums.into_iter()));
        self.tables.extend(ResultTable::of(t.say("replay.by_channel"), channel_heads, by_channel));
        self.tables.extend(ResultTable::of(t.say("replay.moves"), move_heads, moves));
    }

    /// The prices that are new, changed, kept or skipped, and the entries of the list that cannot be imported.
    fn add_import(&mut self, t: Locale, result: &Value) {
        let states = [
            ("new", t.say("pricing.state_new")),
            ("changed", t.say("pricing.state_changed")),
            ("same", t.say("pricing.state_same")),
            ("kept", t.say("pricing.state_kept")),
            ("skipped", t.say("pricing.state_skipped")),
        ];
        self.facts.extend(states.map(|(name, label)| (Said::new(label), count(&result["counts"], name))));
        let rows = whole_list(result, "rows").filter_map(|row| RowObject::deserialize(row).ok()).map(|row| {
            let row = ImportRow::of(t, &row);
            let what = row
                .channel
                .map_or_else(|| t.say("pricing.sale").to_owned(), |channel| format!("{} {channel}", t.say("pricing.cost_of")));
            let said = [row.model, row.state.to_owned(), what, row.before, row.after].map(Said::new);
            said.into_iter().chain([Said::joined(row.remarks, t.say("list.separator"))]).collect()
        });
        let heads = [
            t.say("models.name"),
            t.say("models.state"),
            t.say("pricing.what"),
            t.say("pricing.before"),
            t.say("pricing.in_list"),
            t.say("explain.reason"),
        ];
        self.tables.extend(ResultTable::of(t.say("pricing.difference"), heads.map(text).to_vec(), rows));
        let skipped = whole_list(result, "skipped")
            .map(|it| vec![named(it, "entry"), import_text::say(t, it["reason"].as_str().unwrap_or_default())]);
        let heads = vec![text(t.say("fact.entry")), text(t.say("explain.reason"))];
        self.tables.extend(ResultTable::of(t.say("pricing.skipped_title"), heads, skipped));
    }

    /// Whether the sums agree, and how they differ.
    fn add_sums(&mut self, t: Locale, verified: &Value) {
        let mark = if verified["agrees"] == true {
            Mark::new("ok", "okc", t.say("system.agrees"))
        } else {
            Mark::new("bad", "badc", t.say("system.differs"))
        };
        self.checks.push((mark, Vec::new()));
        self.lines = list(verified, "differences").map(|it| job_text::difference(t, it)).collect();
        self.lines
            .extend(list(verified, "journal_faults").filter_map(Value::as_str).map(|fault| fault_text::journal_fault(t, fault)));
    }

    /// The days of an export.
    fn add_days(&mut self, t: Locale, result: &Value) {
        let day = |it: &Value| format::day(t, it["day"].as_str().unwrap_or_default());
        for it in list(result, "exported") {
            let number = |name: &str| it[name].as_u64().unwrap_or_default();
            let (records, size) = (format::integer(number("records")), format::bytes(t, number("bytes")));
            let text = t.say_with("export.day_done", &[("records", &records), ("size", &size)]);
            self.checks.push((Mark::new("ok", "okc", day(it)), vec![Said::new(text)]));
        }
        for it in list(result, "left_out") {
            let reason = job_text::export_reason(t, it["reason"].as_str().unwrap_or_default());
            self.checks.push((Mark::new("warn", "warn", day(it)), vec![reason]));
        }
        if self.checks.is_empty() {
            self.checks.push((Mark::new("ok", "okc", t.say("export.complete")), Vec::new()));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn job_results_are_shown_as_checks_facts_and_lines() {
        let doctor = JobResult::of(Locale::EN, "doctor", &json!({"items": [{"what": "disk", "ok": false, "text": "full"}]}));
        assert_eq!((doctor.checks[0].0.tone, doctor.checks[0].1[0].text.as_str()), ("bad", "full"));
        let low = json!({"items": [{"what": "open files", "ok": true, "note": true, "text": "less than configured"}]});
        let low = JobResult::of(Locale::EN, "doctor", &low);
        assert_eq!((low.checks[0].0.tone, low.checks[0].0.word.as_str()), ("warn", "Open files"));
        let result = json!({"agrees": false, "records": 1_200, "differences": [{"message": "sums differ"}], "journal_faults": []});
        let verify = JobResult::of(Locale::EN, "verify", &result);
        assert_eq!((verify.checks[0].0.tone, verify.lines.as_slice()), ("bad", [Said::english("sums differ")].as_slice()));
        assert_eq!(verify.facts, [(Said::new("Records"), Said::new("1,200"))]);
        let sound =
            JobResult::of(Locale::EN, "backup_check", &json!({"file": "x.backup", "schema": 1, "verified": {"agrees": true}}));
        assert_eq!(sound.checks.iter().map(|(mark, _)| mark.tone).collect::<Vec<_>>(), ["ok", "ok"]);
        let without = JobResult::of(Locale::EN, "backup_check", &json!({"file": "x.backup", "verified": null}));
        assert_eq!(without.checks[1].0.tone, "off");
    }

    #[test]
    fn replay_and_import_are_shown_as_tables() {
        let side =
            |served: u64| json!({"served": served, "refused": 0, "sale": "1.5", "cost": "1", "unpriced": 0, "cost_unknown": 0});
        let share = json!({"model": "m", "channel": "a", "requests_before": 3, "requests_after": 1, "cost_before": "1", "cost_after": "0.5"});
        let moved = json!({"model": "m", "from": "a", "to": "b", "requests": 2});
        let replay = json!({"changes": ["channel a: weight 1 to 2"], "replayed": 3, "not_routed": 0, "without_key": 0, "before": side(3),
            "after": side(2), "moved": 2, "moves": [moved], "channels": [share]});
        let found = JobResult::of(Locale::ZH_CN, "replay", &replay);
        let cells = |table: &ResultTable| -> Vec<Vec<String>> {
            table.rows.iter().map(|row| row.iter().map(|cell| cell.said.text.clone()).collect()).collect()
        };
        assert_eq!(found.tables.len(), 3);
        assert_eq!(cells(&found.tables[0])[0][1..], ["3", "2"]);
        assert_eq!(cells(&found.tables[1]), [["m", "a", "3", "1", "$1.00", "$0.50"]]);
        assert_eq!(cells(&found.tables[2]), [["m", "a", "b", "2"]]);
        assert!(found.tables[2].heads[3].is_number && !found.tables[2].heads[1].is_number);
        assert!(found.facts.iter().all(|(name, said)| !name.is_english && !said.is_english), "{:?}", found.facts);
        let row = json!({"id": "sale:m", "model": "m", "channel": null, "state": "kept", "reason": "set by hand", "before": null,
            "after": null, "notes": []});
        let import = json!({"source": "a list", "dry_run": true, "revision": 4, "written": 0, "rows_cut": false, "rows": [row],
            "counts": {"new": 0, "changed": 0, "same": 2, "kept": 1, "skipped": 0}, "not_served_count": 1, "skipped": [],
            "skipped_count": 0, "effects_cut": false});
        let found = JobResult::of(Locale::EN, "import", &import);
        assert_eq!(cells(&found.tables[0]), [["m", "Kept", "Sale price", "–", "–", "set by hand"]]);
        assert_eq!(found.tables.len(), 1);
        let chinese = JobResult::of(Locale::ZH_CN, "import", &import);
        assert_eq!(chinese.tables[0].rows[0][5].said, Said::new("手动设置"));
        assert!(found.facts.contains(&(Said::new("Same"), Said::new("2"))), "{:?}", found.facts);
    }

    #[test]
    fn tables_are_cut() {
        let rows = (0..=MAX_LINES).map(|at| vec![Said::new(at.to_string())]);
        let table = ResultTable::of("", vec![text("")], rows).unwrap();
        assert!(table.is_cut && table.rows.len() == MAX_LINES);
        assert!(ResultTable::of("", vec![text("")], std::iter::empty()).is_none());
    }
}
