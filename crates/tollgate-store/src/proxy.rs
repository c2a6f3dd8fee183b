//! The secrets of a channel: the password in the address of its proxy, the values of its headers, and the private key of its client
//! certificate. They are kept like a credential: the row's text holds `***` instead, and they are sealed in a column of their own.

use std::fmt;

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use tollgate_core::{ChannelSpec, Secret};
use url::Url;

use crate::{FieldProblem, StoreError, credential, rows::CatalogRow, seal::Sealer};

const STARS: &str = "***";

/// A proxy's address with `***` in place of its password. An address without a password is returned unchanged.
pub fn redacted_proxy(proxy: &str) -> String {
    let Ok(mut url) = Url::parse(proxy) else { return proxy.to_owned() };
    if url.password().is_none() || url.set_password(Some(STARS)).is_err() {
        return proxy.to_owned();
    }
    // Parsing adds the path `/` to an address without one.
    let shown = url.to_string();
    if proxy.ends_with('/') { shown } else { shown.trim_end_matches('/').to_owned() }
}

/// Whether an address has a password, including `***`.
fn has_password(proxy: &str) -> bool {
    Url::parse(proxy).is_ok_and(|url| url.password().is_some())
}

/// The secrets of a channel, in clear text: the whole address of its proxy, if it has a password, the values of its headers, and the
/// private key of its client certificate.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelSecrets {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proxy: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_key: Option<String>,
}

impl fmt::Debug for ChannelSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChannelSecrets(…)")
    }
}

impl ChannelSecrets {
    /// Moves the secrets out of a spec and leaves `***` instead. `***` in the spec means the secret of the stored row (`there`).
    pub(crate) fn take_from(spec: &mut ChannelSpec, existing: Option<&(ChannelSpec, Self)>) -> Result<Self, FieldProblem> {
        let mut taken = Self::default();
        if let Some(proxy) = spec.proxy.as_mut().filter(|proxy| has_password(proxy)) {
            let shown = redacted_proxy(proxy);
            taken.proxy = if *proxy != shown {
                Some(std::mem::replace(proxy, shown))
            } else if let Some((_, kept)) = existing.filter(|(old, _)| old.proxy.as_deref() == Some(proxy.as_str())) {
                kept.proxy.clone()
            } else {
                let message = "'***' means the stored password, and none is stored for this address; give the password itself";
                return Err(FieldProblem { field: "proxy", message: message.to_owned() });
            };
        }
        for (name, value) in &mut spec.headers {
            let value = std::mem::replace(value, STARS.to_owned());
            let kept =
                || existing?.1.headers.iter().find(|(kept, _)| kept.eq_ignore_ascii_case(name)).map(|(_, kept)| kept.clone());
            let Some(whole) = (if value == STARS { kept() } else { Some(value) }) else {
                let message = format!("'***' means the stored value, and none is stored for '{name}'; give the value itself");
                return Err(FieldProblem { field: "headers", message });
            };
            taken.headers.push((name.clone(), whole));
        }
        if let Some(key) = &mut spec.client_key {
            let given = std::mem::replace(key, STARS.to_owned());
            taken.client_key = if given == STARS { existing.and_then(|(_, kept)| kept.client_key.clone()) } else { Some(given) };
            if taken.client_key.is_none() {
                let message = "'***' means the stored key, and none is stored; give the key itself";
                return Err(FieldProblem { field: "client_key", message: message.to_owned() });
            }
        }
        Ok(taken)
    }

    /// Replaces `***` in a spec by the secrets.
    pub(crate) fn put_into(&self, spec: &mut ChannelSpec) {
        if let Some(proxy) = &self.proxy {
            spec.proxy = Some(proxy.clone());
        }
        if let Some(key) = &self.client_key {
            spec.client_key = Some(key.clone());
        }
        for (name, value) in &mut spec.headers {
            if let Some((_, whole)) = self.headers.iter().find(|(kept, _)| kept.eq_ignore_ascii_case(name)) {
                value.clone_from(whole);
            }
        }
    }

