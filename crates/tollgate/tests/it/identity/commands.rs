//! The commands for members who sign in.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tollgate_testkit::TestGateway;

use super::{PASSWORD, make_member, sign_in, try_sign_in};
use crate::{admin::Admin, support};

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.clone(), output.stderr.clone()].concat()).into_owned()
}

fn json_of(output: &Output) -> Value {
    assert!(output.status.success(), "{}", text(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn passwords_and_sessions_are_managed_by_commands() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let browser = sign_in(&admin, "ann");
    let listed = json_of(&admin.gateway.run(&["session", "list", "--json"]));
    let id = listed["items"][0]["id"].as_str().unwrap().to_owned();
    assert!(text(&admin.gateway.run(&["session", "list", "--member", "ann"])).contains(&id));
    assert!(text(&admin.gateway.run(&["session", "revoke", &id])).contains("revoked"));
    assert!(!browser.is_in(&admin));
    let made = json_of(&admin.gateway.run(&["member", "reset-password", "ann", "--json"]));
    let token = made["link"].as_str().unwrap().split_once("token=").unwrap().1.to_owned();
    let body = json!({"token": token, "new_password": "another good one"});
    let used = tollgate_testkit::Request::post("/admin/v1/password-links/use", &body);
    assert_eq!(admin.gateway.send(&used).status, 200);
    assert_eq!(try_sign_in(&admin, "ann", "another good one").status, 200);
    let shown = text(&admin.gateway.run(&["member", "login", "ann", "--email", "ann@example.com"]));
    assert!(shown.contains("ann@example.com") && shown.contains("password"), "{shown}");
    let reset = admin.gateway.run(&["member", "disable-totp", "ann"]);
    assert!(reset.status.success(), "{}", text(&reset));
    assert_eq!(admin.gateway.run(&["member", "reset-password", "unknown"]).status.code(), Some(1));
}

#[test]
fn password_is_read_from_standard_input() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let reset = |input: &str| {
        let data = admin.gateway.data().display().to_string();
        let mut command = Command::new(support::PROGRAM);
        command.args(["member", "reset-password", "ann", "--stdin", "--data", &data]);
        run_with_input(&mut command, input)
    };
    let refused = reset("short\n");
    assert!(!refused.status.success() && text(&refused).contains("10 to 128"), "{}", text(&refused));
    assert!(reset("a password from a pipe\n").status.success());
    assert_eq!(try_sign_in(&admin, "ann", "a password from a pipe").status, 200);
    assert_eq!(try_sign_in(&admin, "ann", PASSWORD).status, 401);
}

fn run_with_input(command: &mut Command, input: &str) -> Output {
    let mut child = command.env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn invites_are_managed_by_commands() {
    let admin = Admin::echo();
    let made =
        json_of(&admin.gateway.run(&["invite", "create", "--role", "operator", "--note", "for Ann", "--expires", "2d", "--json"]));
    let running = format!("http://{}/", admin.gateway.address());
    assert!(made["link"].as_str().unwrap().starts_with(&format!("{running}invite?token=tgi-")), "{made}");
    let reset = json_of(&admin.gateway.run(&["member", "reset-password", "owner", "--json"]));
    assert!(reset["link"].as_str().unwrap().starts_with(&running), "{reset}");
    let id = made["id"].as_str().unwrap();
    let listed = text(&admin.gateway.run(&["invite", "list"]));
    assert!(listed.contains(id) && listed.contains("open") && listed.contains("for Ann"), "{listed}");
    assert!(admin.gateway.run(&["invite", "revoke", id]).status.success());
    assert!(text(&admin.gateway.run(&["invite", "list"])).contains("revoked"));
    let key = json_of(&admin.gateway.run(&["admin-key", "create", "anns", "--scope", "member", "--member", "owner", "--json"]));
    assert_eq!(key["scope"], "member", "{key}");
}

#[test]
fn init_writes_settings_and_makes_an_admin_who_can_sign_in() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str], input: &str| {
        run_with_input(Command::new(support::PROGRAM).args(arguments).current_dir(folder.path()), input)
    };
    let made = run(&["init", "--data", "data", "--admin", "root", "--password-stdin"], "a password from a pipe\n");
    assert!(made.status.success(), "{}", text(&made));
    let settings = std::fs::read_to_string(folder.path().join("tollgate.toml")).unwrap();
    assert!(settings.contains("data = \"data\"") && settings.contains("# listen = "), "{settings}");
    assert!(folder.path().join("data/master.key").exists());
    let members = text(&run(&["member", "login", "root"], ""));
    assert!(members.contains("yes"), "{members}");
    let again = run(&["init", "--data", "data", "--admin", "root", "--password-stdin"], "a password from a pipe\n");
    assert!(again.status.code() == Some(1) && text(&again).contains("tollgate.toml"), "{}", text(&again));
    let link = run(&["setup-link"], "");
    assert!(!link.status.success() && text(&link).contains("reset-password"), "{}", text(&link));
    let other = tempfile::tempdir().unwrap();
    let bare = run_with_input(Command::new(support::PROGRAM).args(["init", "--no-admin"]).current_dir(other.path()), "");
    assert!(bare.status.success() && text(&bare).contains("setup-link"), "{}", text(&bare));
}

#[test]
fn first_start_after_init_serves_the_echo_model_and_admits_the_admin() {
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let arguments = ["init", "--data", data.path().to_str().unwrap(), "--admin", "root", "--password-stdin"];
    let made = run_with_input(Command::new(support::PROGRAM).args(arguments).current_dir(folder.path()), &format!("{PASSWORD}\n"));
    assert!(made.status.success(), "{}", text(&made));
    let admin = Admin::of(TestGateway::builder(support::PROGRAM).data_folder(data).spawn());
    assert_eq!(admin.gateway.chat(&support::chat("echo")).status, 200);
    assert_eq!(sign_in(&admin, "root").get(&admin, "/admin/v1/me")["scope"], "admin");
}
