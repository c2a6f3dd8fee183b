//! Actions on several channels: turning them on or off, testing, editing, exporting and removing them. The list sends the ids of the
//! chosen channels, the action, and its own address, to which the action returns. Pages that ask for more input have all of it in their
//! address, and so have their forms, so that they can be reloaded and found again after a sign-in.

mod edit;
mod test;

use std::{collections::HashSet, sync::Arc};

use askama::Template;
use serde_json::{Map, Value, json};
use url::form_urlencoded::Serializer;

use super::state::{ChannelObject, all, path};
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        control::{ControlSection, FaultPlace, FormView, TYPED_NAME, check_typed_name},
        form::{FormData, FormState},
        layout::Layout,
        locale::Locale,
        operations,
        preferences::Toast,
        problem,
        reply::{PageFailure, PageReply},
        request::{PageRequest, get},
        undo,
    },
};
pub(super) use edit::{save, show as edit};

/// The ids in forms and addresses.
const FIELD: &str = "channel";
/// The list to which an action returns, in forms and addresses.
const TO: &str = "to";
/// The fields beside which faults of a channel are shown, and their texts.
const PLACES: &[FaultPlace] = &[
    ("priority", "priority", "number_range"),
    ("weight", "weight", "number_range"),
    ("connect_timeout_ms", "connect_timeout_ms", "number_range"),
    ("first_byte_timeout_ms", "first_byte_timeout_ms", "number_range"),
    ("idle_timeout_ms", "idle_timeout_ms", "number_range"),
    ("total_timeout_ms", "total_timeout_ms", "number_range"),
    ("probe_interval_s", "probe_interval_s", "number_range"),
    ("failures_to_cool", "failures_to_cool", "number_range"),
    ("cool_down_s", "cool_down_s", "number_range"),
    ("pausing_statuses", "pausing_statuses", "statuses"),
    ("tags", "tags", "tags"),
    ("proxy", "proxy", "proxy"),
    ("concurrency", "channel_concurrency", "number_range"),
    ("rpm", "channel_rpm", "number_range"),
    ("tpm", "channel_tpm", "number_range"),
    ("account.rpm", "rpm", "number_range"),
    ("account.tpm", "tpm", "number_range"),
    ("account.concurrency", "concurrency", "number_range"),
    ("account.cost_multiplier", "cost_multiplier", "multiplier"),
];

#[derive(Debug, Template)]
#[template(path = "channel_selection.html")]
struct SelectionPage {
    layout: Layout,
    t: Locale,
    banner: Option<String>,
    /// A channel and its fault.
    faults: Vec<(String, String)>,
    /// Name and address of each.
    channels: Vec<(String, String)>,
    form: Option<FormView>,
    /// The address of the list.
    list: String,
}

/// The chosen channels, by name.
#[derive(Debug)]
struct Selection {
    channels: Vec<ChannelObject>,
}

impl Selection {
    /// The channels of a form. Those that were removed in the meantime are left out.
    async fn of(request: &PageRequest, sent: &FormData) -> Result<Self, ApiError> {
        let ids: HashSet<&str> = sent.all(FIELD).collect();
        let mut channels = if ids.is_empty() { Vec::new() } else { all(request).await? };
        channels.retain(|channel| ids.contains(channel.id.as_str()));
        channels.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Self { channels })
    }

    fn ids(&self) -> Vec<&str> {
        self.channels.iter().map(|channel| channel.id.as_str()).collect()
    }

    /// The address of a page about them, which returns to the list from which the request came.
    fn address(&self, request: &PageRequest, page: &str) -> String {
        let ids = self.ids().into_iter().map(|id| (FIELD, id));
        let pairs = ids.chain(named_list(request).map(|path| (TO, path)));
        format!("/channel-selection/{page}?{}", Serializer::new(String::new()).extend_pairs(pairs).finish())
    }

    fn to_page(&self, request: &PageRequest, page: &str) -> PageReply {
        PageReply::redirect(&request.url(&self.address(request, page)))
    }

    /// The form of a page about them.
    fn form(&self, request: &PageRequest, page: &str, sections: Vec<ControlSection>, submit: &'static str) -> FormView {
        let form = FormView::new(request.url(&self.address(request, page)), sections, submit);
        let form = self.ids().into_iter().fold(form, |form, id| form.hidden(FIELD, id));
        let form = named_list(request).into_iter().fold(form, |form, path| form.hidden(TO, path));
        form.cancel(request.url(list(request)))
    }
}

/// The path of the list with its filter, if the form or the address names one.
fn named_list(request: &PageRequest) -> Option<&str> {
    let path = request.local_path(request.form.filled(TO).or_else(|| request.query.filled(TO))?)?;
    (path.split('?').next() == Some("/channels")).then_some(path)
}

fn list(request: &PageRequest) -> &str {
    named_list(request).unwrap_or("/channels")
}

fn back(request: &PageRequest, toast: Toast) -> PageReply {
    PageReply::redirect(&request.url(list(request))).toast(toast)
}

/// Handles the form of the list's action bar.
pub(super) async fn act(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let selection = Selection::of(&request, &request.form).await?;
    if selection.channels.is_empty() {
        return Ok(back(&request, Toast::NothingChosen));
    }
    match request.form.value("do") {
        "test" => test::run(&request, selection),
        "edit" => Ok(selection.to_page(&request, "edit")),
        "remove" => Ok(selection.to_page(&request, "remove")),
        "export" => export(&request, &selection).await,
        "off" => switch(&request, &selection, "off").await,
        _ => switch(&request, &selection, "on").await,
    }
}

