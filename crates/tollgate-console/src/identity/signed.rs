//! Texts that the console sends to a client and accepts back unchanged for a short time. They are authenticated, not encrypted. Used for
//! the challenge between password and one-time code, a secret that is being set up, the state of a sign-in at an OpenID provider, and the
//! challenges of passkeys.

use serde::{Serialize, de::DeserializeOwned};
use subtle::ConstantTimeEq as _;
use tollgate_core::Timestamp;
use tollgate_store::KeyHasher;

use super::webauthn;

/// Purpose of a text, which is valid for this purpose only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    SecondFactor,
    TotpSecret,
    OidcState,
    NewPasskey,
    PasskeySignIn,
}

impl Purpose {
    const fn as_str(self) -> &'static str {
        match self {
            Self::SecondFactor => "second factor",
            Self::TotpSecret => "one-time secret",
            Self::OidcState => "state of a sign-in",
            Self::NewPasskey => "new passkey",
            Self::PasskeySignIn => "sign-in with a passkey",
        }
    }

    /// How long a text is valid, in milliseconds.
    const fn life_ms(self) -> i64 {
        match self {
            Self::SecondFactor => 300_000,
            Self::TotpSecret => 900_000,
            Self::OidcState => 600_000,
            Self::NewPasskey | Self::PasskeySignIn => webauthn::TIMEOUT_MS,
        }
    }
}

fn mac(hasher: &KeyHasher, purpose: Purpose, content: &str) -> String {
    hex::encode(hasher.hash(&format!("{}\n{content}", purpose.as_str())).0)
}

/// A value as authenticated text of hexadecimal digits and dots.
pub(crate) fn sign(hasher: &KeyHasher, purpose: Purpose, value: &impl Serialize, now: Timestamp) -> String {
    let ends = now.plus_ms(purpose.life_ms());
    let json = serde_json::to_string(&(ends, value)).expect("the values have string keys only");
    let content = hex::encode(json);
    let mac = mac(hasher, purpose, &content);
    format!("{content}.{mac}")
}

/// The value of a text, if it is authentic and has not expired.
pub(crate) fn read<T: DeserializeOwned>(hasher: &KeyHasher, purpose: Purpose, text: &str, now: Timestamp) -> Option<T> {
    let (content, given) = text.split_once('.')?;
    if !bool::from(mac(hasher, purpose, content).as_bytes().ct_eq(given.as_bytes())) {
        return None;
    }
    let (ends, value): (Timestamp, T) = serde_json::from_slice(&hex::decode(content).ok()?).ok()?;
    (ends > now).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_text_is_valid_only_unmodified_for_its_purpose_until_it_expires() {
        let (hasher, other) = (KeyHasher::new(&[1; 32]), KeyHasher::new(&[2; 32]));
        let now = Timestamp(1_000);
        let text = sign(&hasher, Purpose::SecondFactor, &("ann", 7), now);
        let read_at = |hasher, purpose, text: &str, at| read::<(String, i64)>(hasher, purpose, text, at);
        assert_eq!(read_at(&hasher, Purpose::SecondFactor, &text, now), Some(("ann".to_owned(), 7)));
        assert_eq!(read_at(&other, Purpose::SecondFactor, &text, now), None);
        assert_eq!(read_at(&hasher, Purpose::TotpSecret, &text, now), None);
        assert_eq!(read_at(&hasher, Purpose::SecondFactor, &text, now.plus_ms(300_000)), None);
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(read_at(&hasher, Purpose::SecondFactor, &changed, now), None, "{at}");
        }
    }
}
