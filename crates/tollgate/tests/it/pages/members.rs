//! Members, invites, ledger and audit on their pages: admins change them, operators read members, and others see
//! neither.

use std::time::Duration;

use serde_json::json;
use tollgate_testkit::{Request, wait_for};

use super::{Person, attacks::signed_in, hidden, location};
use crate::{
    admin::Admin,
    identity::{PASSWORD, enable_codes, make_member, sign_in},
    support,
};

const FORM: [(&str, &str); 10] = [
    ("role", "member"),
    ("status", "active"),
    ("groups", ""),
    ("default_group", ""),
    ("billing", "prepaid"),
    ("rpm", ""),
    ("tpm", ""),
    ("concurrency", ""),
    ("budget_month_block", "5"),
    ("budget_day_alert", "$1"),
];

/// Makes a link for ann's password, which asks for the own one, and uses it.
fn check_password_link(admin: &Admin, root: &mut Person, path: &str) {
    let make_link = format!("{path}/password-link");
    assert!(root.page(&admin.gateway, path).contains("name=\"link_password\""));
    let nothing: &[(&str, &str)] = &[];
    for wrong in [nothing, &[("link_password", "")], &[("link_password", "a wrong one")]] {
        let refused = root.post(&admin.gateway, &make_link, wrong);
        let text = refused.text();
        assert!(refused.status == 422 && text.contains("That is not your current password."), "{text}");
        assert!(!text.contains("/reset-password?token="), "{text}");
    }
    let page = root.post(&admin.gateway, &make_link, &[("link_password", PASSWORD)]).text();
    let (_, link) = page.split_once("/reset-password?token=").unwrap_or_else(|| panic!("{page}"));
    let token = link.split('"').next().unwrap().split('<').next().unwrap().to_owned();
    let mut ann = Person::default();
    let sent = [("token", token.as_str()), ("new_password", PASSWORD), ("new_password_again", PASSWORD)];
    ann.post(&admin.gateway, "/reset-password", &sent);
    assert!(signed_in(admin, "ann").has_session());
}

