//! Catalog files over the admin API.

use serde_json::json;
use tollgate_testkit::Request;

use super::{Admin, ok, refusal, refused_whole, text, within_a_second};
use crate::support;

const FILE: &str = "[[channel]]\nname = \"second\"\nprovider = \"echo\"\n[[channel.account]]\nname = \"a\"\n\
    [[channel.serves]]\nmodel = \"parrot\"\ncost = { free = true }\n\
    [[model]]\nname = \"parrot\"\nprice = { input = \"1\", output = \"2\" }\n\
    [[group]]\nname = \"birds\"\nchannels = [\"second\"]\n[[key]]\nname = \"cage\"\ngroups = [\"birds\"]\nsecret = \"a-secret-for-the-cage\"\n";

#[test]
fn catalog_file_can_be_previewed_applied_and_pulled() {
    let admin = Admin::echo();
    let before = admin.get("/admin/v1/catalog");
    let sent = json!({"file": FILE});
    let plan = admin.post("/admin/v1/catalog/preview", &sent);
    let lines: Vec<String> = plan["lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| {
            format!("{} {} {}", line["action"].as_str().unwrap(), line["kind"].as_str().unwrap(), line["name"].as_str().unwrap())
        })
        .collect();
    assert_eq!(lines, ["add channel second", "add account second/a", "add model parrot", "add group birds", "add key owner/cage"]);
    assert_eq!(admin.get("/admin/v1/catalog"), before, "a preview writes nothing");

    let applied = admin.post("/admin/v1/catalog/apply", &sent);
    assert!(applied["revision"].as_i64() > before["revision"].as_i64(), "{applied}");
    let chat = Request::post("/v1/chat/completions", &support::chat("parrot")).bearer("a-secret-for-the-cage");
    within_a_second("the file's key works", || admin.gateway.send(&chat).status == 200);
    let pulled = admin.get("/admin/v1/catalog");
    let file = pulled["file"].as_str().unwrap();
    assert!(file.contains("name = \"parrot\"") && !file.contains("a-secret-for-the-cage"), "{file}");
    let again = admin.post("/admin/v1/catalog/apply", &json!({"file": file}));
    assert_eq!(
        (&again["changes"], &again["revision"]),
        (&json!(0), &pulled["revision"]),
        "applying the pulled file changes nothing"
    );

    let stale = Request::post("/admin/v1/catalog/apply", &sent).bearer(&admin.key).header("if-match", "\"1\"");
    assert_eq!(refusal(&admin.gateway.send(&stale)), refused_whole(409, "revision_conflict"));
    assert_eq!(refusal(&admin.as_operator("POST", "/admin/v1/catalog/apply", Some(&sent))), refused_whole(403, "admin_only"));
    let removed = admin.post("/admin/v1/catalog/preview", &json!({"file": FILE, "prune": true}));
    assert!(removed.to_string().contains("\"remove\""), "{removed}");
}

#[test]
fn invalid_catalog_file_is_refused_whole_and_reads_no_local_secret() {
    let admin = Admin::echo();
    let apply = |file: &str| admin.call("POST", "/admin/v1/catalog/apply", Some(&json!({"file": file})));
    for (file, says) in [
        ("[[chanel]]\nname = \"x\"\n", "line 1, column"),
        ("not toml at all", "line 1"),
        (
            "[[channel]]\nname = \"x\"\nprovider = \"compatible\"\nbase_url = \"https://x/v1\"\n[[channel.account]]\nname = \"a\"\ncredential = \"env:PATH\"\n",
            "send the secret itself",
        ),
        (
            "[[channel]]\nname = \"x\"\nprovider = \"compatible\"\nbase_url = \"https://x/v1\"\n[[channel.account]]\nname = \"a\"\ncredential = \"file:/etc/hostname\"\n",
            "cannot be named here",
        ),
    ] {
        let answer = apply(file);
        let (status, _, param) = refusal(&answer);
        assert!(status == 400 && param.as_deref() == Some("file") && text(&answer).contains(says), "{file}: {}", text(&answer));
    }
    assert_eq!(ok(&apply("")).get("changes"), Some(&json!(0)));
}

#[test]
fn explain_matches_the_running_gateway() {
    let admin = Admin::echo();
    let explained = admin.get("/admin/v1/explain?model=echo&key=first");
    assert!(explained["group"] == "echo" && explained["planned"][0]["channel"] == "echo", "{explained}");
    let unknown = admin.get("/admin/v1/explain?model=nothing&key=first&protocol=gemini&max_price=input%3D1");
    assert_eq!(unknown["refusal"]["error"], "E13", "{unknown}");
    for (query, status, param) in [
        ("key=first", 400, Some("model")),
        ("model=echo&key=unknown", 404, None),
        ("model=echo&key=first&max_price=cheap", 400, Some("max_price")),
        ("model=echo&key=first&protocol=soap", 400, Some("protocol")),
    ] {
        let (found, _, at) = refusal(&admin.call("GET", &format!("/admin/v1/explain?{query}"), None));
        assert_eq!((found, at.as_deref()), (status, param), "{query}");
    }
}

#[test]
fn explain_uses_current_counters() {
    let admin = Admin::echo();
    let made = admin.post("/admin/v1/keys", &json!({"name": "ci", "groups": ["default"], "rpm": 1}));
    let chat = Request::post("/v1/chat/completions", &support::chat("echo")).bearer(made["key"].as_str().unwrap());
    within_a_second("the key works", || admin.gateway.send(&chat).status == 200);
    let explained = admin.get("/admin/v1/explain?model=echo&key=ci");
    assert_eq!(explained["refusal"]["error"], "E31", "{explained}");
    let limit = &explained["limits"][0];
    assert_eq!((&limit["name"], &limit["left"], &limit["counted_by"]), (&json!("ci"), &json!(0), &json!("gateway")), "{explained}");
    assert_eq!(admin.gateway.send(&chat).status, 429);
}
