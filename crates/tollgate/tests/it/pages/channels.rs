//! A channel in the form of the catalog file, its versions, and finding it by its credential.

use std::time::Duration;

use serde_json::json;
use tollgate_testkit::{TestGateway, UPSTREAM_CREDENTIAL, wait_for};

use super::{
    Person,
    attacks::signed_in,
    location,
    operators::{make, owner, upstream},
};
use crate::{
    admin::Admin,
    identity::make_member,
    support::{PROGRAM, channel, group},
};

/// The value of a hidden field of a page.
fn hidden(page: &str, name: &str) -> String {
    let (_, rest) = page.split_once(&format!("name=\"{name}\" value=\"")).unwrap_or_else(|| panic!("no {name} in {page}"));
    rest.split('"').next().unwrap().to_owned()
}

#[test]
fn channel_is_edited_as_a_file_and_restored_to_a_version() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut boss = owner(&admin);
    make(&admin, &mut boss, &upstream, "main");
    boss.post(&admin.gateway, "/channels/main/models/add", &[("model", "m")]);
    let shown = admin.get("/admin/v1/channels/main/file");
    let file = shown["file"].as_str().unwrap();
    assert!(file.starts_with("[[channel]]\nname = \"main\"") && !file.contains(UPSTREAM_CREDENTIAL), "{file}");
    let page = boss.page(&admin.gateway, "/channels/main/file");
    let version = hidden(&page, "version");
    assert!(page.contains("[[channel.serves]]") && shown["version"] == version.as_str(), "{page}");

    // Faults are shown with their lines, and the typed text is kept.
    let post = |boss: &mut Person, path: &str, file: &str, version: &str| {
        boss.post(&admin.gateway, &format!("/channels/main/{path}"), &[("file", file), ("version", version)])
    };
    let wrong = post(&mut boss, "file", &format!("{file}\nweigth = 3 # <u>\n"), &version);
    let text = wrong.text();
    assert!(wrong.status == 422 && text.contains("weigth") && text.contains("line ") && !text.contains("<u>"), "{text}");
    let mut chinese = boss.clone();
    chinese.language = Some("zh-CN");
    let text = post(&mut chinese, "file", &format!("{file}\nweigth = 3\n"), &version).text();
    assert!(text.contains("没有字段“weigth”") && !text.contains("has no field"), "{text}");
    let other = post(&mut boss, "file", &format!("{file}\n[[group]]\nname = \"g\"\n"), &version);
    assert!(other.status == 422 && other.text().contains("only the channel"), "{}", other.text());

    // Comparing saves nothing; saving does.
    let edited = file.replace("name = \"main\"\nprovider", "name = \"main\"\nweight = 7\nprovider").replace('\n', "\r\n");
    let compared = post(&mut boss, "file", &edited, &version).text();
    assert!(compared.contains("<ins class=\"ok\">+ weight = 7") && compared.contains("/channels/main/file/save"), "{compared}");
    assert_eq!(admin.get("/admin/v1/channels/main")["weight"], 1);
    assert_eq!(location(&post(&mut boss, "file/save", &edited, &version)), "/channels/main");
    assert_eq!(admin.get("/admin/v1/channels/main")["weight"], 7);
    let stale = post(&mut boss, "file/save", &edited, &version);
    assert!(stale.status == 422 && stale.text().contains("It was changed since this page"), "{}", stale.text());
    let version = hidden(&boss.page(&admin.gateway, "/channels/main/file"), "version");
    assert!(post(&mut boss, "file", &edited, &version).text().contains("nothing would change"));
    // No text contains a credential, so there is no line to compare.
    let credential =
        edited.replace("[[channel.account]]\r\n", "[[channel.account]]\r\ncredential = \"another-credential-0123456789\"\r\n");
    let compared = post(&mut boss, "file", &credential, &version).text();
    assert!(compared.contains("Rows: account ") && compared.contains("/channels/main/file/save"), "{compared}");
    assert!(!compared.contains("<ins"), "{compared}");

    // Each change is a version; the first version has neither the model nor the weight.
    let versions = admin.get("/admin/v1/channels/main/history");
    let versions = versions["items"].as_array().unwrap();
    assert_eq!((&versions[0]["before"]["weight"], &versions[0]["after"]["weight"]), (&json!(1), &json!(7)));
    let first = versions.last().unwrap();
    assert!(first["before"].is_null() && first["after"]["serves"] == json!([]), "{first}");
    let page = boss.page(&admin.gateway, "/channels/main/history");
    let back = format!("/channels/main/history/{}", first["revision"]);
    assert!(page.contains("<td title=\"weight\">Weight</td>") && page.contains("Model m") && page.contains(&back), "{page}");
    let page = boss.page(&admin.gateway, &back);
    assert!(page.contains("<td title=\"weight\">Weight</td>") && page.contains("Go back to this version"), "{page}");
    let revision = hidden(&page, "revision");
    assert_eq!(location(&boss.post(&admin.gateway, &back, &[("revision", &revision)])), "/channels/main");
    let restored = admin.get("/admin/v1/channels/main");
    assert_eq!((&restored["weight"], &restored["serves"]), (&json!(1), &json!([])));
    assert!(boss.page(&admin.gateway, &back).contains("The channel is as it was in this version."));
    let newer = format!("/channels/main/history/{}", versions[0]["revision"]);
    let stale = boss.post(&admin.gateway, &newer, &[("revision", &revision)]);
    assert!(stale.status == 422 && stale.text().contains("It was changed since this page"), "{}", stale.text());
    for missing in ["0", "999999", "x", "9223372036854775807", "18446744073709551615"] {
        assert_eq!(boss.get(&admin.gateway, &format!("/channels/main/history/{missing}")).status, 404, "{missing}");
    }
}

