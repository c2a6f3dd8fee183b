//! A response body together with the lease of its connection.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::{lease::Lease, response_body::ResponseBody};
use crate::upstream::call::UpstreamBodyFault;

/// A response body. At its end the connection returns to the pool; dropped before, the connection is closed.
pub(crate) struct LeasedBody(Option<(ResponseBody, Lease)>);

impl LeasedBody {
    pub(crate) const fn new(body: ResponseBody, lease: Lease) -> Self {
        Self(Some((body, lease)))
    }

    fn release_at_end(&mut self) {
        if let Some((body, lease)) = self.0.take_if(|(body, _)| body.is_end_stream()) {
            lease.release(body);
        }
    }
}

impl Body for LeasedBody {
    type Data = Bytes;
    type Error = UpstreamBodyFault;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyFault>>> {
        let this = self.get_mut();
        let Some((body, _)) = &mut this.0 else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(context));
        match &frame {
            Some(Ok(_)) | None => this.release_at_end(),
            Some(Err(_)) => this.0 = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|(body, _)| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), |(body, _)| body.size_hint())
    }
}

impl Drop for LeasedBody {
    fn drop(&mut self) {
        self.release_at_end();
    }
}
