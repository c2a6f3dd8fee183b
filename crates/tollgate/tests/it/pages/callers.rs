//! Pages of callers: the playground and its key, keys that members make, the home page, and the check of a key without an account.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate_testkit::{Request, TestGateway, wait_for};

use super::{Person, attacks::signed_in, location};
use crate::{admin::Admin, identity::make_member, support};

fn allow_self_service(admin: &Admin) {
    admin.patch("/admin/v1/groups/default", &json!({"self_service": true}));
}

/// Sends a write to the admin API as a script of a page does.
fn script(admin: &Admin, person: &Person, path: &str, body: &Value) -> tollgate_testkit::ClientResponse {
    let token = person.csrf_token(&admin.gateway).unwrap();
    let origin = format!("http://{}", admin.gateway.address());
    let request = person.with_cookies(Request::post(path, body)).header("origin", &origin).header("x-csrf-token", &token);
    admin.gateway.send(&request)
}

fn answers(admin: &Admin, key: &str) -> bool {
    let chat = Request::post("/v1/chat/completions", &support::chat("echo")).bearer(key);
    admin.gateway.send(&chat.header("x-tollgate-tags", "source=playground")).status == 200
}

#[test]
fn playground_lists_every_protocol_and_contains_no_key() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let mut ann = signed_in(&admin, "ann");
    let page = ann.page(&admin.gateway, "/playground?model=echo");
    for protocol in ["value=\"openai\"", "value=\"gemini\"", "value=\"anthropic\"", "data-credential=\"x-goog-api-key\""] {
        assert!(page.contains(protocol), "{protocol}: {page}");
    }
    assert!(page.contains("<option>echo</option>") && !page.contains("data-make-key"), "operators make keys of the group: {page}");
    allow_self_service(&admin);
    assert!(ann.page(&admin.gateway, "/playground").contains("data-make-key"));
    assert_eq!(Person::default().get(&admin.gateway, "/playground").status, 303);
}

#[test]
fn limits_of_a_playground_key_are_saved_without_moving_its_end() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    make_member(&admin, "op", "operator");
    allow_self_service(&admin);
    let made = script(&admin, &signed_in(&admin, "ann"), "/admin/v1/me/playground-key", &json!({})).json();
    let (path, end) = (format!("/keys/{}", made["id"].as_str().unwrap()), made["expires_at"].as_str().unwrap());
    let mut op = signed_in(&admin, "op");
    location(&op.save(&admin.gateway, &path, &[("rpm", "5"), ("expires", &end[..10]), ("valid_for", "")]));
    let key = admin.get(&format!("/admin/v1{path}"));
    assert_eq!((&key["rpm"], &key["expires_at"]), (&json!(5), &json!(end)));
}

#[test]
fn playground_key_is_renewed_and_ends() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let ann = signed_in(&admin, "ann");
    let path = "/admin/v1/me/playground-key";
    assert_eq!(script(&admin, &ann, path, &json!({})).status, 403, "operators change the keys of the group");
    allow_self_service(&admin);
    let first = script(&admin, &ann, path, &json!({})).json();
    assert_eq!(
        (&first["name"], &first["member"], &first["state"]),
        (&json!("console-playground"), &json!("ann"), &json!("active"))
    );
    assert!(first["expires_at"].is_string(), "{first}");
    let second = script(&admin, &ann, path, &json!({"group": "default"})).json();
    assert_eq!((&second["id"], &second["groups"]), (&first["id"], &json!(["default"])));
    for key in [&first, &second] {
        let key = key["key"].as_str().unwrap();
        wait_for("the key is known", Duration::from_secs(30), || answers(&admin, key));
    }
    let tagged = "/admin/v1/usage?tags=source%3Dplayground";
    wait_for("the requests are booked", Duration::from_mins(1), || {
        admin.get(tagged)["items"].as_array().unwrap().iter().any(|record| record["outcome"] == "completed")
    });
    assert_eq!(script(&admin, &ann, path, &json!({"group": "nowhere"})).status, 400);
    let key = format!("/admin/v1/keys/{}", first["id"].as_str().unwrap());
    admin.patch(&key, &json!({"status": "disabled"}));
    let refused = script(&admin, &ann, path, &json!({}));
    assert!(refused.status == 409 && refused.text().contains("disabled"), "{}", refused.text());
    let forged = ann.with_cookies(Request::post(path, &json!({})));
    assert_eq!(admin.gateway.send(&forged).status, 403, "without the token of the session");
}

