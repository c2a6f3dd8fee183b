//! Refusals and their causes: no account, price limits, unsupported fields, models of other groups, body checks.

use serde_json::json;
use tollgate_testkit::{TestGateway, Upstream};

use crate::support::{self, PROGRAM, channel, prices};

fn gateway(upstream: &Upstream) -> TestGateway {
    let dead = |name: &str, protocol: &str, base: &str| {
        format!(
            "[[channel]]\nname = \"{name}\"\nprovider = \"compatible\"\nprotocol = \"{protocol}\"\nbase_url = \"{base}\"\nprivate_network = true\n[[channel.serves]]\nmodel = \"dead-model\"\n"
        )
    };
    let catalog = channel("chat", "openai", &upstream.openai_url(), "chat-model", "")
        + &channel("expensive-chat", "openai", &upstream.openai_url(), "expensive-model", "")
            .replace("input = \"1\"", "input = \"900\"")
        + &channel("expensive-native", "gemini", &upstream.gemini_url(), "expensive-model", "")
            .replace("input = \"1\"", "input = \"900\"")
        + &dead("dead-chat", "openai", &upstream.openai_url())
        + &dead("dead-native", "gemini", &upstream.gemini_url())
        + &channel("other", "openai", &upstream.openai_url(), "other-model", "")
        + &channel("limited", "openai", &upstream.openai_url(), "limited-model", "")
        + &channel("limited-native", "gemini", &upstream.gemini_url(), "limited-model", "")
        + &prices(&["chat-model", "expensive-model", "dead-model", "other-model"])
        + "[[model]]\nname = \"limited-model\"\nprice = { input = \"1\", output = \"1\" }\nunsupported_parameters = [\"temperature\", \"logit_bias\"]\n"
        + "[[group]]\nname = \"default\"\nchannels = [\"chat\", \"expensive-chat\", \"expensive-native\", \"dead-chat\", \"dead-native\", \"limited\", \"limited-native\"]\n"
        + "price_limit = { mode = \"ceiling\", on = \"cost\", max_input = \"100\", max_output = \"100\" }\n"
        + "[[group]]\nname = \"others\"\nvisibility = \"private\"\nchannels = [\"other\"]\n"
        + "[[key]]\nname = \"caller\"\ngroups = [\"default\"]\nsecret = \"{key}\"\n";
    TestGateway::builder(PROGRAM).catalog(&catalog).spawn()
}

#[test]
fn no_account_error_names_its_cause_on_both_protocols() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let chat = gateway.chat(&support::chat("dead-model"));
    assert_eq!(chat.status, 503);
    assert_eq!(chat.header("x-tollgate-cause"), Some("none_configured"));
    let message = chat.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("No available accounts exist for the openai protocol family"), "{message}");
    let native = gateway.native("dead-model", "generateContent", &support::native());
    assert_eq!(native.status, 503);
    let error = native.json();
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .starts_with("No available accounts exist for the native protocol family (gemini)"),
        "{error}"
    );
    assert_eq!(error["error"]["details"][0]["metadata"]["cause"], "none_configured");
    assert_eq!(error["error"]["details"][0]["metadata"]["retryable"], "false");
    let record = gateway.record_of(&native);
    assert_eq!(record["reason"], "E40");
    assert_eq!(record["trace"][0]["code"], "no_account", "{record}");
}

#[test]
fn price_limit_refusal_is_not_retryable_for_sdks() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    for answer in
        [gateway.chat(&support::chat("expensive-model")), gateway.native("expensive-model", "generateContent", &support::native())]
    {
        assert_eq!(answer.status, 503);
        assert_eq!(answer.header("x-tollgate-cause"), Some("price_limit"));
        assert_eq!(answer.header("x-should-retry"), Some("false"));
        assert_eq!(answer.header("retry-after"), None, "no waiting helps");
        assert!(!answer.text().contains("900"), "a cost price is never shown to a caller: {}", answer.text());
        assert_eq!(gateway.record_of(&answer)["reason"], "E41");
    }
    assert!(upstream.received().is_empty());
}

#[test]
fn model_of_another_group_is_indistinguishable_from_an_unknown_one() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let hidden = gateway.chat(&support::chat("other-model"));
    let missing = gateway.chat(&support::chat("equal-model"));
    assert_eq!(hidden.status, 404);
    assert_eq!(hidden.text().replace("other-model", "equal-model"), missing.text());
    assert_eq!(gateway.record_of(&hidden)["reason"], "E14");
    assert_eq!(gateway.record_of(&missing)["reason"], "E13");
}

#[test]
fn unsupported_fields_are_refused_by_name_before_any_attempt() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let mut body = support::chat("limited-model");
    body["temperature"] = json!(0.5);
    body["logit_bias"] = json!({"1": 1});
    let answer = gateway.chat(&body);
    assert_eq!(answer.status, 400);
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(
        message.starts_with("Unsupported parameter: 'temperature', 'logit_bias' are not supported with the model 'limited-model'"),
        "{message}"
    );
    assert!(message.contains("unsupported parameter"), "{message}");
    let mut body = support::native();
    body["generationConfig"] = json!({"temperature": 0.5});
    let answer = gateway.native("limited-model", "generateContent", &body);
    assert_eq!(
        answer.json()["error"]["details"][1]["fieldViolations"][0]["field"],
        "generationConfig.temperature",
        "{}",
        answer.text()
    );
    assert!(upstream.received().is_empty());
}

#[test]
fn body_limit_and_content_type_are_checked() {
    let upstream = Upstream::start();
    let gateway = support::builder(&upstream, "").env("TOLLGATE_LIMITS__BODY_BYTES", "2048").spawn();
    let mut body = support::chat("chat-model");
    body["user"] = json!("x".repeat(4096));
    assert_eq!(gateway.chat(&body).status, 413);
    let request = tollgate_testkit::Request::post("/v1/chat/completions", &support::chat("chat-model")).bearer(gateway.key());
    assert_eq!(gateway.send(&request.clone().replace_header("content-type", "text/plain")).status, 415);
    assert_eq!(gateway.send(&request.header("content-encoding", "br")).status, 415);
    assert!(upstream.received().is_empty());
}
