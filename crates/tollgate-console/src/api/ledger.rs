//! The ledger: money that moves. Entries are never changed; a posting needs an idempotency key, so that a repetition
//! cannot post it twice.

use std::collections::{HashMap, hash_map::Entry};

use serde_json::{Value, json};
use tollgate_core::MemberId;
use tollgate_store::{
    AdminScope, Balance, Kind, LedgerEntry, LedgerFilter, LedgerKind, LedgerPlace, Posted, Posting, PostingKind, PostingRefused,
    StoreError,
};

use super::{
    ask::Ask,
    form, handler, paging,
    route::{AFTER, Gives, LIMIT, Method, Route, Takes},
    rows,
    serve::shown_time,
    shape::{COUNT, How, NAME, NANO_USD, Object, Shape, TEXT, USD, Usage, both, needed, read},
};
use crate::{answer::Answer, problem::Problem};

const KINDS: Shape = Shape::Word(&["top_up", "settle", "adjust"]);

static ENTRY: Object = Object {
    name: "LedgerEntry",
    fields: &[
        read("place", COUNT, "Where it stands."),
        read("at", Shape::Time, "When the money moved."),
        read("member", Shape::Id("mbr_"), "Whose."),
        read("member_name", TEXT, "Its name."),
        read("kind", KINDS, "What moved it."),
        read("amount_nano_usd", NANO_USD, "How much; negative takes away."),
        read("amount_usd", USD, "The same in USD."),
        read("balance_nano_usd", NANO_USD, "The balance after it."),
        read("balance_usd", USD, "The same in USD."),
        read("request", Shape::Id("req_"), "The request that was settled.").or_null(),
        read("idempotency_key", TEXT, "What makes a posting happen once.").or_null(),
        read("note", TEXT, "Why."),
        read("actor", TEXT, "Who posted it; empty for settled requests."),
    ],
};
static POSTING: Object = Object {
    name: "Posting",
    fields: &[
        needed("member", NAME, "Whose, by name or id."),
        both("amount_nano_usd", NANO_USD, "How much, in nano-USD.").with(Usage::Write),
        both("amount_usd", USD, "The same in USD.").with(Usage::Write),
        both("note", Shape::Text { least: 0, most: 1_000 }, "Why.").with(Usage::Write),
    ],
};
static BALANCE: Object = Object {
    name: "Balance",
    fields: &[
        read("member", Shape::Id("mbr_"), "Whose."),
        read("name", TEXT, "Name; empty for one that is gone."),
        read("balance_nano_usd", NANO_USD, "How much."),
        read("balance_usd", USD, "The same in USD."),
    ],
};

const fn route(method: Method, path: &'static str, id: &'static str, doc: &'static str) -> Route {
    Route {
        method,
        path,
        resource: "ledger",
        needs: AdminScope::Admin,
        id,
        doc,
        query: &[],
        takes: Takes::Nothing,
        gives: Gives::Page(&ENTRY),
        handler: handler!(list),
    }
}

pub(super) static ROUTES: &[Route] = &[
    Route {
        query: &[
            LIMIT,
            both("after", COUNT, "The `next` of the page before."),
            both("member", NAME, "Of this member, by name or id."),
            both("kind", KINDS, "Of this kind."),
        ],
        ..route(Method::Get, "/admin/v1/ledger", "list_ledger", "Entries, newest first.")
    },
    Route {
        takes: Takes::Body(&POSTING, How::New),
        gives: Gives::Made(&ENTRY),
        handler: handler!(top_up),
        ..route(Method::Post, "/admin/v1/ledger/top-ups", "top_up", "A member paid in. Needs an Idempotency-Key.")
    },
    Route {
        takes: Takes::Body(&POSTING, How::New),
        gives: Gives::Made(&ENTRY),
        handler: handler!(adjust),
        ..route(Method::Post, "/admin/v1/ledger/adjustments", "adjust", "A correction, up or down. Needs an Idempotency-Key.")
    },
    Route {
        query: &[LIMIT, AFTER],
        gives: Gives::Page(&BALANCE),
        handler: handler!(balances),
        ..route(Method::Get, "/admin/v1/ledger/balances", "list_balances", "Balances, in order of member id.")
    },
];

fn show(entry: &LedgerEntry, name: &str) -> Value {
    let LedgerEntry { place, member, at, kind, amount, balance, request, idempotency_key, note, actor } = entry;
    json!({
        "place": place.0, "at": shown_time(*at), "member": member, "member_name": name, "kind": kind.as_str(),
        "amount_nano_usd": amount, "amount_usd": amount.to_usd_string(), "balance_nano_usd": balance,
        "balance_usd": balance.to_usd_string(), "request": request, "idempotency_key": idempotency_key, "note": note, "actor": actor,
    })
}

