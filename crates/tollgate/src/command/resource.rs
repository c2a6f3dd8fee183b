//! `group`, `member` and `account`: lists, shows, makes, changes and removes rows of the catalog. The admin API defines the
//! fields.

use std::collections::HashMap;

use http::Method;
use serde_json::{Map, Value, json};

use crate::{
    admin::{self, Admin, AdminRequest, ApiPath},
    cli::{Account, AccountName, Common, FieldArgs, NewRow, PreviewArgs, ResourceCommand, RowChange, RowName},
    command::effects,
    config,
    failure::Failure,
    output,
};

/// A column of a list: heading and JSON member.
pub(crate) type Column = (&'static str, &'static str);

/// A resource of the admin API.
#[derive(Clone, Copy)]
pub(crate) struct Resource {
    /// Name in paths, such as `groups`.
    pub(crate) path: &'static str,
    /// Name in messages and in ids of routes, such as `group`.
    pub(crate) word: &'static str,
    /// Columns of its list.
    pub(crate) columns: &'static [Column],
}

pub(crate) const GROUPS: Resource = Resource {
    path: "groups",
    word: "group",
    columns: &[
        ("group", "name"),
        ("visibility", "visibility"),
        ("channels", "channels"),
        ("models", "models"),
        ("multiplier", "sale_multiplier"),
        ("of models", "model_multipliers"),
        ("owner", "owner"),
        ("id", "id"),
    ],
};
pub(crate) const MEMBERS: Resource = Resource {
    path: "members",
    word: "member",
    columns: &[
        ("member", "name"),
        ("role", "role"),
        ("status", "status"),
        ("billing", "billing"),
        ("default group", "default_group"),
        ("private groups", "groups"),
        ("owner", "owner"),
        ("id", "id"),
    ],
};
pub(crate) const DESTINATIONS: Resource = Resource {
    path: "alert-destinations",
    word: "destination",
    columns: &[
        ("destination", "name"),
        ("kind", "kind"),
        ("address", "url"),
        ("status", "status"),
        ("rules", "rules"),
        ("id", "id"),
    ],
};
const ACCOUNTS: Resource = Resource { path: "accounts", word: "account", columns: &[] };

/// Runs a subcommand for a resource of named rows.
pub(crate) fn named(common: &Common, resource: Resource, subcommand: ResourceCommand) -> Result<(), Failure> {
    admin::run(common, async |admin| {
        let (rows, path) = (Rows { common, admin, resource }, resource.path);
        match subcommand {
            ResourceCommand::List => {
                print_list(common, resource.columns, &admin.all(&ApiPath::of(&[path])).await?);
                Ok(())
            }
            ResourceCommand::Show(RowName { name }) => rows.show(&[path, &name]).await,
            ResourceCommand::Add { row: NewRow { name, members }, saving } => rows.add(&[path], &name, &members, saving).await,
            ResourceCommand::Set { change: RowChange { row, members }, saving } => {
                rows.set(&[path, &row.name], &members, saving).await
            }
            ResourceCommand::Remove(RowName { name }) => rows.remove(&[path, &name]).await,
        }
    })
}

pub(crate) fn accounts(common: &Common, subcommand: Account) -> Result<(), Failure> {
    admin::run(common, async |admin| {
        let rows = Rows { common, admin, resource: ACCOUNTS };
        let saving = PreviewArgs::default();
        match subcommand {
            Account::List { channel } => list_accounts(common, admin, &channel).await,
            Account::Show(AccountName { channel, account }) => rows.show(&["channels", &channel, "accounts", &account]).await,
            Account::Add { account: AccountName { channel, account }, members } => {
                rows.add(&["channels", &channel, "accounts"], &account, &members, saving).await
            }
            Account::Set { account: AccountName { channel, account }, members } => {
                rows.set(&["channels", &channel, "accounts", &account], &members, saving).await
            }
            Account::Remove(AccountName { channel, account }) => rows.remove(&["channels", &channel, "accounts", &account]).await,
        }
    })
}

