//! The master key in a backup, sealed under a passphrase (Argon2id, XChaCha20-Poly1305).

use argon2::{Algorithm, Argon2, Params, Version};
use tollgate_core::Secret;
use zeroize::Zeroizing;

use crate::{
    RandomSource,
    seal::{MasterKeys, SealContext, Sealer, SecretBytes},
};

const MAGIC: &[u8; 4] = b"TGK1";
const SALT_LENGTH: usize = 16;
/// Memory in KiB and passes of the derivation.
const COST: (u32, u32) = (64 * 1024, 2);
/// Upper bounds for the cost that a file states.
const MAX_COST: (u32, u32) = (1024 * 1024, 16);

const PLACE: SealContext<'static> = SealContext { table: "backup", column: "master_key", row: "" };

/// Seals the lines of the master key.
pub(super) fn seal(keys: &MasterKeys, passphrase: &Secret, random: &RandomSource) -> Vec<u8> {
    let salt: [u8; SALT_LENGTH] = random.bytes();
    let key = derive(passphrase, &salt, COST).expect("these costs are valid");
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&COST.0.to_le_bytes());
    out.extend_from_slice(&COST.1.to_le_bytes());
    out.extend_from_slice(&salt);
    out.extend_from_slice(&Sealer::new(&key, random.clone()).seal(PLACE, keys.to_text().as_bytes()));
    out
}

/// Decrypts the output of [`seal`]; `None` with a wrong passphrase.
pub(super) fn open(sealed: &[u8], passphrase: &Secret, random: &RandomSource) -> Option<Zeroizing<String>> {
    let rest = sealed.strip_prefix(MAGIC)?;
    let (memory, rest) = rest.split_first_chunk::<4>()?;
    let (passes, rest) = rest.split_first_chunk::<4>()?;
    let (salt, text) = rest.split_first_chunk::<SALT_LENGTH>()?;
    let cost = (u32::from_le_bytes(*memory), u32::from_le_bytes(*passes));
    if cost.0 > MAX_COST.0 || cost.1 > MAX_COST.1 {
        return None;
    }
    let key = derive(passphrase, salt, cost)?;
    let opened = Sealer::new(&key, random.clone()).open(PLACE, text).ok()?;
    Some(Zeroizing::new(std::str::from_utf8(&opened).ok()?.to_owned()))
}

fn derive(passphrase: &Secret, salt: &[u8], (memory, passes): (u32, u32)) -> Option<SecretBytes> {
    let params = Params::new(memory, passes, 1, Some(32)).ok()?;
    let mut key = Zeroizing::new([0; 32]);
    let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    argon.hash_password_into(passphrase.expose().as_bytes(), salt, key.as_mut_slice()).ok()?;
    Some(key)
}
