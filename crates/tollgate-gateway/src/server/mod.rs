//! The listener: sockets, TLS, HTTP and its guards.

mod census;

pub(crate) use census::AddressBlock;