#[test]
fn operators_read_the_file_and_admins_change_it() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut boss = owner(&admin);
    make(&admin, &mut boss, &upstream, "main");
    make_member(&admin, "op", "operator");
    make_member(&admin, "ann", "member");
    let mut op = signed_in(&admin, "op");
    let page = op.page(&admin.gateway, "/channels/main/file");
    assert!(page.contains("[[channel]]") && !page.contains("<textarea"), "{page}");
    for path in ["file", "file/save"] {
        let sent = [("file", "[[channel]]\nname = \"main\"\nprovider = \"echo\"\n")];
        assert_eq!(op.post(&admin.gateway, &format!("/channels/main/{path}"), &sent).status, 404, "{path}");
    }
    let body = json!({"file": "[[channel]]\nname = \"main\"\nprovider = \"echo\"\n"});
    assert_eq!(admin.as_operator("PUT", "/admin/v1/channels/main/file", Some(&body)).status, 403);
    let mut ann = signed_in(&admin, "ann");
    for path in ["file", "history", "history/1"] {
        assert_eq!(ann.get(&admin.gateway, &format!("/channels/main/{path}")).status, 404, "{path}");
    }
}

#[test]
fn list_of_channels_has_pages_and_is_sorted_by_its_heads() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut boss = owner(&admin);
    for number in 0..51 {
        let channel = json!({
            "name": format!("channel-{number:02}"), "provider": "compatible", "base_url": upstream.openai_url(),
            "private_network": true, "accounts": [{"name": "one", "credential": UPSTREAM_CREDENTIAL}],
        });
        admin.post("/admin/v1/channels", &channel);
    }
    let cheaper = json!({"name": "two", "credential": UPSTREAM_CREDENTIAL, "cost_multiplier": "0.8"});
    admin.post("/admin/v1/channels/channel-00/accounts", &cheaper);
    let rows = |page: &str| page.matches("data-record=\"").count();
    let first = boss.page(&admin.gateway, "/channels?sort=name");
    assert!(rows(&first) == 50 && first.contains("52 of 52 channels"), "{first}");
    assert!(
        first.contains("aria-sort=\"ascending\"><div class=\"row gap3\">") && first.contains("href=\"?sort=margin\""),
        "{first}"
    );
    assert!(first.contains("× 0.8–1<"), "the lowest and the highest factor: {first}");
    assert!(first.contains("href=\"/channels?sort=name&#38;after=50\""), "{first}");
    let second = boss.page(&admin.gateway, "/channels?sort=name&after=50");
    assert!(rows(&second) == 2 && second.contains("channel-50") && second.contains("52 of 52 channels"), "{second}");
    // The page is beyond the end once its channels were removed.
    assert_eq!(rows(&boss.page(&admin.gateway, "/channels?sort=name&after=900")), 50);
    assert_eq!(boss.get(&admin.gateway, "/channels.csv?sort=name&after=50").text().lines().count(), 53, "a file has all");
    let of_filter = boss.page(&admin.gateway, "/channels?q=channel-0&sort=margin");
    assert!(rows(&of_filter) == 10 && of_filter.contains("10 of 52 channels"), "{of_filter}");
    assert!(of_filter.contains("href=\"?q=channel-0&#38;sort=cost\""), "{of_filter}");
}