#[test]
fn members_make_keys_where_their_groups_allow_it() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    make_member(&admin, "eve", "member");
    let mut ann = signed_in(&admin, "ann");
    assert_eq!(ann.get(&admin.gateway, "/keys/new").status, 403);
    allow_self_service(&admin);
    admin.post(
        "/admin/v1/groups",
        &json!({"name": "secret-group", "visibility": "private", "channels": ["echo"], "self_service": true}),
    );
    admin.post("/admin/v1/groups", &json!({"name": "closed-group", "channels": ["echo"]}));
    let page = ann.page(&admin.gateway, "/keys/new");
    assert!(!page.contains("name=\"member\"") && !page.contains("secret-group") && !page.contains("closed-group"), "{page}");
    for (group, status) in [("secret-group", 422), ("nowhere", 422), ("closed-group", 403)] {
        let refused = ann.post(&admin.gateway, "/keys/new", &[("name", "mine"), ("groups", group)]);
        assert_eq!(refused.status, status, "{group}: {}", refused.text());
    }
    let made = ann.post(&admin.gateway, "/keys/new", &[("name", "mine"), ("member", "eve"), ("budget_month_block", "2")]);
    assert!(made.status == 200 && made.text().contains("The key is ready"), "{}", made.text());
    let keys = admin.get("/admin/v1/keys?name=mine");
    assert_eq!((&keys["items"][0]["member"], &keys["items"][1]), (&json!("ann"), &Value::Null), "never of another member");
    let id = keys["items"][0]["id"].as_str().unwrap();
    let copy = ann.page(&admin.gateway, &format!("/keys/new?from={id}"));
    assert!(copy.contains("value=\"mine copy\"") && copy.contains("value=\"2.00\""), "{copy}");
    assert_eq!(signed_in(&admin, "eve").get(&admin.gateway, &format!("/keys/new?from={id}")).status, 404);
    let revoked = ann.post(&admin.gateway, &format!("/keys/{id}/revoke"), &[("typed_name", "mine")]);
    assert_eq!(revoked.status, 303, "{}", revoked.text());
    assert_eq!(admin.get(&format!("/admin/v1/keys/{id}"))["state"], "revoked");
}

#[test]
fn several_keys_are_made_at_once() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    make_member(&admin, "ann", "member");
    let mut op = signed_in(&admin, "op");
    let fields = |count| [("name", "lab"), ("member", "ann"), ("count", count), ("rpm", "5")];
    let page = op.post(&admin.gateway, "/keys/new", &fields("3")).text();
    assert!(page.contains("name,id,member,key") && page.matches("<td class=\"t2\"").count() == 3, "{page}");
    let made = admin.get("/admin/v1/keys?member=ann");
    let made = made["items"].as_array().unwrap();
    assert_eq!(made.iter().map(|key| key["name"].as_str().unwrap()).collect::<Vec<_>>(), ["lab-1", "lab-2", "lab-3"]);
    assert!(made.iter().all(|key| key["rpm"] == 5));
    let refused = op.post(&admin.gateway, "/keys/new", &fields("101"));
    assert!(refused.status == 422 && refused.text().contains("Enter at most 100."), "{}", refused.text());
    let twice = op.post(&admin.gateway, "/keys/new", &fields("2"));
    assert!(twice.status == 422 && twice.text().contains("The member has a key of this name."), "{}", twice.text());
}

