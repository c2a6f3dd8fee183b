//! The Responses API for callers: answers, streams and errors in its form over each kind of upstream, and callers of other protocols on
//! an upstream that speaks it.

mod sealed;

use serde_json::{Value, json};
use tollgate_testkit::{ClientResponse, Request, ScriptedResponse, TestGateway, UPSTREAM_CREDENTIAL, Upstream, provider};

use crate::support::{self, channel, group, prices};

/// Models by the protocol of their upstream.
const MODELS: [&str; 4] = ["chat-model", "native-model", "messages-model", "responses-model"];

fn gateway_for(upstream: &Upstream) -> TestGateway {
    let url = upstream.openai_url();
    let catalog = channel("chat", "openai", &url, MODELS[0], "cooling = false")
        + &channel("native", "gemini", &upstream.gemini_url(), MODELS[1], "cooling = false")
        + &channel("messages", "anthropic", &url, MODELS[2], "cooling = false")
        + &channel("responses", "responses", &url, MODELS[3], "cooling = false")
        + &prices(&MODELS)
        + &group(&["chat", "native", "messages", "responses"]);
    TestGateway::builder(support::PROGRAM).catalog(&catalog).spawn()
}

fn body(model: &str) -> Value {
    json!({"model": model, "input": "prompt-canary hello"})
}

/// The body with another member.
fn with(model: &str, name: &str, value: Value) -> Value {
    let mut body = body(model);
    body[name] = value;
    body
}

fn ask(gateway: &TestGateway, body: &Value) -> ClientResponse {
    gateway.send(&Request::post("/v1/responses", body).bearer(gateway.key()))
}

/// The data of the events of a stream, whose names are those in the data and whose numbers have no gap.
fn events(answer: &ClientResponse) -> Vec<Value> {
    let text = answer.text();
    let event = |event: &str| {
        let (name, data) = event.split_once('\n')?;
        let data: Value = serde_json::from_str(data.strip_prefix("data: ")?).ok()?;
        (data["type"] == name.strip_prefix("event: ")?).then_some(data)
    };
    let events: Vec<Value> = text.split_terminator("\n\n").map(|part| event(part).unwrap_or_else(|| panic!("{part}"))).collect();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
    }
    events
}

/// The whole answer, streamed or not.
fn answered(gateway: &TestGateway, body: &Value, streams: bool) -> Value {
    let mut body = body.clone();
    body["stream"] = streams.into();
    let answer = ask(gateway, &body);
    assert_eq!((answer.status, answer.complete), (200, true), "{body}: {}", answer.text());
    if !streams {
        return answer.json();
    }
    let events = events(&answer);
    let last = events.last().expect("events");
    assert_eq!((&events[0]["type"], &last["type"]), (&json!("response.created"), &json!("response.completed")), "{body}");
    let done = events.iter().filter(|event| event["type"] == "response.output_item.done").map(|event| event["item"].clone());
    assert_eq!(last["response"]["output"], json!(done.collect::<Vec<_>>()), "the items are those of the end");
    last["response"].clone()
}

#[test]
fn every_upstream_answers() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    for model in MODELS {
        for path in ["/v1/responses", "/v1/responses?a=b"] {
            let answer = gateway.send(&Request::post(path, &body(model)).bearer(gateway.key()));
            assert_eq!(answer.status, 200, "{model}: {}", answer.text());
            let response = answer.json();
            assert_eq!(
                (&response["object"], &response["model"], &response["status"]),
                (&json!("response"), &json!(model), &json!("completed"))
            );
            assert_eq!(response["output"][0]["content"][0]["text"], "hello", "{model}");
            assert_eq!(
                (&response["usage"]["input_tokens"], &response["usage"]["output_tokens"]),
                (&json!(5), &json!(7)),
                "{model}"
            );
            let record = gateway.record_of(&answer);
            assert_eq!(
                (&record["protocol_in"], &record["tokens"]["input"], &record["tokens"]["output"]),
                (&json!("responses"), &json!(5), &json!(7))
            );
            assert_eq!(support::nano_usd(&record["sale"]), 5 * 10_000 + 7 * 20_000, "{model}");
        }
    }
}

#[test]
fn every_upstream_streams() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    for model in MODELS {
        let answer = ask(&gateway, &with(model, "stream", json!(true)));
        assert_eq!((answer.status, answer.complete), (200, true), "{model}: {}", answer.text());
        assert!(!answer.text().contains("[DONE]"), "{model}");
        let events = events(&answer);
        let text: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
        let last = events.last().expect("events");
        assert_eq!(
            (text.as_str(), &last["type"], &last["response"]["model"]),
            ("hello", &json!("response.completed"), &json!(model))
        );
        assert_eq!(last["response"]["usage"]["output_tokens"], 7, "{model}");
        assert_eq!(gateway.record_of(&answer)["tokens"]["output"], 7, "{model}");
    }
}

