//! The seam to whatever answers the paths that are not the model path's: the console, once there is one.
//!
//! Pages are answered on a runtime of their own, so that none of them can delay a model request. Requests go there
//! through a bounded queue, answers come back piece by piece through a small one.

use std::{
    fmt,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tollgate_core::RequestId;

use crate::{
    request::RequestBody,
    response::{AnswerAborted, AnswerBody},
};

/// Requests that may wait for the console.
const QUEUE: usize = 1_024;
/// Pieces of an answer that may wait for the caller.
const PIECES: usize = 8;
/// Longest wait for the head of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(2);

/// A request that is not for the model path.
#[derive(Debug)]
pub struct FallbackRequest {
    /// Id, as in `x-request-id`.
    pub id: RequestId,
    /// Who sent it, as for a model request: whom a trusted proxy names, else who connected. The port is the connection's.
    pub peer: SocketAddr,
    /// The request, its body still on the wire and held to the same pace as a model request's.
    pub request: Request<RequestBody>,
}

/// What became of a visit.
#[derive(Debug)]
pub enum FallbackResponse {
    /// Answered.
    Answer(Response<AnswerBody>),
    /// Nothing lives there (E10).
    NotFound,
    /// Too many wait already (E63).
    Busy,
}

/// Answers paths that are not the model path's. It decides about access itself.
#[async_trait]
pub trait FallbackService: fmt::Debug + Send + Sync {
    /// Answers a request.
    async fn call(&self, visit: FallbackRequest) -> FallbackResponse;
}

/// No fallback: every path is unknown.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotFound;

#[async_trait]
impl FallbackService for NotFound {
    async fn call(&self, _visit: FallbackRequest) -> FallbackResponse {
        FallbackResponse::NotFound
    }
}

/// The gateway's end of a queue to another runtime.
#[derive(Clone, Debug)]
pub struct FallbackQueue(mpsc::Sender<PendingFallback>);

/// The other end: hands out visits one by one.
#[derive(Debug)]
pub struct FallbackRequests(mpsc::Receiver<PendingFallback>);

/// A visit and where its answer goes.
#[derive(Debug)]
pub struct PendingFallback {
    /// The request.
    pub visit: FallbackRequest,
    /// Where the answer goes.
    pub reply: FallbackResponder,
}

/// Where an answer goes. Dropped without one, the caller gets E63.
#[derive(Debug)]
pub struct FallbackResponder(oneshot::Sender<Response<AnswerBody>>);

/// A bounded queue between the gateway's cores and another runtime.
#[must_use]
pub fn queue() -> (FallbackQueue, FallbackRequests) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (FallbackQueue(sender), FallbackRequests(receiver))
}

#[async_trait]
impl FallbackService for FallbackQueue {
    async fn call(&self, visit: FallbackRequest) -> FallbackResponse {
        let (reply, answer) = oneshot::channel();
        if self.0.try_send(PendingFallback { visit, reply: FallbackResponder(reply) }).is_err() {
            return FallbackResponse::Busy;
        }
        match timeout(ANSWER_TIMEOUT, answer).await {
            Ok(Ok(response)) => FallbackResponse::Answer(response),
            Ok(Err(_)) | Err(_) => FallbackResponse::Busy,
        }
    }
}

impl FallbackRequests {
    /// The next one; `None` when the gateway is gone.
    pub async fn next(&mut self) -> Option<PendingFallback> {
        self.0.recv().await
    }
}

impl FallbackResponder {
    /// Sends an answer and pumps its body until the end or until the caller is gone. To be awaited on the runtime
    /// that made the answer.
    pub async fn send<B>(self, response: Response<B>)
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let (head, mut body) = response.into_parts();
        let (pieces, receiver) = mpsc::channel(PIECES);
        let answer = Response::from_parts(head, Pieces(receiver).boxed_unsync());
        if self.0.send(answer).is_err() {
            return;
        }
        while let Some(frame) = body.frame().await {
            let piece = frame.map_err(|_| AnswerAborted);
            let broke = piece.is_err();
            if pieces.send(piece).await.is_err() || broke {
                return;
            }
        }
    }
}

/// A body that is made on another runtime.
struct Pieces(mpsc::Receiver<Result<Frame<Bytes>, AnswerAborted>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = AnswerAborted;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnswerAborted>>> {
        self.0.poll_recv(context)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use tollgate_core::Timestamp;

    use super::*;

    fn visit() -> FallbackRequest {
        FallbackRequest {
            id: RequestId::from_parts(Timestamp(0), [1; 10]),
            peer: SocketAddr::from(([127, 0, 0, 1], 9)),
            request: Request::get("/console").body(RequestBody::from(Bytes::new())).unwrap(),
        }
    }

    #[tokio::test]
    async fn an_answer_comes_back_whole() {
        let (queue, mut visits) = queue();
        let there = async {
            let waiting = visits.next().await.unwrap();
            assert_eq!(waiting.visit.request.uri().path(), "/console");
            waiting.reply.send(Response::new(Full::new(Bytes::from_static(b"page")))).await;
        };
        let here = async {
            let FallbackResponse::Answer(response) = queue.call(visit()).await else { panic!("no answer") };
            response.into_body().collect().await.unwrap().to_bytes()
        };
        let (page, ()) = tokio::join!(here, there);
        assert_eq!(page, "page");
    }

    #[tokio::test]
    async fn a_full_queue_is_busy() {
        let (queue, visits) = queue();
        let waiting = (0..QUEUE).map(|_| {
            let queue = queue.clone();
            Box::pin(async move { queue.call(visit()).await })
        });
        let mut waiting = waiting.collect::<Vec<_>>();
        for one in &mut waiting {
            assert!(futures_util::poll!(one).is_pending());
        }
        assert!(matches!(queue.call(visit()).await, FallbackResponse::Busy));
        drop(visits);
        assert!(
            matches!(waiting.swap_remove(0).await, FallbackResponse::Busy),
            "a console that dropped its queue answers no request"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_console_that_never_answers_is_given_up() {
        let (queue, _visits) = queue();
        assert!(matches!(queue.call(visit()).await, FallbackResponse::Busy));
    }

    #[tokio::test]
    async fn not_found_answers_not_found() {
        assert!(matches!(NotFound.call(visit()).await, FallbackResponse::NotFound));
    }
}
