//! Service keys: made, limited, replaced, switched off and revoked on their pages; those of others do not exist.

use std::time::Duration;

use serde_json::json;
use tollgate_testkit::{ClientResponse, Request, wait_for};

use super::{Person, attacks::signed_in, form, location};
use crate::{admin::Admin, identity::make_member, support};

/// The key that a page shows once.
fn secret(page: &str) -> String {
    let (_, rest) = page.split_once("data-copy=\"sk-").unwrap_or_else(|| panic!("no key in {page}"));
    format!("sk-{}", rest.split('"').next().unwrap())
}

fn id(page: &str) -> String {
    page.split_once("data-copy=\"key_").map(|(_, rest)| format!("key_{}", rest.split('"').next().unwrap())).unwrap()
}

fn allowance(admin: &Admin, key: &str) -> ClientResponse {
    admin.gateway.send(&Request::get("/v1/key").bearer(key))
}

/// Waits until a change is in force: a request with the key is answered with this status.
fn comes_to(admin: &Admin, key: &str, status: u16) {
    wait_for("the change is known", Duration::from_secs(30), || allowance(admin, key).status == status);
}

#[test]
fn key_is_created_changed_rotated_and_revoked() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    make_member(&admin, "ann", "member");
    let mut op = signed_in(&admin, "op");
    assert!(op.page(&admin.gateway, "/keys/new").contains("name=\"budget_month_block\""));
    let fields = [
        ("name", "ci"),
        ("member", "ann"),
        ("groups", "default"),
        ("rpm", "60"),
        ("budget_month_block", "$5"),
        ("budget_month_alert", "4"),
    ];
    let made = op.post(&admin.gateway, "/keys/new", &fields);
    assert_eq!(made.status, 200, "{}", made.text());
    let (key, id) = (secret(&made.text()), id(&made.text()));
    assert!(made.text().contains("from openai import OpenAI") && made.text().contains("GOOGLE_GEMINI_BASE_URL"));
    let may = allowance(&admin, &key).json();
    assert_eq!((&may["limits"]["rpm"], &may["budgets"][0]["amount"], &may["member"]), (&json!(60), &json!("5.00"), &json!("ann")));
    let budget = |amount: &str, action: &str| json!({"amount": amount, "window": "month", "action": action});
    let stored = admin.get(&format!("/admin/v1/keys/{id}"));
    assert_eq!(stored["budget"], json!([budget("5.00", "block"), budget("4.00", "alert")]));
    let path = format!("/keys/{id}");
    let page = op.page(&admin.gateway, &path);
    assert!(!page.contains(&key) && page.contains("$5.00") && page.contains("value=\"60\""), "{page}");
    assert!(page.contains("value=\"5.00\"") && page.contains("value=\"4.00\""), "{page}");
    assert!(op.page(&admin.gateway, "/keys?member=ann").contains(&path));
    assert!(op.page(&admin.gateway, "/keys?member=unknown").contains("No key matches."));

    let twice = op.post(&admin.gateway, "/keys/new", &fields).text();
    assert!(twice.contains("The member has a key of this name.") && twice.contains("value=\"ci\""), "{twice}");

    assert_eq!(location(&op.save(&admin.gateway, &path, &[("groups", "default"), ("rpm", ""), ("budget_month_block", "")])), path);
    wait_for("the change is known", Duration::from_secs(30), || {
        let may = allowance(&admin, &key).json();
        may["limits"]["rpm"].is_null() && may["budgets"] == json!([])
    });

    let rotate = format!("{path}/rotate");
    let ends = |key: &str| [("overlap_s", "0"), ("suffix", &key[key.len() - 4..])].map(|(name, value)| (name, value.to_owned()));
    let sent = ends(&key);
    let sent: Vec<(&str, &str)> = sent.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let answer = op.post(&admin.gateway, &rotate, &sent).text();
    let rotated = secret(&answer);
    assert_ne!(rotated, key);
    assert!(answer.contains(&format!("data-reloads-from=\"{path}\"")), "{answer}");
    let reloaded = op.post(&admin.gateway, &rotate, &sent);
    assert!(reloaded.status == 422 && reloaded.text().contains("This key was replaced already"), "{}", reloaded.text());
    assert_eq!(location(&op.get(&admin.gateway, &rotate)), path, "the address of a form leads to its page");
    comes_to(&admin, &rotated, 200);
    comes_to(&admin, &key, 401);
    assert_eq!(location(&op.post(&admin.gateway, &format!("{path}/disable"), &[])), path);
    assert!(op.page(&admin.gateway, &path).contains("The key is off."));
    comes_to(&admin, &rotated, 401);
    op.post(&admin.gateway, &format!("{path}/enable"), &[]);
    comes_to(&admin, &rotated, 200);

    let wrong = op.post(&admin.gateway, &format!("{path}/revoke"), &[("typed_name", "no")]);
    assert!(wrong.status == 422 && wrong.text().contains("This is not the name."), "{}", wrong.text());
    assert_eq!(allowance(&admin, &rotated).status, 200);
    assert_eq!(location(&op.post(&admin.gateway, &format!("{path}/revoke"), &[("typed_name", "ci")])), path);
    assert!(op.page(&admin.gateway, &path).contains("Revoked"));
    comes_to(&admin, &rotated, 401);
    assert!(!op.page(&admin.gateway, "/keys").contains(&path) && op.page(&admin.gateway, "/keys?revoked=true").contains(&path));
}

