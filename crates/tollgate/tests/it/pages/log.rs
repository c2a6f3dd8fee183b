//! The usage log: rows and sums of a filter, a record with its attempts, and the data hidden from members.

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

/// A gateway with a request of a member's key, and its id.
fn with_request() -> (Admin, String) {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    make_member(&admin, "eve", "member");
    make_member(&admin, "op", "operator");
    let key = admin.post("/admin/v1/keys", &json!({"name": "ci", "member": "ann"}))["key"].as_str().unwrap().to_owned();
    let chat = Request::post("/v1/chat/completions", &support::chat("echo")).bearer(&key);
    let answer = admin.gateway.send(&chat.header("x-tollgate-tags", "project=web"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let record = answer.header("x-request-id").unwrap().to_owned();
    let path = format!("/admin/v1/usage/{record}");
    wait_for("the request is booked", Duration::from_mins(1), || admin.call("GET", &path, None).status == 200);
    (admin, record)
}

#[test]
fn filter_applies_to_rows_sums_and_export() {
    let (admin, record) = with_request();
    let mut op = signed_in(&admin, "op");
    let link = format!("/log/{record}");
    for (query, is_found) in [
        ("", true),
        ("?range=15m&model=echo&key=ci&status=2xx&outcome=completed&tags=project%3Dweb&member=ann", true),
        ("?model=other", false),
        ("?outcome=refused", false),
        ("?outcome=not_completed", false),
        ("?account=echo/echo&tried_channel=echo&tried_account=echo/echo", true),
        ("?tried_channel=echo&tried_failed=true", false),
        ("?unknown_model=echo", false),
        ("?status=4xx", false),
        ("?since=2001-01-01T00:00:00Z&until=2001-01-02T00:00:00Z", false),
    ] {
        let page = op.page(&admin.gateway, &format!("/log{query}"));
        assert_eq!(page.contains(&link), is_found, "{query}: {page}");
    }
    // The link of a bar's part narrows a filter of several outcomes, and the export has all of them.
    let page = op.page(&admin.gateway, "/log?outcome=not_completed&outcome=completed");
    assert!(page.contains(&link) && page.contains("format=csv&#38;outcome=completed&#38;"), "{page}");
    let page = op.page(&admin.gateway, "/log?outcome=not_completed&tried_channel=echo");
    assert!(page.contains("outcome=caller_left%2Crefused%2Cupstream_broke%2Cgateway_stopped"), "{page}");
    assert!(page.contains("<span class=\"badge line\">Tried channel: echo</span>"), "{page}");
    assert!(page.contains("<option value=\"not_completed\" selected>Not completed</option>"), "{page}");
    let page = op.page(&admin.gateway, "/log?model=echo");
    assert!(
        page.contains("name=\"model\" value=\"echo\"") && page.contains("/admin/v1/usage/export?format=csv&#38;model=echo"),
        "{page}"
    );
    let part = admin.gateway.send(&op.with_cookies(Request::get("/log?model=echo")).header("hx-request", "true")).text();
    assert!(part.starts_with("<div class=\"stack\" id=\"rows\"") && part.contains(&link) && !part.contains("<html"), "{part}");
    for (query, says) in [
        ("status=teapot", "Status: Enter a status such as 429"),
        ("member=unknown", "Member: There is none of this name."),
        ("since=yesterday", "From: Enter a time such as"),
        ("since=2026-11-02T00:00&until=2026-11-01T00:00", "“From” is after “Until”"),
        ("status=abc&min_tokens=x&tags=y&member=unknown", "Member: There is none of this name."),
        ("account=echo", "Account: Enter channel/account, or the id of an account."),
        ("tried_failed=true", "Result of the attempt: Enter the tried channel or account, too."),
        ("outcome=refused,good", "Outcome: Choose one from the list."),
        ("tag=x", "Did you mean “tags”?"),
        ("after=x", "has a value that cannot be."),
    ] {
        let page = op.page(&admin.gateway, &format!("/log?{query}"));
        assert!(page.contains(says), "{query}: {page}");
    }
    let export = admin.gateway.send(&op.with_cookies(Request::get("/admin/v1/usage/export?format=csv&model=echo")));
    assert!(export.status == 200 && export.text().contains(&record), "{}", export.text());
}

#[test]
fn attempts_of_a_record_are_shown_to_operators_only() {
    let (admin, record) = with_request();
    let path = format!("/log/{record}");
    let mut op = signed_in(&admin, "op");
    let page = op.page(&admin.gateway, &path);
    assert!(page.contains("Attempts") && page.contains("project=web") && page.contains(&record), "{page}");
    let part = admin.gateway.send(&op.with_cookies(Request::get(&path)).header("hx-request", "true")).text();
    assert!(part.trim_start().starts_with("<section class=\"drawer\""), "{part}");
    let mut ann = signed_in(&admin, "ann");
    let page = ann.page(&admin.gateway, &path);
    assert!(page.contains(&record) && !page.contains("Attempts") && !page.contains("Selection"), "{page}");
    let list = ann.page(&admin.gateway, "/log?channel=echo");
    assert!(list.contains(&path) && !list.contains("name=\"channel\"") && !list.contains("name=\"member\""), "{list}");
    assert!(!list.contains("name=\"tried_channel\"") && !list.contains("name=\"account\""), "{list}");
    let mut eve = signed_in(&admin, "eve");
    assert!(!eve.page(&admin.gateway, "/log").contains(&path));
    assert_eq!(eve.get(&admin.gateway, &path).status, 404);
    assert_eq!(eve.get(&admin.gateway, "/log/req_1").status, 404);
    assert_eq!(Person::default().get(&admin.gateway, "/log").status, 303);
    let mut chinese = Person { language: Some("zh-CN"), ..ann };
    assert!(chinese.page(&admin.gateway, &path).contains("使用日志"));
}

#[test]
fn record_shows_the_cost_of_each_attempt_line_by_line() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut boss = owner(&admin);
    make(&admin, &mut boss, &upstream, "main");
    let serves = json!({"serves": [{"model": "m", "upstream": "m", "cost": {"input": "2", "output": "8"}}]});
    admin.patch("/admin/v1/channels/main", &serves);
    let key = admin.post("/admin/v1/keys", &json!({"name": "ci", "member": "boss"}))["key"].as_str().unwrap().to_owned();
    let mut record = String::new();
    wait_for("requests go to the channel", Duration::from_secs(30), || {
        let answer = admin.gateway.send(&Request::post("/v1/chat/completions", &support::chat("m")).bearer(&key));
        record = answer.header("x-request-id").unwrap_or_default().to_owned();
        answer.status == 200
    });
    let path = format!("/admin/v1/usage/{record}");
    wait_for("the request is booked", Duration::from_mins(1), || admin.call("GET", &path, None).status == 200);
    let cost = admin.get(&path)["attempts"][0]["cost"].as_str().unwrap().to_owned();
    assert_ne!(cost, "0", "the attempt has a cost");
    let page = boss.page(&admin.gateway, &format!("/log/{record}"));
    let (_, costs) = page.split_once("Cost of each attempt").unwrap_or_else(|| panic!("{page}"));
    assert!(costs.contains("1 main") && costs.contains("$2.00") && costs.contains("$8.00"), "{costs}");
}

#[test]
fn filters_suggest_the_names_that_their_reader_sees() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    make_member(&admin, "op", "operator");
    for member in ["ann", "op"] {
        admin.post("/admin/v1/keys", &json!({"name": format!("of-{member}"), "member": member}));
    }
    admin.post("/admin/v1/groups", &json!({"name": "hidden", "channels": ["echo"], "visibility": "private"}));
    let list = |page: &str, id: &str| {
        let (_, list) = page.split_once(&format!("<datalist id=\"{id}\">"))?;
        Some(list.split("</datalist>").next().unwrap().to_owned())
    };
    let mut op = signed_in(&admin, "op");
    let page = op.page(&admin.gateway, "/log");
    for (field, id, value) in [
        ("model", "known-models", "echo"),
        ("key", "known-keys", "of-ann"),
        ("group", "known-groups", "hidden"),
        ("member", "known-members", "ann"),
        ("tried_channel", "known-channels", "echo"),
        ("account", "known-accounts", "echo/echo"),
    ] {
        let named = format!("name=\"{field}\"");
        let input = page.split("<input").find(|tag| tag.contains(&named)).unwrap_or_else(|| panic!("{field}: {page}"));
        assert!(input.split('>').next().unwrap().contains(&format!("list=\"{id}\"")), "{field}: {input}");
        let known = list(&page, id).unwrap_or_else(|| panic!("{id}: {page}"));
        assert!(known.contains(&format!("<option value=\"{value}\">")), "{id}: {known}");
    }
    let mut ann = signed_in(&admin, "ann");
    let page = ann.page(&admin.gateway, "/log");
    assert!(list(&page, "known-models").unwrap().contains("\"echo\""), "{page}");
    let (keys, groups) = (list(&page, "known-keys").unwrap(), list(&page, "known-groups").unwrap());
    assert!(keys.contains("\"of-ann\"") && !keys.contains("\"of-op\""), "{keys}");
    assert!(groups.contains("\"default\"") && !groups.contains("hidden"), "{groups}");
    for id in ["known-members", "known-channels", "known-accounts"] {
        assert_eq!(list(&page, id), None, "{id}");
    }
    let keys = op.page(&admin.gateway, "/keys");
    assert!(list(&keys, "known-members").unwrap().contains("\"ann\"") && list(&keys, "known-groups").is_some(), "{keys}");
    let own = ann.page(&admin.gateway, "/keys");
    assert!(own.contains("list=\"known-groups\"") && list(&own, "known-members").is_none(), "{own}");
    assert!(op.page(&admin.gateway, "/members").contains("list=\"known-groups\""));
}

