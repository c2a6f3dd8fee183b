//! Actions on several keys: turning them off or on, revoking them, and changing their groups. The list sends the ids of the chosen keys,
//! the action, and its own address, to which the action returns. Pages that ask for more input have all of it in their address, and so have
//! their forms, so that they can be reloaded and found again after a sign-in.

use std::sync::Arc;

use askama::Template;
use serde_json::{Map, Value};
use url::form_urlencoded::Serializer;

use super::{TO, form, making, view::KeyObject};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        control::{ControlSection, FormView, TYPED_NAME, check_typed_name, names},
        form::{FormData, FormState},
        layout::{Layout, Script},
        locale::Locale,
        operations,
        preferences::Toast,
        problem,
        reply::{PageFailure, PageReply},
        request::{PageRequest, path_of},
        undo,
    },
};

/// The ids in forms and addresses.
pub(super) const FIELD: &str = "key";
/// Keys that are changed at once.
const MAX_CHOSEN: usize = 100;

#[derive(Debug, Template)]
#[template(path = "key_selection.html")]
struct SelectionPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    /// A key and its fault.
    faults: Vec<(String, String)>,
    /// Name, member and address of each.
    keys: Vec<(String, String, String)>,
    form: Option<FormView>,
    /// The address of the list.
    list: String,
}

/// The actions of the bar: value and label.
pub(super) fn actions(t: Locale, is_operator: bool) -> Vec<(&'static str, &'static str)> {
    let off = ("off", t.say("keys.disable"));
    let revoke = ("revoke", t.say("keys.revoke"));
    if is_operator { vec![off, ("on", t.say("keys.enable")), ("move", t.say("keys.move")), revoke] } else { vec![off, revoke] }
}

/// The chosen keys that the reader may see. Each is read by its id.
async fn chosen(request: &PageRequest, sent: &FormData) -> Result<Vec<KeyObject>, ApiError> {
    let mut keys: Vec<KeyObject> = Vec::new();
    for id in sent.all(FIELD).take(MAX_CHOSEN) {
        match request.read::<KeyObject>(operations::GET_KEY, of(id)).await {
            Ok(key) if keys.iter().all(|known| known.id != key.id) => keys.push(key),
            Ok(_) => {}
            Err(error) if error.status == http::StatusCode::NOT_FOUND => {}
            Err(error) => return Err(error),
        }
    }
    Ok(keys)
}

fn of(id: &str) -> ApiCall {
    ApiCall { path: path_of(&[("key", id)]), ..ApiCall::default() }
}

/// The path of the list with its filter, or of the key, from which the action came.
fn list(request: &PageRequest) -> &str {
    super::named_page(request).unwrap_or("/keys")
}

/// The address of a page about keys, which returns to a path.
fn address(page: &str, keys: &[KeyObject], to: Option<&str>) -> String {
    let ids = keys.iter().map(|key| (FIELD, key.id.as_str()));
    let pairs = ids.chain(to.map(|path| (TO, path)));
    format!("/key-selection/{page}?{}", Serializer::new(String::new()).extend_pairs(pairs).finish())
}

fn to_page(request: &PageRequest, page: &str, keys: &[KeyObject]) -> PageReply {
    PageReply::redirect(&request.url(&address(page, keys, super::named_page(request))))
}

fn back(request: &PageRequest, toast: Toast) -> PageReply {
    PageReply::redirect(&request.url(list(request))).toast(toast)
}

/// Handles the form of the list's action bar.
pub(super) async fn act(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let keys = chosen(&request, &request.form).await?;
    if keys.is_empty() {
        return Ok(back(&request, Toast::NoKeyChosen));
    }
    match request.form.value("do") {
        "revoke" => Ok(to_page(&request, "revoke", &keys)),
        "move" if request.is_operator() => Ok(to_page(&request, "move", &keys)),
        "on" if request.is_operator() => turn_on(&request, keys).await,
        _ if request.is_operator() => turn_off(&request, keys).await,
        _ => Ok(ask_member(&request, &keys, super::named_page(&request))),
    }
}

/// Only operators turn keys on, so that members are asked before they turn theirs off.
pub(super) fn ask_member(request: &PageRequest, keys: &[KeyObject], to: Option<&str>) -> PageReply {
    PageReply::redirect(&request.url(&address("off", keys, to)))
}

pub(super) async fn ask_turning_off(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let keys = chosen(&request, &request.query).await?;
    off_page(&request, &keys, Vec::new())
}

