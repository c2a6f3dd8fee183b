//! Every route, called by every role with objects of others: they are neither found nor listed.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_testkit::{Request, wait_for};

use super::{Browser, make_member, sign_in};
use crate::{
    admin::{Admin, follow, ok, parquet_rows, refusal, refused, text},
    support,
};

/// A member with one object of each kind.
pub(crate) struct Owner {
    pub(crate) browser: Browser,
    /// Ids and names that must not be seen by others.
    pub(crate) member: String,
    pub(crate) key: String,
    secret: String,
    pub(crate) session: String,
    pub(crate) record: String,
    pub(crate) passkey: String,
    admin_key: String,
}

pub(crate) fn owner(admin: &Admin, name: &str, role: &str) -> Owner {
    make_member(admin, name, role);
    let key = admin.post("/admin/v1/keys", &json!({"name": format!("key-of-{name}"), "member": name, "groups": ["echo"]}));
    let secret = key["key"].as_str().unwrap();
    let answer = admin.gateway.send(&Request::post("/v1/chat/completions", &support::chat("echo")).bearer(secret));
    assert_eq!(answer.status, 200, "{}", text(&answer));
    let record = answer.header("x-request-id").unwrap().to_owned();
    let path = format!("/admin/v1/usage/{record}");
    wait_for("the request is booked", Duration::from_mins(1), || admin.call("GET", &path, None).status == 200);
    ok(&admin.once("/admin/v1/ledger/top-ups", &format!("for {name}"), &json!({"member": name, "amount": "5"})));
    let budget = json!({"budget": [{"amount": "7", "window": "month"}]});
    for (subject, of) in [("member", name), ("key", key["id"].as_str().unwrap())] {
        ok(&admin.call("PUT", &format!("/admin/v1/budgets/{subject}/{of}"), Some(&budget)));
    }
    let admin_key =
        admin.post("/admin/v1/admin-keys", &json!({"name": format!("api-of-{name}"), "scope": "member", "member": name}));
    let browser = sign_in(admin, name);
    let session = browser.get(admin, "/admin/v1/me")["id"].as_str().unwrap().to_owned();
    let member = admin.get(&format!("/admin/v1/members/{name}"))["id"].as_str().unwrap().to_owned();
    let passkey = super::passkeys::add_one(admin, &browser);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (key, secret, admin_key) = (text(&key["id"]), secret.to_owned(), text(&admin_key["key"]));
    Owner { browser, member, key, secret, session, record, passkey, admin_key }
}

/// The values of another member for a path parameter. A route with a parameter that is not known here fails the test: its objects
/// need an owner, or the route a scope.
fn foreign<'a>(template: &str, parameter: &str, of: &'a Owner, name: &'a str) -> Vec<&'a str> {
    match parameter {
        "name" if template.starts_with("/admin/v1/members/") => vec![name, &of.member],
        "key" => vec![&of.key],
        "session" => vec![&of.session],
        "record" => vec![&of.record],
        "passkey" => vec![&of.passkey],
        other => panic!("{template}: whose objects are '{other}'?"),
    }
}

/// The paths with the values of Bob for one parameter. A passkey is searched for among those of both members.
fn foreign_paths(template: &str, parameter: &str, bob: &Owner) -> Vec<String> {
    let mut paths = Vec::new();
    for value in foreign(template, parameter, bob, "bob") {
        let path = template.replace(&format!("{{{parameter}}}"), value);
        paths.extend(["ann", "bob"].map(|member| path.replace("{name}", member).replace("{passkey}", &bob.passkey)));
    }
    paths.dedup();
    paths
}

/// Query that a list requires.
fn query(template: &str) -> &'static str {
    match template {
        "/admin/v1/budgets" => "?subject=key",
        _ => "",
    }
}

