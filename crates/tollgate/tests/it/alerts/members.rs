//! Notices to members about their own budgets and balances, on their pages and by mail.

use serde_json::{Value, json};
use tollgate_testkit::{MailServer, MailServerMode, Request, wait_for};

use super::{DESTINATIONS, SLOWLY, SOON, set};
use crate::{
    admin::{Admin, ok, refusal, refused},
    identity::{PASSWORD, make_member, sign_in},
    pages::{Person, location},
    support,
};

const PREFERENCES: &str = "/admin/v1/me/preferences";

/// A gateway with the member ann, who has an address and a budget that her first request spends.
fn spent_budget() -> Admin {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    ok(&admin.call("PATCH", "/admin/v1/members/ann/login", Some(&json!({"email": "ann@example.com"}))));
    ok(&admin.call("PUT", "/admin/v1/prices/echo", Some(&json!({"price": {"input": "10000", "output": "10000"}}))));
    admin.patch("/admin/v1/members/ann", &json!({"budget": {"amount": "0.0001", "window": "month", "action": "alert"}}));
    let key = admin.post("/admin/v1/keys", &json!({"name": "k", "member": "ann", "groups": ["echo"]}));
    let chat = Request::post("/v1/chat/completions", &support::chat("echo")).bearer(key["key"].as_str().unwrap());
    wait_for("the key is known", SOON, || admin.gateway.send(&chat).status == 200);
    admin
}

fn person(admin: &Admin) -> Person {
    let mut person = Person::default();
    person.post(&admin.gateway, "/sign-in", &[("login", "ann"), ("password", PASSWORD)]);
    person
}

#[test]
fn member_is_notified_by_mail_at_the_thresholds_of_the_profile() {
    let (admin, server) = (spent_budget(), MailServer::start(MailServerMode::Plain));
    let body = json!({
        "name": "post", "kind": "email", "url": format!("smtp+plain://localhost:{}", server.port()), "private_network": true,
        "from": "tollgate@example.com", "to": ["ops@example.com"], "rules": ["clock_skew"],
    });
    admin.post(DESTINATIONS, &body);
    let mut ann = person(&admin);
    assert!(ann.page(&admin.gateway, "/profile").contains("This gateway sends no mails to members."));
    set(&admin, "alerts.member_mail", &json!("post"));
    assert!(!ann.page(&admin.gateway, "/profile").contains("This gateway sends no mails to members."));
    let fields = [("notice_percents", "50, 80"), ("notice_balance", "0"), ("notice_mail", "true")];
    assert_eq!(location(&ann.post(&admin.gateway, "/profile/notices", &fields)), "/profile");
    let of_ann = || {
        let mails = server.mails().into_iter();
        mails.filter(|mail| mail.contains("To: ann@example.com")).collect::<Vec<String>>()
    };
    // After a change of the setting, members are evaluated at once.
    set(&admin, "console.display_name", &json!("Acme"));
    wait_for("the mail", SLOWLY, || !of_ann().is_empty());
    admin.patch("/admin/v1/members/ann", &json!({"budget": {"amount": "0.0002", "window": "month", "action": "alert"}}));
    set(&admin, "console.display_name", &json!("Acme 2"));
    wait_for("the mail about the other budget", SLOWLY, || of_ann().len() > 1);
    let mails = of_ann();
    assert_eq!(mails.len(), 2, "one for each budget and period: {mails:#?}");
    assert!(mails[0].contains("Subject: [Acme] 100 % of your budget is spent"), "{}", mails[0]);
    assert!(!mails[0].contains("node") && !mails[0].contains("ops@example.com"), "{}", mails[0]);
    let commands = server.commands();
    assert!(!commands.iter().any(|line| line.contains("ops@example.com")), "{commands:?}");
}

#[test]
fn home_page_shows_the_thresholds_that_are_reached() {
    let admin = spent_budget();
    let mut ann = person(&admin);
    let spent = "100 % of your budget is spent";
    wait_for("the home page shows it", SOON, || ann.page(&admin.gateway, "/console").contains(spent));
    let fields = [("notice_percents", ""), ("notice_balance", "2")];
    assert_eq!(location(&ann.post(&admin.gateway, "/profile/notices", &fields)), "/profile");
    assert!(!ann.page(&admin.gateway, "/console").contains(spent));
    admin.patch("/admin/v1/members/ann", &json!({"billing": "prepaid"}));
    wait_for("the balance is below", SOON, || ann.page(&admin.gateway, "/console").contains("below $2.00"));
    for (percents, balance, text) in [
        ("half", "1", "Whole numbers of 1 to 100"),
        ("0", "1", "Whole numbers of 1 to 100"),
        ("101", "1", "Whole numbers of 1 to 100"),
        ("80", "<u>", "aria-invalid"),
    ] {
        let fields = [("notice_percents", percents), ("notice_balance", balance)];
        let answer = ann.post(&admin.gateway, "/profile/notices", &fields);
        let page = answer.text();
        assert!(answer.status == 422 && page.contains(text) && !page.contains("<u>"), "{percents} {balance}: {page}");
    }
    let page = ann.page(&admin.gateway, "/profile");
    assert!(page.contains("name=\"notice_percents\" type=\"text\" value=\"\""), "what was refused is not kept: {page}");
}

#[test]
fn thresholds_are_preferences_of_the_member() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let ann = sign_in(&admin, "ann");
    let change = |body: &Value| ann.send(&admin, "PATCH", PREFERENCES, Some(body));
    let shown = ann.get(&admin, PREFERENCES);
    assert_eq!((&shown["notice_percents"], &shown["notice_balance"]), (&Value::Null, &Value::Null));
    assert_eq!(shown["notice_mail"], false);
    let changed = ok(&change(&json!({"notice_percents": [100, 50, 50], "notice_balance": 2.5, "notice_mail": true})));
    assert_eq!((&changed["notice_percents"], &changed["notice_balance"]), (&json!([50, 100]), &json!("2.50")));
    assert_eq!((&changed["notice_mail"], &changed["language"]), (&json!(true), &Value::Null));
    let kept = ok(&change(&json!({"language": "en"})));
    assert_eq!((&kept["notice_percents"], &kept["notice_mail"]), (&json!([50, 100]), &json!(true)), "the rest stays");
    assert_eq!(ok(&change(&json!({"notice_percents": null})))["notice_percents"], Value::Null);
    for (body, param) in [
        (json!({"notice_percents": [0]}), "notice_percents[0]"),
        (json!({"notice_percents": [1, 101]}), "notice_percents[1]"),
        (json!({"notice_balance": "-1"}), "notice_balance"),
        (json!({"notice_mail": "yes"}), "notice_mail"),
    ] {
        let code = if param == "notice_mail" { "invalid_type" } else { "invalid_value" };
        assert_eq!(refusal(&change(&body)), refused(400, code, param), "{body}");
    }
    let many: Vec<u32> = (1..=11).collect();
    assert_eq!(refusal(&change(&json!({"notice_percents": many}))).0, 400);
}
