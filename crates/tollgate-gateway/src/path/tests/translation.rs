//! Requests whose caller and upstream speak different protocols.

use tollgate_core::{OnUnsupported, Outcome, Provider, TokenSource};
use tollgate_protocol::{FinishReason, Protocol};

use super::*;

const GEMINI_REPLY: &str = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":1,"totalTokenCount":4}}"#;
const GENERATE: &str = r#"{"contents":[{"role":"user","parts":[{"text":"hello there"}]}]}"#;

fn gemini(channel: &mut Channel) {
    channel.spec.protocol = Protocol::Gemini;
    channel.spec.provider = Provider::Gemini;
    channel.spec.base_url = "http://127.0.0.1:1/v1beta".to_owned();
}

fn events(pieces: &[&str]) -> Vec<Piece> {
    pieces.iter().map(|json| Piece::from(format!("data: {json}\n\n").as_str())).collect()
}

#[tokio::test(start_paused = true)]
async fn gemini_answer_is_translated_for_a_chat_caller() {
    let mut rig = Rig::with(Script::new().replies(GEMINI_REPLY), 1, gemini);
    let got = rig.ask(CHAT).await;
    assert_eq!(got.status, 200, "{}", got.body);
    let body: serde_json::Value = serde_json::from_str(&got.body).unwrap();
    assert_eq!(body["choices"][0]["message"]["content"], "hi");
    assert_eq!((&body["model"], &body["object"]), (&"m".into(), &"chat.completion".into()));
    let seen = rig.script.seen();
    assert_eq!(seen[0].path, "/models/up-m:generateContent");
    assert!(seen[0].body.contains("contents") && !seen[0].body.contains("messages"), "{}", seen[0].body);
    let record = rig.record();
    assert_eq!((record.protocol_in, record.protocol_out), (Protocol::OpenAi, Some(Protocol::Gemini)));
    assert_eq!((record.tokens.input, record.tokens.output), (3, 1));
    assert_eq!(record.finish, Some(FinishReason::Stop));
    assert_eq!(body["id"], format!("chatcmpl-{}", record.id.digits()));
}

#[tokio::test(start_paused = true)]
async fn gemini_stream_is_relayed_and_breaks_as_a_chat_stream() {
    let text = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"index":0}]}"#;
    let end = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":""}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2,"totalTokenCount":5}}"#;
    let mut rig = Rig::with(Script::new().streams(events(&[text, end])), 1, gemini);
    let got = rig.ask(STREAM).await;
    assert!(!got.aborted && got.body.contains("\"content\":\"hi\"") && got.body.ends_with("data: [DONE]\n\n"), "{}", got.body);
    assert_eq!(rig.script.seen()[0].path, "/models/up-m:streamGenerateContent?alt=sse");
    assert_eq!(rig.record().tokens.output, 2);

    let mut pieces = events(&[text]);
    pieces.push(Piece::Break);
    let mut rig = Rig::with(Script::new().streams(pieces), 1, gemini);
    let got = rig.ask(STREAM).await;
    assert!(got.aborted && got.body.contains("upstream_stream_interrupted") && !got.body.contains("[DONE]"), "{}", got.body);
    assert_eq!(rig.record().outcome, Outcome::UpstreamBroke);
}

#[tokio::test(start_paused = true)]
async fn chat_answer_is_translated_for_a_native_caller() {
    let mut rig = Rig::new(Script::new().replies(REPLY), 1);
    let got = read(serve(&rig.core, rig.native(Method::Generate, GENERATE)).await).await;
    let body: serde_json::Value = serde_json::from_str(&got.body).unwrap();
    assert_eq!(body["candidates"][0]["content"]["parts"][0]["text"], "hi", "{}", got.body);
    assert_eq!(rig.script.seen()[0].path, "/chat/completions");
    rig.record();

    let mut rig = Rig::new(Script::new().streams(vec![role(), chunk("hi"), tail()]), 1);
    let mut incoming = rig.native(Method::StreamGenerate, GENERATE);
    incoming.target.framing = Framing::JsonArray;
    let got = read(serve(&rig.core, incoming).await).await;
    assert_eq!(got.header("content-type"), Some("application/json; charset=utf-8"));
    let elements: Vec<serde_json::Value> = serde_json::from_str(&got.body).unwrap();
    assert_eq!(elements[0]["candidates"][0]["content"]["parts"][0]["text"], "hi");
    assert_eq!(rig.record().tokens.output, 2);
}

