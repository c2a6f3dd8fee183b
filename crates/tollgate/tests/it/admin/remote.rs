//! Command line subcommands against a running gateway (`--url`): same output, errors and exit codes as on its data folder,
//! and the admin key is never printed.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    process::{Command, Output},
    thread,
};

use serde_json::{Value, json};
use tollgate_testkit::{ScriptedResponse, TestGateway, Upstream};

use super::{make_key, within_a_second};
use crate::support::{self, PROGRAM};

/// A gateway that commands use both through its data folder and through its URL.
struct LocalAndRemote {
    process: TestGateway,
    key: String,
    /// Working directory of commands that use the URL.
    working_folder: tempfile::TempDir,
}

fn run_at(folder: &tempfile::TempDir, url: &str, key: &str, arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("TOLLGATE_ADMIN_KEY", key)
        .args(["--url", url])
        .args(arguments)
        .current_dir(folder.path())
        .stdin(std::process::Stdio::null())
        .output()
        .expect("the executable starts")
}

fn exit_and_output(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn success_output(output: &Output) -> String {
    let (code, out, err) = exit_and_output(output);
    assert_eq!(code, Some(0), "{out}{err}");
    out
}

impl LocalAndRemote {
    fn of(gateway: TestGateway) -> Self {
        let key = make_key(&gateway, "root", "admin");
        Self { process: gateway, key, working_folder: tempfile::tempdir().unwrap() }
    }

    fn local(&self, arguments: &[&str]) -> Output {
        self.process.run(arguments)
    }

    fn remote(&self, arguments: &[&str]) -> Output {
        self.remote_with_key(&self.key, arguments)
    }

    fn remote_with_key(&self, key: &str, arguments: &[&str]) -> Output {
        let output = run_at(&self.working_folder, &format!("http://{}", self.process.address()), key, arguments);
        let (_, out, err) = exit_and_output(&output);
        assert!(!out.contains(key) && !err.contains(key), "the admin key was printed: {out}{err}");
        output
    }

    /// Exit code and output, which must be the same locally and remotely.
    fn same_result(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let (local, remote) = (exit_and_output(&self.local(arguments)), exit_and_output(&self.remote(arguments)));
        assert_eq!(local, remote, "{arguments:?}");
        local
    }

    fn same_success(&self, arguments: &[&str]) -> String {
        let (code, out, err) = self.same_result(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {err}");
        out
    }
}

fn in_front_of(upstream: &Upstream) -> LocalAndRemote {
    upstream.set_default(ScriptedResponse::chat("hello"));
    let gateway = TestGateway::builder(PROGRAM).spawn();
    let file = gateway.data().join("all.toml");
    let catalog = support::catalog(upstream, "").replace("{key}", "a-secret-of-enough-characters").replace("{credential}", "c");
    std::fs::write(&file, catalog).unwrap();
    success_output(&gateway.run(&["apply", file.to_str().unwrap(), "--yes"]));
    LocalAndRemote::of(gateway)
}

#[test]
fn queries_print_the_same_locally_and_remotely() {
    let upstream = Upstream::start();
    let gateway = in_front_of(&upstream);
    success_output(&gateway.local(&["group", "set", "default", "budget=5/day"]));
    // A first start's key is for the echo channel alone, until an operator changes that.
    success_output(&gateway.local(&["key", "set", "first", "groups=default", "models=*"]));
    let models = || gateway.process.send(&tollgate_testkit::Request::get("/v1/models").bearer(gateway.process.key()));
    within_a_second("what was applied is served", || super::text(&models()).contains("chat-model"));
    for _ in 0..3 {
        assert_eq!(gateway.process.chat(&support::chat("chat-model")).status, 200);
    }
    assert_eq!(gateway.process.chat(&support::chat("none")).status, 404);
    success_output(&gateway.local(&["ledger", "top-up", "owner", "5", "--note", "first"]));
    let summary = || {
        serde_json::from_str::<Value>(&success_output(&gateway.remote(&["usage", "summary", "--by", "nothing", "--json"]))).unwrap()
    };
    within_a_second("all is booked", || summary()["items"][0]["requests"] == 4);
    let since = "2026-01-01T00:00:00Z";
    let verbs: Vec<Vec<&str>> = vec![
        vec!["key", "list"],
        vec!["key", "show", "first"],
        vec!["admin-key", "list"],
        vec!["channel", "list"],
        vec!["channel", "show", "chat"],
        vec!["account", "list", "chat"],
        vec!["account", "show", "chat", "chat-account"],
        vec!["model", "list"],
        vec!["model", "show", "chat-model"],
        vec!["group", "list"],
        vec!["group", "show", "default"],
        vec!["member", "list"],
        vec!["member", "show", "owner"],
        vec!["budget", "list"],
        vec!["audit", "-n", "5"],
        vec!["ledger", "list"],
        vec!["ledger", "list", "--kind", "top_up", "--member", "owner"],
        vec!["ledger", "balances"],
        vec!["usage", "tail", "-n", "2"],
        vec!["usage", "summary"],
        vec!["usage", "summary", "--by", "group", "--since", since],
        vec!["usage", "summary", "--by", "member", "--member", "owner"],
        vec!["usage", "export"],
        vec!["usage", "export", "--outcome", "refused", "--key", "first"],
        vec!["pull"],
    ];
    for verb in &verbs {
        let text = gateway.same_success(verb);
        assert!(text.lines().count() > 1, "{verb:?}: {text}");
        let lines = gateway.same_success(&[&verb[..], &["--json"]].concat());
        assert!(lines.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{verb:?}: {lines}");
    }
    // Locally, counters come from the database, and the output says so.
    let explain = ["explain", "--model", "chat-model", "--key", "caller"];
    for (more, counted) in [(&[][..], "  {}\n"), (&["--json"], "\"counted_by\":\"{}\"")] {
        let arguments = [&explain[..], more].concat();
        let (local, remote) = (success_output(&gateway.local(&arguments)), success_output(&gateway.remote(&arguments)));
        let by = |who: &str| counted.replace("{}", who);
        assert!(local.contains(&by("database")) && remote.contains(&by("gateway")), "{local}{remote}");
        assert_eq!(local.replace(&by("database"), &by("gateway")), remote);
    }
    let last: Value = serde_json::from_str(&success_output(&gateway.remote(&["usage", "tail", "-n", "1", "--json"]))).unwrap();
    let hour = format!("{}:00:00Z", &last["at"].as_str().unwrap()[..13]);
    let by_hour = gateway.same_success(&["usage", "summary", "--by", "hour", "--since", &hour]);
    assert!(by_hour.contains(&hour), "{by_hour}");
}

#[test]
fn changes_have_the_same_effect_locally_and_remotely() {
    let upstream = Upstream::start();
    let gateway = in_front_of(&upstream);
    let steps: &[&[&str]] = &[
        &["group", "add", "NAME", "sale_multiplier=1.5", "channels=chat,echo", "rpm=60"],
        &["group", "set", "NAME", "visibility=private", "rpm=0"],
        &["member", "add", "NAME", "default_group=NAME", "groups=NAME", "billing=prepaid"],
        &["member", "set", "NAME", "tpm=1000"],
        &["model", "add", "NAME", "price=input:1"],
        &["model", "set", "NAME", "description=a model", "visible=false"],
        &["channel", "add", "NAME", "provider=openai", "serves=[{\"model\":\"NAME\"}]"],
        &["channel", "set", "NAME", "priority=3"],
        &["account", "add", "NAME", "NAME-1", "credential=env:PATH", "rpm=5"],
        &["account", "set", "NAME", "NAME-1", "cost_multiplier=0.5"],
        &["channel", "disable", "NAME", "--account", "NAME-1"],
        &["channel", "disable", "NAME"],
        &["channel", "enable", "NAME"],
        &["ledger", "top-up", "NAME", "12.5", "--note", "n", "--idempotency-key", "top-NAME"],
        &["ledger", "top-up", "NAME", "12.5", "--note", "n", "--idempotency-key", "top-NAME"],
        &["ledger", "adjust", "NAME", "-2"],
    ];
    let place = |verb: &[&str], name: &str| verb.iter().map(|word| word.replace("NAME", name)).collect::<Vec<_>>();
    for step in steps {
        let words = |name: &str, exit_and_output: (Option<i32>, String, String)| {
            (exit_and_output.0, exit_and_output.1.replace(name, "NAME"), exit_and_output.2)
        };
        let (one, two) = (place(step, "row-one"), place(step, "row-two"));
        let local = words("row-one", exit_and_output(&gateway.local(&one.iter().map(String::as_str).collect::<Vec<_>>())));
        let remote = words("row-two", exit_and_output(&gateway.remote(&two.iter().map(String::as_str).collect::<Vec<_>>())));
        assert_eq!(local, remote, "{step:?}");
        assert_eq!(local.0, Some(0), "{step:?}: {}", local.2);
    }
    for kind in ["group", "member", "model", "channel"] {
        let row = |name: &str| {
            let row: Value =
                serde_json::from_str(&success_output(&gateway.remote(&[kind, "show", name, "--json"])).replace(name, "NAME"))
                    .unwrap();
            let members = row.as_object().unwrap().clone().into_iter();
            members
                .filter(|(name, _)| !["id", "created_at", "revision"].contains(&name.as_str()))
                .collect::<serde_json::Map<_, _>>()
        };
        assert_eq!(row("row-one"), row("row-two"), "{kind}");
    }
    let audit = success_output(&gateway.local(&["audit", "-n", "1000", "--json"]));
    assert!(audit.contains("\"actor\":\"command line\"") && audit.contains("\"actor\":\"root (adm_"), "{audit}");
    for kind in ["channel", "model", "member", "group"] {
        success_output(&gateway.remote(&[kind, "remove", "row-two"]));
        success_output(&gateway.local(&[kind, "remove", "row-one"]));
    }
}

#[test]
fn remotely_made_keys_work_until_revoked() {
    let gateway = LocalAndRemote::of(support::echo());
    let made: Value = serde_json::from_str(&success_output(&gateway.remote(&["key", "create", "second", "--json"]))).unwrap();
    let key = made["key"].as_str().unwrap().to_owned();
    let call = || {
        gateway.process.send(&tollgate_testkit::Request::post("/v1/chat/completions", &support::chat("echo")).bearer(&key)).status
    };
    within_a_second("the key works", || call() == 200);
    assert_eq!(success_output(&gateway.remote(&["key", "set", "second", "rpm=5"])).trim(), "changed key second");
    let revoked = success_output(&gateway.remote(&["key", "revoke", "second"]));
    assert!(revoked.starts_with("revoked second (sk-tg-"), "{revoked}");
    within_a_second("the key ends", || call() == 401);
    let plain = success_output(&gateway.remote(&["key", "create", "third", "--env"]));
    assert!(plain.starts_with("export OPENAI_API_KEY=sk-tg-"), "{plain}");
    let operator: Value =
        serde_json::from_str(&success_output(&gateway.remote(&["admin-key", "create", "ops", "--scope", "operator", "--json"])))
            .unwrap();
    let operator = operator["key"].as_str().unwrap();
    assert!(success_output(&gateway.remote_with_key(operator, &["group", "list"])).contains("default"));
    let (code, _, err) = exit_and_output(&gateway.remote_with_key(operator, &["ledger", "balances"]));
    assert!(code == Some(3) && err.contains("scope 'admin'"), "{err}");
    success_output(&gateway.remote(&["admin-key", "revoke", "ops"]));
    let (code, _, err) = exit_and_output(&gateway.remote_with_key(operator, &["group", "list"]));
    assert!(code == Some(3) && err.contains("TOLLGATE_ADMIN_KEY"), "{err}");
}

#[test]
fn remote_apply_sends_secrets_of_the_local_machine() {
    let upstream = Upstream::start();
    let gateway = LocalAndRemote::of(support::echo());
    std::fs::write(gateway.working_folder.path().join("credential"), "a-credential-from-a-file\n").unwrap();
    let text = support::channel("more", "openai", &upstream.openai_url(), "more-model", "")
        .replace("{credential}", "file:credential")
        + &support::prices(&["more-model"]);
    std::fs::write(gateway.working_folder.path().join("more.toml"), &text).unwrap();
    let (code, out, err) = exit_and_output(&gateway.remote(&["apply", "more.toml"]));
    assert_eq!(code, Some(2), "{err}");
    assert!(out.contains("+ channel more") && err.contains("--yes"), "{out}{err}");
    let plan = success_output(&gateway.remote(&["apply", "more.toml", "--dry-run"]));
    let local = gateway.process.data().join("more.toml");
    std::fs::write(&local, text.replace("file:credential", "another")).unwrap();
    assert_eq!(success_output(&gateway.local(&["apply", local.to_str().unwrap(), "--dry-run"])), plan);
    assert!(success_output(&gateway.remote(&["apply", "more.toml", "--yes"])).contains("applied; the catalog is at revision"));
    assert_eq!(success_output(&gateway.remote(&["apply", "more.toml", "--yes", "--json"])).trim(), r#"{"changes":0,"lines":[]}"#);
    upstream.set_default(ScriptedResponse::chat("hello"));
    let tested = success_output(&gateway.remote(&["channel", "test", "more"]));
    for step in ["more/more-account with more-model", "DNS", "TCP", "HTTP", "first byte", "usage"] {
        assert!(tested.contains(step), "no {step} in:\n{tested}");
    }
    assert!(upstream.received().iter().any(|it| it.header("authorization") == Some("Bearer a-credential-from-a-file")));
    let line: Value = serde_json::from_str(&success_output(&gateway.remote(&["channel", "test", "more", "--json"]))).unwrap();
    assert_eq!((&line["tokens_output"], &line["cost"]), (&json!(7), &json!("0.000019")), "{line}");
    upstream.enqueue(ScriptedResponse::error(401, &json!({"error": {"message": "this key is wrong"}})));
    let (code, out, _) = exit_and_output(&gateway.remote(&["channel", "test", "more", "--json"]));
    let line: Value = serde_json::from_str(&out).unwrap();
    assert!(code == Some(1) && line["error"].as_str().unwrap().contains("this key is wrong"), "{out}");
    assert_eq!(gateway.same_result(&["channel", "test", "echo"]).0, Some(0));
}

#[test]
fn errors_have_the_same_text_and_exit_code_locally_and_remotely() {
    let gateway = LocalAndRemote::of(support::echo());
    std::fs::write(gateway.working_folder.path().join("wrong.toml"), "[[group]]\nname = \"g\"\nchannels = [\"unknown\"]\n")
        .unwrap();
    let wrong = gateway.working_folder.path().join("wrong.toml").display().to_string();
    let broken = gateway.working_folder.path().join("broken.toml").display().to_string();
    std::fs::write(&broken, "[[group]]\nname = 7\n[[model]\n").unwrap();
    for (verb, exit, words) in [
        (&["key", "revoke", "unknown"][..], 1, "tollgate key list"),
        (&["admin-key", "revoke", "unknown"], 1, "tollgate admin-key list"),
        (&["channel", "disable", "none"], 1, "tollgate channel list"),
        (&["channel", "enable", "echo", "--account", "none"], 1, "tollgate channel list"),
        (&["channel", "test", "none"], 1, "tollgate channel list"),
        (&["account", "list", "none"], 1, "tollgate channel list"),
        (&["group", "show", "none"], 1, "tollgate group list"),
        (&["group", "remove", "none"], 1, "tollgate group list"),
        (&["member", "show", "a/b ü"], 1, "tollgate member list"),
        (&["ledger", "top-up", "unknown", "1"], 1, "tollgate member list"),
        (&["explain", "--model", "echo", "--key", "unknown"], 1, "tollgate key list"),
        (&["usage", "tail", "--key", "unknown"], 1, "tollgate key list"),
        (&["key", "create", "first"], 1, "already"),
        (&["key", "create", "new", "--group", "none"], 3, "none"),
        (&["group", "set", "default", "rpm=-1"], 3, "a whole number of 0 to"),
        (&["group", "set", "default", "channels=unknown"], 3, "unknown"),
        (&["member", "add", "x", "role=king"], 3, "one of"),
        (&["group", "set", "default", "rpms=1"], 2, "Did you mean 'rpm'"),
        (&["group", "set", "default"], 2, "nothing to change"),
        (&["group", "add", "g", "name=h"], 2, "name"),
        (&["ledger", "top-up", "owner", "0"], 3, "amount"),
        (&["ledger", "top-up", "owner", "much"], 2, "much"),
        (&["ledger", "list", "--kind", "gift"], 2, "top_up"),
        (&["usage", "tail", "--since", "yesterday"], 2, "--since"),
        (&["usage", "summary", "--by", "hour"], 2, "--since"),
        (&["usage", "summary", "--by", "hour", "--since", "2025-01-01T00:00:00Z"], 3, "31 days"),
        (&["usage", "export", "--outcome", "well"], 2, "gateway_stopped"),
        (&["apply", &wrong, "--yes"], 3, "wrong.toml:3:"),
        (&["apply", &broken, "--yes"], 3, "broken.toml:3:"),
    ] {
        let (code, out, err) = gateway.same_result(verb);
        assert_eq!(code, Some(exit), "{verb:?}: {out}{err}");
        assert!(err.contains(words), "{verb:?}: {err}");
    }
    let (code, _, err) = exit_and_output(&gateway.remote(&["audit", "--kind", "king"]));
    assert!(code == Some(3) && err.contains("admin_key"), "{err}");
}

#[test]
fn unreachable_gateway_exits_with_4_and_refused_key_with_3() {
    let gateway = LocalAndRemote::of(support::echo());
    let folder = &gateway.working_folder;
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let url = format!("http://{}", gateway.process.address());
    for (url, key, exit, words) in [
        (closed.as_str(), "tga-some-key", 4, "check that it runs"),
        (&url, "tga-some-key", 3, "The admin key is not valid"),
        (&url, "", 3, "no admin key was given"),
        (&url, "env:NO_SUCH_NAME_HERE", 3, "NO_SUCH_NAME_HERE"),
        (&format!("{url}/other"), "tga-some-key", 4, "not the admin API"),
        ("gateway.example.com", "tga-some-key", 2, "--url"),
    ] {
        let (code, _, err) = exit_and_output(&run_at(folder, url, key, &["group", "list"]));
        assert_eq!(code, Some(exit), "{url}: {err}");
        assert!(err.contains(words) && !err.contains("some-key"), "{url}: {err}");
    }
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("no gateway"));
    let (code, _, err) = exit_and_output(&run_at(folder, &upstream.openai_url(), &gateway.key, &["group", "list"]));
    assert!(code == Some(4) && err.contains("not the admin API"), "{err}");
    // Commands that read the local folder refuse a URL.
    let migrate_and_restore = [&["migrate", "to-postgres", "postgres://a/b"][..], &["restore", "x.backup"]];
    for verb in [&["doctor", "--repair"][..], &["check"], &["ready"]].into_iter().chain(migrate_and_restore) {
        let (code, _, err) = exit_and_output(&gateway.remote(verb));
        assert!(code == Some(2) && err.contains("--url"), "{verb:?}: {err}");
    }
    let (_, _, err) = exit_and_output(&gateway.remote(&["migrate", "to-postgres", "postgres://a/b"]));
    assert!(err.contains("only while it is stopped"), "{err}");
    let (code, _, err) = exit_and_output(&gateway.remote(&["group", "list", "--data", "."]));
    assert_eq!(code, Some(2), "{err}");
}

#[test]
fn environment_url_applies_unless_a_folder_is_given() {
    let gateway = LocalAndRemote::of(support::echo());
    let run = |arguments: &[&str], key: &str| {
        let url = format!("http://{}/admin/v1", gateway.process.address());
        let mut command = Command::new(PROGRAM);
        command.env_clear().env("TOLLGATE_URL", url).env("TOLLGATE_ADMIN_KEY", key).current_dir(gateway.working_folder.path());
        exit_and_output(&command.args(arguments).output().unwrap())
    };
    std::fs::write(gateway.working_folder.path().join("key"), format!("{}\n", gateway.key)).unwrap();
    let (code, out, err) = run(&["group", "list"], "file:key");
    assert!(code == Some(0) && out.contains("default"), "{err}");
    let data = gateway.process.data().display().to_string();
    let (code, _, err) = run(&["migrate", "to-postgres", "postgres://a/b"], &gateway.key);
    assert!(code == Some(2) && err.contains("TOLLGATE_URL"), "{err}");
    let (code, out, err) = run(&["verify"], &gateway.key);
    assert!(code == Some(0) && out.contains("everything agrees"), "{err}");
    assert_eq!(run(&["verify", "--data", &data], "").0, Some(0), "--data takes precedence over the environment");
    assert_eq!(run(&["check"], &gateway.key).0, Some(0), "settings are those of this machine");
    assert_eq!(run(&["group", "list", "--data", &data], "").0, Some(0));
    assert_eq!(run(&["version"], "").0, Some(0), "commands without a gateway ignore the URL");
}

/// A server that reads a request, writes this, and closes the connection.
fn server_that_writes(response: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.read(&mut [0; 8_192]);
            let _ = stream.write_all(response.as_bytes());
        }
    });
    url
}

