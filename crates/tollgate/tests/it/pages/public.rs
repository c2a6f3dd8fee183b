//! Pages for visitors: the model square, the status page, errors, languages, assets, and paths behind a proxy.

use serde_json::json;
use tollgate_testkit::{Request, TestGateway};

use super::{Person, location};
use crate::{admin::Admin, support};

#[test]
fn square_page_shows_the_models_and_can_be_closed_to_visitors() {
    let admin = Admin::echo();
    let mut visitor = Person::default();
    let page = visitor.page(&admin.gateway, "/models");
    assert!(page.contains("/models/echo") && page.contains("1 of 1 models"), "{page}");
    assert!(visitor.page(&admin.gateway, "/models?view=table&q=ech&sort=price").contains("/models/echo"));
    assert!(visitor.page(&admin.gateway, "/models?q=nothing").contains("No model matches."));
    let detail = visitor.page(&admin.gateway, "/models/echo");
    assert!(detail.contains("curl ") && detail.contains("/v1/chat/completions"), "{detail}");
    assert_eq!(visitor.get(&admin.gateway, "/models/unknown").status, 404);
    assert!(visitor.page(&admin.gateway, "/status").contains("All models are available."));
    let shortcuts = visitor.page(&admin.gateway, "/shortcuts");
    assert!(shortcuts.contains("<kbd>g</kbd> <kbd>m</kbd>") && !shortcuts.contains("<kbd>Ctrl</kbd>"), "{shortcuts}");
    assert_eq!(location(&visitor.get(&admin.gateway, "/")), "/models");
    admin.call("PUT", "/admin/v1/settings/square.public", Some(&json!({"value": false})));
    assert_eq!(location(&visitor.get(&admin.gateway, "/models")), "/sign-in?to=%2Fmodels");
    assert_eq!(location(&visitor.get(&admin.gateway, "/")), "/sign-in");
}

#[test]
fn filters_return_only_the_changed_part_of_the_page() {
    let admin = Admin::echo();
    let part = admin.gateway.send(&Request::get("/models?q=echo").header("hx-request", "true"));
    let text = part.text();
    assert!(part.status == 200 && text.contains("id=\"found\"") && !text.contains("<html"), "{text}");
    assert!(part.header("vary").unwrap().contains("hx-request"));
}

/// A gateway whose square has two groups.
fn square_of_two_groups() -> Admin {
    let admin = Admin::echo();
    admin.post("/admin/v1/groups", &json!({"name": "team", "channels": ["echo"], "visibility": "public"}));
    let has_both = || Person::default().page(&admin.gateway, "/models").contains("value=\"team\"");
    tollgate_testkit::wait_for("the square has the group", std::time::Duration::from_secs(15), has_both);
    admin
}

#[test]
fn fields_above_the_square_belong_to_the_form_of_its_facets() {
    let admin = square_of_two_groups();
    let page = Person::default().page(&admin.gateway, "/models?available=1&q=echo&sort=price&group=team&view=table");
    let (above, found) = page.split_once("<main").unwrap().1.split_once("id=\"found\"").unwrap();
    assert!(!above.contains("<form") && above.contains("type=\"submit\" form=\"facets\""), "{above}");
    for name in ["q", "group", "sort"] {
        let named = format!("name=\"{name}\"");
        let field = above.split('<').find(|tag| tag.contains(&named)).unwrap_or_else(|| panic!("{name}: {above}"));
        assert!(field.contains("form=\"facets\""), "{name}: {field}");
        assert!(!found.contains(&named), "{name} would be sent twice: {found}");
    }
    assert!(found.contains("name=\"available\" value=\"1\" checked") && found.contains("name=\"view\" value=\"table\""), "{found}");
    assert!(above.contains("value=\"team\" selected") && above.contains("value=\"price\" selected"), "{above}");
}

#[test]
fn unit_and_currency_of_a_model_keep_its_group() {
    let admin = square_of_two_groups();
    for (name, value) in [("currency", "CNY"), ("currency_per_usd", "7.1")] {
        admin.call("PUT", &format!("/admin/v1/settings/console.{name}"), Some(&json!({"value": value})));
    }
    let page = Person::default().page(&admin.gateway, "/models/echo?group=team&unit=1m");
    let page = page.replace("&#38;", "&").replace("&amp;", "&");
    for link in
        ["?group=team&unit=1k", "?group=team&unit=1m", "?group=team&unit=1m&currency=USD", "?group=team&unit=1m&currency=CNY"]
    {
        assert!(page.contains(&format!("href=\"{link}\"")), "{link}: {page}");
    }
}

#[test]
fn chosen_language_takes_precedence_over_that_of_the_browser() {
    let admin = Admin::echo();
    let mut person = Person { language: Some("zh-CN,zh;q=0.9"), ..Person::default() };
    let page = person.page(&admin.gateway, "/models");
    assert!(page.contains("lang=\"zh-CN\"") && page.contains("模型广场"), "{page}");
    let chosen = person.post(&admin.gateway, "/preferences", &[("language", "en"), ("theme", "dark"), ("back", "/status")]);
    assert_eq!(location(&chosen), "/status");
    let page = person.page(&admin.gateway, "/status");
    assert!(page.contains("lang=\"en\"") && page.contains("data-theme=\"dark\""), "{page}");
}

