//! Actions of members on their own keys: rotating and disabling them, if the group allows it.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_testkit::{Request, wait_for};

use super::{Browser, make_member, sign_in};
use crate::{
    admin::{Admin, ok, refusal, refused, refused_whole, within_a_second},
    support,
};

struct Fixture {
    admin: Admin,
    ann: Browser,
    key: String,
    secret: String,
}

/// A member with a key of a group. The group permits its members to change their keys, or not.
fn fixture(self_service: bool) -> Fixture {
    let admin = Admin::echo();
    admin.patch("/admin/v1/groups/echo", &json!({"self_service": self_service}));
    make_member(&admin, "ann", "member");
    let made = admin.post("/admin/v1/keys", &json!({"name": "ci", "member": "ann", "groups": ["echo"]}));
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    let (key, secret) = (text("id"), text("key"));
    let ann = sign_in(&admin, "ann");
    Fixture { admin, ann, key, secret }
}

impl Fixture {
    fn status(&self, secret: &str) -> u16 {
        self.admin.gateway.send(&Request::post("/v1/chat/completions", &support::chat("echo")).bearer(secret)).status
    }

    fn path(&self, action: &str) -> String {
        format!("/admin/v1/keys/{}/{action}", self.key)
    }

    fn rotate(&self, body: &Value) -> Value {
        ok(&self.ann.send(&self.admin, "POST", &self.path("rotate"), Some(body)))
    }
}

#[test]
fn rotated_key_works_with_both_secrets_until_the_overlap_ends() {
    let it = fixture(true);
    assert_eq!(it.status(&it.secret), 200);
    let rotated = it.rotate(&json!({}));
    let second = rotated["key"].as_str().unwrap();
    assert!(
        rotated["previous_until"].is_string() && rotated["id"] == json!(it.key) && rotated["expires_at"].is_null(),
        "{rotated}"
    );
    assert_eq!((it.status(&it.secret), it.status(second)), (200, 200));

    let third = it.rotate(&json!({"overlap_s": 1}));
    let third = third["key"].as_str().unwrap();
    assert_eq!(it.status(third), 200);
    within_a_second("the first secret has ended", || it.status(&it.secret) == 401);
    wait_for("the overlap is over", Duration::from_mins(1), || it.status(second) == 401);
    assert_eq!(it.status(third), 200);
    let shown = it.admin.get(&format!("/admin/v1/keys/{}", it.key));
    assert!(shown["previous_until"].is_null() && shown["key"].is_null(), "{shown}");

    let last = it.rotate(&json!({"overlap_s": 0}));
    assert!(last["previous_until"].is_null(), "{last}");
    within_a_second("without an overlap the secret ends at once", || it.status(third) == 401);
    let audit = it.admin.get(&format!("/admin/v1/audit?kind=key&id={}", it.key)).to_string();
    assert_eq!(audit.matches("\"rotate\"").count(), 3, "{audit}");
    for secret in [second, third, last["key"].as_str().unwrap()] {
        assert!(!audit.contains(secret) && !it.admin.gateway.log().contains(secret));
    }
    for wrong in [json!({"overlap_s": -1}), json!({"overlap_s": 2_592_001}), json!({"overlap_s": "1d"})] {
        let answer = it.ann.send(&it.admin, "POST", &it.path("rotate"), Some(&wrong));
        assert_eq!(answer.status, 400, "{wrong}");
        assert_eq!(refusal(&answer).2.as_deref(), Some("overlap_s"));
    }
    let revoked = it.admin.call("DELETE", &format!("/admin/v1/keys/{}", it.key), None);
    assert_eq!(revoked.status, 200);
    let answer = it.ann.send(&it.admin, "POST", &it.path("rotate"), Some(&json!({})));
    assert_eq!(refusal(&answer), refused_whole(409, "key_revoked"));
}

#[test]
fn disabled_key_is_refused_until_an_operator_enables_it() {
    let it = fixture(true);
    let disabled = ok(&it.ann.send(&it.admin, "POST", &it.path("disable"), Some(&json!({}))));
    assert_eq!((&disabled["state"], &disabled["key"]), (&json!("disabled"), &Value::Null));
    within_a_second("the key is refused", || it.status(&it.secret) == 401);
    let path = format!("/admin/v1/keys/{}", it.key);
    let enable = json!({"status": "active"});
    assert_eq!(refusal(&it.ann.send(&it.admin, "PATCH", &path, Some(&enable))), refused_whole(403, "operator_only"));
    ok(&it.admin.as_operator("PATCH", &path, Some(&enable)));
    within_a_second("an operator enabled it", || it.status(&it.secret) == 200);
}

