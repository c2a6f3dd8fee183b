//! Remote media for upstreams that need it inline: fetched if the channel allows it, otherwise refused.

use tollgate_core::Provider;
use tollgate_protocol::Protocol;

use super::*;
use crate::testing::raw_upstream::RawUpstream;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n....";
const GEMINI_REPLY: &str =
    r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"STOP","index":0}]}"#;

async fn pictures() -> RawUpstream {
    let mut answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", PNG.len()).into_bytes();
    answer.extend_from_slice(PNG);
    RawUpstream::answering(answer).await
}

fn gemini(channel: &mut Channel) {
    channel.spec.protocol = Protocol::Gemini;
    channel.spec.provider = Provider::Gemini;
    channel.spec.translation.fetch_media = true;
}

/// A chat request with these addresses as pictures.
fn showing(addresses: &[String]) -> String {
    let parts: Vec<_> = addresses.iter().map(|url| serde_json::json!({"type": "image_url", "image_url": {"url": url}})).collect();
    serde_json::json!({"model": "m", "messages": [{"role": "user", "content": parts}]}).to_string()
}

/// A rig whose media may come from loopback, where the servers of tests are.
fn reaching_loopback(script: Script, accounts: u8, change: impl FnOnce(&mut Channel)) -> Rig {
    let rig = Rig::with(script, accounts, change);
    rig.core.shared.traffic.media.reach_anywhere();
    rig
}

#[tokio::test]
async fn remote_image_is_sent_inline() {
    let server = pictures().await;
    let mut rig = reaching_loopback(Script::new().replies(GEMINI_REPLY), 1, gemini);
    let got = rig.ask(&showing(&[server.url.clone(), format!("{}/b", server.url), server.url.clone()])).await;
    assert_eq!(got.status, 200, "{}", got.body);
    let sent: serde_json::Value = serde_json::from_str(&rig.script.seen()[0].body).unwrap();
    let parts = sent["contents"][0]["parts"].as_array().unwrap();
    assert_eq!(parts.len(), 3);
    for part in parts {
        assert_eq!(part["inlineData"], serde_json::json!({"mimeType": "image/png", "data": "iVBORw0KGgouLi4u"}));
    }
    assert_eq!(server.accepted(), 2, "each address is fetched once");
    rig.record();
}

#[tokio::test]
async fn media_is_not_fetched_if_disabled_or_not_needed() {
    let server = pictures().await;
    let body = showing(std::slice::from_ref(&server.url));
    let mut rig = reaching_loopback(Script::new(), 1, |channel| {
        gemini(channel);
        channel.spec.translation.fetch_media = false;
    });
    let got = rig.ask(&body).await;
    assert_eq!((got.status, got.code().as_str()), (400, "unsupported_parameter"));
    assert!(got.body.contains("'messages[0].content[0].image_url'") && got.body.contains("switched off"), "{}", got.body);
    rig.record();
    let mut rig = reaching_loopback(Script::new().replies(GEMINI_REPLY), 1, |channel| {
        gemini(channel);
        channel.spec.serves[0].profile.fetches_urls = Some(true);
    });
    assert_eq!(rig.ask(&body).await.status, 200);
    assert!(rig.script.seen()[0].body.contains("fileUri"));
    rig.record();
    assert_eq!(server.accepted(), 0);
}

#[tokio::test]
async fn private_address_is_refused_and_not_connected_to() {
    for private_network in [false, true] {
        private_address_is_refused(private_network).await;
    }
}

/// The operator decides which addresses a channel may reach; the caller sends media addresses.
async fn private_address_is_refused(private_network: bool) {
    let server = pictures().await;
    let mut rig = Rig::with(Script::new(), 1, |channel| {
        gemini(channel);
        channel.spec.private_network = private_network;
    });
    let metadata = "http://169.254.169.254/latest/meta-data/iam".to_owned();
    let got = rig.ask(&showing(&[server.url.clone(), metadata])).await;
    assert_eq!((got.status, got.code().as_str()), (400, "unsupported_parameter"));
    assert!(got.body.contains("'messages[0].content[0].image_url', 'messages[0].content[1].image_url'"), "{}", got.body);
    assert!(
        got.body.contains("(the address could not be fetched: it must be a public one"),
        "the reason is not disclosed: {}",
        got.body
    );
    assert_eq!((server.accepted(), rig.script.seen().len()), (0, 0));
    let record = rig.record();
    assert_eq!((record.reason.as_deref(), &*record.trace[0].code), (Some("E17"), "cannot_translate"));
}

