//! Attacks that must fail: forged writes, fixed sessions, guessed passwords, unbounded bodies.

use std::{io::Write as _, net::TcpStream, time::Duration};

use serde_json::{Map, Value, json};
use tollgate_testkit::{Request, wait_for};

use super::{Browser, PASSWORD, make_member, sign_in, try_sign_in};
use crate::admin::{Admin, refusal, refused, refused_whole, text};

#[test]
fn session_writes_require_the_origin_and_the_csrf_token() {
    let admin = Admin::echo();
    make_member(&admin, "root2", "admin");
    make_member(&admin, "ann", "admin");
    let (browser, other) = (sign_in(&admin, "root2"), sign_in(&admin, "ann"));
    let own = format!("http://{}", admin.gateway.address());
    let send = |origin: Option<&str>, site: Option<&str>, token: Option<&str>| {
        let body = json!({"name": "made"});
        let mut request = Request::post("/admin/v1/groups", &body).header("cookie", &browser.cookie);
        for (name, value) in [("origin", origin), ("sec-fetch-site", site), ("x-csrf-token", token)] {
            request = value.into_iter().fold(request, |request, value| request.header(name, value));
        }
        admin.gateway.send(&request)
    };
    let token = Some(browser.csrf_token.as_str());
    for (origin, site) in [
        (None, None),
        (Some("http://evil.example.com"), None),
        (Some("null"), None),
        (Some("http://127.0.0.1:1"), None),
        (Some(own.as_str()), Some("cross-site")),
        (None, Some("same-site")),
        (None, Some("none")),
    ] {
        assert_eq!(refusal(&send(origin, site, token)), refused_whole(403, "other_origin"), "{origin:?} {site:?}");
    }
    for wrong in [None, Some(""), Some("x"), Some(other.csrf_token.as_str())] {
        assert_eq!(refusal(&send(Some(&own), None, wrong)), refused_whole(403, "wrong_csrf_token"), "{wrong:?}");
    }
    assert!(admin.get("/admin/v1/groups?name=made")["items"].as_array().unwrap().is_empty());
    assert_eq!(send(None, Some("same-origin"), token).status, 201);
    // A simple form of another page cannot send JSON.
    let form = Request::post_bytes("/admin/v1/session", b"login=ann&password=x".to_vec())
        .replace_header("content-type", "application/x-www-form-urlencoded");
    assert_eq!(admin.gateway.send(&form).status, 415);
}

#[test]
fn other_pages_cannot_sign_a_browser_in() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let body = json!({"login": "ann", "password": PASSWORD});
    let forged = Request::post("/admin/v1/session", &body).header("origin", "http://evil.example.com");
    let answer = admin.gateway.send(&forged);
    assert_eq!(refusal(&answer), refused_whole(403, "other_origin"));
    assert!(answer.header("set-cookie").is_none());
}

#[test]
fn sign_in_never_adopts_a_session_token_from_the_browser() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    make_member(&admin, "eve", "member");
    let eve = sign_in(&admin, "eve");
    let planted = ["tollgate_session=tgs-planted", eve.cookie.as_str()];
    for cookie in planted {
        let body = json!({"login": "ann", "password": PASSWORD});
        let answer = admin.gateway.send(&Request::post("/admin/v1/session", &body).header("cookie", cookie));
        let browser = Browser::of(&answer);
        assert_ne!(browser.cookie, cookie);
        assert_eq!(browser.get(&admin, "/admin/v1/me")["name"], "ann");
    }
    assert_eq!(eve.get(&admin, "/admin/v1/me")["name"], "eve");
    let both = Request::get("/admin/v1/me").header("cookie", &format!("{0}; {0}", eve.cookie));
    assert_eq!(admin.gateway.send(&both).status, 401, "which of the two is the member's own?");
    for wrong in ["tollgate_session=", "tollgate_session=tgs-x", "tollgate_session=' OR 1=1--", "other=1"] {
        assert_eq!(admin.gateway.send(&Request::get("/admin/v1/me").header("cookie", wrong)).status, 401, "{wrong}");
    }
    let as_bearer = eve.cookie.split_once('=').unwrap().1;
    assert_eq!(admin.gateway.send(&Request::get("/admin/v1/me").bearer(as_bearer)).status, 401, "it is not an admin key");
}

#[test]
fn password_guessing_is_limited_by_name_with_a_stated_wait() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    make_member(&admin, "bob", "member");
    let statuses: Vec<u16> = (0..11).map(|_| try_sign_in(&admin, "ann", "a wrong password").status).collect();
    assert_eq!(statuses, [vec![401; 10], vec![429]].concat());
    let limited = try_sign_in(&admin, "ann", PASSWORD);
    let wait: u32 = limited.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=300).contains(&wait) && text(&limited).contains(&format!("in {wait} s")), "{}", text(&limited));
    sign_in(&admin, "bob");
    // Unknown names are limited in the same way.
    let unknown: Vec<u16> = (0..11).map(|_| try_sign_in(&admin, "unknown", "a wrong password").status).collect();
    assert_eq!(unknown, statuses);
}

