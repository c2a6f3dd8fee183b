//! Backups of a running gateway, their restoration, and copies that are not backups.

use std::{
    path::Path,
    process::Output,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use serde_json::Value;
use tempfile::TempDir;
use tollgate_testkit::{FREE_ADDRESS, Postgres, Request, TestGateway};

use crate::support::{self, PROGRAM};

fn command(data: &Path, arguments: &[&str]) -> Output {
    let mut command = std::process::Command::new(PROGRAM);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("PASS", "correct horse battery").args(arguments).arg("--data").arg(data);
    command.envs([FREE_ADDRESS]).current_dir(data).output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn exported(data: &Path) -> Vec<String> {
    let out = command(data, &["usage", "export", "--json"]);
    assert!(out.status.success(), "{}", text(&out));
    let lines = String::from_utf8_lossy(&out.stdout).into_owned();
    lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn backup_under_load_has_every_record_that_ended_before_it_began() {
    let gateway = support::echo();
    let (done, answered) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let (folder, restored) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let file = folder.path().join("one.backup").display().to_string();
    let before = thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let response = gateway.chat(&support::chat("echo"));
                    assert_eq!(response.status, 200);
                    answered.lock().unwrap().push(response.header("x-request-id").unwrap().to_owned());
                }
            });
        }
        tollgate_testkit::wait_for("some load", std::time::Duration::from_mins(1), || answered.lock().unwrap().len() > 300);
        let before = answered.lock().unwrap().clone();
        let made = gateway.run(&["backup", &file, "--with-secrets", "--passphrase", "file:lock"]);
        done.store(true, Ordering::Relaxed);
        assert!(made.status.success(), "{}", text(&made));
        before
    });
    let pass = format!("file:{}", gateway.data().join("lock").display());
    let out = command(restored.path(), &["restore", &file, "--passphrase", &pass]);
    assert!(out.status.success(), "{}", text(&out));
    let verified = command(restored.path(), &["verify"]);
    assert!(verified.status.success(), "{}", text(&verified));
    let there: std::collections::HashSet<String> = exported(restored.path()).into_iter().collect();
    let missing: Vec<_> = before.iter().filter(|id| !there.contains(*id)).collect();
    assert!(missing.is_empty(), "{} of {} are missing", missing.len(), before.len());
    // It serves, and the key works.
    let key = gateway.key().to_owned();
    let again = TestGateway::builder(PROGRAM).data_folder(restored).spawn();
    assert_eq!(again.send(&Request::post("/v1/chat/completions", &support::chat("echo")).bearer(&key)).status, 200);
}

#[test]
fn backup_without_secrets_needs_the_master_key_put_back() {
    let gateway = support::echo();
    assert_eq!(gateway.chat(&support::chat("echo")).status, 200);
    let (folder, restored) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let file = folder.path().join("two.backup");
    let name = file.display().to_string();
    assert_eq!(gateway.run(&["backup", &name, "--with-secrets"]).status.code(), Some(2));
    assert_eq!(gateway.run(&["backup", &name, "--with-secrets", "--passphrase", "literal"]).status.code(), Some(2));
    let made = gateway.run(&["backup", &name]);
    assert!(made.status.success() && text(&made).contains("master key is not in it"), "{}", text(&made));
    let again = gateway.run(&["backup", &name]);
    assert!(again.status.code() == Some(1) && text(&again).contains("exists already"), "{}", text(&again));
    let bytes = std::fs::read(&file).unwrap();
    let secret = std::fs::read_to_string(gateway.data().join("master.key")).unwrap();
    assert!(!bytes.windows(20).any(|window| window == &secret.as_bytes()[..20]), "the backup holds the master key");
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let out = command(restored.path(), &["restore", &name]);
    assert!(out.status.success() && text(&out).contains("master key is missing"), "{}", text(&out));
    assert_eq!(command(restored.path(), &["verify"]).status.code(), Some(3));
    std::fs::write(restored.path().join("master.key"), secret).unwrap();
    assert!(command(restored.path(), &["verify"]).status.success());
    let twice = command(restored.path(), &["restore", &name]);
    assert!(twice.status.code() == Some(3) && text(&twice).contains("exists already"), "{}", text(&twice));
    let served = command(gateway.data(), &["restore", &name]);
    assert!(served.status.code() == Some(1) && text(&served).contains("in use"), "{}", text(&served));
}