#[test]
fn errors_are_shown_beside_their_field_and_typed_values_are_kept() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    let mut op = signed_in(&admin, "op");
    for (field, value, says) in [
        ("name", "", "Enter a name of 1 to 100"),
        ("rpm", "many", "Enter a whole number"),
        ("tpm", "-1", "Enter a whole number"),
        ("concurrency", "1.5", "Enter a whole number"),
        ("group", "nowhere", "There is no such group"),
        ("member", "unknown", "There is no such member."),
        ("ip_allow", "here", "Enter addresses or networks"),
        ("expires", "2001-01-01", "Enter a day that is not over."),
        ("expires", "soon", "Enter a day that is not over."),
        ("budget_month_block", "much", "Enter an amount in USD"),
        ("budget_day_alert", "-1", "Enter an amount in USD"),
    ] {
        let fields: Vec<(&str, &str)> = [("name", "ci"), ("rpm", "7")].into_iter().filter(|(known, _)| *known != field).collect();
        let answer = op.post(&admin.gateway, "/keys/new", &[fields, vec![(field, value)]].concat());
        let page = answer.text();
        assert!(answer.status == 422 && page.contains(says), "{field}={value}: {} {page}", answer.status);
        let (before, _) = page.split_once(says).unwrap();
        assert!(before.rsplit("<input").next().unwrap().contains(&format!("name=\"{field}\"")), "{field}: {page}");
        assert!(field == "rpm" || page.contains("value=\"7\""), "{page}");
    }
    let several = [("name", "ci"), ("rpm", "many"), ("ip_allow", "here"), ("expires", "soon"), ("budget_total_block", "much")];
    let page = op.post(&admin.gateway, "/keys/new", &several).text();
    for says in ["Enter a whole number", "Enter addresses or networks", "Enter a day that is not over.", "Enter an amount in USD"] {
        assert_eq!(page.matches(says).count(), 1, "{says}: {page}");
    }
    assert_eq!(admin.get("/admin/v1/keys?name=ci")["items"], json!([]));
    // Also the faults that the admin API finds only when all other values are valid: of the name, the member, a group and
    // a past day.
    admin.post("/admin/v1/keys", &json!({"name": "taken", "member": "op"}));
    let all = [
        ("name", "taken"),
        ("member", "op"),
        ("count", "many"),
        ("ip_allow", "here"),
        ("tags", "x"),
        ("expires", "2001-01-01"),
        ("group", "nowhere"),
        ("price_limit", ""),
        ("max_input", "1"),
    ];
    let page = op.post(&admin.gateway, "/keys/new", &all).text();
    for says in [
        "The member has a key of this name.",
        "Enter a whole number, or nothing.",
        "Enter addresses or networks",
        "Enter tags as name=value",
        "Enter a day that is not over.",
        "There is no such group",
        "Choose what kind of limit",
    ] {
        assert_eq!(page.matches(says).count(), 1, "{says}: {page}");
    }
    for bound in ["max_input", "min_margin"] {
        let fields = [("name", "ci"), ("price_limit", ""), (bound, "0.1")];
        let answer = op.post(&admin.gateway, "/keys/new", &fields);
        assert!(answer.status == 422 && answer.text().contains("Choose what kind of limit"), "{}", answer.text());
    }
}

