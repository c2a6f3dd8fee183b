//! Whom a price limit excludes is shown before it is saved, on the command line and by the admin API.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_testkit::{Request, TestGateway, Upstream, wait_for};

use crate::{
    admin,
    support::{self, PROGRAM},
};

/// A gate whose rows are the database's, so that they can be changed: `chat-model` on a channel that costs 1 USD per
/// million tokens of input.
fn gate(upstream: &Upstream) -> TestGateway {
    let gate = TestGateway::of(PROGRAM).spawn();
    let file = gate.data().join("catalog-to-apply.toml");
    let catalog = support::catalog(upstream, "").replace("{key}", "a-secret-of-enough-characters").replace("{credential}", "c");
    std::fs::write(&file, catalog).unwrap();
    assert!(gate.run(&["apply", &file.display().to_string(), "--yes"]).status.success());
    gate
}

fn words(output: &std::process::Output) -> (Option<i32>, String) {
    (output.status.code(), format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn a_limit_set_by_command_shows_whom_it_excludes_and_wants_a_yes() {
    let upstream = Upstream::start();
    let gate = gate(&upstream);
    let row =
        |kind: &str, name: &str| -> Value { serde_json::from_slice(&gate.run(&[kind, "show", name, "--json"]).stdout).unwrap() };
    // The catalog file's words, and nobody below them.
    let limit = r#"price_limit={"mode":"ceiling","max_input":"0.5","on":"cost"}"#;
    for (kind, name) in [("group", "default"), ("key", "caller")] {
        let (code, said) = words(&gate.run(&[kind, "set", name, limit]));
        assert_eq!(code, Some(2), "{said}");
        let whose = if kind == "group" { "the group's" } else { "the key's" };
        let why = format!("cost input 1.00 above {whose} 0.50 USD per 1M tokens");
        for part in ["chat-account", why.as_str(), "nothing is left: callers get 503 (E41)", "--yes"] {
            assert!(said.contains(part), "no {part} in {said}");
        }
        assert_eq!(row(kind, name)["price_limit"], Value::Null, "nothing was saved");
        let (code, said) = words(&gate.run(&[kind, "set", name, limit, "--dry-run"]));
        assert!(code == Some(0) && said.contains("nothing is left"), "{said}");
        assert_eq!(row(kind, name)["price_limit"], Value::Null, "nothing was saved");
    }
    let (code, said) = words(&gate.run(&["key", "set", "caller", limit, "--yes"]));
    assert!(code == Some(0) && said.contains("nothing is left") && said.contains("changed key caller"), "{said}");
    assert_eq!(row("key", "caller")["price_limit"]["max_input_nano_usd"], 500_000_000);
    // What excludes nobody is saved at once.
    let wide = r#"price_limit={"mode":"ceiling","max_input":"50"}"#;
    let (code, said) = words(&gate.run(&["group", "set", "default", wide]));
    assert_eq!((code, said.trim()), (Some(0), "changed group default"));
    assert_eq!(words(&gate.run(&["group", "set", "default", "rpm=60"])).0, Some(0));
    let (code, said) = words(&gate.run(&["group", "add", "dear", "channels=chat", limit]));
    assert!(code == Some(2) && said.contains("group dear"), "{said}");
    assert_eq!(words(&gate.run(&["member", "set", "owner", "rpm=1", "--dry-run"])).0, Some(2));
}

#[test]
fn the_admin_api_says_what_a_limit_excludes_and_saves_nothing_that_leaves_nobody() {
    let upstream = Upstream::start();
    let gate = gate(&upstream);
    let root = admin::make_key(&gate, "root", "admin");
    let send = |method: &str, path: &str, body: &Value| {
        let answer = gate.send(&Request::post(path, body).method(method).bearer(&root));
        (answer.status, answer.json())
    };
    let group = "/admin/v1/groups/default";
    let limit = json!({"price_limit": {"mode": "ceiling", "max_input_usd": "0.5", "on": "cost"}});
    let (status, refused) = send("PATCH", group, &limit);
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("nothing_left")), "{refused}");
    let (status, dry) = send("PATCH", &format!("{group}?dry_run=true"), &limit);
    assert_eq!((status, &dry["price_limit"]["max_input_usd"]), (200, &json!("0.50")), "{dry}");
    let effect = dry["effects"].as_array().unwrap().iter().find(|it| it["model"] == "chat-model").unwrap();
    assert_eq!((&effect["subject"], &effect["nothing_left"]), (&json!("group"), &json!(true)));
    assert_eq!(effect["excluded"][0]["account"], "chat-account");
    let answer = gate.send(&Request::get(group).bearer(&root)).json();
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
    // What the group excludes already is no doing of a new key.
    let (status, made) = send("POST", "/admin/v1/keys", &json!({"name": "plain", "groups": ["default"]}));
    assert_eq!((status, &made["effects"]), (201, &json!([])), "{made}");
    let twice = json!({"price_limit": {"mode": "ceiling", "max_input": "1", "max_input_usd": "2"}});
    assert_eq!(send("PATCH", group, &twice).0, 400);
}

