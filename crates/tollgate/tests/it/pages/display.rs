//! Display of pages: amounts in the display currency, times in the zone of the profile, and messages with an undo
//! button.

use std::time::Duration;

use serde_json::json;
use tollgate_testkit::{Request, wait_for};

use super::{
    Person,
    attacks::signed_in,
    location,
    operators::{make, owner, upstream},
};
use crate::{admin::Admin, identity::make_member, support};

fn set(admin: &Admin, name: &str, value: &str) {
    let answer = admin.call("PUT", &format!("/admin/v1/settings/{name}"), Some(&json!({"value": value})));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn amounts_are_shown_in_the_display_currency_with_usd_in_the_title() {
    let admin = Admin::echo();
    make_member(&admin, "root", "admin");
    let mut root = signed_in(&admin, "root");
    admin.patch("/admin/v1/models/echo", &json!({"price": {"input": "2.5", "output": "10"}}));
    let top_up = json!({"member": "root", "amount": "12.5", "note": "invoice 7"});
    admin.once("/admin/v1/ledger/top-ups", "one", &top_up);
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
    let square = visitor.page(&admin.gateway, "/models?view=table&unit=1m&currency=USD");
    assert!(square.contains("$2.50") && !square.contains("¥17.75") && square.contains("&#38;currency=CNY\""), "{square}");
    assert!(visitor.page(&admin.gateway, "/models/echo").contains("$2.50"), "the browser keeps the currency");
    assert!(visitor.page(&admin.gateway, "/models/echo?currency=CNY").contains("¥17.75"));
    // Programs read amounts in USD, and prices are set in USD.
    let document = admin.gateway.send(&Request::get("/models.json")).json();
    assert_eq!((&document["currency"], &document["data"][0]["groups"][0]["price"]["input"]), (&json!("USD"), &json!("2.50")));
    assert!(admin.gateway.send(&Request::get("/models.atom")).text().contains("<subtitle>Prices are in USD.</subtitle>"));
    assert_eq!(admin.get("/admin/v1/ledger")["items"][0]["amount"], json!("12.50"));
    assert!(root.page(&admin.gateway, "/pricing/model?model=echo").contains("value=\"2.50\""));
}

/// The address of the form in the message of a page.
fn undo(page: &str) -> Option<String> {
    let (_, toast) = page.split_once("class=\"toast\" data-undo")?;
    toast.split_once("action=\"").map(|(_, rest)| rest.split('"').next().unwrap().to_owned())
}

#[test]
fn disabled_rows_can_be_enabled_from_the_confirmation_message() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut boss = owner(&admin);
    make(&admin, &mut boss, &upstream, "main");
    let account = admin.get("/admin/v1/channels/main/accounts")["items"][0]["name"].as_str().unwrap().to_owned();
    let key = admin.post("/admin/v1/keys", &json!({"name": "ci"}))["id"].as_str().unwrap().to_owned();
    make_member(&admin, "ann", "member");
    let ann = admin.get("/admin/v1/members/ann");
    let member = ann["id"].as_str().unwrap().to_owned();
    let revision = ann["revision"].to_string();
    let of_account = admin.get(&format!("/admin/v1/channels/main/accounts/{account}"))["revision"].to_string();
    let cases = [
        (format!("/keys/{key}/disable"), vec![], format!("/admin/v1/keys/{key}"), ["disabled", "active"]),
        ("/channels/main/switch".to_owned(), vec![("status", "off")], "/admin/v1/channels/main".to_owned(), ["off", "on"]),
        (
            format!("/channels/main/accounts/{account}"),
            vec![("cost_multiplier", "1"), ("revision", of_account.as_str())],
            format!("/admin/v1/channels/main/accounts/{account}"),
            ["off", "on"],
        ),
        (
            format!("/members/{member}"),
            vec![("role", "member"), ("status", "suspended"), ("billing", "postpaid"), ("revision", revision.as_str())],
            "/admin/v1/members/ann".to_owned(),
            ["suspended", "active"],
        ),
    ];
    for (path, fields, row, [off, on]) in cases {
        let shown = location(&boss.post(&admin.gateway, &path, &fields)).to_owned();
        assert_eq!(admin.get(&row)["status"], off, "{path}");
        let page = boss.page(&admin.gateway, &shown);
        let undone = undo(&page).unwrap_or_else(|| panic!("{path}: {page}"));
        assert_eq!(undo(&boss.page(&admin.gateway, &shown)), None, "the message is shown once");
        location(&boss.post(&admin.gateway, &undone, &[]));
        assert_eq!(admin.get(&row)["status"], on, "{path}");
    }
}

#[test]
fn times_are_in_the_zone_of_the_profile() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let mut ann = signed_in(&admin, "ann");
    assert!(!ann.page(&admin.gateway, "/console").contains("data-time-zone"));
    let saved = ann.post(&admin.gateway, "/profile/time-zone", &[("time_zone", " Asia/Shanghai ")]);
    assert_eq!(location(&saved), "/profile");
    assert!(ann.page(&admin.gateway, "/console").contains("data-time-zone=\"Asia/Shanghai\""));
    assert!(ann.page(&admin.gateway, "/profile").contains("value=\"Asia/Shanghai\""));
    let wrong = ann.post(&admin.gateway, "/profile/time-zone", &[("time_zone", "Mars/\"><u>")]);
    let text = wrong.text();
    assert!(wrong.status == 422 && text.contains("Enter a time zone such as Europe/Berlin.") && !text.contains("<u>"), "{text}");
    assert_eq!(location(&ann.post(&admin.gateway, "/profile/time-zone", &[("time_zone", "")])), "/profile");
    assert!(!ann.page(&admin.gateway, "/console").contains("data-time-zone"));
}

#[test]
fn bars_of_charts_have_the_chosen_width() {
    let admin = Admin::echo();
    let mut boss = owner(&admin);
    // A chart without a figure has no bars.
    assert_eq!(admin.gateway.chat(&support::chat("echo")).status, 200);
    let is_booked = || admin.get("/admin/v1/usage")["items"][0].is_object();
    wait_for("the request is booked", Duration::from_secs(30), is_booked);
    let bars = |page: &str| page.split_once("id=\"outcomes\"").map_or(page, |(_, rest)| rest).matches("class=\"hit\"").count();
    let automatic = boss.page(&admin.gateway, "/overview?range=7d");
    assert!(automatic.contains("bars=hour") && automatic.contains("bars=day"), "{automatic}");
    let daily = boss.page(&admin.gateway, "/overview?range=7d&bars=day");
    assert!(bars(&daily) < bars(&automatic), "{} {}", bars(&daily), bars(&automatic));
    assert!(
        daily.contains("range=7d&#38;bars=day") || daily.contains("range=7d&amp;bars=day"),
        "the period keeps its bars: {daily}"
    );
    let answer = admin.call("GET", "/admin/v1/usage/histogram?width=hour&since=2020-01-01T00:00:00Z", None);
    assert_eq!(answer.status, 400, "{}", answer.text());
}