#[test]
fn errors_are_pages_for_browsers_and_json_for_programs() {
    let admin = Admin::echo();
    let mut person = Person::default();
    let missing = person.get(&admin.gateway, "/no-such-page");
    let text = missing.text();
    assert!(missing.status == 404 && text.contains(missing.header("x-request-id").unwrap()), "{text}");
    assert!(missing.header("content-security-policy").is_some());
    let program = admin.gateway.send(&Request::get("/no-such-page"));
    assert!(program.status == 404 && program.json()["error"].is_object());
    assert!(person.get(&admin.gateway, "/admin/v1/nothing").json()["error"].is_object());
}

#[test]
fn assets_are_immutable_and_pages_are_not_cached() {
    let admin = Admin::echo();
    let page = admin.gateway.send(&Request::get("/models"));
    assert_eq!(page.header("cache-control"), Some("no-store"));
    let text = page.text();
    let assets: Vec<&str> =
        text.split('"').filter(|value| value.starts_with("/assets/")).map(|value| value.split('#').next().unwrap()).collect();
    assert!(assets.len() > 5, "{text}");
    for path in assets {
        let asset = admin.gateway.send(&Request::get(path));
        assert_eq!((asset.status, asset.header("cache-control")), (200, Some("public, max-age=31536000, immutable")), "{path}");
    }
    assert_eq!(admin.gateway.send(&Request::get("/assets/page.0000000000000000.js")).status, 404);
}

#[test]
fn pages_work_below_a_base_path_whether_or_not_the_proxy_strips_it() {
    let gateway = TestGateway::builder(support::PROGRAM).env("TOLLGATE_CONSOLE__URL", "https://gate.example.com/llm/").spawn();
    for path in ["/models", "/llm/models"] {
        let page = gateway.send(&Request::get(path));
        let text = page.text();
        assert_eq!(page.status, 200, "{path}");
        assert!(text.contains("href=\"/llm/models/echo\"") && text.contains("href=\"/llm/assets/"), "{text}");
        assert!(!text.contains("href=\"/models") && !text.contains("src=\"/assets"), "{text}");
    }
    let answer = gateway.send(&Request::get("/llm/profile"));
    assert_eq!(location(&answer), "/llm/sign-in?to=%2Fprofile");
    assert_eq!(location(&gateway.send(&Request::get("/llm").header("accept", "text/html"))), "/llm/models");
    for path in ["/v1/models", "/llm/v1/models", "/llm/v1/key"] {
        assert_eq!(gateway.send(&Request::get(path)).status, 401, "{path}");
    }
    assert_eq!(gateway.send(&Request::get("/llm/healthz")).status, 200);
}

#[test]
fn failed_provider_sign_in_is_a_page_for_browsers_and_json_for_programs() {
    let gateway = [
        ("TOLLGATE_CONSOLE__URL", "https://gateway.example.com"),
        ("TOLLGATE_OIDC__ISSUER", "https://id.example.com"),
        ("TOLLGATE_OIDC__CLIENT_ID", "tollgate"),
    ]
    .into_iter()
    .fold(TestGateway::builder(support::PROGRAM), |builder, (name, value)| builder.env(name, value))
    .spawn();
    for path in ["/admin/v1/oidc/callback", "/admin/v1/oidc/callback?state=x&code=y"] {
        let page = gateway.send(&Request::get(path).header("accept", "text/html"));
        assert_eq!(page.status, 401, "{}", page.text());
        assert!(page.text().contains("The sign-in took too long.") && page.text().contains("href=\"/sign-in\""), "{}", page.text());
        assert!(page.header("content-security-policy").is_some());
        let json = gateway.send(&Request::get(path));
        assert_eq!(json.json()["error"]["code"], "challenge_ended");
    }
}

#[test]
fn reference_pages_show_the_documents_that_the_gateway_serves() {
    let admin = Admin::echo();
    let mut visitor = Person::default();
    let page = visitor.page(&admin.gateway, "/docs/api");
    for text in ["/v1/chat/completions", "/v1beta/models/{model}:generateContent", "id=\"op-get_v1_key\"", "x-tollgate-max-price"] {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.contains("/admin/v1/"), "visitors are not shown the admin API");
    assert!(visitor.page(&admin.gateway, "/docs").contains("/docs/api"));
    let document = admin.gateway.send(&Request::get("/v1/openapi.json"));
    let document: serde_json::Value = serde_json::from_slice(&document.body).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(location(&visitor.get(&admin.gateway, "/docs/admin-api")), "/sign-in?to=%2Fdocs%2Fadmin-api");
    crate::identity::make_member(&admin, "root", "admin");
    let page = super::attacks::signed_in(&admin, "root").page(&admin.gateway, "/docs/admin-api");
    for text in ["id=\"op-make_key\"", "id=\"schema-NewKey\"", "/admin/v1/backup-schedule"] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn page_of_a_model_shows_why_its_requests_are_refused() {
    let admin = Admin::echo();
    let mut visitor = Person::default();
    assert!(!visitor.page(&admin.gateway, "/models/echo").contains("requests get 503"));
    let channel = admin.get("/admin/v1/channels")["items"][0]["name"].as_str().unwrap().to_owned();
    admin.patch(&format!("/admin/v1/channels/{channel}"), &json!({"status": "off"}));
    let says = || visitor.page(&admin.gateway, "/models/echo");
    let page = tollgate_page(says);
    assert!(page.contains("1 channel account switched off") && page.contains("#E40"), "{page}");
}

/// The page once the change is in force.
fn tollgate_page(mut page: impl FnMut() -> String) -> String {
    tollgate_testkit::wait_for("the outage is shown", std::time::Duration::from_secs(10), || page().contains("requests get 503"));
    page()
}