#[test]
fn objects_of_other_members_are_not_found_on_any_route() {
    let admin = Admin::echo();
    let (ann, bob) = (owner(&admin, "ann", "member"), owner(&admin, "bob", "member"));
    let (mut objects, mut lists) = (0, 0);
    let document = admin.document().clone();
    for (template, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let (method, needs) = (method.to_uppercase(), operation["x-needs"].as_str().unwrap());
            let parameters: Vec<&str> = template.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
            let send_as_ann = |path: &str, by_key: bool| {
                let body = if template.ends_with("/{passkey}") { json!({"name": "made"}) } else { json!({}) };
                let body = (method != "GET" && method != "DELETE").then_some(body);
                if by_key {
                    let request = body.as_ref().map_or_else(|| Request::get(path), |body| Request::post(path, body));
                    return admin.send(&method, path, &request.method(&method).bearer(&ann.admin_key));
                }
                ann.browser.send(&admin, &method, path, body.as_ref())
            };
            match needs {
                "nothing" => {}
                // Routes for the principal's own objects have no path parameter.
                "member" => assert!(parameters.is_empty(), "{method} {template}: whose objects are these?"),
                "operator" | "admin" => {
                    let path = parameters.iter().fold(template.clone(), |path, name| path.replace(&format!("{{{name}}}"), "any"));
                    for by_key in [false, true] {
                        assert_eq!(send_as_ann(&path, by_key).status, 403, "{method} {path}");
                    }
                }
                own if own.starts_with("own") => {
                    for by_key in [false, true] {
                        for foreign_path in parameters.iter().flat_map(|parameter| foreign_paths(template, parameter, &bob)) {
                            let answer = send_as_ann(&foreign_path, by_key);
                            assert_eq!(answer.status, 404, "{method} {foreign_path}: {}", text(&answer));
                            objects += 1;
                        }
                        // Objects are created for the member itself.
                        if method == "POST" && parameters.is_empty() {
                            let for_bob = if template == "/admin/v1/find-key" {
                                json!({"key": bob.secret})
                            } else {
                                json!({"name": "made", "member": "bob"})
                            };
                            let request = Request::post(template, &for_bob).bearer(&ann.admin_key);
                            let answers = [
                                ann.browser.send(&admin, "POST", template, Some(&for_bob)),
                                admin.send("POST", template, &request),
                            ];
                            for answer in answers {
                                assert_eq!(answer.status, 404, "{template}: {}", text(&answer));
                            }
                            objects += 1;
                            continue;
                        }
                        // The live tail has no end; a separate test reads its beginning.
                        if parameters.is_empty() && !template.ends_with("/tail") {
                            let answer = send_as_ann(&format!("{template}{}", query(template)), by_key);
                            assert_eq!(answer.status, 200, "{template}: {}", text(&answer));
                            for id in [&bob.member, &bob.key, &bob.session, &bob.record, &"bob".to_owned()] {
                                assert!(!text(&answer).contains(id.as_str()), "{template} shows {id}: {}", text(&answer));
                            }
                            lists += 1;
                        }
                    }
                }
                other => panic!("{method} {template} needs {other}"),
            }
        }
    }
    assert!(objects >= 14 && lists >= 14, "{objects} objects, {lists} lists");
    assert!(bob.browser.is_in(&admin), "no request had an effect");
    assert_eq!(admin.get(&format!("/admin/v1/keys/{}", bob.key))["state"], "active");
}

