//! The model square: the models visible to each viewer, with their prices, states and traffic figures.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_testkit::{ClientResponse, Postgres, Request, ScriptedResponse, TestGateway, TestGatewayBuilder, Upstream, wait_for};

use crate::{
    admin::Admin,
    support::{self, PROGRAM, channel, prices},
};

const INSIDER: &str = "tk-insider-key-CANARY-0123456789abcdef";
/// Longest wait for the next snapshot of the square.
const SNAPSHOT: Duration = Duration::from_secs(15);

/// A public group with a multiplier over two channels, and a private one that offers a third model and the first.
fn catalog(upstream: &Upstream) -> String {
    let private = "[[group]]\nname = \"inner-circle\"\nvisibility = \"private\"\nchannels = [\"secret-source\", \"reseller-one\"]\n\
                   sale_multiplier = \"0.5\"\n[[member]]\nname = \"insider\"\ngroups = [\"inner-circle\"]\n\
                   [[key]]\nname = \"insider\"\nmember = \"insider\"\ngroups = [\"inner-circle\", \"default\"]\nsecret = \"tk-insider-key-CANARY-0123456789abcdef\"\n";
    channel("reseller-one", "openai", &upstream.openai_url(), "chat-model", "cooling = false")
        + &channel("reseller-two", "gemini", &upstream.gemini_url(), "native-model", "")
        + &channel("secret-source", "openai", &upstream.openai_url(), "secret-model", "")
        + &prices(&["native-model", "secret-model"])
        + "[[model]]\nname = \"chat-model\"\nprice = { input = \"10\", output = \"20\" }\ndisplay_name = \"Chat\"\nvendor = \"Acme\"\n\
           description = \"For talks\"\ncontext = 128000\nmax_output = 4096\ninput_modalities = [\"text\", \"image\"]\n"
        + "[[group]]\nname = \"default\"\nchannels = [\"reseller-one\", \"reseller-two\"]\nsale_multiplier = \"1.5\"\n\
           [[key]]\nname = \"caller\"\ngroups = [\"default\"]\nsecret = \"{key}\"\n"
        + private
}

fn gateway(upstream: &Upstream) -> TestGatewayBuilder {
    TestGateway::builder(PROGRAM).catalog(&catalog(upstream))
}

fn visitor(gateway: &TestGateway, path: &str) -> ClientResponse {
    gateway.send(&Request::get(path))
}

fn square(gateway: &TestGateway, key: Option<&str>) -> Value {
    let request = Request::get("/models.json");
    let answer = gateway.send(&key.map_or_else(|| request.clone(), |key| request.clone().bearer(key)));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn names(list: &Value) -> Vec<String> {
    list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect()
}

fn offer<'a>(square: &'a Value, model: &str, group: &str) -> &'a Value {
    let found = square["data"].as_array().unwrap().iter().find(|it| it["id"] == model);
    let found = found.unwrap_or_else(|| panic!("{model} is not in {square}"));
    found["groups"]
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["group"] == group)
        .unwrap_or_else(|| panic!("{group} is not in {found}"))
}

fn state(gateway: &TestGateway, model: &str) -> Value {
    offer(&square(gateway, None), model, "default")["state"].clone()
}