#[test]
fn body_is_forwarded_unchanged_in_the_same_protocol() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    let body = br#"{ "model":"responses-model", "input":[{"role":"user","content":[{"type":"input_text","text":"caf\u00e9"}]}],"previous_response_id":"resp_1","tools":[{"type":"web_search"}],"member_of_tomorrow":{"n":1.0} }"#;
    let request = Request::post_bytes("/v1/responses", body.to_vec()).bearer(gateway.key()).header("session-id", "s");
    let answer = gateway.send(&request);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["model"], "responses-model", "the caller's name is put back");
    let received = &upstream.received()[0];
    assert_eq!(
        String::from_utf8_lossy(&received.body),
        String::from_utf8_lossy(body).replace("\"responses-model\"", "\"upstream-model\"")
    );
    assert_eq!(received.line, "POST /v1/responses");
    assert_eq!(received.header("authorization"), Some(format!("Bearer {UPSTREAM_CREDENTIAL}").as_str()));
    assert_eq!(gateway.record_of(&answer)["tags"], json!({"session": "s"}), "the session of Codex");
}

/// A conversation with a call in the first turn and a new turn behind its result, everything of the answers sent back.
#[test]
fn tool_calls_and_encrypted_reasoning_return_over_every_upstream() {
    let upstream = Upstream::with_model();
    let gateway = gateway_for(&upstream);
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let tools = json!([{"type": "function", "name": "weather", "parameters": schema}]);
    for model in MODELS {
        for streams in [false, true] {
            let mut input = vec![json!({"role": "user", "content": r#"call: weather {"city":"Oslo"}"#})];
            let turn = |input: &[Value]| {
                let mut body = json!({"model": model, "input": input, "tools": tools, "store": false});
                if model != "native-model" && model != "chat-model" {
                    body["reasoning"] = json!({"effort": "low", "summary": "auto"});
                }
                body["include"] = json!(["reasoning.encrypted_content"]);
                let output = answered(&gateway, &body, streams)["output"].clone();
                output.as_array().expect("items").clone()
            };
            let first = turn(&input);
            let call = first.iter().find(|item| item["type"] == "function_call").expect("a call").clone();
            assert_eq!((&call["name"], &call["arguments"]), (&json!("weather"), &json!(r#"{"city":"Oslo"}"#)), "{model}");
            let thought = first.iter().find(|item| item["type"] == "reasoning");
            let sealed = thought.is_some_and(|item| item["encrypted_content"].is_string());
            assert_eq!(sealed, model != "chat-model", "{model}: {first:?}");
            input.extend(first);
            input.push(json!({"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}));
            let second = turn(&input);
            assert_eq!(second.last().expect("an item")["content"][0]["text"], "results: rain", "{model}");
            input.extend(second);
            input.push(json!({"role": "user", "content": "say: goodbye"}));
            assert_eq!(turn(&input).last().expect("an item")["content"][0]["text"], "goodbye", "{model}");
            let sent = String::from_utf8(upstream.received().last().expect("a request").body.clone()).expect("text");
            let signature = match model {
                "native-model" => provider::GEMINI_SIGNATURE,
                "messages-model" => provider::ANTHROPIC_SIGNATURE,
                "responses-model" => provider::RESPONSES_SEAL,
                _ => "rain",
            };
            assert!(sent.contains(signature), "{model}: {sent}");
            assert!(!sent.contains("tg1."), "{model}: {sent}");
        }
    }
}

#[test]
fn reasoning_of_one_upstream_is_not_sent_to_another() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    for seal in ["tg1.a.QUJD", "tg1.g.QUJD", "gAAAAQUJD"] {
        for (model, own) in MODELS.into_iter().zip([None, Some("tg1.g.QUJD"), Some("tg1.a.QUJD"), Some("gAAAAQUJD")]) {
            let body = json!({"model": model, "input": [
                {"role": "user", "content": "hi"},
                {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": seal},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "x"},
            ], "tools": [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}]});
            let answer = ask(&gateway, &body);
            assert_eq!(answer.status, 200, "{model} {seal}: {}", answer.text());
            let sent = String::from_utf8(upstream.received().last().expect("a request").body.clone()).expect("text");
            assert_eq!(sent.contains("QUJD"), own == Some(seal), "{model} {seal}: {sent}");
            assert!(!sent.contains("tg1."), "{model} {seal}: {sent}");
        }
    }
}

#[test]
fn fields_that_need_stored_state_are_refused_by_name() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    for model in &MODELS[..3] {
        for (name, value) in [
            ("previous_response_id", json!("resp_1")),
            ("conversation", json!("conv_1")),
            ("conversation", json!({"id": "conv_1"})),
            ("background", json!(true)),
            ("prompt", json!({"id": "pmpt_1"})),
            ("context_management", json!([{"type": "compaction", "compact_threshold": 1_000}])),
        ] {
            let answer = ask(&gateway, &with(model, name, value));
            let error = answer.json()["error"].clone();
            assert_eq!((answer.status, &error["param"]), (400, &json!(name)), "{model}: {error}");
            let message = error["message"].as_str().expect("a message");
            assert!(message.contains(&format!("'{name}'")), "{error}");
            let instead = match name {
                "previous_response_id" => "send the whole conversation in 'input'",
                "conversation" => "send the whole conversation in 'input', with 'store': false",
                "prompt" => "send the text of the prompt in 'instructions' and 'input'",
                "background" => "use 'stream': true",
                _ => "",
            };
            assert!(message.contains(instead), "{message}");
        }
        let reference = json!([{"role": "user", "content": "hi"}, {"type": "item_reference", "id": "msg_1"}]);
        let answer = ask(&gateway, &with(model, "input", reference));
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("input[1]")), "{model}");
        for (name, value) in [("store", json!(true)), ("metadata", json!({"a": "b"})), ("background", json!(false))] {
            assert_eq!(ask(&gateway, &with(model, name, value)).status, 200, "{model} {name}");
        }
    }
    assert!(upstream.received().iter().all(|request| !request.json().to_string().contains("resp_1")));
    assert_eq!(ask(&gateway, &with(MODELS[3], "previous_response_id", json!("resp_1"))).status, 200, "it judges itself");
}

#[test]
fn embeddings_are_served_beside_responses() {
    let upstream = Upstream::start();
    let catalog = channel("responses", "responses", &upstream.openai_url(), "embed-model", "cooling = false")
        + &group(&["responses"])
        + "[[model]]\nname = \"embed-model\"\nembeddings = true\nprice = { input = \"1\" }\n";
    let gateway = TestGateway::builder(support::PROGRAM).catalog(&catalog).spawn();
    let chat =
        gateway.send(&Request::post("/v1/embeddings", &json!({"model": "embed-model", "input": "hello"})).bearer(gateway.key()));
    assert_eq!((chat.status, &chat.json()["data"][0]["embedding"][0]), (200, &json!(0.5)), "{}", chat.text());
    let native = json!({"content": {"parts": [{"text": "hello"}]}});
    let native = gateway.send(&Request::post("/v1beta/models/embed-model:embedContent", &native).bearer(gateway.key()));
    assert_eq!((native.status, &native.json()["embedding"]["values"][0]), (200, &json!(0.5)), "{}", native.text());
    assert!(upstream.received().iter().all(|request| request.line.contains("/embeddings")));
    let answer = ask(&gateway, &body("embed-model"));
    let error = answer.json()["error"].clone();
    assert_eq!((answer.status, &error["code"]), (404, &json!("model_not_supported_on_endpoint")));
    assert!(error["message"].as_str().unwrap().contains("embedContent, batchEmbedContents, /v1/embeddings"), "{error}");
}

#[test]
fn stored_responses_and_conversations_are_not_found() {
    let gateway = support::echo();
    let get = |path: &str| gateway.send(&Request::get(path).bearer(gateway.key()));
    for (path, code) in [
        ("/v1/responses/resp_1", "response_not_found"),
        ("/v1/responses/resp_1/input_items", "response_not_found"),
        ("/v1/conversations/conv_1", "unknown_url"),
    ] {
        let answer = get(path);
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (404, &json!(code)), "{path}: {}", answer.text());
    }
    let upgrade = gateway.send(&Request::get("/v1/responses").header("upgrade", "websocket").header("connection", "upgrade"));
    assert_eq!((upgrade.status, upgrade.header("upgrade")), (426, Some("HTTP/1.1")), "{}", upgrade.text());
    assert_eq!(get("/v1/responses").status, 405);
    assert_eq!(get("/v1/models").json()["data"][0]["object"], "model");
}

#[test]
fn compaction_is_sent_only_to_responses_upstreams() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    let compact = |body: &Value| gateway.send(&Request::post("/v1/responses/compact", body).bearer(gateway.key()));
    let answer = compact(&with(MODELS[3], "member_of_tomorrow", json!(1)));
    assert_eq!((answer.status, &answer.json()["object"]), (200, &json!("response.compaction")), "{}", answer.text());
    let sent = upstream.received();
    assert_eq!(sent[0].line, "POST /v1/responses/compact");
    let mut expected = with("upstream-model", "member_of_tomorrow", json!(1));
    assert_eq!(sent[0].json(), expected);
    let record = gateway.record_of(&answer);
    assert_eq!((&record["method"], &record["outcome"]), (&json!("compact"), &json!("completed")), "{record}");
    assert_eq!(support::nano_usd(&record["sale"]), 190_000, "{record}");

    let listed = gateway.send(&Request::get("/models.json").bearer(gateway.key())).json();
    for listed in listed["data"].as_array().expect("models") {
        let has_path = listed.to_string().contains("/v1/responses/compact");
        assert_eq!(has_path, listed["id"] == MODELS[3], "{listed}");
    }
    for model in &MODELS[..3] {
        expected["model"] = json!(model);
        let refused = compact(&expected);
        let code = refused.json()["error"]["code"].clone();
        assert_eq!((refused.status, code), (404, json!("model_not_supported_on_endpoint")), "{model}: {}", refused.text());
    }
    assert_eq!(upstream.received().len(), 1);
}

#[test]
fn tokens_are_counted_by_the_upstream_or_estimated() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    let counted = |model: &str| {
        let answer = gateway.send(&Request::post("/v1/responses/input_tokens", &body(model)).bearer(gateway.key()));
        assert_eq!(answer.status, 200, "{model}: {}", answer.text());
        assert_eq!(answer.json()["object"], "response.input_tokens");
        answer.json()["input_tokens"].as_u64().expect("a number")
    };
    assert_eq!(MODELS[1..].iter().map(|model| counted(model)).collect::<Vec<_>>(), [5, 5, 5]);
    let sent = upstream.received().len();
    assert!(counted("chat-model") > 0);
    assert_eq!(upstream.received().len(), sent, "chat completions have no counter");
}

#[test]
fn errors_have_openais_format() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    let user = json!([{"role": "user", "content": "hi"}]);
    for (body, status, code, param) in [
        (body("none"), 404, "model_not_found", json!("model")),
        (json!({"model": "chat-model"}), 400, "missing_required_parameter", json!("input")),
        (json!({"model": "chat-model", "messages": user}), 400, "missing_required_parameter", json!("input")),
        (json!({"model": "chat-model", "input": 7}), 400, "invalid_type", json!("input")),
        (json!({"model": "chat-model", "input": [7]}), 400, "invalid_type", json!("input[0]")),
        (with("chat-model", "temperature", json!("hot")), 400, "invalid_type", json!("temperature")),
        (with("chat-model", "member_of_tomorrow", json!(1)), 400, "unsupported_parameter", json!("member_of_tomorrow")),
    ] {
        let answer = ask(&gateway, &body);
        let error = &answer.json()["error"];
        assert_eq!((answer.status, &error["code"], &error["param"]), (status, &json!(code), &param), "{body}: {error}");
        assert!(error["type"].is_string() && answer.header("x-request-id").is_some());
    }
    let unknown = gateway.send(&Request::post("/v1/responses", &body("chat-model")).bearer("sk-tg-unknown-0123456789"));
    assert_eq!((unknown.status, &unknown.json()["error"]["code"]), (401, &json!("invalid_api_key")));
    let message = ask(&gateway, &json!({"model": "chat-model", "messages": user})).json()["error"]["message"].clone();
    assert!(message.as_str().expect("a message").contains("/v1/chat/completions"), "{message}");
}

#[test]
fn upstream_failures_have_openais_format() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    for model in MODELS {
        for (status, answered) in [(401, 502), (429, 429), (500, 502), (503, 503), (504, 504)] {
            let said = json!({"error": {"type": "x", "message": "the provider's own words", "code": status}});
            upstream.set_default(ScriptedResponse::error(status, &said));
            let answer = ask(&gateway, &body(model));
            assert_eq!(answer.status, answered, "{model} {status}: {}", answer.text());
            assert!(answer.json()["error"]["code"].is_string() && !answer.text().contains("own words"), "{model} {status}");
        }
    }
}

