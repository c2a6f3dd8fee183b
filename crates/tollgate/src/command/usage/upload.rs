//! `usage upload`: exports days of usage records to the storage of the settings, and shows the exported days.

use serde_json::{Value, json};
use tollgate_console::{ExportRequest, parse_day};

use crate::{
    admin::{Admin, ApiPath},
    cli::{Common, UploadDays},
    command::{job, resource::print_list},
    compose,
    failure::Failure,
    output,
    work::export::{DayFiles, ExportOutcome, LeftOutDay, export},
};

/// Exports the days of the arguments, or those that are due.
pub(super) fn upload(common: &Common, arguments: &UploadDays) -> Result<(), Failure> {
    let request = request(arguments)?;
    let mut body = json!({"kind": "export"});
    for (name, day) in [("from", &arguments.from), ("to", &arguments.to)] {
        if let Some(day) = day {
            body[name] = day.as_str().into();
        }
    }
    let here = |control: &_| export(&compose::settings(common, &[])?, request, control);
    let outcome: ExportOutcome = job::run(common, &body, here)?;
    if common.json {
        output::json(&serde_json::to_value(&outcome).expect("texts and numbers are valid JSON"));
    } else {
        print(&outcome);
    }
    Ok(())
}

fn request(arguments: &UploadDays) -> Result<ExportRequest, Failure> {
    let day = |flag: &str, text: &Option<String>| -> Result<Option<i64>, Failure> {
        let Some(text) = text else { return Ok(None) };
        let fault = || Failure::Usage(format!("{flag} takes a UTC day such as 2026-11-30, not '{text}'"));
        parse_day(text).map(Some).ok_or_else(fault)
    };
    Ok(match (day("--from", &arguments.from)?, day("--to", &arguments.to)?) {
        (None, None) => ExportRequest::Due,
        (Some(first), Some(last)) if last < first => return Err(Failure::Usage("--to is before --from".to_owned())),
        (Some(first), last) => ExportRequest::Days { first, last: last.unwrap_or(first) },
        (None, Some(last)) => ExportRequest::Days { first: last, last },
    })
}

fn print(outcome: &ExportOutcome) {
    for DayFiles { day, records, files, bytes } in &outcome.exported {
        let (records, files) = (output::counted(*records, "record", "records"), output::counted(*files, "file", "files"));
        output::line(&format!("{day}  {records} in {files}, {}", tollgate_core::size_text(*bytes)));
    }
    for LeftOutDay { day, reason } in &outcome.left_out {
        output::line(&format!("{day}  left out: {reason}"));
    }
    if outcome.exported.is_empty() && outcome.left_out.is_empty() {
        output::line(&format!("nothing to export to {}", outcome.target));
    }
}

/// Shows the exported days, newest first, and the current failure.
pub(super) async fn list(common: &Common, admin: &Admin) -> Result<(), Failure> {
    let state = admin.get(&ApiPath::of(&["exports"])).await?;
    if common.json {
        output::json(&state);
        return Ok(());
    }
    let days: Vec<Value> = state["days"].as_array().cloned().unwrap_or_default();
    let columns = [("day", "day"), ("records", "records"), ("files", "files"), ("bytes", "bytes"), ("exported", "exported_at")];
    print_list(common, &columns, &days);
    if !common.quiet {
        for remark in remarks(&state) {
            output::remark(&remark);
        }
    }
    Ok(())
}

fn remarks(state: &Value) -> Vec<String> {
    let mut remarks = Vec::new();
    if state["target"].is_null() {
        remarks.push("no storage is set, so nothing is exported (export.endpoint)".to_owned());
    }
    if let (Some(due), Some(first)) = (state["due"].as_u64().filter(|due| *due > 0), state["first_due"].as_str()) {
        remarks.push(format!("{} to export, from {first} on", output::counted(due, "day is", "days are")));
    }
    if let (Some(day), Some(message)) = (state["failure"]["day"].as_str(), state["failure"]["message"].as_str()) {
        remarks.push(format!("the last export failed at {day}: {message}"));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upload_days_are_validated() {
        let of = |from: Option<&str>, to: Option<&str>| {
            request(&UploadDays { from: from.map(str::to_owned), to: to.map(str::to_owned), list: false })
                .map_err(|error| error.to_string())
        };
        assert_eq!(of(None, None), Ok(ExportRequest::Due));
        assert_eq!(of(Some("1970-01-02"), None), Ok(ExportRequest::Days { first: 1, last: 1 }));
        assert_eq!(of(None, Some("1970-01-02")), Ok(ExportRequest::Days { first: 1, last: 1 }));
        assert_eq!(of(Some("1970-01-02"), Some("1970-01-04")), Ok(ExportRequest::Days { first: 1, last: 3 }));
        assert!(of(Some("1970-01-04"), Some("1970-01-02")).unwrap_err().contains("before"));
        assert!(of(Some("7d"), None).unwrap_err().contains("--from takes a UTC day"));
    }

    #[test]
    fn export_state_is_described_in_sentences() {
        let state =
            json!({"target": "s3://a/b", "due": 2, "first_due": "2026-11-28", "failure": {"day": "2026-11-28", "message": "no"}});
        assert_eq!(remarks(&state), ["2 days are to export, from 2026-11-28 on", "the last export failed at 2026-11-28: no"]);
        assert!(remarks(&json!({"target": null, "due": 0}))[0].contains("export.endpoint"));
        assert!(remarks(&json!({"target": "s3://a", "due": 0, "failure": null})).is_empty());
    }
}