#[test]
fn damaged_backup_or_wrong_passphrase_restores_nothing() {
    let gateway = support::echo();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("three.backup");
    let name = file.display().to_string();
    let made = gateway.run(&["backup", &name, "--with-secrets", "--passphrase", "file:lock"]);
    assert!(made.status.success(), "{}", text(&made));
    let whole = std::fs::read(&file).unwrap();
    let refused = |bytes: &[u8], code: i32, says: &str| {
        let target = TempDir::new().unwrap();
        std::fs::write(&file, bytes).unwrap();
        let out = command(target.path(), &["restore", &name, "--passphrase", "env:PASS"]);
        assert!(out.status.code() == Some(code) && text(&out).contains(says), "{}", text(&out));
        let left: Vec<_> = std::fs::read_dir(target.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["lock"], "nothing is left behind");
    };
    refused(&whole, 3, "passphrase");
    refused(&whole[..whole.len() / 2], 1, "not a whole backup");
    let mut flipped = whole.clone();
    let at = whole.len() / 2;
    flipped[at] ^= 1;
    refused(&flipped, 1, "three.backup");
}

#[test]
fn verify_refuses_a_plain_copy_of_a_running_database() {
    let gateway = support::echo();
    for _ in 0..20 {
        let _ = gateway.record_of(&gateway.chat(&support::chat("echo")));
    }
    // The file alone, without its write-ahead log and without the journal.
    let alone = TempDir::new().unwrap();
    for name in ["tollgate.db", "master.key"] {
        std::fs::copy(gateway.data().join(name), alone.path().join(name)).unwrap();
    }
    let out = command(alone.path(), &["verify"]);
    assert!(out.status.code() == Some(1) && text(&out).contains("do not belong together"), "{}", text(&out));
    // With the journal, but an older database.
    let stale = TempDir::new().unwrap();
    for name in ["tollgate.db", "master.key"] {
        std::fs::copy(gateway.data().join(name), stale.path().join(name)).unwrap();
    }
    std::fs::create_dir(stale.path().join("journal")).unwrap();
    for entry in std::fs::read_dir(gateway.data().join("journal")).unwrap().flatten() {
        std::fs::copy(entry.path(), stale.path().join("journal").join(entry.file_name())).unwrap();
    }
    let out = command(stale.path(), &["verify"]);
    assert!(out.status.code() == Some(1) && text(&out).contains("older than the journal"), "{}", text(&out));
    // The operator accepts this copy, because there is no better one.
    let accepted = command(stale.path(), &["doctor", "--repair"]);
    assert!(accepted.status.success() && text(&accepted).contains("accepted as it is"), "{}", text(&accepted));
    let out = command(stale.path(), &["verify"]);
    assert!(out.status.success(), "{}", text(&out));
}

#[test]
fn verify_accepts_a_copy_of_a_stopped_gateway() {
    let mut gateway = support::echo();
    let _ = gateway.record_of(&gateway.chat(&support::chat("echo")));
    assert_eq!(gateway.stop(), Some(0));
    let copy = TempDir::new().unwrap();
    for name in ["tollgate.db", "master.key"] {
        std::fs::copy(gateway.data().join(name), copy.path().join(name)).unwrap();
    }
    let out = command(copy.path(), &["verify"]);
    assert!(out.status.success(), "{}", text(&out));
}

#[test]
fn backup_on_postgres_names_the_tool_and_keeps_the_journal() {
    let Some(postgres) = Postgres::start("backup_on_postgres_names_the_tool_and_keeps_the_journal") else { return };
    let gateway = TestGateway::builder(PROGRAM).env("DATABASE_URL", &postgres.url()).spawn();
    assert_eq!(gateway.chat(&support::chat("echo")).status, 200);
    let folder = TempDir::new().unwrap();
    let name = folder.path().join("node.backup").display().to_string();
    let made = gateway.run(&["backup", &name, "--with-secrets", "--passphrase", "file:lock"]);
    assert!(made.status.success() && text(&made).contains("pg_dump"), "{}", text(&made));
    let pass = format!("file:{}", gateway.data().join("lock").display());
    let target = TempDir::new().unwrap();
    let out = command(target.path(), &["restore", &name, "--passphrase", &pass]);
    assert!(out.status.code() == Some(3) && text(&out).contains("DATABASE_URL"), "{}", text(&out));
    let mut restore = std::process::Command::new(PROGRAM);
    restore.env_clear().env("DATABASE_URL", postgres.url()).args(["restore", &name, "--passphrase", &pass, "--data"]);
    let out = restore.arg(target.path()).current_dir(target.path()).output().unwrap();
    assert!(out.status.success(), "{}", text(&out));
    let key = |data: &Path| std::fs::read_to_string(data.join("master.key")).unwrap();
    assert_eq!(key(target.path()), key(gateway.data()));
    assert!(target.path().join("journal/booked").exists());
}
