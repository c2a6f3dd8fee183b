//! The first hour of a newcomer, and the daily questions of an operator: each step is one command.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::{Command, Output},
    time::Duration,
};

use serde_json::Value;
use tollgate_testkit::{PendingResponse, Request, ScriptedResponse, TestGateway, Upstream, wait_for};

use crate::support::{self, PROGRAM};

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.clone(), output.stderr.clone()].concat()).into_owned()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(output));
    serde_json::from_slice(&output.stdout).expect("--json prints JSON")
}

fn chat(gateway: &TestGateway, key: &str, model: &str) -> tollgate_testkit::ClientResponse {
    gateway.send(&Request::post("/v1/chat/completions", &support::chat(model)).bearer(key))
}

/// Runs `check --catalog` in an empty folder.
fn check(catalog: &str, environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("catalog.toml");
    std::fs::write(&file, catalog).unwrap();
    let output = Command::new(PROGRAM)
        .args(["check", "--catalog", "catalog.toml"])
        .current_dir(folder.path())
        .env_clear()
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    (output.status.code(), text(&output))
}

#[test]
fn check_refuses_what_serve_would_refuse() {
    let good =
        support::channel("c", "openai", "https://api.example.com/v1", "m", "") + &support::prices(&["m"]) + &support::group(&["c"]);
    let good = good.replace("{credential}", "sk-a-credential").replace("{key}", "tk-0123456789abcdef");
    let (code, said) = check(&good, &[]);
    assert!(code == Some(0) && !said.contains("warning"), "{said}");
    for (fault, catalog) in [
        ("nowhere", good.replace("channels = [\"c\"]", "channels = [\"nowhere\"]")),
        ("outsider", good.replace("name = \"caller\"", "name = \"caller\"\nmember = \"outsider\"")),
        ("nothing", good.replace("groups = [\"default\"]", "groups = [\"nothing\"]")),
        ("default", format!("{good}[[group]]\nname = \"default\"\nchannels = [\"c\"]\n")),
        ("secret", good.replace("secret = \"tk-0123456789abcdef\"", "")),
        (
            "credential",
            good.replace("provider = \"compatible\"", "provider = \"openai\"").replace("credential = \"sk-a-credential\"", ""),
        ),
    ] {
        let (code, said) = check(&catalog, &[]);
        assert!(code == Some(3) && said.contains(fault) && said.contains("catalog.toml:"), "{fault}: {code:?} {said}");
    }
}

#[test]
fn all_errors_of_settings_and_catalog_are_reported_together() {
    let catalog = support::channel("c", "openai", "https://api.example.com/v1", "m", "")
        + &support::group(&["nowhere"])
        + "[[group]]\nname = \"default\"\n[[member]]\nname = \"ben\"\ngroups = [\"nothing\"]\n";
    let catalog = catalog.replace("{credential}", "a credential of \u{201c}ours\u{201d}").replace("{key}", "tk-0123456789abcdef");
    let faults = [
        "credential in [[channel.account]]: must be ASCII",
        "group 'default' is defined twice",
        "group 'default' refers to unknown channel 'nowhere'",
        "member 'ben' refers to unknown group 'nothing'",
    ];
    let (code, said) = check(&catalog, &[]);
    assert!(code == Some(3) && faults.iter().all(|fault| said.contains(fault)), "{said}");
    let settings = [("TOLLGATE_SERVER__LISTEN", "nowhere"), ("TOLLGATE_LISTEN", "x"), ("TOLLGATE_BUDGET__DAY", "-1")];
    let (code, said) = check(&catalog, &settings);
    assert_eq!(code, Some(3), "{said}");
    let of_settings = [
        "TOLLGATE_SERVER__LISTEN takes an address",
        "unknown environment variable TOLLGATE_LISTEN",
        "TOLLGATE_BUDGET__DAY takes an amount in USD",
    ];
    for fault in of_settings.iter().chain(&faults[..2]) {
        assert!(said.contains(fault), "no '{fault}': {said}");
    }
    let gateway = support::echo();
    let file = gateway.data().join("more.toml");
    std::fs::write(&file, catalog).unwrap();
    let refused = gateway.run(&["apply", file.to_str().unwrap(), "--yes"]);
    assert!(!refused.status.success() && faults.iter().all(|fault| text(&refused).contains(fault)), "{}", text(&refused));
}

