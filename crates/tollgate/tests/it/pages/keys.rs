//! Service keys: made, limited, replaced, switched off and revoked on their pages; those of others do not exist.

use std::time::Duration;

use serde_json::json;
use tollgate_testkit::{ClientResponse, Request, wait_for};

use super::{Person, attacks::signed_in, form, location};
use crate::{admin::Admin, identity::make_member};

/// The key that a page shows once.
fn secret(page: &str) -> String {
    let (_, rest) = page.split_once("data-copy=\"sk-").unwrap_or_else(|| panic!("no key in {page}"));
    format!("sk-{}", rest.split('"').next().unwrap())
}

fn id(page: &str) -> String {
    page.split_once("data-copy=\"key_").map(|(_, rest)| format!("key_{}", rest.split('"').next().unwrap())).unwrap()
}

fn allowance(admin: &Admin, key: &str) -> ClientResponse {
    admin.gateway.send(&Request::get("/v1/key").bearer(key))
}

/// Waits until the gateway has learned of a change: the key is answered with this status.
fn comes_to(admin: &Admin, key: &str, status: u16) {
    wait_for("the change is known", Duration::from_secs(30), || allowance(admin, key).status == status);
}

#[test]
fn key_lives_from_its_form_to_its_end() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    make_member(&admin, "ann", "member");
    let mut op = signed_in(&admin, "op");
    assert!(op.page(&admin.gateway, "/keys/new").contains("name=\"budget_amount\""));
    let fields = [
        ("name", "ci"),
        ("member", "ann"),
        ("groups", "default"),
        ("rpm", "60"),
        ("budget_amount", "$5"),
        ("budget_window", "month"),
        ("budget_action", "block"),
    ];
    let made = op.post(&admin.gateway, "/keys/new", &fields);
    assert_eq!(made.status, 200, "{}", made.text());
    let (key, id) = (secret(&made.text()), id(&made.text()));
    assert!(made.text().contains("from openai import OpenAI") && made.text().contains("GOOGLE_GEMINI_BASE_URL"));
    let may = allowance(&admin, &key).json();
    assert_eq!((&may["limits"]["rpm"], &may["budgets"][0]["amount"], &may["member"]), (&json!(60), &json!("5.00"), &json!("ann")));
    let path = format!("/keys/{id}");
    let page = op.page(&admin.gateway, &path);
    assert!(!page.contains(&key) && page.contains("$5.00") && page.contains("value=\"60\""), "{page}");
    assert!(op.page(&admin.gateway, "/keys?member=ann").contains(&path));
    assert!(op.page(&admin.gateway, "/keys?member=unknown").contains("No key matches."));

    let twice = op.post(&admin.gateway, "/keys/new", &fields).text();
    assert!(twice.contains("The member has a key of this name.") && twice.contains("value=\"ci\""), "{twice}");

    assert_eq!(location(&op.post(&admin.gateway, &path, &[("groups", "default"), ("rpm", ""), ("budget_amount", "")])), path);
    wait_for("the change is known", Duration::from_secs(30), || {
        let may = allowance(&admin, &key).json();
        may["limits"]["rpm"].is_null() && may["budgets"] == json!([])
    });

    let rotated = secret(&op.post(&admin.gateway, &format!("{path}/rotate"), &[("overlap_s", "0")]).text());
    assert_ne!(rotated, key);
    comes_to(&admin, &rotated, 200);
    comes_to(&admin, &key, 401);
    assert_eq!(location(&op.post(&admin.gateway, &format!("{path}/disable"), &[])), path);
    assert!(op.page(&admin.gateway, &path).contains("The key is off."));
    comes_to(&admin, &rotated, 401);
    op.post(&admin.gateway, &format!("{path}/enable"), &[]);
    comes_to(&admin, &rotated, 200);

    let wrong = op.post(&admin.gateway, &format!("{path}/revoke"), &[("typed_name", "no")]);
    assert!(wrong.status == 422 && wrong.text().contains("This is not the name."), "{}", wrong.text());
    assert_eq!(allowance(&admin, &rotated).status, 200);
    assert_eq!(location(&op.post(&admin.gateway, &format!("{path}/revoke"), &[("typed_name", "ci")])), path);
    assert!(op.page(&admin.gateway, &path).contains("Revoked"));
    comes_to(&admin, &rotated, 401);
    assert!(!op.page(&admin.gateway, "/keys").contains(&path) && op.page(&admin.gateway, "/keys?revoked=true").contains(&path));
}

