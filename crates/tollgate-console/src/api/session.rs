//! Sessions: signing in with a password and a one-time code, signing out, and the list of sessions.

use serde_json::{Value, json};
use tollgate_core::{MemberId, MemberStatus, SessionId};
use tollgate_store::{
    AdminScope, Change, IdentityChange, RowKind, SecondFactor, Session, SessionFilter, SignInMethod,
    fields::{Access, Kind, Object, WriteMode},
};

use super::{
    request_context::RequestContext,
    route::{AFTER, LIMIT, Method, Needs, Resource, ResponseSchema, Route, handler},
    row_names::names_by_id,
    rows,
    schema::{NAME, TEXT, both, needed, read},
    sign_in::{
        Challenge, PASSWORD, REMEMBER, SIGN_IN, SignInWay, TOKEN, admit, attempt_succeeded, begin_attempt, need_session,
        open_session,
    },
};
use crate::{
    api_error::ApiError,
    identity::{
        cookies,
        signed::{self, Purpose},
        totp,
    },
    response::ApiResponse,
    time::time_value,
};

static CREDENTIALS: Object = Object::of(
    "Credentials",
    &[
        needed("login", Kind::Text { min: 1, max: 254 }, "Name or e-mail address of the member."),
        needed("password", PASSWORD, "Password."),
        REMEMBER,
    ],
);
static CODE: Object = Object::of(
    "SignInCode",
    &[
        needed("challenge", TOKEN, "`challenge` of the answer to the password."),
        both("code", Kind::Text { min: 1, max: 20 }, "Code of the authenticator app.").with(Access::WriteOnly),
        both("recovery_code", Kind::Text { min: 1, max: 40 }, "Recovery code, instead of `code`.").with(Access::WriteOnly),
    ],
);
static SESSION: Object = Object::of(
    "Session",
    &[
        read("id", Kind::Id("ses_"), "Id."),
        read("member", NAME, "Name of the member."),
        read("current", Kind::Flag, "Whether it is the session of this request."),
        read("method", Kind::Word(&["password", "link", "oidc", "passkey"]), "How the member signed in."),
        read("remembered", Kind::Flag, "Whether the browser keeps it when it is closed, and it continues without requests."),
        read("address", TEXT, "Address of the last request; empty if unknown."),
        read("agent", TEXT, "Browser that signed in."),
        read("created_at", Kind::Time, "When the member signed in."),
        read("seen_at", Kind::Time, "Last request, to about a minute."),
        read("ends_at", Kind::Time, "When it ends at the latest."),
    ],
);

const OPEN: Resource = Resource { tag: "session", needs: Needs::Nothing };
const OWN: Resource = Resource { tag: "session", needs: Needs::Scope(AdminScope::Member) };
const LIST: Resource = Resource { tag: "sessions", needs: Needs::Own { all: AdminScope::Admin } };

pub(super) static ROUTES: &[Route] = &[
    OPEN.route(
        Method::Post,
        "/admin/v1/session",
        "sign_in",
        "Signs in with a password; sets the session's cookie.",
        handler!(sign_in),
    )
    .takes(&CREDENTIALS, WriteMode::Create)
    .returns(ResponseSchema::Object(&SIGN_IN)),
    OPEN.route(
        Method::Post,
        "/admin/v1/session/code",
        "sign_in_with_code",
        "Completes a sign-in with a one-time code or a recovery code.",
        handler!(with_code),
    )
    .takes(&CODE, WriteMode::Create)
    .returns(ResponseSchema::Object(&SIGN_IN)),
    OWN.route(Method::Delete, "/admin/v1/session", "sign_out", "Ends the session of this request.", handler!(sign_out)),
    LIST.route(Method::Get, "/admin/v1/sessions", "list_sessions", "Open sessions, oldest first.", handler!(list))
        .query(&[LIMIT, AFTER, both("member", NAME, "Of this member, by name or id.")])
        .returns(ResponseSchema::Page(&SESSION)),
    LIST.route(Method::Delete, "/admin/v1/sessions/{session}", "end_session", "Ends a session.", handler!(end)),
];

async fn sign_in(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let (login, password) = (context.body.text("login").unwrap_or_default(), context.body.text("password").unwrap_or_default());
    begin_attempt(&context, Some(login))?;
    let found = context.state.store.identity.find_login(login).await?;
    let hash = found.as_ref().and_then(|member| member.login.password.as_ref());
    let is_right = context.state.identity.passwords.verify(password, hash).await?;
    let Some(member) = found.filter(|member| is_right && member.status == MemberStatus::Active) else {
        tracing::info!(address = ?context.address, "a sign-in failed");
        return Err(ApiError::wrong_login());
    };
    let answer = admit(&context, &member, SignInWay::chosen(SignInMethod::Password, &context), login).await?;
    if member.login.totp.is_none() {
        attempt_succeeded(&context, Some(login));
    }
    Ok(answer)
}

