//! The filter of usage records, as query parameters.

use std::net::IpAddr;

use tollgate_core::{ChannelId, Fault, GroupId, MAX_TAGS, NanoUsd, Outcome, TagName, Timestamp};
use tollgate_protocol::{FinishReason, Protocol};
use tollgate_store::{
    RecordConditions, RowKind, TagCondition, UsageFilter,
    fields::{FieldShape, Kind},
};

use super::view::UsageView;
use crate::{
    api::{
        recorded_rows,
        request_context::RequestContext,
        schema::{COUNT, MODEL_NAME, NAME, both},
    },
    api_error::ApiError,
};

pub(in crate::api) const OUTCOMES: &[&str] = &["completed", "caller_left", "upstream_broke", "refused", "gateway_stopped"];
const PROTOCOLS: &[&str] = &Protocol::WORDS;
pub(in crate::api) const FINISHES: &[&str] = &FinishReason::WORDS;
const CODE: Kind = Kind::Text { min: 1, max: 100 };
const USD: Kind = Kind::Usd { min: 0, max: i64::MAX };

pub(super) const FILTER: &[FieldShape] = &[
    both("key", NAME, "Key id, or key name if it is unambiguous."),
    both("member", NAME, "Member, by name or id."),
    both("group", NAME, "Group that served the request or refused it, by name or id."),
    both("model", MODEL_NAME, "Requested model name; one that a group offers."),
    both("channel", NAME, "Channel that answered or was the last to be tried, by name or id."),
    both("account", Kind::Text { min: 1, max: 201 }, "The same of an account, as `channel/account` or by id."),
    both("protocol", Kind::Word(PROTOCOLS), "Protocol of the caller."),
    both("outcome", CODE, "Outcome of the request, as in its record; of several, separated by commas, one must match."),
    both("reason", CODE, "Error id, exclusion code or other code, such as E40."),
    both("tags", Kind::Text { min: 1, max: 2_000 }, "Tags, as `name=value`; of several, separated by commas, all must match."),
    both("status", CODE, "HTTP status sent to the caller, such as 429, or a class of them, such as 4xx."),
    both("stream", Kind::Flag, "Whether a stream was requested."),
    both("finish", Kind::Word(FINISHES), "Why the answer ended: see the field of the record."),
    both("failed_over", Kind::Flag, "Whether more than one account was tried."),
    both("empty", Kind::Flag, "Whether the request was answered without any content."),
    both("min_sale", USD, "Minimum sale amount in USD."),
    both("min_cost", USD, "Minimum cost of all attempts in USD."),
    both("min_tokens", COUNT, "Minimum number of tokens of all kinds."),
    both("min_ttft_ms", COUNT, "Minimum time to the first content, in milliseconds."),
    both("min_duration_ms", COUNT, "Minimum duration, in milliseconds."),
    both("client_request_id", Kind::Text { min: 1, max: 1_000 }, "Request id sent by the caller."),
    both("address", CODE, "Address of the caller."),
    both("tried_channel", NAME, "Channel with an attempt of the request, even if another channel answered, by name or id."),
    both("tried_account", Kind::Text { min: 1, max: 201 }, "The same of an account, as `channel/account` or by id."),
    both("tried_failed", Kind::Flag, "true: only attempts of `tried_channel` and `tried_account` that failed."),
    both("unknown_model", MODEL_NAME, "Requested model name of requests that were refused because no group of the key offers it."),
    both("since", Kind::Time, "Arrival at or after this time."),
    both("until", Kind::Time, "Arrival before this time."),
];

/// Notes the fault of a parameter, so that all of them are reported together. Other errors end the request.
fn noted<T: Default>(faults: &mut Vec<ApiError>, found: Result<T, ApiError>) -> Result<T, ApiError> {
    match found {
        Err(error) if error.is_about_input() => {
            faults.push(error);
            Ok(T::default())
        }
        found => found,
    }
}

