//! Fingerprints, under which keys that were looked up are kept in memory and recognised.
//!
//! The database finds a key by its HMAC-SHA-256. To recognise a key that is already cached, a cheaper hash is enough, as long
//! as no caller can produce the fingerprint of a key it does not have. SipHash-2-4 with 128 bits is a pseudorandom function made for
//! this. Its secret never leaves the process. Without the secret, a guess matches one of 100,000 cached keys with a probability of
//! 2^-111, less than that of guessing the key, and no collision can be computed. A fast hash for tables (foldhash, ahash) promises
//! none of this, even when it is seeded. Only the fingerprint is compared, so no text of a key is kept between requests.
//!
//! Timing shows at most how much of two fingerprints agrees, which says nothing without the secret. A copy of the process's memory
//! would let keys be guessed about twenty times as fast as with the HMACs alone; generated keys have 256 bits.

use siphasher::sip128::SipHasher24;
use tollgate_store::KeyHasher;

/// Input from which the secret is derived. It is not a key, because it has spaces, so its hash is never looked up.
const PURPOSE: &str = "fingerprints of known keys";

/// The fingerprint of a presented key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct KeyFingerprint(u128);

/// Computes fingerprints with a secret that is derived from that of the key hashes.
pub(super) struct KeyFingerprints(SipHasher24);

impl KeyFingerprints {
    pub(super) fn new(hasher: &KeyHasher) -> Self {
        let mut secret = [0; 16];
        secret.copy_from_slice(&hasher.hash(PURPOSE).0[..16]);
        Self(SipHasher24::new_with_key(&secret))
    }

    pub(super) fn of(&self, presented: &str) -> KeyFingerprint {
        KeyFingerprint(self.0.hash(presented.as_bytes()).as_u128())
    }
}

#[cfg(test)]
impl KeyFingerprint {
    pub(super) const fn from_number(number: u128) -> Self {
        Self(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_depend_on_the_whole_key_and_the_secret() {
        let (one, other) = (KeyFingerprints::new(&KeyHasher::new(&[1; 32])), KeyFingerprints::new(&KeyHasher::new(&[2; 32])));
        let key = "sk-bench-0123456789abcdef";
        assert!(one.of(key) == one.of(key));
        assert!(one.of(key) != other.of(key));
        for changed in ["sk-bench-0123456789abcdeg", "Sk-bench-0123456789abcdef", "sk-bench-0123456789abcde", ""] {
            assert!(one.of(key) != one.of(changed), "{changed}");
        }
    }
}
