//! Opens the sockets: one for every core on the same address, so that the kernel deals connections out and no core
//! waits for another.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    thread,
};

use socket2::{Domain, Protocol, Socket, Type};

use crate::settings::Settings;

/// Connections the kernel keeps until they are accepted.
const BACKLOG: i32 = 4_096;

/// Open sockets, one for each core.
#[derive(Debug)]
pub struct Listening {
    pub(super) sockets: Vec<TcpListener>,
    address: SocketAddr,
}

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct ListenError {
    /// As asked.
    pub address: SocketAddr,
    /// The system's answer.
    pub source: io::Error,
}

impl Listening {
    /// Where, with the port the system chose for port 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many cores there will be.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.sockets.len()
    }
}

/// Opens the sockets. Nothing is accepted yet.
///
/// # Errors
/// When the address is taken or not ours.
pub fn listen(settings: &Settings) -> Result<Listening, ListenError> {
    let cores = match settings.cores {
        0 => thread::available_parallelism().map_or(1, usize::from),
        cores => cores,
    };
    let failed = |source| ListenError { address: settings.listen, source };
    // The first socket is opened alone on purpose: with address sharing from the start, a second gateway on the same
    // port would take half of the connections instead of being told that the port is taken.
    probe(settings.listen).map_err(failed)?;
    let first = open(settings.listen).map_err(failed)?;
    let address = first.local_addr().map_err(failed)?;
    let mut sockets = vec![first];
    for _ in 1..cores {
        sockets.push(open(address).map_err(failed)?);
    }
    Ok(Listening { sockets, address })
}

/// Fails when the address is in use.
fn probe(address: SocketAddr) -> io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    #[cfg(unix)]
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(listen: SocketAddr, cores: usize) -> Settings {
        Settings { listen, cores, ..Settings::default() }
    }

    #[test]
    fn every_core_has_a_socket_on_one_address() {
        let listening = listen(&settings("127.0.0.1:0".parse().unwrap(), 3)).unwrap();
        assert_ne!(listening.address().port(), 0);
        for socket in &listening.sockets {
            assert_eq!(socket.local_addr().unwrap(), listening.address());
        }
    }

    #[test]
    fn a_taken_port_is_not_shared() {
        let first = listen(&settings("127.0.0.1:0".parse().unwrap(), 2)).unwrap();
        let error = listen(&settings(first.address(), 2)).unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&first.address().to_string()));
    }
}
