//! Actions on several channels.

use serde_json::json;
use tollgate_testkit::{ScriptedResponse, UPSTREAM_CREDENTIAL};

use super::{
    Person,
    attacks::signed_in,
    location,
    operators::{make, make_in, owner, upstream},
};
use crate::{admin::Admin, identity::make_member};

fn id(admin: &Admin, channel: &str) -> String {
    admin.get(&format!("/admin/v1/channels/{channel}"))["id"].as_str().unwrap().to_owned()
}

#[test]
fn chosen_channels_are_turned_off_edited_exported_and_removed() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut boss = owner(&admin);
    make(&admin, &mut boss, &upstream, "main");
    make(&admin, &mut boss, &upstream, "spare");
    let (main, spare) = (id(&admin, "main"), id(&admin, "spare"));
    let page = boss.page(&admin.gateway, "/channels");
    assert!(page.contains(&format!("form=\"selection\" name=\"channel\" value=\"{main}\"")), "{page}");
    let chosen = |more: &[(&'static str, &'static str)]| {
        let mut fields = vec![("channel", main.as_str()), ("channel", spare.as_str())];
        fields.extend(more);
        fields.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<Vec<_>>()
    };
    let mut post = |path: &str, more: &[(&'static str, &'static str)]| {
        let fields = chosen(more);
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        boss.post(&admin.gateway, path, &fields)
    };
    let states = || ["main", "spare"].map(|name| admin.get(&format!("/admin/v1/channels/{name}"))["status"].clone());

    assert_eq!(location(&post("/channel-selection", &[("do", "off")])), "/channels");
    assert_eq!(states(), [json!("off"), json!("off")]);
    assert_eq!(location(&post("/channel-selection", &[("do", "on")])), "/channels");
    assert_eq!(states(), [json!("on"), json!("on")]);

    // The form starts empty; only filled fields are written.
    let edit = location(&post("/channel-selection", &[("do", "edit")])).to_owned();
    assert!(edit.starts_with("/channel-selection/edit?channel=chn_"), "{edit}");
    let wrong = post("/channel-selection/edit", &[("weight", "0"), ("priority", "4"), ("rpm", "")]);
    let text = wrong.text();
    assert!(wrong.status == 422 && text.contains("aria-invalid") && text.contains("value=\"4\""), "{text}");
    let nothing = post("/channel-selection/edit", &[("weight", ""), ("rpm", " ")]);
    assert!(nothing.status == 422 && nothing.text().contains("Fill in at least one field."), "{}", nothing.text());
    let sent =
        [("weight", ""), ("priority", "4"), ("rpm", "30"), ("channel_rpm", "90"), ("retry_uncertain", "false"), ("cooling", "")];
    assert_eq!(location(&post("/channel-selection/edit", &sent)), "/channels");
    for name in ["main", "spare"] {
        let channel = admin.get(&format!("/admin/v1/channels/{name}"));
        assert_eq!((&channel["priority"], &channel["weight"], &channel["rpm"]), (&json!(4), &json!(1), &json!(90)));
        assert_eq!((&channel["retry_uncertain"], &channel["cooling"]), (&json!(false), &json!(true)));
        assert_eq!(admin.get(&format!("/admin/v1/channels/{name}/accounts/main"))["rpm"], 30);
    }

    let file = post("/channel-selection", &[("do", "export")]);
    assert_eq!(file.header("content-disposition"), Some("attachment; filename=\"channels.toml\""));
    assert_eq!(file.header("content-type"), Some("application/toml; charset=utf-8"));
    assert!(file.text().contains("name = \"spare\"") && !file.text().contains(UPSTREAM_CREDENTIAL), "{}", file.text());

    let remove = location(&post("/channel-selection", &[("do", "remove")])).to_owned();
    let asked = boss_page(&admin, &remove);
    assert!(asked.contains("Type the number of channels, 2, to confirm"), "{asked}");
    let wrong = post("/channel-selection/remove", &[("typed_name", "main")]);
    assert!(wrong.status == 422 && wrong.text().contains("This is not the number of channels."), "{}", wrong.text());
    assert_eq!(location(&post("/channel-selection/remove", &[("typed_name", "2")])), "/channels");
    assert_eq!(admin.call("GET", "/admin/v1/channels/main", None).status, 404);
    // Removed channels are no longer part of the selection.
    assert_eq!(location(&post("/channel-selection", &[("do", "off")])), "/channels");
}

#[test]
fn channels_that_were_turned_off_together_have_an_undo() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut boss = owner(&admin);
    for name in ["main", "spare", "rest"] {
        make(&admin, &mut boss, &upstream, name);
    }
    let ids = ["main", "spare", "rest"].map(|name| id(&admin, name));
    admin.patch("/admin/v1/channels/rest", &json!({"status": "off"}));
    let mut fields: Vec<(&str, &str)> = ids.iter().map(|id| ("channel", id.as_str())).collect();
    fields.push(("do", "off"));
    assert_eq!(location(&boss.post(&admin.gateway, "/channel-selection", &fields)), "/channels");
    let page = boss.page(&admin.gateway, "/channels");
    let (_, undo) = page.split_once("/channel-selection/enable?").unwrap_or_else(|| panic!("{page}"));
    let undo = format!("/channel-selection/enable?{}", undo.split('"').next().unwrap().replace("&#38;", "&"));
    assert!(undo.contains(&ids[0]) && undo.contains(&ids[1]) && !undo.contains(&ids[2]), "those that were on: {undo}");
    assert_eq!(location(&boss.post(&admin.gateway, &undo, &[])), "/channels");
    let states = ["main", "spare", "rest"].map(|name| admin.get(&format!("/admin/v1/channels/{name}"))["status"].clone());
    assert_eq!(states, [json!("on"), json!("on"), json!("off")]);
}

