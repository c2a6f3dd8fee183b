//! Alerts, settings and the system: destinations with a test, values at run time, jobs with their results and backups.

use std::time::Duration;

use serde_json::json;
use tollgate_testkit::{TestGateway, wait_for};

use super::{Person, attacks::signed_in, location};
use crate::{admin::Admin, identity::make_member};

fn root_of(admin: &Admin) -> Person {
    make_member(admin, "root", "admin");
    signed_in(admin, "root")
}

#[test]
fn alert_destination_is_created_tested_and_removed() {
    let admin = Admin::echo();
    let mut root = root_of(&admin);
    let fields = [
        ("name", "hook"),
        ("kind", "webhook"),
        ("url", "http://127.0.0.1:9/secret-path"),
        ("secret", "canary-secret"),
        ("status", "true"),
        ("private_network", "true"),
        ("rules", "balance_low"),
    ];
    let path = location(&root.post(&admin.gateway, "/alerts/destinations/new", &fields)).to_owned();
    let page = root.page(&admin.gateway, &path);
    assert!(page.contains("http://127.0.0.1:9/***") && !page.contains("canary-secret") && !page.contains("secret-path"), "{page}");
    assert!(page.contains("value=\"balance_low\" checked"), "{page}");
    let tested = root.post(&admin.gateway, &format!("{path}/test"), &[]).text();
    assert!(tested.contains("The message was not delivered:"), "{tested}");
    assert!(root.page(&admin.gateway, "/alerts/destinations").contains("Low balance"));
    let kept = [("url", "http://127.0.0.1:9/***"), ("secret", ""), ("private_network", "true")];
    assert_eq!(location(&root.post(&admin.gateway, &path, &[&kept[..], &[("revision", revision(&page))]].concat())), path);
    let stored = admin.get("/admin/v1/alert-destinations/hook");
    assert_eq!((&stored["status"], &stored["has_secret"], &stored["rules"]), (&json!("off"), &json!(true), &json!([])));
    for (field, value) in [("url", "ftp://x"), ("name", ""), ("name", "hook")] {
        let sent: Vec<_> = fields.into_iter().filter(|(name, _)| *name != field).chain([(field, value)]).collect();
        let refused = root.post(&admin.gateway, "/alerts/destinations/new", &sent);
        let page = refused.text();
        assert!(refused.status == 422 && !page.contains("canary-secret"), "{field}={value}: {page}");
        let (before, _) = page.split_once("class=\"err\"").unwrap_or_else(|| panic!("{field}={value}: {page}"));
        assert!(before.rsplit("<div class=\"field").next().unwrap().contains(&format!("name=\"{field}\"")), "{page}");
    }
    let sent: Vec<_> = fields.into_iter().filter(|(name, _)| *name != "private_network").collect();
    let refused = root.post(&admin.gateway, "/alerts/destinations/new", &sent);
    let page = refused.text();
    assert!(refused.status == 422 && page.contains("This is a loopback or private address"), "{page}");
    assert_eq!(root.post(&admin.gateway, &format!("{path}/remove"), &[("typed_name", "x")]).status, 422);
    assert_eq!(location(&root.post(&admin.gateway, &format!("{path}/remove"), &[("typed_name", "hook")])), "/alerts/destinations");
}

#[test]
fn system_page_shows_the_size_of_database_and_journal() {
    let admin = Admin::echo();
    let storage = admin.get("/admin/v1/storage");
    let database = &storage["database"];
    assert!(database["kind"] == "sqlite" && database["bytes"].as_u64() > Some(4_096), "{storage}");
    assert!(database["schema"].as_u64() > Some(0) && database["log_bytes"].is_u64(), "{storage}");
    assert!(storage["journal"]["bytes"].is_u64() && storage["journal"]["unbooked"].is_u64(), "{storage}");
    make_member(&admin, "op", "operator");
    make_member(&admin, "ann", "member");
    let page = signed_in(&admin, "op").page(&admin.gateway, "/system");
    assert!(page.contains("id=\"storage\"") && page.contains("SQLite") && page.contains("Journal of this node"), "{page}");
    assert_eq!(signed_in(&admin, "ann").get(&admin.gateway, "/system").status, 404);
}

fn revision(page: &str) -> &str {
    page.split_once("name=\"revision\" value=\"").unwrap().1.split('"').next().unwrap()
}

