//! What the tests of this crate share.

use std::net::{IpAddr, Ipv4Addr};

use http::HeaderMap;
use tollgate_core::{RequestId, Timestamp};
use tollgate_protocol::Protocol;

use crate::Head;

/// A posted head without headers; native for native paths.
pub(crate) fn head(path: &str) -> Head {
    Head {
        from: if path.starts_with("/v1beta") { Protocol::Gemini } else { Protocol::OpenAi },
        request_id: RequestId::from_parts(Timestamp(1_795_000_000_000_000), [7; 10]),
        arrived: Timestamp(1_795_000_000_000_000),
        started: tokio::time::Instant::now(),
        peer: IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7)),
        presented_key: None,
        http_method: http::Method::POST,
        path: path.to_owned(),
        headers: HeaderMap::new(),
        client_request_id: None,
    }
}
