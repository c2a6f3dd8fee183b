//! Tests of the table of pages, and of constructs that templates must not contain. Pages need a gateway, so they are tested with the
//! real binary.

use std::{collections::HashSet, fs, path::Path};

use super::{route::SeenBy, *};
use crate::api;

fn templates(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            templates(&path, found);
        } else {
            found.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
        }
    }
}

fn all_templates() -> Vec<(String, String)> {
    let mut found = Vec::new();
    templates(&Path::new(env!("CARGO_MANIFEST_DIR")).join("templates"), &mut found);
    found
}

#[test]
fn operations_of_pages_are_routes() {
    for id in operations::ALL {
        assert!(api::route_of(id).is_some(), "{id} is not a route of the admin API");
    }
}

#[test]
fn page_routes_are_unique_and_outside_the_other_path_prefixes() {
    let mut seen = HashSet::new();
    for route in routes() {
        assert!(seen.insert((route.path, format!("{:?}", route.method))), "{} occurs twice", route.path);
        assert!(route.path.starts_with('/'), "{}", route.path);
        for other in ["/admin", "/v1", "/metrics", "/assets", "/models.json"] {
            assert!(!route.path.starts_with(other), "{}", route.path);
        }
    }
}

/// The tests that go through every page and form read this list.
#[test]
fn list_of_page_routes_is_complete() {
    let line = |route: &PageRoute| {
        let seen_by = match route.seen_by {
            SeenBy::Anyone => "anyone",
            SeenBy::Role(role) => role.as_str(),
        };
        (route.path, format!("{} {} {seen_by}\n", format!("{:?}", route.method).to_uppercase(), route.path))
    };
    let mut lines: Vec<_> = routes().map(line).collect();
    lines.sort();
    let expected: String = lines.into_iter().map(|(_, line)| line).collect();
    let listed = include_str!("../../fixtures/page-routes.txt");
    assert_eq!(listed, expected, "fixtures/page-routes.txt is out of date");
}

#[test]
fn path_of_a_form_maps_to_its_page() {
    for (form, page) in [
        ("/keys/new", "/keys/new"),
        ("/keys", "/keys"),
        ("/keys/key_1", "/keys/key_1"),
        ("/keys/key_1/rotate", "/keys/key_1"),
        ("/log/views", "/log"),
        ("/log/views/remove", "/log"),
        ("/keys/views", "/keys"),
        ("/keys/views/remove", "/keys"),
        ("/proxies/test", "/proxies"),
        ("/channels/main/models/add", "/channels/main/models"),
        ("/groups/new/offers", "/groups/new"),
        ("/profile/sessions/ses_1/end", "/profile"),
        ("/profile/other-sessions/end", "/profile"),
        ("/sign-out", "/"),
        ("/preferences", "/"),
    ] {
        assert_eq!(page_of(form), page, "{form}");
    }
}

#[test]
fn query_of_a_form_is_that_of_its_page() {
    for (form, page) in [
        ("/pricing/model?model=a%2Fb", "/pricing/model?model=a%2Fb"),
        ("/pricing/model/remove?model=a%2Fb", "/pricing/model?model=a%2Fb"),
        ("/sign-in/code?to=%2Fkeys", "/sign-in?to=%2Fkeys"),
        ("/keys/key_1/rotate", "/keys/key_1"),
        ("/key-selection/enable?key=key_1", "/"),
    ] {
        assert_eq!(address_of_page(&form.parse().unwrap()), page, "{form}");
    }
}

/// The table of path parameters checks the values.
#[test]
fn path_parameters_of_pages_are_in_the_parameter_table() {
    for route in routes() {
        for name in route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
            assert!(api::route::may_exist(name.trim_start_matches('*'), "a"), "{}", route.path);
        }
    }
}

/// The policy allows no inline script, no inline style and no event handler.
#[test]
fn templates_comply_with_the_content_security_policy() {
    for (path, text) in all_templates() {
        for (at, _) in text.match_indices("<script") {
            let tag = text[at..].split('>').next().unwrap();
            assert!(tag.contains("src="), "{path}: {tag}");
        }
        for forbidden in
            ["style=", "<style", "javascript:", "hx-on", " onclick", " onload", " onerror", " onsubmit", "http://", "https://"]
        {
            assert!(!text.contains(forbidden), "{path} holds {forbidden}");
        }
    }
}

/// Values are escaped everywhere. The exceptions are other templates.
#[test]
fn only_nested_templates_are_exempt_from_escaping() {
    let known = [
        "login",
        "password",
        "remember",
        "code",
        "again",
        "name",
        "email",
        "member",
        "count",
        "key",
        "new_password",
        "codes_password",
        "passkeys.name",
        "passkeys.password",
        "notices.percents",
        "notices.balance",
        "notices.mail",
        "time_zone",
        "model",
        "upstream",
        "control",
        "danger.control",
        "language",
        "theme",
        "groups",
        // Further templates.
        "strength",
        "found",
        "part",
        "open",
        "fields.name",
        "fields.count",
        // Attributes of a control, without anything that was typed.
        "flags()",
    ];
    for (path, text) in all_templates() {
        for (at, _) in text.match_indices("|safe") {
            let value = text[..at].rsplit("{{").next().unwrap().trim();
            assert!(known.contains(&value), "{path} does not escape {value}");
        }
    }
}

#[test]
fn forms_that_write_carry_the_token_of_the_session() {
    // These pages redirect members who have signed in.
    let before_sign_in = ["sign_in.html", "sign_in_code.html", "register.html"];
    for (path, text) in all_templates().into_iter().filter(|(path, _)| !before_sign_in.iter().any(|open| path.ends_with(open))) {
        for (at, _) in text.match_indices("method=\"post\"") {
            let form = text[at..].split("</form>").next().unwrap();
            assert!(form.contains("name=\"csrf\""), "{path}: {form}");
        }
    }
}

#[test]
fn assets_of_templates_exist() {
    for (path, text) in all_templates() {
        for (at, _) in text.match_indices("layout.asset(\"") {
            let name = text[at + 14..].split('"').next().unwrap();
            assert!(!assets::path(name).is_empty(), "{path}: {name}");
        }
        for (at, _) in text.match_indices("layout.icon(\"") {
            let name = text[at + 13..].split('"').next().unwrap();
            let sprite = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/icons.svg")).unwrap();
            assert!(sprite.contains(&format!("id=\"i-{name}\"")), "{path}: {name}");
        }
    }
}
