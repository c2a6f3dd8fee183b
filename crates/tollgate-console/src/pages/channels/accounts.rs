//! Accounts of a channel: their credential, limits and share of the cost.

use std::{collections::HashSet, sync::Arc};

use askama::Template;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    credentials,
    last_test::LastTest,
    state::{call_of, health, one, path},
};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        control::{self, ControlSection, Danger, TYPED_NAME, check_typed_name, limit_text},
        form::{FormData, FormState},
        layout::Layout,
        locale::Locale,
        operations,
        preferences::Toast,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, get, path_of},
    },
};

const FIELDS: &[&str] = &["name", "credential", "concurrency", "rpm", "tpm", "cost_multiplier", TYPED_NAME];

#[derive(Debug, Template)]
#[template(path = "account.html")]
struct AccountPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    back: String,
    action: String,
    /// The revision that the form is for; `None`: a new account.
    revision: Option<String>,
    section: ControlSection,
    limits: ControlSection,
    is_of_file: bool,
    test: Option<LastTest>,
    /// The removal of an account that is in the database.
    danger: Option<Danger>,
}

#[derive(Debug, Deserialize)]
struct AccountObject {
    name: String,
    owner: String,
    revision: u64,
    status: String,
    concurrency: u64,
    rpm: u64,
    tpm: u64,
    cost_multiplier: Value,
}

#[derive(Debug, Deserialize)]
struct NamedAccount {
    name: String,
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
    if let Some(state) = credentials::refused(request.t(), &request.form) {
        return page(&request, &state, None).await;
    }
    match make_accounts(&request).await {
        Ok(()) => Ok(back(&request).toast(Toast::Saved)),
        Err(error) => page(&request, &refused(request.t(), &request.form, error)?, None).await,
    }
}

/// Makes the account of a form, or one for each of several credentials: all or none of them.
async fn make_accounts(request: &PageRequest) -> Result<(), ApiError> {
    let (form, name) = (&request.form, request.form.value("name").trim());
    let (credentials, mut body) = (credentials::of(form), body(form));
    if credentials.len() < 2 {
        body.insert("name".to_owned(), name.into());
        return request.call(operations::MAKE_ACCOUNT, ApiCall { body, ..call_of(request) }).await.map(drop);
    }
    let known = ApiCall { path: call_of(request).path, ..get(&[("limit", "1000")]) };
    let known: ApiPage<NamedAccount> = request.read(operations::LIST_ACCOUNTS, known).await?;
    let taken: HashSet<String> = known.items.into_iter().map(|account| account.name).collect();
    let names = credentials::names(name, credentials.len(), &taken);
    let account = |(name, credential): (String, &str)| {
        let mut account = body.clone();
        account.insert("name".to_owned(), name.into());
        account.insert("credential".to_owned(), credential.into());
        Value::Object(account)
    };
    let accounts: Vec<Value> = names.into_iter().zip(credentials).map(account).collect();
    let body = Map::from_iter([("accounts".to_owned(), json!(accounts))]);
    request.call(operations::MAKE_ACCOUNTS, ApiCall { body, ..call_of(request) }).await.map(drop)
}

pub(super) async fn edit(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let account: AccountObject = request.read(operations::GET_ACCOUNT, call(&request)).await?;
    page(&request, &FormState::of(values(&account)), Some(&account)).await
}

/// The initial values of the form.
fn values(account: &AccountObject) -> FormData {
    FormData::of(&[
        ("status", if account.status == "on" { "true" } else { "" }),
        ("concurrency", &limit_text(account.concurrency)),
        ("rpm", &limit_text(account.rpm)),
        ("tpm", &limit_text(account.tpm)),
        ("cost_multiplier", &text(&account.cost_multiplier)),
    ])
}

/// A number or a decimal text.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) async fn change(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let before: AccountObject = request.read(operations::GET_ACCOUNT, call(&request)).await?;
    match request.call_at_revision(operations::CHANGE_ACCOUNT, ApiCall { body: body(&request.form), ..call(&request) }).await {
        Ok(_) if before.status == "on" && !request.form.has("status") => {
            let row = [request.path_param("name"), request.path_param("account")];
            Ok(back(&request).toast_with_undo(Toast::AccountOff, &row))
        }
        Ok(_) => Ok(back(&request).toast(Toast::Saved)),
        Err(error) => page(&request, &refused(request.t(), &request.form, error)?, Some(&before)).await,
    }
}

