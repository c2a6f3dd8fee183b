//! A test of the OpenID provider without a sign-in. Each stage sends the requests of a step of a sign-in, and reports the answers.

use http::{HeaderMap, StatusCode, header};
use jsonwebtoken::jwk::JwkSet;
use serde_json::Value;
use tollgate_core::Timestamp;
use url::Url;

use super::{Metadata, OidcFailure, OidcProvider, OidcState, failure, fetch, request_for, token, within};
use crate::gateway_handle::GatewayHandle;

/// A code that no provider has issued.
const NO_CODE: &str = "tollgate-test";
/// Errors of a provider that accepts client and redirect address and has no session (OpenID Connect Core, 3.1.2.6).
const NO_SESSION: [&str; 4] = ["login_required", "interaction_required", "consent_required", "account_selection_required"];
/// Characters of a provider's answer that are shown, at most.
const MAX_SAID: usize = 200;

/// A stage of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OidcStage {
    /// The discovery document can be read.
    Discovery,
    /// The issuer of the document is that of the settings.
    Issuer,
    /// Its endpoints have safe addresses.
    Endpoints,
    /// It has keys that can verify tokens.
    Keys,
    /// Its clock agrees with the gateway's.
    Clock,
    /// It accepts the redirect address.
    Redirect,
    /// It accepts client id and secret.
    Client,
}

impl OidcStage {
    pub(crate) const WORDS: &[&str] = &[
        Self::Discovery.as_str(),
        Self::Issuer.as_str(),
        Self::Endpoints.as_str(),
        Self::Keys.as_str(),
        Self::Clock.as_str(),
        Self::Redirect.as_str(),
        Self::Client.as_str(),
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Discovery => "discovery",
            Self::Issuer => "issuer",
            Self::Endpoints => "endpoints",
            Self::Keys => "keys",
            Self::Clock => "clock",
            Self::Redirect => "redirect",
            Self::Client => "client",
        }
    }
}

/// A stage that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckedStage {
    pub(crate) stage: OidcStage,
    /// What was found, or what is wrong.
    pub(crate) outcome: Result<String, String>,
    pub(crate) took_us: i64,
}

/// Collects stages with their times.
struct Stages<'a> {
    gateway: &'a dyn GatewayHandle,
    began: Timestamp,
    ended: Vec<CheckedStage>,
}

impl<'a> Stages<'a> {
    fn new(gateway: &'a dyn GatewayHandle) -> Self {
        Self { gateway, began: gateway.now(), ended: Vec::new() }
    }

    fn end(&mut self, stage: OidcStage, outcome: Result<String, OidcFailure>) {
        let now = self.gateway.now();
        let took_us = now.0.saturating_sub(self.began.0).max(0);
        self.began = now;
        self.ended.push(CheckedStage { stage, outcome: outcome.map_err(|fault| fault.to_string()), took_us });
    }
}

impl OidcProvider {
    /// The stages of a test. Without the discovery document there is only the first one.
    pub(crate) async fn check(&self, gateway: &dyn GatewayHandle, callback: &str, state: &OidcState) -> Vec<CheckedStage> {
        let mut stages = Stages::new(gateway);
        let address = self.discovery_address();
        let (metadata, headers) = match within(discover(gateway, &address)).await {
            Ok(found) => found,
            Err(fault) => {
                stages.end(OidcStage::Discovery, Err(fault));
                return stages.ended;
            }
        };
        stages.end(OidcStage::Discovery, Ok(address));
        stages.end(OidcStage::Issuer, metadata.check_issuer(&self.settings.issuer).map(|()| metadata.issuer.clone()));
        let endpoints = metadata.check_schemes(&self.settings.issuer);
        stages.end(OidcStage::Endpoints, endpoints.map(|()| metadata.authorization_endpoint.to_string()));
        stages.end(OidcStage::Keys, within(keys(gateway, &metadata)).await);
        stages.end(OidcStage::Clock, clock(&headers, gateway.now()));
        stages.end(OidcStage::Redirect, within(self.redirect(gateway, &metadata, callback, state)).await);
        stages.end(OidcStage::Client, within(self.client(gateway, &metadata, callback, state)).await);
        stages.ended
    }

    /// Requests a sign-in without interaction (`prompt=none`), and follows no redirect.
    async fn redirect(
        &self,
        gateway: &dyn GatewayHandle,
        metadata: &Metadata,
        callback: &str,
        state: &OidcState,
    ) -> Result<String, OidcFailure> {
        let mut url = self.sign_in_address(metadata, callback, state);
        url.query_pairs_mut().append_pair("prompt", "none");
        let response = fetch(gateway, request_for(url.as_str(), None)?).await?;
        let location = response.headers().get(header::LOCATION).and_then(|location| location.to_str().ok());
        let location = location.and_then(|location| url.join(location).ok());
        judge_redirect(response.status(), location.as_ref(), callback).map_err(failure)
    }

    /// Redeems a code that the provider has not issued. The error shows whether it refuses only the code, or the client.
    async fn client(
        &self,
        gateway: &dyn GatewayHandle,
        metadata: &Metadata,
        callback: &str,
        state: &OidcState,
    ) -> Result<String, OidcFailure> {
        let response = fetch(gateway, self.token_request(metadata, callback, NO_CODE, state)?).await?;
        judge_client(response.status(), response.body(), &self.settings.client_id).map_err(failure)
    }
}

async fn discover(gateway: &dyn GatewayHandle, address: &str) -> Result<(Metadata, HeaderMap), OidcFailure> {
    let response = fetch(gateway, request_for(address, None)?).await?;
    let headers = response.headers().clone();
    Ok((super::read_document(address, &response)?, headers))
}

