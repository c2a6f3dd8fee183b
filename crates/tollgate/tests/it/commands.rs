//! Command line subcommands on the data folder of a running gateway.

use std::{
    process::{Command, Output},
    time::Duration,
};

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
fn key_made_by_command_works_at_once_and_until_revoked() {
    let gateway = support::echo();
    let made = json(&gateway.run(&["key", "create", "second", "--json"]));
    let key = made["key"].as_str().unwrap().to_owned();
    let call = || gateway.send(&Request::post("/v1/chat/completions", &support::chat("echo")).bearer(&key)).status;
    assert_eq!(call(), 200);
    assert!(made["id"].as_str().is_some_and(|id| id.starts_with("key_")), "{made}");
    let listed = json(&gateway.run(&["key", "list", "--json"]));
    assert!(!listed.to_string().contains(&key), "a key is shown once");
    assert!(listed["items"].as_array().unwrap().iter().any(|item| item["name"] == "second" && item["status"] == "active"));
    out(&gateway.run(&["key", "revoke", "second"]));
    let took = wait_for("a revoked key ends", Duration::from_secs(1), || call() == 401);
    println!("a revoked key ended after {took:?}");
}

#[test]
fn client_settings_name_the_address_of_the_running_gateway() {
    // The address is set by a flag that the command does not get.
    let gateway = support::echo();
    for (client, line) in [
        ("claude-code", "export ANTHROPIC_BASE_URL=http://ADDRESS\n"),
        ("codex", "# base_url = \"http://ADDRESS/v1\"\n"),
        ("openai", "export OPENAI_BASE_URL=http://ADDRESS/v1\n"),
        ("gemini", "export GOOGLE_GEMINI_BASE_URL=http://ADDRESS\n"),
    ] {
        let printed = out(&gateway.run(&["key", "create", client, "--print", client]));
        assert!(printed.contains(&line.replace("ADDRESS", &gateway.address().to_string())), "{printed}");
    }
}

#[test]
fn pulled_catalog_applies_without_changes() {
    let upstream = Upstream::start();
    let gateway = support::echo();
    let file = gateway.data().join("more.toml");
    let text = support::channel("more", "openai", &upstream.openai_url(), "more-model", "")
        .replace("{credential}", "secret-of-more")
        + &support::prices(&["more-model"]);
    std::fs::write(&file, text).unwrap();
    let said = out(&gateway.run(&["apply", file.to_str().unwrap(), "--yes"]));
    assert!(said.contains("more"), "{said}");
    let pulled = out(&gateway.run(&["pull"]));
    assert!(pulled.contains("more-model") && !pulled.contains("secret-of-more"), "{pulled}");
    let again = gateway.data().join("pulled.toml");
    std::fs::write(&again, &pulled).unwrap();
    let applied = json(&gateway.run(&["apply", again.to_str().unwrap(), "--yes", "--json"]));
    assert_eq!(applied["changes"], 0, "{applied}");
    assert_eq!(out(&gateway.run(&["pull"])), pulled);
}

