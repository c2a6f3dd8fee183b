//! The lists of addresses that outgoing connections may have, and the origins of pages that may call the model API.

use serde_json::{Value, json};
use tollgate_testkit::{ClientResponse, Request, ScriptedResponse, TestGateway, Upstream};

use crate::{
    admin::{Admin, ok},
    support::{self, PROGRAM, channel, chat, chat_stream, group, prices},
};

const DENIED: &str = "address denied by upstream.denied_addresses";
const NOT_ALLOWED: &str = "address not in upstream.allowed_addresses";
const APP: &str = "https://app.example.com";

fn set(admin: &Admin, name: &str, value: &str) {
    ok(&admin.call("PUT", &format!("/admin/v1/settings/{name}"), Some(&json!({"value": value}))));
}

fn unset(admin: &Admin, name: &str) {
    admin.delete(&format!("/admin/v1/settings/{name}"));
}

/// A gateway with these channels, in this order of priority, that serve `chat-model`.
fn admin(channels: &[(&str, &str, &str)]) -> Admin {
    let of = |(priority, (name, base_url, lines)): (usize, &(&str, &str, &str))| {
        channel(name, "openai", base_url, "chat-model", &format!("cooling = false\npriority = {priority}\n{lines}"))
    };
    let names: Vec<&str> = channels.iter().map(|(name, ..)| *name).collect();
    let catalog = channels.iter().enumerate().map(of).collect::<String>() + &prices(&["chat-model"]) + &group(&names);
    Admin::of(TestGateway::builder(PROGRAM).catalog(&catalog).spawn())
}

fn ask(admin: &Admin) -> ClientResponse {
    admin.gateway.chat(&chat("chat-model"))
}

/// The messages of the attempts of a request.
fn attempts(admin: &Admin, answer: &ClientResponse) -> Vec<String> {
    let record = admin.gateway.record_of(answer);
    let attempts = record["attempts"].as_array().unwrap();
    attempts.iter().map(|attempt| attempt["message"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn denied_address_fails_over_and_is_reported_to_operators() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hello"));
    let elsewhere = upstream.openai_url().replace("127.0.0.1", "127.0.0.2");
    let admin = admin(&[("first", &elsewhere, ""), ("second", &upstream.openai_url(), "")]);
    set(&admin, "upstream.denied_addresses", "127.0.0.2, 192.0.2.0/24");
    let answer = ask(&admin);
    assert_eq!((answer.status, answer.header("x-tollgate-attempts")), (200, Some("1")));
    assert_eq!(attempts(&admin, &answer), [format!("not sent: {DENIED}"), String::new()]);

    let explained = admin.get("/admin/v1/explain?model=chat-model&group=default");
    assert_eq!((&explained["planned"][0]["channel"], &explained["planned"][0]["detail"]), (&json!("first"), &json!(DENIED)));
    assert_eq!(explained["planned"][1]["detail"], Value::Null);
    let tested = admin.post("/admin/v1/channels/first/test", &json!({}));
    let error = tested["items"][0]["error"].as_str().unwrap();
    assert!(error.starts_with(DENIED) && error.contains("remove its network from that setting"), "{tested}");
    let doctor = admin.gateway.run(&["doctor"]);
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(text.contains(&format!("channel 'first': {DENIED}")) && !text.contains("channel 'second': address"), "{text}");
}

#[test]
fn changed_address_lists_apply_at_once_also_to_kept_connections() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hello"));
    let admin = admin(&[("only", &upstream.openai_url(), "")]);
    assert_eq!((ask(&admin).status, ask(&admin).status), (200, 200));
    let before = (upstream.connections(), upstream.received().len());
    for (name, value, message) in [
        ("upstream.denied_addresses", "127.0.0.0/8", DENIED),
        ("upstream.denied_addresses", "::ffff:127.0.0.0/104", DENIED),
        ("upstream.allowed_addresses", "192.0.2.0/24", NOT_ALLOWED),
    ] {
        set(&admin, name, value);
        let answer = ask(&admin);
        assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (502, Some("upstream_unreachable")), "{value}");
        assert!(attempts(&admin, &answer).iter().all(|text| *text == format!("not sent: {message}")), "{value}");
        assert_eq!((upstream.connections(), upstream.received().len()), before, "{value}");
        unset(&admin, name);
    }
    set(&admin, "upstream.allowed_addresses", "127.0.0.1");
    assert_eq!(ask(&admin).status, 200);
    set(&admin, "upstream.denied_addresses", "127.0.0.1");
    assert_eq!(ask(&admin).status, 502, "the denied list wins");
}

