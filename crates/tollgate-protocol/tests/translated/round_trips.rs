//! Round trips: when an answer returns as history, its calls, ids, signatures and thinking blocks reach the upstream they
//! came from, and every other upstream accepts the same history.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate_protocol::{
    CanDisableThinking, Framing, Method, Profile, Protocol, Target, Thinking, TranslateOptions, decode_request, encode_request,
    neutral::ReplyContext, translate_reply,
};

use crate::{
    DIRECTIONS,
    answers::{CollectedAnswer, End, Item, answer},
    assembled::{assemble, normalised},
    framed, relay,
    schemas::{check_reply, check_request, check_stream},
};

fn profile(upstream: Protocol) -> Profile {
    let efforts = ["low", "medium", "high"].map(ToOwned::to_owned).to_vec();
    match upstream {
        Protocol::OpenAi | Protocol::Responses => Profile { thinking: Some(Thinking::None), ..Profile::default() },
        Protocol::Gemini => Profile {
            thinking: Some(Thinking::Level(efforts)),
            call_ids: Some(true),
            signature_required: Some(true),
            json_schema_fields: Some(true),
            ..Profile::default()
        },
        Protocol::Anthropic => Profile {
            thinking: Some(Thinking::Adaptive(efforts)),
            can_disable_thinking: Some(CanDisableThinking::Yes),
            thinking_display: Some(true),
            forced_tools: Some(true),
            default_max_tokens: Some(4096),
            ..Profile::default()
        },
    }
}

/// The upstream request for a caller's history.
fn sent(caller: Protocol, upstream: Protocol, history: &Value) -> Value {
    let (method, model) = match caller {
        Protocol::Gemini => (Method::Generate, Some("m".to_owned())),
        Protocol::OpenAi | Protocol::Anthropic | Protocol::Responses => (Method::Chat, None),
    };
    let target = Target { method, model, framing: Framing::Sse };
    let request = decode_request(caller, &target, history.to_string().as_bytes()).expect("a valid history");
    let options = TranslateOptions::default();
    let encoded =
        encode_request(upstream, &request, "u", &profile(upstream), &options).expect("a history that every upstream accepts");
    check_request(upstream, &encoded.body)
}

/// History of a Gemini client: the received contents, tool results, and the next question.
fn gemini_history(contents: Vec<Value>) -> Value {
    let calls = contents.iter().flat_map(|content| content["parts"].as_array().expect("parts"));
    let results: Vec<Value> = calls
        .filter_map(|part| part.get("functionCall"))
        .map(|call| json!({ "functionResponse": { "id": call["id"], "name": call["name"], "response": { "output": "done" } } }))
        .collect();
    let mut list = vec![json!({ "role": "user", "parts": [{ "text": "hi" }] })];
    list.extend(contents);
    if !results.is_empty() {
        list.push(json!({ "role": "user", "parts": results }));
    }
    list.push(json!({ "role": "user", "parts": [{ "text": "go on" }] }));
    json!({ "contents": list })
}

/// History of an OpenAI client.
fn openai_history(message: &Value) -> Value {
    let mut list = vec![json!({ "role": "user", "content": "hi" }), message.clone()];
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        list.push(json!({ "role": "tool", "tool_call_id": call["id"], "content": "done" }));
    }
    list.push(json!({ "role": "user", "content": "go on" }));
    json!({ "model": "m", "messages": list })
}

/// History of an Anthropic client.
fn anthropic_history(content: &Value) -> Value {
    let calls = content.as_array().expect("content").iter().filter(|block| block["type"] == "tool_use");
    let mut next: Vec<Value> =
        calls.map(|call| json!({ "type": "tool_result", "tool_use_id": call["id"], "content": "done" })).collect();
    next.push(json!({ "type": "text", "text": "go on" }));
    json!({ "model": "m", "max_tokens": 10, "messages": [
        { "role": "user", "content": "hi" },
        { "role": "assistant", "content": content },
        { "role": "user", "content": next },
    ] })
}

/// History of a Responses client, which sends every item back.
fn responses_history(output: &Value) -> Value {
    let output = output.as_array().expect("output");
    let mut list = vec![json!({ "role": "user", "content": "hi" })];
    list.extend(output.iter().cloned());
    for call in output.iter().filter(|item| item["type"] == "function_call") {
        list.push(json!({ "type": "function_call_output", "call_id": call["call_id"], "output": "done" }));
    }
    list.push(json!({ "role": "user", "content": "go on" }));
    json!({ "model": "m", "input": list })
}

