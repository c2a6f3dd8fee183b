//! Keys of the admin API on their pages: made, shown once, listed and revoked by admins.

use serde_json::json;
use tollgate_testkit::Request;

use super::{attacks::signed_in, location};
use crate::{
    admin::{Admin, refusal, refused},
    identity::{PASSWORD, make_member, sign_in},
};

const PATH: &str = "/members/admin-keys";

/// The key that a page shows.
fn shown(page: &str) -> String {
    let (_, rest) = page.split_once("data-copy=\"tga-").unwrap_or_else(|| panic!("{page}"));
    format!("tga-{}", rest.split('"').next().unwrap())
}

#[test]
fn admin_key_is_shown_once_and_revoked_by_its_name() {
    let admin = Admin::echo();
    make_member(&admin, "root", "admin");
    make_member(&admin, "ann", "member");
    let mut root = signed_in(&admin, "root");
    let mut fields = vec![("name", "reports"), ("scope", "admin"), ("member", "ann"), ("valid_for", "7"), ("expires", "")];
    fields.push(("password", PASSWORD));
    let page = root.post(&admin.gateway, PATH, &fields);
    assert_eq!(page.status, 200, "{}", page.text());
    let key = shown(&page.text());
    let me = admin.gateway.send(&Request::get("/admin/v1/me").bearer(&key));
    assert_eq!((me.status, &me.json()["name"]), (200, &json!("reports")));
    // It does no more than its member.
    assert_eq!(admin.gateway.send(&Request::get("/admin/v1/settings").bearer(&key)).status, 403);

    let page = root.page(&admin.gateway, PATH);
    assert!(page.contains("reports") && page.contains("href=\"/members/ann\"") && !page.contains(&key), "{page}");
    let listed = admin.get("/admin/v1/admin-keys");
    let made = listed["items"].as_array().unwrap().iter().find(|item| item["name"] == "reports").unwrap();
    assert!(made["expires_at"].as_str().unwrap().ends_with("T23:59:59Z"), "{made}");
    let detail = format!("{PATH}/{}", made["id"].as_str().unwrap());
    let page = root.page(&admin.gateway, &detail);
    assert!(page.contains("Active") && !page.contains(&key), "{page}");

    let wrong = root.post(&admin.gateway, &format!("{detail}/revoke"), &[("typed_name", "report")]);
    assert!(wrong.status == 422 && wrong.text().contains("This is not the name."), "{}", wrong.text());
    assert_eq!(admin.gateway.send(&Request::get("/admin/v1/me").bearer(&key)).status, 200);
    assert_eq!(location(&root.post(&admin.gateway, &format!("{detail}/revoke"), &[("typed_name", "reports")])), PATH);
    assert_eq!(admin.gateway.send(&Request::get("/admin/v1/me").bearer(&key)).status, 401);
    assert!(!root.page(&admin.gateway, PATH).contains(&format!("href=\"{detail}\"")));
    assert!(root.page(&admin.gateway, &format!("{PATH}?revoked=true")).contains(&format!("href=\"{detail}\"")));
    let page = root.page(&admin.gateway, &detail);
    assert!(page.contains("Revoked") && !page.contains("typed_name"), "{page}");
    assert_eq!(root.get(&admin.gateway, &format!("{PATH}/adm_1")).status, 404);
}

#[test]
fn faults_of_a_new_admin_key_are_beside_their_fields() {
    let admin = Admin::echo();
    make_member(&admin, "root", "admin");
    let mut root = signed_in(&admin, "root");
    admin.post("/admin/v1/admin-keys", &json!({"name": "taken", "scope": "operator"}));
    for (name, scope, member, expires, says) in [
        ("", "operator", "", "", "Enter a name of 1 to 100 characters"),
        ("taken", "operator", "", "", "This name is taken."),
        ("new", "member", "", "", "A key of this scope needs a member"),
        ("new", "member", "eve", "", "There is no such member."),
        ("new", "operator", "", "2001-01-01", "Enter a day that is not over."),
    ] {
        let mut fields = vec![("name", name), ("scope", scope), ("member", member), ("valid_for", ""), ("expires", expires)];
        fields.push(("password", PASSWORD));
        let refused = root.post(&admin.gateway, PATH, &fields);
        let text = refused.text();
        assert!(refused.status == 422 && text.contains(says), "{says}: {text}");
        assert!(text.contains("class=\"err\"") && !text.contains("data-copy=\"tga-"), "{text}");
    }
    assert!(!admin.get("/admin/v1/admin-keys").to_string().contains("\"new\""));
}

#[test]
fn admin_keys_are_for_admins_alone() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    let made = admin.post("/admin/v1/admin-keys", &json!({"name": "other", "scope": "operator"}));
    let detail = format!("{PATH}/{}", made["id"].as_str().unwrap());
    let mut op = signed_in(&admin, "op");
    for path in [PATH, &detail] {
        assert_eq!(op.get(&admin.gateway, path).status, 404, "{path}");
    }
    assert_eq!(op.post(&admin.gateway, PATH, &[("name", "mine"), ("scope", "admin")]).status, 404);
    assert_eq!(op.post(&admin.gateway, &format!("{detail}/revoke"), &[("typed_name", "other")]).status, 404);
    assert!(!op.page(&admin.gateway, "/members").contains(PATH));
    assert!(admin.get(&format!("/admin/v1/admin-keys/{}", made["id"].as_str().unwrap()))["revoked_at"].is_null());
}

#[test]
fn own_password_is_asked_for_before_a_key_is_made() {
    let admin = Admin::echo();
    make_member(&admin, "root", "admin");
    let mut root = signed_in(&admin, "root");
    assert!(root.page(&admin.gateway, PATH).contains("name=\"password\""));
    let fields = [("name", "reports"), ("scope", "operator"), ("valid_for", "7")];
    for wrong in [None, Some(""), Some("a wrong one")] {
        let sent: Vec<(&str, &str)> = fields.into_iter().chain(wrong.map(|password| ("password", password))).collect();
        let refused = root.post(&admin.gateway, PATH, &sent);
        let text = refused.text();
        assert!(refused.status == 422 && text.contains("That is not your current password."), "{wrong:?}: {text}");
        assert!(text.contains("value=\"reports\"") && !text.contains("data-copy=\"tga-"), "{wrong:?}: {text}");
    }
    // It is a rule of the API and not of the page: a session needs the password, an admin key does not.
    let browser = sign_in(&admin, "root");
    let (key, member) = ("/admin/v1/admin-keys", "/admin/v1/members/root");
    let (new_key, new_password) = (json!({"name": "reports", "scope": "operator"}), json!({"new_password": "another good one"}));
    for (method, path, body) in [
        ("POST", key.to_owned(), &new_key),
        ("POST", format!("{member}/password-link"), &json!({})),
        ("PUT", format!("{member}/password"), &new_password),
    ] {
        let answer = browser.send(&admin, method, &path, Some(body));
        assert_eq!(refusal(&answer), refused(400, "invalid_value", "password"), "{path}");
    }
    let proven = json!({"name": "reports", "scope": "operator", "password": PASSWORD});
    let made = browser.send(&admin, "POST", key, Some(&proven));
    assert!(made.status == 201 && !made.text().contains(PASSWORD), "{}", made.text());
}
