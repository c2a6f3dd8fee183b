//! `settings`: the effective settings of this machine or of a running gateway, and changes of those that need no restart.

use http::Method;
use serde_json::{Value, json};

use crate::{
    admin::{self, AdminRequest, ApiPath},
    cli::{Common, Settings, SettingsAction},
    command::resource::{cell, print_list},
    failure::Failure,
    output,
};

pub(crate) fn run(common: &Common, arguments: &Settings) -> Result<(), Failure> {
    match &arguments.action {
        None => list(common, arguments.source.as_deref()),
        Some(SettingsAction::Show(setting)) => show(common, &setting.name),
        Some(SettingsAction::Set { setting, value }) => set(common, &setting.name, value),
        Some(SettingsAction::Unset(setting)) => unset(common, &setting.name),
    }
}

fn list(common: &Common, source: Option<&str>) -> Result<(), Failure> {
    admin::run(common, async |admin| {
        let (items, _) = admin.page(&ApiPath::of(&["settings"]).maybe("source", source)).await?;
        let columns = [("setting", "name"), ("value", "value"), ("unit", "unit"), ("from", "source"), ("variable", "variable")];
        print_list(common, &columns, &items);
        Ok(())
    })
}

fn show(common: &Common, name: &str) -> Result<(), Failure> {
    admin::run(common, async |admin| {
        let setting = admin.get(&ApiPath::of(&["settings", name])).await?;
        if common.json {
            output::json(&setting);
            return Ok(());
        }
        let rows: Vec<Vec<String>> =
            setting.as_object().into_iter().flatten().map(|(member, value)| vec![member.clone(), cell(value)]).collect();
        output::table(&[], &rows);
        Ok(())
    })
}

fn set(common: &Common, name: &str, value: &str) -> Result<(), Failure> {
    admin::run(common, async |admin| {
        let (target, body) = (ApiPath::of(&["settings", name]), json!({"value": value}));
        let setting = admin.send(AdminRequest::of(Method::PUT, &target, &body)).await?.body;
        let value = cell(&setting["value"]);
        output::result(common, &setting, &format!("{name} is now {value}{}", unit(&setting)));
        Ok(())
    })
}

fn unit(setting: &Value) -> String {
    setting["unit"].as_str().map_or_else(String::new, |unit| format!(" {unit}"))
}

fn unset(common: &Common, name: &str) -> Result<(), Failure> {
    admin::run(common, async |admin| {
        let target = ApiPath::of(&["settings", name]);
        admin.send(AdminRequest::delete(&target)).await?;
        // A setting of another version has no value.
        let setting = admin.get(&target).await.unwrap_or_else(|_| json!({"name": name}));
        let value = cell(&setting["value"]);
        output::result(common, &setting, &format!("{name} is now {value}{}, its default", unit(&setting)));
        Ok(())
    })
}
