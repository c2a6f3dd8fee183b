//! Web searches by the provider: offered ones without a price are left out, others are charged by their number.

use serde_json::{Value, json};
use tollgate_testkit::{ClientResponse, Request, ScriptedResponse, TestGateway, Upstream};

use crate::support::{self, PROGRAM, channel, group};

const BUDGET: &str = "budget = { amount = \"5\", window = \"month\" }";
/// A limit on the cost of requests.
const CEILING: &str = "price_limit = { mode = \"ceiling\", on = \"cost\", max_input = \"100\", max_output = \"100\" }";

/// A gateway that sells `m`, served by an upstream of this protocol, at these prices. `lines` are those of key and group.
fn gateway_over(upstream: &Upstream, protocol: &str, (sale, cost): (&str, &str), (key, of_group): (&str, &str)) -> TestGateway {
    let url = upstream.openai_url();
    let base = "input = \"1\", output = \"2\"";
    let catalog = channel("up", protocol, &url, "m", "cooling = false").replace(base, &format!("{base}{cost}"))
        + &format!("[[model]]\nname = \"m\"\ncontext = 100000\nprice = {{ input = \"10\", output = \"20\"{sale} }}\n")
        + &group(&["up"]).replace("[[key]]", &format!("{of_group}\n[[key]]"))
        + key
        + "\n";
    TestGateway::builder(PROGRAM).catalog(&catalog).spawn()
}

/// A request as Codex sends it.
fn body() -> Value {
    json!({
        "model": "m", "input": "prompt-canary hello", "max_output_tokens": 100, "tool_choice": "auto",
        "tools": [
            {"type": "function", "name": "exec_command", "parameters": {"type": "object", "properties": {}}, "strict": false},
            {"type": "web_search", "external_web_access": false},
        ],
    })
}

fn ask(gateway: &TestGateway, body: &Value) -> ClientResponse {
    gateway.send(&Request::post("/v1/responses", body).bearer(gateway.key()))
}

#[test]
fn optional_search_without_a_price_is_removed_where_money_or_cost_is_limited() {
    let upstream = Upstream::start();
    for (key, of_group) in [(BUDGET, ""), ("", CEILING), (BUDGET, CEILING), ("", "never_below_cost = true")] {
        let gateway = gateway_over(&upstream, "responses", ("", ""), (key, of_group));
        let answer = ask(&gateway, &body());
        assert_eq!(answer.status, 200, "{key}{of_group}: {}", answer.text());
        assert_eq!(answer.header("x-tollgate-dropped"), Some("tools[1]"));
        let sent = upstream.received().pop().unwrap().json();
        assert_eq!((sent["tools"].as_array().unwrap().len(), &sent["tools"][0]), (1, &body()["tools"][0]), "{sent}");
        let record = gateway.record_of(&answer);
        assert_eq!(support::nano_usd(&record["sale"]), 5 * 10_000 + 7 * 20_000);
        assert_eq!(support::nano_usd(&record["cost"]), 5 * 1_000 + 7 * 2_000);
    }
    let gateway = gateway_over(&upstream, "responses", ("", ""), ("", ""));
    let answer = ask(&gateway, &body());
    assert_eq!((answer.status, answer.header("x-tollgate-dropped")), (200, None), "nothing is limited");
    assert_eq!(upstream.received().pop().unwrap().json()["tools"], body()["tools"]);
}

#[test]
fn required_search_without_a_price_is_refused_by_name() {
    let upstream = Upstream::start();
    let mut demanded = body();
    demanded["tool_choice"] = json!({"type": "web_search"});
    let gateway = gateway_over(&upstream, "responses", ("", ""), (BUDGET, ""));
    let refused = ask(&gateway, &demanded);
    assert_eq!((refused.status, &gateway.record_of(&refused)["reason"]), (400, &json!("E17")), "{}", refused.text());
    assert!(refused.text().contains("'tool_choice'"), "{}", refused.text());

    let gateway = gateway_over(&upstream, "responses", (", web_search = \"0.01\"", ""), ("", CEILING));
    let refused = ask(&gateway, &demanded);
    assert_eq!((refused.status, refused.header("x-tollgate-cause")), (503, Some("no_price")), "{}", refused.text());
    assert!(refused.text().contains("has a price for web search by the provider"), "{}", refused.text());
    let trace = gateway.record_of(&refused)["trace"].to_string();
    assert!(trace.contains("the channel's cost has no price of a web search (web_search)"), "{trace}");
    assert_eq!(upstream.received().len(), 0);
}