/// Two channels for one model, at these costs; rows of the database.
fn crossed(upstream: &Upstream, group_lines: &str, key_lines: &str) -> (TestGateway, String) {
    let gate = TestGateway::of(PROGRAM).spawn();
    let of = |name: &str, cost: &str| {
        support::channel(name, "openai", &upstream.openai(), "chat-model", "")
            .replace("input = \"1\", output = \"2\"", cost)
            .replace("{credential}", "c")
    };
    let catalog = of("c1", "input = \"1\", output = \"4\"")
        + &of("c2", "input = \"1.8\", output = \"2\"")
        + &support::prices(&["chat-model"])
        + &format!("[[group]]\nname = \"default\"\nchannels = [\"c1\", \"c2\"]\n{group_lines}\n")
        + &format!("[[key]]\nname = \"k\"\ngroups = [\"default\"]\nsecret = \"a-secret-of-enough-characters\"\n{key_lines}\n");
    let file = gate.data().join("catalog-to-apply.toml");
    std::fs::write(&file, &catalog).unwrap();
    let applied = gate.run(&["apply", &file.display().to_string(), "--yes"]);
    assert!(applied.status.success(), "{}", words(&applied).1);
    (gate, catalog)
}

fn applied_dry(gate: &TestGateway, catalog: &str) -> Value {
    let file = gate.data().join("catalog-to-try.toml");
    std::fs::write(&file, catalog).unwrap();
    let output = gate.run(&["apply", &file.display().to_string(), "--dry-run", "--json"]);
    assert!(output.status.success(), "{}", words(&output).1);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn what_a_group_and_a_key_exclude_only_together_is_shown_of_the_key() {
    let upstream = Upstream::start();
    let (gate, catalog) = crossed(&upstream, "", "price_limit = { mode = \"ceiling\", max_output = \"3\", on = \"cost\" }");
    let root = admin::make_key(&gate, "root", "admin");
    let path = "/admin/v1/groups/default";
    let send = |method: &str, path: &str, body: &Value| {
        let answer = gate.send(&Request::post(path, body).method(method).bearer(&root));
        (answer.status, answer.json())
    };
    let chat =
        || gate.send(&Request::post("/v1/chat/completions", &support::chat("chat-model")).bearer("a-secret-of-enough-characters"));
    let of_key = |effects: &Value| {
        let found = effects.as_array().unwrap().iter().find(|it| it["subject"] == "key").cloned().unwrap_or_default();
        (found["name"].clone(), found["nothing_left"].clone(), found["excluded"][0]["channel"].clone())
    };
    let told = (json!("k"), json!(true), json!("c2"));
    let limit = json!({"price_limit": {"mode": "ceiling", "max_input_usd": "1.2", "on": "cost"}});
    let (status, refused) = send("PATCH", path, &limit);
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("nothing_left")), "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("key 'k'"), "{refused}");
    wait_for("nothing was saved, and the key is served", Duration::from_secs(1), || chat().status == 200);
    let (_, dry) = send("PATCH", &format!("{path}?dry_run=true"), &limit);
    assert_eq!((of_key(&dry["effects"]), &dry["effects_cut"]), (told.clone(), &json!(false)), "{dry}");
    let words_of_file = r#"price_limit={"mode":"ceiling","max_input":"1.2","on":"cost"}"#;
    let (code, said) = words(&gate.run(&["group", "set", "default", words_of_file, "--dry-run"]));
    assert!(code == Some(0) && said.contains("key k of owner") && said.contains("nothing is left"), "{said}");
    // A file that does not name the key.
    let begin = catalog.find("[[group]]").unwrap();
    let group = "[[group]]\nname = \"default\"\nchannels = [\"c1\", \"c2\"]\n\
                 price_limit = { mode = \"ceiling\", max_input = \"1.2\", on = \"cost\" }\n";
    let plan = applied_dry(&gate, &(catalog[..begin].to_owned() + group));
    assert_eq!((of_key(&plan["excluded_by_price"]), &plan["excluded_by_price_cut"]), (told, &json!(false)), "{plan}");
    assert_eq!(send("PATCH", &format!("{path}?confirm=true"), &limit).0, 200);
    wait_for("the limit counts", Duration::from_secs(1), || chat().status == 503);
}