#[test]
fn viewers_see_the_models_they_may_use_at_their_prices() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hello"));
    let gateway = gateway(&upstream).spawn();
    let public = square(&gateway, None);
    assert_eq!((names(&public), &public["audience"]), (vec!["chat-model".to_owned(), "native-model".to_owned()], &json!("public")));
    assert_eq!(
        public["groups"],
        json!([{"name": "default", "description": null, "multiplier": "1.5", "multiplier_varies": false}])
    );
    let chat = &public["data"][0];
    for (field, value) in [
        ("display_name", json!("Chat")),
        ("vendor", json!("Acme")),
        ("description", json!("For talks")),
        ("context", json!(128_000)),
        ("max_output", json!(4_096)),
        ("input_modalities", json!(["text", "image"])),
        ("output_modalities", Value::Null),
    ] {
        assert_eq!(chat[field], value, "{field}");
    }
    assert!(chat["added_at"].is_string(), "{chat}");
    let of = offer(&public, "chat-model", "default");
    assert_eq!((&of["price"]["input"], &of["price"]["output"]), (&json!("15.00"), &json!("30.00")), "{of}");
    assert_eq!((&of["base_price"]["input"], &of["multiplier"], &of["next_price"]), (&json!("10.00"), &json!("1.5"), &Value::Null));
    assert_eq!(of["state"]["now"], "available");
    assert_eq!(of["day"]["availability"], Value::Null, "there was no traffic");
    let protocols = of["protocols"].as_array().unwrap();
    let shown: Vec<_> =
        protocols.iter().map(|it| (it["protocol"].as_str().unwrap(), it["translated"].as_bool().unwrap())).collect();
    assert_eq!(shown, [("openai", false), ("gemini", true), ("anthropic", true), ("responses", true)]);
    assert!(protocols[0]["endpoints"].as_array().unwrap().contains(&json!("/v1/chat/completions")), "{protocols:?}");
    let set = |id: &Value| public["parameter_sets"].as_array().unwrap().iter().find(|set| set["id"] == *id).unwrap();
    let supported = set(&protocols[0]["parameters"])["supported"].as_array().unwrap();
    assert!(supported.contains(&json!("temperature")) && supported.contains(&json!("logprobs")), "{supported:?}");

    let insider = square(&gateway, Some(INSIDER));
    assert_eq!((names(&insider).len(), &insider["audience"]), (3, &json!("key")));
    let groups: Vec<_> = insider["data"][0]["groups"].as_array().unwrap().iter().map(|it| it["group"].clone()).collect();
    assert_eq!(groups, ["inner-circle", "default"], "in the order of the key");
    assert_eq!(offer(&insider, "chat-model", "inner-circle")["price"]["input"], "5.00");
    assert_eq!(names(&square(&gateway, Some(gateway.key()))), names(&public));

    for text in [public.to_string(), visitor(&gateway, "/models.atom").text(), insider.to_string()] {
        for inner in ["reseller", "secret-source", "-account", "cost", "upstream-model", "127.0.0.1"] {
            assert!(!text.contains(inner), "'{inner}' is in {text}");
        }
    }
    for text in [public.to_string(), visitor(&gateway, "/models.atom").text()] {
        assert!(!text.contains("inner-circle") && !text.contains("secret-model"), "a visitor sees {text}");
    }
}

#[test]
fn model_lists_square_and_routing_agree() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hello"));
    let gateway = gateway(&upstream).spawn();
    for key in [gateway.key(), INSIDER] {
        let listed = names(&square(&gateway, Some(key)));
        assert_eq!(names(&gateway.send(&Request::get("/v1/models").bearer(key)).json()), listed);
        for model in ["chat-model", "native-model", "secret-model", "no-model"] {
            let is_listed = listed.iter().any(|it| it == model);
            let asked = gateway.send(&Request::get(&format!("/models.json?model={model}")).bearer(key));
            assert_eq!(asked.status, if is_listed { 200 } else { 404 }, "{model}");
            let found = gateway.send(&Request::get(&format!("/v1/models/{model}")).bearer(key));
            assert_eq!(found.status == 200, is_listed, "{model}");
            if model != "native-model" {
                let answer = gateway.send(&Request::post("/v1/chat/completions", &support::chat(model)).bearer(key));
                assert_eq!(answer.status == 200, is_listed, "{model}: {}", answer.text());
            }
        }
    }
    assert!(gateway.run(&["pull"]).status.success());
    let one = visitor(&gateway, "/models.json?model=chat-model&group=default").json();
    assert_eq!((names(&one), one["groups"].as_array().unwrap().len()), (vec!["chat-model".to_owned()], 1));
    for (path, status) in [
        ("/models.json?group=inner-circle", 404),
        ("/models.json?group=none", 404),
        ("/models.json?models=x", 400),
        ("/models.atom?model=x", 400),
    ] {
        assert_eq!(visitor(&gateway, path).status, status, "{path}");
    }
    assert_eq!(gateway.send(&Request::get("/models.json").bearer("tk-wrong-key-0123456789abcdef0123")).status, 401);
    assert_eq!(gateway.send(&Request::post("/models.json", &json!({}))).status, 405);
}