#[test]
fn channel_is_found_by_the_last_characters_of_a_credential() {
    let (admin, upstream) = (Admin::echo(), upstream());
    let mut boss = owner(&admin);
    make(&admin, &mut boss, &upstream, "main");
    let end = &UPSTREAM_CREDENTIAL[UPSTREAM_CREDENTIAL.len() - 4..];
    wait_for("the gateway has read the credential", Duration::from_secs(30), || {
        boss.page(&admin.gateway, &format!("/channels?q={end}")).contains("href=\"/channels/main\"")
    });
    let found = boss.page(&admin.gateway, "/channels?q=127.0.0.1");
    assert!(found.contains("href=\"/channels/main\"") && !found.contains("href=\"/channels/echo\""), "{found}");
    // Fewer characters are not searched for in credentials, only in the base URL, whose port can have the same digits.
    let fewer = &end[1..];
    let is_in_url = upstream.openai_url().contains(fewer);
    let page = boss.page(&admin.gateway, &format!("/channels?q={fewer}"));
    assert_eq!(page.contains("No channel matches."), !is_in_url, "{page}");
    let page = boss.page(&admin.gateway, "/channels/main");
    assert!(page.contains(&format!("…{end}")) && !page.contains(UPSTREAM_CREDENTIAL), "{page}");
    let account = admin.get("/admin/v1/channels/main/accounts/main");
    assert_eq!(account["credential_end"], end);
    assert_eq!(admin.get("/admin/v1/health")["items"][1]["credential_end"], end);
    admin.patch("/admin/v1/channels/main/accounts/main", &json!({"credential": "short"}));
    wait_for("no characters of a short credential are shown", Duration::from_secs(30), || {
        admin.get("/admin/v1/channels/main/accounts/main")["credential_end"].is_null()
    });
}

#[test]
fn refused_private_address_gives_advice_to_admins_and_operators() {
    let admin = Admin::echo();
    make_member(&admin, "root", "admin");
    make_member(&admin, "op", "operator");
    let fields = [("name", "near"), ("provider", "compatible"), ("base_url", "http://127.0.0.1:9/v1"), ("groups", "default")];
    for (member, advice, other_advice) in
        [("root", "Tick “It may reach private addresses”", "An admin must"), ("op", "An admin must allow it", "Tick “")]
    {
        let answer = signed_in(&admin, member).post(&admin.gateway, "/channels/new", &fields);
        let page = answer.text();
        assert!(answer.status == 422 && page.contains(advice) && !page.contains(other_advice), "{member}: {page}");
    }
}

#[test]
fn compatible_upstream_speaks_the_protocol_of_its_tile() {
    let admin = Admin::echo();
    make_member(&admin, "root", "admin");
    let mut root = signed_in(&admin, "root");
    for (tile, label, name, protocol) in [
        ("compatible", "OpenAI-compatible", "compatible", "openai"),
        ("compatible_gemini", "Gemini-compatible", "compatible-2", "gemini"),
    ] {
        let page = root.page(&admin.gateway, "/channels/new");
        assert!(page.contains(label) && page.contains(&format!("name=\"provider\" value=\"{tile}\"")), "{page}");
        let fields = [("provider", tile), ("base_url", "https://a.example/v1"), ("groups", "default")];
        assert_eq!(location(&root.post(&admin.gateway, "/channels/new", &fields)), format!("/channels/{name}/models"));
        let channel = admin.get(&format!("/admin/v1/channels/{name}"));
        assert_eq!((&channel["provider"], &channel["protocol"]), (&json!("compatible"), &json!(protocol)), "{channel}");
    }
}

