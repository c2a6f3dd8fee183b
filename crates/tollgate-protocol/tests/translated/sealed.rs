//! Encrypted reasoning of a Responses upstream returns to it through callers of every other protocol, at its position.

use bytes::Bytes;
use serde_json::{Value, json};
use tollgate_protocol::{
    Framing, Method, Profile, Protocol, RequestEdits, Target, Thinking, TranslateOptions, codec, decode_request, encode_request,
    neutral::ReplyContext, translate_reply,
};

use crate::{
    assembled::assemble,
    framed, relay,
    schemas::{check_reply, check_request, check_stream},
};

const CALLERS: [Protocol; 3] = [Protocol::OpenAi, Protocol::Gemini, Protocol::Anthropic];

fn thought(id: &str, text: &str) -> Value {
    let summary = if text.is_empty() { json!([]) } else { json!([{ "type": "summary_text", "text": text }]) };
    json!({ "id": id, "type": "reasoning", "summary": summary, "encrypted_content": format!("gAAAA-{id}==") })
}

fn call(id: &str) -> Value {
    json!({ "id": format!("fc_{id}"), "type": "function_call", "call_id": id, "name": "f", "arguments": "{}", "status": "completed" })
}

fn message(text: &str) -> Value {
    json!({ "id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
        "content": [{ "type": "output_text", "text": text, "annotations": [] }] })
}

fn answer(output: &[Value]) -> Value {
    json!({ "id": "resp_x", "object": "response", "created_at": 1, "status": "completed", "error": null, "incomplete_details": null,
        "model": "u", "output": output, "usage": null })
}

/// The events of an answer. Summaries and arguments come in pieces.
fn events(output: &[Value]) -> Vec<Value> {
    let mut events = vec![json!({ "type": "response.created", "response": { "id": "resp_x", "status": "in_progress" } })];
    for (index, item) in output.iter().enumerate() {
        let mut added = item.clone();
        added["encrypted_content"] = "gAAAA-not-yet".into();
        events.push(json!({ "type": "response.output_item.added", "output_index": index, "item": added }));
        let (kind, text) = match item["type"].as_str() {
            Some("reasoning") => ("reasoning_summary_text", item["summary"][0]["text"].as_str()),
            Some("message") => ("output_text", item["content"][0]["text"].as_str()),
            _ => ("function_call_arguments", item["arguments"].as_str()),
        };
        let text = text.unwrap_or_default();
        for piece in [&text[..text.len() / 2], &text[text.len() / 2..]] {
            events.push(json!({ "type": format!("response.{kind}.delta"), "output_index": index, "item_id": "i", "delta": piece }));
        }
        events.push(json!({ "type": "response.output_item.done", "output_index": index, "item": item }));
    }
    events.push(json!({ "type": "response.completed", "response": answer(output) }));
    events
}

fn context(shown: bool) -> ReplyContext {
    ReplyContext { include_thoughts: shown, carry_thinking: true, ..ReplyContext::new("r", 7, "m") }
}

/// The answer as the caller puts it into its history: a message, or the parts or blocks of one.
fn received(caller: Protocol, output: &[Value], context: &ReplyContext, streams: bool) -> Value {
    let direction = (Protocol::Responses, caller);
    let reply = if streams {
        let context = ReplyContext { stream: true, ..context.clone() };
        let (out, fault) = relay(direction, &context, [&framed(Protocol::Responses, &events(output))[..]]);
        assert_eq!(fault, None);
        assemble(caller, &check_stream(caller, &out))
    } else {
        let body = Bytes::from(answer(output).to_string());
        check_reply(caller, &translate_reply(Protocol::Responses, caller, &body, context).expect("an answer").body)
    };
    match caller {
        Protocol::OpenAi => reply["choices"][0]["message"].clone(),
        Protocol::Gemini => reply["candidates"][0]["content"].clone(),
        Protocol::Anthropic | Protocol::Responses => reply["content"].clone(),
    }
}