fn whole((upstream, caller): (Protocol, Protocol), answer: &CollectedAnswer, context: &ReplyContext) -> Value {
    let body = Bytes::from(answer.whole(upstream).to_string());
    check_reply(caller, &translate_reply(upstream, caller, &body, context).expect("an answer").body)
}

fn streamed(direction: (Protocol, Protocol), answer: &CollectedAnswer, context: &ReplyContext) -> Vec<Value> {
    let context = ReplyContext { stream: true, ..context.clone() };
    let (out, fault) = relay(direction, &context, [&framed(direction.0, &answer.streamed(direction.0))[..]]);
    assert_eq!(fault, None);
    check_stream(direction.1, &out)
}

/// The blocks that must return: adjacent texts joined, missing ids generated. Blank texts are left out, because the API refuses them.
fn expected_blocks(answer: &CollectedAnswer) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    let mut made = 0;
    let whole = answer.whole(Protocol::Anthropic);
    for block in whole["content"].as_array().expect("content") {
        let mut block = block.clone();
        if block["id"] == "" {
            block["id"] = format!("call_r_{made}").into();
            made += 1;
        }
        match blocks.last_mut() {
            Some(last) if block["type"] == "text" && last["type"] == "text" => {
                last["text"] = format!("{}{}", last["text"].as_str().expect("text"), block["text"].as_str().expect("text")).into();
            }
            _ => blocks.push(block),
        }
    }
    blocks.retain(|block| block["type"] != "text" || !block["text"].as_str().expect("text").trim().is_empty());
    blocks
}

fn context(thoughts: bool) -> ReplyContext {
    ReplyContext { include_thoughts: thoughts, carry_thinking: true, ..ReplyContext::new("r", 1, "m") }
}

