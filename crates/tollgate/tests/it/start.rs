//! First start, later starts, and starts that must fail.

use std::process::{Command, Output};

use tempfile::TempDir;
use tollgate_testkit::{Request, TestGateway, Upstream, wait_for};

use crate::support::{self, PROGRAM};

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn printed_curl_lines_work_unchanged() {
    let data = TempDir::new().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut process = Command::new(PROGRAM)
        .args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--data"])
        .arg(data.path())
        .current_dir(data.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut output = String::new();
    let mut reader = std::io::BufReader::new(process.stdout.take().unwrap());
    while output.matches("curl ").count() < 2 {
        let before = output.len();
        std::io::BufRead::read_line(&mut reader, &mut output).unwrap();
        assert!(output.len() > before, "it ended after saying:\n{output}");
    }
    let lines: Vec<&str> = output.lines().filter(|line| line.contains("curl ")).collect();
    let answers: Vec<String> = lines
        .iter()
        .map(|line| String::from_utf8_lossy(&Command::new("sh").args(["-c", line]).output().unwrap().stdout).into_owned())
        .collect();
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(lines.len(), 2, "{output}");
    assert!(answers[0].contains("\"chat.completion\""), "{}\n{}", lines[0], answers[0]);
    assert!(answers[1].contains("\"candidates\""), "{}\n{}", lines[1], answers[1]);
}

#[test]
fn later_start_keeps_the_key_without_printing_it() {
    let first = support::echo();
    let key = first.key().to_owned();
    assert!(key.starts_with("sk-tg-"), "{key}");
    let body = support::chat("echo");
    assert_eq!(first.chat(&body).status, 200);
    let data = first.kill();
    let second = TestGateway::builder(PROGRAM).data_folder(data).spawn();
    assert!(second.startup().get("key").is_none_or(serde_json::Value::is_null), "{}", second.startup());
    assert_eq!(second.send(&Request::post("/v1/chat/completions", &body).bearer(&key)).status, 200);
}

#[test]
fn taken_port_does_not_use_up_the_first_key() {
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap().to_string();
    let data = TempDir::new().unwrap();
    let serve = |extra: &[&str]| {
        Command::new(PROGRAM).args(["serve", "--data"]).arg(data.path()).args(extra).current_dir(data.path()).output().unwrap()
    };
    assert_eq!(serve(&["--listen", &address]).status.code(), Some(1));
    let console = Command::new(PROGRAM)
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(data.path())
        .env("TOLLGATE_CONSOLE__LISTEN", &address)
        .output()
        .unwrap();
    assert_eq!(console.status.code(), Some(1), "{}", text(&console));
    let gateway = TestGateway::builder(PROGRAM).data_folder(data).spawn();
    let key = gateway.startup()["key"].as_str().expect("the first start that serves shows the key").to_owned();
    assert_eq!(gateway.send(&Request::post("/v1/chat/completions", &support::chat("echo")).bearer(&key)).status, 200);
    let revoked = gateway.run(&["key", "revoke", "first"]);
    assert!(revoked.status.success(), "{}", text(&revoked));
    let again = TestGateway::builder(PROGRAM).data_folder(gateway.kill()).spawn();
    assert!(again.startup()["key"].is_null(), "a revoked key is not made again");
}

#[test]
fn first_key_reaches_only_the_echo_channel() {
    let upstream = Upstream::start();
    let gateway = support::echo();
    let file = gateway.data().join("more.toml");
    // The operator's next step: add a channel to the existing group.
    let rows = support::channel("chat", "openai", &upstream.openai_url(), "chat-model", "")
        + &support::prices(&["chat-model"])
        + "[[group]]\nname = \"default\"\nchannels = [\"echo\", \"chat\"]\n";
    std::fs::write(&file, rows.replace("{credential}", "unused-credential")).unwrap();
    let applied = gateway.run(&["apply", "--yes", "more.toml"]);
    assert!(applied.status.success(), "{}", text(&applied));
    let made = gateway.run(&["key", "create", "mine", "--group", "default", "--json"]);
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    let ask =
        |key: &str, model: &str| gateway.send(&Request::post("/v1/chat/completions", &support::chat(model)).bearer(key)).status;
    let mine = made["key"].as_str().unwrap();
    wait_for("the new channel", std::time::Duration::from_secs(5), || ask(mine, "chat-model") == 200);
    assert_eq!((ask(gateway.key(), "chat-model"), ask(gateway.key(), "echo")), (404, 200));
}

#[test]
fn command_before_first_start_does_not_consume_the_first_key() {
    let data = TempDir::new().unwrap();
    let listed = Command::new(PROGRAM).args(["key", "list", "--data"]).arg(data.path()).output().unwrap();
    assert_eq!(listed.status.code(), Some(1), "{}", text(&listed));
    let file = data.path().join("empty.toml");
    std::fs::write(&file, "").unwrap();
    let applied = Command::new(PROGRAM).args(["apply", "--yes", "--data"]).arg(data.path()).arg(&file).output().unwrap();
    assert!(applied.status.success(), "{}", text(&applied));
    let gateway = TestGateway::builder(PROGRAM).data_folder(data).spawn();
    let key = gateway.startup()["key"].as_str().expect("a first start shows a key").to_owned();
    assert_eq!(gateway.send(&Request::post("/v1/chat/completions", &support::chat("echo")).bearer(&key)).status, 200);
}

#[test]
fn master_key_file_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let gateway = support::echo();
    let mode = std::fs::metadata(gateway.data().join("master.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn files_in_an_existing_data_folder_are_private_to_the_owner() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let data = TempDir::new().unwrap();
    std::fs::set_permissions(data.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let check = |data: &std::path::Path| {
        for entry in std::fs::read_dir(data).unwrap().chain(std::fs::read_dir(data.join("journal")).unwrap()).flatten() {
            let expected = if entry.path().is_dir() { 0o700 } else { 0o600 };
            assert_eq!(mode(&entry.path()), expected, "{}", entry.path().display());
        }
    };
    let gateway = TestGateway::builder(PROGRAM).data_folder(data).spawn();
    assert_eq!(gateway.chat(&support::chat("echo")).status, 200);
    check(gateway.data());
    assert_eq!(mode(gateway.data()), 0o700, "it was empty, as a fresh volume is");
    // Permissions that an earlier version left open are closed.
    let data = gateway.kill();
    let journal = data.path().join("journal");
    for path in [data.path().join("tollgate.db"), data.path().join("tollgate.db-wal"), journal.join("booked")] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    std::fs::set_permissions(&journal, std::fs::Permissions::from_mode(0o755)).unwrap();
    let gateway = TestGateway::builder(PROGRAM).data_folder(data).spawn();
    check(gateway.data());
    assert_eq!(mode(&gateway.data().join("journal")), 0o700);
}

#[test]
fn missing_database_next_to_a_master_key_is_refused() {
    let mut gateway = support::echo();
    assert_eq!(gateway.chat(&support::chat("echo")).status, 200);
    assert_eq!(gateway.stop(), Some(0));
    let data = gateway.into_data();
    std::fs::rename(data.path().join("tollgate.db"), data.path().join("kept")).unwrap();
    let start = || Command::new(PROGRAM).args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path()).output().unwrap();
    let output = start();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("no database at") && text(&output).contains("start from scratch"), "{}", text(&output));
    assert!(!data.path().join("tollgate.db").exists());
    // Follow the message's advice.
    std::fs::rename(data.path().join("kept"), data.path().join("tollgate.db")).unwrap();
    drop(TestGateway::builder(PROGRAM).data_folder(data).spawn());
    let data = TempDir::new().unwrap();
    let key = data.path().join("master.key");
    std::fs::write(&key, "tgm1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").unwrap();
    let named = format!("file:{}", key.display());
    drop(TestGateway::builder(PROGRAM).data_folder(data).env("TOLLGATE_MASTER_KEY", &named).spawn());
}

#[test]
fn start_killed_while_it_created_the_database_can_be_repeated() {
    let data = TempDir::new().unwrap();
    std::fs::write(data.path().join("master.key"), "tgm1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").unwrap();
    std::fs::write(data.path().join("tollgate.new-4194999"), "half a database").unwrap();
    let gateway = TestGateway::builder(PROGRAM).data_folder(data).spawn();
    assert!(!gateway.data().join("tollgate.new-4194999").exists());
}

#[test]
fn database_file_holds_no_secret_in_clear_text() {
    const HEADER: &str = "value-of-a-secret-header";
    const CHANGED_HEADER: &str = "changed-value-of-a-secret-header";
    let upstream = Upstream::start();
    let lines = format!("cooling = false\nheaders = {{ \"api-key\" = \"{HEADER}\", \"cookie\" = \"s={HEADER}\" }}");
    let gateway = support::builder(&upstream, &lines).spawn();
    let served = |value: &str| {
        assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
        upstream.received().last().is_some_and(|received| received.header("api-key") == Some(value))
    };
    assert!(served(HEADER));
    gateway.serve_catalog(&support::catalog(&upstream, &lines.replace(HEADER, CHANGED_HEADER)));
    tollgate_testkit::wait_for("the changed headers", std::time::Duration::from_secs(3), || served(CHANGED_HEADER));
    for entry in std::fs::read_dir(gateway.data())
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("tollgate.db"))
    {
        let bytes = std::fs::read(entry.path()).unwrap();
        for secret in [tollgate_testkit::SERVICE_KEY, tollgate_testkit::UPSTREAM_CREDENTIAL, HEADER, CHANGED_HEADER] {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{} holds {secret} in clear text", entry.path().display());
        }
    }
}