async fn with_code(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let hasher = &context.state.store.hasher;
    let challenge = context.body.text("challenge").unwrap_or_default();
    let (id, version, name, is_remembered): Challenge =
        signed::read(hasher, Purpose::SecondFactor, challenge, context.now()).ok_or_else(ApiError::no_challenge)?;
    let attempts = format!("code of {id}");
    begin_attempt(&context, Some(&attempts))?;
    let id = MemberId::parse(&id).ok_or_else(ApiError::no_challenge)?;
    let member = context.state.store.identity.login(id).await?;
    let is_current = |member: &tollgate_store::LoginMember| {
        member.login.version == version && member.status == MemberStatus::Active && member.login.totp.is_some()
    };
    let member = member.filter(is_current).ok_or_else(ApiError::no_challenge)?;
    let code = context.body.text("code").map(str::trim);
    let factor = match (context.body.text("recovery_code"), code, &member.login.totp) {
        (Some(recovery), _, _) => SecondFactor::RecoveryCode(hasher.hash(&totp::canonical_recovery_code(recovery))),
        (None, Some(code), Some(secret)) => {
            let step = totp::verify(secret.expose(), code, context.now());
            SecondFactor::TotpStep(step.ok_or_else(ApiError::wrong_code)?)
        }
        (None, _, _) => {
            let message = "Missing required parameter: 'code'. Send the code of the authenticator app, or a 'recovery_code'.";
            return Err(ApiError::invalid("missing_required_parameter", "code", message));
        }
    };
    let way = SignInWay::of(SignInMethod::Password).remembered(is_remembered);
    let answer = open_session(&context, &member, way, factor, Vec::new()).await?;
    attempt_succeeded(&context, Some(&attempts));
    attempt_succeeded(&context, Some(&name));
    Ok(answer)
}

async fn sign_out(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let session = need_session(&context)?.session.id;
    context.apply(&[Change::Identity(Box::new(IdentityChange::EndSession { session }))]).await?;
    let clear = cookies::clear_session(context.state.identity.settings.is_secure());
    Ok(ApiResponse::no_content().header("set-cookie", &clear))
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let asked = match context.query.text("member") {
        None => None,
        Some(text) => MemberId::parse(&rows::find(&context, RowKind::Member, None, text).await?.id),
    };
    let after = match context.query.text("after") {
        None => None,
        Some(text) => Some(SessionId::parse(text).ok_or_else(|| ApiError::value("after", "expected the 'next' of a page"))?),
    };
    let filter = filter(&context, context.only_member(asked)?, after, context.limit() + 1);
    let sessions = context.with_query_timeout(context.state.store.identity.sessions(&filter)).await?;
    let members = sessions.iter().map(|session| session.member.to_string()).collect();
    let members = names_by_id(&context, RowKind::Member, members).await?;
    let current = context.principal.session().map(|signed_in| signed_in.session.id);
    let show = |session: &Session| {
        let name = members.get(&session.member.to_string()).map_or("", |row| row.name.as_str());
        show(session, name, current)
    };
    Ok(rows::page(sessions, context.limit(), |session| session.id.to_string(), show))
}

fn filter(context: &RequestContext, member: Option<MemberId>, after: Option<SessionId>, limit: u32) -> SessionFilter {
    let idle = context.state.gateway.session_times().idle();
    SessionFilter { scope: context.objects, id: None, member, after, now: context.now(), idle, limit }
}

fn show(session: &Session, member: &str, current: Option<SessionId>) -> Value {
    json!({
        "id": session.id, "member": member, "current": current == Some(session.id), "method": session.spec.method.as_str(), "remembered": session.spec.is_remembered,
        "address": session.spec.client.address, "agent": session.spec.client.agent, "created_at": time_value(session.created_at),
        "seen_at": time_value(session.seen_at), "ends_at": time_value(session.ends_at),
    })
}

async fn end(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let missing = || ApiError::not_found("session");
    let id = SessionId::parse(context.path_param("session")).ok_or_else(missing)?;
    let only = SessionFilter { id: Some(id), ..filter(&context, None, None, 1) };
    if context.state.store.identity.sessions(&only).await?.is_empty() {
        return Err(missing());
    }
    context.apply(&[Change::Identity(Box::new(IdentityChange::EndSession { session: id }))]).await?;
    let is_own = context.principal.session().is_some_and(|signed_in| signed_in.session.id == id);
    let clear = cookies::clear_session(context.state.identity.settings.is_secure());
    let answer = ApiResponse::no_content();
    Ok(if is_own { answer.header("set-cookie", &clear) } else { answer })
}
