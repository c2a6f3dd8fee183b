//! Shared parts of all ways to sign in: opening a session, the answer with its cookie, and the check of a member's own password.

use serde_json::{Value, json};
use tollgate_core::SessionId;
use tollgate_store::{
    Change, IdentityChange, LoginMember, NewKey, NewSession, SecondFactor, SessionClient, SignInMethod,
    fields::{Access, FieldShape, Kind, Object},
};

use super::{
    request_context::RequestContext,
    schema::{COUNT, NAME, TEXT, both, read},
};
use crate::{
    api_error::ApiError,
    identity::{
        SignedIn, cookies,
        csrf::csrf_token,
        password,
        signed::{Purpose, sign},
    },
    principal::member_actor,
    response::ApiResponse,
    time::time_value,
};

/// Longest `User-Agent` that is kept.
const MAX_AGENT: usize = 200;

pub(super) const PASSWORD: Kind = Kind::Text { min: 1, max: 500 };
pub(super) const NEW_PASSWORD: Kind = Kind::Text { min: password::MIN_CHARS, max: password::MAX_CHARS };
/// Kind of the secrets of links and invites, of challenges, and of codes.
pub(super) const TOKEN: Kind = Kind::Text { min: 1, max: 1_000 };
pub(super) const EMAIL: Kind = Kind::Text { min: 1, max: 254 };

pub(super) static SIGN_IN: Object = Object::of(
    "SignIn",
    &[
        read("next", Kind::Word(&["nothing", "code"]), "`nothing`: signed in. `code`: send a one-time code with the challenge."),
        read("challenge", TEXT, "The challenge for `sign_in_with_code`, valid for five minutes; null if signed in.").or_null(),
        read("member", NAME, "Name of the member; null before the code.").or_null(),
        read("scope", Kind::Word(&["member", "operator", "admin"]), "The member's role; null before the code.").or_null(),
        read("ends_at", Kind::Time, "When the session ends at the latest; null before the code.").or_null(),
        read("csrf_token", TEXT, "The value that writes send in the header `x-csrf-token`; null before the code.").or_null(),
        read("recovery_codes_left", COUNT, "Recovery codes that are not used yet; null without one-time codes.").or_null(),
    ],
);

/// The member's choice when signing in.
pub(super) const REMEMBER: FieldShape = both(
    "remember",
    Kind::Flag,
    "Keep the session when the browser is closed, and without requests, until it ends at the latest; `console.remember_me` may forbid it.",
)
.with(Access::WriteOnly);

/// The field that [`prove_presence`] reads.
pub(super) const OWN_PASSWORD: FieldShape = both(
    "password",
    PASSWORD,
    "The own password. Sessions send it, unless the member has none and signed in within the last ten minutes; admin keys need none.",
)
.with(Access::WriteOnly);
/// Age of a session up to which a member without a password needs no other proof.
const RECENT_SIGN_IN_MS: i64 = 10 * 60_000;

/// How a session begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct SignInWay {
    method: SignInMethod,
    /// Whether the browser keeps the session when it is closed, as the member chose.
    is_remembered: bool,
}

impl SignInWay {
    /// The session ends with the browser.
    pub(super) const fn of(method: SignInMethod) -> Self {
        Self { method, is_remembered: false }
    }

    pub(super) const fn remembered(self, is_remembered: bool) -> Self {
        Self { is_remembered, ..self }
    }

    /// As the body of the request says.
    pub(super) fn chosen(method: SignInMethod, context: &RequestContext) -> Self {
        Self::of(method).remembered(context.body.flag("remember"))
    }

    /// Like the session that this one replaces, after the member has proved the password.
    pub(super) const fn renewing(signed_in: &SignedIn) -> Self {
        Self::of(SignInMethod::Password).remembered(signed_in.session.spec.is_remembered)
    }
}

/// The content of a challenge: the member; the version of the login, so that a new password invalidates it; the name used to sign in,
/// whose failed attempts are cleared on success; and whether the session is kept when the browser is closed.
pub(super) type Challenge = (String, i64, String, bool);

/// Continues after the member was identified: answers with a session, or with a challenge if a one-time code is needed
/// too.
pub(super) async fn admit(
    context: &RequestContext,
    member: &LoginMember,
    way: SignInWay,
    name: &str,
) -> Result<ApiResponse, ApiError> {
    if member.login.totp.is_some() && way.method != SignInMethod::Oidc {
        let challenge: Challenge = (member.id.to_string(), member.login.version, name.to_owned(), way.is_remembered);
        let challenge = sign(&context.state.store.hasher, Purpose::SecondFactor, &challenge, context.now());
        return Ok(ApiResponse::ok(json!({
            "next": "code", "challenge": challenge, "member": null, "scope": null, "ends_at": null, "csrf_token": null,
            "recovery_codes_left": null,
        })));
    }
    open_session(context, member, way, SecondFactor::None, Vec::new()).await
}

