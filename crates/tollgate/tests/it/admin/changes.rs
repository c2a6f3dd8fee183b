//! Channels, accounts, groups, models and members over the admin API: create, read, change and delete, and the effect on
//! callers.

use serde_json::json;
use tollgate_testkit::{Request, ScriptedResponse, UPSTREAM_CREDENTIAL, Upstream};

use super::{Admin, ok, refusal, refused, refused_whole, text};
use crate::support;

fn channel(upstream: &Upstream) -> serde_json::Value {
    json!({
        "name": "main", "provider": "compatible", "base_url": upstream.openai_url(), "private_network": true, "cooling": false,
        "accounts": [{"name": "one", "credential": UPSTREAM_CREDENTIAL}],
        "serves": [{"model": "fast", "upstream": "upstream-model", "cost": {"input": "1", "output": 2}}],
    })
}

/// Each change is in force with its answer: the next request sees it.
#[test]
fn catalog_rows_can_be_created_and_deleted_one_by_one() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hello"));
    let admin = Admin::echo();
    let made = admin.post("/admin/v1/channels", &channel(&upstream));
    assert_eq!((made["protocol"].as_str(), made["weight"].as_u64()), (Some("openai"), Some(1)));
    assert_eq!(made["serves"][0]["cost"]["input"], "1.00");
    assert_eq!(made["serves"][0]["cost"]["output"], "2.00");
    admin.post("/admin/v1/models", &json!({"name": "fast", "price": {"input": "10", "output": "20"}, "max_output": 100}));
    admin.post("/admin/v1/groups", &json!({"name": "team", "channels": ["main"], "sale_multiplier": "1.5"}));
    admin.post("/admin/v1/members", &json!({"name": "ann", "groups": ["team"]}));
    let key = admin.post("/admin/v1/keys", &json!({"name": "k", "member": "ann", "groups": ["team"]}));
    let key = key["key"].as_str().unwrap().to_owned();
    let chat = || admin.gateway.send(&Request::post("/v1/chat/completions", &support::chat("fast")).bearer(&key)).status;
    assert_eq!(chat(), 200, "the new model answers");

    // Rows are found by name and by id; no response holds a credential.
    let id = made["id"].as_str().unwrap();
    assert_eq!(admin.get(&format!("/admin/v1/channels/{id}")), admin.get("/admin/v1/channels/main"));
    let account = admin.get("/admin/v1/channels/main/accounts/one");
    assert_eq!((account["status"].as_str(), account["channel"].as_str()), (Some("on"), Some("main")));
    for path in ["/admin/v1/channels", "/admin/v1/channels/main/accounts", "/admin/v1/catalog", "/admin/v1/audit"] {
        assert!(!admin.get(path).to_string().contains(UPSTREAM_CREDENTIAL), "{path} shows a credential");
    }

    admin.patch("/admin/v1/channels/main/accounts/one", &json!({"status": "off", "concurrency": 3}));
    assert_eq!(chat(), 503, "its only account is off");
    let two = admin.post("/admin/v1/channels/main/accounts", &json!({"name": "two", "credential": UPSTREAM_CREDENTIAL}));
    assert_eq!(chat(), 200, "the second account serves");
    assert_eq!(two["cost_multiplier"], "1");
    admin.delete("/admin/v1/channels/main/accounts/two");
    assert_eq!(chat(), 503, "it is gone");
    admin.patch("/admin/v1/channels/main/accounts/one", &json!({"status": "on"}));
    admin.patch("/admin/v1/channels/main", &json!({"status": "off"}));
    assert_eq!(chat(), 503, "the channel is off");
    admin.patch("/admin/v1/channels/main", &json!({"status": "on", "priority": 7}));
    assert_eq!(chat(), 200, "the channel is on");
    admin.patch("/admin/v1/members/ann", &json!({"status": "suspended"}));
    assert_eq!(chat(), 403, "the member is suspended");
    admin.patch("/admin/v1/members/ann", &json!({"status": "active"}));
    admin.patch("/admin/v1/groups/team", &json!({"channels": ["echo"], "models": ["echo"]}));
    assert_eq!(chat(), 404, "the group offers another model");

    admin.delete("/admin/v1/groups/team");
    admin.delete("/admin/v1/models/fast");
    admin.delete("/admin/v1/channels/main");
    for path in ["groups/team", "models/fast", "channels/main", "channels/main/accounts/one"] {
        assert_eq!(refusal(&admin.call("GET", &format!("/admin/v1/{path}"), None)), refused_whole(404, "not_found"), "{path}");
    }
    admin.delete("/admin/v1/members/ann");
    assert_eq!(chat(), 401, "the keys were removed with the member");
    assert_eq!(refusal(&admin.call("DELETE", "/admin/v1/members/owner", None)), refused_whole(409, "last_admin"));
}

