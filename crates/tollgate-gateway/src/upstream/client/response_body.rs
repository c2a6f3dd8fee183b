//! The body of a response, of either version of HTTP.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::http1::Http1Connection;
use crate::upstream::call::UpstreamBodyFault;

/// A body with the connection or stream that it arrives on, which is closed when the body is dropped.
pub(crate) enum ResponseBody {
    Http1(Box<Http1Connection>),
    Http2(Incoming),
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = UpstreamBodyFault;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyFault>>> {
        match self.get_mut() {
            Self::Http1(connection) => connection.poll_data(context).map_ok(Frame::data),
            Self::Http2(body) => Pin::new(body).poll_frame(context).map_err(|_| UpstreamBodyFault::Lost),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(connection) => connection.is_end(),
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(connection) => {
                let mut hint = SizeHint::new();
                hint.set_lower(connection.at_least());
                hint
            }
            Self::Http2(body) => body.size_hint(),
        }
    }
}
