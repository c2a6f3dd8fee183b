//! Invalid changes are refused with the name of the field, and nothing is written.

use serde_json::{Value, json};
use tollgate_testkit::Request;

use super::{Admin, ok, refusal, refused, refused_whole, text};

fn post(admin: &Admin, path: &str, body: &Value) -> (u16, String, Option<String>) {
    refusal(&admin.call("POST", &format!("/admin/v1/{path}"), Some(body)))
}

#[test]
fn price_without_amount_is_refused() {
    let admin = Admin::echo();
    let answer = admin.call("PUT", "/admin/v1/prices/echo", Some(&json!({"price": {}})));
    assert_eq!(refusal(&answer), refused(400, "invalid_value", "price"), "{}", text(&answer));
    assert!(text(&answer).contains("free = true"), "{}", text(&answer));
    let tiers = json!({"price": [{"tiers": [{"above": 5, "input": "1"}]}]});
    assert_eq!(refusal(&admin.call("PUT", "/admin/v1/prices/echo", Some(&tiers))), refused(400, "invalid_value", "price[0]"));
    let free = json!({"price": {"free": true}});
    assert_eq!(admin.call("PUT", "/admin/v1/prices/echo", Some(&free)).status, 200);
    let fresh = Request::post("/admin/v1/prices/new", &free).bearer(&admin.key).header("if-match", "\"1\"");
    assert_eq!(refusal(&admin.send("PUT", "/admin/v1/prices/new", &fresh)), refused_whole(409, "revision_conflict"));
}

#[test]
fn invisible_and_unaddressable_names_are_refused() {
    let admin = Admin::echo();
    for name in ["a\u{202e}b", "a\u{200b}", "grp_01m7zpcfdnf1frvedh0bp3pf6m", " a"] {
        assert_eq!(post(&admin, "groups", &json!({"name": name})), refused(400, "invalid_value", "name"), "{name:?}");
    }
    for name in ["größe 組 😀", "a/b", ".."] {
        let row = admin.post("/admin/v1/groups", &json!({"name": name}));
        let found = admin.get(&format!("/admin/v1/groups/{}", row["id"].as_str().unwrap()));
        assert_eq!(found["name"], name);
    }
}

#[test]
fn mismatched_limits_and_past_expiries_are_refused() {
    let admin = Admin::echo();
    for (member, limit) in [
        ("max_input", json!({"mode": "priced_only", "max_input": "1"})),
        ("min_margin", json!({"mode": "ceiling", "max_input": "1", "min_margin": "0.1"})),
        ("max_output", json!({"mode": "min_margin", "min_margin": "0.1", "max_output": 1})),
    ] {
        let said = post(&admin, "keys", &json!({"name": "k", "price_limit": limit}));
        assert_eq!(said, refused(400, "invalid_value", &format!("price_limit.{member}")));
    }
    let none = post(&admin, "keys", &json!({"name": "k", "price_limit": {"mode": "min_margin"}}));
    assert_eq!(none, refused(400, "missing_required_parameter", "price_limit.min_margin"));
    let shown = json!({"mode": "min_margin", "min_margin": "0.1", "max_input": null});
    let key = admin.post("/admin/v1/keys", &json!({"name": "k", "price_limit": shown}));
    let past = "2020-01-01T00:00:00Z";
    assert_eq!(post(&admin, "keys", &json!({"name": "p", "expires_at": past})), refused(400, "invalid_value", "expires_at"));
    let admin_key = json!({"name": "p", "scope": "operator", "expires_at": past});
    assert_eq!(post(&admin, "admin-keys", &admin_key), refused(400, "invalid_value", "expires_at"));
    let ended = admin.patch(&format!("/admin/v1/keys/{}", key["id"].as_str().unwrap()), &json!({"expires_at": past}));
    assert_eq!(ended["expires_at"], past, "one that was made may be ended");
}

