//! Passkeys: members add, rename and remove their own, and sign in with them; admins see and remove those of others.

use http::StatusCode;
use serde_json::{Value, json};
use tollgate_core::{MemberId, MemberStatus, PasskeyId};
use tollgate_store::{
    AdminScope, Change, IdentityChange, LoginMember, MAX_PASSKEYS, Passkey, PasskeySpec, RowKind, SecondFactor, SignInMethod,
    UsedChallenge,
    fields::{Kind, Object, WriteMode},
};

use super::{
    request_context::RequestContext,
    route::{Method, Needs, Resource, ResponseSchema, Route, handler},
    rows,
    schema::{NAME, TEXT, needed, read},
    sign_in::{
        PASSWORD, REMEMBER, SIGN_IN, SignInWay, TOKEN, attempt_succeeded, begin_attempt, need_session, open_session, prove_password,
    },
};
use crate::{
    api_error::ApiError,
    identity::{
        cookies,
        signed::{self, Purpose, sign},
        webauthn::{
            self, ALGORITHMS, Assertion, ExpectedAnswer, Fault, KnownCredential, RelyingParty, verify_assertion,
            verify_registration,
        },
    },
    response::ApiResponse,
    time::time_value,
};

/// Values that browsers and authenticators send, in base64url. Ids of passkeys have at most 1,023 bytes.
const BYTES: Kind = Kind::Text { min: 1, max: 10_000 };
const CREDENTIAL: Kind = Kind::Text { min: 1, max: 1_364 };
const ALGORITHM: Kind = Kind::Integer { min: -65_536, max: 65_535 };

static PASSKEY: Object = Object::of(
    "Passkey",
    &[
        read("id", Kind::Id("pky_"), "Id."),
        needed("name", NAME, "The member's name for it."),
        read("backed_up", Kind::Flag, "Whether it is copied to other devices of the member."),
        read("created_at", Kind::Time, "When it was added."),
        read("used_at", Kind::Time, "Last sign-in with it; null: never.").or_null(),
    ],
);
static PROOF: Object = Object::of("PasskeyProof", &[needed("password", PASSWORD, "The member's password.")]);
static CREATION: Object = Object::of(
    "PasskeyCreation",
    &[
        read("state", TEXT, "The state for `add_passkey`, valid for five minutes."),
        read("challenge", TEXT, "`challenge` of WebAuthn's options, in base64url."),
        read("rp_id", TEXT, "`rp.id`: host of the console."),
        read("origin", TEXT, "Origin of the pages that may make the passkey."),
        read("user_id", TEXT, "`user.id`, in base64url."),
        read("user_name", TEXT, "`user.name`."),
        read("algorithms", Kind::List { of: &ALGORITHM, max: 3 }, "`pubKeyCredParams`, the preferred one first."),
        read("exclude", Kind::List { of: &TEXT, max: MAX_PASSKEYS }, "`excludeCredentials`: those the member has, in base64url."),
        read("timeout_ms", Kind::Integer { min: 0, max: 600_000 }, "How long the challenge is valid."),
    ],
);
static ADDED: Object = Object::of(
    "NewPasskey",
    &[
        needed("state", TOKEN, "`state` of the answer to `begin_passkey`."),
        needed("name", NAME, "The member's name for it."),
        needed("client_data", BYTES, "`response.clientDataJSON`, in base64url."),
        needed("attestation_object", BYTES, "`response.attestationObject`, in base64url."),
    ],
);
static REQUEST: Object = Object::of(
    "PasskeyRequest",
    &[
        read("challenge", TEXT, "`challenge` of WebAuthn's options, in base64url."),
        read("rp_id", TEXT, "`rpId`: host of the console."),
        read("origin", TEXT, "Origin of the pages that may use it."),
        read("timeout_ms", Kind::Integer { min: 0, max: 600_000 }, "How long the challenge is valid."),
    ],
);
static ANSWER: Object = Object::of(
    "PasskeyAnswer",
    &[
        needed("credential", CREDENTIAL, "`rawId`, in base64url."),
        needed("client_data", BYTES, "`response.clientDataJSON`, in base64url."),
        needed("authenticator_data", BYTES, "`response.authenticatorData`, in base64url."),
        needed("signature", BYTES, "`response.signature`, in base64url."),
        needed("user_handle", BYTES, "`response.userHandle`, in base64url."),
        REMEMBER,
    ],
);