#[test]
fn views_are_kept_for_a_member_and_shared_among_operators() {
    let admin = Admin::echo();
    for (name, role) in [("ann", "member"), ("op", "operator"), ("root", "admin")] {
        make_member(&admin, name, role);
    }
    let (mut ann, mut op, mut root) = (signed_in(&admin, "ann"), signed_in(&admin, "op"), signed_in(&admin, "root"));
    let save = |person: &mut Person, name: &str, query: &str, shared: bool| {
        let shared: &[(&str, &str)] = if shared { &[("shared", "true")] } else { &[] };
        person.post(&admin.gateway, "/log/views", &[&[("name", name), ("query", query)], shared].concat())
    };
    // Unknown parameters are not stored with the view.
    let saved = save(&mut op, "Refused <b>", "?outcome=refused&range=7d&next=//example.com&after=x", true);
    assert_eq!(location(&saved), "/log?range=7d&outcome=refused");
    save(&mut op, "mine", "model=echo", false);
    save(&mut ann, "own", "model=echo&channel=echo", false);
    let page = root.page(&admin.gateway, "/log");
    assert!(page.contains("/log?range=7d&#38;outcome=refused\">Refused &#60;b&#62;</a><span class=\"dim\">op</span>"), "{page}");
    assert!(!page.contains(">mine</a>") && !page.contains(">own</a>"), "{page}");
    let page = op.page(&admin.gateway, "/log");
    assert!(page.contains(">mine</a>") && page.contains("<span class=\"dim\">shared</span>"), "{page}");
    let page = ann.page(&admin.gateway, "/log");
    assert!(page.contains("/log?model=echo\">own</a>") && !page.contains("Refused &#60;b"), "members filter by no channel: {page}");
    assert_eq!(save(&mut ann, "ours", "model=echo", true).status, 403);
    assert_eq!(root.post(&admin.gateway, "/log/views/remove", &[("name", "mine")]).status, 404);
    let removed = op.post(&admin.gateway, "/log/views/remove", &[("name", "Refused <b>"), ("query", "range=1h")]);
    assert_eq!(location(&removed), "/log?range=1h");
    assert!(!root.page(&admin.gateway, "/log").contains("Refused &#60;b"));
    for number in 0..19 {
        assert_eq!(save(&mut op, &format!("view {number}"), "", false).status, 303, "{number}");
    }
    let full = save(&mut op, "one more", "", false);
    assert!(full.status == 409 && full.text().contains("There are 20 saved views already."), "{}", full.text());
    assert_eq!(save(&mut op, "mine", "range=1h", false).status, 303, "one of the same name is replaced");
}

