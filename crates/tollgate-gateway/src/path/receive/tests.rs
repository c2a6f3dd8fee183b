//! Checks of content type, encoding, size and read timeout.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use http::HeaderValue;

use super::*;
use crate::testing::head;

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

async fn get(fields: &[(&'static str, &str)], body: Vec<u8>, limit: usize) -> Result<Bytes, Refusal> {
    let mut head = head("/v1/chat/completions");
    for (name, value) in fields {
        head.headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    let bounds = Bounds { body_bytes: limit, ..Bounds::default() };
    receive(&head, RequestBody::from(Bytes::from(body)), &bounds).await
}

fn id(result: Result<Bytes, Refusal>) -> String {
    match result {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(refusal) => refusal.id(tollgate_protocol::Protocol::OpenAi).to_owned(),
    }
}

#[tokio::test]
async fn request_content_types_are_checked() {
    for (sent, expected) in [
        (vec![], "{}"),
        (vec!["application/json"], "{}"),
        (vec!["Application/JSON; charset=utf-16"], "{}"),
        (vec!["application/vnd.api+json"], "{}"),
        (vec!["application/json", "application/json"], "{}"),
        (vec!["application/+json"], "E19"),
        (vec!["text/plain"], "E19"),
        (vec![";;;"], "E19"),
        (vec![""], "E19"),
        (vec!["application/jsonx"], "E19"),
        (vec!["multipart/form-data; boundary=x"], "E19"),
        (vec!["application/json", "text/html"], "E19"),
    ] {
        let fields = sent.iter().map(|value| ("content-type", *value)).collect::<Vec<_>>();
        assert_eq!(id(get(&fields, b"{}".to_vec(), 10).await), expected, "{sent:?}");
    }
}

#[tokio::test]
async fn request_content_encodings_are_checked() {
    let packed = gzip(b"{}");
    for (sent, body, expected) in [
        (vec!["gzip"], packed.clone(), "{}"),
        (vec!["GZIP"], packed.clone(), "{}"),
        (vec!["x-gzip"], packed.clone(), "{}"),
        (vec!["identity"], b"{}".to_vec(), "{}"),
        (vec![""], b"{}".to_vec(), "{}"),
        (vec!["identity", "gzip"], packed.clone(), "{}"),
        (vec!["gzip", "gzip"], packed.clone(), "E23"),
        (vec!["gzip, gzip"], packed.clone(), "E23"),
        (vec!["br"], packed.clone(), "E23"),
        (vec!["zstd"], packed.clone(), "E23"),
    ] {
        let fields = sent.iter().map(|value| ("content-encoding", *value)).collect::<Vec<_>>();
        assert_eq!(id(get(&fields, body, 100).await), expected, "{sent:?}");
    }
}

#[tokio::test]
async fn body_may_reach_its_limit() {
    assert_eq!(id(get(&[], b"12345".to_vec(), 5).await), "12345");
    assert_eq!(id(get(&[], b"123456".to_vec(), 5).await), "E22");
    let gz = [("content-encoding", "gzip")];
    assert_eq!(id(get(&gz, gzip(&[b'a'; 300]), 300).await), "a".repeat(300));
    assert_eq!(id(get(&gz, gzip(&[b'a'; 301]), 300).await), "E22");
}

#[tokio::test]
async fn gzip_bomb_stops_at_the_limit() {
    let bomb = gzip(&vec![b'a'; 64 << 20]);
    assert!(bomb.len() < 128 * 1024);
    assert_eq!(id(get(&[("content-encoding", "gzip")], bomb, 1 << 20).await), "E22");
}

#[tokio::test]
async fn broken_gzip_is_refused() {
    let gz = [("content-encoding", "gzip")];
    let packed = gzip(b"{\"model\":\"m\"}");
    let mut twice = packed.clone();
    twice.extend_from_slice(&packed);
    let mut junk = packed.clone();
    junk.extend_from_slice(b"junk");
    let mut checksum = packed.clone();
    let last = checksum.len() - 1;
    checksum[last] ^= 0xff;
    for (name, body) in [
        ("cut", packed[..packed.len() - 9].to_vec()),
        ("two members", twice),
        ("junk behind", junk),
        ("checksum", checksum),
        ("none", b"{}".to_vec()),
    ] {
        assert_eq!(id(get(&gz, body, 1_000).await), "E18", "{name}");
    }
}

#[tokio::test]
async fn body_in_one_piece_is_not_copied() {
    let body = Bytes::from_static(b"{\"model\":\"m\"}");
    let read = receive(&head("/v1/chat/completions"), RequestBody::from(body.clone()), &Bounds::default()).await.unwrap();
    assert_eq!(read.as_ptr(), body.as_ptr());
}
