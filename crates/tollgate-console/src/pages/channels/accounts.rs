//! Accounts of a channel: their credential, limits and share of the cost.

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::state::{call_of, one, path};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        control::{self, ControlSection, limit_text},
        form::{FormData, FormState},
        layout::Layout,
        locale::Locale,
        operations,
        preferences::Toast,
        reply::{PageFailure, PageReply},
        request::{PageRequest, path_of},
    },
};

const FIELDS: &[&str] = &["name", "credential", "concurrency", "rpm", "tpm", "cost_multiplier", "typed_name"];

#[derive(Debug, Template)]
#[template(path = "account.html")]
struct AccountPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    back: String,
    action: String,
    section: ControlSection,
    limits: ControlSection,
    is_new: bool,
    is_of_file: bool,
}

#[derive(Debug, Deserialize)]
struct AccountObject {
    name: String,
    owner: String,
    status: String,
    concurrency: u64,
    rpm: u64,
    tpm: u64,
    cost_multiplier: Value,
}

fn call(request: &PageRequest) -> ApiCall {
    let (channel, account) = (request.path_param("name"), request.path_param("account"));
    ApiCall { path: path_of(&[("name", channel), ("account", account)]), ..ApiCall::default() }
}

fn back(request: &PageRequest) -> PageReply {
    PageReply::redirect(&request.url(&path(request.path_param("name"))))
}

pub(super) async fn new(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = FormState::of(FormData::of(&[("status", "true"), ("cost_multiplier", "1")]));
    page(&request, &form, None).await
}

pub(super) async fn make(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let mut body = body(&request.form);
    body.insert("name".to_owned(), request.form.value("name").trim().into());
    match request.call(operations::MAKE_ACCOUNT, ApiCall { body, ..call_of(&request) }).await {
        Ok(_) => Ok(back(&request).toast(Toast::Saved)),
        Err(error) => page(&request, &refused(request.t(), &request.form, error)?, None).await,
    }
}

pub(super) async fn edit(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let account: AccountObject = request.read(operations::GET_ACCOUNT, call(&request)).await?;
    let form = FormState::of(FormData::of(&[
        ("status", if account.status == "on" { "true" } else { "" }),
        ("concurrency", &limit_text(account.concurrency)),
        ("rpm", &limit_text(account.rpm)),
        ("tpm", &limit_text(account.tpm)),
        ("cost_multiplier", &text(&account.cost_multiplier)),
    ]));
    page(&request, &form, Some(&account)).await
}

/// A number or a decimal text.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) async fn change(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let before: AccountObject = request.read(operations::GET_ACCOUNT, call(&request)).await?;
    match request.call(operations::CHANGE_ACCOUNT, ApiCall { body: body(&request.form), ..call(&request) }).await {
        Ok(_) if before.status == "on" && !request.form.has("status") => {
            let row = [request.path_param("name"), request.path_param("account")];
            Ok(back(&request).toast_with_undo(Toast::AccountOff, &row))
        }
        Ok(_) => Ok(back(&request).toast(Toast::Saved)),
        Err(error) => page(&request, &refused(request.t(), &request.form, error)?, Some(&before)).await,
    }
}

/// Turns an account on again that was turned off.
pub(super) async fn turn_on(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let body = Map::from_iter([("status".to_owned(), Value::from("on"))]);
    request.call(operations::CHANGE_ACCOUNT, ApiCall { body, ..call(&request) }).await?;
    Ok(back(&request).toast(Toast::AccountOn))
}

pub(super) async fn remove(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    request.call(operations::REMOVE_ACCOUNT, call(&request)).await?;
    Ok(back(&request).toast(Toast::Removed))
}

/// The fields as the admin API takes them. An empty credential keeps the one that is stored.
fn body(form: &FormData) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("status".to_owned(), if form.has("status") { "on" } else { "off" }.into());
    for field in ["concurrency", "rpm", "tpm"] {
        body.insert(field.to_owned(), control::limit_or_text(form, field));
    }
    if let Some(multiplier) = form.filled("cost_multiplier") {
        body.insert("cost_multiplier".to_owned(), multiplier.into());
    }
    if let Some(credential) = form.filled("credential") {
        body.insert("credential".to_owned(), credential.into());
    }
    body
}

