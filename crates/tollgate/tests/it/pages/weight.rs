//! The bytes of pages: compression, what a first view loads, and the mask of the token in compressed pages.

use std::{collections::BTreeSet, io::Read as _};

use serde_json::json;
use tollgate_testkit::{ClientResponse, Request, UPSTREAM_CREDENTIAL};

use super::{
    Person,
    attacks::signed_in,
    form,
    operators::{make, owner, upstream},
};
use crate::{admin::Admin, identity::make_member, support};

/// Maximum number of bytes that a browser loads for the first page.
const MAX_FIRST_VIEW: usize = 120_000;

fn compressed(admin: &Admin, person: &Person, path: &str) -> ClientResponse {
    let request = Request::get(path).header("accept", "text/html").header("accept-encoding", "gzip, deflate, br");
    let answer = admin.gateway.send(&person.with_cookies(request));
    assert_eq!(answer.status, 200, "{path}");
    answer
}

fn text(answer: &ClientResponse) -> String {
    if answer.header("content-encoding").is_none() {
        return String::from_utf8_lossy(&answer.body).into_owned();
    }
    let mut text = String::new();
    flate2::read::GzDecoder::new(&answer.body[..]).read_to_string(&mut text).unwrap();
    text
}

/// The assets that a page or another asset names: `tokens.0123456789abcdef.css`.
fn assets(text: &str) -> impl Iterator<Item = &str> {
    let files = text.split('"').map(|part| part.rsplit('/').next().unwrap_or_default().split('#').next().unwrap_or_default());
    files.filter(|file| {
        let parts: Vec<&str> = file.split('.').collect();
        matches!(parts[..], [_, hash, _] if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
    })
}

/// The bytes of a page and of everything it loads.
fn first_view(admin: &Admin, person: &Person, path: &str) -> usize {
    let page = compressed(admin, person, path);
    let mut bytes = page.body.len();
    let mut seen = BTreeSet::new();
    let mut texts = vec![text(&page)];
    while let Some(text_of_one) = texts.pop() {
        for file in assets(&text_of_one) {
            if seen.insert(file.to_owned()) {
                let asset = compressed(admin, person, &format!("/assets/{file}"));
                bytes += asset.body.len();
                texts.push(text(&asset));
            }
        }
    }
    assert!(seen.len() > 5, "{path}: {seen:?}");
    bytes
}

#[test]
fn first_views_of_heavy_pages_stay_within_120_kb() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut boss = owner(&admin);
    make(&admin, &mut boss, &upstream, "main");
    for path in [
        "/overview",
        "/console",
        "/models",
        "/playground",
        "/keys",
        "/keys/new",
        "/log",
        "/channels/main",
        "/settings",
        "/docs",
        "/system",
    ] {
        let bytes = first_view(&admin, &boss, path);
        assert!(bytes <= MAX_FIRST_VIEW, "{path}: {bytes} bytes");
    }
}

/// With full pages of channels, keys and records.
#[test]
fn first_views_of_full_lists_stay_within_120_kb() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let boss = owner(&admin);
    let make = |number: usize| {
        let name = format!("channel-{number}");
        let channel = json!({
            "name": name, "provider": "compatible", "base_url": upstream.openai_url(), "private_network": true,
            "accounts": [{"name": "one", "credential": UPSTREAM_CREDENTIAL}], "serves": [{"model": format!("model-{number}")}],
        });
        admin.post("/admin/v1/channels", &channel);
        name
    };
    let channels: Vec<String> = std::iter::once("echo".to_owned()).chain((0..30).map(make)).collect();
    admin.patch("/admin/v1/groups/default", &json!({"channels": channels}));
    for number in 0..60 {
        admin.post("/admin/v1/keys", &json!({"name": format!("key-{number}")}));
    }
    for _ in 0..60 {
        assert_eq!(admin.gateway.chat(&support::chat("echo")).status, 200);
    }
    for path in ["/channels", "/keys", "/log", "/models", "/status", "/overview", "/pricing"] {
        let bytes = first_view(&admin, &boss, path);
        assert!(bytes <= MAX_FIRST_VIEW, "{path}: {bytes} bytes");
    }
    for number in 30..60 {
        make(number);
    }
    let bytes = first_view(&admin, &boss, "/channels");
    assert!(bytes <= MAX_FIRST_VIEW, "a full page of channels: {bytes} bytes");
}

#[test]
fn pages_are_compressed_for_browsers_that_take_it() {
    let (admin, visitor) = (Admin::echo(), Person::default());
    let page = compressed(&admin, &visitor, "/models");
    assert_eq!(page.header("content-encoding"), Some("gzip"));
    assert!(page.header("vary").unwrap().contains("accept-encoding"));
    assert!(text(&page).contains("/models/echo") && page.body.len() * 2 < text(&page).len());
    let plain = admin.gateway.send(&Request::get("/models"));
    assert!(plain.header("content-encoding").is_none() && plain.text().contains("/models/echo"));
}

#[test]
fn each_page_has_the_token_with_another_mask() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let person = signed_in(&admin, "ann");
    let origin = format!("http://{}", admin.gateway.address());
    let status = |token: &str| {
        let fields = [("csrf", token), ("theme", "dark"), ("back", "/profile")];
        admin.gateway.send(&person.with_cookies(form("/preferences", &fields)).header("origin", &origin)).status
    };
    let tokens = [person.csrf_token(&admin.gateway).unwrap(), person.csrf_token(&admin.gateway).unwrap()];
    assert_ne!(tokens[0], tokens[1]);
    for token in &tokens {
        assert_eq!(status(token), 303, "{token}");
        let other = if token.ends_with('0') { "1" } else { "0" };
        for altered in [format!("{}{other}", &token[..token.len() - 1]), token[64..].to_owned(), format!("{token}0")] {
            assert_eq!(status(&altered), 403, "{altered}");
        }
    }
    let mixed = format!("{}{}", &tokens[0][..64], &tokens[1][64..]);
    assert_eq!(status(&mixed), 403, "the mask of one with the token of the other");
}
