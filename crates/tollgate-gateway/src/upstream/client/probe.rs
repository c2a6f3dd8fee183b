//! Step-by-step test of one account: name resolution, TCP, TLS, then a minimal request over the same client that serves
//! callers.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use tokio::time::timeout;
use tollgate_core::{Account, Channel, ModelMapping};
use tollgate_protocol::{Framing, ReplyEdits, Usage, codec, edit_parameters, probe_request};

use super::{
    Client, UpstreamTarget,
    dial::dial,
    proxy,
    resolver::resolve,
    tls::{self, Trust},
};
use crate::{
    clock::Clock,
    refusal::redact_secrets,
    upstream::{
        call::{ConnectFault, Upstream as _, UpstreamCall, UpstreamError},
        credentials::secrets_of,
    },
};

const MAX_BYTES: usize = 1024 * 1024;

/// A successful step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeStep {
    /// The host resolved to these addresses that the channel may reach.
    Resolved(Vec<IpAddr>),
    /// TCP connected, to the upstream or to the channel's proxy.
    Connected,
    /// The proxy has connected to the upstream, by this method.
    Tunnelled(&'static str),
    /// TLS established with a trusted certificate; `None`: the base URL is plain http.
    Secured(Option<&'static str>),
    /// A response head with this status arrived.
    Answered(u16),
    /// The first byte of the body arrived.
    FirstByte,
    /// The response was read; the token usage reported by the provider, if any.
    Usage(Option<Usage>),
}

/// The step that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeFault {
    /// No connection was established.
    #[error("{0}")]
    Connect(ConnectFault),
    /// The connection was lost, or the response is not HTTP.
    #[error("{0}")]
    Broken(String),
    /// No complete response within this time: the channel's first-byte timeout, or the longest time of an attempt.
    #[error("no answer within {0} ms")]
    TimedOut(u64),
    /// The upstream answered with an error.
    #[error("status {status}: {message}")]
    Refused { status: u16, message: String },
    /// The upstream answered 2xx with an invalid body.
    #[error("{0}")]
    Unreadable(String),
}

/// Tests one account with a request of a few tokens. `seen` receives each completed step and its duration. Must run inside
/// a runtime. The channel's timeouts apply, and `longest`, the longest time of a request.
pub async fn probe(
    channel: &Arc<Channel>,
    account: &Arc<Account>,
    serves: &ModelMapping,
    (trust, longest): (Arc<Trust>, Duration),
    clock: &Arc<dyn Clock>,
    seen: &mut (dyn FnMut(ProbeStep, Duration) + Send),
) -> Result<(), ProbeFault> {
    let total = channel.spec.timeouts.total_within(longest);
    let tested = async {
        probe_connection(channel, &trust, &**clock, seen).await.map_err(ProbeFault::Connect)?;
        let limit = Duration::from_millis(channel.spec.timeouts.first_byte_ms);
        in_time(limit, send_request(channel, account, serves, trust, clock, seen)).await
    };
    in_time(total, tested).await
}

/// The result of a test that takes no longer than `limit`.
pub(crate) async fn in_time<T>(limit: Duration, test: impl Future<Output = Result<T, ProbeFault>>) -> Result<T, ProbeFault> {
    let timed_out = |_| Err(ProbeFault::TimedOut(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)));
    timeout(limit, test).await.unwrap_or_else(timed_out)
}

/// Connects to the upstream of a channel, through its proxy if it has one, and sends no request. The channel's timeout applies.
pub async fn probe_connection(
    channel: &Channel,
    trust: &Trust,
    clock: &dyn Clock,
    seen: &mut (dyn FnMut(ProbeStep, Duration) + Send),
) -> Result<(), ConnectFault> {
    let limit = Duration::from_millis(channel.spec.timeouts.connect_ms);
    timeout(limit, connect(channel, trust, clock, seen)).await.unwrap_or(Err(ConnectFault::TimedOut))
}

