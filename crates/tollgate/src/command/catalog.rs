//! `apply` and `pull`: the catalog as a file.

use std::path::Path;

use http::Method;
use serde_json::{Value, json};
use tollgate_store::catalog_file::FileError;

use crate::{
    admin::{self, Admin, AdminError, AdminRefusal, AdminRequest, ApiPath, FolderPolicy},
    catalog_file,
    cli::{Apply, Common, Pull},
    command::{effects, secrets},
    compose,
    failure::Failure,
    output,
};

/// Previews, confirms and applies. Fails if the catalog changes after the preview.
pub(crate) fn apply(common: &Common, arguments: &Apply) -> Result<(), Failure> {
    let text = catalog_file::read_text(&arguments.file)?;
    if let Err(unreadable) = catalog_file::parse(&text) {
        return Err(every_fault(common, arguments, &text, &unreadable.faults));
    }
    let text = secrets::inline_secrets(&text)?;
    compose::block_on(async {
        let admin = Admin::open(common, FolderPolicy::CreateIfMissing).await?.with_actor(&arguments.file.display().to_string());
        let body = json!({"file": text, "prune": arguments.prune});
        let send = async |path: &str, if_match: Option<u64>| {
            let target = ApiPath::of(&["catalog", path]);
            let sent = admin.send(AdminRequest { if_match, ..AdminRequest::of(Method::POST, &target, &body) }).await;
            sent.map(|response| response.body).map_err(|error| apply_failure(error, &arguments.file))
        };
        let plan = send("preview", None).await?;
        let lines: Vec<String> = plan["lines"].as_array().into_iter().flatten().map(plan_line).collect();
        if lines.is_empty() && plan["changes"] == 0 {
            output::result(common, &json!({"changes": 0, "lines": []}), "nothing to change");
            return Ok(());
        }
        let mut summary = json!({"changes": plan["changes"], "lines": lines, "excluded_by_price": plan["effects"], "excluded_by_price_cut": plan["effects_cut"], "warnings": plan["warnings"]});
        if !common.json {
            for line in &lines {
                output::line(line);
            }
            effects::print(&plan);
            for warning in plan["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                output::line(&format!("warning: {warning}"));
            }
        }
        if arguments.dry_run {
            if common.json {
                output::json(&summary);
            }
            return Ok(());
        }
        if !arguments.yes && !effects::confirmed(&format!("apply these {} changes?", lines.len()))? {
            return Ok(());
        }
        let applied = send("apply", plan["revision"].as_u64()).await?;
        summary["revision"] = applied["revision"].clone();
        output::result(common, &summary, &format!("applied; the catalog is at revision {}", applied["revision"]));
        Ok(())
    })
}

/// The failure for a file with these faults and, if the catalog can be reached, those found only by comparison with it.
fn every_fault(common: &Common, arguments: &Apply, text: &str, faults: &[FileError]) -> Failure {
    let beside_the_catalog = || {
        let text = secrets::inline_secrets(text)?;
        compose::block_on(async {
            let admin = Admin::open(common, FolderPolicy::MustExist).await?;
            let (target, body) = (ApiPath::of(&["catalog", "preview"]), json!({"file": text, "prune": arguments.prune}));
            Ok(admin.send(AdminRequest::of(Method::POST, &target, &body)).await.err())
        })
    };
    match beside_the_catalog() {
        Ok(Some(AdminError::Refused(refused))) if !refused.faults.is_empty() => {
            apply_failure(AdminError::Refused(refused), &arguments.file)
        }
        Ok(_) | Err(_) => catalog_file::file_faults(&arguments.file, faults),
    }
}

/// One line of a plan, such as `+ channel main`.
fn plan_line(line: &Value) -> String {
    let text = |member: &str| line[member].as_str().unwrap_or_default();
    let sign = match text("action") {
        "add" => '+',
        "change" => '~',
        "remove" => '-',
        _ => '!',
    };
    let detail = if text("detail").is_empty() { String::new() } else { format!(": {}", text("detail")) };
    format!("{sign} {} {}{detail}", text("kind").replace('_', " "), text("name"))
}

/// Faults of the file are reported as `FILE:LINE:COLUMN`, as when it is read locally.
fn apply_failure(error: AdminError, path: &Path) -> Failure {
    match error {
        AdminError::Refused(AdminRefusal { faults, .. }) if !faults.is_empty() => {
            let show = |(line, column, message): &(u64, u64, String)| format!("{}:{line}:{column}: {message}", path.display());
            Failure::Invalid(faults.iter().map(show).collect())
        }
        error @ (AdminError::Refused(_) | AdminError::Failed(_)) => error.into(),
    }
}

pub(crate) fn pull(common: &Common, arguments: &Pull) -> Result<(), Failure> {
    let target = ApiPath::of(&["catalog"]).maybe("channels", arguments.channels.as_deref());
    let catalog = admin::run(common, async |admin| Ok(admin.get(&target).await?))?;
    if common.json {
        output::json(&json!({"catalog": catalog["file"]}));
    } else {
        output::raw(catalog["file"].as_str().unwrap_or_default().as_bytes());
    }
    Ok(())
}
