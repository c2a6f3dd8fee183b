//! Imports of price lists as jobs.

use super::*;

/// A gateway that serves `gpt-fast` and `gpt-slow`, the latter at a price that was set by hand.
fn with_models(gateway: TestGateway) -> Admin {
    let admin = Admin::of(gateway);
    admin.post(
        "/admin/v1/channels",
        &json!({
            "name": "main", "provider": "openai", "base_url": "http://127.0.0.1:9/v1", "private_network": true,
            "accounts": [{"name": "a", "credential": "an-upstream-credential"}],
            "serves": [{"model": "gpt-fast", "upstream": "gpt-5-mini"}, {"model": "gpt-slow", "upstream": "gpt-5"}],
        }),
    );
    admin.patch("/admin/v1/groups/default", &json!({"channels": ["echo", "main"]}));
    let price = json!({"price": {"input": "7", "output": "9"}});
    ok(&admin.call("PUT", "/admin/v1/prices/gpt-slow", Some(&price)));
    admin
}

/// A list of the provider's two models, and of one that is not served.
fn list() -> String {
    "model,provider,input,output\ngpt-5-mini,openai,0.25,2\ngpt-5,openai,1.25,10\nunserved,openai,1,1\n".to_owned()
}

fn import(admin: &Admin) {
    let sent = json!({"kind": "import", "file": list(), "source": "contract of May", "to": "both"});
    let mut dry = sent.clone();
    dry["dry_run"] = true.into();
    let shown = finish(admin, &dry);
    assert_eq!((&shown["state"], &shown["exit_code"]), (&json!("done"), &json!(0)), "{shown}");
    let result = &shown["result"];
    assert_eq!(result["counts"], json!({"new": 3, "changed": 0, "same": 0, "kept": 1, "skipped": 0}), "{result}");
    assert_eq!((&result["written"], &result["dry_run"]), (&json!(0), &json!(true)));
    assert_eq!(admin.get("/admin/v1/prices/gpt-fast/history")["items"], json!([]), "a dry run writes nothing");
    let done = finish(admin, &sent);
    let result = &done["result"];
    assert_eq!((&done["state"], &result["written"], &result["source"]), (&json!("done"), &json!(3), &json!("contract of May")));
    assert_eq!((&result["not_served"], &result["not_served_count"]), (&json!(["openai/unserved"]), &json!(1)));
    assert_eq!(done["progress"]["step"], "write");
    let prices = admin.get("/admin/v1/prices");
    let price = |model: &str| prices["items"].as_array().unwrap().iter().find(|row| row["model"] == model).unwrap().clone();
    assert_eq!((&price("gpt-fast")["price"]["input"], &price("gpt-slow")["price"]["input"]), (&json!("0.25"), &json!("7.00")));
    assert_eq!(price("gpt-slow")["served_by"][0]["cost"]["input"], "1.25");
    let history = admin.get("/admin/v1/prices/gpt-fast/history");
    let newest = &history["items"][0];
    assert!(newest["actor"].as_str().unwrap().starts_with("root (adm_"), "{newest}");
    assert_eq!((&newest["source"], &newest["origin"]), (&json!("contract of May"), &json!("api")), "{newest}");
    let again = finish(admin, &sent);
    assert_eq!((&again["result"]["written"], &again["result"]["counts"]["same"]), (&json!(0), &json!(3)), "{again}");
    let audit = admin.get("/admin/v1/audit?kind=job&name=import");
    let started = audit["items"].as_array().unwrap();
    assert!(started.len() == 3 && started.iter().all(|entry| entry["action"] == "start"), "{audit}");
    assert!(!audit.to_string().contains("gpt-5-mini"), "the list is not in the log");
}

#[test]
fn import_job_keeps_prices_set_by_hand() {
    import(&with_models(TestGateway::builder(PROGRAM).spawn()));
}

#[test]
fn lists_are_imported_on_postgres() {
    let Some(postgres) = Postgres::start("lists_are_imported_on_postgres") else { return };
    import(&with_models(TestGateway::builder(PROGRAM).env("DATABASE_URL", &postgres.url()).spawn()));
}

#[test]
fn built_in_list_and_litellm_are_imported() {
    let admin = with_models(TestGateway::builder(PROGRAM).spawn());
    let built_in = finish(&admin, &json!({"kind": "import", "built_in": true, "models": ["gpt-f*"], "to": "both"}));
    assert_eq!(built_in["result"]["written"], 2, "{built_in}");
    assert!(built_in["result"]["source"].as_str().unwrap().starts_with("LiteLLM "), "{built_in}");
    let list = json!({
        "gpt-5-mini": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 3e-07, "output_cost_per_token": 2e-06},
        "other": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_second": 1.0},
    });
    let sent =
        json!({"kind": "import", "file": list.to_string(), "format": "litellm", "source": "LiteLLM", "overwrite": ["gpt-slow"]});
    let imported = finish(&admin, &sent);
    let result = &imported["result"];
    assert_eq!((&result["counts"]["changed"], &result["written"]), (&json!(1), &json!(1)), "{imported}");
    assert_eq!((&result["skipped"][0]["entry"], &result["skipped_count"]), (&json!("openai/other"), &json!(1)));
    assert!(result["skipped"][0]["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{imported}");
}