#[test]
fn alerts_are_listed_with_their_rule() {
    let admin = Admin::echo();
    let mut root = root_of(&admin);
    admin.post("/admin/v1/members", &json!({"name": "poor", "billing": "prepaid"}));
    assert!(root.page(&admin.gateway, "/alerts").contains("No rule has found anything."));
    assert!(root.page(&admin.gateway, "/alerts/rules").contains("/settings/alerts.balance_usd"));
    assert_eq!(
        location(&root.post(&admin.gateway, "/settings/alerts.balance_usd", &[("value", "2")])),
        "/settings/alerts.balance_usd"
    );
    wait_for("an alert", Duration::from_secs(30), || root.page(&admin.gateway, "/alerts?state=open").contains("Low balance</td>"));
    assert!(root.page(&admin.gateway, "/alerts?state=ended").contains("No alert matches."));
}

#[test]
fn setting_is_changed_at_run_time_and_reset_to_its_default() {
    let admin = Admin::echo();
    let mut root = root_of(&admin);
    let list = root.page(&admin.gateway, "/settings");
    assert!(list.contains("TOLLGATE_SERVER__LISTEN") && list.contains("after a restart"), "{list}");
    let headings: Vec<&str> =
        list.split("<h2 id=\"t-").skip(1).filter_map(|rest| rest.split_once("\">")?.1.split('<').next()).collect();
    let expected = "General, Access, Model square, Logging, Limits, Routing, Network, Notifications, Backup, System";
    assert_eq!(headings.join(", "), expected);
    let settings = admin.get("/admin/v1/settings")["items"].clone();
    for setting in settings.as_array().unwrap() {
        let link = format!("href=\"/settings/{}\">", setting["name"].as_str().unwrap());
        assert!(list.contains(&link), "{link}");
    }
    assert!(root.page(&admin.gateway, "/settings?q=slow_ms").contains("/settings/log.slow_ms"));
    assert!(root.page(&admin.gateway, "/settings?q=nothing-like-it").contains("No setting matches."));
    let path = "/settings/log.slow_ms";
    for wrong in ["many", "-1"] {
        let refused = root.post(&admin.gateway, path, &[("value", wrong)]);
        let page = refused.text();
        assert!(refused.status == 422 && page.contains(&format!("value=\"{wrong}\"")) && page.contains("class=\"err\""), "{page}");
    }
    assert_eq!(location(&root.post(&admin.gateway, path, &[("value", "1234")])), path);
    assert_eq!(admin.get("/admin/v1/settings/log.slow_ms")["value"], "1234");
    let page = root.page(&admin.gateway, path);
    assert!(page.contains("Back to the default") && page.contains("console"), "{page}");
    let stale = root.post(&admin.gateway, path, &[("value", "9"), ("revision", "1")]);
    assert!(stale.status == 422 && stale.text().contains("It was changed since this page"), "{}", stale.text());
    location(&root.post(&admin.gateway, &format!("{path}/unset"), &[]));
    assert_eq!(admin.get("/admin/v1/settings/log.slow_ms")["source"], "default");
    let fixed = root.page(&admin.gateway, "/settings/server.listen");
    assert!(!fixed.contains("name=\"value\"") && fixed.contains("TOLLGATE_SERVER__LISTEN"), "{fixed}");
    let secret = root.page(&admin.gateway, "/settings/database.master_key");
    assert!(secret.contains("It is a secret"), "{secret}");
    assert_eq!(root.get(&admin.gateway, "/settings/no.such").status, 404);
}

#[test]
fn scheduled_backup_that_failed_is_a_row_of_the_backups() {
    let admin = Admin::echo();
    let mut root = root_of(&admin);
    let set = |hours: &str| {
        let body = json!({"value": hours});
        assert_eq!(admin.call("PUT", "/admin/v1/settings/backup.interval_hours", Some(&body)).status, 200);
    };
    let schedule = || admin.get("/admin/v1/backup-schedule");
    // A folder that is named like a file of an interrupted backup cannot be removed like one.
    let left = admin.gateway.data().join("backups").join("tollgate-2026-11-22T18-23-29Z.backup.new-1");
    std::fs::create_dir_all(&left).unwrap();
    set("1");
    wait_for("a failed backup", Duration::from_mins(1), || schedule()["failure"].is_object());
    let failures = schedule()["failures"].clone();
    assert!(failures[0]["message"].as_str().unwrap().contains("cannot remove"), "{failures}");
    let page = root.page(&admin.gateway, "/system");
    assert!(page.contains("Not made") && page.contains("No file") && page.contains("Cannot remove"), "{page}");
    assert!(!page.contains("There is no backup yet."), "{page}");

    // The folder is still there after the next backup.
    std::fs::remove_dir(&left).unwrap();
    set("0");
    wait_for("no schedule", Duration::from_mins(1), || schedule()["failure"].is_null());
    set("1");
    wait_for("a backup", Duration::from_mins(1), || schedule()["last_at"].is_string());
    assert_eq!(schedule()["failures"], failures);
    let page = root.page(&admin.gateway, "/system");
    assert!(page.contains("Not made") && page.contains("/admin/v1/backups/tollgate-scheduled-"), "{page}");
}

