//! Encryption of secrets at rest (XChaCha20-Poly1305). The master key seals one random data key per database; the data key seals
//! credentials and the pepper. Each value is bound to its table, column and row, so that a sealed value copied to another row does
//! not open.

mod master;
mod secret_bytes;

use std::sync::Arc;

use arc_swap::ArcSwap;
use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::{RandomSource, StoreError};

pub use master::{MasterKeySource, new_master_key};
pub(crate) use master::{MasterKeys, replace_secret, write_secret};
pub(crate) use secret_bytes::{SecretBytes, generate_key};

/// Version of the sealed format: version byte, nonce, ciphertext with tag.
const VERSION: u8 = 1;
const NONCE_LENGTH: usize = 24;

/// Table, column and row of a sealed value; authenticated with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SealContext<'a> {
    pub(crate) table: &'static str,
    pub(crate) column: &'static str,
    pub(crate) row: &'a str,
}

impl SealContext<'_> {
    fn associated(&self) -> Vec<u8> {
        let Self { table, column, row } = self;
        format!("tollgate\n{table}\n{column}\n{row}\n{VERSION}").into_bytes()
    }

    fn error(&self) -> StoreError {
        StoreError::Sealed { table: self.table, column: self.column, row: self.row.to_owned() }
    }
}

/// Encrypts with one key, and decrypts with it and its predecessors. Clones share the keys.
#[derive(Clone)]
pub(crate) struct Sealer {
    /// Never empty; the first one seals.
    ciphers: Arc<ArcSwap<Vec<(KeyFingerprint, XChaCha20Poly1305)>>>,
    random: RandomSource,
}

/// Identifies a key without revealing it.
pub(crate) type KeyFingerprint = [u8; 8];

/// The fingerprint of a key.
pub(crate) fn fingerprint(key: &SecretBytes) -> KeyFingerprint {
    let mut hash = Sha256::new();
    hash.update(b"tollgate key fingerprint");
    hash.update(key.as_slice());
    let hash: [u8; 32] = hash.finalize().into();
    hash[..8].try_into().expect("a hash has 32 bytes")
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer(…)")
    }
}

impl Sealer {
    pub(crate) fn new(key: &SecretBytes, random: RandomSource) -> Self {
        Self { ciphers: Arc::new(ArcSwap::from_pointee(vec![cipher(key)])), random }
    }

    /// Seals with `key` from now on, and also opens with `more`. Earlier keys still open.
    pub(crate) fn use_keys(&self, key: &SecretBytes, more: Option<&SecretBytes>) {
        let given: Vec<_> = [cipher(key)].into_iter().chain(more.map(cipher)).collect();
        self.ciphers.rcu(|known| {
            let others = known.iter().filter(|(id, _)| !given.iter().any(|(given, _)| given == id));
            given.iter().chain(others).cloned().collect::<Vec<_>>()
        });
    }

    /// Seals and opens with the keys of another one too.
    pub(crate) fn adopt(&self, other: &Self) {
        let given = other.ciphers.load();
        self.ciphers.rcu(|known| {
            let others = known.iter().filter(|(id, _)| !given.iter().any(|(given, _)| given == id));
            given.iter().chain(others).cloned().collect::<Vec<_>>()
        });
    }

