//! Calls every route and checks its response against the OpenAPI document.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tollgate_testkit::{Request, ScriptedResponse, UPSTREAM_CREDENTIAL, Upstream};

use super::{Admin, ok, within_a_second};
use crate::support;

/// Calls the routes that concern several rows, or none.
fn around(admin: &Admin) {
    let at = |path: &str| format!("/admin/v1/{path}");
    admin.post(&at("channels/c/test"), &json!({}));
    admin.post(&at("channels/c/end-cooling"), &json!({}));
    admin.get(&at("load"));
    admin.get(&at("channels/c/history?limit=1"));
    let shown = admin.get(&at("channels/c/file"));
    let change = json!({"file": shown["file"], "version": shown["version"]});
    for path in ["channels/c/file?dry_run=true", "channels/c/file"] {
        assert_eq!(ok(&admin.call("PUT", &at(path), Some(&change)))["lines"], json!([]));
    }
    around_several_channels(admin);
    admin.get(&at("members?search=poor"));
    admin.get(&at("group-prices?search=m&groups_from=g"));
    for path in [
        "prices?group=g",
        "prices/m/history",
        "price-changes?limit=2",
        "prices/unpriced",
        "settings",
        "budgets?subject=channel",
        "health",
        "health/history",
        "health/uptime?channel=c",
        "square?group=g",
        "catalog",
        "audit",
        "ledger",
        "ledger/balances",
        "usage",
        "usage/summary",
        "usage/attempts",
        "usage/histogram",
        "keys/summary?search=first",
        "storage",
    ] {
        admin.get(&at(path));
    }
    ok(&admin.call("PUT", &at("prices/m"), Some(&json!({"price": {"input": "1"}}))));
    admin.post(&at("prices/import"), &json!({"built_in": true, "to": "both"}));
    admin.post(&at("prices/simulate"), &json!({"model": "m", "group": "g", "input": 1_000, "output": 10}));
    admin.post(&at("group-offers"), &json!({"channels": ["c"], "models": ["*"], "sale_multiplier": "0.9"}));
    ok(&admin.call("GET", &at("audit/export"), None));
    ok(&admin.call("GET", &at("ledger/export"), None));
    ok(&admin.call("PUT", &at("budgets/group/g"), Some(&json!({"budget": []}))));
    ok(&admin.call("PUT", &at("settings/log.slow_ms"), Some(&json!({"value": 5}))));
    admin.get(&at("settings/log.slow_ms"));
    admin.delete(&at("settings/log.slow_ms"));
    around_alert_destinations(admin);
    admin.get(&at("alert-rules"));
    admin.post(&at("members"), &json!({"name": "poor", "billing": "prepaid"}));
    // A changed setting is evaluated at once.
    ok(&admin.call("PUT", &at("settings/alerts.balance_usd"), Some(&json!({"value": "2"}))));
    let path = at("alerts?rule=balance_low");
    let listed = || admin.get(&path)["items"].clone();
    tollgate_testkit::wait_for("an alert", std::time::Duration::from_secs(30), || listed()[0].is_object());
    admin.get(&at(&format!("alerts/{}", listed()[0]["id"].as_str().unwrap())));
    ok(&admin.once(&at("ledger/top-ups"), "w1", &json!({"member": "b", "amount": "1"})));
    ok(&admin.once(&at("ledger/adjustments"), "w2", &json!({"member": "b", "amount": "-1"})));
    admin.get(&at("explain?model=m&key=first"));
    admin.post(&at("catalog/preview"), &json!({"file": ""}));
    admin.post(&at("catalog/apply"), &json!({"file": ""}));
    let answer = admin.gateway.chat(&support::chat("echo"));
    let record = at(&format!("usage/{}", answer.header("x-request-id").unwrap()));
    within_a_second("it is booked", || admin.call("GET", &record, None).status == 200);
    admin.get(&format!("{record}/translation"));
    ok(&admin.call("GET", &at("usage/export"), None));
    around_contents(admin);
    around_jobs(admin);
    crate::identity::walk(admin);
}

/// Calls the routes of destinations of alerts.
fn around_alert_destinations(admin: &Admin) {
    let at = |path: &str| format!("/admin/v1/{path}");
    let hook = json!({"name": "hook", "kind": "webhook", "url": "http://127.0.0.1:9/x", "private_network": true});
    admin.post(&at("alert-destinations"), &hook);
    admin.get(&at("alert-destinations"));
    admin.get(&at("alert-destinations/hook"));
    admin.patch(&at("alert-destinations/hook"), &json!({"status": "off"}));
    admin.post(&at("alert-destinations/hook/test"), &Value::Null);
    admin.delete(&at("alert-destinations/hook"));
}

