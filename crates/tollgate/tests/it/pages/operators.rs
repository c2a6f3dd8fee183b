//! The pages of operators: the overview, channels with their accounts, models and tests, the steps of the set-up, and the search.

use std::time::Duration;

use serde_json::json;
use tollgate_testkit::{Request, ScriptedResponse, UPSTREAM_CREDENTIAL, Upstream, wait_for};

use super::{Person, attacks::signed_in, location};
use crate::{admin::Admin, identity::make_member, support};

pub(super) fn upstream() -> Upstream {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::chat("hello"));
    upstream
}

/// The member who is admin.
pub(super) fn owner(admin: &Admin) -> Person {
    make_member(admin, "boss", "admin");
    signed_in(admin, "boss")
}

pub(super) fn make(admin: &Admin, person: &mut Person, upstream: &Upstream, name: &str) {
    make_in(&["default"], admin, person, upstream, name);
}

/// Makes a channel that these groups offer.
pub(super) fn make_in(groups: &[&str], admin: &Admin, person: &mut Person, upstream: &Upstream, name: &str) {
    let url = upstream.openai_url();
    let mut fields = vec![
        ("name", name),
        ("provider", "compatible"),
        ("base_url", url.as_str()),
        ("credential", UPSTREAM_CREDENTIAL),
        ("private_network", "on"),
    ];
    fields.extend(groups.iter().map(|group| ("groups", *group)));
    let made = person.post(&admin.gateway, "/channels/new", &fields);
    assert_eq!(location(&made), format!("/channels/{name}/models"));
}

/// Every line of a credential field becomes an account.
fn several_credentials(admin: &Admin, boss: &mut Person) {
    let mut post = |credentials: &str| {
        let fields = [("name", "pool"), ("credential", credentials), ("status", "true"), ("tpm", "90000")];
        boss.post(&admin.gateway, "/channels/main/accounts/new", &fields)
    };
    let wrong = post("sk-1\r\n\r\nsk–2");
    assert!(wrong.status == 422 && wrong.text().contains("Line 3:"), "{}", wrong.text());
    assert_eq!(location(&post("sk-1\r\nsk-2\r\n")), "/channels/main");
    assert_eq!(location(&post("sk-3\r\nsk-4")), "/channels/main");
    for number in 1..=4 {
        let account = admin.get(&format!("/admin/v1/channels/main/accounts/pool-{number}"));
        assert_eq!((&account["tpm"], &account["status"]), (&json!(90_000), &json!("on")), "{number}");
        admin.delete(&format!("/admin/v1/channels/main/accounts/pool-{number}"));
    }
}

