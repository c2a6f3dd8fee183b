//! Settings that are stored in the database and change while the gateway runs.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_testkit::{Request, ScriptedResponse, TestGateway, Upstream, wait_for};

use crate::{
    admin::{Admin, ok, refusal, refused, refused_whole, text, within_a_second},
    nodes::Services,
    support::{self, PROGRAM},
};

/// The administration of a gateway whose environment sets nothing.
fn plain() -> Admin {
    Admin::of(TestGateway::builder(PROGRAM).without_env("TOLLGATE_LOG__REQUESTS").spawn())
}

fn at(name: &str) -> String {
    format!("/admin/v1/settings/{name}")
}

fn set(admin: &Admin, name: &str, value: &Value) -> Value {
    ok(&admin.call("PUT", &at(name), Some(&json!({"value": value}))))
}

/// Another value that a setting takes, as text.
fn other_value(setting: &Value) -> String {
    let value = setting["value"].as_str().unwrap_or_default();
    match setting["type"].as_str().unwrap() {
        "number" => {
            let (number, max) = (value.parse::<u64>().unwrap(), setting["max"].as_u64().unwrap());
            if number < max { number + 1 } else { number - 1 }.to_string()
        }
        "flag" => (value != "true").to_string(),
        "word" => {
            let words: Vec<&str> = setting["words"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
            (*words.iter().find(|word| **word != value).unwrap()).to_owned()
        }
        "usd" => "1000.5".to_owned(),
        "rate" => "7.1".to_owned(),
        "percents" => "70,90".to_owned(),
        // An address that no test connects to.
        "networks" => "10.0.0.0/8".to_owned(),
        "origins" => "https://app.example.com".to_owned(),
        "text" => format!("another {value}"),
        "pattern" => "sk-[a-z]+".to_owned(),
        "url" => "https://api.example.com".to_owned(),
        "image" => "data:image/png;base64,AAAA".to_owned(),
        "time_zone" => "Asia/Shanghai".to_owned(),
        other => panic!("no changeable setting is of type {other}"),
    }
}

#[test]
fn every_setting_that_needs_no_restart_changes_while_the_gateway_runs() {
    let admin = plain();
    let settings = admin.get("/admin/v1/settings")["items"].as_array().unwrap().clone();
    let changeable: Vec<&Value> = settings.iter().filter(|setting| setting["needs_restart"] == false).collect();
    assert!(changeable.len() > 30, "{}", changeable.len());
    for setting in changeable {
        let name = setting["name"].as_str().unwrap();
        assert_eq!((&setting["writable"], &setting["stored"]), (&json!(true), &Value::Null), "{name}");
        let value = other_value(setting);
        let changed = set(&admin, name, &json!(value));
        let seen = |setting: &Value| ["value", "source", "stored"].map(|member| setting[member].as_str().unwrap().to_owned());
        assert_eq!(seen(&changed), [value.as_str(), "database", value.as_str()], "{name}");
        assert_eq!(seen(&admin.get(&at(name))), seen(&changed));
        admin.delete(&at(name));
        let again = admin.get(&at(name));
        assert_eq!((&again["value"], &again["source"], &again["revision"]), (&setting["value"], &json!("default"), &Value::Null));
    }
}

#[test]
fn invalid_values_are_refused_with_the_accepted_ones() {
    let admin = plain();
    for setting in admin.get("/admin/v1/settings")["items"].as_array().unwrap() {
        // A text without a bound accepts every value.
        if setting["needs_restart"] == true || (setting["type"] == "text" && setting["max"].is_null()) {
            continue;
        }
        let name = setting["name"].as_str().unwrap();
        let (wrong, taken) = match setting["type"].as_str().unwrap() {
            "number" => {
                let (min, max) = (setting["min"].as_u64().unwrap(), setting["max"].as_u64().unwrap());
                (json!(max + 1), format!("a whole number of {min} to {max}"))
            }
            "flag" => (json!("maybe"), "true or false".to_owned()),
            "word" => (json!("other"), "one of \"".to_owned()),
            "usd" => (json!(-1), "an amount in USD of 0 to 9223372036".to_owned()),
            "rate" => (json!("0"), "a number of 0.000001 to 1000000 with at most six decimals".to_owned()),
            "percents" => (json!("50,101"), "whole percentages of 1 to 100".to_owned()),
            "text" => {
                let max = setting["max"].as_u64().unwrap();
                (json!("x".repeat(usize::try_from(max).unwrap() + 1)), format!("one line of text of at most {max} characters"))
            }
            "url" => (json!("javascript:alert(1)"), "an address such as".to_owned()),
            "image" => (json!("https://example.com/logo.png"), "an image as a data: URL".to_owned()),
            "pattern" => (json!("(a"), "a regular expression".to_owned()),
            "origins" => (json!("https://app.example.com/path"), "origins with commas between".to_owned()),
            "time_zone" => (json!("10.0.0.0/99"), "the name of a time zone".to_owned()),
            _ => (json!("10.0.0.0/99"), "networks with commas between".to_owned()),
        };
        let answer = admin.call("PUT", &at(name), Some(&json!({"value": wrong})));
        assert_eq!(refusal(&answer), refused(400, "invalid_value", "value"), "{name}");
        assert!(text(&answer).replace("\\\"", "\"").contains(&taken), "{}", text(&answer));
        assert_eq!(admin.get(&at(name))["stored"], Value::Null);
    }
    for wrong in [json!(null), json!([]), json!({"a": 1})] {
        let answer = admin.call("PUT", &at("log.slow_ms"), Some(&json!({"value": wrong})));
        assert_eq!(refusal(&answer), refused(400, "invalid_type", "value"));
    }
}

#[test]
fn settings_that_cannot_be_stored_name_where_to_set_them() {
    let admin = Admin::of(TestGateway::builder(PROGRAM).env("TOLLGATE_LIMITS__IN_FLIGHT", "77").spawn());
    let put = |name: &str, value: &str| admin.call("PUT", &at(name), Some(&json!({"value": value})));
    for (name, value) in
        [("server.listen", "127.0.0.1:1"), ("redis.url", "redis://127.0.0.1"), ("alerts.secret", "canary-of-a-secret")]
    {
        let answer = put(name, value);
        assert_eq!(refusal(&answer), refused_whole(409, "setting_needs_restart"));
        let variable = format!("TOLLGATE_{}", name.replace('.', "__").to_uppercase());
        assert!(text(&answer).contains(&variable) && !text(&answer).contains(value), "{}", text(&answer));
    }
    let answer = put("limits.in_flight", "78");
    assert_eq!(refusal(&answer), refused_whole(409, "setting_set_elsewhere"));
    assert!(text(&answer).contains("the environment variable TOLLGATE_LIMITS__IN_FLIGHT"), "{}", text(&answer));
    let answer = put("limits.in_flights", "78");
    assert!(answer.status == 404 && text(&answer).contains("Did you mean 'limits.in_flight'?"), "{}", text(&answer));
    assert_eq!(refusal(&admin.call("DELETE", &at("limits.in_flight"), None)), refused_whole(404, "not_found"));
    assert_eq!(refusal(&admin.call("GET", &at("sk-something-long-and-secret"), None)), refused_whole(404, "not_found"));
    assert_eq!(
        refusal(&admin.as_operator("PUT", &at("log.slow_ms"), Some(&json!({"value": 1})))),
        refused_whole(403, "admin_only")
    );
}

#[test]
fn requests_follow_changed_settings() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hello"));
    let admin = Admin::of(support::gateway_for(&upstream));
    let gateway = &admin.gateway;
    let chat = || gateway.chat(&support::chat("chat-model"));
    assert_eq!(chat().status, 200);

    set(&admin, "limits.body_bytes", &json!(1_024));
    let mut large = support::chat("chat-model");
    large["messages"][0]["content"] = "x".repeat(2_000).into();
    assert_eq!((gateway.chat(&large).status, chat().status), (413, 200));
    admin.delete(&at("limits.body_bytes"));
    assert_eq!(gateway.chat(&large).status, 200);

    set(&admin, "server.header_count", &json!(8));
    let many = (0..9).fold(Request::get("/v1/models").bearer(gateway.key()), |request, n| request.header(&format!("x-{n}"), "1"));
    assert_eq!(gateway.send(&many).status, 431);
    admin.delete(&at("server.header_count"));
    assert_eq!(gateway.send(&many).status, 200);

    // Spending from before the budget was set counts.
    set(&admin, "budget.total", &json!("0.000001"));
    assert_eq!(chat().status, 429);
    set(&admin, "budget.action", &json!("alert"));
    assert_eq!(chat().status, 200);
    admin.delete(&at("budget.total"));

    let feed = || gateway.send(&Request::get("/models.json")).status;
    assert_eq!(feed(), 200);
    set(&admin, "square.public", &json!(false));
    assert_eq!(feed(), 401);
    admin.delete("/admin/v1/settings/square.public");
    set(&admin, "square.requests_per_minute", &json!(1));
    assert_eq!((feed(), feed()), (429, 429), "those of the present minute count");
    admin.delete("/admin/v1/settings/square.requests_per_minute");
    assert_eq!(feed(), 200);

    set(&admin, "limits.wrong_keys_per_minute", &json!(1));
    let wrong = Request::get("/v1/models").bearer("sk-tg-wrong");
    let statuses: Vec<u16> = (0..3).map(|_| gateway.send(&wrong).status).collect();
    assert_eq!(statuses.last(), Some(&429), "{statuses:?}");

    set(&admin, "upstream.total_timeout_ms", &json!(300));
    upstream.enqueue(ScriptedResponse::chat("late").delay(Duration::from_secs(20)));
    assert_eq!(chat().status, 504);
    admin.delete(&at("upstream.total_timeout_ms"));
    assert_eq!(chat().status, 200);

    let reserve = || std::fs::metadata(gateway.data().join("reserve")).map_or(0, |file| file.len());
    set(&admin, "journal.reserve_bytes", &json!(16 << 20));
    wait_for("the reserve has its new size", Duration::from_secs(10), || reserve() == 12 << 20);
    set(&admin, "journal.reserve_bytes", &json!(0));
    wait_for("there is no reserve", Duration::from_secs(10), || reserve() == 0);
}

