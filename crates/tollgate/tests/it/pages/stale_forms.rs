//! Forms that were loaded before another change of their row, and values that a form must not change: the expiry of a key, and
//! groups whose checkboxes are unchanged.

use serde_json::{Value, json};

use super::{
    attacks::signed_in,
    hidden, location,
    operators::{make, owner, upstream},
};
use crate::{
    admin::{Admin, ok},
    identity::make_member,
};

const STALE: &str = "It was changed since this page was loaded.";

/// The numbers that the form of a channel needs.
const NUMBERS: [(&str, &str); 5] = [
    ("connect_timeout_ms", "4000"),
    ("first_byte_timeout_ms", "50000"),
    ("idle_timeout_ms", "50000"),
    ("failures_to_cool", "3"),
    ("cool_down_s", "10"),
];

#[test]
fn forms_of_rows_that_were_changed_since_are_refused_and_keep_what_was_typed() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut boss = owner(&admin);
    make(&admin, &mut boss, &upstream, "main");
    boss.post(&admin.gateway, "/channels/main/models/add", &[("model", "m")]);
    let key = admin.post("/admin/v1/keys", &json!({"name": "ci"}))["id"].as_str().unwrap().to_owned();
    let (of_key, row_of_key) = (format!("/keys/{key}"), format!("/admin/v1/keys/{key}"));
    let of_channel = [&NUMBERS[..], &[("weight", "71"), ("groups", "default"), ("private_network", "on")]].concat();
    let of_models = vec![("shown", "m"), ("upstreams", "m-71"), ("input", ""), ("output", "")];
    let account = "/admin/v1/channels/main/accounts/main";
    for (path, row, fields, typed, other) in [
        (of_key.as_str(), row_of_key.as_str(), vec![("rpm", "71")], "71", json!({"tpm": 9_000})),
        ("/channels/main/edit", "/admin/v1/channels/main", of_channel, "71", json!({"priority": 3})),
        ("/channels/main/accounts/main", account, vec![("status", "true"), ("rpm", "71")], "71", json!({"tpm": 9_000})),
        ("/channels/main/models", "/admin/v1/channels/main", of_models, "m-71", json!({"priority": 4})),
    ] {
        let revision = hidden(&boss.page(&admin.gateway, path), path, "revision");
        admin.patch(row, &other);
        let changed = admin.get(row)["revision"].clone();
        assert_ne!(changed.to_string(), revision, "{path}");
        let sent = [&fields[..], &[("revision", revision.as_str())]].concat();
        let refused = boss.post(&admin.gateway, path, &sent);
        let page = refused.text();
        assert!(refused.status == 422 && page.contains(STALE), "{path}: {page}");
        assert!(page.contains(&format!("value=\"{typed}\"")), "{path}: {page}");
        assert_eq!(hidden(&page, path, "revision"), revision, "{path}: the form is still the one that was loaded before");
        assert_eq!(boss.post(&admin.gateway, path, &fields).status, 422, "{path} without a revision");
        assert_eq!(admin.get(row)["revision"], changed, "{path}");
        // A form that is loaded now can be saved.
        location(&boss.save(&admin.gateway, path, &fields));
        assert_ne!(admin.get(row)["revision"], changed, "{path}");
    }
}

#[test]
fn first_value_of_a_setting_is_not_stored_over_that_of_another_admin() {
    let admin = Admin::echo();
    make_member(&admin, "root", "admin");
    let mut root = signed_in(&admin, "root");
    let (path, row) = ("/settings/log.slow_ms", "/admin/v1/settings/log.slow_ms");
    let loaded = hidden(&root.page(&admin.gateway, path), path, "revision");
    assert_eq!(loaded, "", "no value is stored");
    ok(&admin.call("PUT", row, Some(&json!({"value": "7"}))));
    let refused = root.post(&admin.gateway, path, &[("value", "9"), ("revision", &loaded)]);
    let page = refused.text();
    assert!(refused.status == 422 && page.contains(STALE) && page.contains("value=\"9\""), "{page}");
    assert_eq!(hidden(&page, path, "revision"), "", "the form is still the one that was loaded before");
    assert_eq!(admin.get(row)["value"], "7");
    location(&root.save(&admin.gateway, path, &[("value", "9")]));
    assert_eq!(admin.get(row)["value"], "9");
}

