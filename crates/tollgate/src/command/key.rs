//! `key create|list|show|set|rotate|disable|allowance|revoke`.

use std::collections::HashMap;

use http::Method;
use serde_json::{Map, Value, json};
use url::Url;

use crate::{
    admin::{self, Admin, AdminRequest, ApiPath},
    cli::{self, ClientLines, Common, KeyName},
    command::{
        ready::local_address,
        resource::{self, Resource, Rows, cell},
        time_flag,
    },
    compose,
    failure::Failure,
    output, runtime_socket,
};

const KEYS: Resource = Resource { path: "keys", word: "key", columns: &[] };

pub(crate) fn run(common: &Common, verb: cli::Key) -> Result<(), Failure> {
    admin::run(common, async |admin| {
        let rows = Rows { common, admin, resource: KEYS };
        match verb {
            cli::Key::Create { name, groups, member, models, models_deny, protocols, tags, budget, expires, env, print } => {
                let expires_at = expires.map(|text| time_flag::parse_expiry("--expires", &text, compose::now())).transpose()?;
                let models = if models.is_empty() { vec!["*".to_owned()] } else { models };
                let mut body = json!({
                    "name": name, "groups": groups, "models": models, "models_deny": models_deny, "protocols": protocols,
                    "tags": tag_table(&tags)?,
                });
                if let Some(member) = member {
                    body["member"] = member.into();
                }
                if let Some(at) = expires_at {
                    body["expires_at"] = tollgate_console::rfc3339(at).into();
                }
                if let Some(budget) = budget {
                    let fields = tollgate_console::parse_field_args("make_key", &[format!("budget={budget}")]);
                    body["budget"] = fields.map_err(Failure::Usage)?.remove("budget").unwrap_or_default();
                }
                create(common, admin, &body, env, print).await
            }
            cli::Key::List => list(common, admin).await,
            cli::Key::Show(KeyName { key }) => rows.show(&["keys", &id(admin, &key).await?]).await,
            cli::Key::Set { key: KeyName { key }, members, saving } => {
                rows.set(&["keys", &id(admin, &key).await?], &members, saving).await
            }
            cli::Key::Rotate { key: KeyName { key }, overlap } => rotate(common, admin, &key, overlap.as_deref()).await,
            cli::Key::Disable(KeyName { key }) => {
                let target = ApiPath::of(&["keys", &id(admin, &key).await?, "disable"]);
                let key =
                    admin.send(AdminRequest { body: None, ..AdminRequest::of(Method::POST, &target, &Value::Null) }).await?.body;
                report(common, &key, "disabled");
                Ok(())
            }
            cli::Key::Allowance(KeyName { key }) => allowance(common, admin, &key).await,
            cli::Key::Revoke(KeyName { key }) => revoke(common, admin, &key).await,
        }
    })
}

/// Tags of `--tag NAME=VALUE` as the admin API takes them.
fn tag_table(tags: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut table = Map::new();
    for tag in tags {
        let (name, value) = tag.split_once('=').ok_or_else(|| Failure::Usage(format!("--tag needs NAME=VALUE, not '{tag}'")))?;
        if table.insert(name.trim().to_owned(), value.trim().into()).is_some() {
            return Err(Failure::Usage(format!("--tag names '{}' twice", name.trim())));
        }
    }
    Ok(table)
}

async fn create(common: &Common, admin: &Admin, body: &Value, env: bool, print: Option<ClientLines>) -> Result<(), Failure> {
    // Checked before the key is made, so that a bad setting does not lose its secret.
    let lines = match print {
        Some(client) => Some((client, gateway_url(common, admin).await?)),
        None => None,
    };
    let target = ApiPath::of(&["keys"]);
    let made = admin.send(AdminRequest::of(Method::POST, &target, body)).await?.body;
    let text = made["key"].as_str().unwrap_or_default();
    if common.json {
        output::json(&json!({"id": made["id"], "name": made["name"], "key": text}));
    } else if let Some((client, url)) = lines {
        output::line(&client_lines(client, &url, text));
    } else if env {
        output::line(&format!("export OPENAI_API_KEY={text}\nexport GEMINI_API_KEY={text}"));
    } else {
        output::line(text);
        if !common.quiet {
            output::remark("this key is shown once; it works on every protocol");
        }
    }
    Ok(())
}

