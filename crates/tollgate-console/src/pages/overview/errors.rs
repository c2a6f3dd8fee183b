//! Requests that were not completed, of the gateway or of a channel: counts by owner of the fault, and the latest ones with
//! advice for each.

use serde::Deserialize;
use tollgate_core::{Fault, Outcome};

use super::sums;
use crate::{
    api_error::ApiError,
    pages::{
        format::{self, TimeText},
        locale::Locale,
        log::{Bucket, Buckets},
        mark::{self, Mark},
        operations,
        period::Period,
        reasons,
        request::{ApiPage, PageRequest, get},
    },
};

/// Errors of one owner that are shown.
const MAX_OF_OWNER: usize = 4;
/// The latest errors that are shown.
const MAX_RECENT: u64 = 10;
/// Outcomes whose latest records are shown. A caller that left needs no action.
const FAILED: [&str; 3] = ["refused", "upstream_broke", "gateway_stopped"];

#[derive(Debug)]
pub(super) struct OwnerErrors {
    pub(super) total: String,
    pub(super) owners: Vec<OwnerGroup>,
}

#[derive(Debug)]
pub(super) struct OwnerGroup {
    pub(super) owner: &'static str,
    pub(super) errors: Vec<ErrorCount>,
    /// Number of names that are not shown, and of their requests.
    pub(super) others: Option<(String, String)>,
}

#[derive(Debug)]
pub(super) struct ErrorCount {
    pub(super) name: String,
    pub(super) count: String,
    pub(super) link: String,
    pub(super) class: &'static str,
    /// Of the most frequent error.
    pub(super) percent: u64,
}

/// Requests with one name of an error.
#[derive(Debug)]
struct Counted {
    owner: Fault,
    name: String,
    query: (&'static str, String),
    class: &'static str,
    count: u64,
}

fn outcome(word: &str) -> Option<Outcome> {
    serde_json::from_value(word.into()).ok()
}

const fn class(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Completed => "completed",
        Outcome::CallerLeft => "left",
        Outcome::Refused => "refused",
        Outcome::UpstreamBroke => "broke",
        Outcome::GatewayStopped => "stopped",
    }
}

pub(super) async fn owners(request: &PageRequest, period: &Period) -> Result<OwnerErrors, ApiError> {
    let t = request.t();
    let rows = sums::rows(request, period, &[("by", "error,outcome"), ("sort", "requests"), sums::WITHOUT_TIMES]).await?;
    let mut counted: Vec<Counted> = Vec::new();
    for row in &rows {
        let Some(outcome) = outcome(row.and.as_deref().unwrap_or_default()) else { continue };
        let Some(owner) = Fault::of(outcome, Some(row.of.as_str()).filter(|reason| !reason.is_empty())) else { continue };
        let known = reasons::name(t, &row.of).filter(|_| outcome != Outcome::CallerLeft);
        let (name, query) = match known {
            Some(name) => (name.to_owned(), ("reason", row.of.clone())),
            None => (mark::of_outcome(t, outcome.as_str()).word, ("outcome", outcome.as_str().to_owned())),
        };
        match counted.iter_mut().find(|known| known.owner == owner && known.name == name) {
            Some(known) => known.count = known.count.saturating_add(row.figures.requests),
            None => counted.push(Counted { owner, name, query, class: class(outcome), count: row.figures.requests }),
        }
    }
    let most = counted.iter().map(|counted| counted.count).max().unwrap_or(0);
    let total = counted.iter().fold(0_u64, |sum, counted| sum.saturating_add(counted.count));
    counted.sort_by_key(|counted| std::cmp::Reverse(counted.count));
    let group = |(owner, label): (Fault, &'static str)| {
        let mut found = counted.iter().filter(|counted| counted.owner == owner);
        let errors = found.by_ref().take(MAX_OF_OWNER).map(|counted| ErrorCount {
            name: counted.name.clone(),
            count: format::integer(counted.count),
            link: request.url(&format!("/log?{}", period.log_query(&[(counted.query.0, &counted.query.1)]))),
            class: counted.class,
            percent: (counted.count.saturating_mul(100) / most.max(1)).max(1),
        });
        let errors = errors.collect();
        let others: Vec<u64> = found.map(|counted| counted.count).collect();
        let name = t.say_count("overview.other_error", "overview.other_errors", u64::try_from(others.len()).unwrap_or(u64::MAX));
        let count = others.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
        OwnerGroup { owner: label, errors, others: (!others.is_empty()).then(|| (name, format::integer(count))) }
    };
    let owners = [
        (Fault::Caller, t.say("overview.owner_caller")),
        (Fault::Upstream, t.say("overview.owner_upstream")),
        (Fault::Gateway, t.say("overview.owner_gateway")),
    ];
    let owners = owners.into_iter().map(group).filter(|group| !group.errors.is_empty());
    Ok(OwnerErrors { total: format::integer(total), owners: owners.collect() })
}

