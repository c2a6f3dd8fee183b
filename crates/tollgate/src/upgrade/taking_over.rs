//! The new process of an upgrade: requests the hand-over from the running process, and continues with the sockets and counters that it
//! receives.

use std::{
    io,
    net::TcpListener,
    os::unix::net::{UnixListener, UnixStream},
    time::Duration,
};

use tokio::sync::mpsc;
use tollgate_gateway::{
    hand_over::MovedConnection,
    server::{Listening, tls_acceptor},
};
use tollgate_store::{CounterHandOver, DataFolderLock};

use super::{
    PROTOCOL,
    messages::{Conversation, Reply, Request},
    predecessors::Predecessors,
    socket_path,
};
use crate::{config::Config, failure::Failure, gateway_settings};

/// Longest wait for an answer; the running process books its records before it hands over.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Connections that wait for their core.
const QUEUE_CAPACITY: usize = 1_024;

/// Parts that the running process has handed over.
pub(crate) struct TakeOver {
    conversation: Conversation,
    /// Conversations with processes before the running one that have not ended.
    predecessors: Vec<Conversation>,
    /// Taken when the store is opened.
    pub(crate) lock: Option<DataFolderLock>,
    /// Socket for upgrade requests of further processes.
    asking: Option<UnixListener>,
    /// Taken when the counters are made.
    pub(crate) counters: Option<CounterHandOver>,
    sockets: Vec<TcpListener>,
    console: Option<TcpListener>,
}

/// The sockets of the running process.
pub(crate) struct TakenSockets {
    pub(crate) listening: Listening,
    pub(crate) console: Option<TcpListener>,
    /// Socket for requests of the next upgrade. Processes that connect from now on wait for this process.
    pub(crate) asking: tokio::net::UnixListener,
    /// Pass connections to the cores.
    pub(crate) moves: Vec<mpsc::Sender<MovedConnection>>,
}

impl TakeOver {
    /// Requests a hand-over from the gateway that runs on the data folder. Everything that can be checked earlier is checked
    /// first, because the gateway pauses from the request on.
    pub(crate) fn request(config: &Config) -> Result<Self, Failure> {
        check_files(config)?;
        let asked = Request::Ask {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            listen: config.listen,
            console: config.console,
        };
        let path = socket_path(&config.data);
        let stream = UnixStream::connect(&path).map_err(|error| {
            let hint = "is a gateway of this version running there? `tollgate serve` starts one";
            Failure::Machine(format!("no gateway hands over at {}: {error}; {hint}", path.display()))
        })?;
        let mut conversation = Conversation::new(stream).map_err(|error| lost(&error))?;
        let answer = conversation
            .wait_at_most(Some(ANSWER_LIMIT))
            .and_then(|()| conversation.send(&asked, &[]))
            .and_then(|()| conversation.receive::<Reply>());
        let (counters, has_console, predecessors, mut files) = match answer.map_err(|error| lost(&error))? {
            (Reply::Handed { counters, has_console, predecessors }, files) => {
                (counters, has_console, predecessors, files.into_iter())
            }
            (Reply::Refused { why }, _) => return Err(Failure::Machine(format!("the running gateway does not hand over: {why}"))),
            _ => return Err(lost(&io::ErrorKind::InvalidData.into())),
        };
        let lock = files.next().map(DataFolderLock::from_handed_over);
        let asking = files.next().map(UnixListener::from);
        let before = files.len().checked_sub(predecessors).ok_or_else(|| lost(&io::ErrorKind::InvalidData.into()))?;
        let mut sockets: Vec<TcpListener> = files.by_ref().take(before).map(TcpListener::from).collect();
        let predecessors: Result<_, _> = files.map(|file| Conversation::new(file.into())).collect();
        let console = if has_console { sockets.pop() } else { None };
        let predecessors = predecessors.map_err(|error| lost(&error))?;
        Ok(Self { conversation, predecessors, lock, asking, counters: Some(counters), sockets, console })
    }

    /// The sockets, to be served once [`Self::begin`] has succeeded.
    pub(crate) fn take_sockets(&mut self) -> io::Result<TakenSockets> {
        let mut moves = Vec::new();
        let taken = std::mem::take(&mut self.sockets).into_iter().map(|socket| {
            let (sender, receiver) = mpsc::channel(QUEUE_CAPACITY);
            moves.push(sender);
            (socket, receiver)
        });
        let listening = Listening::taken_over(taken.collect())?;
        let asking = self.asking.take().ok_or(io::ErrorKind::NotFound)?;
        asking.set_nonblocking(true)?;
        let asking = tokio::net::UnixListener::from_std(asking)?;
        Ok(TakenSockets { listening, console: self.console.take(), asking, moves })
    }

    /// Reports to the running process that this one can serve, and waits for its consent. After an error this process must
    /// end.
    pub(crate) fn begin(&mut self) -> Result<(), Failure> {
        let answer = self.conversation.send(&Request::Ready, &[]).and_then(|()| self.conversation.receive::<Reply>());
        match answer.map_err(|error| lost(&error))? {
            (Reply::Go, _) => Ok(()),
            _ => Err(lost(&io::ErrorKind::InvalidData.into())),
        }
    }

    /// Makes the running process resume serving; sends the reason.
    pub(crate) fn give_up(&mut self, failure: &Failure) {
        // If this cannot be sent, the running process resumes because the connection ends.
        let _ = self.conversation.send(&Request::Failed { why: failure.to_string() }, &[]);
    }

    /// Follows the requests that end in the previous processes.
    pub(crate) fn follow(self, predecessors: &Predecessors) {
        predecessors.follow(std::iter::once(self.conversation).chain(self.predecessors).collect());
    }
}

/// Reads the files that the settings name, as far as that is possible beside a running gateway.
fn check_files(config: &Config) -> Result<(), Failure> {
    for files in gateway_settings::tls_files(config) {
        tls_acceptor(&files).map_err(|error| Failure::invalid(error.to_string()))?;
    }
    if let Some(file) = &config.catalog_file {
        crate::catalog_file::read(file)?;
    }
    Ok(())
}

fn lost(error: &io::Error) -> Failure {
    Failure::Machine(format!("the running gateway did not hand over ({error}); it keeps serving, see its log"))
}