const OPEN: Resource = Resource { tag: "session", needs: Needs::Nothing };
const OWN: Resource = Resource { tag: "passkeys", needs: Needs::Scope(AdminScope::Member) };
const OF_MEMBER: Resource = Resource { tag: "passkeys", needs: Needs::Own { all: AdminScope::Admin } };
const ADMIN: Resource = Resource { tag: "passkeys", needs: Needs::Scope(AdminScope::Admin) };
const ALL: &str = "/admin/v1/members/{name}/passkeys";
const ONE: &str = "/admin/v1/members/{name}/passkeys/{passkey}";

pub(super) static ROUTES: &[Route] = &[
    OPEN.route(
        Method::Post,
        "/admin/v1/session/passkey/challenge",
        "begin_passkey_sign_in",
        "The options that a browser passes to authenticators, and a cookie with which the answer is valid once, for five minutes.",
        handler!(begin_sign_in),
    )
    .returns(ResponseSchema::Object(&REQUEST)),
    OPEN.route(
        Method::Post,
        "/admin/v1/session/passkey",
        "sign_in_with_passkey",
        "Signs in with a passkey; no password and no one-time code is needed.",
        handler!(sign_in),
    )
    .takes(&ANSWER, WriteMode::Create)
    .returns(ResponseSchema::Object(&SIGN_IN)),
    OWN.route(
        Method::Post,
        "/admin/v1/passkeys/challenge",
        "begin_passkey",
        "The options for a new passkey of the member of this request; nothing changes until it is added.",
        handler!(begin),
    )
    .takes(&PROOF, WriteMode::Create)
    .returns(ResponseSchema::Object(&CREATION)),
    OWN.route(
        Method::Post,
        "/admin/v1/passkeys",
        "add_passkey",
        "Adds a passkey to the member of this request, up to ten.",
        handler!(add),
    )
    .takes(&ADDED, WriteMode::Create)
    .returns(ResponseSchema::Created(&PASSKEY)),
    OF_MEMBER
        .route(Method::Get, ALL, "list_passkeys", "The passkeys of a member, oldest first, on one page.", handler!(list))
        .returns(ResponseSchema::Page(&PASSKEY)),
    OF_MEMBER
        .route(Method::Patch, ONE, "rename_passkey", "Renames a passkey.", handler!(rename))
        .takes(&PASSKEY, WriteMode::Create)
        .returns(ResponseSchema::Object(&PASSKEY)),
    OF_MEMBER.route(Method::Delete, ONE, "remove_passkey", "Removes a passkey; sessions continue.", handler!(remove)),
    ADMIN.route(
        Method::Delete,
        ALL,
        "remove_passkeys",
        "Removes all passkeys of a member who lost a device, and ends the member's sessions.",
        handler!(remove_all),
    ),
];

fn change(change: IdentityChange) -> Change {
    Change::Identity(Box::new(change))
}

fn relying_party(context: &RequestContext) -> Result<RelyingParty, ApiError> {
    RelyingParty::of(&context.state.identity.settings.url).ok_or_else(ApiError::no_passkeys)
}

/// A challenge for an authenticator, in base64url.
fn new_challenge(context: &RequestContext) -> String {
    webauthn::encode(&context.state.identity.random.bytes::<32>())
}

/// The record that makes a challenge answered once. The challenge ends within five minutes; it is remembered for ten, as the clocks of
/// nodes differ.
fn used(context: &RequestContext, challenge: &str) -> UsedChallenge {
    let hash = context.state.store.hasher.hash(&format!("challenge of a passkey\n{challenge}"));
    UsedChallenge { hash, ends_at: context.now().plus_ms(2 * webauthn::TIMEOUT_MS) }
}

/// The user handle that authenticators store for a member.
fn user_handle(member: MemberId) -> Vec<u8> {
    member.to_string().into_bytes()
}

/// A field in base64url.
fn bytes(context: &RequestContext, field: &str) -> Result<Vec<u8>, ApiError> {
    let decoded = webauthn::decode(context.body.text(field).unwrap_or_default());
    decoded.ok_or_else(|| ApiError::value(field, "expected base64url without padding"))
}

fn show(passkey: &Passkey) -> Value {
    json!({
        "id": passkey.id, "name": passkey.spec.name, "backed_up": passkey.spec.is_backed_up,
        "created_at": time_value(passkey.created_at()), "used_at": passkey.spec.used_at.map(time_value),
    })
}

// === signing in ===

async fn begin_sign_in(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let relying_party = relying_party(&context)?;
    let challenge = new_challenge(&context);
    let state = sign(&context.state.store.hasher, Purpose::PasskeySignIn, &challenge, context.now());
    let cookie = cookies::set_passkey_state(&state, context.state.identity.settings.is_secure());
    let request = json!({
        "challenge": challenge, "rp_id": relying_party.id, "origin": relying_party.origin, "timeout_ms": webauthn::TIMEOUT_MS,
    });
    Ok(ApiResponse::ok(request).header("set-cookie", &cookie))
}

