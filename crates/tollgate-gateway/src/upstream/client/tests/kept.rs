//! Kept connections that the far side closes: which requests go out again, and over which connection.

use std::{
    io::{Read as _, Write as _},
    sync::atomic::{AtomicUsize, Ordering},
};

use super::*;

/// An upstream that answers the first request of each connection, and does `then` with the second one's connection while
/// the number of such connections (from 0) is below `stale`; the others go on answering. Counts the requests it read whole.
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
    row.retry_uncertain = false;
    call.channel = row.into();
    call
}

async fn whole(client: &Client, call: &UpstreamCall) {
    assert_eq!(read(ask(client, call).await.unwrap().body).await.unwrap(), "{}");
}

/// As many connections at once, all idle afterwards.
async fn keep(client: &Client, call: &UpstreamCall, connections: usize) {
    let answers = futures_util::future::join_all((0..connections).map(|_| ask(client, call))).await;
    for answer in answers {
        read(answer.unwrap().body).await.unwrap();
    }
    assert_eq!(client.idle_count(&call.channel), connections);
}

#[tokio::test]
async fn nothing_is_written_to_a_connection_whose_end_has_arrived() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // Not even where requests must never be sent twice can this cost one.
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
        // It has said that it is done and listens on: whatever came would stand here.
        let mut late = Vec::new();
        old.read_to_end(&mut late).unwrap();
        late.len()
    });
    let client = client();
    whole(&client, &call).await;
    assert_eq!(client.idle_count(&call.channel), 1);
    // While this thread does not come back to its reactor, the connection ends.
    closed.recv().unwrap().shutdown(std::net::Shutdown::Write).unwrap();
    whole(&client, &call).await;
    assert_eq!(server.join().unwrap(), 0, "bytes that came on the old connection");
}

#[tokio::test]
async fn closed_without_an_answer_it_goes_out_once_more_where_the_channel_lets_it() {
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
        row.base_url.clone_from(&upstream.url);
        let firm = UpstreamCall { channel: row.into(), ..firm };
        whole(&client, &firm).await;
        assert_eq!(ask(&client, &firm).await.unwrap_err(), UpstreamError::Lost, "its outcome is unknown");
        assert_eq!((upstream.accepted(), requests.load(Ordering::SeqCst)), (1, 2), "reset: {reset}");
    }
}

#[tokio::test]
async fn one_that_was_closed_takes_those_along_that_are_as_old() {
    let (upstream, requests) = tiring(5, async |socket| drop(socket)).await;
    let (client, call) = (client(), call(&upstream.url));
    keep(&client, &call, 5).await;
    whole(&client, &call).await;
    assert_eq!(client.idle_count(&call.channel), 1, "the new one");
    whole(&client, &call).await;
    assert_eq!((upstream.accepted(), requests.load(Ordering::SeqCst)), (6, 5 + 2 + 1), "only one was found closed");
}

#[tokio::test]
async fn a_new_connection_that_closes_is_nobodys_keep_alive_race() {
    let upstream = RawUpstream::answering_once("").await;
    assert_eq!(ask(&client(), &call(&upstream.url)).await.unwrap_err(), UpstreamError::Lost);
    assert_eq!(upstream.accepted(), 1, "it is not asked again");
}

#[tokio::test]
async fn a_single_byte_of_an_answer_makes_it_one_that_was_lost() {
    let (upstream, requests) = tiring(1, async |mut socket| socket.write_all(b"H").await.unwrap()).await;
    let (client, call) = (client(), call(&upstream.url));
    whole(&client, &call).await;
    assert_eq!(ask(&client, &call).await.unwrap_err(), UpstreamError::Lost);
    assert_eq!((upstream.accepted(), requests.load(Ordering::SeqCst)), (1, 2));
}

#[tokio::test]
async fn what_ends_after_a_while_had_the_request_before_it() {
    let (tell, mut told) = mpsc::channel(1);
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
        let go = told.recv().await.unwrap();
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
async fn the_mark_is_set_when_bytes_leave_and_not_before() {
    let upstream = RawUpstream::answering(ok("{}")).await;
    let (client, call) = (client(), call(&upstream.url));
    whole(&client, &call).await;
    assert!(call.sent.at().is_some());
    let again = UpstreamCall { sent: crate::upstream::call::SentMark::default(), ..call.clone() };
    assert_eq!(again.sent.at(), None);
    whole(&client, &again).await;
    assert!(again.sent.at() > call.sent.at(), "each request has its own");
}