#[test]
fn check_warns_of_probable_mistakes() {
    let catalog = support::channel("local", "openai", "http://127.0.0.1:11434/v1", "cheap", "")
        .replace("private_network = true", "")
        + &support::channel("c", "openai", "https://api.example.com/v1", "unpriced", "")
        + &support::channel("bare", "openai", "https://bare.example.com", "cheap", "")
        + &support::channel("whole", "openai", "https://whole.example.com/v1/chat/completions", "cheap", "")
        + "[[model]]\nname = \"cheep\"\nprice = { input = \"0.5\", output = \"20\" }\n"
        + "[[model]]\nname = \"cheap\"\nprice = { input = \"0.5\", output = \"20\" }\n"
        + &support::group(&["local", "c"])
        + "budget = { amount = \"5\", window = \"month\" }\nmodels = [\"cheap\", \"chaep-*\"]\n"
        + "[[channel]]\nname = \"keyless\"\nbase_url = \"https://keyless.example.com/v1\"\nserves = [{ model = \"cheap\" }]\n"
        + "[[group]]\nname = \"few\"\nchannels = [\"c\"]\nmodels = [\"cheap\"]\n";
    let (code, said) =
        check(&catalog.replace("{credential}", "$OPENAI_API_KEY").replace("{key}", "${TOLLGATE_CI_KEY_OF_OURS}"), &[]);
    assert_eq!(code, Some(0), "{said}");
    for warning in [
        "set private_network = true",
        "account 'local/local-account': its credential begins with '$'",
        "key 'caller': its secret begins with '$'",
        "model 'unpriced' has no price",
        "channel 'bare': base_url 'https://bare.example.com' has no path: append /v1",
        "channel 'whole': base_url 'https://whole.example.com/v1/chat/completions' ends with /chat/completions",
        "model 'cheep' has a price and no channel serves it",
        "channel 'keyless' has no account",
        "channel 'bare' is in no group",
        "group 'few': 'cheap' in `models` matches no model that the group's channels serve; channel 'bare' serves 'cheap'",
        "key 'caller': 'chaep-*' in `models` matches no model that the key's groups offer",
        "sells 'cheap' below what channel 'local' costs: input 0.50 < 1.00",
    ] {
        assert!(said.contains(warning), "no warning '{warning}': {said}");
    }
}

#[test]
fn check_reports_every_unread_environment_variable() {
    for (name, value) in [("TOLLGATE_LISTEN", "127.0.0.1:1"), ("TOLLGATE_PORT", "8080"), ("TOLLGATE_HOST", "0.0.0.0")] {
        let (code, said) = check("", &[(name, value)]);
        assert!(code == Some(3) && said.contains(name) && said.contains("did you mean 'TOLLGATE_SERVER__LISTEN'?"), "{said}");
    }
    let (code, said) = check("", &[("TOLLGATE_CI_KEY", "x"), ("TOLLGATE_SERVICE_HOST", "10.0.0.1")]);
    assert!(code == Some(3) && said.contains("TOLLGATE_CI_KEY: it is not a setting") && !said.contains("SERVICE_HOST"), "{said}");
    let catalog = "[[key]]\nname = \"ci\"\nsecret = \"env:TOLLGATE_CI_KEY\"\n";
    let (code, said) = check(catalog, &[("TOLLGATE_CI_KEY", "tk-0123456789abcdef")]);
    assert!(code == Some(0) && !said.contains("not a setting"), "{said}");
}

