//! Prices, budgets and the ledger over the admin API.

use serde_json::json;
use tollgate_testkit::Request;

use super::{Admin, ok, refusal, refused, refused_whole, within_a_second};
use crate::support;

#[test]
fn ledger_postings_are_idempotent_and_add_up() {
    let admin = Admin::echo();
    let posting = json!({"member": "owner", "amount": "12.5", "note": "invoice 7"});
    let first = admin.once("/admin/v1/ledger/top-ups", "invoice-7", &posting);
    assert_eq!(first.status, 201);
    let entry = ok(&first);
    assert_eq!((entry["amount"].as_str(), entry["balance"].as_str()), (Some("12.50"), Some("12.50")));
    assert!(entry["actor"].as_str().unwrap().starts_with("root (adm_"), "{entry}");
    let again = admin.once("/admin/v1/ledger/top-ups", "invoice-7", &posting);
    assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(ok(&again)["position"], entry["position"]);
    let other = json!({"member": "owner", "amount": "13"});
    assert_eq!(refusal(&admin.once("/admin/v1/ledger/top-ups", "invoice-7", &other)), refused_whole(409, "idempotency_key_reused"));
    let down = ok(&admin.once("/admin/v1/ledger/adjustments", "a-1", &json!({"member": "owner", "amount": -2.5})));
    assert_eq!(down["balance"], "10.00");

    let listed = admin.get("/admin/v1/ledger?member=owner&limit=1");
    assert_eq!(listed["items"][0]["kind"], "adjust");
    let next = listed["next"].as_str().unwrap();
    let rest = admin.get(&format!("/admin/v1/ledger?member=owner&limit=1&after={next}"));
    assert_eq!(rest["items"][0]["kind"], "top_up");
    let balances = admin.get("/admin/v1/ledger/balances");
    let owner = balances["items"].as_array().unwrap().iter().find(|it| it["name"] == "owner").unwrap();
    assert_eq!(owner["balance"], "10.00");
    let books = admin.gateway.run(&["verify"]);
    assert!(books.status.success(), "{}", String::from_utf8_lossy(&books.stderr));
}

#[test]
fn invalid_postings_are_refused() {
    let admin = Admin::echo();
    let top_up = |key: &str, body: serde_json::Value| refusal(&admin.once("/admin/v1/ledger/top-ups", key, &body));
    assert_eq!(top_up("1", json!({"amount": "1"})), refused(400, "missing_required_parameter", "member"));
    assert_eq!(top_up("1", json!({"member": "owner"})), refused(400, "missing_required_parameter", "amount"));
    assert_eq!(top_up("1", json!({"member": "owner", "amount": "0"})), refused(400, "invalid_value", "amount"));
    assert_eq!(top_up("1", json!({"member": "owner", "amount": "-1"})), refused(400, "invalid_value", "amount"));
    assert_eq!(top_up("1", json!({"member": "owner", "amount": "1e3"})), refused(400, "invalid_value", "amount"));
    assert_eq!(top_up("1", json!({"member": "owner", "amount": "99999999999"})), refused(400, "invalid_value", "amount"));
    assert_eq!(top_up("1", json!({"member": "unknown", "amount": "1"})), refused_whole(404, "not_found"));
    let bare = admin.call("POST", "/admin/v1/ledger/top-ups", Some(&json!({"member": "owner", "amount": "1"})));
    assert_eq!(refusal(&bare), refused(400, "missing_required_parameter", "Idempotency-Key"));
    let said = super::text(&bare);
    assert!(said.contains("such as 'Idempotency-Key: invoice-7'"), "{said}");
    assert_eq!(admin.get("/admin/v1/ledger")["items"], json!([]), "nothing was posted");
}

