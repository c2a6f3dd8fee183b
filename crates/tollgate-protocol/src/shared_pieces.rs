//! Output in pieces, of which long ones are shared: a text that several events of an answer repeat is in memory once.

use std::ops::{Deref, DerefMut};

use bytes::{BufMut as _, Bytes, BytesMut};

/// Texts are kept in pieces of about this size. The rest of a text, which is shorter, is copied into each event.
const PIECE_BYTES: usize = 64 * 1024;
/// Shorter pieces are copied instead of shared.
const SHARED_FROM: usize = 4 * 1024;

/// A part of an output.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    /// Memory of this output alone.
    Own(Bytes),
    /// Memory shared with other outputs.
    Shared(Bytes),
}

impl Piece {
    pub(crate) const fn bytes(&self) -> &Bytes {
        match self {
            Self::Own(bytes) | Self::Shared(bytes) => bytes,
        }
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        match self {
            Self::Own(bytes) | Self::Shared(bytes) => bytes,
        }
    }

    /// Bytes of memory that are not shared with other outputs.
    pub(crate) const fn own_bytes(&self) -> usize {
        match self {
            Self::Own(bytes) => bytes.len(),
            Self::Shared(_) => 0,
        }
    }
}

/// An output that is written like a [`BytesMut`], and to which other outputs can be appended without a copy.
#[derive(Debug, Default)]
pub(crate) struct SharedPieces {
    /// The complete pieces. They precede `rest`.
    pieces: Vec<Piece>,
    rest: BytesMut,
}

impl Deref for SharedPieces {
    type Target = BytesMut;

    fn deref(&self) -> &BytesMut {
        &self.rest
    }
}

impl DerefMut for SharedPieces {
    fn deref_mut(&mut self) -> &mut BytesMut {
        &mut self.rest
    }
}

impl SharedPieces {
    /// An output that begins with these pieces and continues in this buffer.
    pub(crate) const fn new(pieces: Vec<Piece>, rest: BytesMut) -> Self {
        Self { pieces, rest }
    }

    pub(crate) fn into_parts(self) -> (Vec<Piece>, BytesMut) {
        (self.pieces, self.rest)
    }

    /// The output that `write` writes.
    pub(crate) fn written(write: impl FnOnce(&mut Self)) -> Self {
        let mut out = Self::default();
        write(&mut out);
        out
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.rest.is_empty()
    }

    /// Appends to a text that other outputs will repeat, split into pieces.
    pub(crate) fn extend(&mut self, text: &[u8]) {
        self.rest.put_slice(text);
        if self.rest.len() >= PIECE_BYTES {
            let piece = std::mem::take(&mut self.rest);
            // Buffers grow to up to twice the size they need.
            let is_loose = piece.capacity() > piece.len() + piece.len() / 8;
            self.pieces.push(Piece::Own(if is_loose { Bytes::copy_from_slice(&piece) } else { piece.freeze() }));
        }
    }

    /// Appends another output. Its long pieces are shared.
    pub(crate) fn append(&mut self, other: &Self) {
        for piece in &other.pieces {
            let bytes = piece.bytes();
            if bytes.len() < SHARED_FROM {
                self.rest.put_slice(bytes);
                continue;
            }
            if !self.rest.is_empty() {
                self.pieces.push(Piece::Own(self.rest.split().freeze()));
            }
            self.pieces.push(Piece::Shared(bytes.clone()));
        }
        self.rest.put_slice(&other.rest);
    }

    /// Bytes of memory that it owns or shares.
    pub(crate) fn held_bytes(&self) -> usize {
        let pieces: usize = self.pieces.iter().map(|piece| piece.bytes().len() + size_of::<Piece>()).sum();
        pieces + self.rest.capacity()
    }

    /// All of it in one buffer.
    pub(crate) fn into_bytes(self) -> Bytes {
        if self.pieces.is_empty() {
            return self.rest.freeze();
        }
        let length = self.pieces.iter().map(|piece| piece.bytes().len()).sum::<usize>() + self.rest.len();
        let mut out = BytesMut::with_capacity(length);
        for piece in &self.pieces {
            out.put_slice(piece.bytes());
        }
        out.put_slice(&self.rest);
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_long_text_is_stored_once() {
        let mut text = SharedPieces::default();
        for _ in 0..1_000 {
            text.extend(&[b'x'; 1_000]);
        }
        assert!((1_000_000..1_200_000).contains(&text.held_bytes()), "{}", text.held_bytes());
        let mut out = SharedPieces::default();
        for _ in 0..4 {
            out.put_slice(b"{\"text\":\"");
            out.append(&text);
            out.put_slice(b"\"}");
        }
        let own: usize = out.pieces.iter().map(Piece::own_bytes).sum();
        assert!(own < 5 * PIECE_BYTES, "the rest of a text is copied, its pieces are not: {own}");
        let once = format!("{{\"text\":\"{}\"}}", "x".repeat(1_000_000));
        assert_eq!(out.into_bytes(), once.repeat(4));
    }

    #[test]
    fn short_output_is_one_buffer() {
        let mut item = SharedPieces::written(|out| out.put_slice(b"abc"));
        item.append(&SharedPieces::new(vec![Piece::Own(Bytes::from_static(b"d"))], BytesMut::from("e")));
        assert!(item.pieces.is_empty() && !item.is_empty());
        assert_eq!(item.into_bytes(), "abcde");
    }
}