/// The steps below HTTP, on a separate connection.
async fn connect(
    channel: &Channel,
    trust: &Trust,
    clock: &dyn Clock,
    seen: &mut (dyn FnMut(ProbeStep, Duration) + Send),
) -> Result<(), ConnectFault> {
    let since = |begin| clock.instant().duration_since(begin);
    let destination = UpstreamTarget::of(channel)?;
    let begin = clock.instant();
    let socket = if let Some(by) = &destination.proxy {
        let socket = proxy::reach(by, &destination, trust.addresses()).await?;
        seen(ProbeStep::Connected, since(begin));
        let begin = clock.instant();
        let socket = proxy::open(socket, by, &destination).await?;
        seen(ProbeStep::Tunnelled(proxy::method(by)), since(begin));
        socket
    } else {
        let addresses = resolve(&destination, trust.addresses()).await?;
        seen(ProbeStep::Resolved(addresses.iter().map(SocketAddr::ip).collect()), since(begin));
        let begin = clock.instant();
        let socket = dial(addresses).await.map_err(|_| ConnectFault::Refused)?;
        seen(ProbeStep::Connected, since(begin));
        socket
    };
    if !destination.tls {
        seen(ProbeStep::Secured(None), Duration::ZERO);
        return Ok(());
    }
    let begin = clock.instant();
    let stream = tls::handshake(trust.config(&destination).await?, &destination, socket).await?;
    let version = stream.get_ref().1.protocol_version().and_then(|version| version.as_str()).unwrap_or("TLS");
    seen(ProbeStep::Secured(Some(version)), since(begin));
    Ok(())
}

