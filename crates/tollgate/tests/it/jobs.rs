//! Jobs of a running gateway, over the admin API and by commands with `--url`.

mod commands;
mod import;

use std::{
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_testkit::{ClientResponse, Postgres, Request, TestGateway, Upstream, wait_for};

use crate::{
    admin::{Admin, ok, refusal, refused, refused_whole, text},
    support::{self, PROGRAM},
};

const JOBS: &str = "/admin/v1/jobs";
const LONG: Duration = Duration::from_mins(1);

fn path(job: &Value) -> String {
    format!("{JOBS}/{}", job["id"].as_str().unwrap())
}

fn has_ended(job: &Value) -> bool {
    ["done", "failed", "cancelled"].iter().any(|state| job["state"] == *state)
}

/// The job once it has ended.
fn ended(admin: &Admin, job: &Value) -> Value {
    let path = path(job);
    wait_for("the job ends", LONG, || has_ended(&admin.get(&path)));
    admin.get(&path)
}

/// Runs a job to its end.
fn finish(admin: &Admin, request: &Value) -> Value {
    ended(admin, &admin.post(JOBS, request))
}

fn command(gateway: &TestGateway, key: &str, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("TOLLGATE_ADMIN_KEY", key).current_dir(folder);
    command.args(["--url", &format!("http://{}", gateway.address())]).args(arguments).stdin(Stdio::null());
    command
}

fn parts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn each_kind_of_job_has_the_result_its_command_prints() {
    let upstream = Upstream::start();
    let admin = Admin::of(support::gateway_for(&upstream));
    let gateway = &admin.gateway;
    for _ in 0..5 {
        let _ = gateway.record_of(&gateway.chat(&support::chat("chat-model")));
    }
    wait_for("all is booked", LONG, || admin.get("/admin/v1/usage")["items"].as_array().unwrap().len() == 5);
    let dearer = support::catalog(&upstream, "cooling = false")
        .replace("{key}", gateway.key())
        .replace("{credential}", "another")
        .replace("\"10\"", "\"30\"");
    let file = gateway.data().join("changed.toml");
    std::fs::write(&file, &dearer).unwrap();
    let printed = |arguments: &[&str]| -> Value { serde_json::from_slice(&gateway.run(arguments).stdout).unwrap() };
    let replayed = printed(&["replay", file.to_str().unwrap(), "--json", "--outcome", "completed"]);
    assert_eq!((&replayed["replayed"], &replayed["moved"]), (&json!(5), &json!(0)), "{replayed}");
    for (request, expected) in [
        (json!({"kind": "verify"}), printed(&["verify", "--json"])),
        (json!({"kind": "replay", "file": dearer, "outcome": "completed"}), replayed),
    ] {
        let job = finish(&admin, &request);
        assert_eq!((&job["state"], &job["exit_code"], &job["error"]), (&json!("done"), &json!(0), &Value::Null), "{job}");
        assert_eq!(job["result"], expected, "{request}");
        assert!(job["by"].as_str().unwrap().starts_with("root (adm_") && job["started_at"].is_string(), "{job}");
    }
    // The catalog revision differs: starting a job is recorded in the audit log.
    let job = finish(&admin, &json!({"kind": "doctor"}));
    let what = |value: &Value| -> Vec<(Value, Value)> {
        value["items"].as_array().unwrap().iter().map(|it| (it["what"].clone(), it["ok"].clone())).collect()
    };
    assert_eq!((&job["state"], what(&job["result"])), (&json!("done"), what(&printed(&["doctor", "--json"]))), "{job}");
    let job = finish(&admin, &json!({"kind": "backup"}));
    assert_eq!(
        (&job["state"], &job["result"]["records"], &job["result"]["master_key"]),
        (&json!("done"), &json!(5), &json!(false))
    );
    let audit = admin.get("/admin/v1/audit?kind=job");
    let recorded: Vec<_> = audit["items"].as_array().unwrap().iter().map(|it| (it["action"].clone(), it["name"].clone())).collect();
    let expected = ["backup", "doctor", "replay", "verify"].map(|kind| (json!("start"), json!(kind)));
    assert_eq!(recorded, expected, "{audit}");
    assert!(!gateway.log().contains("another"), "a file's secrets are not logged");
}

#[test]
fn verify_job_that_finds_differences_is_done_with_exit_code_1() {
    let gateway = TestGateway::builder(PROGRAM).without_record_check().spawn();
    let admin = Admin::of(gateway);
    let _ = admin.gateway.record_of(&admin.gateway.chat(&support::chat("echo")));
    wait_for("it is booked", LONG, || admin.get("/admin/v1/usage")["items"].as_array().unwrap().len() == 1);
    tamper(admin.gateway.data(), "UPDATE usage_sums SET requests = requests + 1");
    let job = finish(&admin, &json!({"kind": "verify"}));
    assert_eq!((&job["state"], &job["exit_code"], &job["result"]["agrees"]), (&json!("done"), &json!(1), &json!(false)), "{job}");
    let folder = TempDir::new().unwrap();
    let local = admin.gateway.run(&["verify"]);
    let remote = command(&admin.gateway, &admin.key, folder.path(), &["verify"]).output().unwrap();
    assert_eq!((parts(&local), local.status.code()), (parts(&remote), Some(1)));
}

/// Runs a statement on the database of a gateway.
fn tamper(data: &Path, sql: &'static str) {
    use sqlx::{Connection as _, SqliteConnection};
    let url = format!("sqlite:{}?mode=rw", data.join("tollgate.db").display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    });
}

