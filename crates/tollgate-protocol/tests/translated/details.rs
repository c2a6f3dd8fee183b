//! Rules of answer translation that no golden case covers.

use bytes::Bytes;
use serde_json::{Value, json};
use tollgate_protocol::{
    FinishReason, Framing, GeminiErrorFields, InvalidReply, Problem, Protocol,
    neutral::{AnswerKind, ReplyContext},
    translate_problem, translate_reply, translating_relay,
};

use crate::{
    framed, relay,
    schemas::{check_reply, check_stream},
};

const OPENAI_TO_GEMINI: (Protocol, Protocol) = (Protocol::Gemini, Protocol::OpenAi);
const GEMINI_TO_OPENAI: (Protocol, Protocol) = (Protocol::OpenAi, Protocol::Gemini);

fn context() -> ReplyContext {
    ReplyContext { include_thoughts: true, carry_thinking: true, ..ReplyContext::new("r", 7, "m") }
}

#[track_caller]
fn reply((upstream, caller): (Protocol, Protocol), context: &ReplyContext, body: &Value) -> Value {
    let translated = translate_reply(upstream, caller, &Bytes::from(body.to_string()), context).expect("an answer");
    check_reply(caller, &translated.body)
}

#[track_caller]
fn stream(direction: (Protocol, Protocol), context: &ReplyContext, events: &[Value]) -> Vec<Value> {
    let (out, fault) = relay(direction, context, [&framed(direction.0, events)[..]]);
    assert_eq!(fault, None);
    check_stream(direction.1, &out)
}

fn chunk(delta: &Value, finish: Option<&str>) -> Value {
    json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] })
}

fn completion(message: &Value, finish: &str) -> Value {
    json!({ "choices": [{ "index": 0, "message": message, "finish_reason": finish }] })
}

#[test]
fn custom_tools_are_answered_as_custom_tools() {
    let context = ReplyContext { custom_tools: vec!["sh".to_owned()], ..context() };
    let part = json!({ "functionCall": { "id": "a", "name": "sh", "args": { "input": "ls \"é\"" } }, "thoughtSignature": "QUJD" });
    let body = json!({ "candidates": [{ "content": { "parts": [part] }, "finishReason": "STOP" }] });
    let call = json!({ "id": "a__sig1_QUJD", "type": "custom", "custom": { "name": "sh", "input": "ls \"é\"" } });
    assert_eq!(reply(OPENAI_TO_GEMINI, &context, &body)["choices"][0]["message"]["tool_calls"], json!([call]));
    let events = stream(OPENAI_TO_GEMINI, &context, &[body]);
    let opening = &events[1]["choices"][0]["delta"]["tool_calls"][0];
    assert_eq!(*opening, json!({ "index": 0, "id": "a__sig1_QUJD", "type": "custom", "custom": { "name": "sh", "input": "" } }));
    assert_eq!(events[2]["choices"][0]["delta"]["tool_calls"][0], json!({ "index": 0, "custom": { "input": "ls \"é\"" } }));
}

#[test]
fn missing_indexes_and_ids_are_filled_in() {
    let calls = |list: Value| chunk(&json!({ "tool_calls": list }), None);
    let events = stream(
        GEMINI_TO_OPENAI,
        &context(),
        &[
            calls(json!([{ "id": "a", "function": { "name": "f", "arguments": "{\"x\"" } }])),
            calls(json!([{ "function": { "arguments": ":1}" } }])),
            calls(json!([{ "id": "b", "function": { "name": "g", "arguments": { "y": [2] } } }])),
            calls(json!([{ "function": { "arguments": null } }])),
            chunk(&json!({ "function_call": { "name": "h", "arguments": "" } }), Some("tool_calls")),
        ],
    );
    let parts = events[0]["candidates"][0]["content"]["parts"].as_array().expect("parts");
    let calls: Vec<&Value> = parts.iter().map(|part| &part["functionCall"]).collect();
    assert_eq!(
        calls,
        [
            &json!({ "id": "a", "name": "f", "args": { "x": 1 } }),
            &json!({ "id": "b", "name": "g", "args": { "y": [2] } }),
            &json!({ "id": "call_r_0", "name": "h", "args": {} }),
        ]
    );
}

