//! The steps of the first run after the admin's password: the gateway itself, the first channel with its models and a test, and the first
//! key with lines to copy. Each can be skipped and repeated; the overview lists the remaining ones.

mod gateway;

use std::sync::Arc;

use askama::Template;
use serde::Deserialize;
use tollgate_store::AdminScope;

use super::{
    channels::{
        credentials,
        form::{groups, make_channel, new_section, providers, refused},
        served,
        state::{ChannelObject, path},
    },
    clients::{self, Access, ProtocolLines},
    control::{Control, ControlSection},
    form::{FormData, FormState},
    home::{first_model, model_url},
    layout::Layout,
    locale::Locale,
    models::{document_for, path_of_name},
    operations,
    preferences::Toast,
    reply::{PageFailure, PageReply},
    request::{ApiPage, PageRequest, get, read_answer},
    route::{PageRoute, SeenBy, page},
};
use crate::api_error::ApiError;

const ADMIN: SeenBy = SeenBy::Role(AdminScope::Admin);
const CHANNEL: &str = "/setup/channel";
pub(super) const KEY: &str = "/setup/key";

pub(super) static ROUTES: &[PageRoute] = &[
    PageRoute::get("/setup/gateway", ADMIN, page!(gateway::show)),
    PageRoute::post("/setup/gateway", ADMIN, page!(gateway::save)),
    PageRoute::get(CHANNEL, ADMIN, page!(channel)),
    PageRoute::post(CHANNEL, ADMIN, page!(make_first_channel)).takes_bytes(credentials::MAX_BYTES),
    PageRoute::get("/setup/channel/{name}", ADMIN, page!(served::show)),
    PageRoute::post("/setup/channel/{name}", ADMIN, page!(served::change)).takes_bytes(served::MAX_BYTES),
    PageRoute::post("/setup/channel/{name}/fetch", ADMIN, page!(served::fetch)),
    PageRoute::post("/setup/channel/{name}/add", ADMIN, page!(served::add)).takes_bytes(served::MAX_BYTES),
    PageRoute::get(KEY, ADMIN, page!(key)),
    PageRoute::post(KEY, ADMIN, page!(make_key)),
];

/// A step: its name, and whether it is done or this one.
#[derive(Debug)]
pub(super) struct SetUpStep {
    pub(super) label: &'static str,
    pub(super) is_done: bool,
    pub(super) is_here: bool,
}

/// The steps, with `here` as the current one.
pub(super) fn steps(t: Locale, here: usize) -> Vec<SetUpStep> {
    let labels = [t.say("set_up.step_account"), t.say("set_up.step_gateway"), t.say("checklist.channel"), t.say("checklist.key")];
    labels.into_iter().enumerate().map(|(at, label)| SetUpStep { label, is_done: at < here, is_here: at == here }).collect()
}

#[derive(Debug, Template)]
#[template(path = "set_up_channel.html")]
struct ChannelPage {
    layout: Layout,
    t: Locale,
    steps: Vec<SetUpStep>,
    banner: Option<String>,
    /// Channels that are there already.
    known: Vec<(String, String)>,
    providers: Vec<(&'static str, &'static str, bool)>,
    section: ControlSection,
}

#[derive(Debug, Template)]
#[template(path = "set_up_key.html")]
struct KeyPage {
    layout: Layout,
    t: Locale,
    steps: Vec<SetUpStep>,
    banner: Option<String>,
    name: Control,
    /// The key, once it is made.
    made: Option<MadeKey>,
}

#[derive(Debug)]
struct MadeKey {
    secret: String,
    link: String,
    /// The model of the lines.
    model: String,
    by_protocol: Vec<ProtocolLines>,
}

async fn channel(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let form = FormState::of(FormData::of(&[("provider", "openai"), ("groups", "default")]));
    channel_page(&request, &form).await
}

async fn channels(request: &PageRequest) -> Result<Vec<ChannelObject>, ApiError> {
    Ok(request.read::<ApiPage<ChannelObject>>(operations::LIST_CHANNELS, get(&[("limit", "50")])).await?.items)
}