#[test]
fn proxy_password_is_stored_sealed_only() {
    let upstream = Upstream::start();
    let served = support::catalog(&upstream, "").replacen(
        "[[channel.account]]",
        "proxy = \"http://me:served-secret@127.0.0.1:9\"\n[[channel.account]]",
        1,
    );
    let gateway = TestGateway::builder(PROGRAM).catalog(&served).spawn();
    let admin = crate::admin::make_key(&gateway, "root", "admin");
    let send = |method: &str, path: &str, body: &serde_json::Value| {
        let answer = gateway.send(&Request::post(path, body).method(method).bearer(&admin));
        let output = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(answer.status < 300, "{output}");
        output
    };
    let body = serde_json::json!({"name": "made", "provider": "openai", "proxy": "http://me:posted-secret@127.0.0.1:9"});
    let mut output = send("POST", "/admin/v1/channels", &body);
    output += &send("PATCH", "/admin/v1/channels/made", &serde_json::json!({"proxy": "socks5://me:patched-secret@127.0.0.1:9"}));
    assert_eq!(gateway.chat(&support::chat("chat-model")).status, 502);
    for path in ["/admin/v1/channels", "/admin/v1/catalog", "/admin/v1/audit", "/metrics"] {
        output += &String::from_utf8_lossy(&gateway.send(&Request::get(path).bearer(&admin)).body);
    }
    for command in [&["doctor"][..], &["pull"], &["audit"], &["channel", "list"]] {
        let finished = gateway.run(command);
        output += &String::from_utf8_lossy(&finished.stdout);
        output += &String::from_utf8_lossy(&finished.stderr);
    }
    output += &gateway.log();
    assert!(output.contains("http://me:***@127.0.0.1:9") && output.contains("socks5://me:***@127.0.0.1:9"), "{output}");
    let data = gateway.kill();
    let files = std::fs::read_dir(data.path()).unwrap().flatten().map(|entry| entry.path());
    let mut stored = vec![("the output".to_owned(), output.into_bytes())];
    stored.extend(files.filter(|path| path.is_file() && !path.ends_with("catalog.toml")).map(|path| {
        let bytes = std::fs::read(&path).unwrap();
        (path.display().to_string(), bytes)
    }));
    for (place, bytes) in stored {
        for secret in ["served-secret", "posted-secret", "patched-secret"] {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{place} holds {secret} in clear text");
        }
    }
}

