//! Writes of several pieces: a head and its body, or a chunk between its length and its end.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use smallvec::SmallVec;
use tokio::io::AsyncWrite;

/// Maximum number of bytes that are copied into one piece. Linux sends one piece (send) faster than several (writev), and copying an
/// ordinary request or answer costs less than the difference.
const MAX_COPIED: usize = 2 * 1024;

/// Writes pieces with one call; returns how many of their bytes were written.
pub(crate) fn poll_write_pieces<S: AsyncWrite + Unpin + ?Sized>(
    stream: &mut S,
    pieces: &[IoSlice<'_>],
    context: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let stream = Pin::new(stream);
    if let [piece] = pieces {
        return stream.poll_write(context, piece);
    }
    if pieces.iter().map(|piece| piece.len()).sum::<usize>() > MAX_COPIED {
        return stream.poll_write_vectored(context, pieces);
    }
    let mut together = SmallVec::<[u8; MAX_COPIED]>::new();
    for piece in pieces {
        together.extend_from_slice(piece);
    }
    stream.poll_write(context, &together)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Counts the pieces of each write.
    #[derive(Default)]
    struct Written {
        bytes: Vec<u8>,
        pieces: Vec<usize>,
    }

    impl AsyncWrite for Written {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.bytes.extend_from_slice(bytes);
            self.pieces.push(1);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_write_vectored(mut self: Pin<&mut Self>, _: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
            for piece in pieces {
                self.bytes.extend_from_slice(piece);
            }
            self.pieces.push(pieces.len());
            Poll::Ready(Ok(pieces.iter().map(|piece| piece.len()).sum()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn few_bytes_are_sent_as_one_piece_and_many_are_not_copied() {
        let (full, large) = (vec![b'x'; MAX_COPIED - 4], vec![b'x'; MAX_COPIED]);
        for (pieces, expected) in [
            (vec![&b"head "[..], b"", b"body"], 1),
            (vec![b"head", &full], 1),
            (vec![b"head", &large], 2),
            (vec![&large], 1),
            (vec![], 1),
        ] {
            let mut written = Written::default();
            let slices: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            let count = poll_fn(|context| poll_write_pieces(&mut written, &slices, context)).await.unwrap();
            assert_eq!((count, written.pieces, &written.bytes), (pieces.concat().len(), vec![expected], &pieces.concat()));
        }
    }
}