#[test]
fn unreadable_folder_of_backups_is_reported_on_the_page() {
    let admin = Admin::echo();
    let mut root = root_of(&admin);
    std::fs::write(admin.gateway.data().join("backups"), "x").unwrap();
    let page = root.page(&admin.gateway, "/system");
    assert!(page.contains("The folder of backups cannot be read") && page.contains("check that it exists"), "{page}");
    assert!(admin.get("/admin/v1/backup-schedule")["folder_fault"].is_string());
}

/// The page of a job once it has ended.
fn ended(person: &mut Person, gateway: &TestGateway, path: &str) -> String {
    wait_for("the job ends", Duration::from_mins(1), || !person.page(gateway, path).contains("data-job-events"));
    person.page(gateway, path)
}

#[test]
fn jobs_show_their_results() {
    let admin = Admin::echo();
    let mut root = root_of(&admin);
    let gateway = &admin.gateway;
    for (kind, says) in [("doctor", "Result"), ("verify", "All sums agree."), ("backup", "Result")] {
        let path = location(&root.post(gateway, "/system/jobs", &[("kind", kind)])).to_owned();
        let page = ended(&mut root, gateway, &path);
        assert!(page.contains(says), "{kind}: {page}");
        // The commands' sentences are translated by matching their English text.
        let mut chinese = Person { language: Some("zh-CN"), ..root.clone() };
        let page = chinese.page(gateway, &path);
        let (_, result) = page.split_once("id=\"result-title\"").unwrap();
        let (result, _) = result.split_once("</section>").unwrap();
        match kind {
            "doctor" => {
                for said in ["所有值均有效", "可用 ", "配置清单修订版本", "个渠道中已启用", "个已结束的请求", "首次备份时创建"]
                {
                    assert!(result.contains(said), "no {said} in {result}");
                }
            }
            _ => assert!(!result.contains("lang=\"en\""), "{kind}: {result}"),
        }
    }
    let page = root.page(gateway, "/system");
    assert!(page.contains("/admin/v1/backups/") && page.contains("Done"), "{page}");
    let (_, rest) = page.split_once("/system/backups/").unwrap();
    let name = rest.split('/').next().unwrap().to_owned();
    assert!(page.contains("Not checked") && page.contains("The gateway makes no backups by itself."), "{page}");
    let path = location(&root.post(gateway, &format!("/system/backups/{name}/check"), &[])).to_owned();
    let page = ended(&mut root, gateway, &path);
    assert!(page.contains("It is whole and can be restored.") && page.contains("All sums agree."), "{page}");
    let page = root.page(gateway, "/system");
    assert!(page.contains("All right") && !page.contains("Not checked"), "{page}");
    let remove = format!("/system/backups/{name}/remove");
    assert_eq!(root.post(gateway, &remove, &[("typed_name", "no")]).status, 422);
    assert_eq!(location(&root.post(gateway, &remove, &[("typed_name", &name)])), "/system");
    assert!(root.page(gateway, "/system").contains("There is no backup yet."));

    let catalog = admin.get("/admin/v1/catalog")["file"].as_str().unwrap().to_owned();
    let path = location(&root.post(gateway, "/system/replay", &[("file", catalog.as_str())])).to_owned();
    let page = ended(&mut root, gateway, &path);
    assert!(page.contains("Requests replayed") && page.contains("All requests") && page.contains("JSON"), "{page}");
    let days = [("file", catalog.as_str()), ("since", "2026-02-30"), ("until", "2026-02-30")];
    assert_eq!(root.post(gateway, "/system/replay", &days).status, 422);
    let refused = root.post(gateway, "/system/replay", &[("file", "[[group]]\nname = 5\n"), ("model", "m")]);
    assert!(refused.status == 422 && refused.text().contains("value=\"m\""), "{}", refused.text());
    let import = [("source", "built_in"), ("to", "both"), ("dry_run", "true")];
    let path = location(&root.post(gateway, "/system/import", &import)).to_owned();
    let page = ended(&mut root, gateway, &path);
    assert!(page.contains("Nothing is written") && page.contains("JSON"), "{page}");
    assert_eq!(root.post(gateway, "/system/jobs", &[("kind", "nothing")]).status, 422);
    assert_eq!(root.get(gateway, "/system/jobs/job_01ARZ3NDEKTSV4RRFFQ69G5FAV").status, 404);
}