/// Settings that say where callers reach the gateway.
const ADDRESS_SETTINGS: [&str; 5] = ["console.api_url", "console.url", "console.listen", "server.listen", "server.tls_cert"];

/// The gateway's address for callers, without a slash at its end.
async fn gateway_url(common: &Common, admin: &Admin) -> Result<String, Failure> {
    if let Some(url) = &common.url {
        return Ok(url.trim_end_matches('/').to_owned());
    }
    let config = compose::settings(common, &[])?;
    let mut settings = HashMap::new();
    for name in ADDRESS_SETTINGS {
        let running = admin.get(&ApiPath::of(&["settings", name])).await.ok();
        let text = running
            .map_or_else(|| config.text(name).to_owned(), |setting| setting["value"].as_str().unwrap_or_default().to_owned());
        settings.insert(name, text);
    }
    // The gateway may have been started with a flag that this command does not know.
    if let Some(report) = runtime_socket::ask(&config.data) {
        settings.insert("server.listen", report.listen.to_string());
    }
    let read = |name| settings.get(name).map(String::as_str).filter(|text| !text.is_empty());
    Ok(address_for_callers(read).unwrap_or_else(|| format!("http://{}", local_address(config.listen))))
}

/// The address for callers: `console.api_url`; else `console.url`, if the console shares the model address; else the listening
/// address.
fn address_for_callers<'a>(setting: impl Fn(&'static str) -> Option<&'a str>) -> Option<String> {
    if let Some(url) = setting("console.api_url") {
        return Some(url.trim_end_matches('/').to_owned());
    }
    let shared = setting("console.url").filter(|_| setting("console.listen").is_none());
    // A URL with a path is only for the console, behind a proxy.
    if let Some(url) = shared.and_then(|text| Url::parse(text).ok()).filter(|url| url.path() == "/") {
        return Some(url.as_str().trim_end_matches('/').to_owned());
    }
    let listen = setting("server.listen")?.parse().ok()?;
    let scheme = if setting("server.tls_cert").is_some() { "https" } else { "http" };
    Some(format!("{scheme}://{}", local_address(listen)))
}

/// The `export` lines of a client, and the contents of its configuration file. Claude Code sends telemetry to its vendor regardless of
/// its base URL, unless a variable disables that.
fn client_lines(client: ClientLines, url: &str, key: &str) -> String {
    match client {
        ClientLines::ClaudeCode => format!(
            "export ANTHROPIC_BASE_URL={url}\nexport ANTHROPIC_AUTH_TOKEN={key}\nexport \
             CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1\n# then: claude --model MODEL"
        ),
        ClientLines::Codex => format!(
            "export TOLLGATE_KEY={key}\n# and in ~/.codex/config.toml, above its first table:\n# model = \"MODEL\"\n# \
             model_provider = \"tollgate\"\n# [model_providers.tollgate]\n# name = \"tollgate\"\n# base_url = \"{url}/v1\"\n# env_key = \
             \"TOLLGATE_KEY\"\n# wire_api = \"responses\""
        ),
        ClientLines::Anthropic => format!("export ANTHROPIC_BASE_URL={url}\nexport ANTHROPIC_API_KEY={key}"),
        ClientLines::Openai => format!("export OPENAI_BASE_URL={url}/v1\nexport OPENAI_API_KEY={key}"),
        ClientLines::Gemini => format!("export GOOGLE_GEMINI_BASE_URL={url}\nexport GEMINI_API_KEY={key}"),
    }
}

async fn list(common: &Common, admin: &Admin) -> Result<(), Failure> {
    let mut keys = admin.all(&ApiPath::of(&["keys"]).with("revoked", "true")).await?;
    let text = |key: &Value, member: &str| key[member].as_str().unwrap_or_default().to_owned();
    keys.sort_by_cached_key(|key| (text(key, "member"), text(key, "name"), text(key, "id")));
    let row = |key: &Value| {
        let groups = match key["groups"].as_array() {
            Some(groups) if !groups.is_empty() => resource::cell(&key["groups"]),
            Some(_) | None => "member's default".to_owned(),
        };
        vec![
            text(key, "name"),
            format!("{}…{}", text(key, "prefix"), text(key, "suffix")),
            text(key, "member"),
            groups,
            text(key, "state"),
            super::lists::short_budgets(&key["budget"]),
            text(key, "owner"),
            key["expires_at"].as_str().unwrap_or("never").to_owned(),
            text(key, "id"),
        ]
    };
    let rows: Vec<_> = keys.iter().map(row).collect();
    output::list(common, &keys, &["name", "key", "member", "groups", "state", "budget", "owner", "expires", "id"], &rows);
    Ok(())
}

