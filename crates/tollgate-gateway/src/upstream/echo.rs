//! The built-in echo channel, and the dispatch between it and the HTTP client.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use async_trait::async_trait;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};
use http_body::{Body, Frame};
use tollgate_core::Provider;
use tollgate_protocol::{EchoBody, EchoCall, EchoEvents, Framing, echo};

use super::{
    call::{Upstream, UpstreamAnswer, UpstreamBodyFault, UpstreamCall, UpstreamError},
    client::Client,
};
use crate::clock::Clock;

/// Dispatches calls to the echo channel or to the HTTP client, by the channel's provider.
pub struct UpstreamDispatch {
    client: Client,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for UpstreamDispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamDispatch").finish_non_exhaustive()
    }
}

impl UpstreamDispatch {
    /// Creates the upstream of one core.
    #[must_use]
    pub fn new(client: Client, clock: Arc<dyn Clock>) -> Self {
        Self { client, clock }
    }
}

#[async_trait]
impl Upstream for UpstreamDispatch {
    async fn call(&self, call: UpstreamCall) -> Result<UpstreamAnswer, UpstreamError> {
        if call.channel.provider == Provider::Echo {
            call.sent.set(self.clock.instant());
            return Ok(answer(&call, self.clock.now().seconds()));
        }
        self.client.call(call).await
    }
}

fn answer(call: &UpstreamCall, now: i64) -> UpstreamAnswer {
    let echo_call = EchoCall {
        protocol: call.protocol,
        method: call.method,
        model: &call.upstream_model,
        request_id: &call.request_id.digits(),
        now,
    };
    let answer = echo(&echo_call, &call.body);
    let mut headers = HeaderMap::with_capacity(1);
    let body = match answer.body {
        EchoBody::Whole(bytes) => Echoed::Whole(Some(bytes)),
        EchoBody::Events(events) if call.stream == Some(Framing::JsonArray) => {
            Echoed::Elements { events, at: ArrayPosition::First }
        }
        EchoBody::Events(events) => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            Echoed::Events(events)
        }
    };
    UpstreamAnswer { status: answer.status, headers, body: Box::pin(body) }
}

/// Body of an echo response.
enum Echoed {
    Whole(Option<Bytes>),
    Events(EchoEvents),
    /// Events as elements of a JSON array, for Gemini callers without `alt=sse`.
    Elements {
        events: EchoEvents,
        at: ArrayPosition,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ArrayPosition {
    First,
    Later,
    End,
}

impl Echoed {
    fn next(&mut self) -> Option<Bytes> {
        match self {
            Self::Whole(bytes) => bytes.take(),
            Self::Events(events) => events.next(),
            Self::Elements { at: ArrayPosition::End, .. } => None,
            Self::Elements { events, at } => {
                let mut piece = BytesMut::new();
                let before = std::mem::replace(at, ArrayPosition::Later);
                if let Some(event) = events.next() {
                    piece.put_u8(if before == ArrayPosition::First { b'[' } else { b',' });
                    piece.extend_from_slice(event.strip_prefix(b"data: ").unwrap_or(&event).trim_ascii_end());
                } else {
                    *at = ArrayPosition::End;
                    piece.extend_from_slice(if before == ArrayPosition::First { b"[]" } else { b"]" });
                }
                Some(piece.freeze())
            }
        }
    }
}

impl Body for Echoed {
    type Data = Bytes;
    type Error = UpstreamBodyFault;

    fn poll_frame(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyFault>>> {
        Poll::Ready(self.get_mut().next().map(|bytes| Ok(Frame::data(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tollgate_protocol::{Method, Protocol};

    use super::*;
    use crate::{
        clock::SystemClock,
        upstream::{client::Trust, testing::call},
    };

    async fn ask(method: Method, stream: Option<Framing>, body: &'static str) -> String {
        let mut call = call("");
        let mut row = (*call.channel).clone();
        row.provider = Provider::Echo;
        call.channel = row.into();
        call.protocol = if method == Method::Chat { Protocol::OpenAi } else { Protocol::Gemini };
        call.method = method;
        call.stream = stream;
        call.body = Bytes::from_static(body.as_bytes());
        let upstream = UpstreamDispatch::new(Client::new(Arc::new(Trust::default()), Arc::new(SystemClock)), Arc::new(SystemClock));
        let answer = upstream.call(call).await.unwrap();
        assert_eq!(answer.status, 200);
        String::from_utf8(answer.body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn echo_repeats_the_prompt() {
        let chat = ask(Method::Chat, None, r#"{"messages":[{"role":"user","content":"one two"}]}"#).await;
        assert!(chat.contains(r#""content":"one two""#), "{chat}");
        let body = r#"{"stream":true,"messages":[{"role":"user","content":"one two"}]}"#;
        let stream = ask(Method::Chat, Some(Framing::Sse), body).await;
        assert!(stream.starts_with("data: ") && stream.ends_with("data: [DONE]\n\n"), "{stream}");
    }

    #[tokio::test]
    async fn array_framing_is_valid_json() {
        let body = r#"{"contents":[{"role":"user","parts":[{"text":"one two three"}]}]}"#;
        let text = ask(Method::StreamGenerate, Some(Framing::JsonArray), body).await;
        let elements: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        let said: String =
            elements.iter().filter_map(|element| element["candidates"][0]["content"]["parts"][0]["text"].as_str()).collect();
        assert_eq!(said, "one two three");
    }
}
