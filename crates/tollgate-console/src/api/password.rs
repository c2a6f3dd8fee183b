//! Passwords: members change their own; one-time links set the password of the first admin and of members who forgot
//! theirs.

use serde_json::json;
use tollgate_core::{MemberId, MemberStatus};
use tollgate_store::{
    Actor, AdminScope, Change, IdentityChange, IdentityRefusal, LinkKind, LoginMember, RowKind, SecondFactor, SignInMethod,
    fields::{Access, Kind, Object, WriteMode},
};

use super::{
    invites::MEMBER_NAME,
    request_context::RequestContext,
    route::{Method, Needs, Resource, ResponseSchema, Route, handler},
    rows,
    schema::{NAME, TEXT, both, needed, read},
    sign_in::{
        NEW_PASSWORD, OWN_PASSWORD, PASSWORD, SIGN_IN, SignInWay, TOKEN, admit, attempt_succeeded, begin_attempt, hash_password,
        need_session, open_session, prove_password, prove_presence,
    },
};
use crate::{
    api_error::ApiError,
    identity::links::{RESET_PAGE, SET_UP_PAGE, admin_to_set_up, new_link},
    principal::member_actor,
    response::ApiResponse,
    time::time_value,
};

static PASSWORDS: Object = Object::of(
    "PasswordChange",
    &[needed("password", PASSWORD, "The current password."), needed("new_password", NEW_PASSWORD, "The new one.")],
);
static LINK_TOKEN: Object = Object::of("LinkToken", &[needed("token", TOKEN, "`token` of the link.")]);
static LINK_USE: Object = Object::of(
    "LinkUse",
    &[
        needed("token", TOKEN, "`token` of the link."),
        needed("new_password", NEW_PASSWORD, "The password to set."),
        both("name", MEMBER_NAME, "Name of the first admin, with a link of kind `set_up`; default: that of the link's member.")
            .with(Access::WriteOnly),
    ],
);
static NEW: Object = Object::of("NewPassword", &[needed("new_password", NEW_PASSWORD, "The password to set."), OWN_PASSWORD]);
static LINK_PROOF: Object = Object::of("PasswordLinkProof", &[OWN_PASSWORD]);
static LINK: Object = Object::of(
    "PasswordLink",
    &[
        read("member", NAME, "Member whose password it sets."),
        read("kind", Kind::Word(&["set_up", "reset"]), "`set_up`: for the first admin."),
        read("expires_at", Kind::Time, "It is valid once, before this time."),
        read("token", TEXT, "The secret of the link, shown only once.").with(Access::ShownOnce),
        read("link", TEXT, "The link itself, shown only once.").with(Access::ShownOnce),
    ],
);

const OPEN: Resource = Resource { tag: "password", needs: Needs::Nothing };
const OWN: Resource = Resource { tag: "password", needs: Needs::Scope(AdminScope::Member) };
const ADMIN: Resource = Resource { tag: "password", needs: Needs::Scope(AdminScope::Admin) };

pub(super) static ROUTES: &[Route] = &[
    OWN.route(
        Method::Put,
        "/admin/v1/password",
        "change_password",
        "Changes the password of the member of this request; ends the other sessions and replaces the cookie.",
        handler!(change),
    )
    .takes(&PASSWORDS, WriteMode::Create)
    .returns(ResponseSchema::Object(&SIGN_IN)),
    OPEN.route(
        Method::Post,
        "/admin/v1/password-links/check",
        "check_password_link",
        "The member whose password a valid one-time link sets.",
        handler!(check),
    )
    .takes(&LINK_TOKEN, WriteMode::Create)
    .returns(ResponseSchema::Object(&LINK)),
    OPEN.route(
        Method::Post,
        "/admin/v1/password-links/use",
        "use_password_link",
        "Sets a password with a one-time link, and signs in.",
        handler!(use_link),
    )
    .takes(&LINK_USE, WriteMode::Create)
    .returns(ResponseSchema::Object(&SIGN_IN)),
    ADMIN
        .route(
            Method::Post,
            "/admin/v1/setup-link",
            "make_setup_link",
            "Makes the one-time link of the first admin, as long as no admin can sign in.",
            handler!(make_setup),
        )
        .returns(ResponseSchema::Created(&LINK)),
    ADMIN
        .route(
            Method::Post,
            "/admin/v1/members/{name}/password-link",
            "make_password_link",
            "Makes a one-time link that sets the member's password; replaces the previous one.",
            handler!(make_reset),
        )
        .takes_optional(&LINK_PROOF)
        .returns(ResponseSchema::Created(&LINK)),
    ADMIN
        .route(
            Method::Put,
            "/admin/v1/members/{name}/password",
            "set_member_password",
            "Sets a member's password; ends the member's sessions.",
            handler!(set),
        )
        .takes(&NEW, WriteMode::Create),
];

