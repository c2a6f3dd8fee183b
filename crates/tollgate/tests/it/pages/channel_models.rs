//! Tests of several models of a channel, saving their results, and the last tests of channels and accounts.

use std::time::Duration;

use serde_json::json;
use tollgate_testkit::{ScriptedResponse, wait_for};

use super::{
    Person,
    attacks::signed_in,
    location,
    operators::{make, owner, upstream},
};
use crate::{admin::Admin, identity::make_member};

#[test]
fn several_models_are_tested_and_those_that_worked_are_served() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut boss = owner(&admin);
    make(&admin, &mut boss, &upstream, "main");
    for model in ["one", "two", "three"] {
        boss.post(&admin.gateway, "/channels/main/models/add", &[("model", model)]);
    }
    let page = boss.page(&admin.gateway, "/channels/main/test");
    assert!(page.contains("name=\"model\" value=\"one\"") && page.contains("Up to 100 models in one run"), "{page}");
    upstream.enqueue(ScriptedResponse::json(&json!({"data": [{"id": "one"}, {"id": "new"}]})));
    let listed = boss.post(&admin.gateway, "/channels/main/test/fetch", &[]).text();
    assert!(listed.contains("name=\"model\" value=\"new\""), "{listed}");
    assert_eq!(listed.matches("value=\"one\"").count(), 1, "a served model is listed once: {listed}");
    upstream.enqueue(ScriptedResponse::error(500, &json!({"error": {"message": "out <b>of</b> order"}})));
    let failed = boss.post(&admin.gateway, "/channels/main/test/fetch", &[]);
    assert!(failed.status == 422 && failed.text().contains("order") && !failed.text().contains("<b>of"), "{}", failed.text());

    // The results are sent in parts, with a form for those that worked.
    let run = [("model", "one"), ("model", "new"), ("model", "one"), ("account", "main"), ("which", "chosen")];
    let results = boss.post(&admin.gateway, "/channels/main/test/models", &run).text();
    assert!(results.contains("2 passed, 0 failed") && results.contains("</html>"), "{results}");
    for model in ["one", "new"] {
        assert!(results.contains(&format!("name=\"use\" value=\"{model}\" checked")), "{results}");
    }
    upstream.enqueue(ScriptedResponse::error(404, &json!({"error": {"message": "no such model <script>"}})));
    let results = boss.post(&admin.gateway, "/channels/main/test/models", &[("model", "two"), ("which", "chosen")]).text();
    assert!(results.contains("0 passed, 1 failed") && results.contains("status 404: no such model"), "{results}");
    assert!(!results.contains("value=\"two\" checked") && !results.contains("<script>"), "{results}");
    let results = boss.post(&admin.gateway, "/channels/main/test/models", &[("which", "all")]).text();
    assert!(results.contains("3 passed, 0 failed"), "{results}");
    let none = boss.post(&admin.gateway, "/channels/main/test/models", &[("which", "chosen")]);
    assert!(none.status == 422 && none.text().contains("Choose the models to test first."), "{}", none.text());
    let built_in = boss.post(&admin.gateway, "/channels/echo/test/models", &[("which", "all")]);
    assert!(built_in.status == 422 && built_in.text().contains("there is nothing to test"), "{}", built_in.text());

    // The changes are shown before they are saved. A model that was not tested is kept.
    let served = || {
        let channel = admin.get("/admin/v1/channels/main");
        channel["serves"].as_array().unwrap().iter().map(|served| served["model"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let results = [("tested", "one"), ("use", "one"), ("tested", "two"), ("tested", "new"), ("use", "new")];
    let preview = boss.post(&admin.gateway, "/channels/main/test/use", &results).text();
    assert!(
        preview.contains("name=\"add\" value=\"new\" checked") && preview.contains("name=\"remove\" value=\"two\" checked"),
        "{preview}"
    );
    assert!(preview.contains("2 of the models it serves stay."), "{preview}");
    assert_eq!(served(), ["one", "two", "three"], "nothing is saved");
    let saved = boss.post(&admin.gateway, "/channels/main/test/serve", &[("add", "new"), ("remove", "two"), ("prices", "on")]);
    assert_eq!(location(&saved), "/channels/main/models");
    assert_eq!(served(), ["one", "three", "new"]);
    // The results are shown again, with the chosen models, for readers who do not save.
    let one = r#"{"model":"one","accounts":[{"account":"main","passed":true,"error":null,"took_ms":812.4,"first_byte_ms":480.0}]}"#;
    let two = r#"{"model":"two","accounts":[{"account":"main","passed":false,"error":"status 404: <b>no</b>","took_ms":5.0}]}"#;
    let with_results = [&results[..], &[("result", one), ("result", two), ("result", "no JSON"), ("untested", "3")]].concat();
    let preview = boss.post(&admin.gateway, "/channels/main/test/use", &with_results).text();
    assert!(preview.contains("formaction=\"/channels/main/test/results\"") && preview.contains("name=\"result\""), "{preview}");
    let again = boss.post(&admin.gateway, "/channels/main/test/results", &with_results).text();
    assert!(again.contains("2 models were tested.") && again.contains("1 passed, 1 failed, 3 not tested"), "{again}");
    assert!(again.contains("480 ms") && again.contains("status 404: &#60;b&#62;no"), "{again}");
    assert!(again.contains("name=\"use\" value=\"one\" checked") && !again.contains("value=\"two\" checked"), "{again}");
    let without = boss.post(&admin.gateway, "/channels/main/test/results", &results).text();
    assert!(without.contains("Up to 100 models in one run"), "{without}");
    let same = boss.post(&admin.gateway, "/channels/main/test/use", &[("tested", "one"), ("use", "one")]).text();
    assert!(same.contains("nothing would change") && !same.contains(">Save<"), "{same}");

    make_member(&admin, "ann", "member");
    let mut ann = signed_in(&admin, "ann");
    assert_eq!(ann.get(&admin.gateway, "/channels/main/test").status, 404);
    for path in ["fetch", "models", "use", "results", "serve"] {
        assert_eq!(ann.post(&admin.gateway, &format!("/channels/main/test/{path}"), &results).status, 404, "{path}");
    }
}

#[test]
fn tests_show_the_tokens_they_used_and_their_cost() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut boss = owner(&admin);
    make(&admin, &mut boss, &upstream, "main");
    let cost = json!({"input": "1", "output": "2", "cache_read": "0.1"});
    admin.patch("/admin/v1/channels/main", &json!({"serves": [{"model": "priced", "cost": cost}, {"model": "bare"}]}));
    let staged = |boss: &mut Person, model| boss.post(&admin.gateway, "/channels/main/test", &[("model", model)]).text();
    let shown = staged(&mut boss, "priced");
    assert!(shown.contains("Passed · 5 tokens in, 7 out · cost $0.000019"), "{shown}");
    let shown = staged(&mut boss, "bare");
    assert!(shown.contains("5 tokens in, 7 out · cost not known: the channel has no price for the model"), "{shown}");

    let answer = json!({
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "pong"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 15, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 10}},
    });
    upstream.enqueue(ScriptedResponse::json(&answer));
    let results = boss.post(&admin.gateway, "/channels/main/test/models", &[("model", "priced"), ("which", "chosen")]).text();
    assert!(results.contains("15 → 7") && results.contains("10 from the cache") && results.contains("$0.00002"), "{results}");
    let results = boss.post(&admin.gateway, "/channels/main/test/models", &[("model", "bare"), ("which", "chosen")]).text();
    assert!(results.contains("5 → 7") && results.contains("Not priced"), "{results}");
    let channel = admin.get("/admin/v1/channels/main");
    let chosen = [("channel", channel["id"].as_str().unwrap()), ("do", "test")];
    let several = boss.post(&admin.gateway, "/channel-selection", &chosen).text();
    assert!(several.contains("Passed · 5 tokens in, 7 out · cost $0.000019"), "{several}");
    // Tests have no usage records.
    assert_eq!(admin.get("/admin/v1/usage")["items"], json!([]));
}

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
