//! Groups: made, previewed, limited and deleted on their pages.

use std::time::Duration;

use serde_json::json;
use tollgate_testkit::wait_for;

use super::{attacks::signed_in, form, location};
use crate::{admin::Admin, identity::make_member, support};

const FORM: [(&str, &str); 8] = [
    ("visibility", "public"),
    ("channels", "echo"),
    ("models", "*"),
    ("sale_multiplier", "0.5"),
    ("routing", "weighted"),
    ("translation", "lenient"),
    ("stream_break", "provider_usage"),
    ("budget_day_block", ""),
];

#[test]
fn callers_read_the_description_where_they_choose_a_group() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    make_member(&admin, "ann", "member");
    let (mut op, mut ann) = (signed_in(&admin, "op"), signed_in(&admin, "ann"));
    let text = "For everyday work";
    let described = |text| with(&[("name", "team"), ("description", text), ("self_service", "true")]);
    let long = "x".repeat(201);
    let refused = op.post(&admin.gateway, "/groups/new", &described(&long));
    assert!(refused.status == 422 && refused.text().contains("Enter at most 200 characters."), "{}", refused.text());
    let path = location(&op.post(&admin.gateway, "/groups/new", &described(text))).to_owned();
    assert_eq!(admin.get("/admin/v1/groups/team")["description"], text);
    assert!(op.page(&admin.gateway, "/groups").contains(text));
    assert!(op.page(&admin.gateway, &path).contains("value=\"For everyday work\""));
    assert!(ann.page(&admin.gateway, "/keys/new").contains(text));
    wait_for("the model square has the description", Duration::from_secs(30), || {
        ann.page(&admin.gateway, "/models?group=team").contains(text)
    });
}

fn with<'a>(fields: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let kept = FORM.into_iter().filter(|(name, _)| !fields.iter().any(|(known, _)| known == name));
    kept.chain(fields.iter().copied()).collect()
}

#[test]
fn groups_show_the_requests_of_this_month() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    let mut op = signed_in(&admin, "op");
    for _ in 0..3 {
        assert_eq!(admin.gateway.chat(&support::chat("echo")).status, 200);
    }
    wait_for("the requests are booked", Duration::from_secs(30), || {
        op.page(&admin.gateway, "/groups").contains("data-l=\"Requests this month\">3</td>")
    });
}

#[test]
fn list_counts_members_keys_and_models() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    make_member(&admin, "ann", "member");
    admin.post("/admin/v1/groups", &json!({"name": "vip", "visibility": "private", "channels": ["echo"], "rpm": 60, "budget": {"amount": "5", "window": "day"}}));
    admin.patch("/admin/v1/members/ann", &json!({"groups": ["vip"]}));
    let revoked = admin.post("/admin/v1/keys", &json!({"name": "old", "member": "ann", "groups": ["vip"]}));
    admin.call("DELETE", &format!("/admin/v1/keys/{}", revoked["id"].as_str().unwrap()), None);
    admin.post("/admin/v1/keys", &json!({"name": "new", "member": "ann", "groups": ["vip"]}));
    let before = admin.get("/admin/v1/groups?name=default&use=true")["items"][0]["default_key_count"].as_u64().unwrap();
    admin.post("/admin/v1/keys", &json!({"name": "plain", "member": "ann"}));
    let counted = |name: &str| admin.get(&format!("/admin/v1/groups?name={name}&use=true"))["items"][0].clone();
    wait_for("the gateway offers the models of the group", Duration::from_secs(30), || counted("vip")["model_count"] == 1);
    let vip = counted("vip");
    let counts = ["member_count", "key_count", "default_key_count"].map(|field| vip[field].as_u64());
    assert_eq!(counts, [Some(1), Some(1), Some(0)], "{vip}");
    assert_eq!(counted("default")["default_key_count"].as_u64(), Some(before + 1));
    assert!(admin.get("/admin/v1/groups?name=vip")["items"][0].get("key_count").is_none());
    let page = signed_in(&admin, "op").page(&admin.gateway, "/groups");
    assert!(page.contains("/members?group=vip\">1</a>") && page.contains("/keys?group=vip\">1</a>"), "{page}");
    assert!(page.contains("Everyone") && page.contains("1 model") && page.contains("$5.00 per UTC day"), "{page}");
}

