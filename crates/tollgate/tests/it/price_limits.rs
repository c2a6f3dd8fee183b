//! Price limits: the command line and the admin API show the accounts that a limit excludes before it is saved.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_testkit::{Request, TestGateway, Upstream, wait_for};

use crate::{
    admin,
    support::{self, PROGRAM},
};

/// A gateway whose rows are owned by the database, so that they can be changed: `chat-model` on a channel that costs 1 USD per
/// million tokens of input.
fn gateway(upstream: &Upstream) -> TestGateway {
    let gateway = TestGateway::builder(PROGRAM).spawn();
    let file = gateway.data().join("catalog-to-apply.toml");
    let catalog = support::catalog(upstream, "").replace("{key}", "a-secret-of-enough-characters").replace("{credential}", "c");
    std::fs::write(&file, catalog).unwrap();
    assert!(gateway.run(&["apply", &file.display().to_string(), "--yes"]).status.success());
    gateway
}

fn words(output: &std::process::Output) -> (Option<i32>, String) {
    (output.status.code(), format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn price_limit_command_previews_exclusions_and_requires_yes() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let row =
        |kind: &str, name: &str| -> Value { serde_json::from_slice(&gateway.run(&[kind, "show", name, "--json"]).stdout).unwrap() };
    // Values as in the catalog file.
    let limit = r#"price_limit={"mode":"ceiling","max_input":"0.5","on":"cost"}"#;
    for (kind, name) in [("group", "default"), ("key", "caller")] {
        let (code, output) = words(&gateway.run(&[kind, "set", name, limit]));
        assert_eq!(code, Some(2), "{output}");
        let whose = if kind == "group" { "the group's" } else { "the key's" };
        let why = format!("cost input 1.00 above {whose} 0.50 USD per 1M tokens");
        for part in ["chat-account", why.as_str(), "nothing is left: callers get 503 (E41 or E42)", "--yes"] {
            assert!(output.contains(part), "no {part} in {output}");
        }
        assert_eq!(row(kind, name)["price_limit"], Value::Null, "nothing was saved");
        let (code, output) = words(&gateway.run(&[kind, "set", name, limit, "--dry-run"]));
        assert!(code == Some(0) && output.contains("nothing is left"), "{output}");
        assert_eq!(row(kind, name)["price_limit"], Value::Null, "nothing was saved");
    }
    let (code, output) = words(&gateway.run(&["key", "set", "caller", limit, "--yes"]));
    assert!(code == Some(0) && output.contains("nothing is left") && output.contains("changed key caller"), "{output}");
    assert_eq!(row("key", "caller")["price_limit"]["max_input"], "0.50");
    // A limit that excludes nothing is saved at once.
    let wide = r#"price_limit={"mode":"ceiling","max_input":"50"}"#;
    let (code, output) = words(&gateway.run(&["group", "set", "default", wide]));
    assert_eq!((code, output.trim()), (Some(0), "changed group default"));
    assert_eq!(words(&gateway.run(&["group", "set", "default", "rpm=60"])).0, Some(0));
    let (code, output) = words(&gateway.run(&["group", "add", "dear", "channels=chat", limit]));
    assert!(code == Some(2) && output.contains("group dear"), "{output}");
    assert_eq!(words(&gateway.run(&["member", "set", "owner", "rpm=1", "--dry-run"])).0, Some(2));
}

#[test]
fn admin_api_previews_exclusions_and_refuses_a_limit_that_leaves_no_channel() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream);
    let root = admin::make_key(&gateway, "root", "admin");
    let send = |method: &str, path: &str, body: &Value| {
        let answer = gateway.send(&Request::post(path, body).method(method).bearer(&root));
        (answer.status, answer.json())
    };
    let group = "/admin/v1/groups/default";
    let limit = json!({"price_limit": {"mode": "ceiling", "max_input": "0.5", "on": "cost"}});
    let (status, refused) = send("PATCH", group, &limit);
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("nothing_left")), "{refused}");
    let (status, dry) = send("PATCH", &format!("{group}?dry_run=true"), &limit);
    assert_eq!((status, &dry["price_limit"]["max_input"]), (200, &json!("0.50")), "{dry}");
    let effect = dry["effects"].as_array().unwrap().iter().find(|it| it["model"] == "chat-model").unwrap();
    assert_eq!((&effect["subject"], &effect["nothing_left"]), (&json!("group"), &json!(true)));
    assert_eq!(effect["excluded"][0]["account"], "chat-account");
    let answer = gateway.send(&Request::get(group).bearer(&root)).json();
    assert_eq!(answer["price_limit"], Value::Null, "nothing was saved: {answer}");
    let key =
        json!({"name": "bounded", "groups": ["default"], "price_limit": {"mode": "ceiling", "max_input": "0.5", "on": "cost"}});
    let (status, dry) = send("POST", "/admin/v1/keys?dry_run=true", &key);
    assert_eq!((status, &dry["effects"][0]["subject"], dry.get("key")), (200, &json!("key"), None), "{dry}");
    assert_eq!(send("POST", "/admin/v1/keys", &key).0, 409);
    let (status, made) = send("POST", "/admin/v1/keys?confirm=true", &key);
    assert_eq!((status, &made["effects"][0]["nothing_left"]), (201, &json!(true)), "{made}");
    let (status, saved) = send("PATCH", &format!("{group}?confirm=true"), &limit);
    assert_eq!((status, saved["effects"].as_array().is_some_and(|it| !it.is_empty())), (200, true), "{saved}");
    // Exclusions by the group are not listed for a new key.
    let (status, made) = send("POST", "/admin/v1/keys", &json!({"name": "plain", "groups": ["default"]}));
    assert_eq!((status, &made["effects"]), (201, &json!([])), "{made}");
    let twice = json!({"price_limit": {"mode": "ceiling", "max_input": "1", "max_input_usd": "2"}});
    assert_eq!(send("PATCH", group, &twice).0, 400);
}

