//! One-time codes of the member who sends the request: set up, confirm, switch off, and recovery codes.

use serde_json::json;
use tollgate_core::Secret;
use tollgate_store::{
    AdminScope, Change, IdentityChange, KeyHash, SecondFactor,
    fields::{Kind, Object, WriteMode},
};

use super::{
    request_context::RequestContext,
    route::{Method, Needs, Resource, ResponseSchema, Route, handler},
    schema::{NAME, TEXT, needed, read},
    sign_in::{PASSWORD, SIGN_IN, SignInWay, TOKEN, attempt_succeeded, begin_attempt, need_session, open_session, prove_password},
};
use crate::{
    api_error::ApiError,
    identity::{
        signed::{self, Purpose, sign},
        totp,
    },
    response::ApiResponse,
};

static SECRET: Object = Object::of(
    "TotpSecret",
    &[
        read("secret", TEXT, "Secret in base32, to type into an authenticator app."),
        read("uri", TEXT, "The same as an `otpauth:` address, to show as a QR code."),
        read("challenge", TEXT, "The challenge for `enable_totp`, valid for 15 minutes."),
    ],
);
static ENABLE: Object = Object::of(
    "TotpConfirmation",
    &[
        needed("challenge", TOKEN, "`challenge` of the new secret."),
        needed("code", Kind::Text { min: 1, max: 20 }, "A code of the app, as proof that it has the secret."),
        needed("password", PASSWORD, "The member's password."),
    ],
);
static ENABLED: Object = Object::of(
    "TotpEnabled",
    &[
        read("recovery_codes", Kind::List { of: &TEXT, max: 10 }, "Each can be used once instead of a code. Shown only once."),
        read("session", Kind::Object(&SIGN_IN), "The session that replaces the one of the request."),
    ],
);
static PROOF: Object = Object::of("PasswordProof", &[needed("password", PASSWORD, "The member's password.")]);
static RECOVERY: Object = Object::of(
    "RecoveryCodes",
    &[read("recovery_codes", Kind::List { of: &TEXT, max: 10 }, "Each can be used once instead of a code. Shown only once.")],
);
static STATE: Object = Object::of(
    "TotpState",
    &[
        read("member", NAME, "The member."),
        read("enabled", Kind::Flag, "Whether the member signs in with one-time codes."),
        read("recovery_codes_left", Kind::Integer { min: 0, max: 10 }, "Recovery codes that are not used yet."),
    ],
);

const OWN: Resource = Resource { tag: "one-time codes", needs: Needs::Scope(AdminScope::Member) };

pub(super) static ROUTES: &[Route] = &[
    OWN.route(
        Method::Get,
        "/admin/v1/totp",
        "get_totp",
        "Whether the member of this request signs in with one-time codes.",
        handler!(state),
    )
    .returns(ResponseSchema::Object(&STATE)),
    OWN.route(
        Method::Post,
        "/admin/v1/totp/secret",
        "make_totp_secret",
        "Makes a secret for an authenticator app; nothing changes until it is confirmed.",
        handler!(make_secret),
    )
    .returns(ResponseSchema::Object(&SECRET)),
    OWN.route(
        Method::Post,
        "/admin/v1/totp/enable",
        "enable_totp",
        "Confirms a secret with a code; from then on signing in needs a code. Ends the other sessions.",
        handler!(enable),
    )
    .takes(&ENABLE, WriteMode::Create)
    .returns(ResponseSchema::Object(&ENABLED)),
    OWN.route(
        Method::Post,
        "/admin/v1/totp/disable",
        "disable_totp",
        "Signs in without codes again. Ends the other sessions and replaces the cookie.",
        handler!(disable),
    )
    .takes(&PROOF, WriteMode::Create)
    .returns(ResponseSchema::Object(&SIGN_IN)),
    OWN.route(
        Method::Post,
        "/admin/v1/totp/recovery-codes",
        "make_recovery_codes",
        "Replaces the recovery codes.",
        handler!(make_recovery_codes),
    )
    .takes(&PROOF, WriteMode::Create)
    .returns(ResponseSchema::Object(&RECOVERY)),
];

fn change(change: IdentityChange) -> Change {
    Change::Identity(Box::new(change))
}

async fn state(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let member = &need_session(&context)?.member;
    let (enabled, left) = (member.login.totp.is_some(), member.login.recovery_codes.len());
    Ok(ApiResponse::ok(json!({"member": member.name, "enabled": enabled, "recovery_codes_left": left})))
}

async fn make_secret(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let member = &need_session(&context)?.member;
    let identity = &context.state.identity;
    let secret = totp::new_secret(&identity.random);
    let issuer = format!("tollgate ({})", identity.settings.url.host_str().unwrap_or("console"));
    let uri = totp::uri(&issuer, member.login.email.as_deref().unwrap_or(&member.name), &secret);
    let content = (member.id.to_string(), &secret);
    let challenge = sign(&context.state.store.hasher, Purpose::TotpSecret, &content, context.now());
    Ok(ApiResponse::ok(json!({"secret": secret, "uri": uri, "challenge": challenge})))
}

async fn enable(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let signed_in = need_session(&context)?;
    let member = &signed_in.member;
    let challenge = context.body.text("challenge").unwrap_or_default();
    let made: Option<(String, String)> = signed::read(&context.state.store.hasher, Purpose::TotpSecret, challenge, context.now());
    let Some((_, secret)) = made.filter(|(id, _)| *id == member.id.to_string()) else {
        return Err(ApiError::value("challenge", "it is not one of this member, or too old; make a new secret"));
    };
    prove_password(&context, member, "password").await?;
    begin_attempt(&context, Some(&member.name))?;
    let code = context.body.text("code").unwrap_or_default().trim();
    let step = totp::verify(&secret, code, context.now());
    let step = step.ok_or_else(|| ApiError::value("code", "it is not the code of this secret at this time; check the clock"))?;
    let (codes, hashes) = recovery_codes(&context);
    let enable =
        IdentityChange::EnableTotp { member: member.name.clone(), secret: Secret::new(secret), step, recovery_codes: hashes };
    let changes = vec![change(enable)];
    let session = open_session(&context, member, SignInWay::renewing(signed_in), SecondFactor::None, changes).await?;
    attempt_succeeded(&context, Some(&member.name));
    Ok(session.map_json(|session| json!({"recovery_codes": codes, "session": session})))
}

async fn disable(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let signed_in = need_session(&context)?;
    let member = &signed_in.member;
    prove_password(&context, member, "password").await?;
    let changes = vec![change(IdentityChange::DisableTotp { member: member.name.clone() })];
    open_session(&context, member, SignInWay::renewing(signed_in), SecondFactor::None, changes).await
}

async fn make_recovery_codes(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let member = &need_session(&context)?.member;
    if member.login.totp.is_none() {
        return Err(ApiError::conflict("no_totp", "The member signs in without one-time codes."));
    }
    prove_password(&context, member, "password").await?;
    let (codes, recovery_codes) = recovery_codes(&context);
    context.apply(&[change(IdentityChange::SetRecoveryCodes { member: member.name.clone(), recovery_codes })]).await?;
    Ok(ApiResponse::ok(json!({"recovery_codes": codes})))
}

/// New recovery codes and their hashes.
fn recovery_codes(context: &RequestContext) -> (Vec<String>, Vec<KeyHash>) {
    let codes = totp::new_recovery_codes(&context.state.identity.random);
    let hash = |code: &String| context.state.store.hasher.hash(&totp::canonical_recovery_code(code));
    let hashes = codes.iter().map(hash).collect();
    (codes, hashes)
}