#[test]
fn first_id_and_name_of_a_call_are_used() {
    let call = |id: &str, name: &str, args: &str| {
        chunk(&json!({ "tool_calls": [{ "index": 0, "id": id, "function": { "name": name, "arguments": args } }] }), None)
    };
    let end = chunk(&json!({}), Some("stop"));
    let events = stream(GEMINI_TO_OPENAI, &context(), &[call("", "f", "{"), call("a", "g", "}"), call("b", "", ""), end]);
    let part = &events[0]["candidates"][0]["content"]["parts"][0];
    assert_eq!(part["functionCall"], json!({ "id": "a", "name": "f", "args": {} }));
}

#[test]
fn reasoning_is_read_from_both_members_and_content_parts_are_joined() {
    let content = json!([{ "type": "text", "text": "a" }, { "type": "image" }, { "type": "text", "text": "b" }]);
    let body = completion(&json!({ "content": content, "reasoning": "hm", "reasoning_content": null }), "stop");
    let parts = reply(GEMINI_TO_OPENAI, &context(), &body)["candidates"][0]["content"]["parts"].clone();
    assert_eq!(parts, json!([{ "text": "hm", "thought": true }, { "text": "ab" }]));
    let both = completion(&json!({ "content": "a", "reasoning": "x", "reasoning_content": "hm" }), "eos");
    let hidden = ReplyContext { include_thoughts: false, ..context() };
    assert_eq!(reply(GEMINI_TO_OPENAI, &hidden, &both)["candidates"][0]["content"]["parts"], json!([{ "text": "a" }]));
}

#[test]
fn generated_images_are_translated_in_both_directions() {
    let image = |url: &str| json!({ "type": "image_url", "image_url": { "url": url } });
    let images = json!([image("data:image/PNG;base64,__4-"), image("https://a.test/b.png"), image("data:text/plain,x")]);
    let body = completion(&json!({ "content": null, "images": images }), "stop");
    let parts = reply(GEMINI_TO_OPENAI, &context(), &body)["candidates"][0]["content"]["parts"].clone();
    let inline = json!({ "inlineData": { "mimeType": "image/png", "data": "//4+" } });
    assert_eq!(parts, json!([inline, { "fileData": { "mimeType": "image/png", "fileUri": "https://a.test/b.png" } }]));

    let body = json!({ "candidates": [{ "content": { "parts": [inline, inline] }, "finishReason": "STOP" }] });
    let message = &reply(OPENAI_TO_GEMINI, &context(), &body)["choices"][0]["message"];
    assert_eq!((&message["content"], &message["images"][1]), (&Value::Null, &image("data:image/png;base64,//4+")));
    let events = stream(OPENAI_TO_GEMINI, &context(), &[body]);
    assert_eq!(events[2]["choices"][0]["delta"]["images"][0]["index"], 1);
}

#[test]
fn annotations_become_grounding_with_byte_offsets() {
    let annotation = |start: u32, end: u32| json!({ "type": "url_citation", "url_citation": { "start_index": start, "end_index": end, "url": "https://a.test", "title": "A" } });
    let annotations = json!([annotation(0, 6), annotation(7, 12), annotation(0, 99)]);
    let expected = json!({
        "groundingChunks": [{ "web": { "uri": "https://a.test", "title": "A" } }],
        "groundingSupports": [
            { "segment": { "startIndex": 0, "endIndex": 7 }, "groundingChunkIndices": [0] },
            { "segment": { "startIndex": 8, "endIndex": 13 }, "groundingChunkIndices": [0] },
        ],
    });
    let body = completion(&json!({ "content": "Zürich liegt", "annotations": annotations }), "stop");
    assert_eq!(reply(GEMINI_TO_OPENAI, &context(), &body)["candidates"][0]["groundingMetadata"], expected);
    let events = stream(
        GEMINI_TO_OPENAI,
        &context(),
        &[
            chunk(&json!({ "content": "Zür" }), None),
            chunk(&json!({ "content": "ich liegt" }), None),
            chunk(&json!({ "annotations": annotations }), Some("stop")),
        ],
    );
    assert_eq!(events.last().expect("an event")["candidates"][0]["groundingMetadata"], expected);
}

