//! The audit log: who changed what and when, with the values before and after.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use serde_json::Value;
use tollgate_core::Timestamp;
use tollgate_store::AdminScope;
use url::form_urlencoded::Serializer;

use super::{
    audit_action,
    control::Pager,
    difference::{DifferenceRow, differences, summary},
    format::{self, TimeText},
    layout::Layout,
    locale::Locale,
    operations, problem,
    reply::{PageFailure, PageReply},
    request::{ApiPage, PageRequest, get},
    route::{PageRoute, SeenBy, page},
};
use crate::{
    api::audit::KINDS,
    time::{parse_rfc3339, rfc3339},
};

pub(super) static ROUTES: &[PageRoute] = &[PageRoute::get("/audit", SeenBy::Role(AdminScope::Admin), page!(list))];

/// Events on a page.
const PAGE: &str = "50";

#[derive(Debug, Template)]
#[template(path = "audit.html")]
struct AuditPage {
    layout: Layout,
    t: Locale,
    name: String,
    actor: String,
    address: String,
    since: DayField,
    until: DayField,
    /// Value, label, whether it is chosen.
    kinds: Vec<(&'static str, &'static str, bool)>,
    is_filtered: bool,
    problem: Option<String>,
    /// Format and address.
    exports: Vec<(&'static str, String)>,
    rows: Vec<EventRow>,
    pager: Pager,
}

#[derive(Debug, Deserialize)]
struct EventObject {
    at: String,
    origin: String,
    actor: String,
    address: Option<String>,
    action: String,
    kind: String,
    id: String,
    name: String,
    detail: Value,
}

#[derive(Debug)]
struct EventRow {
    at: Option<TimeText>,
    /// Its name; with the id in `author`.
    actor: String,
    author: String,
    address: Option<String>,
    origin: String,
    action: String,
    tone: &'static str,
    kind: &'static str,
    name: String,
    id: String,
    link: Option<String>,
    differences: Vec<DifferenceRow>,
    /// Fields that changed, in one line.
    summary: String,
}

fn kind(t: Locale, kind: &str) -> &'static str {
    match kind {
        "channel" => t.say("audit.channel"),
        "account" => t.say("audit.account"),
        "model" => t.say("models.name"),
        "group" => t.say("groups.group"),
        "member" => t.say("keys.member"),
        "key" => t.say("home.key"),
        "admin_key" => t.say("audit.admin_key"),
        "login" => t.say("audit.login"),
        "session" => t.say("audit.session"),
        "invite" => t.say("audit.invite"),
        "setting" => t.say("audit.setting"),
        "alert_destination" => t.say("audit.destination"),
        "job" => t.say("audit.job"),
        "contents" => t.say("contents.title"),
        _ => t.say("nav.ledger"),
    }
}

impl EventRow {
    fn of(request: &PageRequest, event: &EventObject) -> Self {
        let t = request.t();
        let differences = differences(t, &event.kind, &event.detail);
        let page = match event.kind.as_str() {
            "channel" => Some("/channels/"),
            "group" => Some("/groups/"),
            "member" | "login" | "ledger" => Some("/members/"),
            "key" => Some("/keys/"),
            "admin_key" => Some("/members/admin-keys/"),
            "contents" => Some("/log/"),
            _ => None,
        };
        let is_removed = matches!(event.action.as_str(), "remove" | "revoke") && event.kind != "contents";
        Self {
            at: format::time(t, &event.at),
            actor: audit_action::shown_author(t, &event.actor).to_owned(),
            author: event.actor.clone(),
            address: event.address.clone(),
            origin: audit_action::origin(t, &event.origin).to_owned(),
            tone: match event.action.as_str() {
                "remove" | "revoke" => "bad",
                "put" | "change" | "set" => "info",
                _ => "",
            },
            action: audit_action::word(t, &event.action, &event.kind, &event.detail),
            kind: kind(t, &event.kind),
            name: event.name.clone(),
            link: page.filter(|_| !is_removed).map(|page| request.url(&format!("{page}{}", event.id))),
            id: event.id.clone(),
            summary: summary(t, &differences),
            differences,
        }
    }
}