#[test]
fn log_level_follows_the_changed_setting() {
    let admin = plain();
    let ask = |model: &str| admin.get(&format!("/admin/v1/prices/{model}/history"));
    let logged = |what: &str| admin.gateway.log().matches(what).count();
    let lines = || logged("/admin/v1/prices/{model}/history");
    ask("a");
    within_a_second("it is logged", || lines() == 1);
    set(&admin, "log.level", &json!("error"));
    ask("b");
    admin.delete(&at("log.level"));
    ask("c");
    within_a_second("it is logged again", || lines() >= 2);
    assert_eq!(lines(), 2);
    let requests = || logged("\"message\":\"request\"");
    admin.gateway.chat(&support::chat("echo"));
    set(&admin, "log.requests", &json!("all"));
    admin.gateway.chat(&support::chat("echo"));
    within_a_second("the request is logged", || requests() >= 1);
    assert_eq!(requests(), 1);
}

#[test]
fn stored_settings_survive_a_restart_and_the_environment_overrides_them() {
    let admin = plain();
    set(&admin, "limits.in_flight", &json!(500));
    set(&admin, "log.slow_ms", &json!(1_234));
    let Admin { mut gateway, key, .. } = admin;
    assert_eq!(gateway.stop(), Some(0));
    let data = gateway.into_data();
    let start = |builder: tollgate_testkit::TestGatewayBuilder| builder.without_env("TOLLGATE_LOG__REQUESTS").spawn();
    let gateway = start(TestGateway::builder(PROGRAM).data_folder(data).env("TOLLGATE_LOG__SLOW_MS", "7"));
    let get = |name: &str| gateway.send(&Request::get(&at(name)).bearer(&key)).json();
    let of = |setting: &Value| ["value", "source", "stored"].map(|member| setting[member].as_str().unwrap_or_default().to_owned());
    assert_eq!(of(&get("limits.in_flight")), ["500", "database", "500"]);
    assert_eq!(of(&get("log.slow_ms")), ["7", "environment", "1234"]);
    assert_eq!(get("log.slow_ms")["writable"], false);
}

