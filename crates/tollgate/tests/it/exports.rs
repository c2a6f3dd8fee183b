//! The export of usage records to S3-compatible storage: every record of a finished day is in exactly one file, despite failures.

mod storage;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use parquet::record::RowAccessor as _;
use serde_json::{Value, json};
use sqlx::Connection as _;
use tempfile::TempDir;
use tollgate_core::Timestamp;
use tollgate_testkit::{FREE_ADDRESS, Postgres, Request, TestGateway, TestGatewayBuilder, Upstream, wait_for};

use crate::{
    admin::{Admin, parquet_rows},
    nodes::{MASTER_KEY, Services},
    support::{self, PROGRAM},
};
use storage::{ACCESS_KEY, BUCKET, Fault, ObjectStorage, REGION, SECRET};

/// The variable that names a file with the shift of the wall clock in seconds. Only builds with debug assertions read it.
const CLOCK: &str = "GATEWAY_TEST_CLOCK";
const LONG: Duration = Duration::from_mins(1);
/// Noon of the first day, which is in the past on every machine.
const FIRST_NOON: &str = "2026-03-01T12:00:00Z";

/// A gateway whose clock the test sets, and storage.
struct Setup {
    upstream: Upstream,
    storage: ObjectStorage,
    folder: TempDir,
    /// Besides those of the export.
    environment: Vec<(String, String)>,
}

impl Setup {
    fn new() -> Self {
        let setup = Self {
            upstream: Upstream::start(),
            storage: ObjectStorage::start(),
            folder: TempDir::new().unwrap(),
            environment: Vec::new(),
        };
        setup.at(0, 0);
        setup
    }

    fn clock(&self) -> PathBuf {
        self.folder.path().join("clock")
    }

    /// Sets the clock to this many days and hours after the first noon.
    fn at(&self, days: i64, hours: i64) {
        let wanted = FIRST_NOON.parse::<jiff::Timestamp>().unwrap().as_second() + days * 86_400 + hours * 3_600;
        let new = self.clock().with_extension("new");
        fs::write(&new, (wanted - jiff::Timestamp::now().as_second()).to_string()).unwrap();
        fs::rename(&new, self.clock()).unwrap();
        // The gateway reads the file every 20 ms.
        thread::sleep(Duration::from_millis(200));
    }

