//! `usage summary`: sums by one or two groupings, as a table.

use serde_json::Value;

use super::filter::with_filter;
use crate::{
    admin::{Admin, ApiPath},
    cli::{self, Common, GroupBy, SumGroup, SumOrder, UsageFilter as FilterArgs},
    command::resource,
    failure::Failure,
};

/// The groupings of a sum, and its form of output.
pub(super) struct Wanted {
    pub(super) by: Vec<SumGroup>,
    pub(super) previous: bool,
    pub(super) sort: SumOrder,
    pub(super) rows: Option<u32>,
}

pub(super) async fn summary(common: &Common, admin: &Admin, args: &FilterArgs, wanted: &Wanted) -> Result<(), Failure> {
    if wanted.by.contains(&SumGroup::Word(GroupBy::Hour)) && args.records.since.is_none() {
        return Err(Failure::Usage("a summary by hour covers at most 31 days: set --since".to_owned()));
    }
    if wanted.by.contains(&SumGroup::Word(GroupBy::FiveMinutes)) && args.records.since.is_none() {
        return Err(Failure::Usage("a summary by five minutes covers at most 5 days: set --since".to_owned()));
    }
    if wanted.previous && args.records.since.is_none() {
        return Err(Failure::Usage("--previous compares with the period before --since: set it".to_owned()));
    }
    let by: Vec<String> = wanted.by.iter().map(SumGroup::word).collect();
    let rows = wanted.rows.map(|rows| rows.to_string());
    let target = ApiPath::of(&["usage", "summary"])
        .with("by", &by.join(","))
        .with("sort", &cli::word(&wanted.sort))
        .maybe("rows", rows.as_deref())
        .maybe("previous", wanted.previous.then_some("true"));
    let (items, _) = admin.page(&with_filter(target, args)?).await?;
    let items = if common.json { items } else { items.into_iter().map(with_columns).collect() };
    let mut columns = vec![
        ("requests", "requests"),
        ("completed", "completed"),
        ("in", "tokens_input"),
        ("out", "tokens_output"),
        ("sale USD", "sale"),
        ("cost USD", "cost"),
        ("not priced", "unpriced"),
        ("p50 ms", "p50"),
        ("p99 ms", "p99"),
    ];
    if wanted.previous {
        columns.extend([("requests before", "requests_before"), ("sale before", "sale_before"), ("cost before", "cost_before")]);
    }
    let places = [("of", "name", "member", "of_id"), ("and", "and_name", "and_member", "and_id")];
    for (by, (of, name, member, id)) in wanted.by.iter().zip(places).rev() {
        let SumGroup::Word(by) = by else {
            columns.insert(0, ("tag", of));
            continue;
        };
        match by {
            GroupBy::Key => {
                columns.splice(..0, [("key", name), ("member", member)]);
                columns.push(("id", id));
            }
            GroupBy::Member => {
                columns.insert(0, ("member", name));
                columns.push(("id", id));
            }
            GroupBy::Channel => columns.insert(0, ("channel", name)),
            GroupBy::Account => columns.insert(0, ("account", name)),
            GroupBy::Nothing
            | GroupBy::Month
            | GroupBy::Day
            | GroupBy::Hour
            | GroupBy::FiveMinutes
            | GroupBy::Model
            | GroupBy::Group
            | GroupBy::Protocol
            | GroupBy::Outcome
            | GroupBy::Error => columns.insert(0, (of, of)),
        }
    }
    resource::print_list(common, &columns, &items);
    Ok(())
}

/// Flattens nested values into columns of the table: total times in milliseconds, if the sums have them, and the sums of the earlier
/// period.
fn with_columns(mut item: Value) -> Value {
    for (column, percentile) in [("p50", "p50_us"), ("p99", "p99_us")] {
        let ms = item["duration"][percentile].as_u64().map(|micros| micros.div_ceil(1_000));
        item[column] = ms.into();
    }
    for (column, figure) in [("requests_before", "requests"), ("sale_before", "sale"), ("cost_before", "cost")] {
        item[column] = item["previous"][figure].clone();
    }
    for (column, group) in [("of_id", "of"), ("and_id", "and")] {
        item[column] = item[group].clone();
    }
    item
}
