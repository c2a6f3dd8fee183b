//! The ledger: postings, entries and balances. Entries are append-only. A posting requires an idempotency key, so that a retry
//! cannot post twice.

use std::collections::{HashMap, hash_map::Entry};

use serde_json::{Value, json};
use tollgate_core::MemberId;
use tollgate_store::{
    AdminScope, Balance, LedgerEntry, LedgerFilter, LedgerKind, LedgerPosition, Posting, PostingKind, PostingReceipt,
    PostingRefused, RowKind, StoreError,
};

use super::{
    paging,
    request_context::RequestContext,
    route::{AFTER, LIMIT, Method, RequestSchema, ResponseSchema, Route, handler},
    rows,
    schema::{COUNT, FieldAccess, NAME, NANO_USD, ObjectSchema, TEXT, USD, ValueSchema, WriteMode, both, needed, read},
    shared_fields,
};
use crate::{api_error::ApiError, response::ApiResponse, time::time_value};

const KINDS: ValueSchema = ValueSchema::Enum(&["top_up", "settle", "adjust"]);

static ENTRY: ObjectSchema = ObjectSchema {
    name: "LedgerEntry",
    fields: &[
        read("place", COUNT, "Position in the ledger."),
        read("at", ValueSchema::Time, "Time of the entry."),
        read("member", ValueSchema::Id("mbr_"), "Member id."),
        read("member_name", TEXT, "Member name."),
        read("kind", KINDS, "Kind of the entry."),
        read("amount_nano_usd", NANO_USD, "Amount; negative for a charge."),
        read("amount_usd", USD, "The same in USD."),
        read("balance_nano_usd", NANO_USD, "The balance after it."),
        read("balance_usd", USD, "The same in USD."),
        read("request", ValueSchema::Id("req_"), "Settled request.").or_null(),
        read("idempotency_key", TEXT, "Idempotency key of the posting.").or_null(),
        read("note", TEXT, "Note of the posting."),
        read("actor", TEXT, "Author of the posting; empty for settled requests."),
    ],
};
static POSTING: ObjectSchema = ObjectSchema {
    name: "Posting",
    fields: &[
        needed("member", NAME, "Member, by name or id."),
        both("amount_nano_usd", NANO_USD, "Amount in nano-USD.").with(FieldAccess::Write),
        both("amount_usd", USD, "The same in USD.").with(FieldAccess::Write),
        both("note", ValueSchema::String { least: 0, most: 1_000 }, "Note, kept with the entry.").with(FieldAccess::Write),
    ],
};
static BALANCE: ObjectSchema = ObjectSchema {
    name: "Balance",
    fields: &[
        read("member", ValueSchema::Id("mbr_"), "Member id."),
        read("name", TEXT, "Member name; empty if the member was removed."),
        read("balance_nano_usd", NANO_USD, "Balance in nano-USD."),
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
        request: RequestSchema::Empty,
        response: ResponseSchema::Page(&ENTRY),
        handler: handler!(list),
    }
}

pub(super) static ROUTES: &[Route] = &[
    Route {
        query: &[
            LIMIT,
            both("after", COUNT, "`next` of the previous page."),
            both("member", NAME, "Only entries of this member, by name or id."),
            both("kind", KINDS, "Only entries of this kind."),
        ],
        ..route(Method::Get, "/admin/v1/ledger", "list_ledger", "Ledger entries, newest first.")
    },
    Route {
        request: RequestSchema::Body(&POSTING, WriteMode::Create),
        response: ResponseSchema::Created(&ENTRY),
        handler: handler!(top_up),
        ..route(Method::Post, "/admin/v1/ledger/top-ups", "top_up", "Credits a payment to a member. Requires an Idempotency-Key.")
    },
    Route {
        request: RequestSchema::Body(&POSTING, WriteMode::Create),
        response: ResponseSchema::Created(&ENTRY),
        handler: handler!(adjust),
        ..route(
            Method::Post,
            "/admin/v1/ledger/adjustments",
            "adjust",
            "Corrects a balance, up or down. Requires an Idempotency-Key.",
        )
    },
    Route {
        query: &[LIMIT, AFTER],
        response: ResponseSchema::Page(&BALANCE),
        handler: handler!(balances),
        ..route(Method::Get, "/admin/v1/ledger/balances", "list_balances", "Balances of members, by member id.")
    },
];

fn show(entry: &LedgerEntry, name: &str) -> Value {
    let LedgerEntry { position, member, at, kind, amount, balance, request, idempotency_key, note, actor } = entry;
    json!({
        "place": position.0, "at": time_value(*at), "member": member, "member_name": name, "kind": kind.as_str(),
        "amount_nano_usd": amount, "amount_usd": amount.to_usd_string(), "balance_nano_usd": balance,
        "balance_usd": balance.to_usd_string(), "request": request, "idempotency_key": idempotency_key, "note": note, "actor": actor,
    })
}

