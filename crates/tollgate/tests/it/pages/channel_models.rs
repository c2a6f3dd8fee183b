//! The last tests of channels and accounts.

use std::time::Duration;

use serde_json::json;
use tollgate_testkit::{ScriptedResponse, wait_for};

use super::operators::{make, owner, upstream};
use crate::admin::Admin;

#[test]
fn last_test_of_an_account_is_kept_and_shown() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut boss = owner(&admin);
    make(&admin, &mut boss, &upstream, "main");
    boss.post(&admin.gateway, "/channels/main/models/add", &[("model", "m")]);
    let last = || {
        let health = admin.get("/admin/v1/health");
        health["items"].as_array().unwrap().iter().find(|account| account["channel"] == "main").unwrap()["last_test"].clone()
    };
    assert!(last().is_null());
    boss.post(&admin.gateway, "/channels/main/test", &[("model", "m")]);
    wait_for("the passed test is stored", Duration::from_secs(30), || last()["passed"] == true);
    assert_eq!((&last()["model"], &last()["error"]), (&json!("m"), &json!(null)));
    for page in ["/channels", "/channels/main", "/channels/main/accounts/main"] {
        let shown = boss.page(&admin.gateway, page);
        assert!(shown.contains("Last test") && shown.contains("just now"), "{page}: {shown}");
    }
    upstream.enqueue(ScriptedResponse::error(401, &json!({"error": {"message": "wrong <i>key</i>"}})));
    let tested = admin.post("/admin/v1/channels/main/test", &json!({"upstream_model": "of-the-provider"}));
    let result = &tested["items"][0];
    assert_eq!((&result["passed"], &result["model"]), (&json!(false), &json!("of-the-provider")), "{tested}");
    assert!(result["took_ms"].as_f64().unwrap() > 0.0 && result["tokens_input"].is_null(), "{tested}");
    assert!(last()["error"].as_str().unwrap().starts_with("status 401: wrong"), "{}", last());
    for page in ["/channels", "/channels/main", "/channels/main/accounts/main"] {
        let shown = boss.page(&admin.gateway, page);
        assert!(shown.contains("status 401: wrong &#60;i&#62;key"), "{page}: {shown}");
    }
    let both = json!({"model": "m", "upstream_model": "m"});
    let refused = admin.call("POST", "/admin/v1/channels/main/test", Some(&both));
    assert!(refused.status == 400 && refused.text().contains("upstream_model"), "{}", refused.text());
}
