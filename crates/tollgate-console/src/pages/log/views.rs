//! Saved views of the usage log: those of the reader, and those that operators share.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::filter::LogFilter;
use crate::{
    api_error::ApiError,
    dispatch::ApiCall,
    pages::{
        form::FormData,
        operations,
        preferences::Toast,
        reply::{PageFailure, PageReply},
        request::{ApiPage, PageRequest, get},
    },
};

/// A view of the admin API.
#[derive(Debug, Deserialize)]
pub(super) struct SavedView {
    pub(super) name: String,
    pub(super) query: String,
    #[serde(rename = "shared")]
    pub(super) is_shared: bool,
    pub(super) member: String,
    #[serde(rename = "own")]
    pub(super) is_own: bool,
}

pub(super) async fn read(request: &PageRequest) -> Result<Vec<SavedView>, ApiError> {
    Ok(request.read::<ApiPage<SavedView>>(operations::LIST_VIEWS, ApiCall::default()).await?.items)
}

/// The query of a form as the page writes it, with nothing but the parameters that the filter knows.
fn kept(request: &PageRequest) -> String {
    let query = FormData::parse(request.form.value("query").trim_start_matches('?').as_bytes());
    LogFilter::of(&query, request.state.gateway.now(), request.is_operator()).query(None)
}

fn back(request: &PageRequest, query: &str) -> String {
    request.url(&format!("/log?{query}"))
}

pub(super) async fn save(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    let query = kept(&request);
    let mut body = Map::from_iter([
        ("name".to_owned(), Value::from(request.form.value("name").trim())),
        ("query".to_owned(), query.as_str().into()),
    ]);
    if request.form.value("shared") == "true" {
        body.insert("shared".to_owned(), true.into());
    }
    request.call(operations::SAVE_VIEW, ApiCall { body, ..ApiCall::default() }).await?;
    Ok(PageReply::redirect(&back(&request, &query)).toast(Toast::Saved))
}

pub(super) async fn remove(request: Arc<PageRequest>) -> Result<PageReply, PageFailure> {
    request.call(operations::REMOVE_VIEW, get(&[("name", request.form.value("name"))])).await?;
    Ok(PageReply::redirect(&back(&request, &kept(&request))).toast(Toast::Removed))
}