#[test]
fn member_is_topped_up_once_and_gets_a_password_link() {
    let admin = Admin::echo();
    make_member(&admin, "root", "admin");
    let mut root = signed_in(&admin, "root");
    let path = location(&root.post(&admin.gateway, "/members/new", &[&FORM[..], &[("name", "ann")]].concat())).to_owned();
    let member = admin.get("/admin/v1/members/ann");
    let budgets = json!([
        {"amount": "5.00", "window": "month", "action": "block"}, {"amount": "1.00", "window": "day", "action": "alert"}
    ]);
    assert_eq!((&member["billing"], &member["budget"]), (&json!("prepaid"), &budgets));
    let page = root.page(&admin.gateway, &path);
    assert!(page.contains("value=\"5.00\"") && page.contains("value=\"1.00\""), "{page}");
    let ledger = format!("{path}/ledger");
    let key = hidden(&page, &ledger, "money_key");
    let posting = [("money_kind", "top_up"), ("amount", "$12.50"), ("note", "invoice 7"), ("money_key", key.as_str())];
    for _ in 0..2 {
        assert_eq!(location(&root.post(&admin.gateway, &ledger, &posting)), path);
    }
    let balances = admin.get("/admin/v1/ledger/balances");
    assert!(balances.to_string().contains("\"12.50\""), "a form that is sent twice is posted once: {balances}");
    let other = [("money_kind", "top_up"), ("amount", "20"), ("note", "invoice 7"), ("money_key", key.as_str())];
    let refused = root.post(&admin.gateway, &ledger, &other);
    assert!(refused.status == 422 && refused.text().contains("This form was posted already"), "{}", refused.text());
    let page = root.page(&admin.gateway, &path);
    assert!(page.contains("$12.50") && page.contains("invoice 7"), "{page}");
    for (amount, note) in [("much", ""), ("0", ""), ("-5", "")] {
        let key = hidden(&page, &ledger, "money_key");
        let sent = [("money_kind", "top_up"), ("amount", amount), ("note", note), ("money_key", key.as_str())];
        let refused = root.post(&admin.gateway, &ledger, &sent);
        let text = refused.text();
        assert!(refused.status == 422 && text.contains("Enter an amount in USD that is not 0."), "{amount}: {text}");
        assert!(text.contains(&format!("value=\"{amount}\"")) && text.contains(&key), "{text}");
    }
    let correction = hidden(&page, &ledger, "money_key");
    let sent = [("money_kind", "adjust"), ("amount", "-2.5"), ("note", "refund"), ("money_key", correction.as_str())];
    location(&root.post(&admin.gateway, &ledger, &sent));
    let entries = root.page(&admin.gateway, "/ledger?member=ann");
    assert!(entries.contains("−$2.50") && entries.contains("+$12.50") && entries.contains("$10.00"), "{entries}");
    assert!(!root.page(&admin.gateway, "/ledger?member=ann&kind=adjust").contains("+$12.50"));
    assert!(root.page(&admin.gateway, "/ledger?member=unknown").contains("There is no such member."));

    check_password_link(&admin, &mut root, &path);
    location(&root.post(&admin.gateway, &format!("{path}/login"), &[("email", "ann@example.com")]));
    assert!(root.page(&admin.gateway, &path).contains("value=\"ann@example.com\""));
    let revision = hidden(&root.page(&admin.gateway, &path), &path, "revision");
    let suspended = [&FORM[..1], &[("status", "suspended"), ("revision", &revision)], &FORM[2..]].concat();
    assert_eq!(location(&root.post(&admin.gateway, &path, &suspended)), path);
    assert_eq!(admin.get("/admin/v1/members/ann")["status"], "suspended");
    let stale = root.post(&admin.gateway, &path, &suspended);
    assert!(stale.status == 422 && stale.text().contains("It was changed since this page"), "{}", stale.text());

    let own = format!("/members/{}\"", admin.get("/admin/v1/members/root")["id"].as_str().unwrap());
    for (part, is_own_found) in [("AN", false), ("@example", false), ("Oo", true)] {
        let found = root.page(&admin.gateway, &format!("/members?search={part}"));
        assert_eq!((found.contains(&path), found.contains(&own)), (!is_own_found, is_own_found), "{part}: {found}");
    }
    make_member(&admin, "op", "operator");
    let found = signed_in(&admin, "op").page(&admin.gateway, "/members?search=@example");
    assert!(found.contains("No member matches."), "addresses are for admins: {found}");

    let audit = root.page(&admin.gateway, "/audit?name=ann");
    assert!(
        audit.contains("<td title=\"status\">State</td>") && audit.contains("Suspended") && audit.contains("Topped up"),
        "{audit}"
    );
    let wrong = root.post(&admin.gateway, &format!("{path}/remove"), &[("typed_name", "eve")]);
    assert_eq!(wrong.status, 422);
    assert_eq!(location(&root.post(&admin.gateway, &format!("{path}/remove"), &[("typed_name", "ann")])), "/members");
    assert_eq!(root.get(&admin.gateway, &path).status, 404);
}

#[test]
fn members_are_filtered_and_sorted() {
    let admin = Admin::echo();
    for (name, role) in [("root", "admin"), ("op", "operator"), ("ann", "member"), ("Zoe", "member")] {
        make_member(&admin, name, role);
    }
    admin.patch("/admin/v1/members/op", &json!({"groups": ["default"]}));
    admin.patch("/admin/v1/members/ann", &json!({"status": "suspended", "default_group": "default"}));
    let key = admin.post("/admin/v1/keys", &json!({"name": "hers", "member": "Zoe"}))["key"].as_str().unwrap().to_owned();
    let chat = Request::post("/v1/chat/completions", &support::chat("echo")).bearer(&key);
    wait_for("the key is known", Duration::from_secs(30), || admin.gateway.send(&chat).status == 200);
    let all = |query: &str| admin.get(&format!("/admin/v1/members?{query}"));
    wait_for("the request is booked", Duration::from_mins(1), || all("name=Zoe&use=true")["items"][0]["last_used_at"].is_string());
    let names = |query: &str| -> Vec<String> {
        let found = all(query);
        let names = found["items"].as_array().unwrap().iter().map(|member| member["name"].as_str().unwrap().to_owned());
        names.filter(|name| name != "owner").collect()
    };
    for (query, expected) in [
        ("sort=created", vec!["root", "op", "ann", "Zoe"]),
        ("sort=newest", vec!["Zoe", "ann", "op", "root"]),
        ("sort=name", vec!["ann", "op", "root", "Zoe"]),
        ("sort=spent", vec!["Zoe", "root", "op", "ann"]),
        ("sort=last_used", vec!["Zoe", "root", "op", "ann"]),
        ("role=operator", vec!["op"]),
        ("status=suspended", vec!["ann"]),
        ("group=default", vec!["op", "ann"]),
        ("group=default&role=member&sort=name", vec!["ann"]),
        ("group=unknown", vec![]),
        ("search=O&sort=name", vec!["op", "root", "Zoe"]),
    ] {
        assert_eq!(names(query), expected, "{query}");
    }
    let first = all("sort=name&limit=2");
    assert_eq!(names(&format!("sort=name&limit=2&after={}", first["next"].as_str().unwrap())), ["root"], "owner is before it");
    let op = &all("name=op&use=true")["items"][0];
    assert!(op["last_used_at"].is_null() && first["items"][0].get("last_used_at").is_none(), "{op} {first}");
    let gone = admin.call("GET", "/admin/v1/members?role=member&after=mbr_00000000000000000000000000", None);
    assert_eq!(gone.status, 400, "{}", gone.text());

    let mut reader = signed_in(&admin, "op");
    let page = reader.page(&admin.gateway, "/members?sort=spent&role=member");
    assert!(page.find(">Zoe</a>").unwrap() < page.find(">ann</a>").unwrap() && !page.contains(">root</a>"), "{page}");
    assert!(page.contains("aria-sort=\"descending\"") && page.contains("role=member&#38;sort=name"), "{page}");
    assert!(page.contains("<option value=\"member\" selected>"), "{page}");
    assert!(reader.page(&admin.gateway, "/members?group=unknown").contains("No member matches."));
}