/// Counts the keys that can verify a token.
async fn keys(gateway: &dyn GatewayHandle, metadata: &Metadata) -> Result<String, OidcFailure> {
    let keys: JwkSet = super::get(gateway, metadata.jwks_uri.as_str(), None).await?;
    match keys.keys.iter().filter(|key| token::can_verify(key)).count() {
        0 => Err(failure(format!("{}: none of its {} keys can check a signature", metadata.jwks_uri, keys.keys.len()))),
        usable => Ok(format!("{}: {usable}", metadata.jwks_uri)),
    }
}

/// Compares the `Date` of an answer with the gateway's clock.
fn clock(headers: &HeaderMap, now: Timestamp) -> Result<String, OidcFailure> {
    let Some(date) = headers.get(header::DATE).and_then(|date| date.to_str().ok()) else {
        return Ok("–".to_owned());
    };
    let there = jiff::fmt::rfc2822::parse(date).map_err(|_| failure(format!("the provider's time '{date}' cannot be read")))?;
    let skew = there.timestamp().as_second().saturating_sub(now.seconds());
    if skew.abs() > token::LEEWAY_S {
        return Err(failure(format!("the provider's clock differs by {skew} s, and tokens allow {} s", token::LEEWAY_S)));
    }
    Ok(format!("{skew} s"))
}

fn judge_redirect(status: StatusCode, location: Option<&Url>, callback: &str) -> Result<String, String> {
    let register = format!("register {callback} there as redirect address, and compare oidc.client_id");
    match location.filter(|_| status.is_redirection()) {
        Some(location) => {
            let named = |name: &str| location.query_pairs().find(|(known, _)| known == name).map(|(_, value)| value.into_owned());
            let error = named("error").or_else(|| named("authError"));
            match error {
                Some(error) if NO_SESSION.contains(&error.as_str()) => Ok(callback.to_owned()),
                Some(error) => {
                    let about = named("error_description").map(|about| format!(" ({})", cut(&about))).unwrap_or_default();
                    Err(format!("the provider refuses the request: {}{about}; {register}", cut(&error)))
                }
                None if location.path().contains("/error") => Err(format!("the provider shows an error page; {register}")),
                None => Ok(callback.to_owned()),
            }
        }
        None if status.is_success() => Ok(callback.to_owned()),
        None => Err(format!("the provider answers with {}; {register}", status.as_u16())),
    }
}

fn judge_client(status: StatusCode, body: &[u8], client_id: &str) -> Result<String, String> {
    let named = serde_json::from_slice::<Value>(body).ok();
    let error = named.as_ref().and_then(|body| body["error"].as_str()).unwrap_or_default();
    match error {
        "invalid_client" | "unauthorized_client" => {
            Err(format!("the provider refuses the client: {error}; compare oidc.client_id and oidc.client_secret"))
        }
        "" if status == StatusCode::UNAUTHORIZED => {
            Err("the provider refuses the client; compare oidc.client_id and oidc.client_secret".to_owned())
        }
        "" => Err(format!("the token endpoint answers with {} and names no error", status.as_u16())),
        // The code was refused, so the client was not.
        _ => Ok(client_id.to_owned()),
    }
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_SAID).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLBACK: &str = "https://gateway.example.com/admin/v1/oidc/callback";

    #[test]
    fn redirect_address_is_refused_or_accepted() {
        let judge = |status: u16, location: Option<&str>| {
            let location = location.map(|location| Url::parse(location).unwrap());
            judge_redirect(StatusCode::from_u16(status).unwrap(), location.as_ref(), CALLBACK)
        };
        let back = |query: &str| format!("{CALLBACK}?{query}");
        assert!(judge(302, Some(&back("error=login_required&state=x"))).is_ok());
        assert!(judge(303, Some("https://id.example.com/login?flow=1")).is_ok());
        assert!(judge(200, None).is_ok(), "its sign-in page");
        let refused = judge(302, Some(&back("error=invalid_scope&error_description=no+such"))).unwrap_err();
        assert!(refused.contains("invalid_scope (no such)"), "{refused}");
        assert!(judge(302, Some("https://id.example.com/oauth/error?code=4")).is_err());
        let wrong = judge(400, None).unwrap_err();
        assert!(wrong.contains("400") && wrong.contains(CALLBACK), "{wrong}");
    }

    #[test]
    fn client_is_accepted_if_only_its_code_is_refused() {
        let judge = |status: u16, body: &str| judge_client(StatusCode::from_u16(status).unwrap(), body.as_bytes(), "tollgate");
        assert_eq!(judge(400, r#"{"error":"invalid_grant"}"#), Ok("tollgate".to_owned()));
        assert!(judge(401, r#"{"error":"invalid_client"}"#).unwrap_err().contains("oidc.client_secret"));
        assert!(judge(401, "").is_err() && judge(500, "<html>").unwrap_err().contains("500"));
    }

    #[test]
    fn clocks_may_differ_as_much_as_tokens_allow() {
        let now = Timestamp(1_794_848_497_000_000);
        let date = |seconds: i64| {
            let at = jiff::Timestamp::from_second(now.seconds() + seconds).unwrap().to_zoned(jiff::tz::TimeZone::UTC);
            let mut headers = HeaderMap::new();
            headers.insert(header::DATE, at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string().parse().unwrap());
            clock(&headers, now)
        };
        assert_eq!(date(3), Ok("3 s".to_owned()));
        assert!(date(-61).unwrap_err().to_string().contains("-61 s") && date(60).is_ok());
        assert!(clock(&HeaderMap::new(), now).is_ok(), "it states no time");
    }
}
