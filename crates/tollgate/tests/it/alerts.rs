//! Alerts: the conditions that rules detect, the messages to destinations, and that each is sent once.

mod chats;
mod members;

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use tollgate_testkit::{
    MailServer, MailServerMode, Postgres, ReceivedRequest, Request, ScriptedResponse, TestGateway, Upstream, wait_for,
};

use crate::{
    admin::{Admin, make_key, ok, refusal, refused, refused_whole, text},
    nodes::Services,
    support::{self, PROGRAM},
};

const DESTINATIONS: &str = "/admin/v1/alert-destinations";
/// The longest time until a rule is evaluated and its message is sent.
const SOON: Duration = Duration::from_mins(1);
/// The same for a rule that is evaluated every minute.
const SLOWLY: Duration = Duration::from_secs(150);

fn receiver() -> Upstream {
    let receiver = Upstream::start();
    receiver.set_default(ScriptedResponse::status(204));
    receiver
}

fn address(receiver: &Upstream) -> String {
    format!("http://{}/hook-canary?token=canary", receiver.address())
}

fn webhook(receiver: &Upstream, rules: &[&str]) -> Value {
    json!({
        "name": "ops", "kind": "webhook", "url": address(receiver), "secret": "signing-canary", "private_network": true, "rules": rules,
    })
}

fn set(admin: &Admin, name: &str, value: &Value) {
    ok(&admin.call("PUT", &format!("/admin/v1/settings/{name}"), Some(&json!({"value": value}))));
}

/// The alerts of a rule, newest first.
fn alerts(admin: &Admin, rule: &str, state: &str) -> Vec<Value> {
    admin.get(&format!("/admin/v1/alerts?rule={rule}&state={state}"))["items"].as_array().unwrap().clone()
}

fn wait_for_alerts(admin: &Admin, rule: &str, state: &str, count: usize) -> Vec<Value> {
    wait_for(&format!("{count} {state} alerts of {rule}"), SOON, || alerts(admin, rule, state).len() >= count);
    let found = alerts(admin, rule, state);
    assert_eq!(found.len(), count, "{found:#?}");
    found
}

fn wait_until_sent(admin: &Admin, alert: &Value, messages: usize) -> Value {
    let path = format!("/admin/v1/alerts/{}", alert["id"].as_str().unwrap());
    let sent = |alert: &Value| alert["messages"].as_array().unwrap().iter().filter(|it| it["state"] == "sent").count();
    wait_for("its messages are sent", SOON, || sent(&admin.get(&path)) == messages);
    admin.get(&path)
}