/// Calls the routes that concern several channels at once.
fn around_several_channels(admin: &Admin) {
    let at = |path: &str| format!("/admin/v1/{path}");
    ok(&admin.call("PATCH", &at("channels"), Some(&json!({"channels": ["c"], "weight": 2, "account": {"rpm": 9}}))));
    admin.post(&at("channels"), &json!({"name": "spare", "provider": "echo"}));
    ok(&admin.call("POST", &at("channel-removals"), Some(&json!({"channels": ["spare"]}))));
    ok(&admin.call("POST", &at("channels/c/new-accounts"), Some(&json!({"accounts": [{"name": "b"}, {"name": "d"}]}))));
    for name in ["b", "d"] {
        admin.delete(&at(&format!("channels/c/accounts/{name}")));
    }
    let proxy = json!({"channels": [{"channel": "c", "proxy": "http://127.0.0.1:9"}]});
    ok(&admin.call("PUT", &at("proxies"), Some(&proxy)));
    admin.get(&at("proxies"));
    admin.post(&at("channels/c/test-proxy"), &Value::Null);
    ok(&admin.call("PUT", &at("proxies"), Some(&json!({"channels": [{"channel": "c"}]}))));
}

/// Calls the routes of stored contents.
fn around_contents(admin: &Admin) {
    let at = |path: &str| format!("/admin/v1/{path}");
    ok(&admin.call("PUT", &at("settings/contents.store"), Some(&json!({"value": "true"}))));
    let key = admin.post(&at("keys"), &json!({"name": "logged", "log_contents": true}));
    let answer =
        admin.gateway.send(&Request::post("/v1/chat/completions", &support::chat("echo")).bearer(key["key"].as_str().unwrap()));
    let contents = at(&format!("usage/{}/contents", answer.header("x-request-id").unwrap()));
    let are_stored = || admin.call("GET", &contents, None).status == 200;
    tollgate_testkit::wait_for("its contents are stored", std::time::Duration::from_secs(30), are_stored);
    admin.delete(&contents);
    admin.delete(&at("settings/contents.store"));
    admin.delete(&at(&format!("keys/{}", key["id"].as_str().unwrap())));
}

/// Calls the routes of jobs and of their results.
fn around_jobs(admin: &Admin) {
    let at = |path: &str| format!("/admin/v1/{path}");
    let job = admin.post(&at("jobs"), &json!({"kind": "backup"}));
    let path = at(&format!("jobs/{}", job["id"].as_str().unwrap()));
    tollgate_testkit::wait_for("the backup is made", std::time::Duration::from_mins(1), || admin.get(&path)["state"] == "done");
    ok(&admin.call("GET", &format!("{path}/events"), None));
    admin.post(&format!("{path}/cancel"), &json!({}));
    admin.get(&at("jobs"));
    admin.get(&at("exports"));
    let made = admin.get(&at("backups"));
    let backup = at(&format!("backups/{}", made["items"][0]["name"].as_str().unwrap()));
    ok(&admin.call("GET", &backup, None));
    admin.delete(&backup);
    admin.get(&at("backup-schedule"));
}

