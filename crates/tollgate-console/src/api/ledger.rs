//! The ledger: postings, entries and balances. Entries are append-only. A posting requires an idempotency key, so that a retry
//! cannot post twice.

mod export;

use std::collections::{HashMap, hash_map::Entry};

use serde_json::{Value, json};
use tollgate_core::{MemberId, NanoUsd};
use tollgate_store::{
    AdminScope, Balance, LedgerEntry, LedgerFilter, LedgerKind, LedgerPosition, Posting, PostingKind, PostingReceipt,
    PostingRefused, RowKind, StoreError,
    fields::{Access, FieldShape, FieldValue as _, Kind, Object, WriteMode},
};

use super::{
    member_ids::{self, MEMBERS},
    recorded_rows,
    request_context::RequestContext,
    route::{AFTER, LIMIT, Method, Needs, Resource, ResponseSchema, Route, handler},
    rows,
    schema::{COUNT, NAME, TEXT, USD, both, join, needed, read},
    text_export,
};
use crate::{api_error::ApiError, response::ApiResponse, time::time_value};

const KINDS: Kind = Kind::Word(&["top_up", "settle", "adjust"]);

static COVERED: Object = Object::of(
    "CoveredRequests",
    &[
        read("count", COUNT, "Number of requests of the member with a price that were booked together."),
        read("first", Kind::Time, "Arrival of the first one."),
        read("last", Kind::Time, "Arrival of the last one."),
    ],
);
static ENTRY: Object = Object::of(
    "LedgerEntry",
    &[
        read("position", COUNT, "Position in the ledger."),
        read("at", Kind::Time, "Time of the posting, or arrival of the last request."),
        read("member", Kind::Id("mbr_"), "Member id."),
        read("member_name", TEXT, "Member name."),
        read("kind", KINDS, "Kind of the entry."),
        read("amount", USD, "Amount in USD; negative for a charge."),
        read("balance", USD, "The balance after it, in USD."),
        read("covers", Kind::Object(&COVERED), "Requests that a `settle` entry charges; null for postings.").or_null(),
        read("idempotency_key", TEXT, "Idempotency key of the posting.").or_null(),
        read("note", TEXT, "Note of the posting."),
        read("actor", TEXT, "Author of the posting; empty for settled requests."),
        read("address", TEXT, "Address that it was posted from; null: not known, on the gateway's machine, or settled requests.")
            .or_null(),
    ],
);
static POSTING: Object = Object::of(
    "Posting",
    &[
        needed("member", NAME, "Member, by name or id."),
        needed("amount", USD, "Amount in USD."),
        both("note", Kind::Text { min: 0, max: 1_000 }, "Note, kept with the entry.").with(Access::WriteOnly),
    ],
);
static BALANCE: Object = Object::of(
    "Balance",
    &[
        read("member", Kind::Id("mbr_"), "Member id."),
        read("name", TEXT, "Member name; empty if the member was removed."),
        read("balance", USD, "Balance in USD."),
    ],
);

const RESOURCE: Resource = Resource { tag: "ledger", needs: Needs::Scope(AdminScope::Admin) };
const READ: Resource = Resource { needs: Needs::Own { all: AdminScope::Admin }, ..RESOURCE };

/// Query parameters that select entries.
const FILTER: [FieldShape; 5] = [
    both("after", COUNT, "`next` of the previous page."),
    both("member", NAME, "Only entries of this member, by name or id."),
    both("kind", KINDS, "Only entries of this kind."),
    both("since", Kind::Time, "At or after this time."),
    both("until", Kind::Time, "Before this time."),
];
const LIST: &[FieldShape] = &join::<{ FILTER.len() + 1 }>(&[&[LIMIT], &FILTER]);
const EXPORT: &[FieldShape] = &join::<{ FILTER.len() + 1 }>(&[&[text_export::FORMAT], &FILTER]);

pub(super) static ROUTES: &[Route] = &[
    READ.route(Method::Get, "/admin/v1/ledger", "list_ledger", "Ledger entries, newest first.", handler!(list))
        .query(LIST)
        .returns(ResponseSchema::Page(&ENTRY)),
    READ.route(Method::Get, "/admin/v1/ledger/export", "export_ledger", export::DOC, handler!(export::export))
        .query(EXPORT)
        .returns(ResponseSchema::TextLines),
    RESOURCE
        .route(
            Method::Post,
            "/admin/v1/ledger/top-ups",
            "top_up",
            "Credits a payment to a member. Requires an Idempotency-Key.",
            handler!(top_up),
        )
        .takes(&POSTING, WriteMode::Create)
        .only_once()
        .returns(ResponseSchema::Created(&ENTRY)),
    RESOURCE
        .route(
            Method::Post,
            "/admin/v1/ledger/adjustments",
            "adjust",
            "Corrects a balance, up or down. Requires an Idempotency-Key.",
            handler!(adjust),
        )
        .takes(&POSTING, WriteMode::Create)
        .only_once()
        .returns(ResponseSchema::Created(&ENTRY)),
    READ.route(Method::Get, "/admin/v1/ledger/balances", "list_balances", "Balances of members, by member id.", handler!(balances))
        .query(&[LIMIT, AFTER, MEMBERS])
        .returns(ResponseSchema::Page(&BALANCE)),
];

fn show(entry: &LedgerEntry, name: &str) -> Value {
    let LedgerEntry { position, member, at, kind, amount, balance, covers, idempotency_key, note, actor, address } = entry;
    let covers =
        covers.map(|covers| json!({"count": covers.count, "first": time_value(covers.first), "last": time_value(covers.last)}));
    json!({
        "position": position.0, "at": time_value(*at), "member": member, "member_name": name, "kind": kind.as_str(),
        "amount": amount.to_usd_string(), "balance": balance.to_usd_string(), "covers": covers, "idempotency_key": idempotency_key, "note": note, "actor": actor,
        "address": address,
    })
}