async fn list_accounts(common: &Common, admin: &Admin, channel: &str) -> Result<(), Failure> {
    let mut items = admin.all(&ApiPath::of(&["channels", channel, "accounts"])).await?;
    let health = admin.all(&ApiPath::of(&["health"])).await?;
    let states: HashMap<_, _> =
        health.iter().filter_map(|account| Some((account["id"].as_str()?, account_state(account)))).collect();
    for item in &mut items {
        let state = item["id"].as_str().and_then(|id| states.get(id)).cloned();
        item["state"] = state.into();
    }
    let columns = [
        ("account", "name"),
        ("status", "status"),
        ("state", "state"),
        ("rpm", "rpm"),
        ("tpm", "tpm"),
        ("concurrency", "concurrency"),
        ("cost multiplier", "cost_multiplier"),
        ("owner", "owner"),
        ("id", "id"),
    ];
    print_list(common, &columns, &items);
    Ok(())
}

/// Operations on the rows of a resource. `path` is the path of a row, or of the list for a new row.
pub(crate) struct Rows<'a> {
    pub(crate) common: &'a Common,
    pub(crate) admin: &'a Admin,
    pub(crate) resource: Resource,
}

impl Rows<'_> {
    pub(crate) async fn show(&self, path: &[&str]) -> Result<(), Failure> {
        let row = self.admin.get(&ApiPath::of(path)).await?;
        if self.common.json {
            output::json(&row);
            return Ok(());
        }
        let members = row.as_object().into_iter().flatten();
        output::table(&[], &members.map(|(name, value)| vec![name.clone(), cell(value)]).collect::<Vec<_>>());
        Ok(())
    }

    async fn add(&self, path: &[&str], name: &str, members: &FieldArgs, saving: PreviewArgs) -> Result<(), Failure> {
        let word = self.resource.word;
        let mut body = request_body(&format!("make_{word}"), members)?;
        if body.insert("name".to_owned(), name.into()).is_some() {
            return Err(Failure::Usage("give the name as an argument, not as name=".to_owned()));
        }
        let (target, body) = (ApiPath::of(path), Value::Object(body));
        if let Some(row) = self.save(AdminRequest::of(Method::POST, &target, &body), saving).await? {
            output::result(self.common, &row, &format!("made {word} {name}"));
        }
        Ok(())
    }

    pub(crate) async fn set(&self, path: &[&str], members: &FieldArgs, saving: PreviewArgs) -> Result<(), Failure> {
        let word = self.resource.word;
        let route = format!("change_{word}");
        let body = request_body(&route, members)?;
        if body.is_empty() {
            let known: Vec<&str> = tollgate_console::route_fields(&route).into_iter().map(|(name, _)| name).collect();
            return Err(Failure::Usage(format!("nothing to change: give fields such as rpm=60 ({})", known.join(", "))));
        }
        let (target, body) = (ApiPath::of(path), Value::Object(body));
        if let Some(row) = self.save(AdminRequest::of(Method::PATCH, &target, &body), saving).await? {
            output::result(self.common, &row, &format!("changed {word} {}", row["name"].as_str().unwrap_or_default()));
        }
        Ok(())
    }

    /// Creates or changes a row. Channels that price limits would newly exclude are shown first, and must be confirmed. Returns
    /// `None` if nothing was saved, as requested.
    async fn save(&self, sending: AdminRequest<'_>, saving: PreviewArgs) -> Result<Option<Value>, Failure> {
        let Self { common, admin, resource: Resource { word, .. } } = self;
        if !["group", "key"].contains(word) {
            if saving.dry_run {
                return Err(Failure::Usage(format!("--dry-run shows what price limits do; a {word} has none")));
            }
            return Ok(Some(admin.send(sending).await?.body));
        }
        let dry = sending.target.clone().with("dry_run", "true");
        let would_be = admin.send(AdminRequest { target: &dry, ..sending.clone() }).await?.body;
        let excludes = would_be["effects"].as_array().is_some_and(|effects| !effects.is_empty());
        if saving.dry_run {
            if common.json {
                output::json(&would_be);
            } else if excludes || would_be["effects_cut"] == true {
                effects::print(&would_be);
            } else {
                output::line("price limits would exclude no further channel");
            }
            return Ok(None);
        }
        if !common.json {
            effects::print(&would_be);
        }
        // A model that was not served before is shown, but does not count as lost.
        let is_lost = |effect: &Value| effect["served_before"] == true;
        let loses = would_be["effects"].as_array().is_some_and(|effects| effects.iter().any(is_lost));
        if loses && !saving.yes && !effects::confirmed(&format!("save this {word}?"))? {
            return Ok(None);
        }
        let confirmed = if excludes { sending.target.clone().with("confirm", "true") } else { sending.target.clone() };
        Ok(Some(admin.send(AdminRequest { target: &confirmed, ..sending }).await?.body))
    }

    async fn remove(&self, path: &[&str]) -> Result<(), Failure> {
        self.admin.send(AdminRequest::delete(&ApiPath::of(path))).await?;
        let name = path.last().copied().unwrap_or_default();
        let done = format!("removed {} {name}", self.resource.word);
        output::result(self.common, &json!({"name": name, "status": "removed"}), &done);
        Ok(())
    }
}

