//! The queue of contents that wait for the database. A request adds its own when its usage record is written;
//! [`ContentWriter`](crate::background::content_writer::ContentWriter) stores them. Requests never wait for it.
//!
//! Bound: 4,096 requests and 64 MiB, of which a key and its member have a share. Contents that do not fit are dropped and counted.

use std::sync::Arc;

use tokio::sync::mpsc;
use tollgate_core::RequestContents;

use super::shares::{KeyShare, QueueCapacity, QueueCharge};

/// Requests whose contents may wait.
const QUEUE_CAPACITY: usize = 4_096;
/// Bytes of contents that may wait.
pub(crate) const QUEUE_BYTES: usize = 64 << 20;
/// Memory of contents besides their texts.
const OVERHEAD: usize = 256;

/// The sending end of the queue. Without a writer, nothing is queued.
#[derive(Clone, Debug, Default)]
pub struct ContentQueue(Option<ContentSender>);

#[derive(Clone, Debug)]
struct ContentSender {
    contents: mpsc::Sender<QueuedContents>,
    capacity: Arc<QueueCapacity>,
}

/// Contents in the queue, with the capacity that they take.
#[derive(Debug)]
pub(crate) struct QueuedContents {
    pub(crate) contents: RequestContents,
    charge: QueueCharge,
}

impl QueuedContents {
    /// The contents, and the capacity that they take until the charge is dropped.
    pub(crate) fn into_parts(self) -> (RequestContents, QueueCharge) {
        (self.contents, self.charge)
    }
}

impl ContentQueue {
    pub(crate) fn new() -> (Self, mpsc::Receiver<QueuedContents>) {
        let (contents, receiver) = mpsc::channel(QUEUE_CAPACITY);
        (Self(Some(ContentSender { contents, capacity: QueueCapacity::of_contents(QUEUE_BYTES) })), receiver)
    }

    /// Queues contents. Returns whether the queue had capacity for them.
    pub(crate) fn send(&self, contents: RequestContents, share: &Arc<KeyShare>) -> bool {
        let Some(sender) = &self.0 else { return false };
        let bytes = contents.request.text.len() + contents.answer.text.len() + OVERHEAD;
        let Some(charge) = sender.capacity.take(share, bytes) else { return false };
        sender.contents.try_send(QueuedContents { contents, charge }).is_ok()
    }
}
