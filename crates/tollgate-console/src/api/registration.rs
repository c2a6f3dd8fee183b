//! Registration: visitors who become members by themselves, where `access.registration` is `open`.

use tollgate_store::{
    Actor, Change, IdentityChange, SignInMethod,
    fields::{Access, Object, WriteMode},
};

use super::{
    invites::MEMBER_NAME,
    request_context::RequestContext,
    route::{Method, Needs, Resource, ResponseSchema, Route, handler},
    schema::{both, needed},
    sign_in::{EMAIL, NEW_PASSWORD, SIGN_IN, SignInWay, admit, attempt_succeeded, begin_attempt, hash_password},
};
use crate::{api_error::ApiError, response::ApiResponse};

static REGISTRATION: Object = Object::of(
    "Registration",
    &[
        needed("name", MEMBER_NAME, "Name of the new member, unique."),
        both("email", EMAIL, "E-mail address to sign in with, too; it is not verified.").with(Access::WriteOnly),
        needed("new_password", NEW_PASSWORD, "Password of the new member."),
    ],
);

const OPEN: Resource = Resource { tag: "session", needs: Needs::Nothing };

pub(super) static ROUTES: &[Route] = &[OPEN
    .route(
        Method::Post,
        "/admin/v1/registration",
        "register",
        "Makes a member of the visitor and signs in, where `access.registration` is `open`.",
        handler!(register),
    )
    .takes(&REGISTRATION, WriteMode::Create)
    .returns(ResponseSchema::Object(&SIGN_IN))];

async fn register(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let registration = context.state.gateway.registration();
    if !registration.is_open() {
        return Err(ApiError::registration_closed());
    }
    begin_attempt(&context, None)?;
    let (name, email) = (context.body.text("name").unwrap_or_default(), context.body.text("email"));
    let names: Vec<&str> = [Some(name), email].into_iter().flatten().collect();
    // A password that breaks the rules does not count as a registration.
    let password = hash_password(&context, "new_password", &names).await?;
    let begun = context.state.identity.registrations().begin(context.address, registration.per_hour, context.now());
    begun.map_err(ApiError::too_many_registrations)?;
    let register = IdentityChange::Register {
        member: name.to_owned(),
        group: registration.group.clone(),
        billing: registration.billing,
        email: email.map(str::to_owned),
        password,
    };
    let author = Actor { name: "registration".to_owned(), ..context.actor() };
    let made = context.apply_as(&author, &[Change::Identity(Box::new(register))]).await;
    made.map_err(|error| match (error.code(), error.param()) {
        // The answer does not reveal which of the two is taken, or by which member.
        ("already_exists", _) => ApiError::login_taken(),
        (_, Some("groups")) => {
            tracing::warn!(
                group = registration.group,
                "registrations are refused: the group of access.registration_group does not exist"
            );
            ApiError::registration_closed()
        }
        _ => error,
    })?;
    // Names are unique, and come before addresses: this is the member that was just made.
    let member = context.state.store.identity.find_login(name).await?.ok_or_else(ApiError::internal)?;
    let answer = admit(&context, &member, SignInWay::of(SignInMethod::Password), name).await?;
    attempt_succeeded(&context, None);
    Ok(answer)
}
