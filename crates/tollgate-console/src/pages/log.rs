//! The usage log: the selected records as a histogram with sums and as rows, and each record with its attempts and the lines of its
//! amounts. The filter is in the address, so that it can be kept and shared.

mod attempts;
mod contents;
mod filter;
mod messages;
mod record;
mod record_object;
mod search;
mod translation;
mod view;

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use tollgate_core::NanoUsd;
use tollgate_store::{AdminScope, ViewPage};

pub(super) use self::filter::NOT_COMPLETED;
use self::{
    filter::{FilterFault, FilterField, LONGEST_RANGE, LogFilter},
    record::RecordDetail,
    record_object::RecordObject,
    search::SearchedId,
    view::LogRow,
};
use super::{
    bars::{BarFigures, BarSeries, Chart},
    drawer::{DrawerFrame, OPEN},
    form::FormData,
    format, home,
    layout::{Layout, Script},
    locale::Locale,
    money::{self, Amount},
    operations,
    period::{self, PeriodChoice},
    reply::{PageFailure, PageReply},
    request::{PageRequest, get, path_of},
    route::{PageRoute, SeenBy, page},
    suggestions::{Names, Suggestions},
    views::SavedViews,
};
use crate::{api_error::ApiError, dispatch::ApiCall};

const MEMBER: SeenBy = SeenBy::Role(AdminScope::Member);
const OPERATOR: SeenBy = SeenBy::Role(AdminScope::Operator);

pub(super) static ROUTES: &[PageRoute] = &[
    PageRoute::get("/log", MEMBER, page!(list)),
    PageRoute::get("/log/{record}", MEMBER, page!(one)),
    PageRoute::get("/log/{record}/contents", MEMBER, page!(contents::show)),
    PageRoute::get("/log/{record}/translation", OPERATOR, page!(translation::show)),
    PageRoute::post("/log/{record}/contents/remove", MEMBER, page!(contents::remove)),
];

/// Records on a page.
const PAGE: &str = "50";
/// Bars of the histogram at most.
const BARS: &str = "60";
/// Outcomes in the order of the bars, with the class of their colour.
const OUTCOMES: [(&str, &str); 5] = [
    ("completed", "completed"),
    ("caller_left", "left"),
    ("refused", "refused"),
    ("upstream_broke", "broke"),
    ("gateway_stopped", "stopped"),
];