fn refused(t: Locale, form: &FormData, error: ApiError) -> Result<FormState, PageFailure> {
    FormState::refused_each(error, |error| refused_one(t, form, error))
}

fn refused_one(t: Locale, form: &FormData, error: ApiError) -> Result<FormState, PageFailure> {
    let error = match error.param() {
        Some("name") => error.because("row_name"),
        Some("cost_multiplier") => error.because("multiplier"),
        Some("concurrency" | "rpm" | "tpm") => error.because("limit"),
        _ if error.code() == "already_exists" => error.about("name").because("row_exists"),
        _ => error,
    };
    FormState::refused(t, form, &error, FIELDS)
}

async fn page(request: &PageRequest, form: &FormState, account: Option<&AccountObject>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let channel = one(request).await?;
    let number = |name, label| form.number(name, label).hint(t.say("keys.unlimited_hint"));
    let credential = form.secret("credential", t.say("channels.credential"));
    let credential = match account {
        Some(_) => credential.hint(t.say("channels.credential_keep")),
        None => credential.hint(t.say("channels.credential_hint")),
    };
    let mut controls = vec![credential, form.check("status", t.say("channels.account_on")).wide()];
    if account.is_none() {
        let name = form.text("name", t.say("channels.account_name")).hint(t.say("channels.account_name_hint"));
        controls.insert(0, name.required().focus());
    }
    let limits = vec![
        number("concurrency", t.say("keys.concurrency")),
        number("rpm", t.say("keys.rpm")),
        number("tpm", t.say("keys.tpm")),
        form.number("cost_multiplier", t.say("channels.multiplier")).hint(t.say("channels.multiplier_hint")),
    ];
    let title = account.map_or_else(|| t.say("channels.new_account").to_owned(), |account| account.name.clone());
    let here = format!("{}/accounts", path(&channel.name));
    let template = AccountPage {
        layout: request.layout(title).below("/channels", t.say("nav.channels")).below(path(&channel.name), &channel.name),
        t,
        banner: form.banner(),
        back: request.url(&path(&channel.name)),
        action: match account {
            Some(account) => request.url(&format!("{here}/{}", super::super::models::path_of_name(&account.name))),
            None => request.url(&format!("{here}/new")),
        },
        section: ControlSection::new(t.say("channels.credential_title"), controls).about(t.say("channels.credential_about")),
        limits: ControlSection::new(t.say("keys.limits_of_key"), limits).about(t.say("channels.limits_about")),
        is_new: account.is_none(),
        is_of_file: account.is_some_and(|account| account.owner == "file"),
    };
    PageReply::page(form.status(), &template)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_credential_is_not_sent() {
        let form = FormData::of(&[("status", "true"), ("credential", ""), ("rpm", "60"), ("cost_multiplier", "0.8")]);
        let expected = json!({"status": "on", "concurrency": 0, "rpm": 60, "tpm": 0, "cost_multiplier": "0.8"});
        assert_eq!(Value::Object(body(&form)), expected);
        let off = FormData::of(&[("credential", "sk-1")]);
        assert_eq!((body(&off)["status"].as_str(), body(&off)["credential"].as_str()), (Some("off"), Some("sk-1")));
    }

    #[test]
    fn every_fault_is_shown_beside_its_field() {
        let sent = FormData::of(&[("rpm", "x"), ("cost_multiplier", "y")]);
        assert_eq!(body(&sent)["rpm"], "x", "the admin API refuses it");
        let error = ApiError::value("rpm", "x").with_others(vec![ApiError::value("cost_multiplier", "y")]);
        let form = refused(Locale::EN, &sent, error).unwrap();
        assert!(form.fault("rpm").is_some() && form.fault("cost_multiplier").is_some());
    }
}
