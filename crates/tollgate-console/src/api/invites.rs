//! Invites: links with which a person becomes a member with a given role and groups.

use serde_json::{Map, Value, json};
use tollgate_core::{InviteId, Role};
use tollgate_store::{
    AdminScope, Change, IdentityChange, IdentityRefusal, Invite, InviteSpec, InviteState, NewKey, SignInMethod, SortOrder,
    fields::{Access, FieldValue as _, Kind, Object, WriteMode},
};

use super::{
    request_context::RequestContext,
    route::{AFTER, LIMIT, Method, Needs, Resource, ResponseSchema, Route, handler},
    rows,
    schema::{CREATED_AT, NAME, TEXT, both, needed, read},
    sign_in::{EMAIL, NEW_PASSWORD, SIGN_IN, SignInWay, TOKEN, admit, attempt_succeeded, begin_attempt, hash_password},
};
use crate::{api_error::ApiError, identity::links::INVITE_PAGE, response::ApiResponse, time::time_value};

const DEFAULT_LIFE_MS: i64 = 7 * 86_400_000;
const MAX_LIFE_MS: i64 = 90 * 86_400_000;
pub(super) const MEMBER_NAME: Kind = Kind::Name { max: 100 };
const GROUPS: Kind = Kind::List { of: &NAME, max: 100 };

static INVITE: Object = Object::of(
    "Invite",
    &[
        read("id", Kind::Id("inv_"), "Id."),
        both("role", Role::KIND, "Role of the member; default `member`."),
        both("groups", GROUPS, "Private groups that the member may use."),
        both("note", Kind::Text { min: 0, max: 200 }, "Note for admins, such as the person's name."),
        both("expires_at", Kind::Time, "It can be accepted before this time; default: in 7 days, at most 90."),
        read("state", Kind::Word(&["open", "accepted", "revoked", "expired"]), "State."),
        read("member", NAME, "Member that accepted it.").or_null(),
        read("created_by", TEXT, "Who made it."),
        CREATED_AT,
        read("token", TEXT, "The secret of the link, shown only once.").with(Access::ShownOnce),
        read("link", TEXT, "The link to send, shown only once.").with(Access::ShownOnce),
    ],
);
static INVITE_TOKEN: Object = Object::of("InviteToken", &[needed("token", TOKEN, "`token` of the invite.")]);
static OFFER: Object = Object::of(
    "InviteOffer",
    &[
        read("role", Role::KIND, "Role of the member."),
        read("groups", GROUPS, "Private groups that the member may use."),
        read("expires_at", Kind::Time, "It can be accepted before this time."),
    ],
);
static ACCEPT: Object = Object::of(
    "InviteAcceptance",
    &[
        needed("token", TOKEN, "`token` of the invite."),
        needed("name", MEMBER_NAME, "Name of the new member, unique."),
        both("email", EMAIL, "E-mail address to sign in with, too.").with(Access::WriteOnly),
        needed("new_password", NEW_PASSWORD, "Password of the new member."),
    ],
);

const ADMIN: Resource = Resource { tag: "invites", needs: Needs::Scope(AdminScope::Admin) };
const OPEN: Resource = Resource { tag: "invites", needs: Needs::Nothing };

pub(super) static ROUTES: &[Route] = &[
    ADMIN
        .route(Method::Get, "/admin/v1/invites", "list_invites", "Invites, oldest first.", handler!(list))
        .query(&[LIMIT, AFTER, both("sort", Kind::Word(&["oldest", "newest"]), "Order; default oldest first.")])
        .returns(ResponseSchema::Page(&INVITE)),
    ADMIN
        .route(Method::Post, "/admin/v1/invites", "make_invite", "Makes an invite and shows its link, only once.", handler!(make))
        .takes(&INVITE, WriteMode::Create)
        .returns(ResponseSchema::Created(&INVITE)),
    ADMIN
        .route(Method::Get, "/admin/v1/invites/{invite}", "get_invite", "One invite.", handler!(one))
        .returns(ResponseSchema::Object(&INVITE)),
    ADMIN
        .route(
            Method::Delete,
            "/admin/v1/invites/{invite}",
            "revoke_invite",
            "Revokes an invite that is not accepted yet.",
            handler!(revoke),
        )
        .returns(ResponseSchema::Object(&INVITE)),
    OPEN.route(Method::Post, "/admin/v1/invites/check", "check_invite", "Role and groups of an open invite.", handler!(check))
        .takes(&INVITE_TOKEN, WriteMode::Create)
        .returns(ResponseSchema::Object(&OFFER)),
    OPEN.route(
        Method::Post,
        "/admin/v1/invites/accept",
        "accept_invite",
        "Makes the member of an invite, and signs in.",
        handler!(accept),
    )
    .takes(&ACCEPT, WriteMode::Create)
    .returns(ResponseSchema::Object(&SIGN_IN)),
];

