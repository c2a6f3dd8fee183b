//! Budgets with what is spent of them now. They belong to the rows they bound; here they are side by side, and can be
//! replaced without sending the rest of the row.

use serde_json::{Value, json};
use tollgate_core::{Budget, ChannelId, GroupId, KeyId, MemberId, Subject};
use tollgate_store::{AdminScope, Change, ChannelSpec, GroupSpec, KeySpec, Kind, MemberSpec, StoredRow};

use super::{
    ask::Ask,
    form::{self, BUDGETS},
    handler,
    route::{AFTER, Gives, LIMIT, Method, Route, Takes},
    rows,
    shape::{How, NANO_USD, Object, Shape, TEXT, USD, Usage, needed, read},
};
use crate::{answer::Answer, problem::Problem};

const SUBJECTS: Shape = Shape::Word(&["key", "member", "group", "channel", "gateway"]);

static SPENDING: Object = Object {
    name: "BudgetState",
    fields: &[
        read("subject", SUBJECTS, "Whose."),
        read("id", TEXT, "Its id; empty for the gateway."),
        read("name", TEXT, "Its name."),
        read("amount_nano_usd", NANO_USD, "How much."),
        read("amount_usd", USD, "The same in USD."),
        read("window", Shape::Word(&["day", "month", "total"]), "UTC days and months, or for ever."),
        read("action", Shape::Word(&["block", "alert"]), "What happens when it is spent."),
        read("spent_nano_usd", NANO_USD, "Spent of it now, requests under way included. Of a channel: cost."),
        read("spent_usd", USD, "The same in USD."),
    ],
};
static SENT: Object = Object { name: "Budgets", fields: &[BUDGETS.with(Usage::Needed)] };

pub(super) static ROUTES: &[Route] = &[
    Route {
        method: Method::Get,
        path: "/admin/v1/budgets",
        resource: "budgets",
        needs: AdminScope::Operator,
        id: "list_budgets",
        doc: "Budgets of one kind of subject. A page looks at so many rows; those without a budget give no items.",
        query: &[LIMIT, AFTER, needed("subject", SUBJECTS, "Whose budgets.")],
        takes: Takes::Nothing,
        gives: Gives::Page(&SPENDING),
        handler: handler!(list),
    },
    Route {
        method: Method::Put,
        path: "/admin/v1/budgets/{subject}/{name}",
        resource: "budgets",
        needs: AdminScope::Operator,
        id: "set_budgets",
        doc: "Replaces the budgets of a key (by id), group, channel or member (admins). The gateway's own are settings.",
        query: &[],
        takes: Takes::Body(&SENT, How::New),
        gives: Gives::Page(&SPENDING),
        handler: handler!(set),
    },
];

fn kind_of(subject: &str) -> Option<Kind> {
    Kind::parse(subject).filter(|kind| matches!(kind, Kind::Key | Kind::Member | Kind::Group | Kind::Channel))
}

/// A row's budgets and who counts them.
fn budgets_of(kind: Kind, row: &StoredRow) -> Result<(Option<Subject>, Vec<Budget>), Problem> {
    Ok(match kind {
        Kind::Key => (KeyId::parse(&row.id).map(Subject::Key), row.read::<KeySpec>()?.budgets),
        Kind::Member => (MemberId::parse(&row.id).map(Subject::Member), row.read::<MemberSpec>()?.budgets),
        Kind::Group => (GroupId::parse(&row.id).map(Subject::Group), row.read::<GroupSpec>()?.budgets),
        Kind::Channel => (ChannelId::parse(&row.id).map(Subject::Channel), row.read::<ChannelSpec>()?.budgets),
        Kind::Account | Kind::Model | Kind::AdminKey => (None, Vec::new()),
    })
}

async fn show(ask: &Ask, subject: Subject, (word, id, name): (&str, &str, &str), budget: &Budget) -> Result<Value, Problem> {
    let spent = ask.within(ask.site.running.spent(subject, budget.window)).await?;
    let mut members = form::members(form::show_budget(budget));
    members.extend(form::members(json!({
        "subject": word, "id": id, "name": name, "spent_nano_usd": spent, "spent_usd": spent.to_usd_string(),
    })));
    Ok(Value::Object(members))
}

async fn show_row(ask: &Ask, kind: Kind, row: &StoredRow) -> Result<Vec<Value>, Problem> {
    let (subject, budgets) = budgets_of(kind, row)?;
    let Some(subject) = subject else { return Ok(Vec::new()) };
    let mut shown = Vec::with_capacity(budgets.len());
    for budget in &budgets {
        shown.push(show(ask, subject, (kind.as_str(), &row.id, &row.name), budget).await?);
    }
    Ok(shown)
}

async fn list(ask: Ask) -> Result<Answer, Problem> {
    let Some(kind) = kind_of(ask.query.text("subject").unwrap_or_default()) else {
        let mut items = Vec::new();
        for budget in ask.site.running.budgets() {
            items.push(show(&ask, Subject::Gateway, ("gateway", "", "gateway"), &budget).await?);
        }
        return Ok(Answer::ok(json!({"items": items, "next": null})));
    };
    let mut rows = ask.within(ask.site.store.listing.page(&rows::filter(&ask, kind)?)).await?;
    let limit = ask.limit() as usize;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = if more { rows.last().map(|row| row.id.clone()) } else { None };
    let mut items = Vec::new();
    for row in &rows {
        items.extend(show_row(&ask, kind, row).await?);
    }
    Ok(Answer::ok(json!({"items": items, "next": next})))
}

async fn set(ask: Ask) -> Result<Answer, Problem> {
    let subject = ask.at("subject");
    let Some(kind) = kind_of(subject) else {
        if subject == "gateway" {
            let message = "the gateway's own budgets are the settings budget.day, budget.month and budget.total";
            return Err(Problem::value("subject", message));
        }
        return Err(Problem::not_found("budget subject", subject));
    };
    let items = ask.body.list("budgets").map(Vec::as_slice).unwrap_or_default();
    let budgets = form::read_budgets(items, "budgets")?;
    let row = rows::edit(&ask, kind, None, ask.at("name"), |row| {
        let budgets = budgets.clone();
        let change = match kind {
            Kind::Key => Change::SetKeyBudgets { key: KeyId::parse(&row.id).ok_or_else(Problem::internal)?, budgets },
            Kind::Member => Change::PutMember(Box::new(MemberSpec { budgets, ..row.read()? })),
            Kind::Group => Change::PutGroup(Box::new(GroupSpec { budgets, ..row.read()? })),
            Kind::Channel => Change::PutChannel(Box::new(ChannelSpec { budgets, ..row.read()? })),
            Kind::Account | Kind::Model | Kind::AdminKey => return Err(Problem::internal()),
        };
        Ok(vec![change])
    })
    .await?;
    Ok(Answer::ok(json!({"items": show_row(&ask, kind, &row).await?, "next": null})).revision(row.revision))
}