#[test]
fn channel_and_the_groups_that_offer_it_change_together_or_not_at_all() {
    let admin = Admin::echo();
    let team = admin.post("/admin/v1/groups", &json!({"name": "team"}));
    let offers = |group: &str| admin.get(&format!("/admin/v1/groups/{group}"))["channels"].clone();
    let near = |groups: serde_json::Value| json!({"name": "near", "provider": "echo", "add_to_groups": groups});
    let make = |body: &serde_json::Value| admin.call("POST", "/admin/v1/channels", Some(body));
    let unknown = make(&near(json!(["team", "nowhere"])));
    assert_eq!(refusal(&unknown), refused(400, "invalid_value", "add_to_groups[1]"));
    admin.post("/admin/v1/channels?dry_run=true", &near(json!(["team"])));
    assert_eq!((&admin.get("/admin/v1/channels?name=near")["items"], offers("team")), (&json!([]), json!([])));
    let made = admin.post("/admin/v1/channels", &near(json!([team["id"], "default"])));
    assert!(made.get("add_to_groups").is_none(), "{made}");
    assert_eq!((offers("team"), offers("default")), (json!(["near"]), json!(["echo", "near"])));

    // The other fields of the groups stay, also those that are changed in between.
    admin.patch("/admin/v1/groups/team", &json!({"sale_multiplier": "2"}));
    let leave = json!({"weight": 5, "remove_from_groups": ["default"]});
    let path = format!("/admin/v1/channels/{}", made["id"].as_str().unwrap());
    assert_eq!(refusal(&admin.if_match(&path, &json!(1), &leave)), refused_whole(409, "revision_conflict"));
    assert_eq!((&admin.get(&path)["weight"], offers("default")), (&json!(1), json!(["echo", "near"])));
    assert_eq!(admin.patch(&path, &leave)["weight"], 5);
    assert_eq!((offers("default"), offers("team")), (json!(["echo"]), json!(["near"])));
    assert_eq!(admin.get("/admin/v1/groups/team")["sale_multiplier"], "2");
    let gone = admin.call("PATCH", &path, Some(&json!({"weight": 6, "remove_from_groups": ["nowhere"]})));
    assert_eq!(refusal(&gone), refused(400, "invalid_value", "remove_from_groups[0]"));
    assert_eq!(admin.get(&path)["weight"], 5);
}