#[test]
fn channels_of_a_group_that_leave_only_excluded_ones_are_noticed() {
    let upstream = Upstream::start();
    let (gate, catalog) = crossed(&upstream, "price_limit = { mode = \"ceiling\", max_input = \"1.2\", on = \"cost\" }", "");
    let root = admin::make_key(&gate, "root", "admin");
    let path = "/admin/v1/groups/default";
    let send = |path: &str, body: &Value| {
        let answer = gate.send(&Request::post(path, body).method("PATCH").bearer(&root));
        (answer.status, answer.json())
    };
    let only = json!({"channels": ["c2"]});
    let (status, refused) = send(path, &only);
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("nothing_left")), "{refused}");
    let (_, dry) = send(&format!("{path}?dry_run=true"), &only);
    let told = |effects: &Value| (effects[0]["nothing_left"].clone(), effects[0]["excluded"][0]["channel"].clone());
    assert_eq!(told(&dry["effects"]), (json!(true), json!("c2")), "{dry}");
    let plan = applied_dry(&gate, &catalog.replace("[\"c1\", \"c2\"]", "[\"c2\"]"));
    assert_eq!(told(&plan["excluded_by_price"]), (json!(true), json!("c2")), "{plan}");
    let (status, changed) = send(path, &json!({"channels": ["c1"]}));
    assert_eq!((status, &changed["effects"]), (200, &json!([])), "{changed}");
}

#[test]
fn replay_draws_alike_in_every_run_and_as_it_was() {
    let upstream = Upstream::start();
    let other = support::channel("other", "openai", &upstream.openai(), "chat-model", "cooling = false");
    let catalog = support::channel("chat", "openai", &upstream.openai(), "chat-model", "cooling = false")
        + &other
        + &support::prices(&["chat-model"])
        + &support::group(&["chat", "other"]);
    let gate = TestGateway::of(PROGRAM).catalog(&catalog).spawn();
    for number in 0..24 {
        let mut body = support::chat("chat-model");
        body["messages"][0]["content"] = format!("conversation {number}").into();
        assert_eq!(gate.chat(&body).status, 200);
    }
    let file = gate.data().join("catalog.toml").display().to_string();
    let replayed = || -> Value { serde_json::from_slice(&gate.run(&["replay", &file, "--json"]).stdout).unwrap() };
    let first = replayed();
    assert_eq!((&first["replayed"], &first["moved"]), (&json!(24), &json!(0)), "{first}");
    for _ in 0..3 {
        assert_eq!(replayed(), first, "another run");
    }
}
