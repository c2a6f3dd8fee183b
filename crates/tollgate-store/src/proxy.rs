//! The password in the address of a channel's proxy. It is kept like a credential: the row's text holds the address as it may
//! be shown, `***` in its place, and the whole address lies sealed beside it.

use tollgate_core::Secret;
use url::Url;

use crate::{ChannelSpec, StoreError, credential, rows::CatalogRow, seal::Sealer};

const STARS: &str = "***";

/// A proxy's address as it may be shown: `***` for its password. One without a password is shown as it is.
#[must_use]
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
    /// `***`: the one that is there.
    Kept,
    /// This one, in the whole address.
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
    fn a_proxys_password_is_hidden_and_nothing_else() {
        assert_eq!(redacted_proxy("http://me:secret@proxy:3128"), "http://me:***@proxy:3128");
        assert_eq!(redacted_proxy("socks5://me:s%40@[::1]:1080/"), "socks5://me:***@[::1]:1080/");
        for plain in ["http://proxy:3128", "socks5://me@proxy:1080", "http://me:***@proxy:3128"] {
            assert_eq!(redacted_proxy(plain), plain);
        }
    }

    #[test]
    fn what_was_shown_and_comes_back_is_not_a_password() {
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
