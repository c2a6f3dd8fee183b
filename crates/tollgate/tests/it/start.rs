//! First start, later starts, and starts that must not succeed.

use std::process::{Command, Output};

use tempfile::TempDir;
use tollgate_testkit::{Request, TestGateway, Upstream, wait_for};

use crate::support::{self, PROGRAM};

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_two_printed_curl_lines_work_as_they_stand() {
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
    let mut said = String::new();
    let mut reader = std::io::BufReader::new(process.stdout.take().unwrap());
    while said.matches("curl ").count() < 2 {
        let before = said.len();
        std::io::BufRead::read_line(&mut reader, &mut said).unwrap();
        assert!(said.len() > before, "it ended after saying:\n{said}");
    }
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("curl ")).collect();
    let answers: Vec<String> = lines
        .iter()
        .map(|line| String::from_utf8_lossy(&Command::new("sh").args(["-c", line]).output().unwrap().stdout).into_owned())
        .collect();
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(answers[0].contains("\"chat.completion\""), "{}\n{}", lines[0], answers[0]);
    assert!(answers[1].contains("\"candidates\""), "{}\n{}", lines[1], answers[1]);
}

#[test]
fn a_later_start_keeps_the_key_and_shows_it_no_more() {
    let first = support::echo();
    let key = first.key().to_owned();
    assert!(key.starts_with("sk-tg-"), "{key}");
    let body = support::chat("echo");
    assert_eq!(first.chat(&body).status, 200);
    let data = first.kill();
    let second = TestGateway::of(PROGRAM).on(data).spawn();
    assert!(second.said().get("key").is_none_or(serde_json::Value::is_null), "{}", second.said());
    assert_eq!(second.send(&Request::post("/v1/chat/completions", &body).bearer(&key)).status, 200);
}

#[test]
fn a_command_before_the_first_start_does_not_take_its_key_away() {
    let data = TempDir::new().unwrap();
    let listed = Command::new(PROGRAM).args(["key", "list", "--data"]).arg(data.path()).output().unwrap();
    assert_eq!(listed.status.code(), Some(1), "{}", text(&listed));
    let file = data.path().join("empty.toml");
    std::fs::write(&file, "").unwrap();
    let applied = Command::new(PROGRAM).args(["apply", "--yes", "--data"]).arg(data.path()).arg(&file).output().unwrap();
    assert!(applied.status.success(), "{}", text(&applied));
    let gate = TestGateway::of(PROGRAM).on(data).spawn();
    let key = gate.said()["key"].as_str().expect("a first start shows a key").to_owned();
    assert_eq!(gate.send(&Request::post("/v1/chat/completions", &support::chat("echo")).bearer(&key)).status, 200);
}

#[test]
fn the_master_key_is_readable_by_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let gate = support::echo();
    let mode = std::fs::metadata(gate.data().join("master.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn secrets_are_not_in_the_database_file() {
    let upstream = Upstream::start();
    let gate = support::before(&upstream);
    assert_eq!(gate.chat(&support::chat("chat-model")).status, 200);
    for entry in std::fs::read_dir(gate.data())
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("tollgate.db"))
    {
        let bytes = std::fs::read(entry.path()).unwrap();
        for secret in [tollgate_testkit::SERVICE_KEY, tollgate_testkit::UPSTREAM_CREDENTIAL] {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{} holds a secret in clear text", entry.path().display());
        }
    }
}

#[test]
fn the_password_of_a_proxy_is_nowhere_but_sealed() {
    let upstream = Upstream::start();
    let served = support::catalog(&upstream, "").replacen(
        "[[channel.account]]",
        "proxy = \"http://me:served-secret@127.0.0.1:9\"\n[[channel.account]]",
        1,
    );
    let gate = TestGateway::of(PROGRAM).catalog(&served).spawn();
    let admin = crate::admin::make_key(&gate, "root", "admin");
    let send = |method: &str, path: &str, body: &serde_json::Value| {
        let answer = gate.send(&Request::post(path, body).method(method).bearer(&admin));
        let said = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(answer.status < 300, "{said}");
        said
    };
    let body = serde_json::json!({"name": "made", "provider": "openai", "proxy": "http://me:posted-secret@127.0.0.1:9"});
    let mut said = send("POST", "/admin/v1/channels", &body);
    said += &send("PATCH", "/admin/v1/channels/made", &serde_json::json!({"proxy": "socks5://me:patched-secret@127.0.0.1:9"}));
    assert_eq!(gate.chat(&support::chat("chat-model")).status, 502);
    for path in ["/admin/v1/channels", "/admin/v1/catalog", "/admin/v1/audit", "/metrics"] {
        said += &String::from_utf8_lossy(&gate.send(&Request::get(path).bearer(&admin)).body);
    }
    for command in [&["doctor"][..], &["pull"], &["audit"], &["channel", "list"]] {
        let output = gate.run(command);
        said += &String::from_utf8_lossy(&output.stdout);
        said += &String::from_utf8_lossy(&output.stderr);
    }
    said += &gate.log();
    assert!(said.contains("http://me:***@127.0.0.1:9") && said.contains("socks5://me:***@127.0.0.1:9"), "{said}");
    let data = gate.kill();
    let files = std::fs::read_dir(data.path()).unwrap().flatten().map(|entry| entry.path());
    let mut seen = vec![("what it says".to_owned(), said.into_bytes())];
    seen.extend(files.filter(|path| path.is_file() && !path.ends_with("catalog.toml")).map(|path| {
        let bytes = std::fs::read(&path).unwrap();
        (path.display().to_string(), bytes)
    }));
    for (place, bytes) in seen {
        for secret in ["served-secret", "posted-secret", "patched-secret"] {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{place} holds {secret} in clear text");
        }
    }
}