#[test]
fn actions_on_chosen_channels_return_to_the_list_with_its_filter() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut boss = owner(&admin);
    make(&admin, &mut boss, &upstream, "main");
    let main = id(&admin, "main");
    let (list, encoded) = ("/channels?q=main&sort=name", "%2Fchannels%3Fq%3Dmain%26sort%3Dname");
    let page = boss.page(&admin.gateway, list);
    let (_, bar) = page.split_once("id=\"selection\"").unwrap();
    assert!(bar.contains("name=\"to\" value=\"/channels?q=main&#38;sort=name\""), "{bar}");
    let act = |what: &'static str, to: &'static str| [("channel", main.as_str()), ("do", what), ("to", to)];
    for what in ["off", "on"] {
        assert_eq!(location(&boss.post(&admin.gateway, "/channel-selection", &act(what, list))), list, "{what}");
    }
    for elsewhere in ["//example.com/channels", "/log", "/channels/main", "https://example.com/channels"] {
        assert_eq!(location(&boss.post(&admin.gateway, "/channel-selection", &act("on", elsewhere))), "/channels", "{elsewhere}");
    }
    for (what, field) in [("edit", ("priority", "4")), ("remove", ("typed_name", "main"))] {
        let asked = location(&boss.post(&admin.gateway, "/channel-selection", &act(what, list))).to_owned();
        assert_eq!(asked, format!("/channel-selection/{what}?channel={main}&to={encoded}"));
        let page = boss.page(&admin.gateway, &asked);
        let [hidden, cancel] =
            ["name=\"to\" value=", "btn ghost\" href="].map(|part| format!("{part}\"/channels?q=main&#38;sort=name\""));
        assert!(page.contains(&hidden) && page.contains(&cancel), "{what}: {page}");
        // The form goes to the same address, so that it is found again after a sign-in.
        assert!(page.contains(&format!("action=\"{}\"", asked.replace('&', "&#38;"))), "{what}: {page}");
        let lost = location(&Person::default().post(&admin.gateway, &asked, &[field])).to_owned();
        let back: String = url::form_urlencoded::byte_serialize(asked.as_bytes()).collect();
        assert_eq!(lost, format!("/sign-in?to={back}&lost=form"), "{what}");
        let done = boss.post(&admin.gateway, &asked, &[("channel", main.as_str()), ("to", list), field]);
        assert_eq!(location(&done), list, "{what}");
    }
}

/// The page as another admin sees it.
fn boss_page(admin: &Admin, path: &str) -> String {
    make_member(admin, "second", "admin");
    signed_in(admin, "second").page(&admin.gateway, path)
}

#[test]
fn chosen_channels_are_tested_together() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut boss = owner(&admin);
    make(&admin, &mut boss, &upstream, "main");
    make(&admin, &mut boss, &upstream, "empty");
    boss.post(&admin.gateway, "/channels/main/models/add", &[("model", "m")]);
    upstream.enqueue(ScriptedResponse::chat("hello"));
    let ids = ["main", "empty", "echo"].map(|name| id(&admin, name));
    let mut fields: Vec<(&str, &str)> = ids.iter().map(|id| ("channel", id.as_str())).collect();
    fields.push(("do", "test"));
    let page = boss.post(&admin.gateway, "/channel-selection", &fields).text();
    assert!(page.contains("main · m · Passed") && page.contains("</html>"), "{page}");
    assert!(page.contains("It serves no model, or has no account.") && page.contains("answers inside the gateway"), "{page}");
    assert!(page.contains("1 passed, 1 failed"), "{page}");
}

#[test]
fn channel_errors_are_listed_and_members_cannot_open_the_page() {
    let upstream = upstream();
    let admin = Admin::of(crate::support::builder(&upstream, "").spawn());
    let mut boss = owner(&admin);
    // The only group is owned by the catalog file.
    make_in(&[], &admin, &mut boss, &upstream, "own");
    let (own, of_file) = (id(&admin, "own"), id(&admin, "chat"));
    let fields = [("channel", own.as_str()), ("channel", of_file.as_str()), ("do", "off")];
    let refused = boss.post(&admin.gateway, "/channel-selection", &fields);
    let text = refused.text();
    assert!(refused.status == 422 && text.contains("<dt>chat</dt>") && text.contains("served catalog file"), "{text}");
    assert_eq!(admin.get("/admin/v1/channels/own")["status"], "on");
    assert_eq!(location(&boss.post(&admin.gateway, "/channel-selection", &[("do", "off")])), "/channels");
    make_member(&admin, "op", "operator");
    make_member(&admin, "ann", "member");
    let address = format!("/channel-selection/edit?channel={own}");
    assert!(!signed_in(&admin, "op").page(&admin.gateway, &address).contains("name=\"proxy\""));
    let mut ann = signed_in(&admin, "ann");
    assert_eq!(ann.get(&admin.gateway, &address).status, 404);
    assert_eq!(ann.post(&admin.gateway, "/channel-selection", &fields).status, 404);
}