    /// Which secrets differ: the passwords of the proxies, the values of the headers, the private keys.
    pub(crate) fn differ(&self, other: &Self) -> [bool; 3] {
        let text =
            |secrets: &Self| secrets.headers.iter().flat_map(|(name, value)| [name.clone(), value.clone()]).collect::<Vec<_>>();
        let same = |one: &str, two: &str| one.len() == two.len() && one.as_bytes().ct_eq(two.as_bytes()).into();
        let proxies = (self.proxy.as_deref().unwrap_or_default(), other.proxy.as_deref().unwrap_or_default());
        let keys = (self.client_key.as_deref().unwrap_or_default(), other.client_key.as_deref().unwrap_or_default());
        [!same(proxies.0, proxies.1), !same(&text(self).join("\n"), &text(other).join("\n")), !same(keys.0, keys.1)]
    }

    /// The private key of the client certificate.
    pub(crate) fn client_key(&self) -> Option<&str> {
        self.client_key.as_deref()
    }

    /// Text to seal; `None` if there is no secret.
    pub(crate) fn to_secret(&self) -> Option<Secret> {
        let is_empty = self.proxy.is_none() && self.headers.is_empty() && self.client_key.is_none();
        (!is_empty).then(|| Secret::new(serde_json::to_string(self).expect("texts are valid JSON")))
    }

    /// The secrets of a stored row.
    pub(crate) fn open(row: &CatalogRow, sealer: &Sealer) -> Result<Self, StoreError> {
        match credential::open(row, sealer)? {
            Some(secret) => serde_json::from_str(secret.expose()).map_err(|_| row.broken("its secrets cannot be understood")),
            None => Ok(Self::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_password_of_a_proxy_url_is_masked() {
        assert_eq!(redacted_proxy("http://me:secret@proxy:3128"), "http://me:***@proxy:3128");
        assert_eq!(redacted_proxy("socks5://me:s%40@[::1]:1080/"), "socks5://me:***@[::1]:1080/");
        for plain in ["http://proxy:3128", "socks5://me@proxy:1080", "http://me:***@proxy:3128"] {
            assert_eq!(redacted_proxy(plain), plain);
        }
    }

    fn spec(proxy: &str, headers: &[(&str, &str)]) -> ChannelSpec {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        ChannelSpec { proxy: Some(proxy.to_owned()), headers, ..ChannelSpec::default() }
    }

    #[test]
    fn masked_secrets_sent_back_keep_the_stored_ones() {
        let existing = spec("http://me:***@proxy:1", &[("Api-Key", STARS)]);
        let kept = ChannelSecrets {
            proxy: Some("http://me:x@proxy:1".to_owned()),
            headers: vec![("Api-Key".to_owned(), "key".to_owned())],
            client_key: Some("pem".to_owned()),
        };
        let old = Some((existing.clone(), kept.clone()));
        let mut plain = spec("http://me@proxy:1", &[]);
        assert!(ChannelSecrets::take_from(&mut plain, old.as_ref()).unwrap().to_secret().is_none());
        let mut shown = spec("http://me:***@proxy:1", &[("api-key", STARS), ("x-two", "2")]);
        let taken = ChannelSecrets::take_from(&mut shown, old.as_ref()).unwrap();
        assert_eq!(taken.headers, [("api-key".to_owned(), "key".to_owned()), ("x-two".to_owned(), "2".to_owned())]);
        assert_eq!(taken.proxy, kept.proxy);
        assert_eq!(shown, spec("http://me:***@proxy:1", &[("api-key", STARS), ("x-two", STARS)]));
        let mut whole = shown;
        taken.put_into(&mut whole);
        assert_eq!(whole, spec("http://me:x@proxy:1", &[("api-key", "key"), ("x-two", "2")]));
        let field = |mut given: ChannelSpec| ChannelSecrets::take_from(&mut given, old.as_ref()).unwrap_err().field;
        assert_eq!(field(spec("http://me:***@proxy:2", &[])), "proxy");
        assert_eq!(field(spec("http://proxy:2", &[("cookie", STARS)])), "headers");
        let with_key = |key: &str| ChannelSpec { client_key: Some(key.to_owned()), ..ChannelSpec::default() };
        let mut shown = with_key(STARS);
        assert_eq!(ChannelSecrets::take_from(&mut shown, old.as_ref()).unwrap().client_key(), Some("pem"));
        let mut new = with_key("other pem");
        assert_eq!(ChannelSecrets::take_from(&mut new, old.as_ref()).unwrap().client_key(), Some("other pem"));
        assert_eq!(new, with_key(STARS));
        assert_eq!(ChannelSecrets::take_from(&mut with_key(STARS), None).unwrap_err().field, "client_key");
    }
}