/// The filter of a request, restricted to the records that its sender may see.
pub(super) async fn filter(context: &RequestContext) -> Result<UsageFilter, ApiError> {
    let query = &context.query;
    UsageView::of(context).allow_filters(query)?;
    let mut faults = Vec::new();
    if let (Some(since), Some(until)) = (query.time("since"), query.time("until"))
        && since > until
    {
        faults.push(ApiError::value("since", "it is after 'until'; swap the two"));
    }
    if query.flag("tried_failed") && !query.has("tried_channel") && !query.has("tried_account") {
        faults.push(ApiError::value("tried_failed", "it needs 'tried_channel' or 'tried_account'"));
    }
    let protocol = query.text("protocol").and_then(|word| Protocol::ALL.into_iter().find(|known| known.as_str() == word));
    let filter = UsageFilter {
        key: noted(&mut faults, recorded_rows::key(context).await)?,
        member: noted(&mut faults, recorded_rows::member(context).await)?,
        group: noted(&mut faults, group(context).await)?,
        model: query.text("model").map(str::to_owned),
        channel: noted(&mut faults, channel_filter(context, "channel").await)?,
        account: noted(&mut faults, recorded_rows::account(context, "account").await)?,
        protocol,
        outcomes: noted(&mut faults, query.text("outcome").map(outcomes).transpose())?.unwrap_or_default(),
        reason: noted(&mut faults, query.text("reason").map(reason).transpose())?,
        tags: noted(&mut faults, query.text("tags").map(tags).transpose())?.unwrap_or_default(),
        conditions: conditions(context, &mut faults).await?,
        since: query.time("since"),
        until: query.time("until"),
        ..UsageFilter::default()
    };
    ApiError::first_of(faults).map(|()| filter)
}

/// A group's id. Members do not see groups, and cannot find out which exist: an unknown group has no records, like a group of
/// others.
async fn group(context: &RequestContext) -> Result<Option<GroupId>, ApiError> {
    let Some(name) = context.query.text("group").filter(|_| context.is_caller_view()) else {
        return recorded_rows::id(context, RowKind::Group, "group", GroupId::parse).await;
    };
    let found = recorded_rows::group_of_any(context, name).await?;
    Ok(Some(found.unwrap_or(GroupId::from_parts(Timestamp(0), [0; 10]))))
}

/// The channel that a parameter names.
pub(super) async fn channel_filter(context: &RequestContext, parameter: &str) -> Result<Option<ChannelId>, ApiError> {
    recorded_rows::id(context, RowKind::Channel, parameter, ChannelId::parse).await
}

async fn conditions(context: &RequestContext, faults: &mut Vec<ApiError>) -> Result<RecordConditions, ApiError> {
    let query = &context.query;
    let count = |name: &str| query.whole(name).and_then(|count| u64::try_from(count).ok());
    let micros = |name: &str| count(name).map(|ms| ms.saturating_mul(1_000));
    let flag = |name: &str| query.0.get(name).and_then(serde_json::Value::as_bool);
    let usd = |name: &str| query.text(name).and_then(|text| NanoUsd::parse(text).ok());
    Ok(RecordConditions {
        status: noted(faults, query.text("status").map(status).transpose())?,
        stream: flag("stream"),
        finish: query.text("finish").and_then(|word| FinishReason::ALL.into_iter().find(|known| known.as_str() == word)),
        failed_over: flag("failed_over"),
        empty: flag("empty"),
        min_sale: usd("min_sale"),
        min_cost: usd("min_cost"),
        min_tokens: count("min_tokens"),
        min_ttft_us: micros("min_ttft_ms"),
        min_duration_us: micros("min_duration_ms"),
        client_request_id: query.text("client_request_id").map(str::to_owned),
        address: noted(faults, query.text("address").map(address).transpose())?,
        tried_channel: noted(faults, channel_filter(context, "tried_channel").await)?,
        tried_account: noted(faults, recorded_rows::account(context, "tried_account").await)?,
        tried_failed: query.flag("tried_failed"),
        unknown_model: query.text("unknown_model").map(str::to_owned),
    })
}

/// A reason as records have it: error ids in either case, and other codes as they are.
fn reason(text: &str) -> Result<String, ApiError> {
    let id = text.to_ascii_uppercase();
    if !id.strip_prefix('E').is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())) {
        return Ok(text.to_owned());
    }
    match Fault::of_error(&id) {
        Some(_) => Ok(id),
        None => Err(ApiError::value("reason", format!("there is no error {id}; docs/errors.md lists them"))),
    }
}

/// An address as records have it.
fn address(text: &str) -> Result<String, ApiError> {
    let parsed = text.parse::<IpAddr>();
    let message = "expected one IP address, such as 203.0.113.7; networks are not searched for";
    parsed.map(|address| address.to_string()).map_err(|_| ApiError::value("address", message))
}

