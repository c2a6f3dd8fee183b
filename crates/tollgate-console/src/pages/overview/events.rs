//! Recent changes: the latest entries of the audit log, for admins, and the times when accounts and channels could not be used.

use serde::Deserialize;
use serde_json::Value;
use tollgate_core::Timestamp;

use super::minutes_ago;
use crate::{
    api_error::ApiError,
    pages::{
        audit_action, format,
        locale::Locale,
        operations,
        period::Period,
        request::{ApiPage, PageRequest, get},
        strip,
    },
};

/// Events that are shown.
const SHOWN: usize = 6;
const LIMIT: &str = "6";
/// Entries of the audit log that are read for them, because sign-ins are left out.
const READ: &str = "50";

#[derive(Debug)]
pub(in crate::pages) struct Event {
    pub(in crate::pages) icon: &'static str,
    pub(in crate::pages) text: String,
    pub(in crate::pages) ago: String,
    pub(in crate::pages) at: String,
    /// The time in UTC.
    pub(in crate::pages) exact: String,
}

#[derive(Debug, Deserialize)]
struct AuditObject {
    at: String,
    actor: String,
    action: String,
    kind: String,
    name: String,
    #[serde(default)]
    detail: Value,
}

#[derive(Debug, Deserialize)]
pub(in crate::pages) struct TransitionObject {
    channel: String,
    account: Option<String>,
    state: String,
    reason: String,
    since: String,
}

pub(in crate::pages) async fn latest(request: &PageRequest, period: &Period) -> Result<Vec<Event>, ApiError> {
    let (t, now) = (request.t(), request.state.gateway.now());
    let (since, until) = period.ends();
    let since = if period.is_until_now() { minutes_ago(request, 1_440).min(since) } else { since };
    let pairs = [("since", since.as_str()), ("until", until.as_str()), ("limit", LIMIT)];
    let transitions: ApiPage<TransitionObject> = request.read(operations::LIST_HEALTH_TRANSITIONS, get(&pairs)).await?;
    let mut events: Vec<Event> = transitions.items.iter().map(|transition| of_transition(t, transition, now)).collect();
    if request.is_admin() {
        let until = [("limit", READ), ("until", until.as_str())];
        let audit: ApiPage<AuditObject> = request.read(operations::LIST_AUDIT_EVENTS, get(&until)).await?;
        // Sign-ins are left out: they change nothing.
        let changes = audit.items.iter().filter(|entry| entry.kind != "session");
        events.extend(changes.map(|entry| of_audit(t, entry, now)));
    }
    events.sort_by(|one, other| other.at.cmp(&one.at));
    events.truncate(SHOWN);
    Ok(events)
}

/// When an account or channel could not be used.
pub(in crate::pages) fn of_transition(t: Locale, transition: &TransitionObject, now: Timestamp) -> Event {
    let name = match &transition.account {
        Some(account) => format!("{} / {account}", transition.channel),
        None => transition.channel.clone(),
    };
    let reason = strip::reason(t, &transition.reason);
    let (icon, text) = match transition.state.as_str() {
        "off" => ("off", t.say_with("event.off", &[("name", &name)])),
        "cooling" => ("cool", t.say_with("event.cools", &[("name", &name), ("reason", &reason)])),
        "resting" => ("pause", t.say_with("event.rests", &[("name", &name), ("reason", &reason)])),
        "degraded" => ("warn", t.say_with("event.degraded", &[("name", &name)])),
        _ => ("badc", t.say_with("event.unavailable", &[("name", &name), ("reason", &reason)])),
    };
    Event::of(t, (icon, text), &transition.since, now)
}

impl Event {
    fn of(t: Locale, (icon, text): (&'static str, String), at: &str, now: Timestamp) -> Self {
        let exact = format::time(t, at).map(|time| time.text).unwrap_or_default();
        Self { icon, text, ago: format::ago(t, at, now), at: at.to_owned(), exact }
    }
}

fn of_audit(t: Locale, entry: &AuditObject, now: Timestamp) -> Event {
    let (icon, verb) = match entry.action.as_str() {
        "put" if entry.kind != "setting" && audit_action::is_new(&entry.detail) => ("plus", t.say("event.made")),
        "remove" | "revoke" => ("trash", t.say("event.removed")),
        "start" => ("play", t.say("event.started")),
        "cancel" => ("stop", t.say("event.cancelled")),
        "top_up" | "adjust" => ("price", t.say("event.posted")),
        _ => ("edit", t.say("event.changed")),
    };
    let kind = kind(t, &entry.kind);
    let actor = audit_action::author(&entry.actor);
    let text = t.say_with("event.sentence", &[("actor", actor), ("verb", verb), ("kind", &kind), ("name", &entry.name)]);
    Event::of(t, (icon, text), &entry.at, now)
}

/// The kind of a row.
fn kind(t: Locale, kind: &str) -> String {
    let word = match kind {
        "channel" => t.say("event.channel"),
        "account" => t.say("event.account"),
        "model" => t.say("event.model"),
        "group" => t.say("event.group"),
        "member" => t.say("event.member"),
        "key" => t.say("event.key"),
        "admin_key" => t.say("event.admin_key"),
        "login" => t.say("event.login"),
        "session" => t.say("event.session"),
        "invite" => t.say("event.invite"),
        "setting" => t.say("event.setting"),
        "alert_destination" => t.say("event.destination"),
        "job" => t.say("event.job"),
        "ledger" => t.say("event.ledger"),
        _ => return kind.replace('_', " "),
    };
    word.to_owned()
}
