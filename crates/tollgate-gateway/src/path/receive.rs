//! Stage 2 of 11: receive. In: an authenticated caller's body on the wire; out: its bytes.
//!
//! Checks content type and encoding, and enforces the size limit (on the declared length, while reading and while decompressing)
//! and the read timeout. A body that arrives in one piece is not copied.

use std::{
    error::Error as _,
    io::{self, Read as _},
};

use bytes::{Bytes, BytesMut};
use flate2::bufread::GzDecoder;
use http::header;
use http_body::Body as _;
use http_body_util::BodyExt as _;

use crate::{
    header_fields::HeaderFields,
    refusal::Refusal,
    request::{Head, RequestBody, RequestBodyFault},
    settings::Bounds,
    state::shares::InFlightRequest,
};

/// Decompressed bytes between two yields.
const GUNZIP_SLICE: usize = 256 * 1024;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Identity,
    Gzip,
}

/// Reads the body of a request whose key is known.
///
/// # Errors
/// E19, E22, E23, E63, E65; E18 for a packed body that cannot be unpacked; E64 when the caller leaves.
pub(crate) async fn receive(head: &Head, mut body: RequestBody, bounds: &Bounds) -> Result<Bytes, Refusal> {
    content_type(&head.headers)?;
    let encoding = content_encoding(&head.headers)?;
    if body.size_hint().lower() > bounds.body_bytes as u64 {
        return Err(Refusal::BodyTooLarge { limit: bounds.body_bytes });
    }
    let memory = body.memory();
    body.reserve_declared().map_err(|fault| refusal_of(&fault))?;
    let bytes = read(body, bounds).await?;
    match encoding {
        Encoding::Identity => Ok(bytes),
        Encoding::Gzip => gunzip(bytes, bounds.body_bytes, memory.as_deref()).await,
    }
}

async fn read(mut body: RequestBody, bounds: &Bounds) -> Result<Bytes, Refusal> {
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|fault| refusal_of(&fault))?;
        let Ok(piece) = frame.into_data() else { continue };
        if first.len() + rest.len() + piece.len() > bounds.body_bytes {
            return Err(Refusal::BodyTooLarge { limit: bounds.body_bytes });
        }
        if first.is_empty() && rest.is_empty() {
            first = piece;
            continue;
        }
        if rest.is_empty() {
            let declared = usize::try_from(body.size_hint().lower()).unwrap_or(0).min(bounds.body_bytes);
            // The whole declared length: it is counted already, and growing the buffer would copy the received bytes.
            rest.reserve(first.len() + piece.len() + declared);
            rest.extend_from_slice(&std::mem::take(&mut first));
        }
        rest.extend_from_slice(&piece);
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// Decompresses a body of one gzip member. The output is bounded, and a large body yields to the core's other requests between two
/// slices.
async fn gunzip(packed: Bytes, limit: usize, memory: Option<&InFlightRequest>) -> Result<Bytes, Refusal> {
    let mut decoder = GzDecoder::new(&packed[..]);
    let mut out = Vec::with_capacity(GUNZIP_SLICE.min(limit));
    loop {
        // One byte more than allowed distinguishes "exactly at the limit" from "beyond".
        let remaining = (limit + 1 - out.len()).min(GUNZIP_SLICE);
        let before = out.len();
        let read = decoder.by_ref().take(remaining as u64).read_to_end(&mut out);
        if read.is_err() {
            return Err(Refusal::BodyUnreadable { fault: "its gzip encoding is broken" });
        }
        if memory.is_some_and(|memory| memory.reserve_bytes(out.len() - before).is_err()) {
            return Err(Refusal::Overloaded);
        }
        if out.len() > limit {
            return Err(Refusal::BodyTooLarge { limit });
        }
        if read.is_ok_and(|read| read < remaining) {
            break;
        }
        tokio::task::yield_now().await;
    }
    if !decoder.get_ref().is_empty() {
        return Err(Refusal::BodyUnreadable { fault: "there is data after the end of its gzip encoding" });
    }
    Ok(out.into())
}

/// Broken framing is answered; on a closed connection no answer can be sent.
fn refusal_of(fault: &RequestBodyFault) -> Refusal {
    match fault {
        RequestBodyFault::MemoryExhausted => Refusal::Overloaded,
        RequestBodyFault::TooSlow(limit) => Refusal::TooSlow { secs: limit.as_secs() },
        RequestBodyFault::Broken(fault) => {
            let io = fault.source().and_then(|source| source.downcast_ref::<io::Error>());
            if io.is_some_and(|io| matches!(io.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)) {
                Refusal::BodyUnreadable { fault: "its framing is broken" }
            } else {
                Refusal::CallerLeft
            }
        }
    }
}

/// Absent, `application/json` or `application/*+json`, any parameters (E19).
fn content_type(headers: &HeaderFields) -> Result<(), Refusal> {
    for value in headers.get_all(header::CONTENT_TYPE) {
        if value.as_bytes() == b"application/json" {
            continue;
        }
        let text = String::from_utf8_lossy(value.as_bytes());
        let essence = text.split(';').next().unwrap_or_default().trim();
        let subtype = essence.get(..12).filter(|kind| kind.eq_ignore_ascii_case("application/")).map(|_| &essence[12..]);
        let json = subtype.is_some_and(|subtype| {
            subtype.eq_ignore_ascii_case("json")
                || subtype.len() > 5 && subtype.get(subtype.len() - 5..).is_some_and(|end| end.eq_ignore_ascii_case("+json"))
        });
        if !json {
            return Err(Refusal::MediaType { sent: text.into_owned() });
        }
    }
    Ok(())
}

/// Absent, empty, `identity` or `gzip`, once (E23).
fn content_encoding(headers: &HeaderFields) -> Result<Encoding, Refusal> {
    let mut encoding = Encoding::Identity;
    for value in headers.get_all(header::CONTENT_ENCODING) {
        let text = String::from_utf8_lossy(value.as_bytes());
        let name = text.trim();
        if name.is_empty() || name.eq_ignore_ascii_case("identity") {
            continue;
        }
        let gzip = name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip");
        if !gzip || encoding == Encoding::Gzip {
            return Err(Refusal::ContentEncoding { sent: text.into_owned() });
        }
        encoding = Encoding::Gzip;
    }
    Ok(encoding)
}

#[cfg(test)]
mod tests;
