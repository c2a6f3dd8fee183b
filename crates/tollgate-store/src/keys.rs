//! Service keys, admin keys and the secrets of sessions, invites and links: their format, their generation, and the keyed hash under
//! which they are stored.
//!
//! A generated service key is `sk-tg-`, 43 base62 characters (256 random bits) and 6 base62 characters (CRC-32 of everything
//! before). Some client libraries require `sk-`; the checksum rejects typing errors without a database query. Imported secrets may
//! have any format.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use tollgate_core::{Secret, Timestamp};
use zeroize::Zeroizing;

use crate::RandomSource;

const KEY_PREFIX: &str = "sk-tg-";
/// Prefix of admin keys, which are never valid for model requests.
const ADMIN_KEY_PREFIX: &str = "tga-";
const SESSION_PREFIX: &str = "tgs-";
const INVITE_PREFIX: &str = "tgi-";
const LINK_PREFIX: &str = "tgl-";

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const RANDOM_DIGITS: usize = 43;
const CHECK_DIGITS: usize = 6;
const SHOWN_FIRST: usize = 10;
const SHOWN_LAST: usize = 4;

/// The keyed hash of a key: HMAC-SHA-256 with the database's pepper.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub [u8; 32]);

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(…)")
    }
}

/// The stored part of a key's secret. Made by [`NewKey::secret`] or [`KeyHasher::import`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySecret {
    pub hash: KeyHash,
    /// First 10 characters; fewer of a short imported secret.
    pub prefix: String,
    /// Last 4 characters; fewer of a short imported secret.
    pub suffix: String,
    /// The secret that this one replaced, while it is valid too.
    pub previous: Option<PreviousSecret>,
}

/// A secret that was replaced, and the time until which it is valid beside the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviousSecret {
    pub hash: KeyHash,
    pub until: Timestamp,
}

impl KeySecret {
    fn new(hash: KeyHash, prefix: &str, suffix: &str) -> Self {
        Self { hash, prefix: prefix.to_owned(), suffix: suffix.to_owned(), previous: None }
    }

    /// The hashes of the secrets, the present one first.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = KeyHash> {
        [Some(self.hash), self.previous.map(|previous| previous.hash)].into_iter().flatten()
    }

    /// The time at which the secret with this hash ends; `None`: with its key.
    pub(crate) fn end_of(&self, hash: &KeyHash) -> Option<Timestamp> {
        self.previous.filter(|previous| self.hash != *hash && previous.hash == *hash).map(|previous| previous.until)
    }
}

/// Hashes keys with the pepper. Cheap to clone.
#[derive(Clone)]
pub struct KeyHasher(Hmac<Sha256>);

impl KeyHasher {
    /// A hasher with this pepper.
    ///
    /// # Panics
    /// Never: HMAC accepts keys of any length.
    pub fn new(pepper: &[u8; 32]) -> Self {
        Self(Hmac::new_from_slice(pepper).expect("HMAC accepts keys of any length"))
    }

    pub fn hash(&self, presented: &str) -> KeyHash {
        let mut mac = self.0.clone();
        mac.update(presented.as_bytes());
        KeyHash(mac.finalize().into_bytes().into())
    }

    /// The stored part of a secret chosen by the operator.
    pub fn import(&self, secret: &Secret) -> Result<KeySecret, InvalidSecret> {
        let text = secret.expose();
        check_import(text)?;
        // Show less of a short secret, so that enough of it stays hidden.
        let (first, last) = (SHOWN_FIRST.min(text.len() / 4), SHOWN_LAST.min(text.len() / 8));
        Ok(KeySecret::new(self.hash(text), &text[..first], &text[text.len() - last..]))
    }

    /// Whether a secret has this hash, compared in constant time.
    pub fn matches(&self, secret: &Secret, stored: &KeyHash) -> bool {
        self.hash(secret.expose()).0.ct_eq(&stored.0).into()
    }
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHasher(…)")
    }
}

