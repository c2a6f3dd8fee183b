//! Prices over the command line and the admin API: imports, their history, the simulator, and models without a price.

use serde_json::{Value, json};
use tollgate_testkit::{Request, ScriptedResponse, UPSTREAM_CREDENTIAL, Upstream};

use super::{Admin, ok, refusal, refused, refused_whole, text, within_a_second};
use crate::support;

/// The owner's key may call everything; `gpt-fast` is served by `main` as the provider's `gpt-5-mini`.
fn with_channel(upstream: &Upstream) -> Admin {
    upstream.set_default(ScriptedResponse::chat("hello"));
    let admin = Admin::echo();
    admin.post(
        "/admin/v1/channels",
        &json!({
            "name": "main", "provider": "openai", "base_url": upstream.openai_url(), "private_network": true,
            "accounts": [{"name": "a", "credential": UPSTREAM_CREDENTIAL, "cost_multiplier": "1.1"}],
            "serves": [{"model": "gpt-fast", "upstream": "gpt-5-mini"}],
        }),
    );
    admin.patch("/admin/v1/groups/default", &json!({"channels": ["echo", "main"], "sale_multiplier": "1.25"}));
    let (code, said) = run(&admin, &["key", "set", "first", "groups=default", "models=*"]);
    assert_eq!(code, Some(0), "{said}");
    admin
}

/// Exit code and output of a command on the gateway's data folder.
fn run(admin: &Admin, arguments: &[&str]) -> (Option<i32>, String) {
    let output = admin.gateway.run(arguments);
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code(), said)
}

fn file(admin: &Admin, name: &str, content: &str) -> String {
    let path = admin.gateway.data().join(name);
    std::fs::write(&path, content).unwrap();
    path.display().to_string()
}

/// State of each row by its id.
fn states(answer: &Value) -> Vec<(&str, &str)> {
    let rows = answer["rows"].as_array().unwrap();
    rows.iter().map(|row| (row["id"].as_str().unwrap(), row["state"].as_str().unwrap())).collect()
}