/// The schema of a request body, with its reference resolved.
fn form<'a>(document: &'a Value, operation: &'a Value) -> &'a Value {
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    match schema["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap(),
        None => schema,
    }
}

#[test]
fn every_field_of_every_form_before_a_sign_in_is_bounded() {
    let admin = Admin::echo();
    let document = admin.document().clone();
    let mut fields = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        let takes_form = |operation: &&Value| operation["x-needs"] == "nothing" && operation["requestBody"].is_object();
        let Some(operation) = operations.get("post").filter(takes_form) else { continue };
        let properties = form(&document, operation)["properties"].as_object().unwrap();
        let is_flag = |schema: &Value| schema["type"] == "boolean";
        let good_value = |schema| if is_flag(schema) { json!(true) } else { json!("a good value") };
        let good: Map<String, Value> = properties.iter().map(|(name, schema)| (name.clone(), good_value(schema))).collect();
        let send = |changed: &str, value: Value| {
            let mut body = good.clone();
            body.insert(changed.to_owned(), value);
            admin.gateway.send(&Request::post(path, &Value::Object(body)))
        };
        for (name, schema) in properties {
            let wrong = if is_flag(schema) {
                [json!("true"), json!({"$ne": ""}), json!(["x"]), json!(7), json!("x".repeat(1_000))]
            } else {
                let max = schema["maxLength"].as_u64().unwrap_or_else(|| panic!("{path}: {name} has no bound: {schema}"));
                let longer = "x".repeat(usize::try_from(max).unwrap() + 1);
                [json!(longer), json!({"$ne": ""}), json!(["x"]), json!(7), json!(true)]
            };
            for value in wrong {
                let answer = send(name, value.clone());
                assert_eq!((answer.status, refusal(&answer).2.as_deref()), (400, Some(name.as_str())), "{path}: {value}");
            }
            fields += 1;
        }
        assert_eq!(refusal(&send("more", json!(1))), refused(400, "unknown_parameter", "more"), "{path}");
        assert_eq!(send("more", json!("x".repeat(20_000))).status, 413, "{path}");
    }
    assert!(fields >= 12, "{fields} fields");
}

#[test]
fn unauthenticated_clients_are_limited_by_address_and_cannot_block_others() {
    let admin = Admin::echo();
    // Each request waits for the rest of its body.
    let begin = || {
        let mut stream = TcpStream::connect(admin.gateway.address()).unwrap();
        let head =
            "POST /admin/v1/session HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{";
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let methods = || admin.gateway.send(&Request::get("/admin/v1/session/methods")).status;
    // A connection that arrives during the query of the methods is refused, so it may take more than four.
    let mut waiting = Vec::new();
    wait_for("four wait", Duration::from_mins(1), || {
        waiting.push(begin());
        methods() == 429
    });
    assert_eq!(admin.call("GET", "/admin/v1/me", None).status, 200, "those who are known are answered");
    drop(waiting);
    wait_for("they left", Duration::from_mins(1), || methods() == 200);
}

#[test]
fn sign_in_bodies_are_validated_and_bounded() {
    let admin = Admin::echo();
    let long = "x".repeat(2_000);
    let huge = "x".repeat(20_000);
    for (path, body, status) in [
        ("session", json!({"login": long, "password": "x"}), 400),
        ("session", json!({"login": "ann", "password": long}), 400),
        ("session", json!({"login": "ann", "password": "x", "more": 1}), 400),
        ("session", json!({"login": {"$ne": ""}, "password": "x"}), 400),
        ("session", json!({"login": "ann", "password": huge}), 413),
        ("session/code", json!({"challenge": long, "code": "1"}), 400),
        ("session/code", json!({"challenge": "x", "code": "1"}), 401),
        ("password-links/use", json!({"token": long, "new_password": PASSWORD}), 400),
        ("password-links/use", json!({"token": "tgl-x", "new_password": PASSWORD}), 400),
        ("invites/accept", json!({"token": "tgi-x", "name": "x", "new_password": PASSWORD}), 400),
        ("invites/accept", json!({"token": "x", "name": long, "new_password": PASSWORD}), 400),
    ] {
        let path = format!("/admin/v1/{path}");
        let answer = admin.gateway.send(&Request::post(&path, &body));
        assert_eq!(answer.status, status, "{path}: {}", text(&answer));
        assert!(!text(&answer).contains(PASSWORD));
    }
}