async fn revoke(common: &Common, admin: &Admin, name: &str) -> Result<(), Failure> {
    let target = ApiPath::of(&["keys", &id(admin, name).await?]);
    report(common, &admin.send(AdminRequest::delete(&target)).await?.body, "revoked");
    Ok(())
}

/// Prints the result of an action on a key.
fn report(common: &Common, key: &Value, done: &str) {
    let text = |member: &str| key[member].as_str().unwrap_or_default();
    let done = format!("{done} {} ({}…{})", text("name"), text("prefix"), text("suffix"));
    output::result(common, &json!({"id": key["id"], "status": key["status"]}), &done);
}

/// Shows the groups, models and limits of a key, and the rest of its budgets.
async fn allowance(common: &Common, admin: &Admin, name: &str) -> Result<(), Failure> {
    let shown = admin.get(&ApiPath::of(&["keys", &id(admin, name).await?, "allowance"])).await?;
    if common.json {
        output::json(&shown);
        return Ok(());
    }
    output::table(&[], &allowance_facts(&shown));
    let titles = ["budget of", "window", "amount USD", "spent USD", "left USD", "when spent", "renews"];
    let row = |budget: &Value| {
        let of = match budget["group"].as_str() {
            Some(group) => format!("group {group}"),
            None => cell(&budget["of"]),
        };
        let members = ["window", "amount", "spent", "left", "action", "renews_at"];
        std::iter::once(of).chain(members.iter().map(|member| cell(&budget[*member]))).collect()
    };
    let budgets: Vec<Vec<String>> = shown["budgets"].as_array().into_iter().flatten().map(row).collect();
    if !budgets.is_empty() {
        output::line("");
        output::table(&titles, &budgets);
    }
    for spent in shown["spent_gateway_budgets"].as_array().into_iter().flatten() {
        let then = spent["renews_at"].as_str().map_or_else(String::new, |at| format!("; it renews at {at}"));
        output::line(&format!("the gateway's own budget ({}) is spent{then}", cell(&spent["window"])));
    }
    Ok(())
}

/// The members of an allowance except its budgets, one per row; limits in words.
fn allowance_facts(allowance: &Value) -> Vec<Vec<String>> {
    let words = |limits: &Value| {
        let set = ["rpm", "tpm", "concurrency"].into_iter().filter_map(|name| Some(format!("{name} {}", limits[name].as_u64()?)));
        let set: Vec<String> = set.collect();
        if set.is_empty() { "–".to_owned() } else { set.join(", ") }
    };
    let of_groups = |limits: &Value| {
        let each = limits.as_array().into_iter().flatten().map(|group| format!("{}: {}", cell(&group["group"]), words(group)));
        let each: Vec<String> = each.collect();
        if each.is_empty() { "–".to_owned() } else { each.join("; ") }
    };
    let fact = |(name, value): (&String, &Value)| {
        let text = match name.as_str() {
            "budgets" | "spent_gateway_budgets" | "object" => return None,
            "limits" | "member_limits" => words(value),
            "group_limits" => of_groups(value),
            _ => cell(value),
        };
        Some(vec![name.replace('_', " "), text])
    };
    allowance.as_object().into_iter().flatten().filter_map(fact).collect()
}

/// Longest time for which a replaced secret stays valid, as the admin API allows it.
const MAX_OVERLAP_S: i64 = 30 * 86_400;

async fn rotate(common: &Common, admin: &Admin, name: &str, overlap: Option<&str>) -> Result<(), Failure> {
    let mut body = json!({});
    if let Some(text) = overlap {
        let overlap_s = time_flag::parse_duration("--overlap", text)?;
        if overlap_s > MAX_OVERLAP_S {
            return Err(Failure::Usage(format!("--overlap is at most 30d, not '{text}'")));
        }
        body["overlap_s"] = overlap_s.into();
    }
    let target = ApiPath::of(&["keys", &id(admin, name).await?, "rotate"]);
    let key = admin.send(AdminRequest::of(Method::POST, &target, &body)).await?.body;
    if common.json {
        output::json(&json!({"id": key["id"], "name": key["name"], "key": key["key"], "previous_until": key["previous_until"]}));
        return Ok(());
    }
    output::line(key["key"].as_str().unwrap_or_default());
    if !common.quiet {
        match key["previous_until"].as_str() {
            Some(until) => output::remark(&format!("this secret is shown once; the previous one stays valid until {until}")),
            None => output::remark("this secret is shown once; the previous one is no longer valid"),
        }
    }
    Ok(())
}

