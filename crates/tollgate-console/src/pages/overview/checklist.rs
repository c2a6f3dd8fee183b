//! Checklist of the set-up steps that a new gateway still lacks. It disappears when all are done.

use std::sync::atomic::Ordering::Relaxed;

use serde::Deserialize;

use crate::{
    api_error::ApiError,
    pages::{
        operations,
        request::{ApiPage, PageRequest, get},
    },
};

#[derive(Debug)]
pub(crate) struct Checklist {
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) label: &'static str,
    pub(crate) hint: &'static str,
    pub(crate) link: String,
    pub(crate) is_done: bool,
}

#[derive(Debug, Deserialize)]
struct ChannelObject {
    provider: String,
    status: String,
}

#[derive(Debug, Deserialize)]
struct KeyObject {
    groups: Vec<String>,
}

impl KeyObject {
    /// Whether it is like the key of the first start, which can use only the built-in echo channel.
    fn is_for_trying(&self) -> bool {
        self.groups == ["echo"]
    }
}

#[derive(Debug, Deserialize)]
struct Anything {}

/// The steps; `None` once all are done.
pub(crate) async fn read(request: &PageRequest) -> Result<Option<Checklist>, ApiError> {
    let steps = steps(request).await?;
    Ok(steps.iter().any(|step| !step.is_done).then_some(Checklist { steps }))
}

pub(crate) async fn steps(request: &PageRequest) -> Result<Vec<Step>, ApiError> {
    let t = request.t();
    let few = || get(&[("limit", "20")]);
    let channels: ApiPage<ChannelObject> = request.read(operations::LIST_CHANNELS, few()).await?;
    let keys: ApiPage<KeyObject> = request.read(operations::LIST_KEYS, few()).await?;
    let has_requests = has_requests(request).await?;
    let settings = request.state.gateway.settings();
    let is_set = |name: &str| settings.iter().any(|setting| setting.name == name && setting.source != "default");
    // The address that the set-up detects is not stored; callers that send requests know it.
    let has_url = is_set("console.url") || is_set("console.api_url") || has_requests;
    let has_channel = channels.items.iter().any(|channel| channel.provider != "echo" && channel.status == "on");
    let step = |label, hint, path: &str, is_done| Step { label, hint, link: request.url(path), is_done };
    Ok(vec![
        step(t.say("checklist.address"), t.say("checklist.address_hint"), "/setup/gateway", has_url),
        step(t.say("checklist.channel"), t.say("checklist.channel_hint"), "/setup/channel", has_channel),
        step(t.say("checklist.key"), t.say("checklist.key_hint"), "/setup/key", keys.items.iter().any(|key| !key.is_for_trying())),
        step(t.say("checklist.request"), t.say("checklist.request_hint"), "/setup/key", has_requests),
    ])
}

/// Whether there has been a request. The log is not read again once it had one: its newest record is searched in all of its days.
async fn has_requests(request: &PageRequest) -> Result<bool, ApiError> {
    let known = &request.state.has_requests;
    if !known.load(Relaxed) {
        let records: ApiPage<Anything> = request.read(operations::LIST_USAGE, get(&[("limit", "1")])).await?;
        known.store(!records.items.is_empty(), Relaxed);
    }
    Ok(known.load(Relaxed))
}
