//! Authorisation: every route with every kind of key.

use serde_json::{Value, json};
use tollgate_testkit::{PendingResponse, Request, TestGateway};

use super::{Admin, refusal, refused_whole, text};
use crate::support::{self, PROGRAM};

/// Every route of the document, with values for its path parameters, and the scope that it needs.
fn routes(admin: &Admin) -> Vec<(String, String, String)> {
    let mut routes = Vec::new();
    for (template, operations) in admin.document()["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let path: Vec<&str> = template.split('/').map(|part| if part.starts_with('{') { "nothing" } else { part }).collect();
            let needs = operation["x-needs"].as_str().expect("every route states the scope that it needs").to_owned();
            routes.push((method.to_uppercase(), path.join("/"), needs));
        }
    }
    routes
}

/// The live tail of the usage log, whose answers have no end.
const TAIL: &str = "/admin/v1/usage/tail";

/// The status of an answer; only its head is read.
fn begun(admin: &Admin, request: &Request) -> u16 {
    admin.gateway.start_request(request).read_head().unwrap().status
}

fn request(method: &str, path: &str) -> Request {
    if method == "GET" || method == "DELETE" { Request::get(path) } else { Request::post_bytes(path, b"{}".to_vec()) }
        .method(method)
}

#[test]
fn every_route_requires_an_admin_key_of_its_scope() {
    let admin = Admin::echo();
    let routes = routes(&admin);
    assert!(routes.len() > 45, "only {} routes", routes.len());
    let last = if admin.key.ends_with('x') { 'y' } else { 'x' };
    let wrong = format!("{}{last}", &admin.key[..admin.key.len() - 1]);
    admin.post("/admin/v1/members", &serde_json::json!({"name": "ann"}));
    // Otherwise members may not make keys.
    admin.patch("/admin/v1/groups/default", &serde_json::json!({"self_service": true}));
    let of_member = serde_json::json!({"name": "anns", "scope": "member", "member": "ann"});
    let of_member = admin.post("/admin/v1/admin-keys", &of_member)["key"].as_str().unwrap().to_owned();
    for (method, path, needs) in &routes {
        let send = |key: Option<&str>| {
            let request = request(method, path);
            admin.gateway.send(&key.into_iter().fold(request, Request::bearer))
        };
        if needs == "nothing" {
            let answer = send(None);
            assert!(![401, 403].contains(&answer.status) && answer.status < 500, "{method} {path}: {}", text(&answer));
            continue;
        }
        let (operators, members) = match needs.as_str() {
            "admin" => (false, false),
            "operator" => (true, false),
            "own, or admin" => (false, true),
            "own, or operator" | "member" => (true, true),
            other => panic!("{method} {path} needs {other}"),
        };
        if path == TAIL {
            for key in [&of_member, &admin.operator, &admin.key] {
                assert_eq!(begun(&admin, &request(method, path).bearer(key)), 200);
            }
        } else if members {
            let member = send(Some(&of_member));
            assert!(![401, 403].contains(&member.status) && member.status < 500, "{method} {path}: {}", text(&member));
        } else {
            let code = if operators { "operator_only" } else { "admin_only" };
            assert_eq!(refusal(&send(Some(&of_member))), refused_whole(403, code), "{method} {path}");
        }
        let without_key = send(None);
        assert_eq!(refusal(&without_key), refused_whole(401, "missing_api_key"), "{method} {path}");
        assert_eq!(without_key.header("www-authenticate"), Some("Bearer"));
        for key in [admin.gateway.key(), wrong.as_str(), "tga-", "' OR 1=1--"] {
            assert_eq!(refusal(&send(Some(key))), refused_whole(401, "invalid_api_key"), "{method} {path} with {key}");
        }
        if path == TAIL {
            continue;
        }
        let operator = send(Some(&admin.operator));
        if operators {
            assert!(![401, 403].contains(&operator.status), "{method} {path}: {}", text(&operator));
        } else {
            assert_eq!(refusal(&operator), refused_whole(403, "admin_only"), "{method} {path}");
        }
        let all = send(Some(&admin.key));
        assert!(![401, 403].contains(&all.status) && all.status < 500, "{method} {path}: {}", text(&all));
    }
}