#[test]
fn every_fault_of_a_channel_is_named_at_once_with_the_numbers_that_are_possible() {
    let admin = Admin::echo();
    make_member(&admin, "root", "admin");
    let mut root = signed_in(&admin, "root");
    let fields = [("name", "main"), ("provider", "compatible"), ("base_url", "https://a.example/v1"), ("groups", "default")];
    assert_eq!(location(&root.post(&admin.gateway, "/channels/new", &fields)), "/channels/main/models");
    let edit = [
        ("base_url", "ftp://x"),
        ("headers", "no colon"),
        ("proxy", "nowhere"),
        ("weight", "-3"),
        ("priority", "x"),
        ("connect_timeout_ms", "0"),
        ("first_byte_timeout_ms", "abc"),
        ("idle_timeout_ms", "1"),
        ("probe_interval_s", "5"),
        ("concurrency", "many"),
        ("failures_to_cool", "0"),
        ("cool_down_s", "301"),
        ("pausing_statuses", "402, 404"),
        ("parameter_edits", "drop seed\nforce messages []"),
        ("budget_day_block", "much"),
        ("client_certificate", "PEM"),
        ("client_key", ""),
    ];
    let answer = root.save(&admin.gateway, "/channels/main/edit", &edit);
    let page = answer.text();
    assert_eq!(answer.status, 422, "{page}");
    for (field, says) in [
        ("base_url", "https://"),
        ("headers", ""),
        ("proxy", ""),
        ("weight", "Enter a whole number from 1 to 1,000,000."),
        ("priority", "Enter a whole number from −2,147,483,648 to 2,147,483,647."),
        ("connect_timeout_ms", "Enter a whole number from 1 to 86,400,000."),
        ("first_byte_timeout_ms", "Enter a whole number from 1 to 86,400,000."),
        ("probe_interval_s", "Enter 0, or a whole number from 10 to 86,400."),
        ("concurrency", "Enter a whole number"),
        ("failures_to_cool", "Enter a whole number from 1 to 100."),
        ("cool_down_s", "Enter a whole number from 1 to 300."),
        ("pausing_statuses", "Enter statuses of 401 to 599"),
        ("parameter_edits", "Edit 2: this parameter cannot be edited"),
        ("budget_day_block", "Enter an amount in USD"),
        ("client_certificate", ""),
    ] {
        let (_, rest) = page.split_once(&format!("id=\"{field}-note\"")).unwrap();
        let (note, _) = rest.split_once("</span>").unwrap();
        assert!(note.contains(says), "{field}: {note}");
        let (before, _) =
            page.split_once(&format!("<span class=\"err\" id=\"{field}-note\"")).unwrap_or_else(|| panic!("{field}: {page}"));
        assert!(before.rsplit(&format!("name=\"{field}\"")).next().unwrap().contains("aria-invalid"), "{field}");
    }
    // The name of another channel, and an address without the permission for it.
    let fields = [("name", "main"), ("provider", "compatible"), ("base_url", "http://127.0.0.1:9/v1")];
    let page = root.post(&admin.gateway, "/channels/new", &fields).text();
    for field in ["name", "base_url"] {
        assert!(page.contains(&format!("<span class=\"err\" id=\"{field}-note\"")), "{field}: {page}");
    }
}

#[test]
fn client_certificate_is_shown_and_an_empty_key_field_keeps_the_key() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    let mut op = signed_in(&admin, "op");
    let fields = [("name", "near"), ("provider", "compatible"), ("base_url", "https://a.example/v1"), ("groups", "default")];
    assert_eq!(location(&op.post(&admin.gateway, "/channels/new", &fields)), "/channels/near/models");
    let edit = [
        ("weight", "1"),
        ("connect_timeout_ms", "4000"),
        ("first_byte_timeout_ms", "50000"),
        ("idle_timeout_ms", "50000"),
        ("failures_to_cool", "3"),
        ("cool_down_s", "10"),
        ("groups", "default"),
    ];
    let pem = |name: &str| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tollgate-gateway/fixtures/tls");
        std::fs::read_to_string(format!("{folder}/{name}")).unwrap().replace('\n', "\r\n")
    };
    let (certificate, key, of_another) = (pem("client.pem"), pem("client.key"), pem("other.key"));
    for key in [key.as_str(), ""] {
        let edit = [edit.as_slice(), &[("client_certificate", &*certificate), ("client_key", key)]].concat();
        assert_eq!(location(&op.save(&admin.gateway, "/channels/near/edit", &edit)), "/channels/near");
        let channel = admin.get("/admin/v1/channels/near");
        assert_eq!(channel["client_certificate"].as_str().unwrap().trim(), certificate.replace("\r\n", "\n").trim());
        assert_eq!(channel["client_key"], "***");
    }
    let page = op.page(&admin.gateway, "/channels/near/edit");
    assert!(page.contains("name=\"client_key\"") && page.contains(certificate.lines().nth(1).unwrap()), "{page}");
    assert!(!page.contains(key.lines().nth(1).unwrap()), "the key is shown");
    let other = [edit.as_slice(), &[("client_certificate", &*certificate), ("client_key", &*of_another)]].concat();
    let refused = op.save(&admin.gateway, "/channels/near/edit", &other);
    assert!(refused.status == 422 && !refused.text().contains(of_another.lines().nth(1).unwrap()), "{}", refused.text());
    assert_eq!(location(&op.save(&admin.gateway, "/channels/near/edit", &edit)), "/channels/near");
    assert_eq!(
        admin.get("/admin/v1/channels/near")["client_certificate"],
        certificate.replace("\r\n", "\n").trim(),
        "not sent, not changed"
    );
}

