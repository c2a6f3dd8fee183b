//! Commands that start, show and cancel jobs of a gateway (`--url`), beside the same work on a data folder.

use std::process::Child;

use super::*;

#[test]
fn jobs_are_shown_and_cancelled_by_commands() {
    let admin = Admin::echo();
    let job = finish(&admin, &json!({"kind": "verify"}));
    let id = job["id"].as_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| parts(&command(&admin.gateway, &admin.key, folder.path(), arguments).output().unwrap());
    let (code, said, _) = run(&["job", "list"]);
    assert!(code == Some(0) && said.contains(id) && said.contains("verify") && said.contains("done"), "{said}");
    let (code, said, _) = run(&["job", "show", id, "--json"]);
    let shown: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &shown["result"]), (Some(0), &job["result"]), "{said}");
    let (code, said, _) = run(&["job", "cancel", id]);
    assert!(code == Some(0) && said.contains(&format!("job {id} is done")), "it has ended: {said}");
    let (code, _, fault) = run(&["job", "show", "job_01m7zaz1p2ec1r60r30c1g60r3"]);
    assert!(code != Some(0) && fault.contains("no job"), "{fault}");
}

#[test]
fn commands_print_the_same_locally_and_over_the_api() {
    let upstream = Upstream::start();
    let admin = Admin::of(support::gateway_for(&upstream));
    let (gateway, folder) = (&admin.gateway, TempDir::new().unwrap());
    for _ in 0..3 {
        let _ = gateway.record_of(&gateway.chat(&support::chat("chat-model")));
    }
    wait_for("all is booked", LONG, || admin.get("/admin/v1/usage")["items"].as_array().unwrap().len() == 3);
    std::fs::write(folder.path().join("credential"), "from-a-file\n").unwrap();
    let changed =
        support::catalog(&upstream, "weight = 3").replace("{key}", gateway.key()).replace("{credential}", "file:credential");
    std::fs::write(folder.path().join("changed.toml"), &changed).unwrap();
    std::fs::write(gateway.data().join("changed.toml"), changed.replace("file:credential", "from-a-file")).unwrap();
    let wrong = "[[group]]\nname = \"g\"\nchannels = [\"unknown\"]\n";
    for at in [folder.path(), gateway.data()] {
        std::fs::write(at.join("wrong.toml"), wrong).unwrap();
        std::fs::write(at.join("broken.toml"), "[[group]]\nname = 7\n").unwrap();
    }
    for arguments in [
        &["verify"][..],
        &["verify", "--json"],
        &["doctor", "--quiet"],
        &["replay", "changed.toml"],
        &["replay", "changed.toml", "--json", "--key", "caller", "--since", "2026-01-01T00:00:00Z"],
        &["replay", "wrong.toml"],
        &["replay", "broken.toml"],
        &["replay", "missing.toml"],
        &["replay", "changed.toml", "--outcome", "well"],
        &["replay", "changed.toml", "--group", "unknown"],
    ] {
        let local = parts(&gateway.run(arguments));
        let remote = parts(&command(gateway, &admin.key, folder.path(), arguments).output().unwrap());
        assert_eq!(local, remote, "{arguments:?}");
    }
    let doctor = parts(&command(gateway, &admin.key, folder.path(), &["doctor"]).output().unwrap());
    assert!(doctor.0 == Some(0) && doctor.1.contains("ok    journal"), "{doctor:?}");
    let ops = parts(&command(gateway, &admin.operator, folder.path(), &["replay", "changed.toml"]).output().unwrap());
    assert!(ops.0 == Some(3) && ops.2.contains("scope 'admin'"), "{ops:?}");
}