#[test]
fn private_destinations_require_the_admin_scope() {
    let admin = Admin::echo();
    let make = |body: &serde_json::Value| refusal(&admin.call("POST", "/admin/v1/channels", Some(body)));
    let with = |field: &str, value: serde_json::Value| {
        let mut body = json!({"name": "c", "provider": "compatible", "base_url": "https://api.example.com/v1"});
        body[field] = value;
        body
    };
    for url in [
        "gopher://127.0.0.1:1/",
        "http://api.openai.com@127.0.0.1:1/",
        "",
        "http://x:0/",
        "http://2852039166/",
        "http://[fd00:ec2::254]/",
        "http://127.0.0.1:1/",
        "http://[::ffff:10.0.0.1]/",
        "http://localhost:11434/v1",
        "https://api.example.com/v1?x=1#y",
        "file:///etc/passwd",
    ] {
        assert_eq!(make(&with("base_url", json!(url))), refused(400, "invalid_value", "base_url"), "{url}");
    }
    assert_eq!(make(&with("headers", json!({"Transfer-Encoding": "chunked"}))), refused(400, "invalid_value", "headers"));
    assert_eq!(make(&with("headers", json!({"x": "a\r\nb: c"}))).0, 400);
    let account = json!([{"name": "a", "credential": "k\r\nX-Injected: 1"}]);
    assert_eq!(make(&with("accounts", account)), refused(400, "invalid_value", "credential"));
    let keyless = json!({"name": "c", "provider": "openai", "accounts": [{"name": "a"}]});
    assert_eq!(make(&keyless), refused(400, "missing_required_parameter", "credential"));
    let twice = json!([{"model": "m"}, {"model": "m"}]);
    assert_eq!(make(&with("serves", twice)), refused(400, "invalid_value", "serves"));
    assert_eq!(admin.get("/admin/v1/channels?name=c")["items"], json!([]), "nothing was made");

    for (field, value) in
        [("private_network", json!(true)), ("proxy", json!("http://10.0.0.1:3128")), ("ca_file", json!("/etc/roots.pem"))]
    {
        let answer = admin.as_operator("POST", "/admin/v1/channels", Some(&with(field, value.clone())));
        assert_eq!(refusal(&answer), refused_whole(403, "admin_only"), "{field}");
    }
    ok(&admin.as_operator("POST", "/admin/v1/channels", Some(&with("weight", json!(2)))));
    admin.patch("/admin/v1/channels/c", &json!({"private_network": true}));
    ok(&admin.as_operator("PATCH", "/admin/v1/channels/c", Some(&json!({"weight": 3}))));
    let other_url = json!({"base_url": "https://other.example.com/v1"});
    let answer = admin.as_operator("PATCH", "/admin/v1/channels/c", Some(&other_url));
    assert_eq!(refusal(&answer), refused_whole(403, "admin_only"), "an admin allowed it private addresses");
    let xss = with("name", json!("<img src=x onerror=alert(1)>"));
    let answer = admin.call("POST", "/admin/v1/channels", Some(&xss));
    assert!(answer.status == 201 && answer.header("x-content-type-options") == Some("nosniff"), "{}", text(&answer));
}

#[test]
fn operator_cannot_redirect_a_stored_credential() {
    let (known, other) = (Upstream::start(), Upstream::start());
    let admin = Admin::echo();
    admin.post(
        "/admin/v1/channels",
        &json!({
            "name": "main", "provider": "compatible", "base_url": known.openai_url(), "private_network": true,
            "accounts": [{"name": "a", "credential": "stored-credential"}], "serves": [{"model": "m"}],
        }),
    );
    admin.post(
        "/admin/v1/channels",
        &json!({
            "name": "public", "provider": "compatible", "base_url": "https://one.example.com/v1",
            "accounts": [{"name": "a", "credential": "stored-credential"}],
        }),
    );
    let there = |name: &str| admin.get(&format!("/admin/v1/channels/{name}"))["base_url"].clone();
    for (name, url) in
        [("main", other.openai_url()), ("main", "https://x.example.com".into()), ("public", "https://x.example.com".into())]
    {
        let (path, before) = (format!("/admin/v1/channels/{name}"), there(name));
        for body in [json!({"base_url": url}), json!({"base_url": url, "private_network": false})] {
            let answer = admin.as_operator("PATCH", &path, Some(&body));
            assert_eq!(refusal(&answer), refused_whole(403, "admin_only"), "{name} to {url}");
        }
        assert_eq!(there(name), before);
        // A row that was read can be sent back whole.
        ok(&admin.as_operator("PATCH", &path, Some(&json!({"base_url": before, "weight": 7}))));
        for file in ["/admin/v1/catalog/apply", "/admin/v1/catalog/preview"] {
            let answer = admin.as_operator("POST", file, Some(&json!({"file": ""})));
            assert_eq!(refusal(&answer), refused_whole(403, "admin_only"), "{file}");
        }
    }
    assert_eq!(other.received().len(), 0);
    admin.patch("/admin/v1/channels/public", &json!({"base_url": "https://two.example.com/v1"}));
    assert_eq!(there("public"), "https://two.example.com/v1");

    // Operators may create channels, and change an address as long as it has no credentials.
    let own = json!({"name": "own", "provider": "compatible", "base_url": "https://one.example.com/v1"});
    ok(&admin.as_operator("POST", "/admin/v1/channels", Some(&own)));
    let path = "/admin/v1/channels/own";
    ok(&admin.as_operator("PATCH", path, Some(&json!({"base_url": "https://three.example.com/v1"}))));
    let account = json!({"name": "a", "credential": "their-own"});
    ok(&admin.as_operator("POST", &format!("{path}/accounts"), Some(&account)));
    let answer = admin.as_operator("PATCH", path, Some(&json!({"base_url": "https://four.example.com/v1"})));
    assert_eq!(refusal(&answer), refused_whole(403, "admin_only"));
    ok(&admin.as_operator("DELETE", &format!("{path}/accounts/a"), None));
    ok(&admin.as_operator("PATCH", path, Some(&json!({"base_url": "https://four.example.com/v1"}))));
}

