//! Actions on several keys: turning them off or on, revoking them, and changing their groups. The list sends the ids of the chosen keys
//! and the action. Pages that ask for more input have the ids in their address, so that they can be reloaded.

use std::sync::Arc;

use askama::Template;
use serde_json::{Map, Value};
use url::form_urlencoded::Serializer;

use super::{form, view::KeyObject};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        control::{ControlSection, FormView, TYPED_NAME, check_typed_name, names},
        form::{FormData, FormState},
        layout::Layout,
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
const FIELD: &str = "key";
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

/// The address of a page about keys.
fn address(page: &str, keys: &[KeyObject]) -> String {
    let ids = keys.iter().map(|key| (FIELD, key.id.as_str()));
    format!("/key-selection/{page}?{}", Serializer::new(String::new()).extend_pairs(ids).finish())
}

fn back(request: &PageRequest, toast: Toast) -> PageReply {
    PageReply::redirect(&request.url("/keys")).toast(toast)
}

/// Handles the form of the list's action bar.
pub(super) async fn act(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let keys = chosen(&request, &request.form).await?;
    if keys.is_empty() {
        return Ok(back(&request, Toast::NoKeyChosen));
    }
    match request.form.value("do") {
        "revoke" => Ok(PageReply::redirect(&request.url(&address("revoke", &keys)))),
        "move" if request.is_operator() => Ok(PageReply::redirect(&request.url(&address("move", &keys)))),
        "on" if request.is_operator() => turn_on(&request, keys).await,
        _ => turn_off(&request, keys).await,
    }
}

async fn turn_off(request: &PageRequest, keys: Vec<KeyObject>) -> Result<PageReply, PageFailure> {
    let (done, faults) = each(request, &keys, operations::DISABLE_KEY, &Map::new()).await?;
    if !faults.is_empty() {
        return page(request, &keys, (request.t().say("keys.selected"), None), &FormState::default(), faults);
    }
    // Members turn their keys off, and operators turn them on.
    if !request.is_operator() {
        return Ok(back(request, Toast::KeysOff));
    }
    Ok(PageReply::redirect(&request.url("/keys")).toast_with_undo(Toast::KeysOff, &[&done.join(undo::BETWEEN)]))
}

async fn turn_on(request: &PageRequest, keys: Vec<KeyObject>) -> Result<PageReply, PageFailure> {
    let body = Map::from_iter([("status".to_owned(), Value::from("active"))]);
    let (_, faults) = each(request, &keys, operations::CHANGE_KEY, &body).await?;
    if faults.is_empty() {
        return Ok(back(request, Toast::KeysOn));
    }
    page(request, &keys, (request.t().say("keys.selected"), None), &FormState::default(), faults)
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

/// Asks for the name, or for the number of several.
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
    let form = FormView::new(request.url("/key-selection/revoke"), vec![section], t.say("keys.revoke_for_good"));
    let form = with_keys(form, keys).dangerous().cancel(request.url("/keys"));
    page(request, keys, (t.say("keys.revoke_selected"), Some(form)), state, faults)
}

fn with_keys(form: FormView, keys: &[KeyObject]) -> FormView {
    keys.iter().fold(form, |form, key| form.hidden(FIELD, &key.id))
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
    groups_page(&request, &keys, &FormState::default(), Vec::new())
}

fn groups_page(
    request: &PageRequest,
    keys: &[KeyObject],
    state: &FormState,
    faults: Vec<(String, String)>,
) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let groups = state.text("groups", t.say("keys.groups")).hint(t.say("keys.groups_hint")).max(10_000).focus();
    let section = ControlSection::new("", vec![groups]).about(t.say("keys.move_about"));
    let form = FormView::new(request.url("/key-selection/move"), vec![section], t.say("form.save"));
    page(request, keys, (t.say("keys.move"), Some(with_keys(form, keys).cancel(request.url("/keys")))), state, faults)
}

/// Gives them these groups; none: the default group of each member.
pub(super) async fn set_groups(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let keys = chosen(&request, &request.form).await?;
    let Some(first) = keys.first() else { return Ok(back(&request, Toast::NoKeyChosen)) };
    let body = Map::from_iter([("groups".to_owned(), names(&request.form, "groups").into_iter().collect())]);
    // A group that is not there is the same fault for every key.
    let begin = match request.call(operations::CHANGE_KEY, ApiCall { body: body.clone(), ..of(&first.id) }).await {
        Ok(_) => 1,
        Err(error) if error.param().is_some() => {
            return groups_page(&request, &keys, &form::refused(request.t(), &request.form, error)?, Vec::new());
        }
        Err(_) => 0,
    };
    let (_, faults) = each(&request, &keys[begin..], operations::CHANGE_KEY, &body).await?;
    if faults.is_empty() {
        return Ok(back(&request, Toast::Saved));
    }
    groups_page(&request, &keys, &FormState::of(request.form.clone()), faults)
}

/// A page about the chosen keys, with its title and form. Without a key it is the list.
fn page(
    request: &PageRequest,
    keys: &[KeyObject],
    (title, form): (&'static str, Option<FormView>),
    state: &FormState,
    faults: Vec<(String, String)>,
) -> Result<PageReply, PageFailure> {
    let t = request.t();
    if keys.is_empty() {
        return Ok(back(request, Toast::NoKeyChosen));
    }
    let of = |key: &KeyObject| (key.name.clone(), key.member.clone(), request.url(&format!("/keys/{}", key.id)));
    let is_revoking = request.address.starts_with("/key-selection/revoke");
    let here = match &form {
        // A form that was sent has no ids in its address.
        Some(_) => address(if is_revoking { "revoke" } else { "move" }, keys),
        None => "/keys".to_owned(),
    };
    let status = if faults.is_empty() { state.status() } else { http::StatusCode::UNPROCESSABLE_ENTITY };
    let template = SelectionPage {
        layout: request.layout(title).below("/keys", t.say("nav.keys")).returns_to(&here),
        t,
        banner: state.banner(),
        faults,
        keys: keys.iter().map(of).collect(),
        form,
    };
    PageReply::page(status, &template)
}