#[test]
fn answers_are_cacheable_and_limited_by_address() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream).env("TOLLGATE_SQUARE__REQUESTS_PER_MINUTE", "20").spawn();
    for path in ["/models.json", "/models.atom"] {
        let whole = visitor(&gateway, path);
        let tag = whole.header("etag").unwrap().to_owned();
        assert_eq!(whole.header("cache-control"), Some("public, max-age=30"));
        assert_eq!(whole.header("vary"), Some("authorization, cookie, accept-encoding"));
        let known = gateway.send(&Request::get(path).header("if-none-match", &tag));
        assert_eq!((known.status, known.body.len(), known.header("etag")), (304, 0, Some(tag.as_str())), "{path}");
        let private = gateway.send(&Request::get(path).bearer(INSIDER).header("if-none-match", &tag));
        assert_eq!((private.status, private.header("cache-control")), (200, Some("private, max-age=30")), "{path}");
    }
    let packed = gateway.send(&Request::get("/models.json").header("accept-encoding", "gzip"));
    assert_eq!((packed.header("content-encoding"), &packed.body[..2]), (Some("gzip"), &[0x1f, 0x8b][..]));
    // A new minute may begin meanwhile.
    let refused = (0..60).map(|_| visitor(&gateway, "/models.json")).find(|answer| answer.status != 200).expect("it is bounded");
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &json!("rate_limit_exceeded")));
    assert!(refused.header("retry-after").is_some_and(|secs| (1..=60).contains(&secs.parse::<u32>().unwrap())));
    assert_eq!(gateway.send(&Request::get("/v1/models").bearer(INSIDER)).status, 200, "requests for models are not counted");
}

#[test]
fn square_can_be_closed_to_visitors() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream).env("TOLLGATE_SQUARE__PUBLIC", "false").spawn();
    for path in ["/models.json", "/models.atom"] {
        let refused = visitor(&gateway, path);
        assert_eq!((refused.status, &refused.json()["error"]["code"]), (401, &json!("missing_api_key")), "{path}");
        assert_eq!(gateway.send(&Request::get(path).bearer(INSIDER)).status, 200);
    }
}

#[test]
fn square_is_on_the_model_address_when_the_console_has_its_own() {
    let upstream = Upstream::start();
    let gateway = gateway(&upstream).env("TOLLGATE_CONSOLE__LISTEN", "127.0.0.1:0").spawn();
    assert_eq!(visitor(&gateway, "/models.json").status, 200);
    assert_eq!(visitor(&gateway, "/admin/v1/square?group=default").status, 404);
}

/// The titles of all entries of a feed.
fn titles(xml: &str) -> Vec<String> {
    let entries = xml.split("<entry>").skip(1);
    entries.map(|entry| entry.split("<title>").nth(1).unwrap().split("</title>").next().unwrap().to_owned()).collect()
}