#[test]
fn broken_stream_ends_with_a_failed_response() {
    let upstream = Upstream::start();
    let gateway = gateway_for(&upstream);
    for (model, (stream, after)) in MODELS.into_iter().zip([
        (ScriptedResponse::chat_stream(&["hel", "lo"]), 3),
        (ScriptedResponse::native_stream(&["hel", "lo"]), 1),
        (ScriptedResponse::message_stream(&["hel", "lo"]), 3),
        (ScriptedResponse::response_stream(&["hel", "lo"]), 4),
    ]) {
        upstream.enqueue(stream.cut_after(after));
        let answer = ask(&gateway, &with(model, "stream", json!(true)));
        assert_eq!(
            (answer.status, answer.complete),
            (200, true),
            "an abort hides the text from clients: {model}: {}",
            answer.text()
        );
        let events = events(&answer);
        let [.., failed, last] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((&failed["type"], &failed["response"]["status"]), (&json!("response.failed"), &json!("failed")), "{model}");
        assert_eq!((&last["type"], &last["error"]["code"]), (&json!("error"), &json!("upstream_stream_interrupted")), "{model}");
        assert!(events.iter().any(|event| event["delta"] == "hel"), "{model}");
        assert_eq!(gateway.record_of(&answer)["outcome"], "upstream_broke", "{model}");
    }
}