#[derive(Debug)]
pub(in crate::pages) struct RecentError {
    pub(in crate::pages) link: String,
    pub(in crate::pages) at: Option<TimeText>,
    pub(in crate::pages) mark: Mark,
    pub(in crate::pages) name: String,
    pub(in crate::pages) model: String,
    pub(in crate::pages) key: String,
    pub(in crate::pages) key_link: String,
    pub(in crate::pages) advice: &'static str,
    /// The error message that the caller received.
    pub(in crate::pages) detail: String,
}

#[derive(Debug, Deserialize)]
struct FailedObject {
    id: String,
    at: String,
    outcome: String,
    reason: Option<String>,
    detail: Option<String>,
    status: u16,
    key: String,
    key_name: String,
    model: Option<String>,
    attempts: Vec<FailedAttempt>,
}

#[derive(Debug, Deserialize)]
struct FailedAttempt {
    status: Option<u16>,
}

/// The latest errors of the records that a filter selects. Sums over time show how far back enough of them occurred, so that
/// few records are read.
pub(in crate::pages) async fn recent(
    request: &PageRequest,
    buckets: &Buckets,
    filter: &[(&str, &str)],
) -> Result<Vec<RecentError>, ApiError> {
    let limit = MAX_RECENT.to_string();
    let mut found: Vec<FailedObject> = Vec::new();
    for outcome in FAILED {
        let Some((since, until)) = narrowed(&buckets.items, outcome) else { continue };
        let pairs = [filter, &[("outcome", outcome), ("since", &since), ("until", &until), ("limit", &limit)]].concat();
        found.extend(request.read::<ApiPage<FailedObject>>(operations::LIST_USAGE, get(&pairs)).await?.items);
    }
    // Request ids are in the order of time.
    found.sort_by(|one, other| other.id.cmp(&one.id));
    found.truncate(usize::try_from(MAX_RECENT).unwrap_or(usize::MAX));
    Ok(found.iter().map(|record| recent_error(request, record)).collect())
}

/// The latest buckets with enough requests of an outcome: their beginning and end. `None` if there are no such requests.
fn narrowed(buckets: &[Bucket], outcome: &str) -> Option<(String, String)> {
    let last = buckets.iter().rev().find(|bucket| bucket.of(outcome) > 0)?;
    let mut count = 0_u64;
    let first = buckets.iter().rev().find(|bucket| {
        count = count.saturating_add(bucket.of(outcome));
        count >= MAX_RECENT
    });
    // There are fewer than the list shows, so all of them are read.
    let first = first.or_else(|| buckets.iter().find(|bucket| bucket.of(outcome) > 0)).unwrap_or(last);
    Some((first.at.clone(), last.end()))
}

fn recent_error(request: &PageRequest, record: &FailedObject) -> RecentError {
    let t = request.t();
    let reason = record.reason.as_deref().unwrap_or_default();
    let outcome_mark = mark::of_outcome(t, &record.outcome);
    let (tone, icon) = if record.status >= 500 || record.outcome != "refused" { ("bad", "badc") } else { ("warn", "warn") };
    RecentError {
        link: request.url(&format!("/log/{}", record.id)),
        at: format::second(t, &record.at),
        mark: Mark::new(tone, icon, record.status.to_string()),
        name: reasons::name(t, reason).map_or(outcome_mark.word, str::to_owned),
        model: record.model.clone().unwrap_or_else(|| "–".to_owned()),
        key: record.key_name.clone(),
        key_link: request.url(&format!("/keys/{}", record.key)),
        advice: advice(t, record),
        detail: record.detail.clone().unwrap_or_default(),
    }
}

fn advice(t: Locale, record: &FailedObject) -> &'static str {
    let upstream = record.attempts.last().and_then(|attempt| attempt.status);
    reasons::advice_of_request(t, record.reason.as_deref().unwrap_or_default(), &record.outcome, upstream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_narrowed_to_the_buckets_with_the_latest_errors() {
        let bucket = |hour: u32, refused: u64| -> Bucket {
            serde_json::from_value(serde_json::json!({
                "at": format!("2026-11-23T{hour:02}:00:00Z"), "width_s": 3_600, "requests": 100, "completed": 100 - refused,
                "caller_left": 0, "upstream_broke": 0, "refused": refused, "gateway_stopped": 0, "tokens": 0, "sale": "0", "cost": null,
            }))
            .unwrap()
        };
        let buckets = [bucket(0, 50), bucket(1, 0), bucket(2, 8), bucket(3, 4), bucket(4, 0)];
        let of = |outcome| narrowed(&buckets, outcome);
        assert_eq!(of("refused"), Some(("2026-11-23T02:00:00Z".to_owned(), "2026-11-23T04:00:00Z".to_owned())));
        assert_eq!(of("gateway_stopped"), None);
        let few = [bucket(0, 1), bucket(1, 0), bucket(2, 1)];
        assert_eq!(narrowed(&few, "refused").unwrap().0, "2026-11-23T00:00:00Z");
    }
}
