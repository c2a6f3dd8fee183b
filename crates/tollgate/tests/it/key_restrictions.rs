//! Restrictions of keys besides their groups: denied models, protocols, and tags of all their requests.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_testkit::{ClientResponse, Request, ScriptedResponse, TestGateway, Upstream, wait_for};

use crate::{admin::Admin, support};

/// A service key with these fields.
fn make_key(admin: &Admin, fields: Value) -> String {
    let mut body = fields;
    body["groups"] = json!(["default"]);
    admin.post("/admin/v1/keys", &body)["key"].as_str().unwrap().to_owned()
}

fn echo_chat(key: &str) -> Request {
    Request::post("/v1/chat/completions", &support::chat("echo")).bearer(key)
}

fn echo_messages(key: &str) -> Request {
    let body = json!({"model": "echo", "max_tokens": 20, "messages": [{"role": "user", "content": "hi"}]});
    Request::post("/v1/messages", &body).header("x-api-key", key)
}

fn code(answer: &ClientResponse) -> (u16, String) {
    (answer.status, answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
}

/// The record of a request with any key.
fn record(admin: &Admin, answer: &ClientResponse) -> Value {
    let path = format!("/admin/v1/usage/{}", answer.header("x-request-id").unwrap());
    wait_for("the record is there", Duration::from_secs(5), || {
        admin.gateway.send(&Request::get(&path).bearer(&admin.key)).status == 200
    });
    admin.get(&path)
}

#[test]
fn denied_model_is_hidden_from_the_key() {
    let upstream = Upstream::start();
    let admin = Admin::of(support::gateway_for(&upstream));
    let key = make_key(&admin, json!({"name": "narrow", "models": ["*"], "models_deny": ["native-*"]}));
    let models = |answer: &ClientResponse, list: &str, name: &str| -> Vec<String> {
        answer.json()[list].as_array().unwrap().iter().map(|model| model[name].as_str().unwrap().to_owned()).collect()
    };
    let send = |request: Request| admin.gateway.send(&request);
    assert_eq!(models(&send(Request::get("/v1/models").bearer(&key)), "data", "id"), ["chat-model"]);
    assert_eq!(models(&send(Request::get("/v1beta/models").native_key(&key)), "models", "name"), ["models/chat-model"]);
    assert_eq!(send(Request::get("/v1/models/native-model").bearer(&key)).status, 404);
    assert_eq!(models(&send(Request::get("/models.json").bearer(&key)), "data", "id"), ["chat-model"]);
    assert_eq!(send(Request::get("/v1/key").bearer(&key)).json()["models"], json!(["chat-model"]));
    let ask = |model: &str, key: &str| send(Request::post("/v1/chat/completions", &support::chat(model)).bearer(key));
    let denied = ask("native-model", &key);
    assert_eq!(code(&denied), (404, "model_not_found".to_owned()));
    assert_eq!(denied.json()["error"]["message"], {
        let text = ask("no-model", &key).json()["error"]["message"].as_str().unwrap().replace("no-model", "native-model");
        json!(text)
    });
    assert_eq!(record(&admin, &denied)["reason"], "E14");
    upstream.enqueue(ScriptedResponse::chat("hi"));
    assert_eq!(ask("chat-model", &key).status, 200);
}

#[test]
fn key_is_refused_in_other_protocols_than_its_own() {
    let admin = Admin::echo();
    let key = make_key(&admin, json!({"name": "agents", "protocols": ["anthropic", "responses"]}));
    let send = |request: Request| admin.gateway.send(&request);
    assert_eq!(send(echo_messages(&key)).status, 200);
    assert_eq!(send(Request::post("/v1/responses", &json!({"model": "echo", "input": "hi"})).bearer(&key)).status, 200);
    let refused = send(echo_chat(&key));
    assert_eq!(code(&refused), (403, "protocol_not_allowed".to_owned()));
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    for part in ["may not be used with this protocol", "only with Messages (/v1/messages), Responses (/v1/responses)"] {
        assert!(message.contains(part), "{message}");
    }
    let recorded = record(&admin, &refused);
    assert_eq!((&recorded["reason"], &recorded["protocol_in"]), (&json!("E7"), &json!("openai")));
    assert_eq!(code(&send(Request::post("/v1/embeddings", &json!({"model": "echo", "input": "hi"})).bearer(&key))).0, 403);
    let native = send(Request::post("/v1beta/models/echo:generateContent", &support::native()).native_key(&key));
    assert_eq!((native.status, &native.json()["error"]["details"][0]["reason"]), (403, &json!("API_KEY_SERVICE_BLOCKED")));
    // Model lists: chat completions and Responses share one.
    assert_eq!(send(Request::get("/v1/models").bearer(&key)).status, 200);
    assert_eq!(send(Request::get("/v1/models").header("x-api-key", &key).header("anthropic-version", "2023-06-01")).status, 200);
    let native = send(Request::get("/v1beta/models").native_key(&key));
    assert_eq!((native.status, &native.json()["error"]["details"][0]["reason"]), (403, &json!("API_KEY_SERVICE_BLOCKED")));
    // Routes about the key itself belong to no protocol.
    let own = send(Request::get("/v1/key").bearer(&key));
    assert_eq!((own.status, &own.json()["protocols"]), (200, &json!(["anthropic", "responses"])));

    let chat_only = make_key(&admin, json!({"name": "chat", "protocols": ["openai"]}));
    assert_eq!(send(echo_chat(&chat_only)).status, 200);
    let refused = send(echo_messages(&chat_only));
    let shown = refused.json();
    assert_eq!((refused.status, &shown["type"], &shown["error"]["type"]), (403, &json!("error"), &json!("permission_error")));
    let kept = send(Request::get("/v1/responses/resp_1").bearer(&chat_only));
    assert_eq!(code(&kept), (403, "protocol_not_allowed".to_owned()));
    let list = send(Request::get("/v1/models").header("x-api-key", &chat_only).header("anthropic-version", "2023-06-01"));
    assert_eq!((list.status, &list.json()["error"]["type"]), (403, &json!("permission_error")));
}

#[test]
fn explain_names_the_protocols_of_the_key() {
    let admin = Admin::echo();
    make_key(&admin, json!({"name": "agents", "protocols": ["anthropic"]}));
    let explained = admin.get("/admin/v1/explain?key=agents&model=echo&protocol=openai");
    assert_eq!(explained["refusal"]["error"], "E7", "{explained}");
    assert_eq!(explained["refusal"]["text"], "the key may be used with anthropic only");
    assert_eq!(admin.get("/admin/v1/explain?key=agents&model=echo&protocol=anthropic")["refusal"], Value::Null);
}

#[test]
fn tags_of_the_key_take_precedence_over_tags_of_the_request() {
    let admin = Admin::echo();
    let key = make_key(&admin, json!({"name": "tagged", "tags": {"team": "search", "cost": "42"}}));
    let send = |request: Request| admin.gateway.send(&request);
    assert_eq!(record(&admin, &send(echo_chat(&key)))["tags"], json!({"cost": "42", "team": "search"}));
    let own = send(echo_chat(&key).header("x-tollgate-tags", "team=mine,run=7"));
    assert_eq!(record(&admin, &own)["tags"], json!({"cost": "42", "run": "7", "team": "search"}), "those of the key count");
    let many: Vec<String> = (0..16).map(|number| format!("n{number:02}=1")).collect();
    let many = send(echo_chat(&key).header("x-tollgate-tags", &many.join(",")));
    let tags = &record(&admin, &many)["tags"];
    assert_eq!((tags.as_object().unwrap().len(), &tags["team"], &tags["n13"]), (16, &json!("search"), &json!("1")));
    assert_eq!(tags.get("n14"), None, "there is no room for it");
    let wrong = send(echo_chat(&key).header("x-tollgate-tags", "team"));
    assert_eq!(wrong.status, 400);
    assert_eq!(record(&admin, &wrong)["tags"], json!({"cost": "42", "team": "search"}), "refused requests have them, too");
    assert_eq!(send(Request::get("/v1/key").bearer(&key)).json()["tags"], json!({"cost": "42", "team": "search"}));
}

#[test]
fn key_restrictions_are_set_by_the_file_and_the_command_line() {
    let gateway: TestGateway = support::echo();
    let run = |arguments: &[&str]| {
        let output = gateway.run(arguments);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
    };
    let flags = ["--deny-model", "o1-*", "--protocol", "gemini", "--tag", "team=mine", "--tag", "a=b=c"];
    let (status, made) = run(&[&["key", "create", "ci"], flags.as_slice()].concat());
    assert_eq!(status, Some(0), "{made}");
    let (_, shown) = run(&["key", "show", "ci", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(
        (&shown["models_deny"], &shown["protocols"], &shown["tags"]),
        (&json!(["o1-*"]), &json!(["gemini"]), &json!({"a": "b=c", "team": "mine"}))
    );
    let (status, said) = run(&["key", "create", "other", "--tag", "team"]);
    assert!(status == Some(2) && said.contains("--tag needs NAME=VALUE"), "{said}");
    let set = ["key", "set", "ci", "models_deny=o1-*,*-pro", "protocols=openai,gemini", "tags=team:search,cost:42"];
    let (status, made) = run(&set);
    assert_eq!(status, Some(0), "{made}");
    let (_, shown) = run(&["key", "show", "ci", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(
        (&shown["models_deny"], &shown["protocols"], &shown["tags"]),
        (&json!(["o1-*", "*-pro"]), &json!(["openai", "gemini"]), &json!({"cost": "42", "team": "search"}))
    );
    let (_, file) = run(&["pull"]);
    for line in ["models_deny = [\"o1-*\", \"*-pro\"]", "protocols = [\"openai\", \"gemini\"]"] {
        assert!(file.contains(line), "no {line} in {file}");
    }
    assert!(file.contains("cost = \"42\"") && file.contains("team = \"search\""), "{file}");
    for (wrong, fault) in [
        ("protocols=openai,openai", "occurs twice"),
        ("protocols=chat", "openai, gemini, anthropic, responses"),
        ("tags=a b:c", "'a b' is not a tag name"),
        ("tags={\"a\":\"\"}", "the value of the tag 'a' must have 1 to 100 characters"),
    ] {
        let (status, said) = run(&["key", "set", "ci", wrong]);
        assert!(status != Some(0) && said.contains(fault), "{wrong}: {said}");
    }
}

#[test]
fn callers_see_the_price_limit_of_their_key() {
    let admin = Admin::echo();
    let limit = json!({"mode": "ceiling", "max_input": "2", "on": "sale"});
    let key = make_key(&admin, json!({"name": "bounded", "price_limit": limit}));
    let own = admin.gateway.send(&Request::get("/v1/key").bearer(&key)).json();
    assert_eq!(own["price_limit"], json!({"mode": "ceiling", "max_input": "2.00", "on": "sale"}), "{own}");
    let free = admin.gateway.send(&Request::get("/v1/key").bearer(admin.gateway.key())).json();
    assert_eq!((&free["price_limit"], &free["protocols"], &free["tags"]), (&Value::Null, &json!([]), &json!({})));
}