#[test]
fn anthropic_citations_cover_their_text_block() {
    let citation = json!({ "type": "web_search_result_location", "url": "https://a.test", "title": null, "cited_text": "x",
        "encrypted_index": "y" });
    let located = json!({ "type": "char_location", "cited_text": "x", "document_index": 0 });
    let body = json!({ "type": "message", "stop_reason": "end_turn", "content": [
        { "type": "text", "text": "é" },
        { "type": "server_tool_use", "id": "s", "name": "web_search", "input": {} },
        { "type": "text", "text": "ab", "citations": [citation, located] },
    ] });
    let message = &reply((Protocol::Anthropic, Protocol::OpenAi), &context(), &body)["choices"][0]["message"];
    let place = &message["annotations"][0]["url_citation"];
    assert_eq!((&place["start_index"], &place["end_index"], &place["title"]), (&json!(1), &json!(3), &json!("https://a.test")));
    assert_eq!(message["annotations"].as_array().map(Vec::len), Some(1));
    let events = stream(
        (Protocol::Anthropic, Protocol::Gemini),
        &context(),
        &[
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "é" } }),
            json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "citations_delta", "citation": citation } }),
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
            json!({ "type": "message_stop" }),
        ],
    );
    let support = &events.last().expect("an event")["candidates"][0]["groundingMetadata"]["groundingSupports"][0];
    assert_eq!(support["segment"], json!({ "startIndex": 0, "endIndex": 2 }));
}

#[test]
fn complete_answer_instead_of_a_stream_is_an_error() {
    let bodies = [
        (Protocol::Gemini, json!({ "candidates": [{ "content": { "parts": [{ "text": "a" }] }, "finishReason": "STOP" }] })),
        (Protocol::OpenAi, completion(&json!({ "role": "assistant", "content": "a" }), "stop")),
        (
            Protocol::Anthropic,
            json!({ "id": "m", "type": "message", "stop_reason": "end_turn", "content": [{ "type": "text", "text": "a" }] }),
        ),
    ];
    for (upstream, body) in bodies {
        let caller = if upstream == Protocol::OpenAi { Protocol::Gemini } else { Protocol::OpenAi };
        let (out, fault) = relay((upstream, caller), &context(), [body.to_string().as_bytes()]);
        assert!(out.is_empty() && matches!(fault, Some(tollgate_protocol::StreamError::Malformed(_))), "{upstream:?}: {fault:?}");
    }
}

#[test]
fn logprobs_are_sent_with_their_text() {
    let logprobs = json!({ "chosenCandidates": [{ "token": "é", "logProbability": -0.5 }, { "token": "x" }] });
    let body = json!({ "candidates": [{ "content": { "parts": [{ "text": "éx" }] }, "logprobsResult": logprobs, "finishReason": "STOP" }] });
    let events = stream(OPENAI_TO_GEMINI, &context(), &[body]);
    let content = &events[1]["choices"][0]["logprobs"]["content"];
    assert_eq!((&content[0]["bytes"], &content[1]["logprob"]), (&json!([195, 169]), &json!(0)));

    let token = |logprob: f64| json!({ "content": [{ "token": "a", "logprob": logprob, "bytes": [97], "top_logprobs": [] }] });
    let with = |text: &str, logprob: f64| json!({ "choices": [{ "index": 0, "delta": { "content": text }, "logprobs": token(logprob), "finish_reason": null }] });
    let events = stream(GEMINI_TO_OPENAI, &context(), &[with("a", -1.0), with("a", -3.0), chunk(&json!({}), Some("stop"))]);
    assert_eq!(events[0]["candidates"][0]["logprobsResult"]["chosenCandidates"][0]["logProbability"], json!(-1.0));
    assert_eq!(events[2]["candidates"][0]["avgLogprobs"], json!(-2.0));
}

