//! The body of a complete answer while it is read. A large body is kept in memory mapped for it alone, which returns to the system
//! when it is dropped; the allocator would keep those pages.

use bytes::{Bytes, BytesMut};
use memmap2::MmapMut;

/// Maximum size of a complete answer, in bytes.
pub(super) const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Larger bodies are mapped, with space for the largest. Pages that are not written to cost nothing.
const SMALL_BYTES: usize = 2 * 1024 * 1024;

pub(super) enum WholeBody {
    Small(BytesMut),
    Large(Large),
}

/// The answer is larger than [`MAX_BYTES`], or the system has no memory for it.
#[derive(Debug)]
pub(super) struct TooLarge;

/// Mapped memory, filled up to `len`.
pub(super) struct Large {
    map: MmapMut,
    len: usize,
}

impl AsRef<[u8]> for Large {
    fn as_ref(&self) -> &[u8] {
        &self.map[..self.len]
    }
}

impl WholeBody {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self::Small(BytesMut::with_capacity(bytes.min(SMALL_BYTES)))
    }

    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), TooLarge> {
        match self {
            Self::Small(small) if small.len() + piece.len() <= SMALL_BYTES => small.extend_from_slice(piece),
            Self::Small(small) => {
                let mut large = Large { map: MmapMut::map_anon(MAX_BYTES).map_err(|_| TooLarge)?, len: 0 };
                large.push(small)?;
                large.push(piece)?;
                *self = Self::Large(large);
            }
            Self::Large(large) => large.push(piece)?,
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Small(small) => small.len(),
            Self::Large(large) => large.len,
        }
    }

    pub(super) fn freeze(self) -> Bytes {
        match self {
            Self::Small(small) => small.freeze(),
            Self::Large(large) => Bytes::from_owner(large),
        }
    }
}

impl Large {
    fn push(&mut self, piece: &[u8]) -> Result<(), TooLarge> {
        let end = self.len + piece.len();
        self.map.get_mut(self.len..end).ok_or(TooLarge)?.copy_from_slice(piece);
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(pieces: &[&[u8]]) -> Result<Bytes, TooLarge> {
        let mut whole = WholeBody::with_capacity(16);
        pieces.iter().try_for_each(|piece| whole.push(piece))?;
        Ok(whole.freeze())
    }

    #[test]
    fn pieces_of_any_size_are_concatenated_in_order() {
        assert_eq!(gathered(&[]).unwrap(), "");
        assert_eq!(gathered(&[b"a", b"", b"bc"]).unwrap(), "abc");
        let (small, large) = (vec![b'a'; SMALL_BYTES], vec![b'b'; 3 * SMALL_BYTES]);
        let all = gathered(&[&small, b"-", &large, b"."]).unwrap();
        assert_eq!(all.len(), 4 * SMALL_BYTES + 2);
        assert_eq!((all[SMALL_BYTES], all[SMALL_BYTES + 1], all[all.len() - 1]), (b'-', b'b', b'.'));
    }

    #[test]
    fn answer_of_the_maximum_size_is_accepted_and_one_byte_more_is_not() {
        let quarter = vec![0; MAX_BYTES / 4];
        assert_eq!(gathered(&[quarter.as_slice(); 4]).unwrap().len(), MAX_BYTES);
        assert!(gathered(&[&quarter[..], &quarter, &quarter, &quarter, b"x"]).is_err());
    }
}