#[test]
fn ledger_is_read_and_exported_by_period() {
    let admin = Admin::echo();
    make_member(&admin, "root", "admin");
    let mut root = signed_in(&admin, "root");
    admin.once("/admin/v1/ledger/top-ups", "invoice-8", &json!({"member": "owner", "amount": "8", "note": "invoice 8"}));
    let old = "since=2020-01-01T00:00&until=2020-01-02T00:00";
    for (query, is_found) in [("", true), ("?range=24h", true), ("?range=month&member=owner", true), (&format!("?{old}"), false)] {
        let page = root.page(&admin.gateway, &format!("/ledger{query}"));
        assert_eq!((page.contains("invoice 8"), page.contains("No entry matches.")), (is_found, !is_found), "{query}: {page}");
        let (_, link) = page.split_once("/admin/v1/ledger/export?").unwrap();
        let link = link.split('"').next().unwrap().replace("&#38;", "&");
        assert_eq!(link.contains("since="), !query.is_empty(), "{link}");
        let file = root.get(&admin.gateway, &format!("/admin/v1/ledger/export?{link}")).text();
        assert!(file.starts_with("position,at,") && file.contains("invoice 8") == is_found, "{query}: {file}");
    }
    let page = root.page(&admin.gateway, "/ledger?range=7d&kind=top_up");
    assert!(page.contains("name=\"range\" value=\"7d\"") && page.contains("kind=top_up&#38;range=24h"), "{page}");
    let items = |query: &str| admin.get(&format!("/admin/v1/ledger?{query}"))["items"].as_array().unwrap().len();
    let times = ["since=2020-01-01T00:00:00Z", "until=2020-01-01T00:00:00Z", "since=2100-01-01T00:00:00Z"];
    assert_eq!(times.map(items), [1, 0, 0]);
}

