//! A complete answer while it is being read. What is large lies in memory of its own that goes back to the system with it:
//! the allocator would keep those pages for the next large answer, which may never come.

use bytes::{Bytes, BytesMut};
use memmap2::MmapMut;

/// Most of a complete answer.
pub(super) const MOST_BYTES: usize = 64 * 1024 * 1024;
/// What is larger lies in memory of its own, with room for the largest. Pages nobody writes to cost nothing.
const SMALL_BYTES: usize = 2 * 1024 * 1024;

/// As much as has come.
pub(super) enum Whole {
    Small(BytesMut),
    Large(Large),
}

/// An answer is larger than [`MOST_BYTES`], or the system has no memory for it.
#[derive(Debug)]
pub(super) struct TooLarge;

/// Memory of its own, filled up to `len`.
pub(super) struct Large {
    room: MmapMut,
    len: usize,
}

impl AsRef<[u8]> for Large {
    fn as_ref(&self) -> &[u8] {
        &self.room[..self.len]
    }
}

impl Whole {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self::Small(BytesMut::with_capacity(bytes.min(SMALL_BYTES)))
    }

    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), TooLarge> {
        match self {
            Self::Small(small) if small.len() + piece.len() <= SMALL_BYTES => small.extend_from_slice(piece),
            Self::Small(small) => {
                let mut large = Large { room: MmapMut::map_anon(MOST_BYTES).map_err(|_| TooLarge)?, len: 0 };
                large.push(small)?;
                large.push(piece)?;
                *self = Self::Large(large);
            }
            Self::Large(large) => large.push(piece)?,
        }
        Ok(())
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
        self.room.get_mut(self.len..end).ok_or(TooLarge)?.copy_from_slice(piece);
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(pieces: &[&[u8]]) -> Result<Bytes, TooLarge> {
        let mut whole = Whole::with_capacity(16);
        pieces.iter().try_for_each(|piece| whole.push(piece))?;
        Ok(whole.freeze())
    }

    #[test]
    fn pieces_come_out_in_order_whatever_their_size() {
        assert_eq!(gathered(&[]).unwrap(), "");
        assert_eq!(gathered(&[b"a", b"", b"bc"]).unwrap(), "abc");
        let (small, large) = (vec![b'a'; SMALL_BYTES], vec![b'b'; 3 * SMALL_BYTES]);
        let all = gathered(&[&small, b"-", &large, b"."]).unwrap();
        assert_eq!(all.len(), 4 * SMALL_BYTES + 2);
        assert_eq!((all[SMALL_BYTES], all[SMALL_BYTES + 1], all[all.len() - 1]), (b'-', b'b', b'.'));
    }

    #[test]
    fn the_largest_answer_fits_and_one_byte_more_does_not() {
        let quarter = vec![0; MOST_BYTES / 4];
        assert_eq!(gathered(&[quarter.as_slice(); 4]).unwrap().len(), MOST_BYTES);
        assert!(gathered(&[&quarter[..], &quarter, &quarter, &quarter, b"x"]).is_err());
    }
}
