//! Authentication: an admin key as a bearer token in the `Authorization` header, or the cookie of a session. Wrong keys are counted
//! per address. Writes of a session must come from the console's own pages and carry its token.

use http::{HeaderMap, Method, Uri, header, request::Parts};
use tollgate_store::{looks_like_admin_key, looks_like_session};

use crate::{
    api_error::ApiError,
    identity::{
        SignedIn, cookies,
        csrf::{csrf_token, is_token},
        origin::{RequestOrigin, origin_of},
    },
    principal::Principal,
    state::{ConsoleState, RequestMeta},
};

/// Header with the token that writes of a session must carry.
const CSRF_HEADER: &str = "x-csrf-token";

/// Authenticates the sender of a request. An admin key takes precedence over a session.
/// 401 without a valid one, 429 after too many wrong keys from this address, 403 for a write that may be another page's.
pub(crate) async fn authenticate(state: &ConsoleState, request_meta: &RequestMeta, parts: &Parts) -> Result<Principal, ApiError> {
    if let Some(token) = bearer_token(&parts.headers)? {
        return admin_key(state, request_meta, token).await;
    }
    let signed_in = match session_token(state, &parts.headers) {
        Some(token) => session(state, token).await?.ok_or_else(ApiError::no_session)?,
        None => return Err(ApiError::no_key()),
    };
    if parts.method != Method::GET && parts.method != Method::HEAD {
        let sent = parts.headers.get(CSRF_HEADER).map_or(&[][..], http::HeaderValue::as_bytes);
        check_write(state, (&parts.headers, &parts.uri), &signed_in, sent)?;
    }
    touch(state, request_meta, &signed_in).await;
    Ok(Principal::Session(Box::new(signed_in)))
}

/// The signed-in member, for pages that visitors may read as well; `None` without a valid session.
pub(crate) async fn reader(
    state: &ConsoleState,
    request_meta: &RequestMeta,
    headers: &HeaderMap,
) -> Result<Option<SignedIn>, ApiError> {
    let Some(token) = session_token(state, headers) else { return Ok(None) };
    let signed_in = session(state, token).await?;
    if let Some(signed_in) = &signed_in {
        touch(state, request_meta, signed_in).await;
    }
    Ok(signed_in)
}

fn session_token<'a>(state: &ConsoleState, headers: &'a HeaderMap) -> Option<&'a str> {
    cookies::session_token(headers, state.identity.settings.is_secure())
}

/// Notes the use of a session from time to time.
async fn touch(state: &ConsoleState, request_meta: &RequestMeta, signed_in: &SignedIn) {
    if signed_in.needs_touch(state.gateway.now(), state.gateway.session_times().idle()) {
        let address = request_meta.address.map(|address| address.to_string()).unwrap_or_default();
        let touched = state.store.identity.touch_session(&signed_in.session, state.gateway.now(), &address).await;
        // A database that takes no writes at the moment must not sign people out.
        if let Err(error) = touched {
            tracing::warn!(%error, "the use of a session was not noted");
        }
    }
}

/// Whether the sender of a request whose response is still streaming has the same scope as before: the session has not ended, the
/// admin key is not revoked.
pub(crate) async fn is_still_known(state: &ConsoleState, headers: &HeaderMap, principal: &Principal) -> Result<bool, ApiError> {
    match principal {
        Principal::LocalOperator(_) | Principal::Anonymous => Ok(true),
        Principal::Key(key) => {
            let Some(token) = bearer_token(headers)? else { return Ok(false) };
            let found = state.store.listing.admin_key(&state.store.hasher.hash(token), state.gateway.now()).await?;
            Ok(found.is_some_and(|found| found.scope == key.scope))
        }
        Principal::Session(signed_in) => {
            let Some(token) = cookies::session_token(headers, state.identity.settings.is_secure()) else { return Ok(false) };
            Ok(session(state, token).await?.is_some_and(|found| found.session.id == signed_in.session.id))
        }
    }
}

async fn admin_key(state: &ConsoleState, request_meta: &RequestMeta, token: &str) -> Result<Principal, ApiError> {
    if looks_like_admin_key(token) {
        let hash = state.store.hasher.hash(token);
        if let Some(key) = state.store.listing.admin_key(&hash, state.gateway.now()).await? {
            return Ok(Principal::Key(key));
        }
    }
    match state.gateway.wrong_key(request_meta.address) {
        Ok(()) => Err(ApiError::wrong_key()),
        Err(retry_after) => Err(ApiError::too_many_failed_keys(retry_after)),
    }
}

/// The valid session with this token.
async fn session(state: &ConsoleState, token: &str) -> Result<Option<SignedIn>, ApiError> {
    if !looks_like_session(token) {
        return Ok(None);
    }
    let (hash, idle) = (state.store.hasher.hash(token), state.gateway.session_times().idle());
    let found = state.store.identity.session(&hash, state.gateway.now(), idle).await?;
    let csrf_token = csrf_token(&state.store.hasher, token);
    Ok(found.map(|(session, member)| SignedIn { session, member, csrf_token }))
}

/// A write of a session comes from the console's own pages, and carries the token that only they can read.
pub(crate) fn check_write(
    state: &ConsoleState,
    (headers, uri): (&HeaderMap, &Uri),
    signed_in: &SignedIn,
    sent: &[u8],
) -> Result<(), ApiError> {
    if origin_of(headers, uri, &state.identity.settings.url) != RequestOrigin::Same {
        return Err(ApiError::other_origin());
    }
    if is_token(&signed_in.csrf_token, sent) { Ok(()) } else { Err(ApiError::no_csrf_token()) }
}

/// Refuses requests that a page of another origin causes: it could sign a browser in as another member.
pub(crate) fn refuse_other_origins(state: &ConsoleState, parts: &Parts) -> Result<(), ApiError> {
    let is_write = parts.method != Method::GET && parts.method != Method::HEAD;
    let origin = origin_of(&parts.headers, &parts.uri, &state.identity.settings.url);
    if is_write && origin == RequestOrigin::Other { Err(ApiError::other_origin()) } else { Ok(()) }
}

/// The bearer token, `None` if there is no token. More than one `Authorization` header is an error.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), more) = (values.next(), values.next()) else { return Ok(None) };
    if more.is_some() {
        return Err(ApiError::wrong_key());
    }
    let Ok(text) = value.to_str() else { return Err(ApiError::wrong_key()) };
    match text.trim().split_once(' ') {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") && !key.trim().is_empty() => Ok(Some(key.trim())),
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("bearer") => Ok(None),
        None if text.trim().eq_ignore_ascii_case("bearer") => Ok(None),
        Some(_) | None => Err(ApiError::wrong_key()),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn token_of(values: &[&str]) -> Result<Option<String>, ApiError> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        bearer_token(&headers).map(|found| found.map(str::to_owned))
    }

    #[test]
    fn exactly_one_bearer_token_is_accepted() {
        assert_eq!(token_of(&["Bearer tga-x"]), Ok(Some("tga-x".to_owned())));
        assert_eq!(token_of(&["bearer  tga-x "]), Ok(Some("tga-x".to_owned())));
        assert_eq!(token_of(&[]), Ok(None));
        assert_eq!(token_of(&["Bearer "]), Ok(None));
        assert_eq!(token_of(&["Basic YWRtaW46YWRtaW4="]), Err(ApiError::wrong_key()));
        assert_eq!(token_of(&["Bearer tga-x", "Bearer tga-y"]), Err(ApiError::wrong_key()));
        assert_eq!(token_of(&["tga-x"]), Err(ApiError::wrong_key()));
    }
}