/// Opens a session of a member, together with other changes of the member's login, and answers with its cookie. The token is always
/// new. A token that the browser sent is never reused.
pub(super) async fn open_session(
    context: &RequestContext,
    member: &LoginMember,
    way: SignInWay,
    factor: SecondFactor,
    mut changes: Vec<Change>,
) -> Result<ApiResponse, ApiError> {
    let (identity, times, now) = (&context.state.identity, context.state.gateway.session_times(), context.now());
    let new = NewKey::generate_session(&identity.random);
    let hash = new.secret(&context.state.store.hasher).hash;
    let (id, ends_at) = (SessionId::from_parts(now, identity.random.bytes()), now.plus_ms(times.max_ms));
    let is_remembered = way.is_remembered && times.can_remember;
    let session = Box::new(NewSession { id, hash, method: way.method, is_remembered, ends_at, client: client(context) });
    let open = IdentityChange::OpenSession { member: member.name.clone(), session, factor };
    changes.push(Change::Identity(Box::new(open)));
    let author = member_actor(member.id, &member.name);
    context.apply_as(&author, &changes).await?;
    let signed_in = context.state.store.identity.session(&hash, now, times.idle()).await?;
    let (session, member) = signed_in.ok_or_else(ApiError::no_session)?;
    let secure = identity.settings.is_secure();
    let token = new.expose_once();
    let shown = show(&SignedIn { csrf_token: csrf_token(&context.state.store.hasher, &token), session, member });
    let cookie = cookies::set_session(&token, is_remembered.then_some(times.max_ms / 1_000), secure);
    Ok(ApiResponse::ok(shown).header("set-cookie", &cookie))
}

fn show(signed_in: &SignedIn) -> Value {
    let SignedIn { session, member, csrf_token } = signed_in;
    json!({
        "next": "nothing", "challenge": null, "member": member.name, "scope": member.role, "ends_at": time_value(session.ends_at),
        "csrf_token": csrf_token,
        "recovery_codes_left": member.login.totp.as_ref().map(|_| member.login.recovery_codes.len()),
    })
}

/// Address and browser of a request.
fn client(context: &RequestContext) -> SessionClient {
    let agent = context.headers.get("user-agent").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let agent = agent.chars().filter(|c| !c.is_control()).take(MAX_AGENT).collect();
    SessionClient { address: context.address.map(|address| address.to_string()).unwrap_or_default(), agent }
}

/// Counts an attempt to sign in or to prove a password; 429 with the time to wait after too many. Secrets of links and invites cannot
/// be guessed, so their attempts have no name and are counted by address only.
pub(super) fn begin_attempt(context: &RequestContext, name: Option<&str>) -> Result<(), ApiError> {
    let begun = context.state.identity.limiter().begin(context.address, name, context.now());
    begun.map_err(ApiError::too_many_sign_ins)
}

pub(super) fn attempt_succeeded(context: &RequestContext, name: Option<&str>) {
    context.state.identity.limiter().succeeded(context.address, name);
}

/// The session of the request; 409 for an admin key.
pub(super) fn need_session(context: &RequestContext) -> Result<&SignedIn, ApiError> {
    context.principal.session().ok_or_else(ApiError::needs_session)
}

/// Checks the password that members must send again before they change their own login, because another person may be using an
/// unattended browser. 409 for a member without a password, who signs in at the OpenID provider. Such a member cannot set one,
/// because it would still work after the provider has closed the account; an admin can, with a link.
pub(super) async fn prove_password(context: &RequestContext, member: &LoginMember, field: &str) -> Result<(), ApiError> {
    let Some(hash) = &member.login.password else { return Err(ApiError::no_password()) };
    begin_attempt(context, Some(&member.name))?;
    let sent = context.body.text(field).unwrap_or_default();
    if !context.state.identity.passwords.verify(sent, Some(hash)).await? {
        return Err(ApiError::value(field, "it is not the member's password"));
    }
    attempt_succeeded(context, Some(&member.name));
    Ok(())
}

/// Checks that a session's member is at the browser before it gets a credential that outlives the session: the password again, or for a
/// member without one a recent sign-in at the OpenID provider.
pub(super) async fn prove_presence(context: &RequestContext) -> Result<(), ApiError> {
    let Some(SignedIn { session, member, .. }) = context.principal.session() else { return Ok(()) };
    if member.login.password.is_some() {
        return prove_password(context, member, OWN_PASSWORD.name).await;
    }
    if context.now().ms_since(session.created_at) <= RECENT_SIGN_IN_MS { Ok(()) } else { Err(ApiError::sign_in_again()) }
}

/// The hash of a new password that follows the rules.
pub(super) async fn hash_password(
    context: &RequestContext,
    field: &str,
    names: &[&str],
) -> Result<tollgate_core::Secret, ApiError> {
    let sent = context.body.text(field).unwrap_or_default();
    password::check(sent, names).map_err(|fault| ApiError::value(field, fault).because(fault.word()))?;
    context.state.identity.passwords.hash(sent, &context.state.identity.random).await
}