/// Resolves a member by name or id, to id and name.
async fn find_member(context: &RequestContext, text: &str) -> Result<(MemberId, String), ApiError> {
    let row = rows::find(context, RowKind::Member, None, text).await?;
    let id = MemberId::parse(&row.id).ok_or_else(ApiError::internal)?;
    Ok((id, row.name))
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let member = match context.query.text("member") {
        None => None,
        Some(text) => match MemberId::parse(text) {
            Some(id) => Some(id),
            None => Some(find_member(&context, text).await?.0),
        },
    };
    let filter = LedgerFilter {
        member,
        kind: context.query.text("kind").and_then(LedgerKind::parse),
        before: context.query.whole("after").map(LedgerPosition),
        limit: context.limit(),
    };
    let _permit = context.acquire_heavy_permit().await?;
    let entries = context.with_query_timeout(context.state.store.ledger.entries(&filter)).await?;
    let mut names: HashMap<MemberId, String> = HashMap::new();
    for entry in &entries {
        if let Entry::Vacant(name) = names.entry(entry.member) {
            let row = context.state.store.listing.row(RowKind::Member, &entry.member.to_string()).await?;
            name.insert(row.map_or_else(String::new, |row| row.name));
        }
    }
    let may_continue = entries.len() == context.limit() as usize;
    let next = entries.last().filter(|_| may_continue).map(|entry| entry.position.0.to_string());
    let items: Vec<Value> = entries.iter().map(|entry| show(entry, names.get(&entry.member).map_or("", String::as_str))).collect();
    Ok(ApiResponse::ok(json!({"items": items, "next": next})))
}

async fn top_up(context: RequestContext) -> Result<ApiResponse, ApiError> {
    post(context, PostingKind::TopUp).await
}

async fn adjust(context: RequestContext) -> Result<ApiResponse, ApiError> {
    post(context, PostingKind::Adjust).await
}

async fn post(context: RequestContext, kind: PostingKind) -> Result<ApiResponse, ApiError> {
    let Some(idempotency_key) = context.idempotency_key()?.map(str::to_owned) else {
        let message = "Missing required header: 'Idempotency-Key'. Choose one for each posting; a repetition then changes nothing.";
        return Err(ApiError::invalid("missing_required_parameter", "Idempotency-Key", message));
    };
    let (id, name) = find_member(&context, context.body.text("member").unwrap_or_default()).await?;
    let amount = shared_fields::amount(&context.body, "amount", "")?.ok_or_else(|| shared_fields::missing_amount("amount", ""))?;
    let posting = Posting {
        member: id,
        kind,
        amount,
        idempotency_key: Some(idempotency_key),
        note: context.body.text("note").unwrap_or_default().to_owned(),
        actor: context.actor().name,
    };
    match context.state.store.ledger.post(&posting, context.now()).await {
        Ok(PostingReceipt { entry, repeated: false }) => Ok(ApiResponse::created(show(&entry, &name))),
        Ok(PostingReceipt { entry, repeated: true }) => {
            Ok(ApiResponse::ok(show(&entry, &name)).header("idempotent-replayed", "true"))
        }
        Err(StoreError::Posting(refused)) => Err(match refused {
            PostingRefused::NoMember(_) => ApiError::missing(RowKind::Member, &name),
            PostingRefused::Amount(why) => ApiError::value("amount_nano_usd", why),
            PostingRefused::Text(why) => ApiError::value("note", why),
            PostingRefused::Overflow => ApiError::value("amount_nano_usd", "the balance would be out of bounds"),
            PostingRefused::KeyTaken(_) => {
                ApiError::conflict("idempotency_key_reused", "The idempotency key belongs to another posting; use a new one.")
            }
        }),
        Err(error) => Err(error.into()),
    }
}

async fn balances(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let after = context.query.text("after").unwrap_or_default();
    if !after.is_empty() && !rows::is_id(RowKind::Member, after) {
        return Err(ApiError::value("after", "expected the 'next' of a page"));
    }
    let mut balances = context.with_query_timeout(context.state.store.ledger.balances()).await?;
    balances.retain(|balance| balance.member.to_string().as_str() > after);
    balances.sort_unstable_by_key(|balance| balance.member);
    balances.truncate(context.limit() as usize + 1);
    let show = |Balance { member, name, balance }: &Balance| json!({"member": member, "name": name, "balance_nano_usd": balance, "balance_usd": balance.to_usd_string()});
    Ok(paging::page(balances, context.limit(), |balance| balance.member.to_string(), show))
}