    fn storage_settings(&self) -> Vec<(String, String)> {
        let pairs = [
            ("ENDPOINT", self.storage.url()),
            ("BUCKET", BUCKET.to_owned()),
            ("REGION", REGION.to_owned()),
            ("PREFIX", "acme/usage".to_owned()),
            ("ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
            ("SECRET_ACCESS_KEY", SECRET.to_owned()),
            ("PRIVATE_NETWORK", "true".to_owned()),
        ];
        pairs.into_iter().map(|(name, value)| (format!("TOLLGATE_EXPORT__{name}"), value)).collect()
    }

    /// A gateway that exports nothing by itself.
    fn builder(&self) -> TestGatewayBuilder {
        let builder = support::builder(&self.upstream, "cooling = false").env(CLOCK, self.clock().to_str().unwrap());
        self.environment.iter().fold(builder, |builder, (name, value)| builder.env(name, value))
    }

    fn exporting(&self) -> TestGatewayBuilder {
        self.storage_settings().iter().fold(self.builder(), |builder, (name, value)| builder.env(name, value))
    }

    /// Runs a command with the storage of the settings, which `changed` replaces. Returns its exit code and output.
    fn command(&self, data: &Path, changed: &[(&str, &str)], arguments: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(PROGRAM);
        command.env_clear().env("PATH", "/usr/bin:/bin").env(CLOCK, self.clock()).envs(self.environment.iter().cloned());
        command.envs(self.storage_settings()).envs([FREE_ADDRESS]);
        for (name, value) in changed {
            command.env(format!("TOLLGATE_EXPORT__{name}"), value);
        }
        let out = command.arg("--data").arg(data).args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        assert!(!text.contains(SECRET) && !text.contains("X-Amz-Signature"), "{text}");
        (out.status.code(), text)
    }

    fn upload(&self, data: &Path) -> Value {
        let (code, text) = self.command(data, &[], &["--json", "usage", "upload"]);
        assert_eq!(code, Some(0), "{text}");
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"))
    }

    /// The ids of the records in the files of each day.
    fn exported(&self) -> BTreeMap<String, Vec<String>> {
        let mut days: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (key, bytes) in self.storage.objects() {
            let (day, file) = key.strip_prefix("acme/usage/date=").and_then(|rest| rest.split_once('/')).unwrap();
            assert_eq!(file, "part-00000.parquet");
            let rows = parquet_rows(bytes);
            days.entry(day.to_owned()).or_default().extend(rows.iter().map(|row| row.get_string(0).unwrap().clone()));
        }
        days
    }
}

/// Sends requests and returns the ids of their records, once they are booked.
fn serve(gateway: &TestGateway, requests: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..requests {
        let answer = gateway.chat(&support::chat("chat-model"));
        assert_eq!(answer.status, 200);
        ids.push(gateway.record_of(&answer)["id"].as_str().unwrap().to_owned());
    }
    ids
}

fn days_of(outcome: &Value) -> Vec<(String, u64)> {
    let days = outcome["exported"].as_array().unwrap().iter();
    days.map(|day| (day["day"].as_str().unwrap().to_owned(), day["records"].as_u64().unwrap())).collect()
}

/// Days are exported once they are finished, with each record once. They are exported again when records are booked late.
fn days_are_exported(setup: &Setup) {
    let gateway = setup.builder().spawn();
    let first = serve(&gateway, 3);
    setup.at(1, 0);
    let second = serve(&gateway, 2);
    setup.at(2, 0);
    let _third = serve(&gateway, 1);
    let outcome = setup.upload(gateway.data());
    assert_eq!(outcome["target"], "s3://records/acme/usage");
    assert_eq!(days_of(&outcome), [("2026-03-01".to_owned(), 3), ("2026-03-02".to_owned(), 2)]);
    let expected = BTreeMap::from([("2026-03-01".to_owned(), first.clone()), ("2026-03-02".to_owned(), second.clone())]);
    assert_eq!(setup.exported(), expected);
    let before = setup.storage.objects();
    assert!(days_of(&setup.upload(gateway.data())).is_empty(), "nothing is exported twice");
    assert_eq!(setup.storage.requests().len(), 2);

    // A record of the first day that is booked late, as from a node that was away.
    setup.at(0, 3);
    let late = serve(&gateway, 1);
    setup.at(2, 0);
    assert!(days_of(&setup.upload(gateway.data())).is_empty(), "more of them may follow");
    setup.at(2, 2);
    assert_eq!(days_of(&setup.upload(gateway.data())), [("2026-03-01".to_owned(), 4)]);
    assert_eq!(setup.exported()["2026-03-01"], [first, late].concat());
    assert_eq!(setup.exported()["2026-03-02"], second);

    // An export started by hand exports the days again, with the same names and the same bytes.
    let (code, text) = setup.command(gateway.data(), &[], &["usage", "upload", "--from", "2026-03-02"]);
    assert!(code == Some(0) && text.contains("2026-03-02  2 records in 1 file"), "{text}");
    let name = "acme/usage/date=2026-03-02/part-00000.parquet";
    assert_eq!(setup.storage.objects()[name], before[name]);
    let (code, text) = setup.command(gateway.data(), &[], &["usage", "upload", "--to", "2026-03-03"]);
    assert!(code == Some(3) && text.contains("has not ended yet"), "{text}");
    let (code, text) = setup.command(gateway.data(), &[], &["usage", "upload", "--list"]);
    assert!(code == Some(0) && text.contains("2026-03-01") && text.contains("2026-03-02"), "{text}");
    assert_eq!(setup.storage.objects().len(), 2);
    let kept: BTreeSet<&String> = before.keys().collect();
    assert!(setup.storage.objects().keys().all(|key| kept.contains(key)));
}

#[test]
fn days_are_exported_from_sqlite() {
    days_are_exported(&Setup::new());
}

#[test]
fn days_are_exported_from_postgresql() {
    let Some(postgres) = Postgres::start("days_are_exported_from_postgresql") else { return };
    let mut setup = Setup::new();
    setup.environment.push(("DATABASE_URL".to_owned(), postgres.url()));
    days_are_exported(&setup);
}

/// Two nodes check for due days at the same moment, repeatedly: one of them exports, and the other finds nothing to do.
#[test]
fn two_gateways_on_one_database_export_each_day_once() {
    let Some(services) = Services::start("two_gateways_on_one_database_export_each_day_once") else { return };
    let mut setup = Setup::new();
    let shared = [
        ("DATABASE_URL", services.postgres.url()),
        ("REDIS_URL", services.redis.url()),
        ("TOLLGATE_MASTER_KEY", MASTER_KEY.to_owned()),
    ];
    setup.environment.extend(shared.map(|(name, value)| (name.to_owned(), value)));
    let mut expected = BTreeMap::new();
    let days = ["2026-03-01", "2026-03-02", "2026-03-03", "2026-03-04", "2026-03-05"];
    let mut gateway = setup.builder().spawn();
    for (number, day) in (0..).zip(days) {
        setup.at(number, 0);
        expected.insert(day.to_owned(), serve(&gateway, 2));
    }
    assert_eq!(gateway.stop(), Some(0));
    setup.at(5, 12);
    // Every upload is slow, so that two exports would overlap if both nodes began one.
    setup.storage.take(Duration::from_secs(1));
    let nodes: Vec<Admin> = thread::scope(|scope| {
        let starting: Vec<_> = (0..2).map(|_| scope.spawn(|| setup.exporting().without_record_check().spawn())).collect();
        starting.into_iter().zip(["one", "two"]).map(|(node, name)| Admin::named(node.join().unwrap(), name)).collect()
    });
    wait_for("all days are exported", LONG, || nodes[0].get("/admin/v1/exports")["due"] == 0);
    assert_eq!(setup.exported(), expected);
    let uploaded = setup.storage.requests();
    let once: Vec<String> = days.iter().map(|day| format!("PUT /records/acme/usage/date%3D{day}/part-00000.parquet")).collect();
    assert_eq!(uploaded, once, "each day is uploaded once, in order");
    let exported = |node: &Admin| {
        let jobs = node.get("/admin/v1/jobs");
        let done = jobs["items"].as_array().unwrap().iter().filter(|job| job["kind"] == "export" && job["state"] == "done");
        let job = |job: &Value| node.get(&format!("/admin/v1/jobs/{}", job["id"].as_str().unwrap()));
        done.map(|found| job(found)["result"]["exported"].as_array().unwrap().len()).sum::<usize>()
    };
    wait_for("the jobs have ended", LONG, || nodes.iter().map(exported).sum::<usize>() == days.len());

    setup.storage.take(Duration::from_secs(3));
    // Started by hand on both nodes at once: one exports again, and the other reports a conflict.
    let (codes, texts): (Vec<_>, Vec<_>) = thread::scope(|scope| {
        let command = |node: &Admin| {
            setup.command(node.gateway.data(), &[], &["usage", "upload", "--from", "2026-03-01", "--to", "2026-03-02"])
        };
        let running: Vec<_> = nodes.iter().map(|node| scope.spawn(move || command(node))).collect();
        running.into_iter().map(|command| command.join().unwrap()).unzip()
    });
    assert!(codes.contains(&Some(0)) && codes.contains(&Some(1)), "{texts:?}");
    assert!(texts.iter().any(|text| text.contains("another node exports usage records at the moment")), "{texts:?}");
    assert_eq!(setup.storage.requests()[days.len()..], once[..2]);
    assert_eq!(setup.exported(), expected);
}

#[test]
fn export_resumes_after_a_failure() {
    let setup = Setup::new();
    let gateway = setup.builder().spawn();
    let first = serve(&gateway, 2);
    setup.at(1, 0);
    let second = serve(&gateway, 2);
    setup.at(2, 0);

    // Transient failures are retried: a refusal under load, and a connection that breaks before or after the object is stored.
    setup.storage.fail_next(&[
        Some(Fault::Answer(503, "SlowDown")),
        Some(Fault::Cut),
        Some(Fault::CutAfter),
        None,
        Some(Fault::Answer(403, "AccessDenied")),
    ]);
    let (code, text) = setup.command(gateway.data(), &[], &["usage", "upload"]);
    assert!(
        code == Some(1) && text.contains("the storage answered 403 AccessDenied: the test reports it; the access key needs"),
        "{text}"
    );
    assert_eq!(setup.exported(), BTreeMap::from([("2026-03-01".to_owned(), first.clone())]));
    let (_, text) = setup.command(gateway.data(), &[], &["usage", "upload", "--list"]);
    assert!(text.contains("1 day is to export, from 2026-03-02 on"), "{text}");
    assert!(text.contains("the last export failed at 2026-03-02: the storage answered 403"), "{text}");
    assert_eq!(days_of(&setup.upload(gateway.data())), [("2026-03-02".to_owned(), 2)]);
    assert_eq!(setup.exported(), BTreeMap::from([("2026-03-01".to_owned(), first), ("2026-03-02".to_owned(), second)]));
    let (_, text) = setup.command(gateway.data(), &[], &["usage", "upload", "--list"]);
    assert!(!text.contains("failed") && !text.contains("to export"), "{text}");
}

#[test]
fn gateway_exports_days_automatically_and_after_a_kill() {
    let setup = Setup::new();
    let gateway = setup.exporting().spawn();
    let first = serve(&gateway, 3);
    setup.at(1, 0);
    let second = serve(&gateway, 1);
    let data = gateway.kill();
    setup.at(2, 0);
    // It is killed while it writes the first file.
    setup.storage.fail_next(&[Some(Fault::Hang)]);
    let gateway = setup.exporting().data_folder(data).spawn();
    wait_for("the export begins", LONG, || !setup.storage.requests().is_empty());
    let data = gateway.kill();
    assert!(setup.storage.objects().is_empty());

    let admin = Admin::of(setup.exporting().data_folder(data).spawn());
    let expected = BTreeMap::from([("2026-03-01".to_owned(), first), ("2026-03-02".to_owned(), second)]);
    wait_for("both days are exported", LONG, || setup.storage.objects().len() == 2);
    assert_eq!(setup.exported(), expected);
    wait_for("the job has ended", LONG, || admin.get("/admin/v1/jobs")["items"][0]["state"] == "done");
    let job = &admin.get("/admin/v1/jobs")["items"][0];
    assert_eq!((&job["kind"], &job["by"]), (&json!("export"), &json!("schedule")));
    let state = admin.get("/admin/v1/exports");
    assert_eq!((&state["target"], &state["due"], &state["failure"]), (&json!("s3://records/acme/usage"), &json!(0), &Value::Null));
    let days: Vec<_> = state["days"].as_array().unwrap().iter().map(|day| (&day["day"], &day["records"], &day["files"])).collect();
    assert_eq!(days, [(&json!("2026-03-02"), &json!(1), &json!(1)), (&json!("2026-03-01"), &json!(3), &json!(1))]);
    let metrics = || admin.gateway.send(&Request::get("/metrics")).text();
    wait_for("the metrics", LONG, || metrics().contains("tollgate_export_days 2\n"));
    assert!(metrics().contains("tollgate_export_records 4\n") && metrics().contains("tollgate_export_days_due 0\n"));

    // A job exports a day again, and an operator may start it.
    let answer = admin.as_operator("POST", "/admin/v1/jobs", Some(&json!({"kind": "export", "from": "2026-03-01"})));
    let path = format!("/admin/v1/jobs/{}", answer.json()["id"].as_str().unwrap());
    wait_for("the day is exported again", LONG, || admin.get(&path)["state"] == "done");
    assert_eq!(admin.get(&path)["result"]["exported"][0]["records"], 3);
    let refused = admin.call("POST", "/admin/v1/jobs", Some(&json!({"kind": "export", "from": "2026-02-30"})));
    assert_eq!((refused.status, refused.json()["error"]["param"].as_str()), (400, Some("from")));
    assert_eq!(setup.exported(), expected);
}

#[test]
fn doctor_reports_problems_of_the_export_storage() {
    let setup = Setup::new();
    let mut gateway = setup.builder().spawn();
    serve(&gateway, 1);
    assert_eq!(gateway.stop(), Some(0));
    let check = |changed: &[(&str, &str)]| {
        let (_, text) = setup.command(gateway.data(), changed, &["doctor"]);
        text.lines().find(|line| line.contains("export")).unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let line = check(&[]);
    assert!(line.starts_with("ok") && line.contains("s3://records/acme/usage takes objects"), "{line}");
    assert!(setup.storage.objects().is_empty(), "its object is removed");
    assert_eq!(
        setup.storage.requests(),
        ["PUT /records/acme/usage/tollgate-check.txt", "DELETE /records/acme/usage/tollgate-check.txt"]
    );
    for (changed, expected) in [
        (
            ("SECRET_ACCESS_KEY", "another"),
            "403 SignatureDoesNotMatch: The request signature we calculated does not match the signature you provided; export.secret_access_key",
        ),
        (("ACCESS_KEY_ID", "AKUNKNOWN"), "403 InvalidAccessKeyId"),
        (("BUCKET", "other"), "404 NoSuchBucket: The specified bucket does not exist; make the bucket"),
        (("REGION", "us-east-1"), "the bucket is in the region eu-test-1: set export.region"),
        (("PRIVATE_NETWORK", "false"), "export.endpoint begins with http:"),
        (("ENDPOINT", "http://127.0.0.1:1"), "the storage cannot be reached"),
        (
            ("SECRET_ACCESS_KEY", "env:NOT_SET_ANYWHERE"),
            "export.secret_access_key: the environment variable NOT_SET_ANYWHERE is not set",
        ),
        (("PREFIX", "a/../b"), "export.prefix must have no slash at its ends"),
        (("BUCKET", "a/b"), "export.bucket takes the name of a bucket"),
    ] {
        let (code, text) = setup.command(gateway.data(), &[changed], &["doctor"]);
        assert!(code != Some(0) && text.contains(expected), "{changed:?}: {text}");
    }
    setup.at(5, 0);
    let line = check(&[]);
    assert!(line.starts_with("note") && line.contains("records of 2026-03-01 and later are not exported"), "{line}");
}

/// The retention clock follows the newest record, so that a gateway that served for a day removes older records.
#[test]
fn records_are_kept_until_they_are_exported() {
    let setup = Setup::new();
    let keep_a_day = |builder: TestGatewayBuilder| builder.env("TOLLGATE_USAGE__RETENTION_DAYS", "1").without_record_check();
    setup.storage.fail(Some(Fault::Answer(403, "AccessDenied")));
    let mut gateway = keep_a_day(setup.exporting()).spawn();
    let first = serve(&gateway, 2);
    assert_eq!(gateway.stop(), Some(0));
    let mut data = gateway.into_data();
    set_log_time(&data, 10);
    setup.at(10, 0);
    let gateway = keep_a_day(setup.exporting()).data_folder(data).spawn();
    let failed = || setup.storage.requests().len() == 1;
    wait_for("the export fails", LONG, failed);
    thread::sleep(Duration::from_secs(1));
    assert_eq!(stored(gateway.data()), 2, "they are not exported");
    data = gateway.kill();

    setup.storage.fail(None);
    let gateway = keep_a_day(setup.exporting()).data_folder(data).spawn();
    wait_for("the day is exported", LONG, || setup.storage.objects().len() == 1);
    assert_eq!(setup.exported(), BTreeMap::from([("2026-03-01".to_owned(), first)]));
    wait_for("that is noted", LONG, || setup.command(gateway.data(), &[], &["usage", "upload", "--list"]).1.contains("2026-03-01"));
    data = gateway.kill();
    let gateway = keep_a_day(setup.exporting()).data_folder(data).spawn();
    wait_for("exported records are removed", LONG, || stored(gateway.data()) == 0);

    // The remaining records of a day never replace its files.
    let before = setup.storage.objects();
    let (code, text) = setup.command(gateway.data(), &[], &["usage", "upload", "--from", "2026-03-01"]);
    assert!(code == Some(0) && text.contains("2026-03-01  left out: records of it were removed since it was exported"), "{text}");
    assert_eq!(setup.storage.objects(), before);
}

/// Records in an SQLite database.
fn stored(data: &Path) -> i64 {
    let place = format!("sqlite:{}?mode=ro", data.join("tollgate.db").display());
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut database = sqlx::SqliteConnection::connect(&place).await.unwrap();
        let count = sqlx::query_scalar("SELECT COUNT(*) FROM usage").fetch_one(&mut database).await.unwrap();
        database.close().await.unwrap();
        count
    })
}

/// Sets the time of the usage log of a stopped gateway to this many days after the first noon.
fn set_log_time(data: &TempDir, days: i64) {
    let time = Timestamp(FIRST_NOON.parse::<jiff::Timestamp>().unwrap().as_microsecond()).plus_ms(days * 86_400_000);
    let place = format!("sqlite:{}", data.path().join("tollgate.db").display());
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let mut database = sqlx::SqliteConnection::connect(&place).await.unwrap();
        let sql =
            "INSERT INTO counters (name, value) VALUES ('log_time', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        sqlx::query(sql).bind(time.0).execute(&mut database).await.unwrap();
        database.close().await.unwrap();
    });
}