/// Why a secret is not acceptable as a service key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSecret {
    #[error("a secret must have 16 to 200 characters, this one has {0}")]
    Length(usize),
    /// Contains something other than visible ASCII characters.
    #[error("a secret must consist of visible ASCII characters, without blanks")]
    Characters,
    /// Begins like a generated key, but its checksum is wrong.
    #[error("a secret that begins with 'sk-tg-' must be a whole key; its checksum does not match")]
    Checksum,
    #[error("a secret that begins with 'tga-' is an admin key; it cannot be a service key")]
    Admin,
}

/// A newly generated key. It can be shown exactly once: no `Debug`, no `Clone`, no `Display`.
#[expect(missing_debug_implementations, reason = "a key in clear text exists only in the answer that created it")]
pub struct NewKey(Zeroizing<String>);

impl NewKey {
    pub fn generate(random: &RandomSource) -> Self {
        Self::generate_with(KEY_PREFIX, random)
    }

    pub fn generate_admin(random: &RandomSource) -> Self {
        Self::generate_with(ADMIN_KEY_PREFIX, random)
    }

    /// The secret of a session, for its cookie.
    pub fn generate_session(random: &RandomSource) -> Self {
        Self::generate_with(SESSION_PREFIX, random)
    }

    pub fn generate_invite(random: &RandomSource) -> Self {
        Self::generate_with(INVITE_PREFIX, random)
    }

    /// The secret of a one-time link.
    pub fn generate_link(random: &RandomSource) -> Self {
        Self::generate_with(LINK_PREFIX, random)
    }

    fn generate_with(prefix: &str, random: &RandomSource) -> Self {
        let mut bits = Zeroizing::new([0_u8; 32]);
        random.fill(bits.as_mut_slice());
        let mut text = Zeroizing::new(String::with_capacity(prefix.len() + RANDOM_DIGITS + CHECK_DIGITS));
        text.push_str(prefix);
        push_base62(&mut text, bits.as_mut_slice(), RANDOM_DIGITS);
        let mut check = crc32fast::hash(text.as_bytes()).to_be_bytes();
        push_base62(&mut text, &mut check, CHECK_DIGITS);
        Self(text)
    }

    /// The stored part of the key.
    pub fn secret(&self, hasher: &KeyHasher) -> KeySecret {
        let text = self.0.as_str();
        let (first, last) = (&text[..SHOWN_FIRST], &text[text.len() - SHOWN_LAST..]);
        KeySecret::new(hasher.hash(text), first, last)
    }

    /// The key in clear text, for the one answer that returns it.
    pub fn expose_once(self) -> String {
        self.0.as_str().to_owned()
    }
}

/// Whether a text can be a service key: a generated key with a valid checksum, or 16 to 200 visible ASCII characters, which may
/// have been imported.
pub fn looks_like_key(presented: &str) -> bool {
    check_import(presented).is_ok()
}

/// Whether a text has the format of an admin key, checksum included.
pub fn looks_like_admin_key(presented: &str) -> bool {
    presented.starts_with(ADMIN_KEY_PREFIX) && has_checksum(presented, ADMIN_KEY_PREFIX)
}

/// Whether a text has the format of a session's secret, checksum included.
pub fn looks_like_session(presented: &str) -> bool {
    presented.starts_with(SESSION_PREFIX) && has_checksum(presented, SESSION_PREFIX)
}

pub(crate) fn check_import(text: &str) -> Result<(), InvalidSecret> {
    if !(16..=200).contains(&text.len()) {
        return Err(InvalidSecret::Length(text.chars().count()));
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(InvalidSecret::Characters);
    }
    if text.starts_with(ADMIN_KEY_PREFIX) {
        return Err(InvalidSecret::Admin);
    }
    if text.starts_with(KEY_PREFIX) && !has_checksum(text, KEY_PREFIX) {
        return Err(InvalidSecret::Checksum);
    }
    Ok(())
}

