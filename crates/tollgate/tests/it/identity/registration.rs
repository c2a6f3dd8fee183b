//! Becoming a member without an admin: off, by invite, or open to visitors.

use serde_json::{Value, json};
use tollgate_testkit::{ClientResponse, Request};

use super::{Browser, PASSWORD, make_member, sign_in, try_sign_in};
use crate::{
    admin::{Admin, ok, refusal, refused, refused_whole},
    support,
};

pub(super) fn set(admin: &Admin, name: &str, value: &str) {
    ok(&admin.call("PUT", &format!("/admin/v1/settings/{name}"), Some(&json!({"value": value}))));
}

fn register(admin: &Admin, body: &Value) -> ClientResponse {
    admin.send("POST", "/admin/v1/registration", &Request::post("/admin/v1/registration", body))
}

fn named(name: &str) -> Value {
    json!({"name": name, "new_password": PASSWORD})
}

#[test]
fn visitors_register_only_where_registration_is_open() {
    let admin = Admin::echo();
    let methods = || ok(&admin.gateway.send(&Request::get("/admin/v1/session/methods")))["registration"].clone();
    assert_eq!((refusal(&register(&admin, &named("ann"))), methods()), (refused_whole(403, "registration_closed"), json!(false)));
    set(&admin, "access.registration", "open");
    assert_eq!(methods(), json!(true));
    let body = json!({"name": "ann", "email": "Ann@example.com", "new_password": PASSWORD});
    let browser = Browser::of(&register(&admin, &body));
    let me = browser.get(&admin, "/admin/v1/me");
    assert_eq!((&me["name"], &me["scope"]), (&json!("ann"), &json!("member")));
    let member = admin.get("/admin/v1/members/ann");
    assert_eq!((&member["role"], &member["billing"], &member["groups"]), (&json!("member"), &json!("prepaid"), &json!([])));
    assert_eq!(member["default_group"], Value::Null);
    assert_eq!(try_sign_in(&admin, "ann@example.com", PASSWORD).status, 200);
    let entry = admin.get("/admin/v1/audit?kind=login&limit=10")["items"].clone();
    let entry = entry.as_array().unwrap().iter().find(|entry| entry["action"] == "register").unwrap().clone();
    assert_eq!((&entry["name"], &entry["actor"], &entry["address"]), (&json!("ann"), &json!("registration"), &json!("127.0.0.1")));
    // A member without a balance has no credit.
    ok(&admin.call("PUT", "/admin/v1/prices/echo", Some(&json!({"price": {"input": "1", "output": "1"}}))));
    let key = admin.post("/admin/v1/keys", &json!({"name": "k", "member": "ann", "groups": ["echo"]}));
    let chat = Request::post("/v1/chat/completions", &support::chat("echo")).bearer(key["key"].as_str().unwrap());
    let answer = admin.gateway.send(&chat);
    assert!(answer.status == 429 || answer.status == 402, "{} {}", answer.status, answer.text());
    set(&admin, "access.registration", "invite");
    assert_eq!(refusal(&register(&admin, &named("eve"))), refused_whole(403, "registration_closed"));
    assert!(browser.is_in(&admin), "members stay");
}

#[test]
fn group_and_billing_of_those_who_register_are_settings() {
    let admin = Admin::echo();
    admin.post("/admin/v1/groups", &json!({"name": "guests", "visibility": "private", "channels": ["echo"]}));
    set(&admin, "access.registration", "open");
    set(&admin, "access.registration_group", "guests");
    set(&admin, "access.registration_billing", "postpaid");
    ok(&register(&admin, &named("ann")));
    let member = admin.get("/admin/v1/members/ann");
    assert_eq!((&member["groups"], &member["default_group"]), (&json!(["guests"]), &json!("guests")));
    assert_eq!(member["billing"], "postpaid");
    let wrong = admin.call("PUT", "/admin/v1/settings/access.registration_billing", Some(&json!({"value": "free"})));
    assert_eq!(refusal(&wrong), refused(400, "invalid_value", "value"));
    admin.patch("/admin/v1/members/ann", &json!({"groups": [], "default_group": null}));
    admin.delete("/admin/v1/groups/guests");
    let closed = register(&admin, &named("eve"));
    assert_eq!(refusal(&closed), refused_whole(403, "registration_closed"), "not into another group instead");
    assert_eq!(admin.call("GET", "/admin/v1/members/eve", None).status, 404);
}