async fn list(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let (t, query) = (request.t(), &request.query);
    let filter = filter(&request);
    let mut asked: Vec<(&str, &str)> = filter.iter().map(|(name, value)| (*name, value.as_str())).collect();
    asked.push(("limit", PAGE));
    asked.extend(query.filled("after").map(|after| ("after", after)));
    let found = request.read::<ApiPage<EventObject>>(operations::LIST_AUDIT, get(&asked)).await;
    let (found, problem) = match found {
        Ok(found) => (found, None),
        Err(error) if error.status == http::StatusCode::BAD_REQUEST => {
            let is_time = matches!(error.param(), Some("since" | "until"));
            let text = if is_time { t.say("problem.day").to_owned() } else { problem::say(t, &error) };
            (ApiPage::empty(), Some(text))
        }
        Err(error) => return Err(error.into()),
    };
    let rows: Vec<EventRow> = found.items.iter().map(|event| EventRow::of(&request, event)).collect();
    let wanted = query.value("kind");
    let kinds = KINDS.iter().map(|word| (*word, kind(t, word), *word == wanted));
    let count = t.say_count("audit.one", "audit.count", u64::try_from(rows.len()).unwrap_or(u64::MAX));
    let export = |format: &str| {
        let mut text = Serializer::new(String::new());
        text.append_pair("format", format).extend_pairs(filter.iter().map(|(name, value)| (*name, value.as_str())));
        request.url(&format!("/admin/v1/audit/export?{}", text.finish()))
    };
    let template = AuditPage {
        layout: request.layout(t.say("nav.audit")).wide(),
        t,
        name: query.value("name").to_owned(),
        actor: query.value("actor").to_owned(),
        address: query.value("address").to_owned(),
        since: DayField::of(query.value("since"), begin, 0),
        until: DayField::of(query.value("until"), end, 1),
        kinds: std::iter::once(("", t.say("audit.any_kind"), wanted.is_empty())).chain(kinds).collect(),
        is_filtered: !filter.is_empty(),
        problem,
        exports: vec![("CSV", export("csv")), ("JSONL", export("jsonl"))],
        rows,
        pager: request.pager("/audit", count, found.next.as_deref()),
    };
    PageReply::ok(&template)
}

/// A day at which the filter begins or ends.
#[derive(Debug)]
struct DayField {
    /// The day in UTC, or the typed text if it is not a day.
    day: String,
    /// The beginning or the end of the day, which scripts show in the reader's zone.
    at: String,
}

impl DayField {
    /// `time`: the beginning or the end of a day; `back_us`: the distance back from it to a time within that day.
    fn of(typed: &str, time: fn(&str) -> String, back_us: i64) -> Self {
        let at = time(typed);
        match parse_rfc3339(&at) {
            Some(time) => Self { day: rfc3339(Timestamp(time.0 - back_us)).chars().take(10).collect(), at },
            None => Self { day: typed.to_owned(), at: String::new() },
        }
    }
}

/// The beginning of a filter: a time that a script sends, or the beginning of a typed UTC day.
fn begin(text: &str) -> String {
    if text.contains('T') { text.to_owned() } else { format::begin_of_day(text) }
}

/// Where a filter ends.
fn end(text: &str) -> String {
    if text.contains('T') { text.to_owned() } else { format::end_of_day(text) }
}

/// The filter as the admin API takes it: days begin and end at midnight, and the last one is included.
fn filter(request: &PageRequest) -> Vec<(&'static str, String)> {
    let query = &request.query;
    let mut filter = Vec::new();
    for name in ["name", "actor", "address", "id"] {
        filter.extend(query.filled(name).map(|value| (name, value.to_owned())));
    }
    filter.extend(Some(query.value("kind")).filter(|kind| KINDS.contains(kind)).map(|kind| ("kind", kind.to_owned())));
    filter.extend(query.filled("since").map(|day| ("since", begin(day))));
    filter.extend(query.filled("until").map(|day| ("until", end(day))));
    filter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_times_of_an_address_begin_and_end_a_filter() {
        for (typed, since, until) in [
            ("2026-11-20", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"),
            ("2026-11-20T05:00:00Z", "2026-11-20T05:00:00Z", "2026-11-20T05:00:00Z"),
        ] {
            assert_eq!((begin(typed).as_str(), end(typed).as_str()), (since, until));
            assert_eq!(DayField::of(typed, begin, 0).day, "2026-11-20");
            let field = DayField::of(typed, end, 1);
            assert_eq!((field.day.as_str(), field.at.as_str()), ("2026-11-20", until));
        }
        let wrong = DayField::of("soon", begin, 0);
        assert_eq!((wrong.day.as_str(), wrong.at.as_str()), ("soon", ""));
        assert_eq!(DayField::of("", end, 1).day, "");
    }
}
