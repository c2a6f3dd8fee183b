//! The password in the address of a channel's proxy. It is stored like a credential: the row holds the address with `***` in its
//! place, and the whole address is sealed beside it.

use tollgate_core::Secret;
use url::Url;

use crate::{ChannelSpec, StoreError, credential, rows::CatalogRow, seal::Sealer};

const STARS: &str = "***";

/// A proxy's address as it may be shown: `***` for its password. One without a password is shown as it is.
pub fn redacted_proxy(proxy: &str) -> String {
    let Ok(mut url) = Url::parse(proxy) else { return proxy.to_owned() };
    if url.password().is_none() || url.set_password(Some(STARS)).is_err() {
        return proxy.to_owned();
    }
    // A path that was not written is none.
    let shown = url.to_string();
    if proxy.ends_with('/') { shown } else { shown.trim_end_matches('/').to_owned() }
}

/// Whether an address has a password, be it `***`.
fn has_password(proxy: &str) -> bool {
    Url::parse(proxy).is_ok_and(|url| url.password().is_some())
}

/// What a channel's spec says about the password of its proxy.
pub(crate) enum ProxyPassword {
    None,
    /// `***`: the stored password.
    Kept,
    /// The whole address.
    Given(Secret),
}

impl ProxyPassword {
    /// Takes the password out of a spec.
    pub(crate) fn take_from(spec: &mut ChannelSpec) -> Self {
        let Some(proxy) = spec.proxy.as_mut().filter(|proxy| has_password(proxy)) else { return Self::None };
        let shown = redacted_proxy(proxy);
        if *proxy == shown { Self::Kept } else { Self::Given(Secret::new(std::mem::replace(proxy, shown))) }
    }
}

/// The whole address of a channel's proxy, where it has a password.
pub(crate) fn whole(row: &CatalogRow, spec: &ChannelSpec, sealer: &Sealer) -> Result<Option<Secret>, StoreError> {
    if spec.proxy.is_some() { credential::open(row, sealer) } else { Ok(None) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redaction_hides_only_the_password() {
        assert_eq!(redacted_proxy("http://me:secret@proxy:3128"), "http://me:***@proxy:3128");
        assert_eq!(redacted_proxy("socks5://me:s%40@[::1]:1080/"), "socks5://me:***@[::1]:1080/");
        for plain in ["http://proxy:3128", "socks5://me@proxy:1080", "http://me:***@proxy:3128"] {
            assert_eq!(redacted_proxy(plain), plain);
        }
    }

    #[test]
    fn redacted_address_keeps_the_password() {
        let of = |proxy: &str| {
            let mut spec = ChannelSpec { proxy: Some(proxy.to_owned()), ..ChannelSpec::default() };
            (ProxyPassword::take_from(&mut spec), spec.proxy.unwrap())
        };
        assert!(matches!(of("http://me@proxy:1"), (ProxyPassword::None, _)));
        assert!(matches!(of("http://me:***@proxy:1"), (ProxyPassword::Kept, _)));
        let (ProxyPassword::Given(whole), left) = of("http://me:x@proxy:1") else { panic!("a password") };
        assert_eq!((whole.expose(), left.as_str()), ("http://me:x@proxy:1", "http://me:***@proxy:1"));
    }
}
