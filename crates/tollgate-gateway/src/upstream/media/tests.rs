//! Tests the fetcher against well-behaved and hostile servers on loopback.

use tokio::{io::AsyncWriteExt as _, sync::mpsc};

use super::*;
use crate::clock::SystemClock;
use crate::testing::raw_upstream::{RawUpstream, read_request};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\nthe rest of a picture";

/// A fetcher that reaches servers on loopback.
fn fetcher() -> MediaFetcher {
    let fetcher = MediaFetcher::new(Arc::new(SystemClock), Arc::default());
    fetcher.reach_anywhere();
    fetcher
}

fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{head}\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    answer
}

async fn fetch(server: &RawUpstream) -> Result<Arc<DownloadedMedia>, FetchFault> {
    fetcher().fetch(&server.url, &Allowance::new(None)).await
}

async fn fault(head: &str, body: &[u8]) -> FetchFault {
    fetch(&RawUpstream::answering(answer(head, body)).await).await.unwrap_err()
}

#[tokio::test]
async fn file_is_cached_and_its_type_detected() {
    let (sender, mut received) = mpsc::channel(4);
    let server = RawUpstream::start(move |mut socket, _| {
        let sender = sender.clone();
        async move {
            let request = read_request(&mut socket).await.unwrap();
            sender.send(request).await.unwrap();
            socket.write_all(&answer("content-type: text/plain\r\n", PNG)).await.unwrap();
        }
    })
    .await;
    let (fetcher, allowance) = (fetcher(), Allowance::new(None));
    let url = format!("{}/a%20b.jpg?x=1", server.url);
    for _ in 0..2 {
        let file = fetcher.fetch(&url, &allowance).await.unwrap();
        assert_eq!((file.mime.as_str(), file.data.as_str()), ("image/png", STANDARD.encode(PNG).as_str()));
    }
    assert_eq!(server.accepted(), 1, "remembered");
    let request = received.recv().await.unwrap().to_ascii_lowercase();
    assert!(request.starts_with("get /v1/a%20b.jpg?x=1 http/1.1\r\n") && request.contains("user-agent: tollgate\r\n"), "{request}");
    assert!(!request.contains("authorization") && !request.contains("cookie"), "{request}");
}

/// The system's clock, ahead by this many milliseconds.
#[derive(Debug, Default)]
struct AheadClock(AtomicUsize);

impl Clock for AheadClock {
    fn now(&self) -> tollgate_core::Timestamp {
        SystemClock.now().plus_ms(i64::try_from(self.0.load(Ordering::SeqCst)).unwrap())
    }

    fn instant(&self) -> Instant {
        SystemClock.instant() + Duration::from_millis(u64::try_from(self.0.load(Ordering::SeqCst)).unwrap())
    }
}

#[tokio::test]
async fn file_is_downloaded_again_after_a_minute() {
    let server = RawUpstream::answering(answer("", PNG)).await;
    let clock = Arc::new(AheadClock::default());
    let fetcher = MediaFetcher::new(Arc::clone(&clock) as Arc<dyn Clock>, Arc::default());
    fetcher.reach_anywhere();
    for (ahead_ms, downloads) in [(0, 1), (50_000, 1), (61_000, 2), (110_000, 2), (122_000, 3)] {
        clock.0.store(ahead_ms, Ordering::SeqCst);
        fetcher.fetch(&server.url, &Allowance::new(None)).await.unwrap();
        assert_eq!(server.accepted(), downloads, "{ahead_ms} ms after the first");
    }
}

#[tokio::test]
async fn private_addresses_are_not_connected_to() {
    let server = RawUpstream::answering(answer("", PNG)).await;
    let port = url::Url::parse(&server.url).unwrap().port().unwrap();
    let (fetcher, allowance) = (MediaFetcher::new(Arc::new(SystemClock), Arc::default()), Allowance::new(None));
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "0.0.0.0",
        "localhost",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "168.63.129.16",
        "100.100.100.200",
        "10.0.0.1",
        "192.168.0.1",
        "172.16.0.1",
        "[fe80::1]",
        "[fc00::1]",
    ] {
        let found = fetcher.fetch(&format!("http://{host}:{port}/latest/meta-data"), &allowance).await;
        let denied = matches!(found, Err(FetchFault::Unreachable("address not allowed for this channel" | "name not resolved")));
        assert!(denied, "{host}: {found:?}");
    }
    assert_eq!(server.accepted(), 0);
}

#[tokio::test]
async fn only_http_urls_are_fetched() {
    let (fetcher, allowance) = (fetcher(), Allowance::new(None));
    for address in
        ["file:///etc/passwd", "ftp://127.0.0.1/a", "gopher://127.0.0.1/", "http://", "http://a:b@127.0.0.1/", "unix:/x", ""]
    {
        assert_eq!(fetcher.fetch(address, &allowance).await, Err(FetchFault::Unreachable("bad address")), "{address}");
    }
}