#[test]
fn new_key_names_its_groups_by_ticks_and_its_end_by_a_period() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    for name in ["fast", "slow"] {
        admin.post("/admin/v1/groups", &json!({"name": name, "channels": ["echo"]}));
    }
    let mut op = signed_in(&admin, "op");
    let page = op.page(&admin.gateway, "/keys/new");
    for part in ["name=\"group\" value=\"default\"", "name=\"group\" value=\"fast\"", "<option value=\"90\">90 days</option>"] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    let fields = [("name", "ci"), ("group", "slow"), ("group", "fast"), ("valid_for", "7"), ("expires", "2099-01-01")];
    let made = op.post(&admin.gateway, "/keys/new", &fields);
    assert_eq!(made.status, 200, "{}", made.text());
    let key = &admin.get("/admin/v1/keys?name=ci")["items"][0];
    let day = (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(7 * 24)).strftime("%Y-%m-%d").to_string();
    assert_eq!(key["groups"], json!(["slow", "fast"]));
    assert_eq!(key["expires_at"], format!("{day}T23:59:59Z"), "the period comes before the day");
    let copy = op.page(&admin.gateway, &format!("/keys/new?from={}", key["id"].as_str().unwrap()));
    let (chosen, rest) = copy.split_once("value=\"slow\" checked").unwrap();
    assert!(!chosen.contains("value=\"fast\"") && rest.contains("value=\"fast\" checked"), "a copy keeps the order: {copy}");
}

#[test]
fn keys_of_others_are_not_found_and_members_change_what_their_groups_allow() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    make_member(&admin, "eve", "member");
    let id = admin.post("/admin/v1/keys", &json!({"name": "ci", "member": "ann"}))["id"].as_str().unwrap().to_owned();
    let (mut ann, mut eve) = (signed_in(&admin, "ann"), signed_in(&admin, "eve"));
    let path = format!("/keys/{id}");
    assert!(ann.page(&admin.gateway, "/keys").contains(&path) && !eve.page(&admin.gateway, "/keys").contains(&path));
    assert_eq!(eve.get(&admin.gateway, &path).status, 404);
    for action in ["rotate", "disable"] {
        assert_eq!(eve.post(&admin.gateway, &format!("{path}/{action}"), &[]).status, 404, "{action}");
        let refused = ann.post(&admin.gateway, &format!("{path}/{action}"), &[]);
        assert!(refused.status == 403 && refused.text().contains("Operators make and change the keys"), "{}", refused.text());
    }
    for (action, status) in [("", 404), ("/enable", 404), ("/revoke", 403)] {
        assert_eq!(ann.post(&admin.gateway, &format!("{path}{action}"), &[("typed_name", "ci")]).status, status, "{action}");
    }
    assert_eq!(eve.post(&admin.gateway, &format!("{path}/revoke"), &[("typed_name", "ci")]).status, 404);
    assert_eq!(ann.get(&admin.gateway, "/keys/new").status, 403);
    assert_eq!(ann.post(&admin.gateway, "/keys/new", &[("name", "mine")]).status, 403);
    let page = ann.page(&admin.gateway, &path);
    assert!(!page.contains("name=\"rpm\"") && !page.contains("/rotate\"") && !page.contains("/disable\""), "{page}");
    assert!(!page.contains("/revoke\"") && page.contains("Group default does not let members"), "{page}");
    admin.patch("/admin/v1/groups/default", &json!({"self_service": true}));
    let page = ann.page(&admin.gateway, "/keys/new");
    let is_for_operators = |page: &str| page.contains("name=\"min_margin\"") || page.contains("name=\"limit_on\"");
    assert!(page.contains("name=\"max_input\"") && !is_for_operators(&page), "what channels cost is not for members: {page}");
    let rotated = ann.post(&admin.gateway, &format!("{path}/rotate"), &[]).text();
    comes_to(&admin, &secret(&rotated), 200);

    let own = format!("http://{}", admin.gateway.address());
    let forged = ann.with_cookies(form(&format!("{path}/rotate"), &[])).header("origin", &own);
    assert_eq!(admin.gateway.send(&forged).status, 403, "without the token of the session");
    assert_eq!(Person::default().get(&admin.gateway, &path).status, 303, "visitors sign in first");
}

