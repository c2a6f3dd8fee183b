//! Attacks that must fail: forged forms, redirects to other sites, markup in stored texts, oversized forms.

use serde_json::json;
use tollgate_testkit::Request;

use super::{Person, form, location};
use crate::{
    admin::{Admin, ok},
    identity::{PASSWORD, make_member},
};

/// Texts that run a script if they are not escaped.
const MARKUP: [&str; 7] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' autofocus onfocus='alert(1)",
    "</title><svg/onload=alert(1)>",
    "{{7*7}}${7*7}<%= 7*7 %>",
    "javascript:alert(1)",
    "\u{202e}<b>&lt;&amp;",
];

pub(crate) fn signed_in(admin: &Admin, name: &str) -> Person {
    let mut person = Person::default();
    person.post(&admin.gateway, "/sign-in", &[("login", name), ("password", PASSWORD)]);
    assert!(person.has_session());
    person
}

/// No page may render a stored text as markup.
fn check_escaped(page: &str) {
    for forbidden in ["<script>alert", "<img src=x", "onfocus='alert", "<svg/onload", "href=\"javascript:", "<b>&lt;"] {
        assert!(!page.contains(forbidden), "{forbidden} in {page}");
    }
}

#[test]
fn stored_texts_are_escaped_on_every_page() {
    let admin = Admin::echo();
    for (index, text) in MARKUP.iter().enumerate() {
        admin.patch("/admin/v1/models/echo", &json!({"display_name": text, "vendor": text, "description": text}));
        // Names cannot have invisible characters.
        let name = format!("m{index} {}", text.replace('\u{202e}', ""));
        make_member(&admin, "x", "member");
        let made = admin.post("/admin/v1/keys", &json!({"name": name, "member": "x"}));
        let key = format!("/keys/{}", made["id"].as_str().unwrap());
        let mut person = signed_in(&admin, "x");
        for path in
            ["/models", "/models?view=table", "/models/echo", "/status", "/console", "/profile", "/keys", "/log", "/menu", &key]
        {
            let page = person.page(&admin.gateway, path);
            check_escaped(&page);
        }
        check_escaped(&person.post(&admin.gateway, "/search", &[("q", "a")]).text());
        make_member(&admin, "y", "operator");
        let mut operator = signed_in(&admin, "y");
        for path in ["/overview", "/channels", "/channels/echo", "/channels/echo/models", &key] {
            check_escaped(&operator.page(&admin.gateway, path));
        }
        let typed: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
        for path in ["/models?q=", "/models?group=", "/models?vendor=", "/sign-in?to=", "/models/"] {
            check_escaped(&Person::default().get(&admin.gateway, &format!("{path}{typed}")).text());
        }
        let sent = Person::default().post(&admin.gateway, "/sign-in", &[("login", text), ("password", "x"), ("to", text)]);
        check_escaped(&sent.text());
        for searched in ["m", text] {
            check_escaped(&operator.post(&admin.gateway, "/search", &[("q", searched)]).text());
        }
        for typed_into in ["/channels?q=", "/channels/echo?caller=group%3Adefault&model="] {
            check_escaped(&operator.get(&admin.gateway, &format!("{typed_into}{typed}")).text());
        }
        admin.delete("/admin/v1/members/x");
        admin.delete("/admin/v1/members/y");
    }
}

/// Names, notes and addresses that operators store, on every page that shows them.
#[test]
fn stored_texts_of_operators_are_escaped_on_every_page() {
    let admin = Admin::echo();
    make_member(&admin, "root", "admin");
    let mut root = signed_in(&admin, "root");
    for (index, text) in MARKUP.iter().enumerate() {
        let name = format!("m{index} {}", text.replace('\u{202e}', ""));
        let group = admin.post("/admin/v1/groups", &json!({"name": name, "channels": ["echo"], "models": ["*"]}));
        let member = admin.post("/admin/v1/members", &json!({"name": name, "groups": [name]}));
        ok(&admin.once("/admin/v1/ledger/top-ups", &format!("w{index}"), &json!({"member": name, "amount": "1", "note": text})));
        admin.post("/admin/v1/invites", &json!({"note": name, "groups": [name]}));
        let hook = json!({"name": name, "kind": "webhook", "url": "http://127.0.0.1:9/x", "private_network": true});
        let hook = admin.post("/admin/v1/alert-destinations", &hook);
        ok(&admin.call("PUT", "/admin/v1/prices/echo", Some(&json!({"price": {"input": "1"}}))));
        let id = |row: &serde_json::Value| row["id"].as_str().unwrap().to_owned();
        let typed: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
        for path in [
            "/groups".to_owned(),
            format!("/groups/{}", id(&group)),
            format!("/groups/{}/square", id(&group)),
            "/pricing".to_owned(),
            format!("/pricing?search={typed}"),
            "/pricing/unpriced".to_owned(),
            format!("/pricing/simulate?model={typed}&group={typed}&input=1"),
            format!("/pricing/history?model={typed}"),
            "/members".to_owned(),
            format!("/members/{}", id(&member)),
            "/members/invites".to_owned(),
            "/ledger".to_owned(),
            format!("/ledger?member={typed}"),
            "/audit".to_owned(),
            format!("/audit?actor={typed}&since={typed}"),
            "/alerts".to_owned(),
            "/alerts/destinations".to_owned(),
            format!("/alerts/destinations/{}", id(&hook)),
            format!("/settings?q={typed}"),
            "/system".to_owned(),
        ] {
            check_escaped(&root.page(&admin.gateway, &path));
        }
        for (path, field) in [
            ("/groups/new", "name"),
            ("/groups/new", "rpm"),
            ("/members/new", "name"),
            ("/pricing/import", "file"),
            ("/settings/log.slow_ms", "value"),
            ("/alerts/destinations/new", "url"),
            ("/system/replay", "file"),
        ] {
            check_escaped(&root.post(&admin.gateway, path, &[(field, text), ("source", "csv"), ("to", "sale")]).text());
        }
    }
}

