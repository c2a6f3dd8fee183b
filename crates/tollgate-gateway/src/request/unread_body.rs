//! The rest of a request body whose request was answered before it was read. An HTTP/1.1 connection can be used again only after these
//! bytes.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use http_body::Body as _;
use hyper::body::Incoming;

/// Longest rest in bytes that is read. With more, the connection closes instead.
const MAX_BYTES: usize = 64 * 1024;
/// Consecutive polls that may find no data.
const MAX_EMPTY_READS: u8 = 2;

/// Receives the unread rest of the body of an HTTP/1.1 request.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadBody(Arc<Mutex<Option<Incoming>>>);

impl UnreadBody {
    pub(super) fn put(&self, body: Incoming) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
    }

    /// Reads the bytes that the caller has already sent. Returns false if the body has not ended; the connection must then close.
    pub(crate) async fn is_over(&self, expects_continue: bool) -> bool {
        let Some(mut body) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() else { return true };
        // A caller that waits for "100 Continue" has sent nothing, and reading would ask for it.
        if expects_continue {
            return false;
        }
        let (mut bytes, mut empty_reads) = (0, 0);
        poll_fn(|context| poll_rest(&mut body, &mut bytes, &mut empty_reads, context)).await
    }
}

fn poll_rest(body: &mut Incoming, bytes: &mut usize, empty_reads: &mut u8, context: &mut Context<'_>) -> Poll<bool> {
    loop {
        match Pin::new(&mut *body).poll_frame(context) {
            Poll::Ready(None) => return Poll::Ready(true),
            Poll::Ready(Some(Err(_))) => return Poll::Ready(false),
            Poll::Ready(Some(Ok(frame))) => {
                *bytes += frame.data_ref().map_or(0, bytes::Bytes::len);
                *empty_reads = 0;
                if *bytes > MAX_BYTES {
                    return Poll::Ready(false);
                }
            }
            Poll::Pending if *empty_reads == MAX_EMPTY_READS => return Poll::Ready(false),
            Poll::Pending => {
                // The connection reads between two polls of the request.
                *empty_reads += 1;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }
}
