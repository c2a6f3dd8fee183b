//! Forms that were loaded before another change of their row, and values that a form must not change: the expiry of a key, and
//! groups whose checkboxes are unchanged.

use serde_json::{Value, json};

use super::{
    attacks::signed_in,
    hidden, location,
    operators::{make, owner, upstream},
};
use crate::{admin::Admin, identity::make_member};

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