#[test]
fn key_with_a_budget_is_created_by_one_command_and_its_usage_is_shown_by_name() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    let made = json(&gateway.run(&[
        "key",
        "create",
        "anna",
        "--group",
        "default",
        "--budget",
        "5/month",
        "--expires",
        "2999-01-01",
        "--json",
    ]));
    let key = made["key"].as_str().unwrap();
    assert_eq!(chat(&gateway, key, "chat-model").status, 200);
    let listed = text(&gateway.run(&["key", "list"]));
    let row = listed.lines().find(|line| line.starts_with("anna ")).unwrap_or_else(|| panic!("{listed}"));
    assert!(row.contains("5.00/month") && row.contains("active"), "{row}");
    let budgets = text(&gateway.run(&["budget", "list"]));
    assert!(budgets.lines().any(|line| line.starts_with("key ") && line.contains("anna")), "{budgets}");
    for (by, shown) in [("key", "anna"), ("member", "owner"), ("group", "default")] {
        wait_for("the request is booked", Duration::from_secs(5), || {
            text(&gateway.run(&["usage", "summary", "--by", by, "--since", "2020-01-01"]))
                .lines()
                .any(|line| line.starts_with(shown))
        });
    }
    let summary = json(&gateway.run(&["usage", "summary", "--by", "key", "--json"]));
    let row = summary["items"].as_array().unwrap().iter().find(|row| row["name"] == "anna").unwrap();
    assert_eq!((row["member"].as_str(), row["of"].as_str()), (Some("owner"), made["id"].as_str()));
    let request = text(&gateway.run(&["usage", "tail", "--key", "anna"]));
    let request = request.split_whitespace().find(|word| word.starts_with("req_")).unwrap_or_else(|| panic!("{request}"));
    let shown = text(&gateway.run(&["usage", "show", request]));
    for (fact, value) in [("key", "anna"), ("member", "owner")] {
        let is_shown = shown.lines().any(|line| line.split_whitespace().eq([fact, value]));
        assert!(is_shown, "no name of the {fact}: {shown}");
    }
    let record = json(&gateway.run(&["usage", "show", request, "--json"]));
    assert_eq!((&record["key_name"], &record["member_name"]), (&"anna".into(), &"owner".into()));
}

#[test]
fn listed_keys_have_their_current_state() {
    let gateway = support::echo();
    let key = json(&gateway.run(&["key", "create", "short", "--json"]))["key"].as_str().unwrap().to_owned();
    let state = |name: &str| {
        let listed = json(&gateway.run(&["key", "list", "--json"]));
        let found = listed["items"].as_array().unwrap().iter().find(|item| item["name"] == name).cloned();
        found.map(|item| (item["state"].as_str().unwrap().to_owned(), item["status"].as_str().unwrap().to_owned())).unwrap()
    };
    assert_eq!(state("short"), ("active".to_owned(), "active".to_owned()));
    let set = gateway.run(&["key", "set", "short", "expires_at=2020-01-01T00:00:00Z"]);
    assert!(set.status.success(), "{}", text(&set));
    assert_eq!(state("short"), ("expired".to_owned(), "active".to_owned()));
    wait_for("it is refused", Duration::from_secs(5), || chat(&gateway, &key, "echo").status == 401);
    gateway.run(&["key", "revoke", "short"]);
    assert_eq!(state("short").0, "revoked");
    assert!(gateway.run(&["member", "add", "ben"]).status.success());
    gateway.run(&["key", "create", "of-ben", "--member", "ben", "--group", "default"]);
    gateway.run(&["member", "set", "ben", "status=suspended"]);
    assert_eq!(state("of-ben").0, "member_suspended");
}

#[test]
fn one_request_is_explained_by_its_id() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::error(
        429,
        &serde_json::json!({"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}}),
    ));
    let gateway = support::gateway_for(&upstream);
    let answer = chat(&gateway, gateway.key(), "chat-model");
    assert_eq!(answer.status, 429);
    let id = answer.header("x-request-id").unwrap().to_owned();
    let shown = || text(&gateway.run(&["usage", "show", &id]));
    wait_for("it is booked", Duration::from_secs(5), || shown().contains("attempts:"));
    let shown = shown();
    for part in [id.as_str(), "caller", "chat-model", "E54", "refused", "chat-account"] {
        assert!(shown.contains(part), "no {part}: {shown}");
    }
    let missing = gateway.run(&["usage", "show", "req_00000000000000000000000000"]);
    assert!(!missing.status.success() && text(&missing).contains("usage record"), "{}", text(&missing));
    assert_eq!(gateway.run(&["usage", "show", "latest"]).status.code(), Some(2));
}