#[test]
fn secret_sent_as_a_path_or_query_value_is_not_repeated() {
    const SECRET: &str = "good2-key-0123456789abcdef";
    let admin = Admin::echo();
    let (mut sent, mut missing) = (0, 0);
    for (template, operations) in admin.document()["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let parameters: Vec<(&str, &str)> = operation["parameters"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|it| (it["in"].as_str().unwrap_or_default(), it["name"].as_str().unwrap_or_default()))
                .collect();
            let path: Vec<&str> = template.split('/').map(|part| if part.starts_with('{') { SECRET } else { part }).collect();
            let path = path.join("/");
            let queries =
                parameters.iter().filter(|(place, _)| *place == "query").map(|(_, name)| format!("{path}?{name}={SECRET}"));
            let whole = path.contains(SECRET).then(|| path.clone());
            for target in whole.into_iter().chain(queries) {
                let request = request(&method.to_uppercase(), &target).bearer(&admin.key);
                if path == TAIL && begun(&admin, &request) == 200 {
                    continue;
                }
                let answer = admin.gateway.send(&request);
                if answer.status >= 400 {
                    assert!(!text(&answer).contains(SECRET), "{method} {target}: {}", text(&answer));
                }
                sent += 1;
                missing += u32::from(answer.status == 404);
            }
        }
    }
    assert!(sent > 60 && missing > 10, "{sent} requests, {missing} of them for something missing");
    assert!(!admin.gateway.log().contains(SECRET), "the log holds what was sent");
}

#[test]
fn admin_keys_are_refused_on_the_model_path() {
    let admin = Admin::echo();
    let chat = Request::post("/v1/chat/completions", &support::chat("echo")).bearer(&admin.key);
    assert_eq!(refusal(&admin.gateway.send(&chat)), refused_whole(401, "invalid_api_key"));
    let list = Request::get("/v1/models").bearer(&admin.operator);
    assert_eq!(admin.gateway.send(&list).status, 401);
}

#[test]
fn routes_outside_the_table_are_not_found() {
    let admin = Admin::echo();
    for path in
        ["/admin", "/admin/v1", "/admin/v1/keys/", "/admin/v1/keys.json", "/ADMIN/V1/keys", "/admin/v1/setting", "/admin/v2/keys"]
    {
        let answer = admin.gateway.send(&Request::get(path).bearer(&admin.key));
        assert_eq!(refusal(&answer), refused_whole(404, "unknown_url"), "{path}");
    }
    let answer = admin.gateway.send(&Request::get("/admin/v1/keys").method("PUT").bearer(&admin.key));
    assert_eq!(refusal(&answer), refused_whole(405, "method_not_supported"));
    let allowed = answer.header("allow").unwrap_or_default();
    assert!(allowed.contains("GET") && allowed.contains("POST"), "{allowed}");
}

#[test]
fn only_invalid_admin_keys_count_towards_the_limit() {
    let gateway =
        tollgate_testkit::TestGateway::builder(support::PROGRAM).env("TOLLGATE_LIMITS__WRONG_KEYS_PER_MINUTE", "3").spawn();
    let admin = Admin::of(gateway);
    let send = |request: &Request| request.send(admin.gateway.address()).and_then(PendingResponse::read).unwrap().status;
    let try_wrong = || send(&Request::get("/admin/v1/me").bearer("tga-wrong"));
    let statuses: Vec<u16> = (0..6).map(|_| try_wrong()).collect();
    assert!(statuses.starts_with(&[401, 401, 401]) && statuses.ends_with(&[429]), "{statuses:?}");
    assert_eq!(admin.get("/admin/v1/me")["scope"], "admin");
    let chat = Request::post("/v1/chat/completions", &support::chat("echo")).bearer("sk-wrong-key-000000000");
    assert_eq!(send(&chat), 429, "wrong keys of both kinds are counted together");
}

