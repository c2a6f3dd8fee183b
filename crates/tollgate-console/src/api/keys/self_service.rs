//! Actions of members on their own keys: make one, replace the secret, disable the key, revoke it, and see the rest of its budgets. All
//! but the last need the permission of every group of the key; operators always may.

use std::sync::Arc;

use serde_json::Value;
use tollgate_core::{KeyId, KeyStatus, MAX_TAGS, PriceLimit, Visibility};
use tollgate_protocol::Protocol;
use tollgate_store::{
    AdminScope, Change, ChangeRefusal, ChangeRefused, GroupSpec, KeySpec, MemberSpec, NewKey, ObjectScope, RandomSource, RowFilter,
    RowKind, StoredRow,
    fields::{Access, FieldShape, FieldValue, Kind, Object},
};

use super::{KEY, Standing, show};
use crate::{
    api::{
        request_context::{InputFields, RequestContext},
        route::{Method, Needs, Resource, ResponseSchema, Route, handler},
        rows,
        schema::{COUNT, NAME, TEXT, USD, both, read},
    },
    api_error::ApiError,
    caller::{CallerRequest, key_allowance},
    response::ApiResponse,
};

/// Seconds for which a replaced secret stays valid unless a request says otherwise.
const DEFAULT_OVERLAP_S: i64 = 86_400;
const MAX_OVERLAP_S: i64 = 30 * 86_400;
/// Maximum number of keys that a member may have when it makes another one.
pub(super) const MAX_OWN_KEYS: u32 = 100;
/// The group of keys without groups whose members have no default group.
pub(crate) const DEFAULT_GROUP: &str = "default";

static ROTATION: Object = Object::of(
    "KeyRotation",
    &[both(
        "overlap_s",
        Kind::Integer { min: 0, max: MAX_OVERLAP_S },
        "Seconds for which the previous secret is also valid; default 86400, a day. Older secrets end at once.",
    )],
);
const LIMIT_FIELDS: &[FieldShape] = &[
    read("rpm", COUNT, "Requests per minute; null: unlimited.").or_null(),
    read("tpm", COUNT, "Tokens per minute; null: unlimited.").or_null(),
    read("concurrency", COUNT, "Concurrent requests; null: unlimited.").or_null(),
];
static LIMITS: Object = Object::of("AllowedLimits", LIMIT_FIELDS);
static GROUP_LIMITS: Object = Object::of(
    "GroupLimits",
    &crate::api::schema::join::<{ LIMIT_FIELDS.len() + 1 }>(&[&[read("group", NAME, "The group.")], LIMIT_FIELDS]),
);
const GROUP_LIMITS_ENTRY: Kind = Kind::Object(&GROUP_LIMITS);
static BUDGET: Object = Object::of(
    "BudgetLeft",
    &[
        read("of", Kind::Word(&["key", "member", "group"]), "Owner of the budget."),
        read("group", NAME, "The group of a group's budget, which all of its keys share; else null.").or_null(),
        read("amount", USD, "The budget, in USD."),
        read("window", Kind::Word(&["day", "month", "total"]), "The period of the budget."),
        read("action", Kind::Word(&["block", "alert"]), "What happens once it is spent."),
        read("spent", USD, "The spent amount, requests in progress included."),
        read("left", USD, "The remaining amount."),
        read("renews_at", Kind::Time, "When it renews; null: never.").or_null(),
    ],
);
const BUDGET_ENTRY: Kind = Kind::Object(&BUDGET);
static SPENT_BUDGET: Object = Object::of(
    "SpentGatewayBudget",
    &[
        read("window", Kind::Word(&["day", "month", "total"]), "The period of the budget."),
        read("renews_at", Kind::Time, "When it renews; null: never.").or_null(),
    ],
);
const SPENT_BUDGET_ENTRY: Kind = Kind::Object(&SPENT_BUDGET);
static ALLOWANCE: Object = Object::of(
    "KeyAllowance",
    &[
        read("object", TEXT, "`key`."),
        read("id", Kind::Id("key_"), "Key id."),
        read("name", NAME, "Name."),
        read("prefix", TEXT, "The first characters of the key."),
        read("suffix", TEXT, "Its last characters."),
        read("member", NAME, "Member it belongs to."),
        read("created_at", Kind::Time, "When it was made."),
        read("expires_at", Kind::Time, "When it ends; null: never.").or_null(),
        read("groups", Kind::List { of: &NAME, max: 1_000 }, "Groups it reaches, in order."),
        read("models", Kind::List { of: &TEXT, max: 10_000 }, "Models it may use."),
        read(
            "protocols",
            <Vec<Protocol> as FieldValue>::KIND,
            "Protocols that its requests may use; empty: any. Another one is refused (E7).",
        ),
        read("price_limit", <PriceLimit as FieldValue>::KIND, "The key's own price limit, besides those of groups; null: none.")
            .or_null(),
        read("tags", Kind::TextMap { max: MAX_TAGS }, "Tags of each of its requests in the usage log, by name."),
        read(
            "contents_stored",
            Kind::Flag,
            "Whether bodies and answers of requests are stored, because the key or one of its groups enables it (docs/contents.md).",
        ),
        read("limits", Kind::Object(&LIMITS), "Limits of the key."),
        read("member_limits", Kind::Object(&LIMITS), "Limits of the member with all keys."),
        read(
            "group_limits",
            Kind::List { of: &GROUP_LIMITS_ENTRY, max: 1_000 },
            "Limits of its groups, each for all keys of the group together; groups without limits are left out.",
        ),
        read("budgets", Kind::List { of: &BUDGET_ENTRY, max: 3_000 }, "Budgets of the key, of the member and of the groups."),
        read(
            "spent_gateway_budgets",
            Kind::List { of: &SPENT_BUDGET_ENTRY, max: 3 },
            "Budgets of the whole gateway that are spent and refuse requests. Their amounts are for operators.",
        ),
        read(
            "balance",
            USD,
            "Balance of a prepaid member; null for others, and for operators who ask for a key of another member.",
        )
        .or_null(),
    ],
);

