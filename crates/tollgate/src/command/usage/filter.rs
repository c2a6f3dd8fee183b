//! The filter of the usage commands: as query parameters, and for records that are still in the journal.

use serde_json::json;
use tollgate_core::{AccountId, NanoUsd};
use tollgate_protocol::Protocol;
use tollgate_store::{RecordConditions, TagCondition, UsageFilter};

use crate::{
    admin::{Admin, AdminError, ApiPath},
    cli::{RecordFilter, UsageFilter as FilterArgs},
    command::time_flag,
    failure::Failure,
};

/// The filter without the conditions that are given by id or name.
pub(crate) fn parse_records(args: &RecordFilter) -> Result<UsageFilter, Failure> {
    let outcomes = |text: &String| {
        tollgate_console::parse_outcomes(text).map_err(|word| {
            Failure::Usage(format!(
                "--outcome takes completed, caller_left, upstream_broke, refused, gateway_stopped, or several of these separated \
                 by commas, not '{word}'"
            ))
        })
    };
    Ok(UsageFilter {
        model: args.model.clone(),
        outcomes: args.outcome.as_ref().map(outcomes).transpose()?.unwrap_or_default(),
        since: args.since.as_deref().map(|text| time_flag::parse("--since", text)).transpose()?,
        until: args.until.as_deref().map(|text| time_flag::parse("--until", text)).transpose()?,
        ..UsageFilter::default()
    })
}

/// The filter with the conditions of the usage commands.
fn parse_filter(args: &FilterArgs) -> Result<UsageFilter, Failure> {
    let protocol = |word: &String| {
        let known = Protocol::ALL.into_iter().find(|known| known.as_str() == word);
        known.ok_or_else(|| Failure::Usage(format!("--protocol takes one of {}, not '{word}'", Protocol::WORDS.join(", "))))
    };
    let usd = |flag: &str, text: &Option<String>| {
        let amount = text.as_ref().map(|text| NanoUsd::parse(text).map_err(|_| text)).transpose();
        amount.map_err(|text| Failure::Usage(format!("{flag} takes an amount in USD such as 0.05, not '{text}'")))
    };
    let micros = |ms: Option<u32>| ms.map(|ms| u64::from(ms) * 1_000);
    Ok(UsageFilter {
        protocol: args.protocol.as_ref().map(protocol).transpose()?,
        reason: args.reason.clone(),
        tags: if args.tags.is_empty() { Vec::new() } else { tags(&args.tags)? },
        conditions: RecordConditions {
            status: args.status.as_deref().map(status).transpose()?,
            stream: args.stream,
            failed_over: args.failed_over,
            empty: args.empty,
            min_sale: usd("--min-sale", &args.min_sale)?,
            min_cost: usd("--min-cost", &args.min_cost)?,
            min_tokens: args.min_tokens.map(u64::from),
            min_ttft_us: micros(args.min_ttft_ms),
            min_duration_us: micros(args.min_duration_ms),
            client_request_id: args.client_request_id.clone(),
            address: args.address.clone(),
            tried_failed: args.tried_failed,
            unknown_model: args.unknown_model.clone(),
            ..RecordConditions::default()
        },
        ..parse_records(&args.records)?
    })
}

fn status(text: &str) -> Result<(u16, u16), Failure> {
    tollgate_console::parse_status(text)
        .ok_or_else(|| Failure::Usage(format!("--status takes a status such as 429, or a class such as 4xx, not '{text}'")))
}

fn tags(pairs: &[String]) -> Result<Vec<TagCondition>, Failure> {
    tollgate_console::parse_tags(&pairs.join(","))
        .ok_or_else(|| Failure::Usage("--tag takes NAME=VALUE, such as project=web".to_owned()))
}