#[test]
fn form_of_a_channel_is_compared_without_being_saved() {
    let admin = Admin::echo();
    make_member(&admin, "op", "operator");
    admin.post("/admin/v1/groups", &json!({"name": "team"}));
    let mut op = signed_in(&admin, "op");
    let fields = [("name", "near"), ("provider", "compatible"), ("base_url", "https://a.example/v1"), ("groups", "default")];
    assert_eq!(location(&op.post(&admin.gateway, "/channels/new", &fields)), "/channels/near/models");
    let page = op.page(&admin.gateway, "/channels/near/edit");
    assert!(page.contains("formaction=\"/channels/near/edit/compare\"") && !page.contains("What saving changes"), "{page}");
    let stored = admin.get("/admin/v1/channels/near");
    let text = |field: &str| stored[field].to_string();
    let numbers = ["connect_timeout_ms", "first_byte_timeout_ms", "idle_timeout_ms", "failures_to_cool", "cool_down_s"]
        .map(|field| (field, text(field)));
    let mut form: Vec<(&str, &str)> = numbers.iter().map(|(field, value)| (*field, value.as_str())).collect();
    form.extend(
        [
            "cooling",
            "learn_unsupported",
            "retry_uncertain",
            "empty_answer_is_failure",
            "hoist",
            "server_tools",
            "pass_user",
            "fetch_media",
        ]
        .into_iter()
        .filter(|field| stored[*field] == true)
        .map(|field| (field, "true")),
    );
    form.extend([("base_url", "https://a.example/v1"), ("weight", "7"), ("headers", "x-team: typed-secret"), ("groups", "team")]);
    let compared = op.post(&admin.gateway, "/channels/near/edit/compare", &form);
    let page = compared.text();
    assert_eq!(compared.status, 200, "{page}");
    for row in ["<td title=\"weight\">", "<td title=\"headers\">", "<td title=\"groups\">"] {
        assert!(page.contains(row), "{row}: {page}");
    }
    let (changes, typed) = page.split_once("<fieldset").unwrap();
    assert!(!changes.contains("<td title=\"cool_down_s\">") && !changes.contains("typed-secret"), "{changes}");
    assert!(typed.contains("name=\"weight\" value=\"7\"") || typed.contains("value=\"7\""), "the typed values are kept: {typed}");
    assert!(typed.contains("value=\"team\" checked"), "{typed}");
    let kept = admin.get("/admin/v1/channels/near");
    assert_eq!(
        (&kept["weight"], &kept["headers"], &kept["revision"]),
        (&stored["weight"], &stored["headers"], &stored["revision"])
    );

    form.retain(|(field, _)| *field != "weight");
    form.push(("weight", "much"));
    let refused = op.post(&admin.gateway, "/channels/near/edit/compare", &form);
    assert!(refused.status == 422 && refused.text().contains("id=\"weight-note\""), "{}", refused.text());
    let path = "/admin/v1/channels/near?dry_run=true";
    assert_eq!(admin.patch(path, &json!({"weight": 9}))["weight"], 9);
    assert_eq!(admin.get("/admin/v1/channels/near")["revision"], stored["revision"]);
}

#[test]
fn every_account_is_shown_if_there_are_more_than_the_admin_api_lists_at_once() {
    const ACCOUNTS: usize = 1_100;
    let account = |number: usize| format!("\n[[channel.account]]\nname = \"a{number}\"\ncredential = \"secret-{number}\"\n");
    let lines: String = (0..ACCOUNTS).map(account).collect();
    let text = format!("{}{lines}", channel("many", "openai", "https://many.example/v1", "m", ""));
    let admin = Admin::of(TestGateway::builder(PROGRAM).catalog(&format!("{text}{}", group(&["many"]))).spawn());
    let page = owner(&admin).page(&admin.gateway, "/channels/many");
    let missing: Vec<usize> = (0..ACCOUNTS).filter(|number| !page.contains(&format!(">a{number}</a>"))).collect();
    assert!(missing.is_empty(), "{} accounts are missing, the first is a{}", missing.len(), missing[0]);
}