/// Changes the channel `main` through its form.
fn edit(admin: &Admin, boss: &mut Person, upstream: &Upstream) {
    // The fault is shown beside its field, and the typed values are kept.
    let wrong = boss.save(&admin.gateway, "/channels/main/edit", &[("weight", "heavy"), ("priority", "7")]);
    assert!(
        wrong.status == 422 && wrong.text().contains("aria-invalid") && wrong.text().contains("value=\"heavy\""),
        "{}",
        wrong.text()
    );
    let edit = [
        ("base_url", upstream.openai_url()),
        ("priority", "2".to_owned()),
        ("weight", "3".to_owned()),
        ("connect_timeout_ms", "4000".to_owned()),
        ("first_byte_timeout_ms", "50000".to_owned()),
        ("idle_timeout_ms", "50000".to_owned()),
        ("probe_interval_s", "0".to_owned()),
        ("concurrency", "8".to_owned()),
        ("rpm", "1,200".to_owned()),
        ("tpm", String::new()),
        ("failures_to_cool", "2".to_owned()),
        ("cool_down_s", "30".to_owned()),
        ("pausing_statuses", "402, 529".to_owned()),
        ("test_model", "fast".to_owned()),
        ("parameter_edits", "drop seed\r\nclamp temperature 0 1\r\nforce reasoning.effort low".to_owned()),
        ("private_network", "on".to_owned()),
        ("cooling", "on".to_owned()),
        ("headers", "x-one: 1".to_owned()),
        ("budget_day_block", "$5".to_owned()),
        ("groups", "default".to_owned()),
    ];
    let edit: Vec<(&str, &str)> = edit.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(location(&boss.save(&admin.gateway, "/channels/main/edit", &edit)), "/channels/main");
    let channel = admin.get("/admin/v1/channels/main");
    assert_eq!((&channel["priority"], &channel["weight"], &channel["retry_uncertain"]), (&json!(2), &json!(3), &json!(false)));
    assert_eq!((&channel["headers"]["x-one"], &channel["budget"]["amount"]), (&json!("***"), &json!("5.00")));
    assert_eq!((&channel["concurrency"], &channel["rpm"], &channel["tpm"]), (&json!(8), &json!(1_200), &json!(0)));
    let load = json!({"channel": "main", "running": 0, "requests_minute": 0, "tokens_minute": 0, "concurrency": 8, "rpm": 1_200, "tpm": 0});
    assert_eq!(admin.get("/admin/v1/load")["channels"], json!([load]));
    for page in ["/channels", "/channels/main"] {
        assert!(boss.page(&admin.gateway, page).contains("0 / 8"), "{page} shows requests in progress and their limit");
    }
    assert_eq!((&channel["failures_to_cool"], &channel["cool_down_s"]), (&json!(2), &json!(30)));
    assert_eq!((&channel["pausing_statuses"], &channel["test_model"]), (&json!([402, 529]), &json!("fast")));
    let clamped = json!({"action": "clamp", "parameter": "temperature", "min": 0, "max": 1});
    assert_eq!((channel["parameter_edits"].as_array().map(Vec::len), &channel["parameter_edits"][1]), (Some(3), &clamped));
    assert!(boss.page(&admin.gateway, "/channels/main/edit").contains("clamp temperature 0 1\nforce reasoning.effort low"));
}