async fn channel_page(request: &PageRequest, form: &FormState) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let known = channels(request).await?.into_iter().filter(|channel| !channel.is_built_in());
    let template = ChannelPage {
        layout: request.layout(t.say("set_up.title")).public_shell(),
        t,
        steps: steps(t, 2),
        banner: form.banner(),
        known: known.map(|channel| (request.url(&set_up_path(&channel.name)), channel.name)).collect(),
        providers: providers(t, form),
        section: new_section(request, form),
    };
    PageReply::page(form.status(), &template)
}

/// The step of a channel's models.
fn set_up_path(name: &str) -> String {
    path(name).replacen("/channels/", "/setup/channel/", 1)
}

async fn make_first_channel(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    // The first start has already made the built-in channel, so there is nothing to make.
    if request.form.value("provider") == "echo" && channels(&request).await?.iter().any(ChannelObject::is_built_in) {
        return Ok(PageReply::redirect(&request.url(KEY)));
    }
    if let Some(state) = credentials::refused(request.t(), &request.form) {
        return channel_page(&request, &state).await;
    }
    // The group of the first start may have been removed, or be one of the catalog file.
    let known = groups(&request).await?;
    let is_changeable = |name: &&str| known.iter().any(|group| group.name == *name && group.owner != "file");
    let chosen: Vec<&str> = request.form.all("groups").filter(is_changeable).collect();
    match make_channel(&request, &chosen).await {
        Ok(name) => Ok(PageReply::redirect(&request.url(&set_up_path(&name))).toast(Toast::Saved)),
        Err(error) => channel_page(&request, &refused(request.t(), &request.form, error)?).await,
    }
}

async fn key(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let name = free_key_name(&request).await?;
    key_page(&request, &FormState::of(FormData::of(&[("name", &name)])), None)
}

/// A name that no key of the admin has; the first start made the key `first`.
async fn free_key_name(request: &PageRequest) -> Result<String, ApiError> {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let member = request.signed_in.as_ref().map(|signed_in| signed_in.member.id.to_string()).unwrap_or_default();
    let keys: ApiPage<Named> =
        request.read(operations::LIST_KEYS, get(&[("member", &member), ("revoked", "true"), ("limit", "1000")])).await?;
    let is_free = |name: &String| keys.items.iter().all(|key| key.name != *name);
    let numbered = (2..1_002).map(|number| format!("my-key-{number}"));
    Ok(std::iter::once("my-key".to_owned()).chain(numbered).find(is_free).unwrap_or_default())
}

async fn make_key(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    #[derive(Deserialize)]
    struct Made {
        id: String,
        key: String,
    }
    let name = request.form.value("name").trim();
    let member = request.signed_in.as_ref().map(|signed_in| signed_in.member.name.as_str()).unwrap_or_default();
    let made = request.send(operations::MAKE_KEY, &[("name", name), ("member", member)]).await;
    match made.and_then(read_answer::<Made>) {
        Ok(made) => {
            let models: Vec<String> = document_for(&request, None, None).await?.data.into_iter().map(|model| model.id).collect();
            let model = first_model(&request, models.iter().map(String::as_str)).await?.unwrap_or("echo").to_owned();
            let access = Access { address: &model_url(&request), key: &made.key, model: &model };
            let by_protocol = clients::by_protocol(request.t(), access, |_| true);
            let link = request.url(&format!("/keys/{}", path_of_name(&made.id)));
            key_page(&request, &FormState::default(), Some(MadeKey { secret: made.key, link, model, by_protocol }))
        }
        Err(error) => {
            let error = match error.param() {
                Some("name") => error.because("key_name"),
                _ if error.code() == "already_exists" => error.about("name").because("key_exists"),
                _ => error,
            };
            key_page(&request, &FormState::refused(request.t(), &request.form, &error, &["name"])?, None)
        }
    }
}

fn key_page(request: &PageRequest, form: &FormState, made: Option<MadeKey>) -> Result<PageReply, PageFailure> {
    let t = request.t();
    let template = KeyPage {
        layout: request.layout(t.say("set_up.title")).public_shell(),
        t,
        steps: steps(t, if made.is_some() { 4 } else { 3 }),
        banner: form.banner(),
        name: form.text("name", t.say("keys.name")).hint(t.say("keys.name_hint")).required().focus(),
        made,
    };
    PageReply::page(form.status(), &template)
}