/// Makes call ids unique; calls that share an id are ambiguous in a history.
fn distinct_ids(mut answer: CollectedAnswer) -> CollectedAnswer {
    for (at, item) in answer.items.iter_mut().enumerate() {
        if let Item::Call { id: Some(id), .. } = item {
            *id = format!("{id}{at}");
        }
    }
    answer
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn thinking_blocks_return_through_a_gemini_client(answer in answer(), thoughts in any::<bool>(), pieces in any::<bool>()) {
        let mut answer = distinct_ids(answer);
        for item in &mut answer.items {
            if let Item::Think { pieces, signed: true } = item
                && !thoughts
            {
                // Thoughts are omitted on request.
                *pieces = vec![String::new()];
            }
        }
        prop_assume!(!expected_blocks(&answer).is_empty());
        let direction = (Protocol::Anthropic, Protocol::Gemini);
        let contents = if pieces {
            streamed(direction, &answer, &context(thoughts)).iter().map(|event| event["candidates"][0]["content"].clone()).collect()
        } else {
            vec![whole(direction, &answer, &context(thoughts))["candidates"][0]["content"].clone()]
        };
        let request = sent(Protocol::Gemini, Protocol::Anthropic, &gemini_history(contents));
        let content = &request["messages"][1]["content"];
        let back = content.as_str().map_or_else(|| content.clone(), |text| json!([{ "type": "text", "text": text }]));
        prop_assert_eq!(&back, &Value::from(expected_blocks(&answer)), "{}", &request);
    }

    #[test]
    fn thinking_blocks_return_through_a_responses_client(answer in answer(), pieces in any::<bool>()) {
        let answer = distinct_ids(answer);
        // A filtered answer without content gets an explanatory text, which would return as content.
        prop_assume!(answer.finish != End::Filter || answer.items.iter().any(|item| !matches!(item, Item::Think { .. })));
        prop_assume!(!expected_blocks(&answer).is_empty());
        let direction = (Protocol::Anthropic, Protocol::Responses);
        let reply = if pieces {
            assemble(Protocol::Responses, &streamed(direction, &answer, &context(false)))
        } else {
            whole(direction, &answer, &context(false))
        };
        let request = sent(Protocol::Responses, Protocol::Anthropic, &responses_history(&reply["output"]));
        let content = &request["messages"][1]["content"];
        let back = content.as_str().map_or_else(|| content.clone(), |text| json!([{ "type": "text", "text": text }]));
        prop_assert_eq!(&back, &Value::from(expected_blocks(&answer)), "{}", &request);
    }

    #[test]
    fn signatures_return_through_a_responses_client(answer in answer(), pieces in any::<bool>()) {
        let answer = distinct_ids(answer);
        let direction = (Protocol::Gemini, Protocol::Responses);
        let reply = if pieces {
            assemble(Protocol::Responses, &streamed(direction, &answer, &context(true)))
        } else {
            whole(direction, &answer, &context(true))
        };
        let request = sent(Protocol::Responses, Protocol::Gemini, &responses_history(&reply["output"]));
        let parts_of = |contents: &Value| -> Vec<Value> {
            let contents = contents.as_array().expect("contents").iter().filter(|content| content["role"] == "model");
            let parts = contents.flat_map(|content| content["parts"].as_array().expect("parts").clone());
            parts.filter(|part| part.get("functionCall").is_some()).collect()
        };
        let back = parts_of(&request["contents"]);
        let went = parts_of(&json!([answer.whole(Protocol::Gemini)["candidates"][0]["content"]]));
        prop_assert_eq!(back.len(), went.len());
        for (back, went) in back.iter().zip(&went) {
            prop_assert_eq!(&back["functionCall"]["args"], &went["functionCall"]["args"]);
            if let Some(signature) = went.get("thoughtSignature") {
                prop_assert_eq!(&back["thoughtSignature"], signature);
            }
        }
    }

    #[test]
    fn signatures_return_through_an_openai_client(answer in answer(), pieces in any::<bool>(), bare in any::<bool>()) {
        let answer = distinct_ids(answer);
        let direction = (Protocol::Gemini, Protocol::OpenAi);
        let reply = if pieces {
            assemble(Protocol::OpenAi, &streamed(direction, &answer, &context(true)))
        } else {
            whole(direction, &answer, &context(true))
        };
        let mut message = reply["choices"][0]["message"].clone();
        if bare {
            // Most clients drop unknown members.
            for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
                call.as_object_mut().expect("a call").remove("extra_content");
            }
        }
        let request = sent(Protocol::OpenAi, Protocol::Gemini, &openai_history(&message));
        let contents = request["contents"].as_array().expect("contents");
        let turns = contents.iter().filter(|content| content["role"] == "model");
        let back: Vec<&Value> = turns
            .flat_map(|content| content["parts"].as_array().expect("parts"))
            .filter(|part| part.get("functionCall").is_some())
            .collect();
        let original = answer.whole(Protocol::Gemini);
        let parts = original["candidates"][0]["content"]["parts"].as_array().expect("parts");
        let went: Vec<&Value> = parts.iter().filter(|part| part.get("functionCall").is_some()).collect();
        prop_assert_eq!(back.len(), went.len());
        for (back, went) in back.iter().zip(went) {
            prop_assert_eq!(&back["functionCall"]["args"], &went["functionCall"]["args"]);
            if let Some(id) = went["functionCall"].get("id") {
                prop_assert_eq!(&back["functionCall"]["id"], id);
            }
            if let Some(signature) = went.get("thoughtSignature") {
                prop_assert_eq!(&back["thoughtSignature"], signature);
            }
        }
    }

    #[test]
    fn history_of_any_upstream_is_accepted_by_every_other_protocol(answer in answer()) {
        let answer = distinct_ids(answer);
        for direction in DIRECTIONS {
            let reply = normalised(direction.1, whole(direction, &answer, &context(true)));
            let history = match direction.1 {
                Protocol::OpenAi => openai_history(&reply["choices"][0]["message"]),
                Protocol::Gemini => gemini_history(vec![reply["candidates"][0]["content"].clone()]),
                Protocol::Anthropic => anthropic_history(&reply["content"]),
                Protocol::Responses => responses_history(&reply["output"]),
            };
            for upstream in Protocol::ALL {
                if upstream != direction.1 {
                    let request = sent(direction.1, upstream, &history).to_string();
                    if upstream != Protocol::Gemini {
                        prop_assert!(!request.contains("__sig1_") && !request.contains("dGcxLm") && !request.contains("\"tg1."), "{}", &request);
                    }
                }
            }
        }
    }
}
