//! Authentication: an admin key as a bearer token in the `Authorization` header. Wrong keys are counted per address.

use http::{HeaderMap, header};
use tollgate_store::{AdminKey, looks_like_admin_key};

use crate::{
    api_error::ApiError,
    state::{ConsoleState, RequestMeta},
};

/// Looks up the admin key of a request.
/// 401 without a valid key, 429 after too many wrong keys from this address.
pub(crate) async fn authenticate(
    state: &ConsoleState,
    request_meta: &RequestMeta,
    headers: &HeaderMap,
) -> Result<AdminKey, ApiError> {
    let Some(token) = bearer_token(headers)? else { return Err(ApiError::no_key()) };
    if looks_like_admin_key(token) {
        let hash = state.store.hasher.hash(token);
        if let Some(key) = state.store.listing.admin_key(&hash, state.gateway.now()).await? {
            return Ok(key);
        }
    }
    match state.gateway.wrong_key(request_meta.address) {
        Ok(()) => Err(ApiError::wrong_key()),
        Err(retry_after) => Err(ApiError::too_many_failed_keys(retry_after)),
    }
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
