//! `usage tail|list|show|summary|export|upload`: the usage log.

mod attempts;
mod contents;
mod filter;
mod summary;
mod tail;
mod upload;

use std::io::IsTerminal as _;

use http::Method;
use serde_json::Value;
use tollgate_core::{RequestId, UsageRecord};

use crate::{
    admin::{self, Admin, ApiPath},
    cli::{self, Common, ExportFormat, Usage, UsageFilter as FilterArgs},
    failure::Failure,
    output, usage_format,
};
pub(crate) use filter::parse_records;
use filter::{with_filter, with_ids};

pub(crate) fn run(common: &Common, subcommand: Usage) -> Result<(), Failure> {
    if let Usage::Upload { days } = &subcommand
        && !days.list
    {
        return upload::upload(common, days);
    }
    admin::run(common, async |admin| match subcommand {
        Usage::Tail { follow, lines, filter } => tail::tail(common, admin, &filter, lines as usize, follow).await,
        Usage::Show { id } => super::usage_show::show(common, admin, &id).await,
        Usage::Contents { id, remove } => contents::contents(common, admin, &id, remove).await,
        Usage::List { limit, after, filter } => list(common, admin, &filter, limit, after.as_deref()).await,
        Usage::Summary { by, previous, sort, rows, filter } => {
            summary::summary(common, admin, &filter, &summary::Wanted { by, previous, sort, rows }).await
        }
        Usage::Attempts { wanted } => attempts::attempts(common, admin, &wanted).await,
        Usage::Export { format, filter } => export(common, admin, &filter, format).await,
        Usage::Upload { .. } => upload::list(common, admin).await,
    })
}

/// Prints one page.
async fn list(common: &Common, admin: &Admin, args: &FilterArgs, limit: u32, after: Option<&str>) -> Result<(), Failure> {
    let target = with_filter(ApiPath::of(&["usage"]), args)?.with("limit", &limit.to_string()).maybe("after", after);
    let page = admin.get(&target).await?;
    let records: Vec<Value> = page["items"].as_array().into_iter().flatten().cloned().collect();
    if print_records(common, &records, true)
        && let Some(next) = page["next"].as_str()
    {
        let searched =
            page["searched_until"].as_str().map_or_else(String::new, |time| format!("; records since {time} were searched"));
        output::remark(&format!("more with --after {next}{searched}"));
    }
    Ok(())
}

fn print_records(common: &Common, records: &[Value], heading: bool) -> bool {
    if common.json {
        return records.iter().all(|record| output::raw(format!("{record}\n").as_bytes()));
    }
    let rows: Vec<_> = records.iter().map(usage_format::table_row).collect();
    output::table(if heading { &usage_format::HEADINGS } else { &[] }, &rows)
}

async fn export(common: &Common, admin: &Admin, args: &FilterArgs, format: Option<ExportFormat>) -> Result<(), Failure> {
    let format = format.unwrap_or(if common.json { ExportFormat::Jsonl } else { ExportFormat::Csv });
    let target = with_filter(ApiPath::of(&["usage", "export"]).with("format", &cli::word(&format)), args)?;
    match format {
        ExportFormat::Csv => export_lines(common, admin, args, &target, usage_format::print_csv).await,
        ExportFormat::Jsonl => export_lines(common, admin, args, &target, usage_format::print_json).await,
        ExportFormat::Parquet => export_file(common, admin, &target).await,
    }
}

/// Writes a Parquet file to stdout. The file ends with a table of contents, so nothing can be appended.
async fn export_file(common: &Common, admin: &Admin, target: &ApiPath) -> Result<(), Failure> {
    if std::io::stdout().is_terminal() {
        return Err(Failure::Usage(
            "a Parquet file is not text: redirect it, as in `tollgate usage export --format parquet > usage.parquet`".to_owned(),
        ));
    }
    let backlog = admin.journal_backlog(common)?;
    admin.download(target, &mut std::io::stdout()).await?;
    let unbooked = admin.count_unbooked(&backlog).await?;
    if unbooked > 0 {
        output::remark(&format!(
            "{unbooked} records of the journal are not booked yet and are left out; CSV and JSON lines have them"
        ));
    }
    Ok(())
}

/// Streams all records; those that are only in the local journal come last.
async fn export_lines(
    common: &Common,
    admin: &Admin,
    args: &FilterArgs,
    target: &ApiPath,
    print: fn(&UsageRecord) -> bool,
) -> Result<(), Failure> {
    // Read before the database, so that no record is missed; records in both are exported once.
    let mut backlog = admin.journal_backlog(common)?;
    let mut lines = admin.lines(Method::GET, target, None).await?;
    while let Some(lines) = lines.next_lines().await? {
        if !backlog.is_empty() {
            for id in lines.split_inclusive(|byte| *byte == b'\n').filter_map(id_of).filter_map(RequestId::parse) {
                backlog.remove(id);
            }
        }
        if !output::raw(&lines) {
            return Ok(());
        }
    }
    if backlog.is_empty() {
        return Ok(());
    }
    let filter = with_ids(admin, args).await?;
    let each = |record: &UsageRecord| !filter.matches(record) || print(record);
    admin.for_each_remaining(backlog, each).await
}

/// The id at the start of an exported line.
fn id_of(line: &[u8]) -> Option<&str> {
    const LENGTH: usize = 30;
    let start = if line.starts_with(b"{\"id\":\"") { 7 } else { 0 };
    let id = std::str::from_utf8(line.get(start..start + LENGTH)?).ok()?;
    id.starts_with("req_").then_some(id)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tollgate_core::Timestamp;

    use super::*;

    #[test]
    fn id_is_found_in_both_formats() {
        let id = RequestId::from_parts(Timestamp(5_000_000), [7; 10]).to_string();
        assert_eq!(id_of(format!("{id},2026-01-01").as_bytes()), Some(id.as_str()));
        assert_eq!(id_of(json!({"id": id, "at": "x"}).to_string().as_bytes()), Some(id.as_str()));
        assert_eq!(id_of(b"id,at,outcome,reason,status,key,key_name\n"), None);
        assert_eq!(id_of(b"x"), None);
    }
}