async fn change(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let signed_in = need_session(&context)?;
    let member = &signed_in.member;
    prove_password(&context, member, "password").await?;
    let hash = hash_password(&context, "new_password", &names(member)).await?;
    let set = Change::Identity(Box::new(IdentityChange::SetPassword { member: member.name.clone(), hash }));
    open_session(&context, member, SignInWay::renewing(signed_in), SecondFactor::None, vec![set]).await
}

/// The member's other means of signing in, besides the password.
fn names(member: &LoginMember) -> Vec<&str> {
    [Some(member.name.as_str()), member.login.email.as_deref()].into_iter().flatten().collect()
}

/// The kind of a valid link and its member.
async fn linked(context: &RequestContext) -> Result<(tollgate_store::PasswordLink, LoginMember), ApiError> {
    let invalid = || ApiError::no_token(IdentityRefusal::LinkInvalid);
    begin_attempt(context, None)?;
    let hash = context.state.store.hasher.hash(context.body.text("token").unwrap_or_default());
    let identity = &context.state.store.identity;
    let link = identity.find_link(&hash).await?.filter(|link| link.expires_at > context.now()).ok_or_else(invalid)?;
    // The link of a first start is in the logs, so it is void once an admin can sign in.
    if link.kind == LinkKind::SetUp && admin_to_set_up(&context.state.store).await?.is_none() {
        return Err(invalid());
    }
    let member = identity.login(link.member).await?;
    let member = member.filter(|member| member.status == MemberStatus::Active).ok_or_else(invalid)?;
    attempt_succeeded(context, None);
    Ok((link, member))
}

async fn check(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let (link, member) = linked(&context).await?;
    let expires_at = time_value(link.expires_at);
    Ok(ApiResponse::ok(json!({"member": member.name, "kind": link.kind.as_str(), "expires_at": expires_at})))
}

async fn use_link(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let (link, member) = linked(&context).await?;
    let name = context.body.text("name").filter(|name| *name != member.name).map(str::to_owned);
    if name.is_some() && link.kind != LinkKind::SetUp {
        return Err(ApiError::value("name", "only the link of the first admin takes a name"));
    }
    let known: Vec<&str> = names(&member).into_iter().chain(name.as_deref()).collect();
    let password = hash_password(&context, "new_password", &known).await?;
    let hash = context.state.store.hasher.hash(context.body.text("token").unwrap_or_default());
    let change = Change::Identity(Box::new(IdentityChange::UseLink { hash, password, name: name.clone() }));
    let identity = &context.state.store.identity;
    let member = if let Some(name) = name {
        context.apply_as(&Actor { name: "set-up link".to_owned(), ..context.actor() }, &[change]).await?;
        identity.find_login(&name).await?
    } else {
        context.apply_as(&member_actor(member.id, &member.name), &[change]).await?;
        identity.login(member.id).await?
    };
    let member = member.ok_or_else(ApiError::internal)?;
    admit(&context, &member, SignInWay::of(SignInMethod::Link), &member.name).await
}

async fn make_setup(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let Some(admin) = admin_to_set_up(&context.state.store).await? else {
        let message = "An admin can sign in already. For a new password use POST /admin/v1/members/{name}/password-link \
                       (`tollgate member reset-password NAME`).";
        return Err(ApiError::conflict("already_set_up", message));
    };
    make(&context, &admin, LinkKind::SetUp, SET_UP_PAGE).await
}

async fn make_reset(context: RequestContext) -> Result<ApiResponse, ApiError> {
    prove_presence(&context).await?;
    let member = rows::find(&context, RowKind::Member, None, context.path_param("name")).await?;
    make(&context, &member.name, LinkKind::Reset, RESET_PAGE).await
}

async fn set(context: RequestContext) -> Result<ApiResponse, ApiError> {
    prove_presence(&context).await?;
    let row = rows::find(&context, RowKind::Member, None, context.path_param("name")).await?;
    let id = MemberId::parse(&row.id).ok_or_else(ApiError::internal)?;
    let member = context.state.store.identity.login(id).await?.ok_or_else(|| ApiError::not_found(RowKind::Member))?;
    let hash = hash_password(&context, "new_password", &names(&member)).await?;
    let set = IdentityChange::SetPassword { member: member.name, hash };
    context.apply(&[Change::Identity(Box::new(set))]).await?;
    Ok(ApiResponse::no_content())
}

async fn make(context: &RequestContext, member: &str, kind: LinkKind, page: &str) -> Result<ApiResponse, ApiError> {
    let link = new_link(&context.state.store, member, kind, context.now());
    context.apply(&[link.change]).await?;
    let address = context.state.identity.settings.page(page, &link.token);
    Ok(ApiResponse::created(json!({
        "member": member, "kind": kind.as_str(), "expires_at": time_value(link.expires_at), "token": link.token, "link": address,
    })))
}