#[derive(Debug, Template)]
#[template(path = "log.html")]
struct LogPage {
    layout: Layout,
    t: Locale,
    fields: Vec<FilterField>,
    hidden: Vec<(&'static str, String)>,
    since: String,
    until: String,
    /// The fault of the time.
    time_fault: Option<String>,
    /// Whether the further fields start open: they were requested, or one of them has a fault.
    shows_more: bool,
    /// The same of all fields on a phone.
    shows_filters: bool,
    views: SavedViews,
    suggestions: Suggestions,
    found: LogPart,
    /// The request id that was searched for.
    wanted: String,
    /// The record that the address opens beside the list.
    open: Option<RecordDrawer>,
}

/// The part of the page that changes with the filter.
#[derive(Debug, Template)]
#[template(path = "parts/log.html")]
struct LogPart {
    layout: Layout,
    t: Locale,
    is_operator: bool,
    ranges: Vec<RangeChoice>,
    exports: Vec<(&'static str, String)>,
    /// Address at which new records are announced.
    live: String,
    problem: Option<String>,
    /// Filters with impossible values. Nothing was searched.
    faults: Vec<FilterFault>,
    /// Parameters of the address that were left out, as sentences.
    unknown: Vec<String>,
    figures: Option<LogFigures>,
    widths: Vec<PeriodChoice>,
    chart: Option<Chart>,
    rows: Vec<LogRow>,
    is_filtered: bool,
    /// Further fields of the filter that are set, with their values.
    chosen: Vec<String>,
    /// Whether the filter is invalid, and nothing was searched.
    is_refused: bool,
    /// A request to send, where there is none yet.
    command: Option<String>,
    clear: String,
    /// The address of the same filter over the longest range; `None` if that range is shown.
    wider: Option<String>,
    /// The address of older records.
    older: Option<String>,
    newer: Option<String>,
    newest: Option<String>,
    /// The time that a search reached before it was stopped because it took too long.
    searched_until: Option<format::TimeText>,
}

#[derive(Debug)]
struct RangeChoice {
    label: &'static str,
    link: String,
    is_chosen: bool,
}

/// Sums of the records that the filter selects.
#[derive(Debug)]
pub(super) struct LogFigures {
    pub(super) requests: String,
    pub(super) not_completed: String,
    pub(super) tokens: String,
    pub(super) tokens_exact: String,
    pub(super) sale: Amount,
    pub(super) cost: Option<Amount>,
}

#[derive(Debug, Template)]
#[template(path = "record.html")]
struct RecordPage {
    layout: Layout,
    t: Locale,
    is_operator: bool,
    record: RecordDetail,
}

/// A record beside the list.
#[derive(Debug, Template)]
#[template(path = "parts/record_drawer.html")]
struct RecordDrawer {
    layout: Layout,
    t: Locale,
    frame: DrawerFrame,
    is_operator: bool,
    record: RecordDetail,
}

impl RecordDrawer {
    fn of(request: &PageRequest, record: RecordDetail, filter: &LogFilter) -> Self {
        let t = request.t();
        let frame = DrawerFrame {
            id: record.id.clone(),
            title: record.title.clone(),
            mark: Some(record.mark.clone()),
            page: request.url(&format!("/log/{}", record.id)),
            back: request.url(&format!("/log?{}", filter.query(None))),
        };
        Self { layout: request.layout(t.say("nav.log")), t, frame, is_operator: request.is_operator(), record }
    }
}

#[derive(Debug, Deserialize)]
struct RecordsAnswer {
    items: Vec<RecordObject>,
    next: Option<String>,
    searched_until: Option<String>,
}

/// A histogram of the admin API.
#[derive(Debug, Deserialize)]
pub(super) struct Buckets {
    pub(super) items: Vec<Bucket>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Bucket {
    pub(super) at: String,
    width_s: i64,
    requests: u64,
    completed: u64,
    caller_left: u64,
    upstream_broke: u64,
    refused: u64,
    gateway_stopped: u64,
    tokens: u64,
    sale: String,
    cost: Option<String>,
}

impl Bucket {
    /// Its end in RFC 3339.
    pub(super) fn end(&self) -> String {
        let begin = crate::time::parse_rfc3339(&self.at).map_or(0, |at| at.0);
        crate::time::rfc3339(tollgate_core::Timestamp(begin.saturating_add(self.width_s.saturating_mul(1_000_000))))
    }

    /// The query of its records.
    pub(super) fn query(&self) -> String {
        url::form_urlencoded::Serializer::new(String::new()).extend_pairs([("since", &self.at), ("until", &self.end())]).finish()
    }