/// Two channels for one model at these costs, as database rows.
fn crossed(upstream: &Upstream, group_lines: &str, key_lines: &str) -> (TestGateway, String) {
    let gateway = TestGateway::builder(PROGRAM).spawn();
    let of = |name: &str, cost: &str| {
        support::channel(name, "openai", &upstream.openai_url(), "chat-model", "")
            .replace("input = \"1\", output = \"2\"", cost)
            .replace("{credential}", "c")
    };
    let catalog = of("c1", "input = \"1\", output = \"4\"")
        + &of("c2", "input = \"1.8\", output = \"2\"")
        + &support::prices(&["chat-model"])
        + &format!("[[group]]\nname = \"default\"\nchannels = [\"c1\", \"c2\"]\n{group_lines}\n")
        + &format!("[[key]]\nname = \"k\"\ngroups = [\"default\"]\nsecret = \"a-secret-of-enough-characters\"\n{key_lines}\n");
    let file = gateway.data().join("catalog-to-apply.toml");
    std::fs::write(&file, &catalog).unwrap();
    let applied = gateway.run(&["apply", &file.display().to_string(), "--yes"]);
    assert!(applied.status.success(), "{}", words(&applied).1);
    (gateway, catalog)
}

fn applied_dry(gateway: &TestGateway, catalog: &str) -> Value {
    let file = gateway.data().join("catalog-to-try.toml");
    std::fs::write(&file, catalog).unwrap();
    let output = gateway.run(&["apply", &file.display().to_string(), "--dry-run", "--json"]);
    assert!(output.status.success(), "{}", words(&output).1);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn combined_exclusions_of_group_and_key_are_shown_for_the_key() {
    let upstream = Upstream::start();
    let (gateway, catalog) = crossed(&upstream, "", "price_limit = { mode = \"ceiling\", max_output = \"3\", on = \"cost\" }");
    let root = admin::make_key(&gateway, "root", "admin");
    let path = "/admin/v1/groups/default";
    let send = |method: &str, path: &str, body: &Value| {
        let answer = gateway.send(&Request::post(path, body).method(method).bearer(&root));
        (answer.status, answer.json())
    };
    let chat = || {
        gateway.send(&Request::post("/v1/chat/completions", &support::chat("chat-model")).bearer("a-secret-of-enough-characters"))
    };
    let of_key = |effects: &Value| {
        let found = effects.as_array().unwrap().iter().find(|it| it["subject"] == "key").cloned().unwrap_or_default();
        (found["name"].clone(), found["nothing_left"].clone(), found["excluded"][0]["channel"].clone())
    };
    let expected = (json!("k"), json!(true), json!("c2"));
    let limit = json!({"price_limit": {"mode": "ceiling", "max_input": "1.2", "on": "cost"}});
    let (status, refused) = send("PATCH", path, &limit);
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("nothing_left")), "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("key 'k'"), "{refused}");
    wait_for("nothing was saved, and the key is served", Duration::from_secs(1), || chat().status == 200);
    let (_, dry) = send("PATCH", &format!("{path}?dry_run=true"), &limit);
    assert_eq!((of_key(&dry["effects"]), &dry["effects_cut"]), (expected.clone(), &json!(false)), "{dry}");
    let words_of_file = r#"price_limit={"mode":"ceiling","max_input":"1.2","on":"cost"}"#;
    let (code, output) = words(&gateway.run(&["group", "set", "default", words_of_file, "--dry-run"]));
    assert!(code == Some(0) && output.contains("key k of owner") && output.contains("nothing is left"), "{output}");
    // A catalog file without the key.
    let begin = catalog.find("[[group]]").unwrap();
    let group = "[[group]]\nname = \"default\"\nchannels = [\"c1\", \"c2\"]\n\
                 price_limit = { mode = \"ceiling\", max_input = \"1.2\", on = \"cost\" }\n";
    let plan = applied_dry(&gateway, &(catalog[..begin].to_owned() + group));
    assert_eq!((of_key(&plan["excluded_by_price"]), &plan["excluded_by_price_cut"]), (expected, &json!(false)), "{plan}");
    assert_eq!(send("PATCH", &format!("{path}?confirm=true"), &limit).0, 200);
    wait_for("the limit counts", Duration::from_secs(1), || chat().status == 503);
}

