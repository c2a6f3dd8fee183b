//! The page of a key with its usage and its test, the menu of a row, and lists of several pages.

use std::time::Duration;

use serde_json::json;
use tollgate_testkit::{Request, wait_for};

use super::{attacks::signed_in, location};
use crate::{admin::Admin, identity::make_member, support};

#[test]
fn page_of_a_key_shows_its_use_and_a_test() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    make_member(&admin, "op", "operator");
    let made = admin.post("/admin/v1/keys", &json!({"name": "ci", "member": "ann"}));
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    let path = format!("/keys/{id}");
    let (mut ann, mut op) = (signed_in(&admin, "ann"), signed_in(&admin, "op"));
    let page = op.page(&admin.gateway, &path);
    assert!(page.contains("since it was made") && !page.contains("Requests by outcome"), "nothing is drawn yet: {page}");
    assert!(page.contains("data-key-test") && page.contains("data-address=\"/v1/chat/completions\""), "{page}");
    assert!(!page.contains(key), "{page}");
    for body in [support::chat("echo"), support::chat("unknown")] {
        admin.gateway.send(&Request::post("/v1/chat/completions", &body).bearer(key));
    }
    let shown = "<span class=\"k\">Requests</span><span class=\"v\">2</span>";
    wait_for("both requests are booked", Duration::from_mins(1), || ann.page(&admin.gateway, &path).contains(shown));
    let page = ann.page(&admin.gateway, &path);
    let links = [format!("/log?range=30d&#38;key={id}\""), format!("/log?range=30d&#38;key={id}&#38;outcome=not_completed\"")];
    assert!(links.iter().all(|link| page.contains(link)), "{page}");
    assert!(page.contains("50.00 %") && page.contains("Requests by outcome") && !page.contains("Cost"), "{page}");
    assert!(op.page(&admin.gateway, &path).contains("Cost <span") || op.page(&admin.gateway, &path).contains("Cost $"), "{page}");
    let list = ann.page(&admin.gateway, &format!("/log?range=30d&key={id}&outcome=not_completed"));
    assert_eq!(list.matches("data-record").count(), 1, "{list}");
}

#[test]
fn menu_of_a_row_acts_and_returns_to_the_list() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    make_member(&admin, "op", "operator");
    let id = admin.post("/admin/v1/keys", &json!({"name": "ci", "member": "ann"}))["id"].as_str().unwrap().to_owned();
    let (off, on) = (format!("/keys/{id}/disable"), format!("/keys/{id}/enable"));
    let mut op = signed_in(&admin, "op");
    let list = op.page(&admin.gateway, "/keys?search=ci");
    for part in [&off, &format!("/keys/{id}#use"), &format!("/keys/new?from={id}"), &format!("/keys/{id}#replace")] {
        assert!(list.contains(part.as_str()), "no {part} in {list}");
    }
    assert!(list.contains("name=\"to\" value=\"/keys?search=ci\"") && !list.contains(&on), "{list}");
    let answer = op.post(&admin.gateway, &off, &[("to", "/keys?search=ci")]);
    assert_eq!(location(&answer), "/keys?search=ci");
    let list = op.page(&admin.gateway, "/keys?search=ci");
    assert!(list.contains(&on) && !list.contains(&off) && list.contains("The key is off."), "{list}");
    assert!(!signed_in(&admin, "ann").page(&admin.gateway, "/keys").contains(&on), "operators turn keys on");
    for elsewhere in ["", "//example.com/keys", "/log", "/keys/x", "https://example.com/keys"] {
        assert_eq!(location(&op.post(&admin.gateway, &on, &[("to", elsewhere)])), format!("/keys/{id}"), "{elsewhere}");
        op.post(&admin.gateway, &off, &[]);
    }
}

/// The address of the link with this text in the footer of a list.
fn link<'a>(page: &'a str, text: &str) -> Option<&'a str> {
    let (_, footer) = page.split_once("<nav class=\"pager\"")?;
    let (before, _) = footer.split_once("</nav>")?.0.split_once(text)?;
    before.rsplit_once("<a class=\"btn\" href=\"").and_then(|(_, rest)| rest.split('"').next())
}

#[test]
fn lists_of_several_pages_lead_back_page_by_page() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    for number in 0..101 {
        admin.post("/admin/v1/keys", &json!({"name": format!("many-{number:03}"), "member": "op"}));
    }
    let mut op = signed_in(&admin, "op");
    let mut page = |path: &str| op.page(&admin.gateway, &path.replace("&#38;", "&"));
    let first = page("/keys?search=many&sort=name");
    assert!(link(&first, "Previous page").is_none() && link(&first, "First page").is_none(), "{first}");
    let second_path = link(&first, "More").unwrap();
    let second = page(second_path);
    assert!(second.contains("many-050") && !second.contains("many-049"), "{second}");
    assert_eq!(link(&second, "Previous page"), Some("/keys?search=many&#38;sort=name"));
    let third = page(link(&second, "More").unwrap());
    assert!(third.contains("many-100") && link(&third, "More").is_none(), "{third}");
    assert_eq!(link(&third, "Previous page"), Some(second_path));
    assert_eq!(link(&third, "First page"), Some("/keys?search=many&#38;sort=name"));
}
