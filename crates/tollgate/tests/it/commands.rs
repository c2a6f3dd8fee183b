//! The verbs of the command line on a running gateway's folder.

use std::process::{Command, Output};

use serde_json::{Value, json as value};
use tollgate_testkit::{Request, ScriptedResponse, TestGateway, Upstream, wait_for};

use crate::support::{self, PROGRAM};

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&out(output)).expect("--json prints JSON")
}

#[test]
fn a_key_made_beside_the_running_gateway_works_at_once_and_ends_when_revoked() {
    let gate = support::echo();
    let made = json(&gate.run(&["key", "create", "second", "--json"]));
    let key = made["key"].as_str().unwrap().to_owned();
    let call = || gate.send(&Request::post("/v1/chat/completions", &support::chat("echo")).bearer(&key)).status;
    assert_eq!(call(), 200);
    assert!(made["id"].as_str().is_some_and(|id| id.starts_with("key_")), "{made}");
    let listed = json(&gate.run(&["key", "list", "--json"]));
    assert!(!listed.to_string().contains(&key), "a key is shown once");
    assert!(listed["items"].as_array().unwrap().iter().any(|item| item["name"] == "second" && item["status"] == "active"));
    out(&gate.run(&["key", "revoke", "second"]));
    let took = wait_for("a revoked key ends", std::time::Duration::from_secs(1), || call() == 401);
    println!("a revoked key ended after {took:?}");
}

#[test]
fn pull_gives_a_catalog_that_apply_finds_unchanged() {
    let upstream = Upstream::start();
    let gate = support::echo();
    let file = gate.data().join("more.toml");
    let text = support::channel("more", "openai", &upstream.openai(), "more-model", "").replace("{credential}", "secret-of-more")
        + &support::prices(&["more-model"]);
    std::fs::write(&file, text).unwrap();
    let said = out(&gate.run(&["apply", file.to_str().unwrap(), "--yes"]));
    assert!(said.contains("more"), "{said}");
    let pulled = out(&gate.run(&["pull"]));
    assert!(pulled.contains("more-model") && !pulled.contains("secret-of-more"), "{pulled}");
    let again = gate.data().join("pulled.toml");
    std::fs::write(&again, &pulled).unwrap();
    let applied = json(&gate.run(&["apply", again.to_str().unwrap(), "--yes", "--json"]));
    assert_eq!(applied["changes"], 0, "{applied}");
    assert_eq!(out(&gate.run(&["pull"])), pulled);
}

