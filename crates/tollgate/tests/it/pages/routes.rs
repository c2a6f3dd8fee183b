//! Every page and every form of the console: forged forms are refused, and objects of other members are not found.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Person, form, location, reloads_from, signed_in};
use crate::{
    admin::Admin,
    identity::{Owner, PASSWORD, enable_codes, make_member, one_time_code, owner, sign_in},
};

/// A page or the target of a form.
#[derive(Clone, Copy, Debug)]
struct PageRoute {
    method: &'static str,
    path: &'static str,
    /// `anyone`, or the lowest role of members who see it.
    seen_by: &'static str,
}

/// The table of pages; a test of the console compares this list with it.
fn page_routes() -> impl Iterator<Item = PageRoute> {
    include_str!("../../../../tollgate-console/fixtures/page-routes.txt").lines().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [method, path, seen_by] = words[..] else { panic!("{line}") };
        PageRoute { method, path, seen_by }
    })
}

impl PageRoute {
    fn is_form(self) -> bool {
        self.method == "POST"
    }

    /// Its path with the objects of a member, and with rows that every gateway has.
    fn of(self, owner: &Owner) -> String {
        let name = match self.path.split('/').nth(1).unwrap() {
            "channels" | "setup" | "groups" => "echo",
            "members" => &owner.member,
            "settings" => "log.slow_ms",
            _ => "x",
        };
        let values = [
            ("{name}", name),
            ("{*name}", "echo"),
            ("{key}", &owner.key),
            ("{record}", &owner.record),
            ("{session}", &owner.session),
            ("{passkey}", &owner.passkey),
            ("{account}", "echo"),
            ("{admin_key}", "x"),
            ("{invite}", "x"),
            ("{job}", "x"),
            ("{revision}", "1"),
        ];
        let path = values.iter().fold(self.path.to_owned(), |path, (name, value)| path.replace(name, value));
        assert!(!path.contains('{'), "{path}: what is its parameter?");
        path
    }
}

/// What a form could change.
fn state(admin: &Admin, owner: &Owner) -> Vec<Value> {
    let mut found: Vec<Value> = ["audit", "keys", "members", "groups", "channels", "settings", "invites", "jobs", "me"]
        .map(|list| admin.get(&format!("/admin/v1/{list}")))
        .into();
    found.push(owner.browser.get(admin, "/admin/v1/me/preferences"));
    found
}

#[test]
fn every_form_needs_its_origin_and_the_token_of_the_session() {
    let admin = Admin::echo();
    let bob = owner(&admin, "bob", "admin");
    let (person, other) = (signed_in(&admin, "bob"), signed_in(&admin, "bob"));
    let own = format!("http://{}", admin.gateway.address());
    let (token, token_of_other) = (person.csrf_token(&admin.gateway).unwrap(), other.csrf_token(&admin.gateway).unwrap());
    let before = state(&admin, &bob);
    let mut forms = 0;
    for route in page_routes().filter(|route| route.is_form()) {
        let path = route.of(&bob);
        let send = |token: Option<&str>, headers: &[(&str, &str)]| {
            let mut fields = vec![("name", "forged"), ("typed_name", "echo"), ("value", "7"), ("theme", "dark")];
            fields.extend(token.map(|token| ("csrf", token)));
            let forged = headers.iter().fold(form(&path, &fields), |request, (name, value)| request.header(name, value));
            admin.gateway.send(&person.with_cookies(forged))
        };
        let other_page = [("origin", "http://evil.example.com")];
        for (token, headers) in [
            (None, &[("origin", own.as_str())][..]),
            (Some(""), &[("origin", &own)]),
            (Some(token_of_other.as_str()), &[("origin", &own)]),
            (Some(token.as_str()), &[]),
            (Some(&token), &other_page),
            (Some(&token), &[("origin", "null")]),
            (Some(&token), &[("origin", &own), ("sec-fetch-site", "cross-site")]),
        ] {
            let answer = send(token, headers);
            assert_eq!(answer.status, 403, "{path}: {token:?} {headers:?}: {}", answer.text());
        }
        if route.seen_by == "anyone" {
            let answer = admin.gateway.send(&form(&path, &[("name", "forged")]).header("origin", "http://evil.example.com"));
            assert!(answer.status == 403 && answer.header("set-cookie").is_none(), "{path} takes forms of other pages");
        }
        forms += 1;
    }
    assert!(forms > 100, "{forms} forms");
    assert_eq!(state(&admin, &bob), before);
}