#[test]
fn admin_ends_sessions_of_a_member() {
    let admin = Admin::echo();
    make_member(&admin, "root", "admin");
    make_member(&admin, "ann", "member");
    make_member(&admin, "op", "operator");
    let (mut root, mut op, mut ann, mut second) =
        (signed_in(&admin, "root"), signed_in(&admin, "op"), signed_in(&admin, "ann"), signed_in(&admin, "ann"));
    let path = format!("/members/{}", admin.get("/admin/v1/members/ann")["id"].as_str().unwrap());
    let ends = |page: &str| -> Vec<String> {
        let action = format!("action=\"{path}/sessions/");
        let forms = page.split(&action).skip(1);
        forms.map(|form| format!("{path}/sessions/{}", form.split('"').next().unwrap())).collect()
    };
    let page = root.page(&admin.gateway, &path);
    let found = ends(&page);
    assert!(found.len() == 2 && !page.contains("this one") && !page.contains("/unlink\""), "{page}");
    assert!(!op.page(&admin.gateway, &path).contains("/sessions/"), "operators see no sessions");
    assert_eq!(op.post(&admin.gateway, &found[0], &[]).status, 404);
    assert_eq!(op.post(&admin.gateway, &format!("{path}/unlink"), &[]).status, 404);
    assert_eq!(location(&root.post(&admin.gateway, &found[0], &[])), path);
    let page = root.page(&admin.gateway, &path);
    assert!(page.contains("The session has ended.") && ends(&page) == found[1..], "{page}");
    let statuses = [ann.get(&admin.gateway, "/profile").status, second.get(&admin.gateway, "/profile").status];
    assert!(statuses.contains(&200) && statuses.contains(&303), "{statuses:?}");
    assert_eq!(root.post(&admin.gateway, &found[0], &[]).status, 404, "it is over");
    root.post(&admin.gateway, &found[1], &[]);
    assert!(root.page(&admin.gateway, &path).contains("The member is not signed in anywhere."));
    // The member's own session is on the member's own page.
    let own = format!("/members/{}", admin.get("/admin/v1/members/root")["id"].as_str().unwrap());
    assert!(root.page(&admin.gateway, &own).contains("this one"));
}

#[test]
fn name_is_typed_before_codes_of_a_member_are_switched_off() {
    let admin = Admin::echo();
    make_member(&admin, "root", "admin");
    make_member(&admin, "ann", "member");
    let mut root = signed_in(&admin, "root");
    let id = admin.get("/admin/v1/members/ann")["id"].as_str().unwrap().to_owned();
    let (page, codes) = (format!("/members/{id}"), format!("/members/{id}/codes"));
    assert!(!root.page(&admin.gateway, &page).contains(&codes), "there are none");
    enable_codes(&admin, &sign_in(&admin, "ann"));
    assert!(root.page(&admin.gateway, &page).contains(&format!("action=\"{codes}\"")));
    let wrong = root.post(&admin.gateway, &codes, &[("codes_name", "an")]);
    assert!(wrong.status == 422 && wrong.text().contains("This is not the name."), "{}", wrong.text());
    assert_eq!(admin.get("/admin/v1/members/ann/login")["totp"], true);
    assert_eq!(location(&root.post(&admin.gateway, &codes, &[("codes_name", "ann")])), page);
    assert_eq!(admin.get("/admin/v1/members/ann/login")["totp"], false);
}

#[test]
fn invite_is_created_and_revoked() {
    let admin = Admin::echo();
    make_member(&admin, "root", "admin");
    let mut root = signed_in(&admin, "root");
    let page = root.post(&admin.gateway, "/members/invites", &[("role", "member"), ("note", "for eve"), ("groups", "")]).text();
    let (_, link) = page.split_once("/invite?token=").unwrap_or_else(|| panic!("{page}"));
    let token = link.split('"').next().unwrap().split('<').next().unwrap().to_owned();
    assert!(Person::default().page(&admin.gateway, &format!("/invite?token={token}")).contains("Member"));
    let page = root.page(&admin.gateway, "/members/invites");
    assert!(page.contains("for eve") && !page.contains(&token), "the link is shown once");
    let (_, rest) = page.split_once("/members/invites/inv_").unwrap();
    let id = format!("inv_{}", rest.split('/').next().unwrap());
    // The name is typed first.
    let revoke = format!("/members/invites/{id}/revoke");
    assert!(page.contains(&format!("href=\"{revoke}\"")), "{page}");
    let asked = root.page(&admin.gateway, &revoke);
    assert!(asked.contains("<h1>for eve</h1>") && asked.contains("name=\"typed_name\""), "{asked}");
    let wrong = root.post(&admin.gateway, &revoke, &[("typed_name", "eve")]);
    assert!(wrong.status == 422 && wrong.text().contains("This is not the name."), "{}", wrong.text());
    assert!(root.page(&admin.gateway, "/members/invites").contains(&revoke), "it is still open");
    location(&root.post(&admin.gateway, &revoke, &[("typed_name", " for eve ")]));
    let page = root.page(&admin.gateway, "/members/invites");
    assert!(page.contains("Revoked") && !page.contains(&revoke), "{page}");
    let nameless = admin.post("/admin/v1/invites", &json!({}))["id"].as_str().unwrap().to_owned();
    let revoke = format!("/members/invites/{nameless}/revoke");
    location(&root.post(&admin.gateway, &revoke, &[("typed_name", nameless.as_str())]));
    assert_eq!(admin.get(&format!("/admin/v1/invites/{nameless}"))["state"], "revoked");
    let newest = admin.post("/admin/v1/invites", &json!({"note": "the last one"}));
    let listed = admin.get("/admin/v1/invites?sort=newest&limit=1");
    assert_eq!((&listed["items"][0]["id"], listed["next"].is_null()), (&newest["id"], false));
    let rest = admin.get(&format!("/admin/v1/invites?sort=newest&after={}", listed["next"].as_str().unwrap()));
    assert_eq!([&rest["items"][0]["id"], &rest["items"][1]["id"]], [&nameless, &id].map(String::as_str));
    for (field, value, says) in
        [("groups", "nowhere", "There is no such group"), ("expires", "2001-01-01", "Enter a day that is not over.")]
    {
        let refused = root.post(&admin.gateway, "/members/invites", &[("role", "member"), ("note", "x"), (field, value)]);
        assert!(refused.status == 422 && refused.text().contains(says), "{field}: {}", refused.text());
    }
}