/// A server that redirects connection `n` to `next(n)`; where that is `None`, it serves the picture.
async fn redirecting(next: impl Fn(usize) -> Option<String> + Send + Sync + 'static) -> RawUpstream {
    let next = Arc::new(next);
    RawUpstream::start(move |mut socket, number| {
        let next = Arc::clone(&next);
        async move {
            read_request(&mut socket).await.unwrap();
            let bytes = match next(number) {
                Some(to) => format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n").into_bytes(),
                None => answer("", PNG),
            };
            let _ = socket.write_all(&bytes).await;
        }
    })
    .await
}

#[tokio::test]
async fn three_redirects_are_followed_and_no_more() {
    let server = redirecting(|number| (number < 3).then(|| "/elsewhere".to_owned())).await;
    assert_eq!(fetch(&server).await.unwrap().mime, "image/png");
    assert_eq!(server.accepted(), 4);
    let endless = redirecting(|_| Some("/again".to_owned())).await;
    assert_eq!(fetch(&endless).await, Err(FetchFault::Unreachable("too many redirects")));
    assert_eq!(endless.accepted(), 4);
}

#[tokio::test]
async fn redirects_are_checked_like_the_first_url() {
    for (to, class) in [
        // Multicast is denied even with `private_network`.
        ("http://224.0.0.1/", "address not allowed for this channel"),
        ("file:///etc/passwd", "bad address"),
        ("http://a:b@127.0.0.1/", "bad address"),
        ("", "too many redirects"),
    ] {
        let server = redirecting(move |_| Some(to.to_owned())).await;
        assert_eq!(fetch(&server).await, Err(FetchFault::Unreachable(class)), "{to}");
    }
}

#[tokio::test]
async fn declared_content_type_is_ignored() {
    assert_eq!(fault("content-type: image/png\r\n", b"<!doctype html><p>log in").await, FetchFault::UnknownType);
    assert_eq!(fault("content-type: image/png\r\n", b"").await, FetchFault::UnknownType);
    assert_eq!(fault("content-encoding: gzip\r\n", PNG).await, FetchFault::Unreachable("packed although it was not to be"));
}

#[tokio::test]
async fn errors_lost_connections_and_garbage_are_faults() {
    let check = async |bytes: &[u8], class: &'static str| {
        let server = RawUpstream::answering_once(bytes.to_vec()).await;
        assert_eq!(fetch(&server).await, Err(FetchFault::Unreachable(class)), "{}", String::from_utf8_lossy(bytes));
    };
    check(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "the address answered with an error").await;
    check(b"HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n", "bad address").await;
    check(b"", "connection refused or lost").await;
    check(b"SSH-2.0-OpenSSH\r\n\r\n", "connection refused or lost").await;
    check(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n\x89PNG\r\n\x1a\n", "connection refused or lost").await;
}

#[tokio::test]
async fn oversized_file_is_refused() {
    let declared = b"HTTP/1.1 200 OK\r\ncontent-length: 20971521\r\n\r\n\x89PNG\r\n\x1a\n";
    let server = RawUpstream::answering(declared.to_vec()).await;
    assert_eq!(fetch(&server).await, Err(FetchFault::TooLarge), "declared");
    let endless = RawUpstream::start(|mut socket, _| async move {
        read_request(&mut socket).await.unwrap();
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n\x89PNG\r\n\x1a\n").await;
        let zeros = vec![0; 64 * 1024];
        while socket.write_all(&zeros).await.is_ok() {}
    })
    .await;
    assert_eq!(fetch(&endless).await, Err(FetchFault::TooLarge), "not declared");
}

#[tokio::test]
async fn files_of_a_request_share_one_limit() {
    let server = RawUpstream::answering(answer("", PNG)).await;
    let allowance = Allowance::new(None);
    allowance.take(MAX_REQUEST_BYTES - PNG.len()).unwrap();
    let fetcher = fetcher();
    assert!(fetcher.fetch(&server.url, &allowance).await.is_ok());
    assert_eq!(fetcher.fetch(&server.url, &allowance).await, Err(FetchFault::TooLarge), "a remembered file counts too");
}

#[tokio::test(start_paused = true)]
async fn silent_server_times_out() {
    let server = RawUpstream::start(|mut socket, _| async move {
        read_request(&mut socket).await;
        std::future::pending::<()>().await;
    })
    .await;
    let begin = tokio::time::Instant::now();
    assert_eq!(fetch(&server).await, Err(FetchFault::Unreachable("not in time")));
    assert!(begin.elapsed() <= LIMIT + Duration::from_secs(1));
}

#[test]
fn oldest_file_is_evicted_at_the_size_limit() {
    let fetcher = fetcher();
    let key = |address: &str| address.to_owned();
    let file = Arc::new(DownloadedMedia { mime: "image/png".to_owned(), data: "A".repeat(32 * 1024 * 1024 - 100) });
    for address in ["http://a/", "http://b/", "http://c/"] {
        fetcher.keep(key(address), &file);
    }
    assert!(fetcher.cache.get(&key("http://a/")).is_none());
    assert!(fetcher.cache.get(&key("http://b/")).is_some() && fetcher.cache.get(&key("http://c/")).is_some());
}