/// A turn of the model and the results of its calls.
fn turns(caller: Protocol, turn: &Value) -> Vec<Value> {
    match caller {
        Protocol::OpenAi => {
            let calls = turn["tool_calls"].as_array().into_iter().flatten();
            let results = calls.map(|call| json!({ "role": "tool", "tool_call_id": call["id"], "content": "done" }));
            std::iter::once(turn.clone()).chain(results).collect()
        }
        Protocol::Gemini => {
            let calls = turn["parts"].as_array().expect("parts").iter().filter_map(|part| part.get("functionCall"));
            let result = |call: &Value| json!({ "functionResponse": { "id": call["id"], "name": call["name"], "response": { "output": "done" } } });
            vec![turn.clone(), json!({ "role": "user", "parts": calls.map(result).collect::<Vec<_>>() })]
        }
        Protocol::Anthropic | Protocol::Responses => {
            let calls = turn.as_array().expect("blocks").iter().filter(|block| block["type"] == "tool_use");
            let result = |call: &Value| json!({ "type": "tool_result", "tool_use_id": call["id"], "content": "done" });
            let results: Vec<Value> = calls.map(result).collect();
            vec![json!({ "role": "assistant", "content": turn }), json!({ "role": "user", "content": results })]
        }
    }
}

fn request(caller: Protocol, turns: &[Value]) -> Value {
    let first = match caller {
        Protocol::Gemini => json!({ "role": "user", "parts": [{ "text": "hi" }] }),
        Protocol::OpenAi | Protocol::Anthropic | Protocol::Responses => json!({ "role": "user", "content": "hi" }),
    };
    let list: Vec<&Value> = std::iter::once(&first).chain(turns).collect();
    match caller {
        Protocol::Gemini => json!({ "contents": list }),
        Protocol::OpenAi | Protocol::Anthropic | Protocol::Responses => {
            json!({ "model": "m", "max_tokens": 100, "messages": list })
        }
    }
}

fn target(caller: Protocol) -> Target {
    let (method, model) = if caller == Protocol::Gemini { (Method::Generate, Some("m".to_owned())) } else { (Method::Chat, None) };
    Target { method, model, framing: Framing::Sse }
}

fn thinking_profile() -> Profile {
    Profile { thinking: Some(Thinking::Effort(vec!["low".to_owned()])), ..Profile::default() }
}

/// The request that the upstream gets, and the fields that are named as dropped.
fn sent(caller: Protocol, upstream: Protocol, body: &Value, profile: &Profile) -> (Value, Vec<String>) {
    let request = decode_request(caller, &target(caller), body.to_string().as_bytes()).expect("a valid history");
    let encoded = encode_request(upstream, &request, "u", profile, &TranslateOptions::default()).expect("a request");
    (check_request(upstream, &encoded.body), encoded.dropped)
}

/// The items of the model in a request to a Responses upstream, in a form that can be compared with [`answered_items`].
fn model_items(request: &Value) -> Vec<Value> {
    let items = request["input"].as_array().expect("items").iter();
    let of_model = items.filter(|item| item["role"] != "user" && item["type"] != "function_call_output");
    of_model.map(|item| if item["role"] == "assistant" { item["content"].clone() } else { item.clone() }).collect()
}

/// The items of an answer, in a form that can be compared with [`model_items`].
fn answered_items(output: &[Value]) -> Vec<Value> {
    let item = |item: &Value| match item["type"].as_str() {
        Some("message") => item["content"][0]["text"].clone(),
        Some("reasoning") => item.clone(),
        _ => json!({ "type": "function_call", "call_id": item["call_id"], "name": "f", "arguments": "{}" }),
    };
    output.iter().map(item).collect()
}

#[test]
fn encrypted_reasoning_of_two_turns_is_sent_back_in_order() {
    let first =
        [thought("rs_1", "think one"), thought("rs_2", ""), message("text"), call("a"), thought("rs_3", "again"), call("b")];
    let second = [thought("rs_4", ""), call("c")];
    for caller in CALLERS {
        for streams in [false, true] {
            let mut history = turns(caller, &received(caller, &first, &context(true), streams));
            history.extend(turns(caller, &received(caller, &second, &context(true), streams)));
            let (request, dropped) = sent(caller, Protocol::Responses, &request(caller, &history), &thinking_profile());
            let went = answered_items(&[&first[..], &second[..]].concat());
            assert_eq!(Value::from(model_items(&request)), Value::from(went), "{caller:?} {streams}: {history:#?}");
            assert_eq!(dropped, [""; 0], "{caller:?}");
            let request = request.to_string();
            assert!(!request.contains("tg1.") && !request.contains("extra_content"), "{request}");
        }
    }
}