#[test]
fn group_is_created_changed_and_removed() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    let mut op = signed_in(&admin, "op");
    assert!(op.page(&admin.gateway, "/groups/new").contains("name=\"price_limit\""));
    let own = ("model_multipliers", "echo: 2\r\n\r\ngpt-*: 0.9");
    let fields = with(&[("name", "team"), ("rpm", "60"), ("budget_day_block", "$5"), own]);
    let offers = op.post(&admin.gateway, "/groups/new/offers", &fields).text();
    assert!(offers.contains("1 model would be offered.") && offers.contains("<code>echo</code>"), "{offers}");
    assert!(offers.contains("value=\"team\"") && offers.contains("value=\"60\""), "what was typed is kept: {offers}");
    assert_eq!(admin.call("GET", "/admin/v1/groups/team", None).status, 404, "a preview saves nothing");

    let made = op.post(&admin.gateway, "/groups/new", &fields);
    let path = location(&made).to_owned();
    let group = admin.get("/admin/v1/groups/team");
    assert_eq!(path, format!("/groups/{}", group["id"].as_str().unwrap()));
    assert_eq!((&group["sale_multiplier"], &group["rpm"], &group["budget"]["amount"]), (&json!("0.5"), &json!(60), &json!("5.00")));
    assert_eq!(group["model_multipliers"], json!({"echo": "2", "gpt-*": "0.9"}));
    let page = op.page(&admin.gateway, &path);
    assert!(page.contains("echo: 2\ngpt-*: 0.9</textarea>") && page.contains("1 model would be offered."), "{page}");
    let list = op.page(&admin.gateway, "/groups");
    assert!(list.contains("2 exceptions"), "{list}");
    assert!(list.contains(&path) && list.contains("× 0.5") && list.contains("60 requests a minute"), "{list}");
    // The group is in force within a second.
    let mut square = || op.page(&admin.gateway, &format!("{path}/square"));
    assert!(square().contains("as callers of team see it"));
    wait_for("the group offers its model", Duration::from_secs(30), || square().contains("<article"));

    let revision = group["revision"].to_string();
    let stale = op.post(&admin.gateway, &path, &with(&[("revision", "1"), ("visibility", "private")]));
    assert!(stale.status == 422 && stale.text().contains("It was changed since this page"), "{}", stale.text());
    assert!(stale.text().contains("<option value=\"private\" selected>"), "{}", stale.text());
    let fields = with(&[("revision", &revision), ("visibility", "private"), ("self_service", "true"), ("models", "gpt-*")]);
    assert_eq!(location(&op.post(&admin.gateway, &path, &fields)), path);
    let group = admin.get("/admin/v1/groups/team");
    assert_eq!((&group["visibility"], &group["self_service"], &group["rpm"]), (&json!("private"), &json!(true), &json!(0)));
    let none = op.post(&admin.gateway, &format!("{path}/offers"), &fields).text();
    assert!(none.contains("0 models would be offered."), "{none}");
    let all = op.post(&admin.gateway, &format!("{path}/offers"), &with(&[("models", "")])).text();
    assert!(all.contains("1 model would be offered."), "no pattern offers all: {all}");

    let token = op.csrf_token(&admin.gateway).unwrap();
    let part = |factor: &str| {
        let fields = with(&[("models", ""), ("sale_multiplier", factor), ("csrf", token.as_str())]);
        let request = form(&format!("{path}/offers"), &fields).header("origin", &format!("http://{}", admin.gateway.address()));
        let answer = admin.gateway.send(&op.with_cookies(request.header("hx-request", "true")));
        (answer.status, answer.text())
    };
    let (status, live) = part("0.5");
    assert!(status == 200 && live.contains("1 model would be offered.") && !live.contains("<form"), "{live}");
    let (status, faulty) = part("cheap");
    assert!(status == 200 && faulty.contains("A field has a value that cannot be used"), "{faulty}");

    let wrong = op.post(&admin.gateway, &format!("{path}/remove"), &[("typed_name", "no")]);
    assert!(wrong.status == 422 && wrong.text().contains("This is not the name."), "{}", wrong.text());
    assert_eq!(location(&op.post(&admin.gateway, &format!("{path}/remove"), &[("typed_name", "team")])), "/groups");
    assert_eq!(op.get(&admin.gateway, &path).status, 404);
}