/// Adds the filter as query parameters.
pub(super) fn with_filter(target: ApiPath, args: &FilterArgs) -> Result<ApiPath, Failure> {
    parse_filter(args)?;
    let time = |flag: &str, text: Option<&String>| {
        text.map(|text| time_flag::parse(flag, text).map(tollgate_console::rfc3339)).transpose()
    };
    let number = |number: Option<u32>| number.map(|number| number.to_string());
    let parameters = [
        ("key", args.records.key.clone()),
        ("member", args.records.member.clone()),
        ("group", args.records.group.clone()),
        ("model", args.records.model.clone()),
        ("channel", args.channel.clone()),
        ("account", args.account.clone()),
        ("protocol", args.protocol.clone()),
        ("outcome", args.records.outcome.clone()),
        ("reason", args.reason.clone()),
        ("tags", (!args.tags.is_empty()).then(|| args.tags.join(","))),
        ("status", args.status.clone()),
        ("stream", args.stream.map(|stream| stream.to_string())),
        ("finish", args.finish.clone()),
        ("failed_over", args.failed_over.map(|failed_over| failed_over.to_string())),
        ("empty", args.empty.map(|empty| empty.to_string())),
        ("min_sale", args.min_sale.clone()),
        ("min_cost", args.min_cost.clone()),
        ("min_tokens", number(args.min_tokens)),
        ("min_ttft_ms", number(args.min_ttft_ms)),
        ("min_duration_ms", number(args.min_duration_ms)),
        ("client_request_id", args.client_request_id.clone()),
        ("address", args.address.clone()),
        ("tried_channel", args.tried_channel.clone()),
        ("tried_account", args.tried_account.clone()),
        ("tried_failed", args.tried_failed.then(|| "true".to_owned())),
        ("unknown_model", args.unknown_model.clone()),
        ("since", time("--since", args.records.since.as_ref())?),
        ("until", time("--until", args.records.until.as_ref())?),
    ];
    Ok(parameters.iter().fold(target, |target, (name, value)| target.maybe(name, value.as_deref())))
}

/// Filter for records that are not in the database, with names resolved to ids.
pub(super) async fn with_ids(admin: &Admin, args: &FilterArgs) -> Result<UsageFilter, Failure> {
    let mut filter = parse_filter(args)?;
    if let Some(key) = &args.records.key {
        let id = super::super::key::id(admin, key).await?;
        filter.key = serde_json::from_value(json!(id)).ok();
    }
    if let Some(member) = &args.records.member {
        filter.member = id(admin, "members", member).await?;
    }
    if let Some(group) = &args.records.group {
        filter.group = id(admin, "groups", group).await?;
    }
    if let Some(channel) = &args.channel {
        filter.channel = id(admin, "channels", channel).await?;
    }
    if let Some(channel) = &args.tried_channel {
        filter.conditions.tried_channel = id(admin, "channels", channel).await?;
    }
    if let Some(account) = &args.account {
        filter.account = account_id(admin, account).await?;
    }
    if let Some(account) = &args.tried_account {
        filter.conditions.tried_account = account_id(admin, account).await?;
    }
    Ok(filter)
}

/// The id of an account that is given as `channel/account` or by its id.
async fn account_id(admin: &Admin, account: &str) -> Result<Option<AccountId>, Failure> {
    let Some((channel, account)) = account.split_once('/') else { return Ok(AccountId::parse(account)) };
    let row = admin.get(&ApiPath::of(&["channels", channel, "accounts", account])).await?;
    Ok(serde_json::from_value(row["id"].clone()).ok())
}

async fn id<T: serde::de::DeserializeOwned>(admin: &Admin, path: &str, name: &str) -> Result<Option<T>, Failure> {
    // Ids may belong to removed rows.
    if let Ok(id) = serde_json::from_value(json!(name)) {
        return Ok(Some(id));
    }
    match admin.get(&ApiPath::of(&[path, name])).await {
        Ok(mut row) => Ok(serde_json::from_value(row["id"].take()).ok()),
        Err(AdminError::Refused(refusal)) if refusal.status == http::StatusCode::NOT_FOUND => Err(Failure::Machine(format!(
            "records that are still in the journal cannot be selected by '{name}', which was removed; name it by its id"
        ))),
        Err(error) => Err(error.into()),
    }
}
