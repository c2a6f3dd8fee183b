//! Whom a price limit excludes is shown before it is saved, on the command line and by the admin API.

use serde_json::{Value, json};
use tollgate_testkit::{Gate, Request, Upstream};

use crate::{
    admin,
    support::{self, PROGRAM},
};

/// A gate whose rows are the database's, so that they can be changed: `chat-model` on a channel that costs 1 USD per
/// million tokens of input.
fn gate(upstream: &Upstream) -> Gate {
    let gate = Gate::of(PROGRAM).spawn();
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

#[test]
fn replay_draws_alike_in_every_run_and_as_it_was() {
    let upstream = Upstream::start();
    let other = support::channel("other", "openai", &upstream.openai(), "chat-model", "cooling = false");
    let catalog = support::channel("chat", "openai", &upstream.openai(), "chat-model", "cooling = false")
        + &other
        + &support::prices(&["chat-model"])
        + &support::group(&["chat", "other"]);
    let gate = Gate::of(PROGRAM).catalog(&catalog).spawn();
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
