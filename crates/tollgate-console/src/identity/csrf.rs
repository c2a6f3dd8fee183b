//! The token that writes of a session must send: pages of other origins cannot read it.
//!
//! Pages are compressed, so their lengths depend on how much of a request is repeated in the page. Each page masks the token with new
//! random bytes, so that an attacker cannot guess it from the lengths of many answers (<https://www.breachattack.com>).

use subtle::ConstantTimeEq as _;
use tollgate_store::{KeyHasher, RandomSource};

const BYTES: usize = 32;

/// The token of the session with this token.
pub(crate) fn csrf_token(hasher: &KeyHasher, session_token: &str) -> String {
    hex::encode(hasher.hash(&format!("csrf token\n{session_token}")).0)
}

/// A random mask, and the token with this mask.
pub(crate) fn masked(token: &str, random: &RandomSource) -> String {
    let mut bytes = [0; BYTES];
    if hex::decode_to_slice(token, &mut bytes).is_err() {
        return token.to_owned();
    }
    let mask = random.bytes::<BYTES>();
    hex::encode([mask, xor(mask, bytes)].concat())
}

/// Whether a request has sent the token, with or without a mask.
pub(crate) fn is_token(token: &str, sent: &[u8]) -> bool {
    let plain = unmasked(sent);
    let sent = plain.as_deref().map_or(sent, str::as_bytes);
    sent.ct_eq(token.as_bytes()).into()
}

/// `None` for a text without the length and the digits of a masked token.
fn unmasked(sent: &[u8]) -> Option<String> {
    let mut mask = [0; BYTES];
    let mut bytes = [0; BYTES];
    let (first, second) = sent.split_at_checked(2 * BYTES)?;
    hex::decode_to_slice(first, &mut mask).ok()?;
    hex::decode_to_slice(second, &mut bytes).ok()?;
    Some(hex::encode(xor(mask, bytes)))
}

fn xor(mask: [u8; BYTES], bytes: [u8; BYTES]) -> [u8; BYTES] {
    std::array::from_fn(|at| mask[at] ^ bytes[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_accepted_with_any_mask_and_without_one() {
        let (token, other) = ("0f".repeat(BYTES), "f0".repeat(BYTES));
        let random = RandomSource::system();
        let (first, second) = (masked(&token, &random), masked(&token, &random));
        assert!(first != second && !first.contains(&token), "{first} {second}");
        for sent in [&token, &first, &second] {
            assert!(is_token(&token, sent.as_bytes()), "{sent}");
            assert!(!is_token(&other, sent.as_bytes()), "{sent}");
        }
    }

    #[test]
    fn altered_tokens_are_refused() {
        let token = "0f".repeat(BYTES);
        let sent = masked(&token, &RandomSource::system());
        for at in 0..sent.len() {
            let mut altered = sent.clone().into_bytes();
            altered[at] = if altered[at] == b'0' { b'1' } else { b'0' };
            assert!(!is_token(&token, &altered), "digit {at}");
        }
        for wrong in ["", "0f", &sent[..126], &format!("{sent}00"), &sent[64..], &"é".repeat(64), &"00".repeat(64)] {
            assert!(!is_token(&token, wrong.as_bytes()), "{wrong}");
        }
    }
}
