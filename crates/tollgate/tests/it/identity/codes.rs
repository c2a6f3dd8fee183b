//! One-time codes: setting them up, signing in with them, and losing the phone.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha1::Sha1;
use tollgate_testkit::{ClientResponse, Request, wait_for};

use super::{Browser, PASSWORD, make_member, sign_in, try_sign_in};
use crate::{
    admin::{Admin, ok, refusal, refused, refused_whole},
    support,
};

/// The code of a secret, as an authenticator app computes it; `later` steps of 30 s from now.
pub(crate) fn code(secret: &str, later: i64) -> String {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let bits: String = secret.chars().map(|c| format!("{:05b}", DIGITS.find(c).unwrap())).collect();
    let key: Vec<u8> =
        bits.as_bytes().chunks_exact(8).map(|byte| u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 2).unwrap()).collect();
    let step = jiff::Timestamp::now().as_second() / 30 + later;
    let mut mac = Hmac::<Sha1>::new_from_slice(&key).unwrap();
    mac.update(&step.to_be_bytes());
    let digest = mac.finalize().into_bytes();
    let at = usize::from(digest[19] & 15);
    let number = u32::from_be_bytes(digest[at..at + 4].try_into().unwrap()) & 0x7fff_ffff;
    format!("{:06}", number % 1_000_000)
}

pub(crate) struct Enabled {
    pub(super) browser: Browser,
    pub(crate) secret: String,
    /// The code that confirmed the secret: no other use of it is accepted.
    confirmed_by: String,
    pub(super) recovery: Vec<String>,
}

pub(crate) fn enable(admin: &Admin, browser: &Browser) -> Enabled {
    let made = ok(&browser.send(admin, "POST", "/admin/v1/totp/secret", Some(&json!({}))));
    let secret = made["secret"].as_str().unwrap().to_owned();
    assert!(made["uri"].as_str().unwrap().starts_with("otpauth://totp/tollgate"), "{made}");
    let body = |code: &str, password: &str| json!({"challenge": made["challenge"], "code": code, "password": password});
    let wrong = browser.send(admin, "POST", "/admin/v1/totp/enable", Some(&body("000000", PASSWORD)));
    assert_eq!(refusal(&wrong), refused(400, "invalid_value", "code"));
    let wrong = browser.send(admin, "POST", "/admin/v1/totp/enable", Some(&body(&code(&secret, 0), "not my password")));
    assert_eq!(refusal(&wrong), refused(400, "invalid_value", "password"));
    let confirmed_by = code(&secret, 0);
    let answer = browser.send(admin, "POST", "/admin/v1/totp/enable", Some(&body(&confirmed_by, PASSWORD)));
    let body = ok(&answer);
    let recovery = body["recovery_codes"].as_array().unwrap().iter().map(|code| code.as_str().unwrap().to_owned()).collect();
    let csrf_token = body["session"]["csrf_token"].as_str().unwrap().to_owned();
    Enabled { browser: Browser { cookie: super::cookie(&answer), csrf_token }, secret, confirmed_by, recovery }
}

fn challenge(admin: &Admin) -> Value {
    let answer = try_sign_in(admin, "ann", PASSWORD);
    assert!(answer.header("set-cookie").is_none(), "the password alone opens no session");
    let body = ok(&answer);
    assert_eq!(body["next"], "code", "{body}");
    body["challenge"].clone()
}

pub(super) fn complete(admin: &Admin, body: &Value) -> ClientResponse {
    admin.send("POST", "/admin/v1/session/code", &Request::post("/admin/v1/session/code", body))
}

#[test]
fn code_is_required_after_the_password_and_valid_once() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let (before, other) = (sign_in(&admin, "ann"), sign_in(&admin, "ann"));
    let Enabled { browser, secret, confirmed_by, .. } = enable(&admin, &before);
    assert!(browser.is_in(&admin) && !before.is_in(&admin) && !other.is_in(&admin), "a new token, and the others ended");
    assert_eq!(browser.get(&admin, "/admin/v1/totp")["enabled"], true);
    let used = complete(&admin, &json!({"challenge": challenge(&admin), "code": confirmed_by}));
    assert_eq!(refusal(&used), refused_whole(401, "wrong_code"), "it confirmed the secret already");
    // The code of the next step is already accepted.
    let next = code(&secret, 1);
    let signed_in = Browser::of(&complete(&admin, &json!({"challenge": challenge(&admin), "code": next})));
    assert!(signed_in.is_in(&admin));
    let replayed = complete(&admin, &json!({"challenge": challenge(&admin), "code": next}));
    assert_eq!(refusal(&replayed), refused_whole(401, "wrong_code"));
    assert_eq!(refusal(&complete(&admin, &json!({"challenge": challenge(&admin)}))).1, "missing_required_parameter");
    let forged = complete(&admin, &json!({"challenge": "00.00", "code": next}));
    assert_eq!(refusal(&forged), refused_whole(401, "challenge_ended"));
    // A challenge ends with the password it was made with.
    let old = challenge(&admin);
    ok(&admin.call("PUT", "/admin/v1/members/ann/password", Some(&json!({"new_password": "another good one"}))));
    assert_eq!(refusal(&complete(&admin, &json!({"challenge": old, "code": next}))), refused_whole(401, "challenge_ended"));
}

