//! Opens the listening sockets: one per core on the same address (`SO_REUSEPORT`), so that the kernel distributes
//! connections over the cores.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::fd::{AsFd as _, OwnedFd},
    thread,
};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::mpsc;

use crate::{hand_over::MovedConnection, settings::Settings};

/// Connections the kernel queues until they are accepted.
const BACKLOG: i32 = 4_096;

/// Bound sockets, one per core.
#[derive(Debug)]
pub struct Listening {
    pub(super) sockets: Vec<TcpListener>,
    /// Connections of the process before this one, in the order of the sockets; empty if there was none.
    pub(super) moved: Vec<mpsc::Receiver<MovedConnection>>,
    address: SocketAddr,
}

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct ListenError {
    pub address: SocketAddr,
    pub source: io::Error,
}

impl Listening {
    /// The sockets of the process before this one, each with the connections that are moved to its core.
    ///
    /// # Errors
    /// When there is no socket, or one of them does not listen.
    pub fn taken_over(taken: Vec<(TcpListener, mpsc::Receiver<MovedConnection>)>) -> io::Result<Self> {
        let (sockets, moved): (Vec<_>, Vec<_>) = taken.into_iter().unzip();
        let first: &TcpListener = sockets.first().ok_or(io::ErrorKind::NotFound)?;
        let address = first.local_addr()?;
        for socket in &sockets {
            socket.set_nonblocking(true)?;
        }
        Ok(Self { sockets, moved, address })
    }

    /// The sockets, for another process.
    ///
    /// # Errors
    /// When the process has too many open files.
    pub fn duplicates(&self) -> io::Result<Vec<OwnedFd>> {
        self.sockets.iter().map(|socket| socket.as_fd().try_clone_to_owned()).collect()
    }

    /// The bound address; for port 0, with the port the system chose.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Clones the sockets. A connection can be accepted through either.
    ///
    /// # Errors
    /// When there are no file descriptors left.
    pub fn try_clone(&self) -> Result<Self, ListenError> {
        let sockets = self.sockets.iter().map(TcpListener::try_clone).collect::<io::Result<_>>();
        let sockets = sockets.map_err(|source| ListenError { address: self.address, source })?;
        Ok(Self { sockets, moved: Vec::new(), address: self.address })
    }

    #[must_use]
    pub fn cores(&self) -> usize {
        self.sockets.len()
    }
}

/// Binds the sockets without accepting connections.
pub fn listen(settings: &Settings) -> Result<Listening, ListenError> {
    let cores = match settings.cores {
        0 => thread::available_parallelism().map_or(1, usize::from),
        cores => cores,
    };
    let failed = |source| ListenError { address: settings.listen, source };
    // Bind once without SO_REUSEPORT: otherwise a second gateway on the same port would silently take half of the
    // connections instead of failing.
    can_listen(settings.listen).map_err(failed)?;
    let first = open(settings.listen).map_err(failed)?;
    let address = first.local_addr().map_err(failed)?;
    let mut sockets = vec![first];
    for _ in 1..cores {
        sockets.push(open(address).map_err(failed)?);
    }
    Ok(Listening { sockets, moved: Vec::new(), address })
}

/// Binds the address for a moment, without listening on it.
///
/// # Errors
/// When another socket listens on the address, or it cannot be bound.
pub fn can_listen(address: SocketAddr) -> io::Result<()> {
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
    fn every_core_has_a_socket_on_the_same_address() {
        let listening = listen(&settings("127.0.0.1:0".parse().unwrap(), 3)).unwrap();
        assert_ne!(listening.address().port(), 0);
        for socket in &listening.sockets {
            assert_eq!(socket.local_addr().unwrap(), listening.address());
        }
    }

    #[test]
    fn port_in_use_is_an_error() {
        let first = listen(&settings("127.0.0.1:0".parse().unwrap(), 2)).unwrap();
        let error = listen(&settings(first.address(), 2)).unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains(&first.address().to_string()));
    }
}