/// Turns an account on again.
pub(super) async fn turn_on(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let body = Map::from_iter([("status".to_owned(), Value::from("on"))]);
    request.call(operations::CHANGE_ACCOUNT, ApiCall { body, ..call(&request) }).await?;
    Ok(back(&request).toast(Toast::AccountOn))
}

pub(super) async fn remove(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let account: AccountObject = request.read(operations::GET_ACCOUNT, call(&request)).await?;
    let removed = match check_typed_name(&request.form, &account.name) {
        Ok(()) => request.call(operations::REMOVE_ACCOUNT, call(&request)).await,
        Err(error) => Err(error),
    };
    match removed {
        Ok(_) => Ok(back(&request).toast(Toast::Removed)),
        // The other form of the page shows the stored values.
        Err(error) => {
            let values = values(&account).with(TYPED_NAME, request.form.value(TYPED_NAME));
            page(&request, &refused(request.t(), &values, error)?, Some(&account)).await
        }
    }
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
    // A fault of one of several accounts is about a field of the form.
    let of_several = error.param().and_then(|param| param.strip_prefix("accounts[")?.split_once("]."));
    let error = match of_several.map(|(_, field)| field.to_owned()) {
        Some(field) => error.about(&field),
        None => error,
    };
    let error = match error.param() {
        Some("name") => error.because("row_name"),
        Some("cost_multiplier") => error.because("multiplier"),
        Some("credential") => error.because("credential"),
        Some("concurrency" | "rpm" | "tpm") => error.because("limit"),
        _ if error.code() == "already_exists" => error.about("name").because("row_exists"),
        _ => error,
    };
    FormState::refused(t, form, &error, FIELDS)
}

async fn page(request: &PageRequest, form: &FormState, account: Option<&AccountObject>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let channel = one(request).await?;
    let test = match account {
        Some(account) => last_test(request, &channel.name, &account.name).await?,
        None => None,
    };
    let number = |name, label| form.number(name, label).hint(t.say("keys.unlimited_hint"));
    let credential = match account {
        Some(_) => form.secret("credential", t.say("channels.credential")).hint(t.say("channels.credential_keep")),
        None => credentials::control(t, form),
    };
    let mut controls = vec![credential, form.check("status", t.say("channels.account_on")).wide()];
    if account.is_none() {
        let name = form.text("name", t.say("channels.account_name")).hint(t.say("channels.new_account_name_hint"));
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
        test,
        banner: form.banner(),
        back: request.url(&path(&channel.name)),
        action: match account {
            Some(account) => request.url(&format!("{here}/{}", super::super::models::path_of_name(&account.name))),
            None => request.url(&format!("{here}/new")),
        },
        revision: account.map(|account| form.revision(account.revision)),
        section: ControlSection::new(t.say("channels.credential_title"), controls).about(t.say("channels.credential_about")),
        limits: ControlSection::new(t.say("keys.limits_of_key"), limits).about(t.say("channels.limits_about")),
        is_of_file: account.is_some_and(|account| account.owner == "file"),
        danger: account.filter(|account| account.owner != "file").map(|account| {
            let action = request.url(&format!("{here}/{}/remove", super::super::models::path_of_name(&account.name)));
            let about = t.say("channels.remove_account_about").to_owned();
            Danger::new(t, form, action, (t.say("channels.remove_account"), about, t.say("channels.remove_account")))
        }),
    };
    PageReply::page(form.status(), &template)
}

async fn last_test(request: &PageRequest, channel: &str, account: &str) -> Result<Option<LastTest>, ApiError> {
    let known = health(request).await?;
    let health = known.iter().find(|health| health.channel == channel && health.account == account);
    Ok(health.and_then(|health| LastTest::of_account(request.t(), health, request.state.gateway.now())))
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
        let of_several = ApiError::value("accounts[1].rpm", "x").with_others(vec![ApiError::value("accounts[0].name", "x")]);
        let form = refused(Locale::EN, &sent, of_several).unwrap();
        assert!(form.fault("rpm").is_some() && form.fault("name").is_some());
    }
}
