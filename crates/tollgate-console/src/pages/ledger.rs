//! The ledger: payments, corrections, and charges of requests.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use tollgate_store::AdminScope;
use url::form_urlencoded::Serializer;

use super::{
    control::Pager,
    form::FormData,
    format::{self, TimeText},
    layout::{Layout, Script},
    locale::Locale,
    money::{self, Amount},
    operations,
    page_cursors::{AFTER, BACK},
    period::{Period, PeriodChoice, PeriodPicker},
    reply::{PageFailure, PageReply},
    request::{ApiPage, PageRequest, get},
    route::{PageRoute, SeenBy, page},
};

pub(super) static ROUTES: &[PageRoute] = &[PageRoute::get("/ledger", SeenBy::Role(AdminScope::Admin), page!(list))];

/// Entries on a page.
const PAGE: &str = "50";
const KINDS: [&str; 3] = ["top_up", "adjust", "settle"];
/// Parameters of the address that select a period.
const TIMES: [&str; 3] = ["range", "since", "until"];

#[derive(Debug, Template)]
#[template(path = "ledger.html")]
struct LedgerPage {
    layout: Layout,
    t: Locale,
    period: PeriodPicker,
    /// The parameters of the period, which the filter keeps.
    times: Vec<(&'static str, String)>,
    member: String,
    /// Value, label, whether it is chosen.
    kinds: Vec<(&'static str, &'static str, bool)>,
    is_filtered: bool,
    is_unknown: bool,
    exports: Vec<(&'static str, String)>,
    rows: Vec<LedgerRow>,
    pager: Pager,
}

/// An entry of the admin API.
#[derive(Debug, Deserialize)]
pub(super) struct EntryObject {
    position: u64,
    at: String,
    member: String,
    member_name: String,
    kind: String,
    amount: String,
    pub(super) balance: String,
    covers: Option<CoversObject>,
    note: String,
    actor: String,
}

#[derive(Debug, Deserialize)]
struct CoversObject {
    count: u64,
}

#[derive(Debug)]
pub(super) struct LedgerRow {
    /// Entries are ordered by number. An entry that charges requests has the time of the last of them.
    pub(super) number: String,
    pub(super) at: Option<TimeText>,
    pub(super) member: String,
    pub(super) member_name: String,
    pub(super) kind: &'static str,
    pub(super) tone: &'static str,
    pub(super) amount: Amount,
    pub(super) balance: Amount,
    /// The note of a posting, or the requests that an entry charges.
    pub(super) note: String,
    pub(super) actor: String,
}

fn kind(t: Locale, kind: &str) -> &'static str {
    match kind {
        "top_up" => t.say("ledger.top_up"),
        "adjust" => t.say("ledger.adjust"),
        _ => t.say("ledger.settle"),
    }
}

impl LedgerRow {
    pub(super) fn of(t: Locale, entry: &EntryObject) -> Self {
        let amount = money::short(t, &entry.amount);
        let covers = entry.covers.as_ref().map(|covers| t.say_count("ledger.request", "ledger.requests", covers.count));
        Self {
            number: format::integer(entry.position),
            at: format::time(t, &entry.at),
            member: entry.member.clone(),
            member_name: entry.member_name.clone(),
            kind: kind(t, &entry.kind),
            tone: match entry.kind.as_str() {
                "top_up" => "ok",
                "adjust" => "alt",
                _ => "",
            },
            amount: if entry.amount.starts_with('-') { amount } else { amount.after("+") },
            balance: money::short(t, &entry.balance),
            note: covers.unwrap_or_else(|| entry.note.clone()),
            actor: entry.actor.clone(),
        }
    }
}

/// The period of the address; `None`: all entries.
fn period(request: &PageRequest) -> Option<Period> {
    let is_asked = TIMES.iter().any(|name| request.query.filled(name).is_some());
    is_asked.then(|| Period::of(&request.query, request.state.gateway.now()))
}

/// The picker, which also offers no period.
fn picker(request: &PageRequest, period: Option<&Period>) -> PeriodPicker {
    let (t, address) = (request.t(), request.url("/ledger"));
    // A new period starts at its first page.
    let kept = request.query.pairs().filter(|(name, _)| ![AFTER, BACK, "bars"].contains(name));
    let kept = FormData::of_pairs(kept.map(|(name, value)| (name.to_owned(), value.to_owned())).collect());
    let shown = period.cloned().unwrap_or_else(|| Period::of(&FormData::default(), request.state.gateway.now()));
    let mut picker = shown.picker(t, &address, &kept);
    picker.widths.clear();
    if period.is_none() {
        for choice in &mut picker.choices {
            choice.is_chosen = false;
        }
    }
    let all = Serializer::new(String::new()).extend_pairs(&picker.kept).finish();
    let link = if all.is_empty() { address } else { format!("{address}?{all}") };
    picker.choices.insert(0, PeriodChoice { label: t.say("period.all"), link, is_chosen: period.is_none() });
    picker
}

/// Label and address of the exports of all entries that the filter selects, independent of the page of the list.
fn exports(request: &PageRequest, filter: &[(&str, &str)]) -> Vec<(&'static str, String)> {
    let selected = filter.iter().filter(|(name, _)| matches!(*name, "member" | "kind" | "since" | "until"));
    let link = |format: &str| {
        let query = Serializer::new(String::new()).append_pair("format", format).extend_pairs(selected.clone()).finish();
        request.url(&format!("/admin/v1/ledger/export?{query}"))
    };
    vec![("CSV", link("csv")), ("JSONL", link("jsonl"))]
}

async fn list(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (t, query) = (request.t(), &request.query);
    let period = period(&request);
    let times = period.as_ref().map(Period::of_sums).unwrap_or_default();
    let mut filter = vec![("limit", PAGE)];
    filter.extend(times.iter().map(|(name, at)| (*name, at.as_str())));
    filter.extend(["member", "after"].into_iter().filter_map(|field| Some((field, query.filled(field)?))));
    let wanted = query.value("kind");
    filter.extend(KINDS.contains(&wanted).then_some(("kind", wanted)));
    let found = request.read::<ApiPage<EntryObject>>(operations::LIST_LEDGER, get(&filter)).await;
    let (found, is_unknown) = match found {
        Ok(found) => (found, false),
        Err(error) if error.status == http::StatusCode::NOT_FOUND => (ApiPage::empty(), true),
        Err(error) => return Err(error.into()),
    };
    let rows: Vec<LedgerRow> = found.items.iter().map(|entry| LedgerRow::of(t, entry)).collect();
    let count = t.say_count("ledger.one", "ledger.count", u64::try_from(rows.len()).unwrap_or(u64::MAX));
    let any = ("", t.say("ledger.any_kind"), wanted.is_empty());
    let kinds = KINDS.map(|word| (word, kind(t, word), word == wanted));
    let template = LedgerPage {
        exports: exports(&request, &filter),
        layout: request.layout(t.say("nav.ledger")).wide().with(Script::Tables),
        t,
        period: picker(&request, period.as_ref()),
        times: TIMES.into_iter().filter_map(|name| Some((name, query.filled(name)?.to_owned()))).collect(),
        member: query.value("member").to_owned(),
        kinds: std::iter::once(any).chain(kinds).collect(),
        is_filtered: period.is_some() || ["member", "kind"].iter().any(|field| query.filled(field).is_some()),
        is_unknown,
        rows,
        pager: request.pager("/ledger", count, found.next.as_deref()),
    };
    PageReply::ok(&template)
}