async fn sign_in(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let relying_party = relying_party(&context)?;
    begin_attempt(&context, None)?;
    let secure = context.state.identity.settings.is_secure();
    // Only the browser that began the sign-in has the cookie.
    let state = cookies::passkey_state(&context.headers, secure);
    let hasher = &context.state.store.hasher;
    let challenge = state.and_then(|state| signed::read::<String>(hasher, Purpose::PasskeySignIn, state, context.now()));
    let challenge = challenge.ok_or_else(ApiError::no_challenge)?;
    let (credential, client_data) = (bytes(&context, "credential")?, bytes(&context, "client_data")?);
    let (authenticator_data, signature) = (bytes(&context, "authenticator_data")?, bytes(&context, "signature")?);
    let handle = bytes(&context, "user_handle")?;
    let expected = ExpectedAnswer { relying_party: &relying_party, challenge: &challenge };
    // Checks that need only the browser's data come first, so that the answers do not reveal whether a passkey is known.
    webauthn::check_sign_in(expected, &client_data).map_err(|fault| refuse(&context, fault))?;
    let found = context.state.store.identity.find_passkey(&credential).await?;
    let Some((passkey, member)) = found.filter(|(_, member)| member.status == MemberStatus::Active) else {
        tracing::info!(address = ?context.address, "a sign-in with an unknown passkey failed");
        return Err(ApiError::wrong_passkey());
    };
    let known = KnownCredential {
        public_key: &passkey.public_key,
        is_backup_eligible: passkey.spec.is_backup_eligible,
        user_handle: &user_handle(member.id),
    };
    let answer = Assertion {
        client_data: &client_data,
        authenticator_data: &authenticator_data,
        signature: &signature,
        user_handle: &handle,
    };
    let asserted = verify_assertion(expected, known, answer).map_err(|fault| refuse(&context, fault))?;
    let use_passkey = change(IdentityChange::UsePasskey {
        passkey: passkey.id,
        sign_count: asserted.sign_count,
        is_backed_up: asserted.is_backed_up,
        challenge: used(&context, &challenge),
    });
    let way = SignInWay::chosen(SignInMethod::Passkey, &context);
    let opened = open_session(&context, &member, way, SecondFactor::None, vec![use_passkey]).await;
    match opened {
        Ok(opened) => {
            attempt_succeeded(&context, None);
            Ok(opened.header("set-cookie", &cookies::clear_passkey_state(secure)))
        }
        // The passkey was removed or the member suspended in this moment.
        Err(error) if error.status == StatusCode::NOT_FOUND => Err(ApiError::wrong_passkey()),
        Err(error) => {
            if error.code() == ApiError::wrong_passkey().code() {
                report_counter(&context, &passkey, asserted.sign_count).await?;
            }
            Err(error)
        }
    }
}

fn refuse(context: &RequestContext, fault: Fault) -> ApiError {
    tracing::info!(address = ?context.address, %fault, "a sign-in with a passkey failed");
    if fault == Fault::Challenge { ApiError::no_challenge() } else { ApiError::wrong_passkey() }
}

/// A counter that has not advanced means that two authenticators may have the same passkey: it is written to the log and the audit log.
async fn report_counter(context: &RequestContext, passkey: &Passkey, sign_count: u32) -> Result<(), ApiError> {
    tracing::warn!(
        address = ?context.address,
        passkey.id = %passkey.id,
        counter = sign_count,
        "the signature counter of a passkey has not advanced: it may have been copied"
    );
    let report = IdentityChange::ReportPasskey { passkey: passkey.id, sign_count };
    context.apply_as(&context.actor(), &[change(report)]).await.map(drop)
}

// === the own passkeys ===

/// Content of `state` while a passkey is added: the member; the version of the login, so that a new password invalidates the state; and
/// the challenge.
type NewState = (String, i64, String);

