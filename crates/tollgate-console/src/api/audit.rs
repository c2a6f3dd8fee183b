//! The audit log: changes of the catalog, jobs, and postings that people made to the ledger, in one list by time.

mod export;

use serde_json::{Value, json};
use tollgate_core::{AccountSpec, ChannelSpec, MemberId, ModelSpec, Revision};
use tollgate_store::{
    AdminKeySpec, AdminScope, AlertDestinationSpec, AuditEvent, AuditFilter, AuditKind, AuditPosition, GroupSpec, KeySpec,
    LedgerEntry, LedgerFilter, LedgerKind, LedgerPosition, MemberSpec, RowKind,
    fields::{AccountInput, DestinationInput, FieldShape, KeyInput, Kind, Object, Row, whole},
};

use super::{
    request_context::RequestContext,
    route::{AFTER, LIMIT, Method, Needs, Resource, ResponseSchema, Route, handler},
    row_names::names_by_id,
    schema::{COUNT, NAME, ORIGIN, TEXT, both, join, read},
    text_export,
};
use crate::{api_error::ApiError, response::ApiResponse, time::time_value};

static EVENT: Object = Object::of(
    "AuditEvent",
    &[
        read("revision", COUNT, "Catalog revision of the change; of a posting: its position in the ledger."),
        read("at", Kind::Time, "Time of the change."),
        ORIGIN,
        read("actor", TEXT, "Author of the change."),
        read("address", TEXT, "Address that the change was made from; null: on the gateway's machine, or not known.").or_null(),
        read(
            "action",
            TEXT,
            "put, remove, switch, revoke and others; of a posting: `top_up` or `adjust`; of a job: `start` or `cancel`; of stored contents: `read` or `remove`.",
        ),
        read(
            "kind",
            TEXT,
            "Kind of the row; `ledger` of a posting, `job` of a job, `contents` of stored contents; `login`, `session` or `invite`.",
        ),
        read("id", TEXT, "Id of the row, job, session, invite or request; of a posting or login: of the member."),
        read(
            "name",
            TEXT,
            "Name of the row at that time; of a posting, login, session or request: of the member; of a job: its kind.",
        ),
        read(
            "detail",
            Kind::Any,
            "State before and after, without secrets, in the catalog's units; of a posting: amount, balance, note.",
        ),
    ],
);

const LEDGER: &str = "ledger";
/// What the events of the audit log are about.
pub(crate) const KINDS: &[&str] = &[
    "channel",
    "account",
    "model",
    "group",
    "member",
    "key",
    "admin_key",
    "login",
    "session",
    "invite",
    "setting",
    "alert_destination",
    "job",
    "contents",
    LEDGER,
];
/// Maximum number of postings read for a page; they are filtered after they are read.
const MAX_POSTINGS: usize = 10_000;
const POSTINGS_AT_ONCE: u32 = 1_000;

const AUDIT: Resource = Resource { tag: "audit", needs: Needs::Scope(AdminScope::Admin) };
const DOC: &str = "Changes to the catalog and to settings, postings to the ledger, and jobs, newest first.";

/// Query parameters that select events.
const FILTER: [FieldShape; 7] = [
    both("kind", Kind::Word(KINDS), "Only changes of this kind of row, postings to the ledger, or jobs."),
    both("id", NAME, "Only changes of the row with this id, or postings to this member."),
    both("name", NAME, "Only changes of rows of this name, or postings to this member."),
    both("actor", NAME, "Only changes by this author; for an admin key its name."),
    both("address", NAME, "Only changes from this address."),
    both("since", Kind::Time, "At or after this time."),
    both("until", Kind::Time, "Before this time."),
];
const LIST: &[FieldShape] = &join::<{ FILTER.len() + 2 }>(&[&[LIMIT, AFTER], &FILTER]);
const EXPORT: &[FieldShape] = &join::<{ FILTER.len() + 1 }>(&[&[text_export::FORMAT], &FILTER]);

pub(super) static ROUTES: &[Route] = &[
    AUDIT
        .route(Method::Get, "/admin/v1/audit", "list_audit_events", DOC, handler!(list))
        .query(LIST)
        .returns(ResponseSchema::Page(&EVENT)),
    AUDIT
        .route(Method::Get, "/admin/v1/audit/export", "export_audit_events", export::DOC, handler!(export::export))
        .query(EXPORT)
        .returns(ResponseSchema::TextLines),
];

/// An entry of the list.
enum AuditEntry {
    Change(AuditPosition, Box<AuditEvent>),
    Posting(Box<LedgerEntry>, String),
}

impl AuditEntry {
    fn at(&self) -> tollgate_core::Timestamp {
        match self {
            Self::Change(_, event) => event.at,
            Self::Posting(entry, _) => entry.at,
        }
    }

