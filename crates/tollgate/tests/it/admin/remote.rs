//! The verbs of the command line at a running gateway (`--url`): the same words as on its folder, the same refusals, the same
//! exit codes, and the admin key nowhere.

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

/// A gateway that is asked on its folder and over its address.
struct Both {
    gate: TestGateway,
    key: String,
    /// Where commands run that know nothing but an address.
    elsewhere: tempfile::TempDir,
}

fn at(folder: &tempfile::TempDir, url: &str, key: &str, arguments: &[&str]) -> Output {
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

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn good(output: &Output) -> String {
    let (code, out, err) = said(output);
    assert_eq!(code, Some(0), "{out}{err}");
    out
}

impl Both {
    fn of(gate: TestGateway) -> Self {
        let key = make_key(&gate, "root", "admin");
        Self { gate, key, elsewhere: tempfile::tempdir().unwrap() }
    }

    fn here(&self, arguments: &[&str]) -> Output {
        self.gate.run(arguments)
    }

    fn there(&self, arguments: &[&str]) -> Output {
        self.there_with(&self.key, arguments)
    }

    fn there_with(&self, key: &str, arguments: &[&str]) -> Output {
        let output = at(&self.elsewhere, &format!("http://{}", self.gate.address()), key, arguments);
        let (_, out, err) = said(&output);
        assert!(!out.contains(key) && !err.contains(key), "the admin key is said: {out}{err}");
        output
    }

    /// What is said and how it ends, which must be the same in both places.
    fn same(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let (here, there) = (said(&self.here(arguments)), said(&self.there(arguments)));
        assert_eq!(here, there, "{arguments:?}");
        here
    }

    fn same_and_good(&self, arguments: &[&str]) -> String {
        let (code, out, err) = self.same(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {err}");
        out
    }
}

fn in_front_of(upstream: &Upstream) -> Both {
    upstream.otherwise(ScriptedResponse::chat("hello"));
    let gate = TestGateway::of(PROGRAM).spawn();
    let file = gate.data().join("all.toml");
    let catalog = support::catalog(upstream, "").replace("{key}", "a-secret-of-enough-characters").replace("{credential}", "c");
    std::fs::write(&file, catalog).unwrap();
    good(&gate.run(&["apply", file.to_str().unwrap(), "--yes"]));
    Both::of(gate)
}

#[test]
fn what_is_asked_is_answered_with_the_same_words_in_both_places() {
    let upstream = Upstream::start();
    let both = in_front_of(&upstream);
    good(&both.here(&["group", "set", "default", r#"budgets=[{"amount_usd":"5","window":"day"}]"#]));
    let models = || both.gate.send(&tollgate_testkit::Request::get("/v1/models").bearer(both.gate.key()));
    within_a_second("what was applied is served", || super::text(&models()).contains("chat-model"));
    for _ in 0..3 {
        assert_eq!(both.gate.chat(&support::chat("chat-model")).status, 200);
    }
    assert_eq!(both.gate.chat(&support::chat("none")).status, 404);
    good(&both.here(&["ledger", "top-up", "owner", "5", "--note", "first"]));
    let summary = || serde_json::from_str::<Value>(&good(&both.there(&["usage", "summary", "--by", "nothing", "--json"]))).unwrap();
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
        let people = both.same_and_good(verb);
        assert!(people.lines().count() > 1, "{verb:?}: {people}");
        let machines = both.same_and_good(&[&verb[..], &["--json"]].concat());
        assert!(machines.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{verb:?}: {machines}");
    }
    // What a folder is asked it reads from the database, and says so.
    let explain = ["explain", "--model", "chat-model", "--key", "caller"];
    for (more, counted) in [(&[][..], "  {}\n"), (&["--json"], "\"counted_by\":\"{}\"")] {
        let arguments = [&explain[..], more].concat();
        let (here, there) = (good(&both.here(&arguments)), good(&both.there(&arguments)));
        let by = |who: &str| counted.replace("{}", who);
        assert!(here.contains(&by("database")) && there.contains(&by("gateway")), "{here}{there}");
        assert_eq!(here.replace(&by("database"), &by("gateway")), there);
    }
    let last: Value = serde_json::from_str(&good(&both.there(&["usage", "tail", "-n", "1", "--json"]))).unwrap();
    let hour = format!("{}:00:00Z", &last["at"].as_str().unwrap()[..13]);
    let by_hour = both.same_and_good(&["usage", "summary", "--by", "hour", "--since", &hour]);
    assert!(by_hour.contains(&hour), "{by_hour}");
}

#[test]
fn what_is_changed_in_one_place_is_changed_as_in_the_other() {
    let upstream = Upstream::start();
    let both = in_front_of(&upstream);
    let steps: &[&[&str]] = &[
        &["group", "add", "NAME", "sale_multiplier=1.5", "channels=chat,echo", "rpm=60"],
        &["group", "set", "NAME", "visibility=private", "rpm=0"],
        &["member", "add", "NAME", "default_group=NAME", "groups=NAME", "billing=prepaid"],
        &["member", "set", "NAME", "tpm=1000"],
        &["model", "add", "NAME", "price=[{\"input_usd\":\"1\"}]"],
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
        let words = |name: &str, said: (Option<i32>, String, String)| (said.0, said.1.replace(name, "NAME"), said.2);
        let (one, two) = (place(step, "hither"), place(step, "yonder"));
        let here = words("hither", said(&both.here(&one.iter().map(String::as_str).collect::<Vec<_>>())));
        let there = words("yonder", said(&both.there(&two.iter().map(String::as_str).collect::<Vec<_>>())));
        assert_eq!(here, there, "{step:?}");
        assert_eq!(here.0, Some(0), "{step:?}: {}", here.2);
    }
    for kind in ["group", "member", "model", "channel"] {
        let row = |name: &str| {
            let row: Value =
                serde_json::from_str(&good(&both.there(&[kind, "show", name, "--json"])).replace(name, "NAME")).unwrap();
            let members = row.as_object().unwrap().clone().into_iter();
            members
                .filter(|(name, _)| !["id", "created_at", "revision"].contains(&name.as_str()))
                .collect::<serde_json::Map<_, _>>()
        };
        assert_eq!(row("hither"), row("yonder"), "{kind}");
    }
    let audit = good(&both.here(&["audit", "-n", "1000", "--json"]));
    assert!(audit.contains("\"actor\":\"command line\"") && audit.contains("\"actor\":\"root (adm_"), "{audit}");
    for kind in ["channel", "model", "member", "group"] {
        good(&both.there(&[kind, "remove", "yonder"]));
        good(&both.here(&[kind, "remove", "hither"]));
    }
}

#[test]
fn keys_made_over_the_address_work_and_end() {
    let both = Both::of(support::echo());
    let made: Value = serde_json::from_str(&good(&both.there(&["key", "create", "second", "--json"]))).unwrap();
    let key = made["key"].as_str().unwrap().to_owned();
    let call =
        || both.gate.send(&tollgate_testkit::Request::post("/v1/chat/completions", &support::chat("echo")).bearer(&key)).status;
    within_a_second("the key works", || call() == 200);
    assert_eq!(good(&both.there(&["key", "set", "second", "rpm=5"])).trim(), "changed key second");
    let revoked = good(&both.there(&["key", "revoke", "second"]));
    assert!(revoked.starts_with("revoked second (sk-tg-"), "{revoked}");
    within_a_second("the key ends", || call() == 401);
    let plain = good(&both.there(&["key", "create", "third", "--env"]));
    assert!(plain.starts_with("export OPENAI_API_KEY=sk-tg-"), "{plain}");
    let operator: Value =
        serde_json::from_str(&good(&both.there(&["admin-key", "create", "ops", "--scope", "operator", "--json"]))).unwrap();
    let operator = operator["key"].as_str().unwrap();
    assert!(good(&both.there_with(operator, &["group", "list"])).contains("default"));
    let (code, _, err) = said(&both.there_with(operator, &["ledger", "balances"]));
    assert!(code == Some(3) && err.contains("scope 'admin'"), "{err}");
    good(&both.there(&["admin-key", "revoke", "ops"]));
    let (code, _, err) = said(&both.there_with(operator, &["group", "list"]));
    assert!(code == Some(3) && err.contains("TOLLGATE_ADMIN_KEY"), "{err}");
}

#[test]
fn a_catalog_is_applied_from_afar_with_secrets_of_this_machine() {
    let upstream = Upstream::start();
    let both = Both::of(support::echo());
    std::fs::write(both.elsewhere.path().join("credential"), "a-credential-from-a-file\n").unwrap();
    let text = support::channel("more", "openai", &upstream.openai(), "more-model", "").replace("{credential}", "file:credential")
        + &support::prices(&["more-model"]);
    std::fs::write(both.elsewhere.path().join("more.toml"), &text).unwrap();
    let (code, out, err) = said(&both.there(&["apply", "more.toml"]));
    assert_eq!(code, Some(2), "{err}");
    assert!(out.contains("+ channel more") && err.contains("--yes"), "{out}{err}");
    let plan = good(&both.there(&["apply", "more.toml", "--dry-run"]));
    let local = both.gate.data().join("more.toml");
    std::fs::write(&local, text.replace("file:credential", "another")).unwrap();
    assert_eq!(good(&both.here(&["apply", local.to_str().unwrap(), "--dry-run"])), plan);
    assert!(good(&both.there(&["apply", "more.toml", "--yes"])).contains("applied; the catalog is at revision"));
    assert_eq!(good(&both.there(&["apply", "more.toml", "--yes", "--json"])).trim(), r#"{"changes":0,"lines":[]}"#);
    upstream.otherwise(ScriptedResponse::chat("hello"));
    let tested = good(&both.there(&["channel", "test", "more"]));
    for step in ["more/more-account with more-model", "DNS", "TCP", "HTTP", "first byte", "usage"] {
        assert!(tested.contains(step), "no {step} in:\n{tested}");
    }
    assert!(upstream.seen().iter().any(|it| it.header("authorization") == Some("Bearer a-credential-from-a-file")));
    upstream.next(ScriptedResponse::error(401, &json!({"error": {"message": "this key is wrong"}})));
    let (code, out, _) = said(&both.there(&["channel", "test", "more", "--json"]));
    let line: Value = serde_json::from_str(&out).unwrap();
    assert!(code == Some(1) && line["error"].as_str().unwrap().contains("this key is wrong"), "{out}");
    assert_eq!(both.same(&["channel", "test", "echo"]).0, Some(0));
}

#[test]
fn refusals_have_the_same_words_and_the_same_exit_code_in_both_places() {
    let both = Both::of(support::echo());
    std::fs::write(both.elsewhere.path().join("wrong.toml"), "[[group]]\nname = \"g\"\nchannels = [\"nobody\"]\n").unwrap();
    let wrong = both.elsewhere.path().join("wrong.toml").display().to_string();
    let broken = both.elsewhere.path().join("broken.toml").display().to_string();
    std::fs::write(&broken, "[[group]]\nname = 7\n[[model]\n").unwrap();
    for (verb, exit, words) in [
        (&["key", "revoke", "nobody"][..], 1, "tollgate key list"),
        (&["admin-key", "revoke", "nobody"], 1, "tollgate admin-key list"),
        (&["channel", "disable", "none"], 1, "tollgate channel list"),
        (&["channel", "enable", "echo", "--account", "none"], 1, "tollgate channel list"),
        (&["channel", "test", "none"], 1, "tollgate channel list"),
        (&["account", "list", "none"], 1, "tollgate channel list"),
        (&["group", "show", "none"], 1, "tollgate group list"),
        (&["group", "remove", "none"], 1, "tollgate group list"),
        (&["member", "show", "a/b ü"], 1, "tollgate member list"),
        (&["ledger", "top-up", "nobody", "1"], 1, "tollgate member list"),
        (&["explain", "--model", "echo", "--key", "nobody"], 1, "tollgate key list"),
        (&["usage", "tail", "--key", "nobody"], 1, "tollgate key list"),
        (&["key", "create", "first"], 1, "already"),
        (&["key", "create", "new", "--group", "none"], 3, "none"),
        (&["group", "set", "default", "rpm=-1"], 3, "a whole number of 0 to"),
        (&["group", "set", "default", "channels=nobody"], 3, "nobody"),
        (&["member", "add", "x", "role=king"], 3, "one of"),
        (&["group", "set", "default", "rpms=1"], 2, "Did you mean 'rpm'"),
        (&["group", "set", "default"], 2, "say what to change"),
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
        let (code, out, err) = both.same(verb);
        assert_eq!(code, Some(exit), "{verb:?}: {out}{err}");
        assert!(err.contains(words), "{verb:?}: {err}");
    }
    let (code, _, err) = said(&both.there(&["audit", "--kind", "king"]));
    assert!(code == Some(3) && err.contains("admin_key"), "{err}");
}

#[test]
fn who_cannot_be_reached_ends_with_4_and_who_is_not_let_in_with_3() {
    let both = Both::of(support::echo());
    let folder = &both.elsewhere;
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let url = format!("http://{}", both.gate.address());
    for (url, key, exit, words) in [
        (nobody.as_str(), "tga-some-key", 4, "check that it runs"),
        (&url, "tga-some-key", 3, "The admin key is not valid"),
        (&url, "", 3, "no admin key was given"),
        (&url, "env:NO_SUCH_NAME_HERE", 3, "NO_SUCH_NAME_HERE"),
        (&format!("{url}/elsewhere"), "tga-some-key", 4, "not the admin API"),
        ("gateway.example.com", "tga-some-key", 2, "--url"),
    ] {
        let (code, _, err) = said(&at(folder, url, key, &["group", "list"]));
        assert_eq!(code, Some(exit), "{url}: {err}");
        assert!(err.contains(words) && !err.contains("some-key"), "{url}: {err}");
    }
    let upstream = Upstream::start();
    upstream.otherwise(ScriptedResponse::chat("no gateway"));
    let (code, _, err) = said(&at(folder, &upstream.openai(), &both.key, &["group", "list"]));
    assert!(code == Some(4) && err.contains("not the admin API"), "{err}");
    // What looks at a machine's own folder looks at no other's.
    let replay_and_migrate = [&["replay", "x.toml"][..], &["migrate", "to-postgres", "postgres://a/b"]];
    for verb in [&["verify"][..], &["doctor"], &["check"], &["ready"]].into_iter().chain(replay_and_migrate) {
        let (code, _, err) = said(&both.there(verb));
        assert!(code == Some(2) && err.contains("--url"), "{verb:?}: {err}");
    }
    let (code, _, err) = said(&both.there(&["group", "list", "--data", "."]));
    assert_eq!(code, Some(2), "{err}");
}

#[test]
fn the_environment_names_the_gateway_unless_a_folder_is_named() {
    let both = Both::of(support::echo());
    let run = |arguments: &[&str], key: &str| {
        let url = format!("http://{}/admin/v1", both.gate.address());
        let mut command = Command::new(PROGRAM);
        command.env_clear().env("TOLLGATE_URL", url).env("TOLLGATE_ADMIN_KEY", key).current_dir(both.elsewhere.path());
        said(&command.args(arguments).output().unwrap())
    };
    std::fs::write(both.elsewhere.path().join("key"), format!("{}\n", both.key)).unwrap();
    let (code, out, err) = run(&["group", "list"], "file:key");
    assert!(code == Some(0) && out.contains("default"), "{err}");
    let data = both.gate.data().display().to_string();
    let (code, _, err) = run(&["verify"], &both.key);
    assert!(code == Some(2) && err.contains("TOLLGATE_URL"), "{err}");
    assert_eq!(run(&["verify", "--data", &data], "").0, Some(0), "a folder that is named is meant");
    assert_eq!(run(&["check"], &both.key).0, Some(0), "settings are this machine's, whatever else is asked elsewhere");
    assert_eq!(run(&["group", "list", "--data", &data], "").0, Some(0));
    assert_eq!(run(&["version"], "").0, Some(0), "what asks no gateway does not care");
}

/// A server that reads a request, says this, and ends the connection.
fn server_that_says(words: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.read(&mut [0; 8_192]);
            let _ = stream.write_all(words.as_bytes());
        }
    });
    url
}

#[test]
fn an_export_that_breaks_off_is_no_whole_export() {
    let folder = tempfile::tempdir().unwrap();
    let url = server_that_says(
        "HTTP/1.1 200 OK\r\ncontent-type: text/csv\r\ntransfer-encoding: chunked\r\n\r\n10\r\nid,at\nreq_1,now\n\r\n",
    );
    let (code, out, err) = said(&at(&folder, &url, "tga-x", &["usage", "export"]));
    assert_eq!(code, Some(4), "{err}");
    assert!(out.contains("req_1") && err.contains("not all"), "{out}{err}");
}

#[test]
fn a_posting_whose_answer_is_lost_tells_how_to_repeat_it() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, err) = said(&at(&folder, &server_that_says(""), "tga-x", &["ledger", "top-up", "owner", "5"]));
    assert_eq!(code, Some(4), "{err}");
    assert!(err.contains("not known whether") && err.contains("--idempotency-key cli-"), "{err}");
}

#[test]
fn settings_are_those_of_the_gateway_that_is_asked() {
    let gate =
        TestGateway::of(PROGRAM).env("TOLLGATE_ALERTS__SECRET", "a-secret-of-alerts").env("TOLLGATE_LOG__LEVEL", "debug").spawn();
    let both = Both::of(gate);
    let settings: Value = serde_json::from_str(&good(&both.there(&["settings", "--json"]))).unwrap();
    let of = |name: &str| settings["items"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap().clone();
    assert_eq!((&of("server.listen")["source"], &of("log.level")["value"]), (&"flag".into(), &"debug".into()));
    assert_eq!(of("log.level")["variable"], "TOLLGATE_LOG__LEVEL");
    assert_eq!((&of("alerts.secret")["value"], &of("alerts.secret")["secret"]), (&"***".into(), &true.into()));
    assert!(!settings.to_string().contains("a-secret-of-alerts"));
    let people = good(&both.there(&["settings", "--source", "environment"]));
    assert!(people.contains("log.level") && !people.contains("server.listen"), "{people}");
}

#[test]
fn a_follower_shows_what_comes_later_once() {
    let both = Both::of(support::echo());
    assert_eq!(both.gate.chat(&support::chat("echo")).status, 200);
    let url = format!("http://{}", both.gate.address());
    let mut follower = Command::new(PROGRAM)
        .env_clear()
        .env("TOLLGATE_ADMIN_KEY", &both.key)
        .args(["--url", &url, "usage", "tail", "--follow", "--json"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(follower.stdout.take().unwrap()));
    let mut lines = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap()["id"].as_str().unwrap().to_owned());
    let mut seen = std::collections::HashSet::new();
    for _ in 0..3 {
        let answer = both.gate.chat(&support::chat("echo"));
        let id = answer.header("x-request-id").unwrap().to_owned();
        loop {
            let line = lines.next().expect("it follows");
            assert!(seen.insert(line.clone()), "{line} is shown twice");
            if line == id {
                break;
            }
        }
    }
    follower.kill().unwrap();
    follower.wait().unwrap();
}