async fn begin(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let member = &need_session(&context)?.member;
    let relying_party = relying_party(&context)?;
    prove_password(&context, member, "password").await?;
    let known = context.state.store.identity.passkeys(member.id).await?;
    if known.len() >= MAX_PASSKEYS {
        return Err(ApiError::conflict(
            "too_many_passkeys",
            format!("A member has at most {MAX_PASSKEYS} passkeys; remove one first."),
        ));
    }
    let challenge = new_challenge(&context);
    let state: NewState = (member.id.to_string(), member.login.version, challenge.clone());
    let exclude: Vec<String> = known.iter().map(|passkey| webauthn::encode(&passkey.credential)).collect();
    Ok(ApiResponse::ok(json!({
        "state": sign(&context.state.store.hasher, Purpose::NewPasskey, &state, context.now()), "challenge": challenge,
        "rp_id": relying_party.id, "origin": relying_party.origin, "user_id": webauthn::encode(&user_handle(member.id)),
        "user_name": member.login.email.as_deref().unwrap_or(&member.name), "algorithms": ALGORITHMS, "exclude": exclude,
        "timeout_ms": webauthn::TIMEOUT_MS,
    })))
}

async fn add(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let member = &need_session(&context)?.member;
    let relying_party = relying_party(&context)?;
    let state = context.body.text("state").unwrap_or_default();
    let begun: Option<NewState> = signed::read(&context.state.store.hasher, Purpose::NewPasskey, state, context.now());
    let is_own = |(id, version, _): &NewState| *id == member.id.to_string() && *version == member.login.version;
    let (.., challenge) = begun.filter(is_own).ok_or_else(ApiError::no_challenge)?;
    let (client_data, object) = (bytes(&context, "client_data")?, bytes(&context, "attestation_object")?);
    let expected = ExpectedAnswer { relying_party: &relying_party, challenge: &challenge };
    let made = verify_registration(expected, &client_data, &object);
    let made = made.map_err(|fault| {
        tracing::info!(address = ?context.address, %fault, "a new passkey was refused");
        if fault == Fault::Challenge { ApiError::no_challenge() } else { ApiError::value("attestation_object", fault) }
    })?;
    let spec = PasskeySpec {
        name: name(&context)?,
        sign_count: made.sign_count,
        is_backup_eligible: made.is_backup_eligible,
        is_backed_up: made.is_backed_up,
        used_at: None,
    };
    let id = PasskeyId::from_parts(context.now(), context.state.identity.random.bytes());
    let passkey = Box::new(Passkey { id, member: member.id, credential: made.id, public_key: made.public_key, spec });
    let shown = show(&passkey);
    let add = IdentityChange::AddPasskey { member: member.name.clone(), passkey, challenge: used(&context, &challenge) };
    context.apply(&[change(add)]).await?;
    Ok(ApiResponse::created(shown))
}

/// The name of a passkey, without white space around it.
fn name(context: &RequestContext) -> Result<String, ApiError> {
    let name = context.body.text("name").unwrap_or_default().trim();
    let is_name = !name.is_empty() && !name.chars().any(char::is_control);
    is_name.then(|| name.to_owned()).ok_or_else(|| ApiError::value("name", "expected visible characters").because("name"))
}

// === the passkeys of a member ===

async fn find_member(context: &RequestContext) -> Result<LoginMember, ApiError> {
    let row = rows::find(context, RowKind::Member, None, context.path_param("name")).await?;
    let id = MemberId::parse(&row.id).ok_or_else(ApiError::internal)?;
    context.state.store.identity.login(id).await?.ok_or_else(|| ApiError::not_found(RowKind::Member))
}

/// The passkey of the path, which is one of the path's member.
async fn find(context: &RequestContext) -> Result<Passkey, ApiError> {
    let member = find_member(context).await?;
    let id = PasskeyId::parse(context.path_param("passkey"));
    let mut known = context.state.store.identity.passkeys(member.id).await?.into_iter();
    known.find(|passkey| Some(passkey.id) == id).ok_or_else(|| ApiError::not_found("passkey"))
}

async fn list(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let member = find_member(&context).await?;
    let passkeys = context.state.store.identity.passkeys(member.id).await?;
    let items: Vec<Value> = passkeys.iter().map(show).collect();
    Ok(ApiResponse::ok(json!({"items": items, "next": null})))
}

async fn rename(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let mut passkey = find(&context).await?;
    passkey.spec.name = name(&context)?;
    context.apply(&[change(IdentityChange::RenamePasskey { passkey: passkey.id, name: passkey.spec.name.clone() })]).await?;
    Ok(ApiResponse::ok(show(&passkey)))
}

async fn remove(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let passkey = find(&context).await?.id;
    context.apply(&[change(IdentityChange::RemovePasskey { passkey })]).await?;
    Ok(ApiResponse::no_content())
}

async fn remove_all(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let member = find_member(&context).await?.name;
    context.apply(&[change(IdentityChange::RemovePasskeys { member })]).await?;
    Ok(ApiResponse::no_content())
}