const OWN: Resource = Resource { tag: "keys", needs: Needs::Own { all: AdminScope::Operator } };

pub(in crate::api) static ROUTES: &[Route] = &[
    OWN.route(
        Method::Get,
        "/admin/v1/keys/{key}/allowance",
        "get_key_allowance",
        "What a key may use, and the rest of its budgets, as `GET /v1/key` answers with the key itself.",
        handler!(allowance),
    )
    .returns(ResponseSchema::Object(&ALLOWANCE)),
    OWN.route(
        Method::Post,
        "/admin/v1/keys/{key}/rotate",
        "rotate_key",
        "Replaces a key's secret and shows the new one, only once; the previous secret stays valid for a while.",
        handler!(rotate),
    )
    .takes_optional(&ROTATION)
    .returns(ResponseSchema::Object(&KEY)),
    OWN.route(
        Method::Post,
        "/admin/v1/keys/{key}/disable",
        "disable_key",
        "Disables a key; operators enable it again.",
        handler!(disable),
    )
    .returns(ResponseSchema::Object(&KEY)),
];

/// Only in the answer about one key.
pub(super) const LOCKED_BY: FieldShape = read(
    "locked_by",
    NAME,
    "Group that keeps the key's member from replacing, disabling and revoking it, because it has no `self_service`; null: none. Only \
     when one key is asked for.",
)
.or_null()
.with(Access::ShownOnce);

/// The first group of a key that does not let its member change it.
pub(super) async fn locked_by(context: &RequestContext, row: &StoredRow, key: &KeySpec) -> Result<Option<String>, ApiError> {
    let member: MemberSpec = match rows::find(context, RowKind::Member, None, &row.parent).await {
        Ok(member) => member.read()?,
        Err(error) if error.status == http::StatusCode::NOT_FOUND => return Ok(None),
        Err(error) => return Err(error),
    };
    let groups = groups_of(context, key, &member).await?;
    Ok(groups.into_iter().find(|(_, group)| !group.as_ref().is_some_and(|group| group.self_service)).map(|(name, _)| name))
}

async fn allowance(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let missing = || ApiError::not_found(RowKind::Key);
    let row = rows::find(&context, RowKind::Key, None, context.path_param("key")).await?;
    let id = KeyId::parse(&row.id).ok_or_else(missing)?;
    let key = context.with_query_timeout(context.state.store.listing.key(id)).await?.ok_or_else(missing)?;
    let request = CallerRequest { state: Arc::clone(&context.state), key: Arc::new(key), query: InputFields::default() };
    let mut shown = key_allowance(&request).await?;
    // Operators do not see the ledgers of others.
    let is_own = context.principal.member().is_some_and(|(member, _)| member == request.key.member.id);
    if !is_own && context.principal.scope() != AdminScope::Admin {
        shown["balance"] = Value::Null;
    }
    Ok(ApiResponse::ok(shown))
}

