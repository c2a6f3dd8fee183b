//! Backups that a gateway makes by itself, and the check that a backup can be restored.

use std::{fs, path::Path, process::Command, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_testkit::wait_for;

use crate::{
    admin::{Admin, ok},
    support::{self, PROGRAM},
};

const LONG: Duration = Duration::from_mins(1);

fn set(admin: &Admin, name: &str, value: &str) {
    ok(&admin.call("PUT", &format!("/admin/v1/settings/{name}"), Some(&json!({"value": value}))));
}

fn listed(admin: &Admin) -> Vec<Value> {
    admin.get("/admin/v1/backups")["items"].as_array().unwrap().clone()
}

/// The result of the check of a backup.
fn checked(admin: &Admin, name: &str) -> Value {
    let job = admin.post("/admin/v1/jobs", &json!({"kind": "backup_check", "name": name}));
    let path = format!("/admin/v1/jobs/{}", job["id"].as_str().unwrap());
    wait_for("the check ends", LONG, || ["done", "failed"].iter().any(|state| admin.get(&path)["state"] == *state));
    admin.get(&path)
}

#[test]
fn gateway_makes_backups_by_itself_and_checks_them() {
    let admin = Admin::echo();
    let gateway = &admin.gateway;
    let _ = gateway.record_of(&gateway.chat(&support::chat("echo")));
    let schedule = || admin.get("/admin/v1/backup-schedule");
    assert_eq!((&schedule()["supported"], &schedule()["next_at"]), (&json!(true), &Value::Null));
    assert!(listed(&admin).is_empty());
    set(&admin, "backup.interval_hours", "24");
    wait_for("a backup", LONG, || !listed(&admin).is_empty());
    let made = listed(&admin)[0].clone();
    let name = made["name"].as_str().unwrap();
    assert!(made["scheduled"] == true && made["check"].is_null() && name.starts_with("tollgate-scheduled-"), "{made}");
    wait_for("the schedule knows it", LONG, || schedule()["failure"].is_null() && schedule()["last_at"] == made["made_at"]);
    let next: jiff::Timestamp = schedule()["next_at"].as_str().unwrap().parse().unwrap();
    let last: jiff::Timestamp = schedule()["last_at"].as_str().unwrap().parse().unwrap();
    assert_eq!(next.as_second() - last.as_second(), 86_400);

    let job = checked(&admin, name);
    let result = &job["result"];
    assert_eq!((&job["state"], &job["exit_code"]), (&json!("done"), &json!(0)), "{job}");
    assert_eq!((&result["file"], &result["schema"]), (&json!(name), &result["known_schema"]), "{job}");
    assert_eq!(result["verified"]["agrees"], true, "{job}");
    assert_eq!(listed(&admin)[0]["check"]["fault"], Value::Null);
    assert!(listed(&admin)[0]["check"]["at"].is_string());
    let folder = gateway.data().join("backups");
    let out = gateway.run(&["restore", folder.join(name).to_str().unwrap(), "--check"]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success() && text.contains("it can be restored, and its sums agree"), "{out:?}");

    // A changed file is found, and said.
    let mut bytes = std::fs::read(folder.join(name)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(folder.join(name), bytes).unwrap();
    let job = checked(&admin, name);
    assert_eq!(job["state"], "failed", "{job}");
    assert_eq!(listed(&admin)[0]["check"]["fault"], job["error"]["message"]);
    let left: Vec<String> =
        std::fs::read_dir(&folder).unwrap().flatten().map(|it| it.file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(left.len(), 2, "only the backup and the result of its check: {left:?}");
    for wrong in [json!({"kind": "backup_check"}), json!({"kind": "backup_check", "name": "../master.key"})] {
        assert_eq!(admin.call("POST", "/admin/v1/jobs", Some(&wrong)).status, 400, "{wrong}");
    }
    assert_eq!(admin.as_operator("POST", "/admin/v1/jobs", Some(&json!({"kind": "backup_check", "name": name}))).status, 403);
}

#[test]
fn failed_scheduled_backup_raises_an_alert() {
    let admin = Admin::echo();
    // No folder can be made there.
    std::fs::write(admin.gateway.data().join("backups"), "x").unwrap();
    set(&admin, "backup.interval_hours", "1");
    let alerts = |state: &str| admin.get(&format!("/admin/v1/alerts?rule=backup_failed&state={state}"))["items"].clone();
    wait_for("an alert", LONG, || alerts("open")[0].is_object());
    assert!(alerts("open")[0]["text"].as_str().unwrap().starts_with("scheduled backups of "), "{}", alerts("open"));
    std::fs::remove_file(admin.gateway.data().join("backups")).unwrap();
    let schedule = admin.get("/admin/v1/backup-schedule");
    assert!(schedule["failure"]["message"].is_string() && schedule["next_at"].is_string(), "{schedule}");
    set(&admin, "backup.interval_hours", "0");
    wait_for("the alert ends", LONG, || !alerts("open")[0].is_object() && alerts("ended")[0].is_object());
}

/// What the doctor says of the folder of backups, with a backup wanted every day.
fn doctor(data: &Path) -> String {
    let mut command = Command::new(PROGRAM);
    command.env_clear().env("TOLLGATE_BACKUP__INTERVAL_HOURS", "24").args(["doctor", "--data"]).arg(data);
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let line = text.lines().find(|line| line.contains(" backups ")).unwrap_or_else(|| panic!("{text}"));
    line.to_owned()
}

#[test]
fn doctor_reports_faults_of_backups_with_advice() {
    let data = TempDir::new().unwrap();
    let folder = data.path().join("backups");
    let none = doctor(data.path());
    assert!(none.starts_with("note") && none.contains("is made with the first backup"), "{none}");
    assert!(none.contains("there is no scheduled backup yet") && !folder.exists(), "{none}");
    fs::write(&folder, "x").unwrap();
    let no_folder = doctor(data.path());
    assert!(no_folder.starts_with("FAIL") && no_folder.contains("cannot make a file in"), "{no_folder}");
    assert!(no_folder.contains("set another backup.folder"), "{no_folder}");
    fs::remove_file(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("tollgate-scheduled-2026-01-01T00-00-00Z.backup"), "x").unwrap();
    let late = doctor(data.path());
    assert!(late.starts_with("FAIL") && late.contains("one is due every 24 h; start the gateway"), "{late}");
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H-%M-%SZ");
    fs::write(folder.join(format!("tollgate-scheduled-{now}.backup")), "x").unwrap();
    let well = doctor(data.path());
    assert!(
        well.starts_with("ok") && well.contains("takes backups") && well.contains("the newest scheduled backup is of"),
        "{well}"
    );
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "it leaves nothing behind");
}
