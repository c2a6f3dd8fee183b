//! The listener: sockets, TLS, HTTP and its guards.
