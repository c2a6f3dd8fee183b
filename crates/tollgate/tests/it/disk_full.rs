//! A data folder on a full disk: the gateway starts and serves, books from the reserve, and recovers by itself.

use std::{fs, net::TcpListener, path::Path, process::Command, thread, time::Duration};

use tempfile::TempDir;
use tollgate_testkit::{PendingResponse, Request, TestGateway, TestGatewayBuilder, skipped, wait_for};

use crate::{
    load,
    support::{self, PROGRAM},
};

/// A disk of 48 MiB in memory; unmounted on drop.
struct SmallDisk(TempDir);

impl SmallDisk {
    /// `None`, with a message, if the process may not mount one.
    fn mount(test: &str) -> Option<Self> {
        let folder = TempDir::new().unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=48m", "tmpfs"]).arg(folder.path()).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(folder));
        }
        skipped(&format!("{test} (needs the privilege to mount a tmpfs)"));
        None
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes all the space that is left.
    fn fill(&self) {
        let filled =
            Command::new("sh").arg("-c").arg("cat /dev/zero >> \"$0\" 2>/dev/null").arg(self.path().join("filler")).status();
        assert!(filled.is_ok_and(|status| !status.success()), "the disk is full");
    }

    fn free_space(&self) {
        fs::remove_file(self.path().join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

fn builder() -> TestGatewayBuilder {
    TestGateway::builder(PROGRAM)
        .env("TOLLGATE_JOURNAL__RESERVE_BYTES", "16777216")
        .env("TOLLGATE_SERVER__CORES", "1")
        .without_record_check()
}

fn records(gateway: &TestGateway) -> usize {
    gateway.records().len()
}

fn readiness(gateway: &TestGateway) -> String {
    gateway.send(&Request::get("/readyz")).text()
}

#[test]
fn full_disk_loses_no_record_and_the_gateway_recovers_by_itself() {
    let Some(disk) = SmallDisk::mount("full_disk_loses_no_record_and_the_gateway_recovers_by_itself") else { return };
    let gateway = builder().data_folder(TempDir::new_in(disk.path()).unwrap()).spawn();
    assert_eq!(gateway.chat(&support::chat("echo")).status, 200);
    let reserve = gateway.data().join("reserve");
    wait_for("the reserve", Duration::from_secs(2), || reserve.exists());
    disk.fill();
    assert_eq!(load::send(&gateway, "echo", 500, 4).failed(), 0);
    wait_for("it says so", Duration::from_secs(2), || readiness(&gateway).contains("degraded"));
    wait_for("the reserve is freed", Duration::from_secs(2), || !reserve.exists());
    wait_for("the database has the records", Duration::from_secs(10), || records(&gateway) == 501);
    disk.free_space();
    wait_for("the reserve is made again", Duration::from_secs(3), || reserve.exists());
    wait_for("it is ready", Duration::from_secs(3), || readiness(&gateway).contains("ready"));
    assert_eq!(gateway.chat(&support::chat("echo")).status, 200);
    wait_for("the next record", Duration::from_secs(3), || records(&gateway) == 502);
}

#[test]
fn gateway_starts_and_serves_on_a_full_disk() {
    let Some(disk) = SmallDisk::mount("gateway_starts_and_serves_on_a_full_disk") else { return };
    let gateway = builder().data_folder(TempDir::new_in(disk.path()).unwrap()).spawn();
    let key = gateway.key().to_owned();
    let reserve = gateway.data().join("reserve");
    wait_for("the reserve", Duration::from_secs(2), || reserve.exists());
    let data = gateway.kill();
    disk.fill();
    let gateway = builder().data_folder(data).spawn();
    assert!(gateway.log().contains("the disk of the data folder is full"), "{}", gateway.log());
    let chat = || gateway.send(&Request::post("/v1/chat/completions", &support::chat("echo")).bearer(&key)).status;
    assert_eq!((chat(), chat()), (200, 200));
    disk.free_space();
    wait_for("the records are booked", Duration::from_secs(5), || records(&gateway) == 2);
    wait_for("it is ready", Duration::from_secs(3), || readiness(&gateway).contains("ready"));
}

#[test]
fn gateway_started_on_a_full_disk_refuses_requests_until_there_is_space() {
    let test = "gateway_started_on_a_full_disk_refuses_requests_until_there_is_space";
    let Some(disk) = SmallDisk::mount(test) else { return };
    let without_reserve = || builder().env("TOLLGATE_JOURNAL__RESERVE_BYTES", "0");
    let mut gateway = without_reserve().data_folder(TempDir::new_in(disk.path()).unwrap()).spawn();
    let key = gateway.key().to_owned();
    // A clean stop removes the database's shared memory; without space it cannot be made again.
    assert_eq!(gateway.stop(), Some(0));
    let data = gateway.into_data();
    let folder = data.path().to_owned();
    disk.fill();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ask = |request: &Request| request.send(address).and_then(PendingResponse::read);
    let chat = || ask(&Request::post("/v1/chat/completions", &support::chat("echo")).bearer(&key)).unwrap();
    let ready = || ask(&Request::get("/readyz")).map_or_else(|_| String::new(), |answer| answer.text());
    thread::scope(|scope| {
        let starting = scope.spawn(|| without_reserve().listen(&address.to_string()).data_folder(data).spawn());
        wait_for("it listens", Duration::from_secs(10), || ready() == r#"{"status":"starting","disk":"full"}"#);
        assert_eq!(ask(&Request::get("/healthz")).unwrap().status, 200);
        let refused = chat();
        assert!(refused.status == 503 && refused.text().contains("key_check_unavailable"), "{}", refused.text());
        let doctor = Command::new(PROGRAM).env_clear().args(["doctor", "--quiet", "--data"]).arg(&folder).output().unwrap();
        let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert!(doctor.status.code() == Some(1) && said.contains("FAIL  disk"), "{said}");
        disk.free_space();
        let gateway = starting.join().unwrap();
        wait_for("it is ready", Duration::from_secs(3), || ready() == r#"{"status":"ready"}"#);
        assert_eq!(chat().status, 200);
        wait_for("the record is booked", Duration::from_secs(3), || records(&gateway) == 1);
        let log = gateway.log();
        assert!(log.contains("nothing is served until there is space") && log.contains("has space again"), "{log}");
    });
}