#[test]
fn faults_are_beside_their_field_and_what_was_typed_stays() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    let mut op = signed_in(&admin, "op");
    for (field, value, says) in [
        ("name", "", "Enter a name of 1 to 100"),
        ("rpm", "many", "Enter a whole number"),
        ("tpm", "-1", "Enter a whole number"),
        ("concurrency", "1.5", "Enter a whole number"),
        ("groups", "nowhere", "There is no such group"),
        ("member", "unknown", "There is no such member."),
        ("ip_allow", "here", "Enter addresses or networks"),
        ("expires", "2001-01-01", "Enter a day that is not over."),
        ("expires", "soon", "Enter a day that is not over."),
        ("budget_amount", "much", "Enter an amount in USD"),
        ("budget_amount", "-1", "Enter an amount in USD"),
    ] {
        let fields: Vec<(&str, &str)> = [("name", "ci"), ("rpm", "7")].into_iter().filter(|(known, _)| *known != field).collect();
        let answer = op.post(&admin.gateway, "/keys/new", &[fields, vec![(field, value)]].concat());
        let page = answer.text();
        assert!(answer.status == 422 && page.contains(says), "{field}={value}: {} {page}", answer.status);
        let (before, _) = page.split_once(says).unwrap();
        assert!(before.rsplit("<input").next().unwrap().contains(&format!("name=\"{field}\"")), "{field}: {page}");
        assert!(field == "rpm" || page.contains("value=\"7\""), "{page}");
    }
    assert_eq!(admin.get("/admin/v1/keys?name=ci")["items"], json!([]));
}

#[test]
fn keys_of_others_do_not_exist_and_members_do_what_their_groups_allow() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    make_member(&admin, "eve", "member");
    let id = admin.post("/admin/v1/keys", &json!({"name": "ci", "member": "ann"}))["id"].as_str().unwrap().to_owned();
    let (mut ann, mut eve) = (signed_in(&admin, "ann"), signed_in(&admin, "eve"));
    let path = format!("/keys/{id}");
    assert!(ann.page(&admin.gateway, "/keys").contains(&path) && !eve.page(&admin.gateway, "/keys").contains(&path));
    assert_eq!(eve.get(&admin.gateway, &path).status, 404);
    for action in ["rotate", "disable"] {
        assert_eq!(eve.post(&admin.gateway, &format!("{path}/{action}"), &[]).status, 404, "{action}");
        let refused = ann.post(&admin.gateway, &format!("{path}/{action}"), &[]);
        assert!(refused.status == 403 && refused.text().contains("Operators change the keys"), "{}", refused.text());
    }
    for (action, status) in [("", 404), ("/enable", 404), ("/revoke", 403)] {
        assert_eq!(ann.post(&admin.gateway, &format!("{path}{action}"), &[("typed_name", "ci")]).status, status, "{action}");
    }
    assert_eq!(eve.post(&admin.gateway, &format!("{path}/revoke"), &[("typed_name", "ci")]).status, 404);
    assert_eq!(ann.get(&admin.gateway, "/keys/new").status, 403);
    assert_eq!(ann.post(&admin.gateway, "/keys/new", &[("name", "mine")]).status, 403);
    let page = ann.page(&admin.gateway, &path);
    assert!(!page.contains("name=\"rpm\"") && !page.contains("name=\"revoke_name\""), "{page}");
    admin.patch("/admin/v1/groups/default", &json!({"self_service": true}));
    let rotated = ann.post(&admin.gateway, &format!("{path}/rotate"), &[]).text();
    comes_to(&admin, &secret(&rotated), 200);

    let own = format!("http://{}", admin.gateway.address());
    let forged = ann.with_cookies(form(&format!("{path}/rotate"), &[])).header("origin", &own);
    assert_eq!(admin.gateway.send(&forged).status, 403, "without the token of the session");
    assert_eq!(Person::default().get(&admin.gateway, &path).status, 303, "visitors sign in first");
}