/// Fields that may refer to a secret.
const SECRETS: [&str; 3] = ["credential", "secret", "url"];

/// The body of a request, with the secrets that `credential=env:NAME` or `file:PATH` refer to.
pub(super) fn request_body(route: &str, members: &FieldArgs) -> Result<Map<String, Value>, Failure> {
    let mut body = tollgate_console::parse_field_args(route, &members.words)
        .map_err(|fault| Failure::Usage(format!("{}; `show` has all fields", fault.trim_end_matches('.'))))?;
    for name in SECRETS {
        if let Some(Value::String(secret)) = body.get_mut(name) {
            *secret = config::reference(secret).map_err(|fault| Failure::invalid(format!("{name}: {fault}")))?;
        }
    }
    Ok(body)
}

/// Prints rows in columns, or as JSON.
pub(crate) fn print_list(common: &Common, columns: &[Column], items: &[Value]) {
    let headings: Vec<&str> = columns.iter().map(|(heading, _)| *heading).collect();
    let row = |item: &Value| columns.iter().map(|(_, member)| cell(&item[*member])).collect();
    output::list(common, items, &headings, &items.iter().map(row).collect::<Vec<_>>());
}

/// The state of an account as shown in tables, such as `cooling until … (rate limited)`.
pub(super) fn account_state(account: &Value) -> String {
    let reason = || account["reason"].as_str().unwrap_or("unknown").replace('_', " ");
    match (account["status"].as_str(), account["state"].as_str(), account["until"].as_str()) {
        (Some("off"), ..) => "switched off by an operator".to_owned(),
        (_, Some("due"), _) => "usable (next request is the probe)".to_owned(),
        (_, Some("probing"), _) => "a request is trying it".to_owned(),
        (_, Some("cooling"), Some(until)) => format!("cooling until {until} ({})", reason()),
        (_, Some("resting"), Some(until)) => format!("resting until {until} ({})", reason()),
        (_, Some("resting"), None) => format!("resting until a test passes ({})", reason()),
        (_, state, _) => state.unwrap_or("usable").to_owned(),
    }
}

/// A value in a table: lists of texts separated by commas, empty values as a dash, nested values as JSON.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::String(text) if text.is_empty() => "–".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "–".to_owned(),
        Value::Object(members) if members.is_empty() => "–".to_owned(),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
        }
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_show_lists_and_empty_values() {
        for (value, shown) in [
            (json!(null), "–"),
            (json!(["a", "b"]), "a, b"),
            (json!([]), "–"),
            (json!({}), "–"),
            (json!([{"a": 1}]), r#"[{"a":1}]"#),
            (json!(0), "0"),
            (json!("x"), "x"),
        ] {
            assert_eq!(cell(&value), shown);
        }
    }

    #[test]
    fn credential_is_read_from_its_reference() {
        let members = |word: &str| FieldArgs { words: vec![word.to_owned()] };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("credential");
        std::fs::write(&file, "sk-secret\n").unwrap();
        let body = request_body("make_account", &members(&format!("credential=file:{}", file.display()))).unwrap();
        assert_eq!(body["credential"], "sk-secret");
        assert_eq!(request_body("make_account", &members("credential=env:NO_SUCH_NAME_HERE")).unwrap_err().code(), 3);
        assert_eq!(request_body("make_account", &members("rpms=1")).unwrap_err().code(), 2);
    }

    #[test]
    fn states_are_readable() {
        let of = |status: &str, state_word: &str, reason: Option<&str>, until: Option<&str>| {
            account_state(&json!({"status": status, "state": state_word, "reason": reason, "until": until}))
        };
        assert_eq!(of("on", "usable", None, None), "usable");
        assert_eq!(of("off", "cooling", Some("rate_limited"), Some("T")), "switched off by an operator");
        assert_eq!(of("on", "cooling", Some("rate_limited"), Some("T")), "cooling until T (rate limited)");
        assert_eq!(of("on", "resting", Some("account_refused"), None), "resting until a test passes (account refused)");
        assert_eq!(of("on", "due", None, None), "usable (next request is the probe)");
    }
}
