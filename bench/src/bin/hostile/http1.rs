//! Patterns over HTTP/1.1.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    time::{sleep, timeout},
};
use tollgate_bench::message_end;

use crate::{Target, chat};

/// Pause before a connection that was closed is opened again.
const PAUSE: Duration = Duration::from_millis(100);
/// Declared size of a body, and how much of it is sent at once.
const DECLARED: usize = 32 * 1024 * 1024;
const SENT_AT_ONCE: usize = 31 * 1024 * 1024;

fn head(target: &Target, length: usize) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n",
        target.address, target.key
    )
}

/// Bodies that declare 32 MiB, arrive up to the last, and then a byte every five seconds.
pub(crate) async fn declared_bodies(target: &Target) {
    loop {
        let answered = declared_body(target).await.unwrap_or(false);
        target.counts.exchange(answered);
        sleep(PAUSE).await;
    }
}

async fn declared_body(target: &Target) -> io::Result<bool> {
    let mut stream = TcpStream::connect(&target.address).await?;
    stream.write_all(head(target, DECLARED).as_bytes()).await?;
    let (mut reader, mut writer) = stream.split();
    let write = async {
        let piece = vec![b'a'; 64 * 1024];
        writer.write_all(br#"{"model":"bench-chat","messages":[{"role":"user","content":""#).await?;
        for _ in 0..SENT_AT_ONCE / piece.len() {
            writer.write_all(&piece).await?;
        }
        loop {
            sleep(Duration::from_secs(5)).await;
            writer.write_all(b"a").await?;
        }
    };
    let read = async {
        let mut answer = [0; 256];
        let read = reader.read(&mut answer).await?;
        Ok(answer[..read].starts_with(b"HTTP/1.1 200"))
    };
    tokio::select! {
        answered = read => answered,
        failed = write => failed,
    }
}

/// Answers of 60 MiB, read at 256 bytes a second.
pub(crate) async fn slow_reader(target: &Target) {
    loop {
        let answered = read_slowly(target).await.unwrap_or(false);
        target.counts.exchange(answered);
        sleep(PAUSE).await;
    }
}

async fn read_slowly(target: &Target) -> io::Result<bool> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4_096)?;
    let mut stream = socket.connect(target.address.parse().map_err(io::Error::other)?).await?;
    let body = chat("bench-large");
    stream.write_all(head(target, body.len()).as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    let mut buffer = [0; 256];
    let read = stream.read(&mut buffer).await?;
    let answered = buffer[..read].starts_with(b"HTTP/1.1 200");
    while answered && stream.read(&mut buffer).await? > 0 {
        sleep(Duration::from_secs(1)).await;
    }
    Ok(answered)
}

/// Small requests, one after the other as fast as they are answered. `body` gets the number of requests so far.
pub(crate) async fn requests(target: &Target, body: &dyn Fn(u64) -> String) {
    let (mut socket, mut count) = (None, 0);
    loop {
        let answered = request(target, &mut socket, &body(count)).await;
        count += 1;
        target.counts.exchange(matches!(answered, Ok(true)));
        if answered.is_err() {
            socket = None;
            sleep(PAUSE).await;
        }
    }
}

async fn request(target: &Target, socket: &mut Option<TcpStream>, body: &str) -> io::Result<bool> {
    let stream = match socket {
        Some(stream) => stream,
        None => socket.insert(TcpStream::connect(&target.address).await?),
    };
    stream.set_nodelay(true)?;
    stream.write_all((head(target, body.len()) + body).as_bytes()).await?;
    let mut answer = Vec::with_capacity(2_048);
    while message_end(&answer).is_none() {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(answer.starts_with(b"HTTP/1.1 200"))
}

/// A server that accepts connections and never answers; returns its address.
pub(crate) async fn open_tarpit() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound socket has an address").to_string();
    tokio::task::spawn_local(async move {
        loop {
            let Ok((mut stream, _)) = listener.accept().await else { continue };
            tokio::task::spawn_local(async move {
                let mut request = [0; 1_024];
                while let Ok(Ok(1..)) = timeout(Duration::from_mins(1), stream.read(&mut request)).await {}
            });
        }
    });
    address
}
