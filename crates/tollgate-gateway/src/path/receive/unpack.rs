//! Unpacks gzip bodies without trusting them: output is bounded, and a large body yields to the other requests of
//! its core between two slices.

use std::io::Read as _;

use bytes::Bytes;
use flate2::bufread::GzDecoder;

use crate::{refusal::Refusal, request::BodyMemory};

/// Output between two yields.
const SLICE: usize = 256 * 1024;

/// One gzip member and nothing behind it.
///
/// # Errors
/// E22 when the content is larger than `limit`; E63 when there is no memory for it; E18 when it is no gzip, is cut short or has something behind it.
pub(super) async fn gunzip(packed: Bytes, limit: usize, memory: Option<&BodyMemory>) -> Result<Bytes, Refusal> {
    let mut decoder = GzDecoder::new(&packed[..]);
    let mut out = Vec::with_capacity(SLICE.min(limit));
    loop {
        // One byte more than allowed tells "exactly at the limit" from "beyond".
        let room = (limit + 1 - out.len()).min(SLICE);
        let before = out.len();
        let read = decoder.by_ref().take(room as u64).read_to_end(&mut out);
        if read.is_err() {
            return Err(Refusal::BodyUnreadable { fault: "its gzip encoding is broken" });
        }
        if memory.is_some_and(|memory| memory.take(out.len() - before).is_err()) {
            return Err(Refusal::Overloaded);
        }
        if out.len() > limit {
            return Err(Refusal::BodyTooLarge { limit });
        }
        if read.is_ok_and(|read| read < room) {
            break;
        }
        tokio::task::yield_now().await;
    }
    if !decoder.get_ref().is_empty() {
        return Err(Refusal::BodyUnreadable { fault: "something stands behind its gzip encoding" });
    }
    Ok(out.into())
}