fn off_page(request: &PageRequest, keys: &[KeyObject], faults: Vec<(String, String)>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let section = ControlSection::new("", Vec::new()).about(t.say("keys.off_about"));
    let form = form_of(request, "off", keys, (section, t.say("keys.disable"))).dangerous();
    page(request, keys, (t.say("keys.off_selected"), "off", Some(form)), &FormState::default(), faults)
}

pub(super) async fn turn_off_chosen(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let keys = chosen(&request, &request.form).await?;
    if keys.is_empty() {
        return Ok(back(&request, Toast::NoKeyChosen));
    }
    turn_off(&request, keys).await
}

async fn turn_off(request: &PageRequest, keys: Vec<KeyObject>) -> Result<PageReply, PageFailure> {
    let (done, faults) = each(request, &keys, operations::DISABLE_KEY, &Map::new()).await?;
    match (faults.is_empty(), request.is_operator()) {
        (true, true) => {
            Ok(PageReply::redirect(&request.url(list(request))).toast_with_undo(Toast::KeysOff, &[&done.join(undo::BETWEEN)]))
        }
        (true, false) => Ok(back(request, Toast::KeysOff)),
        (false, true) => page(request, &keys, (request.t().say("keys.selected"), "", None), &FormState::default(), faults),
        (false, false) => off_page(request, &keys, faults),
    }
}

async fn turn_on(request: &PageRequest, keys: Vec<KeyObject>) -> Result<PageReply, PageFailure> {
    let body = Map::from_iter([("status".to_owned(), Value::from("active"))]);
    let (_, faults) = each(request, &keys, operations::CHANGE_KEY, &body).await?;
    if faults.is_empty() {
        return Ok(back(request, Toast::KeysOn));
    }
    page(request, &keys, (request.t().say("keys.selected"), "", None), &FormState::default(), faults)
}

/// Turns keys on again that were turned off by one action.
pub(super) async fn turn_on_again(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let keys = chosen(&request, &request.query).await?;
    if keys.is_empty() {
        return Ok(back(&request, Toast::NoKeyChosen));
    }
    turn_on(&request, keys).await
}

/// Calls a route for each key. Returns the ids of the keys for which it succeeded, and the faults of the others.
async fn each(
    request: &PageRequest,
    keys: &[KeyObject],
    operation: &'static str,
    body: &Map<String, Value>,
) -> Result<(Vec<String>, Vec<(String, String)>), ApiError> {
    let (mut done, mut faults) = (Vec::new(), Vec::new());
    for key in keys {
        match request.call(operation, ApiCall { body: body.clone(), ..of(&key.id) }).await {
            Ok(_) => done.push(key.id.clone()),
            Err(error) if error.status.is_client_error() => faults.push((key.name.clone(), problem::say(request.t(), &error))),
            Err(error) => return Err(error),
        }
    }
    Ok((done, faults))
}

/// Asks for the name, or for several keys their number.
pub(super) async fn ask_revoking(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let keys = chosen(&request, &request.query).await?;
    revoking_page(&request, &keys, &FormState::default(), Vec::new())
}

fn revoking_page(
    request: &PageRequest,
    keys: &[KeyObject],
    state: &FormState,
    faults: Vec<(String, String)>,
) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let label = match keys.len() {
        1 => t.say("form.type_name").to_owned(),
        count => t.say_with("keys.type_count", &[("count", &count.to_string())]),
    };
    let section = ControlSection::new("", vec![state.text(TYPED_NAME, label).required()]).about(t.say("keys.revoke_several_about"));
    let form = form_of(request, "revoke", keys, (section, t.say("keys.revoke_for_good"))).dangerous();
    page(request, keys, (t.say("keys.revoke_selected"), "revoke", Some(form)), state, faults)
}