/// Tools that a conversation adds to those of the request, in both protocols that have them.
#[test]
fn tools_added_in_the_conversation_are_refused_by_name_or_charged() {
    let upstream = Upstream::start();
    let responses = |tool: &str| {
        let tools = json!({"type": "additional_tools", "role": "developer", "tools": [{"type": tool}]});
        json!({"model": "m", "max_output_tokens": 100, "input": [{"role": "user", "content": "hello"}, tools]})
    };
    let messages = |tool: &str| {
        let definition = json!({"type": tool, "name": "x"});
        let block = json!({"type": "tool_addition", "tool": {"type": "tool_definition", "definition": definition}});
        let turns = json!([{"role": "user", "content": "hello"}, {"role": "system", "content": [block]}]);
        json!({"model": "m", "max_tokens": 100, "messages": turns})
    };
    let doors = [
        ("responses", "/v1/responses", responses("web_search"), responses("code_interpreter"), "input[1].tools"),
        (
            "anthropic",
            "/v1/messages",
            messages("web_search_20250305"),
            messages("code_execution_20250825"),
            "messages[1].content[0].tool",
        ),
    ];
    for (protocol, path, search, code, named) in doors {
        let send = |gateway: &TestGateway, body: &Value| gateway.send(&Request::post(path, body).bearer(gateway.key()));
        let limited = gateway_over(&upstream, protocol, ("", ""), (BUDGET, ""));
        for body in [&search, &code] {
            let refused = send(&limited, body);
            assert_eq!((refused.status, &limited.record_of(&refused)["reason"]), (400, &json!("E17")), "{path} {}", refused.text());
            assert!(refused.text().contains(named), "{path} {}", refused.text());
        }
        let priced = gateway_over(&upstream, protocol, PRICED, (BUDGET, ""));
        let (answer, refused) = (send(&priced, &search), send(&priced, &code));
        assert_eq!((answer.status, refused.status), (200, 400), "{path} {} {}", answer.text(), refused.text());
        let free = gateway_over(&upstream, protocol, ("", ""), ("", ""));
        assert_eq!(send(&free, &code).status, 200, "{path}: nothing is limited");
    }
}

#[test]
fn impossible_search_needs_no_price() {
    let upstream = Upstream::start();
    let gateway = gateway_over(&upstream, "responses", ("", ""), (BUDGET, CEILING));
    for (member, value) in [("tool_choice", json!("none")), ("max_tool_calls", json!(0))] {
        let mut body = body();
        body[member] = value;
        let answer = ask(&gateway, &body);
        assert_eq!((answer.status, answer.header("x-tollgate-dropped")), (200, None), "{member}: {}", answer.text());
        assert_eq!(upstream.received().pop().unwrap().json()["tools"], body["tools"], "the body is unchanged");
    }
}

/// Sale price and cost of searches.
const PRICED: (&str, &str) = (", web_search = \"0.01\"", ", web_search = \"0.004\"");
/// The price of the answers' tokens, 5 in and 7 out.
const TOKENS: (i64, i64) = (5 * 10_000 + 7 * 20_000, 5 * 1_000 + 7 * 2_000);

fn check_charge(gateway: &TestGateway, answer: &ClientResponse, searches: i64) {
    assert_eq!((answer.status, answer.complete), (200, true), "{}", answer.text());
    let record = gateway.record_of(answer);
    assert_eq!(record["tokens"]["web_searches"], searches, "{record}");
    assert_eq!(support::nano_usd(&record["sale"]), TOKENS.0 + searches * 10_000_000);
    assert_eq!(support::nano_usd(&record["cost"]), TOKENS.1 + searches * 4_000_000);
}

