//! Signing in at an OpenID provider: the browser leaves for it, and comes back with a code.

use serde_json::{Value, json};
use tollgate_core::{MemberStatus, Owner};
use tollgate_store::{
    AdminScope, Change, IdentityChange, LoginMember, MemberSpec, ObjectScope, RowFilter, RowKind, SecondFactor, SignInMethod,
    StoredRow,
    fields::{FieldShape, Kind, Object},
};

use super::{
    request_context::RequestContext,
    route::{Method, Needs, Resource, ResponseSchema, Route, handler},
    schema::{NAME, TEXT, both, read},
    sign_in::{REMEMBER, SignInWay, attempt_succeeded, begin_attempt, open_session},
};
use crate::{
    api_error::ApiError,
    dispatch::is_local_path,
    identity::{
        cookies,
        signed::{self, Purpose, sign},
        webauthn::RelyingParty,
    },
    oidc::{CheckedStage, Identified, NotAdmitted, OidcProvider, OidcStage, OidcState, identify},
    principal::member_actor,
    response::ApiResponse,
};

/// Tries to write a member that others change at the same time.
const MAX_TRIES: u32 = 3;
const CALLBACK: &str = "admin/v1/oidc/callback";
const TO: Kind = Kind::Text { min: 1, max: 500 };
const SENT: Kind = Kind::Text { min: 0, max: 4_000 };

/// A query parameter that providers add to the callback address.
const fn sent(name: &'static str) -> FieldShape {
    both(name, SENT, "Sent by the provider.")
}

static METHODS: Object = Object::of(
    "SignInMethods",
    &[
        read("password", Kind::Flag, "Whether members sign in with passwords."),
        read("oidc", NAME, "Name of the OpenID provider; null without one.").or_null(),
        read(
            "passkey_origin",
            TEXT,
            "Origin of the pages at which members sign in with passkeys; null if browsers offer none there.",
        )
        .or_null(),
        read("remember", Kind::Flag, "Whether members can choose to be remembered."),
        read("registration", Kind::Flag, "Whether visitors can register."),
    ],
);

static STAGE: Object = Object::of(
    "OidcStage",
    &[
        read("stage", Kind::Word(OidcStage::WORDS), "What was tested."),
        read("passed", Kind::Flag, "Whether the stage passed."),
        read("detail", TEXT, "The finding, or the fault."),
        read("took_ms", Kind::Number { max: i64::MAX }, "How long it took."),
    ],
);
static TEST: Object = Object::of(
    "OidcTest",
    &[
        read("passed", Kind::Flag, "Whether all stages passed."),
        read("callback", TEXT, "The redirect address that has to be registered at the provider."),
        read(
            "stages",
            Kind::List { of: &Kind::Object(&STAGE), max: 10 },
            "The stages; without the discovery document only that one.",
        ),
    ],
);

const OPEN: Resource = Resource { tag: "session", needs: Needs::Nothing };
const ADMIN: Resource = Resource { tag: "settings", needs: Needs::Scope(AdminScope::Admin) };

pub(super) static ROUTES: &[Route] = &[
    OPEN.route(Method::Get, "/admin/v1/session/methods", "list_sign_in_methods", "How members can sign in.", handler!(methods))
        .returns(ResponseSchema::Object(&METHODS)),
    OPEN.route(Method::Get, "/admin/v1/oidc/start", "start_oidc", "Sends the browser to the OpenID provider.", handler!(start))
        .query(&[both("to", TO, "Local path to go to afterwards; default `/`."), REMEMBER])
        .returns(ResponseSchema::Redirect),
    OPEN.route(
        Method::Get,
        "/admin/v1/oidc/callback",
        "finish_oidc",
        "The address to which the OpenID provider redirects the browser; opens a session.",
        handler!(callback),
    )
    .query(&[
        sent("code"),
        sent("state"),
        sent("iss"),
        sent("scope"),
        sent("session_state"),
        sent("authuser"),
        sent("prompt"),
        sent("hd"),
        sent("error"),
        sent("error_description"),
        sent("error_uri"),
    ])
    .returns(ResponseSchema::Redirect),
    ADMIN
        .route(
            Method::Post,
            "/admin/v1/oidc/test",
            "test_oidc",
            "Tests the OpenID provider without a person: discovery, issuer, endpoints, keys, clock, redirect address, client.",
            handler!(test),
        )
        .returns(ResponseSchema::Object(&TEST)),
];

