//! Encryption of secrets at rest (XChaCha20-Poly1305). The master key seals one random data key per database; the data key
//! seals credentials and the pepper. Each value is bound to its place, so that a sealed value copied to another row does not
//! open.

mod master;
mod secret_bytes;

use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};
use zeroize::Zeroizing;

use crate::{RandomSource, StoreError};

pub use master::MasterKeySource;
pub(crate) use master::MasterKeys;
pub(crate) use secret_bytes::{SecretBytes, draw};

/// Version of the sealed format: version byte, nonce, ciphertext with tag.
const VERSION: u8 = 1;
const NONCE_LENGTH: usize = 24;

/// The place of a sealed value; authenticated along with it.
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

    pub(crate) fn seal(&self, place: SealContext<'_>, secret: &[u8]) -> Vec<u8> {
        let nonce: [u8; NONCE_LENGTH] = self.random.bytes();
        let payload = Payload { msg: secret, aad: &place.associated() };
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), payload).expect("secrets are far below the cipher's limit");
        let mut out = Vec::with_capacity(1 + NONCE_LENGTH + sealed.len());
        out.push(VERSION);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&sealed);
        out
    }

    /// Decrypts a secret that was sealed for this place with this key.
    pub(crate) fn open(&self, place: SealContext<'_>, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let Some((&VERSION, rest)) = sealed.split_first() else { return Err(place.error()) };
        let Some((nonce, text)) = rest.split_first_chunk::<NONCE_LENGTH>() else { return Err(place.error()) };
        let payload = Payload { msg: text, aad: &place.associated() };
        let opened = self.cipher.decrypt(&XNonce::from(*nonce), payload).map_err(|_| place.error())?;
        Ok(Zeroizing::new(opened))
    }

    pub(crate) fn open_bytes(&self, place: SealContext<'_>, sealed: &[u8]) -> Result<SecretBytes, StoreError> {
        let opened = self.open(place, sealed)?;
        let bytes: [u8; 32] = opened.as_slice().try_into().map_err(|_| place.error())?;
        Ok(Zeroizing::new(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: SealContext<'static> = SealContext { table: "accounts", column: "credential", row: "acc_1" };

    fn sealer(key: u8) -> Sealer {
        Sealer::new(&Zeroizing::new([key; 32]), RandomSource::system())
    }

    #[test]
    fn secret_opens_only_at_its_place_with_its_key() {
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
    fn sealing_is_randomised() {
        assert_ne!(sealer(1).seal(PLACE, b"x"), sealer(1).seal(PLACE, b"x"));
    }
}