/// htmx and scripts request only a part of a page.
fn part(person: &Person, admin: &Admin, path: &str) -> ClientResponse {
    admin.gateway.send(&person.with_cookies(Request::get(path).header("accept", "text/html").header("hx-request", "true")))
}

#[test]
fn key_of_the_address_is_shown_beside_the_list() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    make_member(&admin, "eve", "member");
    let budget = json!({"amount": "10", "window": "month", "action": "block"});
    let key = admin.post("/admin/v1/keys", &json!({"name": "ci", "member": "ann", "rpm": 60, "budget": budget}));
    let id = key["id"].as_str().unwrap();
    let (mut ann, mut eve) = (signed_in(&admin, "ann"), signed_in(&admin, "eve"));
    let address = format!("/keys?search=c&open={id}");
    let page = ann.page(&admin.gateway, &address);
    let (_, drawer) = page.split_once(&format!("data-open=\"{id}\"")).unwrap_or_else(|| panic!("{page}"));
    for text in ["60 requests a minute", "$10.00 left", "href=\"/keys?search=c\" data-close", &format!("/log?range=30d&key={id}")] {
        assert!(drawer.contains(text), "{text}: {drawer}");
    }
    assert!(!eve.page(&admin.gateway, &address).contains("data-open"), "keys of others do not exist");
    assert!(!ann.page(&admin.gateway, "/keys?open=key_unknown").contains("data-open"));
    let path = format!("/keys/{id}?search=c");
    let answer = part(&ann, &admin, &path);
    assert!(answer.status == 200 && answer.text().starts_with("<section class=\"drawer\""), "{}", answer.text());
    assert!(answer.text().contains("href=\"/keys?search=c\" data-close"), "it leads back to the list: {}", answer.text());
    assert_eq!(part(&eve, &admin, &path).status, 404);
}

#[test]
fn new_key_is_made_beside_the_list() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    make_member(&admin, "op", "operator");
    admin.post("/admin/v1/keys", &json!({"name": "taken", "member": "op"}));
    let (mut op, mut ann) = (signed_in(&admin, "op"), signed_in(&admin, "ann"));
    let list = op.page(&admin.gateway, "/keys?search=t");
    assert!(list.contains("href=\"/keys/new\" data-beside=\"new\"") && !list.contains("data-open"), "{list}");
    let address = "/keys?search=t&open=new";
    let page = op.page(&admin.gateway, address);
    let (list, drawer) = page.split_once("data-open=\"new\"").unwrap_or_else(|| panic!("{page}"));
    assert!(list.contains("data-table=\"keys\"") && list.contains(">taken<"), "{list}");
    for text in ["action=\"/keys?search=t&#38;open=new\"", "href=\"/keys?search=t\" data-close", "name=\"budget_month_block\""] {
        assert!(drawer.contains(text), "{text}: {drawer}");
    }
    assert_eq!(page.matches("id=\"member\"").count(), 1, "the filter has a unique id");
    let answer = part(&op, &admin, "/keys/new?search=t");
    assert!(answer.text().starts_with("<section class=\"drawer\" data-open=\"new\""), "{}", answer.text());

    let refused = op.post(&admin.gateway, address, &[("name", "taken"), ("rpm", "many")]);
    let text = refused.text();
    assert!(refused.status == 422 && text.contains("data-table=\"keys\"") && text.contains("data-open=\"new\""), "{text}");
    for part in ["The member has a key of this name.", "Enter a whole number", "value=\"taken\"", "value=\"many\""] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("data-reloads-from=\"/keys?search=t&#38;open=new\""), "{text}");
    let made = op.post(&admin.gateway, address, &[("name", "fresh")]).text();
    assert!(made.contains(&format!("data-reloads-from=\"/keys/{}\"", id(&made))), "{made}");
    comes_to(&admin, &secret(&made), 200);

    assert!(!ann.page(&admin.gateway, "/keys?open=new").contains("data-open"));
    assert_eq!(ann.post(&admin.gateway, "/keys?open=new", &[("name", "mine")]).status, 403);
    assert_eq!(part(&ann, &admin, "/keys/new").status, 403);
}

