//! What coding agents send whatever the model: requests of Claude Code and Codex that upstreams of other protocols refused.

use Protocol::{Anthropic, Gemini, OpenAi, Responses};
use bytes::Bytes;
use serde_json::{Value, json};
use tollgate_protocol::{
    Framing, Method, Profile, Protocol, Target, TranslateError, TranslateOptions, decode_request, effective_profile,
    encode_request, neutral::ReplyContext, translate_reply,
};

use crate::{assembled::assemble, framed, relay, schemas::check_stream};

type Translated = Result<(Value, Vec<String>), Vec<String>>;

fn translate(from: Protocol, upstream: (Protocol, &str), body: &Value) -> Translated {
    translate_for(&Profile::default(), from, upstream, body)
}

fn translate_for(stated: &Profile, from: Protocol, (to, model): (Protocol, &str), body: &Value) -> Translated {
    let profile = effective_profile(to.as_str(), to, model, stated);
    let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
    let request = decode_request(from, &target, body.to_string().as_bytes()).expect("a request");
    match encode_request(to, &request, model, &profile, &TranslateOptions::default()) {
        Ok(encoded) => Ok((serde_json::from_slice(&encoded.body).expect("JSON"), encoded.dropped)),
        Err(TranslateError::Unsupported { fields, .. }) => Err(fields),
        Err(other) => panic!("{other:?}"),
    }
}

fn messages(members: &Value) -> Value {
    let mut body = json!({"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().expect("an object").extend(members.as_object().expect("an object").clone());
    body
}

const TOOLS: &str = r#"[{"name": "f", "input_schema": {"type": "object"}}]"#;

fn tools() -> Value {
    serde_json::from_str(TOOLS).expect("JSON")
}

#[test]
fn gpt_of_chat_channels_does_not_think_beside_tools() {
    let high = json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}, "tools": tools()});
    for (model, effort, named) in [
        ("gpt-5.2", Some("high"), vec![]),
        ("gpt-5.4", Some("none"), vec!["output_config.effort=none"]),
        ("gpt-5.6-terra", Some("none"), vec!["output_config.effort=none"]),
        ("openai/gpt-5.10", Some("none"), vec!["output_config.effort=none"]),
    ] {
        let (body, dropped) = translate(Anthropic, (OpenAi, model), &messages(&high)).expect("a request");
        assert_eq!(
            (body["reasoning_effort"].as_str(), dropped),
            (effort, named.into_iter().map(str::to_owned).collect()),
            "{model}"
        );
        let (body, _) = translate(Anthropic, (Responses, model), &messages(&high)).expect("a request");
        assert_eq!(body["reasoning"]["effort"], "high", "{model} on a Responses channel");
    }
    // GPT-5.6 refuses tools without an effort as well, because it thinks by default.
    let (body, dropped) = translate(Anthropic, (OpenAi, "gpt-5.6"), &messages(&json!({"tools": tools()}))).expect("a request");
    assert_eq!((&body["reasoning_effort"], dropped.len()), (&json!("none"), 0));
    let adaptive = messages(&json!({"tools": tools(), "thinking": {"type": "adaptive"}}));
    let (body, dropped) = translate(Anthropic, (OpenAi, "gpt-5.6"), &adaptive).expect("a request");
    assert_eq!((&body["reasoning_effort"], dropped), (&json!("none"), vec!["thinking".to_owned()]));
    let without_tools = json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}});
    let (body, _) = translate(Anthropic, (OpenAi, "gpt-5.6"), &messages(&without_tools)).expect("a request");
    assert_eq!(body["reasoning_effort"], "high");
}

#[test]
fn sealed_thoughts_are_only_asked_of_models_that_think() {
    for (model, include) in [
        ("gpt-4o", json!(null)),
        ("gpt-5-chat-latest", json!(null)),
        ("o3", json!(["reasoning.encrypted_content"])),
        ("of-another-name", json!(["reasoning.encrypted_content"])),
    ] {
        let (body, dropped) = translate(Anthropic, (Responses, model), &messages(&json!({}))).expect("a request");
        assert_eq!((&body["include"], &body["store"], dropped.len()), (&include, &json!(false), 0), "{model}");
    }
}

#[test]
fn output_limits_below_those_of_responses_are_raised_and_named() {
    for (given, sent, named) in [(1, 16, Some("max_tokens=16")), (16, 16, None), (17, 17, None)] {
        let body = messages(&json!({"max_tokens": given}));
        let (body, dropped) = translate(Anthropic, (Responses, "gpt-4o"), &body).expect("a request");
        assert_eq!((body["max_output_tokens"].as_u64(), dropped), (Some(sent), named.map(str::to_owned).into_iter().collect()));
    }
}

#[test]
fn lists_that_ask_for_nothing_are_not_refused() {
    for (to, model) in [(OpenAi, "gpt-4o"), (Gemini, "gemini-3-pro"), (Responses, "gpt-5.5")] {
        let empty = messages(&json!({"mcp_servers": [], "fallbacks": []}));
        assert_eq!(translate(Anthropic, (to, model), &empty).expect("a request").1, Vec::<String>::new(), "{to:?}");
        let server = json!([{"type": "url", "url": "https://example.com", "name": "s"}]);
        let given = messages(&json!({"mcp_servers": server, "fallbacks": [{"model": "a"}]}));
        assert_eq!(
            translate(Anthropic, (to, model), &given),
            Err(vec!["mcp_servers".to_owned(), "fallbacks".to_owned()]),
            "{to:?}"
        );
    }
}