#[test]
fn group_change_that_leaves_only_excluded_channels_is_reported() {
    let upstream = Upstream::start();
    let (gateway, catalog) = crossed(&upstream, "price_limit = { mode = \"ceiling\", max_input = \"1.2\", on = \"cost\" }", "");
    let root = admin::make_key(&gateway, "root", "admin");
    let path = "/admin/v1/groups/default";
    let send = |path: &str, body: &Value| {
        let answer = gateway.send(&Request::post(path, body).method("PATCH").bearer(&root));
        (answer.status, answer.json())
    };
    let only = json!({"channels": ["c2"]});
    let (status, refused) = send(path, &only);
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("nothing_left")), "{refused}");
    let (_, dry) = send(&format!("{path}?dry_run=true"), &only);
    let expected = |effects: &Value| (effects[0]["nothing_left"].clone(), effects[0]["excluded"][0]["channel"].clone());
    assert_eq!(expected(&dry["effects"]), (json!(true), json!("c2")), "{dry}");
    let plan = applied_dry(&gateway, &catalog.replace("[\"c1\", \"c2\"]", "[\"c2\"]"));
    assert_eq!(expected(&plan["excluded_by_price"]), (json!(true), json!("c2")), "{plan}");
    let (status, changed) = send(path, &json!({"channels": ["c1"]}));
    assert_eq!((status, &changed["effects"]), (200, &json!([])), "{changed}");
}

#[test]
fn replay_draws_are_deterministic_and_match_the_recorded_ones() {
    let upstream = Upstream::start();
    let other = support::channel("other", "openai", &upstream.openai_url(), "chat-model", "cooling = false");
    let catalog = support::channel("chat", "openai", &upstream.openai_url(), "chat-model", "cooling = false")
        + &other
        + &support::prices(&["chat-model"])
        + &support::group(&["chat", "other"]);
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    for number in 0..24 {
        let mut body = support::chat("chat-model");
        body["messages"][0]["content"] = format!("conversation {number}").into();
        assert_eq!(gateway.chat(&body).status, 200);
    }
    let file = gateway.data().join("catalog.toml").display().to_string();
    let replayed = || -> Value { serde_json::from_slice(&gateway.run(&["replay", &file, "--json"]).stdout).unwrap() };
    let first = replayed();
    assert_eq!((&first["replayed"], &first["moved"]), (&json!(24), &json!(0)), "{first}");
    for _ in 0..3 {
        assert_eq!(replayed(), first, "another run");
    }
}