#[tokio::test(start_paused = true)]
async fn field_no_upstream_can_express_is_refused_before_anything_is_sent() {
    let body = CHAT.replace("\"m\",", "\"m\",\"logit_bias\":{\"1\":2},");
    let mut rig = Rig::with(Script::new(), 1, gemini);
    let got = rig.ask(&body).await;
    assert_eq!((got.status, got.code().as_str()), (400, "unsupported_parameter"));
    assert!(got.body.contains("'logit_bias'"), "{}", got.body);
    assert_eq!(rig.script.seen().len(), 0);
    let record = rig.record();
    assert_eq!((record.reason.as_deref(), &*record.trace[0].code), (Some("E17"), "cannot_translate"));
}

#[tokio::test(start_paused = true)]
async fn channel_that_cannot_express_a_field_is_skipped() {
    let body = CHAT.replace("\"m\",", "\"m\",\"logit_bias\":{\"1\":2},");
    let mut rig = Rig::with(Script::new().replies(REPLY), 1, |channel| channel.spec.priority = 1);
    rig.add_channel(|channel| {
        gemini(channel);
        channel.spec.priority = 0;
    });
    assert_eq!(rig.ask(&body).await.status, 200);
    let record = rig.record();
    assert_eq!(record.protocol_out, Some(Protocol::OpenAi));
    assert!(record.trace.iter().any(|entry| entry.code == "cannot_translate"), "{:?}", record.trace);
}

#[tokio::test(start_paused = true)]
async fn fail_over_crosses_protocols() {
    let mut rig = Rig::with(Script::new().refuses(500, &[]).replies(GEMINI_REPLY), 1, |channel| channel.spec.priority = 0);
    rig.add_channel(|channel| {
        gemini(channel);
        channel.spec.priority = 1;
    });
    let got = rig.ask(CHAT).await;
    assert_eq!((got.status, got.header("x-tollgate-attempts")), (200, Some("2")));
    let record = rig.record();
    let spoken: Vec<_> = record.attempts.iter().map(|attempt| attempt.protocol).collect();
    assert_eq!(spoken, [Protocol::OpenAi, Protocol::Gemini]);
}