#[test]
fn members_change_keys_only_where_every_group_allows_it() {
    let it = fixture(false);
    let refused_by_group = |action: &str| {
        let answer = it.ann.send(&it.admin, "POST", &it.path(action), Some(&json!({})));
        assert_eq!(refusal(&answer), refused_whole(403, "operator_only"), "{action}");
    };
    ["rotate", "disable"].into_iter().for_each(refused_by_group);
    assert_eq!(it.status(&it.secret), 200);
    it.admin.patch("/admin/v1/groups/echo", &json!({"self_service": true}));
    it.admin.post("/admin/v1/groups", &json!({"name": "strict"}));
    let path = format!("/admin/v1/keys/{}", it.key);
    it.admin.patch(&path, &json!({"groups": ["echo", "strict"]}));
    ["rotate", "disable"].into_iter().for_each(refused_by_group);
    it.admin.patch(&path, &json!({"groups": ["echo"]}));
    it.rotate(&json!({}));
    // Operators need no permission of the group.
    it.admin.patch("/admin/v1/groups/echo", &json!({"self_service": false}));
    ok(&it.admin.as_operator("POST", &it.path("rotate"), Some(&json!({}))));
    let patch = json!({"rpm": 0});
    assert_eq!(it.ann.send(&it.admin, "PATCH", &path, Some(&patch)).status, 403);
    assert_eq!(it.ann.send(&it.admin, "DELETE", &path, None).status, 403);
    let made = it.ann.send(&it.admin, "POST", "/admin/v1/keys", Some(&json!({"name": "own", "groups": ["echo"]})));
    assert_eq!(refusal(&made), refused_whole(403, "operator_only"));
    let unknown = it.admin.call("PATCH", "/admin/v1/groups/echo", Some(&json!({"self_service": "yes"})));
    assert_eq!(refusal(&unknown), refused(400, "invalid_type", "self_service"));
}

#[test]
fn members_make_keys_for_themselves_where_every_group_allows_it() {
    let it = fixture(true);
    let make = |body: Value| it.ann.send(&it.admin, "POST", "/admin/v1/keys", Some(&body));
    let made = ok(&make(json!({"name": "laptop", "groups": ["echo"], "rpm": 60, "expires_at": "2100-01-01T00:00:00Z"})));
    assert_eq!((&made["member"], &made["rpm"], &made["state"]), (&json!("ann"), &json!(60), &json!("active")));
    let secret = made["key"].as_str().unwrap();
    within_a_second("the key works", || it.status(secret) == 200);
    let audit = it.admin.get(&format!("/admin/v1/audit?kind=key&id={}", made["id"].as_str().unwrap()));
    assert!(audit["items"][0]["actor"].as_str().unwrap().starts_with("ann ("), "{audit}");
    assert!(!audit.to_string().contains(secret) && !it.admin.gateway.log().contains(secret));
    // Other members, their groups and unknown names are not found.
    it.admin.post("/admin/v1/groups", &json!({"name": "hidden", "visibility": "private", "self_service": true}));
    it.admin.post("/admin/v1/groups", &json!({"name": "strict"}));
    for groups in [json!(["hidden"]), json!(["echo", "hidden"]), json!(["none"])] {
        assert_eq!(refusal(&make(json!({"name": "k", "groups": groups}))), refused(404, "not_found", "groups"), "{groups}");
    }
    for body in [json!({"name": "k", "groups": ["echo", "strict"]}), json!({"name": "k"})] {
        assert_eq!(refusal(&make(body.clone())), refused_whole(403, "operator_only"), "{body}");
    }
    assert_eq!(make(json!({"name": "k", "groups": ["echo"], "member": "owner"})).status, 404);
    // Otherwise costs could be found by trying which limit refuses a request.
    for limit in [json!({"mode": "ceiling", "max_input": "1", "on": "cost"}), json!({"mode": "min_margin", "min_margin": "0.5"})] {
        let made = make(json!({"name": "k", "groups": ["echo"], "price_limit": limit}));
        assert_eq!(refusal(&made), refused(403, "operator_only", "price_limit"), "{limit}");
    }
    ok(&make(json!({"name": "cheap", "groups": ["echo"], "price_limit": {"mode": "ceiling", "max_input": "1", "on": "sale"}})));
    let again = make(json!({"name": "laptop", "groups": ["echo"]}));
    assert_eq!(refusal(&again), refused_whole(409, "already_exists"));
    it.admin.patch("/admin/v1/members/ann", &json!({"groups": ["hidden"]}));
    ok(&make(json!({"name": "granted", "groups": ["hidden"]})));
    // The number of keys is bounded for members, not for operators.
    for number in 4..100 {
        ok(&it.admin.as_operator("POST", "/admin/v1/keys", Some(&json!({"name": format!("k{number}"), "member": "ann"}))));
    }
    let more = json!({"name": "more", "groups": ["echo"], "member": "ann"});
    assert_eq!(refusal(&make(more.clone())), refused_whole(409, "too_many_keys"));
    ok(&it.admin.as_operator("POST", "/admin/v1/keys", Some(&more)));
}