    fn show(&self) -> Value {
        match self {
            Self::Change(_, event) => show_change(event),
            Self::Posting(entry, name) => json!({
                "revision": entry.position.0, "at": time_value(entry.at), "origin": origin_of(&entry.actor), "actor": entry.actor,
                "address": entry.address, "action": entry.kind.as_str(), "kind": LEDGER, "id": entry.member, "name": name,
                "detail": {
                    "amount": entry.amount.to_usd_string(), "balance": entry.balance.to_usd_string(), "note": entry.note,
                    "idempotency_key": entry.idempotency_key,
                },
            }),
        }
    }
}

/// A posting stores only its actor. That of an admin key ends with the key's id, that of a session with the member's.
fn origin_of(actor: &str) -> &'static str {
    if actor.contains(" (adm_") {
        "api"
    } else if actor.contains(" (mbr_") {
        "console"
    } else {
        "cli"
    }
}

/// State before and after a change, in the catalog's units.
pub(super) fn detail_of(event: &AuditEvent) -> Value {
    let detail = &event.detail;
    let mut detail = serde_json::from_str::<Value>(detail).unwrap_or_else(|_| json!({"text": detail}));
    for side in ["before", "after"] {
        if let Some(spec) = detail.get_mut(side).filter(|spec| spec.is_object())
            && let AuditKind::Row(kind) = event.kind
        {
            in_catalog_form(kind, spec);
        }
    }
    detail
}

fn show_change(event: &AuditEvent) -> Value {
    let AuditEvent { revision, at, origin, actor, action, kind, id, name, detail: _, address } = event;
    let detail = detail_of(event);
    json!({
        "revision": revision.0, "at": time_value(*at), "origin": origin, "actor": actor, "address": address, "action": action, "kind": kind.as_str(), "id": id, "name": name,
        "detail": detail,
    })
}

/// Converts a stored row to the form of the admin API and the catalog file, with amounts in USD and the same names. A row in a
/// form of an older version that is no longer read stays unchanged.
fn in_catalog_form(kind: RowKind, stored: &mut Value) {
    fn shown<S: serde::de::DeserializeOwned, R: Row>(stored: &Value, row: impl Fn(S) -> R) -> Option<Value> {
        let spec = S::deserialize(stored).ok()?;
        Some(Value::Object(whole(&row(spec))))
    }
    // Every field has a default, so that anything could be read; a stored row has a name.
    if stored["name"].as_str().is_none_or(str::is_empty) {
        return;
    }
    let found = match kind {
        RowKind::Channel => shown(stored, |spec: ChannelSpec| spec),
        RowKind::Account => shown(stored, |spec: AccountSpec| AccountInput { spec, credential: None }),
        RowKind::Model => shown(stored, |spec: ModelSpec| spec),
        RowKind::Group => shown(stored, |spec: GroupSpec| spec),
        RowKind::Member => shown(stored, |spec: MemberSpec| spec),
        RowKind::Key => shown(stored, |spec: KeySpec| KeyInput { spec, secret: None }),
        RowKind::AdminKey => shown(stored, |spec: AdminKeySpec| spec),
        RowKind::Setting => None,
        RowKind::AlertDestination => {
            shown(stored, |spec: AlertDestinationSpec| DestinationInput { spec, ..DestinationInput::default() })
        }
    };
    if let Some(found) = found {
        *stored = found;
    }
}

/// Start of a page: after a change and after a posting. Each is `None` at the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cursor {
    change: Option<AuditPosition>,
    posting: Option<LedgerPosition>,
}

impl Cursor {
    /// `<revision>-<index>-<ledger position>`, with empty parts for `None`.
    fn text(self) -> String {
        let change = self.change.map_or_else(|| "-".to_owned(), |it| format!("{}-{}", it.revision.0, it.position));
        format!("{change}-{}", self.posting.map(|it| it.0.to_string()).unwrap_or_default())
    }

    fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('-').collect();
        let [revision, position, ledger] = parts.as_slice() else { return None };
        let change = match (*revision, *position) {
            ("", "") => None,
            (revision, position) => Some(position_of(revision, position)?),
        };
        let posting = if ledger.is_empty() { None } else { Some(LedgerPosition(ledger.parse().ok()?)) };
        Some(Self { change, posting })
    }

    /// The cursor after this line.
    fn after(self, line: &AuditEntry) -> Self {
        match line {
            AuditEntry::Change(position, _) => Self { change: Some(*position), ..self },
            AuditEntry::Posting(entry, _) => Self { posting: Some(entry.position), ..self },
        }
    }
}

/// A position in the log out of its parts in a cursor.
pub(super) fn position_of(revision: &str, position: &str) -> Option<AuditPosition> {
    Some(AuditPosition { revision: Revision(revision.parse().ok()?), position: position.parse().ok()? })
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let after = match context.query.text("after") {
        None => Cursor::default(),
        Some(text) => Cursor::parse(text).ok_or_else(|| ApiError::value("after", "expected the 'next' of a page"))?,
    };
    let (lines, next) = find(&context, after, context.limit()).await?;
    let items: Vec<Value> = lines.iter().map(AuditEntry::show).collect();
    Ok(ApiResponse::ok(json!({"items": items, "next": next.map(Cursor::text)})))
}