#[test]
fn redirects_stay_on_this_console() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    for to in [
        "//evil.example.com",
        "https://evil.example.com",
        "/\\evil.example.com",
        "\\\\evil.example.com",
        "javascript:alert(1)",
        "/\t/evil.example.com",
        "/a\r\nset-cookie: x=1",
    ] {
        let answer = Person::default().post(&admin.gateway, "/sign-in", &[("login", "ann"), ("password", PASSWORD), ("to", to)]);
        assert_eq!(location(&answer), "/console", "{to:?}");
        let answer = Person::default().post(&admin.gateway, "/preferences", &[("back", to), ("theme", "dark")]);
        assert_eq!(location(&answer), "/", "{to:?}");
    }
}

#[test]
fn forms_need_their_origin_and_the_token_of_the_session() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let person = signed_in(&admin, "ann");
    let own = format!("http://{}", admin.gateway.address());
    let token = person.csrf_token(&admin.gateway).unwrap();
    let send = |origin: Option<&str>, token: &str| {
        let request = person.with_cookies(form("/sign-out", &[("csrf", token)]));
        let request = origin.into_iter().fold(request, |request, origin| request.header("origin", origin));
        admin.gateway.send(&request)
    };
    for (origin, token) in [
        (None, token.as_str()),
        (Some("http://evil.example.com"), &token),
        (Some("null"), &token),
        (Some(own.as_str()), ""),
        (Some(&own), "0000"),
    ] {
        let answer = send(origin, token);
        assert!(answer.status == 403 && answer.text().contains("out of date"), "{origin:?}: {}", answer.text());
    }
    assert_eq!(send(Some(&own), &token).status, 303);
    let forged = form("/sign-in", &[("login", "ann"), ("password", PASSWORD)]).header("origin", "http://evil.example.com");
    let answer = admin.gateway.send(&forged);
    assert!(answer.status == 403 && answer.header("set-cookie").is_none(), "a page of another origin signs a browser in");
}

#[test]
fn form_size_and_content_type_are_checked() {
    let admin = Admin::echo();
    let large = "x".repeat(70 << 10);
    assert_eq!(admin.gateway.send(&form("/sign-in", &[("login", &large)])).status, 413);
    assert_eq!(admin.gateway.send(&Request::post("/sign-in", &json!({"login": "ann"}))).status, 415);
    let long = "x".repeat(5_000);
    let answer = Person::default().post(&admin.gateway, "/sign-in", &[("login", &long), ("password", &long)]);
    assert_eq!(answer.status, 422);
    assert_eq!(admin.gateway.send(&Request::get("/sign-out")).status, 405);
    let visited = admin.gateway.send(&Request::get("/sign-out").header("accept", "text/html"));
    assert_eq!(
        (visited.status, visited.header("location")),
        (303, Some("/")),
        "the person is redirected to a page, and nothing else happens"
    );
}

#[test]
fn pages_carry_the_headers_that_browsers_enforce() {
    let admin = Admin::echo();
    for path in ["/models", "/sign-in", "/status", "/no-such-page", "/setup?token=x"] {
        let answer = admin.gateway.send(&Request::get(path).header("accept", "text/html"));
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        for (name, value) in
            [("x-content-type-options", "nosniff"), ("referrer-policy", "same-origin"), ("cache-control", "no-store")]
        {
            assert_eq!(answer.header(name), Some(value), "{path}");
        }
    }
}
