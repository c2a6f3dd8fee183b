//! `apply` and `pull`: the catalog as a file, both ways.

use std::path::Path;

use http::Method;
use serde_json::{Value, json};

use crate::{
    admin::{Admin, AdminError, AdminRefusal, AdminRequest, ApiPath, FolderPolicy},
    catalog_file,
    cli::{Apply, Common},
    command::{effects, secrets},
    compose,
    failure::Failure,
    output,
};

/// Plans, asks, applies. What was confirmed is what is applied: another change in between ends it.
pub(crate) fn apply(common: &Common, arguments: &Apply) -> Result<(), Failure> {
    let (_, text) = catalog_file::read_with_text(&arguments.file)?;
    let text = secrets::put_in(&text)?;
    compose::block_on(async {
        let admin = Admin::open(common, FolderPolicy::CreateIfMissing).await?.with_actor(&arguments.file.display().to_string());
        let body = json!({"file": text, "prune": arguments.prune});
        let send = async |path: &str, if_match: Option<u64>| {
            let target = ApiPath::of(&["catalog", path]);
            let sent = admin.send(AdminRequest { if_match, ..AdminRequest::of(Method::POST, &target, &body) }).await;
            sent.map(|said| said.body).map_err(|trouble| not_applied(trouble, &arguments.file))
        };
        let plan = send("preview", None).await?;
        let lines: Vec<String> = plan["lines"].as_array().into_iter().flatten().map(line).collect();
        if lines.is_empty() && plan["changes"] == 0 {
            if common.json {
                output::json(&json!({"changes": 0, "lines": []}));
            } else {
                output::line("nothing to change");
            }
            return Ok(());
        }
        let mut told = json!({"changes": plan["changes"], "lines": lines, "excluded_by_price": plan["effects"], "excluded_by_price_cut": plan["effects_cut"]});
        if !common.json {
            for line in &lines {
                output::line(line);
            }
            effects::print(&plan);
        }
        if arguments.dry_run {
            if common.json {
                output::json(&told);
            }
            return Ok(());
        }
        if !arguments.yes && !effects::confirmed(&format!("apply these {} changes?", lines.len()))? {
            return Ok(());
        }
        let applied = send("apply", plan["revision"].as_u64()).await?;
        if common.json {
            told["revision"] = applied["revision"].clone();
            output::json(&told);
        } else {
            output::line(&format!("applied; the catalog is at revision {}", applied["revision"]));
        }
        Ok(())
    })
}

/// A line of a plan, as people read it.
fn line(it: &Value) -> String {
    let text = |member: &str| it[member].as_str().unwrap_or_default();
    let sign = match text("action") {
        "add" => '+',
        "change" => '~',
        "remove" => '-',
        _ => '!',
    };
    let detail = if text("detail").is_empty() { String::new() } else { format!(": {}", text("detail")) };
    format!("{sign} {} {}{detail}", text("kind").replace('_', " "), text("name"))
}

/// Faults of the file stand with their places, as where it is read.
fn not_applied(trouble: AdminError, path: &Path) -> Failure {
    match trouble {
        AdminError::Refused(AdminRefusal { faults, .. }) if !faults.is_empty() => {
            let show = |(line, column, message): &(u64, u64, String)| format!("{}:{line}:{column}: {message}", path.display());
            Failure::Written(faults.iter().map(show).collect())
        }
        trouble @ (AdminError::Refused(_) | AdminError::Failed(_)) => trouble.into(),
    }
}

/// Prints the current catalog.
pub(crate) fn pull(common: &Common) -> Result<(), Failure> {
    let catalog = compose::block_on(async {
        let admin = Admin::open(common, FolderPolicy::MustExist).await?;
        Ok(admin.get(&ApiPath::of(&["catalog"])).await?)
    })?;
    if common.json {
        output::json(&json!({"catalog": catalog["file"]}));
    } else {
        output::raw(catalog["file"].as_str().unwrap_or_default().as_bytes());
    }
    Ok(())
}
