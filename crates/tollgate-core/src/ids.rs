//! Identifiers: UUID v7, written as a prefix and 26 lower-case Crockford base32 digits.

use std::{
    fmt,
    hash::{BuildHasherDefault, Hasher},
};

use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use uuid::Uuid;

use crate::Timestamp;

const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

const PREFIX: usize = 4;
const WIDTH: usize = 26;

/// The text form of an id: its prefix, then 26 base32 digits of 128 bits, most significant first. Stored inline, because ids are
/// written several times per request.
#[derive(Clone, Copy, Debug)]
pub struct IdText([u8; PREFIX + WIDTH]);

impl IdText {
    fn of(prefix: &'static str, mut id: u128) -> Self {
        let mut text = [0; PREFIX + WIDTH];
        let (start, digits) = text.split_at_mut(PREFIX);
        start.copy_from_slice(prefix.as_bytes());
        for digit in digits.iter_mut().rev() {
            *digit = DIGITS[(id & 31) as usize];
            id >>= 5;
        }
        Self(text)
    }

    /// The text in ASCII.
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("prefix and digits are ASCII")
    }
}

fn decode_digits(text: &str) -> Option<u128> {
    if text.len() != WIDTH {
        return None;
    }
    let mut value: u128 = 0;
    for (i, byte) in text.bytes().enumerate() {
        let digit = DIGITS.iter().position(|d| *d == byte)? as u128;
        if i == 0 && digit > 7 {
            return None;
        }
        value = (value << 5) | digit;
    }
    Some(value)
}

/// A hasher for ids, which are random already. Ids come from this gateway or its database, never from callers, so they cannot be
/// chosen to collide.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

/// Builds [`IdHasher`]s for maps whose keys are ids.
pub type IdHash = BuildHasherDefault<IdHasher>;

/// A hash for names, which callers may choose: seeded at random in each process.
pub type NameHash = foldhash::fast::RandomState;

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.rchunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            // Hash tables use the high bits and the low bits separately, so both must vary.
            self.0 = (self.0.rotate_left(32) ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }

    fn write_usize(&mut self, _length: usize) {
        // Only the length prefix of the id's bytes arrives here, and it is constant.
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

macro_rules! id {
    ($name:ident, $prefix:literal) => {
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            /// Builds a UUID v7 from a time and 10 random bytes.
            pub fn from_parts(at: Timestamp, random: [u8; 10]) -> Self {
                let millis = u64::try_from(at.0.div_euclid(1_000)).unwrap_or(0);
                Self(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
            }

            pub const fn from_uuid(id: Uuid) -> Self {
                Self(id)
            }

            pub const fn uuid(self) -> Uuid {
                self.0
            }

            /// The time the id was made, to the millisecond: ids are ordered by it.
            pub fn time(self) -> Timestamp {
                Timestamp(i64::try_from(self.0.as_u128() >> 80).unwrap_or(i64::MAX).saturating_mul(1_000))
            }

            /// A value below every id of the millisecond of `at` and above every earlier one.
            pub fn first_at(at: Timestamp) -> Self {
                let millis = u128::try_from(at.0.div_euclid(1_000)).unwrap_or(0);
                Self(Uuid::from_u128(millis << 80))
            }

            pub fn digits(self) -> String {
                self.text().as_str()[PREFIX..].to_owned()
            }

            pub fn parse(text: &str) -> Option<Self> {
                decode_digits(text.strip_prefix($prefix)?).map(|id| Self(Uuid::from_u128(id)))
            }

            pub fn text(self) -> IdText {
                IdText::of($prefix, self.0.as_u128())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.text().as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.text().as_str())
            }
        }

        impl<C> Encode<C> for $name {
            fn encode<W: encode::Write>(&self, to: &mut Encoder<W>, _context: &mut C) -> Result<(), encode::Error<W::Error>> {
                to.bytes(self.0.as_bytes()).map(|_| ())
            }
        }

        impl<'b, C> Decode<'b, C> for $name {
            fn decode(from: &mut Decoder<'b>, _context: &mut C) -> Result<Self, decode::Error> {
                Uuid::from_slice(from.bytes()?).map(Self).map_err(|_| decode::Error::message("an id has 16 bytes"))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                Self::parse(&text).ok_or_else(|| D::Error::custom(format!("not an id of the form {}…", $prefix)))
            }
        }
    };
}

id!(RequestId, "req_");
id!(KeyId, "key_");
id!(AccountId, "acc_");
id!(ChannelId, "chn_");
id!(GroupId, "grp_");
id!(MemberId, "mbr_");
id!(ModelId, "mdl_");
id!(AdminKeyId, "adm_");
id!(SettingId, "set_");
id!(AlertId, "alt_");
id!(AlertDestinationId, "dst_");
id!(JobId, "job_");
id!(SessionId, "ses_");
id!(InviteId, "inv_");
id!(PasskeyId, "pky_");

/// Number of a catalog change; it also identifies the price version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Encode, Decode)]
#[serde(transparent)]
#[cbor(transparent)]
pub struct Revision(#[n(0)] pub i64);

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, hash::BuildHasher as _};

    use super::*;

    #[test]
    fn id_hashes_vary_in_high_and_low_bits() {
        let hash = IdHash::default();
        let ids = (0..4_096_u32).map(|n| {
            let mut random = [0; 10];
            random[3..7].copy_from_slice(&n.to_le_bytes());
            RequestId::from_parts(Timestamp(1_700_000_000_000_000), random)
        });
        let hashes: Vec<u64> = ids.map(|id| hash.hash_one(id)).collect();
        let low: HashSet<u64> = hashes.iter().map(|hash| hash & 0xfff).collect();
        let high: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
        // 4,096 random draws leave about 1,507 of 4,096 slots empty; a poor hash leaves far more.
        assert!(low.len() > 2_400 && high.len() == 128, "{} and {}", low.len(), high.len());
    }

    #[test]
    fn id_round_trips_through_its_text_form() {
        let id = RequestId::from_parts(Timestamp(1_700_000_000_000_000), [7; 10]);
        assert_eq!(RequestId::parse(&id.to_string()), Some(id));
        assert_eq!(id.to_string().len(), 4 + 26);
        assert_eq!(id.time(), Timestamp(1_700_000_000_000_000));
        assert!(RequestId::first_at(Timestamp(1_700_000_000_000_999)) < id);
        assert!(RequestId::first_at(Timestamp(1_700_000_000_001_000)) > id);
        assert_eq!(RequestId::parse("req_zzzzzzzzzzzzzzzzzzzzzzzzzz"), None);
        assert_eq!(KeyId::parse(&id.to_string()), None);
    }
}