/// Pages of lists and forms that take objects in their query.
fn with_query(owner: &Owner) -> [String; 5] {
    let Owner { key, member, .. } = owner;
    [
        format!("/keys/new?from={key}"),
        format!("/key-selection/revoke?key={key}"),
        format!("/log?key={key}"),
        format!("/log?member={member}"),
        format!("/keys?member={member}"),
    ]
}

#[test]
fn members_find_no_page_and_no_form_of_others() {
    let admin = Admin::echo();
    let bob = owner(&admin, "bob", "member");
    make_member(&admin, "ann", "member");
    make_member(&admin, "op", "operator");
    let (mut ann, mut op) = (signed_in(&admin, "ann"), signed_in(&admin, "op"));
    let (before, mut missing) = (state(&admin, &bob), 0);
    let confirmed = [("typed_name", "key-of-bob"), ("name", "forged")];
    for route in page_routes() {
        let path = route.of(&bob);
        let status = |person: &mut Person| {
            let answer =
                if route.is_form() { person.post(&admin.gateway, &path, &confirmed) } else { person.get(&admin.gateway, &path) };
            answer.status
        };
        let is_above_members = matches!(route.seen_by, "operator" | "admin");
        let is_of_bob = route.seen_by == "member" && route.path.contains('{');
        if is_above_members || is_of_bob {
            assert_eq!(status(&mut ann), 404, "{} {path}", route.method);
            missing += 1;
        }
        if route.seen_by == "admin" {
            assert_eq!(status(&mut op), 404, "{} {path} of an operator", route.method);
        }
    }
    for path in with_query(&bob) {
        let answer = ann.get(&admin.gateway, &path);
        let page = answer.text().replace(&path.replace('&', "&#38;"), "");
        let shows_bob = [bob.record.as_str(), "key-of-bob"].iter().any(|text| page.contains(text));
        assert!(!shows_bob, "{path}: {page}");
    }
    assert!(missing > 100, "{missing} pages and forms");
    assert_eq!(state(&admin, &bob), before);
    assert!(bob.browser.is_in(&admin));
}

/// The targets of the forms of a page.
fn targets(page: &str) -> Vec<String> {
    let tags = page.split("<form ").skip(1).map(|rest| rest.split('>').next().unwrap());
    let posted = tags.filter(|tag| tag.contains("method=\"post\""));
    posted.map(|tag| tag.split_once("action=\"").unwrap().1.split('"').next().unwrap().replace("&#38;", "&")).collect()
}

#[test]
fn every_form_leads_back_to_its_page() {
    let admin = Admin::echo();
    let bob = owner(&admin, "bob", "admin");
    let mut person = signed_in(&admin, "bob");
    let own = format!("http://{}", admin.gateway.address());
    let mut found = BTreeSet::new();
    for route in page_routes().filter(|route| !route.is_form()) {
        let query = match route.path {
            "/pricing/model" | "/pricing/model/facts" => "?model=echo".to_owned(),
            path if path.starts_with("/key-selection/") => format!("?key={}", bob.key),
            _ => String::new(),
        };
        let answer = person.get(&admin.gateway, &format!("{}{query}", route.of(&bob)));
        for target in targets(&answer.text()) {
            if !found.insert(target.clone()) {
                continue;
            }
            // Without the token nothing is changed.
            let refused = admin.gateway.send(&person.with_cookies(form(&target, &[]).header("origin", &own)));
            assert_eq!(refused.status, 403, "{target}: {}", refused.text());
            let back = reloads_from(&refused.text());
            let page = person.get(&admin.gateway, &back);
            assert!(matches!(page.status, 200 | 303), "{target} leads to {back}: {}", page.status);
        }
    }
    for target in ["/pricing/model?model=echo&entry=0", "/pricing/model/facts?model=echo", "/pricing/model/remove?model=echo"] {
        assert!(found.contains(target), "{target} is not in {found:?}");
    }
    assert!(found.len() > 30, "{found:?}");
}