async fn methods(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let oidc = context.state.identity.oidc.as_ref().map(|provider| provider.settings.name.as_str());
    let relying_party = RelyingParty::of(&context.state.identity.settings.url);
    let passkey_origin = relying_party.map(|relying_party| relying_party.origin);
    let remember = context.state.gateway.session_times().can_remember;
    let registration = context.state.gateway.registration().is_open();
    Ok(ApiResponse::ok(json!({
        "password": true, "oidc": oidc, "passkey_origin": passkey_origin, "remember": remember, "registration": registration,
    })))
}

fn provider(context: &RequestContext) -> Result<&OidcProvider, ApiError> {
    context.state.identity.oidc.as_ref().ok_or_else(ApiError::no_path)
}

fn too_many() -> ApiError {
    ApiError::overloaded("Too many people are signing in at the moment.")
}

/// The redirect URI, as registered at the provider.
fn callback_url(context: &RequestContext) -> String {
    format!("{}/{CALLBACK}", context.state.identity.settings.url.as_str().trim_end_matches('/'))
}

async fn test(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let message = "No OpenID provider is set; set oidc.issuer and oidc.client_id, and restart.";
    let provider = context.state.identity.oidc.as_ref().ok_or_else(|| ApiError::conflict("no_oidc", message))?;
    let _permit = provider.permit().ok_or_else(too_many)?;
    let (callback, state) = (callback_url(&context), OidcState::new(&context.state.identity.random, "/".to_owned(), false));
    let stages = provider.check(&*context.state.gateway, &callback, &state).await;
    let passed = stages.iter().all(|stage| stage.outcome.is_ok());
    let stages: Vec<Value> = stages.iter().map(show_stage).collect();
    Ok(ApiResponse::ok(json!({"passed": passed, "callback": callback, "stages": stages})))
}

fn show_stage(checked: &CheckedStage) -> Value {
    let CheckedStage { stage, outcome, took_us } = checked;
    let (Ok(detail) | Err(detail)) = outcome;
    #[expect(clippy::cast_precision_loss, reason = "a span that is shown needs no exact figures")]
    let took_ms = *took_us as f64 / 1_000.0;
    json!({"stage": stage.as_str(), "passed": outcome.is_ok(), "detail": detail, "took_ms": took_ms})
}

async fn start(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let provider = provider(&context)?;
    let to = context.query.text("to").unwrap_or("/");
    if !is_local_path(to) {
        return Err(ApiError::value("to", "expected a path of this console, such as /console"));
    }
    let _permit = provider.permit().ok_or_else(too_many)?;
    let state = OidcState::new(&context.state.identity.random, to.to_owned(), context.query.flag("remember"));
    let url = provider.authorization_url(&*context.state.gateway, &callback_url(&context), &state).await;
    let url = url.map_err(|fault| {
        tracing::error!(%fault, "the OpenID provider cannot be used");
        ApiError::oidc_failed()
    })?;
    let kept = sign(&context.state.store.hasher, Purpose::OidcState, &state, context.now());
    let secure = context.state.identity.settings.is_secure();
    Ok(ApiResponse::redirect(url.as_str()).header("set-cookie", &cookies::set_oidc_state(&kept, secure)))
}