/// A conversation begun by a Gemini model continues on a chat upstream.
#[tokio::test(start_paused = true)]
async fn google_signatures_are_removed_for_other_chat_upstreams() {
    const SIGNED: &str = r#"{"model":"m","messages":[{"role":"user","content":"q"},{"role":"assistant","content":"t","tool_calls":[{"id":"c1__sig1_QUJD","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"QUJD"}}}],"extra_content":{"google":{"thought_signature":"REVG"}}},{"role":"tool","tool_call_id":"c1__sig1_QUJD","content":"ok"}]}"#;
    let sent = async |change: fn(&mut Channel)| {
        let mut rig = Rig::with(Script::new().replies(REPLY), 1, change);
        assert_eq!(rig.ask(SIGNED).await.status, 200);
        rig.record();
        rig.script.seen()[0].body.clone()
    };
    let body = sent(|_| {}).await;
    assert!(!body.contains("QUJD") && !body.contains("REVG") && body.contains(r#""id":"c1","#), "{body}");
    let body = sent(|channel| channel.spec.base_url = "https://generativelanguage.googleapis.com/v1beta/openai".to_owned()).await;
    assert!(body.contains(r#""thought_signature":"QUJD""#) && body.contains("REVG"), "{body}");
}

#[tokio::test(start_paused = true)]
async fn lenient_group_drops_and_reports_fields_a_strict_one_refuses() {
    let body = CHAT.replace("\"m\",", "\"m\",\"logit_bias\":{\"1\":2},");
    let mut rig = Rig::with(Script::new().replies(GEMINI_REPLY), 1, gemini);
    rig.change_group(|group| group.translation = TranslationPolicy::Lenient);
    let got = rig.ask(&body).await;
    assert_eq!((got.status, got.header("x-tollgate-dropped")), (200, Some("logit_bias")), "{}", got.body);
    assert_eq!(rig.record().dropped, ["logit_bias"]);

    let mut rig = Rig::with(Script::new().replies(GEMINI_REPLY), 1, gemini);
    rig.change_model(|model| model.spec.on_unsupported = OnUnsupported::Drop);
    let got = rig.ask(&body).await;
    assert_eq!((got.status, got.header("x-tollgate-dropped")), (200, Some("logit_bias")), "{}", got.body);
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn model_that_drops_unsupported_fields_drops_nested_ones() {
    let chat = |members: &str| CHAT.replace("\"m\",", &format!("\"m\",{members},"));
    let grammar = r#""tools":[{"type":"custom","custom":{"name":"f","format":{"type":"grammar"}}}]"#;
    for (body, dropped) in [
        (chat(r#""extra_body":{"google":{"foo":1},"bar":2}"#), "extra_body.bar,extra_body.google.foo"),
        (chat(grammar), "tools[0].custom.format"),
    ] {
        let mut rig = Rig::with(Script::new().replies(GEMINI_REPLY), 1, gemini);
        rig.change_model(|model| model.spec.on_unsupported = OnUnsupported::Drop);
        let got = rig.ask(&body).await;
        assert_eq!((got.status, got.header("x-tollgate-dropped")), (200, Some(dropped)), "{}", got.body);
        rig.record();
    }
    let native = r#"{"contents":[{"parts":[{"text":"hi"}]}],"tools":[{"googleSearch":{}}],
        "generationConfig":{"thinkingConfig":{"bar":1}}}"#;
    let mut rig = Rig::new(Script::new().replies(REPLY), 1);
    rig.change_model(|model| model.spec.on_unsupported = OnUnsupported::Drop);
    let got = read(serve(&rig.core, rig.native(Method::Generate, native)).await).await;
    let dropped = "generationConfig.thinkingConfig.bar,tools[0].googleSearch";
    assert_eq!((got.status, got.header("x-tollgate-dropped")), (200, Some(dropped)), "{}", got.body);
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn codex_request_with_an_unsupported_field_is_served_if_the_model_drops_such_fields() {
    let sample = "../tollgate-protocol/fixtures/schemas/samples/openai-responses-request--ok-codex-tools-history.json";
    let sample = std::fs::read_to_string(format!("{}/{sample}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let body = sample.replace("\"gpt-5.5\"", "\"m\"");
    assert!(body.contains("\"verbosity\""), "Codex asks for it under such a name");
    let mut rig = Rig::with(Script::new(), 1, gemini);
    let refused = read(serve(&rig.core, rig.responses(&body)).await).await;
    assert!(refused.status == 400 && refused.body.contains("text.verbosity"), "{}", refused.body);
    rig.record();

    let text = r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"STOP","index":0}]}"#;
    let mut rig = Rig::with(Script::new().streams(events(&[text])), 1, gemini);
    rig.change_model(|model| model.spec.on_unsupported = OnUnsupported::Drop);
    let got = read(serve(&rig.core, rig.responses(&body)).await).await;
    assert_eq!(got.status, 200, "{}", got.body);
    let dropped = got.header("x-tollgate-dropped").unwrap_or_default();
    assert!(dropped.split(',').any(|field| field == "text.verbosity"), "{dropped}");
    assert!(got.body.contains("event: response.completed"), "{}", got.body);
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn tokens_are_counted_locally_if_the_upstream_cannot() {
    let mut rig = Rig::new(Script::new(), 1);
    let got = read(serve(&rig.core, rig.native(Method::CountTokens, GENERATE)).await).await;
    assert_eq!((got.status, got.header("x-tollgate-attempts")), (200, None), "{}", got.body);
    let body: serde_json::Value = serde_json::from_str(&got.body).unwrap();
    assert!(body["totalTokens"].as_u64().unwrap() > 0);
    let record = rig.record();
    assert_eq!((record.outcome, record.tokens.source), (Outcome::Completed, TokenSource::Estimated));
}

#[tokio::test(start_paused = true)]
async fn count_of_a_model_that_the_upstream_does_not_have_is_refused() {
    let missing = r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-9"}}"#;
    let no_path = r#"{"type":"error","error":{"type":"not_found_error","message":"Not Found"}}"#;
    for (body, status) in [(missing, 404), (no_path, 200), ("404 page not found", 200)] {
        let mut rig = Rig::with(Script::new().answers(404, &[], vec![body.into()]), 1, anthropic);
        let mut incoming = rig.messages(r#"{"model":"m","messages":[{"role":"user","content":"hello there"}]}"#);
        incoming.head.path = "/v1/messages/count_tokens".to_owned();
        incoming.target.method = Method::CountTokens;
        let got = read(serve(&rig.core, incoming).await).await;
        assert_eq!(got.status, status, "{body}: {}", got.body);
        assert_eq!(got.body.contains("input_tokens"), status == 200, "{body}: {}", got.body);
        rig.record();
    }
}

#[tokio::test(start_paused = true)]
async fn blocked_prompt_is_an_answer_for_a_native_caller() {
    let blocked = r#"{"error":{"message":"filtered","type":"invalid_request_error","param":null,"code":"content_filter"}}"#;
    let mut rig = Rig::new(Script::new().answers(400, &[], vec![blocked.into()]), 1);
    let got = read(serve(&rig.core, rig.native(Method::Generate, GENERATE)).await).await;
    assert_eq!(got.status, 200);
    assert!(got.body.contains("\"blockReason\":\"SAFETY\""), "{}", got.body);
    assert_eq!(rig.record().outcome, Outcome::Completed);
}

#[tokio::test(start_paused = true)]
async fn dropped_fields_are_encoded_and_long_lists_truncated() {
    let mut rig = Rig::with(Script::new().replies(GEMINI_REPLY), 1, gemini);
    rig.change_group(|group| group.translation = TranslationPolicy::Lenient);
    let got = rig.ask(&CHAT.replace("\"m\",", "\"m\",\"größe\":1,\"a,b\":1,")).await;
    assert_eq!((got.status, got.header("x-tollgate-dropped")), (200, Some("a%2Cb,gr%C3%B6%C3%9Fe")), "{}", got.body);
    assert_eq!(rig.record().dropped, ["a%2Cb", "gr%C3%B6%C3%9Fe"]);

    let turns = r#"{"role":"assistant","content":"a","reasoning_content":"b"},{"role":"user","content":"c"},"#.repeat(2_000);
    let mut rig = Rig::with(Script::new().replies(GEMINI_REPLY), 1, gemini);
    let got = rig.ask(&CHAT.replace("\"messages\":[", &format!("\"messages\":[{turns}"))).await;
    assert_eq!(got.status, 200, "{}", got.body);
    let named: Vec<_> = got.header("x-tollgate-dropped").unwrap().split(',').collect();
    let more: usize = named.last().unwrap().strip_prefix('+').unwrap().parse().unwrap();
    assert_eq!(named.len() - 1 + more, 2_000);
    assert_eq!(rig.record().dropped, named);
}

const TALK: &str = r#"{"model":"m","user":"u-1","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"a"},{"role":"system","content":"rhyme"},{"role":"user","content":"b"}]}"#;
const ANTHROPIC_REPLY: &str = r#"{"id":"a","type":"message","role":"assistant","model":"c","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}"#;
const SIGNED_CALL: &str = r#"{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"id":"c1","name":"f","args":{}},"thoughtSignature":"QUJD"}]},"finishReason":"STOP","index":0}]}"#;

fn anthropic(channel: &mut Channel) {
    channel.spec.protocol = Protocol::Anthropic;
    channel.spec.provider = Provider::Anthropic;
}

/// The body that was sent upstream last.
fn sent(rig: &Rig) -> serde_json::Value {
    serde_json::from_str(&rig.script.seen().last().expect("a request").body).unwrap()
}

#[tokio::test(start_paused = true)]
async fn later_system_messages_are_hoisted_if_the_channel_asks() {
    for (hoist, beginning) in [(false, None), (true, Some("rhyme"))] {
        let mut rig = Rig::with(Script::new().replies(GEMINI_REPLY), 1, |channel| {
            gemini(channel);
            channel.spec.translation.hoist = hoist;
        });
        assert_eq!(rig.ask(TALK).await.status, 200);
        assert_eq!(sent(&rig)["systemInstruction"]["parts"][0]["text"].as_str(), beginning);
        rig.record();
    }
}

#[tokio::test(start_paused = true)]
async fn omitted_second_tool_call_is_reported() {
    const CALLS: &str = r#"{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"f","args":{}}},{"functionCall":{"name":"f","args":{"a":1}}}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":1,"totalTokenCount":4}}"#;
    let tools = "\"m\",\"parallel_tool_calls\":false,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],";
    let functions = "\"m\",\"functions\":[{\"name\":\"f\"}],";
    for declared in [tools, functions] {
        let mut rig = Rig::with(Script::new().replies(CALLS), 1, gemini);
        let got = rig.ask(&CHAT.replace("\"m\",", declared)).await;
        assert_eq!((got.status, got.header("x-tollgate-dropped")), (200, Some("tool_calls=1")), "{}", got.body);
        assert_eq!(rig.record().dropped, ["tool_calls=1"]);

        // The headers of a stream are sent before the call is dropped, so only the record reports it.
        let mut rig = Rig::with(Script::new().streams(events(&[CALLS])), 1, gemini);
        let got = rig.ask(&STREAM.replace("\"m\",", declared)).await;
        assert!(got.status == 200 && !got.aborted && !got.body.contains(r#"{\"a\":1}"#), "{}", got.body);
        assert_eq!(rig.record().dropped, ["tool_calls=1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn server_tools_need_the_channels_permission() {
    let body = CHAT.replace("\"m\",", "\"m\",\"web_search_options\":{},");
    let mut rig = Rig::with(Script::new(), 1, gemini);
    let got = rig.ask(&body).await;
    assert_eq!(got.status, 400);
    assert!(got.body.contains("'web_search_options'"), "{}", got.body);
    rig.record();
    let mut rig = Rig::with(Script::new().replies(GEMINI_REPLY), 1, |channel| {
        gemini(channel);
        channel.spec.translation.server_tools = true;
    });
    assert_eq!(rig.ask(&body).await.status, 200);
    assert_eq!(sent(&rig)["tools"], serde_json::json!([{"googleSearch": {}}]));
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn user_is_passed_if_the_channel_allows_it() {
    for (pass_user, named, dropped) in [(false, None, Some("user")), (true, Some("u-1"), None)] {
        let mut rig = Rig::with(Script::new().replies(ANTHROPIC_REPLY), 1, |channel| {
            anthropic(channel);
            channel.spec.translation.pass_user = pass_user;
        });
        let got = rig.ask(TALK).await;
        assert_eq!((got.status, got.header("x-tollgate-dropped")), (200, dropped), "{}", got.body);
        assert_eq!(sent(&rig)["metadata"]["user_id"].as_str(), named);
        rig.record();
    }
}

#[tokio::test(start_paused = true)]
async fn signatures_in_tool_call_ids_are_configured_by_group_and_key() {
    let whole = |group: bool| async move {
        let mut rig = Rig::with(Script::new().replies(SIGNED_CALL), 1, gemini);
        rig.change_group(|row| row.signatures_in_ids = group);
        let got = rig.ask(CHAT).await;
        rig.record();
        let body: serde_json::Value = serde_json::from_str(&got.body).unwrap();
        let call = body["choices"][0]["message"]["tool_calls"][0].clone();
        assert_eq!(call["extra_content"]["google"]["thought_signature"], "QUJD", "{}", got.body);
        call["id"].as_str().unwrap().to_owned()
    };
    assert_eq!((whole(true).await.as_str(), whole(false).await.as_str()), ("c1__sig1_QUJD", "c1"));
    for (group, key, suffix) in [(true, Some(false), false), (false, Some(true), true), (false, None, false)] {
        let mut rig = Rig::keyed(Script::new().streams(events(&[SIGNED_CALL])), |row| row.signatures_in_ids = key);
        rig.change(|channels, groups, _| {
            gemini(&mut channels[0]);
            groups[0].signatures_in_ids = group;
        });
        let got = rig.ask(STREAM).await;
        assert_eq!((got.status, got.body.contains("c1__sig1_QUJD")), (200, suffix), "{}", got.body);
        assert!(got.body.contains("thought_signature"), "{}", got.body);
        rig.record();
    }
}

#[tokio::test(start_paused = true)]
async fn attempt_that_cannot_express_the_request_is_skipped() {
    let body = CHAT.replace("\"m\",", "\"m\",\"logit_bias\":{\"1\":2},");
    let mut rig = Rig::with(Script::new().refuses(500, &[]).replies(REPLY), 2, |_| {});
    rig.add_channel(gemini);
    // Of two accounts of the caller's protocol and one of another, the latter never gets the request.
    assert_eq!(rig.ask(&body).await.status, 200);
    let record = rig.record();
    let spoken: Vec<_> = record.attempts.iter().map(|attempt| attempt.protocol).collect();
    assert_eq!(spoken, [Protocol::OpenAi, Protocol::OpenAi]);

    let mut rig = Rig::with(Script::new().refuses(500, &[]), 1, |channel| channel.spec.priority = 0);
    rig.add_channel(|channel| {
        gemini(channel);
        channel.spec.priority = 1;
    });
    let got = rig.ask(&body).await;
    assert_eq!((got.status, got.header("x-tollgate-attempts")), (502, Some("1")), "{}", got.body);
    assert_eq!(rig.record().reason.as_deref(), Some("E55"));
}

#[tokio::test(start_paused = true)]
async fn untranslatable_body_is_sent_to_a_channel_of_the_callers_protocol() {
    // A tool result that answers no call is found by reading the request whole.
    let orphan = r#"{"model":"m","messages":[{"role":"user","content":"a"},{"role":"tool","tool_call_id":"x","content":"r"}]}"#;
    let mut rig = Rig::with(Script::new().replies(REPLY), 1, |channel| channel.spec.priority = 0);
    rig.add_channel(|channel| {
        gemini(channel);
        channel.spec.priority = 1;
    });
    assert_eq!(rig.ask(orphan).await.status, 200);
    rig.record();
    let mut rig = Rig::with(Script::new(), 1, gemini);
    let got = rig.ask(orphan).await;
    assert_eq!((got.status, got.code().as_str()), (400, "invalid_value"), "{}", got.body);
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn dropped_fields_are_reported_with_an_error() {
    let body = CHAT.replace("\"m\",", "\"m\",\"metadata\":{\"a\":\"b\"},\"user\":\"u\",");
    let mut rig = Rig::with(Script::new().refuses(500, &[]), 1, gemini);
    let got = rig.ask(&body).await;
    assert_eq!((got.status, got.header("x-tollgate-dropped")), (502, Some("metadata,user")), "{}", got.body);
    assert_eq!(rig.record().dropped, ["metadata", "user"]);
    let mut rig = Rig::with(Script::new(), 1, gemini);
    let got = rig.ask(&body.replace("\"m\",", "\"m\",\"logit_bias\":{\"1\":2},")).await;
    assert_eq!((got.status, got.header("x-tollgate-dropped")), (400, None), "nothing was sent");
    rig.record();
}

#[tokio::test(start_paused = true)]
async fn dropped_fields_are_reported_with_a_local_token_count() {
    let body = r#"{"contents":[{"role":"user","parts":[{"text":"hello there"}]}],"labels":{"a":"b"}}"#;
    let mut rig = Rig::new(Script::new(), 1);
    rig.change_model(|model| {
        model.spec.parameters = tollgate_core::ParameterRule::Except(vec!["labels".to_owned()]);
        model.spec.on_unsupported = OnUnsupported::Drop;
    });
    let got = read(serve(&rig.core, rig.native(Method::CountTokens, body)).await).await;
    assert_eq!((got.status, got.header("x-tollgate-dropped")), (200, Some("labels")), "{}", got.body);
    assert_eq!(rig.record().dropped, ["labels"]);
}

#[tokio::test(start_paused = true)]
async fn channel_profile_overrides_the_known_profile() {
    let body = CHAT.replace("\"m\",", "\"m\",\"temperature\":0.5,");
    let ask = async |change: fn(&mut Channel)| {
        let mut rig = Rig::with(Script::new().replies(ANTHROPIC_REPLY), 1, |channel| {
            anthropic(channel);
            channel.spec.serves[0].upstream = "claude-sonnet-5-5".to_owned();
            change(channel);
        });
        let got = rig.ask(&body).await;
        rig.record();
        (got.status, rig.script.seen().first().map(|seen| seen.body.clone()).unwrap_or_default())
    };
    assert_eq!(ask(|_| {}).await.0, 400, "the known model accepts no sampling parameters");
    let (status, sent) = ask(|channel| {
        channel.spec.serves[0].profile.sampling = Some(true);
        channel.spec.serves[0].profile.default_max_tokens = Some(77);
    })
    .await;
    let sent: serde_json::Value = serde_json::from_str(&sent).unwrap();
    assert_eq!((status, &sent["temperature"], &sent["max_tokens"]), (200, &0.5.into(), &77.into()));
    assert_eq!(ask(|channel| channel.spec.serves[0].upstream = "claude-3-opus".to_owned()).await.0, 200, "an older one takes it");
}

#[tokio::test(start_paused = true)]
async fn output_limit_of_the_catalog_is_sent_if_the_caller_gave_none() {
    for (stated, of_model, sent_limit) in [(None, Some(64_000), 64_000), (Some(77), Some(64_000), 77), (None, None, 16_384)] {
        let mut rig = Rig::with(Script::new().replies(ANTHROPIC_REPLY), 1, |channel| {
            anthropic(channel);
            channel.spec.serves[0].profile.default_max_tokens = stated;
        });
        rig.change(|_, _, models| models[0].spec.max_output = of_model);
        assert_eq!(rig.ask(CHAT).await.status, 200);
        rig.record();
        assert_eq!(sent(&rig)["max_tokens"], sent_limit, "{stated:?} {of_model:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_parts_are_counted_by_channel() {
    let reply = GEMINI_REPLY.replace("[{\"text\":\"hi\"}]", "[{\"text\":\"hi\"},{\"hologram\":{}}]");
    let mut rig = Rig::with(Script::new().replies(&reply), 1, gemini);
    let got = rig.ask(CHAT).await;
    assert!(got.status == 200 && !got.body.contains("hologram"), "{}", got.body);
    rig.record();
    let metrics = rig.core.shared.metrics.render();
    assert!(metrics.contains("tollgate_unknown_content_total{channel=\"one\"} 1"), "{metrics}");
}

#[tokio::test(start_paused = true)]
async fn bound_signature_is_left_out_where_another_account_may_have_issued_it() {
    const NATIVE: &str = r#"{"contents":[{"role":"user","parts":[{"text":"hi"}]},{"role":"model","parts":[{"functionCall":{"id":"c","name":"f","args":{}},"thoughtSignature":"QUJD"}]},{"role":"user","parts":[{"functionResponse":{"id":"c","name":"f","response":{"a":1}}}]}]}"#;
    const HISTORY: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"QUJD"}}}]},{"role":"tool","tool_call_id":"c","content":"1"}]}"#;
    for (bound, accounts, is_kept) in [(true, 2, false), (true, 1, true), (false, 2, true)] {
        for native in [true, false] {
            let mut rig = Rig::with(Script::new().replies(GEMINI_REPLY), accounts, |channel| {
                gemini(channel);
                channel.spec.serves[0].profile.signatures_bound = Some(bound);
            });
            let incoming = if native { rig.native(Method::Generate, NATIVE) } else { rig.incoming(HISTORY) };
            let got = read(serve(&rig.core, incoming).await).await;
            assert_eq!(got.status, 200, "{}", got.body);
            let sent = rig.script.seen()[0].body.clone();
            assert_eq!(sent.contains("QUJD"), is_kept, "{sent}");
            let named = got.header("x-tollgate-dropped").unwrap_or_default().to_lowercase();
            assert_eq!(named.contains("signature"), !is_kept, "{named}");
            rig.record();
        }
    }
}