async fn member(ask: &Ask, text: &str) -> Result<(MemberId, String), Problem> {
    let row = rows::find(ask, Kind::Member, None, text).await?;
    let id = MemberId::parse(&row.id).ok_or_else(Problem::internal)?;
    Ok((id, row.name))
}

async fn list(ask: Ask) -> Result<Answer, Problem> {
    let of = match ask.query.text("member") {
        None => None,
        Some(text) => match MemberId::parse(text) {
            Some(id) => Some(id),
            None => Some(member(&ask, text).await?.0),
        },
    };
    let filter = LedgerFilter {
        member: of,
        kind: ask.query.text("kind").and_then(LedgerKind::parse),
        before: ask.query.whole("after").map(LedgerPlace),
        limit: ask.limit(),
    };
    let _turn = ask.heavy().await?;
    let entries = ask.within(ask.site.store.ledger.entries(&filter)).await?;
    let mut names: HashMap<MemberId, String> = HashMap::new();
    for entry in &entries {
        if let Entry::Vacant(unknown) = names.entry(entry.member) {
            let row = ask.site.store.listing.row(Kind::Member, &entry.member.to_string()).await?;
            unknown.insert(row.map_or_else(String::new, |row| row.name));
        }
    }
    let full = entries.len() == ask.limit() as usize;
    let next = entries.last().filter(|_| full).map(|entry| entry.place.0.to_string());
    let items: Vec<Value> = entries.iter().map(|entry| show(entry, names.get(&entry.member).map_or("", String::as_str))).collect();
    Ok(Answer::ok(json!({"items": items, "next": next})))
}

async fn top_up(ask: Ask) -> Result<Answer, Problem> {
    post(ask, PostingKind::TopUp).await
}

async fn adjust(ask: Ask) -> Result<Answer, Problem> {
    post(ask, PostingKind::Adjust).await
}

async fn post(ask: Ask, kind: PostingKind) -> Result<Answer, Problem> {
    let Some(idempotency_key) = ask.idempotency_key()?.map(str::to_owned) else {
        let message = "Missing required header: 'Idempotency-Key'. Choose one for each posting; a repetition then changes nothing.";
        return Err(Problem::invalid("missing_required_parameter", "Idempotency-Key", message));
    };
    let (id, name) = member(&ask, ask.body.text("member").unwrap_or_default()).await?;
    let amount = form::amount(&ask.body, "amount", "")?.ok_or_else(|| form::missing_amount("amount", ""))?;
    let posting = Posting {
        member: id,
        kind,
        amount,
        idempotency_key: Some(idempotency_key),
        note: ask.body.text("note").unwrap_or_default().to_owned(),
        actor: ask.actor().name,
    };
    match ask.site.store.ledger.post(&posting, ask.now()).await {
        Ok(Posted { entry, repeated: false }) => Ok(Answer::made(show(&entry, &name))),
        Ok(Posted { entry, repeated: true }) => Ok(Answer::ok(show(&entry, &name)).header("idempotent-replayed", "true")),
        Err(StoreError::Posting(refused)) => Err(match refused {
            PostingRefused::NoMember(_) => Problem::missing(Kind::Member, &name),
            PostingRefused::Amount(why) => Problem::value("amount_nano_usd", why),
            PostingRefused::Text(why) => Problem::value("note", why),
            PostingRefused::Overflow => Problem::value("amount_nano_usd", "the balance would be out of bounds"),
            PostingRefused::KeyTaken(_) => {
                Problem::conflict("idempotency_key_reused", "The idempotency key belongs to another posting; use a new one.")
            }
        }),
        Err(error) => Err(error.into()),
    }
}

async fn balances(ask: Ask) -> Result<Answer, Problem> {
    let after = ask.query.text("after").unwrap_or_default();
    if !after.is_empty() && !rows::is_id(Kind::Member, after) {
        return Err(Problem::value("after", "expected the 'next' of a page"));
    }
    let mut balances = ask.within(ask.site.store.ledger.balances()).await?;
    balances.retain(|it| it.member.to_string().as_str() > after);
    balances.sort_unstable_by_key(|it| it.member);
    balances.truncate(ask.limit() as usize + 1);
    let show = |it: &Balance| json!({"member": it.member, "name": it.name, "balance_nano_usd": it.balance, "balance_usd": it.balance.to_usd_string()});
    Ok(paging::page(balances, ask.limit(), |it| it.member.to_string(), show))
}