async fn callback(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let provider = provider(&context)?;
    begin_attempt(&context, None)?;
    let secure = context.state.identity.settings.is_secure();
    let kept = cookies::oidc_state(&context.headers, secure);
    let state: Option<OidcState> =
        kept.and_then(|kept| signed::read(&context.state.store.hasher, Purpose::OidcState, kept, context.now()));
    // Only the browser that began the sign-in has the cookie: another's code is not redeemed.
    let state = state.filter(|state| context.query.text("state") == Some(state.state.as_str()));
    let state = state.ok_or_else(ApiError::no_challenge)?;
    // If the answer names its issuer (RFC 9207), the issuer must be the configured provider.
    if context.query.text("iss").is_some_and(|issuer| issuer != provider.settings.issuer) {
        return Err(ApiError::oidc_refused());
    }
    if let Some(error) = context.query.text("error") {
        tracing::info!(
            error = error.chars().filter(|c| !c.is_control()).take(100).collect::<String>(),
            "the OpenID provider refused"
        );
        return Err(ApiError::oidc_refused());
    }
    let _permit = provider.permit().ok_or_else(too_many)?;
    let code = context.query.text("code").unwrap_or_default();
    let redeemed = provider.redeem(&*context.state.gateway, &callback_url(&context), code, &state).await;
    let claims = redeemed.map_err(|fault| {
        tracing::warn!(%fault, "a sign-in at the OpenID provider failed");
        if fault.is_code_refused { ApiError::oidc_refused() } else { ApiError::oidc_failed() }
    })?;
    let person = identify(&provider.settings, &claims).map_err(|reason| {
        let reason = match reason {
            NotAdmitted::Domain => "no verified e-mail address of an allowed domain",
            NotAdmitted::Role => "no value of the role claim admits",
        };
        tracing::info!(reason, "a sign-in at the OpenID provider was not admitted");
        ApiError::not_admitted()
    })?;
    let member = member_of(&context, provider, &person).await?;
    let way = SignInWay::of(SignInMethod::Oidc).remembered(state.is_remembered);
    let opened = open_session(&context, &member, way, SecondFactor::None, Vec::new()).await?;
    attempt_succeeded(&context, None);
    Ok(opened.redirect_to(&state.to).header("set-cookie", &cookies::clear_oidc_state(secure)))
}

/// The member of a person: linked before, or an invited one who cannot sign in yet, or a new one. Role and groups are those of the
/// claims that decide them. Tried again when the member is changed at the same time: a status that an admin sets meanwhile stays.
async fn member_of(context: &RequestContext, provider: &OidcProvider, person: &Identified) -> Result<LoginMember, ApiError> {
    for _ in 1..MAX_TRIES {
        match try_member_of(context, provider, person).await {
            Err(problem) if problem.is_race() => {}
            done => return done,
        }
    }
    try_member_of(context, provider, person).await
}

async fn try_member_of(context: &RequestContext, provider: &OidcProvider, person: &Identified) -> Result<LoginMember, ApiError> {
    let identity = &context.state.store.identity;
    let found = match identity.find_subject(&person.subject).await? {
        Some(member) => Some(member),
        None => unclaimed(context, person).await?,
    };
    let (before, name) = match &found {
        Some(member) if member.status != MemberStatus::Active => return Err(ApiError::not_admitted()),
        Some(member) => (spec_of(context, member).await?, member.name.clone()),
        None if provider.settings.create_members => (None, free_name(context, &person.names).await?),
        None => {
            tracing::info!(subject = person.subject, "an unknown account of the OpenID provider was not admitted");
            return Err(ApiError::not_admitted());
        }
    };
    let is_new = found.is_none();
    let mut changes = Vec::new();
    if is_new {
        let after =
            with_claims(MemberSpec { name: name.clone(), ..MemberSpec::default() }, person, &existing_groups(context).await?);
        changes.push(Change::ExpectNew { kind: RowKind::Member, parent: String::new(), name: name.clone() });
        changes.push(Change::PutMember(Box::new(after)));
    } else if let Some((row, spec)) = before {
        let after = with_claims(spec.clone(), person, &existing_groups(context).await?);
        if spec != after {
            changes.push(Change::ExpectRow { kind: RowKind::Member, id: row.id, revision: row.revision });
            changes.push(Change::PutMember(Box::new(after)));
        }
    }
    changes.push(identity_change(IdentityChange::SetSubject { member: name.clone(), subject: Some(person.subject.clone()) }));
    if let Some(email) = free_email(context, person, found.as_ref()).await? {
        changes.push(identity_change(IdentityChange::SetEmail { member: name.clone(), email: Some(email) }));
    }
    let author = found.as_ref().map(|member| member_actor(member.id, &member.name));
    context.apply_as(&author.unwrap_or_else(|| context.actor()), &changes).await?;
    identity.find_subject(&person.subject).await?.ok_or_else(ApiError::internal)
}