#[test]
fn channel_is_created_changed_and_removed() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut boss = owner(&admin);
    assert!(boss.page(&admin.gateway, "/channels").contains("echo"));
    assert!(boss.page(&admin.gateway, "/channels/new").contains("name=\"credential\""));
    make(&admin, &mut boss, &upstream, "main");
    assert!(boss.page(&admin.gateway, "/channels/main/models").contains("It serves no model yet."));

    // A list of models, one of which is chosen; another gets a different public name.
    upstream.enqueue(ScriptedResponse::json(&json!({"data": [{"id": "one"}, {"id": "two<b>"}, {"id": "gpt-5-mini"}]})));
    let listed = boss.post(&admin.gateway, "/channels/main/models/fetch", &[]).text();
    assert!(listed.contains("Input $0.25 · Output $2.00") && listed.matches("Not priced").count() == 2, "{listed}");
    assert!(listed.contains("value=\"one\"") && listed.contains("3 listed") && !listed.contains("two<b>"), "{listed}");
    let added = boss.post(&admin.gateway, "/channels/main/models/add", &[("pick", "one"), ("prices", "on")]);
    assert_eq!(location(&added), "/channels/main/models");
    boss.post(&admin.gateway, "/channels/main/models/add", &[("model", "fast"), ("upstream", "two")]);
    let costs = [("shown", "one"), ("upstreams", "one-2"), ("input", "0.5"), ("output", "2"), ("remove", "")];
    boss.save(&admin.gateway, "/channels/main/models", &costs);
    let channel = admin.get("/admin/v1/channels/main");
    assert_eq!((&channel["serves"][0]["upstream"], &channel["serves"][1]["upstream"]), (&json!("one-2"), &json!("two")));
    assert_eq!(channel["serves"][0]["cost"]["input"], "0.50");
    assert_eq!(admin.get("/admin/v1/groups/default")["channels"], json!(["echo", "main"]));

    // The test is sent in parts; without a script it is a page.
    let tested = boss.post(&admin.gateway, "/channels/main/test", &[("model", "fast")]).text();
    assert!(tested.contains("TCP") && tested.contains("Passed") && tested.contains("</html>"), "{tested}");
    // The model is in force within a second.
    let mut page = String::new();
    wait_for("requests go to the channel", Duration::from_secs(30), || {
        page = boss.page(&admin.gateway, "/channels/main?model=fast&caller=group%3Adefault");
        page.contains("a request now goes to main / main")
    });
    assert!(page.contains("Switch off"), "{page}");
    assert!(!page.contains(UPSTREAM_CREDENTIAL), "the credential is shown");

    edit(&admin, &mut boss, &upstream);
    boss.post(
        &admin.gateway,
        "/channels/main/accounts/new",
        &[("name", "second"), ("credential", "another"), ("status", "on"), ("rpm", "60")],
    );
    boss.save(&admin.gateway, "/channels/main/accounts/second", &[("rpm", "30")]);
    let account = admin.get("/admin/v1/channels/main/accounts/second");
    assert_eq!((&account["rpm"], &account["status"]), (&json!(30), &json!("off")), "a switch that is not sent is off");
    assert!(boss.page(&admin.gateway, "/channels/main").contains("second"));
    let bare = boss.post(&admin.gateway, "/channels/main/accounts/second/remove", &[]);
    assert!(bare.status == 422 && bare.text().contains("This is not the name."), "{}", bare.text());
    assert!(bare.text().contains("value=\"30\""), "the other form keeps the stored values");
    let removed = boss.post(&admin.gateway, "/channels/main/accounts/second/remove", &[("typed_name", "second")]);
    assert_eq!(location(&removed), "/channels/main");
    assert_eq!(boss.get(&admin.gateway, "/channels/main/accounts/second").status, 404);
    several_credentials(&admin, &mut boss);

    boss.post(&admin.gateway, "/channels/main/switch", &[("status", "off")]);
    assert!(boss.page(&admin.gateway, "/channels/main").contains("The channel is off."));
    assert!(boss.page(&admin.gateway, "/channels?problems=1").contains("No channel matches."));
    let wrong = boss.post(&admin.gateway, "/channels/main/remove", &[("typed_name", "other")]);
    assert!(wrong.status == 422 && wrong.text().contains("This is not the name."), "{}", wrong.text());
    assert_eq!(location(&boss.post(&admin.gateway, "/channels/main/remove", &[("typed_name", "main")])), "/channels");
    assert_eq!(boss.get(&admin.gateway, "/channels/main").status, 404);
}

