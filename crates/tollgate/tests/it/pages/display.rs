//! How pages show what they show: amounts in the display currency.

use std::time::Duration;

use serde_json::json;
use tollgate_testkit::wait_for;

use super::{Person, attacks::signed_in};
use crate::{admin::Admin, identity::make_member};

fn set(admin: &Admin, name: &str, value: &str) {
    let answer = admin.call("PUT", &format!("/admin/v1/settings/{name}"), Some(&json!({"value": value})));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn amounts_are_in_the_display_currency_with_their_usd_in_the_title() {
    let admin = Admin::echo();
    make_member(&admin, "root", "admin");
    let mut root = signed_in(&admin, "root");
    admin.patch("/admin/v1/models/echo", &json!({"price": {"input": "2.5", "output": "10"}}));
    let top_up = json!({"member": "root", "amount": "12.5", "note": "invoice 7"});
    admin.gateway.send(&admin.request("POST", "/admin/v1/ledger/top-ups").json(&top_up).header("idempotency-key", "one"));
    set(&admin, "console.currency", "CNY");
    assert!(root.page(&admin.gateway, "/ledger").contains("+$12.50"), "a currency without a rate is not shown");
    set(&admin, "console.currency_per_usd", "7.1");
    let ledger = root.page(&admin.gateway, "/ledger");
    assert!(ledger.contains("<span title=\"$12.50\">+CN¥88.75</span>"), "{ledger}");
    let mut visitor = Person { language: Some("zh-CN"), ..Person::default() };
    let priced = || visitor.page(&admin.gateway, "/models").contains("<span title=\"$2.50\">¥17.75</span>");
    wait_for("the price is known", Duration::from_secs(30), priced);
    let square = visitor.page(&admin.gateway, "/models?unit=1k");
    assert!(square.contains("CNY / 千令牌") && square.contains("<span title=\"$0.0025\">¥0.01775</span>"), "{square}");
    // Programs read USD, and so does who sets a price.
    let document = admin.gateway.get("/models.json").json();
    assert_eq!((&document["currency"], &document["data"][0]["groups"][0]["price"]["input"]), (&json!("USD"), &json!("2.50")));
    assert!(admin.gateway.get("/models.atom").text().contains("<subtitle>Prices are in USD.</subtitle>"));
    assert_eq!(admin.get("/admin/v1/ledger")["items"][0]["amount"], json!("12.50"));
    assert!(root.page(&admin.gateway, "/pricing/models/echo").contains("value=\"2.50\""));
}
