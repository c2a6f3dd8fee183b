//! The sockets of a gateway, its own or those of the process before it.

use std::{io, net::TcpListener, os::fd::OwnedFd, path::Path, sync::Arc};

use tokio::net::UnixListener;
use tollgate_gateway::{
    server::{ListenError, Listening, listen},
    state::shared::Shared,
};
use tollgate_store::Store;

use super::{
    leaving, notify,
    predecessors::Predecessors,
    taking_over::{TakeOver, TakenSockets},
};
use crate::failure::Failure;

/// The sockets of a gateway.
pub(crate) struct Sockets {
    pub(crate) listening: Listening,
    /// The console's listening socket, if it was taken over.
    pub(crate) console: Option<TcpListener>,
    pub(crate) predecessors: Arc<Predecessors>,
    /// Socket on which new processes request a hand-over.
    pub(crate) asking: Option<UnixListener>,
}

/// Opens the sockets, unless the gateway already listens on `listening`, or takes them over: when this returns, the other process has
/// left.
pub(crate) fn open(
    data: &Path,
    shared: &Arc<Shared>,
    store: &Store,
    listening: Option<Listening>,
    taken: Option<TakeOver>,
) -> Result<Sockets, Failure> {
    let Some(mut taken) = taken else {
        let listening = listening.map_or_else(|| listen(&shared.settings.load()), Ok).map_err(|error| cannot_listen(&error))?;
        let predecessors = Arc::new(Predecessors::new(Arc::clone(shared), Vec::new()));
        return Ok(Sockets { listening, console: None, predecessors, asking: leaving::listen(data) });
    };
    let failed = |error: io::Error| Failure::Machine(format!("cannot take over: {error}"));
    let TakenSockets { listening, console, asking, moves } = taken.take_sockets().map_err(failed)?;
    taken.begin()?;
    if let Some(lock) = store.folder_lock() {
        lock.note_holder().map_err(failed)?;
    }
    notify::main_process();
    let predecessors = Arc::new(Predecessors::new(Arc::clone(shared), moves));
    taken.follow(&predecessors);
    Ok(Sockets { listening, console, predecessors, asking: Some(asking) })
}

/// The listening sockets, for another process.
pub(crate) fn duplicates(listening: &Listening) -> Result<Vec<OwnedFd>, Failure> {
    listening.duplicates().map_err(|error| Failure::Machine(format!("cannot duplicate the sockets: {error}")))
}

pub(crate) fn cannot_listen(error: &ListenError) -> Failure {
    Failure::Machine(format!("{error}; choose another address with --listen, or stop the process that uses it"))
}