#[test]
fn last_admin_keeps_the_role_and_names_are_unique() {
    let admin = Admin::echo();
    make_member(&admin, "root", "admin");
    let mut root = signed_in(&admin, "root");
    let others: Vec<_> = admin.get("/admin/v1/members")["items"].as_array().unwrap().clone();
    for member in others.iter().filter(|member| member["role"] == "admin" && member["name"] != "root") {
        admin.patch(&format!("/admin/v1/members/{}", member["id"].as_str().unwrap()), &json!({"role": "member"}));
    }
    let path = format!("/members/{}", admin.get("/admin/v1/members/root")["id"].as_str().unwrap());
    let revision = hidden(&root.page(&admin.gateway, &path), &path, "revision");
    let refused = root.post(&admin.gateway, &path, &[&FORM[..], &[("revision", revision.as_str())]].concat());
    assert!(refused.status == 422 && refused.text().contains("The last admin keeps this role."), "{}", refused.text());
    let taken = root.post(&admin.gateway, "/members/new", &[&FORM[..], &[("name", "root")]].concat());
    assert!(taken.status == 422 && taken.text().contains("This name is taken."), "{}", taken.text());
}

#[test]
fn audit_log_is_exported_with_its_filter() {
    let admin = Admin::echo();
    make_member(&admin, "root", "admin");
    let mut root = signed_in(&admin, "root");
    admin.patch("/admin/v1/groups/default", &json!({"rpm": 77}));
    let page = root.page(&admin.gateway, "/audit?kind=group");
    let id = admin.get("/admin/v1/audit?kind=group")["items"][0]["id"].as_str().unwrap().to_owned();
    assert!(page.contains(&format!("data-copy=\"{id}\"")), "{page}");
    assert!(page.contains("<td title=\"rpm\">Requests per minute</td>") && page.contains("kind=group"), "{page}");
    assert!(page.contains("data-export aria-keyshortcuts=\"e\">CSV"), "{page}");
    let csv = root.get(&admin.gateway, "/admin/v1/audit/export?format=csv&kind=group");
    assert!(csv.text().starts_with("at,origin,actor") && csv.text().contains("\"\"rpm\"\":77"), "{}", csv.text());
    let lines = root.get(&admin.gateway, "/admin/v1/audit/export?format=jsonl&kind=group&name=default").text();
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((&first["name"], &first["detail"]["after"]["rpm"]), (&json!("default"), &json!(77)));
    let operator = Request::get("/admin/v1/audit/export").bearer(&admin.operator);
    assert_eq!(admin.gateway.send(&operator).status, 403);
    assert!(root.page(&admin.gateway, "/audit?since=soon").contains("Enter a day such as"));
}

