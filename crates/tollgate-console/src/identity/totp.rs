//! Time-based one-time codes (RFC 6238): SHA-1, six digits, 30 s, which authenticator apps assume.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;
use subtle::ConstantTimeEq as _;
use tollgate_core::Timestamp;
use tollgate_store::RandomSource;
use url::form_urlencoded::byte_serialize;

const STEP_US: i64 = 30_000_000;
const DIGITS: usize = 6;
const MODULUS: u32 = 1_000_000;
/// Steps before and after the current one whose codes are accepted, because clocks differ.
const TOLERANCE: i64 = 1;
const SECRET_BYTES: usize = 20;
const BASE32: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
/// Recovery codes that are made together.
pub(crate) const RECOVERY_CODES: usize = 10;

/// A new secret in base32.
pub(crate) fn new_secret(random: &RandomSource) -> String {
    base32(&random.bytes::<SECRET_BYTES>())
}

/// The address that authenticator apps read from a QR code.
pub(crate) fn uri(issuer: &str, account: &str, secret: &str) -> String {
    // Labels are percent-encoded; a form's `+` would be read as a plus.
    let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20");
    let (issuer, account) = (encode(issuer), encode(account));
    format!("otpauth://totp/{issuer}:{account}?secret={secret}&issuer={issuer}&algorithm=SHA1&digits={DIGITS}&period=30")
}

/// The time step whose code this is, if it is one of those around `now`.
pub(crate) fn verify(secret: &str, code: &str, now: Timestamp) -> Option<i64> {
    let (key, current) = (decode_base32(secret)?, now.0.div_euclid(STEP_US));
    let mut found = None;
    // Every step is computed, so that the duration reveals nothing.
    for step in current - TOLERANCE..=current + TOLERANCE {
        if bool::from(code_of(&key, step).as_bytes().ct_eq(code.as_bytes())) {
            found = Some(step);
        }
    }
    found
}

fn code_of(key: &[u8], step: i64) -> String {
    let mut mac = Hmac::<Sha1>::new_from_slice(key).expect("HMAC takes keys of every length");
    mac.update(&step.to_be_bytes());
    let digest = mac.finalize().into_bytes();
    let offset = usize::from(digest[digest.len() - 1] & 15);
    let number = u32::from_be_bytes(digest[offset..offset + 4].try_into().expect("four bytes")) & 0x7fff_ffff;
    format!("{:0DIGITS$}", number % MODULUS)
}

/// New recovery codes: 50 random bits each, as `xxxxx-xxxxx`.
pub(crate) fn new_recovery_codes(random: &RandomSource) -> Vec<String> {
    let code = || {
        let text = base32(&random.bytes::<7>()).to_lowercase();
        format!("{}-{}", &text[..5], &text[5..10])
    };
    (0..RECOVERY_CODES).map(|_| code()).collect()
}

/// A recovery code as it is hashed: people type it with or without the hyphen, in capital letters or not.
pub(crate) fn canonical_recovery_code(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace() && *c != '-').flat_map(char::to_lowercase).collect()
}

fn base32(bytes: &[u8]) -> String {
    let mut text = String::new();
    let (mut buffer, mut bits) = (0_u32, 0_u32);
    for byte in bytes {
        buffer = (buffer << 8) | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(BASE32[(buffer >> bits & 31) as usize]));
        }
    }
    if bits > 0 {
        text.push(char::from(BASE32[(buffer << (5 - bits) & 31) as usize]));
    }
    text
}

fn decode_base32(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut buffer, mut bits) = (0_u32, 0_u32);
    for digit in text.bytes() {
        let value = BASE32.iter().position(|known| *known == digit)?;
        buffer = (buffer << 5) | u32::try_from(value).ok()?;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(buffer >> bits & 255).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1_000_000)
    }

    /// The vectors of RFC 6238, appendix B, cut to six digits.
    #[test]
    fn codes_match_the_test_vectors_of_rfc_6238() {
        assert_eq!(decode_base32(SECRET).unwrap(), b"12345678901234567890");
        assert_eq!(base32(b"12345678901234567890"), SECRET);
        for (seconds, code) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ] {
            assert_eq!(verify(SECRET, code, at(seconds)), Some(seconds / 30), "{seconds}");
        }
    }

    #[test]
    fn code_is_valid_for_a_step_before_and_after() {
        let step = 59 / 30;
        for (seconds, expected) in [(0, Some(step)), (30, Some(step)), (89, Some(step)), (90, None), (-1, None)] {
            assert_eq!(verify(SECRET, "287082", at(seconds)), expected, "{seconds}");
        }
        for wrong in ["", "287083", "28708", "2870820", " 287082", "２87082"] {
            assert_eq!(verify(SECRET, wrong, at(59)), None, "{wrong}");
        }
    }

    #[test]
    fn secrets_and_recovery_codes_are_random_and_readable() {
        let random = RandomSource::system();
        let (one, other) = (new_secret(&random), new_secret(&random));
        assert!(one != other && one.len() == 32 && decode_base32(&one).is_some());
        let codes = new_recovery_codes(&random);
        assert!(codes.len() == RECOVERY_CODES && codes.iter().all(|code| code.len() == 11), "{codes:?}");
        assert_eq!(canonical_recovery_code(" ABCDE-fghij "), "abcdefghij");
        assert_eq!(
            uri("tollgate (a&b)", "ann@example.com", "ABC"),
            "otpauth://totp/tollgate%20%28a%26b%29:ann%40example.com?secret=ABC&issuer=tollgate%20%28a%26b%29&algorithm=SHA1&digits=6&period=30"
        );
    }
}
