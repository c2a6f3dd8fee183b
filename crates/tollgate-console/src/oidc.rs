//! Signing in at an OpenID provider: discovery, the authorization code flow with PKCE, and the check of the ID token. Requests go
//! through the gateway's guarded client.

mod check;
mod claims;
mod token;

use std::{fmt, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{Method, Request, Response, header};
use jsonwebtoken::jwk::JwkSet;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use tollgate_core::{Secret, Timestamp};
use tollgate_store::RandomSource;
use url::Url;

use crate::gateway_handle::GatewayHandle;

pub(crate) use check::{CheckedStage, OidcStage};
pub(crate) use claims::{Identified, NotAdmitted, identify};

/// How long metadata and keys of the provider are used without asking again, in milliseconds.
const METADATA_LIFE_MS: i64 = 300_000;
/// Shortest time between two requests for them because a key is unknown.
const METADATA_PAUSE_MS: i64 = 10_000;
/// Sign-ins that may wait for the provider at the same time: half of the requests that are answered before a sign-in, so that
/// sign-ins with a password still get permits while the provider does not answer.
const MAX_AT_ONCE: usize = 8;
/// Longest time for the requests of one sign-in.
const TIMEOUT: Duration = Duration::from_secs(20);

/// An OpenID provider, and the mapping of its claims to members, roles and groups.
#[derive(Clone, Debug)]
pub struct OidcSettings {
    /// Name shown on the button.
    pub name: String,
    /// Without a slash at the end unless the provider's has one.
    pub issuer: String,
    pub client_id: String,
    /// `None` for a public client.
    pub client_secret: Option<Secret>,
    /// Separated by blanks; begins with `openid`.
    pub scopes: String,
    /// Claim with roles, or a path of names separated by dots; `None`: roles are managed in the console.
    pub role_claim: Option<String>,
    /// Values of the claim that make an admin.
    pub admins: Vec<String>,
    pub operators: Vec<String>,
    /// Values that admit a member; empty: every account is admitted.
    pub members: Vec<String>,
    /// Claim with groups, as `role_claim`.
    pub group_claim: Option<String>,
    /// Value of the claim, and the private group it grants.
    pub groups: Vec<(String, String)>,
    /// Domains of verified e-mail addresses that are admitted; empty: all.
    pub domains: Vec<String>,
    /// Whether an account without a member gets one at its first sign-in.
    pub create_members: bool,
}

/// The parts of the discovery document that are used.
#[derive(Clone, Debug, Deserialize)]
struct Metadata {
    issuer: String,
    authorization_endpoint: Url,
    token_endpoint: Url,
    userinfo_endpoint: Option<Url>,
    jwks_uri: Url,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
}

impl Metadata {
    fn check_issuer(&self, issuer: &str) -> Result<(), OidcFailure> {
        if self.issuer == issuer {
            return Ok(());
        }
        Err(failure(format!("the provider calls itself '{}', and oidc.issuer is '{issuer}'", self.issuer)))
    }

    /// If the issuer's address uses TLS, all endpoints must use TLS.
    fn check_schemes(&self, issuer: &str) -> Result<(), OidcFailure> {
        let endpoints =
            [&self.authorization_endpoint, &self.token_endpoint, &self.jwks_uri].into_iter().chain(&self.userinfo_endpoint);
        let is_allowed = |url: &Url| url.scheme() == "https" || (url.scheme() == "http" && issuer.starts_with("http:"));
        match endpoints.into_iter().find(|url| !is_allowed(url)) {
            Some(url) => Err(failure(format!("the provider's endpoint {url} is not an https: address"))),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Debug)]
struct Known {
    metadata: Metadata,
    keys: JwkSet,
    at: Timestamp,
}

/// Why a sign-in at the provider failed: a sentence for the log. The browser does not get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OidcFailure {
    sentence: String,
    /// Whether the provider refused the code as invalid (`invalid_grant`, RFC 6749), as it does for a code that is sent a second time.
    pub(crate) is_code_refused: bool,
}

impl fmt::Display for OidcFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

fn failure(text: impl Into<String>) -> OidcFailure {
    OidcFailure { sentence: text.into(), is_code_refused: false }
}

/// The state that the browser keeps while it is at the provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OidcState {
    pub(crate) state: String,
    pub(crate) nonce: String,
    pub(crate) verifier: String,
    /// Local path to go to afterwards.
    pub(crate) to: String,
    /// Whether the browser keeps the session when it is closed, as the member chose.
    #[serde(default)]
    pub(crate) is_remembered: bool,
}

