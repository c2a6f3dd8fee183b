//! Timeouts and limits of connections, heads and bodies.

use super::*;
use crate::settings::{Bounds, HttpLimits};

fn settings(edit: impl FnOnce(&mut HttpLimits, &mut Bounds)) -> Settings {
    let mut settings = Settings::default();
    edit(&mut settings.http, &mut settings.bounds);
    settings
}

const SOON: Duration = Duration::from_millis(150);

#[tokio::test]
async fn incomplete_head_is_answered_with_408() {
    let gate = Gate::open(settings(|http, _| http.header_timeout = SOON));
    for sent in ["P", "PRI", "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"] {
        let answer = gate.say(sent).await;
        assert_eq!(statuses(&answer), [408], "{answer}");
        assert!(answer.contains("connection: close\r\n") && answer.contains("request_timeout"), "{answer}");
        assert!(answer.contains("x-request-id: req_"), "{answer}");
    }
    gate.close().await;
}

#[tokio::test]
async fn later_heads_of_a_connection_time_out_too() {
    let gate = Gate::open(settings(|http, _| http.header_timeout = SOON));
    let mut caller = gate.connect().await;
    caller.send(chat("", "")).await;
    caller.until("length 0").await;
    caller.send("POST /v1").await;
    assert_eq!(statuses(&caller.rest().await), [408]);
    gate.close().await;
}

#[tokio::test]
async fn silent_connection_is_closed() {
    let gate = Gate::open(settings(|http, _| http.idle_timeout = SOON));
    assert_eq!(gate.say("").await, "");
    let mut caller = gate.connect().await;
    caller.send(chat("", "")).await;
    let answer = caller.rest().await;
    assert!(answer.ends_with("length 0"), "{answer}");
    gate.close().await;
}

#[tokio::test]
async fn waiting_for_an_answer_has_no_connection_timeout() {
    let gate = Gate::open(settings(|http, bounds| {
        http.idle_timeout = SOON;
        http.header_timeout = SOON;
        bounds.body_timeout = SOON;
    }));
    let mut caller = gate.connect().await;
    caller.send(chat("X-Script: hang midway\r\n", "")).await;
    caller.until("piece").await;
    let further = timeout(SOON * 4, caller.socket.read_u8()).await;
    assert!(further.is_err(), "the connection waits as long as the model path does: {further:?}");
    drop(caller);
    gate.quiet().await;
    gate.close().await;
}

