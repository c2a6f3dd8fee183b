//! The ways in which a member can sign in, as shown to the member and to admins.

use serde_json::{Value, json};
use tollgate_core::MemberId;
use tollgate_store::{
    AdminScope, Change, IdentityChange, LoginMember, RowKind,
    fields::{Kind, Object, WriteMode},
};

use super::{
    request_context::RequestContext,
    route::{Method, Needs, Resource, ResponseSchema, Route, handler},
    rows,
    schema::{COUNT, NAME, both, read},
    sign_in::EMAIL,
};
use crate::{api_error::ApiError, response::ApiResponse, time::time_value};

static LOGIN: Object = Object::of(
    "Login",
    &[
        read("member", NAME, "The member."),
        both("email", EMAIL, "E-mail address to sign in with, besides the name.").or_null(),
        read("password", Kind::Flag, "Whether the member has a password."),
        read("totp", Kind::Flag, "Whether signing in with the password needs a one-time code."),
        read("passkeys", COUNT, "Passkeys of the member."),
        both(
            "oidc",
            Kind::Flag,
            "Whether the member signs in at the OpenID provider; `false` unlinks the account and ends sessions.",
        ),
        read("signed_in_at", Kind::Time, "Last sign-in; null: never.").or_null(),
    ],
);

const READ: Resource = Resource { tag: "members", needs: Needs::Own { all: AdminScope::Admin } };
const ADMIN: Resource = Resource { tag: "members", needs: Needs::Scope(AdminScope::Admin) };

pub(super) static ROUTES: &[Route] = &[
    READ.route(Method::Get, "/admin/v1/members/{name}/login", "get_login", "How a member can sign in.", handler!(one))
        .returns(ResponseSchema::Object(&LOGIN)),
    ADMIN
        .route(
            Method::Patch,
            "/admin/v1/members/{name}/login",
            "change_login",
            "Sets or removes the member's e-mail address; unlinks the account of the OpenID provider.",
            handler!(change),
        )
        .takes(&LOGIN, WriteMode::Update)
        .returns(ResponseSchema::Object(&LOGIN)),
    ADMIN
        .route(
            Method::Delete,
            "/admin/v1/members/{name}/totp",
            "reset_totp",
            "Lets a member who lost the authenticator app sign in without codes.",
            handler!(reset_totp),
        )
        .returns(ResponseSchema::Object(&LOGIN)),
];

async fn find(context: &RequestContext) -> Result<LoginMember, ApiError> {
    let row = rows::find(context, RowKind::Member, None, context.path_param("name")).await?;
    let id = MemberId::parse(&row.id).ok_or_else(ApiError::internal)?;
    context.state.store.identity.login(id).await?.ok_or_else(|| ApiError::not_found(RowKind::Member))
}

async fn show(context: &RequestContext, member: &LoginMember) -> Result<ApiResponse, ApiError> {
    let login = &member.login;
    let passkeys = context.state.store.identity.passkeys(member.id).await?.len();
    Ok(ApiResponse::ok(json!({
        "member": member.name, "email": login.email, "password": login.password.is_some(), "totp": login.totp.is_some(),
        "passkeys": passkeys, "oidc": login.subject.is_some(), "signed_in_at": login.signed_in_at.map(time_value),
    })))
}

async fn one(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let member = find(&context).await?;
    show(&context, &member).await
}

async fn change(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let member = find(&context).await?;
    let mut changes = Vec::new();
    match context.body.0.get("oidc").and_then(Value::as_bool) {
        Some(true) if member.login.subject.is_none() => {
            return Err(ApiError::value("oidc", "accounts are linked by signing in; only `false` can be set"));
        }
        Some(false) => changes.push(IdentityChange::SetSubject { member: member.name.clone(), subject: None }),
        Some(true) | None => {}
    }
    if context.body.has("email") {
        let email = context.body.text("email").map(str::to_owned);
        changes.push(IdentityChange::SetEmail { member: member.name, email });
    }
    let changes: Vec<Change> = changes.into_iter().map(|change| Change::Identity(Box::new(change))).collect();
    if !changes.is_empty() {
        context.apply(&changes).await?;
    }
    one(context).await
}

async fn reset_totp(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let member = find(&context).await?;
    if member.login.totp.is_some() {
        context.apply(&[Change::Identity(Box::new(IdentityChange::DisableTotp { member: member.name }))]).await?;
    }
    one(context).await
}
