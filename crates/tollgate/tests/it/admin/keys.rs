//! Service keys over the admin API, from creation to revocation, and the effect on callers.

use serde_json::{Value, json};
use tollgate_testkit::Request;

use super::{Admin, ok, refusal, refused, refused_whole};
use crate::support;

fn chat(admin: &Admin, key: &str) -> u16 {
    admin.gateway.send(&Request::post("/v1/chat/completions", &support::chat("echo")).bearer(key)).status
}

/// Each change is in force with its answer: the next request sees it.
#[test]
fn key_works_until_it_expires_or_is_revoked() {
    let admin = Admin::echo();
    let made = admin.post("/admin/v1/keys", &json!({"name": "ci", "groups": ["default"], "rpm": 600}));
    let (id, key) = (made["id"].as_str().unwrap().to_owned(), made["key"].as_str().unwrap().to_owned());
    assert_eq!(
        (made["member"].as_str(), made["status"].as_str(), made["rpm"].as_u64()),
        (Some("owner"), Some("active"), Some(600))
    );
    assert_eq!(chat(&admin, &key), 200, "the key works");

    let path = format!("/admin/v1/keys/{id}");
    let shown = admin.get(&path);
    assert!(shown.get("key").is_none() && !shown.to_string().contains(&key), "a key is shown once: {shown}");
    assert!(key.starts_with(shown["prefix"].as_str().unwrap()) && key.ends_with(shown["suffix"].as_str().unwrap()));

    admin.patch(&path, &json!({"status": "disabled"}));
    assert_eq!(chat(&admin, &key), 401, "it is disabled");
    let changed = admin.patch(&path, &json!({"status": "active", "models": ["other-*"]}));
    assert_eq!(changed["rpm"], 600, "fields that are not sent are unchanged");
    assert_eq!(chat(&admin, &key), 404, "it may not use the model");
    admin.patch(&path, &json!({"models": ["*"]}));
    assert_eq!(chat(&admin, &key), 200, "it works again");

    let revoked = ok(&admin.call("DELETE", &path, None));
    assert!(revoked["status"] == "revoked" && revoked["revoked_at"].is_string(), "{revoked}");
    assert_eq!(chat(&admin, &key), 401, "it is revoked");
    assert_eq!(refusal(&admin.call("PATCH", &path, Some(&json!({"status": "active"})))), refused_whole(409, "key_revoked"));
    assert_eq!(ok(&admin.call("DELETE", &path, None))["status"], "revoked", "it stays so");
    let live = admin.get("/admin/v1/keys?name=ci");
    assert_eq!(live["items"], json!([]));
    assert_eq!(admin.get("/admin/v1/keys?name=ci&revoked=true")["items"][0]["id"], id.as_str());

    let audit = admin.get(&format!("/admin/v1/audit?id={id}"));
    let actions: Vec<&str> = audit["items"].as_array().unwrap().iter().map(|it| it["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["revoke", "put", "put", "put", "put"]);
    let newest = &audit["items"][0];
    assert!(newest["origin"] == "api" && newest["actor"].as_str().unwrap().starts_with("root (adm_"), "{newest}");
    assert!(!audit.to_string().contains(&key), "no secret is in the audit log");
}

#[test]
fn invalid_key_fields_are_reported_by_name() {
    let admin = Admin::echo();
    let member = "00000000000000000000000000";
    for (body, expected) in [
        (json!({}), refused(400, "missing_required_parameter", "name")),
        (json!({"name": "k", "rpms": 1}), refused(400, "unknown_parameter", "rpms")),
        (json!({"name": "k", "id": "key_1"}), refused(400, "read_only_parameter", "id")),
        (json!({"name": "k", "role": "admin"}), refused(400, "unknown_parameter", "role")),
        (json!({"name": "a\nb"}), refused(400, "invalid_value", "name")),
        (json!({"name": " k"}), refused(400, "invalid_value", "name")),
        (json!({"name": "k", "expires_at": "tomorrow"}), refused(400, "invalid_value", "expires_at")),
        (json!({"name": "k", "rpm": -1}), refused(400, "invalid_value", "rpm")),
        (json!({"name": "k", "rpm": 4_294_967_296_i64}), refused(400, "invalid_value", "rpm")),
        (json!({"name": "k", "budget": {"window": "day"}}), refused(400, "missing_required_parameter", "budget.amount")),
        (json!({"name": "k", "budget": [{"window": "day", "amount": "-1"}]}), refused(400, "invalid_value", "budget[0].amount")),
        (
            json!({"name": "k", "budget": {"window": "day", "amount_nano_usd": 2}}),
            refused(400, "unknown_parameter", "budget.amount_nano_usd"),
        ),
        (json!({"name": "k", "budgets": [{"window": "day", "amount": "1"}]}), refused(400, "unknown_parameter", "budgets")),
        (json!({"name": "k", "groups": ["nowhere"]}), refused(400, "invalid_value", "groups")),
        (json!({"name": "k", "member": "unknown"}), refused(400, "invalid_value", "member")),
        (json!({"name": "k", "ip_allow": ["10.0.0.0/33"]}), refused(400, "invalid_value", "ip_allow[0]")),
        (json!({"name": "k", "status": "revoked"}), refused(400, "invalid_value", "status")),
        (json!({"name": "k", "price_limit": {"mode": "ceiling"}}), refused(400, "invalid_value", "price_limit")),
    ] {
        assert_eq!(refusal(&admin.call("POST", "/admin/v1/keys", Some(&body))), expected, "{body}");
    }
    assert_eq!(
        refusal(&admin.call("POST", "/admin/v1/keys", Some(&json!({"name": "first"})))),
        refused_whole(409, "already_exists")
    );
    for path in ["key_x", "0", "-1", &format!("key_{member}"), "..%2f..%2fconfig", "%00", "1%20OR%201=1", &format!("mbr_{member}")]
    {
        assert_eq!(admin.call("GET", &format!("/admin/v1/keys/{path}"), None).status, 404, "{path}");
    }
    let raw = |body: &str, media: &str| {
        let request = Request::post_bytes("/admin/v1/keys", body.as_bytes().to_vec()).replace_header("content-type", media);
        refusal(&admin.gateway.send(&request.bearer(&admin.key)))
    };
    assert_eq!(raw("{\"name\":\"k\",\"name\":\"l\"}", "application/json"), refused_whole(400, "invalid_json"));
    assert_eq!(raw("{\"name\":NaN}", "application/json"), refused_whole(400, "invalid_json"));
    assert_eq!(raw("", "application/json"), refused_whole(400, "invalid_json"));
    assert_eq!(raw("name=k", "application/x-www-form-urlencoded"), refused_whole(415, "unsupported_media_type"));
    let long = format!("{{\"name\":\"{}\"}}", "k".repeat(5 << 20));
    assert_eq!(raw(&long, "application/json"), refused_whole(413, "request_too_large"));
    assert_eq!(admin.get("/admin/v1/keys")["items"].as_array().unwrap().len(), 1, "nothing was made");
}

#[test]
fn repeated_idempotency_key_creates_one_key() {
    let admin = Admin::echo();
    let body = json!({"name": "once", "groups": ["default"]});
    let first = admin.once("/admin/v1/keys", "order-1", &body);
    assert_eq!(first.status, 201);
    let again = admin.once("/admin/v1/keys", "order-1", &body);
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
    let (first, again) = (ok(&first), ok(&again));
    assert_eq!(first["id"], again["id"]);
    assert!(again.get("key").is_none(), "what was shown once is not kept");
    let other = admin.once("/admin/v1/keys", "order-1", &json!({"name": "another"}));
    assert_eq!(refusal(&other), refused_whole(409, "idempotency_key_reused"));
    let operator = Request::post("/admin/v1/keys", &json!({"name": "theirs"})).bearer(&admin.operator);
    let theirs = admin.gateway.send(&operator.header("idempotency-key", "order-1"));
    assert_eq!(theirs.status, 201, "another admin key's names are its own");
    let long = "x".repeat(201);
    assert_eq!(refusal(&admin.once("/admin/v1/keys", &long, &body)), refused(400, "invalid_value", "Idempotency-Key"));
}

#[test]
fn change_with_stale_revision_is_refused() {
    let admin = Admin::echo();
    let made = admin.post("/admin/v1/keys", &json!({"name": "k"}));
    let path = format!("/admin/v1/keys/{}", made["id"].as_str().unwrap());
    admin.post("/admin/v1/keys", &json!({"name": "unrelated"}));
    let changed = ok(&admin.if_match(&path, &made["revision"], &json!({"rpm": 5})));
    assert!(changed["revision"].as_i64() > made["revision"].as_i64());
    let stale = admin.if_match(&path, &made["revision"], &json!({"rpm": 6}));
    assert_eq!(refusal(&stale), refused_whole(409, "revision_conflict"));
    let answer = admin.call("GET", &path, None);
    assert_eq!(answer.header("etag"), Some(format!("\"{}\"", changed["revision"]).as_str()));
    assert_eq!(ok(&answer)["rpm"], 5);
    let bad = Request::post(&path, &json!({"rpm": 6})).bearer(&admin.key).header("if-match", "soon");
    assert_eq!(refusal(&admin.send("PATCH", &path, &bad)), refused(400, "invalid_value", "If-Match"));
}

#[test]
fn key_pages_are_contiguous() {
    let admin = Admin::echo();
    admin.post("/admin/v1/members", &json!({"name": "ann"}));
    for number in 0..7 {
        admin.post("/admin/v1/keys", &json!({"name": format!("k{number}"), "member": "ann"}));
    }
    let (mut names, mut after) = (Vec::new(), String::new());
    loop {
        let page: Value = admin.get(&format!("/admin/v1/keys?member=ann&limit=3{after}"));
        names.extend(page["items"].as_array().unwrap().iter().map(|key| key["name"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(names, ["k0", "k1", "k2", "k3", "k4", "k5", "k6"]);
    assert_eq!(admin.call("GET", "/admin/v1/keys?member=unknown", None).status, 404);
    for (query, param) in [("limit=0", "limit"), ("limit=999999999", "limit"), ("limit=1&limit=2", "limit"), ("page=2", "page")] {
        let answer = admin.call("GET", &format!("/admin/v1/keys?{query}"), None);
        assert_eq!((answer.status, refusal(&answer).2.as_deref()), (400, Some(param)), "{query}");
    }
}
