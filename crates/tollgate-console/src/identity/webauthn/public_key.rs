//! Public keys of passkeys: `COSE_Key` (RFC 9052, section 7) of the algorithms that are asked for (section 5.8.5), and their signatures
//! (section 6.5.5).

use minicbor::{Decoder, data::Type};
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};

use super::Fault;

/// Algorithms that are asked for, the preferred one first: `ES256`, `EdDSA` with Ed25519, and `RS256` (registry "COSE Algorithms").
pub(crate) const ALGORITHMS: [i64; 3] = [ES256, EDDSA, RS256];
const ES256: i64 = -7;
const EDDSA: i64 = -8;
const RS256: i64 = -257;

/// Labels of RFC 9052, table 4, and RFC 9053, tables 18 to 20. The labels of each key type have their own meanings: -1 is the curve or the
/// modulus, -2 the coordinate x or the exponent.
const KEY_TYPE: i64 = 1;
const ALGORITHM: i64 = 3;
const CURVE_OR_MODULUS: i64 = -1;
const X_OR_EXPONENT: i64 = -2;
const Y: i64 = -3;

const OKP: i64 = 1;
const EC2: i64 = 2;
const RSA: i64 = 3;
const P256: i64 = 1;
const ED25519_CURVE: i64 = 6;
/// Most entries of a key that are read; authenticators write at most five.
const MAX_ENTRIES: u64 = 8;
const MAX_MODULUS: usize = 1_024;
const MIN_MODULUS: usize = 256;
const MAX_EXPONENT: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PublicKey {
    /// An uncompressed point.
    Es256(Vec<u8>),
    Ed25519(Vec<u8>),
    Rs256 {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
}

/// The entries of a key that have a meaning here.
#[derive(Default)]
struct KeyEntries<'a> {
    key_type: Option<i64>,
    algorithm: Option<i64>,
    curve: Option<i64>,
    modulus: Option<&'a [u8]>,
    x_or_exponent: Option<&'a [u8]>,
    y: Option<&'a [u8]>,
}

impl PublicKey {
    pub(super) fn parse(cose: &[u8]) -> Result<Self, Fault> {
        let entries = KeyEntries::read(cose).ok_or(Fault::PublicKey)?;
        let coordinate = |bytes: Option<&[u8]>| bytes.filter(|bytes| bytes.len() == 32).map(<[u8]>::to_vec);
        let key = match (entries.algorithm, entries.key_type, entries.curve) {
            (Some(ES256), Some(EC2), Some(P256)) => match (coordinate(entries.x_or_exponent), coordinate(entries.y)) {
                (Some(x), Some(y)) => Some(Self::Es256([vec![4], x, y].concat())),
                _ => None,
            },
            (Some(EDDSA), Some(OKP), Some(ED25519_CURVE)) => coordinate(entries.x_or_exponent).map(Self::Ed25519),
            (Some(RS256), Some(RSA), None) => rsa(entries.modulus, entries.x_or_exponent),
            (Some(algorithm), ..) if !ALGORITHMS.contains(&algorithm) => return Err(Fault::Algorithm),
            _ => None,
        };
        key.ok_or(Fault::PublicKey)
    }

    pub(super) fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), Fault> {
        let check = |algorithm: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(algorithm, key).verify(message, signature)
        };
        let checked = match self {
            Self::Es256(point) => check(&ECDSA_P256_SHA256_ASN1, point),
            Self::Ed25519(key) => check(&ED25519, key),
            Self::Rs256 { modulus, exponent } => {
                RsaPublicKeyComponents { n: modulus, e: exponent }.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
        };
        checked.map_err(|_| Fault::Signature)
    }
}

/// A key of 2,048 to 8,192 bits; numbers may begin with zeros.
fn rsa(modulus: Option<&[u8]>, exponent: Option<&[u8]>) -> Option<PublicKey> {
    let number = |bytes: &[u8]| bytes[bytes.iter().take_while(|byte| **byte == 0).count()..].to_vec();
    let (modulus, exponent) = (number(modulus?), number(exponent?));
    let fits = (MIN_MODULUS..=MAX_MODULUS).contains(&modulus.len()) && (1..=MAX_EXPONENT).contains(&exponent.len());
    fits.then_some(PublicKey::Rs256 { modulus, exponent })
}

impl<'a> KeyEntries<'a> {
    /// Each label once, as CTAP2's canonical form has it; labels without a meaning here are skipped.
    fn read(cose: &'a [u8]) -> Option<Self> {
        let mut cbor = Decoder::new(cose);
        let count = cbor.map().ok()?.filter(|count| *count <= MAX_ENTRIES)?;
        let mut entries = Self::default();
        for _ in 0..count {
            let label = cbor.i64().ok()?;
            let is_bytes = cbor.datatype().ok()? == Type::Bytes;
            let is_new = match label {
                KEY_TYPE => entries.key_type.replace(cbor.i64().ok()?).is_none(),
                ALGORITHM => entries.algorithm.replace(cbor.i64().ok()?).is_none(),
                CURVE_OR_MODULUS if is_bytes => entries.modulus.replace(cbor.bytes().ok()?).is_none(),
                CURVE_OR_MODULUS => entries.curve.replace(cbor.i64().ok()?).is_none(),
                X_OR_EXPONENT => entries.x_or_exponent.replace(cbor.bytes().ok()?).is_none(),
                Y => entries.y.replace(cbor.bytes().ok()?).is_none(),
                _ => cbor.skip().is_ok(),
            };
            if !is_new {
                return None;
            }
        }
        (cbor.position() == cose.len()).then_some(entries)
    }
}
