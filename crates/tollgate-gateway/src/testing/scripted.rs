//! A scripted upstream for tests in paused time, for example:
//! `Script::new().refuses(429, &[("retry-after", "2")]).streams(pieces![sse("hello"), Stall])`.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use http_body::{Body, Frame};
use tokio::time::Sleep;
use tollgate_core::AccountId;
use tollgate_store::Journal;

use crate::upstream::call::{ConnectFault, Upstream, UpstreamAnswer, UpstreamBodyFault, UpstreamCall, UpstreamError};

/// Outcome of one call.
#[derive(Debug)]
pub(crate) enum ScriptedResponse {
    /// Nothing is sent.
    NotSent(ConnectFault),
    /// Sent, and the connection is lost.
    Lost,
    /// Sent, and no response ever arrives.
    Silent,
    /// A response.
    Answer { status: u16, headers: HeaderMap, pieces: Vec<Piece> },
}

/// An element of a response body.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    /// Bytes.
    Data(Bytes),
    /// No data for this long.
    Wait(Duration),
    /// No further data, without an end.
    Stall,
    /// The connection breaks.
    Break,
}

impl From<&str> for Piece {
    fn from(text: &str) -> Self {
        Self::Data(Bytes::copy_from_slice(text.as_bytes()))
    }
}

/// A received call.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedCall {
    pub account: AccountId,
    pub path: String,
    pub body: String,
    /// Requests that had begun but were not in the journal at the time of the call.
    pub begun: usize,
}

/// A script and the calls received so far. After its end every call stays silent.
#[derive(Debug, Default)]
pub(crate) struct Script {
    responses: Mutex<VecDeque<ScriptedResponse>>,
    seen: Mutex<Vec<ReceivedCall>>,
    journal: Mutex<Option<Arc<Journal>>>,
    open: Arc<AtomicUsize>,
}

impl Script {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn then(self, response: ScriptedResponse) -> Self {
        self.responses.lock().unwrap().push_back(response);
        self
    }

    pub(crate) fn not_sent(self) -> Self {
        self.fails_to_connect(ConnectFault::Refused)
    }

    pub(crate) fn fails_to_connect(self, fault: ConnectFault) -> Self {
        self.then(ScriptedResponse::NotSent(fault))
    }

    pub(crate) fn lost(self) -> Self {
        self.then(ScriptedResponse::Lost)
    }

    pub(crate) fn silent(self) -> Self {
        self.then(ScriptedResponse::Silent)
    }

    /// An error answer with an OpenAI body, or any other bodyless status.
    pub(crate) fn refuses(self, status: u16, headers: &[(&'static str, &str)]) -> Self {
        let body = format!(r#"{{"error":{{"message":"no {status}","type":"t","param":null,"code":"c"}}}}"#);
        self.answers(status, headers, vec![body.as_str().into()])
    }

    /// A complete 200.
    pub(crate) fn replies(self, body: &str) -> Self {
        self.answers(200, &[("content-type", "application/json")], vec![body.into()])
    }

    /// An event stream.
    pub(crate) fn streams(self, pieces: Vec<Piece>) -> Self {
        self.answers(200, &[("content-type", "text/event-stream")], pieces)
    }

    pub(crate) fn answers(self, status: u16, headers: &[(&'static str, &str)], pieces: Vec<Piece>) -> Self {
        let headers = headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect();
        self.then(ScriptedResponse::Answer { status, headers, pieces })
    }

    /// Makes every further call record the journal's state.
    pub(crate) fn watch(&self, journal: &Arc<Journal>) {
        *self.journal.lock().unwrap() = Some(Arc::clone(journal));
    }

    /// The calls so far.
    pub(crate) fn seen(&self) -> Vec<ReceivedCall> {
        self.seen.lock().unwrap().clone()
    }

    /// Calls and bodies neither dropped nor read to their end.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Upstream for Script {
    async fn call(&self, call: UpstreamCall) -> Result<UpstreamAnswer, UpstreamError> {
        let begun = self.journal.lock().unwrap().as_ref().map_or(0, |journal| journal.unbooked());
        let body = String::from_utf8_lossy(&call.body).into_owned();
        self.seen.lock().unwrap().push(ReceivedCall { account: call.account.id, path: call.path.clone(), body, begun });
        let open = Open::new(&self.open);
        let response = self.responses.lock().unwrap().pop_front().unwrap_or(ScriptedResponse::Silent);
        if let ScriptedResponse::NotSent(fault) = response {
            return Err(UpstreamError::NotSent(fault));
        }
        call.sent.set(tokio::time::Instant::now());
        match response {
            ScriptedResponse::NotSent(_) | ScriptedResponse::Lost => Err(UpstreamError::Lost),
            ScriptedResponse::Silent => std::future::pending().await,
            ScriptedResponse::Answer { status, headers, pieces } => {
                let body = Box::pin(ScriptedBody { pieces: pieces.into(), wait: None, _open: open });
                Ok(UpstreamAnswer { status, headers: headers.into(), body })
            }
        }
    }
}

/// Counts as open until it is dropped.
struct Open(Arc<AtomicUsize>);

impl Open {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct ScriptedBody {
    pieces: VecDeque<Piece>,
    wait: Option<Pin<Box<Sleep>>>,
    _open: Open,
}

impl Body for ScriptedBody {
    type Data = Bytes;
    type Error = UpstreamBodyFault;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyFault>>> {
        let this = self.get_mut();
        loop {
            if let Some(wait) = &mut this.wait {
                ready!(wait.as_mut().poll(context));
                this.wait = None;
            }
            match this.pieces.front() {
                None => return Poll::Ready(None),
                Some(Piece::Stall) => return Poll::Pending,
                Some(Piece::Wait(time)) => this.wait = Some(Box::pin(tokio::time::sleep(*time))),
                Some(Piece::Break) => return Poll::Ready(Some(Err(UpstreamBodyFault::Lost))),
                Some(Piece::Data(bytes)) => {
                    let bytes = bytes.clone();
                    this.pieces.pop_front();
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
            }
            this.pieces.pop_front();
        }
    }
}
