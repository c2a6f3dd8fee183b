//! The cookies of a session, of a sign-in at an OpenID provider and of a sign-in with a passkey. Over HTTPS their names have the prefix
//! `__Host-`: no other host and no plain connection can set them.

use http::{HeaderMap, header};

use super::webauthn;

const NAME: &str = "tollgate_session";
const SECURE_NAME: &str = "__Host-tollgate_session";
/// Time for a sign-in at the OpenID provider, in seconds.
const OIDC_AGE_S: i64 = 600;

const fn name(secure: bool) -> &'static str {
    if secure { SECURE_NAME } else { NAME }
}

/// The token in the session's cookie. A cookie that is sent twice is ignored: one of the two was not set by the console.
pub(crate) fn session_token(headers: &HeaderMap, secure: bool) -> Option<&str> {
    cookie(headers, name(secure))
}

/// The state that a browser keeps while it is at the OpenID provider.
pub(crate) fn oidc_state(headers: &HeaderMap, secure: bool) -> Option<&str> {
    cookie(headers, oidc_name(secure))
}

/// `Set-Cookie` for [`oidc_state`]. It is sent with the request that the provider causes: `SameSite=Lax` allows that for links.
pub(crate) fn set_oidc_state(state: &str, secure: bool) -> String {
    set(oidc_name(secure), state, OIDC_AGE_S, secure)
}

pub(crate) fn clear_oidc_state(secure: bool) -> String {
    set(oidc_name(secure), "", 0, secure)
}

/// The signed challenge that a browser keeps while it asks for a passkey.
pub(crate) fn passkey_state(headers: &HeaderMap, secure: bool) -> Option<&str> {
    cookie(headers, passkey_name(secure))
}

/// `Set-Cookie` for [`passkey_state`].
pub(crate) fn set_passkey_state(state: &str, secure: bool) -> String {
    set(passkey_name(secure), state, webauthn::TIMEOUT_MS / 1_000, secure)
}

pub(crate) fn clear_passkey_state(secure: bool) -> String {
    set(passkey_name(secure), "", 0, secure)
}

const fn passkey_name(secure: bool) -> &'static str {
    if secure { "__Host-tollgate_passkey" } else { "tollgate_passkey" }
}

const fn oidc_name(secure: bool) -> &'static str {
    if secure { "__Host-tollgate_oidc" } else { "tollgate_oidc" }
}

/// The value of a cookie that is sent once.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut found = pairs.filter(|(known, _)| *known == name).map(|(_, value)| value);
    let value = found.next()?;
    if found.next().is_some() { None } else { Some(value) }
}

/// `Set-Cookie` for a new session. Without an age, browsers remove it when they are closed.
pub(crate) fn set_session(token: &str, max_age_s: Option<i64>, secure: bool) -> String {
    match max_age_s {
        Some(max_age_s) => set(name(secure), token, max_age_s, secure),
        None => format!("{}{}", plain(name(secure), token), secure_flag(secure)),
    }
}

fn set(name: &str, value: &str, max_age_s: i64, secure: bool) -> String {
    format!("{}; Max-Age={max_age_s}{}", plain(name, value), secure_flag(secure))
}

fn plain(name: &str, value: &str) -> String {
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax")
}

const fn secure_flag(secure: bool) -> &'static str {
    if secure { "; Secure" } else { "" }
}

/// `Set-Cookie` that removes the session's cookie.
pub(crate) fn clear_session(secure: bool) -> String {
    set(name(secure), "", 0, secure)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn token(lines: &[&str], secure: bool) -> Option<String> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::COOKIE, HeaderValue::from_str(line).unwrap());
        }
        session_token(&headers, secure).map(str::to_owned)
    }

    #[test]
    fn cookie_is_read_by_its_exact_name_once() {
        assert_eq!(token(&["a=1; tollgate_session=x; b=2"], false).as_deref(), Some("x"));
        assert_eq!(token(&["a=1", "__Host-tollgate_session=x"], true).as_deref(), Some("x"));
        assert_eq!(token(&["tollgate_session=x"], true), None, "any page of the domain could have set it");
        assert_eq!(token(&["tollgate_session=x; tollgate_session=y"], false), None);
        assert_eq!(token(&["tollgate_session=x", "tollgate_session=x"], false), None);
        assert_eq!(token(&["xtollgate_session=x; tollgate_session2=y"], false), None);
        assert_eq!(token(&[], false), None);
    }

    #[test]
    fn session_cookie_has_the_restricting_attributes() {
        let cookie = set_session("x", Some(60), true);
        assert_eq!(cookie, "__Host-tollgate_session=x; Path=/; HttpOnly; SameSite=Lax; Max-Age=60; Secure");
        assert_eq!(set_session("x", None, true), "__Host-tollgate_session=x; Path=/; HttpOnly; SameSite=Lax; Secure");
        assert_eq!(set_session("x", None, false), "tollgate_session=x; Path=/; HttpOnly; SameSite=Lax");
        assert!(!set_session("x", Some(60), false).contains("Secure") && clear_session(true).contains("Max-Age=0"));
    }
}