#[test]
fn encrypted_reasoning_is_sent_back_without_hidden_text() {
    let output = [thought("rs_1", "hidden"), call("a")];
    for caller in [Protocol::Gemini, Protocol::Anthropic] {
        for streams in [false, true] {
            let turn = received(caller, &output, &context(false), streams);
            assert!(!turn.to_string().contains("hidden"), "{turn}");
            let (request, _) = sent(caller, Protocol::Responses, &request(caller, &turns(caller, &turn)), &thinking_profile());
            let went = answered_items(&[thought("rs_1", ""), call("a")]);
            assert_eq!(Value::from(model_items(&request)), Value::from(went), "{caller:?} {streams}");
        }
    }
}

/// Messages callers that did not request thinking treat the first block as the answer.
#[test]
fn messages_callers_without_thinking_get_no_thinking_blocks() {
    let context = ReplyContext { include_thoughts: false, carry_thinking: false, ..context(false) };
    for streams in [false, true] {
        let turn = received(Protocol::Anthropic, &[thought("rs_1", "hm"), message("text")], &context, streams);
        assert_eq!(turn, json!([{ "type": "text", "text": "text" }]));
    }
}

#[test]
fn chat_callers_get_encrypted_reasoning_only_with_calls() {
    let context = context(true);
    for streams in [false, true] {
        let plain = received(Protocol::OpenAi, &[thought("rs_1", "hm"), message("text")], &context, streams);
        assert!(!plain.to_string().contains("gAAAA"), "{plain}");
        let one = received(Protocol::OpenAi, &[thought("rs_1", "hm"), call("a"), call("b")], &context, streams);
        let mut item = thought("rs_1", "hm");
        item.as_object_mut().expect("an item").remove("type");
        assert_eq!(one["reasoning_content"], "hm");
        assert_eq!(one["tool_calls"][0]["extra_content"], json!({ "openai": { "reasoning": item } }));
        assert_eq!(one["tool_calls"][1].get("extra_content"), None);
        let legacy = ReplyContext { legacy_calls: true, parallel: false, ..context.clone() };
        let legacy = received(Protocol::OpenAi, &[thought("rs_1", "hm"), call("a")], &legacy, streams);
        assert!(legacy.get("function_call").is_some() && !legacy.to_string().contains("gAAAA"), "{legacy}");
    }
    let custom = ReplyContext { custom_tools: vec!["f".to_owned()], ..context };
    let custom = received(Protocol::OpenAi, &[thought("rs_1", ""), call("a")], &custom, false);
    assert_eq!(custom["tool_calls"][0]["extra_content"]["openai"]["reasoning"]["encrypted_content"], "gAAAA-rs_1==");
}

#[test]
fn chat_callers_may_send_reasoning_without_an_id_or_as_a_list() {
    let call = |reasoning: &Value| {
        json!({ "id": "a", "type": "function", "function": { "name": "f", "arguments": "{}" },
            "extra_content": { "openai": { "reasoning": reasoning } } })
    };
    let item = json!({ "encrypted_content": "gAAAA" });
    for (reasoning, kept) in [(item.clone(), true), (json!([item]), true), (json!([7, {}]), false), (json!("gAAAA"), false)] {
        let turn = json!({ "role": "assistant", "content": null, "tool_calls": [call(&reasoning)] });
        let body = request(Protocol::OpenAi, &turns(Protocol::OpenAi, &turn));
        let (request, _) = sent(Protocol::OpenAi, Protocol::Responses, &body, &thinking_profile());
        let expected = json!({ "type": "reasoning", "summary": [], "encrypted_content": "gAAAA" });
        assert_eq!(model_items(&request).contains(&expected), kept, "{reasoning}: {request}");
        assert_eq!(request.to_string().contains("gAAAA"), kept, "{reasoning}: {request}");
    }
}

