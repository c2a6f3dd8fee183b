//! Who asks: an admin key in the `Authorization` header, and nothing else. Wrong ones are counted by address.

use http::{HeaderMap, header};
use tollgate_store::{AdminKey, looks_like_admin_key};

use crate::{
    api_error::ApiError,
    state::{ConsoleState, RequestMeta},
};

/// The admin key behind a request.
pub(crate) async fn authenticate(
    state: &ConsoleState,
    request_meta: &RequestMeta,
    headers: &HeaderMap,
) -> Result<AdminKey, ApiError> {
    let Some(presented) = presented(headers)? else { return Err(ApiError::no_key()) };
    if looks_like_admin_key(presented) {
        let hash = state.store.hasher.hash(presented);
        if let Some(key) = state.store.listing.admin_key(&hash, state.gateway.now()).await? {
            return Ok(key);
        }
    }
    match state.gateway.wrong_key(request_meta.address) {
        Ok(()) => Err(ApiError::wrong_key()),
        Err(retry_after) => Err(ApiError::too_many_failed_keys(retry_after)),
    }
}

/// The one bearer credential; more than one header is not to be guessed about.
fn presented(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
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

    fn of(values: &[&str]) -> Result<Option<String>, ApiError> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        presented(&headers).map(|found| found.map(str::to_owned))
    }

    #[test]
    fn only_one_bearer_credential_is_read() {
        assert_eq!(of(&["Bearer tga-x"]), Ok(Some("tga-x".to_owned())));
        assert_eq!(of(&["bearer  tga-x "]), Ok(Some("tga-x".to_owned())));
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&["Bearer "]), Ok(None));
        assert_eq!(of(&["Basic YWRtaW46YWRtaW4="]), Err(ApiError::wrong_key()));
        assert_eq!(of(&["Bearer tga-x", "Bearer tga-y"]), Err(ApiError::wrong_key()));
        assert_eq!(of(&["tga-x"]), Err(ApiError::wrong_key()));
    }
}
