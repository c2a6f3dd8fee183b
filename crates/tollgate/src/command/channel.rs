//! `channel list|show|add|set|remove|set-several|remove-several|enable|disable|test|health|end-cooling`.

mod health;

use http::Method;
use serde_json::{Value, json};

use crate::{
    admin::{self, Admin, AdminError, AdminRefusal, AdminRequest, ApiPath},
    cli::{self, AccountSelection, ChannelNames, Common, FieldArgs, PreviewArgs, ResourceCommand},
    command::resource::{self, Resource},
    failure::Failure,
    output,
};

const CHANNELS: Resource = Resource { path: "channels", word: "channel", columns: &[] };

pub(crate) fn run(common: &Common, subcommand: cli::Channel) -> Result<(), Failure> {
    let saving = PreviewArgs::default();
    match subcommand {
        cli::Channel::List => admin::run(common, async |admin| list(common, admin).await),
        cli::Channel::Show(row) => resource::named(common, CHANNELS, ResourceCommand::Show(row)),
        cli::Channel::Add(row) => resource::named(common, CHANNELS, ResourceCommand::Add { row, saving }),
        cli::Channel::Set(change) => resource::named(common, CHANNELS, ResourceCommand::Set { change, saving }),
        cli::Channel::Remove(row) => resource::named(common, CHANNELS, ResourceCommand::Remove(row)),
        cli::Channel::SetSeveral { channels, members } => {
            admin::run(common, async |admin| set_several(common, admin, &channels, &members).await)
        }
        cli::Channel::RemoveSeveral(channels) => admin::run(common, async |admin| remove_several(common, admin, &channels).await),
        cli::Channel::Enable(accounts) => admin::run(common, async |admin| switch(common, admin, &accounts, "on").await),
        cli::Channel::Disable(accounts) => admin::run(common, async |admin| switch(common, admin, &accounts, "off").await),
        cli::Channel::Test { accounts, model } => {
            admin::run(common, async |admin| test(common, admin, &accounts, model.as_deref()).await)
        }
        cli::Channel::Health { accounts, time } => {
            admin::run(common, async |admin| health::show(common, admin, &accounts, &time).await)
        }
        cli::Channel::EndCooling(accounts) => admin::run(common, async |admin| end_cooling(common, admin, &accounts).await),
    }
}

async fn set_several(common: &Common, admin: &Admin, names: &ChannelNames, members: &FieldArgs) -> Result<(), Failure> {
    let mut body = resource::request_body("change_channels", members)?;
    body.insert("channels".to_owned(), json!(names.names()));
    let target = ApiPath::of(&["channels"]);
    let changed = admin.send(AdminRequest::of(Method::PATCH, &target, &Value::Object(body))).await?.body;
    output::result(common, &changed["items"], &format!("changed the channels {}", names.names().join(", ")));
    Ok(())
}

async fn remove_several(common: &Common, admin: &Admin, names: &ChannelNames) -> Result<(), Failure> {
    let body = json!({"channels": names.names()});
    admin.send(AdminRequest::of(Method::POST, &ApiPath::of(&["channel-removals"]), &body)).await?;
    let removed = json!({"channels": names.names(), "status": "removed"});
    output::result(common, &removed, &format!("removed the channels {}", names.names().join(", ")));
    Ok(())
}

async fn switch(common: &Common, admin: &Admin, accounts: &AccountSelection, to: &str) -> Result<(), Failure> {
    let AccountSelection { channel, account } = accounts;
    let target = match account {
        Some(account) => ApiPath::of(&["channels", channel, "accounts", account]),
        None => ApiPath::of(&["channels", channel]),
    };
    let row = admin.send(AdminRequest::of(Method::PATCH, &target, &json!({"status": to}))).await?.body;
    let what = account.as_ref().map_or_else(|| channel.clone(), |account| format!("{channel}/{account}"));
    output::result(common, &json!({"channel": what, "status": to, "revision": row["revision"]}), &format!("{what} is {to}"));
    Ok(())
}

async fn end_cooling(common: &Common, admin: &Admin, accounts: &AccountSelection) -> Result<(), Failure> {
    let AccountSelection { channel, account } = accounts;
    let target = ApiPath::of(&["channels", channel, "end-cooling"]);
    let body = account.as_ref().map_or_else(|| json!({}), |account| json!({"account": account}));
    let ended = admin.send(AdminRequest::of(Method::POST, &target, &body)).await?.body;
    if common.json {
        output::json(&json!({"channel": channel, "accounts": ended["accounts"]}));
        return Ok(());
    }
    for account in ended["accounts"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        output::line(&format!("{channel}/{account}: usable again"));
    }
    Ok(())
}