#[test]
fn channel_and_member_of_the_address_are_shown_beside_their_lists() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    make_member(&admin, "op", "operator");
    let ann = admin.get("/admin/v1/members/ann")["id"].as_str().unwrap().to_owned();
    admin.patch("/admin/v1/members/ann", &json!({"rpm": 60}));
    let (mut op, member) = (signed_in(&admin, "op"), signed_in(&admin, "ann"));
    for (list, id, page, shown) in [
        ("/channels", "echo", "/channels/echo".to_owned(), "/log?range=24h&#38;channel=echo"),
        ("/members", ann.as_str(), format!("/members/{ann}"), "60 requests a minute"),
    ] {
        let whole = op.page(&admin.gateway, &format!("{list}?open={id}"));
        let (_, drawer) = whole.split_once(&format!("data-open=\"{id}\"")).unwrap_or_else(|| panic!("{whole}"));
        assert!(drawer.contains(shown) && drawer.contains(&format!("href=\"{list}\" data-close")), "{drawer}");
        assert!(!op.page(&admin.gateway, &format!("{list}?open=unknown")).contains("data-open"), "{list}");
        let answer = part(&op, &admin, &page);
        assert!(answer.status == 200 && answer.text().starts_with("<section class=\"drawer\""), "{}", answer.text());
        assert_eq!(part(&member, &admin, &page).status, 404, "{page}: not for members");
        assert_eq!(part(&op, &admin, &format!("{list}/unknown")).status, 404, "{list}");
    }
}

#[test]
fn list_shows_the_usage_of_today_and_exhausted_budgets() {
    let admin = Admin::echo();
    admin.call("PUT", "/admin/v1/prices/echo", Some(&json!({"price": {"input": "1000", "output": "1000"}})));
    let budget = |action: &str| json!({"amount": "0.000001", "window": "month", "action": action});
    let made = admin.post("/admin/v1/keys", &json!({"name": "spent", "budget": budget("alert")}));
    let (id, key) = (made["id"].as_str().unwrap().to_owned(), made["key"].as_str().unwrap().to_owned());
    let chat = Request::post("/v1/chat/completions", &support::chat("echo")).bearer(&key);
    // The price is in force a moment after it is set.
    wait_for("a request is charged", Duration::from_secs(30), || {
        admin.gateway.send(&chat);
        let left = admin.get(&format!("/admin/v1/keys/{id}/allowance"));
        left["budgets"][0]["left"] == "0.00"
    });
    let state = || admin.get(&format!("/admin/v1/keys/{id}"))["state"].clone();
    assert_eq!(state(), "active", "the budget does not block");
    admin.patch(&format!("/admin/v1/keys/{id}"), &json!({"budget": budget("block")}));
    assert_eq!(state(), "exhausted");
    wait_for("the records are booked", Duration::from_secs(30), || {
        let row = &admin.get("/admin/v1/keys?use=true&name=spent")["items"][0];
        row["today"]["requests"].as_u64() > Some(0) && row["last_used_at"].is_string() && row["last_address"] == "127.0.0.1"
    });
    make_member(&admin, "op", "operator");
    let mut op = signed_in(&admin, "op");
    let page = op.page(&admin.gateway, "/keys?state=exhausted");
    assert!(page.contains("Used up") && page.contains("127.0.0.1") && page.contains(&id), "{page}");
    assert!(!op.page(&admin.gateway, "/keys?state=active").contains(&id));
    let file = op.get(&admin.gateway, "/keys.csv?state=exhausted");
    let text = file.text();
    assert_eq!(file.header("content-type"), Some("text/csv; charset=utf-8"));
    assert!(text.starts_with("id,name,member,state") && text.lines().count() == 2 && text.contains(",spent,"), "{text}");
    assert!(!text.contains(&key));
    let own = op.page(&admin.gateway, &format!("/keys/{id}"));
    assert!(own.contains("/rotate\""), "a key that is used up can be replaced: {own}");
}

