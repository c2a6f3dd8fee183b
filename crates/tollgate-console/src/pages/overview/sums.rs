//! Sums of the usage log as the admin API answers them.

use serde::{Deserialize, de::DeserializeOwned};
use tollgate_core::NanoUsd;
use tollgate_store::SummaryBy;

use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        format,
        locale::Locale,
        operations,
        period::{Period, row_time},
        request::{ApiPage, PageRequest, get},
    },
    time::rfc3339,
};

#[derive(Debug, Deserialize)]
pub(in crate::pages) struct SumRow {
    pub(in crate::pages) of: String,
    pub(in crate::pages) name: Option<String>,
    pub(in crate::pages) member: Option<String>,
    pub(in crate::pages) and: Option<String>,
    pub(in crate::pages) and_name: Option<String>,
    #[serde(flatten)]
    pub(in crate::pages) figures: Figures,
    previous: Option<Figures>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(in crate::pages) struct Figures {
    pub(in crate::pages) requests: u64,
    pub(in crate::pages) completed: u64,
    pub(in crate::pages) tokens_input: u64,
    pub(in crate::pages) tokens_output: u64,
    pub(in crate::pages) tokens_cache_read: u64,
    sale: String,
    cost: Option<String>,
    pub(in crate::pages) ttft: Option<Times>,
    pub(in crate::pages) duration: Option<Times>,
    pub(in crate::pages) overhead: Option<Times>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(in crate::pages) struct Times {
    #[serde(rename = "p50_us")]
    pub(in crate::pages) p50: u64,
    #[serde(rename = "p95_us")]
    pub(in crate::pages) p95: u64,
    #[serde(rename = "p99_us")]
    pub(in crate::pages) p99: u64,
}

/// Sums over attempts, including those of requests that another account answered.
#[derive(Debug, Deserialize)]
pub(in crate::pages) struct AttemptSum {
    pub(in crate::pages) of: String,
    pub(in crate::pages) name: Option<String>,
    /// Value of the second grouping.
    pub(in crate::pages) and: String,
    #[serde(flatten)]
    pub(in crate::pages) attempts: AttemptFigures,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(in crate::pages) struct AttemptFigures {
    pub(in crate::pages) attempts: u64,
    /// Failed attempts, without those for which the account is not to blame.
    pub(in crate::pages) failed: u64,
}

impl AttemptFigures {
    /// The share that failed.
    pub(in crate::pages) fn share(self) -> String {
        format::ratio_short(self.failed, self.attempts)
    }

    /// The records of a period and a filter with a failed attempt on a channel; `None` if none failed.
    pub(in crate::pages) fn log(
        self,
        request: &PageRequest,
        period: &Period,
        channel: &str,
        more: &[(&str, &str)],
    ) -> Option<String> {
        (self.failed > 0).then(|| request.url(&failed_at(period, channel, more)))
    }

    /// The numbers behind the share.
    pub(in crate::pages) fn title(self, t: Locale) -> String {
        let (failed, attempts) = (format::integer(self.failed), format::integer(self.attempts));
        t.say_with("channels.errors_title", &[("failed", &failed), ("attempts", &attempts)])
    }
}

/// The path of the usage log with the requests whose attempt on a channel failed, including those that another account then
/// answered.
pub(in crate::pages) fn failed_at(period: &Period, channel: &str, more: &[(&str, &str)]) -> String {
    let mut pairs = vec![("tried_channel", channel), ("tried_failed", "true")];
    pairs.extend(more);
    format!("/log?{}", period.in_whole_hours().log_query(&pairs))
}

fn nano(usd: &str) -> u64 {
    NanoUsd::parse(usd).map_or(0, |amount| amount.0.max(0).unsigned_abs())
}

impl Figures {
    pub(in crate::pages) fn sale_nano(&self) -> u64 {
        nano(&self.sale)
    }

    pub(in crate::pages) fn cost_nano(&self) -> u64 {
        self.cost.as_deref().map_or(0, nano)
    }

    pub(in crate::pages) const fn tokens(&self) -> u64 {
        self.tokens_input.saturating_add(self.tokens_output)
    }
}

/// The sums of a period and of the one before.
#[derive(Debug, Default)]
pub(in crate::pages) struct Totals {
    pub(in crate::pages) now: Figures,
    pub(in crate::pages) before: Figures,
}

impl Totals {
    pub(in crate::pages) async fn read(request: &PageRequest, period: &Period) -> Result<Self, ApiError> {
        let mut rows = rows(request, period, &[("by", "nothing"), ("previous", "true")]).await?;
        let Some(row) = rows.pop() else { return Ok(Self::default()) };
        Ok(Self { now: row.figures, before: row.previous.unwrap_or_default() })
    }
}

/// The parameter for sums whose times are not shown.
pub(in crate::pages) const WITHOUT_TIMES: (&str, &str) = ("percentiles", "false");

/// The rows of a summary over a period.
pub(in crate::pages) async fn rows(
    request: &PageRequest,
    period: &Period,
    pairs: &[(&str, &str)],
) -> Result<Vec<SumRow>, ApiError> {
    Ok(read::<ApiPage<SumRow>>(request, period, operations::SUM_USAGE, pairs).await?.items)
}

/// The rows of sums over attempts in the hours of a period.
pub(in crate::pages) async fn attempts(
    request: &PageRequest,
    period: &Period,
    pairs: &[(&str, &str)],
) -> Result<Vec<AttemptSum>, ApiError> {
    Ok(read::<ApiPage<AttemptSum>>(request, period, operations::SUM_ATTEMPTS, pairs).await?.items)
}

/// The answer of an operation for a period.
pub(in crate::pages) async fn read<T: DeserializeOwned>(
    request: &PageRequest,
    period: &Period,
    operation: &'static str,
    pairs: &[(&str, &str)],
) -> Result<T, ApiError> {
    request.read_sums(period, operation, call(period, pairs)).await
}

/// The call for sums over a period.
fn call(period: &Period, pairs: &[(&str, &str)]) -> ApiCall {
    let times = period.of_sums();
    let mut query: Vec<(&str, &str)> = times.iter().map(|(name, time)| (*name, time.as_str())).collect();
    query.extend(pairs);
    get(&query)
}

/// The grouping by time for the bars of a period, and the length of a bar in microseconds.
pub(in crate::pages) fn step(period: &Period) -> (&'static str, i64) {
    let by = period.axis().grouping();
    if by == SummaryBy::Day {
        ("day", 86_400_000_000)
    } else if by == SummaryBy::Hour {
        ("hour", 3_600_000_000)
    } else {
        ("five_minutes", 300_000_000)
    }
}

/// Sums over time: one for each step of the period, those without requests included.
#[derive(Debug)]
pub(in crate::pages) struct SumsOverTime {
    /// Beginnings in microseconds.
    pub(in crate::pages) at: Vec<i64>,
    pub(in crate::pages) figures: Vec<Figures>,
}

impl SumsOverTime {
    /// The beginnings in RFC 3339.
    pub(in crate::pages) fn times(&self) -> Vec<String> {
        self.at.iter().map(|at| rfc3339(tollgate_core::Timestamp(*at))).collect()
    }

    pub(in crate::pages) fn of(&self, figure: impl Fn(&Figures) -> u64) -> Vec<u64> {
        self.figures.iter().map(figure).collect()
    }
}

/// `pairs` are those of a filter.
pub(in crate::pages) async fn series(
    request: &PageRequest,
    period: &Period,
    pairs: &[(&str, &str)],
) -> Result<SumsOverTime, ApiError> {
    let (word, width) = step(period);
    let mut query = vec![("by", word)];
    query.extend(pairs);
    let rows = rows(request, period, &query).await?;
    let axis = period.axis();
    let at: Vec<i64> = (0..(axis.end - axis.begin) / width).map(|step| axis.begin + step * width).collect();
    let mut figures = vec![Figures::default(); at.len()];
    for row in rows {
        let index = row_time(&row.of).and_then(|time| usize::try_from((time.0 - axis.begin).div_euclid(width)).ok());
        if let Some(place) = index.and_then(|index| figures.get_mut(index)) {
            *place = row.figures;
        }
    }
    Ok(SumsOverTime { at, figures })
}
