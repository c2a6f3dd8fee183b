//! Service keys: made, listed, changed, revoked. A key itself is shown in the answer that made it.

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Map, Value, json};
use tollgate_core::{KeyId, KeyStatus};
use tollgate_store::{AdminScope, Change, KeySpec, Kind, NewKey, Random, StoredRow};

use super::{
    ask::{Applied, Ask, Members},
    form::{self, BUDGETS, CONCURRENCY, PRICE_LIMIT, RPM, TPM},
    handler, paging, previews,
    route::{AFTER, Gives, LIMIT, Method, Route, Takes},
    rows,
    serve::shown_time,
    shape::{CREATED_AT, How, NAME, OWNER, Object, REVISION, Shape, TEXT, Usage, both, fixed, read},
};
use crate::{answer::Answer, problem::Problem};

static KEY: Object = Object {
    name: "Key",
    fields: &[
        read("id", Shape::Id("key_"), "Id."),
        fixed("name", NAME, "Unique among the member's keys."),
        both("member", NAME, "Whose it is; `owner` where it is left out.").with(Usage::AtFirst),
        both("status", Shape::Word(&["active", "disabled", "revoked"]), "`revoked` is for good: by DELETE."),
        both("groups", Shape::List { of: &NAME, most: 100 }, "Groups in order; empty: the member's default group."),
        both("models", Shape::List { of: &Shape::Text { least: 1, most: 256 }, most: 1_000 }, "Names and globs it may use."),
        both(
            "ip_allow",
            Shape::List { of: &Shape::Text { least: 1, most: 50 }, most: 1_000 },
            "Addresses and networks; empty: any.",
        ),
        RPM,
        TPM,
        CONCURRENCY,
        BUDGETS,
        PRICE_LIMIT,
        both(
            "signatures_in_ids",
            Shape::Flag,
            "Whether thought signatures travel behind the ids of tool calls; null: as its group says.",
        )
        .or_null(),
        both("expires_at", Shape::Time, "When it ends.").or_null(),
        read("prefix", TEXT, "The first characters of the key."),
        read("suffix", TEXT, "Its last characters."),
        OWNER,
        CREATED_AT,
        read("revoked_at", Shape::Time, "When it was revoked.").or_null(),
        REVISION,
        read("key", TEXT, "The key itself, this once.").with(Usage::Once),
        previews::WITH_ROW,
        previews::CUT_WITH_ROW,
    ],
};

const fn route(method: Method, path: &'static str, id: &'static str, doc: &'static str) -> Route {
    Route {
        method,
        path,
        resource: "keys",
        needs: AdminScope::Operator,
        id,
        doc,
        query: &[],
        takes: Takes::Nothing,
        gives: Gives::One(&KEY),
        handler: handler!(one),
    }
}

pub(super) static ROUTES: &[Route] = &[
    Route {
        query: &[
            LIMIT,
            AFTER,
            both("member", NAME, "Of this member, by name or id."),
            both("name", NAME, "Of this name."),
            both("revoked", Shape::Flag, "Revoked ones too."),
        ],
        gives: Gives::Page(&KEY),
        handler: handler!(list),
        ..route(Method::Get, "/admin/v1/keys", "list_keys", "Service keys, oldest first.")
    },
    Route {
        query: previews::QUERY,
        takes: Takes::Body(&KEY, How::New),
        gives: Gives::Made(&KEY),
        handler: handler!(make),
        ..route(Method::Post, "/admin/v1/keys", "make_key", "Makes a service key and shows it, this once.")
    },
    route(Method::Get, "/admin/v1/keys/{key}", "get_key", "One service key."),
    Route {
        query: previews::QUERY,
        takes: Takes::Body(&KEY, How::Part),
        handler: handler!(change),
        ..route(Method::Patch, "/admin/v1/keys/{key}", "change_key", "Changes what is sent; the rest stays.")
    },
    Route {
        handler: handler!(revoke),
        ..route(Method::Delete, "/admin/v1/keys/{key}", "revoke_key", "Ends a service key for good.")
    },
];