#[test]
fn views_of_lists_are_kept_for_their_page() {
    let admin = Admin::echo();
    for (name, role) in [("ann", "member"), ("op", "operator"), ("root", "admin")] {
        make_member(&admin, name, role);
    }
    let (mut ann, mut op, mut root) = (signed_in(&admin, "ann"), signed_in(&admin, "op"), signed_in(&admin, "root"));
    for (page, form, query, kept) in [
        ("/log", "/log/views", "?outcome=refused&x=1", "outcome=refused"),
        ("/keys", "/keys/views", "?state=expired&sort=spent&x=1&after=y", "state=expired&#38;sort=spent"),
        ("/members", "/member-views", "?role=operator&sort=name&x=1", "role=operator&#38;sort=name"),
        ("/channels", "/channel-views", "?state=off&sort=cost&x=1", "state=off&#38;sort=cost"),
    ] {
        // On another page, the same name belongs to another view.
        let saved = op.post(&admin.gateway, form, &[("name", "mine"), ("query", query), ("shared", "true")]);
        assert_eq!(location(&saved), format!("{page}?{}", kept.replace("&#38;", "&")));
        let link = format!("{page}?{kept}\">mine</a>");
        assert!(op.page(&admin.gateway, page).contains(&link), "{page}");
        assert!(root.page(&admin.gateway, page).contains(&format!("{link}<span class=\"dim\">op</span>")), "{page}");
    }
    assert!(op.page(&admin.gateway, "/keys?state=expired&page=2").contains("name=\"query\" value=\"state=expired\""));
    ann.post(&admin.gateway, "/keys/views", &[("name", "own"), ("query", "member=op&state=active")]);
    assert!(ann.page(&admin.gateway, "/keys").contains("/keys?state=active\">own</a>"), "members filter by no member");
    assert_eq!(ann.post(&admin.gateway, "/channel-views", &[("name", "own"), ("query", "")]).status, 404);
    let removed = op.post(&admin.gateway, "/keys/views/remove", &[("name", "mine"), ("query", "sort=name")]);
    assert_eq!(location(&removed), "/keys?sort=name");
    assert!(!op.page(&admin.gateway, "/keys").contains(">mine</a>") && op.page(&admin.gateway, "/members").contains(">mine</a>"));
    assert_eq!(op.post(&admin.gateway, "/keys/views/remove", &[("name", "mine")]).status, 404);
}

