//! Responses that are malformed, incomplete or unexpected, and what the client reports.

use super::*;

async fn fails_before_the_body(answer: impl Into<Vec<u8>>) -> UpstreamError {
    let upstream = RawUpstream::answering_once(answer).await;
    ask(&client(), &call(&upstream.url)).await.expect_err("no usable head")
}

async fn fails_in_the_body(answer: impl Into<Vec<u8>>) -> UpstreamBodyFault {
    let upstream = RawUpstream::answering_once(answer).await;
    read(ask(&client(), &call(&upstream.url)).await.unwrap().body).await.expect_err("no whole body")
}

#[tokio::test]
async fn garbage_instead_of_http_is_unreadable() {
    let garbage = UpstreamError::Unreadable("not an HTTP answer");
    assert_eq!(fails_before_the_body("\0\u{1}\u{2} garbage\r\n\r\n").await, garbage);
    assert_eq!(fails_before_the_body("HTTP/9.9 200 OK\r\n\r\n").await, garbage);
    assert_eq!(fails_before_the_body("SSH-2.0-OpenSSH_9.2\r\n").await, garbage);
}

#[tokio::test]
async fn head_with_ten_thousand_headers_is_refused() {
    let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
    for i in 0..10_000 {
        head.extend_from_slice(format!("x-{i}: y\r\n").as_bytes());
    }
    head.extend_from_slice(b"content-length: 2\r\n\r\n{}");
    assert_eq!(fails_before_the_body(head).await, UpstreamError::Unreadable("answer head too large"));
}

#[tokio::test]
async fn header_of_a_megabyte_is_refused() {
    let head = format!("HTTP/1.1 200 OK\r\nx-big: {}\r\ncontent-length: 2\r\n\r\n{{}}", "y".repeat(1 << 20));
    assert_eq!(fails_before_the_body(head).await, UpstreamError::Unreadable("answer head too large"));
}

#[tokio::test]
async fn close_before_the_head_is_complete_is_lost() {
    assert_eq!(fails_before_the_body("").await, UpstreamError::Lost);
    assert_eq!(fails_before_the_body("HTTP/1.1 200 OK\r\ncontent-le").await, UpstreamError::Lost);
}

#[tokio::test]
async fn reset_before_the_head_is_lost() {
    let upstream = RawUpstream::start(|mut socket, _| async move {
        read_request(&mut socket).await.unwrap();
        socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
    })
    .await;
    assert_eq!(ask(&client(), &call(&upstream.url)).await.unwrap_err(), UpstreamError::Lost);
}

#[tokio::test]
async fn reset_after_the_head_or_mid_chunk_is_lost() {
    for before in
        ["HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n50\r\nhel"]
    {
        let (go, wait) = mpsc::channel::<()>(1);
        let wait = Arc::new(tokio::sync::Mutex::new(wait));
        let upstream = RawUpstream::start(move |mut socket, _| {
            let wait = Arc::clone(&wait);
            async move {
                read_request(&mut socket).await.unwrap();
                socket.write_all(before.as_bytes()).await.unwrap();
                wait.lock().await.recv().await;
                socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
            }
        })
        .await;
        let answer = ask(&client(), &call(&upstream.url)).await.unwrap();
        go.send(()).await.unwrap();
        assert_eq!(read(answer.body).await.unwrap_err(), UpstreamBodyFault::Lost);
    }
}

#[tokio::test]
async fn body_shorter_than_declared_is_lost() {
    assert_eq!(fails_in_the_body("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{}").await, UpstreamBodyFault::Lost);
    assert_eq!(
        fails_in_the_body("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n").await,
        UpstreamBodyFault::Lost
    );
}

#[tokio::test]
async fn invalid_chunk_size_is_a_fault() {
    let faults = [
        fails_in_the_body("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n").await,
        fails_in_the_body("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n0\r\n\r\n").await,
    ];
    assert!(faults.iter().all(|fault| matches!(fault, UpstreamBodyFault::Unreadable | UpstreamBodyFault::Lost)), "{faults:?}");
}

#[tokio::test]
async fn body_longer_than_declared_is_truncated() {
    let upstream = RawUpstream::answering_once(
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil",
    )
    .await;
    let (client, call) = (client(), call(&upstream.url));
    assert_eq!(read(ask(&client, &call).await.unwrap().body).await.unwrap(), "{}");
    // The excess bytes must not become the next caller's response.
    let next = ask(&client, &call).await;
    if let Ok(next) = next {
        assert_eq!(read(next.body).await.unwrap(), "{}");
    }
    assert!(upstream.accepted() >= 2);
}

#[tokio::test]
async fn body_of_204_is_ignored() {
    let upstream = RawUpstream::answering_once("HTTP/1.1 204 No Content\r\ncontent-length: 4\r\n\r\nevil").await;
    let answer = ask(&client(), &call(&upstream.url)).await.unwrap();
    assert_eq!((answer.status, read(answer.body).await.unwrap().len()), (204, 0));
}

#[tokio::test]
async fn interim_answers_are_skipped() {
    let flood = format!("{}{}", "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n".repeat(20_000), ok("{}"));
    let upstream = RawUpstream::answering_once(flood).await;
    assert_eq!(ask(&client(), &call(&upstream.url)).await.unwrap().status, 200);
}

#[tokio::test]
async fn unsolicited_101_is_not_a_success() {
    let upstream =
        RawUpstream::answering_once("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nevil").await;
    match ask(&client(), &call(&upstream.url)).await {
        Ok(answer) => assert_eq!(answer.status, 101),
        Err(fault) => assert!(!matches!(fault, UpstreamError::NotSent(_)), "{fault}"),
    }
}

#[tokio::test]
async fn answer_before_the_request_was_read_is_returned_or_refused() {
    let upstream = RawUpstream::start(|mut socket, _| async move {
        socket.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}").await.unwrap();
        let mut rest = [0; 1024];
        while socket.read(&mut rest).await.is_ok_and(|n| n > 0) {}
    })
    .await;
    let mut call = call(&upstream.url);
    call.body = Bytes::from(vec![b' '; 4 << 20]);
    match ask(&client(), &call).await {
        Ok(answer) => assert_eq!(answer.status, 413),
        // A response that arrived before the request belongs to no request.
        Err(fault) => assert!(matches!(
            fault,
            UpstreamError::Lost | UpstreamError::Unreadable(_) | UpstreamError::NotSent(ConnectFault::Closed)
        )),
    }
}