#[test]
fn group_errors_are_shown_beside_their_field() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    let mut op = signed_in(&admin, "op");
    for (field, value, says) in [
        ("name", "", "Enter a name of 1 to 100"),
        ("name", "default", "This name is taken."),
        ("sale_multiplier", "cheap", "Enter a factor such as"),
        ("model_multipliers", "gpt-*", "Enter MODEL: FACTOR on each line"),
        ("model_multipliers", "gpt-*: cheap", "Enter MODEL: FACTOR on each line"),
        ("model_multipliers", "*: 2", "For all models set the multiplier"),
        ("rpm", "many", "Enter a whole number"),
        ("models", "a\tb", "Enter names or patterns"),
        ("budget_total_alert", "much", "Enter an amount in USD"),
        ("hedge", "-1", "Enter an amount in USD"),
    ] {
        let sent = with(&[("name", "team"), (field, value)]);
        let sent: Vec<_> = sent.into_iter().filter(|(name, sent)| *name != field || *sent == value).collect();
        let answer = op.post(&admin.gateway, "/groups/new", &sent);
        let page = answer.text();
        assert!(answer.status == 422 && page.contains(says), "{field}={value}: {} {page}", answer.status);
        let (before, _) = page.split_once(says).unwrap();
        let control = before.rsplit("<div class=\"field").next().unwrap();
        assert!(control.contains(&format!("name=\"{field}\"")), "{field}: {control}");
    }
    let ceiling = op.post(&admin.gateway, "/groups/new", &with(&[("name", "team"), ("price_limit", "ceiling")]));
    assert!(ceiling.text().contains("Enter at least one of the bounds below."), "{}", ceiling.text());
    assert_eq!(admin.call("GET", "/admin/v1/groups/team", None).status, 404);
}

#[test]
fn price_limit_that_leaves_no_account_must_be_confirmed() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    let mut op = signed_in(&admin, "op");
    crate::admin::ok(&admin.call("PUT", "/admin/v1/prices/echo", Some(&json!({"price": {"input": "2"}}))));
    let group = admin.get("/admin/v1/groups/default");
    let (path, revision) = (format!("/groups/{}", group["id"].as_str().unwrap()), group["revision"].to_string());
    let limited = with(&[("revision", &revision), ("price_limit", "ceiling"), ("max_input", "0.1"), ("sale_multiplier", "1")]);
    let preview = op.post(&admin.gateway, &format!("{path}/offers"), &limited).text();
    assert!(preview.contains("no account is left") && preview.contains("<code>echo</code>"), "{preview}");
    let refused = op.post(&admin.gateway, &path, &limited);
    assert!(refused.status == 422 && refused.text().contains("name=\"confirm\""), "{}", refused.text());
    let confirmed = [limited, vec![("confirm", "true")]].concat();
    assert_eq!(location(&op.post(&admin.gateway, &path, &confirmed)), path);
    assert_eq!(admin.get("/admin/v1/groups/default")["price_limit"]["max_input"], "0.10");
}

#[test]
fn group_of_new_members_has_a_badge_and_takes_all_channels_with_a_tag() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    let mut op = signed_in(&admin, "op");
    for (name, tags) in [("eu-1", json!(["eu"])), ("eu-2", json!(["eu"])), ("us-1", json!(["us"]))] {
        let channel = json!({"name": name, "provider": "compatible", "base_url": "https://a.example/v1", "tags": tags});
        admin.post("/admin/v1/channels", &channel);
    }
    admin.post("/admin/v1/groups", &json!({"name": "guests"}));
    // In the list, the badge is in the row of the group.
    let default_of = |page: &str| {
        let (before, _) = page.split_once("Default for new members").unwrap_or_else(|| panic!("{page}"));
        before.rsplit("/groups/").next().unwrap().split(['>', '<']).nth(1).unwrap().to_owned()
    };
    assert_eq!(default_of(&op.page(&admin.gateway, "/groups")), "default");
    for (setting, value) in [("access.registration", "open"), ("access.registration_group", "guests")] {
        crate::admin::ok(&admin.call("PUT", &format!("/admin/v1/settings/{setting}"), Some(&json!({"value": value}))));
    }
    wait_for("the settings are in force", Duration::from_secs(30), || default_of(&op.page(&admin.gateway, "/groups")) == "guests");

    let page = op.page(&admin.gateway, "/groups/new");
    assert!(page.contains("name=\"channel_tags\" value=\"eu\""), "{page}");
    let fields = with(&[("name", "europe"), ("channels", "us-1"), ("channel_tags", "eu")]);
    let preview = op.post(&admin.gateway, "/groups/new/offers", &fields).text();
    for name in ["eu-1", "eu-2", "us-1"] {
        assert!(preview.contains(&format!("name=\"channels\" value=\"{name}\" checked")), "{name}: {preview}");
    }
    location(&op.post(&admin.gateway, "/groups/new", &fields));
    let mut channels: Vec<String> = serde_json::from_value(admin.get("/admin/v1/groups/europe")["channels"].clone()).unwrap();
    channels.sort();
    assert_eq!(channels, ["eu-1", "eu-2", "us-1"]);
}