#[test]
fn request_id_opens_its_record_beside_the_list() {
    let (admin, record) = with_request();
    let (mut op, mut ann, mut eve) = (signed_in(&admin, "op"), signed_in(&admin, "ann"), signed_in(&admin, "eve"));
    let search =
        |person: &mut Person, id: &str| person.get(&admin.gateway, &format!("/log?request={id}&list=model%3Decho%26range%3D7d"));
    for person in [&mut op, &mut ann] {
        let address = format!("/log?range=7d&model=echo&open={record}");
        assert_eq!(location(&search(person, &record)), address);
        let page = person.page(&admin.gateway, &address);
        assert!(page.contains(&format!("data-open=\"{record}\"")), "{page}");
    }
    for (id, says) in
        [(record.as_str(), "There is no request"), ("req_unknown", "There is no request"), ("abc", "begins with req_")]
    {
        let answer = search(&mut eve, id);
        let page = answer.text();
        assert!(answer.status == 200 && page.contains(says) && page.contains(&format!("value=\"{id}\"")), "{id}: {page}");
        assert!(!page.contains("is no filter of this page"), "{page}");
    }
}

#[test]
fn empty_log_has_a_request_to_copy() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    let mut op = signed_in(&admin, "op");
    let page = op.page(&admin.gateway, "/log");
    assert!(page.contains("data-copy=\"curl &#39;http://127.0.0.1:") && page.contains("/v1/chat/completions"), "{page}");
    assert!(!op.page(&admin.gateway, "/log?model=other").contains("data-copy=\"curl"), "a filter that matches nothing");
}