#[test]
fn feed_lists_changes() {
    // The test polls the feed.
    let settings = TestGateway::builder(PROGRAM).env("TOLLGATE_SQUARE__REQUESTS_PER_MINUTE", "100000");
    let admin = Admin::of(settings.spawn());
    let feed = || visitor(&admin.gateway, "/models.atom").text();
    let upstream = Upstream::start();
    let at = |path: &str| format!("/admin/v1/{path}");
    let made = json!({
        "name": "c", "provider": "compatible", "base_url": upstream.openai_url(), "private_network": true,
        "serves": [{"model": "m", "cost": {"input": "1"}}],
    });
    admin.post(&at("channels"), &made);
    admin.post(&at("models"), &json!({"name": "m", "price": [{"input": "2"}], "description": "A <new> one"}));
    admin.post(&at("groups"), &json!({"name": "open", "channels": ["c"], "sale_multiplier": "1.5"}));
    admin.post(&at("groups"), &json!({"name": "closed", "channels": ["c"], "visibility": "private"}));
    // A change of the catalog takes a moment to be served.
    let says = |text: &str| wait_for(text, Duration::from_secs(15), || feed().contains(text));
    says("<title>m added to open<");
    let added = feed();
    assert_eq!(titles(&added)[0], "m added to open", "{added}");
    assert!(added.contains("A &lt;new&gt; one") && !added.contains("closed"), "{added}");
    assert!(added.contains("<link rel=\"alternate\" href=\"/models.json?model=m\""), "{added}");

    admin.patch(&at("models/m"), &json!({"price": [{"input": "1", "output": "4"}]}));
    says("<title>The price of m changes<");
    let cheaper = feed();
    assert_eq!(titles(&cheaper)[0], "The price of m changes", "{cheaper}");
    assert!(cheaper.contains("open: input 3.00 to 1.50\nopen: output 6.00"), "{cheaper}");
    admin.patch(&at("channels/c"), &json!({"serves": [{"model": "m", "cost": {"input": "0.5"}}]}));
    assert_eq!(feed(), cheaper, "what a provider charges is not shown");
    admin.patch(&at("groups/open"), &json!({"sale_multiplier": "2"}));
    says("<title>The prices of open change<");
    assert_eq!(titles(&feed())[0], "The prices of open change");
    admin.patch(&at("groups/open"), &json!({"model_multipliers": {"m*": "3"}}));
    says("<title>The price of m in open changes<");
    let dearer = feed();
    assert_eq!(titles(&dearer)[0], "The price of m in open changes", "{dearer}");
    assert!(dearer.contains("open: factor on base prices 2 to 3"), "{dearer}");
    admin.patch(&at("groups/open"), &json!({"sale_multiplier": "4"}));
    says("open: factor on base prices 2 to 4");
    let newest = titles(&feed());
    assert_eq!(newest[..2], ["The prices of open change", "The price of m in open changes"], "m keeps its factor");
    admin.patch(&at("models/m"), &json!({"visible": false}));
    wait_for("that the model is hidden", Duration::from_secs(15), || !feed().contains("<title>m added to open<"));
    let hidden = feed();
    assert!(!titles(&hidden).iter().any(|title| title.contains("m removed")), "{hidden}");
    admin.patch(&at("models/m"), &json!({"visible": true}));
    admin.patch(&at("channels/c"), &json!({"serves": [{"model": "n"}]}));
    says("<title>n added to open<");
    let gone = titles(&feed());
    assert!(gone.contains(&"m removed from open".to_owned()) && gone.contains(&"n added to open".to_owned()), "{gone:?}");
    let ids: Vec<_> = feed().split("<id>").skip(1).map(|rest| rest[..45].to_owned()).collect();
    let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!((distinct.len(), ids[0].starts_with("urn:uuid:")), (ids.len(), true), "each entry has a unique id");
    let preview = admin.get(&at("square?group=closed"));
    assert_eq!((names(&preview), &preview["audience"]), (vec!["n".to_owned()], &json!("group")));
}

#[test]
fn state_of_a_model_follows_its_accounts() {
    let upstream = Upstream::start();
    let refused = json!({"error": {"message": "who are you"}});
    upstream.set_default(ScriptedResponse::error(401, &refused));
    // The test polls the square.
    let gateway = support::builder(&upstream, "").env("TOLLGATE_SQUARE__REQUESTS_PER_MINUTE", "100000").spawn();
    let before = state(&gateway, "chat-model");
    assert_eq!((&before["now"], &before["since"]), (&json!("available"), &Value::Null), "{before}");
    assert_ne!(gateway.chat(&support::chat("chat-model")).status, 200);
    wait_for("that the model is unavailable", SNAPSHOT, || state(&gateway, "chat-model")["now"] == "unavailable");
    let down = state(&gateway, "chat-model");
    assert!(down["since"].is_string() && down["until"].is_null(), "a test has to pass: {down}");
    assert_eq!(state(&gateway, "native-model")["now"], "available", "another channel's");
    upstream.set_default(ScriptedResponse::chat("well again"));
    assert!(gateway.run(&["channel", "test", "chat"]).status.success());
    wait_for("that the model is available", SNAPSHOT, || state(&gateway, "chat-model")["now"] == "available");
    let up = state(&gateway, "chat-model");
    assert!(up["since"].as_str().unwrap() > down["since"].as_str().unwrap(), "{down} {up}");
}