#[test]
fn ledger_is_exported_with_its_filter() {
    let admin = Admin::echo();
    make_member(&admin, "root", "admin");
    make_member(&admin, "ann", "member");
    let mut root = signed_in(&admin, "root");
    for (key, amount, note) in [("1", "5", "=cmd"), ("2", "7.5", "invoice, paid"), ("3", "1", "")] {
        let posting = json!({"member": if key == "3" { "root" } else { "ann" }, "amount": amount, "note": note});
        admin.once("/admin/v1/ledger/top-ups", key, &posting);
    }
    let page = root.page(&admin.gateway, "/ledger?member=ann&kind=top_up");
    let (_, rest) = page.split_once("href=\"/admin/v1/ledger/export?").unwrap_or_else(|| panic!("{page}"));
    let query = rest.split('"').next().unwrap().replace("&amp;", "&").replace("&#38;", "&");
    assert_eq!(query, "format=csv&member=ann&kind=top_up");
    let csv = root.get(&admin.gateway, &format!("/admin/v1/ledger/export?{query}"));
    let text = csv.text();
    assert_eq!(csv.header("content-disposition"), Some("attachment; filename=\"ledger.csv\""));
    assert!(
        text.starts_with("position,at,member,member_name,kind,amount,balance,covers,idempotency_key,note,actor,address\n"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.contains("\"invoice, paid\"") && text.contains(",'=cmd,") && text.contains("7.50,12.50"), "{text}");
    let lines = root.get(&admin.gateway, "/admin/v1/ledger/export?format=jsonl").text();
    let items: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(json!(items), admin.get("/admin/v1/ledger")["items"], "an export has what the list has");
    // A member exports only the member's own data.
    let mut ann = signed_in(&admin, "ann");
    assert_eq!(ann.get(&admin.gateway, "/admin/v1/ledger/export").text().lines().count(), 3);
    let operator = Request::get("/admin/v1/ledger/export").bearer(&admin.operator);
    assert_eq!(admin.gateway.send(&operator).status, 403);
}

#[test]
fn pages_of_a_higher_role_are_not_found() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    make_member(&admin, "op", "operator");
    let (mut ann, mut op) = (signed_in(&admin, "ann"), signed_in(&admin, "op"));
    let group = format!("/groups/{}", admin.get("/admin/v1/groups/default")["id"].as_str().unwrap());
    let member = format!("/members/{}", admin.get("/admin/v1/members/ann")["id"].as_str().unwrap());
    let of_operators = [
        "/groups",
        "/groups/new",
        &group,
        "/pricing",
        "/pricing/unpriced",
        "/pricing/import",
        "/pricing/simulate",
        "/pricing/history",
        "/pricing/model?model=echo",
        "/members",
        &member,
        "/alerts",
        "/alerts/rules",
        "/system",
        "/system/import",
    ];
    let of_admins = [
        "/members/new",
        "/members/invites",
        "/members/admin-keys",
        "/ledger",
        "/audit",
        "/settings",
        "/settings/log.slow_ms",
        "/alerts/destinations",
        "/alerts/destinations/new",
        "/system/replay",
    ];
    for path in of_operators {
        assert_eq!(ann.get(&admin.gateway, path).status, 404, "{path}");
        op.page(&admin.gateway, path);
    }
    for path in of_admins {
        assert_eq!(ann.get(&admin.gateway, path).status, 404, "{path}");
        assert_eq!(op.get(&admin.gateway, path).status, 404, "{path}");
    }
    for path in ["/groups/new", "/pricing/model", "/pricing/import/apply", "/system/jobs", &format!("{group}/remove")] {
        assert_eq!(ann.post(&admin.gateway, path, &[("typed_name", "default")]).status, 404, "{path}");
    }
    for path in [member.clone(), format!("{member}/ledger"), format!("{member}/password-link"), "/settings/log.slow_ms".to_owned()]
    {
        assert_eq!(op.post(&admin.gateway, &path, &[("value", "1")]).status, 404, "{path}");
    }
    let menu = ann.page(&admin.gateway, "/menu");
    for path in ["/groups", "/pricing", "/members", "/alerts", "/audit", "/ledger", "/settings", "/system"] {
        assert!(!menu.contains(&format!("href=\"{path}\"")), "{path}");
        let forged = op.with_cookies(super::form(path, &[])).header("origin", &format!("http://{}", admin.gateway.address()));
        assert!([403, 405, 404].contains(&admin.gateway.send(&forged).status), "{path} refuses forms without the token");
    }
    let own = format!("http://{}", admin.gateway.address());
    let forged = op.with_cookies(super::form(&format!("{group}/remove"), &[("typed_name", "default")])).header("origin", &own);
    assert_eq!(admin.gateway.send(&forged).status, 403);
    assert_eq!(Person::default().get(&admin.gateway, "/groups").status, 303, "visitors sign in first");
}