#[test]
fn stored_contents_are_read_as_messages_and_removed() {
    let admin = Admin::echo();
    for (name, role) in [("ann", "member"), ("eve", "member"), ("op", "operator"), ("mira", "admin")] {
        make_member(&admin, name, role);
    }
    assert_eq!(admin.call("PUT", "/admin/v1/settings/contents.store", Some(&json!({"value": "true"}))).status, 200);
    admin.patch("/admin/v1/groups/default", &json!({"self_service": true}));
    let mut ann = signed_in(&admin, "ann");
    let made = ann.post(&admin.gateway, "/keys/new", &[("name", "mine"), ("log_contents", "true")]);
    assert_eq!(made.status, 200, "{}", made.text());
    let key = made.text().split_once("data-copy=\"sk-").map(|(_, rest)| format!("sk-{}", rest.split('"').next().unwrap())).unwrap();
    let body = json!({"model": "echo", "messages": [{"role": "system", "content": "Be <b>brief</b>."}, {"role": "user", "content": "Hi 你好"}]});
    let answer = admin.gateway.send(&Request::post("/v1/chat/completions", &body).bearer(&key));
    let record = answer.header("x-request-id").unwrap().to_owned();
    let path = format!("/log/{record}/contents");
    wait_for("the contents are stored", Duration::from_mins(1), || ann.get(&admin.gateway, &path).status == 200);
    assert!(ann.page(&admin.gateway, &format!("/log/{record}")).contains(&path));
    let page = ann.page(&admin.gateway, &path);
    assert!(page.contains("Be &#60;b&#62;brief&#60;/b&#62;.") && page.contains("<p class=\"message\">Hi 你好</p>"), "{page}");
    assert!(page.contains("Copy as curl") && page.contains("data-continue=") && !page.contains("audit log"), "{page}");
    // Others do not see whether contents exist.
    for other in ["eve", "op"] {
        let mut other = signed_in(&admin, other);
        assert_eq!(other.get(&admin.gateway, &path).status, 404);
        assert_eq!(other.post(&admin.gateway, &format!("{path}/remove"), &[]).status, 404);
    }
    assert!(!signed_in(&admin, "op").page(&admin.gateway, &format!("/log/{record}")).contains(&path));
    let mut mira = signed_in(&admin, "mira");
    assert!(mira.page(&admin.gateway, &path).contains("noted in the audit log"));
    assert!(mira.page(&admin.gateway, "/audit?kind=contents").contains(&record));
    assert!(mira.page(&admin.gateway, "/keys").contains("mine"));

    let bare = ann.post(&admin.gateway, &format!("{path}/remove"), &[]);
    assert!(bare.status == 422 && bare.text().contains("tick the box to confirm"), "{}", bare.text());
    let removed = ann.post(&admin.gateway, &format!("{path}/remove"), &[("confirmed", "true")]);
    assert_eq!(location(&removed), format!("/log/{record}"));
    assert_eq!(ann.get(&admin.gateway, &path).status, 404);
    assert!(!ann.page(&admin.gateway, &format!("/log/{record}")).contains(&path));
}

#[test]
fn part_of_a_page_that_cannot_be_shown_is_replaced_by_the_error() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    let op = signed_in(&admin, "op");
    let part = |request: Request| admin.gateway.send(&request.header("hx-request", "true"));
    // The session has ended: the sign-in returns to the page.
    let ended = part(Request::get("/log?model=echo"));
    assert_eq!((ended.status, ended.header("hx-redirect")), (401, Some("/sign-in?to=%2Flog%3Fmodel%3Decho")), "{}", ended.text());
    assert_eq!((ended.header("location"), ended.text().as_str()), (None, ""));
    let missing = part(op.with_cookies(Request::get("/log/req_unknown")));
    assert_eq!((missing.status, missing.header("hx-redirect")), (404, None));
    let (said, id) = (missing.text(), missing.header("x-request-id").unwrap());
    assert!(said.contains("data-part-failed") && said.contains(id) && !said.contains("<html"), "{said}");
    assert!(said.contains("href=\"/log/req_unknown\" data-part-again"), "the page itself, without a script: {said}");
    let whole = admin.gateway.send(&Request::get("/log?model=echo").header("accept", "text/html"));
    assert_eq!((whole.status, whole.header("hx-redirect")), (303, None));
}