/// A page of events after a position, and where the next page begins.
async fn find(context: &RequestContext, after: Cursor, limit: u32) -> Result<(Vec<AuditEntry>, Option<Cursor>), ApiError> {
    let text = |name: &str| context.query.text(name).map(str::to_owned);
    let filter = AuditFilter {
        kind: context.query.text("kind").and_then(AuditKind::parse),
        id: text("id"),
        name: text("name"),
        actor: text("actor"),
        address: text("address"),
        since: context.query.time("since"),
        until: context.query.time("until"),
        before: after.change,
        limit: limit + 1,
    };
    let kind = context.query.text("kind");
    let mut lines = Vec::new();
    if kind != Some(LEDGER) {
        let changes = context.with_query_timeout(context.state.store.listing.audit_page(&filter)).await?;
        lines.extend(changes.into_iter().map(|(position, event)| AuditEntry::Change(position, Box::new(event))));
    }
    if kind.is_none_or(|kind| kind == LEDGER) {
        lines.extend(postings(context, &filter, after.posting).await?);
    }
    // A stable sort: at the same time changes come before postings, and each list keeps its order.
    lines.sort_by_key(|line| std::cmp::Reverse(line.at()));
    let more = lines.len() > limit as usize;
    lines.truncate(limit as usize);
    let next = more.then(|| lines.iter().fold(after, Cursor::after));
    Ok((lines, next))
}

/// Postings that people made, newest first, one more than a page has.
async fn postings(
    context: &RequestContext,
    filter: &AuditFilter,
    before: Option<LedgerPosition>,
) -> Result<Vec<AuditEntry>, ApiError> {
    let member = match &filter.id {
        None => None,
        Some(id) => match MemberId::parse(id) {
            Some(member) => Some(member),
            None => return Ok(Vec::new()),
        },
    };
    let max = filter.limit as usize;
    let mut found: Vec<LedgerEntry> = Vec::new();
    for kind in [LedgerKind::TopUp, LedgerKind::Adjust] {
        let mut page = LedgerFilter { member, kind: Some(kind), before, limit: POSTINGS_AT_ONCE, ..LedgerFilter::default() };
        let (mut matching, mut looked_at) = (Vec::new(), 0);
        loop {
            let entries = context.with_query_timeout(context.state.store.ledger.entries(&page)).await?;
            looked_at += entries.len();
            let is_last = entries.len() < POSTINGS_AT_ONCE as usize;
            page.before = entries.last().map(|entry| entry.position);
            matching.extend(entries.into_iter().filter(|entry| {
                filter.has_actor(&entry.actor) && filter.has_time(entry.at) && filter.has_address(entry.address.as_deref())
            }));
            if is_last || matching.len() >= max || looked_at >= MAX_POSTINGS {
                break;
            }
        }
        matching.truncate(max);
        found.extend(matching);
    }
    found.sort_by_key(|entry| std::cmp::Reverse(entry.position));
    let members = names_by_id(context, RowKind::Member, found.iter().map(|entry| entry.member.to_string()).collect()).await?;
    let name = |entry: &LedgerEntry| members.get(&entry.member.to_string()).map_or_else(String::new, |row| row.name.clone());
    let named = found.into_iter().map(|entry| (name(&entry), entry));
    let wanted = named.filter(|(name, _)| filter.name.as_ref().is_none_or(|wanted| wanted == name));
    Ok(wanted.take(max).map(|(name, entry)| AuditEntry::Posting(Box::new(entry), name)).collect())
}

#[cfg(test)]
mod tests {
    use tollgate_core::{Budget, BudgetAction, NanoUsd, Window};

    use super::*;

    #[test]
    fn cursor_round_trips() {
        let change = Some(AuditPosition { revision: Revision(7), position: 2 });
        for cursor in [
            Cursor::default(),
            Cursor { change, posting: None },
            Cursor { change: None, posting: Some(LedgerPosition(9)) },
            Cursor { change, posting: Some(LedgerPosition(9)) },
        ] {
            assert_eq!(Cursor::parse(&cursor.text()), Some(cursor), "{cursor:?}");
        }
        for bad in ["", "7-2", "7", "x-2-1", "7--", "1-2-3-4"] {
            assert_eq!(Cursor::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn stored_rows_are_shown_in_the_units_of_the_catalog() {
        let budget = Budget { amount: NanoUsd(5_000_000_000), window: Window::Month, action: BudgetAction::Block };
        let group = GroupSpec { name: "g".to_owned(), budgets: vec![budget], ..GroupSpec::default() };
        let mut stored = serde_json::to_value(&group).unwrap();
        in_catalog_form(RowKind::Group, &mut stored);
        assert_eq!(stored["budget"]["amount"], "5.00", "{stored}");
        let mut unknown = json!({"from": "an older version"});
        in_catalog_form(RowKind::Group, &mut unknown);
        assert_eq!(unknown, json!({"from": "an older version"}));
    }
}
