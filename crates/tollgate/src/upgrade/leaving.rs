//! The running process of an upgrade: hands over when a new process requests it, and resumes serving if that fails.

use std::{
    fs, io,
    net::SocketAddr,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    net::{UnixListener, UnixStream},
    sync::mpsc,
    task::spawn_blocking,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tollgate_gateway::{hand_over::MovedConnection, state::shared::Shared};
use tollgate_store::{Journal, Store};

use super::{
    PROTOCOL,
    messages::{Conversation, MAX_FILES, Reply, Request},
    predecessors::Predecessors,
    socket_path,
};
use crate::{compose, console::OwnAddress};

/// Longest wait for the first message of the new process.
const ASK_LIMIT: Duration = Duration::from_secs(2);
/// Longest wait until all records are booked.
const PAUSE_LIMIT: Duration = Duration::from_secs(5);
/// Longest wait until the new process could serve. Callers wait meanwhile.
const READY_LIMIT: Duration = Duration::from_secs(20);
/// Descriptors passed on besides the listening sockets of the cores: the lock, the socket for upgrade requests, and the console's socket.
const OTHER_FILES: usize = 3;
/// Messages for the new process that wait for it to read.
const QUEUE_CAPACITY: usize = 1_024;

/// Parts that a running gateway can hand over.
pub(crate) struct Leaving {
    pub(crate) shared: Arc<Shared>,
    pub(crate) store: Store,
    pub(crate) journal: Arc<Journal>,
    pub(crate) data: PathBuf,
    /// The listening sockets.
    pub(crate) sockets: Vec<OwnedFd>,
    pub(crate) address: SocketAddr,
    pub(crate) console: Option<OwnAddress>,
    pub(crate) predecessors: Arc<Predecessors>,
    /// Socket for upgrade requests of new processes.
    pub(crate) asking: Option<UnixListener>,
    /// The setting `console.listen`.
    pub(crate) console_address: Option<SocketAddr>,
    /// Cancelled when the new process serves.
    pub(crate) left: CancellationToken,
}

impl Leaving {
    /// Answers new processes until one has taken over or `stop` is cancelled; then reports to it every request that ends and every
    /// connection between two requests.
    pub(crate) async fn serve(mut self, stop: CancellationToken) {
        let path = socket_path(&self.data);
        let Some(listener) = self.asking.take() else { return };
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            if !is_same_user(&stream, &path) {
                continue;
            }
            match self.hand_over(stream, &listener).await {
                Ok(Some((conversation, moved))) => {
                    // The new process has this socket, with the processes that wait on it, and the socket of the console's own
                    // address.
                    drop(listener);
                    if let Some(console) = &self.console {
                        console.leave();
                    }
                    return self.relay(conversation, moved).await;
                }
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "an upgrade failed, this process keeps serving"),
            }
        }
        let _ = fs::remove_file(&path);
    }

    /// Why the gateway cannot be handed over to the process that requests it.
    fn objection(&self, asked: &Request) -> Option<String> {
        let Request::Ask { protocol, version: _, listen, console } = asked else {
            return Some("it was not asked first".to_owned());
        };
        let is_same = |wanted: SocketAddr, is: SocketAddr| wanted == is || (wanted.port() == 0 && wanted.ip() == is.ip());
        if *protocol != PROTOCOL {
            Some("the two versions hand over in different ways; restart the gateway instead".to_owned())
        } else if !is_same(*listen, self.address) {
            Some(format!("it listens on {}, and server.listen is {listen} now; restart the gateway instead", self.address))
        } else if *console != self.console_address {
            Some("console.listen has changed; restart the gateway instead".to_owned())
        } else if self.sockets.len() + OTHER_FILES > MAX_FILES {
            Some("it has too many cores".to_owned())
        } else if self.shared.serving.is_draining() {
            Some("it is stopping".to_owned())
        } else if self.shared.serving.in_memory_only() > 0 {
            Some("its journal cannot be written".to_owned())
        } else {
            None
        }
    }

    /// Hands over to one process. `None` when it is refused.
    async fn hand_over(
        &self,
        stream: UnixStream,
        asking: &UnixListener,
    ) -> io::Result<Option<(Conversation, mpsc::Receiver<MovedConnection>)>> {
        let conversation = Conversation::new(stream.into_std()?)?;
        conversation.wait_at_most(Some(ASK_LIMIT))?;
        let (mut conversation, asked) = receive(conversation).await?;
        if let Some(why) = self.objection(&asked) {
            conversation.send(&Reply::Refused { why }, &[])?;
            return Ok(None);
        }
        let began = compose::instant();
        tracing::info!(version = ?asked, "handing over to a new process");
        let hand_over = &self.shared.serving.hand_over;
        if timeout(PAUSE_LIMIT, hand_over.pause()).await != Ok(true) {
            hand_over.resume();
            let why = "the database does not accept the usage records at the moment".to_owned();
            conversation.send(&Reply::Refused { why }, &[])?;
            return Ok(None);
        }
        let predecessors = Arc::clone(&self.predecessors);
        let before = spawn_blocking(move || predecessors.pause()).await.map_err(io::Error::other)?;
        match self.pass_on(conversation, asking, &before).await {
            Ok(passed) => {
                let paused_ms = u64::try_from((compose::instant() - began).as_millis()).unwrap_or(u64::MAX);
                tracing::info!(
                    paused_ms,
                    running = self.shared.serving.in_flight(),
                    "handed over; running responses continue here"
                );
                Ok(Some(passed))
            }
            Err(error) => {
                if let Err(error) = self.store.retake_server_lock().await {
                    tracing::error!(%error, "the lock of the database was not acquired again");
                }
                self.predecessors.follow(before);
                hand_over.resume();
                Err(error)
            }
        }
    }

    /// Hands everything over while the gateway is paused, and leaves the sockets to the new process.
    async fn pass_on(
        &self,
        mut conversation: Conversation,
        asking: &UnixListener,
        before: &[Conversation],
    ) -> io::Result<(Conversation, mpsc::Receiver<MovedConnection>)> {
        let hand_over = &self.shared.serving.hand_over;
        // Records that were booked when the pause began are in the database, which the new process reads.
        let mut late = hand_over.take_settled();
        late.retain(|record| self.journal.is_unbooked(record.id));
        self.store.release_server_lock().await;
        let counters = self.shared.counters.hand_over(compose::instant());
        let lock = self.store.folder_lock().ok_or_else(|| io::Error::other("the data folder is not locked"))?;
        let mut files = vec![lock.as_fd(), asking.as_fd()];
        files.extend(self.sockets.iter().map(OwnedFd::as_fd));
        let console = self.console.as_ref().map_or(Ok(None), OwnAddress::duplicate)?;
        files.extend(console.iter().map(OwnedFd::as_fd));
        files.extend(before.iter().map(Conversation::socket));
        let handed = Reply::Handed { has_console: console.is_some(), predecessors: before.len(), counters };
        conversation.send(&handed, &files)?;
        conversation.wait_at_most(Some(READY_LIMIT))?;
        let (mut conversation, answer) = receive(conversation).await?;
        match answer {
            Request::Ready => {}
            Request::Failed { why } => return Err(io::Error::other(format!("the new process cannot serve: {why}"))),
            Request::Ask { .. } => return Err(io::ErrorKind::InvalidData.into()),
        }
        let (moves, moved) = mpsc::channel(QUEUE_CAPACITY);
        // From here on the other process serves, whether or not it receives the answer.
        hand_over.leave(moves);
        self.left.cancel();
        let mut delivery = conversation.send(&Reply::Go, &[]);
        for record in late {
            delivery = delivery.and_then(|()| conversation.send(&Reply::Settled { record: Box::new(record) }, &[]));
        }
        if let Err(error) = delivery {
            tracing::error!(%error, "the new process ended when it had taken over");
        }
        Ok((conversation, moved))
    }

    /// Reports ended requests and moved connections to the new process, until the last request has ended.
    async fn relay(self, conversation: Conversation, mut moved: mpsc::Receiver<MovedConnection>) {
        let (queue, messages) = mpsc::channel(QUEUE_CAPACITY);
        let sending = spawn_blocking(move || send_all(conversation, messages));
        let hand_over = &self.shared.serving.hand_over;
        loop {
            let connection = tokio::select! {
                biased;
                () = hand_over.has_settled() => None,
                connection = moved.recv() => match connection {
                    Some(connection) => Some(connection),
                    None => break,
                },
            };
            let sent = match connection {
                Some(connection) => queue.send(Outgoing::Connection(connection)).await.is_ok(),
                None => self.send_settled(&queue).await,
            };
            if !sent {
                tracing::warn!("the new process does not take what ends here; its next start reads it from the database");
                break;
            }
        }
        self.send_settled(&queue).await;
        drop(queue);
        let _ = sending.await;
    }

    async fn send_settled(&self, queue: &mpsc::Sender<Outgoing>) -> bool {
        let mut sent = true;
        for record in self.shared.serving.hand_over.take_settled() {
            sent &= queue.send(Outgoing::Settled(Box::new(record))).await.is_ok();
        }
        sent
    }
}

