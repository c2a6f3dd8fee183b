//! The state of an upgrade in the process that is replaced. The process pauses, and then resumes serving or leaves the
//! sockets to its successor.

use std::{
    collections::VecDeque,
    net::TcpStream,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc, watch};
use tollgate_core::UsageRecord;

/// The phase of an upgrade in the process that is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandOverPhase {
    #[default]
    Serving,
    /// No request is accepted or booked until it is decided which process continues.
    Paused,
    /// The successor serves; this process completes its running requests.
    Left,
}

/// Follows the phase.
pub type PhaseReceiver = watch::Receiver<HandOverPhase>;

/// A connection between two requests, with the bytes already read of the next one.
#[derive(Debug)]
pub struct MovedConnection {
    pub socket: TcpStream,
    pub first: Bytes,
}

/// The state of an upgrade in this process. Connections and the usage writer follow its phase.
#[derive(Debug, Default)]
pub struct HandOver {
    phase: watch::Sender<HandOverPhase>,
    /// True while the phase is not `Serving`. Checked at each read of a connection.
    holds_requests: AtomicBool,
    has_left: AtomicBool,
    /// Whether the usage writer has booked everything since the pause began.
    booked: watch::Sender<Option<bool>>,
    /// Records settled since the pause began; at most those of the requests that were running then.
    settled: Mutex<VecDeque<UsageRecord>>,
    new_settled: Notify,
    /// Carries connections to the successor.
    moves: Mutex<Option<mpsc::Sender<MovedConnection>>>,
}

impl HandOver {
    pub fn subscribe(&self) -> PhaseReceiver {
        self.phase.subscribe()
    }

    /// Whether new requests stay unread.
    pub(crate) fn holds_requests(&self) -> bool {
        self.holds_requests.load(Ordering::Acquire)
    }

    pub fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Acquire)
    }

    /// Stops accepting requests and has everything booked. Returns whether the database took it.
    pub async fn pause(&self) -> bool {
        self.booked.send_replace(None);
        self.holds_requests.store(true, Ordering::Release);
        self.phase.send_replace(HandOverPhase::Paused);
        let mut booked = self.booked.subscribe();
        booked.wait_for(Option::is_some).await.is_ok_and(|booked| *booked == Some(true))
    }

    /// Ends a pause without a successor.
    pub fn resume(&self) {
        self.holds_requests.store(false, Ordering::Release);
        self.phase.send_replace(HandOverPhase::Serving);
        self.settled_records().clear();
    }

    /// Leaves the sockets to the successor. Connections are sent to it through `moves`.
    pub fn leave(&self, moves: mpsc::Sender<MovedConnection>) {
        *self.moves.lock().unwrap_or_else(PoisonError::into_inner) = Some(moves);
        self.has_left.store(true, Ordering::Release);
        self.phase.send_replace(HandOverPhase::Left);
    }

    pub(crate) fn booked(&self, is_booked: bool) {
        self.booked.send_replace(Some(is_booked));
    }

    /// Records a settled record for the successor. Call this after the counters were updated.
    pub(crate) fn settled(&self, record: &UsageRecord) {
        if self.holds_requests() {
            self.settled_records().push_back(record.clone());
            self.new_settled.notify_one();
        }
    }

    fn settled_records(&self) -> MutexGuard<'_, VecDeque<UsageRecord>> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the records settled since the last call.
    pub fn take_settled(&self) -> VecDeque<UsageRecord> {
        std::mem::take(&mut *self.settled_records())
    }

    /// Waits until [`Self::take_settled`] has records to return.
    pub async fn has_settled(&self) {
        while self.settled_records().is_empty() {
            self.new_settled.notified().await;
        }
    }

    /// Moves a connection to the successor; without one it is closed.
    pub(crate) async fn give(&self, connection: MovedConnection) {
        let moves = self.moves.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(moves) = moves {
            let _ = moves.send(connection).await;
        }
    }

    /// Closes the channel of connections, after all of them were moved or closed.
    pub fn end_moves(&self) {
        *self.moves.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pause_ends_when_the_usage_writer_answers() {
        let hand_over = HandOver::default();
        let mut phase = hand_over.subscribe();
        let writer = async {
            phase.wait_for(|phase| *phase == HandOverPhase::Paused).await.unwrap();
            hand_over.booked(false);
        };
        let (is_booked, ()) = tokio::join!(hand_over.pause(), writer);
        assert!(!is_booked && hand_over.holds_requests());
        hand_over.resume();
        assert!(!hand_over.holds_requests() && !hand_over.has_left());
    }
}
