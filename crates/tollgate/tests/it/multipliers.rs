//! Factors of models in a group: reservation, price limits, bill, record, simulator and model square agree about them.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_testkit::{Request, ScriptedResponse, TestGateway, UPSTREAM_CREDENTIAL, Upstream, wait_for};

use crate::{
    admin::{Admin, ok, within_a_second},
    support::{self, PROGRAM},
};

/// Models at 10 and 20 USD per million tokens, and the factor that each has in the group.
const MODELS: [(&str, &str, i64); 3] = [("gpt-fast", "0.5", 500_000), ("gpt-slow", "2", 2_000_000), ("o3", "1.25", 1_250_000)];

/// The first key has the group `default`, which multiplies by 1.25, patterns by 2, and `gpt-fast` by 0.5.
fn with_factors(upstream: &Upstream) -> Admin {
    upstream.set_default(ScriptedResponse::chat("hello"));
    // The test polls the square.
    let settings = TestGateway::builder(PROGRAM).env("TOLLGATE_SQUARE__REQUESTS_PER_MINUTE", "100000");
    let admin = Admin::of(settings.spawn());
    let serves: Vec<Value> = MODELS.iter().map(|(model, ..)| json!({"model": model, "upstream": "up"})).collect();
    let channel = json!({
        "name": "main", "provider": "openai", "base_url": upstream.openai_url(), "private_network": true, "serves": serves,
        "accounts": [{"name": "a", "credential": UPSTREAM_CREDENTIAL}],
    });
    admin.post("/admin/v1/channels", &channel);
    for (model, ..) in MODELS {
        let price = json!({"price": {"input": "10", "output": "20"}});
        ok(&admin.call("PUT", &format!("/admin/v1/prices/{model}"), Some(&price)));
    }
    let own = json!({"gpt-*": "2", "gpt-fast": "0.5"});
    let group = json!({"channels": ["echo", "main"], "sale_multiplier": "1.25", "model_multipliers": own});
    assert_eq!(admin.patch("/admin/v1/groups/default", &group)["model_multipliers"], own);
    let output = admin.gateway.run(&["key", "set", "first", "groups=default", "models=*"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    within_a_second("the channel serves", || admin.gateway.chat(&support::chat("gpt-fast")).status == 200);
    admin
}

#[test]
fn models_are_charged_with_their_own_factor() {
    let upstream = Upstream::start();
    let admin = with_factors(&upstream);
    let mut last = None;
    for (model, shown, millionths) in MODELS {
        let answer = admin.gateway.chat(&support::chat(model));
        assert_eq!(answer.status, 200, "{model}: {}", answer.text());
        let record = admin.gateway.record_of(&answer);
        let tokens = |kind: &str| record["tokens"][kind].as_i64().unwrap();
        let base = tokens("input") * 10_000 + tokens("output") * 20_000;
        assert_eq!(support::nano_usd(&record["sale"]), base * millionths / 1_000_000, "{model}: {record}");

        let path = format!("/admin/v1/usage/{}", record["id"].as_str().unwrap());
        within_a_second("the record is booked", || admin.call("GET", &path, None).status == 200);
        let sale = admin.get(&path)["pricing"]["sale"].clone();
        assert_eq!((&sale["multiplier"], &sale["amount"]), (&json!(shown), &record["sale"]), "{model}: {sale}");
        assert_eq!(sale["lines"][0]["unit_price"], "10.00", "{model}: {sale}");

        let asked = json!({"model": model, "key": "first", "input": tokens("input"), "output": tokens("output")});
        let simulated = admin.post("/admin/v1/prices/simulate", &asked)["sale"].clone();
        assert_eq!((&simulated["multiplier"], &simulated["amount"]), (&json!(shown), &record["sale"]), "{model}");
        last = Some((path, sale));
    }

    let (path, sale) = last.unwrap();
    admin.patch("/admin/v1/groups/default", &json!({"sale_multiplier": "3", "model_multipliers": {}}));
    assert_eq!(admin.get(&path)["pricing"]["sale"], sale, "the record keeps the factor that it was charged with");
}

#[test]
fn price_limits_and_reservations_use_the_factor_of_the_model() {
    let upstream = Upstream::start();
    let admin = with_factors(&upstream);
    let status = |model: &str, bound: &str| {
        let request = Request::post("/v1/chat/completions", &support::chat(model)).bearer(admin.gateway.key());
        admin.gateway.send(&request.header("x-tollgate-max-price", bound)).status
    };
    // 10 USD times 0.5, 2 and 1.25.
    assert_eq!([status("gpt-fast", "input=5"), status("gpt-slow", "input=19.9"), status("o3", "input=12.5")], [200, 503, 200]);
    assert_eq!([status("gpt-fast", "input=4.9"), status("gpt-slow", "input=20"), status("o3", "input=12.4")], [503, 200, 503]);

    // 30,000 output tokens at 20 USD per million cost 0.30 USD with the factor 0.5, and 1.20 USD with the factor 2.
    let key = json!({"budget": {"amount": "0.6", "window": "total"}});
    let budget = |model: &str| {
        let mut body = support::chat(model);
        body["max_tokens"] = 30_000.into();
        admin.gateway.chat(&body).status
    };
    let keys = admin.get("/admin/v1/keys");
    let id = keys["items"].as_array().unwrap().iter().find(|key| key["name"] == "first").unwrap()["id"].clone();
    admin.patch(&format!("/admin/v1/keys/{}", id.as_str().unwrap()), &key);
    within_a_second("the budget is in force", || budget("gpt-slow") == 429);
    assert_eq!(budget("gpt-fast"), 200);
}

#[test]
fn square_price_matrix_and_file_show_the_charged_factors() {
    let upstream = Upstream::start();
    let admin = with_factors(&upstream);
    let offers = || {
        let answer = admin.gateway.send(&Request::get("/models.json").bearer(admin.gateway.key()));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let square = answer.json();
        let of = |model: &str| {
            let mut data = square["data"].as_array().unwrap().iter();
            data.find(|it| it["id"] == model).map_or(Value::Null, |it| it["groups"][0].clone())
        };
        (square["groups"][0].clone(), MODELS.map(|(model, ..)| of(model)))
    };
    wait_for("the square has the models", Duration::from_secs(30), || offers().1.iter().all(Value::is_object));
    let (group, offers) = offers();
    assert_eq!((&group["multiplier"], &group["multiplier_varies"]), (&json!("1.25"), &json!(true)), "{group}");
    let shown = offers.map(|offer| json!([offer["multiplier"], offer["price"]["input"], offer["base_price"]["input"]]));
    assert_eq!(shown, [json!(["0.5", "5.00", "10.00"]), json!(["2", "20.00", "10.00"]), json!(["1.25", "12.50", "10.00"])]);

    let rows = admin.get("/admin/v1/group-prices?groups_from=default")["items"].clone();
    let cell = |model: &str| {
        let row = rows.as_array().unwrap().iter().find(|row| row["model"] == model).unwrap();
        json!([row["groups"][0]["multiplier"], row["groups"][0]["multiplier_of"], row["groups"][0]["price"]["input"]])
    };
    let expected = [json!(["0.5", "gpt-fast", "5.00"]), json!(["2", "gpt-*", "20.00"]), json!(["1.25", null, "12.50"])];
    assert_eq!(MODELS.map(|(model, ..)| cell(model)), expected);

    let run = |arguments: &[&str]| {
        let output = admin.gateway.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let pulled = run(&["pull"]);
    assert!(pulled.contains("model_multipliers = { \"gpt-*\" = \"2\", gpt-fast = \"0.5\" }"), "{pulled}");
    let file = admin.gateway.data().join("pulled.toml");
    std::fs::write(&file, &pulled).unwrap();
    run(&["apply", file.to_str().unwrap(), "--yes"]);
    assert_eq!(run(&["pull"]), pulled, "a pull applied changes nothing");
    run(&["group", "set", "default", "model_multipliers=gpt-*:3,o3:0.75"]);
    assert_eq!(admin.get("/admin/v1/groups/default")["model_multipliers"], json!({"gpt-*": "3", "o3": "0.75"}));
    let refused = admin.gateway.run(&["group", "set", "default", "model_multipliers=*:3"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("set sale_multiplier instead"), "{said}");
}