#[test]
fn keys_are_rotated_and_disabled_by_commands() {
    let it = fixture(false);
    let run = |arguments: &[&str]| {
        let output = it.admin.gateway.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let rotated: Value = serde_json::from_str(&run(&["key", "rotate", "ci", "--overlap", "2h", "--json"])).unwrap();
    within_a_second("the new secret is known", || it.status(rotated["key"].as_str().unwrap()) == 200);
    assert!(rotated["previous_until"].is_string() && it.status(&it.secret) == 200, "{rotated}");
    let allowance = run(&["key", "allowance", "ci"]);
    assert!(allowance.contains("echo") && !allowance.contains('{'), "{allowance}");
    assert!(run(&["key", "disable", "ci"]).starts_with("disabled ci"));
    within_a_second("it is disabled", || it.status(&it.secret) == 401);
    for overlap in ["soon", "31d"] {
        let wrong = it.admin.gateway.run(&["key", "rotate", "ci", "--overlap", overlap]);
        assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
        assert!(String::from_utf8_lossy(&wrong.stderr).contains("--overlap"), "{wrong:?}");
    }
}

#[test]
fn signed_in_member_queries_an_own_key() {
    let it = fixture(true);
    assert_eq!(it.status(&it.secret), 200);
    let get = |path: &str| it.ann.send(&it.admin, "GET", path, None);
    within_a_second("the request is booked", || ok(&get("/v1/usage/records"))["data"].as_array().unwrap().len() == 1);
    assert_eq!(ok(&get("/v1/key"))["id"], json!(it.key), "the only key");
    let second = it.admin.post("/admin/v1/keys", &json!({"name": "second", "member": "ann", "groups": ["echo"]}));
    let second = second["id"].as_str().unwrap();
    assert_eq!(refusal(&get("/v1/key")), refused(400, "invalid_value", "key_id"));
    assert_eq!(ok(&get(&format!("/v1/key?key_id={second}")))["name"], "second");
    assert_eq!(ok(&get(&format!("/v1/usage?by=nothing&key_id={}", it.key)))["data"][0]["requests"], 1);
    let sums = ok(&get(&format!("/v1/usage?by=nothing&key_id={second}")));
    assert!(sums["data"].as_array().unwrap().iter().all(|row| row["requests"] == 0), "{sums}");

    make_member(&it.admin, "bob", "member");
    let bob = sign_in(&it.admin, "bob");
    assert_eq!(refusal(&bob.send(&it.admin, "GET", &format!("/v1/key?key_id={second}"), None)), refused_whole(404, "not_found"));
    assert_eq!(refusal(&bob.send(&it.admin, "GET", "/v1/key", None)), refused(400, "invalid_value", "key_id"));
    let with_key = Request::get(&format!("/v1/key?key_id={second}")).bearer(&it.secret);
    assert_eq!(refusal(&it.admin.gateway.send(&with_key)), refused_whole(404, "not_found"), "a key asks about itself alone");
}
