//! Secret keys in memory.

use zeroize::Zeroizing;

use crate::RandomSource;

/// A secret of 32 bytes, cleared when dropped.
pub(crate) type SecretBytes = Zeroizing<[u8; 32]>;

pub(crate) fn generate_key(random: &RandomSource) -> SecretBytes {
    let mut bytes = Zeroizing::new([0; 32]);
    random.fill(bytes.as_mut_slice());
    bytes
}
