//! Accounts under a channel. A credential goes in and never comes out.

use serde_json::{Value, json};
use tollgate_core::{Limits, Secret};
use tollgate_store::{AccountSpec, AdminScope, Change, Kind, StoredRow};

use super::{
    ask::{Applied, Ask, Members},
    form::{self, CONCURRENCY, RPM, TPM},
    handler, paging,
    route::{AFTER, Gives, LIMIT, Method, Route, Takes},
    rows,
    shape::{CREATED_AT, FACTOR, How, NAME, OWNER, Object, REVISION, Shape, Usage, both, fixed, read as answered},
};
use crate::{answer::Answer, problem::Problem};

static ACCOUNT: Object = Object {
    name: "Account",
    fields: &[
        answered("id", Shape::Id("acc_"), "Id."),
        answered("channel", NAME, "Its channel."),
        fixed("name", NAME, "Unique in its channel."),
        both("credential", Shape::Text { least: 1, most: 10_000 }, "The provider's key; a new account needs one.")
            .with(Usage::Write),
        both("status", Shape::Word(&["on", "off"]), "off: by hand."),
        RPM,
        TPM,
        CONCURRENCY,
        both("cost_multiplier", FACTOR, "Factor on the channel's cost prices."),
        OWNER,
        CREATED_AT,
        REVISION,
    ],
};
static ITEM: Shape = Shape::Of(&ACCOUNT);
/// Accounts of a new channel.
pub(super) const LIST: Shape = Shape::List { of: &ITEM, most: 1_000 };

const fn route(method: Method, path: &'static str, id: &'static str, doc: &'static str) -> Route {
    Route {
        method,
        path,
        resource: "accounts",
        needs: AdminScope::Operator,
        id,
        doc,
        query: &[],
        takes: Takes::Nothing,
        gives: Gives::One(&ACCOUNT),
        handler: handler!(one),
    }
}

const ALL: &str = "/admin/v1/channels/{name}/accounts";
const ONE: &str = "/admin/v1/channels/{name}/accounts/{account}";

pub(super) static ROUTES: &[Route] = &[
    Route {
        query: &[LIMIT, AFTER],
        gives: Gives::Page(&ACCOUNT),
        handler: handler!(list),
        ..route(Method::Get, ALL, "list_accounts", "The accounts of a channel.")
    },
    Route {
        takes: Takes::Body(&ACCOUNT, How::New),
        gives: Gives::Made(&ACCOUNT),
        handler: handler!(make),
        ..route(Method::Post, ALL, "make_account", "Makes an account.")
    },
    route(Method::Get, ONE, "get_account", "One account, by name or id."),
    Route {
        takes: Takes::Body(&ACCOUNT, How::Part),
        handler: handler!(change),
        ..route(Method::Patch, ONE, "change_account", "Changes what is sent; the rest stays, the credential too.")
    },
    Route {
        gives: Gives::Nothing,
        handler: handler!(remove),
        ..route(Method::Delete, ONE, "remove_account", "Removes an account. Usage keeps its name.")
    },
];

fn show(channel: &str, row: &StoredRow, spec: &AccountSpec) -> Value {
    let AccountSpec { name, on, concurrency, rpm, tpm, cost_multiplier } = spec;
    let mut members = form::row_of(row);
    form::show_limits(&Limits { rpm: *rpm, tpm: *tpm, concurrency: *concurrency }, &mut members);
    members.extend(form::members(json!({
        "channel": channel,
        "name": name,
        "status": if *on { "on" } else { "off" },
        "cost_multiplier": cost_multiplier.to_decimal(),
    })));
    Value::Object(members)
}

/// An account out of what was sent.
pub(super) fn read(sent: &Members) -> Result<AccountSpec, Problem> {
    let mut spec = AccountSpec::default();
    take(sent, &mut spec)?;
    Ok(spec)
}

fn take(sent: &Members, spec: &mut AccountSpec) -> Result<(), Problem> {
    sent.set_text("name", &mut spec.name);
    if let Some(status) = sent.text("status") {
        spec.on = status == "on";
    }
    sent.set_number("rpm", &mut spec.rpm);
    sent.set_number("tpm", &mut spec.tpm);
    sent.set_number("concurrency", &mut spec.concurrency);
    sent.set_factor("cost_multiplier", &mut spec.cost_multiplier)
}

fn credential(sent: &Members) -> Option<Secret> {
    sent.text("credential").map(|text| Secret::new(text.to_owned()))
}

async fn channel(ask: &Ask) -> Result<StoredRow, Problem> {
    rows::find(ask, Kind::Channel, None, ask.at("name")).await
}

async fn list(ask: Ask) -> Result<Answer, Problem> {
    let channel = channel(&ask).await?;
    let mut filter = rows::filter(&ask, Kind::Account)?;
    filter.parent = Some(channel.id);
    let rows = ask.within(ask.site.store.listing.page(&filter)).await?;
    let rows = rows.into_iter().map(|row| Ok((row.read()?, row))).collect::<Result<Vec<(AccountSpec, StoredRow)>, Problem>>()?;
    Ok(paging::page(rows, ask.limit(), |(_, row)| row.id.clone(), |(spec, row)| show(&channel.name, row, spec)))
}

async fn one(ask: Ask) -> Result<Answer, Problem> {
    let channel = channel(&ask).await?;
    let row = rows::find(&ask, Kind::Account, Some(&channel.id), ask.at("account")).await?;
    Ok(Answer::ok(show(&channel.name, &row, &row.read()?)).revision(row.revision))
}

async fn make(ask: Ask) -> Result<Answer, Problem> {
    let channel = channel(&ask).await?;
    let account = read(&ask.body)?;
    let name = account.name.clone();
    let mut changes = Vec::from_iter(ask.once()?);
    changes.push(Change::ExpectNew { kind: Kind::Account, parent: channel.name.clone(), name: name.clone() });
    changes.push(Change::PutAccount { channel: channel.name.clone(), account, credential: credential(&ask.body) });
    if let Applied::Before(id) = ask.apply(&changes).await? {
        let row = rows::find(&ask, Kind::Account, Some(&channel.id), &id).await?;
        let answer = Answer::ok(show(&channel.name, &row, &row.read()?)).revision(row.revision);
        return Ok(answer.header("idempotent-replayed", "true"));
    }
    let row = rows::written(&ask, Kind::Account, Some(&channel.id), &name).await?;
    Ok(Answer::made(show(&channel.name, &row, &row.read()?)).revision(row.revision))
}

async fn change(ask: Ask) -> Result<Answer, Problem> {
    let channel = channel(&ask).await?;
    let row = rows::edit(&ask, Kind::Account, Some(&channel.id), ask.at("account"), |row| {
        let mut account: AccountSpec = row.read()?;
        take(&ask.body, &mut account)?;
        Ok(vec![Change::PutAccount { channel: channel.name.clone(), account, credential: credential(&ask.body) }])
    })
    .await?;
    Ok(Answer::ok(show(&channel.name, &row, &row.read()?)).revision(row.revision))
}

async fn remove(ask: Ask) -> Result<Answer, Problem> {
    let channel = channel(&ask).await?;
    rows::edit(&ask, Kind::Account, Some(&channel.id), ask.at("account"), |row| {
        Ok(vec![Change::RemoveAccount { channel: channel.name.clone(), account: row.name.clone() }])
    })
    .await?;
    Ok(Answer::nothing())
}