#[test]
fn budget_alert_is_sent_once_per_percentage_with_a_signature() {
    let (upstream, receiver) = (Upstream::start(), receiver());
    upstream.set_default(ScriptedResponse::chat("hello"));
    let admin = Admin::of(support::builder(&upstream, "cooling = false").spawn());
    admin.post(DESTINATIONS, &webhook(&receiver, &["budget"]));
    let chat = || assert_eq!(admin.gateway.chat(&support::chat("chat-model")).status, 200);
    chat();
    let spent = support::nano_usd(&admin.gateway.records()[0]["sale"]);
    // Two further requests reach 75 %.
    let amount = tollgate_core::NanoUsd(spent * 4).to_usd_string();
    set(&admin, "budget.total", &json!(amount));
    set(&admin, "budget.action", &json!("alert"));
    set(&admin, "alerts.budget_percent", &json!("50, 75,100"));
    chat();
    let first = &wait_for_alerts(&admin, "budget", "open", 1)[0];
    assert_eq!((&first["detail"]["percent"], &first["detail"]["of"]), (&json!("50"), &json!("gateway")));
    wait_until_sent(&admin, first, 1);
    chat();
    chat();
    let open = wait_for_alerts(&admin, "budget", "open", 3);
    let newest = open.iter().find(|alert| alert["detail"]["percent"] == "100").unwrap();
    wait_until_sent(&admin, newest, 1);
    // Two percentages that are reached together are one message, unless two evaluations find one each.
    let received = receiver.received();
    assert!((2..=3).contains(&received.len()), "{}", received.len());
    let body = received[0].json();
    assert_eq!((&body["event"], &body["state"], &body["id"]), (&json!("budget"), &json!("raised"), &first["id"]));
    assert_eq!((&body["text"], &body["detail"]), (&first["text"], &first["detail"]));
    assert!(received[0].header("x-tollgate-signature").unwrap().starts_with("sha256="));
    // When the budget is removed, its alerts end, and nothing else is sent.
    admin.delete("/admin/v1/settings/budget.total");
    wait_for_alerts(&admin, "budget", "ended", 3);
    wait_for("the ends", SOON, || receiver.received().len() == 2 * received.len());
    let ids = |state: &str| -> std::collections::BTreeSet<String> {
        let bodies =
            receiver.received().iter().map(ReceivedRequest::json).filter(|body| body["state"] == state).collect::<Vec<_>>();
        bodies.iter().map(|body| body["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids("raised"), ids("ended"));
    let shown = admin.gateway.log() + &admin.get(DESTINATIONS).to_string() + &admin.get("/admin/v1/audit").to_string();
    assert!(!shown.contains("hook-canary") && !shown.contains("signing-canary"));
}

#[test]
fn channel_outage_and_its_end_are_reported() {
    let (upstream, receiver) = (Upstream::start(), receiver());
    upstream.set_default(ScriptedResponse::status(401));
    let admin = Admin::of(support::builder(&upstream, "").spawn());
    admin.post(DESTINATIONS, &webhook(&receiver, &[]));
    set(&admin, "alerts.channel_down_s", &json!(1));
    for _ in 0..6 {
        admin.gateway.chat(&support::chat("chat-model"));
    }
    let down = &wait_for_alerts(&admin, "channel_down", "open", 1)[0];
    assert_eq!(down["detail"]["name"], "chat");
    wait_until_sent(&admin, down, 1);
    upstream.set_default(ScriptedResponse::chat("hello"));
    ok(&admin.call("POST", "/admin/v1/channels/chat/end-cooling", None));
    let ended = &wait_for_alerts(&admin, "channel_down", "ended", 1)[0];
    let alert = wait_until_sent(&admin, ended, 2);
    assert_eq!(alert["messages"][1]["kind"], "ended");
    let of_channel: Vec<Value> =
        receiver.received().iter().map(ReceivedRequest::json).filter(|it| it["event"] == "channel_down").collect();
    assert_eq!(of_channel.iter().map(|it| it["state"].as_str().unwrap()).collect::<Vec<_>>(), ["raised", "ended"]);
}

#[test]
fn price_error_balance_and_key_rules_raise_alerts() {
    let upstream = Upstream::start();
    upstream.set_default(ScriptedResponse::status(500));
    let admin = Admin::of(support::builder(&upstream, "cooling = false").spawn());
    for name in ["alerts.error_requests", "alerts.error_percent"] {
        set(&admin, name, &json!(3));
    }
    for _ in 0..4 {
        admin.gateway.chat(&support::chat("chat-model"));
    }
    let channel = json!({
        "name": "own", "provider": "compatible", "base_url": upstream.openai_url(), "private_network": true,
        "serves": [{"model": "unpriced-model"}, {"model": "chat-model", "cost": {"input": "50", "output": "50"}}],
    });
    admin.post("/admin/v1/channels", &channel);
    admin.post("/admin/v1/groups", &json!({"name": "dear", "channels": ["own"]}));
    admin.post("/admin/v1/members", &json!({"name": "poor", "billing": "prepaid"}));
    let soon = seconds_from_now(3_600);
    admin.post("/admin/v1/keys", &json!({"name": "ends", "groups": ["default"], "expires_at": soon}));
    set(&admin, "alerts.balance_usd", &json!("2"));
    set(&admin, "alerts.journal_bytes", &json!(1));
    let errors = &wait_for_alerts(&admin, "error_share", "open", 1)[0];
    assert_eq!((&errors["detail"]["name"], &errors["detail"]["failed"]), (&json!("chat"), &errors["detail"]["requests"]));
    assert_eq!(wait_for_alerts(&admin, "unpriced_model", "open", 1)[0]["detail"]["model"], "unpriced-model");
    assert_eq!(wait_for_alerts(&admin, "negative_margin", "open", 1)[0]["detail"]["group"], "dear");
    assert_eq!(wait_for_alerts(&admin, "balance_low", "open", 1)[0]["detail"]["name"], "poor");
    assert_eq!(wait_for_alerts(&admin, "key_expiring", "open", 1)[0]["detail"]["name"], "ends");
    wait_for_alerts(&admin, "journal_growing", "open", 1);
    let rules = admin.get("/admin/v1/alert-rules");
    let of = |name: &str| rules["items"].as_array().unwrap().iter().find(|rule| rule["name"] == name).unwrap().clone();
    assert_eq!((&of("balance_low")["open"], &of("balance_low")["settings"][0]["value"]), (&json!(1), &json!("2")));
    // A rule that is switched off reports nothing.
    set(&admin, "alerts.balance_usd", &json!(""));
    set(&admin, "alerts.unpriced_model", &json!(false));
    wait_for_alerts(&admin, "balance_low", "ended", 1);
    wait_for_alerts(&admin, "unpriced_model", "ended", 1);
}

/// A time so many seconds from now.
fn seconds_from_now(seconds: i64) -> String {
    (jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds)).to_string()
}

#[test]
fn certificate_that_expires_is_reported() {
    let kept = |name: &str| format!("{}/../tollgate-gateway/fixtures/tls/{name}", env!("CARGO_MANIFEST_DIR"));
    let gateway = TestGateway::builder(PROGRAM)
        .env("TOLLGATE_CONSOLE__LISTEN", "127.0.0.1:0")
        .env("TOLLGATE_CONSOLE__TLS_CERT", &kept("server.pem"))
        .env("TOLLGATE_CONSOLE__TLS_KEY", &kept("server.key"))
        .env("TOLLGATE_ALERTS__EXPIRY_DAYS", "36500")
        .spawn();
    let found = || {
        let out = gateway.run(&["--json", "alert", "list", "--rule", "certificate_expiring"]);
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    wait_for("the certificate is reported", SOON, || found().contains("server.pem"));
}

#[test]
fn test_messages_have_the_form_of_each_destination() {
    let (receiver, admin) = (receiver(), Admin::echo());
    let make = |kind: &str, secret: &str| {
        let url = address(&receiver);
        let body = json!({"name": kind, "kind": kind, "url": url, "secret": secret, "private_network": true, "status": "off"});
        admin.post(DESTINATIONS, &body)
    };
    let test = |name: &str| admin.post(&format!("{DESTINATIONS}/{name}/test"), &Value::Null);
    let made = make("slack", "");
    assert_eq!((&made["url"], &made["has_secret"]), (&json!(format!("http://{}/***", receiver.address())), &json!(false)));
    assert_eq!(test("slack"), json!({"destination": "slack", "delivered": true, "fault": null}));
    let sent = receiver.received().pop().unwrap().json();
    assert_eq!(sent, json!({"text": "[tollgate] this is a test of the destination slack"}));

    // Without `private_network`.
    let closed = json!({"name": "closed", "kind": "webhook", "url": address(&receiver), "status": "off"});
    admin.post(DESTINATIONS, &closed);
    assert_eq!(test("closed")["fault"], "address not allowed for this destination");

    make("feishu", "k");
    receiver.enqueue(ScriptedResponse::json(&json!({"code": 0, "msg": "success"})));
    assert_eq!(test("feishu")["delivered"], true);
    let sent = receiver.received().pop().unwrap().json();
    assert_eq!(sent["msg_type"], "text");
    assert_eq!(sent["content"], json!({"text": "[tollgate] this is a test of the destination feishu"}));
    // The key of the signature is the time and the secret; the signed message is empty.
    let key = format!("{}\nk", sent["timestamp"].as_str().unwrap());
    assert_eq!(sent["sign"], STANDARD.encode(hmac(key.as_bytes(), b"")));
    let age = jiff::Timestamp::now().as_second() - sent["timestamp"].as_str().unwrap().parse::<i64>().unwrap();
    assert!((0..60).contains(&age), "{age} s ago");
    receiver.enqueue(ScriptedResponse::json(&json!({"code": 19021, "msg": "sign match fail"})));
    assert_eq!(test("feishu")["fault"], "Feishu refused it with the code 19021");

    make("webhook", "k");
    test("webhook");
    let sent = receiver.received().pop().unwrap();
    assert_eq!((&sent.json()["event"], &sent.json()["state"]), (&json!("test"), &json!("test")));
    assert_eq!(sent.header("x-tollgate-signature").unwrap(), format!("sha256={}", hex::encode(hmac(b"k", &sent.body))));
    // Redirects are not followed.
    receiver.enqueue(ScriptedResponse::status(307).header("location", &format!("http://{}/elsewhere", receiver.address())));
    assert_eq!(test("webhook")["fault"], "status 307");
    assert!(receiver.received().iter().all(|it| !it.line.contains("elsewhere")));
    receiver.enqueue(ScriptedResponse::status(500));
    assert_eq!(test("webhook")["fault"], "status 500");
    // Without the permission for private addresses nothing is sent.
    admin.patch(&format!("{DESTINATIONS}/webhook"), &json!({"private_network": false}));
    let before = receiver.received().len();
    assert_eq!(test("webhook")["delivered"], false);
    assert_eq!(receiver.received().len(), before);
    let out = admin.gateway.run(&["alert", "test", "slack"]);
    assert!(out.status.success() && String::from_utf8_lossy(&out.stdout).contains("accepted"), "{out:?}");
    let out = admin.gateway.run(&["alert", "test", "webhook"]);
    assert_eq!(out.status.code(), Some(1));
}

#[test]
fn mail_is_sent_over_tls_and_plain_with_a_password() {
    let roots = MailServer::authority();
    let admin = Admin::of(TestGateway::builder(PROGRAM).env("SSL_CERT_FILE", &roots).spawn());
    for (name, scheme, server) in [
        ("starttls", "smtp", MailServer::start(MailServerMode::StartTls)),
        ("tls", "smtps", MailServer::start(MailServerMode::Tls)),
        ("plain", "smtp+plain", MailServer::start(MailServerMode::Plain)),
    ] {
        let url = format!("{scheme}://me%40example.com@localhost:{}", server.port());
        let body = json!({
            "name": name, "kind": "email", "url": url, "secret": "password-canary", "private_network": true,
            "from": "tollgate@example.com", "to": ["a@example.com", "b@example.com"],
        });
        admin.post(DESTINATIONS, &body);
        let tested = admin.post(&format!("{DESTINATIONS}/{name}/test"), &Value::Null);
        assert_eq!(tested, json!({"destination": name, "delivered": true, "fault": null}), "{:?}", server.commands());
        let mail = server.mails().pop().unwrap();
        assert!(mail.contains(&format!("Subject: [tollgate] this is a test of the destination {name}")), "{mail}");
        let commands = server.commands();
        assert!(commands.iter().any(|line| line == "RCPT TO:<b@example.com>"), "{commands:?}");
        // The user and the password, as AUTH PLAIN has them.
        assert_eq!(server.logins(), ["me@example.com password-canary"]);
    }
    // Without the permission for private addresses no connection is made.
    let public = MailServer::start(MailServerMode::StartTls);
    let url = format!("smtp://localhost:{}", public.port());
    admin.patch(&format!("{DESTINATIONS}/starttls"), &json!({"url": url, "private_network": false, "status": "off"}));
    assert_eq!(admin.post(&format!("{DESTINATIONS}/starttls/test"), &Value::Null)["delivered"], false);
    assert!(public.commands().is_empty());
    let refusing = MailServer::start(MailServerMode::Refusing);
    let body = json!({
        "name": "full", "kind": "email", "url": format!("smtp+plain://localhost:{}", refusing.port()), "private_network": true,
        "from": "tollgate@example.com", "to": ["a@example.com"],
    });
    admin.post(DESTINATIONS, &body);
    let tested = admin.post(&format!("{DESTINATIONS}/full/test"), &Value::Null);
    assert_eq!(tested["fault"], "the mail server refused it with the code 452");
    assert!(!admin.gateway.log().contains("password-canary"));
    // A server whose certificate is not trusted gets no password.
    let untrusting = Admin::echo();
    let server = MailServer::start(MailServerMode::StartTls);
    let body = json!({
        "name": "m", "kind": "email", "url": format!("smtp://me@localhost:{}", server.port()), "secret": "password-canary",
        "private_network": true, "from": "tollgate@example.com", "to": ["a@example.com"],
    });
    untrusting.post(DESTINATIONS, &body);
    assert_eq!(untrusting.post(&format!("{DESTINATIONS}/m/test"), &Value::Null)["delivered"], false);
    assert!(server.logins().is_empty() && server.mails().is_empty());
}

#[test]
fn destinations_are_checked_and_only_admins_may_see_them() {
    let admin = Admin::echo();
    let bad = |members: Value| {
        let mut body = json!({"name": "a", "kind": "slack", "url": "https://hooks.slack.com/services/x"});
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        refusal(&admin.call("POST", DESTINATIONS, Some(&body)))
    };
    assert_eq!(bad(json!({"url": "gopher://x"})), refused(400, "invalid_value", "url"));
    assert_eq!(bad(json!({"url": "https://me:secret@x/"})), refused(400, "invalid_value", "url"));
    assert_eq!(bad(json!({"url": "http://127.0.0.1:9/x"})), refused(400, "invalid_value", "url"));
    assert_eq!(bad(json!({"kind": "email"})), refused(400, "invalid_value", "url"));
    assert_eq!(bad(json!({"rules": ["no_such_rule"]})), refused(400, "invalid_value", "rules[0]"));
    admin.post("/admin/v1/members", &json!({"name": "ann"}));
    let of_member = admin.post("/admin/v1/admin-keys", &json!({"name": "anns", "scope": "member", "member": "ann"}));
    let of_member = of_member["key"].as_str().unwrap();
    for (path, code) in [("alerts", "operator_only"), ("alert-rules", "operator_only"), ("alert-destinations", "admin_only")] {
        let path = format!("/admin/v1/{path}");
        let answer = admin.send("GET", &path, &Request::get(&path).bearer(of_member));
        assert_eq!(refusal(&answer), refused_whole(403, code), "{path}");
    }
    for (method, path) in [("GET", DESTINATIONS.to_owned()), ("POST", format!("{DESTINATIONS}/a/test"))] {
        assert_eq!(refusal(&admin.as_operator(method, &path, None)), refused_whole(403, "admin_only"));
    }
    assert_eq!(admin.as_operator("GET", "/admin/v1/alerts", None).status, 200);
    let made = admin.post(DESTINATIONS, &json!({"name": "a", "kind": "slack", "url": "https://hooks.slack.com/services/canary"}));
    assert_eq!(made["url"], "https://hooks.slack.com/***");
    // Sending back the shown address changes nothing.
    let same = admin.patch(&format!("{DESTINATIONS}/a"), &json!({"url": made["url"]}));
    assert_eq!(same["revision"], made["revision"]);
    let database = std::fs::read(admin.gateway.data().join("tollgate.db")).unwrap();
    let log = std::fs::read(admin.gateway.data().join("tollgate.db-wal")).unwrap_or_default();
    assert!(![database, log].concat().windows(15).any(|part| part == b"services/canary"), "the address is sealed");
    let again = admin.call("POST", DESTINATIONS, Some(&json!({"name": "a", "kind": "slack", "url": "https://x.example.com/y"})));
    assert_eq!(refusal(&again), refused_whole(409, "already_exists"), "{}", text(&again));
    admin.delete(&format!("{DESTINATIONS}/a"));
}

#[test]
fn undelivered_message_is_sent_again() {
    let (upstream, receiver) = (Upstream::start(), receiver());
    upstream.set_default(ScriptedResponse::chat("hello"));
    receiver.enqueue(ScriptedResponse::status(503));
    let admin = Admin::of(support::gateway_for(&upstream));
    admin.post(DESTINATIONS, &webhook(&receiver, &["balance_low"]));
    admin.post("/admin/v1/members", &json!({"name": "poor", "billing": "prepaid"}));
    set(&admin, "alerts.balance_usd", &json!("3"));
    let alert = &wait_for_alerts(&admin, "balance_low", "open", 1)[0];
    let alert = wait_until_sent(&admin, alert, 1);
    assert_eq!((&alert["messages"][0]["attempts"], &alert["messages"][0]["fault"]), (&json!(2), &Value::Null));
    assert_eq!(receiver.received().len(), 2);
}

#[test]
fn one_of_several_nodes_sends_each_message() {
    let Some(services) = Services::start("one_of_several_nodes_sends_each_message") else { return };
    let receiver = receiver();
    let nodes = services.nodes("");
    let key = make_key(&nodes[0], "root", "admin");
    let call = |node: &TestGateway, method: &str, path: &str, body: &Value| {
        node.send(&Request::post(path, body).bearer(&key).method(method))
    };
    assert_eq!(call(&nodes[0], "POST", DESTINATIONS, &webhook(&receiver, &["balance_low"])).status, 201);
    assert_eq!(call(&nodes[1], "POST", "/admin/v1/members", &json!({"name": "poor", "billing": "prepaid"})).status, 201);
    let setting = "/admin/v1/settings/alerts.balance_usd";
    assert_eq!(call(&nodes[2], "PUT", setting, &json!({"value": "7"})).status, 200);
    wait_for("a message", SOON, || !receiver.received().is_empty());
    // Another one is found once the rules have been evaluated again.
    assert_eq!(call(&nodes[2], "POST", "/admin/v1/members", &json!({"name": "poorer", "billing": "prepaid"})).status, 201);
    wait_for("a message about the other one", SLOWLY, || receiver.received().len() >= 2);
    for node in &nodes {
        let listed = node.send(&Request::get("/admin/v1/alerts?state=open&rule=balance_low").bearer(&key)).json();
        assert_eq!(listed["items"].as_array().unwrap().len(), 2, "{listed}");
    }
    let names = |state: &str| -> Vec<String> {
        let bodies: Vec<Value> =
            receiver.received().iter().map(ReceivedRequest::json).filter(|body| body["state"] == state).collect();
        bodies.iter().map(|body| body["detail"]["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("raised"), ["poor", "poorer"], "each once");
    // The end is sent once as well, even if another node evaluates.
    assert_eq!(call(&nodes[1], "PUT", setting, &json!({"value": ""})).status, 200);
    wait_for("the ends", SOON, || receiver.received().len() >= 4);
    let mut ended = names("ended");
    ended.sort();
    assert_eq!(ended, ["poor", "poorer"]);
}

/// The address of the settings gets alerts of every rule, by the same delivery.
#[test]
fn configured_webhook_gets_alerts_raised_by_requests() {
    let (upstream, receiver) = (Upstream::start(), receiver());
    upstream.set_default(ScriptedResponse::chat("hello"));
    let catalog = support::catalog(&upstream, "cooling = false");
    let dear = catalog.replace("cost = { input = \"1\", output = \"2\" }", "cost = { input = \"500\", output = \"500\" }");
    let admin = Admin::of(
        TestGateway::builder(PROGRAM)
            .catalog(&dear)
            .env("TOLLGATE_ALERTS__WEBHOOK", &address(&receiver))
            .env("TOLLGATE_ALERTS__SECRET", "signing-canary")
            .env("TOLLGATE_ALERTS__PRIVATE_NETWORK", "true")
            .spawn(),
    );
    let tested = admin.post(&format!("{DESTINATIONS}/alerts.webhook/test"), &Value::Null);
    assert_eq!(tested, json!({"destination": "alerts.webhook", "delivered": true, "fault": null}));
    let below = || {
        assert_eq!(admin.gateway.chat(&support::chat("chat-model")).status, 200);
        !alerts(&admin, "sold_below_cost", "open").is_empty()
    };
    wait_for("a sale below cost", SOON, below);
    let listed = &wait_for_alerts(&admin, "sold_below_cost", "open", 1)[0];
    let alert = wait_until_sent(&admin, listed, 1);
    assert_eq!((&alert["messages"][0]["destination"], &alert["detail"]["model"]), (&json!("alerts.webhook"), &json!("chat-model")));
    let received = receiver.received();
    let sent: Vec<Value> = received.iter().map(ReceivedRequest::json).filter(|body| body["event"] == "sold_below_cost").collect();
    assert_eq!((sent.len(), &sent[0]["id"], &sent[0]["detail"]), (1, &listed["id"], &listed["detail"]));
    assert!(received.iter().all(|it| it.header("x-tollgate-signature").unwrap().starts_with("sha256=")));
    let taken = json!({"name": "alerts.webhook", "kind": "slack", "url": "https://hooks.slack.com/x"});
    assert_eq!(refusal(&admin.call("POST", DESTINATIONS, Some(&taken))), refused(400, "invalid_value", "name"));
    let shown = admin.get("/admin/v1/settings/alerts.webhook").to_string() + &admin.gateway.log();
    assert!(!shown.contains("canary"), "{shown}");
}

/// The journal grows because the database cannot be reached, so that the alert about it must not need the database.
#[test]
fn journal_growth_is_reported_while_the_database_is_unreachable() {
    let Some(mut postgres) = Postgres::start("journal_growth_is_reported_while_the_database_is_unreachable") else { return };
    let receiver = receiver();
    let admin = Admin::of(TestGateway::builder(PROGRAM).env("DATABASE_URL", &postgres.url()).without_record_check().spawn());
    let chat = || assert_eq!(admin.gateway.chat(&support::chat("echo")).status, 200);
    admin.post(DESTINATIONS, &webhook(&receiver, &["journal_growing"]));
    chat();
    set(&admin, "alerts.journal_bytes", &json!(metric(&admin, "tollgate_journal_bytes") + 4_096));
    // The destinations are read when rules are evaluated.
    wait_for("an evaluation", SOON, || postgres.sql("SELECT COUNT(*) FROM alert_evaluator") == "1");
    postgres.stop();
    let has_message = || {
        chat();
        !receiver.received().is_empty()
    };
    wait_for("a message without the database", SOON, has_message);
    let sent = receiver.received()[0].json();
    assert_eq!((&sent["event"], &sent["state"], &sent["id"]), (&json!("journal_growing"), &json!("raised"), &json!("")));
    postgres.restart();
    let list = || admin.call("GET", "/admin/v1/alerts?rule=journal_growing", None);
    let is_listed = || list().status == 200 && list().json()["items"][0].is_object();
    // The alert may have ended by then, if the journal was booked before the evaluation.
    let is_over = || receiver.received().iter().any(|it| it.json()["state"] == "ended");
    wait_for("it is listed, or over", SOON, || is_listed() || is_over());
    let raised = receiver.received().iter().filter(|it| it.json()["state"] == "raised").count();
    assert_eq!(raised, 1, "destinations that have the message do not get it again");
}

fn metric(admin: &Admin, name: &str) -> u64 {
    let page = String::from_utf8(admin.gateway.send(&Request::get("/metrics")).body).unwrap();
    let line = page.lines().find(|line| line.starts_with(name)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}