#[test]
fn apply_without_a_terminal_asks_for_yes_and_changes_nothing() {
    let gate = support::echo();
    let file = gate.data().join("more.toml");
    std::fs::write(&file, "[[model]]\nname = \"x\"\nprice = { input = \"1\" }\n").unwrap();
    let output = gate.run(&["apply", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--yes"));
    assert!(!out(&gate.run(&["pull"])).contains("\"x\""));
}

#[test]
fn a_channel_can_be_switched_off_and_on_while_serving() {
    let gate = support::echo();
    let call = || gate.chat(&support::chat("echo"));
    assert_eq!(call().status, 200);
    out(&gate.run(&["channel", "disable", "echo"]));
    let wait_for = |status: u16| {
        let mut answer = call();
        wait_for(&format!("it answers {status}"), std::time::Duration::from_secs(1), || {
            answer = call();
            answer.status == status
        });
        answer
    };
    let refused = wait_for(503);
    assert_eq!(refused.header("x-tollgate-cause"), Some("disabled"));
    let explained = json(&gate.run(&["explain", "--model", "echo", "--key", "first", "--json"]));
    assert_eq!(explained["excluded"][0]["code"], "disabled", "{explained}");
    out(&gate.run(&["channel", "enable", "echo"]));
    wait_for(200);
}

#[test]
fn explain_names_candidates_in_order_and_why_not_the_others() {
    let upstream = Upstream::start();
    let gate = support::before(&upstream);
    let explained = json(&gate.run(&["explain", "--model", "chat-model", "--key", "caller", "--json"]));
    assert_eq!(explained["planned"][0]["channel"], "chat", "{explained}");
    assert_eq!(explained["planned"][0]["account"], "chat-account");
    let people = out(&gate.run(&["explain", "--model", "chat-model", "--key", "caller"]));
    assert!(people.contains("chat-account"), "{people}");
    let gate = support::builder(&upstream, "status = \"off\"").spawn();
    let explained = json(&gate.run(&["explain", "--model", "chat-model", "--key", "caller", "--json"]));
    assert_eq!(explained["refusal"]["error"], "E40", "{explained}");
    assert_eq!(
        (&explained["excluded"][0]["code"], &explained["excluded"][0]["remedy"]),
        (&"disabled".into(), &"switch it on".into())
    );
    let output = gate.run(&["explain", "--model", "chat-model", "--key", "nobody"]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn explain_knows_what_the_running_gateway_learned_and_who_is_busy() {
    let upstream = Upstream::start();
    let catalog =
        support::catalog(&upstream, "cooling = false").replace("name = \"chat-account\"", "name = \"chat-account\"\nrpm = 3");
    let gate = TestGateway::of(PROGRAM).catalog(&catalog).spawn();
    let refusal = value!({"error": {"message": "Unsupported parameter: 'logit_bias' is not supported with this model.",
        "type": "invalid_request_error", "param": "logit_bias", "code": "unsupported_parameter"}});
    for _ in 0..3 {
        upstream.next(ScriptedResponse::error(400, &refusal));
        let mut body = support::chat("chat-model");
        body["logit_bias"] = value!({});
        assert_eq!(gate.chat(&body).status, 400);
    }
    let explain = |more: &[&str]| {
        let arguments = ["explain", "--model", "chat-model", "--key", "caller", "--json"];
        json(&gate.run(&[&arguments, more].concat()))
    };
    let mut explained = Value::Null;
    wait_for("explain knows what the gateway learned", std::time::Duration::from_secs(2), || {
        explained = explain(&[]);
        explained["excluded"][0]["code"] == "rate"
    });
    assert_eq!(explained["learned"][0]["field"], "logit_bias", "{explained}");
    assert_eq!((&explained["refusal"]["error"], &explained["refusal"]["retryable"]), (&"E40".into(), &true.into()));
    let explained = explain(&["--field", "logit_bias"]);
    assert_eq!((&explained["refusal"]["error"], &explained["excluded"][0]["code"]), (&"E17".into(), &"capability".into()));
    let explained = explain(&["--max-price", "input=5"]);
    assert_eq!((&explained["refusal"]["error"], &explained["refusal"]["cause"]), (&"E41".into(), &"price_limit".into()));
    assert_eq!(explained["refusal"]["retryable"], false);
}

#[test]
fn apply_says_whom_a_new_price_limit_prices_out_before_anything_is_saved() {
    let upstream = Upstream::start();
    let gate = TestGateway::of(PROGRAM).spawn();
    let file = gate.data().join("catalog-to-apply.toml");
    let catalog = support::catalog(&upstream, "").replace("{key}", "a-secret-of-enough-characters").replace("{credential}", "c");
    std::fs::write(&file, &catalog).unwrap();
    let path = file.display().to_string();
    out(&gate.run(&["apply", &path, "--yes"]));
    let limit = "name = \"default\"\nprice_limit = { mode = \"ceiling\", max_input = \"0.5\", on = \"cost\" }";
    std::fs::write(&file, catalog.replace("name = \"default\"", limit)).unwrap();
    let before = out(&gate.run(&["pull"]));
    let people = out(&gate.run(&["apply", &path, "--dry-run"]));
    for words in ["cost input 1.00 above the group's 0.50 USD per 1M tokens", "nothing is left: callers get 503 (E41)"] {
        assert!(people.contains(words), "{people}");
    }
    let said = json(&gate.run(&["apply", &path, "--dry-run", "--json"]));
    let effect = &said["excluded_by_price"][0];
    assert_eq!(
        (&effect["subject"], &effect["model"], &effect["nothing_left"]),
        (&"group".into(), &"chat-model".into(), &true.into())
    );
    assert_eq!(effect["excluded"][0]["account"], "chat-account");
    assert!(said.get("revision").is_none(), "{said}");
    assert_eq!(out(&gate.run(&["pull"])), before, "nothing was saved");
    let applied = json(&gate.run(&["apply", &path, "--yes", "--json"]));
    assert!(applied["revision"].is_number(), "{applied}");
}

#[test]
fn replay_says_what_a_changed_file_would_have_done_and_writes_nothing() {
    let upstream = Upstream::start();
    let gate = support::before(&upstream);
    for _ in 0..5 {
        assert_eq!(gate.chat(&support::chat("chat-model")).status, 200);
    }
    let dearer = support::catalog(&upstream, "cooling = false")
        .replace("{key}", gate.key())
        .replace("{credential}", "another")
        .replace("\"10\"", "\"30\"")
        .replace(
            "[[group]]\nname = \"default\"",
            "[[group]]\nname = \"default\"\nprice_limit = { mode = \"ceiling\", max_input = \"20\" }",
        );
    let file = gate.data().join("changed.toml");
    std::fs::write(&file, dearer).unwrap();
    let file = file.display().to_string();
    let said = json(&gate.run(&["replay", &file, "--json"]));
    assert_eq!(said["replayed"], 5, "{said}");
    assert_eq!(
        (&said["before"]["served"], &said["after"]["refused"], &said["after"]["sale_nano_usd"]),
        (&5.into(), &5.into(), &0.into())
    );
    assert_eq!(said["before"]["sale_nano_usd"], 5 * (5 * 10_000 + 7 * 20_000), "{said}");
    assert_eq!(said["moves"][0]["to"], "E41 price_limit");
    let people = out(&gate.run(&["replay", &file]));
    assert!(people.contains("5 requests replayed, 5 of them end elsewhere"), "{people}");
    assert_eq!(gate.chat(&support::chat("chat-model")).status, 200, "nothing was written");
    // With many accounts nobody moves who need not: conversations stay where they would have been.
    let many = |weight: &str| {
        let accounts =
            (0..8).map(|n| format!("[[channel.account]]\nname = \"more-{n}\"\ncredential = \"c\"\n")).collect::<String>();
        let text = support::catalog(&upstream, weight).replace("{key}", gate.key()).replace("{credential}", "{}");
        text.replacen("[[channel.serves]]", &format!("{accounts}[[channel.serves]]"), 1).replace("\"{}\"", "\"c\"")
    };
    gate.serve_catalog(&many(""));
    for number in 0..20 {
        let mut body = support::chat("chat-model");
        body["messages"][0]["content"] = format!("conversation {number}").into();
        assert_eq!(gate.chat(&body).status, 200);
    }
    let file = gate.data().join("lighter.toml");
    std::fs::write(&file, many("weight = 7")).unwrap();
    let said = json(&gate.run(&["replay", &file.display().to_string(), "--json"]));
    assert_eq!((&said["replayed"], &said["moved"]), (&26.into(), &0.into()), "{said}");
    let again = json(&gate.run(&["replay", &file.display().to_string(), "--json"]));
    assert_eq!(again, said, "another run draws alike");
    let unchanged = gate.data().join("catalog.toml").display().to_string();
    let said = json(&gate.run(&["replay", &unchanged, "--model", "chat-model", "--json"]));
    assert_eq!((&said["moved"], &said["changes"]), (&0.into(), &serde_json::json!([])), "{said}");
}

#[test]
fn channel_test_shows_each_step_and_fails_with_the_upstreams_words() {
    let upstream = Upstream::start();
    let gate = support::before(&upstream);
    let said = out(&gate.run(&["channel", "test", "chat"]));
    for step in ["DNS", "TCP", "HTTP", "first byte", "usage"] {
        assert!(said.contains(step), "no {step} in:\n{said}");
    }
    upstream.next(ScriptedResponse::error(401, &serde_json::json!({"error": {"message": "this key is wrong"}})));
    let output = gate.run(&["channel", "test", "chat"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("401") && said.contains("this key is wrong"), "{said}");
}

#[test]
fn a_folder_without_a_gateway_is_named_and_left_as_it_is() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("no-such-folder");
    for verb in [&["key", "list"][..], &["usage", "tail"], &["channel", "list"], &["pull"], &["model", "list"]] {
        let output = Command::new(PROGRAM).args(verb).arg("--data").arg(&folder).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{verb:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("no-such-folder") && said.contains("--data"), "{verb:?}: {said}");
        assert!(!folder.exists(), "{verb:?} made the folder");
    }
}

#[test]
fn names_that_do_not_exist_end_with_1_and_say_where_to_look() {
    let gate = support::echo();
    for (verb, list) in [
        (&["key", "revoke", "nobody"][..], "key list"),
        (&["channel", "disable", "none"], "channel list"),
        (&["channel", "enable", "echo", "--account", "none"], "channel list"),
        (&["channel", "test", "none"], "channel list"),
    ] {
        let output = gate.run(verb);
        assert_eq!(output.status.code(), Some(1), "{verb:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(list), "{verb:?}");
    }
}

#[test]
fn testing_the_echo_channel_passes_without_reaching_anything() {
    let said = out(&support::echo().run(&["channel", "test", "echo"]));
    assert!(said.contains("nothing to reach"), "{said}");
}

#[test]
fn usage_can_be_tailed_summed_and_exported() {
    let gate = support::echo();
    for _ in 0..3 {
        assert_eq!(gate.chat(&support::chat("echo")).status, 200);
    }
    assert_eq!(gate.chat(&support::chat("none")).status, 404);
    let _ = gate.wait_for_record("refusal", |record| record["reason"] == "E13");
    let csv = out(&gate.run(&["usage", "export"]));
    assert!(csv.starts_with("id,at,outcome,reason,"), "{csv}");
    let columns: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    for kind in ["input", "output", "cache_read", "cache_write", "thinking", "image", "audio"] {
        assert!(columns.contains(&kind), "{kind} tokens are priced, so they are exported: {columns:?}");
    }
    assert_eq!(csv.lines().count(), 5, "{csv}");
    wait_for("every request is booked", std::time::Duration::from_secs(2), || {
        let summary = json(&gate.run(&["usage", "summary", "--by", "outcome", "--json"]));
        let of = |word: &str| {
            summary["items"]
                .as_array()
                .unwrap()
                .iter()
                .find(|item| item["of"] == word)
                .map_or(0, |item| item["requests"].as_u64().unwrap())
        };
        of("completed") == 3 && of("refused") == 1
    });
    let tail = out(&gate.run(&["usage", "tail", "-n", "2"]));
    assert_eq!(tail.lines().count(), 3, "{tail}");
}

#[test]
fn check_shows_values_with_their_sources_and_masks_secrets() {
    let output = Command::new(PROGRAM)
        .args(["check", "--json"])
        .env_clear()
        .env("DATABASE_URL", "postgres://u:hidden@localhost/db")
        .env("TOLLGATE_SERVER__LISTEN", "127.0.0.1:9999")
        .current_dir(std::env::temp_dir())
        .output()
        .unwrap();
    let shown = json(&output);
    assert_eq!(shown["settings"]["server.listen"]["value"], "127.0.0.1:9999");
    assert_eq!(shown["settings"]["server.listen"]["source"], "environment (TOLLGATE_SERVER__LISTEN)");
    assert!(!shown.to_string().contains("hidden"));
}

#[test]
fn version_manual_and_completions_are_printed() {
    let run = |arguments: &[&str]| out(&Command::new(PROGRAM).args(arguments).output().unwrap());
    assert_eq!(run(&["version"]).trim(), concat!("tollgate ", env!("CARGO_PKG_VERSION")));
    assert!(run(&["man"]).contains(".TH"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(&["completions", shell]).contains("tollgate"), "{shell}");
    }
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    let output = Command::new(PROGRAM).arg("srve").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("serve"), "the nearest verb is named");
}

#[test]
fn rows_of_a_served_file_cannot_be_changed_by_hand() {
    let upstream = Upstream::start();
    let gate: TestGateway = support::before(&upstream);
    let output = gate.run(&["channel", "disable", "chat"]);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("catalog file"));
}