#[test]
fn busy_port_error_names_the_next_step() {
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap().to_string();
    let data = TempDir::new().unwrap();
    let output = Command::new(PROGRAM).args(["serve", "--listen", &address, "--data"]).arg(data.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains(&address) && text(&output).contains("--listen"), "{}", text(&output));
}

#[test]
fn data_folder_in_use_is_refused() {
    let gateway = support::echo();
    let output = Command::new(PROGRAM).args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(gateway.data()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("in use"), "{}", text(&output));
}

#[test]
fn file_in_place_of_the_data_folder_is_refused() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let output = Command::new(PROGRAM).args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains(&file.display().to_string()), "{}", text(&output));
    assert_eq!(std::fs::read(&file).unwrap(), b"x");
}

#[test]
fn corrupt_database_is_refused_and_unchanged() {
    let data = TempDir::new().unwrap();
    let garbage = vec![0x5a; 8192];
    std::fs::write(data.path().join("tollgate.db"), &garbage).unwrap();
    let output = TestGateway::builder(PROGRAM).data_folder(data).without_record_check().run_to_exit();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("damaged"), "{}", text(&output));
}

#[test]
fn wrong_or_missing_master_key_is_refused() {
    let data = support::echo().kill();
    let path = data.path().join("master.key");
    let kept = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, "tgm1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n").unwrap();
    let start = || Command::new(PROGRAM).args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path()).output().unwrap();
    let output = start();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    std::fs::remove_file(&path).unwrap();
    let output = start();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(!path.exists(), "a new master key over an old database would lose every secret");
    std::fs::write(&path, kept).unwrap();
    drop(TestGateway::builder(PROGRAM).data_folder(data).spawn());
}