#[test]
fn model_above_the_price_limit_of_its_group_is_unavailable_in_that_group() {
    let upstream = Upstream::start();
    // 15 USD after the multiplier of the group.
    for (limit, expected, status) in [("14.9", "unavailable", 503), ("15", "available", 200)] {
        let limited =
            format!("sale_multiplier = \"1.5\"\nprice_limit = {{ mode = \"ceiling\", on = \"sale\", max_input = \"{limit}\" }}\n");
        let catalog = catalog(&upstream).replace("sale_multiplier = \"1.5\"\n", &limited);
        let gateway = TestGateway::builder(PROGRAM).catalog(&catalog).spawn();
        assert_eq!(state(&gateway, "chat-model")["now"], expected, "{limit}");
        assert_eq!(gateway.chat(&support::chat("chat-model")).status, status, "{limit}");
        let elsewhere = square(&gateway, Some(INSIDER));
        assert_eq!(offer(&elsewhere, "chat-model", "inner-circle")["state"]["now"], "available", "{limit}");
    }
}

/// Sends answered, failed and faulty requests, tests a channel, and compares the traffic figures of the square.
fn check_traffic(upstream: &Upstream, gateway: &TestGateway) {
    let chunks = ["one ", "two ", "three"];
    let streamed = || ScriptedResponse::chat_stream(&chunks).chunk_delay(Duration::from_millis(5));
    for _ in 0..24 {
        upstream.enqueue(streamed());
        assert_eq!(gateway.chat(&support::chat_stream("chat-model")).status, 200);
    }
    for _ in 0..6 {
        upstream.enqueue(ScriptedResponse::error(500, &json!({"error": {"message": "broken"}})));
        assert_eq!(gateway.chat(&support::chat("chat-model")).status, 502);
    }
    for _ in 0..10 {
        upstream.enqueue(ScriptedResponse::error(400, &json!({"error": {"message": "not so"}})));
        assert_eq!(gateway.chat(&support::chat("chat-model")).status, 400, "the caller's fault");
    }
    let mut no_messages = support::chat("chat-model");
    no_messages["messages"] = json!([]);
    assert_eq!(gateway.chat(&no_messages).status, 400);
    upstream.set_default(ScriptedResponse::chat("tested"));
    assert!(gateway.run(&["channel", "test", "chat"]).status.success());
    wait_for("every record", Duration::from_secs(20), || gateway.records().len() >= 41);
    // Records in the journal are not in the sums yet.
    wait_for("that all are booked", Duration::from_secs(20), || {
        let verified: Value = serde_json::from_slice(&gateway.run(&["verify", "--json"]).stdout).unwrap();
        verified["waiting_in_journal"] == 0
    });

    let answer = visitor(gateway, "/models.json");
    let square = answer.json();
    let of = offer(&square, "chat-model", "default");
    for span in ["day", "week"] {
        let figures = &of[span];
        assert_eq!(figures["availability"], 0.8, "24 of 30: {of}");
        assert_eq!(figures["buckets"].as_array().unwrap().iter().filter(|bucket| !bucket.is_null()).count(), 1, "{figures}");
        assert!(figures["first_content_ms"]["p50"].as_f64().unwrap() > 0.0, "{figures}");
        assert!(figures["output_tokens_per_s"].as_f64().is_some_and(|speed| speed > 0.0), "{figures}");
    }
    assert_eq!((&square["data"][0]["popularity"], &square["data"][1]["popularity"]), (&json!(1), &Value::Null), "{square}");
    assert_eq!(offer(&square, "native-model", "default")["day"]["availability"], Value::Null);
}

#[test]
fn figures_are_computed_from_traffic_without_caller_errors() {
    let upstream = Upstream::start();
    check_traffic(&upstream, &support::gateway_for(&upstream));
}

#[test]
fn figures_are_computed_from_traffic_on_postgres() {
    let Some(postgres) = Postgres::start("figures_are_computed_from_traffic_on_postgres") else { return };
    let upstream = Upstream::start();
    let builder = support::builder(&upstream, "cooling = false").env("DATABASE_URL", &postgres.url());
    check_traffic(&upstream, &builder.spawn());
}
