//! Rows of the catalog: listed, shown, made, changed, removed. Which members there are is the admin API's to say.

use http::Method;
use serde_json::{Map, Value, json};

use crate::{
    admin::{Admin, AdminRequest, ApiPath, FolderPolicy},
    cli::{Account, Common, FieldArgs, PreviewArgs, ResourceCommand},
    command::effects,
    compose, config,
    failure::Failure,
    output,
};

/// A column of a list: its heading, and the member that stands in it.
pub(crate) type Column = (&'static str, &'static str);

/// What a resource is called: in paths, in names of routes, for people.
#[derive(Clone, Copy)]
pub(crate) struct Resource {
    /// In paths, such as `groups`.
    pub(crate) path: &'static str,
    /// For people and in names of routes, such as `group`.
    pub(crate) word: &'static str,
    /// Columns of its list.
    pub(crate) columns: &'static [Column],
}

const GROUPS: Resource = Resource {
    path: "groups",
    word: "group",
    columns: &[
        ("group", "name"),
        ("visibility", "visibility"),
        ("channels", "channels"),
        ("models", "models"),
        ("multiplier", "sale_multiplier"),
        ("owner", "owner"),
        ("id", "id"),
    ],
};
const MEMBERS: Resource = Resource {
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
const ACCOUNTS: Resource = Resource { path: "accounts", word: "account", columns: &[] };

/// `group …`.
pub(crate) fn groups(common: &Common, verb: ResourceCommand) -> Result<(), Failure> {
    named(common, GROUPS, verb)
}

/// `member …`.
pub(crate) fn members(common: &Common, verb: ResourceCommand) -> Result<(), Failure> {
    named(common, MEMBERS, verb)
}

/// The verbs of a resource of named rows.
pub(crate) fn named(common: &Common, resource: Resource, verb: ResourceCommand) -> Result<(), Failure> {
    compose::block_on(async {
        let admin = Admin::open(common, FolderPolicy::MustExist).await?;
        match verb {
            ResourceCommand::List => list(common, &admin, resource).await,
            ResourceCommand::Show { name } => show(common, &admin, &[resource.path, &name]).await,
            ResourceCommand::Add { name, members, saving } => {
                add_weighed(common, &admin, resource, &[resource.path], &name, &members, saving).await
            }
            ResourceCommand::Set { name, members, saving } => {
                set_weighed(common, &admin, resource, &[resource.path, &name], &members, saving).await
            }
            ResourceCommand::Remove { name } => remove(common, &admin, resource, &[resource.path, &name]).await,
        }
    })
}

/// `account …`.
pub(crate) fn accounts(common: &Common, verb: Account) -> Result<(), Failure> {
    compose::block_on(async {
        let admin = Admin::open(common, FolderPolicy::MustExist).await?;
        match verb {
            Account::List { channel } => list_accounts(common, &admin, &channel).await,
            Account::Show { channel, account } => show(common, &admin, &["channels", &channel, "accounts", &account]).await,
            Account::Add { channel, account, members } => {
                add(common, &admin, ACCOUNTS, &["channels", &channel, "accounts"], &account, &members).await
            }
            Account::Set { channel, account, members } => {
                set(common, &admin, ACCOUNTS, &["channels", &channel, "accounts", &account], &members).await
            }
            Account::Remove { channel, account } => {
                remove(common, &admin, ACCOUNTS, &["channels", &channel, "accounts", &account]).await
            }
        }
    })
}

async fn list(common: &Common, admin: &Admin, resource: Resource) -> Result<(), Failure> {
    let items = admin.all(&ApiPath::of(&[resource.path])).await?;
    print_list(common, resource.columns, &items);
    Ok(())
}

async fn list_accounts(common: &Common, admin: &Admin, channel: &str) -> Result<(), Failure> {
    let mut items = admin.all(&ApiPath::of(&["channels", channel, "accounts"])).await?;
    let states = super::health::account_states(admin).await?;
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

/// Shows a row.
pub(crate) async fn show(common: &Common, admin: &Admin, path: &[&str]) -> Result<(), Failure> {
    let row = admin.get(&ApiPath::of(path)).await?;
    print_row(common, &row);
    Ok(())
}

/// Makes a row.
pub(crate) async fn add(
    common: &Common,
    admin: &Admin,
    resource: Resource,
    path: &[&str],
    name: &str,
    members: &FieldArgs,
) -> Result<(), Failure> {
    add_weighed(common, admin, resource, path, name, members, PreviewArgs::default()).await
}

async fn add_weighed(
    common: &Common,
    admin: &Admin,
    resource: Resource,
    path: &[&str],
    name: &str,
    members: &FieldArgs,
    saving: PreviewArgs,
) -> Result<(), Failure> {
    let mut body = written(&format!("make_{}", resource.word), members)?;
    if body.insert("name".to_owned(), name.into()).is_some() {
        return Err(Failure::Usage("the name stands before the fields; leave name= away".to_owned()));
    }
    let (target, body) = (ApiPath::of(path), Value::Object(body));
    if let Some(row) = save(common, admin, resource, AdminRequest::of(Method::POST, &target, &body), saving).await? {
        told(common, &row, &format!("made {} {name}", resource.word));
    }
    Ok(())
}

/// Changes a row.
pub(crate) async fn set(
    common: &Common,
    admin: &Admin,
    resource: Resource,
    path: &[&str],
    members: &FieldArgs,
) -> Result<(), Failure> {
    set_weighed(common, admin, resource, path, members, PreviewArgs::default()).await
}

/// The same for rows whose price limits are looked at first.
pub(crate) async fn set_weighed(
    common: &Common,
    admin: &Admin,
    resource: Resource,
    path: &[&str],
    members: &FieldArgs,
    saving: PreviewArgs,
) -> Result<(), Failure> {
    let route = format!("change_{}", resource.word);
    let body = written(&route, members)?;
    if body.is_empty() {
        let known: Vec<&str> = tollgate_console::route_fields(&route).into_iter().map(|(name, _)| name).collect();
        return Err(Failure::Usage(format!("say what to change, such as rpm=60; there are {}", known.join(", "))));
    }
    let (target, body) = (ApiPath::of(path), Value::Object(body));
    if let Some(row) = save(common, admin, resource, AdminRequest::of(Method::PATCH, &target, &body), saving).await? {
        let name = row["name"].as_str().unwrap_or_default();
        told(common, &row, &format!("changed {} {name}", resource.word));
    }
    Ok(())
}

/// Creates or changes a row. Channels that price limits would newly exclude are shown first, and must be confirmed.
/// `None`: nothing was saved, as it was asked for.
async fn save(
    common: &Common,
    admin: &Admin,
    resource: Resource,
    sending: AdminRequest<'_>,
    saving: PreviewArgs,
) -> Result<Option<Value>, Failure> {
    if !["group", "key"].contains(&resource.word) {
        if saving.dry_run {
            return Err(Failure::Usage(format!("--dry-run shows what price limits do; a {} has none", resource.word)));
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
    // What was not served before is shown, and lost by nobody.
    let loses = would_be["effects"].as_array().is_some_and(|effects| effects.iter().any(|effect| effect["served_before"] == true));
    if loses && !saving.yes && !effects::confirmed(&format!("save this {}?", resource.word))? {
        return Ok(None);
    }
    let confirmed = if excludes { sending.target.clone().with("confirm", "true") } else { sending.target.clone() };
    Ok(Some(admin.send(AdminRequest { target: &confirmed, ..sending }).await?.body))
}

async fn remove(common: &Common, admin: &Admin, resource: Resource, path: &[&str]) -> Result<(), Failure> {
    let target = ApiPath::of(path);
    admin.send(AdminRequest::delete(&target)).await?;
    let name = path.last().copied().unwrap_or_default();
    told(common, &json!({"name": name, "status": "removed"}), &format!("removed {} {name}", resource.word));
    Ok(())
}

/// Removes a row of a named resource.
pub(crate) async fn remove_named(common: &Common, admin: &Admin, resource: Resource, name: &str) -> Result<(), Failure> {
    remove(common, admin, resource, &[resource.path, name]).await
}

/// The members of a request, secrets read where they are named.
fn written(route: &str, members: &FieldArgs) -> Result<Map<String, Value>, Failure> {
    let mut body = tollgate_console::parse_field_args(route, &members.words)
        .map_err(|fault| Failure::Usage(format!("{}; `show` has all fields", fault.trim_end_matches('.'))))?;
    if let Some(Value::String(credential)) = body.get_mut("credential") {
        *credential = config::reference(credential).map_err(|fault| Failure::written(format!("credential: {fault}")))?;
    }
    Ok(body)
}

/// What was done.
fn told(common: &Common, row: &Value, words: &str) {
    if common.json {
        output::json(row);
    } else {
        output::line(words);
    }
}

/// Rows in columns, or all of them as JSON.
pub(crate) fn print_list(common: &Common, columns: &[Column], items: &[Value]) {
    if common.json {
        output::json(&json!({"items": items}));
        return;
    }
    let mut rows = vec![columns.iter().map(|(heading, _)| (*heading).to_owned()).collect::<Vec<_>>()];
    rows.extend(items.iter().map(|item| columns.iter().map(|(_, member)| cell(&item[*member])).collect()));
    output::table(&rows);
}

/// A row, member by member.
fn print_row(common: &Common, row: &Value) {
    if common.json {
        output::json(row);
        return;
    }
    let members = row.as_object().into_iter().flatten();
    output::table(&members.map(|(name, value)| vec![name.clone(), cell(value)]).collect::<Vec<_>>());
}

/// A value for people: lists of words with commas, nothing as a dash, what is nested as JSON.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::String(text) if text.is_empty() => "–".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "–".to_owned(),
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
    fn cells_are_for_people() {
        for (value, shown) in [
            (json!(null), "–"),
            (json!(["a", "b"]), "a, b"),
            (json!([]), "–"),
            (json!([{"a": 1}]), r#"[{"a":1}]"#),
            (json!(0), "0"),
            (json!("x"), "x"),
        ] {
            assert_eq!(cell(&value), shown);
        }
    }

    #[test]
    fn a_credential_is_read_where_it_is_named() {
        let members = |word: &str| FieldArgs { words: vec![word.to_owned()] };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("credential");
        std::fs::write(&file, "sk-secret\n").unwrap();
        let body = written("make_account", &members(&format!("credential=file:{}", file.display()))).unwrap();
        assert_eq!(body["credential"], "sk-secret");
        assert_eq!(written("make_account", &members("credential=env:NO_SUCH_NAME_HERE")).unwrap_err().code(), 3);
        assert_eq!(written("make_account", &members("rpms=1")).unwrap_err().code(), 2);
    }
}
