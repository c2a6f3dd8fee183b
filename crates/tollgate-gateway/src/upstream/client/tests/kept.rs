//! Reused connections that the upstream closes: which requests are retried, and on which connection.

use std::{
    io::{Read as _, Write as _},
    sync::atomic::{AtomicUsize, Ordering},
};

use super::*;

/// An upstream that answers the first request of each connection, and does `then` with the second one's connection while the number
/// of such connections (from 0) is below `stale`; the others continue to answer. Counts the requests it read whole.
async fn tiring<F, D>(stale: usize, then: F) -> (RawUpstream, Arc<AtomicUsize>)
where
    F: Fn(tokio::net::TcpStream) -> D + Clone + Send + 'static,
    D: Future<Output = ()> + Send,
{
    let read = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&read);
    let upstream = RawUpstream::start(move |mut socket, number| {
        let (count, then) = (Arc::clone(&count), then.clone());
        async move {
            let mut own = 0;
            while read_request(&mut socket).await.is_some() {
                count.fetch_add(1, Ordering::SeqCst);
                own += 1;
                if own > 1 && number < stale {
                    return then(socket).await;
                }
                socket.write_all(ok("{}").as_bytes()).await.unwrap();
            }
        }
    })
    .await;
    (upstream, read)
}

fn firm(mut call: UpstreamCall) -> UpstreamCall {
    let mut row = (*call.channel).clone();
    row.spec.retry_uncertain = false;
    call.channel = row.into();
    call
}

async fn whole(client: &Client, call: &UpstreamCall) {
    assert_eq!(read(ask(client, call).await.unwrap().body).await.unwrap(), "{}");
}

/// Opens this many connections at once, which are all idle afterwards.
async fn keep(client: &Client, call: &UpstreamCall, connections: usize) {
    let answers = futures_util::future::join_all((0..connections).map(|_| ask(client, call))).await;
    for answer in answers {
        read(answer.unwrap().body).await.unwrap();
    }
    assert_eq!(client.idle_count(&call.channel), connections);
}

#[tokio::test]
async fn nothing_is_written_to_a_connection_with_a_pending_close() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // Safe even for channels that forbid uncertain retries.
    let call = firm(call(&format!("http://{}/v1", listener.local_addr().unwrap())));
    let (tell, closed) = std::sync::mpsc::sync_channel(1);
    let server = std::thread::spawn(move || {
        let answer = |socket: &mut std::net::TcpStream| {
            let mut bytes = [0; 8192];
            let mut seen = Vec::new();
            while !seen.ends_with(br#"{"model":"up-m","messages":[]}"#) {
                let count = socket.read(&mut bytes).unwrap();
                assert_ne!(count, 0);
                seen.extend_from_slice(&bytes[..count]);
            }
            socket.write_all(ok("{}").as_bytes()).unwrap();
        };
        let (mut old, _) = listener.accept().unwrap();
        answer(&mut old);
        tell.send(old.try_clone().unwrap()).unwrap();
        answer(&mut listener.accept().unwrap().0);
        // Closed for writing only: any byte written to it would be read here.
        let mut late = Vec::new();
        old.read_to_end(&mut late).unwrap();
        late.len()
    });
    let client = client();
    whole(&client, &call).await;
    assert_eq!(client.idle_count(&call.channel), 1);
    // The connection closes while this thread blocks its reactor.
    closed.recv().unwrap().shutdown(std::net::Shutdown::Write).unwrap();
    whole(&client, &call).await;
    assert_eq!(server.join().unwrap(), 0, "bytes that came on the old connection");
}

#[tokio::test]
async fn request_on_a_dead_connection_is_retried_if_the_channel_allows() {
    for reset in [false, true] {
        let close = move |socket: tokio::net::TcpStream| async move {
            if reset {
                socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
            }
        };
        let (upstream, requests) = tiring(1, close).await;
        let (client, call) = (client(), call(&upstream.url));
        for _ in 0..3 {
            whole(&client, &call).await;
        }
        assert_eq!((upstream.accepted(), requests.load(Ordering::SeqCst)), (2, 4), "reset: {reset}");

        let (upstream, requests) = tiring(1, close).await;
        let firm = firm(call.clone());
        let mut row = (*firm.channel).clone();
        row.spec.base_url.clone_from(&upstream.url);
        let firm = UpstreamCall { channel: row.into(), ..firm };
        whole(&client, &firm).await;
        assert_eq!(ask(&client, &firm).await.unwrap_err(), UpstreamError::Lost, "unknown whether it was processed");
        assert_eq!((upstream.accepted(), requests.load(Ordering::SeqCst)), (1, 2), "reset: {reset}");
    }
}

#[tokio::test]
async fn older_idle_connections_are_closed_with_a_dead_one() {
    let (upstream, requests) = tiring(5, async |socket| drop(socket)).await;
    let (client, call) = (client(), call(&upstream.url));
    keep(&client, &call, 5).await;
    whole(&client, &call).await;
    assert_eq!(client.idle_count(&call.channel), 1, "the new one");
    whole(&client, &call).await;
    assert_eq!((upstream.accepted(), requests.load(Ordering::SeqCst)), (6, 5 + 2 + 1), "only one was found closed");
}

#[tokio::test]
async fn close_of_a_new_connection_is_not_a_keep_alive_race() {
    let upstream = RawUpstream::answering_once("").await;
    assert_eq!(ask(&client(), &call(&upstream.url)).await.unwrap_err(), UpstreamError::Lost);
    assert_eq!(upstream.accepted(), 1, "not retried");
}

#[tokio::test]
async fn partial_response_is_not_retried() {
    let (upstream, requests) = tiring(1, async |mut socket| socket.write_all(b"H").await.unwrap()).await;
    let (client, call) = (client(), call(&upstream.url));
    whole(&client, &call).await;
    assert_eq!(ask(&client, &call).await.unwrap_err(), UpstreamError::Lost);
    assert_eq!((upstream.accepted(), requests.load(Ordering::SeqCst)), (1, 2));
}

#[tokio::test]
async fn late_close_is_not_retried() {
    let (tell, mut reports) = mpsc::channel(1);
    let (upstream, requests) = tiring(1, move |_socket| {
        let tell = tell.clone();
        async move {
            let (go, wait) = tokio::sync::oneshot::channel::<()>();
            tell.send(go).await.unwrap();
            wait.await.unwrap();
        }
    })
    .await;
    let (client, call) = (client(), call(&upstream.url));
    whole(&client, &call).await;
    let later = async {
        let go = reports.recv().await.unwrap();
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(2)).await;
        tokio::time::resume();
        go.send(()).unwrap();
    };
    let (answer, ()) = tokio::join!(ask(&client, &call), later);
    assert_eq!(answer.unwrap_err(), UpstreamError::Lost);
    assert_eq!((upstream.accepted(), requests.load(Ordering::SeqCst)), (1, 2));
}

#[tokio::test]
async fn sent_mark_is_set_when_bytes_are_written() {
    let upstream = RawUpstream::answering(ok("{}")).await;
    let (client, call) = (client(), call(&upstream.url));
    whole(&client, &call).await;
    assert!(call.sent.at().is_some());
    let again = UpstreamCall { sent: crate::upstream::call::SentMark::default(), ..call.clone() };
    assert_eq!(again.sent.at(), None);
    whole(&client, &again).await;
    assert!(again.sent.at() > call.sent.at(), "each request has its own");
}