#[test]
fn searches_of_responses_are_counted_by_their_items() {
    let upstream = Upstream::start();
    let gateway = gateway_over(&upstream, "responses", PRICED, (BUDGET, CEILING));
    check_charge(&gateway, &ask(&gateway, &body()), 0);
    let usage = json!({"input_tokens": 5, "output_tokens": 7, "total_tokens": 12});
    let search = |action: &str| json!({"id": "ws", "type": "web_search_call", "status": "completed", "action": {"type": action}});
    let message = json!({"id": "msg", "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "hello", "annotations": []}]});
    let output = json!([search("search"), search("open_page"), search("search"), message]);
    let response = json!({"id": "resp_1", "object": "response", "created_at": 1, "model": "upstream-model", "status": "completed",
        "output": output, "usage": usage});
    upstream.enqueue(ScriptedResponse::json(&response));
    let answer = ask(&gateway, &body());
    assert_eq!(answer.header("x-tollgate-dropped"), None, "the search has a price");
    check_charge(&gateway, &answer, 2);

    let mut events =
        vec![json!({"type": "response.created", "response": {"id": "resp_1", "created_at": 1, "status": "in_progress"}})];
    for item in output.as_array().unwrap() {
        events.push(json!({"type": "response.output_item.added", "item": item}));
        events.push(json!({"type": "response.output_item.done", "item": item}));
    }
    events.push(json!({"type": "response.completed", "response": response}));
    let chunks = events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()));
    upstream.enqueue(ScriptedResponse::events(chunks.collect()));
    let mut streamed = body();
    streamed["stream"] = true.into();
    check_charge(&gateway, &ask(&gateway, &streamed), 2);
}

#[test]
fn searches_of_messages_are_charged_as_reported_in_the_usage() {
    let upstream = Upstream::start();
    let gateway = gateway_over(&upstream, "anthropic", PRICED, (BUDGET, "never_below_cost = true"));
    let mut body = json!({"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "prompt-canary hello"}],
        "tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}]});
    let ask = |body: &Value| gateway.send(&Request::post("/v1/messages", body).bearer(gateway.key()));
    check_charge(&gateway, &ask(&body), 0);
    let usage = json!({"input_tokens": 5, "output_tokens": 7, "server_tool_use": {"web_search_requests": 8}});
    upstream
        .enqueue(ScriptedResponse::json(&json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "upstream-model",
        "content": [{"type": "text", "text": "hello"}], "stop_reason": "end_turn", "stop_sequence": null, "usage": usage})));
    let answer = ask(&body);
    check_charge(&gateway, &answer, 8);
    let shown = gateway.run(&["--json", "usage", "show", answer.header("x-request-id").unwrap()]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["tokens"]["web_searches"], 8);

    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "upstream-model", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 5, "output_tokens": 1}});
    let events = [
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hello"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": usage}),
        json!({"type": "message_stop"}),
    ];
    let chunks = events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()));
    upstream.enqueue(ScriptedResponse::events(chunks.collect()));
    body["stream"] = true.into();
    check_charge(&gateway, &ask(&body), 8);
}

#[test]
fn search_below_its_cost_is_refused_if_forbidden() {
    let upstream = Upstream::start();
    let dear = (", web_search = \"0.01\"", ", web_search = \"0.02\"");
    let gateway = gateway_over(&upstream, "anthropic", dear, ("", "never_below_cost = true"));
    let mut body = json!({"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "prompt-canary hello"}]});
    let ask = |body: &Value| gateway.send(&Request::post("/v1/messages", body).bearer(gateway.key()));
    check_status(&ask(&body), 200);
    body["tools"] = json!([{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}]);
    let refused = ask(&body);
    check_status(&refused, 503);
    let trace = gateway.record_of(&refused)["trace"].to_string();
    assert!(trace.contains("web_search sells for 0.01 and costs 0.02 USD\""), "{trace}");
}

fn check_status(answer: &ClientResponse, status: u16) {
    assert_eq!(answer.status, status, "{}", answer.text());
}
