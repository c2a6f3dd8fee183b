//! Channels and their accounts: the list with the health and the money of each, a channel with its test, its served models and the
//! reasons why it is not chosen, and the forms that change them.

mod accounts;
mod as_file;
pub(super) mod credentials;
mod detail;
mod drawer;
mod edit;
mod edit_comparison;
pub(super) mod explain;
pub(super) mod explain_detail;
mod export;
mod filter;
pub(super) mod form;
pub(super) mod health_columns;
mod history;
pub(super) mod last_test;
mod line_diff;
mod list;
pub(in crate::pages) mod parameter_edits;
mod rates;
mod selection;
pub(super) mod served;
pub(super) mod state;
mod switch;
mod test;
mod test_models;
mod test_results;
mod test_usage;
mod use_models;

use tollgate_store::AdminScope;

use super::{
    control::Tab,
    form::FormData,
    request::PageRequest,
    route::{PageRoute, SeenBy, page},
};

const OPERATOR: SeenBy = SeenBy::Role(AdminScope::Operator);
const ADMIN: SeenBy = SeenBy::Role(AdminScope::Admin);

pub(super) static ROUTES: &[PageRoute] = &[
    PageRoute::get("/channels", OPERATOR, page!(list::show)),
    PageRoute::get("/channels.csv", OPERATOR, page!(export::csv)),
    PageRoute::post("/channel-selection", OPERATOR, page!(selection::act)),
    PageRoute::post("/channel-selection/enable", OPERATOR, page!(selection::turn_on_again)),
    PageRoute::get("/channel-selection/edit", OPERATOR, page!(selection::edit)),
    PageRoute::post("/channel-selection/edit", OPERATOR, page!(selection::save)),
    PageRoute::get("/channel-selection/remove", OPERATOR, page!(selection::ask_removal)),
    PageRoute::post("/channel-selection/remove", OPERATOR, page!(selection::remove)),
    PageRoute::get("/channels/new", OPERATOR, page!(form::new)),
    PageRoute::post("/channels/new", OPERATOR, page!(form::make)).takes_bytes(credentials::MAX_BYTES),
    PageRoute::get("/channels/{name}", OPERATOR, page!(detail::show)),
    PageRoute::get("/channels/{name}/edit", OPERATOR, page!(edit::show)),
    PageRoute::post("/channels/{name}/edit", OPERATOR, page!(edit::change)).takes_bytes(edit::MAX_BYTES),
    PageRoute::post("/channels/{name}/edit/compare", OPERATOR, page!(edit::compare)).takes_bytes(edit::MAX_BYTES),
    PageRoute::get("/channels/{name}/file", OPERATOR, page!(as_file::show)),
    PageRoute::post("/channels/{name}/file", ADMIN, page!(as_file::compare)).takes_bytes(as_file::MAX_BYTES),
    PageRoute::post("/channels/{name}/file/save", ADMIN, page!(as_file::save)).takes_bytes(as_file::MAX_BYTES),
    PageRoute::get("/channels/{name}/history", OPERATOR, page!(history::list)),
    PageRoute::get("/channels/{name}/history/{revision}", OPERATOR, page!(history::show)),
    PageRoute::post("/channels/{name}/history/{revision}", OPERATOR, page!(history::restore)),
    PageRoute::get("/channels/{name}/models", OPERATOR, page!(served::show)),
    PageRoute::post("/channels/{name}/models", OPERATOR, page!(served::change)).takes_bytes(served::MAX_BYTES),
    PageRoute::post("/channels/{name}/models/fetch", OPERATOR, page!(served::fetch)),
    PageRoute::post("/channels/{name}/models/add", OPERATOR, page!(served::add)).takes_bytes(served::MAX_BYTES),
    PageRoute::get("/channels/{name}/accounts/new", OPERATOR, page!(accounts::new)),
    PageRoute::post("/channels/{name}/accounts/new", OPERATOR, page!(accounts::make)).takes_bytes(credentials::MAX_BYTES),
    PageRoute::get("/channels/{name}/accounts/{account}", OPERATOR, page!(accounts::edit)),
    PageRoute::post("/channels/{name}/accounts/{account}", OPERATOR, page!(accounts::change)),
    PageRoute::post("/channels/{name}/accounts/{account}/switch", OPERATOR, page!(accounts::turn_on)),
    PageRoute::post("/channels/{name}/accounts/{account}/remove", OPERATOR, page!(accounts::remove)),
    PageRoute::get("/channels/{name}/test", OPERATOR, page!(test_models::show)),
    PageRoute::post("/channels/{name}/test", OPERATOR, page!(test::run)),
    PageRoute::post("/channels/{name}/test/fetch", OPERATOR, page!(test_models::fetch)),
    PageRoute::post("/channels/{name}/test/models", OPERATOR, page!(test_models::run)).takes_bytes(served::MAX_BYTES),
    PageRoute::post("/channels/{name}/test/use", OPERATOR, page!(use_models::preview)).takes_bytes(test_results::MAX_BYTES),
    PageRoute::post("/channels/{name}/test/results", OPERATOR, page!(test_models::show_again)).takes_bytes(test_results::MAX_BYTES),
    PageRoute::post("/channels/{name}/test/serve", OPERATOR, page!(use_models::save)).takes_bytes(test_results::MAX_BYTES),
    PageRoute::post("/channels/{name}/switch", OPERATOR, page!(switch::switch)),
    PageRoute::post("/channels/{name}/end-cooling", OPERATOR, page!(switch::end_cooling)),
    PageRoute::post("/channels/{name}/remove", OPERATOR, page!(switch::remove)),
];

/// The part of a query that a saved view keeps.
pub(super) fn kept_query(query: &FormData) -> String {
    filter::ChannelFilter::address(query)
}

/// The pages of one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Overview,
    File,
    History,
}

fn tabs(request: &PageRequest, name: &str, current: Section) -> Vec<Tab> {
    let (t, here) = (request.t(), state::path(name));
    let tab = |section: Section, label: &'static str, below: &str| Tab {
        label,
        link: request.url(&format!("{here}{below}")),
        is_current: section == current,
    };
    vec![
        tab(Section::Overview, t.say("nav.overview"), ""),
        tab(Section::File, t.say("channel_file.title"), "/file"),
        tab(Section::History, t.say("channel_history.title"), "/history"),
    ]
}