#[test]
fn truncated_export_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let url = server_that_writes(
        "HTTP/1.1 200 OK\r\ncontent-type: text/csv\r\ntransfer-encoding: chunked\r\n\r\n10\r\nid,at\nreq_1,now\n\r\n",
    );
    let (code, out, err) = exit_and_output(&run_at(&folder, &url, "tga-x", &["usage", "export"]));
    assert_eq!(code, Some(4), "{err}");
    assert!(out.contains("req_1") && err.contains("incomplete"), "{out}{err}");
}

#[test]
fn posting_without_response_explains_how_to_repeat_it() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, err) = exit_and_output(&run_at(&folder, &server_that_writes(""), "tga-x", &["ledger", "top-up", "owner", "5"]));
    assert_eq!(code, Some(4), "{err}");
    assert!(err.contains("unknown whether") && err.contains("--idempotency-key cli-"), "{err}");
}

#[test]
fn settings_command_shows_the_remote_gateways_settings() {
    let gateway = TestGateway::builder(PROGRAM)
        .env("TOLLGATE_ALERTS__SECRET", "a-secret-of-alerts")
        .env("TOLLGATE_LOG__LEVEL", "debug")
        .spawn();
    let gateway = LocalAndRemote::of(gateway);
    let settings: Value = serde_json::from_str(&success_output(&gateway.remote(&["settings", "--json"]))).unwrap();
    let of = |name: &str| settings["items"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap().clone();
    assert_eq!((&of("server.listen")["source"], &of("log.level")["value"]), (&"flag".into(), &"debug".into()));
    assert_eq!(of("log.level")["variable"], "TOLLGATE_LOG__LEVEL");
    assert_eq!((&of("alerts.secret")["value"], &of("alerts.secret")["secret"]), (&"***".into(), &true.into()));
    assert!(!settings.to_string().contains("a-secret-of-alerts"));
    let text = success_output(&gateway.remote(&["settings", "--source", "environment"]));
    assert!(text.contains("log.level") && !text.contains("server.listen"), "{text}");
}

#[test]
fn usage_follow_prints_later_records_once() {
    let gateway = LocalAndRemote::of(support::echo());
    assert_eq!(gateway.process.chat(&support::chat("echo")).status, 200);
    let url = format!("http://{}", gateway.process.address());
    let mut follower = Command::new(PROGRAM)
        .env_clear()
        .env("TOLLGATE_ADMIN_KEY", &gateway.key)
        .args(["--url", &url, "usage", "tail", "--follow", "--json"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(follower.stdout.take().unwrap()));
    let mut lines = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap()["id"].as_str().unwrap().to_owned());
    let mut received = std::collections::HashSet::new();
    for _ in 0..3 {
        let answer = gateway.process.chat(&support::chat("echo"));
        let id = answer.header("x-request-id").unwrap().to_owned();
        loop {
            let line = lines.next().expect("it follows");
            assert!(received.insert(line.clone()), "{line} is shown twice");
            if line == id {
                break;
            }
        }
    }
    follower.kill().unwrap();
    follower.wait().unwrap();
}
