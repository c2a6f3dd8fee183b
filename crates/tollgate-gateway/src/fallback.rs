//! The service for paths outside the model path: the console.
//!
//! The console runs on its own runtime, so that it cannot delay a model request. Requests reach it through a bounded
//! queue; response bodies return chunk by chunk through a small bounded channel.

use std::{fmt, net::IpAddr, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tollgate_core::RequestId;

use crate::{
    request::RequestBody,
    response::{AnswerAborted, AnswerBody},
};

/// Requests waiting for the console.
const QUEUE: usize = 1_024;
/// Chunks of one response waiting for the caller.
const CHUNKS: usize = 8;
/// Longest wait for a response head.
const HEAD_LIMIT: Duration = Duration::from_mins(2);

/// A request outside the model path.
#[derive(Debug)]
pub struct FallbackRequest {
    /// The id sent as `x-request-id`.
    pub id: RequestId,
    /// Address of the caller: the peer, or the address that a trusted proxy reports; `None` if it reports none.
    pub peer: Option<IpAddr>,
    /// The request; its unread body has the same idle timeout as a model request's.
    pub request: Request<RequestBody>,
}

/// Result of a [`FallbackService`] call.
#[derive(Debug)]
pub enum FallbackResponse {
    Answer(Response<AnswerBody>),
    /// No such path (E10).
    NotFound,
    /// The queue is full, or no response head came in time (E63).
    Busy,
}

/// Serves paths outside the model path, including authentication.
#[async_trait]
pub trait FallbackService: fmt::Debug + Send + Sync {
    async fn call(&self, request: FallbackRequest) -> FallbackResponse;
}

/// A service without paths: every request is answered with [`FallbackResponse::NotFound`].
#[derive(Clone, Copy, Debug, Default)]
pub struct NotFound;

#[async_trait]
impl FallbackService for NotFound {
    async fn call(&self, _request: FallbackRequest) -> FallbackResponse {
        FallbackResponse::NotFound
    }
}

/// Sending side of the queue to another runtime.
#[derive(Clone, Debug)]
pub struct FallbackQueue(mpsc::Sender<PendingFallback>);

/// Receiving side of the queue.
#[derive(Debug)]
pub struct FallbackRequests(mpsc::Receiver<PendingFallback>);

/// A queued request and the channel for its response.
#[derive(Debug)]
pub struct PendingFallback {
    pub request: FallbackRequest,
    pub reply: FallbackResponder,
}

/// Receives the response of one request. Dropped without a response, the caller gets E63.
#[derive(Debug)]
pub struct FallbackResponder(oneshot::Sender<Option<Response<AnswerBody>>>);

/// Creates the bounded queue between the gateway's cores and another runtime.
#[must_use]
pub fn queue() -> (FallbackQueue, FallbackRequests) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (FallbackQueue(sender), FallbackRequests(receiver))
}

#[async_trait]
impl FallbackService for FallbackQueue {
    async fn call(&self, request: FallbackRequest) -> FallbackResponse {
        let (reply, answer) = oneshot::channel();
        if self.0.try_send(PendingFallback { request, reply: FallbackResponder(reply) }).is_err() {
            return FallbackResponse::Busy;
        }
        match timeout(HEAD_LIMIT, answer).await {
            Ok(Ok(Some(response))) => FallbackResponse::Answer(response),
            Ok(Ok(None)) => FallbackResponse::NotFound,
            Ok(Err(_)) | Err(_) => FallbackResponse::Busy,
        }
    }
}

impl FallbackRequests {
    /// The next request; `None` once the gateway has stopped.
    pub async fn next(&mut self) -> Option<PendingFallback> {
        self.0.recv().await
    }
}

impl FallbackResponder {
    /// The path does not exist: the gateway refuses the request (E10) in the caller's protocol, with a hint.
    pub fn not_found(self) {
        // The caller may have left.
        let _ = self.0.send(None);
    }

    /// Sends a response and forwards its body until its end or until the caller disconnects. Must be awaited on the
    /// runtime that produced the response.
    pub async fn send<B>(self, response: Response<B>)
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let (head, mut body) = response.into_parts();
        let (chunks, mut receiver) = mpsc::channel(CHUNKS);
        let received = StreamBody::new(stream::poll_fn(move |context| receiver.poll_recv(context)));
        let answer = Response::from_parts(head, AnswerBody::of(received));
        if self.0.send(Some(answer)).is_err() {
            return;
        }
        loop {
            let frame = tokio::select! {
                frame = body.frame() => frame,
                // A stream of events may be silent for long.
                () = chunks.closed() => return,
            };
            let Some(frame) = frame else { return };
            let chunk = frame.map_err(|_| AnswerAborted);
            let failed = chunk.is_err();
            if chunks.send(chunk).await.is_err() || failed {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use tollgate_core::Timestamp;

    use super::*;

    fn request() -> FallbackRequest {
        FallbackRequest {
            id: RequestId::from_parts(Timestamp(0), [1; 10]),
            peer: Some(IpAddr::from([127, 0, 0, 1])),
            request: Request::get("/console").body(RequestBody::from(Bytes::new())).unwrap(),
        }
    }

    #[tokio::test]
    async fn response_body_is_forwarded() {
        let (queue, mut requests) = queue();
        let console = async {
            let waiting = requests.next().await.unwrap();
            assert_eq!(waiting.request.request.uri().path(), "/console");
            waiting.reply.send(Response::new(Full::new(Bytes::from_static(b"page")))).await;
        };
        let gateway = async {
            let FallbackResponse::Answer(response) = queue.call(request()).await else { panic!("no answer") };
            response.into_body().collect().await.unwrap().to_bytes()
        };
        let (page, ()) = tokio::join!(gateway, console);
        assert_eq!(page, "page");
    }

    #[tokio::test]
    async fn silent_response_ends_when_the_caller_disconnects() {
        let (queue, mut requests) = queue();
        let console = async {
            let waiting = requests.next().await.unwrap();
            let silent = StreamBody::new(stream::pending::<Result<http_body::Frame<Bytes>, AnswerAborted>>());
            waiting.reply.send(Response::new(silent)).await;
        };
        let gateway = async {
            let FallbackResponse::Answer(response) = queue.call(request()).await else { panic!("no answer") };
            drop(response);
        };
        tokio::join!(gateway, console);
    }

    #[tokio::test]
    async fn full_queue_is_busy() {
        let (queue, requests) = queue();
        let waiting = (0..QUEUE).map(|_| {
            let queue = queue.clone();
            Box::pin(async move { queue.call(request()).await })
        });
        let mut waiting = waiting.collect::<Vec<_>>();
        for one in &mut waiting {
            assert!(futures_util::poll!(one).is_pending());
        }
        assert!(matches!(queue.call(request()).await, FallbackResponse::Busy));
        drop(requests);
        assert!(matches!(waiting.swap_remove(0).await, FallbackResponse::Busy), "a dropped queue is busy");
    }

    #[tokio::test(start_paused = true)]
    async fn unanswered_request_times_out() {
        let (queue, _requests) = queue();
        assert!(matches!(queue.call(request()).await, FallbackResponse::Busy));
    }

    #[tokio::test]
    async fn not_found_service_answers_not_found() {
        assert!(matches!(NotFound.call(request()).await, FallbackResponse::NotFound));
    }
}
