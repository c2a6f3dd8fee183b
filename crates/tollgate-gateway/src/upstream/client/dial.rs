//! Dials the addresses of a host, one after the other, until one accepts.

use std::{io, net::SocketAddr, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::net::TcpStream;

/// Delay before the next address is tried in parallel (Connection Attempt Delay, RFC 8305, section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Connects to the first address that accepts; each is tried [`ATTEMPT_DELAY`] before the next.
pub(crate) async fn dial(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut waiting = addresses.into_iter();
    let mut dialing = FuturesUnordered::new();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        if let Some(address) = waiting.next() {
            dialing.push(TcpStream::connect(address));
        } else if dialing.is_empty() {
            return Err(last);
        }
        let more = waiting.len() > 0;
        tokio::select! {
            Some(done) = dialing.next() => match done {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    return Ok(socket);
                }
                Err(fault) => last = fault,
            },
            () = tokio::time::sleep(ATTEMPT_DELAY), if more => {}
        }
    }
}