#[test]
fn budgeted_key_on_an_unpriced_model_gets_the_reason_and_no_retry() {
    let upstream = Upstream::start();
    let catalog = support::channel("chat", "openai", &upstream.openai_url(), "chat-model", "")
        + &support::group(&["chat"])
        + "budget = { amount = \"5\", window = \"month\" }\n";
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    let answer = chat(&gateway, gateway.key(), "chat-model");
    assert_eq!((answer.status, answer.header("x-tollgate-cause")), (503, Some("no_price")));
    assert_eq!((answer.header("x-should-retry"), answer.header("retry-after")), (Some("false"), None));
    assert!(
        answer
            .text()
            .contains("model 'chat-model' has no price, and this key's use is bounded in money. The operator must set a price."),
        "{}",
        answer.text()
    );
    let explained = text(&gateway.run(&["explain", "--model", "chat-model", "--key", "caller"]));
    assert!(explained.contains("E42") && explained.contains("price the model"), "{explained}");
}

#[test]
fn local_server_needs_no_credential_and_a_refused_loopback_address_names_its_setting() {
    let upstream = Upstream::start();
    let catalog = support::channel("local", "openai", &upstream.openai_url(), "chat-model", "")
        .replace("credential = \"{credential}\"", "")
        + &support::prices(&["chat-model"])
        + &support::group(&["local"]);
    let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
    assert_eq!(chat(&gateway, gateway.key(), "chat-model").status, 200);
    assert!(upstream.received().iter().all(|request| request.header("authorization").is_none()), "no credential was made up");
    gateway.serve_catalog(&catalog.replace("private_network = true", ""));
    let explained = || text(&gateway.run(&["explain", "--model", "chat-model", "--key", "caller"]));
    wait_for("the setting is off", Duration::from_secs(5), || explained().contains("private_network"));
    assert!(explained().contains("private_network = true"), "{}", explained());
    wait_for("callers are refused", Duration::from_secs(5), || chat(&gateway, gateway.key(), "chat-model").status == 503);
    let answer = chat(&gateway, gateway.key(), "chat-model");
    assert_eq!(answer.header("x-tollgate-cause"), Some("none_configured"), "{}", answer.text());
    let refused = gateway.run(&["channel", "add", "mine", "provider=compatible", "base_url=http://localhost:11434/v1"]);
    assert!(!refused.status.success() && text(&refused).contains("private_network"), "{}", text(&refused));
}

#[test]
fn unknown_path_error_suggests_the_right_path() {
    let gateway = support::echo();
    for (path, right) in [
        ("/chat/completions", "Did you mean /v1/chat/completions? Your base URL lacks /v1."),
        ("/v1/chat/completion", "Did you mean /v1/chat/completions?"),
        ("/api/v1/chat/completions", "Did you mean /v1/chat/completions?"),
        ("/responses", "Did you mean /v1/responses? Your base URL lacks /v1."),
        ("/v1/v1/messages", "Did you mean /v1/messages? Your base URL has the version twice."),
        ("/v1/complete", "does not offer the Text Completions API of Anthropic. Use POST /v1/messages."),
        (
            "/v1/images/generations",
            "It has POST /v1/chat/completions, POST /v1/responses, POST /v1/embeddings, POST /v1/messages and GET /v1/models",
        ),
        ("/api/chat", "does not offer Ollama's own API. Use POST /v1/chat/completions."),
    ] {
        let answer = gateway.send(&Request::post(path, &support::chat("echo")).bearer(gateway.key()));
        assert_eq!(answer.status, 404);
        assert!(answer.text().contains(right), "{path}: {}", answer.text());
        assert!(!answer.text().contains("openapi"), "callers cannot read it: {}", answer.text());
    }
    for path in ["/models", "/v1beta/openai/models"] {
        let answer = gateway.send(&Request::get(path).bearer(gateway.key()));
        assert!(answer.status == 404 && answer.text().contains("Did you mean /v1/models?"), "{path}: {}", answer.text());
    }
    let messages =
        gateway.send(&Request::post("/v1/messages/batches", &serde_json::json!({})).header("x-api-key", gateway.key())).json();
    assert_eq!((&messages["type"], &messages["error"]["type"]), (&"error".into(), &"not_found_error".into()), "{messages}");
    assert!(gateway.send(&Request::get("/admin/v1/nothing")).text().contains("/admin/openapi.json"));
}

