//! Stage 3 of 11: summarise. In: the body's bytes; out: a [`RequestSummary`], or E18 to E21 for a malformed body.
//!
//! One light scan validates the JSON and notes what routing, limits and prices need. No tree is built.

use bytes::Bytes;
use tollgate_protocol::{RequestSummary, Target, codec};

use crate::{refusal::Refusal, request::Head};

pub(super) fn summarise(head: &Head, target: &Target, body: &Bytes) -> Result<RequestSummary, Refusal> {
    let mut summary = codec(head.from).summarise(target, body).map_err(Refusal::Malformed)?;
    if let Some(session) = head.from.spec().session_header.and_then(|name| head.headers.get(name)) {
        summary.join_session(session.as_bytes());
    }
    Ok(summary)
}