#[test]
fn refused_registrations_do_not_tell_which_member_has_a_name_or_an_address() {
    let admin = Admin::echo();
    set(&admin, "access.registration", "open");
    make_member(&admin, "ann", "admin");
    ok(&admin.call("PATCH", "/admin/v1/members/ann/login", Some(&json!({"email": "ann@example.com"}))));
    let by_name = register(&admin, &named("ann"));
    let by_email = register(&admin, &json!({"name": "eve", "email": "ann@example.com", "new_password": PASSWORD}));
    let by_both = register(&admin, &named("ann@example.com"));
    assert_eq!(refusal(&by_name), refused_whole(409, "login_taken"));
    for other in [&by_email, &by_both] {
        assert_eq!((other.status, other.text()), (by_name.status, by_name.text()));
    }
    for (body, param) in [
        (json!({"name": "", "new_password": PASSWORD}), "name"),
        (json!({"name": " eve", "new_password": PASSWORD}), "name"),
        (json!({"name": "eve", "email": "none", "new_password": PASSWORD}), "email"),
        (json!({"name": "eve", "new_password": "short"}), "new_password"),
        (json!({"name": "password123", "new_password": "password123"}), "new_password"),
        (json!({"name": "eve-and-adam", "new_password": "eve-and-adam"}), "new_password"),
        (json!({"name": "eve", "new_password": PASSWORD, "role": "admin"}), "role"),
    ] {
        let refused = refusal(&register(&admin, &body));
        assert_eq!((refused.0, refused.2.as_deref()), (400, Some(param)), "{body}");
    }
    assert_eq!(admin.call("GET", "/admin/v1/members/eve", None).status, 404);
    sign_in(&admin, "ann");
}

#[test]
fn registrations_are_limited_by_address_and_come_from_own_pages() {
    let admin = Admin::echo();
    set(&admin, "access.registration", "open");
    let forged = Request::post("/admin/v1/registration", &named("eve")).header("origin", "http://evil.example.com");
    let answer = admin.gateway.send(&forged);
    assert!(answer.header("set-cookie").is_none() && answer.status == 403, "{}", answer.text());
    for n in 0..5 {
        ok(&register(&admin, &named(&format!("ann{n}"))));
    }
    let last = register(&admin, &named("ann5"));
    assert_eq!(refusal(&last), refused_whole(429, "rate_limit_exceeded"));
    assert!(last.header("retry-after").unwrap().parse::<u32>().unwrap() > 3_000);
    assert_eq!(admin.call("GET", "/admin/v1/members/ann5", None).status, 404);
}

#[test]
fn invites_are_of_no_use_while_registration_is_off() {
    let admin = Admin::echo();
    let invite = admin.post("/admin/v1/invites", &json!({}));
    set(&admin, "access.registration", "off");
    let off = refused_whole(403, "registration_off");
    assert_eq!(refusal(&admin.call("POST", "/admin/v1/invites", Some(&json!({})))), off);
    let open = |path: &str, body: &Value| {
        let path = format!("/admin/v1/invites/{path}");
        admin.send("POST", &path, &Request::post(&path, body))
    };
    let accept = json!({"token": invite["token"], "name": "ann", "new_password": PASSWORD});
    assert_eq!(refusal(&open("check", &json!({"token": invite["token"]}))), off);
    assert_eq!(refusal(&open("accept", &accept)), off);
    let out = admin.gateway.run(&["invite", "create"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && said.contains("access.registration"), "{said}");
    set(&admin, "access.registration", "invite");
    ok(&open("accept", &accept));
}
