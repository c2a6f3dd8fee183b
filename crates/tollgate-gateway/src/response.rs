//! The response body type of the model path.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};

/// Aborts a response body (E59): the connection or stream is reset, so that the caller does not mistake a truncated
/// answer for a complete one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("answer aborted")]
pub struct AnswerAborted;

/// Body of every response of the model path.
pub struct AnswerBody(AnswerSource);

enum AnswerSource {
    /// Not boxed: most bodies are these.
    Whole(Pieces),
    Other(UnsyncBoxBody<Bytes, AnswerAborted>),
}

impl AnswerBody {
    pub(crate) fn of(body: impl Body<Data = Bytes, Error = AnswerAborted> + Send + 'static) -> Self {
        Self(AnswerSource::Other(body.boxed_unsync()))
    }
}

impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerBody").field("size", &self.size_hint()).finish_non_exhaustive()
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = AnswerAborted;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnswerAborted>>> {
        match &mut self.get_mut().0 {
            AnswerSource::Whole(body) => Pin::new(body).poll_frame(context),
            AnswerSource::Other(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            AnswerSource::Whole(body) => body.is_end_stream(),
            AnswerSource::Other(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            AnswerSource::Whole(body) => body.size_hint(),
            AnswerSource::Other(body) => body.size_hint(),
        }
    }
}

/// A body that is complete in memory.
pub(crate) const fn whole(bytes: Bytes) -> AnswerBody {
    AnswerBody(AnswerSource::Whole(Pieces(bytes)))
}

/// Larger bodies are handed over in pieces of this size, so that the caller's reading progress is visible.
const PIECE_BYTES: usize = 64 * 1024;
/// The end of a body that is copied. hyper keeps up to two pieces until the caller has read them, and an uncopied piece would keep
/// the whole body in memory.
const TAIL_BYTES: usize = 4 * PIECE_BYTES;

/// Larger chunks are handed over in pieces.
pub(crate) const LARGE_BYTES: usize = TAIL_BYTES;

/// Takes the next piece of a large body off its front.
pub(crate) fn next_piece(rest: &mut Bytes) -> Bytes {
    let piece = rest.split_to(rest.len().min(PIECE_BYTES));
    if rest.len() <= TAIL_BYTES && rest.len() + piece.len() > TAIL_BYTES {
        *rest = Bytes::copy_from_slice(rest);
    }
    piece
}

/// A body that is complete in memory. One piece, unless it is large.
struct Pieces(Bytes);

impl Body for Pieces {
    type Data = Bytes;
    type Error = AnswerAborted;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnswerAborted>>> {
        let rest = &mut self.get_mut().0;
        if rest.is_empty() {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(Frame::data(next_piece(rest)))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn large_body_is_read_in_pieces_and_its_memory_is_released_before_the_last() {
        let bytes: Bytes = (0..PIECE_BYTES * 10 + 7).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let expected = bytes.to_vec();
        let mut body = whole(bytes.clone());
        let (mut read, mut pieces) = (Vec::new(), Vec::new());
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            assert!(piece.len() <= PIECE_BYTES);
            read.extend_from_slice(&piece);
            pieces.push(piece);
        }
        assert_eq!(read, expected);
        // The last pieces are copies, not slices of the original body.
        let range = bytes.as_ptr_range();
        assert!(pieces[pieces.len() - 4..].iter().all(|piece| !range.contains(&piece.as_ptr())));
    }
}