#[test]
fn members_see_only_their_own_objects() {
    let admin = Admin::echo();
    let ann = owner(&admin, "ann", "member");
    owner(&admin, "bob", "member");
    let get = |path: &str| ann.browser.get(&admin, &format!("/admin/v1/{path}"));
    assert_eq!(get("members")["items"][0]["id"], json!(ann.member));
    assert_eq!(get("members/ann")["name"], "ann");
    assert_eq!(get(&format!("keys/{}", ann.key))["id"], json!(ann.key));
    assert_eq!(get("keys")["items"].as_array().unwrap().len(), 1);
    assert_eq!(get("keys?member=ann")["items"].as_array().unwrap().len(), 1);
    assert_eq!(get("ledger")["items"][0]["amount"], "5.00");
    assert_eq!(get("ledger/balances")["items"].as_array().unwrap().len(), 1);
    assert_eq!(get("budgets?subject=key")["items"][0]["id"], json!(ann.key));
    assert_eq!(get("budgets?subject=member")["items"][0]["name"], "ann");
    for none in ["channel", "group", "gateway"] {
        assert!(get(&format!("budgets?subject={none}"))["items"].as_array().unwrap().is_empty(), "{none}");
    }
    let record = get(&format!("usage/{}", ann.record));
    assert_eq!((&record["cost"], &record["attempts"], &record["trace"]), (&Value::Null, &json!([]), &json!([])), "{record}");
    assert_eq!(record["protocol_out"], Value::Null);
    let seen = admin.get(&format!("/admin/v1/usage/{}", ann.record));
    assert!(!seen["attempts"].as_array().unwrap().is_empty() && seen["protocol_out"].is_string(), "operators see them: {seen}");
    assert_eq!(get("usage")["items"].as_array().unwrap().len(), 1);
    let sums = get("usage/summary?by=nothing");
    assert!(sums["items"][0]["requests"] == 1 && sums["items"][0]["cost"].is_null(), "{sums}");
    let by_key = get("usage/summary?by=key");
    assert_eq!(by_key["items"][0]["name"], "key-of-ann", "{by_key}");
    let sums = get("usage/histogram");
    let requests: u64 = sums["items"].as_array().unwrap().iter().map(|bucket| bucket["requests"].as_u64().unwrap()).sum();
    assert!(requests == 1 && sums["items"].as_array().unwrap().iter().all(|bucket| bucket["cost"].is_null()), "{sums}");
    for (group, found) in [("echo", 1), ("unknown", 0)] {
        assert_eq!(get(&format!("usage?group={group}"))["items"].as_array().unwrap().len(), found, "{group}");
    }
    let allowance = get(&format!("keys/{}/allowance", ann.key));
    assert!(allowance["models"] == json!(["echo"]) && allowance["budgets"][0]["amount"] == "7.00", "{allowance}");
    let csv = ann.browser.send(&admin, "GET", "/admin/v1/usage/export", None);
    assert_eq!(text(&csv).lines().count(), 2, "{}", text(&csv));
    let heading = text(&csv).lines().next().unwrap_or_default().to_owned();
    let columns: Vec<&str> = heading.split(',').collect();
    for (name, is_there) in [("price_version", true), ("detail", true), ("attempts", false), ("channel", false), ("cost", false)] {
        assert_eq!(columns.contains(&name), is_there, "{name}");
    }
    for path in ["usage?member=bob", "usage/summary?member=bob", "usage/export?member=bob", "ledger?member=bob", "keys?member=bob"]
    {
        assert_eq!(ann.browser.send(&admin, "GET", &format!("/admin/v1/{path}"), None).status, 404, "{path}");
    }
}

