//! Saved views of the pages with a filter: those of the reader, and those that operators share. The forms are part of each page.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};
use tollgate_store::{AdminScope, ViewPage};

use super::{
    channels,
    form::FormData,
    keys, log, members, operations,
    preferences::Toast,
    reply::{PageFailure, PageReply},
    request::{ApiPage, PageRequest, get},
    route::{PageRoute, SeenBy, page},
};
use crate::{api_error::ApiError, dispatch::ApiCall};

const MEMBER: SeenBy = SeenBy::Role(AdminScope::Member);
const OPERATOR: SeenBy = SeenBy::Role(AdminScope::Operator);

/// A channel may be called `views`, so the forms of channels are not below their pages.
pub(super) static ROUTES: &[PageRoute] = &[
    PageRoute::post("/log/views", MEMBER, page!(save)),
    PageRoute::post("/log/views/remove", MEMBER, page!(remove)),
    PageRoute::post("/keys/views", MEMBER, page!(save)),
    PageRoute::post("/keys/views/remove", MEMBER, page!(remove)),
    PageRoute::post("/member-views", OPERATOR, page!(save)),
    PageRoute::post("/member-views/remove", OPERATOR, page!(remove)),
    PageRoute::post("/channel-views", OPERATOR, page!(save)),
    PageRoute::post("/channel-views/remove", OPERATOR, page!(remove)),
];

/// The saved views of a page, and the form that saves its present filter.
#[derive(Debug)]
pub(super) struct SavedViews {
    pub(super) list: Vec<ListedView>,
    /// The query that a new view stores.
    pub(super) query: String,
    pub(super) may_share: bool,
    /// The page of the filter.
    pub(super) page: String,
    /// Target of the form that saves; the target for removal is below it.
    pub(super) form: String,
}

/// A view of the admin API.
#[derive(Debug, Deserialize)]
pub(super) struct ListedView {
    pub(super) name: String,
    pub(super) query: String,
    #[serde(rename = "shared")]
    pub(super) is_shared: bool,
    pub(super) member: String,
    #[serde(rename = "own")]
    pub(super) is_own: bool,
}

impl SavedViews {
    pub(super) async fn read(request: &PageRequest, page: ViewPage) -> Result<Self, ApiError> {
        let views: ApiPage<ListedView> = request.read(operations::LIST_VIEWS, get(&[("page", page.as_str())])).await?;
        Ok(Self {
            list: views.items,
            query: kept_query(request, page, &request.query),
            may_share: request.is_operator(),
            page: request.url(path(page)),
            form: request.url(form_path(page)),
        })
    }
}

const fn path(page: ViewPage) -> &'static str {
    match page {
        ViewPage::Log => "/log",
        ViewPage::Keys => "/keys",
        ViewPage::Members => "/members",
        ViewPage::Channels => "/channels",
    }
}

const fn form_path(page: ViewPage) -> &'static str {
    match page {
        ViewPage::Log => "/log/views",
        ViewPage::Keys => "/keys/views",
        ViewPage::Members => "/member-views",
        ViewPage::Channels => "/channel-views",
    }
}

/// The page whose forms have the path of this request.
fn page_of(request: &PageRequest) -> ViewPage {
    ViewPage::ALL.into_iter().find(|page| request.address.starts_with(form_path(*page))).unwrap_or_default()
}

/// The parameters of a query that the filter of the page knows.
fn kept_query(request: &PageRequest, page: ViewPage, query: &FormData) -> String {
    match page {
        ViewPage::Log => log::kept_query(request, query),
        ViewPage::Keys => keys::kept_query(request, query),
        ViewPage::Members => members::kept_query(query),
        ViewPage::Channels => channels::kept_query(query),
    }
}

/// The query of a form, as the page writes it.
fn sent_query(request: &PageRequest, page: ViewPage) -> String {
    let query = FormData::parse(request.form.value("query").trim_start_matches('?').as_bytes());
    kept_query(request, page, &query)
}

fn back(request: &PageRequest, page: ViewPage, query: &str) -> String {
    request.url(&format!("{}?{query}", path(page)))
}

async fn save(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let page = page_of(&request);
    let query = sent_query(&request, page);
    let mut body = Map::from_iter([
        ("name".to_owned(), Value::from(request.form.value("name").trim())),
        ("page".to_owned(), page.as_str().into()),
        ("query".to_owned(), query.as_str().into()),
    ]);
    if request.form.value("shared") == "true" {
        body.insert("shared".to_owned(), true.into());
    }
    request.call(operations::SAVE_VIEW, ApiCall { body, ..ApiCall::default() }).await?;
    Ok(PageReply::redirect(&back(&request, page, &query)).toast(Toast::Saved))
}

async fn remove(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let page = page_of(&request);
    let named = get(&[("name", request.form.value("name")), ("page", page.as_str())]);
    request.call(operations::REMOVE_VIEW, named).await?;
    Ok(PageReply::redirect(&back(&request, page, &sent_query(&request, page))).toast(Toast::Removed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_of_views_has_its_forms() {
        for page in ViewPage::ALL {
            for form in [form_path(page).to_owned(), format!("{}/remove", form_path(page))] {
                assert!(ROUTES.iter().any(|route| route.path == form), "{form}");
            }
            assert!(super::super::has_page(path(page)), "{page:?}");
        }
    }
}