async fn list(common: &Common, admin: &Admin) -> Result<(), Failure> {
    let channels = admin.all(&ApiPath::of(&["channels"])).await?;
    let health = admin.all(&ApiPath::of(&["health"])).await?;
    let (mut items, mut rows) = (Vec::new(), Vec::new());
    for channel in &channels {
        let text = |member: &str| channel[member].as_str().unwrap_or_default().to_owned();
        let serves = channel["serves"].as_array().into_iter().flatten();
        let models: Vec<&str> = serves.filter_map(|serves| serves["model"].as_str()).collect();
        let accounts: Vec<(String, String)> = health
            .iter()
            .filter(|account| account["channel"] == channel["name"])
            .map(|account| (account["account"].as_str().unwrap_or_default().to_owned(), resource::account_state(account)))
            .collect();
        items.push(json!({
            "id": channel["id"], "name": channel["name"], "provider": channel["provider"], "protocol": channel["protocol"],
            "status": channel["status"], "owner": channel["owner"], "base_url": channel["base_url"], "models": models,
            "accounts": accounts.iter().map(|(name, state)| json!({"name": name, "state": state})).collect::<Vec<_>>(),
        }));
        let shown = if accounts.is_empty() { vec![("none".to_owned(), "–".to_owned())] } else { accounts };
        for (number, (name, state)) in shown.into_iter().enumerate() {
            let first_row = |text: String| if number == 0 { text } else { String::new() };
            rows.push(vec![
                first_row(text("name")),
                first_row(text("provider")),
                first_row(text("protocol")),
                first_row(text("status")),
                name,
                state,
                first_row(models.join(", ")),
                first_row(text("base_url")),
            ]);
        }
    }
    let headings = ["channel", "provider", "protocol", "status", "account", "state", "models", "address"];
    output::list(common, &items, &headings, &rows);
    Ok(())
}

/// Progress of one account's test.
#[derive(Default)]
struct AccountTestProgress {
    steps: Vec<Value>,
    has_heading: bool,
}

/// Tests the accounts of a channel and prints each step as it completes.
async fn test(common: &Common, admin: &Admin, accounts: &AccountSelection, model: Option<&str>) -> Result<(), Failure> {
    let AccountSelection { channel, account } = accounts;
    let row = admin.get(&ApiPath::of(&["channels", channel])).await?;
    let mut body = json!({});
    for (name, value) in [("account", account.as_deref()), ("model", model)] {
        if let Some(value) = value {
            body[name] = value.into();
        }
    }
    let target = ApiPath::of(&["channels", channel, "test"]).with("format", "jsonl");
    let mut lines = match admin.lines(Method::POST, &target, Some(&body)).await {
        Err(AdminError::Refused(AdminRefusal { code, .. })) if code == "built_in" => {
            let text = format!("{channel} is built in: there is no upstream to test");
            output::result(common, &json!({"account": null, "steps": [], "error": null}), &text);
            return Ok(());
        }
        lines => lines?,
    };
    let (mut progress, mut failed) = (AccountTestProgress::default(), 0);
    while let Some(line) = lines.next().await? {
        let line: Value =
            serde_json::from_slice(&line).map_err(|_| Failure::Machine("the response cannot be parsed".to_owned()))?;
        if !progress.has_heading && !common.json {
            let text = |member: &str| line[member].as_str().unwrap_or_default();
            let address = row["base_url"].as_str().unwrap_or_default();
            output::line(&format!("{channel}/{} with {} ({address})", text("account"), text("model")));
            progress.has_heading = true;
        }
        if line["step"].is_string() {
            print_step(common, &mut progress, &line);
        } else {
            failed += usize::from(!print_end(common, &progress, &line));
            progress = AccountTestProgress::default();
        }
    }
    if failed == 0 { Ok(()) } else { Err(Failure::Machine(format!("{failed} account(s) failed the test"))) }
}

fn print_step(common: &Common, progress: &mut AccountTestProgress, line: &Value) {
    let text = |member: &str| line[member].as_str().unwrap_or_default();
    let took = line["took_ms"].as_f64().unwrap_or_default();
    if !common.json {
        output::line(&format!("  ok    {:<12}{took:>8.1} ms  {}", text("step"), text("detail")));
    }
    progress.steps.push(json!({"step": line["step"], "ms": took, "detail": line["detail"]}));
}

/// Prints the end of a test; returns whether it passed.
fn print_end(common: &Common, progress: &AccountTestProgress, line: &Value) -> bool {
    if common.json {
        let mut result = json!({"account": line["account"], "steps": progress.steps, "error": line["error"]});
        for field in ["tokens_input", "tokens_output", "tokens_cache_read", "tokens_cache_write", "cost"] {
            result[field] = line[field].clone();
        }
        output::json(&result);
    } else if let Some(fault) = line["error"].as_str() {
        output::line(&format!("  FAIL  {fault}"));
    } else if let Some(cost) = line["cost"].as_str() {
        output::line(&format!("  cost  {cost} USD"));
    } else if line["tokens_input"].is_u64() {
        output::line(&format!("  cost  unknown: the channel has no price for {}", line["model"].as_str().unwrap_or_default()));
    }
    line["error"].is_null()
}
