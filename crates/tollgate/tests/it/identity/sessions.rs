//! Sessions: how they are opened, ended and listed.

use std::{fs, thread, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_testkit::{ClientResponse, Request, TestGateway};

use super::{Browser, PASSWORD, codes, cookie, make_member, passkeys, sign_in, try_sign_in};
use crate::{
    admin::{Admin, ok, refusal, refused, refused_whole},
    support,
};

#[test]
fn member_signs_in_by_name_or_address_and_out() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "operator");
    admin.patch("/admin/v1/members/ann/login", &json!({"email": "Ann@Example.com"}));
    for login in ["ann", "ann@example.com"] {
        let answer = try_sign_in(&admin, login, PASSWORD);
        let set = answer.header("set-cookie").unwrap();
        assert!(set.starts_with("tollgate_session=tgs-") && set.contains("; HttpOnly; SameSite=Lax"), "{set}");
        let browser = Browser::of(&answer);
        let me = browser.get(&admin, "/admin/v1/me");
        assert_eq!((&me["name"], &me["scope"], &me["csrf_token"]), (&json!("ann"), &json!("operator"), &json!(browser.csrf_token)));
        let out = browser.send(&admin, "DELETE", "/admin/v1/session", None);
        assert!(out.status == 204 && out.header("set-cookie").unwrap().contains("Max-Age=0"), "{out:?}");
        assert!(!browser.is_in(&admin));
    }
    let login = admin.get("/admin/v1/members/ann/login");
    assert!(login["password"] == true && login["totp"] == false && login["signed_in_at"].is_string(), "{login}");
    for (login, password) in [("ann", "wrong password"), ("unknown", PASSWORD), ("ann", "")] {
        let answer = try_sign_in(&admin, login, password);
        assert!(answer.header("set-cookie").is_none());
        if !password.is_empty() {
            assert_eq!(refusal(&answer), refused_whole(401, "wrong_login"));
        }
    }
    admin.patch("/admin/v1/members/ann", &json!({"status": "suspended"}));
    assert_eq!(refusal(&try_sign_in(&admin, "ann", PASSWORD)), refused_whole(401, "wrong_login"));
    let audit = admin.get("/admin/v1/audit?kind=session").to_string();
    assert!(audit.contains("sign_in") && audit.contains("\"end\""), "{audit}");
    for secret in [PASSWORD, "tgs-", "argon2"] {
        assert!(!admin.gateway.log().contains(secret) && !admin.get("/admin/v1/audit").to_string().contains(secret), "{secret}");
    }
}

#[test]
fn sessions_end_with_a_change_of_role_password_or_status() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let of_role = sign_in(&admin, "ann");
    admin.patch("/admin/v1/members/ann", &json!({"role": "operator"}));
    assert!(!of_role.is_in(&admin), "the role is another one");
    admin.patch("/admin/v1/members/ann", &json!({"role": "member"}));
    assert!(!of_role.is_in(&admin), "the session is not restored with the role");

    let (other, own) = (sign_in(&admin, "ann"), sign_in(&admin, "ann"));
    let change = json!({"password": PASSWORD, "new_password": "another good one"});
    let answer = own.send(&admin, "PUT", "/admin/v1/password", Some(&change));
    let renewed = Browser::of(&answer);
    assert!(renewed.cookie != own.cookie && renewed.is_in(&admin));
    assert!(!own.is_in(&admin) && !other.is_in(&admin), "also the session that changed it has another token");
    let listed = renewed.get(&admin, "/admin/v1/sessions");
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "those that ended are not listed: {listed}");
    assert_eq!(try_sign_in(&admin, "ann", PASSWORD).status, 401);

    admin.patch("/admin/v1/members/ann", &json!({"status": "suspended"}));
    assert!(!renewed.is_in(&admin));
    let ended = renewed.send(&admin, "GET", "/admin/v1/me", None);
    assert_eq!(refusal(&ended), refused_whole(401, "session_ended"));
}

#[test]
fn sessions_are_listed_and_ended_one_by_one() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    make_member(&admin, "bob", "member");
    let (first, second, bobs) = (sign_in(&admin, "ann"), sign_in(&admin, "ann"), sign_in(&admin, "bob"));
    let own = first.get(&admin, "/admin/v1/sessions");
    let items = own["items"].as_array().unwrap();
    assert_eq!(items.iter().map(|it| it["current"] == true).collect::<Vec<_>>(), [true, false], "{own}");
    assert!(items.iter().all(|it| it["member"] == "ann" && it["method"] == "password" && it["address"] == "127.0.0.1"), "{own}");
    let path = format!("/admin/v1/sessions/{}", items[1]["id"].as_str().unwrap());
    assert_eq!(bobs.send(&admin, "DELETE", &path, None).status, 404, "it is another member's");
    assert_eq!(first.send(&admin, "DELETE", &path, None).status, 204);
    assert!(!second.is_in(&admin) && first.is_in(&admin));
    assert_eq!(first.send(&admin, "DELETE", &path, None).status, 404);
    let all = admin.get("/admin/v1/sessions");
    assert_eq!(all["items"].as_array().unwrap().len(), 2, "{all}");
    let bobs_id = admin.get("/admin/v1/sessions?member=bob")["items"][0]["id"].as_str().unwrap().to_owned();
    ok(&admin.call("DELETE", &format!("/admin/v1/sessions/{bobs_id}"), None));
    assert!(!bobs.is_in(&admin));
}