#[test]
fn reasoning_not_followed_by_content_is_not_sent() {
    let thinking = json!({ "type": "thinking", "thinking": "cut", "signature": "tg1.r.rs_1:gAAAA" });
    let text = json!({ "type": "text", "text": "text" });
    for (blocks, kept) in [(vec![&thinking], 0), (vec![&text, &thinking], 0), (vec![&thinking, &text], 1)] {
        let turns = [json!({ "role": "assistant", "content": blocks }), json!({ "role": "user", "content": "go on" })];
        let body = request(Protocol::Anthropic, &turns);
        let (request, _) = sent(Protocol::Anthropic, Protocol::Responses, &body, &thinking_profile());
        assert_eq!(request.to_string().matches("gAAAA").count(), kept, "{request}");
    }
}

#[test]
fn account_bound_encrypted_reasoning_is_dropped_and_reported() {
    let profile = Profile { signatures_bound: Some(true), ..thinking_profile() };
    for (caller, named) in [
        (Protocol::OpenAi, vec!["messages[1].reasoning_content", "messages[1].tool_calls[0].extra_content.openai.reasoning"]),
        (Protocol::Gemini, vec!["contents[1].parts[0]", "contents[1].parts[0].thoughtSignature"]),
        (Protocol::Anthropic, vec!["messages[1].content[0]"]),
    ] {
        let turn = received(caller, &[thought("rs_1", "hm"), call("a")], &context(true), false);
        let (request, dropped) = sent(caller, Protocol::Responses, &request(caller, &turns(caller, &turn)), &profile);
        assert!(!request.to_string().contains("gAAAA"), "{caller:?}: {request}");
        assert_eq!(dropped, named, "{caller:?}");
    }
}

#[test]
fn seals_do_not_reach_upstreams_of_other_protocols() {
    let upstreams = [Protocol::OpenAi, Protocol::Gemini, Protocol::Anthropic];
    for caller in CALLERS {
        let turn = received(caller, &[thought("rs_1", "hm"), call("a")], &context(true), false);
        let body = request(caller, &turns(caller, &turn));
        for upstream in upstreams.into_iter().filter(|upstream| *upstream != caller) {
            let profile = Profile { default_max_tokens: Some(9), ..Profile::default() };
            let (request, _) = sent(caller, upstream, &body, &profile);
            let request = request.to_string();
            assert!(!request.contains("gAAAA") && !request.contains("tg1."), "{caller:?} {upstream:?}: {request}");
        }
        let bytes = Bytes::from(body.to_string());
        let codec = codec(caller);
        let summary = codec.summarise(&target(caller), &bytes).expect("a valid body");
        let forwarded = codec.forward_request(&bytes, &summary, &RequestEdits::default());
        let forwarded = String::from_utf8(forwarded.to_vec()).expect("text");
        assert!(!forwarded.contains("gAAAA") && !forwarded.contains("tg1.") && !forwarded.contains("dGcxLm"), "{forwarded}");
        serde_json::from_str::<Value>(&forwarded).expect("JSON");
    }
}

#[test]
fn summary_parts_are_separate_paragraphs() {
    let mut item = thought("rs_1", "one");
    item["summary"].as_array_mut().expect("a list").push(json!({ "type": "summary_text", "text": "two" }));
    let output = [item.clone(), message("hi")];
    let part = |number: u32| json!({ "type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": number });
    let piece =
        |text: &str| json!({ "type": "response.reasoning_summary_text.delta", "output_index": 0, "item_id": "i", "delta": text });
    let whole = events(&output);
    let mut streamed = whole[..2].to_vec();
    streamed.extend([part(0), piece("o"), piece("ne"), part(1), piece("t"), piece("wo")]);
    streamed.extend_from_slice(&whole[4..]);
    for (caller, thoughts) in
        [(Protocol::OpenAi, r#""reasoning_content":"one\n\ntwo""#), (Protocol::Anthropic, r#""thinking":"one\n\ntwo""#)]
    {
        let body = Bytes::from(answer(&output).to_string());
        let reply = translate_reply(Protocol::Responses, caller, &body, &context(true)).expect("an answer");
        let text = String::from_utf8(reply.body.to_vec()).expect("UTF-8");
        assert!(text.contains(thoughts), "{caller:?}: {text}");
        let (bytes, fault) =
            relay((Protocol::Responses, caller), &context(true), [framed(Protocol::Responses, &streamed).as_slice()]);
        let text = String::from_utf8(bytes).expect("UTF-8");
        assert!(fault.is_none() && text.contains(r#""\n\nt""#), "{caller:?}: {text}");
    }
}
