//! Messages to the robots of DingTalk, WeCom and Telegram.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tollgate_testkit::ScriptedResponse;
use url::Url;

use super::{DESTINATIONS, address, hmac, receiver};
use crate::admin::{Admin, refusal, refused};

#[test]
fn group_chat_robots_get_messages_in_their_format() {
    let (receiver, admin) = (receiver(), Admin::echo());
    let make = |kind: &str, secret: &str| {
        let body = json!({"name": kind, "kind": kind, "url": address(&receiver), "secret": secret, "private_network": true});
        admin.post(DESTINATIONS, &body)
    };
    let test = |name: &str| admin.post(&format!("{DESTINATIONS}/{name}/test"), &Value::Null);
    make("dingtalk", "k");
    receiver.enqueue(ScriptedResponse::json(&json!({"errcode": 0, "errmsg": "ok"})));
    assert_eq!(test("dingtalk")["delivered"], true);
    let sent = receiver.received().pop().unwrap();
    let text = json!({"content": "[tollgate] this is a test of the destination dingtalk"});
    assert_eq!(sent.json(), json!({"msgtype": "text", "text": text}));
    // The signature is in the query, after the address's own query.
    let target = sent.line.split(' ').nth(1).unwrap();
    let query: Vec<(String, String)> = Url::parse(&format!("http://x{target}")).unwrap().query_pairs().into_owned().collect();
    let [(token, _), (timestamp, time), (sign, signature)] = query.as_slice() else { panic!("{query:?}") };
    assert_eq!((token.as_str(), timestamp.as_str(), sign.as_str()), ("token", "timestamp", "sign"));
    assert_eq!(*signature, STANDARD.encode(hmac(b"k", format!("{time}\nk").as_bytes())));
    let age = jiff::Timestamp::now().as_millisecond() - time.parse::<i64>().unwrap();
    assert!((0..60_000).contains(&age), "{age} ms ago");
    receiver.enqueue(ScriptedResponse::json(&json!({"errcode": 310_000, "errmsg": "sign not match"})));
    assert_eq!(test("dingtalk")["fault"], "DingTalk refused it with the code 310000");

    make("wecom", "");
    receiver.enqueue(ScriptedResponse::json(&json!({"errcode": 0, "errmsg": "ok"})));
    assert_eq!(test("wecom")["delivered"], true);
    let text = json!({"content": "[tollgate] this is a test of the destination wecom"});
    assert_eq!(receiver.received().pop().unwrap().json(), json!({"msgtype": "text", "text": text}));
    receiver.enqueue(ScriptedResponse::json(&json!({"errcode": 93_000, "errmsg": "invalid webhook url"})));
    assert_eq!(test("wecom")["fault"], "WeCom refused it with the code 93000");
}

#[test]
fn telegram_messages_are_sent_to_one_chat_with_the_token_of_the_bot() {
    let (receiver, admin) = (receiver(), Admin::echo());
    let bot = json!({
        "name": "bot", "kind": "telegram", "url": format!("http://{}", receiver.address()), "secret": "123456:token-canary",
        "private_network": true, "to": ["-1001234567890"],
    });
    let made = admin.post(DESTINATIONS, &bot);
    assert_eq!((&made["has_secret"], &made["to"]), (&json!(true), &json!(["-1001234567890"])));
    let test = || admin.post(&format!("{DESTINATIONS}/bot/test"), &Value::Null);
    receiver.enqueue(ScriptedResponse::json(&json!({"ok": true, "result": {"message_id": 42}})));
    assert_eq!(test(), json!({"destination": "bot", "delivered": true, "fault": null}));
    let sent = receiver.received().pop().unwrap();
    assert_eq!(sent.line, "POST /bot123456:token-canary/sendMessage");
    assert_eq!(sent.json(), json!({"chat_id": "-1001234567890", "text": "[tollgate] this is a test of the destination bot"}));
    receiver.enqueue(ScriptedResponse::error(400, &json!({"ok": false, "error_code": 400, "description": "chat not found"})));
    assert_eq!(test()["fault"], "status 400");
    // The token is kept when something else is changed, and is in no answer and no log.
    admin.patch(&format!("{DESTINATIONS}/bot"), &json!({"to": ["@alerts"]}));
    receiver.enqueue(ScriptedResponse::json(&json!({"ok": true})));
    assert_eq!(test()["delivered"], true);
    assert_eq!(receiver.received().pop().unwrap().json()["chat_id"], "@alerts");
    let shown = admin.gateway.log() + &admin.get(DESTINATIONS).to_string() + &admin.get("/admin/v1/audit").to_string();
    assert!(!shown.contains("token-canary"));
    for (name, value, param) in
        [("secret", json!(""), "secret"), ("to", json!([]), "to"), ("url", json!("https://x.example/bot1:a"), "url")]
    {
        let mut change = json!({});
        change[name] = value;
        let answer = admin.call("PATCH", &format!("{DESTINATIONS}/bot"), Some(&change));
        assert_eq!(refusal(&answer), refused(400, "invalid_value", param), "{name}");
    }
}