#[test]
fn step_about_the_gateway_keeps_settings_that_another_admin_changed_since() {
    let admin = Admin::echo();
    make_member(&admin, "root", "admin");
    let (mut root, path) = (signed_in(&admin, "root"), "/setup/gateway");
    let value = |setting: &str| admin.get(&format!("/admin/v1/settings/{setting}"))["value"].clone();
    let put = |setting: &str, value: &str| {
        ok(&admin.call("PUT", &format!("/admin/v1/settings/{setting}"), Some(&json!({"value": value}))));
    };
    let names = ["name", "api_url", "language", "time_zone", "currency", "currency_per_usd", "registration", "square_public"];
    let page = root.page(&admin.gateway, path);
    let loaded = names.map(|name| (format!("loaded_{name}"), hidden(&page, path, &format!("loaded_{name}"))));
    let mut send = |changed: &[(&str, &str)]| {
        let typed = names.iter().zip(&loaded).map(|(name, (_, value))| {
            let changed = changed.iter().find(|(known, _)| known == name);
            (*name, changed.map_or(value.as_str(), |(_, value)| *value))
        });
        let held = loaded.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        root.post(&admin.gateway, path, &typed.chain(held).collect::<Vec<_>>())
    };
    put("access.registration", "off");
    assert_eq!(location(&send(&[("name", "Ours")])), "/setup/channel");
    assert_eq!((value("console.display_name"), value("access.registration")), (json!("Ours"), json!("off")));

    put("console.display_name", "Theirs");
    let refused = send(&[("name", "Mine"), ("registration", "open")]);
    let page = refused.text();
    assert!(refused.status == 422 && page.contains(STALE) && page.contains("value=\"Mine\""), "{page}");
    assert_eq!(hidden(&page, path, "loaded_registration"), "invite", "the form is still the one that was loaded before");
    assert_eq!((value("console.display_name"), value("access.registration")), (json!("Theirs"), json!("off")));
}

#[test]
fn end_of_a_key_stays_unless_its_day_is_changed() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    let mut op = signed_in(&admin, "op");
    let made = admin.post("/admin/v1/keys", &json!({"name": "early", "expires_at": "2099-03-01T10:30:00Z"}));
    let path = format!("/keys/{}", made["id"].as_str().unwrap());
    let page = op.page(&admin.gateway, &path);
    assert!(page.contains("value=\"2099-03-01\"") && page.contains("On this day at 10:30 UTC"), "{page}");
    let mut saved = |rpm: &str, day: &str| {
        location(&op.save(&admin.gateway, &path, &[("rpm", rpm), ("expires", day), ("valid_for", "")]));
        let key = admin.get(&format!("/admin/v1{path}"));
        (key["rpm"].clone(), key["expires_at"].clone())
    };
    assert_eq!(saved("7", "2099-03-01"), (json!(7), made["expires_at"].clone()));
    assert_eq!(saved("8", "2099-03-02"), (json!(8), json!("2099-03-02T23:59:59Z")));
    assert_eq!(saved("9", "2099-03-02"), (json!(9), json!("2099-03-02T23:59:59Z")));
    assert_eq!(saved("9", ""), (json!(9), Value::Null));
}

#[test]
fn channel_is_saved_together_with_its_groups_or_not_at_all() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    for name in ["team", "gone"] {
        admin.post("/admin/v1/groups", &json!({"name": name, "channels": ["echo"]}));
    }
    let offers = |group: &str| admin.get(&format!("/admin/v1/groups/{group}"))["channels"].clone();
    let mut op = signed_in(&admin, "op");
    assert!(op.page(&admin.gateway, "/channels/new").contains("name=\"groups\" value=\"gone\""));
    admin.delete("/admin/v1/groups/gone");
    let fields = [
        ("name", "near"),
        ("provider", "compatible"),
        ("base_url", "https://a.example/v1"),
        ("groups", "default"),
        ("groups", "gone"),
    ];
    let vanished = "A group that was chosen no longer exists.";
    let refused = op.post(&admin.gateway, "/channels/new", &fields);
    let page = refused.text();
    assert!(refused.status == 422 && page.contains(vanished) && page.contains("value=\"near\""), "{page}");
    assert!(page.contains("value=\"default\" checked"), "{page}");
    assert_eq!((&admin.get("/admin/v1/channels?name=near")["items"], offers("default")), (&json!([]), json!(["echo"])));
    assert_eq!(location(&op.post(&admin.gateway, "/channels/new", &fields[..4])), "/channels/near/models");
    assert_eq!(offers("default"), json!(["echo", "near"]));

    let path = "/channels/near/edit";
    let offered = hidden(&op.page(&admin.gateway, path), path, "offered_by");
    assert_eq!(offered, "default");
    // An unchanged checkbox does not undo another person's later change.
    admin.patch("/admin/v1/groups/team", &json!({"channels": ["echo", "near"]}));
    let with = |more: &[(&'static str, &'static str)]| [&NUMBERS[..], &[("offered_by", "default")], more].concat();
    location(&op.save(&admin.gateway, path, &with(&[("weight", "2"), ("groups", "default")])));
    assert_eq!((offers("default"), offers("team")), (json!(["echo", "near"]), json!(["echo", "near"])));
    // The weight is not saved without the group, nor a group without the channel.
    let refused = op.save(&admin.gateway, path, &with(&[("weight", "3"), ("groups", "gone")]));
    assert!(refused.status == 422 && refused.text().contains(vanished), "{}", refused.text());
    let stale = op.post(&admin.gateway, path, &with(&[("weight", "3"), ("revision", "1")]));
    assert!(stale.status == 422 && stale.text().contains(STALE), "{}", stale.text());
    assert_eq!((&admin.get("/admin/v1/channels/near")["weight"], offers("default")), (&json!(2), json!(["echo", "near"])));
    location(&op.save(&admin.gateway, path, &with(&[("weight", "3"), ("groups", "team")])));
    assert_eq!((offers("default"), offers("team")), (json!(["echo"]), json!(["echo", "near"])));
    assert_eq!(admin.get("/admin/v1/channels/near")["weight"], 3);
}