#[test]
fn import_writes_new_prices_and_keeps_those_set_by_hand() {
    let upstream = Upstream::start();
    let admin = with_channel(&upstream);
    let (code, said) = run(&admin, &["price", "import", "--builtin", "--to", "both"]);
    assert!(code == Some(2) && said.contains("--yes"), "there is no terminal to confirm on: {said}");
    let (code, said) = run(&admin, &["price", "diff", "--builtin", "--to", "both"]);
    assert!(code == Some(0) && said.contains("openai/gpt-5-mini") && said.contains("input 0.25, output 2.00"), "{said}");
    assert_eq!(admin.get("/admin/v1/prices/gpt-fast/history")["items"], json!([]), "nothing was written");
    let (code, said) = run(&admin, &["price", "import", "--builtin", "--to", "both", "--yes"]);
    assert!(code == Some(0) && said.contains("imported 2 prices from LiteLLM "), "{said}");
    let (code, said) = run(&admin, &["price", "import", "--builtin", "--to", "both", "--yes"]);
    assert!(code == Some(0) && said.contains("nothing to import"), "{said}");

    assert_eq!(run(&admin, &["price", "set", "gpt-fast", "input:0.2,output:9"]).0, Some(0));
    let csv = file(&admin, "contract.csv", "# source: our contract\nmodel,provider,input,output\ngpt-5-mini,openai,0.24,1.9\n");
    let (_, said) = run(&admin, &["price", "import", &csv, "--to", "both", "--yes", "--json"]);
    let answer: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(states(&answer), [("sale:gpt-fast", "kept"), ("cost:main:gpt-fast", "changed")]);
    assert_eq!((&answer["written"], &answer["source"]), (&json!(1), &json!("our contract")));
    let shown = admin.get("/admin/v1/prices?group=default")["items"].clone();
    let model = shown.as_array().unwrap().iter().find(|model| model["model"] == "gpt-fast").unwrap().clone();
    assert_eq!((&model["price"]["input"], &model["source"]), (&json!("0.20"), &Value::Null));
    let cost = &model["served_by"][0];
    assert_eq!((&cost["cost"]["input"], &cost["source"]), (&json!("0.24"), &json!("our contract")));
    // 0.20 · 1.25 against 0.24 · 1.1.
    assert_eq!((&cost["margin_input"], &cost["cost_multiplier"]), (&json!("-0.056"), &json!("1.1")));
    assert!(cost["below_cost"].as_str().unwrap().starts_with("input sells for 0.25 and costs 0.264"), "{cost}");
    let (_, said) = run(&admin, &["price", "list", "--group", "default"]);
    assert!(said.contains("BELOW COST: input sells for") && said.contains("by hand"), "{said}");

    let (_, said) = run(&admin, &["price", "import", &csv, "--overwrite", "gpt-fast", "--yes"]);
    assert!(said.contains("imported 1 price from our contract"), "{said}");
    let history = admin.get("/admin/v1/prices/gpt-fast/history");
    let of_all = admin.get("/admin/v1/price-changes?channel=main");
    assert!(of_all["items"].as_array().unwrap().iter().any(|change| change["model"] == "gpt-fast"), "{of_all}");
    let rows: Vec<Value> = history["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| json!([row["channel"], row["source"], row["before"]["input"], row["after"]["input"], row["origin"]]))
        .collect();
    let list = history["items"][4]["source"].clone();
    let expected = json!([
        [null, "our contract", "0.20", "0.24", "cli"],
        ["main", "our contract", "0.25", "0.24", "cli"],
        [null, null, "0.25", "0.20", "cli"],
        ["main", list, null, "0.25", "cli"],
        [null, list, null, "0.25", "cli"],
    ]);
    assert!(list.as_str().unwrap().starts_with("LiteLLM "), "{history}");
    assert_eq!(json!(rows), expected);
    let first = admin.get("/admin/v1/prices/gpt-fast/history?channel=main&limit=1");
    let rest = admin.get(&format!("/admin/v1/prices/gpt-fast/history?channel=main&after={}", first["next"].as_str().unwrap()));
    assert_eq!((first["items"][0]["after"]["input"].as_str(), rest["items"].as_array().unwrap().len()), (Some("0.24"), 1));
    let (code, said) = run(&admin, &["price", "history", "ghost"]);
    assert!(code != Some(0) && said.contains("there is no model 'ghost'"), "{code:?} {said}");
    let (code, said) = run(&admin, &["price", "set", "gpt-input", "input:0.2"]);
    assert!(code == Some(0) && said.contains("its price has no output"), "{code:?} {said}");
    let (_, said) = run(&admin, &["price", "set", "gpt-input", "input:0.2,output:0"]);
    assert!(!said.contains("warning"), "{said}");
    let (code, said) = run(&admin, &["usage", "summary", "--by", "five_minutes", "--since", "2026-11-20", "--until", "2026-11-21"]);
    assert_eq!(code, Some(0), "{said}");
    let (_, said) = run(&admin, &["price", "history", "gpt-fast"]);
    assert!(said.contains("cost of main") && said.contains("our contract"), "{said}");
}

#[test]
fn admin_api_imports_only_the_picked_rows() {
    let upstream = Upstream::start();
    let admin = with_channel(&upstream);
    let path = "/admin/v1/prices/import";
    let list = json!({"gpt-5-mini": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 2.5e-07,
        "output_cost_per_token": 2e-06}, "other": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_second": 1.0}});
    let mut sent = json!({"file": list.to_string(), "format": "litellm", "source": "LiteLLM", "to": "both"});
    let answer = ok(&admin.as_operator("POST", path, Some(&sent)));
    assert_eq!(states(&answer), [("sale:gpt-fast", "new"), ("cost:main:gpt-fast", "new")]);
    assert_eq!((&answer["skipped"][0]["entry"], &answer["written"]), (&json!("openai/other"), &json!(0)));
    sent["apply"] = json!(["cost:main:gpt-fast"]);
    let stale = Request::post(path, &sent).bearer(&admin.operator).header("if-match", "\"1\"");
    assert_eq!(refusal(&admin.send("POST", path, &stale)), refused_whole(409, "revision_conflict"));
    let revision = format!("\"{}\"", answer["revision"]);
    let right = Request::post(path, &sent).bearer(&admin.operator).header("if-match", &revision);
    let applied = ok(&admin.send("POST", path, &right));
    assert_eq!(applied["written"], 1);
    let again = admin.post(path, &sent);
    assert_eq!((&again["written"], states(&again)), (&json!(0), vec![("sale:gpt-fast", "new"), ("cost:main:gpt-fast", "same")]));
    sent["apply"] = json!(["sale:unknown"]);
    assert_eq!(refusal(&admin.call("POST", path, Some(&sent))), refused(400, "invalid_value", "apply"));
    let bare = json!({"file": "model,input\na,1\n"});
    assert_eq!(refusal(&admin.call("POST", path, Some(&bare))), refused(400, "missing_required_parameter", "source"));
    assert_eq!(refusal(&admin.call("POST", path, Some(&json!({})))), refused(400, "missing_required_parameter", "file"));
    // More than other routes take.
    let long = format!("# source: long\n# {}\nmodel,input\ngpt-fast,0.30\n", "\"".repeat(6 << 20));
    assert_eq!(states(&admin.post(path, &json!({"file": long}))), [("sale:gpt-fast", "new")]);
}

#[test]
fn faults_of_a_price_list_are_reported_with_their_position() {
    let upstream = Upstream::start();
    let admin = with_channel(&upstream);
    let csv = file(&admin, "wrong.csv", "model,input\na,cheap\n");
    let (code, said) = run(&admin, &["price", "import", &csv, "--yes"]);
    assert!(code == Some(3) && said.contains(&format!("{csv}:2:2: input: not a decimal amount")), "{code:?} {said}");
    let list = file(&admin, "wrong.json", "{\"a\": ");
    let (code, said) = run(&admin, &["price", "diff", &list]);
    assert!(code == Some(3) && said.contains(&format!("{list}:1:")), "{code:?} {said}");
    assert_eq!(run(&admin, &["price", "import"]).0, Some(2), "a file or --builtin is required");
}

#[test]
fn import_that_leaves_no_account_within_the_price_limit_must_be_confirmed() {
    let upstream = Upstream::start();
    let admin = with_channel(&upstream);
    let cost = json!({"serves": [{"model": "gpt-fast", "upstream": "gpt-5-mini", "cost": {"input": "0.1", "output": "0.1"}}]});
    admin.patch("/admin/v1/channels/main", &cost);
    admin.patch("/admin/v1/groups/default", &json!({"price_limit": {"mode": "ceiling", "max_input": "0.2", "on": "cost"}}));
    let sent = json!({
        "file": "model,input,output\ngpt-5-mini,5,5\n", "source": "dear", "to": "cost", "overwrite": ["gpt-fast"],
        "apply": ["cost:main:gpt-fast"],
    });
    let answer = admin.call("POST", "/admin/v1/prices/import", Some(&sent));
    assert_eq!(refusal(&answer), refused_whole(409, "nothing_left"), "{}", text(&answer));
    let done = admin.post("/admin/v1/prices/import?confirm=true", &sent);
    assert_eq!((&done["written"], &done["effects"][0]["model"]), (&json!(1), &json!("gpt-fast")));
}

#[test]
fn simulated_price_is_what_a_request_is_charged() {
    let upstream = Upstream::start();
    let admin = with_channel(&upstream);
    ok(&admin.call(
        "PUT",
        "/admin/v1/prices/gpt-fast",
        Some(&json!({"price": {"input": "0.30", "output": "2.40", "per_request": "0.001"}})),
    ));
    let csv = file(&admin, "cost.csv", "# source: c\nmodel,input,output\ngpt-5-mini,0.25,2\n");
    assert_eq!(run(&admin, &["price", "import", &csv, "--to", "cost", "--yes"]).0, Some(0));
    let sold = || {
        let answer = admin.gateway.chat(&support::chat("gpt-fast"));
        (answer.status == 200).then(|| admin.gateway.record_of(&answer))
    };
    let mut record = Value::Null;
    within_a_second("the imported cost is in force", || {
        record = sold().unwrap_or_default();
        record["cost"].is_string() && record["sale"].is_string()
    });
    let tokens = &record["tokens"];
    let simulated = admin.post(
        "/admin/v1/prices/simulate",
        &json!({"model": "gpt-fast", "key": "first", "input": tokens["input"], "output": tokens["output"]}),
    );
    assert_eq!(simulated["sale"]["amount"], record["sale"], "{simulated} {record}");
    assert_eq!(simulated["accounts"][0]["cost"]["amount"], record["cost"]);
    let kinds: Vec<_> = simulated["sale"]["lines"].as_array().unwrap().iter().map(|line| line["kind"].clone()).collect();
    assert_eq!(kinds, ["input", "output", "per_request"]);
    assert_eq!((&simulated["group"], &simulated["sale"]["multiplier"]), (&json!("default"), &json!("1.25")));

    let (code, said) = run(
        &admin,
        &["price", "simulate", "--model", "gpt-fast", "--group", "default", "--input", "1000000", "--max-price", "input:0.3"],
    );
    assert!(code == Some(0) && said.contains("the caller pays 0.37625 USD"), "{said}");
    assert!(said.contains("refused: no account would serve it (price_limit)") && said.contains("0.375"), "{said}");
    ok(&admin.call("PUT", "/admin/v1/prices/gpt-fast", Some(&json!({"price": {"input": "15000"}}))));
    let large = json!({"model": "gpt-fast", "group": "default", "input": 1_000_000});
    let simulated = admin.post("/admin/v1/prices/simulate", &large);
    let sale = &simulated["sale"];
    assert_eq!(
        (&sale["amount"], &sale["no_amount"], &sale["exact"]),
        (&Value::Null, &json!("overflow"), &json!("18750")),
        "{sale}"
    );
    assert_eq!(simulated["accounts"][0]["cost"]["no_amount"], Value::Null);
    let (code, said) = run(&admin, &["price", "simulate", "--model", "gpt-fast", "--group", "default", "--input", "1000000"]);
    assert!(code == Some(0) && said.contains("the caller pays no amount: above 10,000 USD"), "{said}");
    let unknown = json!({"model": "none", "group": "default"});
    assert_eq!(refusal(&admin.call("POST", "/admin/v1/prices/simulate", Some(&unknown))), refused(400, "invalid_value", "model"));
    let both = json!({"model": "gpt-fast", "group": "default", "key": "first"});
    assert_eq!(
        refusal(&admin.call("POST", "/admin/v1/prices/simulate", Some(&both))),
        refused(400, "missing_required_parameter", "key")
    );
}

#[test]
fn price_saved_with_equal_figures_counts_as_set_by_hand() {
    let upstream = Upstream::start();
    let admin = with_channel(&upstream);
    let import = |input: &str| {
        let csv = file(&admin, "contract.csv", &format!("# source: our contract\nmodel,input,output\ngpt-fast,{input},2\n"));
        run(&admin, &["price", "import", &csv, "--yes"])
    };
    assert_eq!(import("0.25").0, Some(0));
    let source = || {
        let shown = admin.get("/admin/v1/prices?group=default");
        shown["items"].as_array().unwrap().iter().find(|model| model["model"] == "gpt-fast").unwrap()["source"].clone()
    };
    assert_eq!(source(), "our contract");
    admin.patch("/admin/v1/models/gpt-fast", &json!({"description": "fast"}));
    assert_eq!(source(), "our contract", "a change of something else");
    admin.patch("/admin/v1/models/gpt-fast", &json!({"price": {"input": "0.25", "output": "2"}}));
    assert_eq!(source(), Value::Null);
    let (_, said) = import("0.30");
    assert!(said.contains("nothing to import"), "{said}");
    assert_eq!(admin.get("/admin/v1/models/gpt-fast")["price"]["input"], "0.25");
}

#[test]
fn models_without_a_price_are_listed_with_their_requests() {
    let upstream = Upstream::start();
    let admin = with_channel(&upstream);
    admin.post("/admin/v1/groups", &json!({"name": "bounded", "channels": ["main"], "budget": {"amount": "5", "window": "month"}}));
    within_a_second("the channel serves", || admin.gateway.chat(&support::chat("gpt-fast")).status == 200);
    let unpriced = || admin.get("/admin/v1/prices/unpriced")["items"].clone();
    within_a_second("it is booked", || unpriced()[0]["last_day"]["completed"].as_u64() >= Some(1));
    let found = unpriced();
    assert_eq!(found.as_array().unwrap().len(), 1, "echo is free: {found}");
    assert_eq!((&found[0]["model"], &found[0]["channels"]), (&json!("gpt-fast"), &json!(["main"])));
    assert_eq!((&found[0]["served_in"], &found[0]["refused_in"]), (&json!(["default"]), &json!(["bounded"])));
    assert_eq!(found[0]["last_30_days"], found[0]["last_day"]);
    let (code, said) = run(&admin, &["price", "unpriced"]);
    assert!(code == Some(0) && said.contains("gpt-fast") && said.contains("bounded"), "{said}");
    ok(&admin.call("PUT", "/admin/v1/prices/gpt-fast", Some(&json!({"price": {"input": "1"}}))));
    assert_eq!(unpriced(), json!([]));
}