#[test]
fn addresses_are_checked_in_every_form_and_after_a_name_is_resolved() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hello"));
    for host in ["localhost", "[::ffff:127.0.0.1]"] {
        let admin = admin(&[("only", &upstream.openai_url().replace("127.0.0.1", host), "")]);
        assert_eq!(ask(&admin).status, 200, "{host}");
        set(&admin, "upstream.denied_addresses", "127.0.0.0/8, ::1");
        let answer = ask(&admin);
        assert_eq!((answer.status, attempts(&admin, &answer)[0].as_str()), (502, format!("not sent: {DENIED}").as_str()), "{host}");
        unset(&admin, "upstream.denied_addresses");
        set(&admin, "upstream.allowed_addresses", "127.0.0.1/32");
        assert_eq!(ask(&admin).status, 200, "{host}");
    }
}

#[test]
fn allowed_address_list_does_not_replace_private_network() {
    let upstream = Upstream::start();
    let closed = channel("only", "openai", &upstream.openai_url(), "chat-model", "").replace("private_network = true\n", "");
    let gateway = TestGateway::builder(PROGRAM)
        .catalog(&(closed + &prices(&["chat-model"]) + &group(&["only"])))
        .env("TOLLGATE_UPSTREAM__ALLOWED_ADDRESSES", "127.0.0.0/8")
        .env("TOLLGATE_SERVER__CORS_ORIGINS", APP)
        .spawn();
    let request = Request::post("/v1/chat/completions", &chat("chat-model")).bearer(gateway.key()).header("origin", APP);
    let answer = gateway.send(&request);
    assert_eq!((answer.status, allowed(&answer), upstream.connections()), (503, Some(APP), 0));
}

#[test]
fn address_lists_apply_to_proxies_and_alerts() {
    let receiver = Upstream::start();
    receiver.set_default(ScriptedResponse::json(&json!({})));
    let admin = admin(&[("proxied", "https://api.example.com/v1", "proxy = \"http://127.0.0.1:9\"")]);
    let made = json!({
        "name": "hook", "kind": "webhook", "url": format!("http://{}/hook", receiver.address()), "private_network": true, "status": "off",
    });
    admin.post("/admin/v1/alert-destinations", &made);
    let delivered = || admin.post("/admin/v1/alert-destinations/hook/test", &Value::Null);
    assert_eq!(delivered()["delivered"], true);
    set(&admin, "upstream.denied_addresses", "127.0.0.0/8");
    assert_eq!(delivered()["fault"], DENIED);
    let proxy = admin.post("/admin/v1/channels/proxied/test-proxy", &Value::Null);
    assert!(proxy["error"].as_str().unwrap().starts_with(DENIED), "{proxy}");
    let answer = ask(&admin);
    assert_eq!((answer.status, attempts(&admin, &answer)[0].as_str()), (502, format!("not sent: {DENIED}").as_str()));
}

// === Pages of other origins ===

/// The preflight that a browser sends before a page's request.
fn preflight(gateway: &TestGateway, path: &str, origin: &str) -> ClientResponse {
    let asked = Request::get(path).method("OPTIONS").header("origin", origin);
    gateway.send(
        &asked
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization, content-type"),
    )
}

fn allowed(answer: &ClientResponse) -> Option<&str> {
    answer.header("access-control-allow-origin")
}

