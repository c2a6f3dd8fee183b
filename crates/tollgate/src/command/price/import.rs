//! `price import` and `price diff`: show the changes that a price list would make, and apply them.

use http::Method;
use serde_json::{Value, json};

use super::short;
use crate::{
    admin::{self, AdminError, AdminRefusal, AdminRequest, ApiPath},
    cli::{self, Common, ListFormat, PriceImport},
    command::effects,
    failure::Failure,
    output,
};

/// Previews, confirms and imports. Fails if the catalog changes after the preview.
pub(super) fn run(common: &Common, arguments: &PriceImport, dry_run: bool) -> Result<(), Failure> {
    let mut body = body(arguments)?;
    admin::run(common, async |admin| {
        let send = async |body: &Value, target: &ApiPath, if_match: Option<u64>| {
            let sent = admin.send(AdminRequest { if_match, ..AdminRequest::of(Method::POST, target, body) }).await;
            sent.map(|response| response.body).map_err(|error| import_failure(error, arguments))
        };
        let target = ApiPath::of(&["prices", "import"]);
        let plan = send(&body, &target, None).await?;
        let rows = plan["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
        let ids: Vec<&Value> = rows.iter().filter(|row| is_written(row)).map(|row| &row["id"]).collect();
        if dry_run || !common.json {
            show(common, &plan, rows);
        }
        if dry_run {
            return Ok(());
        }
        if ids.is_empty() {
            output::result(common, &plan, "nothing to import");
            return Ok(());
        }
        let question = format!("import {}?", output::counted(ids.len() as u64, "price", "prices"));
        if !arguments.yes && !effects::confirmed(&question)? {
            return Ok(());
        }
        body["apply"] = ids.into_iter().cloned().collect();
        // The effects were shown.
        let applied = send(&body, &target.with("confirm", "true"), plan["revision"].as_u64()).await?;
        let done = format!(
            "imported {} from {}; the catalog is at revision {}",
            output::counted(applied["written"].as_u64().unwrap_or_default(), "price", "prices"),
            applied["source"].as_str().unwrap_or_default(),
            applied["revision"]
        );
        output::result(common, &applied, &done);
        Ok(())
    })
}

/// The request without the rows to write.
fn body(arguments: &PriceImport) -> Result<Value, Failure> {
    let PriceImport { file, builtin: _, format, source, to, models, overwrite, dry_run: _, yes: _ } = arguments;
    let mut body = json!({"to": cli::word(to), "models": models, "overwrite": overwrite});
    match file {
        None => body["built_in"] = true.into(),
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                Failure::invalid(format!("cannot read the price list {}: {error}; check the path", path.display()))
            })?;
            let is_json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
            let format = format.unwrap_or(if is_json { ListFormat::Litellm } else { ListFormat::Csv });
            // A list without a source is named after its file.
            let names_source = format == ListFormat::Csv && text.lines().any(|line| line.trim_start().starts_with("# source:"));
            if !names_source {
                body["source"] = path.file_name().unwrap_or_default().to_string_lossy().into();
            }
            (body["file"], body["format"]) = (text.into(), cli::word(&format).into());
        }
    }
    if let Some(source) = source {
        body["source"] = source.as_str().into();
    }
    Ok(body)
}

fn is_written(row: &Value) -> bool {
    matches!(row["state"].as_str(), Some("new" | "changed"))
}

fn show(common: &Common, plan: &Value, rows: &[Value]) {
    if common.json {
        output::json(plan);
        return;
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = Vec::new();
    let mut same = 0u64;
    for row in rows {
        if row["state"] == "same" {
            same += 1;
            continue;
        }
        let price = row["channel"].as_str().map_or_else(|| "sale".to_owned(), |channel| format!("cost of {channel}"));
        let notes = row["notes"].as_array().into_iter().flatten().chain([&row["reason"]]).filter_map(Value::as_str);
        let notes = notes.collect::<Vec<_>>().join("; ");
        let (before, after) = (short(&row["before"]), short(&row["after"]));
        lines.push(vec![text(&row["state"]), text(&row["model"]), price, before, after, text(&row["entry"]), notes]);
    }
    if !lines.is_empty() {
        output::table(&["", "model", "price", "in the catalog", "in the list", "entry", "notes"], &lines);
    }
    effects::print(plan);
    let remark = format!(
        "{}: {same} the same; {} of the list for models that are not served, {} that cannot be imported (--json lists them)",
        text(&plan["source"]),
        plan["not_served_count"],
        plan["skipped_count"]
    );
    output::remark(&remark);
}

/// Faults of the list are reported as `FILE:LINE:COLUMN`.
fn import_failure(error: AdminError, arguments: &PriceImport) -> Failure {
    match (error, &arguments.file) {
        (AdminError::Refused(AdminRefusal { faults, .. }), Some(path)) if !faults.is_empty() => {
            let show = |(line, column, message): &(u64, u64, String)| format!("{}:{line}:{column}: {message}", path.display());
            Failure::Invalid(faults.iter().map(show).collect())
        }
        (error, _) => error.into(),
    }
}