/// The cookie of a person's session.
fn session_of(person: &Person) -> String {
    let found = person.cookies.iter().find(|(name, _)| name.ends_with("tollgate_session"));
    found.map(|(_, value)| value.clone()).unwrap_or_default()
}

fn with_session(session: &str) -> Person {
    Person { cookies: vec![("tollgate_session".to_owned(), session.to_owned())], ..Person::default() }
}

#[test]
fn forms_that_sign_in_or_change_the_password_replace_the_session() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    let login = [("login", "ann"), ("password", PASSWORD)];
    let mut person = with_session("tgs-planted");
    person.post(&admin.gateway, "/sign-in", &login);
    let first = session_of(&person);
    assert!(first.len() > 20 && first != "tgs-planted", "{first}");
    assert_eq!(with_session("tgs-planted").get(&admin.gateway, "/profile").status, 303);

    // The next sign-in does not continue an ended session.
    person.post(&admin.gateway, "/sign-out", &[]);
    let mut again = with_session(&first);
    assert_eq!(again.get(&admin.gateway, "/profile").status, 303);
    again.post(&admin.gateway, "/sign-in", &login);
    let second = session_of(&again);
    assert!(!second.is_empty() && second != first);
    assert_eq!(with_session(&first).get(&admin.gateway, "/profile").status, 303);

    let change = [("password", PASSWORD), ("new_password", "another good one"), ("new_password_again", "another good one")];
    assert_eq!(location(&again.post(&admin.gateway, "/profile/password", &change)), "/profile");
    let third = session_of(&again);
    assert!(third != second && again.get(&admin.gateway, "/profile").status == 200);
    assert_eq!(with_session(&second).get(&admin.gateway, "/profile").status, 303, "the session from before the change has ended");
}

/// Addresses outside the console, as a link to a form may name them.
const OUTSIDE: [&str; 7] = [
    "//evil.example.com",
    "https://evil.example.com",
    "/\\evil.example.com",
    "\\\\evil.example.com",
    "javascript:alert(1)",
    "/\t/evil.example.com",
    "/a\r\nset-cookie: x=1",
];

#[test]
fn no_step_of_signing_in_leads_out_of_the_console() {
    let admin = Admin::echo();
    make_member(&admin, "ann", "member");
    make_member(&admin, "eve", "member");
    let codes = enable_codes(&admin, &sign_in(&admin, "eve"));
    let mut ann = signed_in(&admin, "ann");
    for (index, to) in OUTSIDE.into_iter().enumerate() {
        let typed: String = url::form_urlencoded::byte_serialize(to.as_bytes()).collect();
        let link = format!("/sign-in?to={typed}");
        assert_eq!(location(&ann.get(&admin.gateway, &link)), "/console", "{to:?} for one who is in");
        let leads_home = |page: &str| page.contains("name=\"to\" value=\"/console\"");
        assert!(leads_home(&Person::default().page(&admin.gateway, &link)), "{to:?}");
        let failed = Person::default().post(&admin.gateway, "/sign-in/passkey", &[("to", to)]).text();
        assert!(leads_home(&failed), "{to:?}: {failed}");
        // Attempts with one name are limited.
        if index > 2 {
            continue;
        }
        let mut eve = Person::default();
        let asked = eve.post(&admin.gateway, "/sign-in", &[("login", "eve"), ("password", PASSWORD), ("to", to)]).text();
        assert!(leads_home(&asked), "{to:?}: {asked}");
        let (_, challenge) = asked.split_once("name=\"challenge\" value=\"").unwrap();
        let challenge = challenge.split('"').next().unwrap();
        let wrong = eve.post(&admin.gateway, "/sign-in/code", &[("challenge", challenge), ("code", "000000"), ("to", to)]).text();
        assert!(leads_home(&wrong), "{to:?}: {wrong}");
        // A code is valid once.
        if index == 0 {
            let code = one_time_code(&codes.secret, 1);
            let answer = eve.post(&admin.gateway, "/sign-in/code", &[("challenge", challenge), ("code", &code), ("to", to)]);
            assert_eq!(location(&answer), "/console", "{to:?}");
        }
    }
}