#[test]
fn apply_without_terminal_requires_yes() {
    let gateway = support::echo();
    let file = gateway.data().join("more.toml");
    std::fs::write(&file, "[[model]]\nname = \"x\"\nprice = { input = \"1\" }\n").unwrap();
    let output = gateway.run(&["apply", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--yes"));
    assert!(!out(&gateway.run(&["pull"])).contains("\"x\""));
}

#[test]
fn channel_can_be_disabled_and_enabled_while_serving() {
    let gateway = support::echo();
    let call = || gateway.chat(&support::chat("echo"));
    assert_eq!(call().status, 200);
    out(&gateway.run(&["channel", "disable", "echo"]));
    let wait_for = |status: u16| {
        let mut answer = call();
        wait_for(&format!("it answers {status}"), Duration::from_secs(1), || {
            answer = call();
            answer.status == status
        });
        answer
    };
    let refused = wait_for(503);
    assert_eq!(refused.header("x-tollgate-cause"), Some("disabled"));
    let explained = json(&gateway.run(&["explain", "--model", "echo", "--key", "first", "--json"]));
    assert_eq!(explained["excluded"][0]["code"], "disabled", "{explained}");
    out(&gateway.run(&["channel", "enable", "echo"]));
    wait_for(200);
}

#[test]
fn explain_lists_candidates_in_order_and_reasons_for_exclusions() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    let explained = json(&gateway.run(&["explain", "--model", "chat-model", "--key", "caller", "--json"]));
    assert_eq!(explained["planned"][0]["channel"], "chat", "{explained}");
    assert_eq!(explained["planned"][0]["account"], "chat-account");
    let text = out(&gateway.run(&["explain", "--model", "chat-model", "--key", "caller"]));
    assert!(text.contains("chat-account"), "{text}");
    let gateway = support::builder(&upstream, "status = \"off\"").spawn();
    let explained = json(&gateway.run(&["explain", "--model", "chat-model", "--key", "caller", "--json"]));
    assert_eq!(explained["refusal"]["error"], "E40", "{explained}");
    assert_eq!(
        (&explained["excluded"][0]["code"], &explained["excluded"][0]["remedy"]),
        (&"disabled".into(), &"switch it on".into())
    );
    let output = gateway.run(&["explain", "--model", "chat-model", "--key", "unknown"]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn explain_includes_learned_latency_and_concurrency_of_the_running_gateway() {
    let upstream = Upstream::start();
    let catalog =
        support::catalog(&upstream, "cooling = false").replace("name = \"chat-account\"", "name = \"chat-account\"\nrpm = 3");
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    let refusal = value!({"error": {"message": "Unsupported parameter: 'logit_bias' is not supported with this model.",
        "type": "invalid_request_error", "param": "logit_bias", "code": "unsupported_parameter"}});
    for _ in 0..3 {
        upstream.enqueue(ScriptedResponse::error(400, &refusal));
        let mut body = support::chat("chat-model");
        body["logit_bias"] = value!({});
        assert_eq!(gateway.chat(&body).status, 400);
    }
    let explain = |more: &[&str]| {
        let arguments = ["explain", "--model", "chat-model", "--key", "caller", "--json"];
        json(&gateway.run(&[&arguments, more].concat()))
    };
    let mut explained = Value::Null;
    wait_for("explain knows what the gateway learned", Duration::from_secs(2), || {
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
fn apply_previews_what_a_new_price_limit_excludes() {
    let upstream = Upstream::start();
    let gateway = TestGateway::builder(PROGRAM).spawn();
    let file = gateway.data().join("catalog-to-apply.toml");
    let catalog = support::catalog(&upstream, "").replace("{key}", "a-secret-of-enough-characters").replace("{credential}", "c");
    std::fs::write(&file, &catalog).unwrap();
    let path = file.display().to_string();
    out(&gateway.run(&["apply", &path, "--yes"]));
    let limit = "name = \"default\"\nprice_limit = { mode = \"ceiling\", max_input = \"0.5\", on = \"cost\" }";
    std::fs::write(&file, catalog.replace("name = \"default\"", limit)).unwrap();
    let before = out(&gateway.run(&["pull"]));
    let text = out(&gateway.run(&["apply", &path, "--dry-run"]));
    for words in ["cost input 1.00 above the group's 0.50 USD per 1M tokens", "nothing is left: callers get 503 (E41 or E42)"] {
        assert!(text.contains(words), "{text}");
    }
    let said = json(&gateway.run(&["apply", &path, "--dry-run", "--json"]));
    let effect = &said["excluded_by_price"][0];
    assert_eq!(
        (&effect["subject"], &effect["model"], &effect["nothing_left"]),
        (&"group".into(), &"chat-model".into(), &true.into())
    );
    assert_eq!(effect["excluded"][0]["account"], "chat-account");
    assert!(said.get("revision").is_none(), "{said}");
    assert_eq!(out(&gateway.run(&["pull"])), before, "nothing was saved");
    let applied = json(&gateway.run(&["apply", &path, "--yes", "--json"]));
    assert!(applied["revision"].is_number(), "{applied}");
}

#[test]
fn replay_reports_effects_of_a_changed_file_and_writes_nothing() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    for _ in 0..5 {
        gateway.record_of(&gateway.chat(&support::chat("chat-model")));
    }
    let dearer = support::catalog(&upstream, "cooling = false")
        .replace("{key}", gateway.key())
        .replace("{credential}", "another")
        .replace("\"10\"", "\"30\"")
        .replace(
            "[[group]]\nname = \"default\"",
            "[[group]]\nname = \"default\"\nprice_limit = { mode = \"ceiling\", max_input = \"20\" }",
        );
    let file = gateway.data().join("changed.toml");
    std::fs::write(&file, dearer).unwrap();
    let file = file.display().to_string();
    let said = json(&gateway.run(&["replay", &file, "--json"]));
    assert_eq!(said["replayed"], 5, "{said}");
    assert_eq!(
        (&said["before"]["served"], &said["after"]["refused"], support::nano_usd(&said["after"]["sale"])),
        (&5.into(), &5.into(), 0)
    );
    assert_eq!(support::nano_usd(&said["before"]["sale"]), 5 * (5 * 10_000 + 7 * 20_000), "{said}");
    assert_eq!(said["moves"][0]["to"], "E41 price_limit");
    let text = out(&gateway.run(&["replay", &file]));
    assert!(text.contains("5 requests replayed, 5 of them change their target"), "{text}");
    assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200, "nothing was written");
    // A changed weight among many accounts moves only the conversations that it affects; here none.
    let many = |weight: &str| {
        let accounts =
            (0..8).map(|n| format!("[[channel.account]]\nname = \"more-{n}\"\ncredential = \"c\"\n")).collect::<String>();
        let text = support::catalog(&upstream, weight).replace("{key}", gateway.key()).replace("{credential}", "{}");
        text.replacen("[[channel.serves]]", &format!("{accounts}[[channel.serves]]"), 1).replace("\"{}\"", "\"c\"")
    };
    gateway.serve_catalog(&many(""));
    wait_for("the accounts are served", Duration::from_secs(10), || {
        gateway.send(&Request::get("/metrics")).text().contains("account=\"more-7\"")
    });
    let conversations = (0..20).map(|number| {
        let mut body = support::chat("chat-model");
        body["messages"][0]["content"] = format!("conversation {number}").into();
        gateway.chat(&body)
    });
    for answer in conversations.collect::<Vec<_>>() {
        assert_eq!(gateway.record_of(&answer)["outcome"], "completed");
    }
    let file = gateway.data().join("lighter.toml");
    std::fs::write(&file, many("weight = 7")).unwrap();
    let said = json(&gateway.run(&["replay", &file.display().to_string(), "--json"]));
    assert_eq!((&said["replayed"], &said["moved"]), (&26.into(), &0.into()), "{said}");
    let again = json(&gateway.run(&["replay", &file.display().to_string(), "--json"]));
    assert_eq!(again, said, "draws are deterministic");
    let unchanged = gateway.data().join("catalog.toml").display().to_string();
    let said = json(&gateway.run(&["replay", &unchanged, "--model", "chat-model", "--json"]));
    assert_eq!((&said["moved"], &said["changes"]), (&0.into(), &serde_json::json!([])), "{said}");
}

#[test]
fn channel_test_prints_each_step_and_the_upstream_error() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    upstream.enqueue(ScriptedResponse::chat("pong"));
    let said = out(&gateway.run(&["channel", "test", "chat"]));
    for step in ["DNS", "TCP", "HTTP", "first byte", "usage", "cost  0.000019 USD"] {
        assert!(said.contains(step), "no {step} in:\n{said}");
    }
    upstream.enqueue(ScriptedResponse::error(401, &serde_json::json!({"error": {"message": "this key is wrong"}})));
    let output = gateway.run(&["channel", "test", "chat"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("401") && said.contains("this key is wrong"), "{said}");
}

#[test]
fn folder_without_gateway_is_reported_and_unchanged() {
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
fn unknown_names_exit_with_1_and_a_hint() {
    let gateway = support::echo();
    for (verb, list) in [
        (&["key", "revoke", "unknown"][..], "key list"),
        (&["channel", "disable", "none"], "channel list"),
        (&["channel", "enable", "echo", "--account", "none"], "channel list"),
        (&["channel", "test", "none"], "channel list"),
    ] {
        let output = gateway.run(verb);
        assert_eq!(output.status.code(), Some(1), "{verb:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(list), "{verb:?}");
    }
}

#[test]
fn echo_channel_test_passes_without_network() {
    let said = out(&support::echo().run(&["channel", "test", "echo"]));
    assert!(said.contains("there is no upstream to test"), "{said}");
}

#[test]
fn usage_can_be_tailed_summed_and_exported() {
    let gateway = support::echo();
    for _ in 0..3 {
        assert_eq!(gateway.chat(&support::chat("echo")).status, 200);
    }
    assert_eq!(gateway.chat(&support::chat("none")).status, 404);
    let _ = gateway.wait_for_record("refusal", |record| record["reason"] == "E13");
    let csv = out(&gateway.run(&["usage", "export"]));
    assert!(csv.starts_with("id,at,outcome,reason,"), "{csv}");
    let columns: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
    for kind in ["input", "output", "cache_read", "cache_write", "cache_write_1h", "thinking", "image", "audio"] {
        assert!(columns.contains(&kind), "{kind} tokens are priced, so they are exported: {columns:?}");
    }
    assert_eq!(csv.lines().count(), 5, "{csv}");
    wait_for("every request is booked", Duration::from_secs(2), || {
        let summary = json(&gateway.run(&["usage", "summary", "--by", "outcome", "--json"]));
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
    let tail = out(&gateway.run(&["usage", "tail", "-n", "2"]));
    assert_eq!(tail.lines().count(), 3, "{tail}");
}

#[test]
fn check_prints_values_with_sources_and_masks_secrets() {
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
fn check_names_each_secret_whose_variable_is_not_set() {
    let output = Command::new(PROGRAM)
        .arg("check")
        .env_clear()
        .env("TOLLGATE_CONSOLE__URL", "https://gateway.example.com")
        .env("TOLLGATE_OIDC__ISSUER", "https://id.example.com")
        .env("TOLLGATE_OIDC__CLIENT_ID", "tollgate")
        .env("TOLLGATE_OIDC__CLIENT_SECRET", "env:NOPE")
        .current_dir(std::env::temp_dir())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("oidc.client_secret: the environment variable NOPE is not set"), "{said}");
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
fn invalid_command_line_exits_with_2() {
    let output = Command::new(PROGRAM).arg("srve").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("serve"), "the nearest verb is named");
}

#[test]
fn rows_of_a_served_file_are_read_only() {
    let upstream = Upstream::start();
    let gateway: TestGateway = support::gateway_for(&upstream);
    let output = gateway.run(&["channel", "disable", "chat"]);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("catalog file"));
}
