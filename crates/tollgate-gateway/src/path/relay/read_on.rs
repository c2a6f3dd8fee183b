//! Reads on in the background: for the usage of an answer whose caller left after its finish, because the provider charges for
//! all of it; and to the end of a body, so that its connection can be reused.
//!
//! Bounds: 64 KiB for each stream, the rest of a complete answer that is passed on in pieces, and 30 s for usage or 1 s for the
//! end. The account's permit and the caller's reservation are held while usage is read.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio_util::task::TaskTracker;
use tollgate_protocol::{Problem, ReplySummary, StreamError, StreamRelay};

use crate::{
    path::types::{stream_memory::StreamMemory, usage_guard::UsageGuard},
    upstream::call::UpstreamBody,
};

const LIMIT: Duration = Duration::from_secs(30);
const MAX_DRAIN_TIME: Duration = Duration::from_secs(1);
const MAX_BYTES: usize = 64 * 1024;
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Ends the request, as left by its caller, once the usage is known or a bound is reached.
pub(super) fn for_usage(
    mut relay: Box<dyn StreamRelay>,
    (mut upstream, mut memory): (UpstreamBody, StreamMemory),
    mut guard: Box<UsageGuard>,
    is_complete_answer: bool,
) {
    let max_bytes = if is_complete_answer { MAX_ANSWER_BYTES } else { MAX_BYTES };
    if tokio::runtime::Handle::try_current().is_err() || guard.recorder.shared.serving.is_cutting_off() {
        return;
    }
    let tracker = guard.recorder.shared.tracker.clone();
    tracker.spawn(async move {
        let read = async {
            let (mut bytes, mut unsent) = (0, Vec::new());
            while relay.summary().usage.is_none() && bytes <= max_bytes {
                let Some(Ok(frame)) = upstream.frame().await else {
                    let _ = relay.finish(&mut unsent);
                    break;
                };
                let Ok(data) = frame.into_data() else { continue };
                bytes += data.len();
                let pushed = relay.push(&data, &mut unsent);
                unsent.clear();
                while relay.next_shared().is_some() {}
                if memory.received(data.len()) {
                    memory.measured(relay.held_bytes());
                }
                if pushed.is_err() || memory.is_short() {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(LIMIT, read).await;
        guard.record_reply(relay.summary());
    });
}

/// Reads the rest of a body whose answer is complete, so that its connection can be reused.
pub(super) fn to_the_end(mut rest: UpstreamBody, tracker: &TaskTracker) {
    tracker.spawn(async move {
        let read = async {
            let mut read_bytes = 0;
            while let Some(Ok(frame)) = rest.frame().await {
                read_bytes += frame.data_ref().map_or(0, Bytes::len);
                if read_bytes > MAX_BYTES {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(MAX_DRAIN_TIME, read).await;
    });
}

/// Replaces a relay that was taken out.
pub(super) struct Spent;

impl StreamRelay for Spent {
    fn push(&mut self, _: &Bytes, _: &mut Vec<Bytes>) -> Result<(), StreamError> {
        Ok(())
    }

    fn finish(&mut self, _: &mut Vec<Bytes>) -> Result<(), StreamError> {
        Ok(())
    }

    fn summary(&self) -> ReplySummary {
        ReplySummary::default()
    }

    fn held_bytes(&self) -> usize {
        0
    }

    fn complete(&self) -> bool {
        true
    }

    fn may_end_unmarked(&self, _: u32) -> bool {
        true
    }

    fn problem(&mut self, _: &Problem) -> Bytes {
        Bytes::new()
    }

    fn keep_alive(&self) -> &'static [u8] {
        b""
    }
}
