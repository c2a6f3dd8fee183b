//! Web searches by the provider: offered ones without a price are left out.

use serde_json::{Value, json};
use tollgate_testkit::{ClientResponse, Request, TestGateway, Upstream};

use crate::support::{self, PROGRAM, channel, group};

const BUDGET: &str = "budget = { amount = \"5\", window = \"month\" }";
/// A limit on what requests may cost.
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
fn offered_search_without_a_price_is_left_out_where_money_or_cost_is_limited() {
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
fn demanded_search_without_a_price_is_refused_by_name() {
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

#[test]
fn search_that_cannot_happen_needs_no_price() {
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