#[test]
fn members_page_through_their_own_records_only() {
    let admin = Admin::echo();
    let (ann, bob) = (owner(&admin, "ann", "member"), owner(&admin, "bob", "member"));
    let chat = |of: &Owner| {
        let sent = Request::post("/v1/chat/completions", &support::chat("echo")).bearer(&of.secret);
        admin.gateway.send(&sent).header("x-request-id").unwrap().to_owned()
    };
    let tail = ann.browser.request(&admin, "GET", "/admin/v1/usage/tail", None);
    let mut sent = Vec::new();
    let (followed, _) = follow(&admin, &tail, 2, || {
        for _ in 0..2 {
            chat(&bob);
            sent.push(chat(&ann));
        }
    });
    let ids = |records: &[Value]| records.iter().map(|record| record["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(ids(&followed), sent, "those of others are not sent");
    assert!(followed.iter().all(|record| record["cost"].is_null() && record["attempts"] == json!([])), "{followed:?}");
    let (mut pages, mut after) = (Vec::new(), String::new());
    loop {
        let page = ann.browser.get(&admin, &format!("/admin/v1/usage?limit=1{after}"));
        pages.extend(ids(page["items"].as_array().unwrap()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    sent.insert(0, ann.record.clone());
    sent.reverse();
    assert_eq!(pages, sent);
    // A cursor with another member's record shows no foreign records.
    let page = ann.browser.get(&admin, &format!("/admin/v1/usage?after={}", bob.record));
    assert!(ids(page["items"].as_array().unwrap()).iter().all(|id| sent.contains(id)), "{page}");
    let lines = text(&ann.browser.send(&admin, "GET", "/admin/v1/usage/export?format=jsonl", None));
    assert_eq!(lines.lines().count(), 3, "{lines}");
    for hidden in [&bob.member, &bob.key, &"\"channel\"".to_owned()] {
        assert!(!lines.contains(hidden.as_str()), "{hidden} in {lines}");
    }
    let file = ann.browser.send(&admin, "GET", "/admin/v1/usage/export?format=parquet", None);
    let rows = parquet_rows(file.body);
    assert_eq!(rows.len(), 3);
    for row in &rows {
        let value = |name: &str| row.get_column_iter().find(|(column, _)| *column == name).unwrap().1.to_string();
        assert!(sent.iter().any(|id| value("id") == format!("\"{id}\"")), "{}", value("id"));
        for hidden in ["channel", "account", "upstream_model", "cost", "protocol_out", "attempts"] {
            assert!(row.get_column_iter().all(|(column, _)| column != hidden), "{hidden}");
        }
    }
}

#[test]
fn members_sum_their_own_requests_by_tag() {
    let admin = Admin::echo();
    let (ann, bob) = (owner(&admin, "ann", "member"), owner(&admin, "bob", "member"));
    for (of, tags) in [(&ann, "team=a"), (&bob, "team=a"), (&bob, "team=b,secret=of-bob")] {
        let sent = Request::post("/v1/chat/completions", &support::chat("echo")).bearer(&of.secret).header("x-tollgate-tags", tags);
        assert_eq!(admin.gateway.send(&sent).status, 200);
    }
    let get = |path: &str| ann.browser.get(&admin, &format!("/admin/v1/usage{path}"));
    let rows = |sums: &Value| -> Vec<(String, u64)> {
        let row = |row: &Value| (row["of"].as_str().unwrap().to_owned(), row["requests"].as_u64().unwrap());
        sums["items"].as_array().unwrap().iter().map(row).collect()
    };
    wait_for("every request is booked", Duration::from_mins(1), || {
        rows(&admin.get("/admin/v1/usage/summary?by=nothing"))[0].1 == 5
    });
    assert_eq!(
        rows(&admin.get("/admin/v1/usage/summary?by=tag:team")),
        [(String::new(), 2), ("a".to_owned(), 2), ("b".to_owned(), 1)]
    );
    assert_eq!(rows(&get("/summary?by=tag:team")), [(String::new(), 1), ("a".to_owned(), 1)]);
    assert_eq!(rows(&get("/summary?by=tag:secret")), [(String::new(), 2)]);
    assert_eq!(rows(&get("/summary?by=nothing&tags=team=a")), [(String::new(), 1)]);
    assert_eq!(get("?tags=team=a")["items"].as_array().unwrap().len(), 1);
    assert_eq!(get("?tags=team=b")["items"], json!([]));
}

#[test]
fn members_cannot_query_channels_accounts_and_costs() {
    let admin = Admin::echo();
    let ann = owner(&admin, "ann", "member");
    for (path, parameter) in [
        ("usage?channel=echo", "channel"),
        ("usage?account=echo/echo", "account"),
        ("usage?min_cost=0", "min_cost"),
        ("usage/summary?by=channel", "by"),
        ("usage/summary?by=day,account", "by"),
        ("usage/summary?sort=cost", "sort"),
        ("usage/summary?channel=echo", "channel"),
        ("usage/histogram?channel=echo", "channel"),
        ("usage/export?min_cost=0.1", "min_cost"),
        ("usage/tail?account=echo/echo", "account"),
    ] {
        let path = format!("/admin/v1/{path}");
        assert_eq!(refusal(&ann.browser.send(&admin, "GET", &path, None)), refused(403, "operator_only", parameter), "{path}");
        assert!(path.contains("/tail") || admin.call("GET", &path, None).status == 200, "{path} of an admin");
    }
}

#[test]
fn member_may_follow_the_log_with_at_most_two_clients() {
    let admin = Admin::echo();
    let (ann, bob) = (owner(&admin, "ann", "member"), owner(&admin, "bob", "member"));
    let follow = |of: &Owner| {
        let mut pending = admin.gateway.start_request(&of.browser.request(&admin, "GET", "/admin/v1/usage/tail", None));
        let status = pending.read_head().unwrap().status;
        (pending, status)
    };
    let (first, second, third, other) = (follow(&ann), follow(&ann), follow(&ann), follow(&bob));
    assert_eq!([first.1, second.1, third.1, other.1], [200, 200, 429, 200]);
    drop(first);
    wait_for("the place of a client that left is free", Duration::from_mins(1), || follow(&ann).1 == 200);
}

#[test]
fn live_tail_ends_with_the_session_or_key_that_opened_it() {
    let admin = Admin::echo();
    let ann = owner(&admin, "ann", "admin");
    let tail = Request::get("/admin/v1/usage/tail");
    let by_key = admin.post("/admin/v1/admin-keys", &json!({"name": "k", "scope": "admin", "member": "ann"}));
    let requests = [ann.browser.request(&admin, "GET", "/admin/v1/usage/tail", None), tail.bearer(by_key["key"].as_str().unwrap())];
    let mut followers: Vec<_> = requests
        .iter()
        .map(|request| {
            let mut pending = admin.gateway.start_request(request);
            let head = pending.read_head().unwrap();
            assert_eq!(head.status, 200);
            (pending, head)
        })
        .collect();
    admin.patch("/admin/v1/members/ann", &json!({"role": "member"}));
    for (pending, head) in &mut followers {
        // Skip the rest of the stream; its end must follow.
        while pending.read_chunk(head).unwrap().is_some() {}
    }
}

#[test]
fn operators_see_everything_but_ledgers_and_sessions_of_others() {
    let admin = Admin::echo();
    let (ann, bob) = (owner(&admin, "ann", "operator"), owner(&admin, "bob", "member"));
    let get = |path: &str| ann.browser.get(&admin, &format!("/admin/v1/{path}"));
    assert!(get("members")["items"].as_array().unwrap().len() >= 3);
    assert!(get(&format!("usage/{}", bob.record))["protocol_out"].is_string());
    for path in ["ledger", "ledger/balances", "sessions"] {
        let list = get(path);
        assert!(!list["items"].as_array().unwrap().is_empty() && !list.to_string().contains(&bob.member), "{path}: {list}");
    }
    let path = format!("/admin/v1/sessions/{}", bob.session);
    assert_eq!(ann.browser.send(&admin, "DELETE", &path, None).status, 404);
    for path in ["ledger?member=bob", "sessions?member=bob", "members/bob/login"] {
        assert_eq!(ann.browser.send(&admin, "GET", &format!("/admin/v1/{path}"), None).status, 404, "{path}");
    }
    for member in ["ann", "bob"] {
        ok(&admin.call("PATCH", &format!("/admin/v1/members/{member}"), Some(&json!({"billing": "prepaid"}))));
    }
    let allowance = |key: &str| format!("keys/{key}/allowance");
    assert!(admin.get(&format!("/admin/v1/{}", allowance(&bob.key)))["balance"].is_string());
    assert!(bob.browser.get(&admin, &format!("/admin/v1/{}", allowance(&bob.key)))["balance"].is_string());
    assert!(get(&allowance(&ann.key))["balance"].is_string());
    assert_eq!(get(&allowance(&bob.key))["balance"], Value::Null);
}