#[test]
fn wrong_lists_fail_with_positions_and_large_ones_are_refused() {
    let admin = with_models(TestGateway::builder(PROGRAM).spawn());
    let wrong = finish(&admin, &json!({"kind": "import", "file": "model,input\na,cheap\n", "source": "s"}));
    assert_eq!((&wrong["state"], &wrong["exit_code"]), (&json!("failed"), &json!(3)), "{wrong}");
    assert_eq!((&wrong["error"]["faults"][0]["line"], &wrong["error"]["faults"][0]["column"]), (&json!(2), &json!(2)), "{wrong}");
    let nameless = finish(&admin, &json!({"kind": "import", "file": "model,input\na,1\n"}));
    assert!(nameless["error"]["message"].as_str().unwrap().contains("'source'"), "{nameless}");
    let large = "#".repeat((16 << 20) + 1);
    let answer = admin.call("POST", JOBS, Some(&json!({"kind": "import", "file": large, "source": "s"})));
    assert_eq!(refusal(&answer), refused(400, "invalid_value", "file"));
    let answer = admin.call("POST", JOBS, Some(&json!({"kind": "import", "file": "#".repeat(34 << 20), "source": "s"})));
    assert_eq!(answer.status, 413, "{}", text(&answer));
    let answer = admin.call("POST", JOBS, Some(&json!({"kind": "replay", "file": "#".repeat(5 << 20)})));
    assert_eq!(refusal(&answer), refused(400, "invalid_value", "file"), "a catalog file has a separate bound");
}

#[test]
fn import_is_cancelled_before_it_writes() {
    let admin = with_models(TestGateway::builder(PROGRAM).without_record_check().spawn());
    // An import reads the history of prices before it writes; in this test that never ends.
    tamper(
        admin.gateway.data(),
        "ALTER TABLE price_history RENAME TO stored_price_history; CREATE VIEW price_history AS SELECT * FROM stored_price_history \
         WHERE (WITH RECURSIVE numbers(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM numbers WHERE x < 1000000000000) \
         SELECT COUNT(*) FROM numbers) > 0",
    );
    let sent = json!({"kind": "import", "file": list(), "source": "s", "to": "both"});
    let job = admin.post(JOBS, &sent);
    wait_for("it compares", LONG, || admin.get(&path(&job))["progress"]["step"] == "difference");
    let cancelled = admin.post(&format!("{}/cancel", path(&job)), &json!({}));
    assert_eq!(cancelled["state"], "cancelled", "{cancelled}");
    tamper(admin.gateway.data(), "DROP VIEW price_history; ALTER TABLE stored_price_history RENAME TO price_history");
    assert_eq!(admin.get("/admin/v1/prices/gpt-fast/history")["items"], json!([]));
    let audit = admin.get("/admin/v1/audit?kind=job&name=import");
    let actions: Vec<&str> = audit["items"].as_array().unwrap().iter().map(|it| it["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["cancel", "start"], "{audit}");
    assert_eq!(finish(&admin, &sent)["result"]["written"], 3, "the next one writes all of it");
}

#[test]
fn large_list_has_a_result_that_is_bounded() {
    let admin = with_models(TestGateway::builder(PROGRAM).spawn());
    let large = list() + &(0..99_000).map(|number| format!("model-{number},openai,1.25,10\n")).collect::<String>();
    let done = finish(&admin, &json!({"kind": "import", "file": large, "source": "s", "to": "both"}));
    let result = &done["result"];
    assert_eq!(
        (&done["state"], &result["written"], &result["not_served_count"]),
        (&json!("done"), &json!(3), &json!(99_001)),
        "{}",
        done["error"]
    );
    assert!(result["not_served"].as_array().unwrap().len() <= 1_000);
}

#[test]
fn import_that_leaves_no_account_within_price_limits_must_be_confirmed() {
    let admin = with_models(TestGateway::builder(PROGRAM).spawn());
    let serves = json!({"serves": [{"model": "gpt-fast", "upstream": "gpt-5-mini", "cost": {"input": "0.1", "output": "0.1"}}]});
    admin.patch("/admin/v1/channels/main", &serves);
    admin.patch("/admin/v1/groups/default", &json!({"price_limit": {"mode": "ceiling", "max_input": "0.2", "on": "cost"}}));
    let mut sent = json!({"kind": "import", "file": list(), "source": "dear", "to": "cost", "overwrite": ["gpt-fast"]});
    let failed = finish(&admin, &sent);
    assert_eq!((&failed["state"], &failed["exit_code"]), (&json!("failed"), &json!(1)), "{failed}");
    assert!(failed["error"]["message"].as_str().unwrap().contains("without any account for the model 'gpt-fast'"), "{failed}");
    sent["confirm"] = true.into();
    let done = finish(&admin, &sent);
    assert_eq!((&done["result"]["written"], &done["result"]["effects"][0]["model"]), (&json!(1), &json!("gpt-fast")), "{done}");
}

#[test]
fn operators_may_import_and_members_may_not() {
    let admin = with_models(TestGateway::builder(PROGRAM).spawn());
    let sent = json!({"kind": "import", "file": list(), "source": "s", "to": "both"});
    let job = ok(&admin.as_operator("POST", JOBS, Some(&sent)));
    assert_eq!(ended(&admin, &job)["result"]["written"], 3);
    let newest = admin.get("/admin/v1/prices/gpt-fast/history")["items"][0].clone();
    assert!(newest["actor"].as_str().unwrap().starts_with("ops (adm_"), "{newest}");
    assert_eq!(ok(&admin.as_operator("GET", &path(&job), None))["state"], "done");
    admin.post("/admin/v1/members", &json!({"name": "anna", "role": "member"}));
    let made = admin.post("/admin/v1/admin-keys", &json!({"name": "hers", "scope": "member", "member": "anna"}));
    let as_member = |request: Request| admin.gateway.send(&request.bearer(made["key"].as_str().unwrap()));
    assert_eq!(refusal(&as_member(Request::post(JOBS, &sent))), refused_whole(403, "operator_only"));
    assert_eq!(refusal(&as_member(Request::get(&path(&job)))), refused_whole(403, "operator_only"));
}
