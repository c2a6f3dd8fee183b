//! The socket of the console's own address, which another process may continue.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::net::TcpListener;

/// The listening socket of the console's own address, while it is open.
#[derive(Clone, Debug, Default)]
pub(super) struct ConsoleSocket(Arc<Mutex<Option<OwnedFd>>>);

impl ConsoleSocket {
    /// The socket, for another process.
    pub(super) fn duplicate(&self) -> io::Result<Option<OwnedFd>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(OwnedFd::try_clone).transpose()
    }

    pub(super) fn open(&self, listener: &TcpListener) {
        match listener.as_fd().try_clone_to_owned() {
            Ok(socket) => *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket),
            Err(error) => tracing::warn!(%error, "the console cannot be handed over in an upgrade"),
        }
    }

    pub(super) fn close(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