#[test]
fn keys_are_filtered_and_sorted() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    make_member(&admin, "ann", "member");
    let make = |name: &str, more: Value| {
        let mut body = json!({"name": name, "member": "ann"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        admin.post("/admin/v1/keys", &body)
    };
    let used = make("used", json!({}));
    let ending = make("ending", json!({"expires_at": in_three_days(), "groups": ["default"]}));
    make("off", json!({"status": "disabled"}));
    let key = used["key"].as_str().unwrap();
    wait_for("the key is known", Duration::from_secs(30), || answers(&admin, key));
    wait_for("the request is booked", Duration::from_mins(1), || {
        !admin.get("/admin/v1/usage")["items"].as_array().unwrap().is_empty()
    });
    let names = |query: &str| -> Vec<String> {
        let found = admin.get(&format!("/admin/v1/keys?member=ann&{query}"));
        found["items"].as_array().unwrap().iter().map(|key| key["name"].as_str().unwrap().to_owned()).collect()
    };
    let suffix = ending["suffix"].as_str().unwrap();
    for (query, expected) in [
        ("sort=name", vec!["ending", "off", "used"]),
        ("sort=requests", vec!["used", "ending", "off"]),
        ("sort=last_used", vec!["used", "ending", "off"]),
        ("sort=expires&limit=1", vec!["ending"]),
        ("state=disabled", vec!["off"]),
        ("group=default", vec!["ending"]),
        ("expires_within_days=7", vec!["ending"]),
        ("search=ANN&state=active", vec!["used", "ending"]),
        ("search=us", vec!["used"]),
        (&format!("search={suffix}"), vec!["ending"]),
        ("unused_days=1", vec![]),
        ("search=nothing", vec![]),
    ] {
        let found = names(query);
        let expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
        assert_eq!(found, expected, "{query}");
    }
    let first = admin.get("/admin/v1/keys?member=ann&sort=name&limit=2");
    assert_eq!(names(&format!("sort=name&after={}", first["next"].as_str().unwrap())), ["used"]);
    for query in ["use=true", "use=true&sort=spent"] {
        let listed = admin.get(&format!("/admin/v1/keys?member=ann&{query}"));
        for key in listed["items"].as_array().unwrap() {
            let is_used = key["name"] == "used";
            assert_eq!(key["month"]["requests"].as_u64().unwrap() > 0, is_used, "{key}");
            assert!(key["month"]["sale"].is_string());
        }
    }
    assert!(first["items"][0].get("month").is_none(), "{first}");
    let page = signed_in(&admin, "op").page(&admin.gateway, "/keys?sort=requests&state=active");
    assert!(page.find(">used</a>").unwrap() < page.find(">ending</a>").unwrap() && !page.contains(">off</a>"), "{page}");
    assert!(page.contains("aria-sort=\"descending\""), "{page}");
}

fn in_three_days() -> String {
    let at = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(72);
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[test]
fn first_steps_disappear_after_the_first_answer() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let mut ann = signed_in(&admin, "ann");
    let page = ann.page(&admin.gateway, "/console");
    assert!(page.contains("data-steps") && page.contains("Hello, ann") && page.contains("0 of 3"), "{page}");
    let made = admin.post("/admin/v1/keys", &json!({"name": "ci", "member": "ann", "budget": {"amount": "5", "window": "month"}}));
    let page = ann.page(&admin.gateway, "/console");
    assert!(page.contains("Waiting for the first request") && page.contains("$5.00"), "{page}");
    let key = made["key"].as_str().unwrap();
    wait_for("the key is known", Duration::from_secs(30), || answers(&admin, key));
    wait_for("the first steps are over", Duration::from_mins(1), || !ann.page(&admin.gateway, "/console").contains("data-steps"));
    let page = ann.page(&admin.gateway, "/console?by=requests");
    assert!(page.contains("/models/echo") && page.contains("class=\"f1\""), "{page}");
    let other = signed_in(&admin, "ann").page(&admin.gateway, "/console?by=%00");
    assert!(other.contains("aria-current=\"true\">Spent"), "{other}");
}

#[test]
fn key_is_checked_without_an_account_and_never_sent_back() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let made = admin
        .post("/admin/v1/keys", &json!({"name": "ci", "member": "ann", "rpm": 60, "budget": {"amount": "5.001", "window": "day"}}));
    let key = made["key"].as_str().unwrap();
    wait_for("the key is known", Duration::from_secs(30), || answers(&admin, key));
    let mut visitor = Person::default();
    assert!(visitor.page(&admin.gateway, "/key").contains("type=\"password\""));
    wait_for("the request is booked", Duration::from_mins(1), || {
        visitor.post(&admin.gateway, "/key", &[("key", key)]).text().contains(">200<")
    });
    let answer = visitor.post(&admin.gateway, "/key", &[("key", key)]);
    let page = answer.text();
    assert!(answer.status == 200 && page.contains("$5.00") && page.contains("60") && page.contains("echo"), "{page}");
    assert!(page.contains("of $5.001 spent\">"), "the exact amount is the title of the rounded one: {page}");
    assert!(!page.contains(key), "{page}");
    assert!(page.contains("Use of this key") && page.contains("this month (UTC), "), "{page}");
    for (wrong, says) in [
        ("", "Paste a key."),
        ("sk-tg-wrong", "The gateway does not know this key."),
        ("<script>alert(1)</script>", "does not know"),
    ] {
        let refused = visitor.post(&admin.gateway, "/key", &[("key", wrong)]);
        let page = refused.text();
        assert!(
            refused.status == 422 && page.contains(says) && !page.contains("alert(1)") && !page.contains("sk-tg-wrong"),
            "{page}"
        );
    }
    let ignored = visitor.page(&admin.gateway, &format!("/key?key={key}"));
    assert!(!ignored.contains("$5.00") && !ignored.contains(key), "a key in the address is not read");

    let ok = admin.call("PUT", "/admin/v1/settings/budget.total", Some(&json!({"value": "0"})));
    assert_eq!(ok.status, 200, "{}", ok.text());
    let spent = "A budget of the whole gateway is spent";
    wait_for("the check reports that the gateway's budget is spent", Duration::from_secs(30), || {
        visitor.post(&admin.gateway, "/key", &[("key", key)]).text().contains(spent)
    });
    assert!(signed_in(&admin, "ann").page(&admin.gateway, "/console").contains(spent));
    admin.patch(&format!("/admin/v1/keys/{}", made["id"].as_str().unwrap()), &json!({"status": "disabled"}));
    wait_for("the change is known", Duration::from_secs(30), || {
        visitor.post(&admin.gateway, "/key", &[("key", key)]).text().contains("The key is off.")
    });
}

