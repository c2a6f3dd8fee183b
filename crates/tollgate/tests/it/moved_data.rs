//! Data besides the ledger that a restored backup and a move to PostgreSQL must contain: passkeys, sessions, stored contents.

use std::{path::Path, process::Command};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_testkit::{Postgres, TestGateway};

use crate::{
    admin::{Admin, ok},
    contents::{self, SAID},
    identity::{Authenticator, Browser, add_passkey, sign_in, try_passkey},
    support::PROGRAM,
};

/// A passkey, a session and the contents of two requests.
#[derive(Debug)]
struct Owned {
    authenticator: Authenticator,
    browser: Browser,
    passkeys: Value,
    kept: String,
    contents: Value,
    /// The request whose contents are removed.
    removed: String,
}

impl Owned {
    fn make() -> (Admin, Self) {
        let (admin, key) = contents::storing();
        let browser = sign_in(&admin, "ann");
        let mut authenticator = Authenticator::new(&admin);
        add_passkey(&admin, &browser, &mut authenticator);
        Browser::of(&try_passkey(&admin, &mut authenticator));
        let ids = [SAID, "what is forgotten"].map(|text| contents::id(&contents::ask(&admin, &key, &contents::said(text))));
        let [stored, _] = ids.each_ref().map(|id| contents::contents(&admin, id));
        let [kept, removed] = ids;
        let passkeys = admin.get("/admin/v1/members/ann/passkeys");
        let owned = Self { authenticator, browser, passkeys, kept, contents: stored, removed };
        (admin, owned)
    }

    fn remove_some(&self, admin: &Admin) {
        ok(&admin.call("DELETE", &contents::path(&self.removed), None));
    }

    /// Checks that another gateway has the recorded data.
    fn check(mut self, there: &Admin) {
        assert_eq!(there.get("/admin/v1/members/ann/passkeys"), self.passkeys);
        assert!(self.browser.is_in(there));
        assert_eq!(there.get(&contents::path(&self.kept)), self.contents);
        assert!(self.contents["request"]["text"].as_str().unwrap().contains(SAID), "{}", self.contents);
        assert_eq!(there.call("GET", &contents::path(&self.removed), None).status, 404, "it was removed before");
        self.authenticator.go_to(there);
        let signed_in = Browser::of(&try_passkey(there, &mut self.authenticator));
        assert_eq!(signed_in.get(there, "/admin/v1/me")["name"], "ann");
        let (passkeys, used) =
            (there.get("/admin/v1/members/ann/passkeys"), |list: &Value| list["items"][0]["used_at"].to_string());
        assert_ne!(used(&passkeys), used(&self.passkeys), "{passkeys}");
        self.authenticator.go_back();
        assert_eq!(try_passkey(there, &mut self.authenticator).status, 401, "its counter continues from its last value");
        // New passkeys and contents can be added next to the moved ones.
        add_passkey(there, &signed_in, &mut Authenticator::new(there));
        let key = there.post("/admin/v1/keys", &json!({"name": "later", "member": "ann", "log_contents": true}));
        let later = contents::id(&contents::ask(there, key["key"].as_str().unwrap(), &contents::said("later")));
        assert!(contents::contents(there, &later)["request"]["text"].as_str().unwrap().contains("later"));
    }
}

fn restore(file: &Path, data: &Path) {
    let mut command = Command::new(PROGRAM);
    command.env_clear().env("PASS", "correct horse battery").arg("restore").arg(file).args(["--passphrase", "env:PASS", "--data"]);
    let out = command.arg(data).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn restored_backup_has_passkeys_and_contents() {
    let (admin, owned) = Owned::make();
    owned.remove_some(&admin);
    let (folder, restored) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (file, pass) = (folder.path().join("one.backup"), folder.path().join("pass"));
    std::fs::write(&pass, "correct horse battery").unwrap();
    let pass = format!("file:{}", pass.display());
    let made = admin.gateway.run(&["backup", file.to_str().unwrap(), "--with-secrets", "--passphrase", &pass]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let bytes = std::fs::read(&file).unwrap();
    assert!(!bytes.windows(15).any(|part| part == &SAID.as_bytes()[..15]), "contents are sealed in the backup");
    restore(&file, restored.path());
    owned.check(&Admin::of_restored(TestGateway::builder(PROGRAM).data_folder(restored).spawn()));
}

#[test]
fn gateway_moved_to_postgres_has_passkeys_and_contents() {
    let Some(postgres) = Postgres::start("gateway_moved_to_postgres_has_passkeys_and_contents") else { return };
    let (mut admin, owned) = Owned::make();
    let moved = |gateway: &TestGateway| {
        let out = gateway.run(&["migrate", "to-postgres", &postgres.url(), "--json"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    };
    moved(&admin.gateway);
    assert_eq!(postgres.sql("SELECT COUNT(*) FROM request_contents"), "2");
    // Rows removed after the first pass are absent after the last one.
    owned.remove_some(&admin);
    assert_eq!(admin.gateway.stop(), Some(0));
    moved(&admin.gateway);
    let data = admin.gateway.into_data();
    let there = TestGateway::builder(PROGRAM).data_folder(data).env("DATABASE_URL", &postgres.url()).spawn();
    owned.check(&Admin::of_restored(there));
}