    pub(crate) fn seal(&self, context: SealContext<'_>, secret: &[u8]) -> Vec<u8> {
        let nonce: [u8; NONCE_LENGTH] = self.random.bytes();
        let payload = Payload { msg: secret, aad: &context.associated() };
        let ciphers = self.ciphers.load();
        let (_, cipher) = ciphers.first().expect("there is always a key");
        let sealed = cipher.encrypt(&XNonce::from(nonce), payload).expect("secrets are far below the cipher's limit");
        let mut out = Vec::with_capacity(1 + NONCE_LENGTH + sealed.len());
        out.push(VERSION);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&sealed);
        out
    }

    /// Decrypts a secret that was sealed in this context with this key.
    pub(crate) fn open(&self, context: SealContext<'_>, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let Some((&VERSION, rest)) = sealed.split_first() else { return Err(context.error()) };
        let Some((nonce, text)) = rest.split_first_chunk::<NONCE_LENGTH>() else { return Err(context.error()) };
        let (nonce, aad) = (XNonce::from(*nonce), context.associated());
        let ciphers = self.ciphers.load();
        let mut opened = ciphers.iter().map(|(_, cipher)| cipher.decrypt(&nonce, Payload { msg: text, aad: &aad }));
        opened.find_map(Result::ok).map(Zeroizing::new).ok_or_else(|| context.error())
    }

    /// Decrypts a secret that is not sealed with the current key; `None` if it is.
    pub(crate) fn open_with_old(&self, context: SealContext<'_>, sealed: &[u8]) -> Option<Result<Zeroizing<Vec<u8>>, StoreError>> {
        let ciphers = self.ciphers.load();
        let current = Self { ciphers: Arc::new(ArcSwap::from_pointee(ciphers[..1].to_vec())), random: self.random.clone() };
        if current.open(context, sealed).is_ok() { None } else { Some(self.open(context, sealed)) }
    }

    pub(crate) fn open_bytes(&self, context: SealContext<'_>, sealed: &[u8]) -> Result<SecretBytes, StoreError> {
        let opened = self.open(context, sealed)?;
        let bytes: [u8; 32] = opened.as_slice().try_into().map_err(|_| context.error())?;
        Ok(Zeroizing::new(bytes))
    }
}

fn cipher(key: &SecretBytes) -> (KeyFingerprint, XChaCha20Poly1305) {
    (fingerprint(key), XChaCha20Poly1305::new_from_slice(key.as_slice()).expect("the key has the cipher's length"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: SealContext<'static> = SealContext { table: "accounts", column: "credential", row: "acc_1" };

    fn sealer(key: u8) -> Sealer {
        Sealer::new(&Zeroizing::new([key; 32]), RandomSource::system())
    }

    #[test]
    fn sealed_secret_opens_only_in_its_context_with_its_key() {
        let sealed = sealer(1).seal(PLACE, b"sk-upstream");
        assert_eq!(sealer(1).open(PLACE, &sealed).unwrap().as_slice(), b"sk-upstream");
        assert!(!sealed.windows(4).any(|part| part == b"sk-u"));
        assert!(sealer(2).open(PLACE, &sealed).is_err());
        assert!(sealer(1).open(SealContext { row: "acc_2", ..PLACE }, &sealed).is_err());
        assert!(sealer(1).open(SealContext { column: "other", ..PLACE }, &sealed).is_err());
        for i in 0..sealed.len() {
            let mut wrong = sealed.clone();
            wrong[i] ^= 1;
            assert!(sealer(1).open(PLACE, &wrong).is_err(), "byte {i}");
            assert!(sealer(1).open(PLACE, &sealed[..i]).is_err(), "cut at {i}");
        }
    }

    #[test]
    fn replaced_key_still_opens_and_clones_share_the_keys() {
        let (one, two) = (Zeroizing::new([1; 32]), Zeroizing::new([2; 32]));
        let (first, clone) = (sealer(1), sealer(1));
        let shared = first.clone();
        let old = first.seal(PLACE, b"x");
        first.use_keys(&two, None);
        assert!(shared.open(PLACE, &old).is_ok() && sealer(2).open(PLACE, &shared.seal(PLACE, b"y")).is_ok());
        clone.adopt(&first);
        assert!(clone.open(PLACE, &first.seal(PLACE, b"z")).is_ok());
        assert_ne!(fingerprint(&one), fingerprint(&two));
    }

    #[test]
    fn sealing_is_randomised() {
        assert_ne!(sealer(1).seal(PLACE, b"x"), sealer(1).seal(PLACE, b"x"));
    }
}