#[test]
fn caller_not_named_by_a_trusted_proxy_is_not_local() {
    let gateway = TestGateway::builder(PROGRAM).env("TOLLGATE_SERVER__TRUSTED_PROXIES", "127.0.0.1").spawn();
    let metrics = |forwarded: Option<&str>| {
        let request = Request::get("/metrics");
        gateway.send(&match forwarded {
            Some(address) => request.header("x-forwarded-for", address),
            None => request,
        })
    };
    for forwarded in [None, Some("127.0.0.1"), Some("::1"), Some("unknown"), Some("203.0.113.9")] {
        assert_eq!(metrics(forwarded).status, 401, "{forwarded:?}");
    }
    let direct = support::echo();
    assert_eq!(direct.send(&Request::get("/metrics")).status, 200, "without a proxy, this machine is local");
    let made = json(&gateway.run(&["key", "create", "near", "--json"]));
    assert!(gateway.run(&["key", "set", "near", "ip_allow=127.0.0.0/8"]).status.success());
    let call = || chat(&gateway, made["key"].as_str().unwrap(), "echo");
    wait_for("the list of addresses holds", Duration::from_secs(5), || call().status == 403);
    assert!(call().text().contains("an unknown address"), "{}", call().text());
}

#[test]
fn host_name_resolving_to_loopback_cannot_read_metrics() {
    let own = TestGateway::builder(PROGRAM).env("TOLLGATE_CONSOLE__LISTEN", "127.0.0.1:0").spawn();
    let (direct, console) = (support::echo(), own.startup()["console"].as_str().unwrap().parse::<SocketAddr>().unwrap());
    for address in [direct.address(), console] {
        let status = |host: &str| Request::get("/metrics").header("host", host).send(address).unwrap().read().unwrap().status;
        assert_eq!([status("127.0.0.1:1"), status("localhost"), status("[::1]:8080")], [200; 3], "{address}");
        assert_eq!([status("rebound.example"), status("localhost.rebound.example:8080")], [401; 2], "{address}");
    }
}

#[test]
fn silent_connections_do_not_block_the_console_address() {
    let gateway = TestGateway::builder(PROGRAM)
        .env("TOLLGATE_CONSOLE__LISTEN", "127.0.0.1:0")
        .env("TOLLGATE_SERVER__IDLE_TIMEOUT_MS", "500")
        .env("TOLLGATE_SERVER__HEADER_TIMEOUT_MS", "700")
        .spawn();
    let console: SocketAddr = gateway.startup()["console"].as_str().unwrap().parse().unwrap();
    let mut silent: Vec<TcpStream> = (0..600).map(|_| TcpStream::connect(console).unwrap()).collect();
    let ask = || Request::get("/metrics").send(console).and_then(PendingResponse::read).is_ok_and(|answer| answer.status == 200);
    wait_for("silent connections are closed", Duration::from_secs(10), ask);
    assert_eq!(read_to_the_end(&mut silent[0]), "", "a silent connection ends without an answer");
    let mut slow = TcpStream::connect(console).unwrap();
    slow.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
    let answer = read_to_the_end(&mut slow);
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("connection: close"), "a head that never ends: {answer:?}");
}

/// Bytes that a connection receives until the gateway closes it.
fn read_to_the_end(connection: &mut TcpStream) -> String {
    connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut read = String::new();
    connection.read_to_string(&mut read).expect("the gateway closes the connection");
    read
}

#[test]
fn local_only_commands_given_a_url_state_where_to_run_them() {
    for command in [
        &["doctor", "--repair"][..],
        &["restore", "x.backup"],
        &["master-key", "rotate"],
        &["migrate", "to-postgres", "postgres://x/y"],
    ] {
        let output = Command::new(PROGRAM)
            .env_clear()
            .args(["--url", "http://127.0.0.1:1", "--admin-key", "tga-x"])
            .args(command)
            .output()
            .unwrap();
        let said = text(&output);
        assert!(output.status.code() == Some(2) && said.contains("run it on the gateway's machine"), "{command:?}: {said}");
    }
}
