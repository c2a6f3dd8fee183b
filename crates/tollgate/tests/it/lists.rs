//! Requests answered without an upstream: authentication, unknown paths, model lists, health, metrics.

use serde_json::json;
use tollgate_testkit::{Request, Upstream, wait_for};

use crate::support;

#[test]
fn key_is_accepted_on_both_protocols_in_every_documented_header() {
    let gateway = support::echo();
    let key = gateway.key();
    let native = "/v1beta/models/echo:generateContent";
    for request in [
        Request::post("/v1/chat/completions", &support::chat("echo")).bearer(key),
        Request::post("/v1/chat/completions", &support::chat("echo")).native_key(key),
        Request::post(native, &support::native()).native_key(key),
        Request::post(native, &support::native()).header("x-goog-api-key", key),
        Request::post(native, &support::native()).bearer(key),
        Request::post(&format!("{native}?key={key}"), &support::native()),
        Request::post("/v1/models/echo:generateContent", &support::native()).header("x-goog-api-key", key),
        Request::post("/v1alpha/models/echo:generateContent", &support::native()).native_key(key),
        Request::post(native, &support::native()).native_key(key).bearer("sk-wrong-key-0123456789"),
    ] {
        let answer = gateway.send(&request);
        assert_eq!(answer.status, 200, "{request:?}: {}", answer.text());
    }
    let answer = gateway
        .send(&Request::post("/v1/chat/completions", &support::chat("echo")).bearer("sk-wrong-key-0123456789").native_key(key));
    assert_eq!(answer.status, 401, "on chat the Authorization header decides");
}

#[test]
fn authentication_errors_use_the_protocol_of_the_path() {
    let gateway = support::echo();
    let chat = |request: Request| {
        let answer = gateway.send(&request);
        (answer.status, answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(chat(Request::post("/v1/chat/completions", &json!({}))), (401, "missing_api_key".to_owned()));
    assert_eq!(chat(Request::post("/v1/chat/completions", &json!({})).bearer("nonsense")), (401, "invalid_api_key".to_owned()));
    assert_eq!(chat(Request::post("/chat/completions", &json!({}))), (404, "unknown_url".to_owned()));
    assert_eq!(chat(Request::get("/v1/chat/completions")), (405, "method_not_supported".to_owned()));
    let native = |request: Request| {
        let answer = gateway.send(&request);
        (answer.status, answer.json()["error"]["details"][0]["reason"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(native(Request::post("/v1beta/models/echo:generateContent", &json!({}))), (401, "API_KEY_MISSING".to_owned()));
    assert_eq!(
        native(Request::post("/v1beta/models/echo", &json!({})).native_key(gateway.key())),
        (404, "UNKNOWN_METHOD".to_owned())
    );
    assert_eq!(
        native(Request::post("/v1beta/models/echo:generateContent", &json!({"messages": []})).native_key(gateway.key())),
        (400, "INVALID_BODY".to_owned())
    );
    assert_eq!(
        native(Request::post("/v1beta/models/none:generateContent", &support::native()).native_key(gateway.key())),
        (404, "MODEL_NOT_FOUND".to_owned())
    );
}

#[test]
fn model_lists_hold_callable_models_in_the_callers_format() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    let key = gateway.key();
    let chat = gateway.send(&Request::get("/v1/models").bearer(key)).json();
    let names: Vec<_> = chat["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["chat-model", "native-model"]);
    let native = gateway.send(&Request::get("/v1beta/models").native_key(key)).json();
    let names: Vec<_> =
        native["models"].as_array().unwrap().iter().map(|model| model["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, ["models/chat-model", "models/native-model"]);
    assert!(gateway.send(&Request::get("/v1/models").header("x-goog-api-key", key)).json()["models"].is_array());
    let page = gateway.send(&Request::get("/v1beta/models?pageSize=1").native_key(key)).json();
    assert_eq!(page["models"].as_array().unwrap().len(), 1);
    let rest = format!("/v1beta/models?pageSize=1&pageToken={}", page["nextPageToken"].as_str().unwrap());
    assert_eq!(gateway.send(&Request::get(&rest).native_key(key)).json()["models"][0]["name"], "models/native-model");
    assert_eq!(gateway.send(&Request::get("/v1beta/models?pageToken=nonsense").native_key(key)).status, 400);
    assert_eq!(gateway.send(&Request::get("/v1/models/chat-model").bearer(key)).json()["id"], "chat-model");
    assert_eq!(gateway.send(&Request::get("/v1/models/none").bearer(key)).status, 404);
    assert_eq!(gateway.send(&Request::get("/v1beta/models/native-model").native_key(key)).json()["name"], "models/native-model");
    assert_eq!(gateway.send(&Request::get("/v1/models")).status, 401);
}

#[test]
fn health_version_and_metrics_need_no_key_on_loopback() {
    let gateway = support::echo();
    assert_eq!(gateway.chat(&support::chat("echo")).status, 200);
    for path in ["/healthz", "/readyz", "/version"] {
        assert_eq!(gateway.send(&Request::get(path)).status, 200, "{path}");
    }
    let metrics = gateway.send(&Request::get("/metrics")).text();
    assert!(metrics.contains("tollgate_requests_total{"), "{metrics}");
    assert!(metrics.contains("tollgate_build_info"), "{metrics}");
}

#[test]
fn metrics_list_every_account_and_follow_catalog_changes() {
    let gateway = support::echo();
    let shows = |value: u8| {
        let line = format!("tollgate_account_usable{{channel=\"echo\",account=\"echo\"}} {value}\n");
        wait_for(&format!("metrics say {line}"), std::time::Duration::from_secs(1), || {
            gateway.send(&Request::get("/metrics")).text().contains(&line)
        });
    };
    shows(1);
    assert!(gateway.run(&["channel", "disable", "echo"]).status.success());
    shows(0);
}