#[test]
fn changes_are_audited_and_can_be_made_conditional() {
    let admin = plain();
    let path = at("log.slow_ms");
    let first = set(&admin, "log.slow_ms", &json!(5));
    let put = |revision: &Value, value: u64| {
        let request = Request::post(&path, &json!({"value": value})).bearer(&admin.key);
        admin.send("PUT", &path, &request.header("if-match", &format!("\"{revision}\"")))
    };
    let second = ok(&put(&first["revision"], 6));
    assert_eq!(refusal(&put(&first["revision"], 7)), refused_whole(409, "revision_conflict"));
    assert_eq!(admin.get(&path)["value"], "6");
    assert_ne!(first["revision"], second["revision"]);
    let audit = admin.get("/admin/v1/audit?kind=setting&name=log.slow_ms");
    let newest = &audit["items"][0];
    assert_eq!((&newest["action"], &newest["name"]), (&json!("put"), &json!("log.slow_ms")));
    assert_eq!((&newest["detail"]["before"], &newest["detail"]["after"]), (&json!({"value": "5"}), &json!({"value": "6"})));
    assert!(newest["actor"].as_str().unwrap().starts_with("root (adm_"), "{newest}");
}

#[test]
fn commands_change_settings_of_the_gateway_on_their_folder() {
    let admin = plain();
    let run = |arguments: &[&str]| {
        let out = admin.gateway.run(arguments);
        (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr))
    };
    assert_eq!(
        run(&["settings", "set", "limits.body_bytes", "1024"]),
        (Some(0), "limits.body_bytes is now 1024 bytes\n".to_owned())
    );
    within_a_second("it is in force", || admin.get(&at("limits.body_bytes"))["value"] == "1024");
    let (code, shown) = run(&["settings", "show", "limits.body_bytes"]);
    assert!(code == Some(0) && shown.contains("database") && shown.contains("1073741824"), "{shown}");
    let (code, listed) = run(&["settings", "--source", "database"]);
    assert!(code == Some(0) && listed.contains("limits.body_bytes") && !listed.contains("log.level"), "{listed}");
    let (code, said) = run(&["settings", "set", "limits.body_bytes", "7"]);
    assert!(code == Some(3) && said.contains("a whole number of 1024 to 1073741824"), "{said}");
    let (code, said) = run(&["settings", "set", "server.cores", "2"]);
    assert!(code == Some(1) && said.contains("TOLLGATE_SERVER__CORES"), "{code:?} {said}");
    let (code, said) = run(&["settings", "unset", "limits.body_bytes"]);
    assert_eq!((code, said.as_str()), (Some(0), "limits.body_bytes is now 33554432 bytes, its default\n"));
    within_a_second("its default applies", || admin.get(&at("limits.body_bytes"))["value"] == "33554432");
}

#[test]
fn change_reaches_other_nodes_within_a_second() {
    let Some(services) = Services::start("change_reaches_other_nodes_within_a_second") else { return };
    let nodes = services.nodes("");
    let key = crate::admin::make_key(&nodes[0], "root", "admin");
    let path = at("limits.body_bytes");
    let put = Request::post(&path, &json!({"value": 1_024})).bearer(&key).method("PUT");
    assert_eq!(nodes[0].send(&put).status, 200);
    let mut large = support::chat("chat-model");
    large["messages"][0]["content"] = "x".repeat(2_000).into();
    for node in &nodes {
        within_a_second("each node has it", || {
            let setting = node.send(&Request::get(&path).bearer(&key)).json();
            (&setting["value"], &setting["source"]) == (&json!("1024"), &json!("database"))
        });
        assert_eq!(node.chat(&large).status, 413);
    }
}
