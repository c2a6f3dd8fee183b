//! Requests of Claude Code and Codex that upstreams of other protocols refused. Both agents send them to every model.

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
fn reasoning_is_disabled_for_gpt_on_chat_channels_when_tools_are_given() {
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
fn encrypted_reasoning_is_requested_only_from_reasoning_models() {
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
fn output_limits_below_the_minimum_of_responses_are_raised_and_reported() {
    for (given, sent, named) in [(1, 16, Some("max_tokens=16")), (16, 16, None), (17, 17, None)] {
        let body = messages(&json!({"max_tokens": given}));
        let (body, dropped) = translate(Anthropic, (Responses, "gpt-4o"), &body).expect("a request");
        assert_eq!((body["max_output_tokens"].as_u64(), dropped), (Some(sent), named.map(str::to_owned).into_iter().collect()));
    }
}

#[test]
fn empty_lists_are_not_refused() {
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

/// The answer of a chat upstream that thought, in a member of this name, and called a tool, as a caller of `from` receives it.
fn received(from: Protocol, member: &str, shown: bool, streams: bool) -> Value {
    let call = json!({"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let context = ReplyContext { include_thoughts: shown, carry_thinking: true, stream: streams, ..ReplyContext::new("r", 7, "m") };
    let chunk = |delta: Value, finish: Value| json!({"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    if streams {
        let events = [
            chunk(json!({"role": "assistant", member: "I \u{4f60} "}), Value::Null),
            chunk(json!({member: "think"}), Value::Null),
            chunk(json!({"content": "Now."}), Value::Null),
            chunk(json!({"tool_calls": [call]}), Value::Null),
            chunk(json!({}), json!("tool_calls")),
            json!("[DONE]"),
        ];
        let (out, fault) = relay((OpenAi, from), &context, [&framed(OpenAi, &events)[..]]);
        assert_eq!(fault, None);
        return assemble(from, &check_stream(from, &out));
    }
    let message = json!({"role": "assistant", member: "I \u{4f60} think", "content": "Now.", "tool_calls": [call]});
    let answer = json!({"id": "x", "object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]});
    let reply = translate_reply(OpenAi, from, &Bytes::from(answer.to_string()), &context).expect("an answer");
    serde_json::from_slice(&reply.body).expect("JSON")
}

/// The next request of a Messages caller that received this content.
fn next_turn(content: &Value) -> Value {
    let result = json!([{"type": "tool_result", "tool_use_id": "c1", "content": "r"}]);
    let turns =
        json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": content}, {"role": "user", "content": result}]);
    messages(&json!({"messages": turns, "tools": tools()}))
}

#[test]
fn reasoning_of_chat_upstreams_returns_to_them_shown_or_hidden() {
    for (shown, streams) in [(true, true), (true, false), (false, true), (false, false)] {
        let content = received(Anthropic, "reasoning_content", shown, streams)["content"].clone();
        let thinking = content[0]["thinking"].as_str();
        assert_eq!(thinking, Some(if shown { "I \u{4f60} think" } else { "" }), "{content}");
        assert_eq!(content.as_array().map(Vec::len), Some(3), "{content}");
        let body = next_turn(&content);
        let (sent, dropped) = translate(Anthropic, (OpenAi, "deepseek-chat"), &body).expect("a request");
        assert_eq!(sent["messages"][1]["reasoning_content"], "I \u{4f60} think", "{shown} {streams}");
        assert_eq!(dropped, Vec::<String>::new());
        for (to, model) in [(Gemini, "gemini-3-pro"), (Responses, "gpt-5.5")] {
            let (sent, _) = translate(Anthropic, (to, model), &body).expect("a request");
            assert!(!sent.to_string().contains("tg1.") && !sent.to_string().contains("think\""), "{to:?} {sent}");
        }
    }
}

/// Groq and Cerebras send `reasoning` and refuse a history with `reasoning_content`.
#[test]
fn reasoning_member_is_sent_back_only_if_the_profile_says_so() {
    let says = |field: &str| Profile { thought_field: Some(field.to_owned()), ..Profile::default() };
    for (shown, streams) in [(true, true), (true, false), (false, true), (false, false)] {
        let content = received(Anthropic, "reasoning", shown, streams)["content"].clone();
        assert_eq!(
            content.as_array().map(Vec::len),
            Some(if shown { 3 } else { 2 }),
            "the thought is not carried, because it is not sent back: {content}"
        );
        let body = next_turn(&content);
        let (sent, _) = translate(Anthropic, (OpenAi, "qwen3"), &body).expect("a request");
        let members = sent["messages"][1].as_object().expect("a message");
        assert!(!members.contains_key("reasoning_content") && !members.contains_key("reasoning"), "{sent}");
        let (sent, _) = translate_for(&says("reasoning"), Anthropic, (OpenAi, "qwen3"), &body).expect("a request");
        assert_eq!(sent["messages"][1]["reasoning"].as_str(), shown.then_some("I \u{4f60} think"), "{sent}");
    }
    for streams in [true, false] {
        let response = received(Responses, "reasoning", true, streams);
        assert_eq!(response["output"][0]["encrypted_content"], "tg1.openai.reasoning", "{response}");
        let mut input = vec![json!({"role": "user", "content": "hi"})];
        input.extend(response["output"].as_array().expect("items").clone());
        input.push(json!({"type": "function_call_output", "call_id": "c1", "output": "r"}));
        let body = json!({"model": "m", "input": input, "store": false, "tools": [{"type": "function", "name": "f"}]});
        let (sent, dropped) = translate(Responses, (OpenAi, "qwen3"), &body).expect("a request");
        let message = sent["messages"].as_array().expect("messages").iter().find(|message| message["role"] == "assistant");
        let members = message.and_then(Value::as_object).expect("the assistant's message");
        assert!(!members.contains_key("reasoning_content") && !members.contains_key("reasoning"), "{sent}");
        assert_eq!(dropped, ["input[1]"]);
        let (sent, dropped) = translate_for(&says("reasoning_content"), Responses, (OpenAi, "qwen3"), &body).expect("a request");
        assert_eq!((&sent["messages"][1]["reasoning_content"], dropped.len()), (&json!("I \u{4f60} think"), 0), "{sent}");
    }
}

#[test]
fn reasoning_is_not_sent_back_to_upstreams_that_accept_none() {
    let body = next_turn(&received(Anthropic, "reasoning_content", true, false)["content"]);
    let none = Profile { thought_field: Some("none".to_owned()), ..Profile::default() };
    for (model, stated) in [("gpt-4o", Profile::default()), ("o3", Profile::default()), ("qwen3", none)] {
        let (sent, _) = translate_for(&stated, Anthropic, (OpenAi, model), &body).expect("a request");
        let members = sent["messages"][1].as_object().expect("a message");
        assert!(members.contains_key("tool_calls") && !members.contains_key("reasoning_content"), "{model}: {sent}");
    }
}

#[test]
fn tools_without_properties_get_empty_ones_for_openai() {
    let body = messages(&json!({"tools": tools()}));
    let empty = json!({"type": "object", "properties": {}});
    let (chat, _) = translate(Anthropic, (OpenAi, "gpt-4o"), &body).expect("a request");
    let (responses, _) = translate(Anthropic, (Responses, "gpt-5.5"), &body).expect("a request");
    let (other, _) = translate(Anthropic, (OpenAi, "llama-4"), &body).expect("a request");
    assert_eq!(other["tools"][0]["function"]["parameters"], json!({"type": "object"}));
    assert_eq!((&chat["tools"][0]["function"]["parameters"], &responses["tools"][0]["parameters"]), (&empty, &empty));
}

/// Claude refuses `anyOf`, `oneOf` and `allOf` at the root, which tools of MCP servers have.
#[test]
fn choices_at_the_root_of_a_tool_schema_are_merged_for_claude_and_reported() {
    let parameters = json!({"type": "object", "properties": {"a": {"type": "string"}}, "oneOf": [{"required": ["a"]}, {"properties": {"b": {"type": "string"}}}]});
    let body = json!({"model": "m", "input": "hi", "store": false, "tools": [{"type": "function", "name": "f", "parameters": parameters}]});
    let (sent, dropped) = translate(Responses, (Anthropic, "claude-opus-4-7"), &body).expect("a request");
    let expected = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
    assert_eq!((&sent["tools"][0]["input_schema"], dropped), (&expected, vec!["tools[0].parameters.oneOf".to_owned()]));
}

#[test]
fn call_ids_contain_only_characters_accepted_by_claude() {
    let call = json!({"index": 0, "id": "functions.Read:0", "type": "function", "function": {"name": "Read", "arguments": "{}"}});
    let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let answer = json!({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]});
    let context = ReplyContext::new("r", 7, "m");
    let whole = translate_reply(OpenAi, Anthropic, &Bytes::from(answer.to_string()), &context).expect("an answer").body;
    let chunks =
        [json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}), json!("[DONE]")];
    let streaming = ReplyContext { stream: true, ..context };
    let (out, fault) = relay((OpenAi, Anthropic), &streaming, [&framed(OpenAi, &chunks)[..]]);
    assert_eq!(fault, None);
    for answer in [serde_json::from_slice::<Value>(&whole).expect("JSON"), assemble(Anthropic, &check_stream(Anthropic, &out))] {
        assert_eq!(answer["content"][0]["id"], "functions_Read_0");
    }
}

#[test]
fn efforts_unsupported_by_gpt_5_variants_become_the_nearest_supported() {
    for (model, expected) in [
        ("gpt-5-pro", "high"),
        ("gpt-5.2-chat-latest", "medium"),
        ("gpt-5.2-pro", "medium"),
        ("gpt-5-codex", "low"),
        ("gpt-5.3-codex", "low"),
        ("gpt-5.2", "low"),
    ] {
        let body = messages(&json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}));
        let (sent, dropped) = translate(Anthropic, (Responses, model), &body).expect("a request");
        let named = (expected != "low").then(|| format!("output_config.effort={expected}"));
        assert_eq!((sent["reasoning"]["effort"].as_str(), dropped), (Some(expected), named.into_iter().collect()), "{model}");
    }
}

#[test]
fn consecutive_assistant_messages_are_joined_with_a_blank_line() {
    let said = |text: &str| json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]});
    let body = json!({"model": "m", "store": false, "input": [{"role": "user", "content": "hi"}, said("One."), said("Two."), {"role": "user", "content": "x"}]});
    let (chat, _) = translate(Responses, (OpenAi, "gpt-4o"), &body).expect("a request");
    assert_eq!(chat["messages"][1]["content"], "One.\n\nTwo.");
    let (claude, _) = translate(Responses, (Anthropic, "claude-opus-4-7"), &body).expect("a request");
    assert_eq!(claude["messages"][1]["content"], "One.\n\nTwo.");
}