impl OidcState {
    pub(crate) fn new(random: &RandomSource, to: String, is_remembered: bool) -> Self {
        let text = || URL_SAFE_NO_PAD.encode(random.bytes::<32>());
        Self { state: text(), nonce: text(), verifier: text(), to, is_remembered }
    }
}

#[derive(Debug)]
pub(crate) struct OidcProvider {
    pub(crate) settings: OidcSettings,
    known: Mutex<Option<Known>>,
    permits: Semaphore,
}

impl OidcProvider {
    pub(crate) fn new(settings: OidcSettings) -> Self {
        token::install_verifiers();
        Self { settings, known: Mutex::new(None), permits: Semaphore::new(MAX_AT_ONCE) }
    }

    /// A permit to send requests to the provider; `None` if all are taken.
    pub(crate) fn permit(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.try_acquire().ok()
    }

    /// The address of the provider's sign-in page.
    pub(crate) async fn authorization_url(
        &self,
        gateway: &dyn GatewayHandle,
        callback: &str,
        state: &OidcState,
    ) -> Result<Url, OidcFailure> {
        let known = within(self.known(gateway, METADATA_LIFE_MS)).await?;
        Ok(self.sign_in_address(&known.metadata, callback, state))
    }

    /// The same with this metadata.
    fn sign_in_address(&self, metadata: &Metadata, callback: &str, state: &OidcState) -> Url {
        let mut url = metadata.authorization_endpoint.clone();
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(state.verifier.as_bytes()));
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("redirect_uri", callback)
            .append_pair("scope", &self.settings.scopes)
            .append_pair("state", &state.state)
            .append_pair("nonce", &state.nonce)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        url
    }

    fn discovery_address(&self) -> String {
        format!("{}/.well-known/openid-configuration", self.settings.issuer.trim_end_matches('/'))
    }

    /// Redeems a code. Returns the claims of the ID token, and those that only the userinfo endpoint returns.
    pub(crate) async fn redeem(
        &self,
        gateway: &dyn GatewayHandle,
        callback: &str,
        code: &str,
        state: &OidcState,
    ) -> Result<Map<String, Value>, OidcFailure> {
        within(async {
            let mut known = self.known(gateway, METADATA_LIFE_MS).await?;
            let answer: TokenAnswer = send(gateway, self.token_request(&known.metadata, callback, code, state)?).await?;
            let check = |known: &Known| {
                let expected = token::Expected {
                    issuer: &known.metadata.issuer,
                    client_id: &self.settings.client_id,
                    nonce: &state.nonce,
                    now: gateway.now(),
                };
                token::verify(&answer.id_token, &known.keys, &expected)
            };
            let mut claims = check(&known);
            if matches!(claims, Err(token::TokenFault::UnknownKey)) {
                // The provider has new keys.
                known = self.known(gateway, METADATA_PAUSE_MS).await?;
                claims = check(&known);
            }
            let claims = claims.map_err(|fault| failure(format!("the ID token is not valid: {fault}")))?;
            self.with_userinfo(gateway, &known.metadata, &answer.access_token, claims).await
        })
        .await
    }

    /// Metadata and keys, at most this old.
    async fn known(&self, gateway: &dyn GatewayHandle, max_age_ms: i64) -> Result<Known, OidcFailure> {
        // The lock is held during the requests, so that concurrent sign-ins cause only one of each.
        let mut known = self.known.lock().await;
        if let Some(known) = known.as_ref().filter(|known| gateway.now().ms_since(known.at) < max_age_ms) {
            return Ok(known.clone());
        }
        let issuer = &self.settings.issuer;
        let metadata: Metadata = get(gateway, &self.discovery_address(), None).await?;
        metadata.check_issuer(issuer)?;
        metadata.check_schemes(issuer)?;
        let keys: JwkSet = get(gateway, metadata.jwks_uri.as_str(), None).await?;
        let fresh = Known { metadata, keys, at: gateway.now() };
        *known = Some(fresh.clone());
        Ok(fresh)
    }

    /// The request that redeems a code.
    fn token_request(
        &self,
        metadata: &Metadata,
        callback: &str,
        code: &str,
        state: &OidcState,
    ) -> Result<Request<Vec<u8>>, OidcFailure> {
        let settings = &self.settings;
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", callback)
            .append_pair("code_verifier", &state.verifier);
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(metadata.token_endpoint.as_str())
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json");
        // The default of the specification where the provider names no method.
        let methods = &metadata.token_endpoint_auth_methods_supported;
        let by_header = methods.is_empty() || methods.iter().any(|method| method == "client_secret_basic");
        match &settings.client_secret {
            Some(secret) if by_header => {
                let encode = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
                let pair = format!("{}:{}", encode(&settings.client_id), encode(secret.expose()));
                let basic = base64::engine::general_purpose::STANDARD.encode(pair);
                request = request.header(header::AUTHORIZATION, format!("Basic {basic}"));
            }
            Some(secret) => {
                form.append_pair("client_id", &settings.client_id).append_pair("client_secret", secret.expose());
            }
            None => {
                form.append_pair("client_id", &settings.client_id);
            }
        }
        request.body(form.finish().into_bytes()).map_err(|_| failure("the token endpoint is not an address"))
    }

    /// Adds claims that only the userinfo endpoint returns. Its answer must be about the same subject.
    async fn with_userinfo(
        &self,
        gateway: &dyn GatewayHandle,
        metadata: &Metadata,
        access_token: &str,
        mut claims: Map<String, Value>,
    ) -> Result<Map<String, Value>, OidcFailure> {
        let Some(endpoint) = &metadata.userinfo_endpoint else { return Ok(claims) };
        let more: Map<String, Value> = get(gateway, endpoint.as_str(), Some(access_token)).await?;
        if more.get("sub") != claims.get("sub") {
            return Err(failure("the userinfo endpoint answers for another subject"));
        }
        add_missing(&mut claims, more);
        Ok(claims)
    }
}

