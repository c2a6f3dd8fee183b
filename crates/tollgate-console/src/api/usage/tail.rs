//! New usage records as server-sent events, in the order in which they are booked. The database determines the order, so that the
//! events of all nodes are included.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use tokio::{sync::OwnedSemaphorePermit, time::sleep};
use tollgate_core::{MemberId, Timestamp};
use tollgate_store::{
    BookedRecords, LogPosition, StoreError, UsageFilter,
    fields::{FieldShape, Kind},
};

use super::{filter::filter, view::UsageView};
use crate::{
    api::{request_context::RequestContext, schema::both},
    api_error::ApiError,
    auth,
    response::ApiResponse,
    shares::Share,
    usage_format,
};

/// Interval between polls for new records.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of checks that the client may still see the log, in milliseconds: sessions end and keys are revoked while it is followed.
const CHECK_INTERVAL_MS: i64 = 5_000;
/// Polls without an event after which a comment is sent to keep the connection alive: every 15 s.
const SILENT_POLLS: u32 = 30;
/// Records that are read at once, and kept until the client has taken them.
const RECORDS_AT_ONCE: usize = 200;

pub(super) const AFTER: FieldShape = both(
    "after",
    Kind::Text { min: 1, max: 60 },
    "The `id` of the last event that was received, as in the header `Last-Event-ID`, which takes precedence. Default: from now on.",
);

pub(super) async fn tail(context: RequestContext) -> Result<ApiResponse, ApiError> {
    let filter = filter(&context).await?;
    let header = context.headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let after = header.or_else(|| context.query.text("after")).map(position).transpose()?;
    let view = UsageView::of(&context);
    let share = match context.principal.member() {
        Some((member, _)) if view == UsageView::Member => {
            Some(context.state.follower_shares.claim(member).ok_or_else(ApiError::too_many_at_once)?)
        }
        Some(_) | None => None,
    };
    let Ok(permit) = Arc::clone(&context.state.follower_permits).try_acquire_owned() else {
        return Err(ApiError::overloaded("Too many clients follow the usage log already."));
    };
    let at = match after {
        Some(after) => after,
        None => context.with_query_timeout(context.state.store.usage.booked_after(None, 0)).await?.until,
    };
    let checked_at = context.now();
    let tail = Tail {
        context,
        filter,
        view,
        at,
        events: VecDeque::from([begin(at)]),
        has_failed: false,
        checked_at,
        _permit: permit,
        _share: share,
    };
    let events = stream::unfold(tail, |mut tail| async move {
        let event = tail.next().await?;
        Some((Ok::<_, Infallible>(Bytes::from(event)), tail))
    });
    Ok(ApiResponse::streamed("text/event-stream", Body::from_stream(events)))
}

/// A stream in progress.
struct Tail {
    context: RequestContext,
    filter: UsageFilter,
    view: UsageView,
    at: LogPosition,
    /// Events that the client has not taken yet.
    events: VecDeque<String>,
    has_failed: bool,
    /// When the client was last found to be still authorized.
    checked_at: Timestamp,
    _permit: OwnedSemaphorePermit,
    /// Share of a member.
    _share: Option<Share<MemberId>>,
}

impl Tail {
    /// The next event; `None` when records cannot be read, or the gateway stops: the client continues where it was, with another
    /// process. Also `None` when the client may not see the log any more.
    async fn next(&mut self) -> Option<String> {
        let mut silent = 0;
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if self.has_failed || !self.is_still_known().await {
                return None;
            }
            let has_more = match self.read().await {
                Ok(booked) => self.take(&booked),
                Err(error) => {
                    tracing::warn!(%error, "the usage log cannot be followed");
                    self.has_failed = true;
                    continue;
                }
            };
            if self.events.is_empty() && !has_more {
                silent += 1;
                if silent == SILENT_POLLS {
                    return Some(format!("id: {}\n: no new records\n\n", shown(self.at)));
                }
                tokio::select! {
                    () = sleep(POLL_INTERVAL) => {}
                    () = self.stopping() => return None,
                }
            }
        }
    }

    /// Whether the client may still see the log, checked every few seconds.
    async fn is_still_known(&mut self) -> bool {
        let now = self.context.now();
        if now.ms_since(self.checked_at) < CHECK_INTERVAL_MS {
            return true;
        }
        let RequestContext { state, headers, principal, .. } = &self.context;
        let known = auth::is_still_known(state, headers, principal).await;
        self.checked_at = now;
        // An error is in the log; the client asks again.
        known.unwrap_or(false)
    }

    /// Returns when the gateway stops; never in a command.
    async fn stopping(&self) {
        match &self.context.state.jobs {
            Some(jobs) => jobs.stopping().await,
            None => std::future::pending().await,
        }
    }

    async fn read(&self) -> Result<BookedRecords, StoreError> {
        let permit = self.context.state.heavy_permits.acquire(self.view.reader()).await;
        let booked = self.context.state.store.usage.booked_after(Some(self.at), RECORDS_AT_ONCE).await;
        drop(permit);
        booked
    }

    /// Makes events of the records that the filter selects. Returns whether there may be more records.
    fn take(&mut self, booked: &BookedRecords) -> bool {
        let has_more = booked.until > self.at;
        self.at = booked.until;
        if booked.missed {
            self.events.push_back("event: left_out\ndata: {}\n\n".to_owned());
        }
        for (position, record) in booked.items.iter().filter(|(_, record)| self.filter.matches(record)) {
            self.events.push_back(format!(
                "id: {}\nevent: record\ndata: {}\n\n",
                shown(*position),
                usage_format::json(&self.view.record(record.clone()))
            ));
        }
        has_more
    }
}

/// The first event: where the stream begins.
fn begin(at: LogPosition) -> String {
    format!("id: {}\nevent: begin\ndata: {{}}\n\n", shown(at))
}

fn shown(at: LogPosition) -> String {
    format!("{}-{}", at.batch, at.records)
}

fn position(text: &str) -> Result<LogPosition, ApiError> {
    let parse = || {
        let (batch, records) = text.split_once('-')?;
        Some(LogPosition { batch: batch.parse().ok()?, records: records.parse().ok()? })
    };
    parse().ok_or_else(|| ApiError::value("after", "expected the id of an event of this stream"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_id_round_trips_as_the_log_position() {
        let at = LogPosition { batch: 7, records: u32::MAX };
        assert_eq!(position(&shown(at)).unwrap(), at);
        for wrong in ["", "7", "7-", "-7-1", "7-x", "req_1"] {
            assert!(position(wrong).is_err(), "{wrong}");
        }
    }
}