#[test]
fn pages_of_configured_origins_can_call_the_model_api() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hello"));
    let admin = admin(&[("only", &upstream.openai_url(), "")]);
    let gateway = &admin.gateway;
    assert_eq!(allowed(&preflight(gateway, "/v1/chat/completions", APP)), None, "none without the setting");
    set(&admin, "server.cors_origins", &format!("{APP}, http://localhost:3000"));
    for path in
        ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/models", "/v1/key", "/v1beta/models/m:generateContent"]
    {
        for origin in [APP, "http://localhost:3000"] {
            let answer = preflight(gateway, path, origin);
            assert_eq!((answer.status, allowed(&answer)), (204, Some(origin)), "{path}");
            assert_eq!(answer.header("access-control-allow-headers"), Some("authorization, content-type"));
            assert!(
                answer.header("access-control-allow-credentials").is_none() && answer.header("access-control-max-age").is_some()
            );
        }
        let other = preflight(gateway, path, "https://evil.example.com");
        assert!(other.status != 204 && allowed(&other).is_none(), "{path}");
    }
    let from_page = |request: Request| gateway.send(&request.header("origin", APP));
    let with_key = |path: &str, body: &Value| from_page(Request::post(path, body).bearer(gateway.key()));
    let read = |answer: &ClientResponse, status: u16| {
        assert_eq!((answer.status, allowed(answer)), (status, Some(APP)), "{}", answer.text());
        assert!(answer.header("access-control-expose-headers").unwrap().contains("x-request-id"));
        assert!(answer.header("vary").unwrap().contains("origin"));
    };
    read(&from_page(Request::get("/v1/models").bearer(gateway.key())), 200);
    read(&from_page(Request::get("/v1/key").bearer(gateway.key())), 200);
    read(&from_page(Request::get("/v1/models")), 401);
    read(&from_page(Request::get("/v1/key")), 401);
    read(&from_page(Request::get("/v1/no/such/path")), 404);
    read(&with_key("/v1/chat/completions", &chat("chat-model")), 200);
    upstream.enqueue(ScriptedResponse::chat_stream(&["hel", "lo"]));
    let stream = with_key("/v1/chat/completions", &chat_stream("chat-model"));
    read(&stream, 200);
    assert_eq!(stream.events().last().map(String::as_str), Some("[DONE]"));
    read(&with_key("/v1/chat/completions", &json!({"model": 1})), 400);
    read(&with_key("/v1/chat/completions", &chat("no-such-model")), 404);
    upstream.enqueue(ScriptedResponse::error(500, &json!({"error": {"message": "no"}})));
    read(&with_key("/v1/chat/completions", &chat("chat-model")), 502);
    set(&admin, "budget.total", "0.000001");
    read(&with_key("/v1/chat/completions", &chat("chat-model")), 429);
    unset(&admin, "budget.total");
    for path in ["/admin/v1/keys", "/", "/metrics", "/healthz"] {
        assert!(allowed(&preflight(gateway, path, APP)).is_none(), "{path}");
        assert!(allowed(&from_page(Request::get(path))).is_none(), "{path}");
    }
    unset(&admin, "server.cors_origins");
    assert!(allowed(&from_page(Request::get("/v1/models"))).is_none(), "a change applies at once");
}

#[test]
fn any_origin_may_be_allowed_and_invalid_origins_are_refused() {
    let admin = Admin::of(support::echo());
    set(&admin, "server.cors_origins", "*");
    for origin in [APP, "null", "chrome-extension://abcdefgh"] {
        let answer = preflight(&admin.gateway, "/v1/chat/completions", origin);
        assert_eq!((answer.status, allowed(&answer)), (204, Some("*")), "{origin}");
        let models = admin.gateway.send(&Request::get("/v1/models").header("origin", origin));
        assert_eq!((models.status, allowed(&models)), (401, Some("*")));
    }
    let answer = admin.gateway.send(&Request::get("/v1/models").bearer(admin.gateway.key()));
    assert!(allowed(&answer).is_none(), "no page sent it");
    set(&admin, "server.cors_origins", "capacitor://localhost, chrome-extension://abcdefgh, http://[::1]:3000");
    assert_eq!(allowed(&preflight(&admin.gateway, "/v1/models", "capacitor://localhost")), Some("capacitor://localhost"));
    for wrong in [
        "https://app.example.com/",
        "https://app.example.com/path",
        "https://APP.example.com",
        "https://app.example.com:443",
        "https://*.example.com",
        "app.example.com",
        "null",
        "*, https://app.example.com",
        "https://a.example.com https://b.example.com",
        "https://user@app.example.com",
        "https://",
    ] {
        let body = json!({"value": wrong});
        let answer = admin.call("PUT", "/admin/v1/settings/server.cors_origins", Some(&body));
        assert!(answer.status == 400 && answer.text().contains("origins with commas between"), "{wrong}: {}", answer.text());
    }
    let many = vec![APP; 101].join(",");
    assert_eq!(admin.call("PUT", "/admin/v1/settings/server.cors_origins", Some(&json!({"value": many}))).status, 400);
}

#[test]
fn too_long_preflight_header_list_is_not_echoed() {
    let gateway = TestGateway::builder(PROGRAM).env("TOLLGATE_SERVER__CORS_ORIGINS", APP).spawn();
    let asked = Request::get("/v1/chat/completions").method("OPTIONS").header("origin", APP);
    let asked = asked.header("access-control-request-method", "POST").header("access-control-request-headers", &"x-a,".repeat(900));
    let answer = gateway.send(&asked);
    assert!(answer.status == 204 && answer.header("access-control-allow-headers").is_none());
}