/// A gateway whose verification does not end: a table that a gateway only writes to when it books is replaced by an endless view.
fn with_endless_verification() -> TestGateway {
    let gateway = TestGateway::builder(PROGRAM).without_record_check().spawn();
    assert_eq!(gateway.chat(&support::chat("echo")).status, 200);
    wait_for("it is booked", LONG, || is_booked(&gateway));
    tamper(
        gateway.data(),
        "ALTER TABLE attempt_sums RENAME TO stored_attempt_sums; CREATE VIEW attempt_sums AS SELECT * FROM stored_attempt_sums \
         WHERE (WITH RECURSIVE numbers(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM numbers WHERE x < 1000000000000) \
         SELECT COUNT(*) FROM numbers) > 0",
    );
    gateway
}

/// Whether nothing waits in the journal.
fn is_booked(gateway: &TestGateway) -> bool {
    let verified: Value = serde_json::from_slice(&gateway.run(&["verify", "--json"]).stdout).unwrap();
    verified["records"] == 1 && verified["waiting_in_journal"] == 0
}

#[test]
fn job_is_cancelled_within_seconds_and_conflict_names_the_running_job() {
    let admin = Admin::of(with_endless_verification());
    let job = admin.post(JOBS, &json!({"kind": "verify"}));
    wait_for("it runs", LONG, || admin.get(&path(&job))["progress"]["step"] == "database");
    let second = admin.call("POST", JOBS, Some(&json!({"kind": "verify"})));
    assert_eq!(refusal(&second), refused_whole(409, "job_conflict"));
    assert!(text(&second).contains(job["id"].as_str().unwrap()), "{}", text(&second));
    assert_eq!(finish(&admin, &json!({"kind": "doctor"}))["state"], "done", "another kind runs beside it");
    let models = Request::get("/v1/models").bearer(admin.gateway.key());
    assert_eq!(admin.gateway.send(&models).status, 200, "callers are served meanwhile");
    let begin = std::time::Instant::now();
    let cancelled = ok(&admin.as_operator("POST", &format!("{}/cancel", path(&job)), None));
    assert_eq!(cancelled["state"], "cancelled", "{cancelled}");
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    assert!(cancelled["cancelled_by"].as_str().unwrap().starts_with("ops (adm_"), "{cancelled}");
    assert_eq!(admin.post(&format!("{}/cancel", path(&job)), &json!({}))["cancelled_by"], cancelled["cancelled_by"]);
    let audit = admin.get("/admin/v1/audit?kind=job&name=verify");
    let actions: Vec<&str> = audit["items"].as_array().unwrap().iter().map(|it| it["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["cancel", "start"], "{audit}");
    // The next one is admitted, and a gateway that stops ends it.
    admin.post(JOBS, &json!({"kind": "verify"}));
}

#[test]
fn job_events_begin_with_the_state_and_end_with_the_job() {
    let admin = Admin::of(with_endless_verification());
    let job = admin.post(JOBS, &json!({"kind": "verify"}));
    wait_for("it runs", LONG, || admin.get(&path(&job))["progress"]["step"] == "database");
    let follow = || admin.gateway.start_request(&Request::get(&format!("{}/events", path(&job))).bearer(&admin.key));
    let mut stream = follow();
    let head = stream.read_head().unwrap();
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    let first = stream.read_chunk(&head).unwrap().unwrap();
    let first = String::from_utf8(first).unwrap();
    let data: Value = serde_json::from_str(first.lines().find_map(|line| line.strip_prefix("data: ")).unwrap()).unwrap();
    assert!(first.starts_with("event: job\n"), "{first}");
    assert_eq!((&data["id"], &data["state"], &data["progress"]["step"]), (&job["id"], &json!("running"), &json!("database")));
    assert!(data["progress"]["total"].as_u64() > data["progress"]["done"].as_u64(), "{data}");
    admin.post(&format!("{}/cancel", path(&job)), &json!({}));
    let mut rest = Vec::new();
    while let Some(chunk) = stream.read_chunk(&head).unwrap() {
        rest.extend(chunk);
    }
    let last = String::from_utf8(rest).unwrap();
    assert!(last.trim_end().lines().last().unwrap().contains("\"state\":\"cancelled\""), "{last}");
    // An ended job has one event.
    assert_eq!(follow().read().unwrap().events().len(), 1);
}

#[test]
fn streams_are_bounded_and_end_when_the_gateway_stops() {
    let mut admin = Admin::of(with_endless_verification());
    let job = admin.post(JOBS, &json!({"kind": "verify"}));
    let request = Request::get(&format!("{}/events", path(&job))).bearer(&admin.key);
    let mut streams: Vec<_> = (0..16).map(|_| admin.gateway.start_request(&request)).collect();
    for stream in &mut streams {
        assert_eq!(stream.read_head().unwrap().status, 200);
    }
    let refused = admin.gateway.send(&request);
    assert_eq!(refusal(&refused), refused_whole(503, "server_overloaded"));
    let begin = std::time::Instant::now();
    assert_eq!(admin.gateway.stop(), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn operators_start_neither_replays_nor_backups() {
    let admin = Admin::echo();
    for kind in ["replay", "backup"] {
        let answer = admin.as_operator("POST", JOBS, Some(&json!({"kind": kind, "file": "x"})));
        assert_eq!(refusal(&answer), refused_whole(403, "admin_only"), "{kind}");
    }
    let backup = finish(&admin, &json!({"kind": "backup"}));
    for (method, path) in
        [("GET", path(&backup)), ("GET", format!("{}/events", path(&backup))), ("POST", format!("{}/cancel", path(&backup)))]
    {
        assert_eq!(refusal(&admin.as_operator(method, &path, None)), refused_whole(403, "admin_only"), "{method} {path}");
    }
    for kind in ["doctor", "verify"] {
        let job = ok(&admin.as_operator("POST", JOBS, Some(&json!({"kind": kind}))));
        assert_eq!(ended(&admin, &job)["state"], "done", "{kind}");
    }
    let listed = ok(&admin.as_operator("GET", &format!("{JOBS}?limit=2"), None));
    let kinds = |page: &Value| page["items"].as_array().unwrap().iter().map(|it| it["kind"].clone()).collect::<Vec<_>>();
    assert_eq!(kinds(&listed), ["verify", "doctor"]);
    assert!(listed["items"][0]["result"].is_null(), "{listed}");
    assert_eq!(listed["next"], Value::Null, "operators do not find the backup");
    let next = admin.get(&format!("{JOBS}?limit=2"))["next"].as_str().unwrap().to_owned();
    assert_eq!(kinds(&admin.get(&format!("{JOBS}?limit=2&after={next}"))), ["backup"]);
    assert_eq!(refusal(&admin.call("GET", &format!("{JOBS}?after=x"), None)), refused(400, "invalid_value", "after"));
}

#[test]
fn parameters_of_jobs_are_checked() {
    let admin = Admin::echo();
    let post = |body: Value| refusal(&admin.call("POST", JOBS, Some(&body)));
    assert_eq!(post(json!({})), refused(400, "missing_required_parameter", "kind"));
    assert_eq!(post(json!({"kind": "optimise"})), refused(400, "invalid_value", "kind"));
    assert_eq!(post(json!({"kind": "import"})), refused(400, "missing_required_parameter", "file"));
    assert_eq!(post(json!({"kind": "import", "built_in": true, "key": "k"})), refused(400, "unknown_parameter", "key"));
    assert_eq!(post(json!({"kind": "verify", "model": "m"})), refused(400, "unknown_parameter", "model"));
    assert_eq!(post(json!({"kind": "backup", "name": "../../etc/x"})), refused(400, "unknown_parameter", "name"));
    assert_eq!(post(json!({"kind": "replay"})), refused(400, "missing_required_parameter", "file"));
    let faulty = admin.call("POST", JOBS, Some(&json!({"kind": "replay", "file": "[[group]]\nname = 7\n"})));
    assert_eq!(refusal(&faulty), refused(400, "invalid_value", "file"));
    assert_eq!(faulty.json()["error"]["faults"][0]["line"], 2);
    let key = finish(&admin, &json!({"kind": "replay", "file": "[[group]]\nname = \"g\"\n", "key": "unknown"}));
    assert!(key["state"] == "failed" && key["error"]["message"].as_str().unwrap().contains("no key 'unknown'"), "{key}");
    let unknown = admin.call("GET", &format!("{JOBS}/job_01m7zcdq6re1yraag3d5rns1ch"), None);
    assert_eq!(refusal(&unknown), refused_whole(404, "not_found"));
    let once = |body: Value| admin.once(JOBS, "key-1", &body);
    let first = ok(&once(json!({"kind": "doctor"})));
    ended(&admin, &first);
    let again = once(json!({"kind": "doctor"}));
    assert_eq!((again.status, &again.json()["id"], again.header("idempotent-replayed")), (200, &first["id"], Some("true")));
    assert_eq!(refusal(&once(json!({"kind": "verify"}))), refused_whole(409, "idempotency_key_reused"));
}

#[test]
fn backups_are_read_and_removed_by_their_names_only() {
    let admin = Admin::echo();
    let names = || -> Vec<String> {
        let listed = admin.get("/admin/v1/backups");
        listed["items"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    };
    assert!(names().is_empty());
    let made = finish(&admin, &json!({"kind": "backup"}));
    let name = made["result"]["file"].as_str().unwrap().to_owned();
    assert_eq!(names(), std::slice::from_ref(&name));
    let folder = admin.gateway.data().join("backups");
    let bytes = std::fs::read(folder.join(&name)).unwrap();
    let file = admin.call("GET", &format!("/admin/v1/backups/{name}"), None);
    assert_eq!((file.status, file.header("content-type"), &file.body), (200, Some("application/x-tar"), &bytes));
    let at = |name: &str| format!("/admin/v1/backups/{name}");
    std::fs::write(folder.join("other.backup"), "x").unwrap();
    std::os::unix::fs::symlink("../master.key", folder.join("tollgate-2026-11-22T18-23-29Z.backup")).unwrap();
    for name in [
        "..%2Fmaster.key",
        "..%2F..%2Fetc%2Fpasswd",
        "%2Fetc%2Fpasswd",
        "%2E%2E",
        ".",
        "other.backup",
        "tollgate-2026-11-22T18-23-29Z.backup",
        "..%5Cmaster.key",
        "master.key",
    ] {
        for method in ["GET", "DELETE"] {
            let answer: ClientResponse = admin.gateway.send(&Request::get(&at(name)).method(method).bearer(&admin.key));
            assert_eq!(answer.status, 404, "{method} {name}: {}", text(&answer));
        }
    }
    assert!(admin.gateway.data().join("master.key").exists());
    assert_eq!(refusal(&admin.as_operator("GET", &at(&name), None)), refused_whole(403, "admin_only"));
    admin.delete(&at(&name));
    assert!(names().is_empty());
    for _ in 0..8 {
        assert_eq!(finish(&admin, &json!({"kind": "backup"}))["state"], "done");
    }
    let ninth = admin.call("POST", JOBS, Some(&json!({"kind": "backup"})));
    assert_eq!(refusal(&ninth), refused_whole(409, "too_many_backups"));
}

#[test]
fn upgrade_cancels_the_jobs_of_the_replaced_process() {
    let mut admin = Admin::of(with_endless_verification());
    let folder = TempDir::new().unwrap();
    let mut follower = command(&admin.gateway, &admin.key, folder.path(), &["verify"]);
    let child = follower.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the job runs", LONG, || admin.get(JOBS)["items"][0]["progress"]["step"] == "database");
    // The running query continues with its snapshot.
    tamper(admin.gateway.data(), "DROP VIEW attempt_sums; ALTER TABLE stored_attempt_sums RENAME TO attempt_sums");
    admin.gateway.upgrade();
    let (code, _, err) = parts(&child.wait_with_output().unwrap());
    assert!(code == Some(1) && err.contains("cancelled: the gateway stopped"), "{err}");
    assert_eq!(admin.get(JOBS)["items"], json!([]));
    assert_eq!(finish(&admin, &json!({"kind": "verify"}))["exit_code"], 0);
}

#[test]
fn jobs_end_with_the_process() {
    let mut admin = Admin::of(with_endless_verification());
    let job = admin.post(JOBS, &json!({"kind": "verify"}));
    let folder = TempDir::new().unwrap();
    let mut follower = command(&admin.gateway, &admin.key, folder.path(), &["verify"]);
    let refused = parts(&follower.output().unwrap());
    assert!(refused.0 == Some(1) && refused.2.contains(job["id"].as_str().unwrap()), "{refused:?}");
    let begin = std::time::Instant::now();
    assert_eq!(admin.gateway.stop(), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    tamper(admin.gateway.data(), "DROP VIEW attempt_sums; ALTER TABLE stored_attempt_sums RENAME TO attempt_sums");
    let key = admin.key.clone();
    let again = TestGateway::builder(PROGRAM).data_folder(admin.gateway.into_data()).without_record_check().spawn();
    let get = |path: &str| again.send(&Request::get(path).bearer(&key));
    assert_eq!(get(&path(&job)).status, 404);
    assert_eq!(get(JOBS).json()["items"], json!([]));
    assert!(get("/admin/v1/audit?kind=job").text().contains(job["id"].as_str().unwrap()), "its starter is still known");
}

#[test]
fn jobs_work_on_postgres() {
    let Some(postgres) = Postgres::start("jobs_work_on_postgres") else { return };
    let admin = Admin::of(TestGateway::builder(PROGRAM).env("DATABASE_URL", &postgres.url()).spawn());
    let _ = admin.gateway.record_of(&admin.gateway.chat(&support::chat("echo")));
    for kind in ["verify", "doctor", "backup"] {
        let job = finish(&admin, &json!({"kind": kind}));
        assert_eq!((&job["state"], &job["exit_code"]), (&json!("done"), &json!(0)), "{job}");
    }
    postgres.sql(
        "ALTER TABLE balances RENAME TO stored_balances; CREATE VIEW balances AS SELECT b.* FROM stored_balances b, pg_sleep(600)",
    );
    let job = admin.post(JOBS, &json!({"kind": "verify"}));
    wait_for("it runs", LONG, || admin.get(&path(&job))["progress"]["step"] == "database");
    let running = || {
        postgres.sql(
            "SELECT COUNT(*) FROM pg_stat_activity WHERE query LIKE '%balances%' AND pid <> pg_backend_pid() AND state = 'active'",
        )
    };
    wait_for("the query runs", LONG, || running() == "1");
    let cancelled = admin.post(&format!("{}/cancel", path(&job)), &json!({}));
    assert_eq!(cancelled["state"], "cancelled", "{cancelled}");
    wait_for("the server ends the query", Duration::from_secs(5), || running() == "0");
    postgres.sql("DROP VIEW balances; ALTER TABLE stored_balances RENAME TO balances");
}