#[test]
fn effort_of_codex_is_dropped_for_models_that_do_not_think() {
    let body = json!({"model": "m", "input": "hi", "store": false, "reasoning": {"effort": "high"}});
    let (body, dropped) = translate(Responses, (OpenAi, "gpt-4o"), &body).expect("a request");
    assert_eq!((body.get("reasoning_effort"), dropped), (None, vec!["reasoning.effort".to_owned()]));
}

/// The content of the caller's history after an answer of a chat upstream that thought, and called a tool.
fn received(shown: bool, streams: bool) -> Value {
    let call = json!({"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let context = ReplyContext { include_thoughts: shown, carry_thinking: true, stream: streams, ..ReplyContext::new("r", 7, "m") };
    let chunk = |delta: Value, finish: Value| json!({"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    if streams {
        let events = [
            chunk(json!({"role": "assistant", "reasoning_content": "I \u{4f60} "}), Value::Null),
            chunk(json!({"reasoning_content": "think"}), Value::Null),
            chunk(json!({"content": "Now."}), Value::Null),
            chunk(json!({"tool_calls": [call]}), Value::Null),
            chunk(json!({}), json!("tool_calls")),
            json!("[DONE]"),
        ];
        let (out, fault) = relay((OpenAi, Anthropic), &context, [&framed(OpenAi, &events)[..]]);
        assert_eq!(fault, None);
        return assemble(Anthropic, &check_stream(Anthropic, &out))["content"].clone();
    }
    let message = json!({"role": "assistant", "reasoning_content": "I \u{4f60} think", "content": "Now.", "tool_calls": [call]});
    let answer = json!({"id": "x", "object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]});
    let reply = translate_reply(OpenAi, Anthropic, &Bytes::from(answer.to_string()), &context).expect("an answer");
    serde_json::from_slice::<Value>(&reply.body).expect("JSON")["content"].clone()
}

#[test]
fn thoughts_of_chat_upstreams_return_to_them_seen_or_unseen() {
    for (shown, streams) in [(true, true), (true, false), (false, true), (false, false)] {
        let content = received(shown, streams);
        let thinking = content[0]["thinking"].as_str();
        assert_eq!(thinking, Some(if shown { "I \u{4f60} think" } else { "" }), "{content}");
        assert_eq!(content.as_array().map(Vec::len), Some(3), "{content}");
        let result = json!([{"type": "tool_result", "tool_use_id": "c1", "content": "r"}]);
        let turns = json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": content}, {"role": "user", "content": result}]);
        let body = messages(&json!({"messages": turns, "tools": tools()}));
        let (sent, dropped) = translate(Anthropic, (OpenAi, "deepseek-chat"), &body).expect("a request");
        assert_eq!(sent["messages"][1]["reasoning_content"], "I \u{4f60} think", "{shown} {streams}");
        assert_eq!(dropped, Vec::<String>::new());
        for (to, model) in [(Gemini, "gemini-3-pro"), (Responses, "gpt-5.5")] {
            let (sent, _) = translate(Anthropic, (to, model), &body).expect("a request");
            assert!(!sent.to_string().contains("tg1.") && !sent.to_string().contains("think\""), "{to:?} {sent}");
        }
    }
}

#[test]
fn thought_without_an_answer_ends_in_a_block_of_its_own() {
    let context = ReplyContext { include_thoughts: false, carry_thinking: true, stream: true, ..ReplyContext::new("r", 7, "m") };
    let chunk = json!({"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}, "finish_reason": "length"}]});
    let (out, fault) = relay((OpenAi, Anthropic), &context, [&framed(OpenAi, &[chunk, json!("[DONE]")])[..]]);
    assert_eq!(fault, None);
    let content = assemble(Anthropic, &check_stream(Anthropic, &out))["content"].clone();
    assert_eq!(content, json!([{"type": "thinking", "thinking": "", "signature": "tg1.o.aG0="}]));
}

#[test]
fn signature_of_gemini_behind_a_chat_endpoint_returns_to_it() {
    let signed = json!({"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "QUJD"}}});
    let chunk = |delta: Value, finish: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    let events = [chunk(json!({"tool_calls": [signed]}), Value::Null), chunk(json!({}), json!("tool_calls")), json!("[DONE]")];
    let message = json!({"role": "assistant", "content": null, "tool_calls": [signed]});
    let answer = json!({"id": "x", "object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]});
    let context = ReplyContext { id_signatures: true, ..ReplyContext::new("r", 7, "m") };
    let whole = translate_reply(OpenAi, Anthropic, &Bytes::from(answer.to_string()), &context).expect("an answer").body;
    let streaming = ReplyContext { stream: true, ..context };
    let (out, fault) = relay((OpenAi, Anthropic), &streaming, [&framed(OpenAi, &events)[..]]);
    assert_eq!(fault, None);
    let streamed = assemble(Anthropic, &check_stream(Anthropic, &out));
    let gemini = Profile { signature_required: Some(true), ..Profile::default() };
    for answer in [serde_json::from_slice::<Value>(&whole).expect("JSON"), streamed] {
        let content = &answer["content"];
        assert_eq!(content[0]["id"], "c1__sig1_QUJD");
        for (id, expected) in [(&content[0]["id"], "QUJD"), (&json!("c1"), "skip_thought_signature_validator")] {
            let call = json!({"type": "tool_use", "id": id, "name": "f", "input": {}});
            let result = json!([{"type": "tool_result", "tool_use_id": id, "content": "r"}]);
            let turns = json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": [call]}, {"role": "user", "content": result}]);
            let body = messages(&json!({"messages": turns, "tools": tools()}));
            let (sent, _) = translate_for(&gemini, Anthropic, (OpenAi, "gemini-3-pro"), &body).expect("a request");
            let call = &sent["messages"][1]["tool_calls"][0];
            assert_eq!((&call["id"], &call["extra_content"]["google"]["thought_signature"]), (&json!("c1"), &json!(expected)));
            let (sent, _) = translate(Anthropic, (OpenAi, "gpt-4o"), &body).expect("a request");
            assert_eq!(sent["messages"][1]["tool_calls"][0].get("extra_content"), None);
        }
    }
}

#[test]
fn signature_that_only_its_account_accepts_is_left_out_behind_a_chat_endpoint_and_named() {
    let bound = Profile { signature_required: Some(true), signatures_bound: Some(true), ..Profile::default() };
    let id = "c1__sig1_QUJD";
    let call = json!({"type": "tool_use", "id": id, "name": "f", "input": {}});
    let result = json!([{"type": "tool_result", "tool_use_id": id, "content": "r"}]);
    let turns =
        json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": [call]}, {"role": "user", "content": result}]);
    let body = messages(&json!({"messages": turns, "tools": tools()}));
    let (sent, dropped) = translate_for(&bound, Anthropic, (OpenAi, "gemini-3-pro"), &body).expect("a request");
    let signature = &sent["messages"][1]["tool_calls"][0]["extra_content"]["google"]["thought_signature"];
    assert_eq!(signature, "skip_thought_signature_validator");
    assert_eq!(dropped, ["messages[1].content[0].extra_content.google.thought_signature"]);
}

#[test]
fn item_with_the_signature_of_a_call_is_not_named_where_it_is_used() {
    let gemini = Profile { signature_required: Some(true), ..Profile::default() };
    let body = json!({"model": "m", "store": false, "tools": [{"type": "function", "name": "f"}], "input": [
        {"role": "user", "content": "hi"},
        {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "tg1.g.QUJD"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
    ]});
    let (sent, dropped) = translate_for(&gemini, Responses, (OpenAi, "gemini-3-pro"), &body).expect("a request");
    assert_eq!(sent["messages"][1]["tool_calls"][0]["extra_content"]["google"]["thought_signature"], "QUJD");
    assert_eq!(dropped, Vec::<String>::new());
    let (_, dropped) = translate(Responses, (OpenAi, "gpt-4o"), &body).expect("a request");
    assert_eq!(dropped, ["input[1]"], "another model does not take it");
}

#[test]
fn thought_that_is_too_long_returns_with_its_beginning() {
    const LIMIT: usize = 1024 * 1024;
    let context = ReplyContext { include_thoughts: false, carry_thinking: true, stream: true, ..ReplyContext::new("r", 7, "m") };
    let chunk = |text: &str, finish: Value| json!({"choices": [{"index": 0, "delta": {"reasoning_content": text}, "finish_reason": finish}]});
    let piece = "\u{4f60}".repeat(100_000);
    let mut events = vec![chunk(&piece, Value::Null); 5];
    events.extend([chunk("end", json!("length")), json!("[DONE]")]);
    let (out, fault) = relay((OpenAi, Anthropic), &context, [&framed(OpenAi, &events)[..]]);
    assert_eq!(fault, None);
    let streamed = assemble(Anthropic, &check_stream(Anthropic, &out))["content"].clone();
    let message = json!({"role": "assistant", "reasoning_content": piece.repeat(5), "content": "x"});
    let answer =
        json!({"id": "x", "object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]});
    let whole = translate_reply(OpenAi, Anthropic, &Bytes::from(answer.to_string()), &context).expect("an answer").body;
    for content in [streamed, serde_json::from_slice::<Value>(&whole).expect("JSON")["content"].clone()] {
        let turns = json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": [content[0], {"type": "text", "text": "x"}]},
            {"role": "user", "content": "go on"}]);
        let (sent, _) = translate(Anthropic, (OpenAi, "deepseek-chat"), &messages(&json!({"messages": turns}))).expect("a request");
        let thought = sent["messages"][1]["reasoning_content"].as_str().expect("a thought");
        assert!(thought.len() > LIMIT - 4 && thought.len() <= LIMIT && piece.repeat(5).starts_with(thought), "{}", thought.len());
    }
}