    pub(super) fn of(&self, outcome: &str) -> u64 {
        match outcome {
            "completed" => self.completed,
            "caller_left" => self.caller_left,
            "upstream_broke" => self.upstream_broke,
            "refused" => self.refused,
            _ => self.gateway_stopped,
        }
    }
}

async fn list(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (t, is_operator) = (request.t(), request.is_operator());
    let filter = LogFilter::of(&request.query, request.state.gateway.now(), is_operator);
    let wanted = request.query.filled(filter::REQUEST);
    let missing = match wanted {
        Some(id) => match search::of_id(&request, id).await? {
            SearchedId::Found(address) => return Ok(PageReply::redirect(&address)),
            SearchedId::Missing(text) => Some(text),
        },
        None => None,
    };
    if request.wants_part() {
        return PageReply::ok(&find(&request, &filter, missing).await?);
    }
    let suggested: &[Names] = if is_operator { &Names::OF_OPERATORS } else { &Names::OF_MEMBERS };
    let (found, views, suggestions, open) = tokio::join!(
        find(&request, &filter, missing),
        SavedViews::read(&request, ViewPage::Log),
        Suggestions::of(&request, suggested),
        open_record(&request, &filter)
    );
    let found = found?;
    let (since, until) = filter.fixed();
    let fields = filter.fields(t, &found.faults);
    let time_fault = found.faults.iter().find(|fault| matches!(fault.field, "since" | "until")).map(|fault| fault.text.clone());
    let is_custom = request.query.value(filter::CUSTOM) == "1";
    let shows_more = is_custom || time_fault.is_some() || fields.iter().any(|field| !field.is_common && field.fault.is_some());
    let template = LogPage {
        layout: request.layout(t.say("nav.log")).wide().with(Script::Htmx).with(Script::Log).with(Script::Tables),
        t,
        shows_filters: is_custom || found.is_filtered || !found.faults.is_empty(),
        fields,
        hidden: filter.hidden(),
        since,
        until,
        time_fault,
        shows_more,
        views: views?,
        suggestions,
        wanted: wanted.unwrap_or_default().to_owned(),
        open: open?,
        found,
    };
    PageReply::ok(&template)
}

/// The part of a query that a saved view keeps.
pub(super) fn kept_query(request: &PageRequest, query: &FormData) -> String {
    LogFilter::of(query, request.state.gateway.now(), request.is_operator()).query(None)
}

/// The record of `open` in the address; `None` if it does not exist or the reader may not see it.
async fn open_record(request: &PageRequest, filter: &LogFilter) -> Result<Option<RecordDrawer>, PageFailure> {
    let Some(id) = request.query.filled(OPEN) else { return Ok(None) };
    let call = ApiCall { path: path_of(&[("record", id)]), ..ApiCall::default() };
    let record: RecordObject = match request.read(operations::GET_USAGE, call).await {
        Ok(record) => record,
        Err(error) if error.status.is_client_error() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let t = request.t();
    let reader = (request.is_operator(), may_read_contents(request, &record));
    let record = RecordDetail::of(t, &record, reader);
    Ok(Some(RecordDrawer::of(request, record, filter)))
}

/// Whether the reader may read the contents of a request: admins, and the member of its key.
fn may_read_contents(request: &PageRequest, record: &RecordObject) -> bool {
    request.is_admin() || request.signed_in.as_ref().is_some_and(|own| own.member.id.to_string() == record.member)
}

/// The records of the filter. `missing` says that the searched request does not exist.
async fn find(request: &PageRequest, filter: &LogFilter, missing: Option<String>) -> Result<LogPart, PageFailure> {
    let (t, is_operator) = (request.t(), request.is_operator());
    let ranges = period::words().map(|word| RangeChoice {
        label: period::label(t, word),
        link: request.url(&format!("/log?{}", filter.with_range(word))),
        is_chosen: filter.range == Some(word),
    });
    let chosen = |(field, value): (&str, String)| t.say_with("log.expected.of_field", &[("field", field), ("text", &value)]);
    // Fixed times are typed in the form, to which this choice links.
    let custom = RangeChoice {
        label: t.say("period.custom"),
        link: request.url(&format!("/log?{}#since", filter.with_fixed(request.state.gateway.now()))),
        is_chosen: filter.range.is_none(),
    };
    let export = |format: &str| request.url(&format!("/admin/v1/usage/export?format={format}&{}", filter.fixed_query()));
    let mut part = LogPart {
        layout: request.layout(t.say("nav.log")),
        t,
        is_operator,
        ranges: ranges.chain([custom]).collect(),
        exports: vec![("CSV", export("csv")), ("JSONL", export("jsonl")), ("Parquet", export("parquet"))],
        live: request.url(&format!("/admin/v1/usage/tail?{}", filter.live_query())),
        problem: missing,
        faults: Vec::new(),
        unknown: LogFilter::unknown(t, &request.query),
        figures: None,
        widths: Vec::new(),
        chart: None,
        rows: Vec::new(),
        is_filtered: filter.is_set(),
        chosen: filter.fields(t, &[]).into_iter().filter_map(FilterField::chosen).map(chosen).collect(),
        is_refused: false,
        command: None,
        clear: request.url("/log"),
        wider: (filter.range != Some(LONGEST_RANGE)).then(|| request.url(&format!("/log?{}", filter.with_range(LONGEST_RANGE)))),
        older: None,
        newer: filter.newer().map(|newer| request.url(&format!("/log?{newer}"))),
        newest: filter.cursors.after().map(|_| request.url(&format!("/log?{}", filter.query(None)))),
        searched_until: None,
    };
    let mut query = filter.api_query();
    query.extend(filter.cursors.after().map(|after| ("after", after.to_owned())));
    // At the same time, because both take long for a long period. A refused filter is refused for both.
    let (records, buckets) = tokio::join!(read_records(request, &query, PAGE), read_buckets(request, filter));
    let records = match records {
        Ok(records) => records,
        Err(error) => {
            part.is_refused = true;
            part.faults = filter.faults(t, &every_fault(request, query, error).await?);
            return Ok(part);
        }
    };
    part.rows = records.items.iter().map(|record| LogRow::of(t, record, is_operator)).collect();
    part.older = records.next.map(|next| request.url(&format!("/log?{}", filter.query(Some(&next)))));
    if part.rows.is_empty() && !part.is_filtered && filter.cursors.after().is_none() {
        part.command = Some(home::first_request(request).await?);
    }
    part.searched_until = records.searched_until.and_then(|at| format::time(t, &at));
    let period = filter.period(request.state.gateway.now());
    if buckets.is_some() {
        part.widths = period.widths(t, |width| request.url(&format!("/log?{}", filter.with_bars(width))));
    }
    match buckets.transpose() {
        Ok(Some(buckets)) => (part.figures, part.chart) = (Some(figures(t, &buckets)), Some(chart(request, filter, &buckets))),
        Ok(None) => {}
        // Some filters can be summed only over a shorter time; the rows are shown all the same.
        Err(error) if error.status == http::StatusCode::BAD_REQUEST => {
            part.problem.get_or_insert_with(|| t.say("log.no_sums").to_owned());
        }
        Err(error) => return Err(error.into()),
    }
    Ok(part)
}

/// The bars of the filter. `None` for older pages, which have none.
async fn read_buckets(request: &PageRequest, filter: &LogFilter) -> Option<Result<Buckets, ApiError>> {
    if filter.cursors.after().is_some() {
        return None;
    }
    let period = filter.period(request.state.gateway.now());
    let (bars, width) = period.bars_or(BARS);
    let mut query = filter.api_query();
    query.push((bars, width.to_owned()));
    Some(request.read_sums(&period, operations::DRAW_USAGE, get_all(&query)).await)
}

/// A call that reads, with these parameters in its query.
fn get_all(pairs: &[(&str, String)]) -> ApiCall {
    get(&pairs.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>())
}

async fn read_records(request: &PageRequest, query: &[(&str, String)], limit: &str) -> Result<RecordsAnswer, ApiError> {
    let limited = query.iter().cloned().chain([("limit", limit.to_owned())]);
    request.read(operations::LIST_USAGE, get_all(&limited.collect::<Vec<_>>())).await
}

/// An error with the further faults of a filter: the admin API looks at every value first and at names and relations after that, so
/// the request is repeated without the parameters at fault. An error that is not about the filter fails.
async fn every_fault(request: &PageRequest, mut query: Vec<(&str, String)>, error: ApiError) -> Result<ApiError, PageFailure> {
    if !error.is_about_input() || error.param().is_none() {
        return Err(error.into());
    }
    let at_fault: Vec<String> = error.each().iter().filter_map(|fault| fault.param().map(str::to_owned)).collect();
    query.retain(|(name, _)| !at_fault.iter().any(|known| known == name));
    match read_records(request, &query, "1").await {
        Err(further) if further.is_about_input() && further.param().is_some() => Ok(error.with_others(further.each())),
        // If the repeated request fails because of the gateway, the faults that are known already are still shown.
        Ok(_) | Err(_) => Ok(error),
    }
}

/// The sums of all buckets.
pub(super) fn figures(t: Locale, buckets: &Buckets) -> LogFigures {
    let sum = |figure: fn(&Bucket) -> u64| buckets.items.iter().fold(0_u64, |sum, bucket| sum.saturating_add(figure(bucket)));
    let sum_of = |amount: fn(&Bucket) -> Option<&str>| {
        let amounts = buckets.items.iter().filter_map(|bucket| NanoUsd::parse(amount(bucket)?).ok());
        amounts.fold(NanoUsd::ZERO, |sum, amount| NanoUsd(sum.0.saturating_add(amount.0))).to_usd_string()
    };
    let (requests, completed, tokens) =
        (sum(|bucket| bucket.requests), sum(|bucket| bucket.completed), sum(|bucket| bucket.tokens));
    let sale = sum_of(|bucket| Some(&bucket.sale));
    let has_cost = buckets.items.iter().any(|bucket| bucket.cost.is_some());
    LogFigures {
        requests: format::integer(requests),
        not_completed: format::ratio_of_failed(requests.saturating_sub(completed), requests),
        tokens: format::compact(t, tokens),
        tokens_exact: format::integer(tokens),
        sale: money::short(t, &sale),
        cost: has_cost.then(|| money::short(t, &sum_of(|bucket| bucket.cost.as_deref()))),
    }
}

fn chart(request: &PageRequest, filter: &LogFilter, buckets: &Buckets) -> Chart {
    outcome_chart(request.t(), buckets, |bucket| request.url(&format!("/log?{}", filter.within(&bucket.at, bucket.width_s))))
}

/// Requests over time by outcome; each bar links to the records of its time.
pub(super) fn outcome_chart(t: Locale, buckets: &Buckets, link: impl Fn(&Bucket) -> String) -> Chart {
    let total = |outcome: &str| buckets.items.iter().fold(0_u64, |sum, bucket| sum.saturating_add(bucket.of(outcome)));
    let series = OUTCOMES.map(|(outcome, class)| BarSeries {
        class,
        label: super::mark::of_outcome(t, outcome).word,
        total: Amount::plain(format::integer(total(outcome))),
        filter: Some(("outcome", outcome.to_owned())),
    });
    let bars = buckets.items.iter().map(|bucket| BarFigures {
        link: link(bucket),
        at: bucket.at.clone(),
        figures: OUTCOMES.map(|(outcome, _)| bucket.of(outcome)).to_vec(),
    });
    Chart::of(t, t.say("log.by_outcome"), series.to_vec(), bars.collect())
}

async fn one(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (t, is_operator) = (request.t(), request.is_operator());
    let call = ApiCall { path: path_of(&[("record", request.path_param("record"))]), ..ApiCall::default() };
    let record: RecordObject = request.read(operations::GET_USAGE, call).await?;
    let reader = (is_operator, may_read_contents(&request, &record));
    let record = RecordDetail::of(t, &record, reader);
    if request.wants_part() {
        let filter = LogFilter::of(&request.query, request.state.gateway.now(), is_operator);
        return PageReply::ok(&RecordDrawer::of(&request, record, &filter));
    }
    let layout = request.layout(record.title.clone()).below("/log", t.say("nav.log"));
    PageReply::ok(&RecordPage { layout, t, is_operator, record })
}
