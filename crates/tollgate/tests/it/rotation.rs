//! Rotation of the master key under load: three nodes on one PostgreSQL, killed half-way and resumed; and one gateway on SQLite.

use std::{
    path::Path,
    process::{Command, Output},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use tempfile::TempDir;
use tollgate_testkit::{
    Postgres, Redis, Request, SERVICE_KEY, ScriptedResponse, TestGateway, TestGatewayBuilder, Upstream, wait_for,
};

use crate::support::{self, PROGRAM};

const OLD: &str = "tgm1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
/// Enough that sealing takes several transactions.
const ACCOUNTS: usize = 350;

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A catalog with many sealed credentials.
fn catalog(upstream: &Upstream, generation: &str) -> String {
    let accounts: String = (0..ACCOUNTS)
        .map(|number| format!("[[channel.account]]\nname = \"a{number}\"\ncredential = \"{{credential}}-{generation}-{number}\"\n"))
        .collect();
    let rows = support::catalog(upstream, "cooling = false");
    rows.replacen("[[channel.account]]", &format!("{accounts}[[channel.account]]"), 1)
        .replace("{credential}", tollgate_testkit::UPSTREAM_CREDENTIAL)
        .replace("{key}", SERVICE_KEY)
}

fn ask(gateway: &TestGateway) -> u16 {
    let request = Request::post("/v1/chat/completions", &support::chat("chat-model")).bearer(SERVICE_KEY);
    gateway.start_request(&request).read().map_or(0, |answer| answer.status)
}

/// The lines of a key file.
fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn three_nodes_serve_while_a_rotation_is_killed_and_resumed() {
    let name = "three_nodes_serve_while_a_rotation_is_killed_and_resumed";
    let (Some(postgres), Some(redis)) = (Postgres::start(name), Redis::start(name)) else { return };
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hello"));
    let shared = TempDir::new().unwrap();
    let key_file = shared.path().join("shared.key");
    std::fs::write(&key_file, OLD).unwrap();
    let environment = [
        ("DATABASE_URL", postgres.url()),
        ("REDIS_URL", redis.url()),
        ("TOLLGATE_MASTER_KEY_FILE", key_file.display().to_string()),
    ];
    let builder = || -> TestGatewayBuilder {
        let builder = TestGateway::builder(PROGRAM).env("TOLLGATE_SERVER__CORES", "1").without_record_check();
        environment.iter().fold(builder, |builder, (name, value)| builder.env(name, value))
    };
    let first = builder().spawn();
    for (file, generation) in [("one.toml", "one"), ("two.toml", "two")] {
        std::fs::write(first.data().join(file), catalog(&upstream, generation)).unwrap();
    }
    let applied = first.run(&["apply", "--yes", "one.toml"]);
    assert!(applied.status.success(), "{}", text(&applied));
    let nodes = [first, builder().spawn(), builder().spawn()];
    for node in &nodes {
        wait_for("the catalog", Duration::from_secs(10), || ask(node) == 200);
    }
    let (done, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let killed = thread::scope(|scope| {
        for node in &nodes {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(ask(node), 200, "{}", node.log());
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let killed = rotate_killed_at_times(&environment, nodes[0].data());
        // Credentials written during the rotation are sealed with the key that is current at that moment.
        let changed = nodes[1].run(&["apply", "--yes", &nodes[0].data().join("two.toml").display().to_string()]);
        assert!(changed.status.success(), "{}", text(&changed));
        let rotated = nodes[2].run(&["master-key", "rotate"]);
        done.store(true, Ordering::Relaxed);
        assert!(rotated.status.success(), "{}", text(&rotated));
        killed
    });
    assert_eq!(lines(&key_file).len(), 1, "the old line was removed");
    let new = std::fs::read_to_string(&key_file).unwrap();
    assert_ne!(new, OLD);
    let retired = lines(&shared.path().join("shared.key.retired"));
    assert!(retired.contains(&OLD.trim_end().to_owned()), "old backups need it");
    println!("{} answers during the rotation, which was killed {killed} times", answered.load(Ordering::Relaxed));
    assert!(killed > 0 && answered.load(Ordering::Relaxed) > 50);
    for node in nodes {
        assert!(!node.log().contains("cannot be opened"), "{}", node.log());
        drop(node);
    }
    // Every credential opens with the new key alone, and none with the old one.
    assert_eq!(postgres.sql("SELECT COUNT(*) FROM data_keys WHERE name = 'last_data_key'"), "0");
    let again = builder().spawn();
    assert_eq!(ask(&again), 200);
    let old = TempDir::new().unwrap();
    std::fs::write(old.path().join("old.key"), OLD).unwrap();
    let old_key = old.path().join("old.key").display().to_string();
    let refused = builder().env("TOLLGATE_MASTER_KEY_FILE", &old_key).data_folder(old).run_to_exit();
    assert_eq!(refused.status.code(), Some(3), "{}", text(&refused));
}

/// Starts rotations and kills each a little later than the one before, until one ends by itself. Returns how many were killed.
fn rotate_killed_at_times(environment: &[(&str, String)], data: &Path) -> usize {
    for number in 0..40 {
        let mut rotating = Command::new(PROGRAM)
            .env_clear()
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .args(["master-key", "rotate", "--data"])
            .arg(data)
            .current_dir(data)
            .stderr(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(400 + 150 * number));
        if let Some(status) = rotating.try_wait().unwrap() {
            assert!(status.success(), "a rotation failed");
            return usize::try_from(number).unwrap();
        }
        rotating.kill().unwrap();
        rotating.wait().unwrap();
    }
    panic!("no rotation ended");
}

#[test]
fn rotation_waits_for_a_node_with_its_own_key_file() {
    let name = "rotation_waits_for_a_node_with_its_own_key_file";
    let (Some(postgres), Some(redis)) = (Postgres::start(name), Redis::start(name)) else { return };
    let node = |key: &str| {
        let data = TempDir::new().unwrap();
        std::fs::write(data.path().join("master.key"), key).unwrap();
        let builder = TestGateway::builder(PROGRAM).data_folder(data).without_record_check();
        builder.env("DATABASE_URL", &postgres.url()).env("REDIS_URL", &redis.url()).spawn()
    };
    let (one, two) = (node(OLD), node(OLD));
    let early = one.run(&["master-key", "rotate", "--wait", "1"]);
    assert!(early.status.code() == Some(1), "{}", text(&early));
    assert!(text(&early).contains(&two.data().display().to_string()), "{}", text(&early));
    let extended = std::fs::read_to_string(one.data().join("master.key")).unwrap();
    assert!(extended.starts_with(OLD) && extended.lines().count() == 2, "the old key still seals");
    std::fs::write(two.data().join("master.key"), &extended).unwrap();
    let rotated = one.run(&["master-key", "rotate"]);
    assert!(rotated.status.success(), "{}", text(&rotated));
    assert_eq!(lines(&one.data().join("master.key")), [extended.lines().nth(1).unwrap()]);
    // The other node removes its old line by the same command.
    let cleaned = two.run(&["master-key", "rotate"]);
    assert!(cleaned.status.success() && lines(&two.data().join("master.key")).len() == 1, "{}", text(&cleaned));
    assert_eq!(lines(&two.data().join("master.key")), lines(&one.data().join("master.key")));
}

#[test]
fn single_gateway_rotates_while_serving_and_the_rotation_is_audited() {
    let upstream = Upstream::start();
    let gateway = support::gateway_for(&upstream);
    assert_eq!(gateway.chat(&support::chat("chat-model")).status, 200);
    let before = lines(&gateway.data().join("master.key"));
    let rotated = gateway.run(&["master-key", "rotate"]);
    assert!(rotated.status.success() && text(&rotated).contains("2 secrets were resealed"), "{}", text(&rotated));
    assert_ne!(lines(&gateway.data().join("master.key")), before);
    // A changed catalog is read with the new data key.
    let catalog = std::fs::read_to_string(gateway.data().join("catalog.toml")).unwrap();
    std::fs::write(gateway.data().join("catalog.toml"), catalog.replace("chat-model", "renamed-model")).unwrap();
    wait_for("the new catalog", Duration::from_secs(5), || gateway.chat(&support::chat("renamed-model")).status == 200);
    let audit = gateway.run(&["audit", "--json"]);
    assert!(text(&audit).contains("rotate_master_key"), "{}", text(&audit));
    let data = gateway.kill();
    let again = TestGateway::builder(PROGRAM).data_folder(data).spawn();
    let twice = again.run(&["master-key", "rotate"]);
    assert!(twice.status.success(), "{}", text(&twice));
}

#[test]
fn master_key_from_the_environment_needs_a_second_line_before_rotation() {
    let data = TempDir::new().unwrap();
    let gateway = TestGateway::builder(PROGRAM).data_folder(data).env("TOLLGATE_MASTER_KEY", OLD.trim_end()).spawn();
    let refused = gateway.run(&["master-key", "rotate"]);
    assert!(refused.status.code() == Some(3) && text(&refused).contains("master-key new"), "{}", text(&refused));
    let line = String::from_utf8(gateway.run(&["master-key", "new"]).stdout).unwrap();
    let both = format!("{OLD}{line}");
    let gateway = TestGateway::builder(PROGRAM).data_folder(gateway.kill()).env("TOLLGATE_MASTER_KEY", &both).spawn();
    let rotated = gateway.run(&["master-key", "rotate"]);
    assert!(rotated.status.success() && text(&rotated).contains("remove the old line"), "{}", text(&rotated));
    drop(TestGateway::builder(PROGRAM).data_folder(gateway.kill()).env("TOLLGATE_MASTER_KEY", line.trim_end()).spawn());
}