#[test]
fn several_keys_are_changed_at_once() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    make_member(&admin, "ann", "member");
    let make =
        |name: &str| admin.post("/admin/v1/keys", &json!({"name": name, "member": "ann"}))["id"].as_str().unwrap().to_owned();
    let (one, two) = (make("one"), make("two"));
    let state = |id: &str| admin.get(&format!("/admin/v1/keys/{id}"))["state"].clone();
    let mut op = signed_in(&admin, "op");
    let both = |first: &'static str, value: &'static str| vec![("key", one.as_str()), ("key", two.as_str()), (first, value)];
    assert_eq!(location(&op.post(&admin.gateway, "/key-selection", &both("do", "off"))), "/keys");
    assert_eq!((state(&one), state(&two)), (json!("disabled"), json!("disabled")));
    let page = op.page(&admin.gateway, "/keys");
    let undo = format!("/key-selection/enable?key={one}&key={two}");
    assert!(page.contains("The keys are off.") && page.contains(&undo.replace('&', "&#38;")), "{page}");
    assert!(page.contains("name=\"to\" value=\"/keys\""), "{page}");
    assert_eq!(location(&op.post(&admin.gateway, &undo, &[("to", "/keys?search=o")])), "/keys?search=o");
    assert_eq!((state(&one), state(&two)), (json!("active"), json!("active")));

    let ask = op.post(&admin.gateway, "/key-selection", &both("do", "move"));
    let asked = op.page(&admin.gateway, location(&ask));
    assert!(asked.contains("type=\"checkbox\"") && asked.contains("name=\"group\" value=\"default\""), "{asked}");
    let wrong = op.post(&admin.gateway, "/key-selection/move", &both("group", "nowhere"));
    assert!(wrong.status == 422 && wrong.text().contains("There is no such group"), "{}", wrong.text());
    let wrong = op.post(&admin.gateway, "/key-selection/move", &both("groups", "nowhere"));
    assert!(wrong.status == 422 && wrong.text().contains("There is no such group"), "{}", wrong.text());
    assert_eq!(location(&op.post(&admin.gateway, "/key-selection/move", &both("group", "default"))), "/keys");
    assert_eq!(admin.get(&format!("/admin/v1/keys/{two}"))["groups"], json!(["default"]));
    let asked = op.page(&admin.gateway, location(&ask));
    assert!(asked.contains("value=\"default\" checked"), "the groups that all have are chosen: {asked}");

    let ask = op.post(&admin.gateway, "/key-selection", &both("do", "revoke"));
    assert!(op.page(&admin.gateway, location(&ask)).contains("Type the number of keys, 2"));
    assert_eq!(op.post(&admin.gateway, "/key-selection/revoke", &both("typed_name", "3")).status, 422);
    assert_eq!(state(&one), json!("active"));
    let mut ann = signed_in(&admin, "ann");
    let locked = ann.post(&admin.gateway, "/key-selection/revoke", &both("typed_name", "2"));
    assert!(locked.status == 422 && locked.text().contains("Operators make and change the keys"), "{}", locked.text());
    assert_eq!(ann.post(&admin.gateway, "/key-selection/move", &both("groups", "")).status, 404);
    assert_eq!(location(&op.post(&admin.gateway, "/key-selection/revoke", &both("typed_name", "2"))), "/keys");
    assert_eq!((state(&one), state(&two)), (json!("revoked"), json!("revoked")));
    assert!(op.page(&admin.gateway, "/keys").contains("The keys are revoked."));
    let none = op.post(&admin.gateway, "/key-selection", &[("do", "off")]);
    assert_eq!(location(&none), "/keys");
}