#[test]
fn refusals_keep_their_text_and_reason() {
    let direction = (Protocol::OpenAi, Protocol::Gemini);
    let events = stream(
        direction,
        &context(),
        &[chunk(&json!({ "refusal": "No" }), None), chunk(&json!({ "refusal": "pe" }), Some("stop"))],
    );
    let last = &events[2]["candidates"][0];
    assert_eq!((&last["finishReason"], &last["finishMessage"]), (&json!("SAFETY"), &json!("Nope")));
    let message = reply((Protocol::OpenAi, Protocol::Anthropic), &context(), &completion(&json!({ "refusal": "Nope" }), "stop"));
    assert_eq!(message["stop_reason"], "refusal");
    // Messages have a separate member for it.
    assert_eq!((&message["content"], &message["stop_details"]["explanation"]), (&json!([]), &json!("Nope")));

    let refused = json!({ "type": "message", "content": [], "stop_reason": "refusal", "stop_details": { "explanation": "No." } });
    let candidate = reply((Protocol::Anthropic, Protocol::Gemini), &context(), &refused)["candidates"][0].clone();
    assert_eq!((&candidate["finishReason"], &candidate["finishMessage"]), (&json!("SAFETY"), &json!("No.")));
    let filtered = json!({ "candidates": [{ "finishReason": "SPII" }] });
    let choice = reply(OPENAI_TO_GEMINI, &context(), &filtered)["choices"][0].clone();
    assert_eq!(choice["message"]["refusal"], "The response was blocked by the upstream safety filter (SPII).");
    assert_eq!((&choice["message"]["content"], &choice["native_finish_reason"]), (&Value::Null, &json!("SPII")));
    let events = stream(OPENAI_TO_GEMINI, &context(), &[filtered]);
    assert_eq!(events[1]["choices"][0]["delta"]["refusal"], choice["message"]["refusal"]);
}

#[test]
fn blocked_prompt_is_translated_for_every_caller() {
    let body = json!({ "promptFeedback": { "blockReason": "OTHER", "blockReasonMessage": "Words." }, "usageMetadata": { "promptTokenCount": 3 } });
    let choice = reply(OPENAI_TO_GEMINI, &context(), &body)["choices"][0].clone();
    assert_eq!(
        (&choice["message"]["refusal"], &choice["native_finish_reason"]),
        (&json!("Words."), &json!("PROMPT_BLOCKED:OTHER"))
    );
    let direction = (Protocol::Gemini, Protocol::Anthropic);
    let message = reply(direction, &context(), &body);
    assert_eq!((&message["stop_reason"], &message["stop_details"]["explanation"]), (&json!("refusal"), &json!("Words.")));
    let events = stream(direction, &context(), &[body]);
    assert_eq!(events[1]["usage"]["input_tokens"], 3);
    assert_eq!(events[1]["delta"]["stop_details"]["explanation"], "Words.");
}

#[test]
fn executed_code_is_fenced() {
    let parts = json!([
        { "executableCode": { "language": "PYTHON", "code": "print('```')\n" } },
        { "codeExecutionResult": { "outcome": "OUTCOME_OK", "output": "```\n" } },
        { "toolCall": { "id": "x" } },
    ]);
    let body = json!({ "candidates": [{ "content": { "parts": parts }, "finishReason": "STOP" }] });
    let content = reply(OPENAI_TO_GEMINI, &context(), &body)["choices"][0]["message"]["content"].clone();
    assert_eq!(content, "\n````python\nprint('```')\n````\n\n````\n```\n````\n");
}

#[test]
fn malformed_call_arguments_are_wrapped_for_anthropic_callers() {
    let call = json!({ "id": "a", "function": { "name": "f", "arguments": "{\"x\":" } });
    let direction = (Protocol::OpenAi, Protocol::Anthropic);
    let broken = completion(&json!({ "tool_calls": [call] }), "tool_calls");
    assert_eq!(reply(direction, &context(), &broken)["content"][0]["input"], json!({ "_raw": "{\"x\":" }));
    let cut = completion(&json!({ "tool_calls": [call] }), "length");
    let message = reply(direction, &context(), &cut);
    assert_eq!((&message["content"], &message["stop_reason"]), (&json!([]), &json!("max_tokens")));
}