/// The form of a page about keys, with the list to which it returns, and the label of its button.
fn form_of(request: &PageRequest, page: &str, keys: &[KeyObject], (section, submit): (ControlSection, &'static str)) -> FormView {
    let action = request.url(&address(page, keys, super::named_page(request)));
    let form = FormView::new(action, vec![section], submit);
    let form = keys.iter().fold(form, |form, key| form.hidden(FIELD, &key.id));
    let form = super::named_page(request).into_iter().fold(form, |form, path| form.hidden(TO, path));
    form.cancel(request.url(list(request)))
}

/// Revokes them, if their name or number was typed.
pub(super) async fn revoke(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let keys = chosen(&request, &request.form).await?;
    let expected = match keys.as_slice() {
        [] => return Ok(back(&request, Toast::NoKeyChosen)),
        [key] => key.name.clone(),
        several => several.len().to_string(),
    };
    if let Err(error) = check_typed_name(&request.form, &expected) {
        let error = if keys.len() > 1 { error.because("typed_count") } else { error };
        let state = FormState::refused(request.t(), &request.form, &error, &[TYPED_NAME])?;
        return revoking_page(&request, &keys, &state, Vec::new());
    }
    let (_, faults) = each(&request, &keys, operations::REVOKE_KEY, &Map::new()).await?;
    if faults.is_empty() {
        return Ok(back(&request, Toast::KeysRevoked));
    }
    revoking_page(&request, &keys, &FormState::default(), faults)
}

/// Asks for the groups.
pub(super) async fn ask_groups(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let keys = chosen(&request, &request.query).await?;
    groups_page(&request, &keys, &FormState::of(common_groups(&keys)), Vec::new()).await
}

/// The groups of the keys, if all of them have the same groups.
fn common_groups(keys: &[KeyObject]) -> FormData {
    let first = keys.first().map(|key| key.groups.as_slice()).unwrap_or_default();
    let common = if keys.iter().all(|key| key.groups == first) { first } else { &[] };
    FormData::of(&[("groups", &common.join(", "))])
}

async fn groups_page(
    request: &PageRequest,
    keys: &[KeyObject],
    state: &FormState,
    faults: Vec<(String, String)>,
) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let named = || state.text("groups", t.say("keys.groups")).hint(t.say("keys.groups_hint")).max(10_000).focus();
    let groups = making::choice_of_all(request, state).await?.unwrap_or_else(named);
    let section = ControlSection::new("", vec![groups]).about(t.say("keys.move_about"));
    let form = form_of(request, "move", keys, (section, t.say("form.save")));
    page(request, keys, (t.say("keys.move"), "move", Some(form)), state, faults)
}

/// Sets the groups of the keys; without a group, each member's default group applies.
pub(super) async fn set_groups(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let keys = chosen(&request, &request.form).await?;
    let Some(first) = keys.first() else { return Ok(back(&request, Toast::NoKeyChosen)) };
    let named = names(&request.form, "groups");
    let groups: Value = request.form.all(form::GROUP).chain(named).collect();
    let body = Map::from_iter([("groups".to_owned(), groups)]);
    // A missing group is the same fault for every key.
    let begin = match request.call(operations::CHANGE_KEY, ApiCall { body: body.clone(), ..of(&first.id) }).await {
        Ok(_) => 1,
        Err(error) if error.param().is_some() => {
            return groups_page(&request, &keys, &form::refused(request.t(), &request.form, error)?, Vec::new()).await;
        }
        Err(_) => 0,
    };
    let (_, faults) = each(&request, &keys[begin..], operations::CHANGE_KEY, &body).await?;
    if faults.is_empty() {
        return Ok(back(&request, Toast::Saved));
    }
    groups_page(&request, &keys, &FormState::of(request.form.clone()), faults).await
}

/// A page about the chosen keys, with its title, the last part of its path, and its form. Without a form, or without a key, the page only
/// links to the list.
fn page(
    request: &PageRequest,
    keys: &[KeyObject],
    (title, name, form): (&'static str, &'static str, Option<FormView>),
    state: &FormState,
    faults: Vec<(String, String)>,
) -> Result<PageReply, PageFailure> {
    let t = request.t();
    if keys.is_empty() {
        return Ok(back(request, Toast::NoKeyChosen));
    }
    let of = |key: &KeyObject| (key.name.clone(), key.member.clone(), request.url(&format!("/keys/{}", key.id)));
    let here = match &form {
        Some(_) => address(name, keys, super::named_page(request)),
        None => list(request).to_owned(),
    };
    let status = if faults.is_empty() { state.status() } else { http::StatusCode::UNPROCESSABLE_ENTITY };
    let template = SelectionPage {
        layout: request.layout(title).below("/keys", t.say("nav.keys")).with(Script::Order).returns_to(&here),
        t,
        banner: state.banner(),
        faults,
        keys: keys.iter().map(of).collect(),
        form,
        list: request.url(list(request)),
    };
    PageReply::page(status, &template)
}