#[test]
fn password_link_requires_a_code_too() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let Enabled { browser, secret, .. } = enable(&admin, &sign_in(&admin, "ann"));
    let link = admin.post("/admin/v1/members/ann/password-link", &json!({}));
    let path = "/admin/v1/password-links/use";
    let body = json!({"token": link["token"], "new_password": "another good one"});
    let answer = admin.send("POST", path, &Request::post(path, &body));
    assert!(answer.header("set-cookie").is_none() && !browser.is_in(&admin), "access to the mailbox does not replace the phone");
    let body = ok(&answer);
    assert_eq!(body["next"], "code", "{body}");
    let completed = complete(&admin, &json!({"challenge": body["challenge"], "code": code(&secret, 1)}));
    assert!(Browser::of(&completed).is_in(&admin));
}

#[test]
fn guessing_codes_is_limited() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    enable(&admin, &sign_in(&admin, "ann"));
    let challenge = challenge(&admin);
    let statuses: Vec<u16> =
        (0..11).map(|n| complete(&admin, &json!({"challenge": challenge, "code": format!("{n:06}")})).status).collect();
    assert_eq!(statuses, [vec![401; 10], vec![429]].concat());
}

#[test]
fn recovery_code_signs_in_once_and_admins_can_reset_codes() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let Enabled { browser, recovery, .. } = enable(&admin, &sign_in(&admin, "ann"));
    assert_eq!(recovery.len(), 10);
    let typed = recovery[3].to_uppercase().replace('-', " ");
    let answer = complete(&admin, &json!({"challenge": challenge(&admin), "recovery_code": typed}));
    assert_eq!(ok(&answer)["recovery_codes_left"], 9);
    let again = complete(&admin, &json!({"challenge": challenge(&admin), "recovery_code": recovery[3]}));
    assert_eq!(refusal(&again), refused_whole(401, "wrong_code"));
    let made = browser.send(&admin, "POST", "/admin/v1/totp/recovery-codes", Some(&json!({"password": PASSWORD})));
    assert_eq!(ok(&made)["recovery_codes"].as_array().unwrap().len(), 10);
    let old = complete(&admin, &json!({"challenge": challenge(&admin), "recovery_code": recovery[4]}));
    assert_eq!(refusal(&old), refused_whole(401, "wrong_code"), "they were replaced");

    let reset = ok(&admin.call("DELETE", "/admin/v1/members/ann/totp", None));
    assert_eq!(reset["totp"], false);
    assert!(!browser.is_in(&admin));
    let browser = sign_in(&admin, "ann");
    let Enabled { browser, .. } = enable(&admin, &browser);
    let wrong = browser.send(&admin, "POST", "/admin/v1/totp/disable", Some(&json!({"password": "a wrong one"})));
    assert_eq!(refusal(&wrong), refused(400, "invalid_value", "password"));
    let off = Browser::of(&browser.send(&admin, "POST", "/admin/v1/totp/disable", Some(&json!({"password": PASSWORD}))));
    assert!(off.is_in(&admin) && !browser.is_in(&admin));
    sign_in(&admin, "ann");
    let audit = admin.get("/admin/v1/audit?kind=login");
    for action in ["enable_totp", "disable_totp", "replace_recovery_codes", "set_password"] {
        assert!(audit.to_string().contains(action), "{action}: {audit}");
    }
}

#[test]
fn restored_backup_has_passwords_and_code_secrets() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let Enabled { secret, browser, .. } = enable(&admin, &sign_in(&admin, "ann"));
    let (folder, restored) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = folder.path().join("one.backup").display().to_string();
    let made = admin.gateway.run(&["backup", &file]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let data = restored.path().display().to_string();
    std::fs::copy(admin.gateway.data().join("master.key"), restored.path().join("master.key")).unwrap();
    let out = std::process::Command::new(support::PROGRAM).env_clear().args(["restore", &file, "--data", &data]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let again = Admin::of_restored(tollgate_testkit::TestGateway::builder(support::PROGRAM).data_folder(restored).spawn());
    assert!(browser.is_in(&again), "its session too");
    let answer = complete(&again, &json!({"challenge": challenge(&again), "code": code(&secret, 1)}));
    assert!(Browser::of(&answer).is_in(&again));
}

#[test]
fn secrets_of_codes_survive_a_rotation_of_the_master_key() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let Enabled { secret, .. } = enable(&admin, &sign_in(&admin, "ann"));
    let out = admin.gateway.run(&["master-key", "rotate"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).contains('1'));
    wait_for("a code signs in", std::time::Duration::from_mins(1), || {
        complete(&admin, &json!({"challenge": challenge(&admin), "code": code(&secret, 1)})).status == 200
    });
}