#[test]
fn invalid_catalog_is_refused_with_place_and_suggestion() {
    let output = TestGateway::builder(PROGRAM)
        .catalog("[[channel]]\nname = \"a\"\nprovidr = \"openai\"\n[[group]]\nname = 7\n")
        .run_to_exit();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    let output = text(&output);
    assert!(output.contains("3:") && output.contains("providr") && output.contains("provider"), "{output}");
    assert!(output.contains("5:"), "every fault is named at once: {output}");
}

#[test]
fn missing_secret_error_names_its_variable() {
    let upstream = Upstream::start();
    let catalog = support::catalog(&upstream, "").replace("\"{credential}\"", "\"env:NO_SUCH_SECRET\"");
    let output = TestGateway::builder(PROGRAM).catalog(&catalog).run_to_exit();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(text(&output).contains("NO_SUCH_SECRET"), "{}", text(&output));
}

#[test]
fn all_invalid_settings_are_reported_at_once() {
    let output =
        TestGateway::builder(PROGRAM).env("TOLLGATE_SERVER__CORES", "many").env("TOLLGATE_LOG__LEVEL", "loud").run_to_exit();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(text(&output).contains("TOLLGATE_SERVER__CORES") && text(&output).contains("TOLLGATE_LOG__LEVEL"), "{}", text(&output));
}

/// Anyone can open an account at this provider and would become a member.
#[test]
fn public_sign_in_provider_needs_domains_or_roles() {
    let start = |issuer: &str, domains: &str| {
        let gateway = TestGateway::builder(PROGRAM)
            .env("TOLLGATE_OIDC__ISSUER", issuer)
            .env("TOLLGATE_OIDC__CLIENT_ID", "x")
            .env("TOLLGATE_OIDC__CREATE_MEMBERS", "true")
            .env("TOLLGATE_OIDC__DOMAINS", domains)
            // One fault that ends the start in every case.
            .env("TOLLGATE_SERVER__CORES", "many");
        text(&gateway.run_to_exit())
    };
    for open in ["https://accounts.google.com", "https://login.microsoftonline.com/common/v2.0"] {
        assert!(start(open, "").contains("set oidc.domains or oidc.role_claim"), "{open}");
        assert!(!start(open, "example.com").contains("oidc.role_claim"), "{open}");
    }
    for closed in ["https://id.example.com", "https://login.microsoftonline.com/11111111-2222-3333-4444-555555555555/v2.0"] {
        assert!(!start(closed, "").contains("oidc.role_claim"), "{closed}");
    }
}

#[test]
fn changed_catalog_file_takes_effect_and_an_invalid_one_does_not() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    let path = gateway.data().join("catalog.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(gateway.chat(&support::chat("renamed-model")).status, 404);
    std::fs::write(&path, text.replace("chat-model", "renamed-model")).unwrap();
    let serves = || gateway.chat(&support::chat("renamed-model")).status == 200;
    wait_for("the new catalog takes effect", std::time::Duration::from_secs(2), serves);
    std::fs::write(&path, "[[channel]]\nnme = 1\n").unwrap();
    gateway.signal("HUP");
    wait_for("the bad file is reported", std::time::Duration::from_secs(2), || gateway.log().contains("nme"));
    assert_eq!(gateway.chat(&support::chat("renamed-model")).status, 200);
}