/// Adds missing claims. `email_verified` is taken only from the document that has the address.
fn add_missing(claims: &mut Map<String, Value>, mut more: Map<String, Value>) {
    if claims.contains_key("email") {
        more.remove("email_verified");
    } else if more.contains_key("email") {
        claims.remove("email_verified");
    }
    for (name, value) in more {
        claims.entry(name).or_insert(value);
    }
}

#[derive(Deserialize)]
struct TokenAnswer {
    id_token: String,
    access_token: String,
}

async fn within<T>(work: impl Future<Output = Result<T, OidcFailure>>) -> Result<T, OidcFailure> {
    tokio::time::timeout(TIMEOUT, work).await.unwrap_or_else(|_| Err(failure("the provider did not answer in time")))
}

/// GETs a JSON document, with an access token if there is one.
async fn get<T: DeserializeOwned>(gateway: &dyn GatewayHandle, address: &str, access: Option<&str>) -> Result<T, OidcFailure> {
    send(gateway, request_for(address, access)?).await
}

fn request_for(address: &str, access: Option<&str>) -> Result<Request<Vec<u8>>, OidcFailure> {
    let mut request = Request::builder().uri(address).header(header::ACCEPT, "application/json");
    if let Some(access) = access {
        request = request.header(header::AUTHORIZATION, format!("Bearer {access}"));
    }
    request.body(Vec::new()).map_err(|_| failure(format!("{address} is not an address")))
}

