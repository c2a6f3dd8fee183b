//! `alert`: alerts, their rules, the destinations that messages go to, and test messages.

use http::Method;
use serde_json::Value;

use crate::{
    admin::{self, AdminRequest, ApiPath},
    cli::{Alert, AlertState, Common},
    command::resource::{self, DESTINATIONS, print_list},
    failure::Failure,
    output,
};

pub(crate) fn run(common: &Common, subcommand: Alert) -> Result<(), Failure> {
    match subcommand {
        Alert::List { state, rule, limit } => list(common, state, rule.as_deref(), limit),
        Alert::Show { id } => show(common, &id),
        Alert::Rules => rules(common),
        Alert::Destination(subcommand) => resource::named(common, DESTINATIONS, subcommand),
        Alert::Test { destination } => test(common, &destination),
    }
}

fn list(common: &Common, state: Option<AlertState>, rule: Option<&str>, limit: u32) -> Result<(), Failure> {
    admin::run(common, async |admin| {
        let path = ApiPath::of(&["alerts"]).with("limit", &limit.to_string()).maybe("rule", rule);
        let path = path.maybe("state", state.map(AlertState::as_str));
        let (mut items, more) = admin.page(&path).await?;
        for item in &mut items {
            let messages = item["messages"].as_array().into_iter().flatten();
            let states: Vec<String> = messages.map(|it| format!("{} {}", cell(&it["destination"]), cell(&it["state"]))).collect();
            item["told"] = states.join(", ").into();
        }
        let columns =
            [("raised", "raised_at"), ("state", "state"), ("rule", "rule"), ("what", "text"), ("messages", "told"), ("id", "id")];
        print_list(common, &columns, &items);
        if more.is_some() && !common.json && !common.quiet {
            eprintln!("there are older ones; --limit shows up to 1000");
        }
        Ok(())
    })
}

fn cell(value: &Value) -> String {
    resource::cell(value)
}

fn show(common: &Common, id: &str) -> Result<(), Failure> {
    admin::run(common, async |admin| {
        let alert = admin.get(&ApiPath::of(&["alerts", id])).await?;
        if common.json {
            output::json(&alert);
            return Ok(());
        }
        let rows: Vec<Vec<String>> =
            alert.as_object().into_iter().flatten().map(|(name, value)| vec![name.clone(), cell(value)]).collect();
        output::table(&[], &rows);
        Ok(())
    })
}

fn rules(common: &Common) -> Result<(), Failure> {
    admin::run(common, async |admin| {
        let (mut items, _) = admin.page(&ApiPath::of(&["alert-rules"])).await?;
        for item in &mut items {
            let settings = item["settings"].as_array().into_iter().flatten();
            let shown: Vec<String> = settings.map(|it| format!("{}={}", cell(&it["name"]), cell(&it["value"]))).collect();
            item["thresholds"] = shown.join(", ").into();
        }
        print_list(common, &[("rule", "name"), ("open", "open"), ("thresholds", "thresholds"), ("alerts when", "doc")], &items);
        Ok(())
    })
}

fn test(common: &Common, destination: &str) -> Result<(), Failure> {
    admin::run(common, async |admin| {
        let target = ApiPath::of(&["alert-destinations", destination, "test"]);
        let tested = admin.send(AdminRequest::of(Method::POST, &target, &Value::Null)).await?.body;
        if tested["delivered"] == true {
            output::result(common, &tested, &format!("{destination} has accepted a test message"));
            return Ok(());
        }
        if common.json {
            output::json(&tested);
        }
        Err(Failure::Machine(format!("{destination} was not reached: {}", cell(&tested["fault"]))))
    })
}