fn has_checksum(text: &str, prefix: &str) -> bool {
    let body = prefix.len() + RANDOM_DIGITS;
    if text.len() != body + CHECK_DIGITS || !text[prefix.len()..].bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return false;
    }
    let mut expected = String::with_capacity(CHECK_DIGITS);
    push_base62(&mut expected, &mut crc32fast::hash(&text.as_bytes()[..body]).to_be_bytes(), CHECK_DIGITS);
    expected == text[body..]
}

/// Appends `digits` base62 digits of a big-endian number, most significant first. Overwrites the number.
fn push_base62(text: &mut String, number: &mut [u8], digits: usize) {
    let mut reversed = Zeroizing::new(Vec::with_capacity(digits));
    for _ in 0..digits {
        let mut rest: u32 = 0;
        for byte in number.iter_mut() {
            let value = (rest << 8) | u32::from(*byte);
            *byte = u8::try_from(value / 62).expect("a remainder below 62 keeps the quotient below 256");
            rest = value % 62;
        }
        reversed.push(DIGITS[rest as usize]);
    }
    text.extend(reversed.iter().rev().map(|digit| char::from(*digit)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random() -> RandomSource {
        RandomSource::from_fn(|bytes| {
            for (i, byte) in bytes.iter_mut().enumerate() {
                *byte = u8::try_from(i * 7 % 251).unwrap();
            }
        })
    }

    #[test]
    fn generated_key_has_a_valid_checksum() {
        let key = NewKey::generate(&random()).expose_once();
        assert_eq!(key.len(), 6 + 43 + 6);
        assert!(looks_like_key(&key), "{key}");
        for i in KEY_PREFIX.len()..key.len() {
            let mut wrong = key.clone().into_bytes();
            wrong[i] = if wrong[i] == b'x' { b'y' } else { b'x' };
            assert!(!looks_like_key(std::str::from_utf8(&wrong).unwrap()), "a typing error at {i} was not noticed");
        }
        assert!(!looks_like_key(&key[..key.len() - 1]));
    }

    #[test]
    fn secret_of_256_bits_fits_into_43_digits() {
        let all = RandomSource::from_fn(|bytes| bytes.fill(0xff));
        let none = RandomSource::from_fn(|bytes| bytes.fill(0));
        let (all, none) = (NewKey::generate(&all).expose_once(), NewKey::generate(&none).expose_once());
        assert_eq!(&none[6..49], "0".repeat(43));
        // 2^256 - 1 in base 62, computed independently.
        assert_eq!(&all[6..49], "yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp1");
    }

    #[test]
    fn imported_secret_may_have_any_format_within_bounds() {
        assert!(looks_like_key("tg-acceptance-key-0123456789abcdefghijklmnop"));
        assert!(looks_like_key(&"a".repeat(16)) && looks_like_key(&"a".repeat(200)));
        for bad in ["a".repeat(15), "a".repeat(201), "with a blank in the middle".to_owned(), "schlüssel-mit-umlaut".to_owned()] {
            assert!(!looks_like_key(&bad), "{bad}");
        }
        let admin = NewKey::generate_admin(&random()).expose_once();
        assert!(!looks_like_key(&admin), "an admin key is never valid on the model path");
        assert!(looks_like_admin_key(&admin) && !looks_like_admin_key(&admin[..admin.len() - 1]));
        assert!(!looks_like_admin_key(&NewKey::generate(&random()).expose_once()), "nor a service key on the admin API");
    }

    #[test]
    fn hash_depends_on_the_pepper() {
        let (one, other) = (KeyHasher::new(&[1; 32]), KeyHasher::new(&[2; 32]));
        let secret = Secret::new("a-secret-of-some-length".to_owned());
        let stored = one.import(&secret).unwrap();
        assert_eq!((stored.prefix.as_str(), stored.suffix.as_str()), ("a-sec", "th"));
        assert!(one.matches(&secret, &stored.hash));
        assert!(!other.matches(&secret, &stored.hash));
        assert_eq!(format!("{:?}", stored.hash), "KeyHash(…)");
    }
}