#[test]
fn actions_on_chosen_keys_return_to_the_list_with_its_filter() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    let id = admin.post("/admin/v1/keys", &json!({"name": "one", "member": "op"}))["id"].as_str().unwrap().to_owned();
    let mut op = signed_in(&admin, "op");
    let list = "/keys?search=one&sort=name";
    let page = op.page(&admin.gateway, list);
    let (_, bar) = page.split_once("id=\"selection\"").unwrap();
    assert!(bar.contains("name=\"to\" value=\"/keys?search=one&#38;sort=name\""), "{bar}");
    let act = |what: &'static str, to: &'static str| [("key", id.clone()), ("do", what.to_owned()), ("to", to.to_owned())];
    let send = |op: &mut Person, fields: &[(&str, String)]| {
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        op.post(&admin.gateway, "/key-selection", &fields)
    };
    for what in ["off", "on"] {
        assert_eq!(location(&send(&mut op, &act(what, list))), list, "{what}");
    }
    for elsewhere in ["//example.com/keys", "/log", "/keys/x", "https://example.com/keys"] {
        assert_eq!(location(&send(&mut op, &act("on", elsewhere))), "/keys", "{elsewhere}");
    }
    for (what, field) in [("move", ("group", "default")), ("revoke", ("typed_name", "one"))] {
        let asked = location(&send(&mut op, &act(what, list))).to_owned();
        let page = op.page(&admin.gateway, &asked);
        let [hidden, cancel] =
            ["name=\"to\" value=", "btn ghost\" href="].map(|part| format!("{part}\"/keys?search=one&#38;sort=name\""));
        assert!(page.contains(&hidden) && page.contains(&cancel), "{what}: {page}");
        assert!(page.contains(&format!("action=\"{}\"", asked.replace('&', "&#38;"))), "{what}: {page}");
        let done = op.post(&admin.gateway, &format!("/key-selection/{what}"), &[("key", id.as_str()), ("to", list), field]);
        assert_eq!(location(&done), list, "{what}");
    }
}

/// Only operators turn a key on again.
#[test]
fn members_are_asked_before_they_turn_a_key_off() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    admin.patch("/admin/v1/groups/default", &json!({"self_service": true}));
    let id = admin.post("/admin/v1/keys", &json!({"name": "ci", "member": "ann"}))["id"].as_str().unwrap().to_owned();
    let state = || admin.get(&format!("/admin/v1/keys/{id}"))["state"].clone();
    let mut ann = signed_in(&admin, "ann");
    let of_list = ann.post(&admin.gateway, &format!("/keys/{id}/disable"), &[("to", "/keys?search=ci")]);
    assert_eq!(location(&of_list), format!("/key-selection/off?key={id}&to=%2Fkeys%3Fsearch%3Dci"));
    let of_several = ann.post(&admin.gateway, "/key-selection", &[("key", id.as_str()), ("do", "off")]);
    assert_eq!(location(&of_several), format!("/key-selection/off?key={id}"));
    let of_page = ann.post(&admin.gateway, &format!("/keys/{id}/disable"), &[]);
    let asked = location(&of_page).to_owned();
    let page = ann.page(&admin.gateway, &asked);
    assert!(page.contains("Only an operator can switch them on again") && page.contains("ci"), "{page}");
    assert_eq!(state(), json!("active"), "nothing has happened yet");
    let own = format!("/keys/{id}");
    assert_eq!(location(&ann.post(&admin.gateway, "/key-selection/off", &[("key", &id), ("to", &own)])), own);
    assert_eq!(state(), json!("disabled"));
    let page = ann.page(&admin.gateway, &own);
    assert!(page.contains("The keys are off.") && !page.contains("data-undo"), "{page}");
}

#[test]
fn pasted_key_is_found_and_revoked_and_appears_in_no_address() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    make_member(&admin, "ann", "member");
    make_member(&admin, "eve", "member");
    let made = admin.post("/admin/v1/keys", &json!({"name": "leaked", "member": "ann"}));
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    let search = |name: &str| signed_in(&admin, name).post(&admin.gateway, "/search", &[("q", key)]).text();
    let (of_op, of_ann, of_eve) = (search("op"), search("ann"), search("eve"));
    let revoke = format!("/keys/{id}/revoke");
    assert!(of_op.contains(&revoke) && of_op.contains("Revoke now") && !of_op.contains(key), "{of_op}");
    assert!(of_ann.contains(&format!("/keys/{id}")) && !of_ann.contains(&revoke), "{of_ann}");
    assert!(of_ann.contains("Group default does not let members"), "{of_ann}");
    assert!(!of_eve.contains(id) && of_eve.contains("Nothing found."), "{of_eve}");
    let mut op = signed_in(&admin, "op");
    let page = op.get(&admin.gateway, &format!("/search?q={key}")).text();
    assert!(!page.contains(id) && !page.contains(key), "only a form finds a key: {page}");
    location(&op.post(&admin.gateway, &revoke, &[("typed_name", "leaked")]));
    comes_to(&admin, key, 401);
    let again = search("op");
    assert!(again.contains("Revoked") && !again.contains(&revoke), "{again}");
}