fn identity_change(change: IdentityChange) -> Change {
    Change::Identity(Box::new(change))
}

/// The member with the person's verified address who cannot sign in yet. Others must be linked by their own sign-in: a person
/// who chose a password for an address of another one would share the account.
async fn unclaimed(context: &RequestContext, person: &Identified) -> Result<Option<LoginMember>, ApiError> {
    let Some(email) = &person.email else { return Ok(None) };
    let found = context.state.store.identity.find_login(email).await?;
    Ok(found.filter(|member| member.login.email.as_ref() == Some(email) && !member.can_sign_in()))
}

/// The row of a member that claims may change: a catalog file's rows are changed there only.
async fn spec_of(context: &RequestContext, member: &LoginMember) -> Result<Option<(StoredRow, MemberSpec)>, ApiError> {
    let row = context.state.store.listing.row(RowKind::Member, &member.id.to_string(), ObjectScope::Member(member.id)).await?;
    match row {
        Some(row) if row.owner == Owner::Database => {
            let spec = row.read()?;
            Ok(Some((row, spec)))
        }
        Some(_) | None => Ok(None),
    }
}

/// Names of the groups that exist.
async fn existing_groups(context: &RequestContext) -> Result<Vec<String>, ApiError> {
    let rows = context.state.store.listing.page(&RowFilter::of(RowKind::Group, 1_000)).await?;
    Ok(rows.into_iter().map(|row| row.name).collect())
}

/// The spec with the role and groups that claims decide.
fn with_claims(mut spec: MemberSpec, person: &Identified, existing: &[String]) -> MemberSpec {
    spec.role = person.role.unwrap_or(spec.role);
    for (group, granted) in &person.groups {
        let has = spec.groups.contains(group);
        if *granted && !has && existing.contains(group) {
            spec.groups.push(group.clone());
        } else if !granted && has {
            spec.groups.retain(|known| known != group);
        }
    }
    spec
}

/// The first of these names that no member has, with a number if all are taken.
async fn free_name(context: &RequestContext, names: &[String]) -> Result<String, ApiError> {
    const MAX_NUMBER: u32 = 50;
    let first = names.first().map_or("member", String::as_str);
    let numbered = (2..MAX_NUMBER).map(|number| format!("{first} {number}"));
    for name in names.iter().cloned().chain(numbered) {
        if context.state.store.identity.find_login(&name).await?.is_none() {
            return Ok(name);
        }
    }
    Err(ApiError::conflict("already_exists", "Too many members have this name; ask an admin for an invite."))
}

/// The person's address, unless the member has one or another member has it.
async fn free_email(
    context: &RequestContext,
    person: &Identified,
    member: Option<&LoginMember>,
) -> Result<Option<String>, ApiError> {
    let Some(email) = &person.email else { return Ok(None) };
    if member.is_some_and(|member| member.login.email.is_some()) {
        return Ok(None);
    }
    let taken = context.state.store.identity.find_login(email).await?;
    let is_free = taken.is_none_or(|taken| Some(taken.id) == member.map(|member| member.id));
    Ok(is_free.then(|| email.clone()))
}

#[cfg(test)]
mod tests {
    use tollgate_core::Role;

    use super::*;

    #[test]
    fn claims_change_only_the_role_and_groups_they_name() {
        let person = |role, groups: &[(&str, bool)]| Identified {
            subject: String::new(),
            names: Vec::new(),
            email: None,
            role,
            groups: groups.iter().map(|(group, granted)| ((*group).to_owned(), *granted)).collect(),
        };
        let spec = MemberSpec { role: Role::Operator, groups: vec!["own".to_owned(), "old".to_owned()], ..MemberSpec::default() };
        let existing = ["own".to_owned(), "old".to_owned(), "new".to_owned()];
        let after = with_claims(spec.clone(), &person(None, &[("old", false), ("new", true), ("unknown", true)]), &existing);
        assert_eq!((after.role, after.groups), (Role::Operator, vec!["own".to_owned(), "new".to_owned()]));
        assert_eq!(with_claims(spec, &person(Some(Role::Member), &[]), &existing).role, Role::Member);
    }
}