#[test]
fn metadata_that_gemini_cannot_express_is_reported() {
    let body = messages(&json!({"metadata": {"user_id": "u", "project": "p"}}));
    let (_, dropped) = translate(Anthropic, (Gemini, "gemini-3-pro"), &body).expect("a request");
    assert_eq!(dropped, ["metadata", "metadata.project"]);
}

#[test]
fn refused_forced_tool_choice_has_a_reason() {
    let unforced = Profile { forced_tools: Some(false), ..Profile::default() };
    let body = messages(&json!({"tools": tools(), "tool_choice": {"type": "any"}}));
    let profile = effective_profile("compatible", OpenAi, "m", &unforced);
    let target = Target { method: Method::Chat, model: None, framing: Framing::Sse };
    let request = decode_request(Anthropic, &target, body.to_string().as_bytes()).expect("a request");
    let refused = encode_request(OpenAi, &request, "m", &profile, &TranslateOptions::default());
    let Err(TranslateError::Unsupported { fields, reason }) = refused else { panic!("{refused:?}") };
    assert_eq!((fields, reason.as_deref()), (vec!["tool_choice".to_owned()], Some("the model cannot be forced to call a tool")));
}

#[test]
fn reasoning_without_an_answer_ends_in_its_own_block() {
    let context = ReplyContext { include_thoughts: false, carry_thinking: true, stream: true, ..ReplyContext::new("r", 7, "m") };
    let chunk = json!({"choices": [{"index": 0, "delta": {"reasoning_content": "hm"}, "finish_reason": "length"}]});
    let (out, fault) = relay((OpenAi, Anthropic), &context, [&framed(OpenAi, &[chunk, json!("[DONE]")])[..]]);
    assert_eq!(fault, None);
    let content = assemble(Anthropic, &check_stream(Anthropic, &out))["content"].clone();
    assert_eq!(content, json!([{"type": "thinking", "thinking": "", "signature": "tg1.o.aG0="}]));
}