#[test]
fn prices_use_the_chosen_unit_and_models_are_filtered_by_capability() {
    let admin = Admin::echo();
    admin.patch("/admin/v1/models/echo", &json!({"price": {"input": "2.5", "output": "10", "cache_read": "0.25"}}));
    let mut visitor = Person::default();
    wait_for("the price is known", Duration::from_secs(30), || visitor.page(&admin.gateway, "/models").contains("$2.50"));
    let page = visitor.page(&admin.gateway, "/models?unit=1k");
    assert!(page.contains("$0.0025") && page.contains("name=\"can\" value=\"caching\""), "{page}");
    assert!(visitor.page(&admin.gateway, "/models/echo").contains("$0.0025"), "the browser keeps the unit");
    assert!(visitor.page(&admin.gateway, "/models?price=1").contains("No model matches."));
    assert!(visitor.page(&admin.gateway, "/models?price=5&unit=1m").contains("/models/echo"));
    let detail = visitor.page(&admin.gateway, "/models/echo");
    for line in [
        "/v1/chat/completions",
        ":generateContent",
        "/v1/messages",
        "ANTHROPIC_BASE_URL",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
        "x-goog-api-key",
    ] {
        assert!(detail.contains(line), "{line}: {detail}");
    }
}

#[test]
fn console_with_its_own_address_may_send_model_requests() {
    let gateway = TestGateway::builder(support::PROGRAM)
        .env("TOLLGATE_CONSOLE__LISTEN", "127.0.0.1:0")
        .env("TOLLGATE_CONSOLE__URL", "https://console.example.com")
        .spawn();
    let ask = |origin: &str| {
        let asked = Request::get("/v1/chat/completions").method("OPTIONS").header("origin", origin);
        gateway
            .send(&asked.header("access-control-request-method", "POST").header("access-control-request-headers", "authorization"))
    };
    let answer = ask("https://console.example.com");
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (204, Some("https://console.example.com")));
    assert_eq!(answer.header("access-control-allow-headers"), Some("authorization"));
    assert!(answer.header("access-control-allow-credentials").is_none());
    let other = ask("https://evil.example.com");
    assert!(other.status != 204 && other.header("access-control-allow-origin").is_none());
    let models = gateway.send(&Request::get("/v1/models").header("origin", "https://console.example.com"));
    assert_eq!((models.status, models.header("access-control-allow-origin")), (401, Some("https://console.example.com")));
}
