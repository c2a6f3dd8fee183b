//! A fast, non-cryptographic hash for affinity, equal on every node and in every version.
//!
//! Eight bytes per step (multiply, fold) with the finalizer of `MurmurHash3`. Each piece is prefixed with its length. Of a
//! piece longer than [`WHOLE`] bytes only the length, head and tail are hashed, which bounds the cost of large images.

/// Longest piece that is hashed whole, in bytes.
const WHOLE: usize = 4096;

/// The hash of a sequence of pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    pub(crate) const fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    pub(crate) fn add(&mut self, piece: &[u8]) {
        self.step(piece.len() as u64);
        if piece.len() <= WHOLE {
            self.bytes(piece);
        } else {
            self.bytes(&piece[..WHOLE / 2]);
            self.bytes(&piece[piece.len() - WHOLE / 2..]);
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.step(u64::from_le_bytes(*word));
        }
        // The remaining bytes, as the upper part of the last eight if there are as many.
        self.step(match bytes.last_chunk::<8>() {
            Some(_) if rest.is_empty() => 0,
            Some(last) => u64::from_le_bytes(*last) >> (8 * (8 - rest.len())),
            None => rest.iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte)),
        });
    }

    const fn step(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
        self.0 = mixed ^ (mixed >> 32);
    }

    pub(crate) const fn finish(self) -> u64 {
        let mut hash = self.0;
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
        hash ^ (hash >> 33)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pieces: &[&[u8]]) -> u64 {
        let mut fingerprint = Fingerprint::new();
        for piece in pieces {
            fingerprint.add(piece);
        }
        fingerprint.finish()
    }

    #[test]
    fn hashes_are_stable() {
        // Nodes of different versions must agree on an account.
        assert_eq!(of(&[]), 9_763_276_303_214_632_227);
        assert_eq!(of(&[b"hello, conversation"]), 14_688_537_513_081_267_369);
    }

    #[test]
    fn remaining_bytes_of_a_piece_are_hashed_as_a_little_endian_word() {
        let piece: Vec<u8> = (1..40).map(|byte| byte * 5).collect();
        for length in 0..piece.len() {
            let mut expected = Fingerprint::new();
            expected.step(length as u64);
            for word in piece[..length - length % 8].chunks(8).chain([&piece[length - length % 8..length]]) {
                expected.step(word.iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte)));
            }
            assert_eq!(of(&[&piece[..length]]), expected.finish(), "{length}");
        }
    }

    #[test]
    fn piece_boundaries_matter() {
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
        assert_ne!(of(&[b"a"]), of(&[b"a", b""]));
        assert_ne!(of(&[b"a\0"]), of(&[b"a"]));
    }

    #[test]
    fn long_pieces_are_hashed_by_length_head_and_tail() {
        let long = vec![b'x'; 10_000];
        let mut other_end = long.clone();
        other_end[9_999] = b'y';
        assert_ne!(of(&[&long]), of(&[&other_end]));
        assert_ne!(of(&[&long]), of(&[&long[1..]]));
    }
}