/// Creates, reads, changes and deletes a row of every kind.
fn walk(admin: &Admin, upstream: &Upstream) {
    let at = |path: &str| format!("/admin/v1/{path}");
    admin.get("/admin/openapi.json");
    admin.get(&at("me"));
    let key = admin.post(&at("admin-keys"), &json!({"name": "walker", "scope": "operator"}));
    admin.get(&at("admin-keys"));
    admin.get(&at(&format!("admin-keys/{}", key["id"].as_str().unwrap())));
    admin.delete(&at(&format!("admin-keys/{}", key["id"].as_str().unwrap())));
    let channel = json!({
        "name": "c", "provider": "compatible", "base_url": upstream.openai_url(), "private_network": true, "headers": {"x-one": "1"},
        "serves": [{"model": "m", "profile": {"top_k": false}}], "budget": {"amount": "5", "window": "day", "action": "alert"},
    });
    let group = json!({
        "name": "g", "channels": ["c"], "price_limit": {"mode": "ceiling", "max_input": "3"}, "hedge": {"cost_cap": "1"},
    });
    let price = json!([
        {"input": "1", "tiers": [{"above": 1_000, "input": "2"}]},
        {"valid_from": "2030-01-01T00:00:00Z", "input": "0.000000001", "thinking": 0.5},
    ]);
    let made = [
        ("channels", channel, json!({"base_url": "https://api.example.com/v1", "hoist": true})),
        (
            "channels/c/accounts",
            json!({"name": "a", "credential": UPSTREAM_CREDENTIAL}),
            json!({"rpm": 10, "credential": "another one"}),
        ),
        (
            "models",
            json!({"name": "m", "price": price, "supported_parameters": ["tools"]}),
            json!({"visible": false, "supported_parameters": null}),
        ),
        ("groups", group, json!({"price_limit": null, "hedge": null})),
        ("members", json!({"name": "b", "default_group": "g"}), json!({"billing": "prepaid", "default_group": null})),
        (
            "keys",
            json!({"name": "k", "price_limit": {"mode": "min_margin", "min_margin": "0.1"}}),
            json!({"price_limit": {"mode": "priced_only"}}),
        ),
    ];
    let mut paths = Vec::new();
    for (collection, new, change) in made {
        let row = admin.post(&at(collection), &new);
        let name = if collection == "keys" { row["id"].as_str().unwrap() } else { new["name"].as_str().unwrap() };
        let path = at(&format!("{collection}/{name}"));
        assert!(admin.get(&at(collection))["items"].as_array().unwrap().iter().any(|it| it["id"] == row["id"]), "{collection}");
        assert_eq!(admin.get(&path)["id"], row["id"]);
        if collection == "keys" {
            assert_eq!(admin.post(&at("find-key"), &json!({"key": row["key"]}))["id"], row["id"]);
        }
        if collection == "channels/c/accounts" {
            admin.patch(&at("channels/c"), &json!({"base_url": upstream.openai_url()}));
            upstream.enqueue(ScriptedResponse::json(&json!({"data": [{"id": "m"}]})));
            admin.get(&at("channels/c/upstream-models"));
        }
        let changed = admin.patch(&path, &change);
        for (member, value) in change.as_object().unwrap() {
            assert!(
                changed.get(member).is_none_or(|it| it == value || it["mode"] == value["mode"]),
                "{path}: {member} in {changed}"
            );
        }
        paths.push(path);
    }
    around(admin);
    paths.iter().rev().for_each(|path| admin.delete(path));
}

/// Routes that need an OpenID provider: `sdk-tests/oidc` calls them.
const AT_A_PROVIDER: [&str; 3] = ["/admin/v1/oidc/start", "/admin/v1/oidc/callback", "/admin/v1/oidc/test"];

#[test]
fn every_route_answers_as_its_openapi_document_says() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hello"));
    let admin = Admin::echo();
    walk(&admin, &upstream);
    let mut described = BTreeSet::new();
    for (template, operations) in admin.document()["paths"].as_object().unwrap() {
        described.extend(operations.as_object().unwrap().keys().map(|method| (method.to_uppercase(), template.clone())));
    }
    described.retain(|(_, path)| !AT_A_PROVIDER.contains(&path.as_str()));
    // The live tail has no end; a separate test reads its beginning.
    described.remove(&("GET".to_owned(), "/admin/v1/usage/tail".to_owned()));
    let silent: Vec<_> = described.difference(&admin.answered()).cloned().collect();
    assert!(silent.is_empty(), "these routes were not seen to answer well: {silent:?}");
}

#[test]
fn manual_lists_every_route() {
    let admin = Admin::echo();
    let manual = include_str!("../../../../../docs/admin-api.md");
    for (path, operations) in admin.document()["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let scope = operation["x-needs"].as_str().unwrap();
            let row = format!("| `{} {path}` | {scope} | {} |", method.to_uppercase(), operation["summary"].as_str().unwrap());
            assert!(manual.contains(&row), "docs/admin-api.md lacks the row\n{row}");
        }
    }
}

#[test]
fn document_is_valid_openapi() {
    let admin = Admin::echo();
    let document = admin.document();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["components"]["securitySchemes"]["admin_key"]["scheme"], "bearer");
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let named = |parameter: &serde_json::Value| path.contains(&format!("{{{}}}", parameter["name"].as_str().unwrap()));
            let in_path = operation["parameters"].as_array().unwrap().iter().filter(|it| it["in"] == "path");
            let in_path: Vec<_> = in_path.collect();
            assert_eq!(in_path.len(), path.matches('{').count(), "{method} {path}");
            assert!(in_path.into_iter().all(named), "{method} {path}");
            assert!(operation["operationId"].is_string() && operation["responses"]["default"].is_object(), "{method} {path}");
        }
    }
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        assert!(jsonschema::meta::is_valid(schema), "{name} is not a JSON schema: {schema:#}");
    }
}
