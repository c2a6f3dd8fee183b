//! The built-in echo channel, and the dispatch between it and the HTTP client.

use std::{iter, pin::Pin, sync::Arc};

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::{HeaderMap, HeaderValue, header::CONTENT_TYPE};
use http_body::Frame;
use http_body_util::StreamBody;
use tollgate_core::Provider;
use tollgate_protocol::{EchoBody, EchoCall, Framing, echo};

use super::{
    call::{Upstream, UpstreamAnswer, UpstreamBody, UpstreamCall, UpstreamError},
    client::Client,
};
use crate::clock::Clock;

/// Dispatches calls to the echo channel or to the HTTP client, by the channel's provider.
#[derive(Debug)]
pub struct UpstreamDispatch {
    client: Client,
    clock: Arc<dyn Clock>,
}

impl UpstreamDispatch {
    #[must_use]
    pub fn new(client: Client, clock: Arc<dyn Clock>) -> Self {
        Self { client, clock }
    }
}

impl Upstream for UpstreamDispatch {
    // Expanded by hand as `async_trait` would, but the client's future is returned without boxing it again.
    fn call<'s, 'f>(
        &'s self,
        call: UpstreamCall,
    ) -> Pin<Box<dyn Future<Output = Result<UpstreamAnswer, UpstreamError>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        if call.channel.spec.provider != Provider::Echo {
            return self.client.call(call);
        }
        Box::pin(async move {
            call.sent.set(self.clock.instant());
            Ok(answer(&call, self.clock.now().seconds()))
        })
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
        EchoBody::Whole(bytes) => body_of(iter::once(bytes)),
        EchoBody::Events(events) if call.stream == Some(Framing::JsonArray) => body_of(array_elements(events)),
        EchoBody::Events(events) => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            body_of(events)
        }
    };
    UpstreamAnswer { status: answer.status, headers: headers.into(), body }
}

fn body_of(pieces: impl Iterator<Item = Bytes> + Send + 'static) -> UpstreamBody {
    Box::pin(StreamBody::new(stream::iter(pieces.map(|bytes| Ok(Frame::data(bytes))))))
}

/// Events as elements of a JSON array, for Gemini callers without `alt=sse`.
fn array_elements(events: impl Iterator<Item = Bytes>) -> impl Iterator<Item = Bytes> {
    let mut events = events.peekable();
    let end = Bytes::from_static(if events.peek().is_some() { b"]" } else { b"[]" });
    let elements = events.enumerate().map(|(at, event)| {
        let mut piece = BytesMut::from(if at == 0 { "[" } else { "," });
        piece.extend_from_slice(event.strip_prefix(b"data: ").unwrap_or(&event).trim_ascii_end());
        piece.freeze()
    });
    elements.chain(iter::once(end))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tollgate_protocol::{Method, Protocol};

    use super::*;
    use crate::{clock::SystemClock, testing::call, upstream::client::Trust};

    async fn ask(method: Method, stream: Option<Framing>, body: &'static str) -> String {
        let mut call = call("");
        let mut row = (*call.channel).clone();
        row.spec.provider = Provider::Echo;
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