#[test]
fn a_busy_port_is_said_with_the_next_step() {
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap().to_string();
    let data = TempDir::new().unwrap();
    let output = Command::new(PROGRAM).args(["serve", "--listen", &address, "--data"]).arg(data.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains(&address) && text(&output).contains("--listen"), "{}", text(&output));
}

#[test]
fn a_folder_in_use_is_refused() {
    let gate = support::echo();
    let output = Command::new(PROGRAM).args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(gate.data()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("in use"), "{}", text(&output));
}

#[test]
fn a_file_where_the_data_folder_should_be_is_refused() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let output = Command::new(PROGRAM).args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains(&file.display().to_string()), "{}", text(&output));
    assert_eq!(std::fs::read(&file).unwrap(), b"x");
}

#[test]
fn a_corrupt_database_is_refused_and_left_as_it_is() {
    let data = TempDir::new().unwrap();
    let garbage = vec![0x5a; 8192];
    std::fs::write(data.path().join("tollgate.db"), &garbage).unwrap();
    let output = TestGateway::of(PROGRAM).on(data).without_record_check().fail();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("damaged"), "{}", text(&output));
}

#[test]
fn a_wrong_or_missing_master_key_is_refused() {
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
    drop(TestGateway::of(PROGRAM).on(data).spawn());
}

#[test]
fn a_bad_catalog_is_refused_with_place_and_suggestion() {
    let output = TestGateway::of(PROGRAM).catalog("[[channel]]\nname = \"a\"\nprovidr = \"openai\"\n[[group]]\nname = 7\n").fail();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    let said = text(&output);
    assert!(said.contains("3:") && said.contains("providr") && said.contains("provider"), "{said}");
    assert!(said.contains("5:"), "every fault is named at once: {said}");
}

#[test]
fn a_missing_secret_names_its_variable() {
    let upstream = Upstream::start();
    let catalog = support::catalog(&upstream, "").replace("\"{credential}\"", "\"env:NO_SUCH_SECRET\"");
    let output = TestGateway::of(PROGRAM).catalog(&catalog).fail();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(text(&output).contains("NO_SUCH_SECRET"), "{}", text(&output));
}

#[test]
fn wrong_settings_are_all_named_at_once() {
    let output = TestGateway::of(PROGRAM).env("TOLLGATE_SERVER__CORES", "many").env("TOLLGATE_LOG__LEVEL", "loud").fail();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output));
    assert!(text(&output).contains("TOLLGATE_SERVER__CORES") && text(&output).contains("TOLLGATE_LOG__LEVEL"), "{}", text(&output));
}

#[test]
fn a_changed_catalog_file_takes_effect_and_a_bad_one_changes_nothing() {
    let upstream = Upstream::start();
    let gate = support::before(&upstream);
    let path = gate.data().join("catalog.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(gate.chat(&support::chat("renamed-model")).status, 404);
    std::fs::write(&path, text.replace("chat-model", "renamed-model")).unwrap();
    let serves = || gate.chat(&support::chat("renamed-model")).status == 200;
    wait_for("the new catalog takes effect", std::time::Duration::from_secs(2), serves);
    std::fs::write(&path, "[[channel]]\nnme = 1\n").unwrap();
    gate.signal("HUP");
    wait_for("the bad file is reported", std::time::Duration::from_secs(2), || gate.log().contains("nme"));
    assert_eq!(gate.chat(&support::chat("renamed-model")).status, 200);
}