async fn send<T: DeserializeOwned>(gateway: &dyn GatewayHandle, request: Request<Vec<u8>>) -> Result<T, OidcFailure> {
    let address = request.uri().to_string();
    read_document(&address, &fetch(gateway, request).await?)
}

/// Sends a request. A failure names its address.
async fn fetch(gateway: &dyn GatewayHandle, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, OidcFailure> {
    let address = request.uri().to_string();
    gateway.fetch(request).await.map_err(|fault| failure(format!("{address}: {fault}")))
}

fn read_document<T: DeserializeOwned>(address: &str, response: &Response<Vec<u8>>) -> Result<T, OidcFailure> {
    if response.status() != http::StatusCode::OK {
        return Err(error_answer(address, response.status(), response.body()));
    }
    serde_json::from_slice(response.body()).map_err(|error| failure(format!("{address}: the answer cannot be read: {error}")))
}

/// The failure described by an error answer. A token endpoint names the fault, such as `invalid_client`.
fn error_answer(address: &str, status: http::StatusCode, body: &[u8]) -> OidcFailure {
    let named = serde_json::from_slice::<Value>(body).ok();
    let named = named.and_then(|body| body["error"].as_str().map(|error| error.chars().take(100).collect::<String>()));
    let is_code_refused = named.as_deref() == Some("invalid_grant");
    OidcFailure { sentence: format!("{address} answered {} {}", status.as_u16(), named.unwrap_or_default()), is_code_refused }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn refused_authorization_code_is_distinguished_from_provider_errors() {
        let of = |status: http::StatusCode, body: &str| error_answer("https://id.example.com/token", status, body.as_bytes());
        let replayed = of(http::StatusCode::BAD_REQUEST, r#"{"error":"invalid_grant","error_description":"used"}"#);
        assert!(replayed.is_code_refused && replayed.to_string() == "https://id.example.com/token answered 400 invalid_grant");
        assert!(!of(http::StatusCode::UNAUTHORIZED, r#"{"error":"invalid_client"}"#).is_code_refused);
        assert!(!of(http::StatusCode::BAD_GATEWAY, "<html>").is_code_refused);
    }

    #[test]
    fn email_verified_claim_applies_only_to_the_email_of_the_same_document() {
        let merged = |token: Value, userinfo: Value| {
            let mut claims = token.as_object().unwrap().clone();
            add_missing(&mut claims, userinfo.as_object().unwrap().clone());
            Value::Object(claims)
        };
        let (claimed, verified) = (json!({"email": "a@example.com"}), json!({"email": "b@example.com", "email_verified": true}));
        assert_eq!(merged(claimed.clone(), verified.clone()), claimed, "the verified address is another one");
        assert_eq!(merged(json!({"email_verified": true}), claimed.clone()), claimed);
        assert_eq!(
            merged(json!({"sub": "1"}), verified.clone()),
            json!({"sub": "1", "email": "b@example.com", "email_verified": true})
        );
        assert_eq!(merged(verified.clone(), claimed), verified);
        assert_eq!(merged(json!({"groups": ["a"]}), json!({"groups": ["b"], "name": "c"})), json!({"groups": ["a"], "name": "c"}));
    }

    #[test]
    fn endpoints_of_an_https_issuer_must_use_https() {
        let check = |issuer: &str, endpoint: &str| {
            let document = json!({
                "issuer": issuer, "authorization_endpoint": endpoint, "token_endpoint": endpoint, "jwks_uri": endpoint,
                "userinfo_endpoint": endpoint,
            });
            serde_json::from_value::<Metadata>(document).unwrap().check_schemes(issuer)
        };
        assert!(check("https://id.example.com", "https://id.example.com/x").is_ok());
        assert!(check("http://127.0.0.1:8", "http://127.0.0.1:8/x").is_ok());
        assert!(check("https://id.example.com", "http://id.example.com/x").is_err());
        assert!(check("http://127.0.0.1:8", "javascript:alert(1)").is_err());
    }
}