#[test]
fn messages_of_a_broken_channel_are_shown_escaped() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut boss = owner(&admin);
    make(&admin, &mut boss, &upstream, "broken");
    let added = boss.post(&admin.gateway, "/channels/broken/models/add", &[("model", "m")]);
    assert_eq!(location(&added), "/channels/broken/models", "{}", added.text());
    upstream
        .set_default(ScriptedResponse::error(401, &json!({"error": {"message": "wrong credential <script>alert(1)</script>"}})));
    let listed = boss.post(&admin.gateway, "/channels/broken/models/fetch", &[]);
    assert!(listed.status == 422 && listed.text().contains("wrong credential"), "{}", listed.text());
    let tested = boss.post(&admin.gateway, "/channels/broken/test", &[]).text();
    assert!(tested.contains("wrong credential") && !tested.contains("<script>alert"), "{tested}");
    let key = admin.post("/admin/v1/keys", &json!({"name": "caller"}))["key"].as_str().unwrap().to_owned();
    wait_for("the provider refuses the account", Duration::from_secs(30), || {
        admin.gateway.send(&Request::post("/v1/chat/completions", &support::chat("m")).bearer(&key)).status == 502
    });
    let overview = |boss: &mut Person| boss.page(&admin.gateway, "/overview?range=1h");
    wait_for("the error is on the overview", Duration::from_secs(30), || overview(&mut boss).contains("Account refused"));
    let page = overview(&mut boss);
    assert!(page.contains("replace its credential") && page.contains("/log?range=1h&#38;outcome=not_completed"), "{page}");
    // The request is linked from every list of its channel's errors.
    let failed = "tried_channel=broken&#38;tried_failed=true";
    for path in ["/overview?range=1h", "/channels", "/channels/broken?range=1h"] {
        let page = boss.page(&admin.gateway, path);
        assert!(page.contains(failed), "{path}: {page}");
    }
    let page = boss.page(&admin.gateway, "/channels/broken?range=1h");
    assert!(page.contains("Account refused") && page.contains("replace its credential"), "{page}");
    assert!(page.contains("Cost by model, over time") && page.contains(&format!("{failed}&#38;model=m")), "{page}");
    let list = boss.page(&admin.gateway, "/log?tried_channel=broken&tried_failed=true");
    let id = list.split_once(" data-record=\"").and_then(|(_, rest)| rest.split('"').next()).unwrap_or_else(|| panic!("{list}"));
    let record = boss.page(&admin.gateway, &format!("/log/{id}"));
    let link = "<a href=\"/channels/broken\">broken</a>";
    assert!(record.contains(link) && record.contains("replace its credential"), "{record}");
    wait_for("the account rests", Duration::from_secs(30), || boss.page(&admin.gateway, "/channels?problems=1").contains("broken"));
    let page = boss.page(&admin.gateway, "/channels/broken?model=m&caller=group%3Adefault");
    assert!(page.contains("This channel is left out.") || page.contains("Cooling") || page.contains("Resting"), "{page}");
    upstream.set_default(ScriptedResponse::chat("hello"));
    boss.post(&admin.gateway, "/channels/broken/end-cooling", &[]);
    wait_for("it is usable", Duration::from_secs(30), || {
        boss.page(&admin.gateway, "/channels?problems=1").contains("No channel matches.")
    });
}

#[test]
fn overview_has_the_figures_of_its_period() {
    let admin = Admin::echo();
    let mut boss = owner(&admin);
    for _ in 0..3 {
        assert_eq!(admin.gateway.chat(&support::chat("echo")).status, 200);
    }
    assert_eq!(admin.gateway.chat(&support::chat("no-such-model")).status, 404);
    for range in ["15m", "1h", "24h", "7d", "30d", "month"] {
        let path = format!("/overview?range={range}");
        wait_for("the requests are booked", Duration::from_secs(30), || boss.page(&admin.gateway, &path).contains(">4</span>"));
    }
    let page = boss.page(&admin.gateway, "/overview");
    assert!(page.contains("75.00 %") && page.contains("Unknown model") && page.contains("To get started"), "{page}");
    for split in ["model", "key", "member", "group", "channel"] {
        boss.page(&admin.gateway, &format!("/overview?range=1h&split={split}"));
    }
    let fixed = boss.page(&admin.gateway, "/overview?since=2020-01-01T00%3A00&until=2020-01-02T00%3A00");
    assert!(fixed.contains("Nothing happened in this time.") && !fixed.contains("data-refresh"), "{fixed}");
    make_member(&admin, "op", "operator");
    assert!(signed_in(&admin, "op").page(&admin.gateway, "/overview").contains("Channel health"));
    make_member(&admin, "ann", "member");
    let mut ann = signed_in(&admin, "ann");
    for path in ["/overview", "/channels", "/channels/echo", "/setup/channel"] {
        assert_eq!(ann.get(&admin.gateway, path).status, 404, "{path}");
    }
}