#[test]
fn truncated_call_does_not_drop_complete_calls() {
    let call = |id: &str, args: &str| json!({ "id": id, "function": { "name": "f", "arguments": args } });
    let body = completion(&json!({ "tool_calls": [call("a", "[]"), call("b", "{}")] }), "tool_calls");
    let candidate = reply(GEMINI_TO_OPENAI, &context(), &body)["candidates"][0].clone();
    assert_eq!(candidate["finishReason"], "MALFORMED_FUNCTION_CALL");
    let parts = candidate["content"]["parts"].as_array().expect("parts");
    assert_eq!((parts.len(), &parts[0]["functionCall"]["id"]), (1, &json!("b")));
    assert_eq!(parts[0]["thoughtSignature"], "skip/thought/signature/validator");
}

#[test]
fn pending_signature_is_sent_with_an_empty_text() {
    let body = json!({ "type": "message", "stop_reason": "end_turn", "content": [
        { "type": "text", "text": "a" },
        { "type": "thinking", "thinking": "", "signature": "SIG" },
    ] });
    let direction = (Protocol::Anthropic, Protocol::Gemini);
    let parts = reply(direction, &context(), &body)["candidates"][0]["content"]["parts"].clone();
    assert_eq!(parts, json!([{ "text": "a" }, { "text": "", "thoughtSignature": "dGcxLmEuU0lH" }]));
    let dropped = ReplyContext { include_thoughts: false, carry_thinking: false, ..context() };
    assert_eq!(reply(direction, &dropped, &body)["candidates"][0]["content"]["parts"], json!([{ "text": "a" }]));
}

#[test]
fn gemini_array_is_closed_only_at_the_end() {
    let context = ReplyContext { framing: Framing::JsonArray, stream: true, ..context() };
    let events = [chunk(&json!({ "content": "a" }), None), chunk(&json!({}), Some("stop")), "[DONE]".into()];
    let (out, fault) = relay(GEMINI_TO_OPENAI, &context, [&framed(Protocol::OpenAi, &events)[..]]);
    assert_eq!(fault, None);
    let array: Vec<Value> = serde_json::from_slice(&out).expect("an array");
    assert_eq!((array.len(), &array[1]["candidates"][0]["finishReason"]), (2, &json!("STOP")));

    let mut relay = translating_relay(Protocol::OpenAi, Protocol::Gemini, &context);
    let mut out = Vec::new();
    relay.push(&Bytes::from(framed(Protocol::OpenAi, &events[..1])), &mut out).expect("a valid event");
    assert!(relay.summary().content && !relay.complete());
    out.push(Bytes::from_static(relay.keep_alive()));
    let problem = Problem {
        status: 502,
        message: "broken".to_owned(),
        request_id: "r".to_owned(),
        openai: tollgate_protocol::OpenAiErrorFields::default(),
        native: GeminiErrorFields { status: "UNAVAILABLE", reason: "X".to_owned(), ..GeminiErrorFields::default() },
        retry_after: None,
        stop: false,
        ..Problem::default()
    };
    out.push(relay.problem(&problem));
    let text = String::from_utf8(out.concat()).expect("UTF-8");
    let array: Vec<Value> = serde_json::from_str(&format!("{text}]")).expect("an array without its closing bracket");
    assert_eq!(array[1]["error"]["code"], 502);
}

#[test]
fn unrequested_thoughts_are_not_delivered_content() {
    let context = ReplyContext { include_thoughts: false, carry_thinking: false, ..context() };
    let mut relay = translating_relay(Protocol::OpenAi, Protocol::Gemini, &context);
    let mut out = Vec::new();
    let thought = framed(Protocol::OpenAi, &[chunk(&json!({ "reasoning_content": "hm" }), None)]);
    relay.push(&Bytes::from(thought), &mut out).expect("a valid event");
    assert!(out.is_empty() && !relay.summary().content);
    assert_eq!(relay.summary().text_bytes, 2);
}

