//! Secrets at rest. The master key seals one random data key a database; the data key seals credentials and the
//! pepper, each bound to its place, so that a sealed value moved to another row does not open.

mod master;

use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};
use zeroize::Zeroizing;

use crate::{RandomSource, StoreError};

pub use master::MasterKeySource;
pub(crate) use master::MasterKeys;

/// Version of the sealed form: version byte, nonce, ciphertext with tag.
const VERSION: u8 = 1;
const NONCE: usize = 24;

/// 32 secret bytes, cleared when dropped.
pub(crate) type SecretBytes = Zeroizing<[u8; 32]>;

/// Where a sealed value stands; part of what is authenticated.
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

/// Seals and opens with one key.
#[derive(Clone)]
pub(crate) struct Sealer {
    cipher: XChaCha20Poly1305,
    random: RandomSource,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer(…)")
    }
}

impl Sealer {
    pub(crate) fn new(key: &SecretBytes, random: RandomSource) -> Self {
        let cipher = XChaCha20Poly1305::new_from_slice(key.as_slice()).expect("the key has the cipher's length");
        Self { cipher, random }
    }

    /// Seals a secret for a place.
    pub(crate) fn seal(&self, place: SealContext<'_>, secret: &[u8]) -> Vec<u8> {
        let nonce: [u8; NONCE] = self.random.bytes();
        let payload = Payload { msg: secret, aad: &place.associated() };
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), payload).expect("secrets are far below the cipher's limit");
        let mut out = Vec::with_capacity(1 + NONCE + sealed.len());
        out.push(VERSION);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&sealed);
        out
    }

    /// Opens what was sealed for this place with this key.
    pub(crate) fn open(&self, place: SealContext<'_>, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let Some((&VERSION, rest)) = sealed.split_first() else { return Err(place.error()) };
        let Some((nonce, text)) = rest.split_first_chunk::<NONCE>() else { return Err(place.error()) };
        let payload = Payload { msg: text, aad: &place.associated() };
        let opened = self.cipher.decrypt(&XNonce::from(*nonce), payload).map_err(|_| place.error())?;
        Ok(Zeroizing::new(opened))
    }

    /// Opens 32 sealed bytes.
    pub(crate) fn open_bytes(&self, place: SealContext<'_>, sealed: &[u8]) -> Result<SecretBytes, StoreError> {
        let opened = self.open(place, sealed)?;
        let bytes: [u8; 32] = opened.as_slice().try_into().map_err(|_| place.error())?;
        Ok(Zeroizing::new(bytes))
    }
}

/// 32 fresh secret bytes.
pub(crate) fn draw(random: &RandomSource) -> SecretBytes {
    let mut bytes = Zeroizing::new([0; 32]);
    random.fill(bytes.as_mut_slice());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: SealContext<'static> = SealContext { table: "accounts", column: "credential", row: "acc_1" };

    fn sealer(key: u8) -> Sealer {
        Sealer::new(&Zeroizing::new([key; 32]), RandomSource::system())
    }

    #[test]
    fn a_secret_opens_at_its_place_with_its_key_and_nowhere_else() {
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
    fn the_same_secret_is_sealed_differently_each_time() {
        assert_ne!(sealer(1).seal(PLACE, b"x"), sealer(1).seal(PLACE, b"x"));
    }
}