fn sign_in_remembered(admin: &Admin, remember: &Value) -> ClientResponse {
    let body = json!({"login": "ann", "password": PASSWORD, "remember": remember});
    admin.send("POST", "/admin/v1/session", &Request::post("/admin/v1/session", &body))
}

/// Whether the answer sets a cookie that stays when the browser is closed, for the 30 days that sessions may last.
#[track_caller]
fn is_kept(answer: &ClientResponse) -> bool {
    let set = answer.headers.iter().filter(|(name, _)| name == "set-cookie").map(|(_, value)| value.as_str());
    let set = set.filter(|set| set.starts_with("tollgate_session=")).collect::<Vec<_>>();
    assert_eq!(set.len(), 1, "{answer:?}");
    assert!(set[0].contains("Max-Age=2592000") == set[0].contains("Max-Age"), "{set:?}");
    set[0].contains("Max-Age")
}

#[test]
fn remember_choice_applies_to_every_way_of_signing_in() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    for (remember, expected) in [(json!(false), false), (json!(true), true)] {
        assert_eq!(is_kept(&sign_in_remembered(&admin, &remember)), expected);
    }
    assert_eq!(refusal(&sign_in_remembered(&admin, &json!("yes"))), refused(400, "invalid_type", "remember"));
    let (kept, other) = (Browser::of(&sign_in_remembered(&admin, &json!(true))), sign_in(&admin, "ann"));
    let mut authenticator = passkeys::Authenticator::new(&admin);
    passkeys::add(&admin, &kept, &mut authenticator);
    assert!(is_kept(&passkeys::remembered(&admin, &mut authenticator)));
    let listed = kept.get(&admin, "/admin/v1/sessions");
    let listed = listed["items"].as_array().unwrap().iter().map(|session| (&session["method"], &session["remembered"]));
    let (password, yes, no) = (json!("password"), json!(true), json!(false));
    let expected = [(&password, &no), (&password, &yes), (&password, &yes), (&password, &no), (&json!("passkey"), &yes)];
    assert_eq!(listed.collect::<Vec<_>>(), expected);

    // A session that replaces another is remembered as that one was.
    let answer = kept.send(&admin, "PUT", "/admin/v1/password", Some(&json!({"password": PASSWORD, "new_password": PASSWORD})));
    assert!(is_kept(&answer) && !other.is_in(&admin));
    let other = sign_in(&admin, "ann");
    let answer = other.send(&admin, "PUT", "/admin/v1/password", Some(&json!({"password": PASSWORD, "new_password": PASSWORD})));
    assert!(!is_kept(&answer));

    let enabled = codes::enable(&admin, &Browser::of(&sign_in_remembered(&admin, &json!(true))));
    assert_eq!(enabled.browser.get(&admin, "/admin/v1/sessions")["items"][0]["remembered"], true);
    for (later, (remember, expected)) in [(json!(true), true), (json!(false), false)].into_iter().enumerate() {
        let challenge = ok(&sign_in_remembered(&admin, &remember))["challenge"].clone();
        let body = if later == 0 {
            json!({"challenge": challenge, "code": codes::code(&enabled.secret, 1)})
        } else {
            json!({"challenge": challenge, "recovery_code": enabled.recovery[0]})
        };
        assert_eq!(is_kept(&codes::complete(&admin, &body)), expected, "with the code");
    }
    let proof = json!({"password": PASSWORD});
    assert!(is_kept(&enabled.browser.send(&admin, "POST", "/admin/v1/totp/disable", Some(&proof))));
    let link = admin.post("/admin/v1/members/ann/password-link", &json!({}));
    let body = json!({"token": link["token"], "new_password": PASSWORD});
    let answer = admin.send("POST", "/admin/v1/password-links/use", &Request::post("/admin/v1/password-links/use", &body));
    assert!(!is_kept(&answer), "a link asks for no choice");
}