async fn rotate(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let (row, id) = changeable(&context).await?;
    let overlap_s = context.body.whole("overlap_s").unwrap_or(DEFAULT_OVERLAP_S);
    let new = NewKey::generate(&RandomSource::system());
    let (secret, until) = (new.secret(&context.state.store.hasher), context.now().plus_ms(overlap_s * 1_000));
    context.apply_as(&context.actor(), &[Change::RotateKey { key: id, secret, until }]).await?;
    let (row, mut shown) = shown(&context, &row.id).await?;
    shown.insert("key".to_owned(), new.expose_once().into());
    Ok(ApiResponse::ok(shown).revision(row.revision))
}

async fn disable(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let (row, id) = changeable(&context).await?;
    context.apply_as(&context.actor(), &[Change::SetKeyStatus { key: id, status: KeyStatus::Disabled }]).await?;
    let (row, shown) = shown(&context, &row.id).await?;
    Ok(ApiResponse::ok(shown).revision(row.revision))
}

async fn shown(context: &RequestContext, id: &str) -> Result<(StoredRow, serde_json::Map<String, serde_json::Value>), ApiError> {
    let row = rows::find(context, RowKind::Key, None, id).await?;
    let shown = show(&row, &row.read()?, &Standing::of(context, &[&row]).await?);
    Ok((row, shown))
}

/// The key of the request, if its sender may change it.
pub(super) async fn changeable(context: &RequestContext) -> Result<(StoredRow, KeyId), ApiError> {
    let row = rows::find(context, RowKind::Key, None, context.path_param("key")).await?;
    let id = KeyId::parse(&row.id).ok_or_else(|| ApiError::not_found(RowKind::Key))?;
    if context.objects != ObjectScope::Everything {
        let member: MemberSpec = rows::find(context, RowKind::Member, None, &row.parent).await?.read()?;
        for (name, group) in groups_of(context, &row.read()?, &member).await? {
            require_self_service(&name, group.as_ref())?;
        }
    }
    Ok((row, id))
}

/// Checks that the sender may make this key. Returns the member's name if a member makes a key for itself: the member must be permitted
/// to use every group, and every group must allow self-service.
pub(super) async fn may_make(context: &RequestContext, key: &KeySpec) -> Result<Option<String>, ApiError> {
    let ObjectScope::Member(id) = context.objects else { return Ok(None) };
    let id = id.to_string();
    let member: MemberSpec = rows::find(context, RowKind::Member, None, &id).await?.read()?;
    if !key.member.is_empty() && key.member != member.name {
        return Err(ApiError::not_found(RowKind::Member));
    }
    if key.price_limit.as_ref().is_some_and(PriceLimit::is_about_cost) {
        // A refusal would reveal what a model costs, which members do not see.
        return Err(ApiError::forbidden("A price limit on costs", AdminScope::Operator).about("price_limit"));
    }
    for (name, group) in groups_of(context, key, &member).await? {
        let is_permitted = |group: &&GroupSpec| group.visibility == Visibility::Public || member.groups.contains(&name);
        let group = group.as_ref().filter(is_permitted).ok_or_else(|| ApiError::not_found(RowKind::Group).about("groups"))?;
        require_self_service(&name, Some(group))?;
    }
    let own = RowFilter { parent: Some(id), ..RowFilter::of(RowKind::Key, MAX_OWN_KEYS) };
    let count = context.with_query_timeout(context.state.store.listing.page(&own)).await?.len();
    if count >= MAX_OWN_KEYS as usize {
        let reason = ChangeRefusal::TooManyKeys { most: MAX_OWN_KEYS };
        let refused = ChangeRefused { kind: RowKind::Member, name: member.name, reason };
        return Err(ApiError::refused(&refused, context.state.catalog_file.as_deref()));
    }
    Ok(Some(member.name))
}

fn require_self_service(name: &str, group: Option<&GroupSpec>) -> Result<(), ApiError> {
    if group.is_some_and(|group| group.self_service) { Ok(()) } else { Err(ApiError::no_self_service(name)) }
}

/// The groups of a key by name; `None` for a removed one.
async fn groups_of(
    context: &RequestContext,
    key: &KeySpec,
    member: &MemberSpec,
) -> Result<Vec<(String, Option<GroupSpec>)>, ApiError> {
    let mut names = key.groups.clone();
    if names.is_empty() {
        names.push(member.default_group.clone().unwrap_or_else(|| DEFAULT_GROUP.to_owned()));
    }
    let mut groups = Vec::new();
    for name in names {
        let named = RowFilter { name: Some(name.clone()), ..RowFilter::of(RowKind::Group, 1) };
        let row = context.with_query_timeout(context.state.store.listing.page(&named)).await?.pop();
        groups.push((name, row.map(|row| row.read::<GroupSpec>()).transpose()?));
    }
    Ok(groups)
}