#[test]
fn revoked_admin_key_ends_at_once_and_audit_entries_hold_no_secret() {
    let admin = Admin::echo();
    let made = admin.post("/admin/v1/admin-keys", &serde_json::json!({"name": "brief", "scope": "operator"}));
    let key = made["key"].as_str().unwrap().to_owned();
    let me = |key: &str| admin.gateway.send(&Request::get("/admin/v1/me").bearer(key));
    assert_eq!(super::ok(&me(&key))["name"], "brief");
    let id = made["id"].as_str().unwrap();
    let shown = admin.get(&format!("/admin/v1/admin-keys/{id}"));
    assert!(shown.get("key").is_none() && !shown.to_string().contains(&key), "{shown}");
    admin.delete(&format!("/admin/v1/admin-keys/{id}"));
    assert_eq!(me(&key).status, 401);
    let listed = admin.get("/admin/v1/admin-keys?revoked=true");
    assert!(listed["items"].as_array().unwrap().iter().any(|it| it["name"] == "brief" && !it["revoked_at"].is_null()), "{listed}");
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(3);
    let short = serde_json::json!({"name": "short", "scope": "admin", "expires_at": soon.to_string()});
    let past = admin.post("/admin/v1/admin-keys", &short)["key"].as_str().unwrap().to_owned();
    super::within_a_second("it is over its time", || me(&past).status == 401);
    let log = admin.gateway.log();
    for secret in [&key, &past, &admin.key, &admin.operator] {
        assert!(!log.contains(secret.as_str()), "the log holds an admin key");
    }
    assert!(log.contains("admin request") && log.contains("/admin/v1/admin-keys"), "{log}");
    let audit: Value = admin.get("/admin/v1/audit?kind=admin_key");
    let actions: Vec<&str> = audit["items"].as_array().unwrap().iter().map(|it| it["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["put", "revoke", "put", "put", "put"], "{audit}");
    assert!(!audit.to_string().contains(&key));
}

#[test]
fn audit_log_and_ledger_record_the_client_address() {
    let proxied = TestGateway::builder(PROGRAM).env("TOLLGATE_SERVER__TRUSTED_PROXIES", "127.0.0.1").spawn();
    let admin = Admin::of(proxied);
    let send = |path: &str, body: &Value, from: &str| {
        let request = Request::post(path, body).bearer(&admin.key).header("x-forwarded-for", from).header("idempotency-key", from);
        assert_eq!(admin.gateway.send(&request).status, 201);
    };
    send("/admin/v1/groups", &json!({"name": "one"}), "198.51.100.7");
    send("/admin/v1/groups", &json!({"name": "two"}), "203.0.113.1, 2001:db8::7");
    send("/admin/v1/ledger/top-ups", &json!({"member": "owner", "amount": "5"}), "198.51.100.8");
    assert!(admin.gateway.run(&["group", "add", "local"]).status.success());
    let of = |query: &str| -> Vec<(String, Value)> {
        let found = admin.get(&format!("/admin/v1/audit?{query}"));
        let item = |item: &Value| (item["name"].as_str().unwrap().to_owned(), item["address"].clone());
        found["items"].as_array().unwrap().iter().map(item).collect()
    };
    let names: Vec<(String, Value)> =
        of("kind=group").into_iter().filter(|(name, _)| !["default", "echo"].contains(&name.as_str())).collect();
    let expected = [("local", Value::Null), ("two", json!("2001:db8::7")), ("one", json!("198.51.100.7"))];
    assert_eq!(names, expected.map(|(name, address)| (name.to_owned(), address)));
    assert_eq!(of("address=198.51.100.7"), [("one".to_owned(), json!("198.51.100.7"))]);
    assert_eq!(of("address=198.51.100.8"), [("owner".to_owned(), json!("198.51.100.8"))], "postings have one, too");
    let csv = admin.gateway.send(&Request::get("/admin/v1/audit/export?format=csv&kind=group").bearer(&admin.key)).text();
    assert!(csv.starts_with("at,origin,actor,address,action,") && csv.contains("198.51.100.7"), "{csv}");
    let listed = admin.gateway.run(&["audit", "--address", "198.51.100.7", "--json"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("\"one\"") && !listed.contains("\"two\""), "{listed}");
    let entries = admin.get("/admin/v1/ledger?kind=top_up");
    assert_eq!(entries["items"][0]["address"], "198.51.100.8", "{entries}");
    assert!(admin.gateway.run(&["verify"]).status.success());
}
