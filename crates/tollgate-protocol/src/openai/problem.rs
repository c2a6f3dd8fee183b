//! Error bodies, both ways.

use bytes::Bytes;

use crate::{Problem, UpstreamProblem};

pub(super) fn decode(status: u16, _body: &[u8]) -> UpstreamProblem {
    UpstreamProblem { status, ..UpstreamProblem::default() }
}

pub(super) fn encode(_problem: &Problem) -> Bytes {
    Bytes::new()
}
