//! A channel beside the list of channels: its state with the reason, its last hour, its money today, and its accounts.

use askama::Template;

use super::{
    list::{ChannelRow, Sources, row, sources},
    state::{ChannelState, states},
};
use crate::{
    api_error::ApiError,
    pages::{
        drawer::DrawerFrame,
        format::{self, TimeText},
        layout::Layout,
        locale::Locale,
        mark::Mark,
        request::PageRequest,
        strip,
    },
};

#[derive(Debug, Template)]
#[template(path = "parts/channel_drawer.html")]
pub(super) struct ChannelDrawer {
    layout: Layout,
    t: Locale,
    frame: DrawerFrame,
    row: ChannelRow,
    id: String,
    base_url: String,
    requests_today: String,
    accounts: Vec<AccountLine>,
    /// The requests of the last 24 hours in the usage log.
    log: String,
    is_of_file: bool,
    is_built_in: bool,
}

#[derive(Debug)]
struct AccountLine {
    name: String,
    mark: Mark,
    reason: Option<String>,
    until: Option<TimeText>,
}

impl ChannelDrawer {
    pub(super) fn of(request: &PageRequest, state: &ChannelState, sources: &Sources) -> Self {
        let (t, row) = (request.t(), row(request, state, sources));
        let account = |health: &strip::HealthObject| AccountLine {
            name: health.account.clone(),
            mark: strip::account_mark(t, health),
            reason: health.reason.as_deref().map(|why| strip::reason(t, why)),
            until: health.until.as_deref().and_then(|until| format::time(t, until)),
        };
        let query = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs([("range", "24h"), ("channel", state.name.as_str())])
            .finish();
        Self {
            layout: request.layout(t.say("nav.channels")),
            t,
            frame: DrawerFrame {
                id: state.name.clone(),
                title: state.name.clone(),
                mark: Some(row.health.mark.clone()),
                page: row.health.link.clone(),
                back: request.beside("/channels", None),
            },
            row,
            id: state.channel.id.clone(),
            base_url: state.channel.base_url.clone(),
            requests_today: format::integer(sources.day.get(&state.name).map_or(0, |day| day.requests)),
            accounts: state.accounts.iter().map(account).collect(),
            log: request.url(&format!("/log?{query}")),
            is_of_file: state.channel.is_of_file(),
            is_built_in: state.channel.is_built_in(),
        }
    }

    /// Reads its data; `None` if there is no such channel.
    pub(super) async fn read(request: &PageRequest, name: &str) -> Result<Option<Self>, ApiError> {
        let (states, sources) = tokio::try_join!(states(request), sources(request))?;
        Ok(states.iter().find(|state| state.name == name).map(|state| Self::of(request, state, &sources)))
    }
}
