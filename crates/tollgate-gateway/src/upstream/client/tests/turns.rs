//! The HTTP/2 streams of one channel, which requests of many keys use.

use std::sync::Mutex;

use tollgate_core::{KeyId, MemberId, Requester, Timestamp};

use super::{
    tls::{limited_http2_upstream, respond_ok, trusting_call},
    *,
};

/// Responses that are not sent yet.
type Held = Arc<Mutex<Vec<h2::server::SendResponse<Bytes>>>>;

/// An upstream whose connections have one stream each. It answers its first request, and holds the others.
async fn upstream() -> (String, Held) {
    let held = Held::default();
    let keeps = Arc::clone(&held);
    let url = limited_http2_upstream(1, move |number, respond, _| {
        if number == 0 {
            respond_ok(respond);
        } else {
            keeps.lock().unwrap().push(respond);
        }
    });
    (url.await, held)
}

/// A call of key `number` of a separate member, which waits for `limit`.
fn call_of(url: &str, number: u8, limit: Duration) -> UpstreamCall {
    let mut call = trusting_call(url);
    let mut row = (*call.channel).clone();
    row.spec.timeouts.connect_ms = u64::try_from(limit.as_millis()).unwrap();
    call.channel = row.into();
    let (key, member) = (KeyId::from_parts(Timestamp(0), [number; 10]), MemberId::from_parts(Timestamp(0), [number; 10]));
    UpstreamCall { by: Some(Requester { key, member }), ..call }
}

/// Makes one request. The task of its connection then knows the upstream's limit of streams.
async fn learn_limit(client: &Client, url: &str) {
    read(ask(client, &call_of(url, 1, TIMEOUT)).await.unwrap().body).await.unwrap();
    tokio::task::yield_now().await;
}

/// Answers the held requests until `calls` complete.
async fn answer_all<T>(held: &Held, calls: impl Future<Output = T>) -> T {
    let answers = async {
        loop {
            held.lock().unwrap().drain(..).for_each(respond_ok);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        done = calls => done,
        () = answers => unreachable!("its answer never ends"),
    }
}

async fn wait_for_held(held: &Held, count: usize) {
    let waits = async {
        while held.lock().unwrap().len() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = timeout(TIMEOUT, waits).await;
    assert!(waited.is_ok(), "{} of {count} requests reach the upstream", held.lock().unwrap().len());
}

#[tokio::test]
async fn one_key_cannot_hold_all_streams_and_its_wait_is_not_upstream_time() {
    let (url, held) = upstream().await;
    let client = &client();
    learn_limit(client, &url).await;
    let hostile_calls: Vec<_> = (0..40).map(|_| call_of(&url, 1, TIMEOUT)).collect();
    let hostile = futures_util::future::join_all(hostile_calls.iter().map(|call| client.call(call.clone())));
    let others = async {
        wait_for_held(&held, 12).await;
        let impatient = call_of(&url, 1, Duration::from_millis(200));
        let fault = client.call(impatient.clone()).await.unwrap_err();
        assert_eq!(fault, UpstreamError::NotSent(ConnectFault::AllTaken));
        assert!(impatient.sent.at().is_none(), "the time for the first byte has not begun");
        assert_eq!(held.lock().unwrap().len(), 12, "three times what is free");
        let other = call_of(&url, 2, TIMEOUT);
        let answered = async {
            // Nothing was answered yet, so another key does not wait behind the first one.
            wait_for_held(&held, 13).await;
            let last = held.lock().unwrap().pop().unwrap();
            respond_ok(last);
        };
        let (answer, ()) = tokio::join!(client.call(other), answered);
        assert_eq!(answer.unwrap().status, 200);
    };
    tokio::select! {
        () = others => {}
        _ = hostile => unreachable!("nothing answers the first key"),
    }
}

#[tokio::test]
async fn requests_waiting_for_a_stream_are_sent_when_one_ends() {
    let (url, held) = upstream().await;
    let client = client();
    learn_limit(&client, &url).await;
    let calls: Vec<_> = (0..100).map(|number| call_of(&url, number % 3, TIMEOUT)).collect();
    let client = &client;
    let all = futures_util::future::join_all(calls.iter().map(|call| async move {
        let answer = ask(client, call).await.expect("it is sent when it is next");
        assert_eq!(read(answer.body).await.unwrap(), "{}");
    }));
    answer_all(&held, all).await;
}