#[test]
fn remembered_session_outlasts_the_idle_timeout() {
    let folder = TempDir::new().unwrap();
    let clock = folder.path().join("clock");
    let set = |hours: i64| {
        let new = clock.with_extension("new");
        fs::write(&new, (hours * 3_600).to_string()).unwrap();
        fs::rename(&new, &clock).unwrap();
        // The gateway reads the file every 20 ms.
        thread::sleep(Duration::from_millis(200));
    };
    set(0);
    let gateway = TestGateway::builder(support::PROGRAM).env("GATEWAY_TEST_CLOCK", clock.to_str().unwrap()).spawn();
    let admin = Admin::of(gateway);
    make_member(&admin, "ann", "member");
    let (brief, kept) = (sign_in(&admin, "ann"), Browser::of(&sign_in_remembered(&admin, &json!(true))));
    set(13);
    assert!(!brief.is_in(&admin), "12 hours without a request");
    assert!(kept.is_in(&admin));
    set(29 * 24);
    assert!(kept.is_in(&admin));
    assert_eq!(admin.get("/admin/v1/sessions")["items"].as_array().unwrap().len(), 1);
    set(31 * 24);
    assert!(!kept.is_in(&admin), "no session lasts longer");

    let (open, kept) = (sign_in(&admin, "ann"), Browser::of(&sign_in_remembered(&admin, &json!(true))));
    ok(&admin.call("PUT", "/admin/v1/settings/console.remember_me", Some(&json!({"value": "false"}))));
    let methods = admin.send("GET", "/admin/v1/session/methods", &Request::get("/admin/v1/session/methods"));
    assert_eq!(ok(&methods)["remember"], false);
    assert!(!is_kept(&sign_in_remembered(&admin, &json!(true))));
    assert!(open.is_in(&admin) && kept.is_in(&admin));
    set(31 * 24 + 13);
    assert!(!kept.is_in(&admin), "it ends as others do when members may not be remembered");
    assert_eq!(admin.get("/admin/v1/sessions")["items"], json!([]));
}

#[test]
fn cookie_over_https_is_bound_to_the_host() {
    let gateway = TestGateway::builder(support::PROGRAM).env("TOLLGATE_CONSOLE__URL", "https://console.example.com").spawn();
    assert!(gateway.startup()["setup_link"].as_str().unwrap().starts_with("https://console.example.com/setup?token=tgl-"));
    let admin = Admin::of(gateway);
    make_member(&admin, "ann", "member");
    let answer = try_sign_in(&admin, "ann", PASSWORD);
    let set = answer.header("set-cookie").unwrap();
    assert!(set.starts_with("__Host-tollgate_session=") && set.ends_with("; Secure"), "{set}");
    assert!(set.contains("; Path=/;"), "{set}");
    let browser = Browser::of(&answer);
    assert!(browser.is_in(&admin));
    let plain = Browser { cookie: cookie(&answer).replace("__Host-", ""), ..browser };
    assert!(!plain.is_in(&admin), "a cookie that another host could have set");
}

#[test]
fn settings_of_sessions_are_checked() {
    for (name, value) in [
        ("TOLLGATE_CONSOLE__URL", "gateway.example.com"),
        ("TOLLGATE_CONSOLE__URL", "ftp://gateway.example.com"),
        ("TOLLGATE_CONSOLE__SESSION_IDLE_MINUTES", "0"),
        ("TOLLGATE_OIDC__CLIENT_ID", "an id without an issuer"),
        ("TOLLGATE_OIDC__ISSUER", "https://id.example.com"),
    ] {
        let out = TestGateway::builder(support::PROGRAM).env(name, value).run_to_exit();
        assert_eq!(out.status.code(), Some(3), "{name}={value}: {}", String::from_utf8_lossy(&out.stderr));
    }
}

#[test]
fn settings_of_an_openid_provider_are_checked() {
    let good = [
        ("TOLLGATE_CONSOLE__URL", "https://gateway.example.com"),
        ("TOLLGATE_OIDC__ISSUER", "https://id.example.com"),
        ("TOLLGATE_OIDC__CLIENT_ID", "tollgate"),
    ];
    let with = |name: &'static str, value: &'static str| {
        let settings = good.into_iter().filter(|(known, _)| *known != name).chain([(name, value)]);
        settings.fold(TestGateway::builder(support::PROGRAM), |builder, (name, value)| builder.env(name, value))
    };
    let gateway = with("TOLLGATE_OIDC__DISPLAY_NAME", "Example").spawn();
    let methods = gateway.send(&Request::get("/admin/v1/session/methods")).json();
    assert_eq!(
        methods,
        json!({"password": true, "oidc": "Example", "passkey_origin": "https://gateway.example.com", "remember": true,
            "registration": false})
    );
    let page = gateway.send(&Request::get("/sign-in?to=/models")).text();
    for link in ["/admin/v1/oidc/start?to=%2Fmodels\"", "/admin/v1/oidc/start?to=%2Fmodels&#38;remember=true\""] {
        assert!(page.contains(link), "{link} is not in {page}");
    }
    for (name, value, says) in [
        ("TOLLGATE_OIDC__ISSUER", "id.example.com", "oidc.issuer takes an address"),
        ("TOLLGATE_OIDC__ISSUER", "http://id.example.com", "oidc.private_network"),
        ("TOLLGATE_OIDC__SCOPES", "profile", "must contain openid"),
        ("TOLLGATE_OIDC__ADMINS", "bosses", "oidc.role_claim"),
        ("TOLLGATE_OIDC__GROUPS", "a=b", "oidc.group_claim"),
        ("TOLLGATE_OIDC__GROUPS", "a", "pairs"),
        ("TOLLGATE_OIDC__CLIENT_SECRET", "env:NO_SUCH_VARIABLE", "oidc.client_secret"),
    ] {
        let out = with(name, value).run_to_exit();
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(3) && error.contains(says), "{name}={value}: {error}");
    }
}