/// Sends fields for all of them.
async fn send(request: &PageRequest, selection: &Selection, mut body: Map<String, Value>) -> Result<(), ApiError> {
    body.insert("channels".to_owned(), json!(selection.ids()));
    request.call(operations::CHANGE_CHANNELS, ApiCall { body, ..ApiCall::default() }).await.map(drop)
}

async fn switch(request: &PageRequest, selection: &Selection, status: &str) -> Result<PageReply, PageFailure> {
    let body = Map::from_iter([("status".to_owned(), status.into())]);
    match send(request, selection, body).await {
        Ok(()) if status == "off" => {
            // Channels that were off before stay off when this is undone.
            let on = selection.channels.iter().filter(|channel| channel.status == "on").map(|channel| channel.id.as_str());
            let on: Vec<&str> = on.collect();
            if on.is_empty() {
                return Ok(back(request, Toast::ChannelsOff));
            }
            let list = PageReply::redirect(&request.url(list(request)));
            Ok(list.toast_with_undo(Toast::ChannelsOff, &[&on.join(undo::BETWEEN)]))
        }
        Ok(()) => Ok(back(request, Toast::ChannelsOn)),
        Err(error) => {
            let state = FormState::refused(request.t(), &request.form, &error, &[])?;
            page(request, selection, (request.t().say("selection.title"), None), &state, Some(&error))
        }
    }
}

/// Turns channels on again that were turned off by one action.
pub(super) async fn turn_on_again(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let selection = Selection::of(&request, &request.query).await?;
    if selection.channels.is_empty() {
        return Ok(back(&request, Toast::NothingChosen));
    }
    switch(&request, &selection, "on").await
}

/// The channels as one catalog file.
async fn export(request: &PageRequest, selection: &Selection) -> Result<PageReply, PageFailure> {
    let found: Value = request.read(operations::PULL_CATALOG, get(&[("channels", &selection.ids().join(","))])).await?;
    let file = found["file"].as_str().unwrap_or_default().to_owned();
    Ok(PageReply::file("channels.toml", "application/toml; charset=utf-8", file))
}

/// Asks for the name, or for several channels their number.
pub(super) async fn ask_removal(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let selection = Selection::of(&request, &request.query).await?;
    removal_page(&request, &selection, &FormState::default(), None)
}

fn removal_page(
    request: &PageRequest,
    selection: &Selection,
    state: &FormState,
    error: Option<&ApiError>,
) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let label = match selection.channels.len() {
        1 => t.say("form.type_name").to_owned(),
        count => t.say_with("selection.type_count", &[("count", &count.to_string())]),
    };
    let typed = vec![state.text(TYPED_NAME, label).required()];
    let section = ControlSection::new("", typed).about(t.say("channels.remove_about"));
    let form = selection.form(request, "remove", vec![section], t.say("channels.remove_for_good")).dangerous();
    page(request, selection, (t.say("selection.remove_title"), Some(form)), state, error)
}

/// Removes them, if their name or number was typed.
pub(super) async fn remove(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let selection = Selection::of(&request, &request.form).await?;
    let expected = match selection.channels.as_slice() {
        [] => return Ok(back(&request, Toast::NothingChosen)),
        [channel] => channel.name.clone(),
        several => several.len().to_string(),
    };
    let body = Map::from_iter([("channels".to_owned(), json!(selection.ids()))]);
    let removed = match check_typed_name(&request.form, &expected) {
        Ok(()) => request.call(operations::REMOVE_CHANNELS, ApiCall { body, ..ApiCall::default() }).await.map(drop),
        Err(error) if selection.channels.len() > 1 => Err(error.because("typed_count")),
        Err(error) => Err(error),
    };
    match removed {
        Ok(()) => Ok(back(&request, Toast::Removed)),
        Err(error) => {
            let state = FormState::refused(request.t(), &request.form, &error, &[TYPED_NAME])?;
            removal_page(&request, &selection, &state, Some(&error))
        }
    }
}

/// A page about the chosen channels, with its title and form. Without a channel it is the list.
fn page(
    request: &PageRequest,
    selection: &Selection,
    (title, form): (&'static str, Option<FormView>),
    state: &FormState,
    error: Option<&ApiError>,
) -> Result<PageReply, PageFailure> {
    let t = request.t();
    if selection.channels.is_empty() {
        return Ok(back(request, Toast::NothingChosen));
    }
    let of = |channel: &ChannelObject| (channel.name.clone(), request.url(&path(&channel.name)));
    let here = match &form {
        Some(_) => selection.address(request, page_name(request)),
        None => list(request).to_owned(),
    };
    let template = SelectionPage {
        layout: request.layout(title).below("/channels", t.say("nav.channels")).returns_to(&here),
        t,
        banner: state.banner(),
        faults: error.map(|error| problem::rows(t, error, PLACES)).unwrap_or_default(),
        channels: selection.channels.iter().map(of).collect(),
        form,
        list: request.url(list(request)),
    };
    PageReply::page(state.status(), &template)
}

/// The page of a request: `edit` or `remove`.
fn page_name(request: &PageRequest) -> &'static str {
    if request.address.starts_with("/channel-selection/remove") { "remove" } else { "edit" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_channels_are_translated() {
        let rows = vec![("a".to_owned(), ApiError::value("weight", "x")), ("b".to_owned(), ApiError::value("account.rpm", "x"))];
        let error = ApiError::check_rows(rows, 3).unwrap_err();
        let said = problem::rows(Locale::ZH_CN, &error, PLACES);
        assert_eq!(said.len(), 2);
        assert!(said.iter().all(|(_, text)| text == Locale::ZH_CN.say("problem.number_range")), "{said:?}");
    }
}