/// Resolves a member by name or id, to id and name.
async fn find_member(context: &RequestContext, text: &str) -> Result<(MemberId, String), ApiError> {
    let row = rows::find(context, RowKind::Member, None, text).await?;
    let id = MemberId::parse(&row.id).ok_or_else(ApiError::internal)?;
    Ok((id, row.name))
}

/// The entries that the query selects, restricted to those that the sender may see.
async fn filter(context: &RequestContext) -> Result<LedgerFilter, ApiError> {
    Ok(LedgerFilter {
        member: recorded_rows::member(context).await?,
        kind: context.query.text("kind").and_then(LedgerKind::parse),
        before: context.query.whole("after").map(LedgerPosition),
        since: context.query.time("since"),
        until: context.query.time("until"),
        limit: context.limit(),
    })
}

/// Entries as they are shown, and the position before which the next ones are. `names` are those of members that are known.
async fn entries_of(
    context: &RequestContext,
    filter: &LedgerFilter,
    names: &mut HashMap<MemberId, String>,
) -> Result<(Vec<Value>, Option<LedgerPosition>), ApiError> {
    let entries = context.with_query_timeout(context.state.store.ledger.entries(filter)).await?;
    for entry in &entries {
        if let Entry::Vacant(name) = names.entry(entry.member) {
            let row = context.state.store.listing.row(RowKind::Member, &entry.member.to_string(), context.objects).await?;
            name.insert(row.map_or_else(String::new, |row| row.name));
        }
    }
    let may_continue = entries.len() == filter.limit as usize;
    let next = entries.last().filter(|_| may_continue).map(|entry| entry.position);
    let shown = entries.iter().map(|entry| show(entry, names.get(&entry.member).map_or("", String::as_str)));
    Ok((shown.collect(), next))
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let filter = filter(&context).await?;
    let _permit = context.acquire_heavy_permit().await?;
    let (items, next) = entries_of(&context, &filter, &mut HashMap::new()).await?;
    Ok(ApiResponse::ok(json!({"items": items, "next": next.map(|position| position.0.to_string())})))
}

async fn top_up(context: RequestContext) -> Result<ApiResponse, ApiError> {
    post(context, PostingKind::TopUp).await
}

async fn adjust(context: RequestContext) -> Result<ApiResponse, ApiError> {
    post(context, PostingKind::Adjust).await
}

async fn post(context: RequestContext, kind: PostingKind) -> Result<ApiResponse, ApiError> {
    let Some(idempotency_key) = context.idempotency_key()?.map(str::to_owned) else {
        let message = "Missing required header: 'Idempotency-Key'. Choose a value for each posting, such as \
                       'Idempotency-Key: invoice-7', and send the same one with each retry: the posting is then made once.";
        return Err(ApiError::invalid("missing_required_parameter", "Idempotency-Key", message));
    };
    let (id, name) = find_member(&context, context.body.text("member").unwrap_or_default()).await?;
    let sent = context.body.0.get("amount").unwrap_or(&Value::Null);
    let amount = NanoUsd::read(sent).map_err(|error| ApiError::value("amount", error))?;
    let posting = Posting {
        member: id,
        kind,
        amount,
        idempotency_key: Some(idempotency_key),
        note: context.body.text("note").unwrap_or_default().to_owned(),
        actor: context.actor().name,
        address: context.actor().address,
    };
    match context.state.store.ledger.post(&posting, context.now()).await {
        Ok(PostingReceipt { entry, repeated: false }) => Ok(ApiResponse::created(show(&entry, &name))),
        Ok(PostingReceipt { entry, repeated: true }) => {
            Ok(ApiResponse::ok(show(&entry, &name)).header("idempotent-replayed", "true"))
        }
        Err(StoreError::Posting(refused)) => Err(match refused {
            PostingRefused::NoMember(_) => ApiError::not_found(RowKind::Member),
            PostingRefused::Amount(why) => ApiError::value("amount", why),
            PostingRefused::Text(why) => ApiError::value("note", why),
            PostingRefused::Overflow => ApiError::value("amount", "the balance would be out of bounds"),
            PostingRefused::KeyTaken(_) => {
                ApiError::conflict("idempotency_key_reused", "The idempotency key belongs to another posting; use a new one.")
            }
        }),
        Err(error) => Err(error.into()),
    }
}

async fn balances(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let cursor = |text: &str| MemberId::parse(text).ok_or_else(|| ApiError::value("after", "expected the 'next' of a page"));
    let after = context.query.text("after").filter(|after| !after.is_empty()).map(cursor).transpose()?;
    let members = member_ids::read(&context)?;
    let ledger = &context.state.store.ledger;
    let mut balances = if members.is_empty() {
        context.with_query_timeout(ledger.balances()).await?
    } else {
        context.with_query_timeout(ledger.balances_of(members.into_iter().collect())).await?
    };
    balances.retain(|balance| context.objects.contains(balance.member) && after.is_none_or(|after| balance.member > after));
    balances.sort_unstable_by_key(|balance| balance.member);
    balances.truncate(context.limit() as usize + 1);
    let show = |it: &Balance| json!({"member": it.member, "name": it.name, "balance": it.balance.to_usd_string()});
    Ok(rows::page(balances, context.limit(), |it| it.member.to_string(), show))
}