#[test]
fn content_filter_error_becomes_a_blocked_prompt_in_the_requested_framing() {
    let problem = tollgate_protocol::UpstreamProblem {
        status: 400,
        code: Some("content_filter".to_owned()),
        ..tollgate_protocol::UpstreamProblem::default()
    };
    let translated =
        |context: &ReplyContext| translate_problem(Protocol::OpenAi, Protocol::Gemini, &problem, context).expect("an answer");
    let streamed = ReplyContext { stream: true, ..context() };
    assert_eq!(check_stream(Protocol::Gemini, &translated(&streamed).body)[0]["promptFeedback"]["blockReason"], "SAFETY");
    let array = ReplyContext { framing: Framing::JsonArray, ..streamed };
    assert_eq!(serde_json::from_slice::<Vec<Value>>(&translated(&array).body).expect("an array").len(), 1);
    assert_eq!(translated(&context()).summary.finish, Some(FinishReason::Filter));
    assert_eq!(translate_problem(Protocol::OpenAi, Protocol::OpenAi, &problem, &context()), None);
    let other = tollgate_protocol::UpstreamProblem { status: 500, ..problem.clone() };
    assert_eq!(translate_problem(Protocol::OpenAi, Protocol::Gemini, &other, &context()), None);
}

#[test]
fn embeddings_are_translated_in_both_directions() {
    let vectors = |list, base64, count| ReplyContext { kind: AnswerKind::Embeddings { list, base64, count }, ..context() };
    let data = json!([{ "index": 1, "embedding": [2] }, { "index": 0, "embedding": "AAAAPwAAAMA=" }]);
    let body = json!({ "data": data, "usage": { "prompt_tokens": 3, "total_tokens": 3 } });
    let translate = |(upstream, caller), context: &ReplyContext, body: &Value| {
        let translated = translate_reply(upstream, caller, &Bytes::from(body.to_string()), context).expect("vectors");
        let value: Value = serde_json::from_slice(&translated.body).expect("JSON");
        (value, translated.summary.usage.map(|usage| usage.prompt_total))
    };
    let (list, tokens) = translate(GEMINI_TO_OPENAI, &vectors(true, false, 2), &body);
    assert_eq!(
        list,
        json!({ "embeddings": [{ "values": [0.5, -2.0] }, { "values": [2] }], "usageMetadata": { "promptTokenCount": 3 } })
    );
    assert_eq!(tokens, Some(3));
    let body = json!({ "data": [{ "embedding": "AAAAPwAAAMA=" }] });
    let (single, _) = translate(GEMINI_TO_OPENAI, &vectors(false, false, 1), &body);
    assert_eq!(single["embedding"], json!({ "values": [0.5, -2.0] }));

    let native = json!({ "embedding": { "values": [0.5, -2] } });
    let (list, tokens) = translate(OPENAI_TO_GEMINI, &vectors(true, true, 1), &native);
    assert_eq!(list["data"], json!([{ "object": "embedding", "index": 0, "embedding": "AAAAPwAAAMA=" }]));
    assert_eq!((&list["object"], &list["model"], tokens), (&json!("list"), &json!("m"), None));
    let empty =
        translate_reply(Protocol::OpenAi, Protocol::Gemini, &Bytes::from_static(b"{\"data\":[]}"), &vectors(true, false, 1));
    assert!(matches!(empty, Err(InvalidReply::Unreadable(_))));
}

#[test]
fn embeddings_for_chat_callers_always_have_a_usage() {
    let kind = AnswerKind::Embeddings { list: true, base64: false, count: 1 };
    let context = ReplyContext { kind, counted_input: 7, ..context() };
    for (reported, tokens) in [(None, 7), (Some(0), 7), (Some(5), 5)] {
        let mut body = json!({ "embedding": { "values": [0.5] } });
        if let Some(reported) = reported {
            body["usageMetadata"] = json!({ "promptTokenCount": reported });
        }
        let (upstream, caller) = OPENAI_TO_GEMINI;
        let answer = translate_reply(upstream, caller, &Bytes::from(body.to_string()), &context).expect("vectors");
        let answer: Value = serde_json::from_slice(&answer.body).expect("JSON");
        assert_eq!(answer["usage"], json!({ "prompt_tokens": tokens, "total_tokens": tokens }), "{reported:?}");
    }
}