fn show(row: &StoredRow, spec: &KeySpec) -> Map<String, Value> {
    let KeySpec { name, member, status, expires_at, groups, models, ip_allow, limits, budgets, price_limit, signatures_in_ids } =
        spec;
    let (prefix, suffix) = row.shown.clone().unwrap_or_default();
    let mut members = form::row_of(row);
    form::show_limits(limits, &mut members);
    members.extend(
        [
            ("name", json!(name)),
            ("member", json!(member)),
            ("status", json!(if row.removed_at.is_some() { &KeyStatus::Revoked } else { status })),
            ("groups", json!(groups)),
            ("models", json!(models)),
            ("ip_allow", json!(ip_allow)),
            ("budgets", form::show_budgets(budgets)),
            ("price_limit", form::show_price_limit(price_limit.as_ref())),
            ("signatures_in_ids", json!(signatures_in_ids)),
            ("expires_at", json!(expires_at.map(shown_time))),
            ("prefix", json!(prefix)),
            ("suffix", json!(suffix)),
            ("revoked_at", json!(row.removed_at.map(shown_time))),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    members
}

fn shown(row: &StoredRow) -> Result<Answer, Problem> {
    Ok(Answer::ok(show(row, &row.read()?)).revision(row.revision))
}

/// What was sent into a spec.
fn take(sent: &Members, spec: &mut KeySpec) -> Result<(), Problem> {
    if sent.text("status") == Some("revoked") {
        return Err(Problem::value("status", "a key is revoked by DELETE, for good"));
    }
    sent.set_text("name", &mut spec.name);
    sent.set_text("member", &mut spec.member);
    sent.set_word("status", &mut spec.status);
    sent.set_texts("groups", &mut spec.groups);
    form::set_globs(sent, &mut spec.models);
    if let Some(nets) = sent.list("ip_allow") {
        spec.ip_allow =
            nets.iter().filter_map(Value::as_str).enumerate().map(|(i, text)| network(i, text)).collect::<Result<_, _>>()?;
    }
    form::read_limits(sent, &mut spec.limits);
    form::set_budgets(sent, &mut spec.budgets)?;
    form::set_price_limit(sent, &mut spec.price_limit)?;
    if sent.has("signatures_in_ids") {
        spec.signatures_in_ids = sent.0.get("signatures_in_ids").and_then(Value::as_bool);
    }
    if sent.has("expires_at") {
        spec.expires_at = sent.time("expires_at");
    }
    Ok(())
}

/// A network, or a single address.
fn network(i: usize, text: &str) -> Result<IpNet, Problem> {
    let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    net.map(|net| net.trunc())
        .map_err(|_| Problem::value(&format!("ip_allow[{i}]"), "expected an address or a network such as \"10.0.0.0/8\""))
}

async fn list(ask: Ask) -> Result<Answer, Problem> {
    let mut filter = rows::filter(&ask, Kind::Key)?;
    filter.removed = ask.query.0.get("revoked").is_some_and(|revoked| revoked == true);
    if let Some(member) = ask.query.text("member") {
        filter.parent = Some(rows::find(&ask, Kind::Member, None, member).await?.id);
    }
    let rows = ask.within(ask.site.store.listing.page(&filter)).await?;
    let rows = rows.into_iter().map(|row| Ok((row.read()?, row))).collect::<Result<Vec<(KeySpec, StoredRow)>, Problem>>()?;
    Ok(paging::page(rows, ask.limit(), |(_, row)| row.id.clone(), |(spec, row)| show(row, spec).into()))
}

async fn one(ask: Ask) -> Result<Answer, Problem> {
    shown(&rows::find(&ask, Kind::Key, None, ask.at("key")).await?)
}

async fn make(ask: Ask) -> Result<Answer, Problem> {
    let mut spec = KeySpec::default();
    take(&ask.body, &mut spec)?;
    form::not_past(&ask, "expires_at")?;
    if spec.member.is_empty() {
        "owner".clone_into(&mut spec.member);
    }
    let new = NewKey::draw(&Random::system());
    let secret = Some(new.secret(&ask.site.store.hasher));
    let (member, name) = (spec.member.clone(), spec.name.clone());
    let mut changes = Vec::from_iter(ask.once()?);
    changes.push(Change::ExpectNew { kind: Kind::Key, parent: member.clone(), name: name.clone() });
    changes.push(Change::PutKey { key: Box::new(spec.clone()), secret });
    let effects = previews::weigh(&ask, &changes).await?;
    if previews::is_dry(&ask) {
        let row = StoredRow::draft(Kind::Key, rows::prefix(Kind::Key), &name, ask.now());
        return Ok(Answer::ok(previews::beside(show(&row, &spec), &effects)));
    }
    if let Applied::Before(id) = ask.apply(&changes).await? {
        let row = rows::find(&ask, Kind::Key, None, &id).await?;
        return Ok(shown(&row)?.header("idempotent-replayed", "true"));
    }
    let member = rows::written(&ask, Kind::Member, None, &member).await?;
    let row = rows::written(&ask, Kind::Key, Some(&member.id), &name).await?;
    let mut shown = show(&row, &row.read()?);
    shown.insert("key".to_owned(), new.expose_once().into());
    Ok(Answer::made(previews::beside(shown, &effects)).revision(row.revision))
}

async fn change(ask: Ask) -> Result<Answer, Problem> {
    let changed = |row: &StoredRow| {
        if row.removed_at.is_some() {
            return Err(Problem::conflict("key_revoked", "The key is revoked, which is for good; make a new one."));
        }
        let mut spec: KeySpec = row.read()?;
        take(&ask.body, &mut spec)?;
        Ok(spec)
    };
    let put = |spec: KeySpec| vec![Change::PutKey { key: Box::new(spec), secret: None }];
    let row = rows::find(&ask, Kind::Key, None, ask.at("key")).await?;
    let spec = changed(&row)?;
    let effects = previews::weigh(&ask, &put(spec.clone())).await?;
    if previews::is_dry(&ask) {
        return Ok(Answer::ok(previews::beside(show(&row, &spec), &effects)).revision(row.revision));
    }
    let row = rows::edit(&ask, Kind::Key, None, ask.at("key"), |row| Ok(put(changed(row)?))).await?;
    Ok(Answer::ok(previews::beside(show(&row, &row.read()?), &effects)).revision(row.revision))
}

async fn revoke(ask: Ask) -> Result<Answer, Problem> {
    let row = rows::edit(&ask, Kind::Key, None, ask.at("key"), |row| {
        let key = KeyId::parse(&row.id).ok_or_else(Problem::internal)?;
        Ok(vec![Change::RevokeKey { key }])
    })
    .await?;
    shown(&row)
}
