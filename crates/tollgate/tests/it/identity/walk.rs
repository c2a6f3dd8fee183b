//! Calls every route of signing in once, for the comparison of all routes with the OpenAPI document.

use serde_json::{Value, json};
use tollgate_testkit::{Postgres, Request, TestGateway};

use super::{Browser, PASSWORD, codes, make_member, passkeys, registration, sign_in, try_sign_in};
use crate::{
    admin::{Admin, ok},
    support,
};

#[test]
fn every_sign_in_route_works_on_postgres() {
    let Some(postgres) = Postgres::start("every_sign_in_route_works_on_postgres") else { return };
    walk(&Admin::of(TestGateway::builder(support::PROGRAM).env("DATABASE_URL", &postgres.url()).spawn()));
}

pub(crate) fn walk(admin: &Admin) {
    let open = |path: &str, body: &Value| {
        let path = format!("/admin/v1/{path}");
        admin.send("POST", &path, &Request::post(&path, body))
    };
    let methods = ok(&admin.send("GET", "/admin/v1/session/methods", &Request::get("/admin/v1/session/methods")));
    let origin = passkeys::origin(admin);
    assert_eq!(methods, json!({"password": true, "oidc": null, "passkey_origin": origin, "remember": true, "registration": false}));
    let set_up = admin.post("/admin/v1/setup-link", &json!({}));
    ok(&open("password-links/check", &json!({"token": set_up["token"]})));
    ok(&open("password-links/use", &json!({"token": set_up["token"], "new_password": PASSWORD})));
    let invite = admin.post("/admin/v1/invites", &json!({}));
    ok(&open("invites/check", &json!({"token": invite["token"]})));
    ok(&open("invites/accept", &json!({"token": invite["token"], "name": "invited", "new_password": PASSWORD})));
    let other = admin.post("/admin/v1/invites", &json!({}));
    let path = format!("/admin/v1/invites/{}", other["id"].as_str().unwrap());
    admin.get(&path);
    admin.delete(&path);
    admin.get("/admin/v1/invites");

    registration::set(admin, "access.registration", "open");
    ok(&open("registration", &json!({"name": "registered", "new_password": PASSWORD})));

    make_member(admin, "ann", "member");
    let key = admin.post("/admin/v1/keys", &json!({"name": "of ann", "member": "ann"}));
    let key = format!("/admin/v1/keys/{}", key["id"].as_str().unwrap());
    admin.get(&format!("{key}/allowance"));
    admin.post(&format!("{key}/rotate"), &json!({"overlap_s": 60}));
    admin.post(&format!("{key}/disable"), &json!({}));
    admin.get("/admin/v1/members/ann/login");
    admin.patch("/admin/v1/members/ann/login", &json!({"email": "ann@example.com"}));
    admin.post("/admin/v1/members/ann/password-link", &json!({}));
    let enabled = codes::enable(admin, &sign_in(admin, "ann"));
    enabled.browser.get(admin, "/admin/v1/totp");
    let proof = json!({"password": PASSWORD});
    ok(&enabled.browser.send(admin, "POST", "/admin/v1/totp/recovery-codes", Some(&proof)));
    let challenge = ok(&try_sign_in(admin, "ann", PASSWORD))["challenge"].clone();
    let answer = open("session/code", &json!({"challenge": challenge, "code": codes::code(&enabled.secret, 1)}));
    let browser = Browser::of(&answer);
    let answer = browser.send(admin, "POST", "/admin/v1/totp/disable", Some(&proof));
    Browser::of(&answer);
    ok(&admin.call("DELETE", "/admin/v1/members/ann/totp", None));
    passkeys::walk(admin, "ann");
    let browser = sign_in(admin, "ann");
    let change = json!({"password": PASSWORD, "new_password": "another good one"});
    let browser = Browser::of(&browser.send(admin, "PUT", "/admin/v1/password", Some(&change)));
    let second = Browser::of(&try_sign_in(admin, "ann", "another good one"));
    let id = second.get(admin, "/admin/v1/me")["id"].as_str().unwrap().to_owned();
    browser.get(admin, "/admin/v1/sessions");
    browser.get(admin, "/admin/v1/me/preferences");
    ok(&browser.send(admin, "PATCH", "/admin/v1/me/preferences", Some(&json!({"theme": "dark"}))));
    let view = json!({"name": "mine", "query": "range=7d"});
    ok(&browser.send(admin, "PUT", "/admin/v1/me/views", Some(&view)));
    browser.get(admin, "/admin/v1/me/views");
    ok(&browser.send(admin, "PUT", "/admin/v1/me/views", Some(&json!({"name": "mine", "page": "keys", "query": "sort=spent"}))));
    assert_eq!(browser.get(admin, "/admin/v1/me/views?page=keys")["items"][0]["query"], "sort=spent");
    assert_eq!(browser.send(admin, "DELETE", "/admin/v1/me/views?name=mine", None).status, 204);
    assert_eq!(browser.get(admin, "/admin/v1/me/views")["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(browser.send(admin, "DELETE", "/admin/v1/me/views?name=mine&page=keys", None).status, 204);
    browser.get(admin, "/admin/v1/me/groups");
    admin.patch("/admin/v1/groups/default", &json!({"self_service": true}));
    ok(&browser.send(admin, "POST", "/admin/v1/keys", Some(&json!({"name": "own"}))));
    ok(&browser.send(admin, "POST", "/admin/v1/me/playground-key", Some(&json!({}))));
    assert_eq!(browser.send(admin, "DELETE", &format!("/admin/v1/sessions/{id}"), None).status, 204);
    assert_eq!(browser.send(admin, "DELETE", "/admin/v1/session", None).status, 204);
}