#[test]
fn key_form_sets_restrictions_and_tags() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    let mut op = signed_in(&admin, "op");
    let fields = [
        ("name", "ci"),
        ("models_deny", "o1-*，*-pro"),
        ("protocols", "openai"),
        ("protocols", "anthropic"),
        ("tags", "team=search, cost=a=1"),
    ];
    let made = op.post(&admin.gateway, "/keys/new", &fields).text();
    let id = id(&made);
    assert!(made.contains("/v1/chat/completions") && !made.contains("generateContent"), "lines of its protocols: {made}");
    let row = || admin.get(&format!("/admin/v1/keys/{id}"));
    let tags = json!({"team": "search", "cost": "a=1"});
    assert_eq!(
        (&row()["models_deny"], &row()["protocols"], &row()["tags"]),
        (&json!(["o1-*", "*-pro"]), &json!(["openai", "anthropic"]), &tags)
    );
    let page = op.page(&admin.gateway, &format!("/keys/{id}"));
    for part in ["o1-*, *-pro", "Chat, Messages", "cost=a=1, team=search", "value=\"anthropic\" checked"] {
        assert!(page.contains(part), "no {part} in {page}");
    }
    // A copy has them, too.
    let copy = op.page(&admin.gateway, &format!("/keys/new?from={id}"));
    assert!(copy.contains("value=\"o1-*, *-pro\"") && copy.contains("value=\"cost=a=1, team=search\""), "{copy}");
    let wrong = op.save(&admin.gateway, &format!("/keys/{id}"), &[("rpm", ""), ("tags", "team")]);
    assert!(wrong.status == 422 && wrong.text().contains("Enter tags as name=value"), "{}", wrong.text());
    location(&op.save(&admin.gateway, &format!("/keys/{id}"), &[("rpm", "")]));
    assert_eq!((&row()["models_deny"], &row()["protocols"], &row()["tags"]), (&json!([]), &json!([]), &json!({})));
    // The holder of the key sees them without an account.
    let fields =
        json!({"name": "held", "protocols": ["anthropic"], "tags": {"team": "search"}, "price_limit": {"mode": "priced_only"}});
    let held = admin.post("/admin/v1/keys", &fields);
    let mut visitor = Person::default();
    visitor.page(&admin.gateway, "/key");
    let checked = visitor.post(&admin.gateway, "/key", &[("key", held["key"].as_str().unwrap())]).text();
    for part in ["<dd>Messages</dd>", "team=search", "Price limit"] {
        assert!(checked.contains(part), "no {part} in {checked}");
    }
}

#[test]
fn key_form_sets_the_price_limit() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    let mut op = signed_in(&admin, "op");
    let fields =
        [("name", "ci"), ("price_limit", "ceiling"), ("limit_on", "cost"), ("max_input", "2"), ("signatures_in_ids", "true")];
    let id = id(&op.post(&admin.gateway, "/keys/new", &fields).text());
    let key = admin.get(&format!("/admin/v1/keys/{id}"));
    assert_eq!((&key["price_limit"]["mode"], &key["price_limit"]["max_input"]), (&json!("ceiling"), &json!("2.00")));
    assert_eq!(key["signatures_in_ids"], json!(true));
    let page = op.page(&admin.gateway, &format!("/keys/{id}"));
    assert!(page.contains("value=\"ceiling\" selected") && page.contains("value=\"2.00\""), "{page}");
    let wrong = op.post(&admin.gateway, "/keys/new", &[("name", "x"), ("price_limit", "ceiling"), ("max_input", "much")]);
    assert!(wrong.status == 422 && wrong.text().contains("Enter an amount in USD"), "{}", wrong.text());
}