#[tokio::test]
async fn media_refused_for_lack_of_memory_is_reported_as_overload() {
    let mut answer = b"HTTP/1.1 200 OK\r\ncontent-length: 300000\r\n\r\n".to_vec();
    answer.extend_from_slice(PNG);
    answer.resize(answer.len() + 300_000 - PNG.len(), b'.');
    let server = RawUpstream::answering(answer).await;
    let body = showing(std::slice::from_ref(&server.url));
    let mut rig = reaching_loopback(Script::new().replies(GEMINI_REPLY), 1, gemini);
    let ask = async |limit| {
        let request = rig.core.shared.serving.enter(100, limit);
        let mut incoming = rig.incoming(&body);
        incoming.body = incoming.body.within(Arc::clone(&request));
        read(serve(&rig.core, incoming).await).await
    };
    let got = ask(500_000).await;
    assert_eq!((got.status, got.code().as_str()), (503, "server_overloaded"), "{}", got.body);
    assert_eq!(ask(10_000_000).await.status, 200);
    let records = rig.records();
    assert_eq!((records[0].reason.as_deref(), records[0].attempts.len()), (Some("E63"), 0));
}

#[tokio::test]
async fn channel_whose_media_cannot_be_fetched_is_skipped() {
    let gone = RawUpstream::answering("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await;
    let mut rig = reaching_loopback(Script::new().replies(REPLY), 1, |channel| channel.spec.priority = 1);
    rig.add_channel(|channel| {
        gemini(channel);
        channel.spec.priority = 0;
    });
    assert_eq!(rig.ask(&showing(std::slice::from_ref(&gone.url))).await.status, 200);
    let record = rig.record();
    assert_eq!((record.protocol_out, gone.accepted()), (Some(Protocol::OpenAi), 1));
    assert!(record.trace.iter().any(|entry| entry.code == "cannot_translate"), "{:?}", record.trace);
}

#[tokio::test]
async fn media_is_fetched_only_for_the_attempt_that_needs_it() {
    let server = pictures().await;
    let ask = async |script: Script| {
        let mut rig = reaching_loopback(script, 1, |_| {});
        rig.add_channel(|channel| {
            gemini(channel);
            channel.spec.priority = 1;
        });
        let status = rig.ask(&showing(std::slice::from_ref(&server.url))).await.status;
        (status, server.accepted(), rig.record().protocol_out)
    };
    assert_eq!(ask(Script::new().replies(REPLY)).await, (200, 0, Some(Protocol::OpenAi)));
    assert_eq!(ask(Script::new().refuses(500, &[]).replies(GEMINI_REPLY)).await, (200, 1, Some(Protocol::Gemini)));
}

#[tokio::test]
async fn media_is_fetched_for_a_hedge_while_the_first_attempt_runs() {
    let server = pictures().await;
    let late = vec![role(), Piece::Wait(SECOND * 60), chunk("late"), tail()];
    let mut rig = reaching_loopback(
        Script::new().streams(late).streams(vec![format!("data: {GEMINI_REPLY}\n\n").as_str().into()]),
        1,
        |_| {},
    );
    rig.add_channel(|channel| {
        gemini(channel);
        channel.spec.priority = 1;
    });
    rig.change_group(|group| group.hedge = Some(tollgate_core::Hedge { cost_cap: tollgate_core::NanoUsd(1_000_000_000) }));
    for _ in 0..100 {
        rig.core.shared.traffic.latency.record("m", 1_000, rig.clock.instant());
    }
    let body = showing(std::slice::from_ref(&server.url)).replacen('{', r#"{"stream":true,"#, 1);
    let got = rig.ask(&body).await;
    assert!(got.body.contains("hi"), "{}", got.body);
    assert_eq!((got.header("x-tollgate-attempts"), server.accepted()), (Some("2"), 1));
    assert_eq!(rig.record().protocol_out, Some(Protocol::Gemini));
}

#[tokio::test]
async fn too_many_addresses_are_refused_before_any_is_fetched() {
    let server = pictures().await;
    let addresses: Vec<_> = (0..17).map(|number| format!("{}/{number}", server.url)).collect();
    let mut rig = reaching_loopback(Script::new(), 1, gemini);
    let got = rig.ask(&showing(&addresses)).await;
    assert_eq!((got.status, server.accepted()), (400, 0));
    assert!(got.body.contains("(at most 16 remote addresses)"), "{}", got.body);
    rig.record();
}

#[tokio::test]
async fn file_the_upstream_does_not_support_is_refused() {
    let video = RawUpstream::answering("HTTP/1.1 200 OK\r\ncontent-length: 16\r\n\r\n\0\0\0\x20ftypisom....").await;
    let mut rig = reaching_loopback(Script::new(), 1, |_| {});
    rig.change(|channels, _, _| channels[0].spec.translation.fetch_media = true);
    let body = format!(r#"{{"contents":[{{"parts":[{{"fileData":{{"fileUri":"{}","mimeType":"audio/wav"}}}}]}}]}}"#, video.url);
    let got = read(serve(&rig.core, rig.native(Method::Generate, &body)).await).await;
    assert_eq!((got.status, video.accepted()), (400, 1), "{}", got.body);
    assert!(got.body.contains("'contents[0].parts[0]'"), "{}", got.body);
    rig.record();
}