#[test]
fn set_up_leads_to_a_working_key() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut boss = owner(&admin);
    assert!(boss.page(&admin.gateway, "/setup/channel").contains("Built-in echo"));
    let echo = boss.post(&admin.gateway, "/setup/channel", &[("provider", "echo")]);
    assert_eq!(location(&echo), "/setup/key", "the built-in channel is there");
    let url = upstream.openai_url();
    let fields = [
        ("name", "first"),
        ("provider", "compatible"),
        ("base_url", url.as_str()),
        ("credential", UPSTREAM_CREDENTIAL),
        ("private_network", "on"),
        ("groups", "default"),
    ];
    assert_eq!(location(&boss.post(&admin.gateway, "/setup/channel", &fields)), "/setup/channel/first");
    let twice = boss.post(&admin.gateway, "/setup/channel", &fields);
    assert!(twice.status == 422 && twice.text().contains("There is one of this name already."), "{}", twice.text());
    assert_eq!(location(&boss.post(&admin.gateway, "/setup/channel/first/add", &[("model", "m")])), "/setup/channel/first");
    assert!(boss.page(&admin.gateway, "/setup/channel/first").contains("Run test"));
    for name in ["/setup/channel/compatible", "/setup/channel/compatible-2"] {
        assert_eq!(
            location(&boss.post(&admin.gateway, "/setup/channel", &fields[1..])),
            name,
            "without a name: that of the provider"
        );
    }
    let costs = [("shown", "m"), ("upstreams", "m-2"), ("input", "1.5"), ("output", "6"), ("go_on", "true")];
    assert_eq!(location(&boss.save(&admin.gateway, "/setup/channel/first", &costs)), "/setup/key", "what was typed is saved");
    let served = admin.get("/admin/v1/channels/first")["serves"][0].clone();
    assert_eq!((&served["upstream"], &served["cost"]["input"]), (&json!("m-2"), &json!("1.50")), "{served}");
    assert!(boss.page(&admin.gateway, "/setup/key").contains("value=\"my-key\""));
    let made = boss.post(&admin.gateway, "/setup/key", &[("name", "mine")]).text();
    let (_, rest) = made.split_once("data-copy=\"sk-").unwrap_or_else(|| panic!("no key in {made}"));
    let key = format!("sk-{}", rest.split('"').next().unwrap());
    assert!(made.contains("from openai import OpenAI"), "{made}");
    let of_boss = admin.get("/admin/v1/keys?member=boss");
    assert_eq!(of_boss["items"][0]["name"], json!("mine"), "the key is of who sets up, whatever the name: {of_boss}");
    assert!(boss.page(&admin.gateway, "/console").contains("1 of 3"), "the home page counts the key");
    assert!(made.contains("href=\"/playground?model=m\"") && made.contains("Open playground"), "{made}");
    let request = tollgate_testkit::Request::post("/v1/chat/completions", &support::chat("m"))
        .replace_header("authorization", &format!("Bearer {key}"));
    wait_for("the key works", Duration::from_secs(30), || admin.gateway.send(&request).status == 200);
}

#[test]
fn search_finds_only_what_the_reader_may_see() {
    let admin = Admin::echo();
    let mut boss = owner(&admin);
    make_member(&admin, "ann", "member");
    let mut ann = signed_in(&admin, "ann");
    let search = |person: &mut Person, text: &str| {
        let answer = person.post(&admin.gateway, "/search", &[("q", text)]);
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.text()
    };
    let found = search(&mut boss, "ech");
    assert!(found.contains("href=\"/channels/echo\"") && found.contains("href=\"/models/echo\""), "{found}");
    assert!(!search(&mut ann, "ech").contains("/channels/echo"));
    assert!(search(&mut boss, "req_01k9v2m5x4r7t8w9y0z1a2b3c4").contains("/log/req_01k9v2m5x4r7t8w9y0z1a2b3c4"));
    assert!(search(&mut boss, "<script>alert(1)").contains("Nothing found."));
    assert!(boss.page(&admin.gateway, "/shortcuts").contains("<kbd>g</kbd> <kbd>c</kbd>"));
}
