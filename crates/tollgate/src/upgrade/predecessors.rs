//! Earlier processes that still complete their running requests. Each reports the records that it settles, and passes its
//! connections on. At the next upgrade the new process continues these conversations.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::sync::mpsc;
use tollgate_gateway::{hand_over::MovedConnection, state::shared::Shared};

use super::messages::{Conversation, Reply};
use crate::compose;

/// How often a thread checks whether it must stop.
const STOP_INTERVAL: Duration = Duration::from_millis(20);

pub(crate) struct Predecessors {
    shared: Arc<Shared>,
    /// Pass connections to the cores; empty without a previous process.
    moves: Vec<mpsc::Sender<MovedConnection>>,
    /// All threads check it between two messages.
    stop: Arc<AtomicBool>,
    /// Threads, one for each conversation. A thread returns its conversation unless that has ended.
    following: Mutex<Vec<JoinHandle<Option<Conversation>>>>,
}

impl Predecessors {
    pub(crate) fn new(shared: Arc<Shared>, moves: Vec<mpsc::Sender<MovedConnection>>) -> Self {
        Self { shared, moves, stop: Arc::default(), following: Mutex::default() }
    }

    /// Follows these conversations.
    pub(super) fn follow(&self, conversations: Vec<Conversation>) {
        self.stop.store(false, Ordering::Release);
        for conversation in conversations {
            let (shared, moves, stop) = (Arc::clone(&self.shared), self.moves.clone(), Arc::clone(&self.stop));
            let body = move || follow(conversation, &shared, &moves, &stop);
            match thread::Builder::new().name("hand-over".to_owned()).spawn(body) {
                Ok(thread) => self.following.lock().unwrap_or_else(PoisonError::into_inner).push(thread),
                Err(error) => tracing::error!(%error, "what ends in the process before this one is not counted"),
            }
        }
    }

    /// Stops following, between two messages, and returns the conversations that have not ended. Blocks for a moment.
    pub(super) fn pause(&self) -> Vec<Conversation> {
        self.stop.store(true, Ordering::Release);
        let following = std::mem::take(&mut *self.following.lock().unwrap_or_else(PoisonError::into_inner));
        following.into_iter().filter_map(|thread| thread.join().ok().flatten()).collect()
    }
}

/// Counts the requests that end in another process, and distributes its connections over the cores in round-robin order.
fn follow(
    mut conversation: Conversation,
    shared: &Shared,
    moves: &[mpsc::Sender<MovedConnection>],
    stop: &AtomicBool,
) -> Option<Conversation> {
    let mut next = 0;
    while !stop.load(Ordering::Acquire) {
        let (message, files) = match conversation.receive_within::<Reply>(STOP_INTERVAL) {
            Ok(None) => continue,
            Ok(Some(received)) => received,
            Err(_) => {
                tracing::info!("a process before this one has ended what it had begun");
                return None;
            }
        };
        match message {
            Reply::Settled { record } => {
                for alert in shared.counters.settle(&record, compose::instant()) {
                    shared.alert(record.id, &record.key_name, &alert);
                }
            }
            Reply::Connection { first } => {
                let (Some(socket), Some(core)) = (files.into_iter().next(), moves.get(next)) else { continue };
                let _ = core.blocking_send(MovedConnection { socket: socket.into(), first: first.into() });
                next = (next + 1) % moves.len();
            }
            Reply::Refused { .. } | Reply::Handed { .. } | Reply::Go => {}
        }
    }
    Some(conversation)
}
