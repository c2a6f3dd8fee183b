//! A model provider with minimal overhead, for measuring gateways in front of it.
//!
//! One thread, HTTP/1.1 with keep-alive. Serves OpenAI chat completions and Gemini generation, JSON and SSE, and Anthropic messages
//! and OpenAI responses as JSON. Each streamed piece of content is `@<nanoseconds since 1970> `, the time it was written.
//! `GET /set?delay=MS&chunks=N&interval=MS` changes the behaviour at run time. The model `bench-large` answers with 60 MiB,
//! `bench-silent` never. Option: `--listen ADDR`.

use std::{
    io,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use memchr::memmem::find;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
};
use tollgate_bench::{message_end, now_ns};

static DELAY_MS: AtomicU64 = AtomicU64::new(0);
static CHUNKS: AtomicU64 = AtomicU64::new(20);
static INTERVAL_MS: AtomicU64 = AtomicU64::new(0);

const CHAT: &str = r#"{"id":"chatcmpl-fast","object":"chat.completion","created":1700000000,"model":"bench-model","choices":[{"index":0,"message":{"role":"assistant","content":"A plain answer of about one hundred and twenty characters, so that the body is of the size a short reply usually has.","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":19,"completion_tokens":26,"total_tokens":45,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}},"service_tier":"default"}"#;
const NATIVE: &str = r#"{"candidates":[{"content":{"parts":[{"text":"A plain answer of about one hundred and twenty characters, so that the body is of the size a short reply usually has."}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":19,"candidatesTokenCount":26,"totalTokenCount":45},"modelVersion":"bench-model","responseId":"fast"}"#;
const MESSAGE: &str = r#"{"id":"msg_fast","type":"message","role":"assistant","model":"bench-model","content":[{"type":"text","text":"A plain answer of about one hundred and twenty characters, so that the body is of the size a short reply usually has."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":19,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":26,"service_tier":"standard"}}"#;
const RESPONSE: &str = r#"{"id":"resp_fast","object":"response","created_at":1700000000,"status":"completed","error":null,"incomplete_details":null,"model":"bench-model","output":[{"id":"msg_fast","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"A plain answer of about one hundred and twenty characters, so that the body is of the size a short reply usually has.","annotations":[],"logprobs":[]}]}],"parallel_tool_calls":true,"tool_choice":"auto","tools":[],"usage":{"input_tokens":19,"input_tokens_details":{"cached_tokens":0},"output_tokens":26,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":45}}"#;

/// The answer of `bench-large`.
static LARGE: LazyLock<Vec<u8>> =
    LazyLock::new(|| json(&CHAT.replace("A plain answer", &"A plain answer. ".repeat(60 * 1024 * 1024 / 16))));

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--listen").skip(1);
    let address: std::net::SocketAddr =
        arguments.next().unwrap_or_else(|| "127.0.0.1:9100".to_owned()).parse().map_err(io::Error::other)?;
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener: TcpListener = socket.listen(4_096)?;
    loop {
        let (stream, _) = listener.accept().await?;
        #[expect(clippy::disallowed_methods, reason = "this program ends with its process")]
        tokio::spawn(async move {
            let _ = serve(stream).await;
        });
    }
}

async fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer: Vec<u8> = Vec::with_capacity(4_096);
    loop {
        let (head, end) = loop {
            if let Some(found) = message_end(&buffer) {
                break found;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        let line = std::str::from_utf8(&buffer[..head]).unwrap_or_default().lines().next().unwrap_or_default();
        let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let streams = target.contains(":streamGenerateContent") || find(&buffer[head..end], b"\"stream\":true").is_some();
        let native = target.contains("enerateContent");
        let asks = |model: &[u8]| find(&buffer[head..end], model).is_some();
        let (large, silent) = (asks(b"\"bench-large\""), asks(b"\"bench-silent\""));
        buffer.drain(..end);
        if let Some((_, query)) = target.split_once("/set?") {
            set(query);
            stream.write_all(&json("{}")).await?;
            continue;
        }
        let delay = DELAY_MS.load(Relaxed);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        if silent {
            // Until the gateway closes the connection.
            let _ = stream.read(&mut [0; 1]).await?;
            return Ok(());
        }
        if large {
            stream.write_all(&LARGE).await?;
        } else if streams {
            write_stream(&mut stream, native).await?;
        } else {
            let answer = if native {
                NATIVE
            } else if target.contains("/messages") {
                MESSAGE
            } else if target.contains("/responses") {
                RESPONSE
            } else {
                CHAT
            };
            stream.write_all(&json(answer)).await?;
        }
    }
}

fn set(query: &str) {
    for pair in query.split('&') {
        let (name, value) = pair.split_once('=').unwrap_or_default();
        let Ok(value) = value.parse() else { continue };
        match name {
            "delay" => DELAY_MS.store(value, Relaxed),
            "chunks" => CHUNKS.store(value, Relaxed),
            "interval" => INTERVAL_MS.store(value, Relaxed),
            _ => {}
        }
    }
}

fn json(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn event(out: &mut Vec<u8>, data: &str) {
    out.extend_from_slice(format!("{:x}\r\ndata: {data}\n\n\r\n", data.len() + 8).as_bytes());
}

async fn write_stream(stream: &mut TcpStream, native: bool) -> io::Result<()> {
    let (chunks, interval) = (CHUNKS.load(Relaxed), INTERVAL_MS.load(Relaxed));
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n").await?;
    let mut out = Vec::with_capacity(1_024);
    let mut tick = (interval > 0).then(|| tokio::time::interval(Duration::from_millis(interval)));
    for number in 0..chunks {
        if let Some(tick) = &mut tick {
            tick.tick().await;
        }
        out.clear();
        if native {
            event(
                &mut out,
                &format!(
                    r#"{{"candidates":[{{"content":{{"parts":[{{"text":"@{} "}}],"role":"model"}},"index":0}}],"usageMetadata":{{"promptTokenCount":19,"candidatesTokenCount":{number},"totalTokenCount":{}}},"modelVersion":"bench-model"}}"#,
                    now_ns(),
                    19 + number
                ),
            );
        } else {
            event(
                &mut out,
                &chat_event(
                    &format!(r#"[{{"index":0,"delta":{{"content":"@{} "}},"logprobs":null,"finish_reason":null}}]"#, now_ns()),
                    "null",
                ),
            );
        }
        stream.write_all(&out).await?;
    }
    out.clear();
    if native {
        event(
            &mut out,
            &format!(
                r#"{{"candidates":[{{"content":{{"parts":[{{"text":""}}],"role":"model"}},"finishReason":"STOP","index":0}}],"usageMetadata":{{"promptTokenCount":19,"candidatesTokenCount":{chunks},"totalTokenCount":{}}},"modelVersion":"bench-model"}}"#,
                19 + chunks
            ),
        );
    } else {
        event(&mut out, &chat_event(r#"[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]"#, "null"));
        event(
            &mut out,
            &chat_event("[]", &format!(r#"{{"prompt_tokens":19,"completion_tokens":{chunks},"total_tokens":{}}}"#, 19 + chunks)),
        );
        event(&mut out, "[DONE]");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    stream.write_all(&out).await
}

fn chat_event(choices: &str, usage: &str) -> String {
    format!(
        r#"{{"id":"chatcmpl-fast","object":"chat.completion.chunk","created":1700000000,"model":"bench-model","choices":{choices},"usage":{usage}}}"#
    )
}