#[test]
fn rows_of_a_served_file_are_read_only_over_the_api() {
    let upstream = Upstream::start();
    let admin = Admin::of(support::gateway_for(&upstream));
    for (method, path, body) in [
        ("PATCH", "/admin/v1/channels/chat", Some(json!({"weight": 2}))),
        ("DELETE", "/admin/v1/groups/default", None),
        ("PUT", "/admin/v1/prices/chat-model", Some(json!({"price": null}))),
        ("POST", "/admin/v1/channels/chat/accounts", Some(json!({"name": "x", "credential": "credential"}))),
    ] {
        let answer = admin.call(method, path, body.as_ref());
        assert_eq!(refusal(&answer), refused_whole(409, "owned_by_file"), "{method} {path}");
        assert!(text(&answer).contains("catalog.toml"), "the file is named: {}", text(&answer));
    }
    assert_eq!(admin.get("/admin/v1/groups/default")["owner"], "file");
    let own = admin.post("/admin/v1/groups", &json!({"name": "own", "channels": ["chat"]}));
    assert_eq!(own["owner"], "database");
}

#[test]
fn channel_test_reports_each_step() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hello"));
    let admin = Admin::echo();
    admin.post("/admin/v1/channels", &channel(&upstream));
    let tested = admin.post("/admin/v1/channels/main/test", &json!({"account": "one"}));
    let steps: Vec<&str> = tested["items"][0]["steps"].as_array().unwrap().iter().map(|it| it["step"].as_str().unwrap()).collect();
    assert!(tested["items"][0]["passed"] == true && steps.contains(&"TCP") && steps.contains(&"usage"), "{tested}");
    let used = |tested: &serde_json::Value| {
        ["tokens_input", "tokens_output", "tokens_cache_read", "cost"].map(|field| tested["items"][0][field].clone())
    };
    assert_eq!(used(&tested), [json!(5), json!(7), json!(0), json!("0.000019")], "{tested}");
    let unpriced = admin.post("/admin/v1/channels/main/test", &json!({"upstream_model": "another"}));
    assert_eq!(used(&unpriced), [json!(5), json!(7), json!(0), json!(null)], "{unpriced}");
    assert_eq!(refusal(&admin.call("POST", "/admin/v1/channels/nowhere/test", None)), refused_whole(404, "not_found"));
    assert_eq!(refusal(&admin.call("POST", "/admin/v1/channels/echo/test", None)), refused_whole(409, "built_in"));
    let health = admin.get("/admin/v1/health");
    assert!(health["items"].as_array().unwrap().iter().any(|it| it["channel"] == "main" && it["state"] == "usable"), "{health}");
}