#[tokio::test]
async fn incomplete_body_is_answered_with_408() {
    let gate = Gate::open(settings(|_, bounds| bounds.body_timeout = SOON));
    let whole = chat("", "12345");
    let answer = gate.say(&whole[..whole.len() - 2]).await;
    assert_eq!(statuses(&answer), [408], "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    gate.close().await;
}

#[tokio::test]
async fn oversized_body_is_answered_while_the_caller_still_sends() {
    let gate = Gate::open(settings(|_, bounds| bounds.body_bytes = 1_000));
    let declared = chat("", &"x".repeat(5_000_000));
    let mut chunked = chat("Transfer-Encoding: chunked\r\n", "");
    chunked = chunked.replace("Content-Length: 0\r\n", "");
    chunked.push_str(&format!("{:x}\r\n{}\r\n", 100_000, "x".repeat(100_000)).repeat(50));
    for sent in [declared, chunked] {
        let answer = gate.say(sent).await;
        assert_eq!(statuses(&answer), [413], "{answer}");
        assert!(answer.contains("larger than 1000 bytes") && answer.contains("connection: close\r\n"), "{answer}");
    }
    gate.close().await;
}

#[tokio::test]
async fn body_of_an_unauthenticated_caller_is_not_read() {
    let gate = Gate::open(Settings::default());
    let mut caller = gate.connect().await;
    caller.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{").await;
    assert_eq!(statuses(&caller.until("}}").await), [401]);
    gate.close().await;
}

#[tokio::test]
async fn caller_that_does_not_read_is_disconnected() {
    let gate = Gate::open(settings(|http, _| http.idle_timeout = SOON));
    let mut caller = gate.connect().await;
    caller.send(chat("X-Script: flood\r\n", "")).await;
    caller.until("\r\n\r\n").await;
    // The caller stops reading, all buffers fill up, and the request still ends.
    gate.quiet().await;
    gate.close().await;
}

#[tokio::test]
async fn disconnect_ends_the_request() {
    let gate = Gate::open(Settings::default());
    let mut caller = gate.connect().await;
    caller.send(chat("X-Script: hang\r\n", "")).await;
    let entered = async {
        while gate.shared.serving.in_flight() == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, entered).await.unwrap();
    drop(caller);
    gate.quiet().await;
    gate.close().await;
}

#[tokio::test]
async fn connections_above_the_limit_get_503() {
    let gate = Gate::open(settings(|http, _| http.connections = 2));
    let mut first = gate.connect().await;
    first.send(chat("X-Script: hang midway\r\n", "")).await;
    first.until("piece").await;
    let mut second = gate.connect().await;
    second.send(chat("", "")).await;
    assert_eq!(statuses(&second.until("length 0").await), [200]);
    let third = gate.say("").await;
    assert!(statuses(&third) == [503] && third.contains("server_overloaded"), "{third}");
    drop(first);
    gate.quiet().await;
    second.send(chat("", "")).await;
    second.until("length 0").await;
    gate.close().await;
}

#[tokio::test]
async fn total_body_memory_is_limited() {
    let gate = Gate::open(Settings { body_memory_bytes: 1_000, ..Settings::default() });
    let mut first = gate.connect().await;
    first.send(chat("X-Script: hang midway\r\n", &"x".repeat(600))).await;
    first.until("piece").await;
    let refused = gate.say(chat("Connection: close\r\n", &"x".repeat(600))).await;
    assert!(statuses(&refused) == [503] && refused.contains("server_overloaded"), "{refused}");
    assert_eq!(statuses(&gate.say(chat("Connection: close\r\n", &"x".repeat(300))).await), [200]);
    drop(first);
    gate.quiet().await;
    assert_eq!(statuses(&gate.say(chat("Connection: close\r\n", &"x".repeat(600))).await), [200]);
    gate.close().await;
}

#[tokio::test]
async fn health_is_answered_while_all_connections_are_taken() {
    let gate = Gate::open(settings(|http, _| http.connections = 1));
    let mut first = gate.connect().await;
    first.send(chat("X-Script: hang midway\r\n", "")).await;
    first.until("piece").await;
    for path in ["/healthz", "/readyz", "/version"] {
        let answer = gate.say(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        assert!(statuses(&answer) == [200] && answer.contains("connection: close\r\n"), "{path}: {answer}");
    }
    let answer = gate.say(chat("", "")).await;
    assert!(statuses(&answer) == [503] && answer.contains("connection: close\r\n"), "{answer}");
    drop(first);
    gate.quiet().await;
    gate.close().await;
}

#[tokio::test]
async fn body_below_the_minimum_rate_is_refused_despite_short_pauses() {
    for paced in [
        (|bounds: &mut crate::settings::Bounds| bounds.body_total_timeout = SOON * 4) as fn(&mut crate::settings::Bounds),
        |bounds| (bounds.body_timeout, bounds.min_rate) = (SOON * 2, 1_000_000),
    ] {
        let gate = Gate::open(settings(|_, bounds| paced(bounds)));
        let whole = chat("", &"x".repeat(1_000));
        let (head, body) = whole.split_at(whole.len() - 1_000);
        let mut caller = gate.connect().await;
        caller.send(head).await;
        let (mut reader, mut writer) = caller.socket.split();
        let trickle = async {
            for byte in body.as_bytes() {
                let _ = writer.write_all(&[*byte]).await;
                tokio::time::sleep(SOON / 2).await;
            }
        };
        let mut answer = Vec::new();
        tokio::select! {
            read = reader.read_to_end(&mut answer) => drop(read),
            () = trickle => panic!("the body arrived"),
        }
        assert_eq!(statuses(&String::from_utf8_lossy(&answer)), [408]);
        gate.close().await;
    }
}

#[tokio::test]
async fn answer_before_the_body_states_whether_the_connection_closes() {
    let gate = Gate::open(Settings::default());
    let refused =
        |lines: &str| format!("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer wrong\r\n{lines}\r\n");
    for (name, sent) in [
        ("a part of the body", refused("Content-Length: 100000\r\n") + "{"),
        ("nothing of the body", refused("Content-Length: 5\r\n")),
        ("an open chunked body", refused("Transfer-Encoding: chunked\r\n") + "1\r\n{\r\n"),
        ("much of the body", refused("Content-Length: 300000\r\n") + &"x".repeat(299_999)),
        ("a body that waits", refused("Content-Length: 5\r\nExpect: 100-continue\r\n")),
    ] {
        let mut caller = gate.connect().await;
        caller.send(&sent).await;
        let answer = caller.rest().await;
        assert!(statuses(&answer) == [401] && answer.contains("connection: close\r\n"), "{name}: {answer}");
    }
    let unknown = gate.say("POST /v1/nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{").await;
    assert!(statuses(&unknown) == [404] && unknown.contains("connection: close\r\n"), "{unknown}");

    for whole in [refused("Content-Length: 5\r\n") + "12345", refused("Transfer-Encoding: chunked\r\n") + "2\r\n{}\r\n0\r\n\r\n"] {
        let mut caller = gate.connect().await;
        caller.send(&whole).await;
        let answer = caller.until("invalid_api_key").await;
        assert!(statuses(&answer) == [401] && !answer.contains("connection: close"), "{answer}");
        caller.send(chat("", "22")).await;
        assert!(caller.until("length 2").await.contains("HTTP/1.1 200"), "the connection continues");
    }
    gate.close().await;
}