#[test]
fn gemini_signature_from_a_chat_endpoint_is_sent_back_to_it() {
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

/// Claude Code names files after the ids of calls; signatures of Gemini have hundreds of bytes.
#[test]
fn long_signature_of_a_call_is_carried_in_a_thinking_block_if_thinking_was_requested() {
    let signature = "QUJD".repeat(100);
    let part = json!({"functionCall": {"name": "f", "args": {}, "id": "c1"}, "thoughtSignature": signature});
    let answer = json!({"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}]});
    let context = ReplyContext { carry_thinking: true, id_signatures: true, ..ReplyContext::new("r", 7, "m") };
    let whole = |context: &ReplyContext| {
        let reply = translate_reply(Gemini, Anthropic, &Bytes::from(answer.to_string()), context).expect("an answer");
        serde_json::from_slice::<Value>(&reply.body).expect("JSON")
    };
    let streaming = ReplyContext { stream: true, ..context.clone() };
    let (out, fault) = relay((Gemini, Anthropic), &streaming, [&framed(Gemini, std::slice::from_ref(&answer))[..]]);
    assert_eq!(fault, None);
    for answer in [whole(&context), assemble(Anthropic, &check_stream(Anthropic, &out))] {
        let content = &answer["content"];
        let block = json!({"type": "thinking", "thinking": "", "signature": format!("tg1.g.{signature}")});
        assert_eq!((&content[0], &content[1]["id"]), (&block, &json!("c1")), "{content}");
        let (sent, dropped) = translate(Anthropic, (Gemini, "gemini-3-pro"), &next_turn(content)).expect("a request");
        let parts = sent["contents"][1]["parts"].as_array().expect("parts");
        assert_eq!((parts.len(), &parts[0]["thoughtSignature"], dropped.len()), (1, &json!(signature), 0), "{sent}");
        for (to, model) in [(OpenAi, "gpt-4o"), (Responses, "gpt-5.5")] {
            let (sent, _) = translate(Anthropic, (to, model), &next_turn(content)).expect("a request");
            assert!(!sent.to_string().contains("QUJD"), "{to:?} {sent}");
        }
    }
    // Other callers would read the block as the answer.
    let unasked = whole(&ReplyContext { carry_thinking: false, ..context });
    assert_eq!(unasked["content"][0]["id"], format!("c1__sig1_{signature}"));
}

#[test]
fn account_bound_signature_is_removed_for_a_chat_endpoint_and_reported() {
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
fn item_carrying_a_call_signature_is_reported_as_dropped_only_if_unused() {
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
fn too_long_reasoning_is_truncated_and_sent_back() {
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
