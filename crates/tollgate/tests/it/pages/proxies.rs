//! The proxies of channels: listed, tested and set by lines.

use serde_json::{Value, json};

use super::{
    attacks::signed_in,
    location,
    operators::{make, owner, upstream},
};
use crate::{
    admin::{Admin, refusal, refused, refused_whole},
    egress::{Proxy, connect, socks5},
    identity::make_member,
};

const PROXIES: &str = "/admin/v1/proxies";

#[test]
fn proxies_are_set_from_lines_and_tested_in_stages() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut boss = owner(&admin);
    for name in ["main", "spare", "third"] {
        make(&admin, &mut boss, &upstream, name);
    }
    assert!(boss.page(&admin.gateway, "/proxies").contains("No channel uses a proxy."));
    let (http, socks) = (Proxy::start(connect), Proxy::start(socks5));
    let with_password = format!("http://us:pa%3Ass@{}", http.address);
    let without = format!("http://{}", http.address);
    let lines = format!("main {with_password}\r\nspare socks5://{}\r\n\r\nthird {without}\r\n", socks.address);
    assert_eq!(location(&boss.post(&admin.gateway, "/proxies", &[("lines", &lines)])), "/proxies");
    let listed = admin.get(PROXIES);
    let shown = format!("http://us:***@{}", http.address);
    let of = |proxy: &str| listed["items"].as_array().unwrap().iter().find(|item| item["proxy"] == proxy).cloned().unwrap();
    assert_eq!((&of(&shown)["method"], &of(&shown)["channels"]), (&json!("CONNECT"), &json!(["main"])));
    assert_eq!(of(&format!("socks5://{}", socks.address))["method"], "SOCKS5");
    let page = boss.page(&admin.gateway, "/proxies");
    assert!(page.contains(&shown) && !page.contains("pa%3Ass") && page.contains("1 channel has none."), "{page}");

    let test = |channel: &str| admin.post(&format!("/admin/v1/channels/{channel}/test-proxy"), &Value::Null);
    let steps = |tested: &Value| -> Vec<String> {
        tested["steps"].as_array().unwrap().iter().map(|step| step["step"].as_str().unwrap().to_owned()).collect()
    };
    let passed = test("main");
    assert_eq!((steps(&passed), &passed["error"]), (vec!["TCP".to_owned(), "CONNECT".to_owned(), "TLS".to_owned()], &Value::Null));
    assert_eq!(passed["proxy"], shown);
    assert_eq!(steps(&test("spare")), ["TCP", "SOCKS5", "TLS"]);
    let failed = test("third");
    assert_eq!((steps(&failed), &failed["passed"]), (vec!["TCP".to_owned()], &json!(false)));
    assert!(failed["error"].as_str().unwrap().contains("password may be wrong"), "{failed}");
    assert_eq!(refusal(&admin.call("POST", "/admin/v1/channels/echo/test-proxy", None)), refused_whole(409, "no_proxy"));
    assert_eq!(upstream.received().len(), 0, "no request is sent");

    let all = boss.post(&admin.gateway, "/proxies/test", &[]).text();
    assert!(all.contains("2 passed, 1 failed") && all.contains("</html>") && !all.contains("pa%3Ass"), "{all}");
    let one = boss.post(&admin.gateway, "/proxies/test", &[("proxy", &without)]).text();
    assert!(one.contains("0 passed, 1 failed") && one.contains("third") && !one.contains("SOCKS5"), "{one}");

    // A wrong line is named, and nothing is changed.
    for (lines, said) in [
        ("main -\nspare proxy:3128", "<dt>Line 2</dt>"),
        ("main -\ngone http://p.example.com:1", "<dt>gone</dt>"),
        ("main -\nspare ftp://p.example.com:1", "<dt>spare</dt>"),
        ("main -\nmain http://p.example.com:1", "Each channel once."),
        ("main ftp://p.example.com:1", "aria-invalid"),
    ] {
        let refused = boss.post(&admin.gateway, "/proxies", &[("lines", lines)]);
        assert!(refused.status == 422 && refused.text().contains(said), "{lines}: {}", refused.text());
        assert!(refused.text().contains(lines.lines().next().unwrap()), "what was typed is kept");
        assert_eq!(admin.get(PROXIES), listed, "{lines}");
    }
    // Sending back the shown address keeps the password; a dash removes the proxy.
    let lines = format!("main {shown}\nspare -\nthird -");
    assert_eq!(location(&boss.post(&admin.gateway, "/proxies", &[("lines", &lines)])), "/proxies");
    assert_eq!(admin.get(PROXIES)["items"], json!([{"proxy": shown, "method": "CONNECT", "channels": ["main"]}]));
    assert_eq!(test("main")["passed"], true);

    let run = |arguments: &[&str]| {
        let out = admin.gateway.run(arguments);
        (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned())
    };
    assert!(run(&["proxy", "list"]).1.contains(&shown));
    let (code, text) = run(&["proxy", "test", "main"]);
    assert!(code == Some(0) && text.contains("CONNECT") && !text.contains("pa%3Ass"), "{text}");
    assert_eq!(run(&["proxy", "set", "main=", &format!("spare={without}")]).0, Some(0));
    assert_eq!(admin.get(PROXIES)["items"], json!([{"proxy": without, "method": "CONNECT", "channels": ["spare"]}]));
    assert_eq!(run(&["proxy", "test", "spare"]).0, Some(1));
}

#[test]
fn operators_see_and_test_proxies_and_admins_set_them() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut boss = owner(&admin);
    make(&admin, &mut boss, &upstream, "main");
    make_member(&admin, "op", "operator");
    make_member(&admin, "ann", "member");
    let mut op = signed_in(&admin, "op");
    assert!(!op.page(&admin.gateway, "/proxies").contains("<textarea"));
    assert_eq!(op.post(&admin.gateway, "/proxies", &[("lines", "main http://p.example.com:1")]).status, 404);
    assert_eq!(signed_in(&admin, "ann").get(&admin.gateway, "/proxies").status, 404);
    let body = json!({"channels": [{"channel": "main", "proxy": "http://p.example.com:1"}]});
    assert_eq!(admin.as_operator("PUT", PROXIES, Some(&body)).status, 403);
    assert_eq!(admin.as_operator("GET", PROXIES, None).status, 200);
    let nothing = admin.call("PUT", PROXIES, Some(&json!({"channels": []})));
    assert_eq!(refusal(&nothing), refused(400, "invalid_value", "channels"));
}