#[test]
fn duplicate_accounts_or_headers_and_unsendable_credentials_are_refused() {
    let admin = Admin::echo();
    let account = |name: &str, credential: &str| json!({"name": name, "credential": credential});
    let channel = |more: Value| {
        let mut body = json!({"name": "c", "provider": "openai"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let twice = channel(json!({"accounts": [account("a", "one"), account("a", "two")]}));
    assert_eq!(post(&admin, "channels", &twice), refused(400, "invalid_value", "accounts[1].name"));
    let headers = channel(json!({"headers": {"X-One": "1", "x-one": "2"}}));
    assert_eq!(post(&admin, "channels", &headers), refused(400, "invalid_value", "headers"));
    // An en dash in place of a hyphen.
    for credential in ["sk\u{2011}secret-of-an-account", " sk-secret", "sk-secret\t"] {
        let answer = admin.call("POST", "/admin/v1/channels/echo/accounts", Some(&account("new", credential)));
        assert_eq!(refusal(&answer), refused(400, "invalid_value", "credential"));
        assert!(!text(&answer).contains("secret-of-an-account"), "{}", text(&answer));
    }
}

#[test]
fn dot_segments_in_channel_urls_and_upstream_names_are_refused_on_every_route() {
    let admin = Admin::echo();
    let good = "https://api.example.com/v1";
    admin.post("/admin/v1/channels", &json!({"name": "there", "base_url": good, "serves": [{"model": "m"}]}));
    let dotted = ["https://api.example.com/v1/../admin", "https://api.example.com/%2e%2E/x", "https://api.example.com/./v1"];
    let cases = dotted.map(|base_url| (base_url, json!({"model": "m"}), "base_url")).into_iter().chain([
        (good, json!({"model": "m", "upstream": "../../x"}), "upstream"),
        (good, json!({"model": "m", "upstream": "models/%2e%2e/x"}), "upstream"),
        (good, json!({"model": "a/../b"}), "upstream"),
    ]);
    for (base_url, serves, what) in cases {
        let mut said = Vec::new();
        let whole = json!({"name": "new", "base_url": base_url, "serves": [serves]});
        let change = json!({"base_url": base_url, "serves": [serves]});
        for answer in
            [admin.call("POST", "/admin/v1/channels", Some(&whole)), admin.call("PATCH", "/admin/v1/channels/there", Some(&change))]
        {
            assert_eq!((answer.status, refusal(&answer).1.as_str()), (400, "invalid_value"), "{whole}: {}", text(&answer));
            said.push(text(&answer));
        }
        let upstream = serves["upstream"].as_str().map_or_else(String::new, |name| format!("\nupstream = \"{name}\""));
        let file = format!(
            "[[channel]]\nname = \"new\"\nbase_url = \"{base_url}\"\n[[channel.serves]]\nmodel = {}{upstream}\n",
            serves["model"]
        );
        for path in ["preview", "apply"] {
            let answer = admin.call("POST", &format!("/admin/v1/catalog/{path}"), Some(&json!({"file": file})));
            assert_eq!(answer.status, 400, "{file}: {}", text(&answer));
            said.push(text(&answer));
        }
        let place = admin.gateway.data().join("new.toml");
        std::fs::write(&place, &file).unwrap();
        let place = place.to_str().unwrap();
        let (url, list) = (format!("base_url={base_url}"), format!("serves=[{serves}]"));
        for arguments in [
            vec!["channel", "add", "new", &url, &list],
            vec!["channel", "set", "there", &url, &list],
            vec!["apply", place, "--yes"],
            vec!["check", "--catalog", place],
        ] {
            let output = admin.gateway.run(&arguments);
            assert!(!output.status.success(), "{arguments:?}");
            said.push(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        for said in said {
            assert!(said.contains(what) && said.contains("segments"), "{whole}: {said}");
        }
    }
    assert_eq!(admin.get("/admin/v1/channels/there")["base_url"], good);
    assert_eq!(admin.call("GET", "/admin/v1/channels/new", None).status, 404);
}

#[test]
fn invalid_cursors_and_bodies_are_refused() {
    let admin = Admin::echo();
    for path in ["keys", "groups", "channels/echo/accounts", "health", "admin-keys", "ledger/balances", "budgets?subject=key"] {
        let path = format!("/admin/v1/{path}{}after=zzz", if path.contains('?') { '&' } else { '?' });
        assert_eq!(refusal(&admin.call("GET", &path, None)), refused(400, "invalid_value", "after"), "{path}");
    }
    assert_eq!(post(&admin, "groups", &json!([])), refused_whole(400, "invalid_type"));
    let empty = Request::get("/admin/v1/groups").bearer(&admin.key).header("content-type", "application/json");
    let answer = admin.send("POST", "/admin/v1/groups", &empty);
    assert_eq!(refusal(&answer), refused_whole(400, "invalid_json"));
    assert!(text(&answer).contains("it is empty"), "{}", text(&answer));
    let answer = admin.call("PUT", "/admin/v1/budgets/gateway/x", Some(&json!({"budget": []})));
    assert_eq!(refusal(&answer), refused(400, "invalid_value", "subject"));
    assert!(text(&answer).contains("budget.day"), "{}", text(&answer));
    let file = "[[key]]\nname = \"k\"\nsecret = \"env:PATH\"\n";
    let answer = admin.call("POST", "/admin/v1/catalog/preview", Some(&json!({"file": file})));
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    let fault = &body["error"]["faults"][0];
    assert_eq!((&fault["line"], &fault["column"]), (&3.into(), &10.into()), "{body}");
    assert!(fault["message"].as_str().unwrap().contains("send the secret itself"), "{body}");
}

#[test]
fn weak_etag_matches_its_revision() {
    let admin = Admin::echo();
    let row = admin.get("/admin/v1/groups/default");
    let weak = |revision: &Value| {
        let request = Request::post("/admin/v1/groups/default", &json!({"rpm": 60})).bearer(&admin.key);
        admin.send("PATCH", "/admin/v1/groups/default", &request.header("if-match", &format!("W/\"{revision}\"")))
    };
    assert_eq!(weak(&row["revision"]).status, 200);
    assert_eq!(refusal(&weak(&row["revision"])), refused_whole(409, "revision_conflict"));
}

#[test]
fn malformed_conditional_and_idempotency_headers_are_refused_on_every_documented_route() {
    let admin = Admin::echo();
    let (mut idempotent, mut conditional) = (0, 0);
    for (template, operations) in admin.document()["paths"].as_object().unwrap() {
        let path: Vec<&str> = template.split('/').map(|part| if part.starts_with('{') { "any" } else { part }).collect();
        let path = path.join("/");
        for (method, operation) in operations.as_object().unwrap() {
            for header in operation["parameters"].as_array().unwrap().iter().filter(|parameter| parameter["in"] == "header") {
                let name = header["name"].as_str().unwrap();
                let malformed = Request::post(&path, &json!({})).bearer(&admin.key).header(&name.to_lowercase(), &"x".repeat(201));
                let answer = admin.send(&method.to_uppercase(), &path, &malformed);
                assert_eq!(refusal(&answer), refused(400, "invalid_value", name), "{method} {template}");
                *(if name == "If-Match" { &mut conditional } else { &mut idempotent }) += 1;
            }
        }
    }
    assert!(idempotent >= 10 && conditional >= 15, "{idempotent} and {conditional}");
}

#[test]
fn whole_numbers_may_be_written_with_a_fraction_of_zero() {
    let admin = Admin::echo();
    let raw = Request::post_bytes(
        "/admin/v1/keys",
        br#"{"name": "k", "rpm": 60.0, "budget": {"amount": 5.0, "window": "day"}}"#.to_vec(),
    );
    let made = ok(&admin.send("POST", "/admin/v1/keys", &raw.bearer(&admin.key)));
    assert_eq!((&made["rpm"], &made["budget"]["amount"]), (&json!(60), &json!("5.00")));
}

#[test]
fn proxy_password_is_never_returned() {
    let admin = Admin::echo();
    let (plain, hidden) = ("http://me:proxy-secret@127.0.0.1:3128", "http://me:***@127.0.0.1:3128");
    admin.post("/admin/v1/channels", &json!({"name": "c", "provider": "openai", "proxy": plain}));
    let path = "/admin/v1/channels/c";
    assert_eq!(admin.get(path)["proxy"], hidden);
    for path in [path, "/admin/v1/channels", "/admin/v1/catalog"] {
        let received = text(&admin.as_operator("GET", path, None));
        assert!(!received.contains("proxy-secret") && received.contains(hidden), "{path}: {received}");
        let received = admin.get(path).to_string();
        assert!(!received.contains("proxy-secret") && received.contains(hidden), "{path}: {received}");
    }
    let same = admin.as_operator("PATCH", path, Some(&json!({"proxy": hidden, "priority": 2})));
    assert_eq!(same.status, 200, "sending the shown value back changes nothing: {}", text(&same));
    let log = admin.get("/admin/v1/audit").to_string();
    assert!(!log.contains("proxy-secret") && log.contains(hidden), "{log}");
    let other = admin.as_operator("PATCH", path, Some(&json!({"proxy": "http://127.0.0.1:1"})));
    assert_eq!(refusal(&other), refused_whole(403, "admin_only"));
}