/// The tags of a filter.
pub(crate) fn tags(text: &str) -> Result<Vec<TagCondition>, ApiError> {
    let invalid = || ApiError::value("tags", "expected 'name=value', or several separated by commas");
    parse_tags(text).filter(|tags| tags.len() <= MAX_TAGS).ok_or_else(invalid)
}

/// The tags in `name=value,name=value`.
pub fn parse_tags(text: &str) -> Option<Vec<TagCondition>> {
    let condition = |(name, value): (TagName, &str)| TagCondition { name, value: value.to_owned() };
    text.split(',').map(|pair| TagName::of_pair(pair).map(condition)).collect()
}

/// The outcomes that a parameter lists.
pub(in crate::api) fn outcomes(text: &str) -> Result<Vec<Outcome>, ApiError> {
    parse_outcomes(text).map_err(|_| {
        let words = OUTCOMES.join(", ");
        ApiError::value("outcome", format!("expected {words}, or several of these separated by commas"))
    })
}

/// The outcomes in `refused,upstream_broke`; the error is the first word that is not an outcome.
pub fn parse_outcomes(text: &str) -> Result<Vec<Outcome>, &str> {
    text.split(',').map(str::trim).map(|word| outcome(word).ok_or(word)).collect()
}

fn outcome(word: &str) -> Option<Outcome> {
    serde_json::from_value(word.into()).ok()
}

fn status(text: &str) -> Result<(u16, u16), ApiError> {
    parse_status(text).ok_or_else(|| ApiError::value("status", "expected a status such as 429, or a class such as 4xx"))
}

/// The first and the last status of `429` or `4xx`.
pub fn parse_status(text: &str) -> Option<(u16, u16)> {
    let class = text.strip_suffix("xx").and_then(|class| class.parse::<u16>().ok()).filter(|class| (1..=5).contains(class));
    let is_status = |status: &u16| text.len() == 3 && (100..=599).contains(status);
    let one = || text.parse::<u16>().ok().filter(is_status).map(|status| (status, status));
    class.filter(|_| text.len() == 3).map(|class| (class * 100, class * 100 + 99)).or_else(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_error_codes_and_invalid_addresses_are_refused() {
        assert_eq!(reason("e13").unwrap(), "E13");
        for known in ["E64", "E14", "gateway_stopped", "overflow", "Else"] {
            assert_eq!(reason(known).unwrap(), known);
        }
        assert!(reason("E999").is_err() && reason("e0").is_err());
        assert_eq!(address("2001:DB8::1").unwrap(), "2001:db8::1");
        for wrong in ["10.0.0.0/8", "localhost", "127.0.0.1:80"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn outcome_and_protocol_names_match_the_records() {
        for word in OUTCOMES {
            assert_eq!(outcome(word).unwrap().as_str(), *word);
        }
        assert_eq!(Protocol::ALL.map(Protocol::as_str), PROTOCOLS);
    }

    #[test]
    fn outcome_filter_is_one_outcome_or_several() {
        assert_eq!(outcomes("refused").unwrap(), [Outcome::Refused]);
        assert_eq!(outcomes("refused, caller_left").unwrap(), [Outcome::Refused, Outcome::CallerLeft]);
        for text in ["good", "refused,good,bad", "refused,", "Refused"] {
            let message = outcomes(text).unwrap_err().message().to_owned();
            assert!(message.contains("gateway_stopped") && !message.contains("good"), "what was sent may be a secret: {message}");
        }
    }

    #[test]
    fn tag_filter_is_a_bounded_list_of_name_value_pairs() {
        let found = tags("project=web, user=a b").unwrap();
        let pairs: Vec<(&str, &str)> = found.iter().map(|tag| (tag.name.as_str(), tag.value.as_str())).collect();
        assert_eq!(pairs, [("project", "web"), ("user", "a b")]);
        for wrong in ["project", "project=web,", "a b=c"] {
            assert!(tags(wrong).is_err(), "{wrong}");
        }
        assert!(tags(&["a=b"; MAX_TAGS + 1].join(",")).is_err());
    }

    #[test]
    fn status_filter_is_a_status_or_a_class_of_statuses() {
        assert_eq!(status("429").unwrap(), (429, 429));
        assert_eq!(status("5xx").unwrap(), (500, 599));
        for wrong in ["", "xx", "6xx", "99", "4x", "4xxx", "600", "+4xx"] {
            assert!(status(wrong).is_err(), "{wrong}");
        }
    }
}
