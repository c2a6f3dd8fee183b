//! The first admin, invites, and forgotten passwords.

use serde_json::{Value, json};
use tollgate_testkit::{ClientResponse, PendingResponse, Request, TestGateway};

use super::{Browser, PASSWORD, make_member, sign_in, try_sign_in};
use crate::{
    admin::{Admin, make_key, ok, refusal, refused, refused_whole},
    support,
};

fn token_of(link: &str) -> &str {
    link.split_once("?token=").expect("links end with their token").1
}

fn open(admin: &Admin, path: &str, body: &Value) -> ClientResponse {
    let path = format!("/admin/v1/{path}");
    admin.send("POST", &path, &Request::post(&path, body))
}

#[test]
fn first_start_prints_a_link_that_sets_up_the_first_admin_once() {
    let admin = Admin::echo();
    let link = admin.gateway.startup()["setup_link"].as_str().unwrap().to_owned();
    assert!(link.starts_with(&format!("http://{}/setup?token=tgl-", admin.gateway.address())), "{link}");
    let token = token_of(&link);
    let checked = ok(&open(&admin, "password-links/check", &json!({"token": token})));
    assert_eq!((&checked["member"], &checked["kind"]), (&json!("owner"), &json!("set_up")));
    for bad in ["short", "password123", "owner", &"x".repeat(129)] {
        let refused_password = open(&admin, "password-links/use", &json!({"token": token, "new_password": bad}));
        assert_eq!(refusal(&refused_password).0, 400, "{bad}");
    }
    let browser = Browser::of(&open(&admin, "password-links/use", &json!({"token": token, "new_password": PASSWORD})));
    let me = browser.get(&admin, "/admin/v1/me");
    assert_eq!((&me["name"], &me["scope"]), (&json!("owner"), &json!("admin")));
    let again = open(&admin, "password-links/use", &json!({"token": token, "new_password": PASSWORD}));
    assert_eq!(refusal(&again), refused(400, "invalid_token", "token"));
    assert_eq!(refusal(&open(&admin, "password-links/check", &json!({"token": token}))), refused(400, "invalid_token", "token"));
    sign_in(&admin, "owner");
    let out = admin.gateway.run(&["setup-link"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && said.contains("reset-password"), "{said}");
    assert!(!admin.gateway.log().contains(token), "the log holds the link");
}

#[test]
fn first_admin_chooses_a_name() {
    let admin = Admin::echo();
    let token = token_of(admin.gateway.startup()["setup_link"].as_str().unwrap()).to_owned();
    make_member(&admin, "bob", "member");
    let with_name = |name: &str, password: &str| {
        open(&admin, "password-links/use", &json!({"token": token, "name": name, "new_password": password}))
    };
    assert_eq!(refusal(&with_name("bob", PASSWORD)), refused_whole(409, "already_exists"), "bob does not become an admin");
    assert_eq!(refusal(&with_name("", PASSWORD)).2.as_deref(), Some("name"));
    assert_eq!(refusal(&with_name("ada lovelace", "ada lovelace")), refused(400, "invalid_value", "new_password"));
    let browser = Browser::of(&with_name("ada", PASSWORD));
    let me = browser.get(&admin, "/admin/v1/me");
    assert_eq!((&me["name"], &me["scope"]), (&json!("ada"), &json!("admin")));
    assert_eq!(refusal(&with_name("eve", PASSWORD)), refused(400, "invalid_token", "token"));
    assert_eq!(try_sign_in(&admin, "owner", PASSWORD).status, 401, "the member still exists, without a password");
    assert!(!admin.gateway.run(&["setup-link"]).status.success(), "an admin can sign in");
    assert_eq!(admin.get("/admin/v1/members/bob")["role"], "member");

    let link = admin.post("/admin/v1/members/bob/password-link", &json!({}));
    let renamed = json!({"token": link["token"], "name": "bobby", "new_password": PASSWORD});
    assert_eq!(refusal(&open(&admin, "password-links/use", &renamed)), refused(400, "invalid_value", "name"));
}

/// The link is in the log of the first start, so it must expire.
#[test]
fn set_up_link_expires_once_another_admin_can_sign_in() {
    let admin = Admin::echo();
    let token = token_of(admin.gateway.startup()["setup_link"].as_str().unwrap()).to_owned();
    make_member(&admin, "bob", "member");
    ok(&open(&admin, "password-links/check", &json!({"token": token})));
    make_member(&admin, "ann", "admin");
    let password = json!({"token": token, "new_password": PASSWORD});
    for (path, body) in [("password-links/check", json!({"token": token})), ("password-links/use", password)] {
        assert_eq!(refusal(&open(&admin, path, &body)), refused(400, "invalid_token", "token"), "{path}");
    }
    assert_eq!(try_sign_in(&admin, "owner", PASSWORD).status, 401);
}

#[test]
fn public_address_serves_only_the_set_up_link_until_there_is_an_admin() {
    let gateway = TestGateway::builder(support::PROGRAM).listen("0.0.0.0:0").spawn();
    let near = std::net::SocketAddr::from(([127, 0, 0, 1], gateway.address().port()));
    let send = |request: &Request| request.send(near).and_then(PendingResponse::read).unwrap();
    let sign_in = Request::post("/admin/v1/session", &json!({"login": "owner", "password": PASSWORD}));
    assert_eq!(send(&sign_in).status, 404);
    assert_eq!(send(&Request::get("/admin/v1/me")).status, 404);
    for path in ["/", "/sign-in", "/models", "/status", "/console", "/setup/../sign-in", "/assets", "/openapi.json"] {
        assert_eq!(send(&Request::get(path).header("accept", "text/html")).status, 404, "{path}");
    }
    for path in ["/assets/../admin/v1/me", "/assets/%2e%2e/sign-in", "/assets/unknown.js"] {
        assert_eq!(send(&Request::get(path)).status, 404, "{path}");
    }
    let page = send(&Request::get("/setup/gateway").header("accept", "text/html"));
    assert_eq!(page.header("location"), Some("/sign-in?to=%2Fsetup%2Fgateway"), "the step after the link needs its session");
    for token in ["", "tgl-x"] {
        let page = send(&Request::get(&format!("/setup?token={token}")).header("accept", "text/html"));
        assert!(!page.text().contains("new_password"), "the page needs a valid link: {}", page.text());
        let fields = [("token", token), ("new_password", PASSWORD), ("new_password_again", PASSWORD)];
        let sent = send(&crate::pages::form("/setup", &fields).header("origin", &format!("http://{near}")));
        assert!(sent.status != 303 && sent.header("set-cookie").is_none(), "{}", sent.text());
    }
    let out = gateway.run(&["setup-link", "--json"]);
    let made: Value = serde_json::from_slice(&out.stdout).unwrap();
    let old = token_of(gateway.startup()["setup_link"].as_str().unwrap()).to_owned();
    let set = |token: &str| Request::post("/admin/v1/password-links/use", &json!({"token": token, "new_password": PASSWORD}));
    assert_eq!(send(&set(&old)).status, 400, "a new link replaces the one before");
    assert_eq!(send(&set(token_of(made["link"].as_str().unwrap()))).status, 200);
    tollgate_testkit::wait_for("it opens", std::time::Duration::from_mins(1), || send(&sign_in).status == 200);
}

#[test]
fn invite_makes_a_member_with_its_role_and_groups() {
    let admin = Admin::echo();
    admin.post("/admin/v1/groups", &json!({"name": "staff", "visibility": "private", "channels": []}));
    let made = admin.post("/admin/v1/invites", &json!({"role": "operator", "groups": ["staff"], "note": "for Ann"}));
    let token = token_of(made["link"].as_str().unwrap()).to_owned();
    assert_eq!(made["token"], json!(token));
    let id = made["id"].as_str().unwrap();
    let shown = admin.get(&format!("/admin/v1/invites/{id}"));
    assert!(shown["state"] == "open" && shown.get("token").is_none() && !shown.to_string().contains(&token), "{shown}");
    let offer = ok(&open(&admin, "invites/check", &json!({"token": token})));
    assert_eq!((&offer["role"], &offer["groups"]), (&json!("operator"), &json!(["staff"])));
    let accept = |name: &str, email: &str| {
        open(&admin, "invites/accept", &json!({"token": token, "name": name, "email": email, "new_password": PASSWORD}))
    };
    assert_eq!(accept("owner", "a@example.com").status, 409, "the name is taken");
    assert_eq!(accept("ann", "no address").status, 400);
    let browser = Browser::of(&accept("ann", "ann@example.com"));
    let me = browser.get(&admin, "/admin/v1/me");
    assert_eq!((&me["name"], &me["scope"]), (&json!("ann"), &json!("operator")));
    assert_eq!(admin.get("/admin/v1/members/ann")["groups"], json!(["staff"]));
    assert_eq!(refusal(&accept("eve", "eve@example.com")), refused(400, "invalid_token", "token"));
    let shown = admin.get(&format!("/admin/v1/invites/{id}"));
    assert_eq!((&shown["state"], &shown["member"]), (&json!("accepted"), &json!("ann")));
    assert_eq!(admin.call("DELETE", &format!("/admin/v1/invites/{id}"), None).status, 409);

    let other = admin.post("/admin/v1/invites", &json!({}));
    let path = format!("/admin/v1/invites/{}", other["id"].as_str().unwrap());
    admin.delete(&path);
    let revoked = json!({"token": other["token"], "name": "eve", "new_password": PASSWORD});
    assert_eq!(refusal(&open(&admin, "invites/accept", &revoked)), refused(400, "invalid_token", "token"));
    assert_eq!(admin.get("/admin/v1/invites")["items"].as_array().unwrap().len(), 2);
    let far = json!({"expires_at": "2199-01-01T00:00:00Z"});
    assert_eq!(refusal(&admin.call("POST", "/admin/v1/invites", Some(&far))), refused(400, "invalid_value", "expires_at"));
    assert!(!admin.get("/admin/v1/audit").to_string().contains(&token) && !admin.gateway.log().contains(&token));
}

#[test]
fn forgotten_password_is_replaced_with_a_link() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let browser = sign_in(&admin, "ann");
    let link = admin.post("/admin/v1/members/ann/password-link", &json!({}));
    assert!(link["link"].as_str().unwrap().contains("/reset-password?token="), "{link}");
    assert!(browser.is_in(&admin), "nothing has changed yet");
    let body = json!({"token": link["token"], "new_password": "another good one"});
    let renewed = Browser::of(&open(&admin, "password-links/use", &body));
    assert!(renewed.is_in(&admin) && !browser.is_in(&admin));
    assert_eq!(try_sign_in(&admin, "ann", PASSWORD).status, 401);
    assert_eq!(try_sign_in(&admin, "ann", "another good one").status, 200);
    let link = admin.post("/admin/v1/members/ann/password-link", &json!({}));
    admin.patch("/admin/v1/members/ann", &json!({"status": "suspended"}));
    let body = json!({"token": link["token"], "new_password": "a third good one"});
    assert_eq!(
        refusal(&open(&admin, "password-links/use", &body)),
        refused(400, "invalid_token", "token"),
        "of a suspended member"
    );
}

#[test]
fn admin_key_of_a_member_is_void_without_the_active_member() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "operator");
    let key = admin.post("/admin/v1/admin-keys", &json!({"name": "anns", "scope": "admin", "member": "ann"}));
    let key = key["key"].as_str().unwrap().to_owned();
    let me = |key: &str| admin.gateway.send(&Request::get("/admin/v1/me").bearer(key));
    let shown = ok(&me(&key));
    assert_eq!((&shown["scope"], &shown["member"]), (&json!("operator"), &json!("ann")), "no wider than the role");
    admin.patch("/admin/v1/members/ann", &json!({"status": "suspended"}));
    assert_eq!(me(&key).status, 401);
    admin.patch("/admin/v1/members/ann", &json!({"status": "active"}));
    assert_eq!(me(&key).status, 200);
    admin.delete("/admin/v1/members/ann");
    assert_eq!(me(&key).status, 401);
    let other = make_key(&admin.gateway, "another", "operator");
    assert_eq!(ok(&me(&other))["member"], Value::Null);
}