#[test]
fn callers_pay_the_configured_price() {
    let admin = Admin::echo();
    let chat = || {
        let request = Request::post("/v1/chat/completions", &support::chat("echo")).bearer(admin.gateway.key());
        admin.gateway.record_of(&admin.gateway.send(&request))
    };
    assert_eq!(chat()["sale"], "0.00");
    let set = ok(&admin.call("PUT", "/admin/v1/prices/echo", Some(&json!({"price": {"per_request": "0.5"}}))));
    assert_eq!(set["price"]["per_request"], "0.50");
    within_a_second("it is charged", || chat()["sale"] == "0.50");
    ok(&admin.call("PUT", "/admin/v1/prices/echo", Some(&json!({"price": null}))));
    within_a_second("it is not priced", || chat()["sale"].is_null());
    let unpriced = admin.get("/admin/v1/prices?priced=false");
    assert_eq!(unpriced["items"][0]["model"], "echo");
    assert_eq!(unpriced["items"][0]["served_by"][0]["channel"], "echo");
    ok(&admin.call("PUT", "/admin/v1/prices/unheard%2Fof", Some(&json!({"price": {"input": "1"}}))));
    assert_eq!(admin.get("/admin/v1/models/unheard%2Fof")["price"]["input"], "1.00");
    let tiers = json!({"price": {"input": "1", "tiers": [{"above": 5, "input": "2"}, {"above": 3, "input": "3"}]}});
    assert_eq!(refusal(&admin.call("PUT", "/admin/v1/prices/echo", Some(&tiers))), refused(400, "invalid_value", "price.tiers"));
}

#[test]
fn exhausted_budget_refuses_and_reports_spending() {
    let admin = Admin::echo();
    ok(&admin.call("PUT", "/admin/v1/prices/echo", Some(&json!({"price": {"per_request": "1"}}))));
    let key = admin.post("/admin/v1/keys", &json!({"name": "k", "budget": {"amount": "1.5", "window": "month"}}));
    let (id, secret) = (key["id"].as_str().unwrap(), key["key"].as_str().unwrap());
    let chat = || admin.gateway.send(&Request::post("/v1/chat/completions", &support::chat("echo")).bearer(secret)).status;
    within_a_second("it works once", || chat() == 200);
    within_a_second("the next would cost more than is left", || chat() == 429);
    let shown = admin.get("/admin/v1/budgets?subject=key");
    let budget = shown["items"].as_array().unwrap().iter().find(|it| it["id"] == id).unwrap();
    assert_eq!((budget["amount"].as_str(), budget["spent"].as_str()), (Some("1.50"), Some("1.00")), "{shown}");

    let more = json!({"budget": {"amount": 10, "window": "total", "action": "alert"}});
    let set = ok(&admin.call("PUT", &format!("/admin/v1/budgets/key/{id}"), Some(&more)));
    assert_eq!((set["items"][0]["window"].as_str(), set["items"][0]["action"].as_str()), (Some("total"), Some("alert")));
    within_a_second("it works again", || chat() == 200);
    let member = admin.as_operator("PUT", "/admin/v1/budgets/member/owner", Some(&more));
    assert_eq!(refusal(&member), refused_whole(403, "admin_only"));
    ok(&admin.call("PUT", "/admin/v1/budgets/member/owner", Some(&more)));
    ok(&admin.as_operator("PUT", "/admin/v1/budgets/group/default", Some(&more)));
    ok(&admin.as_operator("PUT", "/admin/v1/budgets/channel/echo", Some(&more)));
    assert_eq!(admin.get("/admin/v1/groups/default")["budget"]["amount"], "10.00");
    assert_eq!(admin.get("/admin/v1/budgets?subject=gateway")["items"], json!([]));
    assert_eq!(admin.call("PUT", "/admin/v1/budgets/model/echo", Some(&more)).status, 404);
    let twice = json!({"budget": [{"amount": "1", "window": "day"}, {"amount": "2", "window": "day"}]});
    let answer = admin.call("PUT", &format!("/admin/v1/budgets/key/{id}"), Some(&twice));
    assert_eq!(refusal(&answer), refused(400, "invalid_value", "budget"));
}