#[test]
fn response_stored_under_another_account_is_looked_for_there() {
    let upstream = Upstream::start();
    let accounts = "[[channel.account]]\nname = \"second\"\ncredential = \"{credential}-2\"\n";
    let catalog = channel("responses", "responses", &upstream.openai_url(), MODELS[3], "cooling = false")
        .replace("[[channel.serves]]", &format!("{accounts}[[channel.serves]]"))
        + &prices(&MODELS[3..])
        + &group(&["responses"]);
    let gateway = TestGateway::builder(support::PROGRAM).catalog(&catalog).spawn();
    let missing = json!({"error": {
        "type": "invalid_request_error", "code": "previous_response_not_found", "param": "previous_response_id",
        "message": "Previous response with id 'resp_1' not found."
    }});
    let body = with(MODELS[3], "previous_response_id", json!("resp_1"));
    upstream.enqueue(ScriptedResponse::error(400, &missing));
    let answer = ask(&gateway, &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let sent = upstream.received();
    let credentials: Vec<_> = sent.iter().map(|request| request.header("authorization")).collect();
    assert!(matches!(*credentials, [Some(one), Some(other)] if one != other), "{credentials:?}");
    let record = gateway.record_of(&answer);
    assert_eq!((&record["attempts"][0]["error"], &record["attempts"][1]["error"]), (&json!("E52"), &Value::Null), "{record}");

    for _ in 0..2 {
        upstream.enqueue(ScriptedResponse::error(400, &missing));
    }
    let answer = ask(&gateway, &body);
    let error = answer.json()["error"].clone();
    assert_eq!((answer.status, &error["code"]), (400, &json!("previous_response_not_found")), "no account has it: {error}");
    assert_eq!(upstream.received().len() - sent.len(), 2);
}

#[test]
fn callers_of_other_protocols_can_use_a_responses_model() {
    let upstream = Upstream::with_model();
    let gateway = gateway_for(&upstream);
    let text = r#"call: weather {"city":"Oslo"}"#;
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let chat = json!({
        "model": "responses-model", "messages": [{"role": "user", "content": text}],
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": schema}}],
    });
    let post = |path: &str, body: &Value| {
        let answer = gateway.send(&Request::post(path, body).bearer(gateway.key()));
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    };
    let choice = &post("/v1/chat/completions", &chat)["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["tool_calls"][0]["function"]["name"]),
        (&json!("tool_calls"), &json!("weather"))
    );
    let mut second = chat.clone();
    let call = &choice["message"]["tool_calls"][0];
    let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "rain"});
    second["messages"].as_array_mut().expect("messages").extend([choice["message"].clone(), result]);
    assert_eq!(post("/v1/chat/completions", &second)["choices"][0]["message"]["content"], "results: rain");

    let native = json!({
        "contents": [{"role": "user", "parts": [{"text": text}]}],
        "tools": [{"functionDeclarations": [{"name": "weather", "parametersJsonSchema": schema}]}],
    });
    let candidate = &post("/v1beta/models/responses-model:generateContent", &native)["candidates"][0];
    assert_eq!(candidate["content"]["parts"][0]["functionCall"]["args"], json!({"city": "Oslo"}), "{candidate}");

    let messages = json!({
        "model": "responses-model", "max_tokens": 50, "messages": [{"role": "user", "content": text}],
        "tools": [{"name": "weather", "input_schema": schema}],
    });
    let message = post("/v1/messages", &messages);
    assert_eq!(
        (&message["stop_reason"], &message["content"][0]["input"]),
        (&json!("tool_use"), &json!({"city": "Oslo"})),
        "{message}"
    );
    for request in upstream.received() {
        let body = request.json();
        assert_eq!((&body["store"], &body["include"]), (&json!(false), &json!(["reasoning.encrypted_content"])), "{body}");
    }
}