fn show(context: &RequestContext, invite: &Invite) -> Map<String, Value> {
    let (state, member) = match &invite.spec.state {
        InviteState::Accepted(member) => ("accepted", Some(member)),
        InviteState::Revoked => ("revoked", None),
        InviteState::Open if invite.is_open(context.now()) => ("open", None),
        InviteState::Open => ("expired", None),
    };
    let mut members = Map::new();
    for (name, value) in [
        ("id", json!(invite.id)),
        ("role", invite.spec.role.show()),
        ("groups", json!(invite.spec.groups)),
        ("note", json!(invite.spec.note)),
        ("expires_at", time_value(invite.expires_at)),
        ("state", json!(state)),
        ("member", json!(member)),
        ("created_by", json!(invite.spec.created_by)),
        ("created_at", time_value(invite.created_at())),
    ] {
        members.insert(name.to_owned(), value);
    }
    members
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let after = match context.query.text("after") {
        None => None,
        Some(text) => Some(InviteId::parse(text).ok_or_else(|| ApiError::value("after", "expected the 'next' of a page"))?),
    };
    let order = if context.query.text("sort") == Some("newest") { SortOrder::Newest } else { SortOrder::Oldest };
    let invites = context.with_query_timeout(context.state.store.identity.invites(after, order, context.limit() + 1)).await?;
    Ok(rows::page(invites, context.limit(), |invite| invite.id.to_string(), |invite| show(&context, invite).into()))
}

async fn find(context: &RequestContext) -> Result<Invite, ApiError> {
    let missing = || ApiError::not_found("invite");
    let id = InviteId::parse(context.path_param("invite")).ok_or_else(missing)?;
    context.state.store.identity.invite(id).await?.ok_or_else(missing)
}

async fn one(context: RequestContext) -> Result<ApiResponse, ApiError> {
    Ok(ApiResponse::ok(show(&context, &find(&context).await?)))
}

async fn make(context: RequestContext) -> Result<ApiResponse, ApiError> {
    require_invites(&context)?;
    let (identity, now) = (&context.state.identity, context.now());
    rows::require_future(&context, "expires_at")?;
    let expires_at = context.body.time("expires_at").unwrap_or_else(|| now.plus_ms(DEFAULT_LIFE_MS));
    if expires_at > now.plus_ms(MAX_LIFE_MS) {
        return Err(ApiError::value("expires_at", "an invite is valid for 90 days at most"));
    }
    let role = context.body.0.get("role").map_or(Ok(Role::Member), Role::read);
    let groups = context.body.0.get("groups").map_or(Ok(Vec::new()), Vec::<String>::read);
    let spec = InviteSpec {
        role: role.map_err(|error| ApiError::value("role", error))?,
        groups: groups.map_err(|error| ApiError::value("groups", error))?,
        note: context.body.text("note").unwrap_or_default().to_owned(),
        created_by: context.actor().name,
        state: InviteState::Open,
    };
    let invite = Invite { id: InviteId::from_parts(now, identity.random.bytes()), expires_at, spec };
    let new = NewKey::generate_invite(&identity.random);
    let hash = new.secret(&context.state.store.hasher).hash;
    context.apply(&[Change::Identity(Box::new(IdentityChange::MakeInvite { invite: Box::new(invite.clone()), hash }))]).await?;
    let (mut shown, token) = (show(&context, &invite), new.expose_once());
    shown.insert("link".to_owned(), identity.settings.page(INVITE_PAGE, &token).into());
    shown.insert("token".to_owned(), token.into());
    Ok(ApiResponse::created(shown))
}

async fn revoke(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let invite = find(&context).await?;
    if let InviteState::Accepted(member) = &invite.spec.state {
        let message = format!("The invite was accepted by the member '{member}'.");
        return Err(ApiError::conflict("already_accepted", message));
    }
    context.apply(&[Change::Identity(Box::new(IdentityChange::RevokeInvite { invite: invite.id }))]).await?;
    one(context).await
}

/// Invites are of no use while registration is off.
fn require_invites(context: &RequestContext) -> Result<(), ApiError> {
    if context.state.gateway.registration().takes_invites() { Ok(()) } else { Err(ApiError::registration_off()) }
}

/// The open invite of the token in the body.
async fn offered(context: &RequestContext) -> Result<Invite, ApiError> {
    require_invites(context)?;
    begin_attempt(context, None)?;
    let hash = context.state.store.hasher.hash(context.body.text("token").unwrap_or_default());
    let found = context.state.store.identity.find_invite(&hash).await?;
    let invite = found.filter(|invite| invite.is_open(context.now()));
    let invite = invite.ok_or_else(|| ApiError::no_token(IdentityRefusal::InviteInvalid))?;
    attempt_succeeded(context, None);
    Ok(invite)
}

async fn check(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let Invite { expires_at, spec, .. } = offered(&context).await?;
    Ok(ApiResponse::ok(json!({"role": spec.role.show(), "groups": spec.groups, "expires_at": time_value(expires_at)})))
}

async fn accept(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let invite = offered(&context).await?;
    let (name, email) = (context.body.text("name").unwrap_or_default(), context.body.text("email"));
    let names: Vec<&str> = [Some(name), email].into_iter().flatten().collect();
    let password = hash_password(&context, "new_password", &names).await?;
    let hash = context.state.store.hasher.hash(context.body.text("token").unwrap_or_default());
    let (member, email) = (name.to_owned(), email.map(str::to_owned));
    let accept = IdentityChange::AcceptInvite { hash, member, email, password };
    let author = tollgate_store::Actor { name: format!("invite {}", invite.id), ..context.actor() };
    context.apply_as(&author, &[Change::Identity(Box::new(accept))]).await?;
    // Names are unique, and come before addresses: this is the member that the invite has just made.
    let member = context.state.store.identity.find_login(name).await?.ok_or_else(ApiError::internal)?;
    admit(&context, &member, SignInWay::of(SignInMethod::Link), name).await
}