#[test]
fn backup_over_the_api_is_moved_to_the_caller_and_restores() {
    let admin = Admin::echo();
    let (gateway, folder) = (&admin.gateway, TempDir::new().unwrap());
    let _ = gateway.record_of(&gateway.chat(&support::chat("echo")));
    wait_for("it is booked", LONG, || admin.get("/admin/v1/usage")["items"].as_array().unwrap().len() == 1);
    let run = |arguments: &[&str]| parts(&command(gateway, &admin.key, folder.path(), arguments).output().unwrap());
    let (code, out, err) = run(&["backup", "today.backup"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.starts_with("today.backup: database with 1 records, checked; journal with "), "{out}");
    assert!(admin.get("/admin/v1/backups")["items"].as_array().unwrap().is_empty(), "it is moved");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().map(|it| it.file_name()).collect();
    assert_eq!(left, ["today.backup"]);
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(folder.path().join("today.backup")).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    let (code, _, err) = run(&["backup", "today.backup"]);
    assert!(code == Some(1) && err.contains("exists already"), "{err}");
    let (code, _, err) = run(&["backup", "secret.backup", "--with-secrets", "--passphrase", "env:PATH"]);
    assert!(code == Some(2) && err.contains("master key does not leave"), "{err}");
    // The backup cannot be written locally, so it remains on the gateway.
    let (code, _, err) = run(&["backup", "missing/today.backup"]);
    assert!(code == Some(1) && err.contains("stays on the gateway's disk as tollgate-"), "{err}");
    assert_eq!(admin.get("/admin/v1/backups")["items"].as_array().unwrap().len(), 1);
    let restored = TempDir::new().unwrap();
    let local = |arguments: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.env_clear().args(arguments).arg("--data").arg(restored.path()).current_dir(folder.path());
        parts(&command.output().unwrap())
    };
    assert_eq!(local(&["restore", "today.backup"]).0, Some(0));
    std::fs::copy(gateway.data().join("master.key"), restored.path().join("master.key")).unwrap();
    let verified = local(&["verify"]);
    assert!(verified.0 == Some(0) && verified.1.contains("1 record,"), "{verified:?}");
}

fn interrupt(child: &Child) {
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn interrupted_command_cancels_its_work() {
    let admin = Admin::of(with_endless_verification());
    let folder = TempDir::new().unwrap();
    // Over the API the job is cancelled, and progress was shown.
    let mut remote = command(&admin.gateway, &admin.key, folder.path(), &["verify"]);
    let child = remote.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let newest = || admin.get(JOBS)["items"][0].clone();
    wait_for("the job runs", LONG, || newest()["progress"]["step"] == "database");
    interrupt(&child);
    let (code, _, err) = parts(&child.wait_with_output().unwrap());
    assert!(code == Some(1) && err.contains("cancelled by root (adm_"), "{err}");
    assert_eq!(newest()["state"], "cancelled");
    // The same command on the data folder. It is interrupted once it reports progress.
    let mut local = Command::new(PROGRAM);
    local.env_clear().args(["verify", "--data"]).arg(admin.gateway.data()).current_dir(folder.path());
    let mut child = local.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    interrupt_when_it_waits(&mut child);
    let (code, _, err) = parts(&child.wait_with_output().unwrap());
    assert!(code == Some(1) && err.contains("cancelled"), "{err}");
}

/// Interrupts a command once its signal handler is installed.
fn interrupt_when_it_waits(child: &mut Child) {
    let status = format!("/proc/{}/status", child.id());
    wait_for("the handler is installed", LONG, || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
        u64::from_str_radix(caught.trim(), 16).unwrap_or(0) & 0b10 != 0
    });
    interrupt(child);
}

#[test]
fn remote_command_reports_that_the_gateway_stopped() {
    let mut admin = Admin::of(with_endless_verification());
    let folder = TempDir::new().unwrap();
    let mut follower = command(&admin.gateway, &admin.key, folder.path(), &["verify"]);
    let child = follower.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the job runs", LONG, || admin.get(JOBS)["items"][0]["progress"]["step"] == "database");
    assert_eq!(admin.gateway.stop(), Some(0));
    let (code, _, err) = parts(&child.wait_with_output().unwrap());
    assert!(code == Some(1) && err.contains("cancelled: the gateway stopped"), "{err}");
}