#[test]
fn anthropic_token_counts_are_translated() {
    let count = ReplyContext { kind: AnswerKind::Count, ..context() };
    let translate = |body: &'static str| translate_reply(Protocol::Anthropic, Protocol::Gemini, &Bytes::from(body), &count);
    assert_eq!(translate("{\"input_tokens\":14}").expect("a count").body, "{\"totalTokens\":14}");
    assert!(matches!(translate("{\"input_tokens\":-1}"), Err(InvalidReply::Unreadable(_))));
    let chat = translate_reply(Protocol::OpenAi, Protocol::Gemini, &Bytes::from_static(b"{}"), &count);
    assert!(matches!(chat, Err(InvalidReply::Unreadable(_))));
}

#[test]
fn call_ids_have_no_signature_suffix_when_disabled() {
    let part = json!({ "functionCall": { "id": "a", "name": "f", "args": {} }, "thoughtSignature": "QUJD" });
    let body = json!({ "candidates": [{ "content": { "parts": [part] }, "finishReason": "STOP" }] });
    let bare = ReplyContext { id_signatures: false, ..context() };
    for (context, id) in [(context(), "a__sig1_QUJD"), (bare, "a")] {
        let call = reply(OPENAI_TO_GEMINI, &context, &body)["choices"][0]["message"]["tool_calls"][0].clone();
        assert_eq!((&call["id"], &call["extra_content"]["google"]["thought_signature"]), (&json!(id), &json!("QUJD")));
        let opening =
            stream(OPENAI_TO_GEMINI, &context, std::slice::from_ref(&body))[1]["choices"][0]["delta"]["tool_calls"][0].clone();
        assert_eq!((&opening["id"], &opening["extra_content"]["google"]["thought_signature"]), (&json!(id), &json!("QUJD")));
        let messages = (Protocol::Gemini, Protocol::Anthropic);
        assert_eq!(reply(messages, &context, &body)["content"][0]["id"], id);
        let events = stream(messages, &context, std::slice::from_ref(&body));
        let block = events.iter().find(|event| event["type"] == "content_block_start").expect("a block");
        assert_eq!(block["content_block"]["id"], id);
    }
}

#[test]
fn unknown_content_is_counted_and_dropped() {
    let native = json!({ "candidates": [{ "content": { "parts": [{ "text": "a" }, { "hologram": {} }, { "toolCall": {} }] },
        "finishReason": "STOP" }] });
    let parts = json!([{ "type": "text", "text": "a" }, { "type": "hologram", "data": 1 }, { "type": "output_audio" }]);
    let chat = completion(&json!({ "content": parts }), "stop");
    let messages = json!({ "type": "message", "role": "assistant", "stop_reason": "end_turn",
        "content": [{ "type": "text", "text": "a" }, { "type": "hologram" }, { "type": "server_tool_use" }] });
    for (direction, body) in [
        ((Protocol::Gemini, Protocol::OpenAi), native),
        ((Protocol::OpenAi, Protocol::Gemini), chat),
        ((Protocol::Anthropic, Protocol::OpenAi), messages),
    ] {
        let translated = translate_reply(direction.0, direction.1, &Bytes::from(body.to_string()), &context()).expect("an answer");
        assert_eq!((translated.summary.unknown, translated.summary.text_bytes), (2, 1), "{direction:?}");
        check_reply(direction.1, &translated.body);
    }
    for (upstream, body) in [
        (Protocol::Gemini, r#"{"candidates":[{"content":{"parts":[{"hologram":1}]}}]}"#),
        (Protocol::OpenAi, r#"{"choices":[{"message":{"content":[{"type":"hologram"}]}}]}"#),
        (Protocol::Anthropic, r#"{"type":"message","content":[{"type":"hologram"}]}"#),
    ] {
        let caller = if upstream == Protocol::OpenAi { Protocol::Gemini } else { Protocol::OpenAi };
        let result = translate_reply(upstream, caller, &Bytes::from(body), &context());
        assert!(matches!(result, Err(InvalidReply::Unreadable(_))), "unknown content alone is not an answer: {result:?}");
    }
}