/// Resolves a key id, or a key name if it is unambiguous. Revoked keys are found by id only.
pub(crate) async fn id(admin: &Admin, name: &str) -> Result<String, Failure> {
    if name.strip_prefix("key_").is_some_and(|digits| digits.len() == 26) {
        return Ok(name.to_owned());
    }
    let (mut found, _) = admin.page(&ApiPath::of(&["keys"]).with("name", name).with("limit", "2")).await?;
    match (found.pop(), found.is_empty()) {
        (Some(key), true) => Ok(key["id"].as_str().unwrap_or_default().to_owned()),
        (Some(_), false) => {
            Err(Failure::Machine(format!("more than one key is called '{name}'; name it by its id (`tollgate key list`)")))
        }
        (None, _) => Err(Failure::Machine(format!("there is no key '{name}'; `tollgate key list` shows them"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_for_callers_is_the_public_url_or_the_listen_address() {
        let address = |settings: &[(&str, &'static str)]| {
            address_for_callers(|name| settings.iter().find(|(known, _)| *known == name).map(|(_, text)| *text))
        };
        let listen = ("server.listen", "0.0.0.0:9000");
        assert_eq!(address(&[listen]).as_deref(), Some("http://127.0.0.1:9000"));
        assert_eq!(address(&[listen, ("server.tls_cert", "a.pem")]).as_deref(), Some("https://127.0.0.1:9000"));
        let url = ("console.url", "https://gateway.example.com");
        assert_eq!(address(&[listen, url]).as_deref(), Some("https://gateway.example.com"));
        assert_eq!(address(&[listen, url, ("console.listen", "127.0.0.1:1")]).as_deref(), Some("http://127.0.0.1:9000"));
        let api = ("console.api_url", "https://api.example.com/llm/");
        assert_eq!(address(&[listen, url, api]).as_deref(), Some("https://api.example.com/llm"));
        assert_eq!(address(&[listen, ("console.url", "https://a.example.com/console")]).as_deref(), Some("http://127.0.0.1:9000"));
    }

    #[test]
    fn allowance_is_shown_as_readable_facts() {
        let allowance = json!({
            "object": "key", "name": "ci", "groups": ["a", "b"], "limits": {"rpm": 60, "tpm": null, "concurrency": 2},
            "member_limits": {"rpm": null, "tpm": null, "concurrency": null},
            "group_limits": [{"group": "a", "rpm": null, "tpm": 1_000, "concurrency": null}], "budgets": [{}], "balance": null,
        });
        let facts = allowance_facts(&allowance);
        let expected = [
            ["name", "ci"],
            ["groups", "a, b"],
            ["limits", "rpm 60, concurrency 2"],
            ["member limits", "–"],
            ["group limits", "a: tpm 1000"],
            ["balance", "–"],
        ];
        assert_eq!(facts, expected);
    }

    #[test]
    fn base_urls_have_the_form_that_each_client_expects() {
        let lines = |client| client_lines(client, "http://127.0.0.1:8080", "sk-tg-x");
        assert!(lines(ClientLines::ClaudeCode).starts_with(
            "export ANTHROPIC_BASE_URL=http://127.0.0.1:8080\nexport ANTHROPIC_AUTH_TOKEN=sk-tg-x\nexport CLAUDE_CODE_DISABLE"
        ));
        assert_eq!(lines(ClientLines::Openai), "export OPENAI_BASE_URL=http://127.0.0.1:8080/v1\nexport OPENAI_API_KEY=sk-tg-x");
        let codex = lines(ClientLines::Codex);
        assert!(codex.starts_with("export TOLLGATE_KEY=sk-tg-x\n#"), "{codex}");
        assert!(
            codex.contains("\n# model_provider = \"tollgate\"\n") && codex.contains("\n# env_key = \"TOLLGATE_KEY\"\n"),
            "{codex}"
        );
        assert!(codex.contains("\n# base_url = \"http://127.0.0.1:8080/v1\"\n"), "{codex}");
        assert!(!lines(ClientLines::Anthropic).contains("/v1") && !lines(ClientLines::Gemini).contains("/v1"));
    }
}