/// A message for the new process.
enum Outgoing {
    Settled(Box<tollgate_core::UsageRecord>),
    Connection(MovedConnection),
}

fn send_all(mut conversation: Conversation, mut messages: mpsc::Receiver<Outgoing>) {
    while let Some(message) = messages.blocking_recv() {
        let sent = match message {
            Outgoing::Settled(record) => conversation.send(&Reply::Settled { record }, &[]),
            Outgoing::Connection(MovedConnection { socket, first }) => {
                conversation.send(&Reply::Connection { first: first.to_vec() }, &[socket.as_fd()])
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn receive(mut conversation: Conversation) -> io::Result<(Conversation, Request)> {
    let received = spawn_blocking(move || conversation.receive().map(|(message, _)| (conversation, message)));
    received.await.map_err(io::Error::other)?
}

/// Listens for new processes. `None` if that fails: the gateway can serve without.
pub(super) fn listen(data: &Path) -> Option<UnixListener> {
    let path = socket_path(data);
    // A process that was killed may have left its socket.
    let _ = fs::remove_file(&path);
    UnixListener::bind(&path)
        .and_then(|listener| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).map(|()| listener))
        .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "this gateway cannot be upgraded while it runs"))
        .ok()
}

/// Only the gateway's user may replace it, regardless of the folder's mode.
fn is_same_user(stream: &UnixStream, path: &Path) -> bool {
    let owner = fs::metadata(path).map(|file| file.uid());
    stream.peer_cred().is_ok_and(|peer| owner.is_ok_and(|owner| peer.uid() == owner))
}
