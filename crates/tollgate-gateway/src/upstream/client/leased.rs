//! A response body together with the lease of its connection.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::host::Lease;
use crate::upstream::call::UpstreamBodyFault;

/// A response body. At its end the connection returns to the pool; dropped before, the connection is closed.
pub(crate) struct LeasedBody {
    body: Incoming,
    lease: Option<Lease>,
}

impl LeasedBody {
    pub(crate) fn new(body: Incoming, lease: Lease) -> Self {
        Self { body, lease: Some(lease) }
    }

    fn release_at_end(&mut self) {
        if self.body.is_end_stream()
            && let Some(lease) = self.lease.take()
        {
            lease.release();
        }
    }
}

impl Body for LeasedBody {
    type Data = Bytes;
    type Error = UpstreamBodyFault;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyFault>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        match &frame {
            None => this.lease.take().into_iter().for_each(Lease::release),
            Some(Ok(_)) => this.release_at_end(),
            Some(Err(_)) => this.lease = None,
        }
        let fault_of = |fault: hyper::Error| if fault.is_parse() { UpstreamBodyFault::Unreadable } else { UpstreamBodyFault::Lost };
        Poll::Ready(frame.map(|frame| frame.map_err(fault_of)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for LeasedBody {
    fn drop(&mut self) {
        self.release_at_end();
    }
}