/// A minimal request over the HTTP client.
async fn send_request(
    channel: &Arc<Channel>,
    account: &Arc<Account>,
    serves: &ModelMapping,
    trust: Arc<Trust>,
    clock: &Arc<dyn Clock>,
    seen: &mut (dyn FnMut(ProbeStep, Duration) + Send),
) -> Result<(), ProbeFault> {
    let since = |begin| clock.instant().duration_since(begin);
    let limit_field = serves.profile.max_tokens_field.as_deref();
    let (method, body) = probe_request(channel.spec.protocol, &serves.upstream, limit_field);
    // Probes get the parameter edits of the channel, as requests do.
    let (body, _) = edit_parameters(channel.spec.protocol, &body, &channel.spec.parameter_edits);
    let codec = codec(channel.spec.protocol);
    let path = codec.upstream_path(method, &serves.upstream, Framing::Sse);
    let call =
        UpstreamCall { method, upstream_model: serves.upstream.clone(), body, ..UpstreamCall::of_gateway(channel, account, path) };
    let begin = clock.instant();
    let answer = Client::new(trust, Arc::clone(clock)).call(call).await.map_err(|error| match error {
        UpstreamError::NotSent(fault) => ProbeFault::Connect(fault),
        UpstreamError::Lost | UpstreamError::Unreadable(_) => ProbeFault::Broken(error.to_string()),
    })?;
    seen(ProbeStep::Answered(answer.status), since(begin));
    let is_json = answer.may_be_json();
    let mut body = Limited::new(answer.body, MAX_BYTES);
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|fault| ProbeFault::Broken(fault.to_string()))?;
        if let Ok(data) = frame.into_data() {
            if bytes.is_empty() {
                seen(ProbeStep::FirstByte, since(begin));
            }
            bytes.extend_from_slice(&data);
        }
    }
    let bytes = Bytes::from(bytes);
    if !(200..300).contains(&answer.status) {
        let problem = codec.decode_problem(answer.status, &bytes);
        // An upstream may quote what it was sent; operators see the text and not the credential.
        return Err(ProbeFault::Refused {
            status: answer.status,
            message: redact_secrets(&problem.message, secrets_of(channel, account)),
        });
    }
    if !is_json {
        return Err(ProbeFault::Unreadable("its content type is not JSON".to_owned()));
    }
    let read =
        codec.read_reply(method, &bytes, &ReplyEdits::default()).map_err(|fault| ProbeFault::Unreadable(fault.to_string()))?;
    seen(ProbeStep::Usage(read.summary.usage), since(begin));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::SystemClock,
        testing::{
            self,
            raw_upstream::{RawUpstream, read_request},
        },
    };

    const MAX_TIME: Duration = Duration::from_mins(10);

    fn serves() -> ModelMapping {
        ModelMapping {
            model: "m".to_owned(),
            upstream: "up".to_owned(),
            cost: None,
            profile: tollgate_protocol::Profile::default(),
        }
    }

    async fn check(answer: &str) -> (Vec<ProbeStep>, Result<(), ProbeFault>) {
        let upstream = RawUpstream::answering(answer.to_owned()).await;
        let channel = Arc::new(testing::channel(&upstream.url));
        let account = Arc::new(testing::account(1));
        let serves = serves();
        let mut steps = Vec::new();
        let (trust, clock) = (Arc::new(Trust::default()), Arc::new(SystemClock) as Arc<dyn Clock>);
        let result = probe(&channel, &account, &serves, (trust, MAX_TIME), &clock, &mut |step, _| steps.push(step)).await;
        (steps, result)
    }

    #[tokio::test]
    async fn test_takes_no_longer_than_an_attempt_may() {
        let silent = RawUpstream::start(|mut socket, _| async move {
            read_request(&mut socket).await;
            std::future::pending::<()>().await;
        })
        .await;
        for (total_ms, longest, limit) in
            [(200, MAX_TIME, 200), (0, Duration::from_millis(150), 150), (9_000, Duration::from_millis(100), 100)]
        {
            let mut row = testing::channel(&silent.url);
            row.spec.timeouts.total_ms = total_ms;
            let (channel, account) = (Arc::new(row), Arc::new(testing::account(1)));
            let (trust, clock) = (Arc::new(Trust::default()), Arc::new(SystemClock) as Arc<dyn Clock>);
            let tested = probe(&channel, &account, &serves(), (Arc::clone(&trust), longest), &clock, &mut |_, _| {}).await;
            assert_eq!(tested, Err(ProbeFault::TimedOut(limit)));
            let listed = crate::upstream::client::list_models(&channel, &account, (trust, longest), &clock).await;
            assert_eq!(listed, Err(ProbeFault::TimedOut(limit)));
        }
    }

    #[tokio::test]
    async fn every_step_is_reported_in_order() {
        let body = r#"{"id":"x","object":"chat.completion","created":1,"model":"up","choices":[{"index":0,"message":{"role":"assistant","content":"pong"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}"#;
        let (steps, result) =
            check(&format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
                .await;
        assert_eq!(result, Ok(()));
        assert!(matches!(steps[0], ProbeStep::Resolved(_)));
        assert_eq!(steps[1..5], [ProbeStep::Connected, ProbeStep::Secured(None), ProbeStep::Answered(200), ProbeStep::FirstByte]);
        assert!(matches!(steps[5], ProbeStep::Usage(Some(usage)) if usage.completion_total == 2));
    }

    #[tokio::test]
    async fn wrong_content_type_fails_the_test() {
        let body = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"pong"},"finish_reason":"stop"}]}"#;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n", body.len());
        let (_, result) = check(&(head + body)).await;
        assert_eq!(result, Err(ProbeFault::Unreadable("its content type is not JSON".to_owned())));
    }

    #[tokio::test]
    async fn credential_that_an_upstream_echoes_is_not_shown() {
        let body = r#"{"error":{"message":"wrong key: sk-upstream-secret","type":"x","param":null,"code":null}}"#;
        let (_, result) = check(&format!("HTTP/1.1 401 No\r\ncontent-length: {}\r\n\r\n{body}", body.len())).await;
        assert_eq!(result, Err(ProbeFault::Refused { status: 401, message: "wrong key: [key removed]".to_owned() }));
    }

    #[tokio::test]
    async fn upstream_error_message_is_reported() {
        let body = r#"{"error":{"message":"no such key","type":"invalid_request_error","param":null,"code":null}}"#;
        let (steps, result) = check(&format!("HTTP/1.1 401 No\r\ncontent-length: {}\r\n\r\n{body}", body.len())).await;
        assert_eq!(result, Err(ProbeFault::Refused { status: 401, message: "no such key".to_owned() }));
        assert!(steps.contains(&ProbeStep::Answered(401)));
    }
}
