//! `usage attempts`: sums over attempts, as a table.

use crate::{
    admin::{Admin, ApiPath},
    cli::{self, AttemptGroup, AttemptSums, Common},
    command::{resource, time_flag},
    failure::Failure,
};

pub(super) async fn attempts(common: &Common, admin: &Admin, wanted: &AttemptSums) -> Result<(), Failure> {
    if wanted.by.contains(&AttemptGroup::Hour) && wanted.since.is_none() {
        return Err(Failure::Usage("sums by hour cover at most 31 days: set --since".to_owned()));
    }
    let time = |flag: &str, text: &Option<String>| {
        text.as_deref().map(|text| time_flag::parse(flag, text).map(tollgate_console::rfc3339)).transpose()
    };
    let (since, until) = (time("--since", &wanted.since)?, time("--until", &wanted.until)?);
    let rows = wanted.rows.map(|rows| rows.to_string());
    let result = wanted.result.map(|result| cli::word(&result));
    let target = ApiPath::of(&["usage", "attempts"])
        .with("by", &wanted.by.iter().map(cli::word).collect::<Vec<_>>().join(","))
        .with("sort", &cli::word(&wanted.sort))
        .maybe("channel", wanted.channel.as_deref())
        .maybe("account", wanted.account.as_deref())
        .maybe("model", wanted.model.as_deref())
        .maybe("result", result.as_deref())
        .maybe("since", since.as_deref())
        .maybe("until", until.as_deref())
        .maybe("rows", rows.as_deref());
    let (items, _) = admin.page(&target).await?;
    let mut columns = vec![
        ("attempts", "attempts"),
        ("answered", "answered"),
        ("failed", "failed"),
        ("excused", "excused"),
        ("in", "tokens_input"),
        ("out", "tokens_output"),
        ("cost USD", "cost"),
    ];
    for (by, (of, name)) in wanted.by.iter().zip([("of", "name"), ("and", "and_name")]).rev() {
        match by {
            AttemptGroup::Channel => columns.insert(0, ("channel", name)),
            AttemptGroup::Account => columns.insert(0, ("account", name)),
            AttemptGroup::Model => columns.insert(0, ("model", of)),
            AttemptGroup::Result => columns.insert(0, ("result", of)),
            AttemptGroup::Error => columns.insert(0, ("error", of)),
            AttemptGroup::Day | AttemptGroup::Hour => columns.insert(0, ("time", of)),
            AttemptGroup::Nothing => {}
        }
    }
    resource::print_list(common, &columns, &items);
    Ok(())
}
